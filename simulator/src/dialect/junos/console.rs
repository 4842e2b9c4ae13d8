//! Translates hand edits into XML for Junos.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{
    ETHERNET_SWITCHING, INTERFACES_MODULE, ROOT, VLANS_MODULE, interfaces, members, switching, vlans_by_name,
    vlans_of_member,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{leaf_is, xml_escaped};
use crate::dialect::view::{HandEdit, PortMode, VlanSet};
use crate::model::tree::Container;
use crate::netconf::xml::NETCONF;

/// Returns the XML of a hand edit; the default operation is merge.
pub(super) fn hand_edit_xml(edit: &HandEdit, running: &Container, _hardware: &Hardware) -> String {
    let mut out = format!("<configuration xmlns=\"{}\" xmlns:nc=\"{NETCONF}\">", ROOT.namespace);
    write_vlans(edit, running, &mut out);
    if let Some(port) = &edit.port {
        write_interface(edit, port, running, &mut out);
    }
    out.push_str("</configuration>");
    out
}

// Writing to a String can't fail; hence the discarded results.
fn write_vlans(edit: &HandEdit, running: &Container, out: &mut String) {
    let _ = write!(out, "<vlans xmlns=\"{}\">", VLANS_MODULE.namespace);
    let names = vlans_by_name(running);
    let remove = |out: &mut String, name: &str| {
        let _ = write!(out, "<vlan nc:operation=\"remove\"><name>{}</name></vlan>", xml_escaped(name));
    };
    for (id, name) in &edit.define_vlans {
        // Remove a VLAN that has the id under another name: ids are unique.
        for (other, _) in names.iter().filter(|(other, ids)| ids.contains(*id) && **other != name) {
            remove(out, other);
        }
        let _ = write!(out, "<vlan><name>{}</name><vlan-id>{id}</vlan-id></vlan>", xml_escaped(name));
    }
    if edit.port.is_none() {
        for (name, ids) in &names {
            if !ids.intersection(&edit.remove_vlans).is_empty() {
                remove(out, name);
            }
        }
    }
    out.push_str("</vlans>");
}

fn write_interface(edit: &HandEdit, port: &str, running: &Container, out: &mut String) {
    let _ = write!(
        out,
        "<interfaces xmlns=\"{}\"><interface><name>{}</name>",
        INTERFACES_MODULE.namespace,
        xml_escaped(port)
    );
    if edit.clear || edit.mode == Some(PortMode::Access) {
        out.push_str("<native-vlan-id nc:operation=\"remove\"/>");
    }
    if let (Some(native), false) = (edit.native, edit.clear) {
        let _ = write!(out, "<native-vlan-id>{native}</native-vlan-id>");
    }
    out.push_str("<unit><name>0</name><family><ethernet-switching");
    if edit.clear {
        out.push_str(" nc:operation=\"remove\"/>");
    } else {
        out.push('>');
        if let Some(mode) = edit.mode {
            let mode = if mode == PortMode::Trunk { "trunk" } else { "access" };
            let _ = write!(out, "<interface-mode>{mode}</interface-mode>");
        }
        write_members(edit, port, running, out);
        out.push_str("</ethernet-switching>");
    }
    out.push_str("</family></unit></interface></interfaces>");
}

fn write_members(edit: &HandEdit, port: &str, running: &Container, out: &mut String) {
    let names = vlans_by_name(running);
    let all: VlanSet = names.values().flat_map(|ids| ids.iter().collect::<Vec<_>>()).collect();
    let present = interfaces(running).find(|(name, _)| *name == port).and_then(|(_, i)| switching(i));
    let was_trunk = present.is_some_and(|s| leaf_is(s, ETHERNET_SWITCHING, "interface-mode", "trunk"));
    let becomes_trunk = edit.mode.map_or(was_trunk, |mode| mode == PortMode::Trunk);
    out.push_str("<vlan>");
    for member in present.into_iter().flat_map(members) {
        let ids = vlans_of_member(member, &names, &all);
        let access_changes = !becomes_trunk && edit.access.is_some();
        let is_removed =
            was_trunk != becomes_trunk || access_changes || !ids.intersection(&edit.remove_vlans).is_empty();
        if is_removed {
            let _ = write!(out, "<members nc:operation=\"remove\">{}</members>", xml_escaped(member));
        }
        if is_removed && was_trunk && becomes_trunk {
            // Keep the other ids of a range or list.
            write_ranges(&ids.iter().filter(|id| !edit.remove_vlans.contains(*id)).collect(), out);
        }
    }
    let mut name_of: BTreeMap<u16, &str> = BTreeMap::new();
    for (name, ids) in &names {
        let mut ids = ids.iter();
        if let (Some(id), None) = (ids.next(), ids.next()) {
            name_of.insert(id, name);
        }
    }
    name_of.extend(edit.define_vlans.iter().map(|(id, name)| (*id, name.as_str())));
    let added: VlanSet = edit.vlans.iter().chain(edit.access).collect();
    let mut unnamed_ids = Vec::new();
    for id in added.iter() {
        match name_of.get(&id) {
            Some(name) => {
                let _ = write!(out, "<members>{}</members>", xml_escaped(name));
            }
            None => unnamed_ids.push(id),
        }
    }
    write_ranges(&unnamed_ids.into_iter().collect(), out);
    out.push_str("</vlan>");
}

fn write_ranges(ids: &VlanSet, out: &mut String) {
    for (low, high) in ids.ranges() {
        let _ = if low == high {
            write!(out, "<members>{low}</members>")
        } else {
            write!(out, "<members>{low}-{high}</members>")
        };
    }
}
