//! A stream that somebody with a driver's key has filled.

use async_nats::jetstream::stream::Config;
use eno_sbi::nats::NatsHealth;

use super::*;

/// Waits until the check of readiness says this; an empty text: all is well.
async fn until_health(health: &NatsHealth, expected: &str) {
    let reached = async {
        loop {
            match health.check() {
                Ok(()) if expected.is_empty() => return,
                Err(text) if !expected.is_empty() && text.contains(expected) => return,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let last = tokio::time::timeout(TIMEOUT, reached).await;
    last.unwrap_or_else(|_| panic!("{:?} instead of {expected:?}", health.check()));
}

#[tokio::test(flavor = "multi_thread")]
async fn full_stream_of_reports_is_told_and_work_goes_on_with_space() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let jetstream = &engine.connection.jetstream;
    let results = jetstream.get_stream(subject::RESULTS).await.unwrap();
    // A smaller bound, so that it is full soon.
    let config = Config { max_bytes: 1024 * 1024, ..results.cached_info().config.clone() };
    jetstream.update_stream(config).await.unwrap();
    let health = NatsHealth::default();
    let connection = server.connect("eno-driver-stub").await;
    health.set(&connection);
    let stub = Stub::new();
    let host = start_on(connection, &stub, "one", Ownership::PerTarget).await;
    engine.apply(&command("a", 1, 1)).await;
    assert_eq!(health.check(), Ok(()));
    let junk = |n: usize| Subject::result("node", &format!("t{n}")).to_string();
    for size in [100_000, 100] {
        let mut n = size;
        while jetstream.publish(junk(n), vec![0; size].into()).await.unwrap().await.is_ok() {
            n += 1;
        }
    }
    engine.command(&command("b", 1, 2)).await;
    until_health(&health, "NATS stores nothing in ENO_RESULTS: maximum bytes exceeded").await;
    // Commands, presence and owners have space of their own: the driver still works.
    stub.until_begun(|begun| begun.contains(&("b".into(), 2))).await;
    results.purge().filter("eno.v1.result.node.*").await.unwrap();
    engine.report(DRIVER, "b", done(2)).await;
    until_health(&health, "").await;
    assert_eq!(engine.report(DRIVER, "a", |_| true).await.generation.sequence, 1);
    host.end().await;
}
