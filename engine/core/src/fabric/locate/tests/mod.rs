//! Situations as tables, and properties over random fabrics, which an independent model checks.

mod model;
mod properties;
mod situations;

use std::collections::BTreeMap;
use std::sync::Arc;

use eno_schemas::{Device, DeviceRole, PortMode};

use super::*;
use crate::kinds::{DevicePort, DeviceSpec, LeadsTo};

/// A fabric in which every port carries the VLAN, from a text: `leaf1.1=node1.eth1` is a port to a node,
/// `leaf1.49~spine1.1` a link, `leaf2.48=dc` a port to a PhysicalNetwork, and devices called `gw…` are routers.
fn fabric(text: &str) -> (Topology, Ports) {
    let mut devices: BTreeMap<Name, DeviceSpec> = BTreeMap::new();
    let mut add = |device: &str, port: Option<(&str, LeadsTo)>| {
        let spec = devices.entry(device.into()).or_insert_with(|| {
            let mut spec =
                DeviceSpec { driver: "netconf".into(), device: Device::new("x:830"), ports: vec![] };
            if device.starts_with("gw") {
                spec.device.role = DeviceRole::Router;
            }
            spec
        });
        spec.ports.extend(port.map(|(name, leads_to)| DevicePort {
            name: name.into(),
            mode: PortMode::Keep,
            lag: None,
            leads_to,
        }));
    };
    for item in text.split_whitespace() {
        if let Some((near, far)) = item.split_once('~') {
            let (device, port) = near.split_once('.').expect("a port");
            let (far, far_port) = far.split_once('.').expect("a port");
            let link = LeadsTo::Device { device: far.into(), port: far_port.into() };
            add(device, Some((port, link)));
            add(far, None);
        } else {
            let (near, far) = item.split_once('=').expect("a port and its end");
            let (device, port) = near.split_once('.').expect("a port");
            let lead = match far.split_once('.') {
                Some((node, nic)) => LeadsTo::Node { node: node.into(), interface: nic.into() },
                None => LeadsTo::PhysicalNetwork(far.into()),
            };
            add(device, Some((port, lead)));
        }
    }
    let topology = Topology::new(devices.iter());
    let indices = |device: &Name| (0..).take(topology.port_names(device).len()).collect();
    let ports = devices.keys().map(|device| (device.clone(), indices(device))).collect();
    (topology, ports)
}

fn port(topology: &Topology, text: &str) -> (Name, u16) {
    let (device, port) = text.split_once('.').expect("a port");
    let device: Name = device.into();
    let index = topology.port_names(&device).iter().position(|name| **name == *port).expect("it is there");
    (device, u16::try_from(index).expect("few ports"))
}

/// Gateways from a text: `10.0.0.1=leaf2.48,leaf3.48` by ports, `10.0.0.1@leaf1` on a device, `10.0.0.1` anywhere.
fn gateways(topology: &Topology, text: &str) -> Vec<Arc<Gateway>> {
    let gateway = |item: &str| {
        let mut gateway = Gateway::default();
        if let Some((label, ports)) = item.split_once('=') {
            gateway.label = label.to_owned();
            gateway.ports = ports.split(',').map(|text| port(topology, text)).collect();
        } else if let Some((label, devices)) = item.split_once('@') {
            gateway.label = label.to_owned();
            gateway.devices = devices.split(',').map(Name::from).collect();
        } else {
            gateway.label = item.to_owned();
        }
        Arc::new(gateway)
    };
    text.split_whitespace().map(gateway).collect()
}

/// Probes from a text: `node1>node2` passes, `node1!10.0.0.1` fails.
fn probes(gateways: &[Arc<Gateway>], text: &str) -> Vec<Probe> {
    let probe = |item: &str| {
        let passed = item.contains('>');
        let (from, to) = item.split_once(['>', '!']).expect("two ends");
        let gateway = gateways.iter().find(|gateway| gateway.label == to);
        let to =
            gateway.map_or_else(|| ProbeEnd::Node(to.into()), |gateway| ProbeEnd::Gateway(gateway.clone()));
        Probe { from: from.into(), to, passed }
    };
    text.split_whitespace().map(probe).collect()
}
