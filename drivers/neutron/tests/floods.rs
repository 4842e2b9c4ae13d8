//! Clouds that send without an end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eno_conformance::fabrics::write_secret;
use rcgen::CertifiedKey;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::logins::{driver, failure, secrets, token};

/// What the kernel holds of a connection that nobody reads, and a little more.
const EACH: u64 = 8 << 20;

/// A cloud that answers requests whose first line contains `part` with informational responses (1xx) without end.
struct Flood {
    address: SocketAddr,
    sent: Arc<AtomicU64>,
}

impl Flood {
    async fn start(part: &'static str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{}", address.port());
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, url, count) = (tls.clone(), url.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, part, &url, &count).await,
                        Some(tls) => answer(tls.accept(stream).await.unwrap(), part, &url, &count).await,
                    }
                });
            }
        });
        Self { address, sent }
    }

    fn keystone(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}/v3", self.address.port())
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, part: &str, url: &str, count: &AtomicU64) {
    let block = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(1000);
    let mut request = vec![0; 64 * 1024];
    loop {
        let read = stream.read(&mut request).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&request[..read]);
        let Some(line) = text.lines().next() else { return };
        if line.contains(part) {
            while stream.write_all(block.as_bytes()).await.is_ok() {
                count.fetch_add(block.len() as u64, Ordering::Relaxed);
            }
            return;
        }
        let body = token(url).to_string();
        let head = format!(
            "HTTP/1.1 201 Created\r\nx-subject-token: t0ken\r\ncontent-type: application/json\r\ncontent-length: \
             {}\r\n\r\n",
            body.len()
        );
        let _ = stream.write_all((head + &body).as_bytes()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_informational_responses_end_the_request() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    for (part, is_tls) in
        [("/auth/tokens", false), ("/v2.0/", false), ("/auth/tokens", true), ("/v2.0/", true)]
    {
        let cloud = Flood::start(part, is_tls.then(|| acceptor(&certified))).await;
        let keystone = cloud.keystone(if is_tls { "https" } else { "http" });
        let secrets = secrets(&keystone, "");
        if is_tls {
            write_secret(secrets.path(), "vim", [("ca.crt", certified.cert.pem())]);
        }
        let driver = driver(&secrets);
        let failed = failure(&driver, &keystone, "vim").await;
        let sent = cloud.sent.load(Ordering::Relaxed);
        // A few requests at once.
        assert!(sent < 4 * EACH, "{part}: {} MiB were sent", sent >> 20);
        assert!(failed.reason.contains("more than 262144 bytes came without an answer"), "{failed:?}");
        assert!(failed.retryable && failed.unreachable, "{failed:?}");
    }
}

/// Serves TLS with this certificate.
pub fn acceptor(certified: &CertifiedKey<rcgen::KeyPair>) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
