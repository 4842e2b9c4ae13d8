//! CNI configurations as structs, with their keys in the order of output.

use eno_schemas::{Dns, VlanId};
use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};

use super::ipam::IpamConfig;

/// A network configuration (CNI specification 0.3.1, "Network Configuration").
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config<'a> {
    /// `cniVersion`.
    pub cni_version: &'static str,
    /// The name of the network.
    pub name: &'a str,
    /// `type` and the keys of the plugin.
    #[serde(flatten)]
    pub plugin: Plugin<'a>,
    /// The MTU of the pod's interface, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// What Multus passes on of a pod's annotation, as `runtimeConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// The IPAM plugin and its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipam: Option<IpamConfig<'a>>,
    /// The DNS settings of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<&'a Dns>,
}

/// `capabilities` (CNI conventions, "Dynamic Plugin specific fields"). The plugin passes its whole configuration to the
/// IPAM plugin, which finds `runtimeConfig.ips` there.
#[derive(Serialize)]
pub(super) struct Capabilities {
    /// `ips` of an element of `k8s.v1.cni.cncf.io/networks`.
    pub ips: bool,
}

/// `type` and the keys of each plugin.
#[derive(Serialize, IntoStaticStr, VariantNames)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Plugin<'a> {
    /// `vlan` and `trunk` never go together: ovs-cni drops the tag then.
    Ovs {
        #[serde(skip_serializing_if = "Option::is_none")]
        vlan: Option<VlanId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        trunk: Option<Vec<Trunk>>,
        bridge: &'a str,
        #[serde(rename = "socket_file", skip_serializing_if = "Option::is_none")]
        socket_file: Option<&'a str>,
    },
    /// `preserveDefaultVlan` is true when it is absent: the pod would be in VLAN 1 as well. So it would be with
    /// `vlanTrunk` and no `vlan`.
    Bridge {
        bridge: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        vlan: Option<VlanId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        vlan_trunk: Option<Vec<Trunk>>,
        preserve_default_vlan: bool,
    },
    Macvlan {
        master: &'a str,
        mode: &'static str,
    },
    Ipvlan {
        master: &'a str,
        mode: &'static str,
    },
    Vlan {
        master: &'a str,
        vlan_id: VlanId,
    },
    /// The device's address comes from Multus.
    HostDevice,
    /// The device's address comes from Multus.
    Sriov {
        #[serde(skip_serializing_if = "Option::is_none")]
        vlan: Option<VlanId>,
    },
    Userspace {
        kubeconfig: &'static str,
        host: Side<'a>,
        container: Side<'a>,
    },
}

impl Plugin<'_> {
    /// `type`.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// True when the plugin fails without `ipam`.
    pub fn needs_ipam(&self) -> bool {
        matches!(self, Self::Ipvlan { .. } | Self::Vlan { .. })
    }

    /// True when the plugin reads `mtu`.
    pub fn has_mtu(&self) -> bool {
        !matches!(self, Self::HostDevice | Self::Sriov { .. } | Self::Userspace { .. })
    }
}

/// An entry of ovs-cni's `trunk` and of bridge's `vlanTrunk`.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Trunk {
    Id {
        id: VlanId,
    },
    Range {
        #[serde(rename = "minID")]
        min: VlanId,
        #[serde(rename = "maxID")]
        max: VlanId,
    },
}

impl From<(VlanId, VlanId)> for Trunk {
    fn from((min, max): (VlanId, VlanId)) -> Self {
        if min == max { Self::Id { id: min } } else { Self::Range { min, max } }
    }
}

/// `host` or `container` of the userspace plugin: the switch's side, and the pod's.
#[derive(Serialize)]
pub(super) struct Side<'a> {
    /// The userspace switch: `vpp` or `ovs-dpdk`.
    pub engine: &'a str,
    /// The kind of port: `memif` or `vhostuser`.
    pub iftype: &'a str,
    /// The network that the port joins.
    #[serde(rename = "netType")]
    pub net_type: &'static str,
    /// The settings of a vhost-user port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vhost: Option<Vhost>,
    /// The settings of a memif port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memif: Option<Memif>,
    /// The bridge of the switch's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<HostBridge<'a>>,
}

#[derive(Serialize)]
pub(super) struct Vhost {
    pub mode: &'static str,
}

#[derive(Serialize)]
pub(super) struct Memif {
    pub role: &'static str,
    pub mode: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HostBridge<'a> {
    pub bridge_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_id: Option<VlanId>,
}
