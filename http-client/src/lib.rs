//! An HTTP client for servers that nobody trusts.
//!
//! A server may send informational responses (1xx) before its answer, as many as it likes, and reading them costs CPU
//! time. So each connection counts what it receives, below TLS and the proxy's tunnel, and ends beyond a limit.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reqwest::Url;
use rustls::client::WantsClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ConfigBuilder};
use rustls_platform_verifier::Verifier;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::util::BoxCloneSyncService;
use tower::{Service, service_fn};

/// Maximum bytes that a connection receives until its next answer, those of TLS included.
const MAX_UNANSWERED: usize = 256 * 1024;
/// A byte of the body of an answer allows as many further bytes: it may come in a chunk and a TLS record of its own.
const PER_BYTE: usize = 64;
/// Bytes that are read at once of HTTP/1, and maximum bytes of the head of an answer.
const READ: usize = 64 * 1024;
/// Bytes of bodies that HTTP/2 has under way. Like [`READ`] it is less than may come before anybody takes a part.
const WINDOW: u32 = 64 * 1024;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("eno/", env!("CARGO_PKG_VERSION")));

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;
/// Judges what a host name resolves to, before a connection.
pub type Check = Arc<dyn Fn(&str, &[SocketAddr]) -> Result<(), BoxError> + Send + Sync>;
type TcpConnection = TokioIo<Counted>;
/// A connection to a server or to a proxy; the latter may use TLS of its own.
type Route = MaybeHttpsStream<TcpConnection>;
type Connector<T> = BoxCloneSyncService<Uri, T, BoxError>;

/// How a client connects.
pub struct Settings {
    /// TLS, as [`tls`] begins it.
    pub tls: ClientConfig,
    /// Use HTTP/2 where the server has it. Its small windows make large bodies slow.
    pub http2: bool,
    /// The proxies.
    pub proxies: Matcher,
    /// Judges addresses.
    pub check: Check,
    /// Time limit of a connection, TLS included.
    pub connect_timeout: Duration,
}

/// Sends requests, and follows no redirects.
pub struct Client {
    client: legacy::Client<Connector<MaybeHttpsStream<Route>>, Full<Bytes>>,
    proxies: Arc<Matcher>,
}

/// An answer whose body is not read yet.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: UnsyncBoxBody<Bytes, BoxError>,
    limit: Option<Limit>,
}

/// The server sends without an end and without an answer.
#[derive(Debug, thiserror::Error)]
#[error("more than {MAX_UNANSWERED} bytes came without an answer")]
struct Unanswered;

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// A client without connections.
    pub fn new(settings: Settings) -> Self {
        let Settings { tls, http2, proxies, check, connect_timeout } = settings;
        let proxies = Arc::new(proxies);
        let tcp = tcp(CheckedResolver(check), connect_timeout);
        let to_proxy =
            HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
        let to_proxy = to_proxy.wrap_connector(connections(tcp.clone(), true));
        let route = route(proxies.clone(), connections(tcp, false), to_proxy);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let https = if http2 {
            https.enable_all_versions().wrap_connector(route)
        } else {
            https.enable_http1().wrap_connector(route)
        };
        let connect = service_fn(move |uri: Uri| {
            let connecting = https.clone().call(uri);
            async move { timeout(connect_timeout, connecting).await.map_err(|_| "connecting timed out")? }
        });
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http1_read_buf_exact_size(READ)
            .http2_initial_stream_window_size(WINDOW)
            .http2_initial_connection_window_size(WINDOW)
            .build(BoxCloneSyncService::new(connect));
        Self { client, proxies }
    }

    /// Sends a request to `url`. The time is not limited.
    pub async fn send(&self, mut request: Request<Bytes>, url: &Url) -> Result<Answer, BoxError> {
        let (uri, authorization) = target(url)?;
        *request.uri_mut() = uri;
        let proxy = self.proxies.intercept(request.uri());
        let is_plain = request.uri().scheme() == Some(&Scheme::HTTP);
        let proxy_authorization = proxy.as_ref().filter(|_| is_plain).and_then(|proxy| proxy.basic_auth());
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        headers.extend(proxy_authorization.map(|value| (PROXY_AUTHORIZATION, value.clone())));
        let (head, body) = self.client.request(request.map(Full::new)).await?.into_parts();
        let limit = head.extensions.get::<Limit>().cloned();
        if let Some(limit) = &limit {
            limit.allow(MAX_UNANSWERED);
        }
        let body = body.map_err(BoxError::from).boxed_unsync();
        Ok(Answer { status: head.status, headers: head.headers, body, limit })
    }
}

impl Answer {
    /// The next part of the body; `None`: it ended.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BoxError> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame?.into_data() {
                if let Some(limit) = &self.limit {
                    limit.allow(data.len().saturating_mul(PER_BYTE));
                }
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// TLS with the system's certificate authorities and `more`. The caller says what it shows to servers that ask for a
/// certificate.
pub fn tls(
    more: Vec<CertificateDer<'static>>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let verifier = Verifier::new_with_extra_roots(more, provider)?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)))
}

/// The URI without user and password, and the header in their place.
fn target(url: &Url) -> Result<(Uri, Option<HeaderValue>), BoxError> {
    let mut url = url.clone();
    url.set_fragment(None);
    let mut authorization = None;
    if !url.username().is_empty() || url.password().is_some() {
        // The matcher of proxies reads user and password as they stand in a URL.
        let matcher = Matcher::builder().all(url.as_str()).build();
        let found = matcher.intercept(&Uri::from_static("http://a/"));
        authorization = found.and_then(|found| found.basic_auth().cloned());
        let _ = url.set_username("").and_then(|()| url.set_password(None));
    }
    Ok((Uri::try_from(url.as_str())?, authorization))
}

/// The certificates of a PEM file, which has at least one.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BoxError> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    if all.is_empty() { Err("it has no certificate".into()) } else { Ok(all) }
}

fn tcp(resolver: CheckedResolver, connect_timeout: Duration) -> HttpConnector<CheckedResolver> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp
}

/// Connects by TCP, to a proxy or to a server.
fn connections(tcp: HttpConnector<CheckedResolver>, is_proxy: bool) -> Connector<TcpConnection> {
    BoxCloneSyncService::new(service_fn(move |uri: Uri| {
        let connecting = tcp.clone().call(uri);
        async move {
            let stream = connecting.await?.into_inner();
            Ok(TokioIo::new(Counted { stream, limit: Limit::default(), is_proxy }))
        }
    }))
}

/// Connects to a server, or to its proxy: for https by a tunnel.
fn route(
    proxies: Arc<Matcher>,
    direct: Connector<TcpConnection>,
    to_proxy: HttpsConnector<Connector<TcpConnection>>,
) -> Connector<Route> {
    BoxCloneSyncService::new(service_fn(move |uri: Uri| -> BoxFuture<'static, Result<Route, BoxError>> {
        let Some(proxy) = proxies.intercept(&uri) else {
            let connecting = direct.clone().call(uri);
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) });
        };
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return to_proxy.clone().call(proxy.uri().clone());
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy.clone());
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let connecting = tunnel.call(uri);
        Box::pin(async move { Ok(connecting.await?) })
    }))
}

/// Resolves a host name once, checks its addresses and returns them for the connection.
#[derive(Clone)]
struct CheckedResolver(Check);

impl Service<Name> for CheckedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let check = self.0.clone();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            check(name.as_str(), &addresses)?;
            Ok(addresses.into_iter())
        })
    }
}

/// The bytes that a connection may still receive until its next answer.
#[derive(Clone)]
struct Limit(Arc<AtomicUsize>);

impl Default for Limit {
    fn default() -> Self {
        Self(Arc::new(MAX_UNANSWERED.into()))
    }
}

impl Limit {
    /// An answer or a part of it came: `bytes` more may come, but no more than the limit.
    fn allow(&self, bytes: usize) {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_add(bytes).min(MAX_UNANSWERED), Ordering::Relaxed);
    }

    fn received(&self, bytes: usize) -> Result<(), Unanswered> {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes).ok_or(Unanswered)?;
        self.0.store(left, Ordering::Relaxed);
        Ok(())
    }
}

/// A connection with a limit on what it receives.
struct Counted {
    stream: TcpStream,
    limit: Limit,
    is_proxy: bool,
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_proxy).extra(self.limit.clone())
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.limit.received(buffer.filled().len() - before).map_err(std::io::Error::other))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn user_and_password_of_a_url_become_a_header() {
        let (uri, authorization) = target(&Url::parse("http://u%40:p@host:8/a?b=c#d").unwrap()).unwrap();
        assert_eq!(uri, "http://host:8/a?b=c");
        // base64 of "u@:p"
        assert_eq!(authorization.unwrap(), "Basic dUA6cA==");
        assert_eq!(target(&Url::parse("https://host/").unwrap()).unwrap().1, None);
    }

    /// The answer of a server that sends this, read slowly.
    async fn body(head: &str, part: &'static [u8], times: usize, after: &'static [u8]) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
            let all = [head.as_bytes(), &part.repeat(times), after].concat();
            stream.write_all(&all).await.unwrap();
        });
        let client = Client::new(Settings {
            tls: tls(Vec::new()).unwrap().with_no_client_auth(),
            http2: false,
            proxies: Matcher::builder().build(),
            check: Arc::new(|_, _| Ok(())),
            connect_timeout: Duration::from_secs(5),
        });
        let mut answer = client.send(Request::new(Bytes::new()), &url).await.unwrap();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.unwrap() {
            body.extend_from_slice(&chunk);
            // The connection reads on before the next chunk is taken.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        body
    }

    #[tokio::test]
    async fn bodies_of_any_size_and_chunks_are_read() {
        const BYTES: usize = 16 << 20;
        let all = body(&format!("content-length: {BYTES}"), b"x", BYTES, b"").await;
        assert_eq!(all.len(), BYTES);
        // Of 600 kB, 100 kB are the body.
        let all = body("transfer-encoding: chunked", b"1\r\nx\r\n", 100_000, b"0\r\n\r\n").await;
        assert_eq!(all.len(), 100_000);
    }
}
