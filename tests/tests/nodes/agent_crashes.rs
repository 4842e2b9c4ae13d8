//! Crashes of an agent while networks change.

use std::collections::BTreeMap;

use eno_nbi_crds::{ConnectionPoint, L2Service, Phase, PodInterface};
use eno_tests::{System, connection_point, deployment, subnet, unchecked_namespace, with_exclusive_nodes};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::nodes::hot_plug::addresses;

/// Name of the namespace and of the ConnectionPoint.
const NAME: &str = "crash";
const KILLED: &str = "node1";
const NODES: [&str; 2] = [KILLED, "node2"];
const PODS: usize = 4;
/// The beginning of the names of the interfaces of probes.
const PROBE: &str = "enop";

/// A service with addresses, in a VLAN.
fn service(number: u16, vid: u16) -> String {
    let name = format!("{NAME}-{number}");
    let pool = format!("HotPlugPool: [{{Start: 10.77.{number}.10, End: 10.77.{number}.19}}]");
    subnet(&name, &format!("10.77.{number}.0"), &pool)
        + &eno_tests::service(&name, vid, &format!("Subnets: [{name}]"))
}

/// The attachment that gives pods the interface `n<number>`.
fn attachment(number: u16) -> String {
    let (name, service) = (format!("a{number}"), format!("{NAME}-{number}"));
    eno_tests::access(NAME, &name, &service)
}

fn label(number: u16) -> String {
    format!("attach.eno.k8s.io/a{number}")
}

async fn kill_and_start(system: &System) {
    let agent = format!("{KILLED}-agent");
    system.sandbox.kill_child(&agent).await.expect("an agent to kill");
    system.sandbox.start_child(&agent).await.expect("the agent again");
}

/// Waits until all pods have exactly these networks (number and VLAN) with an address each. Both nodes must have the
/// required ports and interfaces, and no others of the agent's.
async fn until_settled(system: &System, pods: &BTreeMap<String, Pod>, networks: &[(u16, u16)]) {
    for (number, _) in networks {
        system.becomes::<L2Service>(&format!("{NAME}-{number}"), Phase::Ready).await;
        let leases = addresses(system, &format!("{NAME}/a{number}"), PODS).await;
        assert_eq!(leases.len(), PODS, "{leases:?}");
        let (first, others) = leases.split_first().expect("a pod");
        for (_, addresses) in others {
            system.pings(NAME, &first.0, &addresses[0], true).await;
        }
        for (pod, addresses) in &leases {
            let name = format!("n{number}");
            let has = |text: Option<&str>| text.is_some_and(|text| text.contains(&addresses[0]));
            system.until_inside(NAME, pod, &["ip", "addr", "show", &name], has).await;
        }
    }
    let mut wanted: Vec<String> = networks.iter().map(|(number, _)| format!("n{number}")).collect();
    wanted.extend(["eth0".to_owned(), "lo".to_owned()]);
    wanted.sort();
    for pod in pods.keys() {
        let names: Vec<_> = system.interfaces(NAME, pod).await.into_keys().collect();
        assert_eq!(names, wanted, "{pod}");
    }
    let mut tags: Vec<String> = networks.iter().map(|(_, vid)| vid.to_string()).collect();
    tags.sort();
    let twice: Vec<_> = tags.iter().flat_map(|tag| [tag.clone(), tag.clone()]).collect();
    for node in NODES {
        let ports =
            ["ovs-vsctl", "-f", "csv", "-d", "bare", "--no-headings", "--columns=name,tag", "list", "Port"];
        system
            .until_on_node(node, &ports, |output| {
                let ports = output.lines().filter_map(|line| line.split_once(','));
                let tags = ports.filter(|(name, _)| !name.starts_with(PROBE)).map(|(_, tag)| tag);
                let mut seen: Vec<_> =
                    tags.filter(|tag| tag.parse::<u16>().is_ok()).map(str::to_owned).collect();
                seen.sort();
                seen == twice
            })
            .await;
        let trunks = format!("[{}]", tags.join(", "));
        let uplink = ["ovs-vsctl", "get", "Port", "eth1", "trunks"];
        system.until_on_node(node, &uplink, |output| output.trim() == trunks).await;
        assert_eq!(interface_count(system, node).await, networks.len() * PODS / NODES.len(), "{node}");
    }
}

/// The number of host ends of pods' interfaces on a node.
async fn interface_count(system: &System, node: &str) -> usize {
    let links = system.on_node(node, &["ip", "-o", "link"]).await;
    let names = links.lines().filter_map(|line| line.split(": ").nth(1));
    names.filter(|name| name.starts_with("eno") && !name.starts_with(PROBE)).count()
}

fn macs(interfaces: &BTreeMap<String, String>) -> BTreeMap<&str, Option<&str>> {
    interfaces
        .iter()
        .map(|(name, text)| (&**name, text.split("link/ether ").nth(1).and_then(|rest| rest.get(..17))))
        .collect()
}

#[test]
#[ignore = "needs root: real nodes"]
fn agent_crash_during_network_changes_converges() {
    with_exclusive_nodes(async |system| {
        let point = unchecked_namespace(NAME) + &connection_point(NAME, "br-crash", "Interfaces: [eth1]");
        system.apply_until_ready::<ConnectionPoint>(&point, NAME).await;
        let labels: serde_json::Map<String, Value> =
            (0..5).map(|number| (label(number), json!(format!("n{number}")))).collect();
        let cnf = deployment(NAME, "cnf", 4, &Value::Object(labels));
        system.apply(&cnf).await;
        let pods = system.running(NAME, "app=cnf", PODS).await;
        let on_killed =
            |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(KILLED);
        let witness = pods.iter().find(|(_, pod)| on_killed(pod)).expect("a pod there").0;

        // Networks are created, and the agent crashes when a pod has the first of them.
        let manifests = |numbers: std::ops::Range<u16>, vid: u16| {
            numbers.map(|number| service(number, vid + number) + &attachment(number)).collect::<String>()
        };
        let some = async {
            let named = |interfaces: &[PodInterface]| interfaces.iter().any(|one| one.name.is_some());
            system.pod_network(NAME, witness, named).await;
            kill_and_start(system).await;
        };
        let first = manifests(0..3, 700);
        tokio::join!(system.apply(&first), some);
        until_settled(system, &pods, &[(0, 700), (1, 701), (2, 702)]).await;

        // The networks move to other VLANs; interface names and MACs stay.
        let before = system.interfaces(NAME, witness).await;
        let changed: String = (0..3).map(|number| service(number, 710 + number)).collect();
        tokio::join!(system.apply(&changed), kill_and_start(system));
        until_settled(system, &pods, &[(0, 710), (1, 711), (2, 712)]).await;
        assert_eq!(macs(&system.interfaces(NAME, witness).await), macs(&before));

        // Some networks are created while one is deleted, and the agent crashes again right after its restart.
        let twice = async {
            kill_and_start(system).await;
            kill_and_start(system).await;
        };
        let gone = service(0, 710) + &attachment(0);
        let going = async {
            for pod in pods.keys() {
                system.label(NAME, pod, &label(0), None).await;
            }
            system.request_deletion(&gone).await;
        };
        let more = manifests(3..5, 710);
        tokio::join!(system.apply(&more), going, twice);
        system.delete(&gone).await;
        until_settled(system, &pods, &[(1, 711), (2, 712), (3, 713), (4, 714)]).await;

        // All networks are deleted.
        let all = manifests(1..5, 710);
        let going = async {
            for pod in pods.keys() {
                for number in 1..5 {
                    system.label(NAME, pod, &label(number), None).await;
                }
            }
            system.request_deletion(&all).await;
        };
        tokio::join!(going, kill_and_start(system));
        system.delete(&all).await;
        for pod in pods.keys() {
            let names: Vec<_> = system.interfaces(NAME, pod).await.into_keys().collect();
            assert_eq!(names, ["eth0", "lo"], "{pod}");
        }
        system.delete(&cnf).await;
        system.delete(&point).await;
        for node in NODES {
            let bridges = system.on_node(node, &["ovs-vsctl", "list-br"]).await;
            assert!(!bridges.contains("br-crash"), "{node}: {bridges}");
            assert_eq!(interface_count(system, node).await, 0, "{node}");
        }
    });
}
