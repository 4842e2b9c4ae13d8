//! The HTTP client of callbacks.
//!
//! An endpoint may send informational responses (1xx) before its answer, as many as it likes, and reading them costs
//! CPU time. So each connection counts what it receives, below TLS and the proxy's tunnel, and ends beyond a limit.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reqwest::Url;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::Verifier;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::util::BoxCloneSyncService;
use tower::{Service, service_fn};

use super::CallbackArgs;
use super::address::Policy;
use super::args::proxy_url;
use super::post::PosterError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes that a connection receives until its next answer, those of TLS included.
const MAX_UNANSWERED: usize = 256 * 1024;
/// Window of HTTP/2 for the bodies of answers, which nobody reads.
const BODY_WINDOW: u32 = 64 * 1024;
const AGENT: HeaderValue = HeaderValue::from_static(concat!("eno/", env!("CARGO_PKG_VERSION")));

pub type BoxError = Box<dyn Error + Send + Sync>;
type TcpConnection = TokioIo<Counted>;
/// A connection to an endpoint or to a proxy; the latter may use TLS of its own.
type Route = MaybeHttpsStream<TcpConnection>;
type Connector<T> = BoxCloneSyncService<Uri, T, BoxError>;

/// Posts without redirects, and without reading the body of the answer.
pub struct HttpClient {
    client: Client<Connector<MaybeHttpsStream<Route>>, Full<Bytes>>,
    proxies: Arc<Matcher>,
}

/// The endpoint sends without an end and without an answer.
#[derive(Debug, thiserror::Error)]
#[error("more than {MAX_UNANSWERED} bytes came without an answer")]
struct Unanswered;

impl HttpClient {
    /// `policy` checks the addresses of host names.
    pub fn new(args: &CallbackArgs, policy: &Arc<Policy>) -> Result<Self, PosterError> {
        let (proxies, proxy_hosts) = proxies(args)?;
        let tcp = tcp(CheckedResolver { policy: policy.clone(), proxies: proxy_hosts.into() });
        let tls = tls(args)?;
        let to_proxy =
            HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
        let to_proxy = to_proxy.wrap_connector(connections(tcp.clone(), true));
        let route = route(proxies.clone(), connections(tcp, false), to_proxy);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions();
        let https = https.wrap_connector(route);
        let connect = service_fn(move |uri: Uri| {
            let connecting = https.clone().call(uri);
            async move { timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| "connecting timed out")? }
        });
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_initial_stream_window_size(BODY_WINDOW)
            .http2_initial_connection_window_size(BODY_WINDOW)
            .build(BoxCloneSyncService::new(connect));
        Ok(Self { client, proxies })
    }

    /// Sends a request to `url`, and returns the head of the answer.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
        url: &Url,
    ) -> Result<(StatusCode, HeaderMap), BoxError> {
        let (uri, authorization) = target(url)?;
        *request.uri_mut() = uri;
        let proxy = self.proxies.intercept(request.uri());
        let is_plain = request.uri().scheme() == Some(&Scheme::HTTP);
        let proxy_authorization = proxy.as_ref().filter(|_| is_plain).and_then(|proxy| proxy.basic_auth());
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.extend(authorization.map(|value| (http::header::AUTHORIZATION, value)));
        headers.extend(proxy_authorization.map(|value| (PROXY_AUTHORIZATION, value.clone())));
        let (head, _) = self.client.request(request).await?.into_parts();
        if let Some(limit) = head.extensions.get::<Limit>() {
            limit.answered();
        }
        Ok((head.status, head.headers))
    }
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

/// The proxies, and their host names.
fn proxies(args: &CallbackArgs) -> Result<(Arc<Matcher>, Vec<String>), PosterError> {
    let variable = |upper: &str| {
        let found = std::env::var(upper).or_else(|_| std::env::var(upper.to_lowercase()));
        found.ok().filter(|text| !text.is_empty())
    };
    let mut builder = Matcher::builder().no(variable("NO_PROXY").unwrap_or_default());
    let mut hosts = Vec::new();
    for (scheme, url) in proxy_urls(args.callback_proxy.as_ref().map(Url::as_str), variable) {
        let url = proxy_url(&url).map_err(PosterError::Proxy)?;
        hosts.extend(url.host_str().map(str::to_lowercase));
        let url = String::from(url);
        builder = match scheme {
            Proxied::All => builder.all(url),
            Proxied::Https => builder.https(url),
            Proxied::Http => builder.http(url),
        };
    }
    Ok((Arc::new(builder.build()), hosts))
}

/// The URLs that a proxy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxied {
    All,
    Https,
    Http,
}

/// The URLs of the proxies.
fn proxy_urls(flag: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Vec<(Proxied, String)> {
    if let Some(url) = flag {
        return vec![(Proxied::All, url.to_owned())];
    }
    let https = variable("HTTPS_PROXY").map(|url| (Proxied::Https, url));
    https.into_iter().chain(variable("HTTP_PROXY").map(|url| (Proxied::Http, url))).collect()
}

fn tls(args: &CallbackArgs) -> Result<ClientConfig, PosterError> {
    let read = |file: &PathBuf| {
        std::fs::read(file).map_err(|source| PosterError::File { file: file.clone(), source })
    };
    let client = |what| move |source: BoxError| PosterError::Client { what, source };
    let authorities = match &args.callback_ca {
        Some(file) => certificates(&read(file)?).map_err(client("--callback-ca"))?,
        None => Vec::new(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| client("TLS for callbacks")(error.into()))?;
    let verifier = Verifier::new_with_extra_roots(authorities, provider)
        .map_err(|error| client("--callback-ca")(error.into()))?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let Some(file) = &args.callback_client_certificate else { return Ok(config.with_no_client_auth()) };
    let identity = || {
        let text = read(file)?;
        let identity = || Ok::<_, BoxError>((certificates(&text)?, PrivateKeyDer::from_pem_slice(&text)?));
        let (chain, key) = identity().map_err(client("--callback-client-certificate"))?;
        config
            .with_client_auth_cert(chain, key)
            .map_err(|error| client("--callback-client-certificate")(error.into()))
    };
    identity()
}

/// The certificates of a PEM file, which has at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BoxError> {
    let all: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    if all.is_empty() { Err("no certificate found".into()) } else { Ok(all) }
}

fn tcp(resolver: CheckedResolver) -> HttpConnector<CheckedResolver> {
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp
}

/// Connects by TCP, to a proxy or to an endpoint.
fn connections(tcp: HttpConnector<CheckedResolver>, is_proxy: bool) -> Connector<TcpConnection> {
    BoxCloneSyncService::new(service_fn(move |uri: Uri| {
        let connecting = tcp.clone().call(uri);
        async move {
            let stream = connecting.await?.into_inner();
            Ok(TokioIo::new(Counted { stream, limit: Limit::default(), is_proxy }))
        }
    }))
}

/// Connects to an endpoint, or to its proxy: for https by a tunnel.
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
struct CheckedResolver {
    policy: Arc<Policy>,
    /// Host names of proxies: the administrator chose them, and they resolve other names themselves.
    proxies: Arc<[String]>,
}

impl Service<Name> for CheckedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let name = name.as_str().to_owned();
        let is_allowed = self.policy.host_is_allowed(&name) || self.proxies.contains(&name.to_lowercase());
        let policy = self.policy.clone();
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
            if !is_allowed {
                // A refused address among others may be placed there by an attacker.
                addresses.iter().try_for_each(|address| policy.address(address.ip()))?;
            }
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
    /// An answer came: the next one gets the whole limit.
    fn answered(&self) {
        self.0.store(MAX_UNANSWERED, Ordering::Relaxed);
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
    use super::*;

    #[test]
    fn proxy_flag_overrides_environment() {
        let environment = |name: &str| match name {
            "HTTPS_PROXY" => Some("http://upper:1".to_owned()),
            "HTTP_PROXY" => Some("http://lower:2".to_owned()),
            _ => None,
        };
        assert_eq!(
            proxy_urls(Some("http://flag:3"), environment),
            [(Proxied::All, "http://flag:3".to_owned())]
        );
        let expected =
            [(Proxied::Https, "http://upper:1".to_owned()), (Proxied::Http, "http://lower:2".to_owned())];
        assert_eq!(proxy_urls(None, environment), expected);
    }

    #[test]
    fn user_and_password_of_a_url_become_a_header() {
        let (uri, authorization) = target(&Url::parse("http://u%40:p@host:8/a?b=c#d").unwrap()).unwrap();
        assert_eq!(uri, "http://host:8/a?b=c");
        // base64 of "u@:p"
        assert_eq!(authorization.unwrap(), "Basic dUA6cA==");
        assert_eq!(target(&Url::parse("https://host/").unwrap()).unwrap().1, None);
    }
}
