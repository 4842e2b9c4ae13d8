//! What an uninstall removes, what it refuses, and what stays. Pure judgements of what was read before.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::forecast::{Change, ClusterState, Key, Kind, forecast, is_namespaced, kind};
use eno_engine::observation::{DesiredState, Observation};
use eno_schemas::VlanSet;
use serde_json::Value;

use crate::install::render::DEVICES;
use crate::install::requirements::{Permission, Refusal};

/// Maximum number of names in one line.
const MAX_NAMES: usize = 8;

/// What puts the CNI plugin on nodes.
const AGENTS: &str = "DaemonSet eno-node/eno-agent";

/// What happens to the objects of ENO's kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// They are deleted, and the engine removes their networks first.
    Remove,
    /// They are deleted at once. Their networks stay.
    Abandon,
    /// They stay with their kinds and networks, for a later installation.
    Keep,
}

/// What the caller asks for.
#[derive(Clone, Debug)]
pub struct Request {
    /// What happens to the objects.
    pub objects: Objects,
    /// FabricDevices that are given up: their VLANs stay.
    pub forget: BTreeSet<String>,
}

/// What was read of a cluster.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The objects of ENO's kinds.
    pub cluster: ClusterState,
    /// The operator's objects that exist, as `Kind [namespace/]name`.
    pub operator: Vec<String>,
    /// The Secrets in the namespace of the switches' logins that the installation did not make. `None`: they may
    /// not be listed.
    pub logins: Option<Vec<String>>,
    /// The claims of NATS's volumes.
    pub claims: Vec<String>,
    /// Number of NetworkAttachmentDefinitions, if the installation defined them.
    pub nads: Option<usize>,
    /// The engine that leads.
    pub leader: Option<String>,
    /// What the caller may not do.
    pub missing_permissions: Vec<Permission>,
}

impl Inventory {
    /// Whether nothing of ENO is in the cluster.
    pub fn is_empty(&self) -> bool {
        self.operator.is_empty() && self.cluster.keys().next().is_none()
    }

    /// Number of NetworkAttachmentDefinitions that stay and need their definition; `None`: it is not the installation's.
    pub fn remaining_nads(&self, request: &Request) -> Option<usize> {
        let removed = if request.objects == Objects::Remove { left_behind(self).nads.len() } else { 0 };
        self.nads.map(|count| count.saturating_sub(removed))
    }

    fn devices(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.cluster.keys().filter(|key| key.kind == Kind::FabricDevice).filter_map(|key| {
            let object = self.cluster.object(key)?;
            Some((&*key.name, &object.data))
        })
    }

    /// The FabricDevices that don't answer.
    fn unreachable(&self) -> impl Iterator<Item = &str> {
        self.devices().filter(|(_, data)| is_unreachable(data)).map(|(name, _)| name)
    }
}

fn is_unreachable(device: &Value) -> bool {
    let conditions = device.pointer("/status/conditions").and_then(Value::as_array);
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Reachable" && condition["status"] == "False")
}

/// All reasons why nothing is removed.
pub fn refusals(inventory: &Inventory, request: &Request) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |what: String, remedy: String| refusals.push(Refusal { what, remedy });
    if !inventory.missing_permissions.is_empty() {
        let list: Vec<_> = inventory.missing_permissions.iter().map(ToString::to_string).collect();
        refuse(
            format!("you may not {}", list.join(", ")),
            "have a cluster admin bind the ClusterRole eno-installer of deploy/rbac-install to you"
                .to_owned(),
        );
        // Without these rights nothing else is known for certain.
        return refusals;
    }
    let unknown: Vec<_> = request
        .forget
        .iter()
        .filter(|name| !inventory.devices().any(|(device, _)| device == *name))
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        refuse(
            format!("there is no FabricDevice {}", unknown.join(", ")),
            "name those that kubectl get fabricdevices shows".to_owned(),
        );
    }
    let count = inventory.cluster.keys().count();
    if request.objects != Objects::Remove || count == 0 {
        return refusals;
    }
    if inventory.leader.is_none() {
        refuse(
            format!("no engine leads, and {count} objects have networks that only an engine removes"),
            "repair the engine (eno check), or install again; or let the networks stay: \
             eno uninstall --abandon --dry-run lists them, --keep-objects keeps the objects too"
                .to_owned(),
        );
    }
    for (object, user) in in_use(inventory) {
        refuse(
            format!("{object} is {user}"),
            "delete these pods, or take the network from their labels and annotations".to_owned(),
        );
    }
    let left = left_behind(inventory);
    for name in inventory.unreachable().filter(|name| !request.forget.contains(*name)) {
        let keeps = left.switches.get(name).map_or("no VLAN".to_owned(), ToString::to_string);
        refuse(
            format!("FabricDevice {name} does not answer, and would keep {keeps}"),
            format!("restore it, or let it go as it is with --forget {name}"),
        );
    }
    refusals
}

/// Objects that pods keep from being deleted, and the pods.
fn in_use(inventory: &Inventory) -> Vec<(String, String)> {
    let deletions: Vec<_> = inventory.cluster.keys().cloned().map(Change::Delete).collect();
    let is_for_pods = |name: &str| kind(name).is_some_and(is_namespaced);
    let objects = forecast(&inventory.cluster, &deletions).objects.into_iter();
    let stays = objects.filter(|object| is_for_pods(object.kind)).filter_map(|object| {
        let message = object.after?.message;
        let namespace = object.namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        Some((format!("{} {namespace}{}", object.kind, object.name), message))
    });
    stays.collect()
}

/// The VLANs of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchVlans {
    cluster: String,
    vlans: VlanSet,
    ports: Vec<String>,
}

impl std::fmt::Display for SwitchVlans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VLANs {} (named eno-{}-VLAN)", self.vlans, self.cluster)?;
        if !self.ports.is_empty() {
            write!(f, " on ports {}", listed(&self.ports))?;
        }
        Ok(())
    }
}

/// What an uninstall without an engine leaves.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// By FabricDevice.
    pub switches: BTreeMap<String, SwitchVlans>,
    /// NetworkAttachmentDefinitions, as `namespace/name`.
    pub nads: Vec<String>,
    /// Peers of BGP speakers.
    pub peers: Vec<String>,
    /// Nodes with interfaces and bridges.
    pub nodes: Vec<String>,
}

/// What ENO's objects have on switches, on nodes and as NADs.
pub fn left_behind(inventory: &Inventory) -> Left {
    let DesiredState { switches, network_attachment_definitions, speaker_peers, nodes } =
        Observation::new(&inventory.cluster).desired();
    // A forecast knows no identifier of the cluster.
    let cluster = |data| Value::pointer(data, "/status/clusterID")?.as_str();
    let clusters: BTreeMap<&str, &str> =
        inventory.devices().filter_map(|(name, data)| Some((name, cluster(data)?))).collect();
    let switches = switches
        .into_iter()
        .filter(|(_, (_, desired))| !desired.vlans.is_empty())
        .map(|(name, (_, desired))| {
            let carries = |port: &&eno_schemas::FabricPort| !port.vlans.is_empty();
            let ports = desired.ports.iter().filter(carries).map(|port| port.name.clone()).collect();
            let vlans = desired.vlans.iter().map(|vlan| vlan.vid).collect();
            let cluster = clusters.get(&*name).copied().unwrap_or("ID").to_owned();
            (name, SwitchVlans { cluster, vlans, ports })
        })
        .collect();
    Left {
        switches,
        nads: network_attachment_definitions.into_keys().collect(),
        peers: speaker_peers.into_iter().collect(),
        nodes: nodes.into_keys().collect(),
    }
}

/// Whether an object of the operator stays with the objects of ENO's kinds: the kinds, and the namespace of logins.
pub fn belongs_to_objects(kind: &str, name: &str) -> bool {
    kind == "CustomResourceDefinition" || (kind == "Namespace" && name == DEVICES)
}

/// What goes and what stays, a line each.
pub fn summary(inventory: &Inventory, request: &Request) -> Vec<String> {
    let mut lines = Vec::new();
    let mut kinds: BTreeMap<Kind, Vec<String>> = BTreeMap::new();
    for key in inventory.cluster.keys() {
        kinds.entry(key.kind).or_default().push(name(key));
    }
    let left = left_behind(inventory);
    let stays = request.objects != Objects::Remove;
    let verb = if request.objects == Objects::Keep { "keeps" } else { "deletes" };
    for (kind, names) in kinds {
        lines.push(format!("{verb} {} {kind}: {}", names.len(), listed(&names)));
    }
    for (device, vlans) in &left.switches {
        let verb = if stays || request.forget.contains(device) { "leaves on" } else { "removes from" };
        lines.push(format!("{verb} switch {device}: {vlans}"));
    }
    let verb = if stays { "leaves" } else { "removes" };
    if !left.nads.is_empty() {
        lines.push(format!("{verb} NetworkAttachmentDefinitions {}", listed(&left.nads)));
    }
    if !left.peers.is_empty() {
        lines.push(format!("{verb} BGPPeers {}", listed(&left.peers)));
    }
    if !left.nodes.is_empty() {
        lines.push(format!("{verb} interfaces and bridges of ENO on nodes {}", listed(&left.nodes)));
    }
    // Pods that still have addresses need the plugin until they end.
    if inventory.operator.iter().any(|object| object == AGENTS) {
        lines.push("leaves the CNI plugin eno-ipam and the folder /var/lib/eno/ipam on nodes".to_owned());
    }
    let goes = |object: &&String| {
        let (kind, name) = object.split_once(' ').unwrap_or_default();
        request.objects != Objects::Keep || !belongs_to_objects(kind, name)
    };
    let operator = inventory.operator.iter().filter(goes).count();
    if operator > 0 {
        lines.push(format!("deletes {operator} objects of the operator, with its namespaces"));
    }
    if !inventory.claims.is_empty() {
        lines.push(format!("deletes the volumes of NATS: {}", listed(&inventory.claims)));
    }
    let verb = if request.objects == Objects::Keep { "keeps" } else { "deletes" };
    match &inventory.logins {
        None => lines.push(format!("{verb} all Secrets of namespace eno-devices; you may not list them")),
        Some(logins) if logins.is_empty() => {}
        Some(logins) => lines.push(format!("{verb} Secrets of namespace eno-devices: {}", listed(logins))),
    }
    if let Some(count) = inventory.remaining_nads(request).filter(|count| *count > 0) {
        lines.push(format!("keeps the definition of NetworkAttachmentDefinitions: {count} remain"));
    }
    lines
}

fn name(key: &Key) -> String {
    match key.namespace() {
        Some(namespace) => format!("{namespace}/{}", key.name),
        None => key.name.to_string(),
    }
}

/// Some names, and how many more there are.
fn listed(names: &[String]) -> String {
    let (shown, rest) = names.split_at(names.len().min(MAX_NAMES));
    match rest.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use eno_engine::forecast::Part;
    use serde_json::json;

    use super::*;

    fn object(kind: Kind, name: &str, spec: &Value, status: &Value) -> (Part, Value) {
        let value = json!({"apiVersion": "eno.k8s.io/v1alpha1", "kind": kind.as_str(), "spec": spec,
            "status": status, "metadata": {"name": name, "uid": name, "generation": 1}});
        (Part::Objects(kind), value)
    }

    /// A network from a node at one switch to a gateway at another, which does not answer.
    fn objects() -> Vec<(Part, Value)> {
        let device = |name: &str, ports: Value, reachable: &str| {
            let status = json!({"phase": "ready", "clusterID": "k1",
                "conditions": [{"type": "Reachable", "status": reachable, "message": "no answer"}]});
            let spec = json!({"Driver": "netconf", "Address": format!("{name}:830"), "Ports": ports});
            object(Kind::FabricDevice, name, &spec, &status)
        };
        let plain = |kind, name, spec| object(kind, name, &spec, &json!({}));
        let point = json!({"NodePool": "workers", "Interfaces": ["eth1"], "SupportedCnis": [
            {"Name": "ovs", "SupportedInterfaceTypes": ["kernel"], "Opts": "{\"BridgeName\": \"br-data\"}"}]});
        let attachment = json!({"VlanType": "access", "ConnectionPoint": "data", "L2Services": ["blue"]});
        let mut attachment = plain(Kind::L2ServiceAttachment, "oam", attachment);
        attachment.1["metadata"]["namespace"] = json!("cnf-a");
        let node = json!({"metadata": {"name": "n1", "labels": {"rack": "a"}}, "spec": {}, "status": {}});
        vec![
            (Part::Nodes, node),
            device(
                "leaf1",
                json!([{"Name": "p1", "Node": "n1", "Interface": "eth1"}, {"Name": "up", "Device": "leaf2", "Port": "up"}]),
                "True",
            ),
            device(
                "leaf2",
                json!([{"Name": "p2", "PhysicalNW": "dc"}, {"Name": "up", "Device": "leaf1", "Port": "up"}]),
                "False",
            ),
            plain(Kind::PhysicalNetwork, "dc", json!({"SegmentationIDs": ["100-199"]})),
            plain(Kind::NodePool, "workers", json!({"NodeSelector": {"matchLabels": {"rack": "a"}}})),
            plain(Kind::ConnectionPoint, "data", point),
            plain(Kind::L2Service, "blue", json!({"SegmentationID": 100, "PhysicalNW": ["dc"]})),
            attachment,
        ]
    }

    fn inventory() -> Inventory {
        Inventory {
            cluster: ClusterState::stored(objects(), Vec::new(), "default").expect("a cluster"),
            operator: ["Namespace eno-system", "Namespace eno-devices"].map(str::to_owned).into(),
            leader: Some("engine-1".to_owned()),
            ..Inventory::default()
        }
    }

    fn request(objects: Objects, forget: &[&str]) -> Request {
        Request { objects, forget: forget.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// A change of the inventory, a request, and what the refusals contain.
    type Case<'a> = (&'a dyn Fn(&mut Inventory), Request, &'a [&'a str]);

    fn texts(inventory: &Inventory, request: &Request) -> String {
        refusals(inventory, request).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn networks_that_nobody_would_remove_are_a_refusal() {
        let keeps = "FabricDevice leaf2 does not answer, and would keep VLANs 100 (named eno-k1-VLAN) on ports p2, up";
        let right = Permission {
            verb: "delete",
            group: String::new(),
            resource: "namespaces".into(),
            namespace: String::new(),
            name: String::new(),
        };
        let no_leader = |inventory: &mut Inventory| inventory.leader = None;
        let no_objects = |inventory: &mut Inventory| {
            inventory.cluster = ClusterState::default();
            inventory.leader = None;
        };
        let pod = |inventory: &mut Inventory| {
            let pod = json!({"metadata": {"name": "cnf-1", "namespace": "cnf-a", "uid": "u", "labels":
                {"attach.eno.k8s.io/oam": "net1"}}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
            let objects = objects().into_iter().chain([(Part::Pods, pod)]);
            inventory.cluster = ClusterState::stored(objects, Vec::new(), "default").expect("a cluster");
        };
        let no_right = move |inventory: &mut Inventory| inventory.missing_permissions = vec![right.clone()];
        let cases: [Case<'_>; 10] = [
            (&|_| {}, request(Objects::Remove, &[]), &[keeps]),
            (&|_| {}, request(Objects::Remove, &["leaf2"]), &[]),
            (&|_| {}, request(Objects::Remove, &["leaf2", "x"]), &["no FabricDevice x"]),
            (&no_leader, request(Objects::Remove, &["leaf2"]), &["no engine leads, and 7 objects"]),
            (&no_leader, request(Objects::Remove, &[]), &["no engine leads", keeps]),
            (&no_leader, request(Objects::Abandon, &[]), &[]),
            (&no_leader, request(Objects::Keep, &[]), &[]),
            (&no_objects, request(Objects::Remove, &[]), &[]),
            (&pod, request(Objects::Remove, &["leaf2"]), &["L2ServiceAttachment cnf-a/oam is in use by pod"]),
            (&no_right, request(Objects::Abandon, &[]), &["you may not delete namespaces"]),
        ];
        for (change, request, expected) in cases {
            let mut inventory = inventory();
            change(&mut inventory);
            let found = refusals(&inventory, &request);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            let text = texts(&inventory, &request);
            assert!(expected.iter().all(|one| text.contains(one)), "{text}\nlacks one of\n{expected:?}");
        }
    }

    #[test]
    fn summary_names_what_goes_and_what_stays() {
        let inventory = Inventory {
            logins: Some(vec!["leaf-login".into()]),
            claims: vec!["data-eno-nats-0".into()],
            nads: Some(2),
            operator: [inventory().operator, vec![AGENTS.to_owned()]].concat(),
            ..inventory()
        };
        let lines = |objects, forget: &[&str]| summary(&inventory, &request(objects, forget)).join("\n");
        for (text, expected) in [
            (
                lines(Objects::Remove, &["leaf2"]),
                [
                    "deletes 1 L2Service: blue",
                    "removes from switch leaf1: VLANs 100",
                    "leaves on switch leaf2: VLANs 100",
                    "deletes Secrets of namespace eno-devices: leaf-login",
                    "deletes the volumes of NATS",
                    "leaves the CNI plugin eno-ipam",
                ],
            ),
            (
                lines(Objects::Abandon, &[]),
                [
                    "deletes 1 L2Service: blue",
                    "leaves on switch leaf1",
                    "leaves on switch leaf2",
                    "deletes Secrets of namespace eno-devices",
                    "keeps the definition of NetworkAttachmentDefinitions: 2 remain",
                    "leaves the CNI plugin eno-ipam",
                ],
            ),
            (
                lines(Objects::Keep, &[]),
                [
                    "keeps 1 L2Service: blue",
                    "leaves on switch leaf1",
                    "leaves on switch leaf2",
                    "keeps Secrets of namespace eno-devices",
                    "deletes 2 objects of the operator",
                    "leaves the CNI plugin eno-ipam",
                ],
            ),
        ] {
            for line in expected {
                assert!(text.contains(line), "{text}\nlacks {line:?}");
            }
        }
        let unknown = summary(&self::inventory(), &request(Objects::Remove, &[])).join("\n");
        assert!(
            unknown.contains("deletes all Secrets of namespace eno-devices; you may not list"),
            "{unknown}"
        );
        let remaining = |objects| inventory.remaining_nads(&request(objects, &[]));
        assert_eq!((remaining(Objects::Remove), remaining(Objects::Abandon)), (Some(1), Some(2)));
        assert!(Inventory::default().is_empty() && !inventory.is_empty());
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<_> = (1..=10).map(|number| number.to_string()).collect();
        assert_eq!(listed(&names), "1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
        assert_eq!(listed(&names[..1]), "1");
    }
}
