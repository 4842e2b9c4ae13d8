//! Translates hand edits into XML for SR Linux.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{
    Encap, INTERFACES, NETWORK_INSTANCE_MODULE, Subinterface, VLANS, all_subinterfaces,
    attached_subinterfaces, instances, interfaces, is_mac_vrf, vlan_of,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::xml_escaped;
use crate::dialect::view::{HandEdit, PortMode};
use crate::model::tree::Container;
use crate::netconf::xml::NETCONF;

/// Returns the XML of a hand edit; the default operation is merge.
pub(super) fn hand_edit_xml(edit: &HandEdit, running: &Container, _hardware: &Hardware) -> String {
    let subs = all_subinterfaces(running);
    let mut console = Console { running, subs: &subs, names: BTreeMap::new(), out: String::new() };
    for (name, instance) in instances(running).filter(|(_, instance)| is_mac_vrf(instance)) {
        if let Some(id) = vlan_of(instance, &subs) {
            console.names.insert(id, name.to_owned());
        }
    }
    console.write_definitions(edit);
    if let Some(port) = &edit.port {
        console.write_port(edit, port);
    }
    console.out
}

struct Console<'a> {
    running: &'a Container,
    subs: &'a BTreeMap<String, Subinterface<'a>>,
    /// Names of the `mac-vrf` instances by VLAN id.
    names: BTreeMap<u16, String>,
    out: String,
}

// Writing to a String can't fail; hence the discarded results.
impl Console<'_> {
    fn write_definitions(&mut self, edit: &HandEdit) {
        for (id, name) in &edit.define_vlans {
            let _ = write!(
                self.out,
                "<network-instance xmlns=\"{ns}\"><name>{}</name><type xmlns:t=\"{ns}\">t:mac-vrf</type>\
                 <description>VLAN {id}</description></network-instance>",
                xml_escaped(name),
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
                        xml_escaped(&name)
                    );
                }
            }
        }
    }

    fn write_port(&mut self, edit: &HandEdit, port: &str) {
        let present: Vec<Subinterface<'_>> = interfaces(self.running)
            .find(|(name, _)| *name == port)
            .into_iter()
            .flat_map(|(name, interface)| super::subinterfaces(name, interface))
            .filter(|sub| sub.bridged)
            .collect();
        let tagged = |sub: &Subinterface<'_>| matches!(sub.encap, Some(Encap::Tagged(_)));
        for sub in &present {
            let is_removed = edit.clear
                || edit.mode == Some(PortMode::Access)
                || (edit.mode == Some(PortMode::Trunk) && !tagged(sub))
                || matches!(sub.encap, Some(Encap::Tagged(id)) if edit.remove_vlans.contains(id))
                || (edit.native.is_some() && !tagged(sub));
            if is_removed {
                self.remove_subinterface(sub);
            }
        }
        let open = format!(
            "<interface xmlns=\"{}\" xmlns:nc=\"{NETCONF}\"><name>{}</name>",
            INTERFACES.namespace,
            xml_escaped(port)
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
            self.add_subinterface(&open, port, id, true);
        }
        for id in edit.native.into_iter().chain(edit.access) {
            self.add_subinterface(&open, port, id, false);
        }
    }

    fn remove_subinterface(&mut self, sub: &Subinterface<'_>) {
        let name = sub.name();
        let user =
            instances(self.running).find(|(_, instance)| attached_subinterfaces(instance).any(|a| a == name));
        if let Some((user, _)) = user {
            let _ = write!(
                self.out,
                "<network-instance xmlns=\"{}\" xmlns:nc=\"{NETCONF}\"><name>{}</name>\
                 <interface nc:operation=\"remove\"><name>{}</name></interface></network-instance>",
                NETWORK_INSTANCE_MODULE.namespace,
                xml_escaped(user),
                xml_escaped(&name)
            );
        }
        let _ = write!(
            self.out,
            "<interface xmlns=\"{}\" xmlns:nc=\"{NETCONF}\"><name>{}</name>\
             <subinterface nc:operation=\"remove\"><index>{}</index></subinterface></interface>",
            INTERFACES.namespace,
            xml_escaped(sub.port),
            sub.index
        );
    }

    fn add_subinterface(&mut self, open: &str, port: &str, id: u16, tagged: bool) {
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
                xml_escaped(name),
                xml_escaped(port)
            );
        }
    }
}
