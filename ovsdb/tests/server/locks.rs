//! Locks among clients.

use eno_ovsdb::{Error, LockState, Operation, Transaction};

use crate::fixture::{DB, Server, soon};

#[tokio::test]
async fn lock_has_one_holder_at_a_time() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let first = a.lock("master").unwrap();
    soon("the lock", first.held()).await;
    assert!(matches!(a.lock("master"), Err(Error::LockInUse { .. })));
    assert!(matches!(a.lock("no-id"), Err(Error::LockName { .. })));

    let second = b.lock("master").unwrap();
    b.echo().await.unwrap();
    assert_eq!(second.state(), LockState::Waiting);
    let holding = Transaction::new().with(Operation::Assert { lock: "master".into() });
    a.transact(DB, &holding).await.unwrap();
    assert!(b.transact(DB, &holding).await.unwrap_err().retry_helps());

    drop(first);
    soon("the lock", second.held()).await;
    b.transact(DB, &holding).await.unwrap();
    // Requested again by the client that released it.
    let again = a.lock("master").unwrap();
    drop(second);
    soon("the lock", again.held()).await;
}

#[tokio::test]
async fn stolen_lock_is_regained() {
    let server = Server::start();
    let (a, b) = (server.client(), server.client());
    let first = a.lock("master").unwrap();
    soon("the lock", first.held()).await;
    let thief = b.steal("master").unwrap();
    soon("the theft", thief.held()).await;
    assert_eq!(soon("the notification", first.lost()).await, LockState::Stolen);
    drop(thief);
    soon("the lock", first.held()).await;
}

#[tokio::test]
async fn lock_is_requested_again_after_reconnect() {
    let mut server = Server::start();
    let client = server.client();
    let lock = client.lock("master").unwrap();
    soon("the lock", lock.held()).await;
    server.kill();
    assert_eq!(soon("the notification", lock.lost()).await, LockState::Waiting);
    server.resume();
    soon("the lock", lock.held()).await;
    let holding = Transaction::new().with(Operation::Assert { lock: "master".into() });
    client.transact(DB, &holding).await.unwrap();
}
