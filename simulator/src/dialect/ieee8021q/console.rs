//! Translates hand edits into XML for an IEEE 802.1Q bridge.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{
    BRIDGE_NAME, BRIDGE_PORT, DOT1Q, IANA_IF_TYPE, IF, INTERFACE, Registration, component, interfaces,
    port_number, registration_entries,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{child, leaf, xml_escaped};
use crate::dialect::view::{HandEdit, PortMode, VlanSet};
use crate::model::tree::Container;
use crate::netconf::xml::NETCONF;

/// Returns the XML of a hand edit; the default operation is merge.
pub(super) fn hand_edit_xml(edit: &HandEdit, running: &Container, hardware: &Hardware) -> String {
    let mut out = format!(
        "<bridges xmlns=\"{ns}\" xmlns:t=\"{ns}\" xmlns:nc=\"{NETCONF}\"><bridge><name>{BRIDGE_NAME}</name>\
         <component><name>{BRIDGE_NAME}</name><bridge-vlan>",
        ns = DOT1Q.namespace
    );
    // Writing to a String can't fail; hence the discarded results.
    for (vid, name) in &edit.define_vlans {
        let _ = write!(out, "<vlan><vid>{vid}</vid><name>{}</name></vlan>", xml_escaped(name));
    }
    if edit.port.is_none() {
        for vid in edit.remove_vlans.iter() {
            let _ = write!(out, "<vlan nc:operation=\"remove\"><vid>{vid}</vid></vlan>");
        }
    }
    out.push_str("</bridge-vlan>");
    let port = edit.port.as_ref().and_then(|port| Some((port, port_number(hardware, port)?)));
    if let Some((port, number)) = port {
        write_registrations(edit, port, number, running, &mut out);
    }
    out.push_str("</component></bridge></bridges>");
    if let Some((port, _)) = port {
        write_pvid(edit, port, &mut out);
    }
    out
}

fn write_pvid(edit: &HandEdit, port: &str, out: &mut String) {
    let pvid = match edit.access.or(edit.native) {
        Some(vid) => format!("<pvid>{vid}</pvid>"),
        None if edit.clear => format!("<pvid xmlns:nc=\"{NETCONF}\" nc:operation=\"remove\"/>"),
        None => return,
    };
    let kind = if port.starts_with("lag") { "ieee8023adLag" } else { "ethernetCsmacd" };
    let _ = write!(
        out,
        "<interfaces xmlns=\"{}\"><interface><name>{}</name><type xmlns:t=\"{}\">t:{kind}</type>\
         <bridge-port xmlns=\"{}\">{pvid}</bridge-port></interface></interfaces>",
        IF.namespace,
        xml_escaped(port),
        IANA_IF_TYPE.namespace,
        DOT1Q.namespace
    );
}

/// Rewrites the registration entries of a port. An entry that also holds unaffected VLANs is split.
fn write_registrations(edit: &HandEdit, port: &str, number: u16, running: &Container, out: &mut String) {
    let before = component(running).map(registration_entries).unwrap_or_default();
    let member_of = |tagging: &str| -> VlanSet {
        let with = before.iter().filter(|r| r.ports.get(&number).is_some_and(|(_, t)| *t == tagging));
        with.flat_map(|r| r.vids.iter().collect::<Vec<_>>()).collect()
    };
    let (tagged, untagged) = (member_of("tagged"), member_of("untagged"));
    let mut removed_vids: VlanSet = edit.remove_vlans.clone();
    let changes_untagged = edit.access.is_some() || edit.native.is_some();
    if edit.clear || edit.mode == Some(PortMode::Access) {
        removed_vids = removed_vids.iter().chain(tagged.iter()).collect();
    }
    if edit.clear
        || changes_untagged
        || (edit.mode == Some(PortMode::Trunk) && !was_trunk(running, port, &tagged))
    {
        removed_vids = removed_vids.iter().chain(untagged.iter()).collect();
    }
    let added_untagged: VlanSet = edit.access.into_iter().chain(edit.native).collect();
    let added_tagged: VlanSet = edit.vlans.iter().filter(|vid| !added_untagged.contains(*vid)).collect();
    let mut after = before.clone();
    set_membership(&mut after, &removed_vids, number, None);
    set_membership(&mut after, &added_tagged, number, Some("tagged"));
    set_membership(&mut after, &added_untagged, number, Some("untagged"));
    out.push_str("<filtering-database>");
    for obsolete in before.iter().filter(|r| !after.iter().any(|a| same_key(a, r))) {
        let _ = write!(
            out,
            "<vlan-registration-entry nc:operation=\"remove\"><database-id>{}</database-id><vids>{}</vids>\
             </vlan-registration-entry>",
            obsolete.database, obsolete.vids
        );
    }
    for registration in after {
        let _ = write!(
            out,
            "<vlan-registration-entry nc:operation=\"replace\"><database-id>{}</database-id><vids>{}</vids>\
             <entry-type>static</entry-type>",
            registration.database, registration.vids
        );
        for (port, (control, tagging)) in &registration.ports {
            let _ = write!(
                out,
                "<port-map><port-ref>{port}</port-ref><static-vlan-registration-entries>\
                 <registrar-admin-control>{control}</registrar-admin-control><vlan-transmitted>{tagging}\
                 </vlan-transmitted></static-vlan-registration-entries></port-map>"
            );
        }
        out.push_str("</vlan-registration-entry>");
    }
    out.push_str("</filtering-database>");
}

fn was_trunk(running: &Container, port: &str, tagged: &VlanSet) -> bool {
    let exists = interfaces(running)
        .find(|(name, _)| *name == port)
        .and_then(|(_, interface)| child(interface, INTERFACE, "bridge-port"))
        .is_some_and(|port| leaf(port, BRIDGE_PORT, "bridge-name").is_some());
    exists && !tagged.is_empty()
}

fn same_key(a: &Registration, b: &Registration) -> bool {
    a.database == b.database && a.vids == b.vids
}

/// Makes a port a tagged or untagged member of VLANs; `None` removes it from them.
fn set_membership(all: &mut Vec<Registration>, vids: &VlanSet, number: u16, tagging: Option<&'static str>) {
    let mut rest = vids.clone();
    for mut registration in std::mem::take(all) {
        let affected = registration.vids.intersection(vids);
        if !affected.is_empty() {
            rest = rest.iter().filter(|vid| !affected.contains(*vid)).collect();
            let mut part = Registration { vids: affected, ..registration.clone() };
            registration.vids = registration.vids.iter().filter(|vid| !vids.contains(*vid)).collect();
            match tagging {
                Some(tagging) => part.ports.insert(number, ("fixed-new-ignored", tagging)),
                None => part.ports.remove(&number),
            };
            if !part.ports.is_empty() {
                all.push(part);
            }
        }
        if !registration.vids.is_empty() {
            all.push(registration);
        }
    }
    if let (Some(tagging), false) = (tagging, rest.is_empty()) {
        let ports = BTreeMap::from([(number, ("fixed-new-ignored", tagging))]);
        all.push(Registration { database: 0, vids: rest, ports });
    }
}
