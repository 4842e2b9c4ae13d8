//! NATS with the TLS of `deploy/nats-tls`: what `kubectl apply -k deploy/` applies, on this machine.

mod metrics;
mod routes;
mod shipped;

use std::time::Duration;

use async_nats::ConnectOptions;
use eno::sandbox::Role;
use eno_control_plane::NatsUser;
use eno_nbi_crds::{L2ServiceAttachment, Phase};
use eno_tests::{PATIENCE, own};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::shipped::{Certificates, Servers, Shipped};

/// The engine and a driver with the environment that their Deployments give them.
#[test]
fn an_attachment_becomes_ready_by_encrypted_words() {
    own(
        |_| (),
        async |system| {
            let shipped = Shipped::of("deploy").await;
            let servers = Servers::start(&shipped, 1).await;
            let mut programs = Vec::new();
            for role in [Role::Engine, Role::DriverNad] {
                system.sandbox.stop_child(role.name()).await.expect("a part that runs");
                let kubeconfig = system.sandbox.control_plane().kubeconfig_for(&role.user(), None);
                let deployment = format!("eno-{}", role.name());
                programs.push(servers.program(&shipped, &deployment, &kubeconfig.expect("a kubeconfig")));
            }
            system.namespace("encrypted").await;
            let network = "
apiVersion: eno.k8s.io/v1alpha1
kind: L2Service
metadata: {name: encrypted}
spec: {SegmentationID: 820}
---
apiVersion: eno.k8s.io/v1alpha1
kind: ConnectionPoint
metadata: {name: encrypted}
spec: {SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{\"BridgeName\": \"br0\"}'}]}
---
apiVersion: eno.k8s.io/v1alpha1
kind: L2ServiceAttachment
metadata: {name: one, namespace: encrypted}
spec: {ConnectionPoint: encrypted, L2Services: [encrypted], VlanType: access}
";
            system.apply(network).await;
            system.becomes::<L2ServiceAttachment>("encrypted/one", Phase::Ready).await;
            system.nad("encrypted/one", |configuration| configuration["vlan"] == 820).await;
        },
    );
}

/// Every part is told to speak TLS and to check the servers, and sees nothing of their key.
#[tokio::test]
async fn all_parts_know_the_authority_and_none_the_servers_key() {
    let shipped = Shipped::of("deploy").await;
    let parts = [
        ("eno-engine", NatsUser::Engine, "tls://eno-nats:4222"),
        ("eno-driver-netconf", NatsUser::DriverNetconf, "tls://eno-nats:4222"),
        ("eno-driver-ovs-fabric", NatsUser::DriverOvsFabric, "tls://eno-nats:4222"),
        ("eno-driver-nad", NatsUser::DriverNad, "tls://eno-nats:4222"),
        ("eno-agent", NatsUser::Agent, "tls://eno-nats.eno-system.svc:4222"),
    ];
    assert_eq!(shipped.clients(), parts.map(|(name, ..)| name).into());
    for (name, user, url) in parts {
        let environment = shipped.environment(name);
        assert_eq!(environment["ENO_NATS_URL"], url, "{name}");
        let behind = |variable: &str| shipped.behind(name, &environment[variable]);
        assert_eq!(behind("ENO_NATS_CA"), ("eno-nats-tls".to_owned(), "ca.crt".to_owned()), "{name}");
        let seed = ("eno-nats".to_owned(), format!("{}.seed", user.name()));
        assert_eq!(behind("ENO_NATS_CREDENTIALS"), seed, "{name}");
        assert_eq!(shipped.keys_of(name, "eno-nats-tls"), ["ca.crt"], "{name}");
        assert_eq!(shipped.keys_of(name, "eno-nats"), [seed.1], "{name}");
    }
}

/// Why a connection can't be made.
async fn refusal(options: ConnectOptions, url: &str) -> String {
    let options = options.require_tls(true).connection_timeout(PATIENCE);
    match options.connect(url).await {
        Ok(_) => panic!("{url} lets in who is to be refused"),
        Err(error) => format!("{error:?}"),
    }
}

#[tokio::test]
async fn who_speaks_in_the_clear_is_refused_and_so_are_servers_that_nobody_vouches_for() {
    let shipped = Shipped::of("deploy").await;
    let servers = Servers::start(&shipped, 1).await;
    let options = || ConnectOptions::with_nkey(servers.seed(NatsUser::Agent));
    let url = servers.url(0);

    let known = options().add_root_certificates(servers.certificates.authority());
    let known = known.require_tls(true).connection_timeout(PATIENCE).connect(&url).await;
    known.expect("a connection").flush().await.expect("an answer");

    // Without the authority, with another one, and under a name that is not in the certificate.
    refusal(options(), &url).await;
    let foreign = Certificates::new();
    let why = refusal(options().add_root_certificates(foreign.authority()), &url).await;
    assert!(why.contains("UnknownIssuer") || why.contains("BadSignature"), "{why}");
    let known = options().add_root_certificates(servers.certificates.authority());
    let why = refusal(known, &url.replace("localhost", "127.0.0.1")).await;
    assert!(why.contains("NotValidForName"), "{why}");

    // The key would be right: the answer is no.
    let stream = TcpStream::connect(servers.client_address(0)).await.expect("it listens");
    let mut stream = BufReader::new(stream);
    let mut greeting = String::new();
    stream.read_line(&mut greeting).await.expect("a greeting");
    let info: serde_json::Value =
        serde_json::from_str(greeting.strip_prefix("INFO ").expect("INFO")).expect("JSON");
    assert_eq!(info["tls_required"], true);
    let hello = servers.hello(NatsUser::Agent, info["nonce"].as_str().expect("a nonce"));
    stream.get_mut().write_all(hello.as_bytes()).await.expect("it reads");
    let mut rest = Vec::new();
    // A connection that is reset ends the answer, too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it hangs up");
    let rest = String::from_utf8_lossy(&rest);
    assert!(!rest.contains("PONG") && !rest.contains("+OK"), "{rest}");
}

/// Between two looks at what has no way to tell.
const LOOK: Duration = Duration::from_millis(50);
