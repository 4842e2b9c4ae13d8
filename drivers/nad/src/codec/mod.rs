//! Renders an attachment as the text of a CNI configuration. Pure.
//!
//! The output is the reference implementation's, field for field, where that has one (ovs, host-device and
//! whereabouts), with two additions: `name`, which plain CNI plugins insist on, and `dns` at the top level, because
//! macvlan, ipvlan, vlan, host-device and older bridge plugins drop what they find inside `ipam`. Only where the engine
//! names a pool of addresses, `ipam` has one key more. With Ipam eno there is `capabilities`, too.
//!
//! Two traps of the plugins (read in and run with containernetworking/plugins 1.9.1):
//! - **bridge with `vlanTrunk` and no `vlan`** puts the port into VLAN 1 untagged, whatever `preserveDefaultVlan` says:
//!   what a pod sends untagged would enter VLAN 1. So `vlan` is written too, and is one of the trunk's own: the plugin
//!   makes that VLAN the port's untagged one, then adds the trunk's, this one again and tagged, by which the kernel
//!   takes back that it was untagged. The port ends with the trunk's VLANs alone, and what comes untagged is dropped.
//! - **ipvlan and vlan** always call an IPAM plugin and fail without one. What has no addresses of the CNI's can't go
//!   through them: a trunk (ipvlan), an L2Service without Subnets (both).

mod config;
mod ipam;

use eno_schemas::{Cni, Ipam, NadVlans, VlanAttachment};
use ipnet::IpNet;
use strum::VariantNames as _;

use config::{Capabilities, Config, HostBridge, Memif, Plugin, Side, Trunk, Vhost};

/// `cniVersion` of every configuration: the newest that all plugins of the reference implementation support.
const CNI_VERSION: &str = "0.3.1";
/// ovs-cni's marker announces each bridge of a node as a resource under this prefix.
const OVS_RESOURCE_PREFIX: &str = "ovs-cni.network.kubevirt.io/";
/// Path of the credentials with which the userspace plugin reads the pod.
const MULTUS_KUBECONFIG: &str = "/etc/cni/net.d/multus.d/multus.kubeconfig";

/// `type` of each supported plugin.
pub const PLUGINS: &[&str] = Plugin::VARIANTS;

/// A NetworkAttachmentDefinition's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// `spec.config`: one line of JSON.
    pub config: String,
    /// `k8s.v1.cni.cncf.io/resourceName`: the device plugin's resource that Multus takes a device from.
    pub resource_name: Option<String>,
}

/// An attachment that no CNI configuration can express. The engine rejects these beforehand; a retry does not
/// help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedAttachment {
    /// The plugin has no key for it.
    #[error("the CNI plugin {plugin} can't do VlanType {vlans}")]
    VlanType {
        /// `type` of the plugin.
        plugin: &'static str,
        /// As the attachment spells it.
        vlans: &'static str,
    },
    /// An empty list means "all VLANs" to the plugins.
    #[error("VlanType selectivetrunk without a VLAN would pass all VLANs")]
    EmptySelection,
    /// The plugin has no `mtu` key and would ignore it.
    #[error("the CNI plugin {0} can't set an MTU")]
    Mtu(&'static str),
    /// The plugin calls an IPAM plugin in any case.
    #[error(
        "the CNI plugin {0} needs an address to give: give the L2Service a Subnet, or take another plugin"
    )]
    NoSubnet(&'static str),
    /// Tagged interfaces have no address of their own.
    #[error("Subnets need VlanType access, not {0}")]
    Subnets(&'static str),
    /// A pod gets one address of each family.
    #[error("Subnets {0} and {1} are of the same family")]
    SameFamily(IpNet, IpNet),
    /// A configuration has one `ipam`.
    #[error("Subnets {0} and {1} name different Ipam plugins")]
    MixedIpam(IpNet, IpNet),
    /// The static plugin assigns exactly the configured addresses.
    #[error("Ipam static needs an AllocationPool in Subnet {0}: its first address is the pod's")]
    StaticPool(IpNet),
    /// The pool of Ipam eno is a Subnet.
    #[error("Ipam eno needs the name of the Subnet {0}, which the engine did not send")]
    UnnamedSubnet(IpNet),
    /// Not a switch or socket type of the userspace plugin.
    #[error(
        "the CNI plugin userspace can't do interface type {iftype} on {engine} (vhostuser on ovs-dpdk or vpp, memif on vpp)"
    )]
    Userspace {
        /// `engine`.
        engine: String,
        /// `iftype`.
        iftype: String,
    },
    /// The JSON could not be written.
    #[error("the CNI configuration can't be written: {0}")]
    Json(String),
}

/// Renders the configuration of the NetworkAttachmentDefinition `name`.
pub fn render(name: &str, attachment: &VlanAttachment) -> Result<Rendered, UnsupportedAttachment> {
    if !attachment.subnets.is_empty() && !matches!(attachment.vlans, NadVlans::Access(_)) {
        return Err(UnsupportedAttachment::Subnets(vlan_type(&attachment.vlans)));
    }
    let (plugin, resource_name) = plugin(&attachment.cni, &attachment.vlans)?;
    if attachment.mtu.is_some() && !plugin.has_mtu() {
        return Err(UnsupportedAttachment::Mtu(plugin.name()));
    }
    if attachment.subnets.is_empty() && plugin.needs_ipam() {
        return Err(UnsupportedAttachment::NoSubnet(plugin.name()));
    }
    let dns = ipam::dns(&attachment.subnets);
    // whereabouts ignores what a pod asks for; host-local and static would give it to several.
    let has_requests = attachment.subnets.iter().any(|subnet| subnet.ipam == Ipam::Eno);
    let config = Config {
        cni_version: CNI_VERSION,
        name,
        plugin,
        mtu: attachment.mtu,
        capabilities: has_requests.then_some(Capabilities { ips: true }),
        ipam: ipam::ipam(&attachment.subnets, attachment.pool.as_deref(), dns.as_ref())?,
        dns: dns.as_ref(),
    };
    let config =
        serde_json::to_string(&config).map_err(|error| UnsupportedAttachment::Json(error.to_string()))?;
    Ok(Rendered { config, resource_name })
}

/// The spelling of `VlanType`.
fn vlan_type(vlans: &NadVlans) -> &'static str {
    match vlans {
        NadVlans::Access(_) => "access",
        NadVlans::Trunk => "trunk",
        NadVlans::Selective(_) => "selectivetrunk",
    }
}

fn plugin<'a>(cni: &'a Cni, vlans: &NadVlans) -> Result<(Plugin<'a>, Option<String>), UnsupportedAttachment> {
    if matches!(vlans, NadVlans::Selective(set) if set.is_empty()) {
        return Err(UnsupportedAttachment::EmptySelection);
    }
    let cannot = |plugin| Err(UnsupportedAttachment::VlanType { plugin, vlans: vlan_type(vlans) });
    Ok(match (cni, vlans) {
        (Cni::Ovs { bridge, socket_file, pool }, _) => {
            let (vlan, trunk) = match vlans {
                NadVlans::Access(vid) => (Some(*vid), None),
                NadVlans::Trunk => (None, None),
                // One entry for each VLAN, as the reference implementation has them.
                NadVlans::Selective(set) => (None, Some(set.iter().map(|id| Trunk::Id { id }).collect())),
            };
            let socket_file = socket_file.as_deref();
            // A bridge whose ports are virtual functions of a NIC takes them from the NIC's device plugin.
            let resource = pool.clone().unwrap_or_else(|| format!("{OVS_RESOURCE_PREFIX}{bridge}"));
            (Plugin::Ovs { vlan, trunk, bridge, socket_file }, Some(resource))
        }
        (Cni::Bridge { bridge }, NadVlans::Access(vid)) => (
            Plugin::Bridge { bridge, vlan: Some(*vid), vlan_trunk: None, preserve_default_vlan: false },
            None,
        ),
        (Cni::Bridge { bridge }, NadVlans::Selective(set)) => {
            // Not the port's untagged VLAN in the end: see the module's documentation.
            let vlan = set.iter().next();
            let trunk = set.ranges().into_iter().map(Trunk::from).collect();
            (Plugin::Bridge { bridge, vlan, vlan_trunk: Some(trunk), preserve_default_vlan: false }, None)
        }
        (Cni::Bridge { .. }, NadVlans::Trunk) => return cannot("bridge"),
        (Cni::Macvlan { .. }, NadVlans::Selective(_)) => return cannot("macvlan"),
        (Cni::Macvlan { master }, _) => (Plugin::Macvlan { master, mode: "bridge" }, None),
        (Cni::Ipvlan { master }, NadVlans::Access(_)) => (Plugin::Ipvlan { master, mode: "l2" }, None),
        (Cni::Ipvlan { .. }, _) => return cannot("ipvlan"),
        (Cni::Vlan { master }, NadVlans::Access(vid)) => (Plugin::Vlan { master, vlan_id: *vid }, None),
        (Cni::Vlan { .. }, _) => return cannot("vlan"),
        (Cni::HostDevice { pool }, NadVlans::Trunk) => (Plugin::HostDevice, Some(pool.clone())),
        (Cni::HostDevice { .. }, _) => return cannot("host-device"),
        (Cni::Sriov { pool, .. }, NadVlans::Access(vid)) => {
            (Plugin::Sriov { vlan: Some(*vid) }, Some(pool.clone()))
        }
        (Cni::Sriov { pool, .. }, NadVlans::Trunk) => (Plugin::Sriov { vlan: None }, Some(pool.clone())),
        (Cni::Sriov { .. }, NadVlans::Selective(_)) => return cannot("sriov"),
        (Cni::Userspace { .. }, NadVlans::Selective(_)) => return cannot("userspace"),
        (Cni::Userspace { engine, iftype, bridge }, NadVlans::Access(_) | NadVlans::Trunk) => {
            let vlan_id = match vlans {
                NadVlans::Access(vid) => Some(*vid),
                _ => None,
            };
            (userspace(engine, iftype, HostBridge { bridge_name: bridge, vlan_id })?, None)
        }
    })
}

/// The pod end of a vhost-user socket is its server and of a memif its slave: the switch outlives the pod.
fn userspace<'a>(
    engine: &'a str,
    iftype: &'a str,
    bridge: HostBridge<'a>,
) -> Result<Plugin<'a>, UnsupportedAttachment> {
    let (vhost, memif) = match (engine, iftype) {
        ("ovs-dpdk" | "vpp", "vhostuser") => (Some(["client", "server"]), None),
        ("vpp", "memif") => (None, Some(["master", "slave"])),
        _ => {
            return Err(UnsupportedAttachment::Userspace {
                engine: engine.to_owned(),
                iftype: iftype.to_owned(),
            });
        }
    };
    let side = |end: usize, net_type, bridge| Side {
        engine,
        iftype,
        net_type,
        vhost: vhost.map(|modes| Vhost { mode: modes[end] }),
        memif: memif.map(|roles| Memif { role: roles[end], mode: "ethernet" }),
        bridge,
    };
    let (host, container) = (side(0, "bridge", Some(bridge)), side(1, "interface", None));
    Ok(Plugin::Userspace { kubeconfig: MULTUS_KUBECONFIG, host, container })
}
