//! The host with a real nats-server and a scripted driver.

mod cluster;
mod forgetting;
mod full_store;
mod holding;
mod parts;
mod previews;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::kv;
use eno_schemas::{
    Applied, ChangeReport, Command, Decision, Desired, DriverHello, Failure, Item, NadDesired, NadOwner,
    Note, Outcome, PayloadKind, Preview, Report, Subject, Transaction, decode, encode, subject,
};
use futures::{Stream, StreamExt as _};
use tokio::sync::watch;

use eno_conformance::{Engine, NatsServer, RunningHost, done, fabric};
use eno_sbi::host::{HostOptions, Ownership};
use eno_sbi::nats::{self, Connection};
use eno_sbi::{Driver, HOLD, HoldOutcome, Identity, Intent, Reconciled, Work};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const DRIVER: &str = "stub";
const TIMEOUT: Duration = Duration::from_secs(40);

type Responder = Arc<dyn Fn(&Command) -> Reconciled + Send + Sync>;

/// What the driver did, and whether it may continue.
struct Script {
    /// Targets and sequences of the begun reconciles.
    begun: watch::Sender<Vec<(String, u64)>>,
    /// Forgotten targets.
    forgotten: watch::Sender<Vec<String>>,
    /// The work that began last.
    work: Mutex<Option<Work>>,
    /// Whether reconciles may continue.
    open: watch::Sender<bool>,
    /// Count of works that were not current any more when they continued.
    cancelled: watch::Sender<usize>,
    /// The result of a reconcile.
    answer: Mutex<Responder>,
    /// The receiver of `changed`.
    changes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    /// Sends changed targets.
    change: mpsc::UnboundedSender<String>,
    /// The only target.
    only: Option<String>,
}

#[derive(Clone)]
struct Stub(Arc<Script>);

fn applied() -> Reconciled {
    Reconciled::applied(Applied::Nad { present: true })
}

impl Stub {
    fn new() -> Self {
        Self::of(None)
    }

    /// A stub that works on that target only.
    fn of(only: Option<&str>) -> Self {
        let (change, changes) = mpsc::unbounded_channel();
        Self(Arc::new(Script {
            begun: watch::channel(Vec::new()).0,
            forgotten: watch::channel(Vec::new()).0,
            work: Mutex::default(),
            open: watch::channel(true).0,
            cancelled: watch::channel(0).0,
            answer: Mutex::new(Arc::new(|_| applied())),
            changes: Mutex::new(Some(changes)),
            change,
            only: only.map(str::to_owned),
        }))
    }

    fn answer(&self, answer: impl Fn(&Command) -> Reconciled + Send + Sync + 'static) {
        *self.0.answer.lock().unwrap() = Arc::new(answer);
    }

    fn open(&self, open: bool) {
        self.0.open.send_replace(open);
    }

    fn begun(&self) -> Vec<(String, u64)> {
        self.0.begun.borrow().clone()
    }

    async fn until_begun(&self, mut enough: impl FnMut(&[(String, u64)]) -> bool) {
        let mut begun = self.0.begun.subscribe();
        let waited = tokio::time::timeout(TIMEOUT, begun.wait_for(|begun| enough(begun))).await;
        assert!(waited.is_ok(), "the driver has only begun {:?}", self.begun());
    }

    async fn until_not_current(&self) {
        let ended = async {
            while self.0.work.lock().unwrap().as_ref().is_none_or(Work::is_current) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, ended).await.expect("the work is not current any more");
    }

    async fn until_forgotten(&self, target: &str) {
        let mut forgotten = self.0.forgotten.subscribe();
        let wanted = |forgotten: &Vec<String>| forgotten.iter().any(|name| name == target);
        tokio::time::timeout(TIMEOUT, forgotten.wait_for(wanted)).await.expect("forgotten").unwrap();
    }
}

impl Driver for Stub {
    fn identity(&self) -> Identity {
        Identity { name: DRIVER.into(), kinds: vec![PayloadKind::Fabric], capabilities: vec!["test".into()] }
    }

    fn only_target(&self) -> Option<String> {
        self.0.only.clone()
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        work.progress("at it");
        *self.0.work.lock().unwrap() = Some(work.clone());
        self.0.begun.send_modify(|begun| {
            begun.push((work.command.target.clone(), work.command.generation.sequence));
        });
        self.0.open.subscribe().wait_for(|open| *open).await.unwrap();
        if !work.is_current() {
            self.0.cancelled.send_modify(|count| *count += 1);
            return Reconciled::progress("given up");
        }
        // Not under the lock, since it may panic.
        let answer = self.0.answer.lock().unwrap().clone();
        answer(&work.command)
    }

    /// Returns the address that it would have connected to.
    async fn preview(&self, command: Arc<Command>) -> Option<Preview> {
        let Desired::Fabric(desired) = &command.desired else { return None };
        Some(Preview { edits: vec![desired.device.address.clone()], ..Preview::default() })
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changes = self.0.changes.lock().unwrap().take();
        futures::stream::unfold(changes, async |changes| match changes {
            Some(mut changes) => {
                let target = changes.recv().await?;
                Some((target, Some(changes)))
            }
            None => std::future::pending().await,
        })
    }

    async fn forget(&self, target: &str) {
        self.0.forgotten.send_modify(|forgotten| forgotten.push(target.to_owned()));
        self.0.open.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

async fn start(server: &NatsServer, stub: &Stub, instance: &str, ownership: Ownership) -> RunningHost {
    start_on(server.connect("eno-driver-stub").await, stub, instance, ownership).await
}

async fn start_on(connection: Connection, stub: &Stub, instance: &str, ownership: Ownership) -> RunningHost {
    let owners = connection.jetstream.get_stream(subject::bucket_stream(subject::OWNERS)).await;
    let mut options = HostOptions::new(connection, ownership, "1");
    options.instance = instance.into();
    if let Ok(owners) = owners {
        options.lease_duration = owners.cached_info().config.max_age;
    }
    RunningHost::start(stub.clone(), options)
}

struct Setup {
    server: NatsServer,
    engine: Engine,
    stub: Stub,
    host: RunningHost,
}

async fn setup() -> Setup {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let stub = Stub::new();
    let host = start(&server, &stub, "one", Ownership::PerTarget).await;
    Setup { server, engine, stub, host }
}

fn command(target: &str, term: u64, sequence: u64) -> Command {
    let desired = fabric([u16::try_from(sequence).unwrap()]);
    Command::new(DRIVER, target, (term, sequence), desired)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_commands_during_work_cause_one_reconcile_of_the_last() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    stub.open(false);
    engine.command(&command("a", 1, 1)).await;
    stub.until_begun(|begun| begun.len() == 1).await;
    for sequence in 2..=21 {
        engine.command(&command("a", 1, sequence)).await;
    }
    // A target whose command came later is worked on meanwhile.
    engine.command(&command("b", 1, 22)).await;
    stub.until_begun(|begun| begun.len() == 2).await;
    stub.open(true);
    engine.report(DRIVER, "a", done(21)).await;
    engine.report(DRIVER, "b", done(22)).await;
    assert_eq!(stub.begun(), [("a".into(), 1), ("b".into(), 22), ("a".into(), 21)]);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_commands_and_older_reports_change_nothing() {
    let Setup { server, engine, stub, host } = setup().await;
    engine.apply(&command("a", 2, 5)).await;
    engine.command(&command("a", 1, 9)).await;
    engine.apply(&command("b", 1, 1)).await;
    host.end().await;
    assert_eq!(stub.begun(), [("a".into(), 5), ("b".into(), 1)]);
    // A new process learns the generation from the report.
    let stub = Stub::new();
    let host = start(&server, &stub, "two", Ownership::PerTarget).await;
    engine.apply(&command("c", 1, 1)).await;
    host.end().await;
    assert!(!stub.begun().contains(&("a".into(), 9)), "{:?}", stub.begun());
    assert_eq!(engine.report(DRIVER, "a", |_| true).await.generation.term, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_recovers_from_a_nats_restart() {
    let Setup { mut server, engine, stub, host } = setup().await;
    engine.apply(&command("a", 1, 1)).await;
    stub.open(false);
    engine.command(&command("a", 1, 2)).await;
    stub.until_begun(|begun| begun.len() == 2).await;
    server.kill().await;
    // Its report can't be published yet.
    stub.open(true);
    server.restart().await;
    let engine = Engine::new(&server).await;
    engine.report(DRIVER, "a", done(2)).await;
    engine.apply(&command("a", 1, 3)).await;
    assert_eq!(stub.begun(), [("a".into(), 1), ("a".into(), 2), ("a".into(), 3)]);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_after_streams_are_recreated() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    engine.apply(&command("a", 1, 1)).await;
    let jetstream = &engine.connection.jetstream;
    jetstream.delete_stream(subject::RESULTS).await.unwrap();
    nats::ensure_streams(jetstream, 1).await.unwrap();
    // The engine publishes all commands again.
    engine.apply(&command("a", 1, 2)).await;
    jetstream.delete_stream(subject::COMMANDS).await.unwrap();
    nats::ensure_streams(jetstream, 1).await.unwrap();
    stub.until_forgotten("a").await;
    engine.apply(&command("a", 1, 3)).await;
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn target_recreated_during_forget_is_reconciled() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    engine.apply(&command("a", 1, 1)).await;
    stub.open(false);
    engine.forget(DRIVER, "a").await;
    stub.until_forgotten("a").await;
    engine.command(&command("a", 1, 2)).await;
    // The purge was read before this command.
    engine.command(&command("b", 1, 3)).await;
    stub.until_begun(|begun| begun.contains(&("b".into(), 3))).await;
    stub.open(true);
    engine.report(DRIVER, "a", done(2)).await;
    // The instance that works on a target holds its lease.
    let owners = engine.connection.jetstream.get_key_value(subject::OWNERS).await.unwrap();
    let owner = owners.get(subject::key(DRIVER, "a")).await.unwrap();
    assert_eq!(owner.as_deref(), Some(b"one".as_slice()));
    host.end().await;
}

async fn with_short_leases(server: &NatsServer) -> Engine {
    let (connection, lease) = (server.connect("eno-test").await, Duration::from_secs(2));
    let owners = kv::Config {
        bucket: subject::OWNERS.into(),
        max_age: lease,
        limit_markers: Some(lease),
        ..kv::Config::default()
    };
    nats::ensure_streams(&connection.jetstream, 1).await.unwrap();
    connection.jetstream.update_key_value(owners).await.unwrap();
    Engine { connection }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_cancelled_while_nats_is_frozen_is_restarted() {
    for ownership in [Ownership::PerTarget, Ownership::WholeDriver] {
        let (server, stub) = (NatsServer::start().await, Stub::new());
        let engine = with_short_leases(&server).await;
        let host = start(&server, &stub, "one", ownership).await;
        stub.open(false);
        engine.command(&command("a", 1, 1)).await;
        stub.until_begun(|begun| !begun.is_empty()).await;
        server.freeze(true);
        stub.until_not_current().await;
        stub.open(true);
        stub.0.cancelled.subscribe().wait_for(|count| *count > 0).await.unwrap();
        server.freeze(false);
        engine.report(DRIVER, "a", done(1)).await;
        // On a machine that stalls, the short lease may end more than once.
        let cancelled = *stub.0.cancelled.borrow();
        assert_eq!(stub.begun(), vec![("a".to_owned(), 1); cancelled + 1]);
        host.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_instance_takes_over_from_a_killed_one() {
    for ownership in [Ownership::PerTarget, Ownership::WholeDriver] {
        let server = NatsServer::start().await;
        let engine = with_short_leases(&server).await;
        let (one, two) = (Stub::new(), Stub::new());
        let first = start(&server, &one, "one", ownership).await;
        assert_eq!(engine.apply(&command("a", 1, 1)).await.instance, "one");
        let second = start(&server, &two, "two", ownership).await;
        assert_eq!(engine.apply(&command("a", 1, 2)).await.instance, "one");
        first.kill().await;
        assert_eq!(engine.apply(&command("a", 1, 3)).await.instance, "two");
        assert!(two.begun().iter().all(|(_, sequence)| *sequence >= 2), "{:?}", two.begun());
        // An orderly shutdown hands over at once.
        let third = start(&server, &one, "three", ownership).await;
        second.end().await;
        assert_eq!(engine.apply(&command("a", 1, 4)).await.instance, "three");
        third.end().await;
    }
}

/// A server that lags behind has neither the command nor the last report. Only the message that the target is gone ends
/// the report.
#[tokio::test(flavor = "multi_thread")]
async fn report_outlasts_a_server_without_the_command() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    let purge = async |target: &str| {
        for (stream, subject) in [
            (subject::COMMANDS, Subject::command(DRIVER, target)),
            (subject::RESULTS, Subject::result(DRIVER, target)),
        ] {
            nats::purge_subject(&engine.connection, stream, &subject.to_string()).await.unwrap();
        }
    };
    for target in ["lags", "gone"] {
        engine.apply(&command(target, 1, 1)).await;
        let looked_for =
            format!("$JS.API.CONSUMER.CREATE.ENO_COMMANDS.*.{}", Subject::command(DRIVER, target));
        let mut looked_for = engine.connection.client.subscribe(looked_for).await.unwrap();
        stub.open(false);
        engine.command(&command(target, 1, 2)).await;
        stub.until_begun(|begun| begun.contains(&(target.into(), 2))).await;
        purge(target).await;
        stub.open(true);
        for _ in 0..2 {
            tokio::time::timeout(TIMEOUT, looked_for.next()).await.expect("it looks for the command again");
        }
        if target == "gone" {
            engine.forget(DRIVER, target).await;
            stub.until_forgotten(target).await;
        } else {
            engine.command(&command(target, 1, 2)).await;
            engine.report(DRIVER, target, done(2)).await;
        }
    }
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purged_target_is_forgotten_and_may_be_recreated() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    engine.apply(&command("ns/a.b", 3, 3)).await;
    engine.forget(DRIVER, "ns/a.b").await;
    stub.until_forgotten("ns/a.b").await;
    engine.apply(&command("ns/a.b", 1, 1)).await;
    // A false forget message is ignored.
    let subject = Subject::forget(DRIVER).to_string();
    engine.connection.client.publish(subject, "ns/a.b".into()).await.unwrap();
    engine.apply(&command("ns/a.b", 1, 2)).await;
    assert_eq!(stub.0.forgotten.borrow().len(), 1);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_message_is_rejected_and_blocks_no_other_target() {
    let Setup { server: _server, engine, host, .. } = setup().await;
    let mut bad = serde_json::to_value(command("a", 1, 7)).unwrap();
    bad["desired"]["vlans"] = "all".into();
    engine.raw(DRIVER, "a", serde_json::to_vec(&bad).unwrap()).await;
    engine.raw(DRIVER, "b", "{").await;
    let elsewhere = serde_json::to_vec(&command("elsewhere", 1, 1)).unwrap();
    engine.raw(DRIVER, "c", elsewhere).await;
    // A valid command that a server read out of a stream.
    let mut headers = async_nats::HeaderMap::new();
    headers.insert(async_nats::header::NATS_STREAM, "ENO_RESULTS");
    let (subject, payload) =
        (Subject::command(DRIVER, "e").to_string(), encode(&command("e", 1, 1)).unwrap());
    let jetstream = &engine.connection.jetstream;
    jetstream.publish_with_headers(subject, headers, payload.into()).await.unwrap().await.unwrap();
    engine.apply(&command("d", 1, 1)).await;
    let bad = [("a", 7, "/desired"), ("b", 0, "not JSON"), ("c", 1, "subject"), ("e", 0, "Nats-Stream")];
    for (target, generation, expected) in bad {
        let report = engine.report(DRIVER, target, |_| true).await;
        assert_eq!(report.generation.sequence, generation);
        match &report.outcome {
            Outcome::Failed(Failure { reason, retryable: false, .. }) => {
                assert!(reason.contains(expected), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    engine.apply(&command("a", 1, 8)).await;
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retryable_failures_and_panics_are_retried() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    let failure = |reason: &str| Failure { reason: reason.into(), retryable: true, unreachable: true };
    let tries = std::sync::atomic::AtomicU32::new(0);
    stub.answer(move |_| match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Reconciled::failed(failure("away")),
        1 => panic!("on purpose"),
        _ => applied(),
    });
    engine.command(&command("a", 1, 1)).await;
    let away = engine.report(DRIVER, "a", |_| true).await;
    assert_eq!(away.outcome, Outcome::Failed(failure("away")));
    engine.report(DRIVER, "a", |report| format!("{report:?}").contains("panicked")).await;
    engine.report(DRIVER, "a", done(1)).await;
    // An external change leads to another reconcile of the same command.
    stub.0.change.send("a".into()).unwrap();
    stub.until_begun(|begun| begun.len() == 4).await;
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_repair_is_reported_and_an_unchanged_reconcile_is_not() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    let repairs = std::sync::atomic::AtomicU32::new(0);
    stub.answer(move |_| {
        let count = repairs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        // The third reconcile finds nothing to do.
        let change = (count != 2).then(|| ChangeReport {
            transaction: None,
            at: format!("2026-01-01T00:00:0{count}Z"),
            took_ms: 5,
            added: 1,
            removed: 0,
        });
        let notes = vec![Note::new("Drift", Item::TARGET, "VLAN 5 was missing")];
        Reconciled { notes, change, ..applied() }
    });
    engine.command(&command("a", 1, 1)).await;
    for count in [0, 1, 3] {
        let at = format!("2026-01-01T00:00:0{count}Z");
        engine
            .report(DRIVER, "a", |report| report.change.as_ref().is_some_and(|change| change.at == at))
            .await;
        stub.0.change.send("a".into()).unwrap();
        if count == 1 {
            stub.until_begun(|begun| begun.len() == 3).await;
            stub.0.change.send("a".into()).unwrap();
        }
    }
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_reports_progress_and_the_driver_keeps_the_applied_state() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    engine.apply(&command("a", 1, 1)).await;
    stub.open(false);
    engine.command(&command("a", 1, 2)).await;
    let report = engine.report(DRIVER, "a", |report| report.generation.sequence == 2).await;
    assert_eq!(report.outcome, Outcome::Progress { message: "at it".into() });
    assert_eq!(report.applied, None);
    engine.command(&command("a", 1, 3)).await;
    stub.until_not_current().await;
    stub.open(true);
    engine.report(DRIVER, "a", done(3)).await;
    let work = stub.0.work.lock().unwrap().take().unwrap();
    let reported = work.reported().unwrap();
    assert_eq!((reported.generation.sequence, &reported.applied), (2, &applied().applied));
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_presence_is_published_and_removed_on_exit() {
    let Setup { server: _server, engine, host, .. } = setup().await;
    let store = engine.connection.jetstream.get_key_value(subject::DRIVERS).await.unwrap();
    let key = subject::key(DRIVER, "one");
    let mut watch = store.watch_with_history(&key).await.unwrap();
    let entry = tokio::time::timeout(TIMEOUT, watch.next()).await.unwrap().unwrap().unwrap();
    let hello: DriverHello = decode(&entry.value).unwrap();
    assert_eq!((hello.instance.as_str(), hello.kinds.as_slice()), ("one", &[PayloadKind::Fabric][..]));
    host.end().await;
    assert_eq!(store.get(&key).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn single_target_drivers_ignore_other_targets() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let (a, b) = (Stub::of(Some("a")), Stub::of(Some("b.c")));
    let first = start(&server, &a, "one", Ownership::PerTarget).await;
    let second = start(&server, &b, "two", Ownership::PerTarget).await;
    for target in ["a", "b.c", "d"] {
        engine.command(&command(target, 1, 1)).await;
    }
    assert_eq!(engine.report(DRIVER, "a", done(1)).await.instance, "one");
    assert_eq!(engine.report(DRIVER, "b.c", done(1)).await.instance, "two");
    // Another instance for the same target stands by.
    let late = Stub::of(Some("a"));
    let third = start(&server, &late, "three", Ownership::PerTarget).await;
    assert_eq!(engine.apply(&command("a", 1, 2)).await.instance, "one");
    first.end().await;
    assert_eq!(engine.apply(&command("a", 1, 3)).await.instance, "three");
    let store = engine.connection.jetstream.get_key_value(subject::DRIVERS).await.unwrap();
    let entry = store.get(subject::key(DRIVER, "two")).await.unwrap().unwrap();
    assert_eq!(decode::<DriverHello>(&entry).unwrap().target.as_deref(), Some("b.c"));
    second.end().await;
    third.end().await;
    assert_eq!(b.begun(), [("b.c".into(), 1)]);
    assert!(late.begun().iter().all(|(target, _)| target == "a"), "{:?}", late.begun());
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_processes_ensure_the_streams() {
    let server = NatsServer::start().await;
    let connection = server.connect("eno-test").await;
    let jetstream = &connection.jetstream;
    futures::future::try_join_all((0..16).map(|_| nats::ensure_streams(jetstream, 1))).await.unwrap();
    let mut config = jetstream.get_stream(subject::COMMANDS).await.unwrap().cached_info().config.clone();
    config.max_messages_per_subject = 7;
    jetstream.update_stream(config).await.unwrap();
    jetstream.delete_key_value(subject::CALLBACKS).await.unwrap();
    let without_marks = kv::Config { bucket: subject::CALLBACKS.into(), ..kv::Config::default() };
    jetstream.create_key_value(without_marks).await.unwrap();
    nats::ensure_streams(jetstream, 1).await.unwrap();
    let put_right = jetstream.get_stream(subject::COMMANDS).await.unwrap();
    assert_eq!(put_right.cached_info().config.max_messages_per_subject, 1);
    let bucket = jetstream.get_key_value(subject::CALLBACKS).await.unwrap();
    assert!(bucket.stream.cached_info().config.allow_message_ttl);
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_any_length_leave_a_report() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    let long = format!("a\u{1b}[2J\u{202e}{}", "x".repeat(2 * 1024 * 1024));
    stub.answer(move |command| {
        let items = || (1..=4000).map(|n| Item::port(format!("{}-{n}", "p".repeat(60))));
        let reason = eno_schemas::Text::new(&long);
        match command.generation.sequence {
            1 => Reconciled::failed(Failure::permanent(&*reason)),
            _ => Reconciled {
                rejected: items().map(|item| eno_schemas::Rejection::permanent(item, &*reason)).collect(),
                notes: items().map(|item| Note::new("Drift", item, &*reason)).collect(),
                ..applied()
            },
        }
    });
    engine.command(&command("a", 1, 1)).await;
    let failed = engine.report(DRIVER, "a", |report| report.generation.sequence == 1).await;
    let Outcome::Failed(Failure { reason, .. }) = failed.outcome else { panic!("{:?}", failed.outcome) };
    assert!(reason.starts_with("a\u{fffd}[2J\u{fffd}x") && reason.ends_with('…'), "{reason}");
    engine.command(&command("a", 1, 2)).await;
    let report = engine.report(DRIVER, "a", |report| report.generation.sequence == 2).await;
    assert_eq!((report.outcome, report.applied), (Outcome::Applied, applied().applied));
    assert!(report.rejected.len() > 100, "{}", report.rejected.len());
    assert_eq!(report.notes.last().unwrap().kind, "LeftOut");
    host.end().await;
}
