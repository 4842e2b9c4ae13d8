//! The part of Neutron's resources (Networking API v2.0) that this driver reads.

use std::collections::{BTreeMap, BTreeSet};

use eno_fabric_driver::desired::listed_name;
use eno_schemas::{FabricDesired, VlanId};
use serde::{Deserialize, Serialize};

use crate::mark::Mark;

/// The UUID of a resource.
pub type Id = String;

/// A network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Its id.
    pub id: Id,
    /// Not unique.
    pub name: String,
    /// Any text.
    pub description: String,
    /// The id of its project.
    pub project_id: Id,
    /// Bytes.
    pub mtu: Option<u32>,
    /// False: it forwards nothing.
    pub admin_state_up: bool,
    /// What its ports get; absent: Neutron has no port security.
    pub port_security_enabled: Option<bool>,
    /// Grows with each change.
    pub revision_number: Option<u64>,
    /// Absent: hidden from this credential.
    #[serde(rename = "provider:network_type")]
    pub network_type: Option<String>,
    /// Absent: hidden from this credential, or none.
    #[serde(rename = "provider:physical_network")]
    pub physical_network: Option<String>,
    /// Absent: hidden from this credential, or none.
    #[serde(rename = "provider:segmentation_id")]
    pub segmentation_id: Option<u32>,
    /// Any texts.
    pub tags: BTreeSet<String>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Its id.
    pub id: Id,
    /// Not unique.
    pub name: String,
    /// Any text.
    pub description: String,
    /// The id of its project.
    pub project_id: Id,
    /// The network.
    pub network_id: Id,
    /// Lower case, with colons.
    pub mac_address: String,
    /// False: it forwards nothing.
    pub admin_state_up: bool,
    /// Absent: Neutron has no port security.
    pub port_security_enabled: Option<bool>,
    /// The addresses that it accepts beside its own.
    pub allowed_address_pairs: BTreeSet<AddressPair>,
    /// Grows with each change.
    pub revision_number: Option<u64>,
}

/// An entry of `allowed_address_pairs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AddressPair {
    /// An address, or a network with its prefix length.
    pub ip_address: String,
    /// Absent in requests: the port's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
}

/// A trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trunk {
    /// Its id.
    pub id: Id,
    /// Not unique.
    pub name: String,
    /// The id of its project.
    pub project_id: Id,
    /// The parent port: the NIC of the VM.
    pub port_id: Id,
    /// `ACTIVE`, `DOWN`, `BUILD`, `DEGRADED` or `ERROR`.
    pub status: String,
    /// False: Neutron refuses all changes.
    pub admin_state_up: bool,
    /// Its sub-ports, in any order.
    pub sub_ports: Vec<SubPort>,
}

/// A port of a trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubPort {
    /// The port.
    pub port_id: Id,
    /// `vlan`. Neutron has no other type.
    pub segmentation_type: String,
    /// The tag of its frames on the parent port.
    pub segmentation_id: u32,
}

impl SubPort {
    /// The VLAN on the parent port.
    pub fn vid(&self) -> Option<VlanId> {
        VlanId::new(u16::try_from(self.segmentation_id).ok()?).ok()
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The id of the credential's project.
    pub project: Id,
    /// Those with our mark, those that offer a desired VLAN, and those that have one without being ours.
    pub networks: BTreeMap<Id, Network>,
    /// Those with our mark, sub-ports that have a desired VLAN, and the parents of trunks.
    pub ports: BTreeMap<Id, Port>,
    /// Those that are listed.
    pub trunks: BTreeMap<Id, Trunk>,
    /// The listed name of each trunk that was found.
    pub trunk_of: BTreeMap<String, Id>,
    /// Listed names that can't be resolved, with the reason.
    pub unresolved: BTreeMap<String, String>,
    /// The smallest MTU of the networks of the trunks' parent ports, which networks of sub-ports may not exceed.
    pub parent_mtu: Option<u32>,
}

impl View {
    /// The VLAN of a network of ours. A network of another project is not, whatever its name is.
    pub fn own_network(&self, network: &Network, mark: &Mark) -> Option<VlanId> {
        mark.vid_of(&network.name, &network.description).filter(|_| network.project_id == self.project)
    }

    /// The VLAN of a port of ours.
    pub fn own_port(&self, port: &Port, mark: &Mark) -> Option<VlanId> {
        mark.vid_of(&port.name, &port.description).filter(|_| port.project_id == self.project)
    }

    /// The view with the listed trunks alone; `None`: one is not in it.
    pub fn with_trunks_of(mut self, desired: &FabricDesired) -> Option<Self> {
        let physical_network =
            desired.device.neutron.as_ref().and_then(|settings| settings.physical_network.as_deref());
        let names = desired.ports.iter().map(listed_name).filter(|name| Some(*name) != physical_network);
        let names: BTreeSet<&str> = names.collect();
        self.trunk_of.retain(|name, _| names.contains(name.as_str()));
        if self.trunk_of.len() < names.len() {
            return None;
        }
        let listed: BTreeSet<&Id> = self.trunk_of.values().collect();
        self.trunks.retain(|id, _| listed.contains(id));
        Some(self)
    }
}
