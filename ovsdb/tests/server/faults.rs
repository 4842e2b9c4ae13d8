//! Servers that are killed, restarted, disconnected or slow, and servers of other protocols.

use std::sync::atomic::Ordering;
use std::time::Duration;

use eno_ovsdb::{Client, ConnectionError, Endpoint, Error, Mirror, MirrorState, Options, Transaction};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::fixture::{DB, Server, all_named, insert, options, soon, spawn, things, wait_for};
use crate::proxy::{Faults, Proxy};

async fn has(mirror: &Mirror, name: &str) {
    let found = mirror.wait_for(|replica| replica.find("Thing", "name", &name.into()).map(drop));
    soon(&format!("{name} in the mirror"), found).await.unwrap();
}

async fn stale(mirror: &Mirror) {
    let mut changes = mirror.changes();
    soon("a stale mirror", async {
        while !matches!(changes.state(), MirrorState::Stale(_)) {
            changes.next().await.unwrap();
        }
    })
    .await;
}

async fn survives_a_restart(mut server: Server) -> String {
    let faults = Faults::none();
    let proxy = Proxy::start(&server.socket(), &faults);
    let client = Client::new(proxy.endpoint(), options());
    let mirror = client.mirror(DB, things());
    client.transact(DB, &insert("before")).await.unwrap();
    has(&mirror, "before").await;

    let waiting = spawn(&client, Transaction::new().with(wait_for("never")));
    client.echo().await.unwrap();
    server.kill();
    let error = soon("the end of what was in flight", waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(error.retry_helps());
    stale(&mirror).await;
    mirror.read(|replica| assert!(replica.find("Thing", "name", &"before".into()).is_some()));

    server.resume();
    let other = server.client();
    other.transact(DB, &insert("after")).await.unwrap();
    has(&mirror, "after").await;
    mirror.read(|replica| assert_eq!(replica.table("Thing").count(), 2));
    client.transact(DB, &insert("again")).await.unwrap();
    mirror.read(|replica| assert_eq!(replica.table("Thing").count(), 3));
    faults.server_output()
}

#[tokio::test]
async fn client_reconnects_after_server_restart() {
    survives_a_restart(Server::start()).await;
}

#[tokio::test]
async fn mirror_resumes_from_the_last_transaction() {
    let server_output = survives_a_restart(Server::clustered()).await;
    // `<found>` is true: no second copy was sent.
    assert!(server_output.contains("\"result\":[true,"), "{server_output}");
}

#[tokio::test]
async fn client_waits_for_a_server_to_start() {
    let mut server = Server::start();
    server.kill();
    let _ = std::fs::remove_file(server.socket());
    let short_timeout = Options { connection_wait: Duration::from_millis(100), ..options() };
    let client = Client::new(server.endpoint(), short_timeout);
    let error = client.echo().await.unwrap_err();
    assert!(matches!(error, Error::NotSent { .. }) && error.retry_helps(), "{error}");
    assert!(error.to_string().contains(&server.socket().display().to_string()), "{error}");
    let mirror = client.mirror(DB, things());
    assert_eq!(mirror.state(), MirrorState::Waiting);
    server.resume();
    soon("a first copy", mirror.wait_for(|_| Some(()))).await.unwrap();
    client.echo().await.unwrap();
}

#[tokio::test]
async fn silent_server_is_disconnected_and_reconnected() {
    let server = Server::start();
    let faults = Faults::none();
    let proxy = Proxy::start(&server.socket(), &faults);
    let quick = Options { probe_interval: Duration::from_millis(200), ..options() };
    let client = Client::new(proxy.endpoint(), quick);
    let mirror = client.mirror(DB, things());
    mirror.current().await.unwrap();
    faults.stalled.send_replace(true);
    let error = client.transact(DB, &insert("lost")).await.unwrap_err();
    let Error::Unknown { cause: ConnectionError::Stalled { .. }, .. } = &error else { panic!("{error}") };
    stale(&mirror).await;
    faults.stalled.send_replace(false);
    soon("a current mirror", mirror.wait_for(|_| Some(()))).await.unwrap();
    client.transact(DB, &insert("found")).await.unwrap();
    has(&mirror, "found").await;
}

#[tokio::test]
async fn idle_connection_is_kept_open() {
    let server = Server::start();
    let faults = Faults::none();
    let proxy = Proxy::start(&server.socket(), &faults);
    let quick = Options { probe_interval: Duration::from_millis(400), ..options() };
    let client = Client::new(proxy.endpoint(), quick);
    client.echo().await.unwrap();
    // The first connection attempt may precede the server's start.
    let before = faults.connections.load(Ordering::Relaxed);
    let echoes = || faults.server_output().matches("\"id\":\"echo\"").count();
    soon("three echoes", async {
        while echoes() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(faults.connections.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn client_recovers_from_a_connection_cut_at_any_byte() {
    let server = Server::start();
    let faults = Faults::none();
    let proxy = Proxy::start(&server.socket(), &faults);
    let client = Client::new(proxy.endpoint(), options());
    let mirror = client.mirror(DB, things());
    mirror.current().await.unwrap();
    let whole = faults.server_output().len();
    for cut in (1..whole).step_by(whole / 25) {
        faults.cut_after.store(cut, Ordering::Relaxed);
        // The requests that are cut off, if the connection was not cut before.
        let _ =
            tokio::time::timeout(Duration::from_secs(30), client.transact(DB, &insert(&format!("{cut}"))))
                .await;
        stale(&mirror).await;
        faults.cut_after.store(usize::MAX, Ordering::Relaxed);
        soon("a current mirror", mirror.wait_for(|_| Some(()))).await.unwrap();
        let there = all_named(&client).await.len();
        mirror.read(|replica| assert_eq!(replica.table("Thing").count(), there));
    }
}

/// Serves this text to the client.
async fn first_error_for(text: &'static [u8], limit: usize) -> ConnectionError {
    let dir = tempfile::TempDir::with_prefix("eno-ovsdb-").unwrap();
    let socket = dir.path().join("sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let client = Client::new(Endpoint::Unix(socket), Options { max_message: limit, ..options() });
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // After the first request.
        let mut buffer = [0; 100];
        assert!(stream.read(&mut buffer).await.unwrap() > 0);
        stream.write_all(text).await.unwrap();
        std::future::pending::<()>().await;
    };
    let asking = async { client.echo().await.unwrap_err() };
    tokio::select! {
        () = serving => unreachable!(),
        error = soon("an error", asking) => match error {
            Error::Unknown { cause, .. } => cause,
            other => panic!("{other}"),
        },
    }
}

#[tokio::test]
async fn non_ovsdb_server_is_disconnected() {
    for text in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"{\"id\":}",
        b"{]",
        b"[1]",
        b"\xff",
        b"{\"id\":null,\"method\":\"update3\",\"params\":[1]}",
    ] {
        let error = first_error_for(text, 1000).await;
        assert!(matches!(error, ConnectionError::Protocol { .. }), "{text:?}: {error}");
    }
    let error = first_error_for(&[b'{'; 2000], 1000).await;
    assert!(error.to_string().contains("more than 1000 bytes"), "{error}");
}
