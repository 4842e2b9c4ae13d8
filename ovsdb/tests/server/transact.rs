//! Transactions.

use std::time::Duration;

use eno_ovsdb::{
    Atom, Cause, Condition, Error, Function, Mutation, NamedUuid, Operation, OperationResult, Options,
    Transaction, Value, row,
};
use futures::future::join_all;

use crate::fixture::{COLUMNS, DB, Server, all_named, insert, named, options, soon, spawn, wait_for};

#[tokio::test]
async fn unknown_database_is_refused() {
    let server = Server::start();
    let client = server.client();
    client.echo().await.unwrap();
    // The schema of Open vSwitch, which uses every feature.
    let text = std::fs::read_to_string("/usr/share/openvswitch/vswitch.ovsschema").unwrap();
    let schema: eno_ovsdb::DatabaseSchema = serde_json::from_str(&text).unwrap();
    assert_eq!(schema.name, "Open_vSwitch");

    let error = client.transact("Other", &Transaction::new()).await.unwrap_err();
    let Error::Refused { refusal, .. } = &error else { panic!("{error}") };
    assert_eq!(refusal.cause, Cause::UnknownDatabase);
    assert!(!error.retry_helps());
}

#[tokio::test]
async fn every_column_type_round_trips() {
    let server = Server::start();
    let client = server.client();
    let part = NamedUuid::new("part").unwrap();
    let wanted = row([
        ("name", "ä \"quoted\" {[".into()),
        ("count", i64::MIN.into()),
        ("load", 0.1.into()),
        ("on", true.into()),
        ("tag", 7.into()),
        ("note", Value::empty()),
        ("trunks", Value::set(1..=4096)),
        ("loads", Value::set([0.5, -1e300])),
        ("ids", Value::map([("a", "1"), ("", "\u{1}")])),
        ("one", Value::map([("k", 5)])),
        ("parts", Value::set([&part])),
    ]);
    let mut transaction = Transaction::new();
    let made = transaction.push(Operation::insert_named("Part", named("p"), part));
    let thing = transaction.push(Operation::insert("Thing", wanted.clone()));
    transaction.push(Operation::Comment("a comment".into()));
    transaction.push(Operation::Commit { durable: true });
    let outcome = client.transact(DB, &transaction).await.unwrap();
    let inserted = |index: usize| match outcome.results()[index] {
        OperationResult::Inserted(uuid) => uuid,
        ref other => panic!("{other:?}"),
    };
    let (part, thing) = (inserted(made), inserted(thing));

    let read = Transaction::new().with(Operation::select("Thing", [Condition::uuid(thing)], COLUMNS));
    let outcome = client.transact(DB, &read).await.unwrap();
    let [found] = outcome.rows(0) else { panic!("{outcome:?}") };
    let mut wanted = wanted;
    wanted.insert("parts".into(), Value::set([part]));
    for (column, value) in &wanted {
        assert_eq!(&found[column], value, "{column}");
    }
    assert_eq!(found["tag"].as_integer(), Some(7));
    assert_eq!(found["ids"].get("a"), Some("1"));
}

#[tokio::test]
async fn mutations_and_conditions_take_effect() {
    let server = Server::start();
    let client = server.client();
    let mut transaction = Transaction::new();
    for (name, count) in [("a", 1), ("b", 2), ("c", 3)] {
        transaction.push(Operation::insert("Thing", row([("name", name.into()), ("count", count.into())])));
    }
    let above = [Condition::new("count", Function::Greater, 1)];
    let changed = transaction.push(Operation::mutate(
        "Thing",
        above,
        [
            Mutation::add("count", 10),
            Mutation::add("count", 1),
            Mutation::insert("trunks", Value::set([5, 6])),
            Mutation::delete("trunks", 5),
            Mutation::insert("ids", Value::map([("k", "v"), ("l", "w")])),
            Mutation::delete("ids", Value::set(["l"])),
        ],
    ));
    let gone = transaction.push(Operation::delete("Thing", [Condition::equal("name", "a")]));
    let select = transaction.push(Operation::select(
        "Thing",
        [Condition::includes("trunks", 6)],
        ["count", "trunks", "ids"],
    ));
    let outcome = client.transact(DB, &transaction).await.unwrap();
    assert_eq!((outcome.count(changed), outcome.count(gone)), (Some(2), Some(1)));
    let mut counts: Vec<_> = outcome.rows(select).iter().map(|row| row["count"].as_integer()).collect();
    counts.sort();
    assert_eq!(counts, [Some(13), Some(14)]);
    for row in outcome.rows(select) {
        assert_eq!(row["trunks"], 6.into());
        assert_eq!(row["ids"], Value::map([("k", "v")]));
    }
}

#[tokio::test]
async fn errors_name_the_operation_and_whether_a_retry_helps() {
    let server = Server::start();
    let client = server.client();
    let insert = || Operation::insert("Thing", named("x"));
    let single = || Operation::insert("Single", row([("number", 1.into())]));
    let nobody = || eno_ovsdb::Uuid::from_u128(42);
    let cases = [
        (vec![insert(), Operation::insert("None", named("x"))], Some(1), Cause::Syntax, false),
        (vec![insert(), insert()], None, Cause::Constraint, false),
        (vec![single(), single()], None, Cause::Constraint, false),
        (
            vec![insert(), Operation::update("Thing", [], row([("tag", 5000.into())]))],
            Some(1),
            Cause::Constraint,
            false,
        ),
        (
            vec![Operation::insert("Thing", row([("parts", Value::set([nobody()]))]))],
            None,
            Cause::ReferentialIntegrity,
            true,
        ),
        (vec![Operation::expect("Thing", nobody(), named("x"))], Some(0), Cause::TimedOut, true),
        (vec![insert(), Operation::expect("Thing", nobody(), named("x"))], Some(1), Cause::TimedOut, true),
        (vec![insert(), Operation::Abort, Operation::Comment("no".into())], Some(1), Cause::Aborted, false),
    ];
    for (operations, index, cause, retry) in cases {
        let transaction: Transaction = operations.into_iter().collect();
        let error = client.transact(DB, &transaction).await.unwrap_err();
        let Error::Failed { failed, .. } = &error else { panic!("{error}") };
        assert_eq!((failed.index, &failed.refusal.cause), (index, &cause), "{error}");
        assert_eq!(error.retry_helps(), retry, "{error}");
    }
    // No row of them was committed.
    assert!(all_named(&client).await.is_empty());
}

/// A transaction that waits for a row of this name.
fn insert_after(name: &str) -> Transaction {
    Transaction::new().with(wait_for(name)).with(Operation::insert("Thing", named(&format!("after {name}"))))
}

#[tokio::test]
async fn replies_are_matched_in_any_order() {
    let server = Server::start();
    let client = server.client();
    let waiting = spawn(&client, insert_after("late"));
    let inserts = (0..200).map(|number| spawn(&client, insert(&format!("n{number}"))));
    for done in join_all(inserts).await {
        done.unwrap().unwrap();
    }
    assert!(!waiting.is_finished());
    client.transact(DB, &insert("late")).await.unwrap();
    soon("the wait", waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn dropped_transaction_is_cancelled() {
    let server = Server::start();
    let client = server.client();
    client.echo().await.unwrap();
    let waiting = spawn(&client, insert_after("late"));
    // The server handles requests in order: after this reply, the transaction waits at the server.
    client.echo().await.unwrap();
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let limit = Duration::from_millis(50);
    let error = client.transact_within(DB, &insert_after("late"), limit).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");

    client.transact(DB, &insert("late")).await.unwrap();
    assert_eq!(all_named(&client).await, [named("late")]);
}

#[tokio::test]
async fn requests_beyond_the_in_flight_limit_wait() {
    let server = Server::start();
    let client = eno_ovsdb::Client::new(server.endpoint(), Options { max_in_flight: 2, ..options() });
    client.echo().await.unwrap();
    let mut waiting: Vec<_> =
        (0..2).map(|number| spawn(&client, insert_after(&format!("late{number}")))).collect();
    let limit = Duration::from_millis(200);
    let blocked = loop {
        let insert = Transaction::new().with(Operation::Comment("room?".into()));
        match client.transact_within(DB, &insert, limit).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(matches!(blocked, Error::NotSent { .. }), "{blocked}");
    waiting.drain(..).for_each(|task| task.abort());
    soon("room", async { while client.echo().await.is_err() {} }).await;
}

#[tokio::test]
async fn non_finite_number_is_refused() {
    let server = Server::start();
    let client = server.client();
    let insert = Operation::insert("Thing", row([("load", Value::from(Atom::Real(f64::NAN)))]));
    assert!(client.transact(DB, &Transaction::new().with(insert)).await.is_err());
    client.echo().await.unwrap();
}
