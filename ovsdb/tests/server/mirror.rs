//! Mirrors.

use std::sync::Arc;

use eno_ovsdb::{
    Client, Condition, Error, MirrorState, MonitorRequest, Mutation, Operation, Replica, Row, Transaction,
    Value, row,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::fixture::{COLUMNS, DB, Server, insert, options, soon, things};
use crate::proxy::{Faults, Proxy};

fn rows(replica: &Replica) -> Vec<Row> {
    let mut rows: Vec<Row> = replica.table("Thing").map(|(_, row)| row.clone()).collect();
    rows.sort();
    rows
}

async fn selected(client: &Client) -> Vec<Row> {
    let all = Transaction::new().with(Operation::select("Thing", [], COLUMNS));
    let mut rows = client.transact(DB, &all).await.unwrap().rows(0).to_vec();
    rows.sort();
    rows
}

fn thing() -> impl Strategy<Value = Row> {
    let few = || proptest::collection::vec(0..4i64, 0..4);
    let pairs = || proptest::collection::vec((0..3i64, 0..3i64), 0..4);
    (few(), few(), pairs(), proptest::option::of(0..3i64), -2..3i64, any::<bool>()).prop_map(
        |(trunks, loads, pairs, tag, count, on)| {
            let text = |number: i64| number.to_string();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let loads = loads.into_iter().map(|load| load as f64 + 0.5);
            let one = tag.map(|tag| (text(tag), count));
            row([
                ("count", count.into()),
                // Not an integer: `select` writes 1.0 as 1.
                ("load", (f64::from(u8::from(on)) + 0.5).into()),
                ("on", on.into()),
                ("tag", tag.into()),
                ("note", tag.map(text).into()),
                ("trunks", Value::set(trunks)),
                ("loads", Value::set(loads)),
                ("ids", Value::map(pairs.into_iter().map(|(k, v)| (text(k), text(v))))),
                ("one", Value::map(one)),
            ])
        },
    )
}

fn step() -> impl Strategy<Value = Operation> {
    let name = || (0..3u8).prop_map(|number| number.to_string());
    prop_oneof![
        (name(), thing()).prop_map(|(name, mut row)| {
            row.insert("name".into(), name.into());
            Operation::insert("Thing", row)
        }),
        (name(), thing()).prop_map(|(name, row)| Operation::update(
            "Thing",
            [Condition::equal("name", name)],
            row
        )),
        (name(), thing()).prop_map(|(name, row)| {
            let mutations = [
                Mutation::insert("trunks", row["trunks"].clone()),
                Mutation::delete("ids", row["ids"].clone()),
                Mutation::add("count", 1),
            ];
            Operation::mutate("Thing", [Condition::equal("name", name)], mutations)
        }),
        name().prop_map(|name| Operation::delete("Thing", [Condition::equal("name", name)])),
    ]
}

/// Runs random transactions; after each, every mirror matches the server.
async fn follows(unknown: &[&'static str], changes: usize) {
    let server = Server::start();
    let faults = Faults { unknown: Arc::new(unknown.to_vec()), ..Faults::none() };
    let proxy = Proxy::start(&server.socket(), &faults);
    let client = Client::new(proxy.endpoint(), options());
    let mirror = client.mirror(DB, things());
    mirror.current().await.unwrap();
    let mut runner = TestRunner::deterministic();
    for _ in 0..changes {
        let steps = proptest::collection::vec(step(), 1..4).new_tree(&mut runner).unwrap().current();
        // Some violate the index on names.
        let _ = client.transact(DB, &steps.into_iter().collect()).await;
        let late = mirror.read(rows);
        assert_eq!(late, selected(&client).await);
        let fresh = client.mirror(DB, things());
        fresh.current().await.unwrap();
        assert_eq!(fresh.read(rows), late);
    }
}

#[tokio::test]
async fn mirror_is_current_when_a_transaction_returns() {
    follows(&[], 100).await;
}

#[tokio::test]
async fn mirror_works_with_monitor_cond() {
    follows(&["monitor_cond_since"], 40).await;
}

#[tokio::test]
async fn mirror_works_with_plain_monitor() {
    follows(&["monitor_cond_since", "monitor_cond"], 40).await;
}

#[tokio::test]
async fn mirror_wait_for_sees_concurrent_writes() {
    let server = Server::start();
    let mirror = server.client().mirror(DB, things());
    mirror.current().await.unwrap();
    let mut changes = mirror.changes();
    let writer = server.client();
    let writing = async {
        for number in 0..50 {
            writer.transact(DB, &insert(&number.to_string())).await.unwrap();
        }
    };
    let waiting = mirror.wait_for(|replica| {
        replica.find("Thing", "name", &"49".into()).map(|_| replica.table("Thing").count())
    });
    let ((), seen) = soon("the last row", futures::future::join(writing, waiting)).await;
    assert_eq!(seen.unwrap(), 50);
    soon("the notification", changes.next()).await.unwrap();
    drop(mirror);
    soon("the end", async { while changes.next().await.is_some() {} }).await;
}

#[tokio::test]
async fn monitor_conditions_select_rows() {
    let server = Server::start();
    let client = server.client();
    let request = MonitorRequest::new().rows("Thing", ["name", "count"], [Condition::equal("count", 1)]);
    let mirror = client.mirror(DB, request.clone());
    mirror.current().await.unwrap();
    let insert = |name: &str, count: i64| {
        Operation::insert("Thing", row([("name", name.into()), ("count", count.into())]))
    };
    client.transact(DB, &Transaction::new().with(insert("a", 1)).with(insert("b", 2))).await.unwrap();
    assert_eq!(mirror.read(rows), [row([("name", "a".into()), ("count", 1.into())])]);
    let more = Operation::mutate("Thing", [], [Mutation::add("count", -1)]);
    client.transact(DB, &Transaction::new().with(more)).await.unwrap();
    assert_eq!(mirror.read(rows), [row([("name", "b".into()), ("count", 1.into())])]);

    // Plain `monitor` does not support conditions.
    let faults = Faults { unknown: Arc::new(vec!["monitor_cond_since", "monitor_cond"]), ..Faults::none() };
    let proxy = Proxy::start(&server.socket(), &faults);
    let old = Client::new(proxy.endpoint(), options()).mirror(DB, request);
    assert!(matches!(old.current().await, Err(Error::Refused { .. })));
}

#[tokio::test]
async fn missing_table_is_reported() {
    let server = Server::start();
    let client = server.client();
    for (database, request, expected) in [
        (DB, MonitorRequest::new().table("None", ["name"]), "None"),
        (DB, MonitorRequest::new().table("Thing", ["none"]), "none"),
        ("Other", things(), "Other"),
    ] {
        let mirror = client.mirror(database, request);
        let error = mirror.current().await.unwrap_err();
        assert!(error.to_string().contains(expected) && !error.retry_helps(), "{error}");
        assert!(matches!(mirror.state(), MirrorState::Refused(_)));
    }
}
