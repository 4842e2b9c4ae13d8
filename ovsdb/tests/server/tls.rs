//! Mutual TLS.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use eno_ovsdb::{Client, ConnectionError, Endpoint, Error, Options, tls_config};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::fixture::{DB, Server, insert, options, things};

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes `<name>.pem` and `<name>.key`.
fn issue(dir: &Path, name: &str, host: &str, authority: &CertifiedIssuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn mutual_tls_authenticates_both_sides() {
    let dir = tempfile::TempDir::with_prefix("eno-ovsdb-").unwrap();
    let path = |name: &str| dir.path().join(name);
    let (ours, others) = (authority("ours"), authority("others"));
    std::fs::write(path("ca.pem"), ours.pem()).unwrap();
    std::fs::write(path("other-ca.pem"), others.pem()).unwrap();
    issue(dir.path(), "server", "127.0.0.1", &ours);
    issue(dir.path(), "client", "client", &ours);
    issue(dir.path(), "stranger", "client", &others);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let option = |name: &str, file: &str| format!("--{name}={}", path(file).display());
    let server = Server::with_options(vec![
        format!("--remote=pssl:{port}:127.0.0.1"),
        option("private-key", "server.key"),
        option("certificate", "server.pem"),
        option("ca-cert", "ca.pem"),
    ]);
    server.client().echo().await.unwrap();

    let connect = |authority: &str, name: &str, options: Options| {
        let config =
            tls_config(&path(authority), &path(&format!("{name}.pem")), &path(&format!("{name}.key")))
                .unwrap();
        Client::new(Endpoint::tls("127.0.0.1", port, config).unwrap(), options)
    };
    let client = connect("ca.pem", "client", options());
    let mirror = client.mirror(DB, things());
    mirror.current().await.unwrap();
    client.transact(DB, &insert(&"x".repeat(1 << 20))).await.unwrap();
    mirror.read(|replica| assert_eq!(replica.table("Thing").count(), 1));

    let short_timeout = Options { connection_wait: Duration::from_secs(1), ..options() };
    let error = connect("other-ca.pem", "client", short_timeout.clone()).echo().await.unwrap_err();
    let Error::NotSent { cause: ConnectionError::Connect { reason, .. }, .. } = &error else {
        panic!("{error}")
    };
    assert!(reason.contains("certificate"), "{error}");
    // With TLS 1.3 the server refuses after the handshake.
    let error = connect("ca.pem", "stranger", short_timeout).echo().await.unwrap_err();
    assert!(error.retry_helps(), "{error}");
}

#[test]
fn invalid_tls_files_are_named_without_their_content() {
    let dir = tempfile::TempDir::with_prefix("eno-ovsdb-").unwrap();
    let path = |name: &str| dir.path().join(name);
    let authority = authority("ours");
    std::fs::write(path("ca.pem"), authority.pem()).unwrap();
    issue(dir.path(), "client", "client", &authority);
    std::fs::write(path("junk"), "secret").unwrap();
    for (ca, certificate, key, named) in [
        ("none", "client.pem", "client.key", "none"),
        ("junk", "client.pem", "client.key", "junk"),
        ("ca.pem", "junk", "client.key", "junk"),
        ("ca.pem", "client.pem", "junk", "junk"),
    ] {
        let error = tls_config(&path(ca), &path(certificate), &path(key)).unwrap_err().to_string();
        assert!(error.contains(named) && !error.contains("secret"), "{error}");
    }
}
