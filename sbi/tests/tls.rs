//! Connections to a NATS server with a certificate.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::pick_port;
use eno_sbi::nats::{ConnectError, NatsArgs, connect};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

const TIMEOUT: Duration = Duration::from_mins(1);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(dir: &Path, name: &str) -> (Authority, PathBuf) {
    let mut params = CertificateParams::new(vec![]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority =
        Authority::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let path = dir.join(format!("{name}.pem"));
    std::fs::write(&path, authority.pem()).expect("its certificate");
    (authority, path)
}

/// A nats-server that accepts TLS only, with a certificate of this authority; killed when it is dropped.
async fn server(dir: &Path, authority: &Authority) -> (Child, u16) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    std::fs::write(dir.join("tls.crt"), certificate.pem()).expect("the certificate");
    std::fs::write(dir.join("tls.key"), key.serialize_pem()).expect("the key");
    let port = pick_port().expect("a free port");
    let program = Parts::from_env().expect("a cache").get(Part::NatsServer).await.expect("a nats-server");
    let child = Command::new(program)
        .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--tls"])
        .arg(format!("--tlscert={}", dir.join("tls.crt").display()))
        .arg(format!("--tlskey={}", dir.join("tls.key").display()))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(dir.join("log")).expect("a log"))
        .kill_on_drop(true)
        .spawn()
        .expect("nats-server starts");
    let up = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, up).await.expect("nats-server listens");
    (child, port)
}

#[tokio::test(flavor = "multi_thread")]
async fn server_certificate_is_verified_against_the_authority() {
    let dir = TempDir::new().expect("a directory");
    let (ours, our_file) = authority(dir.path(), "ours");
    let (_, other_file) = authority(dir.path(), "others");
    let (_server, port) = server(dir.path(), &ours).await;
    let args = |host: &str, authority: &Path| NatsArgs {
        nats_url: format!("tls://{host}:{port}"),
        nats_credentials: None,
        nats_ca: Some(authority.to_owned()),
        nats_replicas: 1,
    };
    let stop = CancellationToken::new();
    let right = args("localhost", &our_file);
    let connecting = tokio::time::timeout(TIMEOUT, connect(&right, "eno-engine", &stop));
    let connection = connecting.await.expect("in time").expect("a connection");
    connection.client.flush().await.expect("it works");

    // A server with an unverified certificate gets no data: neither of another authority nor for another
    // name.
    for wrong in [args("localhost", &other_file), args("127.0.0.1", &our_file)] {
        let log = std::fs::read_to_string(dir.path().join("log")).expect("a log").len();
        let stop = CancellationToken::new();
        let refused = async {
            let path = dir.path().join("log");
            let server_log = || std::fs::read_to_string(&path).expect("a log").split_off(log);
            while !server_log().contains("TLS handshake error") {
                tokio::task::yield_now().await;
            }
            stop.cancel();
        };
        let (connected, refused) =
            tokio::join!(connect(&wrong, "eno-engine", &stop), tokio::time::timeout(TIMEOUT, refused),);
        refused.expect("the client breaks the handshake off");
        assert!(matches!(connected, Err(ConnectError::Stopped)), "{wrong:?}");
    }
}
