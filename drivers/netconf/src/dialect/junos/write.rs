//! Renders a change.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use eno_schemas::{VlanId, VlanSet};

use super::inherit::{ids, range_text};
use super::{
    ALL, INTERFACE, INTERFACE_MODE, Junos, Layout, MEMBERS, PORT_MODE, SWITCHING, SwitchingFamily, UNIT,
};
use super::{bgp, routing};
use crate::plan::{Changes, Mode, ModeChange, ObservedConfig, PortChange};
use crate::text::Text;
use crate::xml::escape;

/// Renders `changes`. Writing to memory can't fail, so results of `write!` are dropped in this file.
pub(super) fn render(junos: Junos, observed: &ObservedConfig, changes: &Changes) -> Text {
    let none = Layout::default();
    let layout = observed.layout.get().unwrap_or(&none);
    let mut xml = Text::from(format!("<configuration xmlns=\"{}\">", junos.namespace("root")));
    let bound = routing::bound_vlans(observed, changes);
    if !changes.create.is_empty() || !changes.delete.is_empty() || !bound.is_empty() {
        let _ = write!(xml, "<vlans xmlns=\"{}\">", junos.namespace("vlans"));
        for (vid, name) in &changes.create {
            create_vlan(&mut xml, junos, observed, layout, *vid, name);
            routing::bind(&mut xml, *vid, bound.get(vid).copied());
            xml.push_str("</vlan>");
        }
        for (vid, is_bound) in bound.iter().filter(|(vid, _)| !changes.on_device().contains(**vid)) {
            if let Some(name) = observed.vlans.name(*vid) {
                let _ = write!(xml, "<vlan><name>{}</name>", escape(&name));
                routing::bind(&mut xml, *vid, Some(*is_bound));
                xml.push_str("</vlan>");
            }
        }
        for vid in changes.delete.iter() {
            let own = layout.vlans.get(&vid).is_some_and(|known| known.own);
            if let Some(name) = observed.vlans.name(vid).filter(|_| own) {
                let _ = write!(xml, "<vlan nc:operation=\"delete\"><name>{}</name></vlan>", escape(&name));
            }
        }
        xml.push_str("</vlans>");
    }
    if !changes.ports.is_empty() || routing::changes_interfaces(changes) {
        let _ = write!(xml, "<interfaces xmlns=\"{}\">", junos.namespace("interfaces"));
        for (name, change) in &changes.ports {
            let access = observed.ports.get(name).is_some_and(|port| port.mode == Some(Mode::Access));
            let none = SwitchingFamily::default();
            change_port(&mut xml, name, access, layout.ports.get(name).unwrap_or(&none), change);
        }
        routing::render_interfaces(&mut xml, observed, changes);
        xml.push_str("</interfaces>");
    }
    routing::render_vrfs(&mut xml, junos, observed, changes);
    bgp::render_policies(&mut xml, junos, changes);
    xml.push_str("</configuration>");
    xml
}

/// Begins the entry of a VLAN.
fn create_vlan(
    xml: &mut Text,
    junos: Junos,
    observed: &ObservedConfig,
    layout: &Layout,
    vid: VlanId,
    name: &str,
) {
    let current = observed.vlans.get(vid);
    let mut was_inactive = current.as_ref().is_some_and(|vlan| !vlan.active);
    let mut description = None;
    // The name is the key, so a rename deletes the VLAN and creates another.
    if let Some(old) = current.as_ref().and_then(|vlan| vlan.name.as_deref()).filter(|old| *old != name) {
        let _ = write!(xml, "<vlan nc:operation=\"delete\"><name>{}</name></vlan>", escape(old));
        description = layout.vlans.get(&vid).and_then(|known| known.description.as_deref());
        was_inactive = false;
    }
    let activation = match junos.family {
        _ if !was_inactive => "",
        // RFC 7952 metadata, junos-configuration-metadata.
        Some(_) => " xmlns:jcmd=\"http://yang.juniper.net/junos/jcmd\" jcmd:active=\"true\"",
        None => " active=\"active\"",
    };
    let _ = write!(xml, "<vlan{activation}><name>{}</name>", escape(name));
    if let Some(description) = description {
        let _ = write!(xml, "<description>{}</description>", escape(description));
    }
    let _ = write!(xml, "<vlan-id>{vid}</vlan-id>");
}

fn change_port(xml: &mut Text, name: &str, access: bool, family: &SwitchingFamily, change: &PortChange) {
    let converted = access && change.mode == ModeChange::Trunk;
    let mut back = VlanSet::EMPTY;
    let mut gone = BTreeSet::new();
    for entry in &family.entries {
        let all: VlanSet = entry.vids().into_iter().flat_map(|(first, last)| ids(first, last)).collect();
        if converted || change.close && entry.text() == ALL {
            // On a trunk the members of an access port would mean something else.
            gone.insert(entry.text());
        } else if !all.intersection(&change.remove).is_empty() {
            // The entry is removed whole, and its other VLANs are added again.
            gone.insert(entry.text());
            back = back.union(&all.difference(&change.remove));
        }
    }
    let mut added: BTreeSet<String> = back.union(&change.add).ranges().into_iter().map(range_text).collect();
    if let Some(members) = change.restore.get(MEMBERS) {
        added.extend(members.iter().flat_map(|members| members.split('\n')).map(str::to_owned));
    }
    // The VLAN of an access port may be desired on the trunk.
    let stays: Vec<String> = gone.intersection(&added).cloned().collect();
    for text in stays {
        gone.remove(&text);
        added.remove(&text);
    }
    let added_by_us = |part: &str| change.restore.get(part) == Some(&None);
    if added_by_us(INTERFACE) {
        let _ = write!(xml, "<interface nc:operation=\"delete\"><name>{}</name></interface>", escape(name));
        return;
    }
    let _ = write!(xml, "<interface><name>{}</name>", escape(name));
    if added_by_us(UNIT) {
        xml.push_str("<unit nc:operation=\"delete\"><name>0</name></unit></interface>");
        return;
    }
    xml.push_str("<unit><name>0</name><family>");
    let dropped = family.mode.filter(|_| change.mode == ModeChange::Drop);
    let nothing_stays = family.entries.iter().all(|entry| gone.contains(&entry.text()));
    if added_by_us(SWITCHING) || dropped.is_some() && !family.has_other_leaves && nothing_stays {
        xml.push_str("<ethernet-switching nc:operation=\"delete\"/></family></unit></interface>");
        return;
    }
    xml.push_str("<ethernet-switching>");
    let modes = change.restore.iter().filter(|(leaf, _)| [INTERFACE_MODE, PORT_MODE].contains(leaf));
    for (leaf, value) in modes.clone() {
        let _ = match value {
            Some(value) => write!(xml, "<{leaf}>{}</{leaf}>", escape(value)),
            None => write!(xml, "<{leaf} nc:operation=\"delete\"/>"),
        };
    }
    if modes.count() > 0 {
        // The mode is restored.
    } else if change.mode == ModeChange::Trunk {
        let leaf = family.mode.unwrap_or(INTERFACE_MODE);
        let _ = write!(xml, "<{leaf}>trunk</{leaf}>");
    } else if let Some(leaf) = dropped {
        let _ = write!(xml, "<{leaf} nc:operation=\"delete\"/>");
    }
    if !gone.is_empty() || !added.is_empty() {
        xml.push_str("<vlan>");
        for text in gone {
            let _ = write!(xml, "<members nc:operation=\"delete\">{}</members>", escape(&text));
        }
        for text in added {
            let _ = write!(xml, "<members>{}</members>", escape(&text));
        }
        xml.push_str("</vlan>");
    }
    xml.push_str("</ethernet-switching></family></unit></interface>");
}
