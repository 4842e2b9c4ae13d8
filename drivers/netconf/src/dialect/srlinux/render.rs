//! Renders changes of SR Linux.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use eno_schemas::{VlanId, VlanSet};

use super::{
    Attachment, INTERFACES, Member, NETWORK_INSTANCE, ORPHANS, SrLinuxLayout, Subinterfaces, TAGGING,
    UNTAGGED, VLANS, Vrf,
};
use super::{bgp, routing};
use crate::plan::{Changes, ModeChange, ObservedConfig, PortChange};
use crate::text::Text;
use crate::xml::escape;

/// Indices of subinterfaces that are not VIDs.
const FREE_INDICES: std::ops::RangeInclusive<u32> = 4096..=9999;

const REMOVE: &str = " nc:operation=\"remove\"";

/// Removes `vlan-tagging`, with its value: some servers check that.
fn no_tagging(xml: &mut Text, tagging: bool) -> std::fmt::Result {
    write!(xml, "<vlan-tagging xmlns=\"{VLANS}\"{REMOVE}>{tagging}</vlan-tagging>")
}
const END: &str = "</network-instance>";

pub(super) fn render(observed: &ObservedConfig, changes: &Changes) -> Text {
    let layout = observed.layout.get::<SrLinuxLayout>();
    let nothing = Subinterfaces::default();
    let current = |name: &str| layout.and_then(|layout| layout.ports.get(name)).unwrap_or(&nothing);
    let mut xml = Text::new();
    let name_of = |vid: VlanId| {
        let made = changes.create.get(&vid).map(String::as_str);
        made.map(Cow::Borrowed).or_else(|| observed.vlans.name(vid))
    };
    let mut edits: BTreeMap<VlanId, Members> = BTreeMap::new();
    for (name, change) in &changes.ports {
        let ports = current(name);
        let indices = indices(ports, change);
        let port: Arc<str> = name.as_str().into();
        render_port(&mut xml, name, ports, change, &indices, &name_of);
        for (vid, index) in indices {
            edits.entry(vid).or_default().add.push(Member::Subinterface(Arc::clone(&port), index));
        }
        for vid in change.remove.iter() {
            let attached = ports.vlans.get(&vid).and_then(|sub| match &sub.attached {
                Attachment::None => None,
                Attachment::Usual => Some(Member::Subinterface(Arc::clone(&port), sub.index)),
                Attachment::Named(name) => Some(Member::Other(Arc::clone(name))),
            });
            edits.entry(vid).or_default().remove.extend(attached);
        }
    }
    for (vid, is_added, irb) in routing::irbs(changes) {
        let members = layout.and_then(|layout| layout.vrfs.get(&vid)).map(|vrf| &vrf.interfaces);
        let is_there = members.is_some_and(|members| members.contains(&irb));
        if is_added && !is_there {
            edits.entry(vid).or_default().add.push(irb);
        } else if !is_added && is_there {
            edits.entry(vid).or_default().remove.push(irb);
        }
    }
    let none = Members::default();
    let mut touched = changes.vlans();
    touched.extend(edits.keys().copied());
    for vid in touched.iter() {
        let vrf = layout.and_then(|layout| layout.vrfs.get(&vid));
        let members = edits.get(&vid).unwrap_or(&none);
        let inactive = observed.vlans.get(vid).is_some_and(|vlan| !vlan.active);
        render_vrf(&mut xml, vrf, changes.create.get(&vid), inactive, changes.delete.contains(vid), members);
    }
    routing::render(&mut xml, observed, changes);
    bgp::render_policies(&mut xml, changes);
    xml
}

/// Changes of a mac-vrf's interfaces, by their names in it.
#[derive(Default)]
struct Members {
    add: Vec<Member>,
    remove: Vec<Member>,
}

/// The subinterface index of each VID to add, existing or new.
fn indices(current: &Subinterfaces, change: &PortChange) -> BTreeMap<VlanId, u32> {
    let mut used = current.used.clone();
    let mut indices = BTreeMap::new();
    let (own, others): (Vec<VlanId>, Vec<VlanId>) = change
        .add
        .iter()
        .partition(|vid| current.vlans.contains_key(vid) || !used.contains(&u32::from(vid.get())));
    for vid in own {
        let index = current.vlans.get(&vid).map_or(u32::from(vid.get()), |sub| sub.index);
        used.insert(index);
        indices.insert(vid, index);
    }
    for vid in others {
        // A port can't have as many subinterfaces as there are free indices.
        let mut free = FREE_INDICES;
        let Some(index) = free.find(|index| !used.contains(index)) else { break };
        used.insert(index);
        indices.insert(vid, index);
    }
    indices
}

fn render_port<'a>(
    xml: &mut Text,
    name: &str,
    current: &Subinterfaces,
    change: &PortChange,
    indices: &BTreeMap<VlanId, u32>,
    name_of: &impl Fn(VlanId) -> Option<Cow<'a, str>>,
) {
    let _ = write!(xml, "<interface xmlns=\"{INTERFACES}\"><name>{}</name>", escape(name));
    let _ = match change.restore.get(TAGGING) {
        Some(Some(value)) => write!(xml, "<vlan-tagging xmlns=\"{VLANS}\">{}</vlan-tagging>", escape(value)),
        Some(None) => no_tagging(xml, current.tagging),
        None => Ok(()),
    };
    if let Some(None) = change.restore.get(UNTAGGED) {
        for index in &current.untagged {
            let _ = write!(
                xml,
                "<subinterface><index>{index}</index><vlan xmlns=\"{VLANS}\"><encap nc:operation=\"remove\"/></vlan>\
                 </subinterface>"
            );
        }
    }
    match change.mode {
        ModeChange::Trunk if change.restore.contains_key(TAGGING) => {}
        ModeChange::Trunk => {
            let _ = write!(xml, "<vlan-tagging xmlns=\"{VLANS}\">true</vlan-tagging>");
            for index in &current.whole {
                let _ = write!(
                    xml,
                    "<subinterface><index>{index}</index><vlan xmlns=\"{VLANS}\"><encap><untagged/></encap></vlan>\
                     </subinterface>"
                );
            }
        }
        // `vlan-tagging` stays while another subinterface needs it, such as the one for untagged frames.
        ModeChange::Drop if current.used.len() == change.remove.len() => {
            let _ = no_tagging(xml, current.tagging);
        }
        ModeChange::Drop | ModeChange::Keep => {}
    }
    // Subinterfaces that were in no network-instance before our first VLAN stay.
    let orphans: VlanSet = change.former(ORPHANS).and_then(|text| text.parse().ok()).unwrap_or_default();
    for sub in change.remove.difference(&orphans).iter().filter_map(|vid| current.vlans.get(&vid)) {
        let _ =
            write!(xml, "<subinterface nc:operation=\"remove\"><index>{}</index></subinterface>", sub.index);
    }
    for (vid, index) in indices.iter().filter(|(vid, _)| !current.vlans.contains_key(vid)) {
        let _ = write!(
            xml,
            "<subinterface><index>{index}</index><type xmlns:srl_nokia-if=\"{INTERFACES}\">srl_nokia-if:bridged</type>"
        );
        if let Some(name) = name_of(*vid) {
            let _ = write!(xml, "<description>{}</description>", escape(&name));
        }
        let _ = write!(
            xml,
            "<vlan xmlns=\"{VLANS}\"><encap><single-tagged><vlan-id>{vid}</vlan-id></single-tagged></encap></vlan>\
             </subinterface>"
        );
    }
    xml.push_str("</interface>");
}

/// Renders one VLAN: created, replaced under our name, deleted, or with changed interfaces.
fn render_vrf(
    xml: &mut Text,
    current: Option<&Vrf>,
    create: Option<&String>,
    inactive: bool,
    delete: bool,
    members: &Members,
) {
    let begin = |xml: &mut Text, name: &str, operation: &str| {
        let _ = write!(
            xml,
            "<network-instance xmlns=\"{NETWORK_INSTANCE}\"{operation}><name>{}</name>",
            escape(name)
        );
    };
    let replaced = current.filter(|vrf| create.is_some_and(|name| *name != vrf.name));
    if let Some(gone) = replaced.or(current.filter(|_| delete)) {
        begin(xml, &gone.name, REMOVE);
        xml.push_str(END);
        if delete {
            return;
        }
    }
    let Some(name) = create.or(current.map(|vrf| &vrf.name)) else { return };
    if create.is_none() && members.add.is_empty() && members.remove.is_empty() {
        return;
    }
    begin(xml, name, "");
    if create.is_some() {
        let _ = write!(
            xml,
            "<type xmlns:srl_nokia-netinst=\"{NETWORK_INSTANCE}\">srl_nokia-netinst:mac-vrf</type>"
        );
    }
    if create.is_some() && inactive {
        xml.push_str("<admin-state>enable</admin-state>");
    }
    if let Some(gone) = replaced {
        if let Some(description) = &gone.description {
            let _ = write!(xml, "<description>{}</description>", escape(description));
        }
        for interface in gone.interfaces.iter().filter(|name| !members.remove.contains(name)) {
            let _ = write!(xml, "<interface><name>{}</name></interface>", escape(&interface.to_string()));
        }
    } else {
        for interface in &members.remove {
            let _ =
                write!(xml, "<interface{REMOVE}><name>{}</name></interface>", escape(&interface.to_string()));
        }
    }
    for interface in &members.add {
        let _ = write!(xml, "<interface><name>{}</name></interface>", escape(&interface.to_string()));
    }
    xml.push_str(END);
}
