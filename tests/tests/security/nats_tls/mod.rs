//! NATS with the TLS configuration of `deploy/nats-tls`, as `kubectl apply -k deploy/` applies it, run on this machine.

mod metrics;
mod rendered_manifests;
mod routes;

use async_nats::ConnectOptions;
use eno_control_plane::NatsUser;
use eno_nbi_crds::L2ServiceAttachment;
use eno_tests::{TIMEOUT, access, connection_point, service, with_new_sandbox};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::rendered_manifests::{Certificates, NatsServers, RenderedManifests};

const NAD: NatsUser = NatsUser::Part(eno_parts::DRIVER_NAD);

/// Runs the engine and a driver with the environment of their Deployments.
#[test]
fn attachment_becomes_ready_over_tls() {
    with_new_sandbox(async |system| {
        let manifests = RenderedManifests::of("deploy").await;
        let servers = NatsServers::start(&manifests, 1).await;
        let mut programs = Vec::new();
        for part in [eno_parts::ENGINE, eno_parts::DRIVER_NAD] {
            system.sandbox.stop_child(part.name).await.expect("a part that runs");
            let kubeconfig = system.sandbox.control_plane().kubeconfig_for(&part.account.user(), None);
            programs.push(servers.program(&manifests, part.account.name, &kubeconfig.expect("a kubeconfig")));
        }
        system.namespace("encrypted").await;
        let network = [
            service("encrypted", 820, ""),
            connection_point("encrypted", "br0", ""),
            access("encrypted", "one", "encrypted"),
        ];
        system.apply_until_ready::<L2ServiceAttachment>(&network.concat(), "encrypted/one").await;
        system.nad("encrypted/one", |configuration| configuration["vlan"] == 820).await;
    });
}

/// Every part uses TLS, verifies the servers, and does not see their private key.
#[tokio::test]
async fn nats_clients_mount_the_ca_and_not_the_server_key() {
    let manifests = RenderedManifests::of("deploy").await;
    let clients = eno_parts::workloads().map(|workload| workload.name).filter(|name| *name != "eno-nats");
    assert_eq!(manifests.clients(), clients.collect());
    for part in eno_parts::nats_users() {
        let name = part.account.name;
        let environment = manifests.environment(name);
        assert_eq!(environment["ENO_NATS_URL"], "tls://eno-nats:4222", "{name}");
        let secret_at = |variable: &str| manifests.secret_at(name, &environment[variable]);
        assert_eq!(secret_at("ENO_NATS_CA"), ("eno-nats-tls".to_owned(), "ca.crt".to_owned()), "{name}");
        let seed = ("eno-nats".to_owned(), format!("{}.seed", part.name));
        assert_eq!(secret_at("ENO_NATS_CREDENTIALS"), seed, "{name}");
        assert_eq!(manifests.keys_of(name, "eno-nats-tls"), ["ca.crt"], "{name}");
        let mut keys = vec![seed.1];
        if part == eno_parts::ENGINE {
            let of_logins = ["", ".next", ".old"]
                .map(|which| ["issuer", "answerer"].map(|key| format!("{key}{which}.seed")));
            keys.extend(of_logins.into_iter().flatten());
        }
        assert_eq!(manifests.keys_of(name, "eno-nats"), keys, "{name}");
    }
    // The agents have no key: they log in by a token for NATS alone.
    let environment = manifests.environment("eno-agent");
    assert_eq!(environment["ENO_NATS_URL"], "tls://eno-nats.eno-system.svc:4222");
    let authority = manifests.secret_at("eno-agent", &environment["ENO_NATS_CA"]);
    assert_eq!(authority, ("eno-nats-tls".to_owned(), "ca.crt".to_owned()));
    assert_eq!(manifests.keys_of("eno-agent", "eno-nats"), [""; 0]);
    let token = manifests.token_at("eno-agent", &environment["ENO_NATS_CREDENTIALS"]);
    assert_eq!(token["audience"], "eno-nats");
}

/// The error of a connection attempt that must fail.
async fn connect_error(options: ConnectOptions, url: &str) -> String {
    let options = options.require_tls(true).connection_timeout(TIMEOUT);
    match options.connect(url).await {
        Ok(_) => panic!("{url} lets in who is to be refused"),
        Err(error) => format!("{error:?}"),
    }
}

#[tokio::test]
async fn plaintext_clients_and_untrusted_servers_are_refused() {
    let manifests = RenderedManifests::of("deploy").await;
    let servers = NatsServers::start(&manifests, 1).await;
    let options = || ConnectOptions::with_nkey(servers.seed(NAD));
    let url = servers.url(0);

    let known = options().add_root_certificates(servers.certificates.authority());
    let known = known.require_tls(true).connection_timeout(TIMEOUT).connect(&url).await;
    known.expect("a connection").flush().await.expect("an answer");

    // The client has no CA, another CA, or uses a name that is not in the certificate.
    connect_error(options(), &url).await;
    let foreign = Certificates::new();
    let error_text = connect_error(options().add_root_certificates(foreign.authority()), &url).await;
    assert!(error_text.contains("UnknownIssuer") || error_text.contains("BadSignature"), "{error_text}");
    let known = options().add_root_certificates(servers.certificates.authority());
    let error_text = connect_error(known, &url.replace("localhost", "127.0.0.1")).await;
    assert!(error_text.contains("NotValidForName"), "{error_text}");

    // The client's nkey is valid, but plaintext is refused.
    let stream = TcpStream::connect(servers.client_address(0)).await.expect("it listens");
    let mut stream = BufReader::new(stream);
    let mut greeting = String::new();
    stream.read_line(&mut greeting).await.expect("a greeting");
    let info: serde_json::Value =
        serde_json::from_str(greeting.strip_prefix("INFO ").expect("INFO")).expect("JSON");
    assert_eq!(info["tls_required"], true);
    let connect_message = servers.connect_message(NAD, info["nonce"].as_str().expect("a nonce"));
    stream.get_mut().write_all(connect_message.as_bytes()).await.expect("it reads");
    let mut rest = Vec::new();
    // A reset connection ends the answer, too.
    let _ = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("it hangs up");
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.contains("PONG") && !rest.contains("+OK"), "{rest}");
}
