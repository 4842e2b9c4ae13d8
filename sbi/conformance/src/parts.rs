//! Checks of commands in parts, with a real nats-server. They are for drivers that announce [`PARTS`](eno_sbi::PARTS),
//! and pass for others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Command, Outcome};

use super::{DriverFixture, DriverProcess, Engine, NatsServer, all, command, done};
use eno_sbi::Driver;

/// Time in which a driver that does what it must not would have done it.
const NOT_YET: Duration = Duration::from_millis(500);
/// A target with an invalid command, which is refused after all earlier commands were handled.
const SENTINEL: &str = "conformance-sentinel";

/// A driver that runs on a NATS of its own.
struct Setting<R> {
    fixture: Arc<R>,
    _server: NatsServer,
    engine: Engine,
    host: DriverProcess,
    driver: String,
}

impl<R: DriverFixture> Setting<R> {
    /// `None`: the driver does not read parts.
    async fn new(fixture: Arc<R>) -> Option<Self> {
        let server = NatsServer::start().await;
        let engine = Engine::new(&server).await;
        let host = fixture.start_host(&server).await;
        let driver = fixture.driver().identity().name;
        if !engine.sends_parts(&driver).await {
            host.stop().await;
            return None;
        }
        Some(Self { fixture, _server: server, engine, host, driver })
    }

    fn command(&self, sequence: u64, items: &BTreeSet<usize>) -> Command {
        command(&*self.fixture, &self.driver, sequence, items)
    }

    /// Waits until the command of this sequence is applied.
    async fn until_done(&self, sequence: u64, items: &BTreeSet<usize>) {
        self.engine.report(&self.driver, &self.fixture.target(), done(sequence)).await;
        assert_eq!(self.fixture.items().await, *items, "the items of command {sequence}");
    }
}

/// A head whose parts come later is carried out when they are there. Until then the target stays as it is.
pub async fn head_waits_for_its_parts<R: DriverFixture>(fixture: Arc<R>) {
    let Some(setting) = Setting::new(fixture).await else { return };
    let (all, writes) = (all(&*setting.fixture), setting.fixture.writes().await);
    let command = setting.command(1, &all);
    setting.engine.head(&command).await;
    tokio::time::sleep(NOT_YET).await;
    assert_eq!(setting.fixture.writes().await, writes, "the target was written for a head without its parts");
    setting.engine.parts(&command, |_| true).await;
    setting.until_done(1, &all).await;
    setting.host.stop().await;
}

/// A part with another content than its name says counts as lost. A lost part is reported as `lacking`, and the target
/// stays as it is until the part comes.
pub async fn lost_part_is_asked_for<R: DriverFixture>(fixture: Arc<R>) {
    let Some(setting) = Setting::new(fixture).await else { return };
    let (all, none) = (all(&*setting.fixture), BTreeSet::new());
    setting.engine.send(&setting.command(1, &all)).await;
    setting.until_done(1, &all).await;
    let command = setting.command(2, &none);
    let root = command.generation.hash.parse().expect("the hash of a root part");
    setting.engine.parts(&command, |part| part != root).await;
    setting.engine.raw_part(&setting.driver, &command.target, root, "{}").await;
    setting.engine.head(&command).await;
    let asks = |report: &eno_schemas::Report| !report.lacking.is_empty();
    let report = setting.engine.report(&setting.driver, &command.target, asks).await;
    assert_eq!(report.lacking, [root], "the parts that lack");
    assert!(matches!(report.outcome, Outcome::Progress { .. }), "{report:?}");
    assert_eq!(setting.fixture.items().await, all, "a command was carried out without all of its parts");
    setting.engine.parts(&command, |part| part == root).await;
    setting.until_done(2, &none).await;
    setting.host.stop().await;
}

/// The newest command counts, whether it is whole or in parts.
pub async fn newest_command_counts_whole_or_in_parts<R: DriverFixture>(fixture: Arc<R>) {
    let Some(setting) = Setting::new(fixture).await else { return };
    let (all, none) = (all(&*setting.fixture), BTreeSet::new());
    setting.engine.send(&setting.command(1, &all)).await;
    setting.until_done(1, &all).await;
    setting.engine.command(&setting.command(2, &none)).await;
    setting.until_done(2, &none).await;
    setting.engine.send(&setting.command(3, &all)).await;
    setting.until_done(3, &all).await;
    let writes = setting.fixture.writes().await;
    setting.engine.send(&setting.command(2, &none)).await;
    setting.engine.raw(&setting.driver, SENTINEL, "1").await;
    setting.engine.report(&setting.driver, SENTINEL, |_| true).await;
    setting.host.stop().await;
    assert_eq!(setting.fixture.items().await, all, "an older head was applied");
    assert_eq!(setting.fixture.writes().await, writes, "the target was written without need");
}
