//! Endpoints of servers, and connections to them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// The endpoint of a server.
#[derive(Clone)]
pub enum Endpoint {
    /// A unix socket: `unix:/run/openvswitch/db.sock`.
    Unix(PathBuf),
    /// Plain TCP: `tcp:192.0.2.1:6640`, `tcp:[2001:db8::1]:6640`, `tcp:name:6640`.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// Usually 6640.
        port: u16,
    },
    /// TLS over TCP: `ssl:…`.
    Tls {
        /// A name or an address, without brackets.
        host: String,
        /// Usually 6640.
        port: u16,
        /// The name that the server's certificate must have.
        name: ServerName<'static>,
        /// Trusted authorities, and the client's certificate; see [`tls_config`].
        config: Arc<ClientConfig>,
    },
}

/// Text that is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no endpoint of OVSDB: {reason}")]
pub struct BadEndpoint {
    text: String,
    reason: &'static str,
}

impl Endpoint {
    /// TLS to this host, which the server's certificate must name.
    pub fn tls(host: &str, port: u16, config: ClientConfig) -> Result<Self, BadEndpoint> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| BadEndpoint { text: host.into(), reason: "neither a host name nor an address" })?;
        Ok(Self::Tls { host: host.into(), port, name, config: Arc::new(config) })
    }

    /// Connects to the endpoint.
    pub(crate) async fn open(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::Tcp { host, port } => Box::new(tcp(host, *port).await?),
            Self::Tls { host, port, name, config } => {
                let connector = TlsConnector::from(Arc::clone(config));
                Box::new(connector.connect(name.clone(), tcp(host, *port).await?).await?)
            }
        })
    }
}

async fn tcp(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A bidirectional byte stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host, port) = match self {
            Self::Unix(path) => return write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } => ("tcp", host, port),
            Self::Tls { host, port, .. } => ("ssl", host, port),
        };
        if host.contains(':') {
            write!(f, "{scheme}:[{host}]:{port}")
        } else {
            write!(f, "{scheme}:{host}:{port}")
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    /// Reads `unix:PATH` and `tcp:HOST:PORT`. TLS needs certificates: [`Endpoint::tls`].
    fn from_str(text: &str) -> Result<Self, BadEndpoint> {
        let bad = |reason| BadEndpoint { text: text.into(), reason };
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", rest)) => {
                let (host, port) = rest.rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
                let port = port.parse().map_err(|_| bad("the port is no number up to 65535"))?;
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                if host.is_empty() {
                    return Err(bad("it has no host"));
                }
                Ok(Self::Tcp { host: host.into(), port })
            }
            Some(("ssl", _)) => Err(bad("ssl needs certificates")),
            _ => Err(bad("it starts with neither unix: nor tcp:")),
        }
    }
}

/// Files that do not make a TLS configuration. Their content is never shown.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is unreadable or not PEM.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// rustls refuses the configuration.
    #[error("the certificate or its key can't be used: {0}")]
    Config(#[from] rustls::Error),
}

/// A TLS configuration from PEM files: the authorities that may have signed the server's certificate, and the
/// client's own certificate (with those between it and its authority) and key.
pub fn tls_config(authorities: &Path, certificate: &Path, key: &Path) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority)?;
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file(key, &error))?;
    Ok(ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(certificate)?, key)?)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsError::File { path: path.into(), reason: "no certificate in it".into() })
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(file(path, &error)),
    }
}

fn file(path: &Path, error: &rustls::pki_types::pem::Error) -> TlsError {
    TlsError::File { path: path.into(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_round_trip() {
        for text in ["unix:/a/b.sock", "tcp:127.0.0.1:6640", "tcp:[::1]:1", "tcp:host.example:65535"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_endpoints_are_refused() {
        for text in ["", "unix:", "tcp:1.2.3.4", "tcp::1", "tcp:a:70000", "ssl:a:1", "ptcp:1", "/a/b.sock"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }
}
