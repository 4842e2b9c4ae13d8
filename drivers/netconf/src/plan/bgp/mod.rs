//! Plans the BGP groups of VRFs. Pure.
//!
//! The device alone tells who owns what:
//! - A group is ours when its name begins with `eno-<cluster>-`. So are the prefix sets, community sets and policies that
//!   it uses, and the neighbours that name it. They are written and removed as whole entries.
//! - A neighbour of the same address that names no group of ours is foreign. A group that wants it is rejected.
//! - An instance of BGP is of our making when it has nothing but groups of ours, and one of these has its AS. It goes
//!   with our last group. An instance of others stays with its AS, and the AS of a group is a local AS then. An instance
//!   of others with the AS of a group and without anything else can't be told from ours.
//!
//! A device shows a password encrypted or not at all. So each process writes it once, and when the Secret changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use eno_device_secrets::Hidden;
use eno_schemas::{BgpGroup, FabricDesired, FabricVrf, Item, Rejection};
use ipnet::IpNet;

use super::{ChangeUnit, Exclusions};

mod observed;
mod tree;

pub(crate) use observed::is_own_name;
pub use observed::{
    BgpModel, EntryId, GroupValues, ObservedBgp, ObservedInstance, OwnEntry, Password, Passwords,
    WantedEntry, group_name,
};
pub(crate) use tree::{Builder, Built, Rules};
pub use tree::{Shapes, Tree};

/// The changes of the BGP groups of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpChanges {
    /// By the names of groups on the device.
    pub groups: BTreeMap<String, GroupChange>,
    /// The instances to make, change or remove, by VRF.
    pub instances: BTreeMap<String, InstanceChange>,
}

/// A change of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupChange {
    /// The device's name of the VRF that it is in.
    pub vrf: String,
    /// The entries to write as a whole.
    pub set: BTreeMap<EntryId, EntryChange>,
    /// The entries to remove.
    pub remove: BTreeSet<EntryId>,
    /// The command has the group.
    pub is_wanted: bool,
    /// The device has an entry of the group.
    pub is_there: bool,
}

/// An entry to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChange {
    /// The element.
    pub xml: Hidden,
    /// The device has it already, with other content.
    pub replaces: bool,
    /// Only the password may differ.
    pub is_password: bool,
}

impl EntryChange {
    /// Appends the element. `nc` is bound to the NETCONF namespace.
    pub(crate) fn render(&self, xml: &mut String, kind: &str) {
        let element = self.xml.expose();
        match element.strip_prefix('<').and_then(|rest| rest.strip_prefix(kind)).filter(|_| self.replaces) {
            Some(rest) => {
                xml.push('<');
                xml.push_str(kind);
                xml.push_str(" nc:operation=\"replace\"");
                xml.push_str(rest);
            }
            None => xml.push_str(element),
        }
    }
}

/// A change of an instance of BGP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceChange {
    /// It is made with these values, or gets them.
    Set {
        /// Its AS.
        local_as: u32,
        /// Its router ID, where the dialect needs one.
        router_id: Option<Ipv4Addr>,
    },
    /// It is removed with all that it has.
    Remove,
}

impl BgpChanges {
    /// True when there is no change.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.instances.is_empty()
    }

    /// The VRFs in which something changes.
    pub(super) fn vrfs(&self) -> impl Iterator<Item = &str> {
        let entries = self.groups.values().flat_map(|change| change.set.keys().chain(&change.remove));
        entries.filter_map(|id| id.vrf.as_deref()).chain(self.instances.keys().map(String::as_str))
    }

    /// The group whose change has an entry of one of these names.
    pub(crate) fn group_of<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<ChangeUnit> {
        let has = |change: &GroupChange, name: &str| {
            change.set.keys().chain(&change.remove).any(|id| id.name == name)
        };
        let of = |name: &str| self.groups.iter().find(|(group, change)| *group == name || has(change, name));
        names.into_iter().find_map(of).map(|(group, _)| ChangeUnit::Bgp(group.clone()))
    }

    /// The entries of a kind to write and to remove, in a VRF or on the whole device.
    pub(crate) fn of_kind<'a>(
        &'a self,
        kind: &'a str,
        vrf: Option<&'a str>,
    ) -> (impl Iterator<Item = (&'a EntryId, &'a EntryChange)>, impl Iterator<Item = &'a EntryId>) {
        let is = move |id: &EntryId| id.kind == kind && id.vrf.as_deref() == vrf;
        let set = self.groups.values().flat_map(|change| &change.set).filter(move |(id, _)| is(id));
        let remove = self.groups.values().flat_map(|change| &change.remove).filter(move |id| is(id));
        (set, remove)
    }
}

impl GroupChange {
    /// Nothing is to be written but a password that may be there already.
    pub(crate) fn is_password(&self) -> bool {
        self.remove.is_empty() && !self.set.is_empty() && self.set.values().all(|entry| entry.is_password)
    }

    /// The group goes.
    pub(super) fn only_removes(&self) -> bool {
        !self.is_wanted
    }
}

/// The plan of the groups of a device.
#[derive(Debug, Default)]
pub(super) struct BgpPlan {
    pub(super) changes: BgpChanges,
    pub(super) rejected: Vec<Rejection>,
    /// The owners of the groups that are as desired.
    pub(super) groups: BTreeSet<String>,
    /// The VRFs in which BGP of others, or a group that stays as it is, is left.
    pub(super) kept_in: BTreeSet<String>,
}

/// Whether a command has BGP groups.
pub fn concerns_bgp(desired: &FabricDesired) -> bool {
    desired.vrfs.iter().any(|vrf| !vrf.bgp.is_empty())
}

fn reject(vrf: &str, owner: &str, reason: &str) -> Rejection {
    Rejection::permanent(Item::bgp(vrf, owner), reason)
}

/// Rejects all groups for a device without BGP.
pub(super) fn reject_all(desired: &FabricDesired, reason: &str) -> BgpPlan {
    let groups = desired.vrfs.iter().flat_map(|vrf| vrf.bgp.iter().map(move |group| (vrf, group)));
    let rejected = groups.map(|(vrf, group)| reject(&vrf.name, &group.owner, reason)).collect();
    BgpPlan { rejected, ..BgpPlan::default() }
}

/// Computes the difference. `usable`: the VRFs that groups may be in. `removes`: what is not wanted goes.
pub(super) fn plan_bgp(
    observed: &ObservedBgp,
    desired: &FabricDesired,
    usable: &BTreeMap<&str, &FabricVrf>,
    excluded: &Exclusions,
    removes: bool,
) -> BgpPlan {
    let mut planner = Planner {
        observed,
        desired,
        wanted: BTreeMap::new(),
        kept: BTreeSet::new(),
        plan: BgpPlan::default(),
    };
    planner.choose(usable, excluded);
    planner.plan_groups(removes);
    planner.plan
}

/// The entries of a group of ours on the device.
fn own<'a>(observed: &'a ObservedBgp, group: &str) -> impl Iterator<Item = &'a EntryId> {
    let of_group = observed.entries.iter().filter(move |(_, entry)| entry.group == group);
    of_group.map(|(id, _)| id)
}

struct Planner<'a> {
    observed: &'a ObservedBgp,
    desired: &'a FabricDesired,
    /// By their names on the device.
    wanted: BTreeMap<String, (&'a FabricVrf, &'a BgpGroup)>,
    /// The groups that stay as they are.
    kept: BTreeSet<String>,
    plan: BgpPlan,
}

impl<'a> Planner<'a> {
    /// Chooses the groups that can be as desired.
    fn choose(&mut self, usable: &BTreeMap<&str, &FabricVrf>, excluded: &Exclusions) {
        for vrf in &self.desired.vrfs {
            let mut taken: BTreeMap<String, &str> = BTreeMap::new();
            for group in &vrf.bgp {
                let name = group_name(&self.desired.cluster, &group.owner);
                if excluded.bgp(&name) || !usable.contains_key(vrf.name.as_str()) {
                    self.kept.insert(name);
                    continue;
                }
                if let Some(Err(reason)) =
                    self.observed.passwords.0.get(&group.owner).filter(|_| group.password.is_some())
                {
                    // The next reconcile reads it again.
                    let rejection = reject(&vrf.name, &group.owner, reason);
                    self.plan.rejected.push(Rejection { retryable: true, ..rejection });
                    self.kept.insert(name);
                } else if let Some(reason) = self.refusal(&name, vrf, group, &mut taken) {
                    self.plan.rejected.push(reject(&vrf.name, &group.owner, &reason));
                    self.kept.insert(name);
                } else {
                    self.wanted.insert(name, (vrf, group));
                }
            }
        }
        for (unit, reason) in excluded.reasons() {
            let ChangeUnit::Bgp(name) = unit else { continue };
            self.kept.insert(name.clone());
            let groups =
                self.desired.vrfs.iter().flat_map(|vrf| vrf.bgp.iter().map(move |group| (vrf, group)));
            let mut named =
                groups.filter(|(_, group)| group_name(&self.desired.cluster, &group.owner) == *name);
            if let Some((vrf, group)) = named.next() {
                self.plan.rejected.push(reject(&vrf.name, &group.owner, reason));
            } else if let Some(vrf) = own(self.observed, name).find_map(|id| id.vrf.as_ref()) {
                self.plan.rejected.push(reject(vrf, name, reason));
            }
        }
    }

    /// Why a group stays as it is. `taken`: the neighbours of the groups of this VRF before it.
    fn refusal(
        &self,
        name: &str,
        vrf: &'a FabricVrf,
        group: &'a BgpGroup,
        taken: &mut BTreeMap<String, &'a str>,
    ) -> Option<String> {
        if let Some((other, _)) = self.wanted.get(name) {
            return Some(format!("VRF {} has a group of this name, too", other.name));
        }
        if let Some(reason) = self.observed.model.refuses(group) {
            return Some(reason);
        }
        let lacks_instance = !self.observed.instances.contains_key(&vrf.name);
        if lacks_instance && self.observed.model.needs_router_id() && self.router_id(&vrf.name).is_none() {
            return Some(format!(
                "BGP of the device needs a router ID, and no IPv4 address is led into VRF {}: attach a VLAN with one, or \
                 configure BGP there",
                vrf.name
            ));
        }
        let addresses = group.neighbours.iter().map(ToString::to_string);
        let neighbours = addresses.chain(group.dynamic_neighbours.iter().map(ToString::to_string));
        let neighbours: Vec<String> = neighbours.collect();
        let foreign = self.observed.instances.get(&vrf.name).map(|instance| &instance.neighbours);
        for neighbour in &neighbours {
            if foreign.is_some_and(|foreign| foreign.contains(neighbour)) {
                return Some(format!(
                    "VRF {} has a neighbour {neighbour} already that is not ENO's",
                    vrf.name
                ));
            }
            if let Some(other) = taken.get(neighbour) {
                return Some(format!("neighbour {neighbour} is of {other} already"));
            }
        }
        taken.extend(neighbours.into_iter().map(|neighbour| (neighbour, group.owner.as_str())));
        None
    }

    /// The first IPv4 address that is led into a VRF, where the dialect needs one.
    fn router_id(&self, vrf: &str) -> Option<Ipv4Addr> {
        let vlans = self.desired.vlans.iter().filter(|_| self.observed.model.needs_router_id());
        let routed = vlans.filter_map(|vlan| vlan.routed.as_ref()).filter(|routed| routed.vrf == vrf);
        let addresses = routed.flat_map(|routed| routed.addresses.iter().map(IpNet::addr));
        let v4 = addresses.filter_map(|address| if let IpAddr::V4(v4) = address { Some(v4) } else { None });
        v4.min()
    }

    fn plan_groups(&mut self, removes: bool) {
        let observed = self.observed;
        let stays = |group: &str| self.kept.contains(group) || !removes;
        let mut left: BTreeSet<&str> = BTreeSet::new();
        for (id, entry) in &observed.entries {
            if let Some(vrf) =
                id.vrf.as_deref().filter(|_| stays(&entry.group) && !self.wanted.contains_key(&entry.group))
            {
                left.insert(vrf);
            }
        }
        let mut by_vrf: BTreeMap<&str, Vec<&BgpGroup>> =
            observed.instances.keys().map(|vrf| (vrf.as_str(), Vec::new())).collect();
        for (vrf, group) in self.wanted.values() {
            by_vrf.entry(&vrf.name).or_default().push(group);
        }
        let mut numbers: BTreeMap<&str, Option<u32>> = BTreeMap::new();
        for (vrf, groups) in &by_vrf {
            let instance = observed.instances.get(*vrf);
            let router_id = self.router_id(vrf);
            let (change, local_as) =
                plan_instance(observed.model, instance, groups, left.contains(vrf), removes, router_id);
            if left.contains(vrf) || instance.is_some_and(|one| one.has_others) {
                self.plan.kept_in.insert((*vrf).to_owned());
            }
            numbers.insert(vrf, local_as);
            self.plan.changes.instances.extend(change.map(|change| ((*vrf).to_owned(), change)));
        }
        let mut ids: BTreeSet<EntryId> = BTreeSet::new();
        for (name, (vrf, group)) in &self.wanted {
            let local_as = numbers.get(vrf.name.as_str()).copied().flatten();
            let change = self.group_change(name, vrf, group, local_as, &mut ids);
            let sets_instance =
                matches!(self.plan.changes.instances.get(&vrf.name), Some(InstanceChange::Set { .. }));
            if change.set.is_empty() && !sets_instance {
                continue;
            }
            self.plan.changes.groups.insert(name.clone(), change);
        }
        for (id, entry) in &observed.entries {
            if ids.contains(id) || stays(&entry.group) {
                continue;
            }
            let change = self.plan.changes.groups.entry(entry.group.clone()).or_default();
            change.is_there = true;
            if let Some((vrf, _)) = self.wanted.get(&entry.group) {
                change.is_wanted = true;
                change.vrf.clone_from(&vrf.name);
            }
            if let Some(vrf) = id.vrf.as_ref().filter(|_| !change.is_wanted) {
                change.vrf.clone_from(vrf);
            }
            change.remove.insert(id.clone());
        }
        let changed = &self.plan.changes.groups;
        let same = self.wanted.iter().filter(|(name, _)| !changed.contains_key(*name));
        self.plan.groups = same.map(|(_, (_, group))| group.owner.clone()).collect();
    }

    /// What has to be written of a group. Adds the names of all of its entries to `ids`.
    fn group_change(
        &self,
        name: &str,
        vrf: &FabricVrf,
        group: &BgpGroup,
        instance_as: Option<u32>,
        ids: &mut BTreeSet<EntryId>,
    ) -> GroupChange {
        let model = self.observed.model;
        let password =
            group.password.as_ref().and_then(|_| self.observed.passwords.0.get(&group.owner)?.as_ref().ok());
        let local_as = (instance_as != Some(group.local_as)).then_some(group.local_as);
        let password_text = password.map(|password| &password.text);
        let values = GroupValues { name, vrf: &vrf.name, group, local_as, password: password_text };
        let is_there = own(self.observed, name).next().is_some();
        let mut change =
            GroupChange { vrf: vrf.name.clone(), is_wanted: true, is_there, ..GroupChange::default() };
        for WantedEntry { id, xml, has_password } in model.entries(&values) {
            let current = self.observed.entries.get(&id);
            // What this program writes can be read.
            let same = current.is_some_and(|current| {
                let tree = model.shapes().tree(id.kind, xml.expose()).ok();
                tree.as_ref() == Some(&current.tree) && (has_password || !current.has_password)
            });
            let is_unwritten = has_password && password.is_some_and(|password| password.is_unwritten);
            ids.insert(id.clone());
            if !same || is_unwritten {
                let entry = EntryChange { xml, replaces: current.is_some(), is_password: same };
                change.set.insert(id, entry);
            }
        }
        change
    }
}

/// The change of the instance of a VRF, and its AS after that. `groups`: those that are wanted in it. `is_kept`: others of
/// ours stay in it.
fn plan_instance(
    model: &dyn BgpModel,
    instance: Option<&ObservedInstance>,
    groups: &[&BgpGroup],
    is_kept: bool,
    removes: bool,
    router_id: Option<Ipv4Addr>,
) -> (Option<InstanceChange>, Option<u32>) {
    let current = instance.and_then(|instance| instance.local_as);
    let is_made = instance.is_some_and(|instance| instance.is_made);
    let set = |local_as| (Some(InstanceChange::Set { local_as, router_id }), Some(local_as));
    match (groups.first(), instance) {
        (None, Some(_)) if is_made && !is_kept && removes => (Some(InstanceChange::Remove), None),
        (Some(first), None) if model.has_instances() => set(first.local_as),
        (Some(first), Some(_)) if is_made && !is_kept && model.has_instances() => {
            let has_its_as = groups.iter().any(|group| Some(group.local_as) == current);
            if has_its_as { (None, current) } else { set(first.local_as) }
        }
        _ => (None, current),
    }
}
