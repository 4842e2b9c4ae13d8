//! One switch: its datastores, sessions, faults and counters.

mod operations;
mod reaction;
mod upkeep;

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

pub use reaction::{Opened, Reaction, Reply};

/// Sessions that a switch has at once at most.
const MOST_SESSIONS: usize = 256;

/// A simulated switch.
#[derive(Debug)]
pub struct Switch {
    /// Its name in the topology.
    pub name: String,
    /// What it announces and does.
    pub capabilities: Capabilities,
    /// Its data model.
    pub dialect: &'static Dialect,
    hardware: Hardware,
    factory: Container,
    directory: Option<PathBuf>,
    /// What is on disk; nothing yet of what isn't there.
    saved: Mutex<(Option<Container>, Option<Container>)>,
    /// Something may have to be saved.
    unsaved: Notify,
    /// The host key that the switch got by being replaced.
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
    /// Configurations put away by name.
    backups: BTreeMap<String, Container>,
    faults: Faults,
    stats: Stats,
}

#[derive(Debug)]
struct Session {
    username: String,
    peer: String,
    /// The TCP connection; several sessions may share it.
    connection: CancellationToken,
    /// The orderly end of this session.
    end: CancellationToken,
    outgoing: mpsc::UnboundedSender<String>,
    subscribed: bool,
    /// To changes, by YANG-push.
    subscriptions: Vec<Subscription>,
}

/// What a switch counted since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Commits of a candidate and edits of running, done or refused; not those that only confirm.
    pub transactions: u64,
    /// Confirmed commits that were confirmed.
    pub confirmed: u64,
    /// Confirmed commits that were rolled back: cancelled, timed out, or lost with their session.
    pub rolled_back: u64,
    /// NETCONF sessions opened.
    pub sessions_opened: u64,
    /// NETCONF sessions open at present.
    pub open_sessions: u64,
    /// Refused logins.
    pub auth_failures: u64,
    /// Operations by name.
    pub rpcs: BTreeMap<String, u64>,
}

/// Why a configuration can't be put onto the switch by hand.
#[derive(Debug, thiserror::Error)]
pub enum HandEditError {
    /// It can't be read.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// It doesn't fit the model or the hardware.
    #[error("the switch refuses it: {}", .0.iter().map(|e| e.message.as_str()).collect::<Vec<_>>().join("; "))]
    Refused(Vec<RpcError>),
}

/// Why a configuration that was put away can't be used.
#[derive(Debug, thiserror::Error)]
#[error("there is no backup {0}")]
pub struct NoSuchBackup(pub String);

/// What a switch comes up with after a reboot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Boot {
    /// Running as it was, less an unconfirmed commit; startup where the switch has one.
    #[default]
    Saved,
    /// As it left the factory.
    Factory,
}

/// How a switch is put together.
#[derive(Debug)]
pub struct Setup<'a> {
    /// What the topology says.
    pub spec: &'a SwitchSpec,
    /// Its data model.
    pub dialect: &'static Dialect,
    /// Where it keeps its configuration, if at all.
    pub directory: Option<PathBuf>,
    /// Raised with every change of any switch.
    pub fabric_version: watch::Sender<u64>,
    /// Cancelled when the fabric stops.
    pub shutdown: CancellationToken,
}

impl Switch {
    /// A switch with the configuration found in its directory, else as it left the factory.
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
        // A panic elsewhere must not take the switch down; the state is changed in whole steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a request is read against.
    pub fn context(&self) -> Context<'_> {
        Context { capabilities: &self.capabilities, roots: self.dialect.roots }
    }

    /// What the data plane does.
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

    /// Counters.
    pub fn stats(&self) -> Stats {
        let state = self.state();
        let open = u64::try_from(state.sessions.len()).unwrap_or(u64::MAX);
        Stats { open_sessions: open, ..state.stats.clone() }
    }

    /// Counts a refused login.
    pub fn auth_failed(&self) {
        self.state().stats.auth_failures += 1;
    }

    /// Whether a commit waits for its confirmation.
    pub fn is_pending(&self) -> bool {
        self.state().stores.is_pending()
    }

    /// The present faults.
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

    /// Counts up with every change of running; starts at 1.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// How long the next operation is delayed.
    pub fn delay(&self) -> std::time::Duration {
        let ms = self.state().faults.strike(|fault| match fault {
            Fault::Slow { ms, .. } => Some(*ms),
            _ => None,
        });
        std::time::Duration::from_millis(ms.unwrap_or(0))
    }

    /// A session begins; `None` when there are too many.
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

    /// A session is over, however that came.
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

    /// Does an operation. `message`: the whole request as it came.
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

    /// What `<hello>` announces: what the switch can do, unless it lies.
    pub fn announced(&self) -> Capabilities {
        self.state().faults.announced().unwrap_or(&self.capabilities).clone()
    }

    /// Whether notifications precede the reply to what caused them.
    pub fn notifies_first(&self) -> bool {
        self.state().faults.any(|fault| matches!(fault, Fault::NotificationsFirst {}))
    }

    /// Whether connections are accepted, and nothing is said on them.
    pub fn half_open(&self) -> bool {
        self.state().faults.any(|fault| matches!(fault, Fault::HalfOpen {}))
    }

    /// Counts an operation, understood or not.
    pub fn count(&self, operation: &str) {
        // A name is the client's text: only a bounded number of different ones is kept.
        let rpcs = &mut self.state().stats.rpcs;
        if rpcs.len() < 64 || rpcs.contains_key(operation) {
            *rpcs.entry(operation.to_owned()).or_default() += 1;
        }
    }

    /// Changes running as a person at the console would: locks and candidate don't matter.
    pub fn edit_by_hand(&self, xml: &str) -> Result<(), HandEditError> {
        let mut state = self.state();
        let before = state.stores.running().clone();
        let config = merged(self.dialect, &self.hardware, &before, xml)?;
        state.stores.put(Name::Running, config, None);
        let origin = state.origin(None);
        self.settle(&mut state, &before, &origin);
        Ok(())
    }

    /// The same, said in ports and VLANs.
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

    /// After anything that may have changed a datastore: announces, wakes those who wait, has it saved.
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

    /// Tells YANG-push's subscribers of a change of running.
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
                // A receiver that is gone belongs to a session that is just ending.
                message.map(|message| session.outgoing.send(message));
            }
        }
    }
}

impl State {
    /// What the end of a session does to the datastores. Returns whether something was rolled back.
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
            // A receiver that is gone belongs to a session that is just ending.
            let _ = session.outgoing.send(message.clone());
        }
    }
}

/// A locally administered MAC address that a switch of this name always has; the last 16 bits are free for ports.
fn mac(name: &str) -> [u8; 6] {
    // FNV-1a.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    let [a, b, c, _] = hash.to_be_bytes();
    [0x02, a, b, c, 0, 0]
}

/// `config` with the XML fragments in `xml` merged in, checked.
fn merged(
    dialect: &'static Dialect,
    hardware: &Hardware,
    config: &Container,
    xml: &str,
) -> Result<Container, HandEditError> {
    let document = xml::parse(format!("<config>{xml}</config>").as_bytes())?;
    // A whole <config> is as welcome as what goes into one.
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
