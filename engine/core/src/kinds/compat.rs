//! Which CNI plugin can give which VLAN type to which kind of interface.

use eno_schemas::{CniName, InterfaceType, OvsDatapath, VlanType};

use crate::kinds::{AttachmentSpec, Cause, ConnectionPointSpec, Invalid, Plugin, SupportedCni};

/// True when the plugin can do it: the table in the NAD driver's documentation.
pub fn can(cni: CniName, vlan_type: VlanType, interface: InterfaceType) -> bool {
    use CniName::{Bridge, HostDevice, Ipvlan, Macvlan, Ovs, Sriov, Userspace, Vlan};
    use InterfaceType::{Dpdk, Kernel};
    use VlanType::{Access, SelectiveTrunk, Trunk};
    match (cni, interface) {
        (Ovs, Kernel) => true,
        (Bridge, Kernel) => matches!(vlan_type, Access | SelectiveTrunk),
        (Macvlan, Kernel) | (Sriov, _) => matches!(vlan_type, Access | Trunk),
        // ipvlan shares the master's MAC address and tells pods apart by their IP addresses: nothing for tagged frames.
        (Ipvlan | Vlan, Kernel) | (Userspace, Dpdk) => vlan_type == Access,
        (HostDevice, Kernel) => vlan_type == Trunk,
        _ => false,
    }
}

/// True when the plugin always calls an IPAM plugin, so that it needs a service with Subnets.
pub fn needs_subnet(cni: CniName) -> bool {
    matches!(cni, CniName::Ipvlan | CniName::Vlan)
}

/// True when the host can keep pods of the plugin from spoofing: their packets pass the kernel's filters.
fn can_hold_addresses(plugin: &Plugin) -> bool {
    match plugin {
        Plugin::Bridge { .. } => true,
        Plugin::Ovs { datapath, .. } => *datapath != Some(OvsDatapath::Netdev),
        _ => false,
    }
}

/// The first network of a connection point in which the host can have interfaces in VLANs, and its MTU in bytes. `None`: it has
/// only plugins that give devices to pods.
pub fn host_network(point: &ConnectionPointSpec) -> Option<(&String, Option<u32>)> {
    point.cnis.iter().find_map(|cni| match &cni.plugin {
        Plugin::Ovs { bridge_name, .. } | Plugin::Bridge { bridge_name } => Some((bridge_name, cni.mtu)),
        Plugin::Macvlan { master } => Some((master, cni.mtu)),
        _ => None,
    })
}

const CNIS: [CniName; 8] = [
    CniName::Ovs,
    CniName::Bridge,
    CniName::Macvlan,
    CniName::Ipvlan,
    CniName::Vlan,
    CniName::HostDevice,
    CniName::Sriov,
    CniName::Userspace,
];

/// The plugin of `point` that realises `attachment`: the requested one, else the first that can.
pub fn choose<'a>(
    attachment: &AttachmentSpec,
    point: &'a ConnectionPointSpec,
) -> Result<&'a SupportedCni, Invalid> {
    let (vlan_type, interface) = (attachment.vlan_type, attachment.interface);
    let fits = |offer: &&SupportedCni| {
        offer.interfaces.contains(&interface) && can(offer.plugin.name(), vlan_type, interface)
    };
    let name = &attachment.connection_point;
    let holds = |offer: &&SupportedCni| !attachment.anti_spoof || can_hold_addresses(&offer.plugin);
    let held = |offer: &'a SupportedCni| {
        let problem = || {
            format!(
                "{} of ConnectionPoint {name} can't enforce it: packets don't pass the host's kernel; bridge could, \
                 and ovs with the datapath system",
                offer.plugin.name().as_str()
            )
        };
        Some(offer)
            .filter(holds)
            .ok_or_else(|| Invalid::new("AntiSpoof", problem()).because(Cause::Incompatible))
    };
    let works = || {
        let offered: Vec<&str> =
            point.cnis.iter().filter(fits).map(|offer| offer.plugin.name().as_str()).collect();
        if offered.is_empty() {
            let able: Vec<&str> =
                CNIS.iter().filter(|cni| can(**cni, vlan_type, interface)).map(|cni| cni.as_str()).collect();
            format!("nothing that ConnectionPoint {name} offers can; {} could", able.join(", "))
        } else {
            format!("{} of ConnectionPoint {name} can", offered.join(", "))
        }
    };
    // Where no plugin can, no other ConnectionPoint helps.
    let cause = |able: bool| if able { Cause::Incompatible } else { Cause::Spec };
    let what = format!("VlanType {} with PodInterfaceType {}", vlan_type.as_str(), interface.as_str());
    let Some(wanted) = attachment.implementation else {
        let able = CNIS.iter().any(|cni| can(*cni, vlan_type, interface));
        let invalid = || Invalid::new("VlanType", format!("{what}: {}", works())).because(cause(able));
        let mut able = point.cnis.iter().filter(fits);
        let first = able.clone().next().ok_or_else(invalid)?;
        return held(able.find(holds).unwrap_or(first));
    };
    let able = can(wanted, vlan_type, interface);
    let mut offers = point.cnis.iter().filter(|offer| offer.plugin.name() == wanted).peekable();
    if offers.peek().is_none() {
        let problem =
            format!("ConnectionPoint {name} does not offer {} for {what}; {}", wanted.as_str(), works());
        return Err(Invalid::new("Implementation", problem).because(cause(able)));
    }
    let chosen = offers.find(fits).ok_or_else(|| {
        let problem = format!("{} can't do {what}; {}", wanted.as_str(), works());
        Invalid::new("Implementation", problem).because(cause(able))
    })?;
    held(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> ConnectionPointSpec {
        let offer = |plugin| SupportedCni { interfaces: vec![InterfaceType::Kernel], plugin, mtu: None };
        ConnectionPointSpec {
            cnis: vec![
                offer(Plugin::Macvlan { master: "eth1".into() }),
                offer(Plugin::Ovs {
                    bridge_name: "br".into(),
                    socket_file: None,
                    datapath: None,
                    patch: None,
                    pool_name: None,
                }),
            ],
            node_pool: None,
            interfaces: vec![],
            trunk_namespaces: None,
            verify: crate::kinds::Verify::default(),
        }
    }

    fn attachment(
        vlan_type: VlanType,
        implementation: Option<CniName>,
        interface: InterfaceType,
    ) -> AttachmentSpec {
        AttachmentSpec {
            services: vec!["s".into()],
            connection_point: "cp".into(),
            interface,
            vlan_type,
            implementation,
            mtu: None,
            usable_from: None,
            anti_spoof: false,
            sub_interfaces: false,
        }
    }

    #[test]
    fn choose_takes_the_requested_plugin_or_the_first_capable_one() {
        use InterfaceType::{Dpdk, Kernel};
        let point = point();
        let name = |vlan_type, requested, interface| {
            choose(&attachment(vlan_type, requested, interface), &point).map(|offer| offer.plugin.name())
        };
        assert_eq!(name(VlanType::Access, None, Kernel), Ok(CniName::Macvlan));
        assert_eq!(name(VlanType::SelectiveTrunk, None, Kernel), Ok(CniName::Ovs));
        assert_eq!(name(VlanType::Access, Some(CniName::Ovs), Kernel), Ok(CniName::Ovs));
        for (result, words) in [
            (name(VlanType::SelectiveTrunk, Some(CniName::Macvlan), Kernel), "ovs of ConnectionPoint cp can"),
            (name(VlanType::Access, Some(CniName::Bridge), Kernel), "macvlan, ovs of ConnectionPoint cp can"),
            (name(VlanType::Access, None, Dpdk), "sriov, userspace could"),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn choose_rejects_ipvlan_for_trunks() {
        let trunk = |requested| attachment(VlanType::Trunk, requested, InterfaceType::Kernel);
        let mut point = point();
        point.cnis.insert(
            0,
            SupportedCni {
                interfaces: vec![InterfaceType::Kernel],
                plugin: Plugin::Ipvlan { master: "eth1".into() },
                mtu: None,
            },
        );
        let chosen = choose(&trunk(None), &point).map(|offer| offer.plugin.name());
        assert_eq!(chosen, Ok(CniName::Macvlan));
        assert_eq!(
            choose(&trunk(Some(CniName::Ipvlan)), &point).unwrap_err().to_string(),
            "spec.Implementation: ipvlan can't do VlanType trunk with PodInterfaceType kernel; \
             macvlan, ovs of ConnectionPoint cp can"
        );
        point.cnis.truncate(1);
        assert_eq!(
            choose(&trunk(None), &point).unwrap_err().to_string(),
            "spec.VlanType: VlanType trunk with PodInterfaceType kernel: nothing that ConnectionPoint cp offers can; \
             ovs, macvlan, host-device, sriov could"
        );
    }
}
