//! Cluster routes between three NATS servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use eno_control_plane::NatsUser;
use eno_tests::TIMEOUT;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;

use super::rendered_manifests::{Certificates, NatsServers, ROUTE_PASSWORD, RenderedManifests};

/// Makes the kustomization that `nats-cluster/kustomization.yaml` describes.
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

/// A server's greeting to a peer that connects with the route password; empty when the server closes the connection.
async fn route_greeting(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let connect_message = format!(
        "CONNECT {{\"user\":\"eno\",\"pass\":\"{ROUTE_PASSWORD}\",\"name\":\"another\",\"cluster\":\"eno\",\
         \"headers\":true}}\r\nPING\r\n"
    );
    // The server may have closed the connection already.
    let _ = stream.write_all(connect_message.as_bytes()).await;
    let mut received = Vec::new();
    let listening = async {
        while !String::from_utf8_lossy(&received).contains("\r\n") {
            if !matches!(stream.read_buf(&mut received).await, Ok(length) if length > 0) {
                break;
            }
        }
    };
    timeout(TIMEOUT, listening).await.expect("an answer, or none");
    String::from_utf8_lossy(&received).into_owned()
}

/// Like [`route_greeting`] over TLS, with or without a client certificate.
async fn route_greeting_over_tls(servers: &NatsServers, own: Option<&Certificates>) -> String {
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
        Ok(stream) => route_greeting(stream).await,
        Err(_) => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_form_a_cluster_and_refuse_untrusted_routes() {
    let copy = tempfile::tempdir().expect("a directory");
    let manifests = RenderedManifests::of(&folder(copy.path()).display().to_string()).await;
    let servers = NatsServers::start(&manifests, 3).await;

    // A stream with three replicas can be created once the servers form a cluster.
    let options = ConnectOptions::with_nkey(servers.seed(NatsUser::Admin)).require_tls(true);
    let options = options.add_root_certificates(servers.certificates.authority()).connection_timeout(TIMEOUT);
    let client = options.connect(servers.url(1)).await.expect("a connection");
    assert!(client.server_info().connect_urls.is_empty(), "addresses that are in no certificate");
    let jetstream = jetstream::new(client);
    let wanted = stream::Config { name: "T".to_owned(), num_replicas: 3, ..stream::Config::default() };
    let mut ticks = interval(Duration::from_millis(50));
    let found = async {
        while jetstream.create_stream(wanted.clone()).await.is_err() {
            ticks.tick().await;
        }
    };
    let found = timeout(2 * TIMEOUT, found).await;
    assert!(found.is_ok(), "{}", (0..3).map(|n| servers.log(n)).collect::<String>());

    let known = route_greeting_over_tls(&servers, Some(&servers.certificates)).await;
    assert!(known.starts_with("INFO "), "{known}");
    assert_eq!(route_greeting_over_tls(&servers, None).await, "");
    assert_eq!(route_greeting_over_tls(&servers, Some(&Certificates::new())).await, "");
    let stream = TcpStream::connect(servers.route_address(0)).await.expect("it listens");
    let clear = route_greeting(stream).await;
    assert!(!clear.contains("INFO") && !clear.contains("PONG"), "{clear}");
}
