//! HTTPS for metrics and probes, with certificates that are reloaded when they change.
//!
//! None of the crates that were tried fits: `tls-hot-reload` and `rustls-cert-reloadable-resolver` reload no client
//! authorities, `axum-server` watches no files, and `tls-listener` has no limit of concurrent handshakes and logs each
//! failed one as an error.

use std::fs::Metadata;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::serve::Listener;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use crate::certificates::CertificateEnd;

/// Time limit of a client's TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum concurrent TLS handshakes.
const MAX_HANDSHAKES: usize = 64;

/// The certificates with which metrics are served, and that clients have to show.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsArgs {
    /// A PEM file with the certificate for HTTPS, and those between it and its authority; read again when it changes.
    /// Absent: HTTP.
    #[arg(long, env = "ENO_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of the certificate.
    #[arg(long, env = "ENO_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// A PEM file with the authorities of clients, which then have to show a certificate that one of them signed for
    /// client authentication; read again when it changes. Absent: anybody may ask.
    #[arg(long, env = "ENO_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
}

/// Why there is no HTTPS. A retry helps once the files are correct. Its text quotes no file content.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("reading {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file has other content.
    #[error("{} holds no {what} in PEM", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The expected content.
        what: &'static str,
    },
    /// The certificate and the key do not match.
    #[error("the certificate in {} and the key in {}: {source}", certificate.display(), key.display())]
    Pair {
        /// The certificate file.
        certificate: PathBuf,
        /// The key file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The authorities can't be used to verify clients.
    #[error("the authorities in {}: {why}", path.display())]
    Clients {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl TlsError {
    fn of(path: &Path, what: &'static str, error: pem::Error) -> Self {
        match error {
            pem::Error::Io(source) => Self::Read { path: path.to_owned(), source },
            // The error text may quote the file.
            _ => Self::Form { path: path.to_owned(), what },
        }
    }
}

/// Paths of the certificate, its key and the clients' authorities.
#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<PathBuf>,
}

/// Device, inode and modification time of each file; changes when a file does.
type FileStamps = [Option<(u64, u64, i64, i64)>; 3];

impl Files {
    fn load(&self, end: &CertificateEnd) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(default_provider());
        let pair =
            |source| TlsError::Pair { certificate: self.certificate.clone(), key: self.key.clone(), source };
        let chain = certificates(&self.certificate)?;
        if let Some(certificate) = chain.first() {
            end.record(certificate);
        }
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| TlsError::of(&self.key, "private key", error))?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(pair)?;
        let builder = match &self.clients {
            Some(path) => builder.with_client_cert_verifier(clients(path, provider)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    fn stamps(&self) -> FileStamps {
        let of = |data: Metadata| (data.dev(), data.ino(), data.mtime(), data.mtime_nsec());
        [Some(&self.certificate), Some(&self.key), self.clients.as_ref()]
            .map(|path| path.and_then(|path| path.metadata().ok()).map(of))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::of(path, "certificate", error);
    let chain = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(failed)?;
    if chain.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(chain) }
}

/// A verifier of client certificates against the authorities in a file.
fn clients(path: &Path, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unfit = |why: String| TlsError::Clients { path: path.to_owned(), why };
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| unfit(error.to_string()))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.build().map_err(|error| unfit(error.to_string()))
}

/// The current configuration, reloaded when a client connects and the files have changed.
#[derive(Debug)]
pub(super) struct ReloadingConfig {
    files: Files,
    end: CertificateEnd,
    now: Mutex<(FileStamps, Arc<ServerConfig>)>,
}

impl ReloadingConfig {
    /// `None`: the flags ask for HTTP.
    pub(super) fn new(args: &TlsArgs, end: &CertificateEnd) -> Result<Option<Self>, TlsError> {
        let TlsArgs { tls_cert: Some(certificate), tls_key: Some(key), tls_client_ca: clients } = args else {
            return Ok(None);
        };
        let files = Files { certificate: certificate.clone(), key: key.clone(), clients: clients.clone() };
        let stamps = files.stamps();
        let now = Mutex::new((stamps, Arc::new(files.load(end)?)));
        Ok(Some(Self { files, end: end.clone(), now }))
    }

    fn current(&self) -> Arc<ServerConfig> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = self.files.stamps();
        if stamps != now.0 {
            now.0 = stamps;
            match self.files.load(&self.end) {
                Ok(config) => {
                    info!(certificate = %self.files.certificate.display(), "the certificates were read again");
                    now.1 = Arc::new(config);
                }
                // The certificate and its key may be written one after the other.
                Err(error) => warn!(%error, "the certificates from before are used on"),
            }
        }
        now.1.clone()
    }
}

/// Connections with a completed handshake. Handshakes run concurrently.
pub(super) struct TlsListener {
    connections: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl TlsListener {
    /// Must be called within a runtime.
    pub(super) fn new(mut listener: TcpListener, address: SocketAddr, config: ReloadingConfig) -> Self {
        let (done, connections) = mpsc::channel(1);
        let accepting = tokio::spawn(async move {
            let mut handshakes = JoinSet::new();
            loop {
                while handshakes.len() >= MAX_HANDSHAKES {
                    handshakes.join_next().await;
                }
                // Axum's accept backs off while no file descriptors are left.
                let (stream, peer) = Listener::accept(&mut listener).await;
                while handshakes.try_join_next().is_some() {}
                let (acceptor, done) = (TlsAcceptor::from(config.current()), done.clone());
                handshakes.spawn(async move {
                    match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                        // The receiver is gone after shutdown.
                        Ok(Ok(stream)) => drop(done.send((stream, peer)).await),
                        Ok(Err(error)) => debug!(%peer, %error, "no TLS"),
                        Err(_) => debug!(%peer, "no TLS in time"),
                    }
                });
            }
        });
        Self { connections, address, _accepting: AbortOnDropHandle::new(accepting) }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            // The sender task is aborted with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use rcgen::ExtendedKeyUsagePurpose::{self, ClientAuth, ServerAuth};
    use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
    use rustls::ClientConfig;
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::TlsConnector;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::daemon::{HttpArgs, Readiness, serve};

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Issuer {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Issuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// The PEM texts of a certificate for `localhost` and of its key.
    fn issued(by: &Issuer) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        [params.signed_by(&key, by).unwrap().pem(), key.serialize_pem()]
    }

    async fn get(address: SocketAddr, trusted: &Issuer) -> Result<String, std::io::Error> {
        get_as(address, trusted, None).await
    }

    /// Sends a request with a client certificate and key as PEM.
    async fn get_as(
        address: SocketAddr,
        trusted: &Issuer,
        shown: Option<&[String; 2]>,
    ) -> Result<String, std::io::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some([certificate, key]) => {
                let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn renewed_certificate_is_served_and_broken_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| dir.path().join(name));
        // Replaces the file atomically, as certificate renewal does.
        let put = |path: &Path, text: &str| {
            let new = path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, path).unwrap();
        };
        let [former, later] = [authority(), authority()];
        let [text, secret] = issued(&former);
        put(&certificate, &text);
        let tls =
            TlsArgs { tls_cert: Some(certificate.clone()), tls_key: Some(key.clone()), tls_client_ca: None };
        let args = HttpArgs { tls, ..HttpArgs::at(([127, 0, 0, 1], 0).into()) };
        let stop = CancellationToken::new();
        let start = async || {
            let ready = Readiness::new(|| Ok(()));
            serve(&args, Registry::default(), &CertificateEnd::default(), ready, stop.clone()).await
        };
        let missing = start().await.unwrap_err().to_string();
        assert!(missing.contains("tls.key"), "{missing}");
        put(&key, &text);
        let wrong = start().await.unwrap_err().to_string();
        assert!(wrong.contains("tls.key holds no private key in PEM"), "{wrong}");

        put(&key, &secret);
        let address = start().await.unwrap();
        assert!(get(address, &former).await.unwrap().starts_with("HTTP/1.1 200"));
        assert!(get(address, &later).await.is_err());
        // A silent client blocks no other.
        let _silent = TcpStream::connect(address).await.unwrap();

        let [text, secret] = issued(&later);
        put(&certificate, &text);
        assert!(
            get(address, &former).await.unwrap().contains("200 OK"),
            "its key is still that of the former"
        );
        put(&key, &secret);
        assert!(get(address, &later).await.unwrap().contains("200 OK"));
        assert!(get(address, &former).await.is_err());
        std::fs::remove_file(&certificate).unwrap();
        assert!(get(address, &later).await.unwrap().contains("200 OK"));

        // Plain HTTP is refused.
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        stop.cancel();
    }
    /// The PEM texts of a certificate for this use and of its key.
    fn client(by: &Issuer, usage: ExtendedKeyUsagePurpose) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.extended_key_usages = vec![usage];
        [params.signed_by(&key, by).unwrap().pem(), key.serialize_pem()]
    }

    #[tokio::test]
    async fn metrics_require_client_certificate_and_probes_use_another_address() {
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key, clients] = ["tls.crt", "tls.key", "ca.crt"].map(|name| dir.path().join(name));
        let [ours, others] = [authority(), authority()];
        let tls = TlsArgs {
            tls_cert: Some(certificate.clone()),
            tls_key: Some(key.clone()),
            tls_client_ca: Some(clients.clone()),
        };
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let metrics = SocketAddr::from(([127, 0, 0, 1], eno_control_plane::pick_port().unwrap()));
        let args = HttpArgs { tls, metrics_listen: Some(metrics), ..HttpArgs::at(loopback) };
        let stop = CancellationToken::new();
        let ready = Readiness::new(|| Ok(()));
        let probes =
            serve(&args, Registry::default(), &CertificateEnd::default(), ready, stop.clone()).await.unwrap();
        let probe = async |path: &str| {
            let mut stream = TcpStream::connect(probes).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        // Probes are served before the certificates exist.
        assert!(probe("/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(probe("/healthz").await.starts_with("HTTP/1.1 200"));
        let [text, secret] = issued(&ours);
        for (path, text) in [(&certificate, &text), (&key, &secret), (&clients, &ours.pem())] {
            std::fs::write(path, text).unwrap();
        }
        let scraper = client(&ours, ClientAuth);
        while !get_as(metrics, &ours, Some(&scraper)).await.is_ok_and(|answer| answer.contains("200 OK")) {
            tokio::task::yield_now().await;
        }
        for wrong in [None, Some(client(&others, ClientAuth)), Some(client(&ours, ServerAuth))] {
            let answer = get_as(metrics, &ours, wrong.as_ref()).await;
            assert!(!answer.is_ok_and(|answer| answer.contains("200 OK")), "{wrong:?}");
        }
        // A changed authority file changes which clients are accepted.
        let later = authority();
        let renewed = clients.with_extension("new");
        std::fs::write(&renewed, later.pem()).unwrap();
        std::fs::rename(renewed, &clients).unwrap();
        assert!(get_as(metrics, &ours, Some(&client(&later, ClientAuth))).await.unwrap().contains("# EOF"));
        let former = get_as(metrics, &ours, Some(&scraper)).await;
        assert!(!former.is_ok_and(|answer| answer.contains("200 OK")));
        stop.cancel();
    }
}
