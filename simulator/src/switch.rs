//! A simulated switch: datastores, sessions, faults and counters.

mod lifecycle;
mod operations;
mod outcome;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use russh::keys::PrivateKey;
use serde::Serialize;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::datastores::{Datastores, Name, SessionId};
use crate::dialect::{Dialect, HandEdit, Hardware, View};
use crate::faults::{Break, Fault, Faults, When};
use crate::model::edit::{self, OnError, Operation};
use crate::model::tree::{self, Container};
use crate::netconf::error::{RpcError, Tag};
use crate::netconf::push::Subscription;
use crate::netconf::rpc::{Context, Rpc};
use crate::netconf::xml::{self, XmlError};
use crate::notifications::{self, Event, Origin};
use crate::topology::{Capabilities, SwitchSpec};

pub use outcome::{Opened, Reaction, Reply};

/// Maximum concurrent sessions of a switch.
const MOST_SESSIONS: usize = 256;

/// A simulated switch.
#[derive(Debug)]
pub struct Switch {
    /// Its name in the topology.
    pub name: String,
    /// Its NETCONF capabilities.
    pub capabilities: Capabilities,
    /// Its data model.
    pub dialect: &'static Dialect,
    hardware: Hardware,
    factory: Container,
    directory: Option<PathBuf>,
    /// Running and startup as last written to disk; `None` if not yet written.
    saved: Mutex<(Option<Container>, Option<Container>)>,
    /// Wakes the persistence task after a possible change.
    unsaved: Notify,
    /// The host key that [`Switch::replace`] generated.
    new_host_key: Mutex<Option<PrivateKey>>,
    state: Mutex<State>,
    version: watch::Sender<u64>,
    fabric_version: watch::Sender<u64>,
    shutdown: CancellationToken,
    this: Weak<Switch>,
}

#[derive(Debug)]
struct State {
    stores: Datastores,
    sessions: BTreeMap<SessionId, Session>,
    last_session: SessionId,
    last_subscription: u32,
    /// Saved running configurations by name.
    backups: BTreeMap<String, Container>,
    faults: Faults,
    stats: Stats,
}

#[derive(Debug)]
struct Session {
    username: String,
    peer: String,
    /// Cancelled to close the TCP connection; several sessions may share it.
    connection: CancellationToken,
    /// Cancelled to end this session in order.
    end: CancellationToken,
    outgoing: mpsc::UnboundedSender<String>,
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
            mac: mac(&spec.name),
            strict_references: spec.strict_references,
        };
        let mut factory = (dialect.factory)(&hardware);
        if let Some(xml) = &spec.configuration {
            factory = merged(dialect, &hardware, &factory, xml)?;
        }
        let saved = |name: &str| {
            let path = directory.as_ref()?.join(name);
            let xml = std::fs::read_to_string(path).ok()?;
            match merged(dialect, &hardware, &Container::default(), &xml) {
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
            stores: Datastores::new(running.clone(), startup.clone()),
            sessions: BTreeMap::new(),
            last_session: 0,
            last_subscription: 0,
            backups: BTreeMap::new(),
            faults: Faults::default(),
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
            unsaved: Notify::new(),
            new_host_key: Mutex::new(None),
            state: Mutex::new(state),
            version: watch::Sender::new(1),
            fabric_version,
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
        Context { capabilities: &self.capabilities, roots: self.dialect.roots }
    }

    /// The effective switching state.
    pub fn view(&self) -> View {
        let running = self.state().stores.running().clone();
        (self.dialect.view)(&running, &self.hardware)
    }

    /// The running configuration as XML.
    pub fn running_xml(&self) -> String {
        let running = self.state().stores.running().clone();
        let mut out = String::new();
        running.write(self.dialect.roots, "", &mut out);
        out
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        let state = self.state();
        let open = u64::try_from(state.sessions.len()).unwrap_or(u64::MAX);
        Stats { open_sessions: open, ..state.stats.clone() }
    }

    /// Counts a failed login.
    pub fn auth_failed(&self) {
        self.state().stats.auth_failures += 1;
    }

    /// Whether a confirmed commit awaits its confirmation.
    pub fn is_pending(&self) -> bool {
        self.state().stores.is_pending()
    }

    /// The active faults.
    pub fn faults(&self) -> Vec<Fault> {
        self.state().faults.list().to_vec()
    }

    /// Adds a fault, or clears all with [`Fault::Clear`].
    pub fn inject(&self, fault: Fault) {
        let mut state = self.state();
        let unreachable = fault == Fault::Unreachable {};
        state.faults.add(fault);
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

    /// The version of running; it starts at 1 and increases with every change.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// The delay of the next operation; counts an occurrence of [`Fault::Slow`].
    pub fn delay(&self) -> std::time::Duration {
        let ms = self.state().faults.strike(|fault| match fault {
            Fault::Slow { ms, .. } => Some(*ms),
            _ => None,
        });
        std::time::Duration::from_millis(ms.unwrap_or(0))
    }

    /// Opens a session. Returns `None` if the maximum number of sessions is open.
    pub fn open_session(&self, username: &str, peer: &str, connection: CancellationToken) -> Option<Opened> {
        let mut state = self.state();
        if state.sessions.len() >= MOST_SESSIONS {
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
        state.announce(&Event::SessionStart, &origin);
        Some(Opened { session, end, outgoing })
    }

    /// Closes a session and releases its resources.
    pub fn close_session(&self, session: SessionId) {
        let mut state = self.state();
        let origin = state.origin(Some(session));
        if state.sessions.remove(&session).is_none() {
            return;
        }
        state.announce(&Event::SessionEnd, &origin);
        let before = state.stores.running().clone();
        if state.end_in_stores(session) {
            state.stats.rolled_back += 1;
            state.announce(&Event::Confirm("cancel"), &origin);
        }
        self.settle(&mut state, &before, &origin);
    }

    /// Executes an operation. `message` is the whole `<rpc>` as received.
    pub fn execute(&self, session: SessionId, rpc: Rpc, message: &str) -> Reaction {
        let mut state = self.state();
        if !state.sessions.contains_key(&session) {
            return Reaction::lost();
        }
        let name = rpc.name();
        if let Some(how) = state.faults.breaks(name, When::Before) {
            return state.broken(session, how);
        }
        let before = state.stores.running().clone();
        let reaction = self.perform(&mut state, session, rpc, message);
        let origin = state.origin(Some(session));
        self.settle(&mut state, &before, &origin);
        match state.faults.breaks(name, When::After) {
            Some(how) => state.broken(session, how),
            None => reaction,
        }
    }

    /// The capabilities that `<hello>` announces: the real ones unless [`Fault::Announce`] is active.
    pub fn announced(&self) -> Capabilities {
        self.state().faults.announced().unwrap_or(&self.capabilities).clone()
    }

    /// Whether notifications precede the reply to the operation that caused them.
    pub fn notifies_first(&self) -> bool {
        self.state().faults.any(|fault| matches!(fault, Fault::NotificationsFirst {}))
    }

    /// Whether connections are accepted and nothing is sent on them.
    pub fn half_open(&self) -> bool {
        self.state().faults.any(|fault| matches!(fault, Fault::HalfOpen {}))
    }

    /// Counts a received operation, supported or not.
    pub fn count(&self, operation: &str) {
        // Clients choose the name: limit the number of distinct names.
        let rpcs = &mut self.state().stats.rpcs;
        if rpcs.len() < 64 || rpcs.contains_key(operation) {
            *rpcs.entry(operation.to_owned()).or_default() += 1;
        }
    }

    /// Merges XML into running as an operator at the console does, regardless of locks and the candidate.
    pub fn edit_by_hand(&self, xml: &str) -> Result<(), HandEditError> {
        let mut state = self.state();
        let before = state.stores.running().clone();
        let config = merged(self.dialect, &self.hardware, &before, xml)?;
        state.stores.put(Name::Running, config, None);
        let origin = state.origin(None);
        self.settle(&mut state, &before, &origin);
        Ok(())
    }

    /// Applies a hand edit to running, regardless of locks and the candidate.
    pub fn change_by_hand(&self, edit: &HandEdit) -> Result<(), HandEditError> {
        let running = self.state().stores.running().clone();
        if let Some(port) = &edit.port
            && !(self.dialect.view)(&running, &self.hardware).ports.contains_key(port)
        {
            let error = RpcError::application(Tag::InvalidValue, format!("this switch has no port {port}"));
            return Err(HandEditError::Refused(vec![error]));
        }
        self.edit_by_hand(&(self.dialect.by_hand)(edit, &running, &self.hardware))
    }

    /// Publishes a possible change of running: sends notifications, increments the versions and requests persistence.
    fn settle(&self, state: &mut State, before: &Container, origin: &Origin) {
        if state.stores.running() != before {
            let mut edits = Vec::new();
            if state.sessions.values().any(|session| session.subscribed) {
                tree::differences(
                    before,
                    state.stores.running(),
                    self.dialect.roots,
                    None,
                    &mut |path, change, _| {
                        edits.push((path.instance(), change));
                    },
                );
            }
            state.announce(&Event::ConfigChange(edits), origin);
            self.push(state, before);
            self.version.send_modify(|version| *version += 1);
            self.fabric_version.send_modify(|version| *version += 1);
        }
        self.unsaved.notify_one();
    }

    /// Sends a change of running to the YANG-push subscribers.
    fn push(&self, state: &mut State, before: &Container) {
        let State { sessions, stores, .. } = state;
        let after = stores.running();
        let mut states = None;
        for session in sessions.values_mut() {
            for subscription in &mut session.subscriptions {
                let message = if subscription.wanted.operational {
                    let show = |config| (self.dialect.operational)(config, &self.hardware);
                    let (before, after) = &*states.get_or_insert_with(|| (show(before), show(after)));
                    subscription.changes(before, after, self.dialect.roots)
                } else {
                    subscription.changes(before, after, self.dialect.roots)
                };
                // The receiver is gone only if the session is ending.
                message.map(|message| session.outgoing.send(message));
            }
        }
    }
}

impl State {
    /// Releases the locks and the commit of an ended session. Returns whether a commit was rolled back.
    fn end_in_stores(&mut self, session: SessionId) -> bool {
        let keeps_candidate = self.faults.any(|fault| *fault == Fault::KeepCandidate {});
        self.stores.end_session(session, keeps_candidate)
    }

    fn cut_all(&mut self) {
        for session in std::mem::take(&mut self.sessions).into_values() {
            session.connection.cancel();
        }
    }

    fn broken(&self, session: SessionId, how: Break) -> Reaction {
        match how {
            Break::Lost => {
                self.sever(session);
                Reaction::lost()
            }
            Break::Silent => Reaction { reply: None, last: false, silent: true },
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

    fn announce(&self, event: &Event, origin: &Origin) {
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
fn mac(name: &str) -> [u8; 6] {
    // FNV-1a.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    let [a, b, c, _] = hash.to_be_bytes();
    [0x02, a, b, c, 0, 0]
}

/// Merges XML fragments into a configuration and validates the result.
fn merged(
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
