//! The reference scenario: three stages of user actions, each with one possible final state.

use eno_simulator::{Link, LinkEnd, Node, NodeInterface, PhysicalNetwork, SwitchInfo, SwitchSpec, Topology};
use serde_json::{Value, json};

/// The namespace of all runs.
pub(super) const NAMESPACE: &str = "crash";
/// The switch whose FabricDevice exists only during a run.
pub(super) const SPARE: &str = "spare";
/// The router with the scenario's VRF.
const ROUTER: &str = "gw1";
/// The kinds of the scenario's objects.
pub(super) const KINDS: [&str; 8] = [
    "FabricDevice",
    "NodePool",
    "ConnectionPoint",
    "Subnet",
    "L2Service",
    "L2ServiceAttachment",
    "VRF",
    "VRFAttachment",
];

/// A stage of the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// All objects are created at once.
    Create,
    /// A service gets another ID, an attachment another service, a Subnet another address, the pool a node, the device
    /// a port, and the VRFAttachment another address. At most one input of each object changes, since two changes may be seen together or one after the
    /// other.
    Change,
    /// All objects are deleted at once.
    Delete,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 3] = [Self::Create, Self::Change, Self::Delete];
}

/// `leaf1` and `leaf2` with a link, `node1` and `node2` on them, and `dc-gw` and the router `gw1` behind `leaf2`;
/// `spare` by itself with `node3` and `spare-gw`.
pub fn topology() -> Topology {
    let ports = || (1..=4).map(|n| format!("Ethernet{n}")).collect();
    let end = |switch: &str| LinkEnd { switch: switch.to_owned(), port: "Ethernet3".to_owned() };
    let node = |name: &str, switch: &str| Node {
        name: name.to_owned(),
        interfaces: vec![NodeInterface {
            name: "eth1".to_owned(),
            switch: switch.to_owned(),
            port: "Ethernet1".to_owned(),
        }],
    };
    let network = |name: &str, switch: &str| PhysicalNetwork {
        name: name.to_owned(),
        switch: switch.to_owned(),
        port: "Ethernet2".to_owned(),
    };
    let mut topology = Topology {
        switches: ["leaf1", "leaf2", SPARE].map(|name| SwitchSpec::new(name.to_owned(), ports())).into(),
        links: vec![Link { a: end("leaf1"), b: end("leaf2") }],
        nodes: vec![node("node1", "leaf1"), node("node2", "leaf2"), node("node3", SPARE)],
        physical_networks: vec![network("dc-gw", "leaf2"), network("spare-gw", SPARE)],
    };
    topology.add_router(ROUTER, "openconfig", &["leaf2"]);
    topology
}

/// The VLAN ID of the service whose ID changes.
pub(super) fn service_id(stage: Stage) -> u16 {
    if stage == Stage::Create { 100 } else { 110 }
}

/// The manifests of a run in a stage; those of the last stage are to be deleted.
pub(super) fn manifests(run: &str, stage: Stage, spare: &SwitchInfo, callback: &str) -> String {
    let first = stage == Stage::Create;
    let pick = |create: &'static str, change: &'static str| if first { create } else { change };
    let object = |kind: &str, name: &str, namespace: &str, spec: &str| {
        let metadata = format!("name: {name}, labels: {{run: {run}}}{namespace}");
        crate::object(kind, &metadata, &format!("{spec}, CallbackURL: '{callback}'"))
    };
    let cluster = |kind: &str, name: String, spec: &str| object(kind, &name, "", spec);
    let attachment = |name: &str, spec: &str| {
        object("L2ServiceAttachment", &format!("{run}-{name}"), &format!(", namespace: {NAMESPACE}"), spec)
    };
    let device = format!(
        "Address: '{}', HostKey: '{}', Credentials: {{SecretName: fabric-{SPARE}}}, Ports: [{{Name: Ethernet2, Mode: trunk, \
         PhysicalNW: spare-gw}}{}]",
        spare.netconf,
        spare.host_key,
        pick("", ", {Name: Ethernet1, Mode: trunk, Node: node3, Interface: eth1}"),
    );
    [
        cluster("FabricDevice", format!("{run}-spare"), &device),
        cluster(
            "NodePool",
            format!("{run}-pool"),
            &format!(
                "NodeSelector: {{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{}]}}]}}",
                pick("node1", "node1, node2")
            ),
        ),
        cluster(
            "ConnectionPoint",
            format!("{run}-point"),
            &format!(
                "NodePool: {run}-pool, Interfaces: [eth1], SupportedCnis: [{{Name: ovs, SupportedInterfaceTypes: [kernel], \
                 Opts: '{{\"BridgeName\": \"br0\"}}'}}]"
            ),
        ),
        cluster(
            "Subnet",
            format!("{run}-net"),
            &format!("Type: v4, Ipam: whereabouts, Mask: 24, Address: {}", pick("10.40.1.0", "10.40.2.0")),
        ),
        cluster(
            "L2Service",
            format!("{run}-a"),
            &format!("SegmentationID: {}, PhysicalNW: [dc-gw]", service_id(stage)),
        ),
        cluster("L2Service", format!("{run}-b"), "SegmentationID: 101"),
        cluster(
            "L2Service",
            format!("{run}-c"),
            &format!("SegmentationID: 102, PhysicalNW: [spare-gw], Subnets: [{run}-net]"),
        ),
        cluster("L2Service", format!("{run}-d"), "SegmentationID: 103"),
        cluster("Subnet", format!("{run}-lan"), "Type: v4, Ipam: whereabouts, Mask: 24, Address: 10.50.1.0"),
        cluster(
            "L2Service",
            format!("{run}-e"),
            &format!("SegmentationID: 104, PhysicalNW: [dc-gw], Subnets: [{run}-lan]"),
        ),
        cluster(
            "VRF",
            format!("{run}-vrf"),
            &format!(
                "Devices: [{{Name: {ROUTER}, RouteDistinguisher: '65000:1'}}], ImportTargets: ['65000:1'], \
                 ExportTargets: ['65000:1']"
            ),
        ),
        cluster(
            "VRFAttachment",
            format!("{run}-routed"),
            &format!(
                "VRF: {run}-vrf, L2Service: {run}-e, Interfaces: [{{Device: {ROUTER}, Addresses: [{}]}}]",
                pick("10.50.1.1/24", "10.50.1.2/24")
            ),
        ),
        attachment(
            "x",
            &format!("ConnectionPoint: {run}-point, VlanType: access, L2Services: [{run}-a]"),
        ),
        attachment(
            "y",
            &format!(
                "ConnectionPoint: {run}-point, VlanType: selectivetrunk, L2Services: [{}]",
                if first { format!("{run}-b") } else { format!("{run}-b, {run}-d") }
            ),
        ),
    ]
    .concat()
}

/// Expected status fields at the end of a stage beyond the phase; `null`: absent. The run is called `RUN`.
pub(super) fn expected_statuses(stage: Stage) -> Vec<(&'static str, Value)> {
    let service = |id: u16, points: Value| json!({"grantedID": id, "connectionPoints": points});
    let point = || json!(["RUN-point"]);
    match stage {
        Stage::Create | Stage::Change => vec![
            ("L2Service RUN-a", service(service_id(stage), point())),
            ("L2Service RUN-b", service(101, point())),
            ("L2Service RUN-c", service(102, Value::Null)),
            ("L2Service RUN-d", service(103, if stage == Stage::Create { Value::Null } else { point() })),
            ("L2Service RUN-e", service(104, Value::Null)),
        ],
        Stage::Delete => Vec::new(),
    }
}

/// The objects of a run, named as in callbacks.
pub(super) fn objects(run: &str) -> Vec<String> {
    let cluster = [
        ("FabricDevice", "spare"),
        ("NodePool", "pool"),
        ("ConnectionPoint", "point"),
        ("Subnet", "net"),
        ("L2Service", "a"),
        ("L2Service", "b"),
        ("L2Service", "c"),
        ("L2Service", "d"),
        ("Subnet", "lan"),
        ("L2Service", "e"),
        ("VRF", "vrf"),
        ("VRFAttachment", "routed"),
    ];
    let cluster = cluster.map(|(kind, name)| format!("{kind} {run}-{name}"));
    let attachments = ["x", "y"].map(|name| format!("L2ServiceAttachment {NAMESPACE}/{run}-{name}"));
    cluster.into_iter().chain(attachments).collect()
}
