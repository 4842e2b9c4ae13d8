//! What is to change, from what is there and what is wanted. Pure.
//!
//! Whose is what, told from the device alone, since Open vSwitch has no objects for VLANs:
//! - A VLAN on a port is ours when the port's `external_ids:eno-<cluster>-vlans` has it ([`Record`]), and then it is
//!   ours on the whole bridge: on listed ports it goes where it is not wanted. All other VLANs are foreign.
//! - Another cluster's uid in `external_ids:eno-<cluster>-uids` says that it has our identifier: then nothing of ours is
//!   taken off that bridge.
//! - A VLAN that is not ours on a bridge and that anybody has there is refused until it is adopted; one of another
//!   cluster always.
//! - `tag`, `vlan_mode` and foreign VLANs of a port stay, and unlisted ports are never touched.
//! - A trunk with an empty list carries every VLAN. We never make one: it is foreign, stays, and counts as carrying
//!   what is wanted. A list that would be empty without ours is [`CLOSED`], which is no VLAN. Where the port remembers
//!   VLANs of ours, another hand emptied the list: it gets one again, unless drift is only reported.
//! - An access port becomes a trunk only where `Mode: trunk` is said, by `vlan_mode` alone, so that its `tag` stays;
//!   it is what it was again once nothing of ours is on it.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::{Uuid, write_ranges};
use eno_schemas::{Drift, FabricDesired, FabricPort, Item, Note, PortMode, Rejection, VlanId, VlanSet};

use crate::ownership::{Ownership, ids};
use crate::record::{AccessMode, CLOSED, Record, of_others, uids_key};
use crate::view::{Index, Mode, Port, View};

/// What is to be done, and what can't be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// By row.
    pub changes: BTreeMap<Uuid, PortChange>,
    /// VLANs that become ours on a bridge where they were not.
    pub claimed: VlanSet,
    /// What is wanted and left as it is.
    pub rejected: Vec<Rejection>,
    /// What the admin should know.
    pub notes: Vec<Note>,
    /// Of the VLANs of each listed port those that nothing speaks against.
    pub granted: BTreeMap<String, VlanSet>,
    /// What other hands took off ports, by row.
    pub lost: BTreeMap<Uuid, VlanSet>,
    /// The first name by which each port is listed, which for a bond is that of a member.
    pub listed_as: BTreeMap<Uuid, String>,
}

/// What a port becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChange {
    /// Its `trunks`.
    pub trunks: BTreeSet<u16>,
    /// Its `vlan_mode`.
    pub mode: ModeChange,
    /// What it remembers of us.
    pub record: Record,
}

/// What becomes of a port's `vlan_mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChange {
    /// It stays.
    #[default]
    Keep,
    /// It becomes `trunk`.
    Trunk,
    /// It is `trunk`, by us, and becomes what it was.
    Restore(AccessMode),
}

/// Ports that stay as they are, by name, and why: Open vSwitch refused to change them.
pub type LeftOut = BTreeMap<String, String>;

/// VLANs by bridge.
type Claims = BTreeMap<String, VlanSet>;

/// Works out the difference.
pub fn plan(view: &View, desired: &FabricDesired, left_out: &LeftOut) -> Plan {
    let (plan, claims) = pass(view, desired, left_out, &Claims::new());
    if desired.device.adopt.is_empty() || claims.is_empty() {
        return plan;
    }
    // What is adopted is ours on the other ports of its bridge, too.
    let claimed = plan.claimed;
    let (plan, _) = pass(view, desired, left_out, &claims);
    Plan { claimed, ..plan }
}

/// Plans with these VLANs as ours, besides those that are. Also gives those that become ours.
fn pass(view: &View, desired: &FabricDesired, left_out: &LeftOut, ours: &Claims) -> (Plan, Claims) {
    let (mut plan, mut claims) = (Plan::default(), Claims::new());
    let index = view.index();
    let mut listed: BTreeMap<Uuid, Vec<&FabricPort>> = BTreeMap::new();
    for port in &desired.ports {
        match resolve(&index, view, port) {
            Ok(uuid) => {
                listed.entry(uuid).or_default().push(port);
                plan.listed_as.entry(uuid).or_insert_with(|| port.name.clone());
            }
            Err(reason) => plan.rejected.push(reject(Item::port(&port.name), reason)),
        }
    }
    let mut bridges: BTreeMap<&str, Ownership<'_>> = BTreeMap::new();
    for (uuid, members) in &listed {
        let Some(port) = view.ports.get(uuid) else { continue };
        let bridge = index.bridge(*uuid).unwrap_or_default();
        let none = BTreeSet::new();
        let ownership = bridges.entry(bridge).or_insert_with(|| {
            let ports = view.bridges.get(bridge).unwrap_or(&none);
            let mut found = Ownership::of(view, ports, &desired.cluster, desired.cluster_uid.as_deref());
            plan.notes.extend(found.rival.map(|rival| clash(bridge, rival, &desired.cluster)));
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
        let change = match left_out.get(&port.name) {
            Some(reason) => {
                planner.refuse(|_| reason.clone());
                None
            }
            None => planner.plan(),
        };
        if let Some(change) = change {
            let claimed: VlanSet =
                ids(&change.record.vlans).filter(|vlan| !ownership.ours.contains(*vlan)).collect();
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

/// Another cluster has the same identifier: nothing of ours is taken off the bridge.
fn clash(bridge: &str, (port, uid): (&str, &str), cluster: &str) -> Note {
    let key = uids_key(cluster);
    Note {
        kind: "ClusterIDClash".into(),
        item: Item::TARGET,
        message: format!(
            "the cluster with the uid {uid} uses the cluster ID {cluster}, too (port {port} of bridge {bridge}), so \
             nothing is taken off that bridge: set another ENO_CLUSTER_ID for one of the two, and then remove {key} \
             from the external_ids of its ports"
        ),
    }
}

/// The port that a listed one stands for.
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

fn reject(item: Item, reason: String) -> Rejection {
    Rejection { item, reason, retryable: false, unreachable: false }
}

/// One port.
struct Planner<'a> {
    uuid: Uuid,
    port: &'a Port,
    /// As it is listed, perhaps by several of its members.
    members: &'a [&'a FabricPort],
    ownership: &'a Ownership<'a>,
    bridge: &'a str,
    desired: &'a FabricDesired,
    plan: &'a mut Plan,
    /// What is not taken off: all that is wanted, whether it can be had or not, and what may be another cluster's.
    keep: VlanSet,
}

impl Planner<'_> {
    fn plan(&mut self) -> Option<PortChange> {
        self.keep = self.members.iter().fold(VlanSet::EMPTY, |all, member| all.union(&member.vlans));
        let mut want = self.keep.clone();
        if self.ownership.rival.is_some() {
            // What looks like ours may be that of the other cluster.
            self.keep = self.keep.union(&self.ownership.ours);
        }
        for vlan in want.clone().iter() {
            let Some(holder) = self.ownership.obstacle(vlan, &self.desired.device.adopt) else { continue };
            want.remove(vlan);
            let (bridge, port) = (self.bridge, holder.port);
            let reason = match holder.cluster {
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
                self.refuse(|_| {
                    format!("the vlan_mode of port {name} is {mode}, which carries no VLANs of ours")
                });
                None
            }
        }
    }

    fn access(&mut self, vlan: u16, want: &VlanSet) -> Option<PortChange> {
        let record = self.record();
        let others: BTreeSet<u16> = self.port.trunks.difference(&record.vlans).copied().collect();
        if self.keep.is_empty() {
            // What somebody made an access port keeps nothing of ours, and is no open trunk later on.
            let closed = others.is_empty() && !record.vlans.is_empty() && record.before.is_none();
            let rest = BTreeSet::from_iter(closed.then_some(CLOSED));
            return self.change(PortChange {
                trunks: &others | &rest,
                mode: ModeChange::Keep,
                record: Record { vlans: rest, before: None },
            });
        }
        if want.is_empty() {
            return None;
        }
        let name = &self.port.name;
        if self.members.iter().all(|member| member.mode == PortMode::Keep) {
            self.refuse(|_| {
                format!(
                    "{name} is an access port of VLAN {vlan}, which is not ours: set Mode: trunk on it in the \
                     FabricDevice to make it a trunk"
                )
            });
            return None;
        }
        if others.iter().any(|vlan| *vlan != CLOSED) {
            let list = write_ranges(&others);
            self.refuse(|_| {
                format!(
                    "{name} is an access port that would carry VLANs {list} as a trunk, which are not ours: \
                     remove them from its trunks"
                )
            });
            return None;
        }
        if record.before.is_some() && !self.may_restore(want) {
            return None;
        }
        self.grant(want);
        let named = self.port.vlan_mode.is_some();
        self.change(PortChange {
            trunks: &others | &numbers(want),
            mode: ModeChange::Trunk,
            record: Record {
                vlans: numbers(want),
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
        let recorded: VlanSet = ids(&record.vlans).collect();
        let emptied = list.is_empty() && !recorded.is_empty();
        let close = emptied && self.may_restore(&recorded);
        if list.is_empty() && !close {
            if !want.is_empty() && !emptied {
                self.note_open();
            }
            let vlans = &record.vlans & &numbers(&self.keep);
            let before = record.before.filter(|_| !vlans.is_empty());
            return self.change(PortChange {
                trunks: BTreeSet::new(),
                mode: ModeChange::Keep,
                record: Record { vlans, before },
            });
        }

        let there: VlanSet = ids(list).collect();
        let lost = want.intersection(&recorded).difference(&there);
        let restores = close || lost.is_empty() || self.may_restore(&lost);
        let withheld = if restores { VlanSet::EMPTY } else { lost };
        let want = want.difference(&withheld);

        let of_others_here: BTreeSet<u16> =
            of_others(&self.port.external_ids, &self.desired.cluster).flat_map(|(_, vlans)| vlans).collect();
        let stays = |vlan: VlanId| {
            self.keep.contains(vlan)
                || native == Some(vlan)
                || of_others_here.contains(&vlan.get())
                || !(self.ownership.ours.contains(vlan) || recorded.contains(vlan))
        };
        let mut after: BTreeSet<u16> =
            list.iter().copied().filter(|vlan| VlanId::new(*vlan).map_or(true, stays)).collect();
        after.extend(numbers(&want));
        if record.vlans.contains(&CLOSED) && !of_others_here.contains(&CLOSED) {
            after.remove(&CLOSED);
        }
        let mut vlans: BTreeSet<u16> = &numbers(&want) | &(&(&record.vlans & &numbers(&self.keep)) & &after);
        vlans.extend(numbers(&withheld));

        // Nobody else's VLAN is on it, nothing is only taken off it by hand, and it does not become an open trunk.
        let idle = withheld.is_empty()
            && after.iter().all(|vlan| *vlan == CLOSED)
            && self.port.vlan_mode.as_deref() == Some("trunk");
        let before = record.before.filter(|mode| *mode == AccessMode::Named || self.port.tag.is_some());
        if let (true, Some(before)) = (idle, before) {
            let record = Record { vlans, before: None };
            return self.change(PortChange { trunks: after, mode: ModeChange::Restore(before), record });
        }
        if after.is_empty() {
            after.insert(CLOSED);
            // Who has a record of it takes it off again.
            if !of_others_here.contains(&CLOSED) {
                vlans.insert(CLOSED);
            }
        }
        let before = record.before.filter(|_| vlans.iter().any(|vlan| *vlan != CLOSED));
        self.change(PortChange { trunks: after, mode: ModeChange::Keep, record: Record { vlans, before } })
    }

    fn record(&self) -> Record {
        Record::read(&self.port.external_ids, &self.desired.cluster)
    }

    /// Says that ours were taken off; false when they stay off.
    fn may_restore(&mut self, lost: &VlanSet) -> bool {
        self.plan.lost.insert(self.uuid, lost.clone());
        self.desired.device.drift == Drift::Repair
    }

    /// The change, if it is one.
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

    fn refuse(&mut self, reason: impl Fn(&FabricPort) -> String) {
        for member in self.members.iter().filter(|member| !member.vlans.is_empty()) {
            self.plan.rejected.push(reject(Item::port(&member.name), reason(member)));
        }
    }

    fn refuse_vlan(&mut self, vlan: VlanId, reason: &str) {
        for member in self.members.iter().filter(|member| member.vlans.contains(vlan)) {
            self.plan.rejected.push(reject(Item::port_vlan(&member.name, vlan), reason.to_owned()));
        }
    }

    fn note_open(&mut self) {
        for member in self.members.iter().filter(|member| !member.vlans.is_empty()) {
            self.plan.notes.push(Note {
                kind: "OpenTrunk".into(),
                item: Item::port(&member.name),
                message: format!(
                    "the trunks of port {} are empty: it carries every VLAN and is left as it is; with \
                     trunks={CLOSED} it carries what is put there",
                    self.port.name
                ),
            });
        }
    }
}

fn numbers(vlans: &VlanSet) -> BTreeSet<u16> {
    vlans.iter().map(VlanId::get).collect()
}

impl PortChange {
    /// What it adds to the VLANs of this port, and what it takes off.
    pub fn difference(&self, port: &Port) -> (VlanSet, VlanSet) {
        let (before, after): (VlanSet, VlanSet) = (ids(&port.trunks).collect(), ids(&self.trunks).collect());
        (after.difference(&before), before.difference(&after))
    }
}

/// What other hands changed, in words: each change that makes up for something, when all was as wanted before, and
/// otherwise what was taken off.
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
        notes.push(Note {
            kind: "Drift".into(),
            item: Item::port(listed),
            message: format!("port {} was changed by another hand: {}", port.name, what.join("; ")),
        });
    }
    notes.sort_by(|one, other| one.item.cmp(&other.item));
    notes
}
