//! `/metrics`, `/healthz` and `/readyz`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::tls::{ReloadingConfig, TlsArgs, TlsError, TlsListener};
use crate::certificates::CertificateEnd;

/// Interval of the attempts to serve metrics.
const METRICS_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Where metrics and probes are served.
#[derive(Clone, Debug, clap::Args)]
pub struct HttpArgs {
    /// Address of /metrics, /healthz and /readyz; port 0: any that is free, and the log says which.
    #[arg(long, env = "ENO_LISTEN", default_value = "127.0.0.1:0", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// A further address of /metrics alone, over HTTPS and for clients that show a certificate. The other address is
    /// without HTTPS then: let it be of the loopback, for probes.
    #[arg(long, env = "ENO_METRICS_LISTEN", value_name = "ADDRESS:PORT", value_parser = address_and_port,
          requires_all = ["tls_cert", "tls_key", "tls_client_ca"])]
    pub metrics_listen: Option<SocketAddr>,
    /// HTTPS.
    #[command(flatten)]
    pub tls: TlsArgs,
}

/// Parses a socket address; an IPv6 address may lack its brackets, as the downward API gives it.
fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    let (address, port) = text.rsplit_once(':').ok_or("must be ADDRESS:PORT, such as 192.0.2.1:9616")?;
    let address = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
    let address = address.parse::<IpAddr>().map_err(|error| format!("{address:?}: {error}"))?;
    Ok((address, port.parse::<u16>().map_err(|error| format!("port {port:?}: {error}"))?).into())
}

impl HttpArgs {
    /// HTTP at an address.
    pub fn at(listen: SocketAddr) -> Self {
        Self { listen, metrics_listen: None, tls: TlsArgs::default() }
    }
}

/// Why HTTP can't be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// A retry may help once the port is free.
    #[error("listening on {listen}: {source}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The certificate can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Metrics for clients with certificates need a certificate of the server.
    #[error("--metrics-listen needs --tls-cert, --tls-key and --tls-client-ca")]
    NoCertificate,
}

/// A readiness check. `Err` describes what is missing.
#[derive(Clone)]
pub struct Readiness(Arc<dyn Fn() -> Result<(), String> + Send + Sync>);

impl Readiness {
    /// Calls `check` at each probe; it must not block.
    pub fn new(check: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Readiness")
    }
}

/// Serves until `shutdown`; returns the bound address at once. `certificate` receives the end of the certificate.
pub async fn serve(
    args: &HttpArgs,
    registry: Registry,
    certificate: &CertificateEnd,
    readiness: Readiness,
    shutdown: CancellationToken,
) -> Result<SocketAddr, HttpError> {
    let metrics = Router::new().route("/metrics", get(metrics).with_state(Arc::new(registry)));
    let tls =
        if args.metrics_listen.is_some() { None } else { ReloadingConfig::new(&args.tls, certificate)? };
    let (listener, address) = bind(args.listen).await?;
    let router = metrics
        .clone()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready).with_state(readiness));
    tokio::spawn(answer(listener, address, tls, router, shutdown.clone()));
    if let Some(listen) = args.metrics_listen {
        let (tls, certificate) = (args.tls.clone(), certificate.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve_metrics(listen, &tls, &certificate, metrics, shutdown.clone()) => {}
                () = shutdown.cancelled() => {}
            }
        });
    }
    Ok(address)
}

/// Serves metrics over HTTPS. The certificates and the address may not exist yet, which neither probes nor
/// the daemon's work wait for.
async fn serve_metrics(
    listen: SocketAddr,
    tls: &TlsArgs,
    certificate: &CertificateEnd,
    router: Router,
    shutdown: CancellationToken,
) {
    let begin = async || match ReloadingConfig::new(tls, certificate)? {
        Some(config) => bind(listen).await.map(|(listener, address)| (listener, address, config)),
        None => Err(HttpError::NoCertificate),
    };
    let mut logged = false;
    loop {
        match begin().await {
            Ok((listener, address, config)) => {
                return answer(listener, address, Some(config), router, shutdown).await;
            }
            Err(error) if !logged => {
                warn!(%error, %listen, "metrics are not served there yet, trying again");
                logged = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(METRICS_RETRY_INTERVAL).await;
    }
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr), HttpError> {
    let failed = |source| HttpError::Listen { listen, source };
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

async fn answer(
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<ReloadingConfig>,
    router: Router,
    shutdown: CancellationToken,
) {
    let scheme = if tls.is_some() { "https" } else { "http" };
    info!(url = %format_args!("{scheme}://{address}/metrics"), "serving metrics");
    let stop = shutdown.cancelled_owned();
    let served = match tls {
        Some(config) => {
            let listener = TlsListener::new(listener, address, config);
            axum::serve(listener, router).with_graceful_shutdown(stop).await
        }
        None => axum::serve(listener, router).with_graceful_shutdown(stop).await,
    };
    if let Err(error) = served {
        error!(%error, %address, "metrics are no longer served");
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn ready(State(Readiness(check)): State<Readiness>) -> Response {
    match check() {
        Ok(()) => "ready\n".into_response(),
        Err(lacking) => (StatusCode::SERVICE_UNAVAILABLE, format!("{lacking}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::host::HostMetrics;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[test]
    fn ipv6_listen_address_parses_without_brackets() {
        for (text, address) in [
            ("192.0.2.1:9616", "192.0.2.1:9616"),
            ("[2001:db8::1]:9616", "[2001:db8::1]:9616"),
            ("2001:db8::1:9616", "[2001:db8::1]:9616"),
        ] {
            assert_eq!(address_and_port(text), Ok(address.parse().unwrap()));
        }
        for text in ["9616", "node:9616", ":9616", "192.0.2.1:x"] {
            assert!(address_and_port(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn metrics_and_probes_are_served() {
        let (stop, ready) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let mut registry = Registry::default();
        HostMetrics::default().register(&mut registry);
        let seen = ready.clone();
        let readiness = Readiness::new(move || {
            if seen.load(Ordering::SeqCst) { Ok(()) } else { Err("no connection to NATS".into()) }
        });
        let args = HttpArgs::at(([127, 0, 0, 1], 0).into());
        let address =
            serve(&args, registry, &CertificateEnd::default(), readiness, stop.clone()).await.unwrap();
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        let lacking = get(address, "/readyz").await;
        assert!(
            lacking.starts_with("HTTP/1.1 503") && lacking.contains("no connection to NATS"),
            "{lacking}"
        );
        ready.store(true, Ordering::SeqCst);
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let metrics = get(address, "/metrics").await;
        for line in ["application/openmetrics-text", "eno_driver_targets 0", "# EOF"] {
            assert!(metrics.contains(line), "{metrics}");
        }
        let taken = HttpArgs::at(address);
        let again = serve(
            &taken,
            Registry::default(),
            &CertificateEnd::default(),
            Readiness::new(|| Ok(())),
            stop.clone(),
        )
        .await;
        assert!(again.unwrap_err().to_string().starts_with(&format!("listening on {address}")));
        stop.cancel();
    }
}
