//! No callback is lost or out of order, whatever the receiver does and however often the sender is killed.

use std::collections::HashSet;
use std::process::Stdio;

use eno_sbi::nats::{NatsArgs, connect};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use tokio::process::{Child, Command};

use super::*;

const OBJECTS: u64 = 500;
const EACH: u64 = 20;
const KILLS: u64 = 100;
/// Environment variable with the NATS URL of the sender process.
const VARIABLE: &str = "ENO_TEST_SENDER_NATS";
const SENDER: &str = "callbacks::tests::lanes::sender";
const SOAK: Duration = Duration::from_mins(5);

/// The process that is killed: this test binary with only this test. Without the variable it does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn sender() {
    let Ok(nats_url) = std::env::var(VARIABLE) else { return };
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = NatsArgs { nats_url, nats_credentials: None, nats_ca: None, nats_replicas: 1 };
    let stop = CancellationToken::new();
    let connection = connect(&args, "eno-engine", &stop).await.unwrap();
    let poster = Poster::new(&local(), FakeApiServer::default().client(), "eno-system").unwrap();
    let (_alive, lost) = watch::channel(0);
    run(connection, poster.into(), Arc::default(), leading(), lost, stop).await;
}

fn start_sender(nats_url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", SENDER, "--nocapture"])
        .env(VARIABLE, nats_url)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// The requests that an object's endpoint received.
#[derive(Default)]
struct EndpointLog {
    /// Counters of the first arrivals, in order.
    counters: Vec<u64>,
    ids: HashSet<String>,
    /// Number of successive failures.
    failures: u32,
}

struct Flaky {
    objects: Mutex<HashMap<String, EndpointLog>>,
    /// Number of distinct callbacks, and of all requests.
    progress: watch::Sender<(u64, u64)>,
    failed: std::sync::atomic::AtomicU64,
}

/// A number below `sides`.
fn below(random: &mut SplitMix64, sides: u64) -> u64 {
    random.next_u64() % sides
}

#[test]
fn seed_determines_the_sequence() {
    let mut random = SplitMix64::seed_from_u64(42);
    assert_eq!([(); 6].map(|()| below(&mut random, 10)), [3, 1, 8, 4, 0, 2]);
}

#[allow(clippy::unused_async, reason = "axum wants it")]
async fn receive(
    State(flaky): State<Arc<Flaky>>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> StatusCode {
    let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
    let (_, total) = *flaky.progress.borrow();
    let mut random = SplitMix64::seed_from_u64(total << 32);
    let mut objects = flaky.objects.lock().unwrap();
    let log = objects.entry(path).or_default();
    // Three in ten requests fail; half of those are recorded anyway. At most four fail in a row, since the delay
    // grows.
    let fails = below(&mut random, 10) < 3 && log.failures < 4;
    let taken = !fails || below(&mut random, 2) == 0;
    log.failures = if fails { log.failures + 1 } else { 0 };
    let new = taken && log.ids.insert(header("webhook-id"));
    if new {
        log.counters.push(header("eno-transition").parse().unwrap());
    }
    drop(objects);
    flaky.progress.send_modify(|(different, total)| {
        *different += u64::from(new);
        *total += 1;
    });
    if fails {
        flaky.failed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    StatusCode::NO_CONTENT
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: a minute or more, of which most is the sender's starting"]
async fn ten_thousand_transitions_survive_a_hundred_kills_in_order() {
    let flaky =
        Arc::new(Flaky { objects: Mutex::default(), progress: watch::Sender::new((0, 0)), failed: 0.into() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/{path}", post(receive)).with_state(flaky.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let bench = Bench::new(address).await;
    let nats_url = bench.server.args().nats_url;

    let jetstream = bench.connection.jetstream.clone();
    let publishing = tokio::spawn(async move {
        let mut last: HashMap<u64, u64> = HashMap::new();
        for counter in 1..=EACH {
            let mut publishing = JoinSet::new();
            for object in 0..OBJECTS {
                let (jetstream, last) = (jetstream.clone(), last.get(&object).copied().unwrap_or_default());
                publishing.spawn(async move {
                    let name = format!("o{object}");
                    let spec = json!({ "CallbackURL": format!("http://{address}/{name}") });
                    let transition = transition(&name, counter, &spec);
                    (object, outbox::publish(&jetstream, &transition, last).await.unwrap())
                });
            }
            last = publishing.join_all().await.into_iter().collect();
        }
    });

    let mut progress = flaky.progress.subscribe();
    let mut random = SplitMix64::seed_from_u64(42);
    for kill in 1..=KILLS {
        let mut sender = start_sender(&nats_url);
        // At any point between two posts, up to a few before the end.
        let until = (OBJECTS * EACH * kill / (KILLS + 1)).saturating_sub(below(&mut random, 60));
        let more = timeout(SOAK, progress.wait_for(|(different, _)| *different >= until)).await;
        more.expect("it goes on").unwrap();
        sender.kill().await.unwrap();
    }
    publishing.await.unwrap();
    let _last = start_sender(&nats_url);
    let all = timeout(SOAK, progress.wait_for(|(different, _)| *different >= OBJECTS * EACH)).await;
    let (different, total) = *all.expect("all arrive").unwrap();
    let objects = flaky.objects.lock().unwrap();
    let expected: Vec<u64> = (1..=EACH).collect();
    for (name, log) in objects.iter() {
        assert_eq!(log.counters, expected, "{name}");
    }
    assert_eq!((objects.len() as u64, different), (OBJECTS, OBJECTS * EACH));
    let failed = flaky.failed.load(std::sync::atomic::Ordering::Relaxed);
    println!("{different} transitions in {total} posts, of which {failed} failed; {KILLS} deaths");
    assert!((27..=33).contains(&(failed * 100 / total)), "{failed} of {total} posts failed");
}
