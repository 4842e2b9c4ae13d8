//! A BGPSessionGroup with MetalLB: its own controller and speakers announce a Service to a gateway, which sends packets to all
//! nodes.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;

use eno_control_plane::parts::{Part, Parts};
use eno_lab::sandbox::SandboxOptions;
use eno_nbi_crds::{BGPSessionGroup, Phase, VRFAttachment};
use eno_tests::{System, connection_point, object, poll, service, two_nodes, with_own_sandbox};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::nodes::gateway::{forwarding, vrf, vrf_attachment};

const NAMESPACE: &str = "metallb-system";
const NAME: &str = "services";
const NODES: [&str; 2] = ["node1", "node2"];

/// The group with what it names, and a VRF that has no part in it.
fn networks() -> String {
    let group = "VRF: services, L2Service: services, ConnectionPoint: services, LocalASN: 64512, PeerASN: 65000, \
                 AddressFamilies: [IPv4], HoldTime: 9, KeepaliveTime: 3, AcceptPrefixes: [203.0.113.0/24], Speaker: MetalLB, \
                 ReturnPath: Symmetric";
    [
        connection_point(NAME, "br-data", "Interfaces: [eth1]"),
        object("Subnet", "name: services", "Type: v4, Ipam: eno, Address: 10.9.0.0, Mask: 24"),
        service(NAME, 190, "Subnets: [services]"),
        vrf(NAME, 190),
        vrf_attachment(NAME, "10.9.0.254/24", ""),
        object("BGPSessionGroup", "name: services", group),
        object("Subnet", "name: others", "Type: v4, Ipam: eno, Address: 10.10.0.0, Mask: 24"),
        service("others", 191, "Subnets: [others]"),
        vrf("others", 191),
        vrf_attachment("others", "10.10.0.254/24", ""),
    ]
    .concat()
}

/// What a user of MetalLB writes. `peers`: those of the advertisement.
fn pool(peers: &[String]) -> String {
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": { "name": NAME, "namespace": NAMESPACE },
            "spec": spec,
        })
    };
    let pool = object("IPAddressPool", json!({ "addresses": ["203.0.113.0/24"] }));
    let advertisement = object("BGPAdvertisement", json!({ "ipAddressPools": [NAME], "peers": peers }));
    format!("{pool}\n---\n{advertisement}")
}

/// A Service with a pod on each node, which answers with its name. `policy`: its externalTrafficPolicy.
fn web(policy: &str) -> String {
    let labels = json!({ "app": "web" });
    let container = json!({
        "name": "web", "image": eno_lab::sandbox::TEST_IMAGE,
        "command": ["sh", "-c", "hostname >/tmp/index.html; exec httpd -f -p 8080 -h /tmp"],
    });
    let pods = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "type": "LoadBalancer", "externalTrafficPolicy": policy, "selector": labels,
            "ports": [{ "port": 80, "targetPort": 8080 }],
        },
    });
    format!("{pods}\n---\n{service}")
}

/// The programs of MetalLB, which are killed when this is dropped.
struct MetalLb {
    speaker: std::path::PathBuf,
    kubeconfig: std::path::PathBuf,
    speakers: Vec<Child>,
    _controller: Child,
}

impl MetalLb {
    async fn start(system: &System) -> Self {
        let parts = Parts::from_env().expect("the parts");
        let [controller, speaker] =
            [parts.get(Part::MetallbController).await, parts.get(Part::MetallbSpeaker).await]
                .map(|program| program.expect("MetalLB"));
        let kubeconfig = system.sandbox.dir().join("kubeconfig");
        let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("metallb/crds.yaml");
        let definitions = std::fs::read_to_string(definitions).expect("the definitions");
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        system.apply(&namespace.to_string()).await;
        system.apply(&definitions).await;
        // Its programs end where a kind is missing.
        let client = system.sandbox.client();
        let served = poll(async || {
            let group = kube::discovery::group(&client, "metallb.io").await.ok()?;
            (group.resources_by_stability().len()
                == definitions.matches("kind: CustomResourceDefinition").count())
            .then_some(())
        });
        assert!(served.await.is_some(), "the kinds of MetalLB are not served");
        let controller = Command::new(controller)
            .args(["-webhook-mode", "disabled", "-disable-cert-rotation", "-namespace", NAMESPACE])
            .env("KUBECONFIG", &kubeconfig)
            .stdin(Stdio::null())
            .stdout(log(system, "metallb-controller"))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the controller");
        let mut this = Self { speaker, kubeconfig, speakers: Vec::new(), _controller: controller };
        for node in NODES {
            let child = this.speaker(system, node).await;
            this.speakers.push(child);
        }
        this
    }

    /// Starts the speaker of a node, with the Pod that it takes itself for.
    async fn speaker(&self, system: &System, node: &str) -> Child {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": format!("speaker-{node}"), "namespace": NAMESPACE },
            "spec": { "schedulerName": "none", "containers": [{ "name": "speaker", "image": "none" }] },
        });
        system.apply(&pod.to_string()).await;
        let pid = system.sandbox.node(node).expect("a node").pid;
        Command::new("nsenter")
            .arg(format!("--net=/proc/{pid}/ns/net"))
            .arg(&self.speaker)
            .args(["--namespace", NAMESPACE, "--node-name", node, "--pod-name", &format!("speaker-{node}")])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(log(system, &format!("metallb-speaker-{node}")))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the speaker")
    }
}

/// The log of a program, among those of the sandbox.
fn log(system: &System, name: &str) -> File {
    let path = system.sandbox.dir().join(format!("logs/{name}.log"));
    File::options().create(true).append(true).open(path).expect("a log")
}

/// What a program prints in a VRF of the gateway.
async fn in_vrf(system: &System, vrf: &str, command: &[&str]) -> Option<String> {
    let netns = forwarding(system, vrf).await.netns;
    let net = format!("--net={}", netns.display());
    let output = Command::new("nsenter").arg(net).args(command).output().await.expect("nsenter");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn fetch(system: &System, vrf: &str, address: &str) -> Option<String> {
    let url = format!("http://{address}/");
    in_vrf(system, vrf, &["curl", "-sS", "--max-time", "2", &url]).await.map(|text| text.trim().to_owned())
}

async fn until_next_hops(system: &System, address: &str, expected: &BTreeSet<String>) {
    let mut last = None;
    let seen = poll(async || {
        last = in_vrf(system, NAME, &["ip", "route", "show", address]).await;
        let words = last.as_deref()?.split_whitespace();
        let hops = words.clone().zip(words.skip(1)).filter(|(word, _)| *word == "via");
        (hops.map(|(_, hop)| hop.to_owned()).collect::<BTreeSet<_>>() == *expected).then_some(())
    });
    assert!(seen.await.is_some(), "not {expected:?}, but {last:?}");
}

/// Nothing else of the nodes answers in the VRF, not even with a refusal: kubelet, node port, cluster IP, and pods.
async fn assert_closed(system: &System, service: &Service, addresses: &BTreeSet<String>) {
    let spec = service.spec.as_ref().expect("a spec");
    let port = spec.ports.as_ref().and_then(|ports| ports[0].node_port).expect("a node port");
    let cluster_ip = spec.cluster_ip.clone().expect("a cluster IP");
    let pods = system.running("default", "app=web", 2).await;
    let pods = pods.into_values().filter_map(|pod| pod.status?.pod_ip);
    let nodes = NODES.map(|node| system.sandbox.node(node).expect("a node").address.to_string());
    let mut targets: Vec<String> = Vec::new();
    for (ip, ports) in [
        (addresses.iter().cloned().collect::<Vec<_>>(), vec![22, 10250, port]),
        (nodes.to_vec(), vec![10250, port]),
        (vec![cluster_ip], vec![80]),
        (pods.collect(), vec![8080]),
    ]
    .into_iter()
    .flat_map(|(ips, ports)| ips.into_iter().map(move |ip| (ip, ports.clone())))
    {
        targets.extend(ports.iter().map(|port| format!("http://{ip}:{port}/")));
        let by = addresses.first().expect("a node");
        if !addresses.contains(&ip) {
            in_vrf(system, NAME, &["ip", "route", "replace", &ip, "via", by]).await.expect("a route");
        }
    }
    for target in &targets {
        // 28: the time is over. Something that answers, such as with a reset, ends otherwise.
        let script = format!("curl -s -o /dev/null --max-time 1 {target}; echo $?");
        let end = in_vrf(system, NAME, &["sh", "-c", &script]).await;
        assert_eq!(end.as_deref().map(str::trim), Some("28"), "{target}");
    }
}

/// Waits until pods of both nodes answer. The connections of one client differ in their ports, so some go to each node.
async fn until_answers(system: &System, address: &str, what: &str) {
    let mut answered = BTreeSet::new();
    let all = poll(async || {
        answered.extend(fetch(system, NAME, address).await);
        (answered.len() == 2).then_some(())
    });
    assert!(all.await.is_some(), "{what}: {address} answers by {answered:?} only");
}

async fn until_group(system: &System, what: &str, good: impl Fn(&Value) -> bool) -> BGPSessionGroup {
    let good = |group: &BGPSessionGroup| good(&json!(group.status));
    system.until_one::<BGPSessionGroup>(NAME, what, good).await
}

fn has_condition(status: &Value, kind: &str, text: &str) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| {
        one["type"] == kind
            && one["status"] == "True"
            && one["message"].as_str().is_some_and(|message| message.contains(text))
    })
}

#[test]
#[ignore = "needs root: real nodes"]
fn services_of_metallb_are_reached_by_the_gateway() {
    let options = |options: &mut SandboxOptions| {
        two_nodes(options);
        options.services = true;
    };
    with_own_sandbox(options, async |system| {
        let networks = networks();
        system.apply(&networks).await;
        until_group(system, "it waits for MetalLB", |status| {
            status["phase"] == "pending"
                && status["message"].as_str().is_some_and(|text| text.contains("install MetalLB"))
        })
        .await;
        let mut metallb = MetalLb::start(system).await;
        system.becomes::<BGPSessionGroup>(NAME, Phase::Ready).await;
        let group = until_group(system, "two sessions", |status| status["establishedSessions"] == 2).await;
        let status = group.status.expect("a status");
        assert_eq!(status.speaker_peers, ["eno-services-10-9-0-254"]);
        let addresses: BTreeSet<String> = status
            .workers
            .iter()
            .filter_map(|one| Some(one.addresses.first()?.split('/').next()?.to_owned()))
            .collect();

        // An advertisement without peers goes to all of them.
        system.apply(&pool(&[])).await;
        system.apply(&web("Cluster")).await;
        until_group(system, "AnnouncedToAll", |status| has_condition(status, "AnnouncedToAll", NAME)).await;
        system.apply(&pool(&status.speaker_peers)).await;
        until_group(system, "no AnnouncedToAll", |status| !has_condition(status, "AnnouncedToAll", "")).await;

        // Pods of both nodes answer the gateway, and nobody in another VRF.
        let given = |service: &Service| -> Option<String> {
            let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
            ingress.first()?.ip.clone()
        };
        let services: Api<Service> = Api::namespaced(system.sandbox.client(), "default");
        let address = poll(async || given(&services.get("web").await.ok()?)).await.expect("an address");
        system.running("default", "app=web", 2).await;
        until_next_hops(system, &address, &addresses).await;
        // By addresses alone, the gateway would send one client's connections to one node.
        let by_ports = "echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy";
        in_vrf(system, NAME, &["sh", "-c", by_ports]).await.expect("a sysctl");
        let service = services.get("web").await.expect("the Service");
        assert_closed(system, &service, &addresses).await;
        // kube-proxy runs in the mode nftables at first.
        for mode in ["nftables", "iptables"] {
            for node in NODES.into_iter().filter(|_| mode == "iptables") {
                let edit = format!("s/\"nftables\"/\"{mode}\"/");
                system.on_node(node, &["sed", "-i", &edit, "/var/lib/kube-proxy/config.yaml"]).await;
                system.restart_part(&format!("{node}-kube-proxy")).await;
            }
            for policy in ["Local", "Cluster"] {
                system.apply(&web(policy)).await;
                until_answers(system, &address, &format!("kube-proxy with {mode}, {policy}")).await;
            }
        }
        system.becomes::<VRFAttachment>("others", Phase::Ready).await;
        assert_eq!(fetch(system, "others", &address).await, None);

        // A speaker goes and comes.
        let lost = metallb.speakers.remove(0);
        drop(lost);
        until_group(system, "Degraded", |status| has_condition(status, "Degraded", "Node node1")).await;
        let node2 = status.workers.iter().find(|one| one.node == "node2").expect("a worker");
        let left = node2.addresses[0].split('/').next().expect("an address").to_owned();
        until_next_hops(system, &address, &[left].into()).await;
        let again = metallb.speaker(system, "node1").await;
        metallb.speakers.push(again);
        until_next_hops(system, &address, &addresses).await;
        until_group(system, "healed", |status| status["establishedSessions"] == 2).await;

        system.delete(&networks).await;
        let peers = ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk("metallb.io", "v1beta2", "BGPPeer"),
            "bgppeers",
        );
        let peers: Api<DynamicObject> = Api::namespaced_with(system.sandbox.client(), NAMESPACE, &peers);
        let left = peers.list(&ListParams::default()).await.expect("a list").items;
        assert!(left.is_empty(), "{left:?}");
        system.delete(&web("Cluster")).await;
        system.delete(&pool(&[])).await;
    });
}
