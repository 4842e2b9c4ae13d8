//! Connections of browsers. Every program of this machine can open one, so their number is bounded, and one without a
//! request ends.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The bounds on connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How many there are at a time. Others wait in the kernel.
    pub connections: usize,
    /// How long the head of a request may take, from the beginning of the connection or the end of the last answer.
    pub head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, head: Duration::from_secs(10) }
    }
}

/// Serves without end.
pub(super) async fn pages(mut listener: TcpListener, router: Router, limits: Limits) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        // It tries again when the process has no more files.
        let (stream, _) = Listener::accept(&mut listener).await;
        let service = TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
            server.http1().timer(TokioTimer::new()).header_read_timeout(limits.head);
            // An error of a connection is of no concern to others.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    #[tokio::test]
    async fn connections_without_requests_end_and_stop_no_other() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(async || "here"));
        let limits = Limits { connections: 4, head: Duration::from_millis(100) };
        let _serving = AbortOnDropHandle::new(tokio::spawn(pages(listener, router, limits)));
        let mut idle = Vec::new();
        for number in 0..20 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
            }
            idle.push(stream);
        }
        let mut asking = TcpStream::connect(address).await.unwrap();
        asking.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
        for mut stream in idle {
            let mut rest = Vec::new();
            // It ends, with an answer or without.
            let _ = stream.read_to_end(&mut rest).await;
        }
    }
}
