//! What changes on several switches together: which switches, and the networks that one of them refused.
//!
//! A network that a switch refuses within a transaction is *withheld*: everywhere it stays where it was last
//! confirmed, until its spec changes, the switch reports by itself, or a while has passed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Outcome, Phase, Report, VlanId, VlanSet};

use crate::fabric::{DeviceTarget, News};
use crate::ids::Place;
use crate::topology::{Indices, Ports};
use crate::{Effect, Key, Kind, Name, Target};

use super::{Engine, plan};

/// A switch whose last change took less is never slow, in milliseconds.
const QUICK: u64 = 2000;
/// A switch is slow when its last change took so many times as long as the median of the others.
const TIMES: u64 = 4;

/// What the words of a refusal begin with, before the name of the switch.
const BY: &str = "FabricDevice ";

/// Switches that change together, since they are connected by the networks that change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionGroup {
    /// Those that can hold a change until all have verified theirs: two or more of them are a transaction.
    pub holding: Vec<Name>,
    /// Those that can't, which follow once the others are confirmed.
    pub plain: Vec<Name>,
}

/// A network that a switch refused.
#[derive(Debug)]
pub(super) struct Refused {
    /// What was wanted of the fabric.
    pub wish: Option<(VlanId, Arc<Ports>)>,
    /// The switch.
    pub by: Name,
    /// The hop and the switch's own words.
    pub words: String,
    /// It may pass as it is asked for.
    pub retryable: bool,
    /// The VLAN and the ports where the network was confirmed then.
    stays: Option<Placement>,
    /// Some of that is no longer wanted.
    gives_up: bool,
    /// How often in a row.
    attempt: u32,
    step: Step,
}

/// A VLAN and the ports that carry it.
type Placement = (VlanId, BTreeMap<Name, BTreeSet<Name>>);

/// What is planned for a network that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is tried again.
    Retry,
    /// It gives up what is no longer wanted of what it has.
    Less,
    /// It stays as it is.
    Stay,
}

impl Refused {
    /// True unless it is tried again.
    pub fn is_withheld(&self) -> bool {
        self.step != Step::Retry
    }

    /// True when it has what is no longer wanted of it.
    pub fn is_left(&self) -> bool {
        self.gives_up && self.step == Step::Stay
    }

    /// True when the network is confirmed on this port.
    pub fn stays_on(&self, vid: VlanId, device: &Name, port: &str) -> bool {
        self.stays.as_ref().is_some_and(|(own, devices)| {
            *own == vid && devices.get(device).is_some_and(|ports| ports.contains(port))
        })
    }
}

impl Engine {
    /// The switches of `names`, which have changes that are not published yet, in groups of those that have to change
    /// together. Who fails, is slow or has no driver is in a group by itself, as it takes part in nothing.
    pub fn transaction_groups<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Vec<TransactionGroup> {
        let slow = self.slow_devices();
        let mut members: Vec<(&Name, bool)> = Vec::new();
        let mut groups: Vec<TransactionGroup> = Vec::new();
        // For each connected part of the fabric and VLAN the first member that changes it.
        let mut first: HashMap<&Name, Vec<Option<usize>>> = HashMap::new();
        let mut parents: Vec<usize> = Vec::new();
        for name in names {
            let device = self.devices.get(name).filter(|device| self.takes_part(name, device, &slow));
            let (Some(device), Some(component)) = (device, self.topology.component(name)) else {
                groups.push(TransactionGroup { holding: Vec::new(), plain: vec![name.clone()] });
                continue;
            };
            let own = members.len();
            members.push((name, device.can_hold() && self.holding.contains(&device.driver)));
            parents.push(own);
            let first =
                first.entry(component).or_insert_with(|| vec![None; usize::from(VlanId::MAX.get()) + 1]);
            for vid in device.moved().iter() {
                match first[usize::from(vid.get())] {
                    None => first[usize::from(vid.get())] = Some(own),
                    Some(other) => join(&mut parents, own, other),
                }
            }
        }
        // Who leaves a VLAN for another one does both at once.
        for (first, vids) in
            first.values().flat_map(|first| self.renumbered.values().map(move |vids| (first, vids)))
        {
            let mut ends = vids.iter().filter_map(|vid| first[usize::from(vid.get())]);
            if let Some(one) = ends.next() {
                for other in ends {
                    join(&mut parents, one, other);
                }
            }
        }
        let mut by_root: BTreeMap<usize, TransactionGroup> = BTreeMap::new();
        for (index, (name, holds)) in members.into_iter().enumerate() {
            let group = by_root.entry(root(&mut parents, index)).or_default();
            if holds { group.holding.push(name.clone()) } else { group.plain.push(name.clone()) }
        }
        groups.extend(by_root.into_values());
        groups
    }

    /// True unless the switch fails, is slow or has no driver.
    fn takes_part(&self, name: &Name, device: &DeviceTarget, slow: &BTreeSet<&Name>) -> bool {
        device.failure.is_none()
            && !device.late
            && !slow.contains(name)
            && self.drivers.contains(&device.driver)
    }

    /// The VLANs whose change a switch that takes no part is not told of yet, since others have to confirm it first: it
    /// might come back and make the change while they still decide.
    pub(super) fn undecided(&self, name: &Name) -> VlanSet {
        let slow = self.slow_devices();
        let Some(device) = self.devices.get(name).filter(|device| !self.takes_part(name, device, &slow))
        else {
            return VlanSet::EMPTY;
        };
        let component = self.topology.component(name);
        let mut moved = VlanSet::EMPTY;
        for (other, other_device) in &self.devices {
            if other != name
                && self.topology.component(other) == component
                && self.takes_part(other, other_device, &slow)
            {
                moved = moved.union(other_device.moved());
            }
        }
        for vids in self.renumbered.values() {
            if vids.iter().any(|vid| moved.contains(*vid)) {
                moved = moved.union(&vids.iter().copied().collect());
            }
        }
        device.moved().intersection(&moved)
    }

    /// Switches that were not told of everything may be told of more.
    pub(super) fn complete(&mut self) {
        let partial = self.devices.iter().filter(|(_, device)| device.is_partial());
        self.publish.extend(partial.map(|(name, _)| Target::Fabric(name.clone())));
    }

    /// The networks that had something on switches when a former process commanded them last, and those that hold
    /// another VLAN by their status: they give up the one and take the other at once.
    pub(super) fn recall_networks(&mut self, had: BTreeSet<(Key, VlanId)>) {
        let networks = self.records.iter().filter(|(key, record)| plan::is_network(key) && !record.generated);
        let granted = networks.filter_map(|(key, record)| Some((key.clone(), record.status.granted_id?)));
        for (key, former) in granted.chain(had).collect::<Vec<_>>() {
            let planned = self.networks.get(&key).and_then(|network| network.planned.as_ref());
            let now = planned.map(|(now, _)| *now);
            if now != Some(former) {
                self.renumbered.entry(key).or_default().extend(now.into_iter().chain([former]));
            }
        }
    }

    /// VLANs of ours were found on a switch that neither a command nor a plan names: the last command took them away and
    /// is not confirmed. They are put down to whom they belong, who may have to keep them.
    pub(super) fn adopt_strays(&mut self, name: &Name, report: &Report) {
        let Some(device) = self.devices.get(name) else { return };
        let heirs: Vec<(VlanId, Key)> =
            device.strays(report).iter().filter_map(|vid| Some((vid, self.heir(vid, name)?))).collect();
        if let Some(device) = self.devices.get_mut(name) {
            for (vid, key) in heirs {
                device.inherits(vid, &key, report);
            }
        }
    }

    /// The network that left the VLAN last, else the one that holds it there.
    fn heir(&self, vid: VlanId, name: &Name) -> Option<Key> {
        let component = self.topology.component(name)?;
        let left = |(key, vids): &(&Key, &BTreeSet<VlanId>)| {
            let planned = self.networks.get(*key).and_then(|network| network.planned.as_ref());
            vids.contains(&vid)
                && planned.is_none_or(|(now, ports)| {
                    *now != vid
                        && (ports.is_empty()
                            || ports.keys().any(|name| self.topology.component(name) == Some(component)))
                })
        };
        let former = self.renumbered.iter().filter(left).map(|(key, _)| key).min();
        former.or_else(|| self.ids.holder(vid, &Place::Fabric(component.clone()))).cloned()
    }

    /// The VLAN that a network stays at, or has and is to leave; as long as that is not known, the one that it had.
    pub(super) fn former(&self, key: &Key) -> Option<VlanId> {
        let refused = self.refused(key).filter(|refused| refused.is_withheld());
        if let Some((vid, _)) = refused.and_then(|refused| refused.stays.as_ref()) {
            return Some(*vid);
        }
        let vids = self.renumbered.get(key)?;
        let planned = self.networks.get(key).and_then(|network| network.planned.as_ref());
        let mut former = vids.iter().copied().filter(|vid| planned.is_none_or(|(now, _)| now != vid));
        let has = |vid: &VlanId| self.devices.values().any(|device| !device.confirmed(*vid, key).is_empty());
        former.find(has).or_else(|| {
            let unknown = self.devices.values().any(|device| !device.is_known());
            self.records.get(key)?.status.granted_id.filter(|vid| unknown && vids.contains(vid))
        })
    }

    /// The networks that a switch refused when a former process looked last, by their status: they are tried again, and
    /// are in error until that succeeds.
    pub(super) fn recall_refusals(&mut self) {
        let mut refused = Vec::new();
        for (key, network) in &self.networks {
            let Some(record) = self.records.get(key) else { continue };
            let status = &record.status;
            let by = status.message.strip_prefix(BY).and_then(|message| message.split_once(": "));
            let Some((by, _)) = by.filter(|_| {
                status.phase == Some(Phase::Error) && status.observed_generation == record.generation
            }) else {
                continue;
            };
            let wish = network.planned.clone();
            if wish.as_ref().is_some_and(|(_, ports)| ports.contains_key(by)) {
                let refusal = Refused {
                    wish,
                    by: by.into(),
                    words: status.message.clone(),
                    retryable: true,
                    stays: None,
                    gives_up: false,
                    attempt: 1,
                    step: Step::Retry,
                };
                refused.push((key.clone(), refusal));
            }
        }
        for (key, of) in refused {
            self.refused.insert(key.clone());
            self.networks.entry(key).or_default().refused = Some(of);
        }
    }

    /// Those whose last change took much longer than that of the others.
    fn slow_devices(&self) -> BTreeSet<&Name> {
        let took = |name: &Name| Some(self.devices.get(name)?.last.as_ref()?.change.took_ms);
        let suspects = self.devices.keys().filter(|name| took(name).is_some_and(|took| took > QUICK));
        let suspects: Vec<&Name> = suspects.collect();
        if suspects.is_empty() {
            return BTreeSet::new();
        }
        let mut all: Vec<u64> = self.devices.keys().filter_map(took).collect();
        all.sort_unstable();
        let slow = suspects.into_iter().filter(|name| {
            // Its own place in the order is at the upper end, and so the median of the others is that of the rest.
            let own = took(name).unwrap_or_default();
            let at = all.partition_point(|took| *took < own);
            let others: Vec<u64> =
                all.iter().enumerate().filter(|(index, _)| *index != at).map(|(_, took)| *took).collect();
            others.get(others.len() / 2).is_some_and(|median| own > median.saturating_mul(TIMES))
        });
        slow.collect()
    }

    /// True when a report refuses a network whose turn to change it was: its transaction can't be confirmed.
    pub fn refuses(&self, target: &Target, report: &Report) -> bool {
        let Target::Fabric(name) = target else { return false };
        self.devices.get(name).is_some_and(|device| !device.refused_by(report).is_empty())
    }

    /// What a switch refuses within a transaction is withheld.
    pub(super) fn refused_by(&mut self, name: &Name, report: &Report) {
        let Some(device) = self.devices.get(name) else { return };
        for (network, words) in device.refused_by(report) {
            if let Some((words, retryable)) = words {
                self.withhold(&network, name, &words, retryable);
            }
        }
    }

    /// A switch reported: what it refused before may be tried again.
    pub(super) fn weigh_report(&mut self, name: &Name, report: &Report) {
        let Some(device) = self.devices.get(name) else { return };
        match report.outcome {
            Outcome::Applied if device.is_anew(report) => self.try_again(name, true),
            // What it said before it failed no longer matters: it takes no part.
            Outcome::Failed(_) => self.try_again(name, false),
            _ => {}
        }
    }

    /// What `by` refused is tried again, with what is known of it kept or not.
    fn try_again(&mut self, by: &Name, remember: bool) {
        let of = |key: &&Key| self.refused(key).is_some_and(|refused| refused.by == *by);
        let keys: Vec<Key> = self.refused.iter().filter(of).cloned().collect();
        for key in keys {
            let Some(network) = self.networks.get_mut(&key) else { continue };
            if remember {
                network.refused.iter_mut().for_each(|refused| refused.step = Step::Retry);
            } else {
                network.refused = None;
                self.refused.remove(&key);
            }
            self.replan.insert(key.clone());
            self.reclaim.insert(key);
        }
    }

    /// The back-off of a network that was refused is over.
    pub(super) fn retry(&mut self, key: &Key, attempt: u32) {
        let refused = self.networks.get_mut(key).and_then(|network| network.refused.as_mut());
        if let Some(refused) = refused.filter(|refused| refused.attempt == attempt && refused.is_withheld()) {
            refused.step = Step::Retry;
            self.replan.insert(key.clone());
            self.reclaim.insert(key.clone());
        }
    }

    /// Has a network stay as it was last confirmed, since a switch refused it.
    fn withhold(&mut self, key: &Key, by: &Name, words: &str, retryable: bool) {
        let network = self.networks.get(key);
        let planned = network.and_then(|network| network.planned.clone());
        let before = network.and_then(|network| network.refused.as_ref());
        if before.is_some_and(|before| before.step == Step::Stay) {
            return self.leave(key, by);
        }
        let (wish, attempt) = match before {
            Some(before) if before.step == Step::Less => (before.wish.clone(), before.attempt),
            Some(before) if before.wish == planned => (planned.clone(), before.attempt + 1),
            _ => (planned.clone(), 1),
        };
        let stays = self.confirmed(key, planned.map(|(vid, _)| vid));
        let tried = before.is_none_or(|before| before.step == Step::Retry);
        let (some, gives_up) = self.weigh_stays(stays.as_ref(), wish.as_ref());
        let less = tried && some && gives_up;
        let step = if less { Step::Less } else { Step::Stay };
        let words = format!("{BY}{by}: {words}");
        let refused = Refused { wish, by: by.clone(), words, retryable, stays, gives_up, attempt, step };
        self.networks.entry(key.clone()).or_default().refused = Some(refused);
        self.refused.insert(key.clone());
        self.effects.push(Effect::Retry { network: key.clone(), attempt });
        self.replan.insert(key.clone());
        self.reclaim.insert(key.clone());
        self.judge_networks(BTreeSet::from([key.clone()]));
    }

    /// Whether some of what a network has is wanted of it, and whether some is not.
    fn weigh_stays(&self, stays: Option<&Placement>, wish: Option<&(VlanId, Arc<Ports>)>) -> (bool, bool) {
        let (mut some, mut gives_up) = (false, false);
        if let Some((vid, devices)) = stays {
            for (device, port) in
                devices.iter().flat_map(|(name, ports)| ports.iter().map(move |port| (name, port)))
            {
                let wanted =
                    wish.is_some_and(|(own, ports)| own == vid && self.is_among(ports, device, port));
                some |= wanted;
                gives_up |= !wanted;
            }
        }
        (some, gives_up)
    }

    /// Has a withheld network stay as it is confirmed by now; true when that is something else.
    fn stay_as_confirmed(&mut self, key: &Key) -> bool {
        let Some(refused) = self.refused(key).filter(|refused| refused.is_withheld()) else { return false };
        let vid = refused.stays.as_ref().map(|(vid, _)| *vid);
        let stays = self.confirmed(key, vid.or(refused.wish.as_ref().map(|(vid, _)| *vid)));
        if stays == refused.stays {
            return false;
        }
        let (_, gives_up) = self.weigh_stays(stays.as_ref(), refused.wish.as_ref());
        if let Some(refused) = self.networks.get_mut(key).and_then(|network| network.refused.as_mut()) {
            (refused.stays, refused.gives_up) = (stays, gives_up);
        }
        self.replan.insert(key.clone());
        self.reclaim.insert(key.clone());
        self.judge_networks(BTreeSet::from([key.clone()]));
        true
    }

    /// What was found on a switch is what the networks that are withheld have there.
    pub(super) fn stay_as_found(&mut self) {
        for key in self.refused.clone() {
            self.stay_as_confirmed(&key);
        }
    }

    /// A switch refuses even what a network is to stay at: it stays as it is confirmed by now. When that is no other,
    /// what the switch has of it counts as decided, so that the same is not tried without end.
    fn leave(&mut self, key: &Key, by: &Name) {
        if self.stay_as_confirmed(key) {
            return;
        }
        if let Some(device) = self.devices.get_mut(by) {
            let open: Vec<VlanId> = device.open_of(key).collect();
            for vid in open {
                device.accept(vid, key, self.changes);
            }
        }
    }

    fn is_among(&self, ports: &Ports, device: &Name, port: &Name) -> bool {
        let names = self.topology.port_names(device);
        ports
            .get(device)
            .is_some_and(|ports| ports.iter().any(|index| names.get(usize::from(*index)) == Some(port)))
    }

    /// The VLAN and the ports on which a network is confirmed: its new VLAN where that is, else its former one; of one
    /// that is to be nowhere, any.
    fn confirmed(&self, key: &Key, vid: Option<VlanId>) -> Option<Placement> {
        let former = self.renumbered.get(key).into_iter().flatten().copied();
        let open = self.devices.values().filter(|_| vid.is_none()).flat_map(|device| device.open_of(key));
        vid.into_iter().chain(former).chain(open).find_map(|vid| {
            let on = |name: &Name| {
                let ports = self.devices.get(name)?.confirmed(vid, key);
                (!ports.is_empty()).then(|| (name.clone(), ports.into_iter().collect()))
            };
            let devices: BTreeMap<_, _> = self.devices.keys().filter_map(on).collect();
            (!devices.is_empty()).then_some((vid, devices))
        })
    }

    pub(super) fn refused(&self, key: &Key) -> Option<&Refused> {
        self.networks.get(key)?.refused.as_ref()
    }

    /// What is to be planned for a network of which `wish` is wanted.
    pub(super) fn as_refused(
        &mut self,
        key: &Key,
        wish: Option<(VlanId, Arc<Ports>)>,
    ) -> Option<(VlanId, Arc<Ports>)> {
        let Some(refused) = self.networks.get(key).and_then(|network| network.refused.as_ref()) else {
            return wish;
        };
        if refused.wish != wish {
            // Something else is wanted of it.
            self.forgive(key);
            return wish;
        }
        if refused.step == Step::Retry {
            return wish;
        }
        let Some((vid, devices)) = &refused.stays else {
            return wish.map(|(vid, _)| (vid, Arc::default()));
        };
        let mut ports = Ports::new();
        for (device, names) in devices {
            let fabric = self.topology.component(device).cloned().map(Place::Fabric);
            if fabric.is_none_or(|fabric| self.ids.check(*vid, key, &fabric).is_err()) {
                continue;
            }
            let keeps = |index: &u16| {
                let kept = || {
                    wish.as_ref().and_then(|(_, ports)| ports.get(device)).is_some_and(|p| p.contains(index))
                };
                refused.step == Step::Stay || kept()
            };
            let all = (0u16..).zip(self.topology.port_names(device));
            let indices: Indices =
                all.filter(|(_, name)| names.contains(*name)).map(|(i, _)| i).filter(keeps).collect();
            if !indices.is_empty() {
                ports.insert(device.clone(), indices);
            }
        }
        Some((*vid, Arc::new(ports)))
    }

    /// What a network was refused no longer matters.
    fn forgive(&mut self, key: &Key) {
        if self.refused.remove(key) {
            self.networks.entry(key.clone()).or_default().refused = None;
            self.reclaim.insert(key.clone());
            self.judge_networks(BTreeSet::from([key.clone()]));
        }
    }

    /// The VLAN that a withheld network keeps, and where: others have to respect it.
    pub(super) fn kept_places(&self, key: &Key) -> Option<(VlanId, BTreeSet<Place>)> {
        let (vid, devices) = self.refused(key).filter(|refused| refused.is_withheld())?.stays.as_ref()?;
        let place = |device: &Name| self.topology.component(device).cloned().map(Place::Fabric);
        Some((*vid, devices.keys().filter_map(place).collect()))
    }

    /// Something of these networks is settled on a switch. `first`: nothing was known of it before.
    pub(super) fn settled(&mut self, name: &Name, networks: &BTreeSet<Key>, first: bool) {
        if self.refused.is_empty() && self.renumbered.is_empty() {
            return;
        }
        let told: Vec<Key> = if first { self.renumbered.keys().cloned().collect() } else { Vec::new() };
        for key in networks.iter().chain(&told) {
            let here = self.devices.get(name).is_some_and(|device| device.gone(key));
            if here && self.refused(key).is_some_and(|refused| !refused.is_withheld() && refused.by == *name)
            {
                self.forgive(key);
            }
            if self.renumbered.contains_key(key) && self.devices.values().all(|device| device.gone(key)) {
                self.renumbered.remove(key);
                // What it had is its no more.
                self.judge.insert(key.clone());
            }
        }
    }

    /// What one switch has confirmed is decided for its part of the fabric: those that have yet to confirm it are to stay
    /// at it, too.
    pub(super) fn accept(&mut self, name: &Name, news: &News) {
        if news.decided.is_empty() {
            return;
        }
        let component = self.topology.component(name);
        let part = self.devices.iter_mut().filter(|(name, _)| self.topology.component(name) == component);
        for (_, device) in part {
            for (key, vid) in &news.decided {
                let others = self.renumbered.get(key).into_iter().flatten().filter(|other| *other != vid);
                for vid in others.chain([vid]) {
                    device.accept(*vid, key, news.count);
                }
            }
        }
    }

    /// A switch had not answered when the deadline of its transaction came.
    pub(super) fn is_late(&mut self, name: &Name) {
        if let Some(device) = self.devices.get_mut(name).filter(|device| !device.late) {
            device.late = true;
            self.complete();
            self.judge.insert(Key::cluster(Kind::FabricDevice, name));
        }
    }
}

fn join(parents: &mut [usize], one: usize, other: usize) {
    let (a, b) = (root(parents, one), root(parents, other));
    parents[a.max(b)] = a.min(b);
}

fn root(parents: &mut [usize], mut of: usize) -> usize {
    while parents[of] != of {
        parents[of] = parents[parents[of]];
        of = parents[of];
    }
    of
}
