//! The suite against a driver that is a program in any language, over NATS.
//!
//! Besides the driver, somebody has to show and change the device without it. That is the *fixture*, a program that
//! speaks the [`protocol`] and starts the driver. [`ProgramFixture`] is a [`DriverFixture`] over that protocol, and
//! [`ProgramDriver`] a [`Driver`] that sends each command over NATS and waits for its report. So the checks are those
//! of drivers in Rust. Those of [`contract`] are about the messages, for which drivers in Rust have their host.

mod contract;
mod protocol;
mod suite;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store};
use eno_schemas::{Desired, DriverHello, Item, Outcome, Report, decode, subject};
use tokio::sync::OnceCell;

use super::{DriverFixture, DriverProcess, Engine, INSTANCE, NatsServer};
use eno_sbi::nats::Connection;
use eno_sbi::{Driver, Identity, Reconciled, Work};
use protocol::{Described, FixtureProgram, Request};

pub use suite::{CheckOutcome, CheckResult, Suite};

/// Time limit for a driver to announce itself.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The driver and the fixture of one suite.
#[derive(Clone, Debug)]
struct Programs {
    /// The driver's name.
    driver: String,
    /// The fixture's program.
    fixture: PathBuf,
    /// The driver's further capabilities, once it has announced itself.
    capabilities: Arc<OnceLock<Vec<String>>>,
}

impl Programs {
    fn new(driver: &str, fixture: &Path) -> Self {
        Self { driver: driver.into(), fixture: fixture.into(), capabilities: Arc::default() }
    }
}

/// A running fixture program with its target. Cloning is cheap.
#[derive(Clone)]
pub struct ProgramFixture(Arc<Inner>);

struct Inner {
    programs: Programs,
    described: Described,
    program: Mutex<FixtureProgram>,
    /// The NATS of [`ProgramDriver`]s; checks of whole processes have their own.
    nats: OnceCell<(NatsServer, Engine)>,
    /// Number of drivers that were created.
    drivers: AtomicU64,
    /// Number of the driver that runs as a process.
    running: Mutex<Option<u64>>,
    /// Sequence of the last command.
    sequence: AtomicU64,
    /// Why the check is not for this driver.
    skipped: OnceLock<String>,
}

/// Waits until a condition holds. `what` must come true, for the finding.
async fn until<F: Future<Output = bool>>(what: &str, limit: Duration, mut condition: impl FnMut() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let ended = tokio::time::timeout(limit, waiting).await;
    assert!(ended.is_ok(), "{what} within {} s: it did not happen", limit.as_secs());
}

/// The bucket of this name.
async fn bucket(connection: &Connection, name: &str) -> Store {
    connection.jetstream.get_key_value(name).await.expect("a bucket")
}

/// The value and the revision of a key.
async fn value(store: &Store, key: &str) -> Option<(Vec<u8>, u64)> {
    let entry = store.entry(key).await.expect("an entry of the bucket")?;
    (entry.operation == Operation::Put).then(|| (entry.value.to_vec(), entry.revision))
}

impl ProgramFixture {
    fn start(programs: &Programs) -> Self {
        let mut program = FixtureProgram::start(&programs.fixture);
        let described: Described = program.ask(&Request::Describe);
        assert!(
            described.items == 1 || described.items >= 3,
            "the fixture describes {} items: 1 is for a target that exists or not, otherwise at least 3",
            described.items
        );
        Self(Arc::new(Inner {
            programs: programs.clone(),
            described,
            program: Mutex::new(program),
            nats: OnceCell::new(),
            drivers: AtomicU64::new(0),
            running: Mutex::new(None),
            sequence: AtomicU64::new(0),
            skipped: OnceLock::new(),
        }))
    }

    /// The check is not for this driver.
    fn skip(&self, why: &str) {
        let _ = self.0.skipped.set(why.to_owned());
    }

    /// Why the check was not for this driver.
    fn skipped(&self) -> Option<String> {
        self.0.skipped.get().cloned()
    }

    /// Makes sure that the driver's capabilities are known.
    async fn learn_capabilities(&self) {
        if self.0.programs.capabilities.get().is_none() {
            let (server, engine) = self.nats().await;
            self.start_driver(&engine.connection, &server.url()).await;
            self.stop_driver();
        }
    }

    fn program(&self) -> MutexGuard<'_, FixtureProgram> {
        self.0.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn driver_name(&self) -> &str {
        &self.0.programs.driver
    }

    /// The key of the driver's presence.
    fn presence_key(&self) -> String {
        subject::key(self.driver_name(), INSTANCE)
    }

    /// Starts the driver as a program and waits until it has announced itself.
    async fn start_driver(&self, connection: &Connection, url: &str) {
        let drivers = bucket(connection, subject::DRIVERS).await;
        let key = self.presence_key();
        // A killed process leaves it behind.
        drivers.delete(&key).await.expect("deleting a key");
        self.program().tell(&Request::Start { nats_url: url, instance: INSTANCE });
        let what = format!("the driver puts its presence into {} as {key}", subject::DRIVERS);
        until(&what, START_TIMEOUT, || async { value(&drivers, &key).await.is_some() }).await;
        let (hello, _) = value(&drivers, &key).await.expect("the driver keeps its presence");
        let hello: DriverHello =
            decode(&hello).unwrap_or_else(|error| panic!("the driver's presence: {error}"));
        assert_eq!(hello.driver, self.driver_name(), "the driver's presence has another driver's name");
        assert_eq!(hello.instance, INSTANCE, "the driver's presence has another instance than its key");
        let kind = self.desired(&BTreeSet::new()).kind();
        assert!(
            hello.kinds.contains(&kind),
            "the driver's presence does not have {kind:?}, the kind of the fixture's target, among its kinds: {hello:?}"
        );
        self.0.programs.capabilities.get_or_init(|| hello.capabilities);
    }

    /// Ends the driver in an orderly way.
    pub(super) fn stop_driver(&self) {
        self.program().tell(&Request::Stop);
    }

    /// Kills the driver.
    pub(super) fn kill_driver(&self) {
        self.program().tell(&Request::Kill);
    }

    async fn nats(&self) -> &(NatsServer, Engine) {
        let start = async || {
            let server = NatsServer::start().await;
            let engine = Engine::new(&server).await;
            (server, engine)
        };
        self.0.nats.get_or_init(start).await
    }
}

impl DriverFixture for ProgramFixture {
    type Driver = ProgramDriver;

    fn item_count(&self) -> usize {
        self.0.described.items
    }

    fn driver(&self) -> ProgramDriver {
        ProgramDriver { fixture: self.clone(), number: self.0.drivers.fetch_add(1, Ordering::Relaxed) }
    }

    fn target(&self) -> String {
        self.0.described.target.clone()
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        self.program().ask::<protocol::DesiredState>(&Request::Desired { items }).desired
    }

    async fn items(&self) -> BTreeSet<usize> {
        self.program().ask::<protocol::Items>(&Request::Items).items
    }

    async fn foreign(&self) -> String {
        self.program().ask::<protocol::Foreign>(&Request::Foreign).foreign.to_string()
    }

    async fn writes(&self) -> u64 {
        self.program().ask::<protocol::Writes>(&Request::Writes).writes
    }

    async fn set_reachable(&self, reachable: bool) {
        self.program().tell(&Request::Reachable { reachable });
    }

    async fn set_refused(&self, item: Option<usize>) {
        self.program().tell(&Request::Refuse { item });
    }

    async fn edit(&self, item: usize, present: bool) {
        self.program().tell(&Request::Edit { item, present });
    }

    fn names(&self, item: usize, found: &Item) -> bool {
        self.program().ask::<protocol::Names>(&Request::Names { item, found }).names
    }

    async fn start_host(&self, server: &NatsServer) -> DriverProcess {
        let connection = server.connect("eno-conformance").await;
        self.start_driver(&connection, &server.url()).await;
        DriverProcess::program(self.clone())
    }
}

/// A driver that is a program. Its process runs from its first command until that of another driver of the fixture.
pub struct ProgramDriver {
    fixture: ProgramFixture,
    number: u64,
}

impl ProgramDriver {
    async fn ensure_running(&self, (server, engine): &(NatsServer, Engine)) {
        let inner = &self.fixture.0;
        let before = inner.running.lock().unwrap_or_else(PoisonError::into_inner).replace(self.number);
        if before == Some(self.number) {
            return;
        }
        if before.is_some() {
            self.fixture.kill_driver();
        }
        self.fixture.start_driver(&engine.connection, &server.url()).await;
    }
}

impl Driver for ProgramDriver {
    fn identity(&self) -> Identity {
        let programs = &self.fixture.0.programs;
        Identity {
            name: programs.driver.clone(),
            kinds: vec![self.fixture.desired(&BTreeSet::new()).kind()],
            capabilities: programs.capabilities.get().cloned().unwrap_or_default(),
        }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let nats = self.fixture.nats().await;
        self.ensure_running(nats).await;
        let mut command = (*work.command).clone();
        // A driver takes no command twice.
        command.generation.sequence = self.fixture.0.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        nats.1.send(&command).await;
        let ended = |report: &Report| {
            report.generation.sequence == command.generation.sequence
                && !matches!(report.outcome, Outcome::Progress { .. })
        };
        let report = nats.1.report(&command.driver, &command.target, ended).await;
        Reconciled {
            outcome: report.outcome,
            applied: report.applied,
            rejected: report.rejected,
            notes: report.notes,
            device: report.device,
            change: report.change,
        }
    }
}
