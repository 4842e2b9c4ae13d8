//! A reverse proxy in front of Keystone and Neutron, which counts requests and makes faults.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use rcgen::{CertifiedKey, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::floods::acceptor;

/// What happens to one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server gets it, and the connection ends without an answer.
    LoseAnswer,
    /// The connection ends before the server gets it.
    LoseRequest,
    /// This is answered instead.
    Answer(StatusCode, &'static [(&'static str, &'static str)], &'static str),
}

/// Decides about a request by its method and path.
pub type Faults = Box<dyn FnMut(&str, &str) -> Option<Fault> + Send>;

/// A request that reached the proxy: method and path with the query.
pub type Seen = (String, String);

/// The proxy. Its address stays when it is unreachable.
pub struct Proxy {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    server: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    keystone: String,
    neutron: String,
    own: String,
    client: reqwest::Client,
    faults: Mutex<Option<Faults>>,
    /// Maximum items per page; 0: no limit.
    page: AtomicU64,
    seen: Mutex<Vec<Seen>>,
    writes: AtomicU64,
}

impl Proxy {
    /// Starts it. `keystone`: without path.
    pub async fn start(keystone: &str, neutron: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self::start_as(keystone, neutron, listener, format!("http://{address}"))
    }

    /// Starts it behind TLS with this certificate.
    pub async fn start_with_tls(keystone: &str, neutron: &str, certificate: &CertifiedKey<KeyPair>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = listener.local_addr().unwrap();
        let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = format!("https://{}", front.local_addr().unwrap());
        let acceptor = acceptor(certificate);
        tokio::spawn(async move {
            while let Ok((client, _)) = front.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that refuses the certificate ends the handshake.
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let mut server = TcpStream::connect(plain).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self::start_as(keystone, neutron, listener, own)
    }

    fn start_as(keystone: &str, neutron: &str, listener: TcpListener, own: String) -> Self {
        let address = listener.local_addr().unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let shared = Arc::new(Shared {
            keystone: keystone.to_owned(),
            neutron: neutron.to_owned(),
            own,
            client,
            faults: Mutex::default(),
            page: AtomicU64::new(0),
            seen: Mutex::default(),
            writes: AtomicU64::new(0),
        });
        let server = Mutex::new(Some(serve(listener, Arc::clone(&shared))));
        Self { address, shared, server }
    }

    /// The URL of Keystone through the proxy.
    pub fn keystone(&self) -> String {
        format!("{}/identity/v3", self.shared.own)
    }

    /// Sets what happens to requests from now on.
    pub fn set_faults(&self, faults: impl FnMut(&str, &str) -> Option<Fault> + Send + 'static) {
        *self.shared.faults.lock().unwrap() = Some(Box::new(faults));
    }

    /// Lists have pages of this many items.
    pub fn set_page(&self, items: u64) {
        self.shared.page.store(items, Ordering::SeqCst);
    }

    /// No more faults.
    pub fn clear_faults(&self) {
        *self.shared.faults.lock().unwrap() = None;
    }

    /// The requests since the last call.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.seen.lock().unwrap())
    }

    /// The number of requests to Neutron that change something.
    pub fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::SeqCst)
    }

    /// Makes the address refuse connections, or not.
    pub async fn set_reachable(&self, reachable: bool) {
        let running = self.server.lock().unwrap().take();
        if let Some(running) = running {
            running.abort();
            let _ = running.await;
        }
        if reachable {
            let listener = loop {
                match TcpListener::bind(self.address).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            *self.server.lock().unwrap() = Some(serve(listener, Arc::clone(&self.shared)));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.abort();
        }
    }
}

/// Serves connections in tasks that end with the returned one.
fn serve(listener: TcpListener, shared: Arc<Shared>) -> JoinHandle<()> {
    let app = axum::Router::new().fallback(forward).with_state(shared);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() })
}

async fn forward(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let method = parts.method.as_str().to_owned();
    shared.seen.lock().unwrap().push((method.clone(), path.clone()));
    let fault = shared.faults.lock().unwrap().as_mut().and_then(|faults| faults(&method, &path));
    match fault {
        Some(Fault::LoseRequest) => return broken(),
        Some(Fault::LoseAnswer) => {
            shared.send(&parts.method, &path, &parts.headers, body).await;
            return broken();
        }
        Some(Fault::Answer(status, headers, text)) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            return response.body(Body::from(text)).unwrap();
        }
        None => {}
    }
    shared.send(&parts.method, &path, &parts.headers, body).await
}

/// A response whose body ends the connection early.
fn broken() -> Response<Body> {
    let body = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("the connection is cut"))]);
    Response::builder().header("content-length", "100").body(Body::from_stream(body)).unwrap()
}

impl Shared {
    async fn send(&self, method: &Method, path: &str, headers: &HeaderMap, body: Bytes) -> Response<Body> {
        let (url, identity) = match path.strip_prefix("/identity") {
            Some(path) => (format!("{}{path}", self.keystone), true),
            None => (format!("{}{}", self.neutron, path.strip_prefix("/network").unwrap()), false),
        };
        if !identity && method != Method::GET {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        let page = self.page.load(Ordering::SeqCst);
        // In the place of the driver's limit.
        let url = match url.split_once("limit=") {
            Some((before, after)) if page > 0 && method == Method::GET => {
                let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
                format!("{before}limit={page}{after}")
            }
            _ => url,
        };
        let mut headers = headers.clone();
        headers.remove("host");
        let answer =
            self.client.request(method.clone(), url).headers(headers).body(body).send().await.unwrap();
        let mut response = Response::builder().status(answer.status());
        for (name, value) in answer.headers() {
            if !matches!(name.as_str(), "content-length" | "transfer-encoding" | "connection") {
                response = response.header(name, value);
            }
        }
        let text = answer.text().await.unwrap();
        // The catalogue, and the links to further pages.
        let text = text.replace(&self.neutron, &format!("{}/network", self.own));
        response.body(Body::from(text)).unwrap()
    }
}

/// The time limits of drivers in tests.
pub const REQUEST_LIMIT: Duration = Duration::from_mins(1);
