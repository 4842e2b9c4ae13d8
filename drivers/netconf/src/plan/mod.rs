//! Computes the changes of a device from its observed configuration and the desired state. Pure.
//!
//! The device alone tells who owns what:
//! - A VLAN is ours when it bears the name [`vlan_name`] of its VID. Every other VLAN is foreign. A foreign VLAN that
//!   is desired and in `Adopt` gets our name, and is ours from then on.
//! - A VLAN under our name that returns after we removed it belongs to another cluster with our identifier. While
//!   such a VLAN exists, the driver removes nothing from the device ([`ClashDetector`]).
//! - On a listed port, the driver removes our tagged VLANs that are not desired. Foreign VLANs, the native VLAN and
//!   all other settings stay. A foreign list entry that becomes our VLAN elsewhere is taken off, noted, and restored
//!   later. Unlisted ports are never changed, even if they carry a VLAN of ours. A VLAN that an unlisted port refers
//!   to by name is kept until no port refers to it.
//! - A VLAN that was ours at the last report and that somebody has deleted since still counts as ours on listed
//!   ports.
//! - The driver never makes a trunk that carries every VLAN (on many devices: a trunk without a list). Such a trunk
//!   is foreign, stays, and counts as carrying the desired VLANs. A trunk that is known to have had a list with our
//!   VLANs was emptied by somebody else. It gets a list with the desired VLANs and its native VLAN, unless drift is
//!   only reported.
//! - A port loses its trunk mode with its last tagged VLAN, since the mode then serves nobody. A native VLAN needs
//!   the mode. It becomes the only list member where an empty list would carry every VLAN or be refused. If
//!   [`PortBefore`] of the port is known, the port gets back its state from before our first VLAN.

use std::collections::{BTreeMap, BTreeSet};

use eno_fabric_driver::desired::{desired_vlans, listed_name, ports_by, vlans_of};
use eno_fabric_driver::report::{BoundedNotes, reject_ports, reject_vlan};
use eno_schemas::{
    Applied, Carried, Drift, FabricDesired, FabricPort, Item, Note, PortBefore, PortMode, Rejection,
    VLAN_TAKEN_OFF, VlanId, VlanSet, is_vlan_name, vlan_name,
};

mod baseline;
mod bgp;
mod changes;
mod closed_trunks;
mod identifier_clash;
mod observed;
mod observed_vlans;
mod port_before;
mod routing;
mod tagged;
#[cfg(test)]
pub(crate) mod test_states;

pub use baseline::{Baseline, Unsettled};
pub use bgp::{
    BgpChanges, BgpModel, EntryChange, EntryId, GroupChange, GroupValues, InstanceChange, ObservedBgp,
    ObservedInstance, OwnEntry, Password, Passwords, Shapes, Tree, WantedEntry, concerns_bgp, group_name,
};
pub(crate) use bgp::{Builder, Built, Rules, is_own_name};
pub use changes::{ChangeUnit, Changes, Exclusions, ModeChange, PortChange};
pub use closed_trunks::{is_emptied, with_reported_ports};
pub use identifier_clash::ClashDetector;
pub use observed::{InterfaceState, Inventory, Layout, Mode, ObservedConfig, ObservedPort, Setting};
pub use observed_vlans::{ObservedVlan, ObservedVlans};
pub use port_before::{NATIVE, with_new_port_memory};
pub(crate) use routing::family;
pub use routing::{
    InterfaceValues, ObservedInterface, ObservedParent, ObservedRoute, ObservedRouting, ObservedVrf,
    RouteKey, RoutedChange, RoutedId, Routing, RoutingChanges, RoutingPlan, VrfChange, concerns_routing,
    has_ours, has_own_bgp, plan_routing, switched,
};
pub use tagged::Tagged;

/// The note kind for VLANs of another cluster with our identifier.
const CLASH: &str = "ClusterIDClash";
/// Maximum notes about such VLANs.
const MAX_NOTES: usize = 50;

/// The changes of a device, and the desired items that they leave out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The difference between the observed and the desired state.
    pub changes: Changes,
    /// Desired items that the driver leaves as they are, with reasons.
    pub rejected: Vec<Rejection>,
    /// Notes for the admin.
    pub notes: Vec<Note>,
    /// New port memory by interface, where it exceeds that of the command.
    pub before: BTreeMap<String, PortBefore>,
}

/// The interfaces that a command lists. A LAG stands for its listed members.
pub fn interfaces(desired: &FabricDesired) -> BTreeSet<&str> {
    desired.ports.iter().map(listed_name).collect()
}

/// The listed ports by their interfaces.
pub fn members(desired: &FabricDesired) -> BTreeMap<&str, Vec<&FabricPort>> {
    ports_by(desired, |port| Some(listed_name(port)))
}

/// Computes the difference. Units in `excluded` stay as they are and are rejected with their reasons.
pub fn plan(observed: &ObservedConfig, desired: &FabricDesired, excluded: &Exclusions) -> Plan {
    let mut plan = plan_vlans(observed, &switched(desired), excluded);
    let routing =
        plan_routing(observed, desired, excluded, &switched_after(observed, desired, &plan.changes));
    plan.changes.routing = routing.changes;
    plan.rejected.extend(routing.rejected);
    plan.notes.extend(routing.notes);
    plan
}

/// The VLANs of ours after a change.
fn switched_after(observed: &ObservedConfig, desired: &FabricDesired, changes: &Changes) -> VlanSet {
    let mut after = ours(observed, &desired.cluster).difference(&changes.delete);
    after.extend(changes.create.keys().copied());
    after
}

fn plan_vlans(observed: &ObservedConfig, desired: &FabricDesired, excluded: &Exclusions) -> Plan {
    let mut plan = Plan::default();
    let ours = ours(observed, &desired.cluster);
    let members = members(desired);
    reject_excluded(excluded, &members, &mut plan.rejected);

    let desired_vlans = desired_vlans(desired);
    let considered = desired_vlans.difference(&excluded.vlans());
    // What is as desired needs no look.
    let mut usable = considered.intersection(observed.vlans.settled(&desired.cluster));
    for vid in considered.difference(&usable).iter() {
        let name = || vlan_name(&desired.cluster, vid);
        match observed.vlans.get(vid) {
            Some(current) if !current.is_ours(&desired.cluster, vid) => {
                if let Some(reason) = adoption_refusal(vid, &current, &name(), &desired.device.adopt) {
                    plan.rejected.push(Rejection::permanent(Item::vlan(vid), reason));
                    continue;
                }
                plan.changes.create.insert(vid, name());
            }
            Some(current) if current.active => {}
            _ => {
                plan.changes.create.insert(vid, name());
            }
        }
        usable.insert(vid);
    }

    // A listed port may name a VLAN that does not exist yet. Once the VLAN exists, it is our network on that port.
    let mut ours_after = ours.union(&observed.deleted_by_others);
    let known = ours_after.clone();
    ours_after.extend(plan.changes.create.keys().copied());
    // An adopted VLAN stays ours.
    let new_vlans: VlanSet =
        ours_after.difference(&known).iter().filter(|vid| !observed.vlans.contains(*vid)).collect();
    if !observed.contested.is_empty() {
        // The owner of the other VLANs is unknown too.
        ours_after = VlanSet::EMPTY;
        plan.notes.extend(clash_notes(&observed.contested, &desired.cluster));
    }
    let mut still_carried = VlanSet::EMPTY;
    for (name, ports) in &members {
        let Some(current) = observed.ports.get(*name) else {
            if !excluded.port(name) {
                for port in ports {
                    let what = if port.lag.is_some() { "LAG" } else { "port" };
                    plan.rejected.push(Rejection::permanent(
                        Item::port(&port.name),
                        format!("{what} {name} does not exist on the device"),
                    ));
                }
            }
            continue;
        };
        if excluded.port(name) {
            still_carried = still_carried.union(current.tagged());
            continue;
        }
        let stay = excluded.on(name);
        still_carried = still_carried.union(&stay.intersection(current.tagged()));
        let repair = desired.device.drift == Drift::Repair;
        let before = port_before::prior_state_of(ports);
        let restored = if observed.contested.is_empty() {
            port_before::restored_vlans(before, current, &desired_vlans).difference(&stay)
        } else {
            VlanSet::EMPTY
        };
        let orphaned =
            current.leftovers.iter().filter(|(vid, name)| is_vlan_name(name, &desired.cluster, **vid));
        let orphaned_vlans =
            orphaned.map(|(vid, _)| *vid).filter(|_| observed.contested.is_empty()).collect();
        let subject = PortContext {
            name,
            ports,
            current,
            before,
            restored,
            orphaned_vlans,
            empty_opens: observed.empty_opens,
            repair,
        };
        let on_ports = vlans_of(ports.iter().copied());
        let wanted = on_ports.intersection(&usable).difference(&stay);
        // A desired VLAN that can't be created is not taken off its ports either.
        let keep = on_ports.union(&stay).union(&subject.restored);
        let change = plan_port(&subject, wanted, &keep, &ours_after, &mut plan);
        let port_memory = port_before::port_memory(current, before, &known, &new_vlans, change.is_some());
        plan.notes.extend(taken_off_note(&subject, port_memory.as_ref().or(before), &desired_vlans));
        if let Some(port_memory) = port_memory {
            plan.before.insert((*name).to_owned(), port_memory);
        }
        if let Some(change) = change {
            plan.changes.ports.insert((*name).to_owned(), change);
        }
    }
    if observed.contested.is_empty() {
        plan.changes.delete =
            ours.difference(&desired_vlans).difference(&still_carried).difference(&excluded.vlans());
    }
    keep_referenced_vlans(observed, &mut plan);
    plan
}

/// Returns a note for each VLAN up to a bound, then a note with the number of the rest.
fn clash_notes(contested: &VlanSet, cluster: &str) -> Vec<Note> {
    let mut notes = BoundedNotes::new(MAX_NOTES);
    contested.iter().for_each(|vid| notes.add(|| clash_note(vid, cluster)));
    notes.finish(|more| format!("and {more} more VLANs of the other cluster"))
}

fn clash_note(vid: VlanId, cluster: &str) -> Note {
    let message = format!(
        "{} comes back whenever it is taken out, so another cluster uses the cluster ID {cluster}, too, and nothing \
         is taken off the device: set another ENO_CLUSTER_ID for one of the two, or delete that VLAN by hand",
        vlan_name(cluster, vid)
    );
    Note::new(CLASH, Item::vlan(vid), message)
}

/// Returns a note on the list entries that the driver took off because their VLANs are ours elsewhere.
fn taken_off_note(
    subject: &PortContext<'_>,
    before: Option<&PortBefore>,
    desired_vlans: &VlanSet,
) -> Option<Note> {
    let off = before?.vlans.intersection(desired_vlans).difference(&vlans_of(subject.ports.iter().copied()));
    let port = subject.ports.first().filter(|_| !off.is_empty())?;
    let message = format!(
        "VLAN {off} was on the list of {} before it was ours, and is off it until it is ours no more",
        subject.name
    );
    Some(Note { kind: VLAN_TAKEN_OFF.into(), item: Item::port(&port.name), message: message.into() })
}

/// Keeps VLANs that an interface still refers to by name after the change.
fn keep_referenced_vlans(observed: &ObservedConfig, plan: &mut Plan) {
    for (name, port) in observed.ports.iter().filter(|(_, port)| !port.vlans_by_name.is_empty()) {
        let changed = plan.changes.ports.get(name);
        let converted =
            port.mode == Some(Mode::Access) && changed.is_some_and(|c| c.mode == ModeChange::Trunk);
        if converted {
            continue;
        }
        let gone = changed.map_or(VlanSet::EMPTY, |change| change.remove.difference(&port.inherited));
        for vid in port.vlans_by_name.difference(&gone).intersection(&plan.changes.delete).iter() {
            plan.changes.delete.remove(vid);
            let message = format!("VLAN {vid} is not deleted: {name} names it on the device");
            plan.notes.push(Note::new("StillNamed", Item::vlan(vid), message));
        }
    }
}

/// Returns the reason against adopting a foreign VLAN, or `None` if it may be adopted.
fn adoption_refusal(vid: VlanId, current: &ObservedVlan, name: &str, adopt: &VlanSet) -> Option<String> {
    let under = match &current.name {
        Some(foreign) => format!("under the name {foreign:?}"),
        None => "without a name".to_owned(),
    };
    match &current.rename_blocker {
        None if adopt.contains(vid) => None,
        Some(why) if adopt.contains(vid) => {
            Some(format!("VLAN {vid} exists on the device {under} and can't be adopted: {why}"))
        }
        _ => Some(format!(
            "VLAN {vid} exists on the device {under}, so it is not ours: delete it there, or let it be adopted by \
             naming it {name:?}"
        )),
    }
}

struct PortContext<'a> {
    /// The interface.
    name: &'a str,
    /// The listed ports of the interface.
    ports: &'a [&'a FabricPort],
    /// Its observed state.
    current: &'a ObservedPort,
    /// The port memory of the command.
    before: Option<&'a PortBefore>,
    /// VLANs to restore on its list.
    restored: VlanSet,
    /// VLANs of ours that are left on it and carry nothing.
    orphaned_vlans: VlanSet,
    /// An empty list of a trunk carries every VLAN, or is refused.
    empty_opens: bool,
    /// Drift is repaired and not only reported.
    repair: bool,
}

/// Computes the change of one interface: it gets `wanted`, and loses all of `ours` except `keep`.
fn plan_port(
    subject: &PortContext<'_>,
    mut wanted: VlanSet,
    keep: &VlanSet,
    ours: &VlanSet,
    plan: &mut Plan,
) -> Option<PortChange> {
    let current = subject.current;
    if let Some(what) = &current.unfit {
        let reason = format!("{} {what}", subject.name);
        plan.rejected.extend(reject_ports(subject.ports, &reason));
        wanted = VlanSet::EMPTY;
        if current.unread {
            for vid in
                current.tagged().intersection(ours).difference(keep).difference(&current.inherited).iter()
            {
                for port in subject.ports {
                    plan.rejected.push(Rejection::permanent(Item::port_vlan(&port.name, vid), &*reason));
                }
            }
            return None;
        }
    }
    for (vid, what) in current.taken.iter().filter(|(vid, _)| wanted.contains(**vid)) {
        let reason = format!("VLAN {vid} can't be on {}: {what}", subject.name);
        plan.rejected.extend(reject_vlan(subject.ports, *vid, &reason));
    }
    let taken = current.taken_vlans();
    wanted = wanted.difference(&taken);
    if port_before::is_access(current, subject.before) {
        if wanted.is_empty() {
            return None;
        }
        if subject.ports.iter().all(|port| port.mode == PortMode::Keep) {
            let vlan = current.access.map_or(String::new(), |vid| format!(" of VLAN {vid}"));
            let reason = format!(
                "{} is an access port{vlan}, which is not ours: set Mode: trunk on it in the FabricDevice to make \
                 it a trunk",
                subject.name
            );
            plan.rejected.extend(reject_ports(subject.ports, &reason));
            return None;
        }
    }
    if let Some(native) = current.native.filter(|native| wanted.contains(*native)) {
        wanted.remove(native);
        let reason = format!("VLAN {native} is the native VLAN of {}, which is never changed", subject.name);
        plan.rejected.extend(reject_vlan(subject.ports, native, &reason));
    }
    let emptied = is_emptied(current, subject.ports);
    let close = emptied && subject.repair;
    if current.open && !close {
        let (name, kind) = (subject.name, if emptied { "Drift" } else { "OpenTrunk" });
        for port in subject.ports.iter().filter(|_| !wanted.is_empty()) {
            let message = if emptied {
                emptied_list_message(name)
            } else {
                format!(
                    "{name} is a trunk without a list on the device: it carries every VLAN and is left as it is"
                )
            };
            plan.notes.push(Note {
                kind: kind.into(),
                item: Item::port(&port.name),
                message: message.into(),
            });
        }
        return None;
    }
    let tagged = current.tagged();
    // Inherited VLANs do not replace an own list entry.
    let restored = subject.restored.difference(&tagged.difference(&current.inherited));
    let unwanted = tagged.intersection(ours).union(&subject.orphaned_vlans).difference(keep);
    let mut change = PortChange {
        add: wanted.difference(tagged).union(&restored),
        remove: unwanted.difference(&taken).difference(&current.inherited),
        mode: ModeChange::Keep,
        close,
        ..PortChange::default()
    };
    // The native VLAN may be on the list. It belongs to the port.
    if let Some(native) = current.native {
        change.remove.remove(native);
        // Whether the native VLAN was on the list is unknown. Many devices drop untagged frames if it is not.
        if close && !tagged.contains(native) {
            change.add.insert(native);
        }
    }
    // VLANs that come back take the place of the placeholder.
    if !restored.is_empty() {
        change
            .remove
            .extend(subject.before.and_then(|before| port_before::placeholder_native(current, before)));
    }
    let own_list = tagged.difference(&change.remove).union(&change.add).difference(&current.inherited);
    let remaining = own_list.union(&current.inherited).union(&current.shadowed);
    let before = subject.before.and_then(|before| port_before::known_prior_state(current, before));
    let empty_opens = subject.empty_opens && !current.has_unresolved_members;
    if let Some((trunk, settings)) = before
        && own_list.is_empty()
        && !(trunk && remaining.is_empty() && empty_opens)
    {
        change.restore = port_before::to_restore(current, settings);
    }
    if change.add.is_empty() && change.remove.is_empty() && !close && change.restore.is_empty() {
        return None;
    }
    change.former = subject.before.cloned();
    match (remaining.is_empty(), current.mode, current.native) {
        // The remembered state is restored.
        (true, _, _) if before.is_some_and(|(trunk, _)| !trunk || !empty_opens) => {}
        (true, Some(Mode::Trunk), Some(native)) => {
            if subject.empty_opens {
                change.add.insert(native);
            }
        }
        // The list keeps members that match no VLAN, so it needs the mode.
        (true, _, _) if current.has_unresolved_members => {}
        (true, _, _) => change.mode = ModeChange::Drop,
        (false, None | Some(Mode::Access), _) => {
            change.mode = ModeChange::Trunk;
            if let Some((true, settings)) = before {
                change.restore = port_before::to_restore(current, settings);
            }
        }
        (false, Some(Mode::Trunk), _) => {}
    }
    Some(change)
}

/// The message about a trunk whose list somebody else emptied.
pub fn emptied_list_message(interface: &str) -> String {
    format!("{interface} carries every VLAN: its list is gone")
}

fn reject_excluded(
    excluded: &Exclusions,
    members: &BTreeMap<&str, Vec<&FabricPort>>,
    rejected: &mut Vec<Rejection>,
) {
    for (unit, reason) in excluded.reasons() {
        match unit {
            ChangeUnit::Vlan(vid) => rejected.push(Rejection::permanent(Item::vlan(*vid), reason.clone())),
            // The rejection of the wider unit covers it.
            ChangeUnit::PortVlan(name, vid) if excluded.vlan(*vid) || excluded.port(name) => {}
            ChangeUnit::Port(name) | ChangeUnit::PortVlan(name, _) => {
                for port in members.get(name.as_str()).into_iter().flatten() {
                    let item = match unit {
                        ChangeUnit::PortVlan(_, vid) => Item::port_vlan(&port.name, *vid),
                        _ => Item::port(&port.name),
                    };
                    rejected.push(Rejection::permanent(item, reason.clone()));
                }
            }
            ChangeUnit::Vrf(_) | ChangeUnit::Routed(_) | ChangeUnit::Bgp(_) => {}
        }
    }
}

/// The VLANs that bear our name.
pub fn ours(observed: &ObservedConfig, cluster: &str) -> VlanSet {
    let mut ours = observed.vlans.ours(cluster);
    ours.extend(observed.renamed.iter().filter(|vid| observed.vlans.contains(*vid)));
    ours
}

/// The VLANs that bear our name, and those with an interface of ours.
pub fn switched_or_routed(observed: &ObservedConfig, cluster: &str) -> VlanSet {
    let mut all = ours(observed, cluster);
    all.extend(routing::own_interfaces(observed, cluster).map(|(id, _)| id.vid));
    all
}

/// All VLANs that were ours at a report, on the device or on ports.
pub fn reported_vlans(applied: &Applied) -> VlanSet {
    match applied {
        Applied::Fabric { vlans, ports, .. } => ports.values().fold(vlans.clone(), |all, on| all.union(on)),
        Applied::Nad { .. } | Applied::Node { .. } | Applied::Speaker { .. } => VlanSet::EMPTY,
    }
}

/// The part of the observed state that is ours, for the report.
pub fn applied(observed: &ObservedConfig, desired: &FabricDesired) -> Applied {
    let ours = ours(observed, &desired.cluster);
    // Its port entries stay ours when somebody deletes a VLAN.
    let of_ports = ours.union(&observed.deleted_by_others);
    let (mut ports, mut carried) = (BTreeMap::new(), BTreeMap::new());
    for port in &desired.ports {
        let Some(current) = observed.ports.get(listed_name(port)) else { continue };
        let tagged = current.tagged();
        let of_ours = if current.open { &port.vlans } else { tagged }.intersection(&of_ports);
        let of_ours = of_ours.difference(&current.taken_vlans());
        if !of_ours.is_empty() {
            ports.insert(port.name.clone(), of_ours);
        }
        if let Some(mode) = current.mode {
            let untagged = if mode == Mode::Access { current.access } else { current.native };
            carried
                .insert(port.name.clone(), Carried { tagged: tagged.clone(), untagged, open: current.open });
        }
    }
    let routing = plan_routing(observed, desired, &Exclusions::default(), &ours);
    let vlans = switched_or_routed(observed, &desired.cluster);
    for (id, _) in routing::own_interfaces(observed, &desired.cluster) {
        for port in desired.ports.iter().filter(|port| id.port.as_deref() == Some(listed_name(port))) {
            ports.entry(port.name.clone()).or_insert(VlanSet::EMPTY).insert(id.vid);
        }
    }
    let (closed, before) =
        (Some(closed_trunks::closed(observed, desired)), port_before::still_needed(observed, desired));
    let (vrfs, routed) = (routing.vrfs, routing.routed);
    // The driver adds the sessions.
    let bgp = routing.bgp.into_iter().map(|owner| (owner, Vec::new())).collect();
    Applied::Fabric { vlans, ports, carried, closed, before, vrfs, routed, lookup: None, bgp }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clash_notes_are_bounded() {
        let notes = |set: &str| clash_notes(&set.parse().unwrap(), "c");
        assert_eq!(notes("1-50").len(), 50);
        assert!(notes("1-50").iter().all(|note| note.item.vlan.is_some()));
        let many = notes("1-4000");
        assert_eq!((many.len(), &*many[50].message), (51, "and 3950 more VLANs of the other cluster"));
        assert!(many.iter().all(|note| note.kind == CLASH));
    }
}
