//! A proxy in front of the API server with its own certificate. It forwards requests as one user, and streams watches.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{self, Method, StatusCode, header};
use axum::response::Response;
use axum::serve::Listener;
use futures::{Stream, StreamExt as _, future, stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::write_counter::{Fault, WatchState, WriteAction, WriteCounter};

/// Listens until it is dropped.
pub struct ApiProxy {
    /// Counts writes except Leases, Events and dry runs.
    pub counter: Arc<WriteCounter>,
    kubeconfig: PathBuf,
    _server: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct Proxy {
    client: Client,
    counter: Arc<WriteCounter>,
}

impl ApiProxy {
    /// Starts a proxy that forwards requests over `client`; writes its kubeconfig to `dir`.
    pub async fn start(client: Client, dir: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("its address");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
            .and_then(|params| params.self_signed(&key))
            .expect("a certificate");
        std::fs::create_dir_all(dir).expect("a directory");
        let authority = dir.join("proxy.crt");
        std::fs::write(&authority, certificate.pem()).expect("the certificate's file");
        let kubeconfig = dir.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": {
                "server": format!("https://{address}"), "certificate-authority": authority,
            }}],
            "users": [{"name": "anybody", "user": {}}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "anybody"}}],
            "current-context": "proxy",
        });
        std::fs::write(&kubeconfig, config.to_string()).expect("the kubeconfig");

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .expect("a key that fits");
        let counter = Arc::new(WriteCounter::default());
        let proxy = Proxy { client, counter: Arc::clone(&counter) };
        let router = Router::new().fallback(pass).with_state(proxy);
        let listener = TlsListener { listener, acceptor: TlsAcceptor::from(Arc::new(tls)) };
        let server = tokio::spawn(async move {
            // The server ends with the process or its listener; missing answers show that.
            let _ = axum::serve(listener, router).await;
        });
        Self { counter, kubeconfig, _server: AbortOnDropHandle::new(server) }
    }

    /// The kubeconfig of a client of the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // The handshake fails for a client that was killed meanwhile.
            if let Ok((stream, address)) = self.listener.accept().await
                && let Ok(stream) = self.acceptor.accept(stream).await
            {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// The verb and path of a counted write; `None`: a read, a dry run, or a write of a Lease, Event or access review.
fn counted_write(parts: &Parts) -> Option<String> {
    let path = parts.uri.path();
    let writes = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE);
    let is_uncounted =
        ["/leases", "/events", "/selfsubjectaccessreviews"].iter().any(|one| path.contains(one));
    let is_dry_run = parts.uri.query().is_some_and(|query| query.contains("dryRun"));
    (writes && !is_uncounted && !is_dry_run).then(|| format!("{} {path}", parts.method))
}

async fn pass(State(proxy): State<Proxy>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let what = counted_write(&parts);
    let action = what.clone().map_or_else(|| proxy.counter.other(), |what| proxy.counter.write(what));
    let what = what.unwrap_or_default();
    let fault = match action {
        WriteAction::Pass => return proxy.forward(parts, body).await,
        WriteAction::Drop => return future::pending().await,
        WriteAction::Inject(fault) => fault,
    };
    let refused = |code: StatusCode, reason: &str| {
        proxy.counter.record_injected(what.clone());
        refusal(code, reason)
    };
    match fault {
        Fault::KilledBefore | Fault::CutBefore => {
            proxy.counter.record_injected(what);
            future::pending().await
        }
        Fault::KilledAfter | Fault::Unanswered | Fault::CutAfter => {
            let answer = proxy.forward(parts, body).await;
            // The write has taken effect once the answer is complete.
            let _ = to_bytes(answer.into_body(), usize::MAX).await;
            proxy.counter.record_injected(what);
            future::pending().await
        }
        Fault::EarlyFinalizerRemoval => {
            let object = parts.uri.path().trim_end_matches("/status");
            let removal = merge_patch(object, &json!({"metadata": {"finalizers": null}}));
            // The object may be deleted already.
            let _ = proxy.client.request::<Value>(removal).await;
            let answer = proxy.forward(parts, body).await;
            proxy.counter.record_injected(what);
            answer
        }
        Fault::Frozen | Fault::StatusBeforeOutbox => {
            let answer = proxy.forward(parts, body).await;
            proxy.counter.record_injected(what);
            answer
        }
        Fault::WriteLost => {
            proxy.counter.record_injected(what);
            let mut read = Request::get(parts.uri.path()).body(()).expect("a request").into_parts().0;
            read.headers = parts.headers;
            read.headers.remove(header::CONTENT_TYPE);
            proxy.forward(read, Bytes::new()).await
        }
        Fault::Conflict => refused(StatusCode::CONFLICT, "Conflict"),
        Fault::TooMany => refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
        Fault::Internal => refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
    }
}

/// A request that merges `patch` into what is at `path`.
pub(super) fn merge_patch(path: &str, patch: &Value) -> http::Request<Vec<u8>> {
    http::Request::patch(path)
        .header(header::CONTENT_TYPE, "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .expect("a request")
}

/// An error response in the API server's format.
fn refusal(code: StatusCode, reason: &str) -> Response {
    let mut response = Response::builder().status(code).header(header::CONTENT_TYPE, "application/json");
    if code == StatusCode::TOO_MANY_REQUESTS {
        response = response.header(header::RETRY_AFTER, "1");
    }
    response.body(Body::from(status(code, reason).to_string())).expect("a response")
}

fn status(code: StatusCode, reason: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "it is tried what comes of this answer", "reason": reason, "code": code.as_u16(),
    })
}

impl Proxy {
    async fn forward(&self, mut parts: Parts, body: Bytes) -> Response {
        for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
            parts.headers.remove(name);
        }
        let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        parts.uri = path.parse().expect("the path of a URI");
        let watches = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let request = Request::from_parts(parts, kube::client::Body::from(body));
        let watch_state = self.counter.watch_state();
        match self.client.send(request).await {
            Ok(answer) if watches && answer.status().is_success() => answer.map(|body| {
                Body::from_stream(freezable_watch(Body::new(body), self.counter.clone(), watch_state))
            }),
            Ok(answer) => answer.map(Body::new),
            Err(_) => refusal(StatusCode::BAD_GATEWAY, "InternalError"),
        }
    }
}

/// A watch stream that freezes, and ends with 410 Gone, according to the counter's watch state.
fn freezable_watch(
    body: Body,
    counter: Arc<WriteCounter>,
    begun: WatchState,
) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send {
    let events = Some(body.into_data_stream());
    stream::unfold((events, counter, begun), |(events, counter, watch_state)| async move {
        let mut events = events?;
        let mut now = watch_state;
        loop {
            if now.breaks > watch_state.breaks {
                let event = json!({"type": "ERROR", "object": status(StatusCode::GONE, "Expired")});
                return Some((Ok(Bytes::from(format!("{event}\n"))), (None, counter, now)));
            }
            let event = async { if now.frozen { future::pending().await } else { events.next().await } };
            tokio::select! {
                biased;
                changed = counter.watch_state_changes(now) => now = changed,
                event = event => return event.map(|event| (event, (Some(events), counter, watch_state))),
            }
        }
    })
}
