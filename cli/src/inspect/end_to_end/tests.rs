//! Paths of small clusters. The desired state is that of the engine's own core.

mod gateway;

use eno_engine::forecast::Part as Listed;
use eno_schemas::{Applied, AppliedNetwork, Failure, Generation, Item, Outcome, Rejection, Report};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::inspect::path::NODE_DRIVER;

const LABEL: &str = "cp.eno.k8s.io/made";

fn object(kind: Kind, name: &str, spec: &Value) -> (Listed, Value) {
    let path = if kind == Kind::L2ServiceAttachment { format!("ns/{name}") } else { name.to_owned() };
    let mut value = eno_nbi_crds::manifest(kind.as_str(), &path, spec);
    (value["metadata"]["uid"], value["metadata"]["generation"]) = (json!(format!("{kind}-{name}")), json!(1));
    (Listed::Objects(kind), value)
}

fn device(name: &str, ports: &Value) -> (Listed, Value) {
    let spec = json!({
        "Driver": "netconf", "Address": "192.0.2.1:830", "Credentials": { "SecretName": name }, "Ports": ports,
    });
    object(Kind::FabricDevice, name, &spec)
}

fn node(name: &str, pool: &str) -> (Listed, Value) {
    let labels = json!({ "pool": pool, LABEL: "true" });
    let status = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    (Listed::Nodes, json!({ "metadata": { "name": name, "labels": labels }, "spec": {}, "status": status }))
}

fn point(name: &str, pool: &str, cni: &str, opts: &Value) -> (Listed, Value) {
    let cni = json!({ "Name": cni, "SupportedInterfaceTypes": ["kernel"], "Opts": opts.to_string() });
    object(
        Kind::ConnectionPoint,
        name,
        &json!({ "NodePool": pool, "Interfaces": ["eth1"], "SupportedCnis": [cni] }),
    )
}

fn pool(name: &str) -> (Listed, Value) {
    object(Kind::NodePool, name, &json!({ "NodeSelector": { "matchLabels": { "pool": name } } }))
}

fn attachment(name: &str, point: &str) -> (Listed, Value) {
    let spec = json!({ "L2Services": ["net"], "ConnectionPoint": point, "VlanType": "access" });
    object(Kind::L2ServiceAttachment, name, &spec)
}

/// `node1` of pool `a` at `leaf1`, `node2` of pool `b` at `leaf2`, which leads to `gw`. `spine1` joins both.
fn fabric() -> Vec<(Listed, Value)> {
    vec![
        device(
            "leaf1",
            &json!([
                { "Name": "1", "Node": "node1", "Interface": "eth1" },
                { "Name": "49", "Device": "spine1", "Port": "1" },
            ]),
        ),
        device(
            "leaf2",
            &json!([
                { "Name": "1", "Node": "node2", "Interface": "eth1" },
                { "Name": "48", "PhysicalNW": "gw" },
                { "Name": "49", "Device": "spine1", "Port": "2" },
            ]),
        ),
        device(
            "spine1",
            &json!([
                { "Name": "1", "Device": "leaf1", "Port": "49" },
                { "Name": "2", "Device": "leaf2", "Port": "49" },
            ]),
        ),
        object(Kind::PhysicalNetwork, "gw", &json!({ "SegmentationIDs": ["100"] })),
        object(Kind::L2Service, "net", &json!({ "SegmentationID": 100, "PhysicalNW": ["gw"] })),
        node("node1", "a"),
        node("node2", "b"),
        pool("a"),
        pool("b"),
    ]
}

struct Cluster {
    world: ClusterState,
    reports: Reports,
}

impl Cluster {
    fn new(objects: impl IntoIterator<Item = (Listed, Value)>) -> Self {
        let world = ClusterState::stored(objects, Vec::new(), "ns").expect("a cluster");
        Self { world, reports: Reports::unknown() }
    }

    fn path(&self, key: &Key) -> Path {
        self.path_with(&self.reports, key)
    }

    fn path_with(&self, reports: &Reports, key: &Key) -> Path {
        let mut observation = Observation::new(&self.world);
        observation.catch_up(reports.iter());
        let mut desired = observation.desired();
        let switches = std::mem::take(&mut desired.switches);
        let fabric = Fabric { switches, incomplete: BTreeSet::new() };
        let (world, observation, desired, fabric) = (&self.world, &observation, &desired, &fabric);
        path(Inputs { world, observation, desired, fabric, reports }, key)
    }

    /// The hops of an attachment, each with its state.
    fn hops(&self, attachment: &str) -> Vec<String> {
        let key = Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &attachment.into());
        let hops = self.path(&key).hops.into_iter();
        hops.map(|hop| format!("{} {}", hop.id, hop.state.as_str())).collect()
    }

    /// All switches report that they have what is desired, and so does the agent of node1.
    fn confirm(&mut self) {
        self.reports = Reports::new(BTreeMap::new(), &self.world);
        let network = AppliedNetwork { vlans: "100".parse().expect("a set"), mtu: None };
        let networks = BTreeMap::from([("br".to_owned(), network)]);
        self.report(
            NODE_DRIVER,
            "node1",
            Applied::Node { networks, pods: BTreeMap::new(), probes: Vec::new(), addresses: BTreeMap::new() },
        );
        for (switch, (driver, desired)) in Observation::new(&self.world).desired().switches {
            self.report(&driver, &switch, desired.carried_out());
        }
    }

    fn report(&mut self, driver: &str, target: &str, applied: Applied) {
        let generation = Generation { term: 1, sequence: 1, hash: String::new() };
        let report =
            Report { applied: Some(applied), ..Report::new((driver, target), generation, ("i", "")) };
        self.reports.set(driver, target, Some(report.into()));
    }

    /// The state of a hop of the attachment `x` when the last report on a target is changed.
    fn state_after(&self, hop: &str, driver: &str, target: &str, change: impl FnOnce(&mut Report)) -> State {
        let mut reports = self.reports.clone();
        let mut report = Report::clone(reports.get(driver, target).expect("a report"));
        change(&mut report);
        reports.set(driver, target, Some(report.into()));
        let key = Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"x".into());
        let hops = self.path_with(&reports, &key).hops;
        hops.iter().find(|one| one.id == hop).expect("the hop").state
    }
}

#[test]
fn path_leads_from_the_bridge_to_the_gateway() {
    let point = point("p", "a", "ovs", &json!({ "BridgeName": "br" }));
    let mut cluster = Cluster::new([fabric(), vec![point, attachment("x", "p")]].concat());
    let expected = [
        "nad:ns/x unknown",
        "bridge:node1:br unknown",
        "nic:node1:eth1 unknown",
        "port:leaf1:1 unknown",
        "switch:spine1 unknown",
        "port:leaf2:48 unknown",
    ];
    assert_eq!(cluster.hops("x"), expected);
    cluster.confirm();
    let hops = cluster.hops("x");
    assert_eq!(hops[3..], ["port:leaf1:1 confirmed", "switch:spine1 confirmed", "port:leaf2:48 confirmed"]);
    assert_eq!(hops[1], "bridge:node1:br confirmed");
    cluster.reports.set(NODE_DRIVER, "node1", None);
    assert_eq!(cluster.hops("x")[1], "bridge:node1:br waiting", "no agent has reported");
    let key = Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"x".into());
    let links = cluster.path(&key).links.into_iter().map(|link| format!("{} > {}", link.from, link.to));
    let expected = [
        "bridge:node1:br > nic:node1:eth1",
        "nad:ns/x > bridge:node1:br",
        "nic:node1:eth1 > port:leaf1:1",
        "port:leaf1:1 > switch:spine1",
        "switch:spine1 > port:leaf2:48",
    ];
    assert_eq!(links.collect::<Vec<_>>(), expected);
}

#[test]
fn states_of_hops_are_those_of_the_core() {
    let point = point("p", "a", "ovs", &json!({ "BridgeName": "br" }));
    let mut cluster = Cluster::new([fabric(), vec![point, attachment("x", "p")]].concat());
    cluster.confirm();
    for (hop, driver, target, item) in [
        ("port:leaf1:1", "netconf", "leaf1", Item::port("1")),
        ("bridge:node1:br", NODE_DRIVER, "node1", Item::port("br")),
    ] {
        let state = |change: &dyn Fn(&mut Report)| cluster.state_after(hop, driver, target, change);
        let failed = |unreachable| {
            let failure = Failure { reason: "no".into(), retryable: true, unreachable };
            state(&|report| report.outcome = Outcome::Failed(failure.clone()))
        };
        // What is there stays confirmed when something else fails.
        assert_eq!((failed(true), failed(false)), (State::Unreachable, State::Confirmed), "{hop}");
        let refused = Rejection::permanent(item, "no");
        let unanswered = Rejection { unreachable: true, ..refused.clone() };
        let rejected = |rejections: &[Rejection]| state(&|report| report.rejected = rejections.to_vec());
        assert_eq!(rejected(std::slice::from_ref(&unanswered)), State::Unreachable, "{hop}");
        assert_eq!(rejected(&[unanswered.clone(), refused.clone()]), State::Refused, "{hop}");
    }
}

#[test]
fn report_counts_only_for_the_target_of_its_subject() {
    let point = point("p", "a", "ovs", &json!({ "BridgeName": "br" }));
    let mut cluster = Cluster::new([fabric(), vec![point, attachment("x", "p")]].concat());
    cluster.confirm();
    let mut forged = Report::clone(cluster.reports.get("netconf", "leaf1").expect("a report"));
    forged.outcome = Outcome::Failed(Failure { reason: "no".into(), retryable: true, unreachable: true });
    cluster.reports.set(NODE_DRIVER, "node2", Some(forged.into()));
    assert!(cluster.hops("x").contains(&"port:leaf1:1 confirmed".to_owned()));
}

#[test]
fn nodes_of_other_pools_are_on_no_path() {
    let points = ["a", "b"].map(|pool| point(pool, pool, "ovs", &json!({ "BridgeName": "br" })));
    let cluster =
        Cluster::new([fabric(), points.into(), vec![attachment("x", "a"), attachment("y", "b")]].concat());
    let bridges = |attachment: &str| {
        let hops = cluster.hops(attachment).into_iter();
        hops.filter(|hop| hop.starts_with("bridge")).collect::<Vec<_>>()
    };
    assert_eq!(bridges("x"), ["bridge:node1:br unknown"]);
    assert_eq!(bridges("y"), ["bridge:node2:br unknown"]);
}

#[test]
fn network_has_the_hops_of_all_its_attachments() {
    let points = ["a", "b"].map(|pool| point(pool, pool, "ovs", &json!({ "BridgeName": "br" })));
    let cluster =
        Cluster::new([fabric(), points.into(), vec![attachment("x", "a"), attachment("y", "b")]].concat());
    let path = cluster.path(&Key::cluster(Kind::L2Service, &"net".into()));
    let ids: Vec<&str> = path.hops.iter().map(|hop| hop.id.as_str()).collect();
    for id in ["nad:ns/x", "nad:ns/y", "bridge:node1:br", "bridge:node2:br", "port:leaf2:1", "port:leaf2:48"]
    {
        assert!(ids.contains(&id), "{id} in {ids:?}");
    }
}

#[test]
fn switch_has_its_ports_and_the_switches_at_its_links() {
    let point = point("p", "a", "ovs", &json!({ "BridgeName": "br" }));
    let mut cluster = Cluster::new([fabric(), vec![point, attachment("x", "p")]].concat());
    cluster.confirm();
    let path = cluster.path(&Key::cluster(Kind::FabricDevice, &"leaf2".into()));
    let hops = path.hops.iter().map(|hop| format!("{} {} {}", hop.id, hop.state.as_str(), hop.vlans));
    let expected =
        ["switch:leaf2 confirmed 100", "switch:spine1 confirmed 100", "port:leaf2:48 confirmed 100"];
    assert_eq!(hops.collect::<Vec<_>>(), expected);
    let links: Vec<(&str, &str)> =
        path.links.iter().map(|link| (link.from.as_str(), link.to.as_str())).collect();
    let expected = [("switch:leaf2", "port:leaf2:48"), ("switch:leaf2", "switch:spine1")];
    assert_eq!(links, expected);
}

#[test]
fn vlan_interface_of_a_nic_counts_as_the_nic() {
    let point = point("p", "a", "macvlan", &json!({ "Master": "eth1" }));
    let cluster = Cluster::new([fabric(), vec![point, attachment("x", "p")]].concat());
    let hops = cluster.hops("x");
    assert_eq!(hops[1..4], ["bridge:node1:eth1 unknown", "nic:node1:eth1 unknown", "port:leaf1:1 unknown"]);
}

#[test]
fn workload_of_a_pod_is_its_deployment() {
    let meta = |owner: &str, name: &str| -> ObjectMeta {
        serde_json::from_value(json!({
            "namespace": "ns", "name": "upf-5d9-x", "labels": { "pod-template-hash": "5d9" },
            "ownerReferences": [{ "apiVersion": "v1", "kind": owner, "name": name, "uid": "u", "controller": true }],
        }))
        .expect("metadata")
    };
    assert_eq!(pods::workload(&meta("ReplicaSet", "upf-5d9")), "Deployment/ns/upf");
    assert_eq!(pods::workload(&meta("ReplicaSet", "other")), "ReplicaSet/ns/other");
    assert_eq!(pods::workload(&meta("StatefulSet", "upf")), "StatefulSet/ns/upf");
    assert_eq!(pods::workload(&ObjectMeta { owner_references: None, ..meta("X", "y") }), "Pod/ns/upf-5d9-x");
}
