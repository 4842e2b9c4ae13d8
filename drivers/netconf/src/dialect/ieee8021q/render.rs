//! Renders changes of 802.1Q bridges.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use eno_schemas::VlanId;

use super::entries::{PortChanges, Registration, edit, registration_of};
use super::{
    ALL_FRAMES, BRIDGE, BridgeLayout, Component, FILTERING, INTERFACES, ONLY_UNTAGGED, REGISTRATIONS,
    UNTAGGED_ONLY,
};
use crate::plan::{Changes, ModeChange, ObservedConfig, PortChange};
use crate::text::Text;
use crate::xml::escape;

pub(super) fn render(layout: &BridgeLayout, observed: &ObservedConfig, changes: &Changes) -> Text {
    let mut by_component: BTreeMap<usize, BTreeMap<VlanId, PortChanges>> = BTreeMap::new();
    for (name, change) in &changes.ports {
        let Some(location) = layout.ports.get(name) else { continue };
        let vids = by_component.entry(location.component).or_default();
        let former = |vid| registration_of(change.former(REGISTRATIONS)?, vid);
        for vid in change.add.iter() {
            let of_list = change.former.as_ref().is_some_and(|former| former.vlans.contains(vid));
            let registration = former(vid).filter(|former| of_list && former.is_fixed());
            let registration = registration.unwrap_or_else(Registration::ours);
            vids.entry(vid).or_default().set.insert(location.number, registration);
        }
        for vid in change.remove.iter() {
            let changes = vids.entry(vid).or_default();
            match former(vid).filter(|former| !former.is_fixed()) {
                Some(former) => drop(changes.set.insert(location.number, former)),
                None => changes.remove.push(location.number),
            }
        }
    }
    let none = BTreeMap::new();
    // Components by bridge.
    let mut components: BTreeMap<&str, Text> = BTreeMap::new();
    for (at, component) in layout.components.iter().enumerate() {
        let entries = edit(&component.entries, by_component.get(&at).unwrap_or(&none));
        let vlans = vlans(component, observed, changes);
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
fn vlans(component: &Component, observed: &ObservedConfig, changes: &Changes) -> Text {
    let mut xml = Text::new();
    for (vid, name) in changes.create.iter().filter(|_| component.holds_vlans) {
        if component.vlans.get(vid).and_then(Option::as_ref) != Some(name) {
            let _ = write!(xml, "<vlan><vid>{vid}</vid><name>{}</name></vlan>", escape(name));
        }
    }
    // In another component the VID may be foreign.
    let is_it = |vid: &VlanId| {
        let name = observed.vlans.get(*vid).map(|vlan| vlan.into_owned().name);
        name.is_some_and(|name| component.vlans.get(vid) == Some(&name))
    };
    for vid in changes.delete.iter().filter(is_it) {
        let _ = write!(xml, "<vlan nc:operation=\"remove\"><vid>{vid}</vid></vlan>");
    }
    xml
}

/// Renders ports that become trunks, with ingress filtering, and ports whose settings are restored.
fn render_interfaces(xml: &mut Text, layout: &BridgeLayout, changes: &Changes) {
    let is_changed = |change: &PortChange| {
        !change.restore.is_empty() || change.mode == ModeChange::Trunk && !change.was_trunk()
    };
    let mut ports = changes.ports.iter().filter(|(_, change)| is_changed(change)).peekable();
    if ports.peek().is_none() {
        return;
    }
    let _ = write!(xml, "<interfaces xmlns=\"{INTERFACES}\">");
    for (name, change) in ports {
        let _ = write!(xml, "<interface><name>{}</name><bridge-port xmlns=\"{BRIDGE}\">", escape(name));
        let untagged_only = layout.ports.get(name).is_some_and(|location| location.untagged_only);
        if let Some(Some(_)) = change.restore.get(ONLY_UNTAGGED) {
            let _ = write!(xml, "<acceptable-frame>{UNTAGGED_ONLY}</acceptable-frame>");
        } else if untagged_only && change.mode == ModeChange::Trunk {
            let _ = write!(xml, "<acceptable-frame>{ALL_FRAMES}</acceptable-frame>");
        }
        let _ = match change.restore.get(FILTERING) {
            Some(Some(value)) => write!(xml, "<{FILTERING}>{}</{FILTERING}>", escape(value)),
            // Some servers check the value of what is removed.
            Some(None) => write!(xml, "<{FILTERING} nc:operation=\"remove\">true</{FILTERING}>"),
            None if change.mode == ModeChange::Trunk && !change.was_trunk() => {
                write!(xml, "<{FILTERING}>true</{FILTERING}>")
            }
            None => Ok(()),
        };
        xml.push_str("</bridge-port></interface>");
    }
    xml.push_str("</interfaces>");
}
