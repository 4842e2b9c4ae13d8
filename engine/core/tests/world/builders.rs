//! Builders of objects and pods with defaults for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_core::kinds::*;
use eno_core::{Event, Key, Kind, Labels, Name, Object, Pod, StoredCommand, Target, Uses};
use eno_schemas::*;
use serde_json::{Value, json};

/// An object whose spec is as `status.realized` spells it. A namespaced one is in the namespace `ns`.
pub fn object(kind: Kind, name: &str, spec: Value) -> Object {
    let is_namespaced =
        matches!(kind, Kind::L2ServiceAttachment | Kind::Bridge | Kind::PodNetworkConfig | Kind::PodConfig);
    let namespace = if is_namespaced { "ns" } else { "" };
    Object {
        key: Key { kind, namespace: namespace.into(), name: name.into() },
        uid: "".into(),
        generation: 1,
        created: 100,
        deleting: false,
        finalized: false,
        forget: false,
        verify: None,
        generated: false,
        labels: Labels::new(),
        unknown_opts: None,
        spec: Ok(Spec::from_json(kind, spec).unwrap()),
        status: None,
    }
}

pub fn device(name: &str, ports: &[(&str, LeadsTo)]) -> Object {
    let port =
        |(name, leads_to): &(&str, LeadsTo)| json!({ "Name": name, "Mode": "keep", "LeadsTo": leads_to });
    let ports: Vec<Value> = ports.iter().map(port).collect();
    let device = Device::new("127.0.0.1:830");
    object(Kind::FabricDevice, name, json!({ "Driver": "netconf", "Device": device, "Ports": ports }))
}

pub fn connection_point(name: &str, pool: Option<&str>) -> Object {
    let cni = |plugin| json!({ "SupportedInterfaceTypes": ["kernel"], "Plugin": plugin });
    let ovs = cni(json!({ "Name": "Ovs", "BridgeName": format!("br-{name}") }));
    let macvlan = cni(json!({ "Name": "Macvlan", "Master": "eth1" }));
    let spec = json!({ "SupportedCnis": [ovs, macvlan], "NodePool": pool, "Interfaces": ["eth1"] });
    object(Kind::ConnectionPoint, name, spec)
}

/// A NodePool of the nodes whose label has one of the values.
pub fn node_pool(name: &str, label: &str, values: &[&str]) -> Object {
    let selector = json!([{ "key": label, "operator": "In", "values": values }]);
    object(Kind::NodePool, name, json!({ "NodeSelector": selector }))
}

/// A Route of 30.0.0.0/8.
pub fn route(name: &str, next_hop: &str) -> Object {
    object(Kind::Route, name, json!({ "Prefix": "30.0.0.0/8", "NextHop": next_hop }))
}

/// A running pod in the namespace `ns`.
pub fn pod(name: &str, node: &str, labels: &[(&str, &str)]) -> Pod {
    Pod {
        uid: format!("uid-{name}").into(),
        namespace: "ns".into(),
        name: name.into(),
        uses: Uses::default(),
        labels: labels.iter().map(|(label, value)| (Name::from(*label), Name::from(*value))).collect(),
        node: Some(node.into()),
        host_network: false,
        container: Some(format!("containerd://{name}").into()),
        attached: Vec::new(),
    }
}

/// A pod that uses NetworkAttachmentDefinitions of the namespace `ns`.
pub fn pod_using(name: &str, uses: &[&str]) -> Pod {
    Pod {
        uses: Uses::Named(uses.iter().map(|nad| ("ns".into(), Name::from(*nad))).collect()),
        node: None,
        container: None,
        ..pod(name, "", &[])
    }
}

pub fn service(name: &str, vid: u16, networks: &[&str]) -> Object {
    object(Kind::L2Service, name, json!({ "SegmentationID": vid, "PhysicalNW": networks }))
}

pub fn subnet(name: &str, network: &str) -> Object {
    object(Kind::Subnet, name, json!({ "Ipam": "whereabouts", "Network": network }))
}

/// A router whose ports lead to ports of switches.
pub fn router(name: &str, ports: &[(&str, LeadsTo)]) -> Object {
    edit_spec(&device(name, ports), |spec| {
        let Spec::Device(spec) = spec else { unreachable!() };
        spec.device.role = DeviceRole::Router;
    })
}

/// A VRF that is local to these devices.
pub fn vrf(name: &str, devices: &[&str]) -> Object {
    let devices: Vec<Value> = devices.iter().map(|name| json!({ "Name": name })).collect();
    object(Kind::VRF, name, json!({ "Devices": devices }))
}

/// Leads a service into a VRF on a device.
pub fn vrf_attachment(name: &str, vrf: &str, service: &str, device: &str, addresses: &[&str]) -> Object {
    let interfaces = json!([{ "Device": device, "Addresses": addresses }]);
    let spec = json!({ "VRF": vrf, "L2Service": service, "Interfaces": interfaces });
    object(Kind::VRFAttachment, name, spec)
}

/// BGP sessions of the nodes of a ConnectionPoint with a VRF, over a service.
pub fn bgp_session_group(name: &str, vrf: &str, service: &str, point: &str) -> Object {
    let spec = json!({
        "VRF": vrf, "L2Service": service, "ConnectionPoint": point, "LocalASN": 64512, "PeerASN": 65000,
        "AddressFamilies": ["V4"], "HoldTime": 90, "KeepaliveTime": 30, "AcceptPrefixes": ["198.51.100.0/24"],
    });
    object(Kind::BGPSessionGroup, name, spec)
}

/// The service with these Subnets.
pub fn with_subnets(service: &Object, subnets: &[&str]) -> Object {
    edit_spec(service, |spec| {
        let Spec::Service(spec) = spec else { unreachable!() };
        spec.subnets = subnets.iter().map(|name| Name::from(*name)).collect();
    })
}

pub fn attachment(name: &str, services: &[&str], point: &str) -> Object {
    let vlan_type = if services.len() == 1 { VlanType::Access } else { VlanType::SelectiveTrunk };
    let spec = json!({
        "L2Services": services, "ConnectionPoint": point, "PodInterfaceType": "kernel", "VlanType": vlan_type,
    });
    object(Kind::L2ServiceAttachment, name, spec)
}

/// A copy of the object with a changed spec.
pub fn edit_spec(object: &Object, change: impl FnOnce(&mut Spec)) -> Object {
    let mut object = object.clone();
    let mut spec = object.spec.clone().unwrap();
    change(&mut spec);
    object.spec = Ok(spec);
    object
}

/// The object with another creationTimestamp, in Unix seconds.
pub fn created(mut object: Object, at: i64) -> Object {
    object.created = at;
    object
}

pub fn to_name(name: &str) -> Name {
    Arc::from(name)
}

/// A veth on a pod bridge.
pub fn veth(name: &str, bridge: &str, cidr: &str) -> PodLinkSpec {
    let master = Master::Bridge { bridge: bridge.into(), vlans: None };
    PodLinkSpec {
        cidrs: vec![cidr.parse().unwrap()],
        ..pod_link(name, LinkKind::Veth { master: Some(master) })
    }
}

pub fn pod_link(name: &str, kind: LinkKind) -> PodLinkSpec {
    let kind = serde_json::to_value(kind).unwrap();
    serde_json::from_value(json!({ "name": name, "kind": kind, "up": true })).unwrap()
}

pub fn pod_config(name: &str, links: Vec<PodLinkSpec>) -> Object {
    object(Kind::PodConfig, name, json!(PodLinksSpec { links, ..PodLinksSpec::default() }))
}

pub fn bridge(object_name: &str, name: &str, cidrs: &[&str]) -> Object {
    object(Kind::Bridge, object_name, json!({ "name": name, "cidrs": cidrs }))
}

/// The [`PortBefore`] of each port that has one, as a driver reports it.
pub fn before_by_port(ports: &[FabricPort]) -> BTreeMap<String, PortBefore> {
    ports.iter().filter_map(|port| Some((port.name.clone(), port.before.clone()?))).collect()
}

/// The ports that a driver reports as closed: those that carry VLANs.
pub fn closed_ports(ports: &BTreeMap<String, VlanSet>) -> BTreeSet<String> {
    let carrying = ports.iter().filter(|(_, vlans)| !vlans.is_empty());
    carrying.map(|(name, _)| name.clone()).collect()
}

/// A command as NATS stores it.
pub fn stored_command(
    target: &Target,
    driver: &str,
    generation: Generation,
    desired: Desired,
    sequence: u64,
) -> StoredCommand {
    let name = target.to_string();
    let command = Command { driver: driver.into(), target: name, generation, desired, transaction: None };
    StoredCommand { target: target.clone(), driver: driver.into(), sequence, command: Some(command) }
}

/// The commands of a former engine.
pub fn stored_commands(commands: &BTreeMap<Target, Desired>) -> Event {
    let stored = commands.iter().map(|(target, desired)| {
        let generation = Generation { term: 0, sequence: 0, hash: desired.hash() };
        stored_command(target, "netconf", generation, desired.clone(), 1)
    });
    Event::StoredCommands(stored.collect())
}
