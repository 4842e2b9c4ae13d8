//! A proxy between client and server that injects faults.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use eno_ovsdb::Endpoint;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// The faults, shared by all connections.
#[derive(Clone)]
pub struct Faults {
    /// Forwards nothing while true.
    pub stalled: watch::Sender<bool>,
    /// Closes a connection after this many bytes of the server.
    pub cut_after: Arc<AtomicUsize>,
    /// Methods that the server rejects as unknown.
    pub unknown: Arc<Vec<&'static str>>,
    /// All bytes that the server sent.
    pub server_output: Arc<Mutex<Vec<u8>>>,
    /// Number of connections so far.
    pub connections: Arc<AtomicUsize>,
}

impl Faults {
    pub fn none() -> Self {
        Self {
            stalled: watch::Sender::new(false),
            cut_after: Arc::new(AtomicUsize::new(usize::MAX)),
            unknown: Arc::default(),
            server_output: Arc::default(),
            connections: Arc::default(),
        }
    }

    pub fn server_output(&self) -> String {
        String::from_utf8_lossy(&self.server_output.lock().unwrap()).into_owned()
    }
}

pub struct Proxy {
    socket: PathBuf,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// Listens next to the server's socket.
    pub fn start(server: &Path, faults: &Faults) -> Self {
        let socket = server.with_extension("proxy");
        let listener = UnixListener::bind(&socket).unwrap();
        let (server, faults) = (server.to_owned(), faults.clone());
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                faults.connections.fetch_add(1, Ordering::Relaxed);
                // A missing server closes the connection.
                if let Ok(server) = UnixStream::connect(&server).await {
                    connections.spawn(forward(client, server, faults.clone()));
                }
            }
        });
        Self { socket, _task: AbortOnDropHandle::new(task) }
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.socket.clone())
    }
}

async fn forward(client: UnixStream, server: UnixStream, faults: Faults) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let to_client = Arc::new(tokio::sync::Mutex::new(to_client));
    tokio::select! {
        () = requests(from_client, to_server, Arc::clone(&to_client), &faults) => {}
        () = replies(from_server, to_client, &faults) => {}
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    back: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    faults: &Faults,
) {
    let mut buffer = Vec::new();
    loop {
        if !matches!(from.read_buf(&mut buffer).await, Ok(1..)) {
            return;
        }
        flowing(faults).await;
        let mut stream = serde_json::Deserializer::from_slice(&buffer).into_iter::<Value>();
        let mut messages = Vec::new();
        while let Some(Ok(message)) = stream.next() {
            messages.push(message);
        }
        let taken = stream.byte_offset();
        buffer.drain(..taken);
        for message in messages {
            let method = message["method"].as_str().unwrap_or_default();
            let done = if faults.unknown.contains(&method) {
                let reply = json!({"id": message["id"], "error": "unknown method"}).to_string();
                back.lock().await.write_all(reply.as_bytes()).await
            } else {
                to.write_all(message.to_string().as_bytes()).await
            };
            if done.is_err() {
                return;
            }
        }
    }
}

async fn replies(mut from: OwnedReadHalf, to: Arc<tokio::sync::Mutex<OwnedWriteHalf>>, faults: &Faults) {
    let mut buffer = vec![0; 1 << 16];
    let mut sent = 0;
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
        flowing(faults).await;
        let room = faults.cut_after.load(Ordering::Relaxed).saturating_sub(sent);
        let bytes = &buffer[..length.min(room)];
        faults.server_output.lock().unwrap().extend_from_slice(bytes);
        if to.lock().await.write_all(bytes).await.is_err() || bytes.len() < length {
            return;
        }
        sent += length;
    }
}

async fn flowing(faults: &Faults) {
    let mut stalled = faults.stalled.subscribe();
    // The sender is in `faults`.
    let _ = stalled.wait_for(|stalled| !stalled).await;
}
