//! Switches that can hold their changes, refuse, fail and fall silent, and a gate that makes transactions of them.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::{Config, Engine, Event, Key, Name, Target};
use eno_schemas::*;

use super::{World, before, closed};

/// What a switch is told.
#[derive(Clone, Debug)]
struct Order {
    desired: FabricDesired,
    sequence: u64,
    /// The transaction, and what was decided of it.
    transaction: Option<(u64, Option<bool>)>,
}

/// A transaction.
#[derive(Debug)]
struct Open {
    id: u64,
    parts: BTreeMap<Name, Part>,
    decided: Option<bool>,
}

#[derive(Clone, Debug)]
struct Part {
    desired: FabricDesired,
    sequence: u64,
    /// What it said: whether it refused something.
    held: Option<bool>,
    over: bool,
    /// It was left open by a former leader.
    found: bool,
}

/// The switches of a world in which changes of several of them are transactions.
#[derive(Debug, Default)]
pub struct Switches {
    dirty: BTreeSet<Name>,
    /// The last word to each.
    said: BTreeMap<Name, Order>,
    inbox: BTreeMap<Name, Order>,
    /// What was there before the change that is held, and its transaction.
    held: BTreeMap<Name, (Option<FabricDesired>, u64, Vec<Rejection>)>,
    /// The last order that was carried out, or failed.
    last: BTreeMap<Name, Order>,
    open: Vec<Open>,
    stuck: BTreeSet<Name>,
    pub dead: BTreeSet<Name>,
    pub silent: BTreeSet<Name>,
    pub refuses: BTreeSet<(Name, VlanId)>,
    /// Those that were silent or dead since all was last quiet.
    pub was_away: BTreeSet<Name>,
    /// What was refused outside of a transaction, or within one that others had decided on before.
    pub refused_alone: BTreeSet<(Name, VlanId)>,
    /// How long the changes of a switch take, in milliseconds.
    pub took: BTreeMap<Name, u64>,
    pub retries: Vec<(Key, u32)>,
    pub outcomes: Vec<&'static str>,
    pub participants: Vec<usize>,
    reports: BTreeMap<Name, Report>,
    count: u64,
    /// Those that can't hold a change.
    pub plain: BTreeSet<Name>,
}

fn hash(desired: &FabricDesired) -> String {
    Desired::Fabric(desired.clone()).hash()
}

/// The ports that carry a VLAN, and whether it exists.
pub fn placed(state: Option<&FabricDesired>, vid: VlanId) -> (bool, BTreeSet<String>) {
    let Some(state) = state else { return (false, BTreeSet::new()) };
    let ports = state.ports.iter().filter(|port| port.vlans.contains(vid)).map(|port| port.name.clone());
    (state.vlans.iter().any(|vlan| vlan.vid == vid), ports.collect())
}

fn place(state: &mut FabricDesired, vid: VlanId, (exists, ports): (bool, BTreeSet<String>)) {
    let owner = state.vlans.iter().find(|vlan| vlan.vid == vid).cloned();
    state.vlans.retain(|vlan| vlan.vid != vid);
    if exists {
        state.vlans.push(owner.unwrap_or(FabricVlan { vid, owners: vec!["another".into()] }));
        state.vlans.sort_by_key(|vlan| vlan.vid);
    }
    for port in &mut state.ports {
        if ports.contains(&port.name) {
            port.vlans.insert(vid)
        } else {
            port.vlans.remove(vid)
        };
    }
}

impl World {
    /// As [`Self::leaf_spine`], with transactions and a pool for each side: the connection points `left` and `right`.
    pub fn together() -> Self {
        let mut world = Self { switches: Some(Switches::default()), ..Self::default() };
        world.engine.handle(Event::DriversThatHold(BTreeSet::from(["netconf".into()])));
        world.fabric();
        world
    }

    pub fn fab(&mut self) -> &mut Switches {
        self.switches.as_mut().unwrap()
    }

    pub(super) fn fabric_changed(&mut self, name: &Name) {
        self.fab().dirty.insert(name.clone());
    }

    pub(super) fn fabric_forgotten(&mut self, name: &Name) {
        let fab = self.fab();
        fab.dirty.remove(name);
        fab.inbox.remove(name);
        fab.said.remove(name);
        fab.held.remove(name);
        fab.reports.remove(name);
        fab.last.remove(name);
    }

    /// What a switch has.
    pub fn real(&self, name: &Name) -> Option<&FabricDesired> {
        match self.targets.get(&Target::Fabric(name.clone()))? {
            Desired::Fabric(fabric) => Some(fabric),
            _ => None,
        }
    }

    fn make(&mut self, name: &Name, state: Option<FabricDesired>) {
        let target = Target::Fabric(name.clone());
        match state {
            Some(state) => drop(self.targets.insert(target, Desired::Fabric(state))),
            None => drop(self.targets.remove(&target)),
        }
    }

    /// One thing happens in the fabric; false: nothing is left to happen.
    pub(super) fn fabric_step(&mut self) -> bool {
        let fab = self.fab();
        let next = fab.inbox.keys().find(|name| !fab.silent.contains(*name)).cloned();
        if let Some(name) = next {
            self.work(&name);
            return true;
        }
        self.decide() || self.publish_fabric() || self.time_passes()
    }

    /// The switch refuses this VLAN, or takes it again and does what it was told.
    pub fn refuse(&mut self, name: &str, vid: u16, refuses: bool) {
        let (name, vid) = (Name::from(name), VlanId::new(vid).unwrap());
        if refuses {
            self.fab().refuses.insert((name, vid));
            return;
        }
        self.fab().refuses.remove(&(name.clone(), vid));
        let fab = self.fab();
        let order = fab
            .last
            .get(&name)
            .filter(|order| order.transaction.is_none_or(|(_, decided)| decided == Some(true)));
        if let Some(order) = order.cloned()
            && !fab.inbox.contains_key(&name)
            && !fab.held.contains_key(&name)
            && !fab.dead.contains(&name)
            && !fab.silent.contains(&name)
        {
            self.carry_out_order(&name, &order);
        }
    }

    pub fn kill(&mut self, name: &str) {
        let name = Name::from(name);
        self.fab().dead.insert(name.clone());
        if let Some((before, ..)) = self.fab().held.remove(&name) {
            self.make(&name, before);
            let order = self.fab().last[&name].clone();
            self.fails(&name, &order);
        }
    }

    pub fn revive(&mut self, name: &str) {
        let name = Name::from(name);
        if self.fab().dead.remove(&name)
            && !self.fab().inbox.contains_key(&name)
            && let Some(mut order) = self.fab().last.get(&name).cloned()
        {
            // The deadline of what it was to hold is over.
            if let Some((id, None)) = order.transaction {
                order.transaction = Some((id, Some(false)));
            }
            self.fab().inbox.insert(name, order);
        }
    }

    /// The back-off of all that was refused is over.
    pub fn retry(&mut self) {
        for (network, attempt) in std::mem::take(&mut self.fab().retries) {
            self.engine.handle(Event::RetryDue(network, attempt));
        }
    }

    fn work(&mut self, name: &Name) {
        let order = self.fab().inbox.remove(name).unwrap();
        self.fab().stuck.remove(name);
        self.fab().last.insert(name.clone(), order.clone());
        let held = self.fab().held.remove(name);
        if self.fab().dead.contains(name) {
            if let Some((before, ..)) = held {
                self.make(name, before);
            }
            return self.fails(name, &order);
        }
        match (order.transaction, held) {
            (Some((id, Some(true))), Some((_, held, rejected))) if id == held => {
                self.says(name, &order, Outcome::Applied, rejected);
            }
            (transaction, held) => {
                if let Some((before, ..)) = held {
                    self.make(name, before);
                }
                match transaction {
                    Some((_, Some(false))) => {
                        let reason = "aborted".into();
                        self.says(name, &order, Outcome::RolledBack { reason }, Vec::new());
                    }
                    Some((id, None)) => {
                        let before = self.real(name).cloned();
                        let rejected = self.apply_order(name, &order);
                        self.fab().held.insert(name.clone(), (before, id, rejected.clone()));
                        self.says(name, &order, Outcome::Held, rejected);
                    }
                    None | Some((_, Some(true))) => self.carry_out_order(name, &order),
                }
            }
        }
    }

    fn carry_out_order(&mut self, name: &Name, order: &Order) {
        let rejected = self.apply_order(name, order);
        for rejection in &rejected {
            let vid = rejection.item.vlan.unwrap();
            self.fab().refused_alone.insert((name.clone(), vid));
        }
        self.says(name, order, Outcome::Applied, rejected);
    }

    /// All but what it refuses, of which it leaves what is there.
    fn apply_order(&mut self, name: &Name, order: &Order) -> Vec<Rejection> {
        super::check_fabric(&order.desired);
        let before = self.real(name).cloned();
        let mut state = order.desired.clone();
        let mut rejected = Vec::new();
        for (_, vid) in self.fab().refuses.clone().into_iter().filter(|(refusing, _)| refusing == name) {
            let was = placed(before.as_ref(), vid);
            if was != placed(Some(&state), vid) {
                place(&mut state, vid, was);
                let reason = "resource exhausted".into();
                rejected.push(Rejection {
                    item: Item::vlan(vid),
                    reason,
                    retryable: true,
                    unreachable: false,
                });
            }
        }
        self.make(name, Some(state));
        rejected
    }

    fn fails(&mut self, name: &Name, order: &Order) {
        let failure = Failure { reason: "connect: refused".into(), retryable: true, unreachable: true };
        self.says(name, order, Outcome::Failed(failure), Vec::new());
    }

    fn says(&mut self, name: &Name, order: &Order, outcome: Outcome, rejected: Vec<Rejection>) {
        let known = !matches!(outcome, Outcome::Failed(_));
        let real = self.real(name);
        let before = real.map(|state| before(&state.ports)).unwrap_or_default();
        let ports = real.into_iter().flat_map(|state| &state.ports);
        let ports = ports.map(|port| (port.name.clone(), port.vlans.clone())).collect();
        let applied = Applied::Fabric {
            vlans: real.into_iter().flat_map(|state| &state.vlans).map(|vlan| vlan.vid).collect(),
            closed: Some(closed(&ports)),
            before,
            ports,
            carried: BTreeMap::new(),
        };
        let rollback = if self.fab().plain.contains(name) { Rollback::None } else { Rollback::Persistent };
        let report = Report {
            driver: "netconf".into(),
            target: name.to_string(),
            instance: "i".into(),
            generation: Generation { term: 1, sequence: order.sequence, hash: hash(&order.desired) },
            at: "2026-01-01T00:00:00Z".into(),
            outcome,
            applied: known.then_some(applied),
            rejected,
            notes: Vec::new(),
            device: Some(DeviceInfo { rollback: Some(rollback), ..DeviceInfo::default() }),
            change: self.fab().took.get(name).map(|took| ChangeReport {
                transaction: None,
                at: "2026-01-01T00:00:00Z".into(),
                took_ms: *took,
                added: 1,
                removed: 0,
            }),
        };
        let target = Target::Fabric(name.clone());
        let refused = self.engine.rejects_planned_change(&target, &report);
        if self.hears(name, order.sequence, &report.outcome, refused) {
            self.engine.handle(Event::ChangeRefused(name.clone(), Box::new(report.clone())));
        }
        self.fab().reports.insert(name.clone(), report.clone());
        self.engine.handle(Event::Report(target, Box::new(report)));
    }

    /// The gate hears an answer. True when it refuses a part of a transaction that is open.
    fn hears(&mut self, name: &Name, sequence: u64, outcome: &Outcome, refused: bool) -> bool {
        let (mut late, mut counts) = (false, false);
        let fab = self.fab();
        let part = fab.open.iter_mut().find_map(|open| {
            let decided = open.decided;
            let part = open.parts.get_mut(name).filter(|part| !part.over && part.sequence <= sequence);
            part.map(|part| (decided, part))
        });
        match (part, outcome) {
            (Some((None, part)), Outcome::Held | Outcome::Applied) => {
                part.held = Some(refused);
                counts = refused;
            }
            (Some((None, part)), Outcome::Failed(_)) => {
                part.over = true;
                fab.dirty.insert(name.clone());
                self.end(name, false, "failed");
            }
            (Some((None, part)), Outcome::RolledBack { .. }) => {
                part.over = true;
                late = true;
                fab.dirty.insert(name.clone());
                self.end(name, false, "late");
            }
            // It is not known yet what is there.
            (Some((Some(_), part)), Outcome::Failed(_)) if part.found => {}
            (Some((Some(_), part)), Outcome::Applied | Outcome::Failed(_) | Outcome::RolledBack { .. }) => {
                part.over = true;
            }
            _ => {}
        }
        if late {
            self.engine.handle(Event::MissedDeadline(name.clone()));
        }
        self.fab().open.retain(|open| open.parts.values().any(|part| !part.over));
        counts
    }

    /// The transaction that `name` takes part in is decided.
    fn end(&mut self, name: &Name, confirm: bool, outcome: &'static str) {
        let fab = self.switches.as_mut().unwrap();
        let open = fab.open.iter_mut().find(|open| open.decided.is_none() && open.parts.contains_key(name));
        let Some(open) = open else { return };
        open.decided = Some(confirm);
        fab.outcomes.push(outcome);
        for (name, part) in open.parts.iter_mut().filter(|(_, part)| !part.over) {
            fab.count += 1;
            part.sequence = fab.count;
            if !confirm {
                fab.dirty.insert(name.clone());
            }
            let transaction = Some((open.id, Some(confirm)));
            let order = Order { desired: part.desired.clone(), sequence: fab.count, transaction };
            fab.said.insert(name.clone(), order.clone());
            fab.inbox.insert(name.clone(), order);
        }
    }

    fn decide(&mut self) -> bool {
        let fab = self.switches.as_ref().unwrap();
        let ripe = |open: &&Open| {
            open.decided.is_none() && open.parts.values().all(|part| part.over || part.held.is_some())
        };
        let Some(open) = fab.open.iter().find(ripe) else { return false };
        let refused = open.parts.values().any(|part| part.held == Some(true));
        let name = open.parts.keys().next().unwrap().clone();
        // Who was away may refuse what others have made without it: now nobody changes it but who was away as well.
        let changes = |name: &Name, vid| {
            fab.held
                .get(name)
                .is_some_and(|(before, ..)| placed(before.as_ref(), vid) != placed(self.real(name), vid))
        };
        let present: Vec<&Name> = open.parts.keys().filter(|name| !fab.was_away.contains(*name)).collect();
        let mut alone = BTreeSet::new();
        for name in open.parts.keys().filter(|name| !refused && fab.was_away.contains(*name)) {
            let vids = fab.held.get(name).into_iter().flat_map(|(.., rejected)| rejected);
            let vids = vids.filter_map(|rejection| rejection.item.vlan);
            let lonely = |vid: &VlanId| !present.iter().any(|other| changes(other, *vid));
            alone.extend(vids.filter(lonely).map(|vid| (name.clone(), vid)));
        }
        self.fab().refused_alone.append(&mut alone);
        self.end(&name, !refused, if refused { "refused" } else { "confirmed" });
        true
    }

    fn publish_fabric(&mut self) -> bool {
        let fab = self.switches.as_ref().unwrap();
        let stuck = fab.dirty.iter().find(|name| fab.stuck.contains(*name) && !fab.binds(name)).cloned();
        if let Some(name) = stuck {
            self.engine.handle(Event::MissedDeadline(name.clone()));
            return self.order_alone(&name);
        }
        let bound =
            fab.open.iter().flat_map(|open| &open.parts).filter(|(_, part)| !part.over).map(|(name, _)| name);
        let names: BTreeSet<&Name> =
            fab.dirty.iter().filter(|name| !fab.stuck.contains(*name)).chain(bound).collect();
        let waits = |name: &Name| fab.binds(name) || fab.inbox.contains_key(name);
        let groups = self.engine.transaction_groups(names);
        let ready = groups.into_iter().find(|group| !group.holding.iter().chain(&group.plain).any(waits));
        let Some(group) = ready else { return false };
        if group.holding.len() < 2 {
            for name in group.holding.iter().chain(&group.plain) {
                self.order_alone(name);
            }
            return true;
        }
        self.order_together(group.holding);
        true
    }

    fn wanted(&mut self, name: &Name) -> Option<FabricDesired> {
        self.fab().dirty.remove(name);
        match self.engine.desired(&Target::Fabric(name.clone()))? {
            (_, Desired::Fabric(desired)) => Some(desired),
            _ => None,
        }
    }

    fn order_alone(&mut self, name: &Name) -> bool {
        let Some(desired) = self.wanted(name) else { return true };
        if !self.fab().is_said(name, &desired) {
            self.published += 1;
            self.commands.insert(Target::Fabric(name.clone()), Desired::Fabric(desired.clone()));
            let fab = self.fab();
            fab.count += 1;
            let order = Order { desired, sequence: fab.count, transaction: None };
            fab.said.insert(name.clone(), order.clone());
            fab.inbox.insert(name.clone(), order);
        }
        true
    }

    fn order_together(&mut self, names: Vec<Name>) {
        let mut all = Vec::new();
        for name in names {
            let Some(desired) = self.wanted(&name) else { continue };
            if !self.fab().is_said(&name, &desired) {
                all.push((name, desired));
            }
        }
        if all.len() < 2 {
            for (name, _) in all {
                self.order_alone(&name);
            }
            return;
        }
        self.published += all.len();
        let id = self.fab().count;
        let mut parts = BTreeMap::new();
        for (name, desired) in all {
            self.commands.insert(Target::Fabric(name.clone()), Desired::Fabric(desired.clone()));
            let fab = self.fab();
            fab.count += 1;
            let sequence = fab.count;
            let order = Order { desired: desired.clone(), sequence, transaction: Some((id, None)) };
            fab.said.insert(name.clone(), order.clone());
            fab.inbox.insert(name.clone(), order);
            parts.insert(name, Part { desired, sequence, held: None, over: false, found: false });
        }
        self.fab().participants.push(parts.len());
        self.fab().open.push(Open { id, parts, decided: None });
    }

    /// Nothing happens but that time passes: deadlines come, and who is silent is no longer waited for.
    fn time_passes(&mut self) -> bool {
        let fab = self.fab();
        if let Some(open) = fab.open.iter_mut().find(|open| open.decided.is_none()) {
            let mut late = Vec::new();
            for (name, part) in open.parts.iter_mut().filter(|(_, part)| !part.over && part.held.is_none()) {
                part.over = true;
                late.push(name.clone());
            }
            let name = open.parts.keys().next().unwrap().clone();
            fab.dirty.extend(late.iter().cloned());
            fab.stuck.extend(late.iter().cloned());
            self.end(&name, false, "late");
            for name in late {
                self.engine.handle(Event::MissedDeadline(name));
            }
            self.fab().open.retain(|open| open.parts.values().any(|part| !part.over));
            return true;
        }
        // What is held is taken back in time, by the device if not by its driver.
        let overdue: Vec<Name> = fab.held.keys().filter(|name| fab.silent.contains(*name)).cloned().collect();
        for name in overdue {
            if let Some((before, ..)) = self.fab().held.remove(&name) {
                self.make(&name, before);
            }
        }
        let fab = self.fab();
        let told: Vec<Name> = fab.inbox.keys().cloned().collect();
        let before = (fab.open.len(), fab.stuck.len());
        for open in &mut fab.open {
            for (name, part) in &mut open.parts {
                part.over |= !part.found && told.contains(name);
            }
        }
        fab.open.retain(|open| open.parts.values().any(|part| !part.over));
        fab.stuck.extend(told);
        before != (fab.open.len(), fab.stuck.len())
    }

    /// A new engine that knows only what Kubernetes and NATS hold.
    pub fn restart_together(&mut self) {
        let mut objects = self.objects.clone();
        for (key, object) in &mut objects {
            object.status = self.statuses.get(key).cloned();
        }
        self.engine = Engine::new(Config {
            cluster: "lab".into(),
            cluster_uid: None,
            bridge_domains: false,
            nodes: false,
        });
        self.engine.handle(Event::DriversThatHold(BTreeSet::from(["netconf".into()])));
        self.engine.handle(Event::Drivers(Self::drivers()));
        for (name, (labels, ready)) in self.nodes.clone() {
            self.engine.handle(Event::Node { name, labels, ready });
        }
        for object in objects.values().rev() {
            self.engine.handle(Event::Object(Box::new(object.clone())));
        }
        for (target, desired) in self.commands.clone() {
            self.engine.handle(Event::StoredCommand(target, Box::new(desired)));
        }
        for (target, desired) in self.targets.clone() {
            if !matches!(target, Target::Fabric(_)) {
                let unanswered = self.pending.insert(target.clone(), desired);
                self.answer(&target);
                self.pending.extend(unanswered.map(|desired| (target, desired)));
            }
        }
        for (name, report) in self.fab().reports.clone() {
            self.engine.handle(Event::Report(Target::Fabric(name), Box::new(report)));
        }
        let fab = self.fab();
        fab.stuck.clear();
        // What was open is aborted before anything else.
        fab.open.clear();
        for (name, order) in &mut fab.said {
            let Some((id, None | Some(false))) = order.transaction else { continue };
            fab.count += 1;
            (order.sequence, order.transaction) = (fab.count, Some((id, Some(false))));
            fab.inbox.insert(name.clone(), order.clone());
            let (desired, sequence) = (order.desired.clone(), order.sequence);
            let part = Part { desired, sequence, held: None, over: false, found: true };
            let parts = BTreeMap::from([(name.clone(), part)]);
            fab.open.push(Open { id, parts, decided: Some(false) });
        }
        fab.dirty.clear();
        fab.retries.clear();
    }
}

impl Switches {
    /// That is what it was told last, and it counts.
    fn is_said(&self, name: &Name, desired: &FabricDesired) -> bool {
        self.said.get(name).is_some_and(|order| {
            order.transaction.is_none_or(|(_, decided)| decided == Some(true)) && order.desired == *desired
        })
    }

    fn binds(&self, name: &Name) -> bool {
        self.open.iter().any(|open| open.parts.get(name).is_some_and(|part| !part.over))
    }
}
