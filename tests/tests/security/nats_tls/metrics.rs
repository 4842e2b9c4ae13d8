//! The agents' metrics endpoint as `deploy/agent` configures it.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use eno_control_plane::pick_port;
use eno_tests::poll;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_rustls::TlsConnector;

use super::rendered_manifests::RenderedManifests;

const AGENT: &str = "eno-agent";
const FILES: [(&str, &str); 3] =
    [("ENO_TLS_CERT", "tls.crt"), ("ENO_TLS_KEY", "tls.key"), ("ENO_TLS_CLIENT_CA", "ca.crt")];

/// Scrapes metrics like Prometheus, with or without the scraper's client certificate.
async fn scrape(port: u16, dir: &Path, with_certificate: bool) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("metrics-ca.crt")).expect("PEM")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = if with_certificate {
        let certificate = CertificateDer::from_pem_file(dir.join("scraper.crt")).expect("PEM");
        let key = PrivateKeyDer::from_pem_file(dir.join("scraper.key")).expect("PEM");
        config.with_client_auth_cert(vec![certificate], key).expect("a pair")
    } else {
        config.with_no_client_auth()
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let name = ServerName::try_from(AGENT).expect("a name");
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").await?;
    let mut route_greeting = String::new();
    stream.read_to_string(&mut route_greeting).await?;
    Ok(route_greeting)
}

/// Runs a driver instead of the agent, which needs a node.
#[tokio::test]
async fn agent_metrics_need_the_scrapers_certificate_and_probes_do_not() {
    let dir = TempDir::new().expect("a directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/agent/certificates.sh");
    let made = Command::new("sh")
        .arg(script.canonicalize().expect("it is there"))
        .current_dir(&dir)
        .output()
        .await
        .expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let manifests = RenderedManifests::of("deploy").await;
    let environment = manifests.environment(AGENT);
    assert_eq!(environment["ENO_METRICS_LISTEN"], "$(ENO_NODE_ADDRESS):9616");
    assert!(environment["ENO_LISTEN"].starts_with("127.0.0.1:"));
    let [probes, metrics] = [(); 2].map(|()| pick_port().expect("a free port"));
    let mut command = Command::new(eno::programs::eno().expect("cargo build --workspace --bins"));
    command.args(["driver", "ovs-fabric"]).env("ENO_LISTEN", format!("127.0.0.1:{probes}"));
    command.env("ENO_METRICS_LISTEN", format!("127.0.0.1:{metrics}"));
    // No NATS server listens there; probes and metrics don't need one.
    command.env("ENO_NATS_URL", format!("nats://127.0.0.1:{}", pick_port().expect("a free port")));
    for (variable, key) in FILES {
        let secret_at = manifests.secret_at(AGENT, &environment[variable]);
        assert_eq!(secret_at, ("eno-metrics-tls".to_owned(), key.to_owned()));
        let file = if key == "ca.crt" { "metrics-ca.crt" } else { key };
        command.env(variable, dir.path().join(file));
    }
    let mut driver = command.stderr(Stdio::null()).kill_on_drop(true).spawn().expect("it starts");
    let scraped = poll(async || scrape(metrics, dir.path(), true).await.ok()).await;
    let scraped = scraped.expect("metrics are served");
    assert!(scraped.contains("eno_driver_nats_connected 0"), "{scraped}");
    let unknown = scrape(metrics, dir.path(), false).await;
    assert!(!unknown.is_ok_and(|route_greeting| route_greeting.contains("200 OK")));
    for (path, status) in [("healthz", 200), ("readyz", 503)] {
        let route_greeting =
            reqwest::get(format!("http://127.0.0.1:{probes}/{path}")).await.expect("an answer");
        assert_eq!(route_greeting.status().as_u16(), status, "{path}");
    }
    driver.kill().await.expect("it ends");
}
