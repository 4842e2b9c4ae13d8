//! The host on a real nats-server, with a driver that does as the test says.

use std::sync::Mutex;

use async_nats::jetstream::kv;
use eno_schemas::{
    Applied, Command, Decision, Desired, Device, Drift, Failure, Generation, NadDesired, NadOwner, Outcome,
    PayloadKind, Preview, Report, Transaction, decode, encode,
};
use futures::Stream;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::publish::Published;
use super::*;
use crate::conformance::tests::fabric;
use crate::conformance::{Engine, NatsServer};
use crate::driver::{Identity, Reconciled};
use crate::work::{HOLD, Intent, Verdict, Work};

const DRIVER: &str = "stub";
const PATIENCE: Duration = Duration::from_secs(40);

type Answerer = Arc<dyn Fn(&Command) -> Reconciled + Send + Sync>;

/// What the driver has done, and whether it may go on.
struct Script {
    begun: watch::Sender<Vec<(String, u64)>>,
    forgotten: watch::Sender<Vec<String>>,
    open: watch::Sender<bool>,
    answer: Mutex<Answerer>,
    changes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    change: mpsc::UnboundedSender<String>,
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

    /// One that works on that target alone.
    fn of(only: Option<&str>) -> Self {
        let (change, changes) = mpsc::unbounded_channel();
        Self(Arc::new(Script {
            begun: watch::channel(Vec::new()).0,
            forgotten: watch::channel(Vec::new()).0,
            open: watch::channel(true).0,
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
        let waited = tokio::time::timeout(PATIENCE, begun.wait_for(|begun| enough(begun))).await;
        assert!(waited.is_ok(), "the driver has only begun {:?}", self.begun());
    }

    async fn until_forgotten(&self, target: &str) {
        let mut forgotten = self.0.forgotten.subscribe();
        let wanted = |forgotten: &Vec<String>| forgotten.iter().any(|name| name == target);
        tokio::time::timeout(PATIENCE, forgotten.wait_for(wanted)).await.expect("forgotten").unwrap();
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
        self.0.begun.send_modify(|begun| {
            begun.push((work.command.target.clone(), work.command.generation.sequence));
        });
        self.0.open.subscribe().wait_for(|open| *open).await.unwrap();
        // Not within the lock, since it may panic.
        let answer = self.0.answer.lock().unwrap().clone();
        answer(&work.command)
    }

    /// Says where it would have looked.
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
    }
}

struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), HostError>>,
}

impl Running {
    async fn start(server: &NatsServer, stub: &Stub, instance: &str, ownership: Ownership) -> Self {
        let connection = server.connect("eno-driver-stub").await;
        let mut options = HostOptions::new(connection, ownership, "1");
        options.instance = instance.into();
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(run(stub.clone(), options, stop.clone())), stop }
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .expect("an end")
            .expect("no panic")
            .expect("an orderly end");
    }

    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

struct Setup {
    server: NatsServer,
    engine: Engine,
    stub: Stub,
    host: Running,
}

async fn setup() -> Setup {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let stub = Stub::new();
    let host = Running::start(&server, &stub, "one", Ownership::PerTarget).await;
    Setup { server, engine, stub, host }
}

fn command(target: &str, term: u64, sequence: u64) -> Command {
    let desired = fabric([u16::try_from(sequence).unwrap()]);
    Command {
        driver: DRIVER.into(),
        target: target.into(),
        generation: Generation { term, sequence, hash: desired.hash() },
        desired,
        transaction: None,
    }
}

fn done(sequence: u64) -> impl FnMut(&Report) -> bool {
    move |report| report.generation.sequence == sequence && report.outcome == Outcome::Applied
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_commands_during_work_are_one_more_reconcile_with_the_last() {
    let Setup { server, engine, stub, host } = setup().await;
    stub.open(false);
    engine.command(&command("a", 1, 1)).await;
    stub.until_begun(|begun| begun.len() == 1).await;
    for sequence in 2..=21 {
        engine.command(&command("a", 1, sequence)).await;
    }
    // A target whose command came after all those is worked on meanwhile.
    engine.command(&command("b", 1, 22)).await;
    stub.until_begun(|begun| begun.len() == 2).await;
    stub.open(true);
    engine.report(DRIVER, "a", done(21)).await;
    engine.report(DRIVER, "b", done(22)).await;
    assert_eq!(stub.begun(), [("a".into(), 1), ("b".into(), 22), ("a".into(), 21)]);
    host.end().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn older_commands_and_older_reports_change_nothing() {
    let Setup { server, engine, stub, host } = setup().await;
    engine.command(&command("a", 2, 5)).await;
    engine.report(DRIVER, "a", done(5)).await;
    engine.command(&command("a", 1, 9)).await;
    engine.command(&command("b", 1, 1)).await;
    engine.report(DRIVER, "b", done(1)).await;
    host.end().await;
    assert_eq!(stub.begun(), [("a".into(), 5), ("b".into(), 1)]);
    // A new process knows it from the report.
    let stub = Stub::new();
    let host = Running::start(&server, &stub, "two", Ownership::PerTarget).await;
    engine.command(&command("c", 1, 1)).await;
    engine.report(DRIVER, "c", done(1)).await;
    host.end().await;
    assert!(!stub.begun().contains(&("a".into(), 9)), "{:?}", stub.begun());
    assert_eq!(engine.report(DRIVER, "a", |_| true).await.generation.term, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_does_not_replace_a_newer_one() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let publisher = Publisher::new(engine.connection.jetstream.clone());
    let report = |sequence, instance: &str| Report {
        driver: DRIVER.into(),
        target: "x".into(),
        instance: instance.into(),
        generation: command("x", 1, sequence).generation,
        at: "2030-01-01T00:00:00Z".into(),
        outcome: Outcome::Applied,
        applied: None,
        rejected: Vec::new(),
        notes: Vec::new(),
        device: None,
        change: None,
    };
    engine.command(&command("x", 1, 3)).await;
    let (mut one, mut two) = (Record::default(), Record::default());
    assert_eq!(publisher.publish(&mut one, &report(1, "one")).await.unwrap(), Published::Stored);
    assert_eq!(publisher.publish(&mut two, &report(2, "two")).await.unwrap(), Published::Stored);
    let newer = report(2, "two").generation;
    assert_eq!(publisher.publish(&mut one, &report(1, "one")).await.unwrap(), Published::Unchanged);
    one.forget_stored();
    assert_eq!(publisher.publish(&mut one, &report(1, "one")).await.unwrap(), Published::Superseded(newer));
    assert_eq!(publisher.publish(&mut one, &report(3, "one")).await.unwrap(), Published::Stored);
    assert_eq!(publisher.publish(&mut two, &report(3, "two")).await.unwrap(), Published::Stored);
    // The target is forgotten meanwhile: nothing is left behind.
    engine.forget(DRIVER, "x").await;
    assert_eq!(publisher.publish(&mut two, &report(4, "two")).await.unwrap(), Published::Gone);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_costs_nothing_but_time() {
    let Setup { mut server, engine, stub, host } = setup().await;
    engine.command(&command("a", 1, 1)).await;
    engine.report(DRIVER, "a", done(1)).await;
    stub.open(false);
    engine.command(&command("a", 1, 2)).await;
    stub.until_begun(|begun| begun.len() == 2).await;
    server.kill().await;
    // Its report has nowhere to go yet.
    stub.open(true);
    server.restart().await;
    let engine = Engine::new(&server).await;
    engine.report(DRIVER, "a", done(2)).await;
    engine.command(&command("a", 1, 3)).await;
    engine.report(DRIVER, "a", done(3)).await;
    assert_eq!(stub.begun(), [("a".into(), 1), ("a".into(), 2), ("a".into(), 3)]);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_streams_are_made_again_and_reports_come_back() {
    let Setup { server, engine, stub, host } = setup().await;
    engine.command(&command("a", 1, 1)).await;
    engine.report(DRIVER, "a", done(1)).await;
    let jetstream = &engine.connection.jetstream;
    jetstream.delete_stream(subject::RESULTS).await.unwrap();
    crate::nats::ensure_streams(jetstream, 1).await.unwrap();
    engine.report(DRIVER, "a", done(1)).await;
    assert_eq!(stub.begun().len(), 1, "a lost report is no reason to work");
    jetstream.delete_stream(subject::COMMANDS).await.unwrap();
    stub.until_forgotten("a").await;
    engine.command(&command("a", 1, 2)).await;
    engine.report(DRIVER, "a", done(2)).await;
    host.end().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_instances_one_works_and_the_other_takes_over() {
    for ownership in [Ownership::PerTarget, Ownership::WholeDriver] {
        let server = NatsServer::start().await;
        let (connection, lease) = (server.connect("eno-test").await, Duration::from_secs(2));
        let owners = kv::Config {
            bucket: subject::OWNERS.into(),
            max_age: lease,
            limit_markers: Some(lease),
            ..kv::Config::default()
        };
        connection.jetstream.create_key_value(owners).await.unwrap();
        crate::nats::create_missing_streams(&connection.jetstream, 1).await.unwrap();
        let engine = Engine { connection };
        let (one, two) = (Stub::new(), Stub::new());
        let first = Running::start(&server, &one, "one", ownership).await;
        engine.command(&command("a", 1, 1)).await;
        assert_eq!(engine.report(DRIVER, "a", done(1)).await.instance, "one");
        let second = Running::start(&server, &two, "two", ownership).await;
        engine.command(&command("a", 1, 2)).await;
        assert_eq!(engine.report(DRIVER, "a", done(2)).await.instance, "one");
        first.kill().await;
        engine.command(&command("a", 1, 3)).await;
        assert_eq!(engine.report(DRIVER, "a", done(3)).await.instance, "two");
        assert!(two.begun().iter().all(|(_, sequence)| *sequence >= 2), "{:?}", two.begun());
        // An orderly end hands over at once.
        let third = Running::start(&server, &one, "three", ownership).await;
        second.end().await;
        engine.command(&command("a", 1, 4)).await;
        assert_eq!(engine.report(DRIVER, "a", done(4)).await.instance, "three");
        third.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purged_target_is_forgotten_and_may_come_back() {
    let Setup { server, engine, stub, host } = setup().await;
    engine.command(&command("ns/a.b", 3, 3)).await;
    engine.report(DRIVER, "ns/a.b", done(3)).await;
    engine.forget(DRIVER, "ns/a.b").await;
    stub.until_forgotten("ns/a.b").await;
    engine.command(&command("ns/a.b", 1, 1)).await;
    engine.report(DRIVER, "ns/a.b", done(1)).await;
    // A word of its end that is not true is not believed.
    let subject = crate::nats::forget_subject(DRIVER);
    engine.connection.client.publish(subject, "ns/a.b".into()).await.unwrap();
    engine.command(&command("ns/a.b", 1, 2)).await;
    engine.report(DRIVER, "ns/a.b", done(2)).await;
    assert_eq!(stub.0.forgotten.borrow().len(), 1);
    host.end().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_message_is_answered_and_blocks_nothing() {
    let Setup { server, engine, host, .. } = setup().await;
    let mut bad = serde_json::to_value(command("a", 1, 7)).unwrap();
    bad["desired"]["vlans"] = "all".into();
    engine.raw(DRIVER, "a", serde_json::to_vec(&bad).unwrap()).await;
    engine.raw(DRIVER, "b", "{").await;
    let elsewhere = serde_json::to_vec(&command("elsewhere", 1, 1)).unwrap();
    engine.raw(DRIVER, "c", elsewhere).await;
    engine.command(&command("d", 1, 1)).await;
    engine.report(DRIVER, "d", done(1)).await;
    for (target, generation, words) in [("a", 7, "/desired"), ("b", 0, "not JSON"), ("c", 1, "subject")] {
        let report = engine.report(DRIVER, target, |_| true).await;
        assert_eq!(report.generation.sequence, generation);
        match &report.outcome {
            Outcome::Failed(Failure { reason, retryable: false, .. }) => {
                assert!(reason.contains(words), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    engine.command(&command("a", 1, 8)).await;
    engine.report(DRIVER, "a", done(8)).await;
    host.end().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_later_is_tried_again_and_a_panic_is_no_end() {
    let Setup { server, engine, stub, host } = setup().await;
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
    // Another hand's change leads to one more, with the same command.
    stub.0.change.send("a".into()).unwrap();
    stub.until_begun(|begun| begun.len() == 4).await;
    host.end().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_says_so_and_keeps_what_is_known() {
    let Setup { server, engine, stub, host } = setup().await;
    engine.command(&command("a", 1, 1)).await;
    engine.report(DRIVER, "a", done(1)).await;
    stub.open(false);
    engine.command(&command("a", 1, 2)).await;
    let report = engine.report(DRIVER, "a", |report| report.generation.sequence == 2).await;
    assert_eq!(report.outcome, Outcome::Progress { message: "at it".into() });
    assert_eq!(report.applied, Some(Applied::Nad { present: true }));
    stub.open(true);
    engine.report(DRIVER, "a", done(2)).await;
    host.end().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_announces_itself_and_says_goodbye() {
    let Setup { server, engine, host, .. } = setup().await;
    let store = engine.connection.jetstream.get_key_value(subject::DRIVERS).await.unwrap();
    let key = subject::key(DRIVER, "one");
    let mut watch = store.watch_with_history(&key).await.unwrap();
    let entry = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().unwrap();
    let hello: DriverHello = decode(&entry.value).unwrap();
    assert_eq!((hello.instance.as_str(), hello.kinds.as_slice()), ("one", &[PayloadKind::Fabric][..]));
    host.end().await;
    assert_eq!(store.get(&key).await.unwrap(), None);
    drop(server);
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_of_one_target_each_leave_the_others_alone() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let (a, b) = (Stub::of(Some("a")), Stub::of(Some("b.c")));
    let first = Running::start(&server, &a, "one", Ownership::PerTarget).await;
    let second = Running::start(&server, &b, "two", Ownership::PerTarget).await;
    for target in ["a", "b.c", "d"] {
        engine.command(&command(target, 1, 1)).await;
    }
    assert_eq!(engine.report(DRIVER, "a", done(1)).await.instance, "one");
    assert_eq!(engine.report(DRIVER, "b.c", done(1)).await.instance, "two");
    // One more for the same target stands by.
    let late = Stub::of(Some("a"));
    let third = Running::start(&server, &late, "three", Ownership::PerTarget).await;
    engine.command(&command("a", 1, 2)).await;
    assert_eq!(engine.report(DRIVER, "a", done(2)).await.instance, "one");
    first.end().await;
    engine.command(&command("a", 1, 3)).await;
    assert_eq!(engine.report(DRIVER, "a", done(3)).await.instance, "three");
    let store = engine.connection.jetstream.get_key_value(subject::DRIVERS).await.unwrap();
    let entry = store.get(subject::key(DRIVER, "two")).await.unwrap().unwrap();
    assert_eq!(decode::<DriverHello>(&entry).unwrap().target.as_deref(), Some("b.c"));
    second.end().await;
    third.end().await;
    assert_eq!(b.begun(), [("b.c".into(), 1)]);
    assert!(late.begun().iter().all(|(target, _)| target == "a"), "{:?}", late.begun());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_processes_make_the_streams_at_once() {
    let server = NatsServer::start().await;
    let connection = server.connect("eno-test").await;
    let jetstream = &connection.jetstream;
    let many = (0..16).map(|_| async {
        crate::nats::ensure_streams(jetstream, 1).await?;
        crate::nats::create_missing_streams(jetstream, 1).await
    });
    futures::future::try_join_all(many).await.unwrap();
    let mut config = jetstream.get_stream(subject::COMMANDS).await.unwrap().cached_info().config.clone();
    config.max_messages_per_subject = 7;
    jetstream.update_stream(config).await.unwrap();
    crate::nats::create_missing_streams(jetstream, 1).await.unwrap();
    let kept = jetstream.get_stream(subject::COMMANDS).await.unwrap();
    assert_eq!(kept.cached_info().config.max_messages_per_subject, 7);
    crate::nats::ensure_streams(jetstream, 1).await.unwrap();
    let put_right = jetstream.get_stream(subject::COMMANDS).await.unwrap();
    assert_eq!(put_right.cached_info().config.max_messages_per_subject, 1);
}

/// A stub that holds every change that a transaction asks for.
#[derive(Clone)]
struct Holder(Stub);

impl Driver for Holder {
    fn identity(&self) -> Identity {
        Identity { capabilities: vec![HOLD.into()], ..self.0.identity() }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let done = self.0.reconcile(work.clone()).await;
        match work.intent() {
            Intent::Make => done,
            Intent::Hold(_) => match work.hold(done.clone()).await {
                Verdict::Confirm => done,
                Verdict::Abort { reason } => Reconciled::rolled_back(reason, Applied::Nad { present: false }),
            },
            Intent::TakeBack { reason } => Reconciled::rolled_back(reason, Applied::Nad { present: false }),
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        self.0.changed()
    }

    async fn forget(&self, target: &str) {
        self.0.forget(target).await;
    }
}

fn part(target: &str, sequence: u64, decision: Option<Decision>) -> Command {
    let mut command = command(target, 1, sequence);
    command.desired = fabric([1]);
    command.generation.hash = command.desired.hash();
    let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5);
    let participants = vec!["a".into(), "b".into(), "c".into()];
    command.transaction =
        Some(Transaction { id: "t1".into(), participants, deadline: deadline.to_string(), decision });
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_takes_no_place_and_no_time() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let holder = Holder(Stub::new());
    let mut options = HostOptions::new(server.connect("eno-driver-stub").await, Ownership::WholeDriver, "1");
    // Three targets hold at once, for longer than the limit.
    options.concurrency = 1;
    options.time_limit = Duration::from_millis(500);
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(holder.clone(), options, stop.clone()));
    let held = |report: &Report| report.generation.sequence == 1 && report.outcome == Outcome::Held;
    for target in ["a", "b", "c"] {
        engine.command(&part(target, 1, None)).await;
        engine.report(DRIVER, target, held).await;
    }
    let limit = tokio::time::Instant::now() + Duration::from_secs(1);
    tokio::time::sleep_until(limit).await;
    for target in ["a", "b", "c"] {
        assert!(held(&engine.report(DRIVER, target, |_| true).await), "{target}");
        engine.command(&part(target, 2, Some(Decision::Confirm))).await;
        engine.report(DRIVER, target, done(2)).await;
    }
    // A command that comes now is the next that is worked on.
    engine.command(&command("a", 1, 3)).await;
    engine.report(DRIVER, "a", done(3)).await;
    let begun: Vec<(String, u64)> =
        [("a", 1), ("b", 1), ("c", 1), ("a", 3)].map(|(name, at)| (name.to_owned(), at)).into();
    assert_eq!(holder.0.begun(), begun, "a decision was worked on again");
    stop.cancel();
    running.await.expect("no panic").expect("an orderly end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_cannot_hold_is_given_no_transaction() {
    let Setup { server, engine, stub, host } = setup().await;
    engine.command(&part("a", 1, None)).await;
    let report = engine.report(DRIVER, "a", |report| report.generation.sequence == 1).await;
    let Outcome::Failed(failure) = &report.outcome else { panic!("{report:?}") };
    assert!(failure.reason.contains("can't hold a change") && !failure.retryable, "{failure:?}");
    assert!(stub.begun().is_empty());
    host.end().await;
    drop(server);
}

/// Asks a driver as anyone may who can publish there.
async fn ask(client: &async_nats::Client, subject: String, command: &Command) -> Option<Preview> {
    let payload = encode(command).expect("a command").into();
    let answer = tokio::time::timeout(Duration::from_secs(2), client.request(subject, payload)).await;
    Some(decode(&answer.ok()?.expect("an answer").payload).expect("a preview"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_looks_at_nothing_but_what_was_commanded() {
    let Setup { server, engine, host, .. } = setup().await;
    let changed = |target: &str, change: &dyn Fn(&mut Device)| {
        let mut command = command(target, 0, 7);
        let Desired::Fabric(desired) = &mut command.desired else { panic!("{command:?}") };
        change(&mut desired.device);
        command.generation.hash = command.desired.hash();
        command
    };
    let mut last = changed("a", &|device| {
        device.credential = Some("a".into());
        device.host_key = Some("ssh-ed25519 AAAA".into());
    });
    last.generation.sequence = 1;
    engine.command(&last).await;
    engine.report(DRIVER, "a", done(1)).await;
    engine.command(&command("b", 1, 1)).await;
    engine.report(DRIVER, "b", done(1)).await;

    let client = server.connect("anyone").await.client;
    let at = |target: &str| subject::preview(DRIVER, target);
    let of_a = |change: &dyn Fn(&mut Device)| {
        changed("a", &|device| {
            device.credential = Some("a".into());
            device.host_key = Some("ssh-ed25519 AAAA".into());
            change(device);
        })
    };
    // Other VLANs, and other words about drift, are what a preview is for.
    let same = of_a(&|device| device.drift = Drift::Report);
    let preview = ask(&client, at("a"), &same).await.expect("an answer");
    assert_eq!((preview.edits, preview.failure), (vec!["127.0.0.1:830".to_owned()], None));

    let elsewhere: [&dyn Fn(&mut Device); 5] = [
        &|device| device.address = "192.0.2.66:830".into(),
        &|device| device.credential = Some("b".into()),
        &|device| device.host_key = Some("ssh-ed25519 BBBB".into()),
        &|device| device.host_key = None,
        &|device| device.dialect = Some("openconfig".into()),
    ];
    for change in elsewhere {
        let asked = of_a(change);
        let preview = ask(&client, at("a"), &asked).await.expect("an answer");
        assert!(preview.edits.is_empty(), "{asked:?} was looked at");
        let failure = preview.failure.expect("a failure");
        assert!(failure.reason.contains("last command") && !failure.retryable, "{failure:?}");
    }
    let mut other_kind = command("a", 0, 7);
    other_kind.desired = Desired::Nad(NadDesired {
        namespace: "n".into(),
        name: "a".into(),
        owner: NadOwner { uid: "u".into() },
        attachment: None,
    });
    other_kind.generation.hash = other_kind.desired.hash();
    let preview = ask(&client, at("a"), &other_kind).await.expect("an answer");
    assert!(preview.failure.is_some_and(|failure| failure.reason.contains("another kind")));

    // Who may ask about one target is not told of another, and nothing is known of what was never commanded.
    assert_eq!(ask(&client, at("b"), &same).await, None);
    assert_eq!(ask(&client, at("c"), &changed("c", &|_| ())).await, None);
    host.end().await;
}
