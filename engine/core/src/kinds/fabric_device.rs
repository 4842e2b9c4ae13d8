//! FabricDevice: a switch, and where its ports lead.

use eno_schemas::{Device, PortMode};
use serde::{Deserialize, Serialize};

use super::{Described, Facts, Kind, Name, Path, Reference};

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeviceSpec {
    /// The driver that configures it.
    pub driver: Name,
    /// Its endpoint and policies.
    pub device: Device,
    /// The ports that are ours to configure, each name once.
    pub ports: Vec<DevicePort>,
}

impl Described for DeviceSpec {
    const FACTS: Facts = Facts { path: Path::Device, planned_when_hindered: true, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] = &[
        // A link is there when both ends name each other: no switch waits for the other.
        Reference::new("Ports[].Device", Kind::FabricDevice, |_| Vec::new()),
        Reference::new("Ports[].PhysicalNW", Kind::PhysicalNetwork, |spec| {
            spec.ports.iter().filter_map(DevicePort::physical_network).collect()
        }),
    ];
}

impl DeviceSpec {
    /// True when address and driver are the same: otherwise it may be another device.
    pub fn is_same_device(&self, other: &Self) -> bool {
        (&self.driver, &self.device.address) == (&other.driver, &other.device.address)
    }

    /// The LAG of a port.
    pub fn lag(&self, port: &Name) -> Option<&Name> {
        self.ports.iter().find(|listed| listed.name == *port)?.lag.as_ref()
    }
}

/// A port of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DevicePort {
    /// The device's own name for it.
    pub name: Name,
    /// Whether it may be converted from access mode.
    pub mode: PortMode,
    /// The LAG that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<Name>,
    /// The peer of the port.
    pub leads_to: LeadsTo,
}

/// The peer of a switch port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", rename_all_fields = "PascalCase")]
pub enum LeadsTo {
    /// A NIC of a node.
    Node {
        /// The node.
        node: Name,
        /// The NIC.
        interface: Name,
    },
    /// A network outside the fabric.
    PhysicalNetwork(Name),
    /// A port of another switch.
    Device {
        /// The other FabricDevice.
        device: Name,
        /// Its port.
        port: Name,
    },
}

impl DevicePort {
    /// The network outside the fabric that it leads to.
    fn physical_network(&self) -> Option<&Name> {
        match &self.leads_to {
            LeadsTo::PhysicalNetwork(name) => Some(name),
            LeadsTo::Node { .. } | LeadsTo::Device { .. } => None,
        }
    }
}
