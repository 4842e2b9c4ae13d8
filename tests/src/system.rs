//! Sandboxes for tests, shared or exclusive.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, Context};
use eno_control_plane::NatsUser;
use eno_control_plane::parts::Parts;
use eno_lab::sandbox::{Sandbox, SandboxOptions};
use eno_simulator::{NodeInterface, PhysicalNetwork, SwitchSpec, Topology};
use futures::FutureExt as _;
use kube::Client;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::RwLock;

use crate::two_nodes;

/// Maximum wait for one condition on a slow and busy machine.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Warnings of the engine that are shown when a test fails.
const LAST_WARNINGS: usize = 30;

/// A running sandbox: a leaf–spine of two leaves and two spines. `leaf1` has `node1` and `node2`; `leaf2` has `node3`,
/// `node4`, the network `dc-gw` and the router `gw1`. The switch `island` has no links, but `node5` on port `Ethernet1` and the network
/// `island-gw` on port `Ethernet48`.
pub struct System {
    /// The processes.
    pub sandbox: Sandbox,
    /// A client for the switches' control API.
    pub http: reqwest::Client,
    pub(crate) client: Client,
    /// The `eno` program; unset: that built with the tests.
    pub(crate) program: OnceLock<PathBuf>,
    in_use: RwLock<()>,
    dir: Option<TempDir>,
}

impl System {
    async fn start(change: impl FnOnce(&mut SandboxOptions)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let parts = Parts::from_env().expect("a place for the control plane's programs");
        let mut options = SandboxOptions::new(dir.path().join("sandbox"), parts)
            .expect("the programs of the workspace: cargo build --workspace --bins");
        options.topology = topology();
        change(&mut options);
        let sandbox = match Sandbox::start(options).await {
            Ok(sandbox) => sandbox,
            Err(error) => {
                panic!("the sandbox did not start: {error}; its logs are in {}", dir.keep().display())
            }
        };
        Self {
            client: sandbox.client(),
            sandbox,
            http: reqwest::Client::new(),
            program: OnceLock::new(),
            in_use: RwLock::default(),
            dir: Some(dir),
        }
    }

    /// A connection to NATS as one of its users.
    pub async fn nats(&self, user: NatsUser) -> Context {
        let nats = self.sandbox.control_plane().nats();
        let seed = std::fs::read_to_string(nats.seed_of(user)).expect("a seed");
        let connection = ConnectOptions::with_nkey(seed.trim().to_owned())
            .custom_inbox_prefix(format!("_INBOX_eno-{}", user.name()))
            .connect(&nats.url)
            .await;
        jetstream::new(connection.expect("a connection"))
    }

    /// The last command of a switch of the netconf driver, whole also if it is stored in parts.
    pub async fn command(&self, switch: &str) -> Value {
        let command = eno_lab::nats::last_command(&self.sandbox, "netconf", switch).await;
        command.expect("NATS answers").expect("a command")
    }

    /// What the engine has logged; empty if it can't be read.
    pub fn engine_log(&self) -> String {
        let path = self.dir.as_ref().map(|dir| dir.path().join("sandbox/logs/engine.log"));
        path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    /// The value of a process's metric; `None`: the process does not answer, or lacks the metric.
    pub async fn metric(&self, child: &str, name: &str) -> Option<String> {
        let url = format!("{}/metrics", self.sandbox.url(child)?);
        let answer = self.http.get(url).timeout(Duration::from_secs(1)).send().await.ok()?;
        let text = answer.text().await.ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(str::to_owned)
    }

    /// Restarts a part of the control plane in place, as a crash and a supervisor would: the same program, arguments
    /// and environment.
    pub async fn restart_part(&self, name: &str) {
        self.restart_part_after(name, || ()).await;
    }

    /// Restarts a part of the control plane in place; `between` runs while it is down.
    pub async fn restart_part_after(&self, name: &str, between: impl FnOnce()) {
        let part = self.sandbox.kill_part(name).await.expect("a part to kill");
        between();
        self.sandbox.start_part(part).await.expect("the same program again");
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(dir) = self.dir.take()
        {
            eprintln!("the sandbox's logs are kept in {}", dir.keep().join("sandbox/logs").display());
        }
    }
}

fn topology() -> Topology {
    let mut topology = eno_lab::sandbox::topology(4);
    let ports = (1..=48).map(|n| format!("Ethernet{n}")).collect();
    topology.switches.push(SwitchSpec::new("island".to_owned(), ports));
    topology.nodes.push(eno_simulator::Node {
        name: "node5".to_owned(),
        interfaces: vec![NodeInterface {
            name: "eth1".to_owned(),
            switch: "island".to_owned(),
            port: "Ethernet1".to_owned(),
        }],
    });
    topology.physical_networks.push(PhysicalNetwork {
        name: "island-gw".to_owned(),
        switch: "island".to_owned(),
        port: "Ethernet48".to_owned(),
    });
    topology
}

/// The runtime of all sandboxes. A test's own runtime would end with the test and take the sandbox's tasks with it.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime"))
}

/// A sandbox that tests of this process share; its last user stops it.
type SharedSystem = Mutex<Weak<System>>;

fn shared_system(shared_system: &SharedSystem, change: impl FnOnce(&mut SandboxOptions)) -> Arc<System> {
    let mut shared_system = shared_system.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(system) = shared_system.upgrade() {
        return system;
    }
    let system = Arc::new(runtime().block_on(System::start(change)));
    *shared_system = Arc::downgrade(&system);
    system
}

static SANDBOX_WITHOUT_NODES: SharedSystem = Mutex::new(Weak::new());
static SANDBOX_WITH_NODES: SharedSystem = Mutex::new(Weak::new());
static SANDBOX_WITH_OPENSTACK: SharedSystem = Mutex::new(Weak::new());

fn openstack(options: &mut SandboxOptions) {
    options.openstack = true;
}

/// Runs a test concurrently with others on a shared sandbox with OpenStack and without real nodes. The test must use its
/// own names, namespaces and VLAN IDs.
pub fn with_shared_openstack<F: AsyncFnOnce(&System)>(test: F) {
    run_shared(shared_system(&SANDBOX_WITH_OPENSTACK, openstack), test);
}

/// Runs a test on the sandbox of [`with_shared_openstack`] while no other runs there, since it disturbs everything.
pub fn with_exclusive_openstack<F: AsyncFnOnce(&System)>(test: F) {
    run_exclusive(shared_system(&SANDBOX_WITH_OPENSTACK, openstack), test);
}

/// Runs a test concurrently with others on a shared sandbox with two real nodes, one on each leaf. The test must use
/// its own names, namespaces and VLAN IDs.
pub fn with_shared_nodes<F: AsyncFnOnce(&System)>(test: F) {
    run_shared(shared_system(&SANDBOX_WITH_NODES, two_nodes), test);
}

/// Runs a test on the sandbox of [`with_shared_nodes`] while no other runs there, since it disturbs everything.
pub fn with_exclusive_nodes<F: AsyncFnOnce(&System)>(test: F) {
    run_exclusive(shared_system(&SANDBOX_WITH_NODES, two_nodes), test);
}

/// Runs a test concurrently with others on a shared sandbox without real nodes. The test must use its own names,
/// namespaces and VLAN IDs.
pub fn with_shared_sandbox<F: AsyncFnOnce(&System)>(test: F) {
    run_shared(shared_system(&SANDBOX_WITHOUT_NODES, |_| ()), test);
}

/// Runs a test on the shared sandbox while no other runs, since it counts or disturbs everything.
pub fn with_exclusive_sandbox<F: AsyncFnOnce(&System)>(test: F) {
    run_exclusive(shared_system(&SANDBOX_WITHOUT_NODES, |_| ()), test);
}

/// Shows the engine's last warnings when a test fails: others may still use the sandbox, and a CI keeps no files.
struct WarningsOfFailure<'a>(&'a System);

impl Drop for WarningsOfFailure<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let log = self.0.engine_log();
        let warnings = log.lines().rev().filter(|line| line.contains(" WARN ") || line.contains(" ERROR "));
        let last: Vec<_> = warnings.take(LAST_WARNINGS).collect();
        last.iter().rev().for_each(|line| eprintln!("engine: {line}"));
    }
}

fn run_shared<F: AsyncFnOnce(&System)>(system: Arc<System>, test: F) {
    runtime().block_on(async {
        let _warnings = WarningsOfFailure(&system);
        let _guard = system.in_use.read().await;
        test(&system).await;
    });
    release(system);
}

fn run_exclusive<F: AsyncFnOnce(&System)>(system: Arc<System>, test: F) {
    runtime().block_on(async {
        let _warnings = WarningsOfFailure(&system);
        let _guard = system.in_use.write().await;
        test(&system).await;
    });
    release(system);
}

/// Runs a test on a sandbox of its own with the default options.
pub fn with_new_sandbox<F: AsyncFnOnce(&System)>(test: F) {
    with_own_sandbox(|_| (), test);
}

/// Runs a test on a sandbox of its own.
pub fn with_own_sandbox<F: AsyncFnOnce(&System)>(change: impl FnOnce(&mut SandboxOptions), test: F) {
    let system = Arc::new(runtime().block_on(System::start(change)));
    runtime().block_on(async {
        let _warnings = WarningsOfFailure(&system);
        test(&system).await;
    });
    release(system);
}

fn release(system: Arc<System>) {
    // The sandbox's drop needs a runtime.
    let _inside = runtime().enter();
    if let Some(mut system) = Arc::into_inner(system) {
        let dir = system.dir.take();
        let stopping = AssertUnwindSafe(async move { drop(system) }).catch_unwind();
        let _ = runtime().block_on(stopping);
        drop(dir);
    }
}
