//! Commands in parts.

use eno_schemas::{Head, PartHash, Tree};

use super::*;
use eno_sbi::PARTS;

/// A command of a switch with these VLANs.
fn switch(sequence: u64, vids: impl IntoIterator<Item = u16>) -> Command {
    Command::new(DRIVER, "a", (1, sequence), fabric(vids))
}

fn parts(command: &Command) -> Vec<(PartHash, Vec<u8>)> {
    let Desired::Fabric(desired) = &command.desired else { panic!("no fabric") };
    let tree = Tree::of(desired);
    tree.parts().map(|hash| (hash, tree.payload(desired, hash).unwrap())).collect()
}

async fn store_head(engine: &Engine, command: &Command) {
    engine.raw(DRIVER, "a", encode(&Head::of(command).unwrap()).unwrap()).await;
}

async fn store_part(engine: &Engine, hash: PartHash, payload: Vec<u8>) {
    let subject = Subject::part(DRIVER, "a", hash).to_string();
    engine.connection.jetstream.publish(subject, payload.into()).await.unwrap().await.unwrap();
}

async fn lose_part(engine: &Engine, hash: PartHash) {
    let subject = Subject::part(DRIVER, "a", hash).to_string();
    nats::purge_subject(&engine.connection, subject::PARTS, &subject).await.unwrap();
}

/// The VLANs that the driver worked on last.
fn worked_on(stub: &Stub) -> String {
    let work = stub.0.work.lock().unwrap();
    match &work.as_ref().unwrap().command.desired {
        Desired::Fabric(desired) => desired.vlans.vids().to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_that_reads_parts_announces_it_from_the_first() {
    let Setup { server: _server, engine, stub: _stub, host } = setup().await;
    let key = subject::key(DRIVER, "one");
    let announced = async {
        let drivers = engine.connection.jetstream.get_key_value(subject::DRIVERS).await.unwrap();
        loop {
            if let Some(entry) = drivers.entry(key.clone()).await.unwrap() {
                let hello: DriverHello = decode(&entry.value).unwrap();
                assert_eq!((hello.capabilities, entry.revision), (vec!["test".into(), PARTS.into()], 1));
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, announced).await.unwrap();
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_waits_for_its_parts_and_a_newer_message_replaces_it() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    let one = switch(1, [5, 300]);
    store_head(&engine, &one).await;
    // Another target goes on meanwhile.
    engine.apply(&command("b", 1, 1)).await;
    for (hash, payload) in parts(&one) {
        store_part(&engine, hash, payload).await;
    }
    engine.report(DRIVER, "a", done(1)).await;
    assert_eq!(worked_on(&stub), "5,300");
    // A whole command after a head, and heads after a whole command. Only the parts that differ are sent.
    engine.apply(&switch(2, [5])).await;
    let (three, four) = (switch(3, [5, 6]), switch(4, [5, 7]));
    store_head(&engine, &three).await;
    store_head(&engine, &four).await;
    let old: Vec<_> = parts(&one).into_iter().map(|(hash, _)| hash).collect();
    for (hash, payload) in
        parts(&four).into_iter().chain(parts(&three)).filter(|(hash, _)| !old.contains(hash))
    {
        store_part(&engine, hash, payload).await;
    }
    engine.report(DRIVER, "a", done(4)).await;
    assert_eq!(worked_on(&stub), "5,7");
    // An older head changes nothing, whose parts are all there.
    store_head(&engine, &three).await;
    engine.apply(&command("b", 1, 2)).await;
    let begun: Vec<u64> =
        stub.begun().into_iter().filter(|(target, _)| target == "a").map(|(_, it)| it).collect();
    assert_eq!(begun, [1, 2, 4]);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_part_is_reported_and_the_last_command_stays() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    engine.apply(&switch(1, [5])).await;
    let two = switch(2, [5, 6]);
    let all = parts(&two);
    let (lost, payload) = all.last().unwrap().clone();
    for (hash, payload) in &all[..all.len() - 1] {
        store_part(&engine, *hash, payload.clone()).await;
    }
    // It has another content, so it counts as lost.
    store_part(&engine, lost, b"{}".to_vec()).await;
    store_head(&engine, &two).await;
    let report = engine.report(DRIVER, "a", |report| !report.lacking.is_empty()).await;
    assert_eq!((report.lacking, &report.generation), (vec![lost], &two.generation));
    assert!(matches!(report.outcome, Outcome::Progress { .. }), "{:?}", report.outcome);
    assert_eq!(report.applied, None);
    // The last command stays in force: a change of the target leads to work on it.
    stub.0.change.send("a".into()).unwrap();
    stub.until_begun(|begun| begun.len() == 2).await;
    assert_eq!(worked_on(&stub), "5");
    store_part(&engine, lost, payload).await;
    engine.report(DRIVER, "a", done(2)).await;
    assert_eq!(worked_on(&stub), "5-6");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_process_reads_head_and_parts() {
    let Setup { server, engine, stub, host } = setup().await;
    let one = switch(1, [5]);
    for (hash, payload) in parts(&one) {
        store_part(&engine, hash, payload).await;
    }
    store_head(&engine, &one).await;
    engine.report(DRIVER, "a", done(1)).await;
    host.end().await;
    // A new process reads all parts.
    let two = Stub::new();
    let host = start(&server, &two, "two", Ownership::PerTarget).await;
    engine.report(DRIVER, "a", |report| report.instance == "two" && report.outcome == Outcome::Applied).await;
    assert_eq!((worked_on(&two), stub.begun().len()), ("5".into(), 1));
    // The stream loses a part that the driver has.
    lose_part(&engine, parts(&one)[0].0).await;
    store_head(&engine, &switch(2, [5])).await;
    engine.report(DRIVER, "a", done(2)).await;
    // A forgotten target has no parts.
    engine.forget(DRIVER, "a").await;
    two.until_forgotten("a").await;
    let mut left = 0;
    let filter = eno_schemas::SubjectKind::Part.all();
    let all = nats::Selection::last(subject::PARTS, &filter);
    nats::for_each_stored(&engine.connection.jetstream, all, |_| left += 1).await.unwrap();
    assert_eq!(left, 0);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_of_a_transaction_is_refused_by_a_driver_that_cannot_hold() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    let mut two = switch(2, [5]);
    let transaction = |decision| Transaction {
        id: "t".into(),
        participants: Vec::new(),
        deadline: String::new(),
        decide_within_ms: Some(30_000),
        decision,
    };
    two.transaction = Some(transaction(None));
    for (hash, payload) in parts(&two) {
        store_part(&engine, hash, payload).await;
    }
    store_head(&engine, &two).await;
    let refused = engine.report(DRIVER, "a", |report| report.generation == two.generation).await;
    assert!(matches!(&refused.outcome, Outcome::Failed(failure) if failure.reason.contains("transaction t")));
    assert_eq!(stub.begun(), []);
    host.end().await;
}
