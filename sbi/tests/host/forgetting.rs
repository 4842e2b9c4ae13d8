//! Targets that are gone for good, while the engine loses its connection.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use eno_sbi::nats::{NatsArgs, connect, forget_target};

/// Forwards connections to the server, and cuts one: in the place of the first bytes with this text. Returns its URL,
/// and whether it has cut.
async fn cutting_proxy(server: u16, text: &'static str) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let cut = Arc::new(AtomicBool::new(false));
    let has_cut = Arc::clone(&cut);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (cut, server) = (Arc::clone(&cut), TcpStream::connect(("127.0.0.1", server)).await.unwrap());
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let sending = async {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                        let read = &bytes[..length];
                        let found = read.windows(text.len()).any(|part| part == text.as_bytes());
                        if found && !cut.swap(true, Ordering::Relaxed) {
                            return;
                        }
                        if to_server.write_all(read).await.is_err() {
                            return;
                        }
                    }
                };
                tokio::select! {
                    () = sending => {}
                    _ = copy(&mut from_server, &mut to_client) => {}
                }
            });
        }
    });
    (url, has_cut)
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_forgets_target_though_engine_lost_its_connection() {
    let Setup { server, engine, stub, host } = setup().await;
    engine.apply(&command("a", 1, 1)).await;
    let (nats_url, has_cut) = cutting_proxy(server.port(), "eno.v1.forget.").await;
    let args = NatsArgs { nats_url, ..server.args() };
    let connection = connect(&args, "eno-engine", &CancellationToken::new()).await.unwrap();
    let ended = forget_target(&connection, DRIVER, "a").await;
    assert!(has_cut.load(Ordering::Relaxed));
    // Otherwise the driver would go on with the target, which nobody commands any more.
    stub.until_forgotten("a").await;
    ended.unwrap();
    host.end().await;
}
