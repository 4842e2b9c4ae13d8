//! A simulated fabric and a driver.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eno_conformance::fabrics;
use eno_device_secrets::{Login, SecretSource};
use eno_driver_netconf::dialect::{DIALECTS, Dialects, choose};
use eno_driver_netconf::driver::{NetconfDriver, Options, PrefixMetrics};
use eno_driver_netconf::hello::Hello;
use eno_driver_netconf::plan::{Baseline, ClashDetector, Passwords};
use eno_driver_netconf::session::{Call, Session};
use eno_driver_netconf::ssh::{Limits, SshSession};
use eno_driver_netconf::text::Text;
use eno_driver_netconf::transaction::{RunContext, Transaction, TransactionError};
use eno_sbi::{Driver, LatestCommand, Phase, Reconciled, Work};
use eno_schemas::{
    Applied, Command, Decision, Desired, Device, DeviceInfo, FabricDesired, Item, Outcome, VlanId, VlanSet,
};
use eno_simulator::{Capabilities, Fabric, FabricOptions, HandEdit, Switch, SwitchInfo, Topology};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};

pub use eno_conformance::fabrics::{applied_vlans, failed, set, vid};

pub const CLUSTER: &str = "test";

pub struct Bench {
    pub fabric: Fabric,
    pub driver: Arc<NetconfDriver>,
    pub credentials: tempfile::TempDir,
}

impl Bench {
    /// Starts a leaf–spine fabric with a topology that `adapt` changed.
    pub async fn start(adapt: impl FnOnce(&mut Topology)) -> Self {
        let mut topology = Topology::leaf_spine(2, 2, 4);
        adapt(&mut topology);
        Self::with(&topology).await
    }

    /// Starts that fabric with switches of these capabilities.
    pub async fn with_capabilities(adapt: impl Fn(&mut Capabilities)) -> Self {
        Self::start(|topology| {
            topology.switches.iter_mut().for_each(|switch| adapt(&mut switch.capabilities));
        })
        .await
    }

    pub async fn with(topology: &Topology) -> Self {
        let fabric = Fabric::start(topology, FabricOptions::default()).await.expect("the fabric starts");
        let credentials = tempfile::tempdir().expect("a directory");
        for switch in fabric.info() {
            let login = [("username", &switch.username), ("password", &switch.password)];
            fabrics::write_secret(credentials.path(), &switch.name, login);
        }
        for switch in fabric.info() {
            list_device(credentials.path(), &switch.name, &device_of(switch));
        }
        let driver = Arc::new(NetconfDriver::new(options(credentials.path())));
        Self { fabric, driver, credentials }
    }

    /// Replaces the driver by a new one, as a restart of its process does.
    pub fn restart_driver(&mut self) {
        self.driver = Arc::new(NetconfDriver::new(options(self.credentials.path())));
    }

    pub fn switch(&self, name: &str) -> &Arc<Switch> {
        self.fabric.switch(name).expect("a switch of that name")
    }

    pub fn info(&self, name: &str) -> &SwitchInfo {
        self.fabric.info().iter().find(|info| info.name == name).expect("a switch of that name")
    }

    /// Edits the configuration of a switch as an administrator does.
    pub fn edit(&self, name: &str, edit: &HandEdit) {
        self.switch(name).change_by_hand(edit).expect("an edit");
    }

    /// Opens a session with leaf1 beside that of the driver.
    pub async fn connect(&self) -> SshSession {
        let Options { credentials, limits, .. } = options(self.credentials.path());
        let login = Login::new("netconf", "leaf1", &self.device("leaf1"));
        let ignore = Box::new(|_: &Text| ());
        let session = SshSession::connect(login, &credentials, limits, ignore);
        session.await.expect("a session")
    }

    pub fn device(&self, name: &str) -> Device {
        device_of(self.info(name))
    }

    /// Makes `device` the only one that the credential is for.
    pub fn list_device(&self, credential: &str, device: &Device) {
        list_device(self.credentials.path(), credential, device);
    }

    /// The desired state with `vlans` on each of `ports`.
    pub fn desired(&self, name: &str, vlans: &str, ports: &[&str]) -> FabricDesired {
        let ports: Vec<(&str, &str)> = ports.iter().map(|port| (*port, vlans)).collect();
        self.desired_ports(name, vlans, &ports)
    }

    pub fn desired_ports(&self, name: &str, vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
        desired(self.device(name), vlans, ports)
    }

    pub async fn reconcile(&self, target: &str, desired: FabricDesired) -> Reconciled {
        self.driver.reconcile(work(target, desired)).await
    }

    /// Reconciles the desired state with `vlans` on each of `ports`.
    pub async fn apply(&self, name: &str, vlans: &str, ports: &[&str]) -> Reconciled {
        self.reconcile(name, self.desired(name, vlans, ports)).await
    }

    /// Reconciles until the driver asks for no retry.
    pub async fn settle(&self, target: &str, desired: &FabricDesired) -> Reconciled {
        for _ in 0..20 {
            let reconciled = self.reconcile(target, desired.clone()).await;
            if !reconciled.wants_retry() {
                return reconciled;
            }
        }
        panic!("it does not settle");
    }
}

/// How a switch is reached, with the credential of its name.
pub fn device_of(info: &SwitchInfo) -> Device {
    Device {
        credential: Some(info.name.clone()),
        host_key: Some(info.host_key.clone()),
        ..Device::new(info.netconf.to_string())
    }
}

/// Writes the file of a credential that lists the devices that it is for.
pub fn list_device(credentials: &Path, credential: &str, device: &Device) {
    let line = format!("{} {}\n", device.address, device.host_key.as_deref().unwrap_or_default());
    std::fs::write(credentials.join(credential).join("devices"), line).expect("a file");
}

/// The desired state with these VLANs, and with ports by name and VLANs.
pub fn desired(device: Device, vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
    fabrics::desired(CLUSTER, device, vlans, ports)
}

/// An edit that names VLANs.
pub fn defined(vlans: &[(u16, &str)]) -> HandEdit {
    let define_vlans = vlans.iter().map(|(id, name)| (*id, (*name).to_owned())).collect();
    HandEdit { define_vlans, ..HandEdit::default() }
}

/// An edit that makes a port a trunk and adds VLANs to it.
pub fn trunk(port: &str, vlans: &str) -> HandEdit {
    let (mode, vlans) = (Some(eno_simulator::PortMode::Trunk), vlans.parse().expect("a set of VLANs"));
    HandEdit { port: Some(port.to_owned()), mode, vlans, ..HandEdit::default() }
}

/// An edit that makes a port an access port of a VLAN.
pub fn access(port: &str, vlan: u16) -> HandEdit {
    let mode = Some(eno_simulator::PortMode::Access);
    HandEdit { port: Some(port.to_owned()), mode, access: Some(vlan), ..HandEdit::default() }
}

/// An edit that removes VLANs from a port; `None`: from the switch.
pub fn removed(port: Option<&str>, vlans: &str) -> HandEdit {
    let remove_vlans = vlans.parse().expect("a set of VLANs");
    HandEdit { port: port.map(str::to_owned), remove_vlans, ..HandEdit::default() }
}

/// Runs one transaction in a session. Returns the VLANs of its last read, too.
pub async fn run_transaction<S: Session>(
    session: &S,
    dialects: Dialects,
    work: &Work,
    desired: &FabricDesired,
    context: RunContext<'_>,
) -> (Result<Reconciled, TransactionError>, Option<Baseline>) {
    run_first_transaction(session, dialects, work, desired, context, Some(false)).await
}

/// The same, with what the session knows of our VRFs.
pub async fn run_first_transaction<S: Session>(
    session: &S,
    dialects: Dialects,
    work: &Work,
    desired: &FabricDesired,
    context: RunContext<'_>,
    own_routing: Option<bool>,
) -> (Result<Reconciled, TransactionError>, Option<Baseline>) {
    let dialect = choose(dialects, None, session.hello()).expect("a dialect");
    let transaction = Transaction {
        session,
        dialect,
        profile: dialect.profile(session.hello()).expect("a profile"),
        work,
        desired,
        persist_id: "eno-test-leaf1",
        confirm_timeout: Duration::from_mins(1),
        intent: &work.intent(),
        device: &DeviceInfo::default(),
        own_before: &VlanSet::EMPTY,
        read_baseline: Mutex::default(),
        own_routing: Mutex::new(own_routing),
        own_bgp: Mutex::default(),
        passwords: &Passwords::default(),
        clash_detector: &ClashDetector::default(),
        running_lock: Mutex::default(),
    };
    let ended = transaction.run(context).await;
    (ended, transaction.read_baseline.into_inner().unwrap())
}

pub fn options(credentials: &Path) -> Options {
    Options {
        dialects: DIALECTS,
        credentials: SecretSource::Directory(credentials.to_owned()),
        limits: Limits {
            connect: Duration::from_secs(10),
            rpc: Duration::from_secs(30),
            keep_alive: Duration::from_secs(5),
        },
        confirm_timeout: Duration::from_mins(1),
        audit_interval: Duration::from_hours(1),
        session_interval: Duration::from_millis(200),
        prefixes: PrefixMetrics::default(),
    }
}

pub fn command(target: &str, desired: FabricDesired) -> Command {
    Command::new("netconf", target, (1, 1), Desired::Fabric(desired))
}

pub fn work(target: &str, desired: FabricDesired) -> Work {
    Work::alone(command(target, desired))
}

/// A session whose replies are changed or measured.
pub struct TappedSession {
    pub session: SshSession,
    /// Gets each reply, and returns what the transaction reads.
    pub tap: Arc<dyn Fn(String) -> String + Send + Sync>,
}

impl Session for TappedSession {
    fn hello(&self) -> &Hello {
        self.session.hello()
    }

    fn call(&self, operation: Text) -> Call {
        let (call, tap) = (self.session.call(operation), Arc::clone(&self.tap));
        Box::pin(async move { Ok(tap(call.await?.to_string()).into()) })
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        self.session.ended()
    }
}

/// A command of a transaction, and the channel of newer commands.
pub struct Part {
    pub command: Command,
    pub newest: watch::Sender<LatestCommand>,
}

impl Part {
    /// A command whose transaction has its deadline in `left`.
    pub fn new(target: &str, desired: FabricDesired, left: Duration) -> Self {
        let deadline = jiff::Timestamp::now() + jiff::SignedDuration::try_from(left).expect("a short time");
        let transaction = eno_schemas::Transaction {
            id: "t1".into(),
            participants: vec!["leaf1".into(), "leaf2".into()],
            deadline: deadline.to_string(),
            decide_within_ms: None,
            decision: None,
        };
        let command = Command { transaction: Some(transaction), ..command(target, desired) };
        Self { newest: watch::Sender::new(LatestCommand::Command(Arc::new(command.clone()))), command }
    }

    pub fn work(&self) -> Work {
        Work::new(Arc::new(self.command.clone()), self.newest.subscribe(), mpsc::channel(64).0)
    }

    /// Reconciles. Once the change is held, `then` happens.
    pub async fn hold(&self, driver: &NetconfDriver, then: impl AsyncFnOnce(Reconciled)) -> Reconciled {
        let work = self.work();
        let phase = work.phase();
        let held = Box::pin(async { then(until_change_is_held(phase).await).await });
        tokio::join!(Box::pin(driver.reconcile(work)), held).0
    }

    /// Reconciles, and kills the driver once the change is held.
    pub async fn hold_and_kill(&self, driver: NetconfDriver) {
        let work = self.work();
        let phase = work.phase();
        tokio::select! {
            ended = Box::pin(driver.reconcile(work)) => panic!("it did not wait: {ended:?}"),
            held = until_change_is_held(phase) => assert_eq!(held.outcome, Outcome::Held),
        }
    }

    /// The command that carries the decision.
    pub fn decided(&self, decision: Decision) -> Command {
        let mut next = self.command.clone();
        next.generation.sequence += 1;
        if let Some(transaction) = &mut next.transaction {
            transaction.decision = Some(decision);
        }
        next
    }

    pub fn decide(&self, decision: Decision) {
        self.newest.send_replace(LatestCommand::Command(Arc::new(self.decided(decision))));
    }

    /// The work of another process on the decision.
    pub fn work_later(&self, decision: Decision) -> Work {
        Work::alone(self.decided(decision))
    }
}

/// Waits until the driver holds the change, and returns its report then.
pub async fn until_change_is_held(mut phase: watch::Receiver<Phase>) -> Reconciled {
    let held = phase.wait_for(|phase| matches!(phase, Phase::Held(_))).await.expect("it holds the change");
    match &*held {
        Phase::Held(held) => (**held).clone(),
        other => panic!("{other:?}"),
    }
}

/// The reason of a rollback.
pub fn rolled_back(reconciled: &Reconciled) -> &str {
    match &reconciled.outcome {
        Outcome::RolledBack { reason } => reason,
        other => panic!("it was not taken back: {other:?}"),
    }
}

/// The rejected items, none of which is rejected twice.
#[track_caller]
pub fn items(reconciled: &Reconciled) -> BTreeSet<Item> {
    let items: BTreeSet<Item> = reconciled.rejected.iter().map(|rejection| rejection.item.clone()).collect();
    assert_eq!(items.len(), reconciled.rejected.len(), "{:?}", reconciled.rejected);
    items
}

/// The desired state with the reported port memory, as in the engine's next command.
pub fn with_port_memory(mut desired: FabricDesired, applied: &Applied) -> FabricDesired {
    let Applied::Fabric { closed, before, .. } = applied else { panic!("{applied:?}") };
    for port in &mut desired.ports {
        port.closed = closed.as_ref().is_some_and(|closed| closed.contains(&port.name));
        port.before = before.get(&port.name).cloned();
    }
    desired
}

/// The same with the port memory of a report.
pub fn with_new_port_memory(desired: &FabricDesired, reconciled: &Reconciled) -> FabricDesired {
    with_port_memory(desired.clone(), reconciled.applied.as_ref().expect("an applied state"))
}

/// The switch's own view: its VLANs under our names, and the VLANs that a port carries.
pub fn on_switch(switch: &Switch, port: &str) -> (String, String) {
    let view = switch.view();
    let ours = |(id, vlan): (&u16, &eno_simulator::VlanView)| {
        (vlan.name.as_deref() == Some(&format!("eno-{CLUSTER}-{id}")))
            .then(|| VlanId::new(*id).ok())
            .flatten()
    };
    let vlans: VlanSet = view.vlans.iter().filter_map(ours).collect();
    (vlans.to_string(), view.ports[port].vlans.to_string())
}

/// The number of requests that a switch has received.
pub fn calls(switch: &Switch) -> u64 {
    switch.stats().rpcs.values().sum()
}
