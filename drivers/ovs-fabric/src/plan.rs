//! Plans the changes from the observed to the desired state. Pure.
//!
//! Open vSwitch has no VLAN objects, so ownership is derived from the ports alone:
//! - A VLAN on a port is ours when the port's `external_ids:eno-<cluster>-vlans` contains it ([`Record`]). It
//!   is then ours on the whole bridge and is removed from listed ports that should not have it. All other VLANs
//!   are foreign.
//! - Another cluster's uid in `external_ids:eno-<cluster>-uids` means that it uses our identifier. Nothing of
//!   ours is then removed from that bridge.
//! - A foreign VLAN that is in use on a bridge is refused until it is adopted. One of another cluster is
//!   always refused.
//! - The `tag`, `vlan_mode` and foreign VLANs of a port stay. Unlisted ports are never changed.
//! - A trunk with an empty list carries every VLAN. We never create one: a foreign one stays, and counts as
//!   carrying the desired VLANs. A list that would be empty without our VLANs gets [`CLOSED`], which is no
//!   VLAN. Where the port's record has VLANs of ours, the list was emptied externally: it is restored, unless
//!   drift is only reported.
//! - An access port becomes a trunk only with `Mode: trunk`, by its `vlan_mode` alone, so that its `tag`
//!   stays. It is restored once it has no VLAN of ours.

use std::collections::{BTreeMap, BTreeSet};

use eno_fabric_driver::desired::vlans_of;
use eno_fabric_driver::report::{DRIFT, reject_ports, reject_vlan};
use eno_ovsdb::Uuid;
use eno_schemas::{Drift, FabricDesired, FabricPort, Item, Note, PortMode, Rejection, VlanId, VlanSet};

use crate::ownership::VlanOwnership;
use crate::record::{AccessMode, Record, of_others, uids_key};
use crate::trunks::{CLOSED, Trunks};
use crate::view::{Index, Mode, Port, View};

/// The changes to make, and the items that can't be applied.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Port changes by row.
    pub changes: BTreeMap<Uuid, PortChange>,
    /// VLANs that become ours on a bridge.
    pub claimed: VlanSet,
    /// Desired items that are not applied.
    pub rejected: Vec<Rejection>,
    /// Messages for the administrator.
    pub notes: Vec<Note>,
    /// The accepted VLANs of each listed port.
    pub granted: BTreeMap<String, VlanSet>,
    /// VLANs of ours that were removed externally, by port row.
    pub lost: BTreeMap<Uuid, VlanSet>,
    /// The first name by which each port is listed; of a bond, that of a member.
    pub listed_as: BTreeMap<Uuid, String>,
}

/// The new state of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// The new `trunks`.
    pub trunks: Trunks,
    /// The change of `vlan_mode`.
    pub mode: ModeChange,
    /// The new record of our configuration.
    pub record: Record,
}

/// The change of a port's `vlan_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChange {
    /// Unchanged.
    #[default]
    Keep,
    /// Set to `trunk`.
    Trunk,
    /// Restored from the `trunk` that we set.
    Restore(AccessMode),
}

/// Ports that Open vSwitch refused to change, by name, with the reason. They stay as they are.
pub type SkippedPorts = BTreeMap<String, String>;

/// VLANs by bridge.
type Claims = BTreeMap<String, VlanSet>;

/// Plans the difference between the observed and the desired state.
pub fn plan(view: &View, desired: &FabricDesired, skipped: &SkippedPorts) -> Plan {
    let (plan, claims) = pass(view, desired, skipped, &Claims::new());
    if desired.device.adopt.is_empty() || claims.is_empty() {
        return plan;
    }
    // An adopted VLAN is ours on the other ports of its bridge, too.
    let claimed = plan.claimed;
    let (plan, _) = pass(view, desired, skipped, &claims);
    Plan { claimed, ..plan }
}

/// Plans with additional VLANs as ours. Also returns the VLANs that become ours.
fn pass(view: &View, desired: &FabricDesired, skipped: &SkippedPorts, ours: &Claims) -> (Plan, Claims) {
    let (mut plan, mut claims) = (Plan::default(), Claims::new());
    let index = view.index();
    let mut listed: BTreeMap<Uuid, Vec<&FabricPort>> = BTreeMap::new();
    for port in &desired.ports {
        match resolve(&index, view, port) {
            Ok(uuid) => {
                listed.entry(uuid).or_default().push(port);
                plan.listed_as.entry(uuid).or_insert_with(|| port.name.clone());
            }
            Err(reason) => plan.rejected.push(Rejection::permanent(Item::port(&port.name), reason)),
        }
    }
    let mut bridges: BTreeMap<&str, VlanOwnership<'_>> = BTreeMap::new();
    for (uuid, members) in &listed {
        let Some(port) = view.ports.get(uuid) else { continue };
        let bridge = index.bridge(*uuid).unwrap_or_default();
        let none = BTreeSet::new();
        let ownership = bridges.entry(bridge).or_insert_with(|| {
            let ports = view.bridges.get(bridge).unwrap_or(&none);
            let mut found = VlanOwnership::of(view, ports, &desired.cluster, desired.cluster_uid.as_deref());
            plan.notes.extend(
                found.conflict.map(|conflict| cluster_id_conflict(bridge, conflict, &desired.cluster)),
            );
            found.ours = ours.get(bridge).map_or(found.ours.clone(), |more| found.ours.union(more));
            found
        });
        let mut planner = Planner {
            uuid: *uuid,
            port,
            members,
            ownership,
            bridge,
            desired,
            plan: &mut plan,
            keep: VlanSet::EMPTY,
        };
        let change = match skipped.get(&port.name) {
            Some(reason) => {
                planner.refuse(reason);
                None
            }
            None => planner.plan(),
        };
        if let Some(change) = change {
            let claimed = change.record.vlans.vlans().difference(&ownership.ours);
            if !claimed.is_empty() {
                plan.claimed = plan.claimed.union(&claimed);
                let of_bridge = claims.entry(bridge.to_owned()).or_default();
                *of_bridge = of_bridge.union(&claimed);
            }
            plan.changes.insert(*uuid, change);
        }
    }
    (plan, claims)
}

/// A note that another cluster has the same identifier, so that nothing of ours is removed from the bridge.
fn cluster_id_conflict(bridge: &str, (port, uid): (&str, &str), cluster: &str) -> Note {
    let key = uids_key(cluster);
    let message = format!(
        "the cluster with the uid {uid} uses the cluster ID {cluster}, too (port {port} of bridge {bridge}), so \
         nothing is taken off that bridge: set another ENO_CLUSTER_ID for one of the two, and then remove {key} \
         from the external_ids of its ports"
    );
    Note::new("ClusterIDClash", Item::TARGET, message)
}

/// The port row of a listed port.
fn resolve(index: &Index<'_>, view: &View, port: &FabricPort) -> Result<Uuid, String> {
    let name = &port.name;
    let Some(lag) = &port.lag else {
        return index
            .port(name)
            .ok_or_else(|| format!("no bridge of the Open vSwitch has a port or an interface {name}"));
    };
    let uuid =
        index.port(lag).ok_or_else(|| format!("no bridge of the Open vSwitch has a port {lag} (Lag)"))?;
    match index.port_of_interface(name) {
        Some(other) if other != uuid => {
            let other = view.ports.get(&other).map_or("another", |port| port.name.as_str());
            Err(format!("interface {name} is a member of port {other}, not of {lag} (Lag)"))
        }
        _ => Ok(uuid),
    }
}

/// Plans one port.
struct Planner<'a> {
    /// The port's row.
    uuid: Uuid,
    /// The observed port.
    port: &'a Port,
    /// The list entries of the port; several for members of a bond.
    members: &'a [&'a FabricPort],
    /// The VLAN owners of the port's bridge.
    ownership: &'a VlanOwnership<'a>,
    /// The bridge's name.
    bridge: &'a str,
    /// The desired state.
    desired: &'a FabricDesired,
    /// The plan that is built.
    plan: &'a mut Plan,
    /// VLANs that are not removed: all desired ones, refused or not, and those that may be another cluster's.
    keep: VlanSet,
}

impl Planner<'_> {
    fn plan(&mut self) -> Option<PortChange> {
        self.keep = vlans_of(self.members.iter().copied());
        let mut want = self.keep.clone();
        if self.ownership.conflict.is_some() {
            // VLANs with our record may be the other cluster's.
            self.keep = self.keep.union(&self.ownership.ours);
        }
        for vlan in want.intersection(&self.ownership.of_others()).iter() {
            let Some(owner) = self.ownership.blocking_owner(vlan, &self.desired.device.adopt) else {
                continue;
            };
            want.remove(vlan);
            let (bridge, port) = (self.bridge, owner.port);
            let reason = match owner.cluster {
                Some(cluster) => {
                    format!("VLAN {vlan} of bridge {bridge} belongs to cluster {cluster} (port {port})")
                }
                None => format!(
                    "VLAN {vlan} is in use on bridge {bridge} (port {port}), so it is not ours: take it off \
                     there, or have it adopted"
                ),
            };
            self.refuse_vlan(vlan, &reason);
        }
        match self.port.mode() {
            Mode::Access(vlan) => self.access(vlan, &want),
            Mode::Trunk { native } => self.trunk(native, want),
            Mode::Other(mode) => {
                let name = &self.port.name;
                self.refuse(&format!(
                    "the vlan_mode of port {name} is {mode}, which carries no VLANs of ours"
                ));
                None
            }
        }
    }

    fn access(&mut self, vlan: u16, want: &VlanSet) -> Option<PortChange> {
        let record = self.record();
        let others = self.port.trunks.difference(&record.vlans);
        if self.keep.is_empty() {
            // A port that was made an access port externally loses our VLANs, and must not become an open
            // trunk later.
            let closed = others.is_empty() && !record.vlans.is_empty() && record.before.is_none();
            let rest = Trunks::EMPTY.with_closed(closed);
            return self.change(PortChange {
                trunks: others.union(&rest),
                mode: ModeChange::Keep,
                record: Record { vlans: rest, before: None },
            });
        }
        if want.is_empty() {
            return None;
        }
        let name = &self.port.name;
        if self.members.iter().all(|member| member.mode == PortMode::Keep) {
            self.refuse(&format!(
                "{name} is an access port of VLAN {vlan}, which is not ours: set Mode: trunk on it in the \
                 FabricDevice to make it a trunk"
            ));
            return None;
        }
        if !others.is_closed_or_empty() {
            self.refuse(&format!(
                "{name} is an access port that would carry VLANs {others} as a trunk, which are not ours: \
                 remove them from its trunks"
            ));
            return None;
        }
        if record.before.is_some() && !self.record_loss(want) {
            return None;
        }
        self.grant(want);
        let named = self.port.vlan_mode.is_some();
        self.change(PortChange {
            trunks: others.union(&want.clone().into()),
            mode: ModeChange::Trunk,
            record: Record {
                vlans: want.clone().into(),
                before: Some(if named { AccessMode::Named } else { AccessMode::Implied }),
            },
        })
    }

    fn trunk(&mut self, native: Option<VlanId>, mut want: VlanSet) -> Option<PortChange> {
        let name = &self.port.name;
        if let Some(native) = native.filter(|native| want.remove(*native)) {
            let reason = format!("VLAN {native} is the native VLAN of {name}, which is never changed");
            self.refuse_vlan(native, &reason);
        }
        self.grant(&want);
        let record = self.record();
        let list = &self.port.trunks;
        let recorded = record.vlans.vlans();
        let emptied = list.is_empty() && !recorded.is_empty();
        let close = emptied && self.record_loss(recorded);
        if list.is_empty() && !close {
            if !want.is_empty() && !emptied {
                self.note_open_trunk();
            }
            let vlans = Trunks::from(recorded.intersection(&self.keep));
            let before = record.before.filter(|_| !vlans.is_empty());
            return self.change(PortChange {
                trunks: Trunks::EMPTY,
                mode: ModeChange::Keep,
                record: Record { vlans, before },
            });
        }

        let lost = want.intersection(recorded).difference(list.vlans());
        let restores = close || lost.is_empty() || self.record_loss(&lost);
        let not_restored = if restores { VlanSet::EMPTY } else { lost };
        let want = want.difference(&not_restored);

        let of_others_here = of_others(&self.port.external_ids, &self.desired.cluster)
            .fold(Trunks::EMPTY, |all, (_, vlans)| all.union(&vlans));
        let stays = self.keep.union(of_others_here.vlans()).union(&native.into_iter().collect());
        let gone = self.ownership.ours.union(recorded).difference(&stays);
        let closed = list.has_closed() && (!record.vlans.has_closed() || of_others_here.has_closed());
        let mut after = list.without(&gone).union(&want.clone().into()).with_closed(closed);
        let kept = recorded.intersection(&self.keep).intersection(after.vlans());
        let mut vlans = Trunks::from(want.union(&kept).union(&not_restored));

        // True without VLANs of others or pending losses, so that the access mode can be restored without
        // opening a trunk.
        let idle = not_restored.is_empty()
            && after.is_closed_or_empty()
            && self.port.vlan_mode.as_deref() == Some("trunk");
        let before = record.before.filter(|mode| *mode == AccessMode::Named || self.port.tag.is_some());
        if let (true, Some(before)) = (idle, before) {
            let record = Record { vlans, before: None };
            return self.change(PortChange { trunks: after, mode: ModeChange::Restore(before), record });
        }
        if after.is_empty() {
            after = Trunks::NOTHING;
            // A cluster that has CLOSED in its record removes it.
            vlans = vlans.with_closed(!of_others_here.has_closed());
        }
        let before = record.before.filter(|_| !vlans.is_closed_or_empty());
        self.change(PortChange { trunks: after, mode: ModeChange::Keep, record: Record { vlans, before } })
    }

    fn record(&self) -> Record {
        Record::read(&self.port.external_ids, &self.desired.cluster)
    }

    /// Records VLANs of ours as lost; false when the drift policy leaves them removed.
    fn record_loss(&mut self, lost: &VlanSet) -> bool {
        self.plan.lost.insert(self.uuid, lost.clone());
        self.desired.device.drift == Drift::Repair
    }

    /// The change, or `None` when it changes nothing.
    fn change(&self, change: PortChange) -> Option<PortChange> {
        let same = change.trunks == self.port.trunks
            && change.mode == ModeChange::Keep
            && change.record == self.record();
        (!same).then_some(change)
    }

    fn grant(&mut self, want: &VlanSet) {
        for member in self.members {
            self.plan.granted.insert(member.name.clone(), member.vlans.intersection(want));
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.plan.rejected.extend(reject_ports(self.members, reason));
    }

    fn refuse_vlan(&mut self, vlan: VlanId, reason: &str) {
        self.plan.rejected.extend(reject_vlan(self.members, vlan, reason));
    }

    fn note_open_trunk(&mut self) {
        for member in self.members.iter().filter(|member| !member.vlans.is_empty()) {
            let message = format!(
                "the trunks of port {} are empty: it carries every VLAN and is left as it is; with \
                 trunks={CLOSED} it carries what is put there",
                self.port.name
            );
            self.plan.notes.push(Note::new("OpenTrunk", Item::port(&member.name), message));
        }
    }
}

impl PortChange {
    /// The VLANs that it adds to the port, and those that it removes.
    pub fn difference(&self, port: &Port) -> (VlanSet, VlanSet) {
        let (before, after) = (port.trunks.vlans(), self.trunks.vlans());
        (after.difference(before), before.difference(after))
    }
}

/// Notes about external changes: of each corrected port when the whole state was verified before, otherwise
/// of lost VLANs.
pub fn drift(plan: &Plan, view: &View, was_verified: bool) -> Vec<Note> {
    let changed = plan.changes.keys().filter(|_| was_verified);
    let rows: BTreeSet<Uuid> = plan.lost.keys().chain(changed).copied().collect();
    let mut notes = Vec::new();
    for uuid in rows {
        let (Some(port), Some(listed)) = (view.ports.get(&uuid), plan.listed_as.get(&uuid)) else { continue };
        let mut lost = plan.lost.get(&uuid).cloned().unwrap_or_default();
        let (mut back, mut access) = (VlanSet::EMPTY, false);
        if let (Some(change), true) = (plan.changes.get(&uuid), was_verified) {
            let (added, removed) = change.difference(port);
            lost = lost.union(&added);
            back = removed;
            access = change.mode == ModeChange::Trunk;
        }
        let mut what = Vec::new();
        if access {
            what.push("it was an access port again".to_owned());
        }
        if port.is_open() && !lost.is_empty() {
            what.push("its trunks were emptied, so that it carries every VLAN".to_owned());
        } else if !lost.is_empty() {
            what.push(format!("it had lost VLANs {lost}"));
        }
        if !back.is_empty() {
            what.push(format!("it carried VLANs {back} again"));
        }
        if what.is_empty() {
            what.push("what it remembers of this cluster was altered".to_owned());
        }
        let message = format!("port {} was changed by another hand: {}", port.name, what.join("; "));
        notes.push(Note::new(DRIFT, Item::port(listed), message));
    }
    notes.sort_by(|one, other| one.item.cmp(&other.item));
    notes
}
