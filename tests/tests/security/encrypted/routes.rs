//! The routes between three servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use eno_control_plane::NatsUser;
use eno_tests::PATIENCE;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;

use super::LOOK;
use super::shipped::{Certificates, ROUTE_PASSWORD, Servers, Shipped};

/// A folder of one's own, as `nats-cluster/kustomization.yaml` describes it.
fn folder(copy: &Path) -> PathBuf {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for name in ["nats", "nats-cluster", "nats-tls", "manager", "agent"] {
        let (from, to) = (deploy.join(name), copy.join(name));
        std::fs::create_dir(&to).expect("a folder");
        for file in std::fs::read_dir(from).expect("a folder") {
            let file = file.expect("a file").path();
            std::fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    let text = "resources: [nats-cluster, manager, agent]\ncomponents: [nats-tls]\n";
    std::fs::write(copy.join("kustomization.yaml"), text).expect("a file");
    copy.to_owned()
}

/// What a server says to one that comes as another server with the password; nothing, when it hangs up.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let hello = format!(
        "CONNECT {{\"user\":\"eno\",\"pass\":\"{ROUTE_PASSWORD}\",\"name\":\"another\",\"cluster\":\"eno\",\
         \"headers\":true}}\r\nPING\r\n"
    );
    // It may have hung up already.
    let _ = stream.write_all(hello.as_bytes()).await;
    let mut said = Vec::new();
    let listening = async {
        while !String::from_utf8_lossy(&said).contains("\r\n") {
            if !matches!(stream.read_buf(&mut said).await, Ok(length) if length > 0) {
                break;
            }
        }
    };
    timeout(PATIENCE, listening).await.expect("an answer, or none");
    String::from_utf8_lossy(&said).into_owned()
}

/// The same by TLS, with a certificate or without one.
async fn answer_by_tls(servers: &Servers, own: Option<&Certificates>) -> String {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(servers.certificates.authority()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_file(own.file("tls.crt")).expect("a certificate")];
            let key = PrivateKeyDer::from_pem_file(own.file("tls.key")).expect("a key");
            config.with_client_auth_cert(chain, key).expect("a pair")
        }
    };
    let stream = TcpStream::connect(servers.route_address(0)).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
        Ok(stream) => answer(stream).await,
        Err(_) => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_find_each_other_and_none_that_the_authority_does_not_know() {
    let copy = tempfile::tempdir().expect("a directory");
    let shipped = Shipped::of(&folder(copy.path()).display().to_string()).await;
    let servers = Servers::start(&shipped, 3).await;

    // A stream on all three is made when they have found each other.
    let options = ConnectOptions::with_nkey(servers.seed(NatsUser::Admin)).require_tls(true);
    let options =
        options.add_root_certificates(servers.certificates.authority()).connection_timeout(PATIENCE);
    let client = options.connect(servers.url(1)).await.expect("a connection");
    assert!(client.server_info().connect_urls.is_empty(), "addresses that are in no certificate");
    let jetstream = jetstream::new(client);
    let wanted = stream::Config { name: "T".to_owned(), num_replicas: 3, ..stream::Config::default() };
    let mut looks = interval(LOOK);
    let found = async {
        while jetstream.create_stream(wanted.clone()).await.is_err() {
            looks.tick().await;
        }
    };
    let found = timeout(2 * PATIENCE, found).await;
    assert!(found.is_ok(), "{}", (0..3).map(|n| servers.log(n)).collect::<String>());

    let known = answer_by_tls(&servers, Some(&servers.certificates)).await;
    assert!(known.starts_with("INFO "), "{known}");
    assert_eq!(answer_by_tls(&servers, None).await, "");
    assert_eq!(answer_by_tls(&servers, Some(&Certificates::new())).await, "");
    let stream = TcpStream::connect(servers.route_address(0)).await.expect("it listens");
    let clear = answer(stream).await;
    assert!(!clear.contains("INFO") && !clear.contains("PONG"), "{clear}");
}
