//! Writing 802.1Q bridges.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use eno_schemas::VlanId;

use super::entries::{PortChanges, edit};
use super::{BRIDGE, BridgeLayout, Component, INTERFACES};
use crate::plan::{Changes, ModeChange};
use crate::text::Text;
use crate::xml::escape;

pub(super) fn render(layout: &BridgeLayout, changes: &Changes) -> Text {
    let mut by_component: BTreeMap<usize, BTreeMap<VlanId, PortChanges>> = BTreeMap::new();
    for (name, change) in &changes.ports {
        let Some(place) = layout.ports.get(name) else { continue };
        let vids = by_component.entry(place.component).or_default();
        for vid in change.add.iter() {
            vids.entry(vid).or_default().add.push(place.number);
        }
        for vid in change.remove.iter() {
            vids.entry(vid).or_default().remove.push(place.number);
        }
    }
    let none = BTreeMap::new();
    // By bridge.
    let mut components: BTreeMap<&str, Text> = BTreeMap::new();
    for (at, component) in layout.components.iter().enumerate() {
        let entries = edit(&component.entries, by_component.get(&at).unwrap_or(&none));
        let vlans = vlans(component, changes);
        if entries.is_empty() && vlans.is_empty() {
            continue;
        }
        let xml = components.entry(&component.bridge).or_default();
        let _ = write!(xml, "<component><name>{}</name>", escape(&component.name));
        for (element, content) in [("filtering-database", entries), ("bridge-vlan", vlans)] {
            if !content.is_empty() {
                let _ = write!(xml, "<{element}>");
                xml.append(content);
                let _ = write!(xml, "</{element}>");
            }
        }
        xml.push_str("</component>");
    }
    let mut xml = Text::new();
    if !components.is_empty() {
        let _ = write!(xml, "<bridges xmlns=\"{BRIDGE}\">");
        for (bridge, content) in components {
            let _ = write!(xml, "<bridge><name>{}</name>", escape(bridge));
            xml.append(content);
            xml.push_str("</bridge>");
        }
        xml.push_str("</bridges>");
    }
    render_interfaces(&mut xml, layout, changes);
    xml
}

/// The content of `<bridge-vlan>`.
fn vlans(component: &Component, changes: &Changes) -> Text {
    let mut xml = Text::new();
    for (vid, name) in changes.make.iter().filter(|_| component.home) {
        if component.vlans.get(vid).and_then(Option::as_ref) != Some(name) {
            let _ = write!(xml, "<vlan><vid>{vid}</vid><name>{}</name></vlan>", escape(name));
        }
    }
    for vid in changes.delete.iter().filter(|vid| component.vlans.contains_key(vid)) {
        let _ = write!(xml, "<vlan nc:operation=\"remove\"><vid>{vid}</vid></vlan>");
    }
    xml
}

/// Ports that become trunks: they take no frames of VLANs that they do not carry.
fn render_interfaces(xml: &mut Text, layout: &BridgeLayout, changes: &Changes) {
    let mut trunks = changes.ports.iter().filter(|(_, change)| change.mode == ModeChange::Trunk).peekable();
    if trunks.peek().is_none() {
        return;
    }
    let _ = write!(xml, "<interfaces xmlns=\"{INTERFACES}\">");
    for (name, _) in trunks {
        let _ = write!(xml, "<interface><name>{}</name><bridge-port xmlns=\"{BRIDGE}\">", escape(name));
        if layout.ports.get(name).is_some_and(|place| place.untagged_only) {
            xml.push_str("<acceptable-frame>admit-all-frames</acceptable-frame>");
        }
        xml.push_str("<enable-ingress-filtering>true</enable-ingress-filtering></bridge-port></interface>");
    }
    xml.push_str("</interfaces>");
}
