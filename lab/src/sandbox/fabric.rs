//! The objects that describe the simulated fabric to the engine.

use std::collections::{BTreeMap, BTreeSet};

use eno_nbi_crds::{
    Callbacks, Credentials, Drift, FabricDevice, FabricDeviceSpec, FabricPort, PhysicalNetwork,
    PhysicalNetworkSpec, PortMode,
};
use eno_schemas::DeviceRole;
use eno_simulator::{LinkEnd, Role, SwitchInfo, Topology};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeStatus, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::openstack::VM_POOL;
use crate::manifests::DEVICES_NAMESPACE;

/// The label of the nodes of the default pool, and its value.
pub const POOL: (&str, &str) = ("eno.k8s.io/pool", "workers");

/// The Node objects of a topology's machines, with labels that a kubelet would not set.
pub(super) fn nodes<'a>(machines: impl IntoIterator<Item = &'a str>) -> Vec<Node> {
    let node = |name: &str| Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([
                ("kubernetes.io/hostname".to_owned(), name.to_owned()),
                ("kubernetes.io/os".to_owned(), "linux".to_owned()),
                (POOL.0.to_owned(), POOL.1.to_owned()),
            ])),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    machines.into_iter().map(node).collect()
}

/// The Node objects of VMs without a machine.
pub(super) fn vms<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Node> {
    let mut nodes = nodes(names);
    let labels = nodes.iter_mut().flat_map(|node| &mut node.metadata.labels);
    labels.for_each(|labels| drop(labels.insert(POOL.0.to_owned(), VM_POOL.to_owned())));
    nodes
}

/// The status of a ready Node, to be applied to its subresource.
pub(super) fn ready_node(name: &str) -> Node {
    Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        status: Some(NodeStatus {
            addresses: Some(vec![NodeAddress { type_: "Hostname".to_owned(), address: name.to_owned() }]),
            conditions: Some(vec![NodeCondition {
                type_: "Ready".to_owned(),
                status: "True".to_owned(),
                reason: Some("Sandbox".to_owned()),
                message: Some("a machine of the simulated fabric, without a kubelet".to_owned()),
                ..NodeCondition::default()
            }]),
            ..NodeStatus::default()
        }),
        ..Node::default()
    }
}

/// The Secret with which the netconf driver logs in to a switch.
pub(super) fn secret(switch: &SwitchInfo) -> Secret {
    let values = [("username", switch.username.as_str()), ("password", &switch.password)];
    opaque_secret(&secret_name(&switch.name), values)
}

/// A Secret in the namespace of the drivers' credentials.
pub(super) fn opaque_secret<'a>(name: &str, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Secret {
    let value = |(key, value): (&str, &str)| (key.to_owned(), ByteString(value.as_bytes().to_vec()));
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(DEVICES_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(values.into_iter().map(value).collect()),
        ..Secret::default()
    }
}

/// The FabricDevice of a switch: the topology's cables are its ports.
pub(super) fn device(topology: &Topology, switch: &SwitchInfo) -> FabricDevice {
    let ports = ports(topology, &switch.name);
    let spec = device_spec("netconf", &switch.netconf.to_string(), &secret_name(&switch.name), ports);
    let is_router = topology.switches.iter().any(|one| one.name == switch.name && one.role == Role::Router);
    let role = if is_router { DeviceRole::Router } else { DeviceRole::Switch };
    FabricDevice::new(
        &switch.name,
        FabricDeviceSpec { role, host_key: Some(switch.host_key.clone()), ..spec },
    )
}

/// A FabricDevice with these ports, whose login is in a Secret.
pub(super) fn device_spec(
    driver: &str,
    address: &str,
    secret_name: &str,
    ports: Vec<FabricPort>,
) -> FabricDeviceSpec {
    FabricDeviceSpec {
        driver: driver.to_owned(),
        address: address.to_owned(),
        dialect: None,
        credentials: Some(Credentials { secret_name: secret_name.to_owned() }),
        host_key: None,
        role: DeviceRole::Switch,
        adopt: None,
        adopt_vrfs: Vec::new(),
        neutron: None,
        drift: Drift::Repair,
        audit_interval: None,
        ports,
        callbacks: Callbacks::default(),
    }
}

/// The PhysicalNetworks of a topology, each once, with all VLAN IDs allowed.
pub(super) fn networks(topology: &Topology) -> Vec<PhysicalNetwork> {
    let names: BTreeSet<_> = topology.physical_networks.iter().map(|network| &network.name).collect();
    names.into_iter().map(|name| PhysicalNetwork::new(name, physical_network())).collect()
}

/// A PhysicalNetwork with all VLAN IDs allowed.
pub(super) fn physical_network() -> PhysicalNetworkSpec {
    PhysicalNetworkSpec {
        description: None,
        segmentation_ids: vec!["1-4094".to_owned()],
        namespaces: None,
        unmanaged: false,
        callbacks: Callbacks::default(),
    }
}

fn secret_name(switch: &str) -> String {
    format!("fabric-{switch}")
}

fn ports(topology: &Topology, switch: &str) -> Vec<FabricPort> {
    let lags = topology.switches.iter().filter(|spec| spec.name == switch).flat_map(|spec| &spec.lags);
    let lags: Vec<_> = lags.collect();
    let lag = |name: &str| lags.iter().find(|(_, members)| members.iter().any(|member| member == name));
    // Ports of some vendors are access ports by default.
    let port = |name: &str| FabricPort {
        name: name.to_owned(),
        mode: Some(PortMode::Trunk),
        lag: lag(name).map(|(lag, _)| (*lag).clone()),
        ..FabricPort::default()
    };
    let to_node = topology.nodes.iter().flat_map(|node| {
        node.interfaces.iter().filter(|interface| interface.switch == switch).map(|interface| FabricPort {
            node: Some(node.name.clone()),
            interface: Some(interface.name.clone()),
            ..port(&interface.port)
        })
    });
    let to_network = topology
        .physical_networks
        .iter()
        .filter(|network| network.switch == switch)
        .map(|network| FabricPort { physical_nw: Some(network.name.clone()), ..port(&network.port) });
    let cable = |here: &LinkEnd, there: &LinkEnd| {
        (here.switch == switch).then(|| FabricPort {
            device: Some(there.switch.clone()),
            port: Some(there.port.clone()),
            ..port(&here.port)
        })
    };
    let to_switch =
        topology.links.iter().flat_map(|link| [cable(&link.a, &link.b), cable(&link.b, &link.a)]).flatten();
    to_node.chain(to_network).chain(to_switch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str) -> SwitchInfo {
        SwitchInfo {
            name: name.to_owned(),
            netconf: ([127, 0, 0, 1], 8300).into(),
            username: "admin".to_owned(),
            password: "hidden".to_owned(),
            host_key: "ssh-ed25519 AAAA".to_owned(),
            control_url: "http://127.0.0.1:8301/switches/leaf1".to_owned(),
        }
    }

    #[test]
    fn every_cable_becomes_a_port_with_one_peer() {
        let topology = Topology::leaf_spine(2, 2, 4);
        let devices: Vec<_> =
            topology.switches.iter().map(|spec| device(&topology, &switch(&spec.name))).collect();
        let ports: Vec<_> = devices.iter().map(|device| device.spec.ports.len()).collect();
        assert_eq!(ports, [4, 5, 2, 2]);
        for port in devices.iter().flat_map(|device| &device.spec.ports) {
            port.peer().expect("one peer");
        }
    }
}
