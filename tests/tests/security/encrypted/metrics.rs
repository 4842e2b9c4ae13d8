//! Metrics of agents, as `deploy/agent` has them served.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use eno_control_plane::pick_port;
use eno_tests::PATIENCE;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;

use super::LOOK;
use super::shipped::Shipped;

const AGENT: &str = "eno-agent";
const FILES: [(&str, &str); 3] =
    [("ENO_TLS_CERT", "tls.crt"), ("ENO_TLS_KEY", "tls.key"), ("ENO_TLS_CLIENT_CA", "ca.crt")];

/// As Prometheus asks; with the scraper's certificate or without one.
async fn scrape(port: u16, dir: &Path, shows: bool) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("metrics-ca.crt")).expect("PEM")).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = if shows {
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
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A driver in the place of the agent, which needs a node.
#[tokio::test]
async fn metrics_of_agents_are_for_the_scraper_and_their_probes_for_the_node() {
    let dir = TempDir::new().expect("a directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/agent/certificates.sh");
    let made = Command::new("sh")
        .arg(script.canonicalize().expect("it is there"))
        .current_dir(&dir)
        .output()
        .await
        .expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let shipped = Shipped::of("deploy").await;
    let environment = shipped.environment(AGENT);
    assert_eq!(environment["ENO_METRICS_LISTEN"], "$(ENO_NODE_ADDRESS):9616");
    assert!(environment["ENO_LISTEN"].starts_with("127.0.0.1:"));
    let [probes, metrics] = [(); 2].map(|()| pick_port().expect("a free port"));
    let mut command = Command::new(eno::programs::eno().expect("cargo build --workspace --bins"));
    command.args(["driver", "ovs-fabric"]).env("ENO_LISTEN", format!("127.0.0.1:{probes}"));
    command.env("ENO_METRICS_LISTEN", format!("127.0.0.1:{metrics}"));
    // Nobody is there: probes and metrics are all the same.
    command.env("ENO_NATS_URL", format!("nats://127.0.0.1:{}", pick_port().expect("a free port")));
    for (variable, key) in FILES {
        let behind = shipped.behind(AGENT, &environment[variable]);
        assert_eq!(behind, ("eno-metrics-tls".to_owned(), key.to_owned()));
        let file = if key == "ca.crt" { "metrics-ca.crt" } else { key };
        command.env(variable, dir.path().join(file));
    }
    let mut driver = command.stderr(Stdio::null()).kill_on_drop(true).spawn().expect("it starts");
    let mut looks = interval(LOOK);
    let scraped = async {
        loop {
            looks.tick().await;
            if let Ok(answer) = scrape(metrics, dir.path(), true).await {
                return answer;
            }
        }
    };
    let scraped = timeout(PATIENCE, scraped).await.expect("metrics are served");
    assert!(scraped.contains("eno_driver_nats_connected 0"), "{scraped}");
    let unknown = scrape(metrics, dir.path(), false).await;
    assert!(!unknown.is_ok_and(|answer| answer.contains("200 OK")));
    for (path, status) in [("healthz", 200), ("readyz", 503)] {
        let answer = reqwest::get(format!("http://127.0.0.1:{probes}/{path}")).await.expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{path}");
    }
    driver.kill().await.expect("it ends");
}
