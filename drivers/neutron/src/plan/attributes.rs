//! The attributes that our networks and ports have.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use eno_schemas::{FabricDesired, NetworkType, NeutronSettings, VlanId};
use serde_json::{Map, Value, json};

use crate::mark::Mark;
use crate::view::{AddressPair, Network, Port};

static DEFAULT: LazyLock<NeutronSettings> = LazyLock::new(NeutronSettings::default);

/// The MTU of new networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewMtu {
    /// Request it; `None`: request none.
    Request(Option<u32>),
    /// Whether Neutron's choice is too great is known after the first network.
    Unknown,
}

/// What networks and ports of ours look like, as the FabricDevice has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a> {
    settings: &'a NeutronSettings,
    mark: &'a Mark,
    /// The greatest MTU that networks of sub-ports may have; absent: any.
    parent_mtu: Option<u32>,
}

impl<'a> Attributes<'a> {
    /// Those of a desired state. `parent_mtu`: [`View::parent_mtu`](crate::view::View::parent_mtu).
    pub fn new(desired: &'a FabricDesired, mark: &'a Mark, parent_mtu: Option<u32>) -> Self {
        Self { settings: desired.device.neutron.as_ref().unwrap_or(&DEFAULT), mark, parent_mtu }
    }

    /// The MTU to request for new networks, as far as networks of ours show what Neutron chooses.
    pub(super) fn new_mtu<'b>(self, mut ours: impl Iterator<Item = &'b Network>) -> NewMtu {
        let Some(limit) = self.parent_mtu.filter(|_| self.settings.mtu.is_none()) else {
            return NewMtu::Request(self.settings.mtu);
        };
        let Some(first) = ours.next().and_then(|network| network.mtu) else { return NewMtu::Unknown };
        let greatest = ours.filter_map(|network| network.mtu).fold(first, u32::max);
        NewMtu::Request((greatest >= limit).then_some(limit))
    }

    /// What networks are on the wire.
    pub fn network_type(self) -> NetworkType {
        self.settings.network_type
    }

    /// The physical network of provider networks.
    pub fn physical_network(self) -> Option<&'a str> {
        self.settings
            .physical_network
            .as_deref()
            .filter(|_| self.settings.network_type == NetworkType::Provider)
    }

    /// True when the network is this VLAN of the physical network. False when this credential can't see that.
    pub fn is_vlan(self, network: &Network, vid: VlanId) -> bool {
        network.network_type.as_deref() == Some("vlan")
            && network.physical_network.as_deref() == self.physical_network()
            && network.segmentation_id == Some(vid.get().into())
    }

    /// True when a network is used for the VLAN that its tag names. `project`: that of the credential. Others can tag
    /// their networks and share them, too.
    pub fn may_offer(self, network: &Network, project: &str) -> bool {
        network.project_id == project || self.settings.trusted_projects.contains(&network.project_id)
    }

    /// True when ports filter addresses.
    pub fn has_port_security(self) -> bool {
        self.settings.port_security
    }

    /// True when a port has to be made anew for the trunk with this parent port. A port with port security has the
    /// parent's address, which only an admin can change. One without has no security groups.
    pub fn is_outdated(self, port: &Port, parent: Option<&Port>) -> bool {
        let other_address =
            || parent.is_some_and(|parent| !parent.mac_address.eq_ignore_ascii_case(&port.mac_address));
        self.settings.port_security && (port.port_security_enabled == Some(false) || other_address())
    }

    /// True when a network of ours is of the other type, visibly another VLAN, or one of another physical network.
    pub fn is_misplaced(self, network: &Network, vid: VlanId) -> bool {
        match self.network_type() {
            NetworkType::Provider => {
                network.description != self.mark.description()
                    || (network.network_type.is_some() && !self.is_vlan(network, vid))
            }
            NetworkType::Tenant => network.description != self.mark.tenant_description(),
        }
    }

    /// Name and description of a port.
    pub fn mark_of(self, vid: VlanId) -> Map<String, Value> {
        let mut attributes = Map::new();
        attributes.insert("name".to_owned(), self.mark.name(vid).into());
        attributes.insert("description".to_owned(), self.mark.description().into());
        attributes
    }

    /// Name and description of a network.
    pub fn mark_of_network(self, vid: VlanId) -> Map<String, Value> {
        let mut attributes = self.mark_of(vid);
        if self.network_type() == NetworkType::Tenant {
            attributes.insert("description".to_owned(), self.mark.tenant_description().into());
        }
        attributes
    }

    /// A new network with this MTU; `None`: Neutron's choice.
    pub fn network(self, vid: VlanId, mtu: Option<u32>) -> Value {
        let mut attributes = self.mark_of_network(vid);
        if let Some(physical_network) = self.physical_network() {
            attributes.insert("provider:network_type".to_owned(), "vlan".into());
            attributes.insert("provider:physical_network".to_owned(), physical_network.into());
            attributes.insert("provider:segmentation_id".to_owned(), vid.get().into());
        }
        if let Some(mtu) = mtu {
            attributes.insert("mtu".to_owned(), mtu.into());
        }
        if !self.settings.port_security {
            // Ports get it from their network.
            attributes.insert("port_security_enabled".to_owned(), false.into());
        }
        attributes.into()
    }

    /// A new port on a network, for the trunk with this parent port.
    pub fn port(self, vid: VlanId, network: Option<&Network>, id: &str, parent: Option<&Port>) -> Value {
        let mut attributes = self.mark_of(vid);
        attributes.insert("network_id".to_owned(), id.into());
        // Addresses are pods' own matter.
        attributes.insert("fixed_ips".to_owned(), json!([]));
        let of_network = network.and_then(|network| network.port_security_enabled);
        if of_network.is_some_and(|enabled| enabled != self.settings.port_security) {
            attributes.insert("port_security_enabled".to_owned(), self.settings.port_security.into());
        }
        if self.settings.port_security {
            if let Some(parent) = parent {
                attributes.insert("mac_address".to_owned(), parent.mac_address.clone().into());
            }
            if !self.settings.allowed_address_pairs.is_empty() {
                attributes.insert("allowed_address_pairs".to_owned(), json!(self.address_pairs()));
            }
        }
        attributes.into()
    }

    /// The attributes of a network of ours that differ.
    pub fn network_changes(self, network: &Network) -> Map<String, Value> {
        let mut changes = Map::new();
        if !network.admin_state_up {
            changes.insert("admin_state_up".to_owned(), true.into());
        }
        let too_great = || self.parent_mtu.filter(|limit| network.mtu.is_some_and(|now| now > *limit));
        let mtu = match self.settings.mtu {
            Some(mtu) => Some(mtu).filter(|mtu| network.mtu.is_some_and(|now| now != *mtu)),
            None => too_great(),
        };
        if let Some(mtu) = mtu {
            changes.insert("mtu".to_owned(), mtu.into());
        }
        if network.port_security_enabled.is_some_and(|now| now != self.settings.port_security) {
            changes.insert("port_security_enabled".to_owned(), self.settings.port_security.into());
        }
        changes
    }

    /// The attributes of a port of ours that differ.
    pub fn port_changes(self, port: &Port) -> Map<String, Value> {
        let mut changes = Map::new();
        if !port.admin_state_up {
            changes.insert("admin_state_up".to_owned(), true.into());
        }
        let Some(security) = port.port_security_enabled else { return changes };
        if security != self.settings.port_security {
            changes.insert("port_security_enabled".to_owned(), self.settings.port_security.into());
        }
        if security && !self.settings.port_security {
            // Neutron refuses to turn it off while a port has security groups.
            changes.insert("security_groups".to_owned(), json!([]));
        }
        let full = |pair: &AddressPair| {
            let mac = pair.mac_address.as_ref().unwrap_or(&port.mac_address);
            (pair.ip_address.to_lowercase(), mac.to_lowercase())
        };
        let wanted = self.address_pairs();
        let (now, then): (BTreeSet<_>, BTreeSet<_>) =
            (port.allowed_address_pairs.iter().map(full).collect(), wanted.iter().map(full).collect());
        if now != then {
            changes.insert("allowed_address_pairs".to_owned(), json!(wanted));
        }
        changes
    }

    fn address_pairs(self) -> Vec<AddressPair> {
        let pair = |pair: &eno_schemas::AddressPair| AddressPair {
            ip_address: pair.ip.clone(),
            mac_address: pair.mac.clone(),
        };
        self.settings.allowed_address_pairs.iter().map(pair).collect()
    }
}
