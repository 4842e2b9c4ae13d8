//! Translates hand edits into XML for SR Linux.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{
    Encap, INTERFACES, NETWORK_INSTANCE_MODULE, Sub, VLANS, all_subinterfaces, attached, instances,
    interfaces, is_mac_vrf, vlan_of,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::escaped;
use crate::dialect::view::{HandEdit, PortMode};
use crate::model::tree::Container;
use crate::netconf::xml::NETCONF;

/// Returns the XML of a hand edit; the default operation is merge.
pub(super) fn by_hand(edit: &HandEdit, running: &Container, _hardware: &Hardware) -> String {
    let subs = all_subinterfaces(running);
    let mut console = Console { running, subs: &subs, names: BTreeMap::new(), out: String::new() };
    for (name, instance) in instances(running).filter(|(_, instance)| is_mac_vrf(instance)) {
        if let Some(id) = vlan_of(instance, &subs) {
            console.names.insert(id, name.to_owned());
        }
    }
    console.define(edit);
    if let Some(port) = &edit.port {
        console.port(edit, port);
    }
    console.out
}

struct Console<'a> {
    running: &'a Container,
    subs: &'a BTreeMap<String, Sub<'a>>,
    /// Names of the `mac-vrf` instances by VLAN id.
    names: BTreeMap<u16, String>,
    out: String,
}

// Writing to a String can't fail; hence the discarded results.
impl Console<'_> {
    fn define(&mut self, edit: &HandEdit) {
        for (id, name) in &edit.define_vlans {
            let _ = write!(
                self.out,
                "<network-instance xmlns=\"{ns}\"><name>{}</name><type xmlns:t=\"{ns}\">t:mac-vrf</type>\
                 <description>VLAN {id}</description></network-instance>",
                escaped(name),
                ns = NETWORK_INSTANCE_MODULE.namespace,
            );
            self.names.insert(*id, name.clone());
        }
        if edit.port.is_none() {
            for id in edit.remove_vlans.iter() {
                if let Some(name) = self.names.remove(&id) {
                    let _ = write!(
                        self.out,
                        "<network-instance xmlns=\"{}\" xmlns:nc=\"{NETCONF}\" nc:operation=\"remove\">\
                         <name>{}</name></network-instance>",
                        NETWORK_INSTANCE_MODULE.namespace,
                        escaped(&name)
                    );
                }
            }
        }
    }

    fn port(&mut self, edit: &HandEdit, port: &str) {
        let present: Vec<Sub<'_>> = interfaces(self.running)
            .find(|(name, _)| *name == port)
            .into_iter()
            .flat_map(|(name, interface)| super::subinterfaces(name, interface))
            .filter(|sub| sub.bridged)
            .collect();
        let tagged = |sub: &Sub<'_>| matches!(sub.encap, Some(Encap::Tagged(_)));
        for sub in &present {
            let goes = edit.clear
                || edit.mode == Some(PortMode::Access)
                || (edit.mode == Some(PortMode::Trunk) && !tagged(sub))
                || matches!(sub.encap, Some(Encap::Tagged(id)) if edit.remove_vlans.contains(id))
                || (edit.native.is_some() && !tagged(sub));
            if goes {
                self.remove(sub);
            }
        }
        let open = format!(
            "<interface xmlns=\"{}\" xmlns:nc=\"{NETCONF}\"><name>{}</name>",
            INTERFACES.namespace,
            escaped(port)
        );
        if edit.clear {
            let _ = write!(
                self.out,
                "{open}<vlan-tagging xmlns=\"{}\" nc:operation=\"remove\"/></interface>",
                VLANS.namespace
            );
            return;
        }
        let _ = write!(
            self.out,
            "{open}<vlan-tagging xmlns=\"{}\">true</vlan-tagging></interface>",
            VLANS.namespace
        );
        for id in edit.vlans.iter().filter(|id| Some(*id) != edit.native) {
            self.add(&open, port, id, true);
        }
        for id in edit.native.into_iter().chain(edit.access) {
            self.add(&open, port, id, false);
        }
    }

    fn remove(&mut self, sub: &Sub<'_>) {
        let name = sub.name();
        let user = instances(self.running).find(|(_, instance)| attached(instance).any(|a| a == name));
        if let Some((user, _)) = user {
            let _ = write!(
                self.out,
                "<network-instance xmlns=\"{}\" xmlns:nc=\"{NETCONF}\"><name>{}</name>\
                 <interface nc:operation=\"remove\"><name>{}</name></interface></network-instance>",
                NETWORK_INSTANCE_MODULE.namespace,
                escaped(user),
                escaped(&name)
            );
        }
        let _ = write!(
            self.out,
            "<interface xmlns=\"{}\" xmlns:nc=\"{NETCONF}\"><name>{}</name>\
             <subinterface nc:operation=\"remove\"><index>{}</index></subinterface></interface>",
            INTERFACES.namespace,
            escaped(sub.port),
            sub.index
        );
    }

    fn add(&mut self, open: &str, port: &str, id: u16, tagged: bool) {
        let encap = if tagged {
            format!("<single-tagged><vlan-id>{id}</vlan-id></single-tagged>")
        } else {
            "<untagged/>".to_owned()
        };
        let known = self.subs.values().find(|sub| sub.port == port && sub.encap == Some(Encap::Tagged(id)));
        let index = known.filter(|_| tagged).map_or(id, |sub| sub.index);
        let _ = write!(
            self.out,
            "{open}<subinterface><index>{index}</index><type xmlns:t=\"{}\">t:bridged</type><vlan xmlns=\"{}\">\
             <encap>{encap}</encap></vlan></subinterface></interface>",
            INTERFACES.namespace, VLANS.namespace
        );
        if let Some(name) = self.names.get(&id) {
            let _ = write!(
                self.out,
                "<network-instance xmlns=\"{}\"><name>{}</name><interface><name>{}.{index}</name></interface>\
                 </network-instance>",
                NETWORK_INSTANCE_MODULE.namespace,
                escaped(name),
                escaped(port)
            );
        }
    }
}
