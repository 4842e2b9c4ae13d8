//! Servers that are killed, restarted, cut off, slow, or no servers at all.

use std::sync::atomic::Ordering;
use std::time::Duration;

use eno_ovsdb::{
    Client, Condition, ConnectionError, Endpoint, Error, Mirror, MirrorState, Operation, Options,
    Transaction, Until, row,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::proxy::{Faults, Proxy};
use crate::rig::{DB, Server, options, soon, things};

fn insert(name: &str) -> Transaction {
    Transaction::new().with(Operation::insert("Thing", row([("name", name.into())])))
}

/// Never done by itself.
fn endless() -> Transaction {
    Transaction::new().with(Operation::Wait {
        table: "Thing".into(),
        conditions: vec![Condition::equal("name", "never")],
        columns: vec!["name".into()],
        until: Until::Equal,
        rows: vec![row([("name", "never".into())])],
        timeout: None,
    })
}

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

    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.transact(DB, &endless()).await }
    });
    client.echo().await.unwrap();
    server.kill();
    let error = soon("the end of what was in flight", waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }), "{error}");
    assert!(error.retry_helps() && error.may_have_happened());
    stale(&mirror).await;
    mirror.read(|replica| assert!(replica.find("Thing", "name", &"before".into()).is_some()));

    server.resume();
    let other = server.client();
    other.transact(DB, &insert("after")).await.unwrap();
    has(&mirror, "after").await;
    mirror.read(|replica| assert_eq!(replica.table("Thing").count(), 2));
    client.transact(DB, &insert("again")).await.unwrap();
    mirror.read(|replica| assert_eq!(replica.table("Thing").count(), 3));
    faults.heard()
}

#[tokio::test]
async fn a_server_that_is_killed_and_comes_back() {
    survives_a_restart(Server::start()).await;
}

#[tokio::test]
async fn a_mirror_goes_on_from_the_last_transaction() {
    let heard = survives_a_restart(Server::clustered()).await;
    // `<found>`: no second copy was sent.
    assert!(heard.contains("\"result\":[true,"), "{heard}");
}

#[tokio::test]
async fn a_client_waits_for_a_server_that_is_not_there_yet() {
    let mut server = Server::start();
    server.kill();
    let _ = std::fs::remove_file(server.socket());
    let impatient = Options { patience: Duration::from_millis(100), ..options() };
    let client = Client::new(server.endpoint(), impatient);
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
async fn a_silent_server_is_given_up_and_found_again() {
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
async fn an_idle_connection_is_kept() {
    let server = Server::start();
    let faults = Faults::none();
    let proxy = Proxy::start(&server.socket(), &faults);
    let quick = Options { probe_interval: Duration::from_millis(400), ..options() };
    let client = Client::new(proxy.endpoint(), quick);
    client.echo().await.unwrap();
    // The first may have been there before the server was.
    let before = faults.connections.load(Ordering::Relaxed);
    let echoes = || faults.heard().matches("\"id\":\"echo\"").count();
    soon("three echoes", async {
        while echoes() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(faults.connections.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn a_connection_that_is_cut_anywhere() {
    let server = Server::start();
    let faults = Faults::none();
    let proxy = Proxy::start(&server.socket(), &faults);
    let client = Client::new(proxy.endpoint(), options());
    let mirror = client.mirror(DB, things());
    mirror.current().await.unwrap();
    let whole = faults.heard().len();
    for cut in (1..whole).step_by(whole / 25) {
        faults.cut_after.store(cut, Ordering::Relaxed);
        // What it is cut in, if it is not cut by then.
        let _ =
            tokio::time::timeout(Duration::from_secs(30), client.transact(DB, &insert(&format!("{cut}"))))
                .await;
        stale(&mirror).await;
        faults.cut_after.store(usize::MAX, Ordering::Relaxed);
        soon("a current mirror", mirror.wait_for(|_| Some(()))).await.unwrap();
        let all = Transaction::new().with(Operation::select("Thing", [], ["name"]));
        let there = client.transact(DB, &all).await.unwrap().rows(0).len();
        mirror.read(|replica| assert_eq!(replica.table("Thing").count(), there));
    }
}

/// Says this to whoever connects.
async fn says(text: &'static [u8], limit: usize) -> ConnectionError {
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
async fn what_is_no_server_is_given_up() {
    for text in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"{\"id\":}",
        b"{]",
        b"[1]",
        b"\xff",
        b"{\"id\":null,\"method\":\"update3\",\"params\":[1]}",
        b"{\"id\":null,\"method\":\"locked\",\"params\":[]}",
    ] {
        let error = says(text, 1000).await;
        assert!(matches!(error, ConnectionError::Protocol { .. }), "{text:?}: {error}");
    }
    let error = says(&[b'{'; 2000], 1000).await;
    assert!(error.to_string().contains("more than 1000 bytes"), "{error}");
}
