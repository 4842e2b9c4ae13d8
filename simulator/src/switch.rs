//! A simulated switch: datastores, sessions, faults and counters.

mod lifecycle;
mod operations;
mod outcome;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use russh::keys::PrivateKey;
use serde::Serialize;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::bgp_sessions::{self, BgpSupport, Sessions};
use crate::dataplane::{BgpReader, MacTableReader};
use crate::datastores::{Datastore, Datastores, SessionId};
use crate::dialect::{Dialect, HandEdit, Hardware, View};
use crate::faults::{ConnectionFault, Fault, Faults, OddErrors, When};
use crate::mac_table::{self, Learnt};
use crate::model::edit::{self, OnError, Operation};
use crate::model::tree::{self, Container};
use crate::netconf::error::{RpcError, Tag};
use crate::netconf::push::Subscription;
use crate::netconf::rpc::{Context, Rpc};
use crate::netconf::xml::{self, XmlError};
use crate::notifications::{self, Event, Origin};
use crate::topology::{Capabilities, Role, SwitchSpec};

pub use outcome::{OpenedSession, Reply, RpcOutcome};

/// Maximum concurrent sessions of a switch.
const MAX_SESSIONS: usize = 256;

/// A simulated switch.
#[derive(Debug)]
pub struct Switch {
    /// Its name in the topology.
    pub name: String,
    /// Its NETCONF capabilities.
    pub capabilities: Capabilities,
    /// Its data model.
    pub dialect: &'static Dialect,
    /// The ports, link aggregations and MAC address.
    hardware: Hardware,
    /// The factory configuration.
    factory: Container,
    /// Directory that persists the configuration, if any.
    directory: Option<PathBuf>,
    /// Running and startup as last written to disk; `None` if not yet written.
    saved: Mutex<(Option<Container>, Option<Container>)>,
    /// Wakes the persistence task after a possible change.
    save_requested: Notify,
    /// The host key that [`Switch::replace`] generated.
    new_host_key: Mutex<Option<PrivateKey>>,
    /// Datastores, sessions, faults and counters.
    state: Mutex<State>,
    /// Version of running and of the faults of forwarding, from 1.
    version: watch::Sender<u64>,
    /// Version of the whole fabric.
    fabric_version: watch::Sender<u64>,
    /// Reads the MAC table of the data plane, if there is one.
    learns_from: OnceLock<MacTableReader>,
    /// Reads the BGP sessions of the data plane, if there is one.
    reads_bgp_from: OnceLock<BgpReader>,
    /// How often it was rebooted.
    boots: AtomicU64,
    /// Cancelled when the fabric stops.
    shutdown: CancellationToken,
    /// This switch, for the tasks that it spawns.
    this: Weak<Switch>,
}

#[derive(Debug)]
struct State {
    /// Running, candidate and startup.
    datastores: Datastores,
    /// The open sessions.
    sessions: BTreeMap<SessionId, Session>,
    /// The last assigned session-id.
    last_session: SessionId,
    /// The last assigned id of a YANG-push subscription.
    last_subscription: u32,
    /// Saved running configurations by name.
    backups: BTreeMap<String, Container>,
    /// The configuration that was found valid last.
    last_valid: Option<Container>,
    /// Running before its last change, and the time of that change.
    former_running: Option<(Instant, Container)>,
    /// The injected faults.
    faults: Faults,
    /// What the data plane had learnt at the last look.
    learnt: Vec<Learnt>,
    /// The BGP sessions of the data plane at the last look.
    bgp: Sessions,
    /// The counters.
    stats: Stats,
}

#[derive(Debug)]
struct Session {
    /// The user name of the client.
    username: String,
    /// The IP address of the client.
    peer: String,
    /// Cancelled to close the TCP connection; several sessions may share it.
    connection: CancellationToken,
    /// Cancelled to end this session in order.
    end: CancellationToken,
    /// Notifications to send.
    outgoing: mpsc::UnboundedSender<String>,
    /// Whether it subscribed to the stream NETCONF (RFC 5277).
    subscribed: bool,
    /// YANG-push subscriptions.
    subscriptions: Vec<Subscription>,
}

/// Counters since the start of the switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Commits of a candidate and edits of running, successful or not, without confirming commits.
    pub transactions: u64,
    /// Confirmed commits that a client confirmed.
    pub confirmed: u64,
    /// Confirmed commits that were rolled back after a cancellation, a timeout or the end of their session.
    pub rolled_back: u64,
    /// NETCONF sessions opened.
    pub sessions_opened: u64,
    /// NETCONF sessions that are open.
    pub open_sessions: u64,
    /// Failed logins.
    pub auth_failures: u64,
    /// Received operations by name.
    pub rpcs: BTreeMap<String, u64>,
}

/// A hand edit can't be applied.
#[derive(Debug, thiserror::Error)]
pub enum HandEditError {
    /// It is not valid XML.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// It does not conform to the model or the hardware.
    #[error("the switch refuses it: {}", .0.iter().map(|e| e.message.as_str()).collect::<Vec<_>>().join("; "))]
    Refused(Vec<RpcError>),
}

/// No backup of this name exists.
#[derive(Debug, thiserror::Error)]
#[error("there is no backup {0}")]
pub struct NoSuchBackup(pub String);

/// The configuration that a reboot loads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Boot {
    /// The startup datastore if the switch has one, else running without an unconfirmed commit.
    #[default]
    Saved,
    /// The factory configuration.
    Factory,
}

/// The parameters of a switch.
#[derive(Debug)]
pub struct Setup<'a> {
    /// Its entry in the topology.
    pub spec: &'a SwitchSpec,
    /// Its data model.
    pub dialect: &'static Dialect,
    /// Directory that persists its configuration; absent if it is not persisted.
    pub directory: Option<PathBuf>,
    /// Incremented with every change of any switch.
    pub fabric_version: watch::Sender<u64>,
    /// Cancelled when the fabric stops.
    pub shutdown: CancellationToken,
}

impl Switch {
    /// Creates a switch with the persisted configuration, else the factory configuration.
    pub fn new(setup: Setup<'_>) -> Result<Arc<Self>, HandEditError> {
        let Setup { spec, dialect, directory, fabric_version, shutdown } = setup;
        let hardware = Hardware {
            ports: spec.ports.clone(),
            lags: spec.lags.clone(),
            mac: mac_address(&spec.name),
            strict_references: spec.strict_references,
            router: spec.role == Role::Router,
        };
        let mut factory = (dialect.factory)(&hardware);
        if let Some(xml) = &spec.configuration {
            factory = merge_xml(dialect, &hardware, &factory, xml)?;
        }
        let saved = |name: &str| {
            let path = directory.as_ref()?.join(name);
            let xml = std::fs::read_to_string(path).ok()?;
            match merge_xml(dialect, &hardware, &Container::default(), &xml) {
                Ok(config) => Some(config),
                Err(error) => {
                    tracing::warn!(switch = spec.name, file = name, %error, "saved configuration ignored");
                    None
                }
            }
        };
        let running = saved("running.xml").unwrap_or_else(|| factory.clone());
        let startup =
            if spec.capabilities.startup { saved("startup.xml").or(Some(factory.clone())) } else { None };
        let state = State {
            datastores: Datastores::new(running.clone(), startup.clone()),
            sessions: BTreeMap::new(),
            last_session: 0,
            last_subscription: 0,
            backups: BTreeMap::new(),
            last_valid: None,
            former_running: None,
            faults: Faults::default(),
            learnt: Vec::new(),
            bgp: Sessions::new(),
            stats: Stats::default(),
        };
        Ok(Arc::new_cyclic(|this| Self {
            name: spec.name.clone(),
            capabilities: spec.capabilities.clone(),
            dialect,
            hardware,
            factory,
            directory,
            saved: Mutex::new((None, None)),
            save_requested: Notify::new(),
            new_host_key: Mutex::new(None),
            state: Mutex::new(state),
            version: watch::Sender::new(1),
            fabric_version,
            learns_from: OnceLock::new(),
            reads_bgp_from: OnceLock::new(),
            boots: AtomicU64::new(0),
            shutdown,
            this: this.clone(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in another thread must not disable the switch.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context for parsing requests.
    pub fn context(&self) -> Context<'_> {
        let mac_table = self.dialect.mac_table.operation();
        let bgp = self.dialect.bgp.map_or(&[][..], BgpSupport::operations);
        Context { capabilities: &self.capabilities, roots: self.dialect.roots, mac_table, bgp }
    }

    /// The effective switching state.
    pub fn view(&self) -> View {
        let running = self.state().datastores.running().clone();
        (self.dialect.view)(&running, &self.hardware)
    }

    /// The running configuration as XML.
    pub fn running_xml(&self) -> String {
        let running = self.state().datastores.running().clone();
        let mut out = String::new();
        running.write_xml(self.dialect.roots, "", &mut out);
        out
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        let state = self.state();
        let open = u64::try_from(state.sessions.len()).unwrap_or(u64::MAX);
        Stats { open_sessions: open, ..state.stats.clone() }
    }

    /// Counts a failed login.
    pub fn count_auth_failure(&self) {
        self.state().stats.auth_failures += 1;
    }

    /// Whether a confirmed commit awaits its confirmation.
    pub fn is_pending(&self) -> bool {
        self.state().datastores.is_pending()
    }

    /// The active faults.
    pub fn faults(&self) -> Vec<Fault> {
        self.state().faults.list().to_vec()
    }

    /// Adds a fault, or clears all with [`Fault::Clear`].
    pub fn inject(&self, fault: Fault) {
        let mut state = self.state();
        let unreachable = fault == Fault::Unreachable {};
        let of_forwarding =
            |faults: &Faults| faults.list().iter().filter(|fault| fault.is_of_forwarding()).count();
        let before = of_forwarding(&state.faults);
        state.faults.add(fault);
        if of_forwarding(&state.faults) != before {
            self.increment_versions();
        }
        if unreachable {
            for session in state.sessions.values() {
                session.connection.cancel();
            }
        }
    }

    /// Whether connections are accepted.
    pub fn reachable(&self) -> bool {
        !self.state().faults.unreachable()
    }

    /// The version of running and of the faults of forwarding; it starts at 1 and increases with every change.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The delay of an operation; counts an occurrence of [`Fault::Slow`].
    pub fn take_delay(&self, name: &str) -> std::time::Duration {
        let ms = self.state().faults.trigger(|fault| match fault {
            Fault::Slow { ms, operation, .. } if operation.as_ref().is_none_or(|own| own == name) => {
                Some(*ms)
            }
            _ => None,
        });
        std::time::Duration::from_millis(ms.unwrap_or(0))
    }

    /// Opens a session. Returns `None` if the maximum number of sessions is open.
    pub fn open_session(
        &self,
        username: &str,
        peer: &str,
        connection: CancellationToken,
    ) -> Option<OpenedSession> {
        let mut state = self.state();
        if state.sessions.len() >= MAX_SESSIONS {
            return None;
        }
        state.last_session = state.last_session.checked_add(1).unwrap_or(1);
        let session = state.last_session;
        let end = connection.child_token();
        let (sender, outgoing) = mpsc::unbounded_channel();
        let new = Session {
            username: username.to_owned(),
            peer: peer.to_owned(),
            connection,
            end: end.clone(),
            outgoing: sender,
            subscribed: false,
            subscriptions: Vec::new(),
        };
        state.sessions.insert(session, new);
        state.stats.sessions_opened += 1;
        let origin = state.origin(Some(session));
        state.notify(&Event::SessionStart, &origin);
        Some(OpenedSession { session, end, outgoing })
    }

    /// Closes a session and releases its resources.
    pub fn close_session(&self, session: SessionId) {
        let mut state = self.state();
        let origin = state.origin(Some(session));
        if state.sessions.remove(&session).is_none() {
            return;
        }
        state.notify(&Event::SessionEnd, &origin);
        let before = state.datastores.running().clone();
        if state.release_session(session) {
            state.stats.rolled_back += 1;
            state.notify(&Event::Confirm("cancel"), &origin);
        }
        self.publish_changes(&mut state, &before, &origin);
    }

    /// Executes an operation. `message` is the whole `<rpc>` as received.
    pub fn execute(&self, session: SessionId, rpc: Rpc, message: &str) -> RpcOutcome {
        let mut state = self.state();
        if !state.sessions.contains_key(&session) {
            return RpcOutcome::connection_lost();
        }
        let name = rpc.name();
        if let Some(fault) = state.faults.connection_fault(name, When::Before) {
            return state.connection_fault_outcome(session, fault);
        }
        let before = state.datastores.running().clone();
        let outcome = self.perform(&mut state, session, rpc, message);
        let origin = state.origin(Some(session));
        self.publish_changes(&mut state, &before, &origin);
        match state.faults.connection_fault(name, When::After) {
            Some(fault) => state.connection_fault_outcome(session, fault),
            None => outcome,
        }
    }

    /// Makes the MAC table that of a bridge of the data plane.
    pub(crate) fn learn_from(&self, reader: MacTableReader) {
        // A switch has one data plane.
        let _ = self.learns_from.set(reader);
    }

    /// Makes the BGP sessions those of a bridge of the data plane.
    pub(crate) fn read_bgp_from(&self, reader: BgpReader) {
        // A switch has one data plane.
        let _ = self.reads_bgp_from.set(reader);
    }

    /// How often it was rebooted.
    pub(crate) fn boots(&self) -> u64 {
        self.boots.load(Ordering::Relaxed)
    }

    /// Looks which BGP sessions there are, before an operation that shows them.
    async fn look_at_bgp(&self, operation: &str) {
        let Some(bgp) = self.dialect.bgp.filter(|bgp| bgp.shows(operation)) else { return };
        let Some(reader) = self.reads_bgp_from.get() else { return };
        let running = self.state().datastores.running().clone();
        let sessions = reader.read((bgp.instances)(&running).keys()).await.unwrap_or_else(|error| {
            tracing::warn!(switch = self.name, %error, "BGP sessions can't be read, and are shown as idle");
            Sessions::new()
        });
        self.state().bgp = sessions;
    }

    /// The BGP sessions of all VRFs.
    fn bgp_sessions(&self, state: &State) -> Sessions {
        let Some(bgp) = self.dialect.bgp else { return Sessions::new() };
        let has_data_plane = self.reads_bgp_from.get().is_some();
        bgp_sessions::complete(&(bgp.instances)(state.datastores.running()), &state.bgp, has_data_plane)
    }

    /// Looks what the data plane knows, before an operation that shows it.
    pub async fn look_at_data_plane(&self, operation: &str) {
        self.look_at_bgp(operation).await;
        let shows = operation == "get" || self.dialect.mac_table.operation() == Some(operation);
        let Some(reader) = self.learns_from.get().filter(|_| shows) else { return };
        let learnt = reader.read().await.unwrap_or_else(|error| {
            tracing::warn!(switch = self.name, %error, "the MAC table can't be read, and is shown empty");
            Vec::new()
        });
        self.state().learnt = learnt;
    }

    /// The capabilities that `<hello>` announces: the real ones unless [`Fault::Announce`] is active.
    pub fn announced_capabilities(&self) -> Capabilities {
        self.state().faults.announced_capabilities().unwrap_or(&self.capabilities).clone()
    }

    /// Whether notifications precede the reply to the operation that caused them.
    pub fn sends_notifications_first(&self) -> bool {
        self.state().faults.any(|fault| matches!(fault, Fault::NotificationsFirst {}))
    }

    /// The form of errors, if it differs from RFC 6241.
    pub fn odd_errors(&self) -> OddErrors {
        let state = self.state();
        let odd = state.faults.list().iter().find_map(|fault| match fault {
            Fault::OddErrors(odd) => Some(odd.clone()),
            _ => None,
        });
        odd.unwrap_or_default()
    }

    /// Whether the NETCONF subsystem is refused.
    pub fn refuses_subsystem(&self) -> bool {
        self.state().faults.any(|fault| matches!(fault, Fault::NoSubsystem {}))
    }

    /// Whether connections are accepted and nothing is sent on them.
    pub fn half_open(&self) -> bool {
        self.state().faults.any(|fault| matches!(fault, Fault::HalfOpen {}))
    }

    /// Counts a received operation, supported or not.
    pub fn count_rpc(&self, operation: &str) {
        // Clients choose the name: limit the number of distinct names.
        let rpcs = &mut self.state().stats.rpcs;
        if rpcs.len() < 64 || rpcs.contains_key(operation) {
            *rpcs.entry(operation.to_owned()).or_default() += 1;
        }
    }

    /// Merges XML into running as an operator at the console does, regardless of locks and the candidate.
    pub fn edit_xml_by_hand(&self, xml: &str) -> Result<(), HandEditError> {
        let mut state = self.state();
        let before = state.datastores.running().clone();
        let config = merge_xml(self.dialect, &self.hardware, &before, xml)?;
        state.datastores.set(Datastore::Running, config, None);
        let origin = state.origin(None);
        self.publish_changes(&mut state, &before, &origin);
        Ok(())
    }

    /// Applies a hand edit to running, regardless of locks and the candidate.
    pub fn change_by_hand(&self, edit: &HandEdit) -> Result<(), HandEditError> {
        let running = self.state().datastores.running().clone();
        if let Some(port) = &edit.port
            && !(self.dialect.view)(&running, &self.hardware).ports.contains_key(port)
        {
            let error = RpcError::application(Tag::InvalidValue, format!("this switch has no port {port}"));
            return Err(HandEditError::Refused(vec![error]));
        }
        self.edit_xml_by_hand(&(self.dialect.hand_edit_xml)(edit, &running, &self.hardware))
    }

    /// What the switch has learnt.
    fn learnt(&self, state: &State) -> Vec<Learnt> {
        let mut learnt = state.learnt.clone();
        let faults = state.faults.list();
        for entry in &mut learnt {
            if let Some(port) = faults.iter().find_map(|fault| fault.swapped(&entry.port)) {
                port.clone_into(&mut entry.port);
            }
        }
        learnt.extend(mac_table::put_there(faults));
        if learnt.is_empty() {
            return learnt;
        }
        mac_table::by_aggregation(learnt, &(self.dialect.view)(state.datastores.running(), &self.hardware))
    }

    /// Publishes a possible change of running: sends notifications, increments the versions and requests persistence.
    fn publish_changes(&self, state: &mut State, before: &Container, origin: &Origin) {
        if state.datastores.running() != before {
            state.former_running = Some((Instant::now(), before.clone()));
            let mut edits = Vec::new();
            if state.sessions.values().any(|session| session.subscribed) {
                tree::differences(
                    before,
                    state.datastores.running(),
                    self.dialect.roots,
                    None,
                    &mut |path, change, _| {
                        edits.push((path.identifier(), change));
                    },
                );
            }
            state.notify(&Event::ConfigChange(edits), origin);
            self.push_changes(state, before);
            self.increment_versions();
        }
        self.save_requested.notify_one();
    }

    /// Tells the data plane and the users of the control API of a change.
    fn increment_versions(&self) {
        self.version.send_modify(|version| *version += 1);
        self.fabric_version.send_modify(|version| *version += 1);
    }

    /// Sends a change of running to the YANG-push subscribers.
    fn push_changes(&self, state: &mut State, before: &Container) {
        let State { sessions, datastores, .. } = state;
        let after = datastores.running();
        let mut states = None;
        for session in sessions.values_mut() {
            for subscription in &mut session.subscriptions {
                let message = if subscription.request.operational {
                    let show = |config| (self.dialect.operational)(config, &self.hardware);
                    let (before, after) = &*states.get_or_insert_with(|| (show(before), show(after)));
                    subscription.push_change_update(before, after, self.dialect.roots)
                } else {
                    subscription.push_change_update(before, after, self.dialect.roots)
                };
                // The receiver is gone only if the session is ending.
                message.map(|message| session.outgoing.send(message));
            }
        }
    }
}

impl State {
    /// Releases the locks and the commit of an ended session. Returns whether a commit was rolled back.
    fn release_session(&mut self, session: SessionId) -> bool {
        let keep_candidate = self.faults.any(|fault| *fault == Fault::KeepCandidate {});
        self.datastores.end_session(session, keep_candidate)
    }

    fn disconnect_all(&mut self) {
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.connection.cancel();
        }
    }

    fn connection_fault_outcome(&self, session: SessionId, fault: ConnectionFault) -> RpcOutcome {
        match fault {
            ConnectionFault::Dropped => {
                self.disconnect(session);
                RpcOutcome::connection_lost()
            }
            ConnectionFault::Hung => RpcOutcome { reply: None, ends_session: false, hangs: true },
        }
    }

    fn origin(&self, session: Option<SessionId>) -> Origin {
        match session.and_then(|id| Some((id, self.sessions.get(&id)?))) {
            Some((id, session)) => {
                Origin::Session { id, username: session.username.clone(), peer: session.peer.clone() }
            }
            None => Origin::Server,
        }
    }

    fn notify(&self, event: &Event, origin: &Origin) {
        if self.sessions.values().all(|session| !session.subscribed) {
            return;
        }
        let message = notifications::write(event, origin);
        for session in self.sessions.values().filter(|session| session.subscribed) {
            // The receiver is gone only if the session is ending.
            let _ = session.outgoing.send(message.clone());
        }
    }
}

/// Derives a locally administered MAC address from the name of a switch. The last 16 bits are left for ports.
fn mac_address(name: &str) -> [u8; 6] {
    // FNV-1a.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    let [a, b, c, _] = hash.to_be_bytes();
    [0x02, a, b, c, 0, 0]
}

/// Merges XML fragments into a configuration and validates the result.
fn merge_xml(
    dialect: &'static Dialect,
    hardware: &Hardware,
    config: &Container,
    xml: &str,
) -> Result<Container, HandEditError> {
    let document = xml::parse(format!("<config>{xml}</config>").as_bytes())?;
    // Accept a <config> element as well as its content.
    let children = match document.root.children.as_slice() {
        [only] if &*only.name == "config" => &only.children,
        children => children,
    };
    let edits = edit::parse(dialect.roots, children).map_err(HandEditError::Refused)?;
    let mut config = config.clone();
    edit::apply(&mut config, &edits, Operation::Merge, OnError::Stop).map_err(HandEditError::Refused)?;
    let errors = (dialect.check)(&config, hardware);
    if errors.is_empty() { Ok(config) } else { Err(HandEditError::Refused(errors)) }
}
