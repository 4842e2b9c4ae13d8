//! A proxy in front of the NATS server that parses frames.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::frames::{self, Frame};
use super::write_counter::{Fault, WriteAction, WriteCounter};

/// Listens until it is dropped.
pub struct NatsProxy {
    /// Counts messages that are published on the chosen subjects.
    pub counter: Arc<WriteCounter>,
    url: String,
    _server: AbortOnDropHandle<()>,
}

/// Whether a subject is counted.
type Counted = fn(&str) -> bool;

impl NatsProxy {
    /// Starts a proxy for the server at `url`, `nats://host:port`.
    pub async fn start(url: &str, counted: Counted) -> Self {
        let server = url.strip_prefix("nats://").expect("a URL without TLS").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let url = format!("nats://{}", listener.local_addr().expect("its address"));
        let counter = Arc::new(WriteCounter::default());
        let count = Arc::clone(&counter);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                // Without a server, the client reconnects.
                if let Ok(server) = TcpStream::connect(&server).await {
                    connections.spawn(forward(client, server, Arc::clone(&count), counted));
                }
            }
        });
        Self { counter, url, _server: AbortOnDropHandle::new(task) }
    }

    /// The URL of the proxy.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Forwards one connection until either end closes.
async fn forward(client: TcpStream, server: TcpStream, counter: Arc<WriteCounter>, counted: Counted) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut client_buffer, mut server_buffer) = (BytesMut::new(), BytesMut::new());
    loop {
        tokio::select! {
            read = from_client.read_buf(&mut client_buffer) => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
            }
            read = from_server.read_buf(&mut server_buffer) => {
                if !matches!(read, Ok(1..)) {
                    return;
                }
            }
        }
        while let Some(frame) = frames::take(&mut client_buffer).expect("NATS without TLS") {
            let what = frame.subject.clone().filter(|subject| counted(subject));
            let action = what.clone().map_or_else(|| counter.other(), |what| counter.write(what));
            let what = what.unwrap_or_default();
            let fault = match action {
                WriteAction::Pass => {
                    if to_server.write_all(&frame.bytes).await.is_err() {
                        return;
                    }
                    continue;
                }
                WriteAction::Drop => return discard_input(from_client).await,
                WriteAction::Inject(fault) => fault,
            };
            match fault {
                Fault::KilledAfter | Fault::CutAfter => {
                    take_effect(&frame, &mut to_server, &mut from_server, &mut server_buffer).await;
                }
                _ => {}
            }
            counter.record_injected(if fault == Fault::StatusBeforeOutbox { frame.text() } else { what });
            if fault.kills() {
                return discard_input(from_client).await;
            }
            return;
        }
        if counter.other() == WriteAction::Drop {
            return discard_input(from_client).await;
        }
        while let Some(frame) = frames::take(&mut server_buffer).expect("NATS without TLS") {
            if to_client.write_all(&frame.bytes).await.is_err() {
                return;
            }
        }
    }
}

/// Reads and discards until the client closes the connection.
async fn discard_input(mut client: tokio::net::tcp::OwnedReadHalf) {
    let mut client_buffer = BytesMut::new();
    while matches!(client.read_buf(&mut client_buffer).await, Ok(1..)) {
        client_buffer.clear();
    }
}

/// Sends a message and discards the server's reply. A message without a reply subject is only sent.
async fn take_effect(
    frame: &Frame,
    to_server: &mut OwnedWriteHalf,
    from_server: &mut tokio::net::tcp::OwnedReadHalf,
    server_buffer: &mut BytesMut,
) {
    if to_server.write_all(&frame.bytes).await.is_err() {
        return;
    }
    let Some(reply) = &frame.reply else { return };
    loop {
        while let Some(answer) = frames::take(server_buffer).expect("NATS without TLS") {
            if answer.subject.as_ref() == Some(reply) {
                return;
            }
        }
        if !matches!(from_server.read_buf(server_buffer).await, Ok(1..)) {
            return;
        }
    }
}
