//! HTTPS for metrics and probes, with a certificate that may be renewed while it is used.

use std::fs::Metadata;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

/// A client that takes longer to say who it wants is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// So many connections are being made at once.
const HANDSHAKES: usize = 64;

/// The certificate with which metrics and probes are served.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsArgs {
    /// A PEM file with the certificate for HTTPS, and those between it and its authority; read again when it changes.
    /// Absent: HTTP.
    #[arg(long, env = "ENO_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// A PEM file with the private key of the certificate.
    #[arg(long, env = "ENO_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

/// Why there is no HTTPS. A retry helps once the files are right. No word of it is from a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("reading {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("{} holds no {what} in PEM", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// They are of no use together.
    #[error("the certificate in {} and the key in {}: {source}", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// That of the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

impl TlsError {
    fn of(path: &Path, what: &'static str, error: pem::Error) -> Self {
        match error {
            pem::Error::Io(source) => Self::Read { path: path.to_owned(), source },
            // Its words may be those of the file.
            _ => Self::Form { path: path.to_owned(), what },
        }
    }
}

/// Where the certificate and its key are.
#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// What changes when a file does.
type Stamp = [Option<(u64, u64, i64, i64)>; 2];

impl Files {
    fn load(&self) -> Result<CertifiedKey, TlsError> {
        let certificate = |error| TlsError::of(&self.certificate, "certificate", error);
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(certificate)?;
        if chain.is_empty() {
            return Err(certificate(pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| TlsError::of(&self.key, "private key", error))?;
        CertifiedKey::from_der(chain, key, &default_provider()).map_err(|source| TlsError::Pair {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            source,
        })
    }

    fn stamp(&self) -> Stamp {
        let of = |data: Metadata| (data.dev(), data.ino(), data.mtime(), data.mtime_nsec());
        [&self.certificate, &self.key].map(|path| path.metadata().ok().map(of))
    }
}

/// The certificate of the moment: the files are looked at whenever a client comes.
#[derive(Debug)]
struct Renewed {
    files: Files,
    now: Mutex<(Stamp, Arc<CertifiedKey>)>,
}

impl Renewed {
    fn new(files: Files) -> Result<Self, TlsError> {
        let stamp = files.stamp();
        let now = Mutex::new((stamp, Arc::new(files.load()?)));
        Ok(Self { files, now })
    }

    fn now(&self) -> Arc<CertifiedKey> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.files.stamp();
        if stamp != now.0 {
            now.0 = stamp;
            match self.files.load() {
                Ok(key) => {
                    info!(certificate = %self.files.certificate.display(), "the certificate was renewed");
                    now.1 = Arc::new(key);
                }
                // One of the two may be written later.
                Err(error) => warn!(%error, "the certificate from before is used on"),
            }
        }
        now.1.clone()
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

/// Connections whose handshake is done. None waits for another's.
pub(super) struct TlsListener {
    connections: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
    _accepting: AbortOnDropHandle<()>,
}

impl TlsListener {
    /// `None`: the flags ask for HTTP.
    pub(super) fn config(args: &TlsArgs) -> Result<Option<Arc<ServerConfig>>, TlsError> {
        let (Some(certificate), Some(key)) = (args.tls_cert.clone(), args.tls_key.clone()) else {
            return Ok(None);
        };
        let files = Files { certificate, key };
        let renewed = Renewed::new(files.clone())?;
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Pair { certificate: files.certificate, key: files.key, source })?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(renewed));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Arc::new(config)))
    }

    /// Must be called within a runtime.
    pub(super) fn new(mut listener: TcpListener, address: SocketAddr, config: Arc<ServerConfig>) -> Self {
        let (done, connections) = mpsc::channel(1);
        let acceptor = TlsAcceptor::from(config);
        let accepting = tokio::spawn(async move {
            let mut handshakes = JoinSet::new();
            loop {
                while handshakes.len() >= HANDSHAKES {
                    handshakes.join_next().await;
                }
                // That of axum waits a while where there are no descriptors left.
                let (stream, peer) = Listener::accept(&mut listener).await;
                while handshakes.try_join_next().is_some() {}
                let (acceptor, done) = (acceptor.clone(), done.clone());
                handshakes.spawn(async move {
                    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        // Nobody takes it when all is over.
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
            // Its task ends with this.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use prometheus_client::registry::Registry;
    use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
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
        let mut roots = RootCertStore::empty();
        roots.add(trusted.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| dir.path().join(name));
        // Into place as a whole, as whoever renews certificates does.
        let put = |path: &Path, text: &str| {
            let new = path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, path).unwrap();
        };
        let [former, later] = [authority(), authority()];
        let [text, secret] = issued(&former);
        put(&certificate, &text);
        let tls = TlsArgs { tls_cert: Some(certificate.clone()), tls_key: Some(key.clone()) };
        let args = HttpArgs { tls, ..HttpArgs::at(([127, 0, 0, 1], 0).into()) };
        let stop = CancellationToken::new();
        let start = async || {
            let ready = Readiness::new(|| Ok(()));
            serve(&args, Registry::default(), ready, Router::new(), stop.clone()).await
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
        // Who says nothing keeps nobody waiting.
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

        // In the clear there is nothing.
        let mut plain = TcpStream::connect(address).await.unwrap();
        plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let _ = plain.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        stop.cancel();
    }
}
