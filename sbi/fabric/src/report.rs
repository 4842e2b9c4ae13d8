//! The parts of reports. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_sbi::Reconciled;
use eno_schemas::{
    Applied, Carried, ChangeReport, FabricDesired, FabricPort, Item, Lookup, NO_MAC_TABLE, Note, Rejection,
    VlanId, VlanSet,
};

use crate::desired::{desired_vlans, vlans_of};

/// The kind of notes about what was changed by another hand.
pub const DRIFT: &str = "Drift";

/// Rejects each port that wants any VLAN.
pub fn reject_ports(ports: &[&FabricPort], reason: &str) -> Vec<Rejection> {
    let wanting = ports.iter().filter(|port| !port.vlans.is_empty());
    wanting.map(|port| Rejection::permanent(Item::port(&port.name), reason)).collect()
}

/// Rejects a VLAN on each port that wants it.
pub fn reject_vlan(ports: &[&FabricPort], vid: VlanId, reason: &str) -> Vec<Rejection> {
    let wanting = ports.iter().filter(|port| port.vlans.contains(vid));
    wanting.map(|port| Rejection::permanent(Item::port_vlan(&port.name, vid), reason)).collect()
}

/// Notes of one kind up to a bound. The rest is only counted.
#[derive(Debug)]
pub struct BoundedNotes {
    max: usize,
    notes: Vec<Note>,
    more: usize,
}

impl BoundedNotes {
    /// No notes yet, and later at most so many.
    pub fn new(max: usize) -> Self {
        Self { max, notes: Vec::new(), more: 0 }
    }

    /// Adds a note, which is made only within the bound.
    pub fn add(&mut self, note: impl FnOnce() -> Note) {
        if self.notes.len() < self.max {
            self.notes.push(note());
        } else {
            self.more += 1;
        }
    }

    /// The notes, and one more with the message for the number of the rest.
    pub fn finish(mut self, rest: impl FnOnce(usize) -> String) -> Vec<Note> {
        let kind = self.notes.first().filter(|_| self.more > 0).map(|note| note.kind.clone());
        self.notes.extend(kind.map(|kind| Note::new(kind, Item::TARGET, rest(self.more))));
        self.notes
    }
}

/// The report of a change that was made just now.
pub fn change_report(took: Duration, added: usize, removed: usize) -> ChangeReport {
    ChangeReport {
        transaction: None,
        at: jiff::Timestamp::now().to_string(),
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        added: u32::try_from(added).unwrap_or(u32::MAX),
        removed: u32::try_from(removed).unwrap_or(u32::MAX),
    }
}

/// Answers the lookup of a desired state without stations, where the device was not asked. `why`: the message.
pub fn answer_lookup(desired: &FabricDesired, reconciled: &mut Reconciled, why: impl FnOnce() -> String) {
    if let (Some(revision), Some(Applied::Fabric { lookup: lookup @ None, .. })) =
        (&desired.lookup, &mut reconciled.applied)
    {
        *lookup = Some(Lookup { revision: revision.clone(), stations: Vec::new() });
        reconciled.notes.push(Note::new(NO_MAC_TABLE, Item::TARGET, why()));
    }
}

/// The observed state of a device without memory of its ports.
#[derive(Debug)]
pub struct Observation {
    vlans: VlanSet,
    ports: BTreeMap<String, VlanSet>,
    carried: BTreeMap<String, Carried>,
}

impl Observation {
    /// The state with these VLANs of ours, which is read without the listed ports.
    pub fn new(vlans: VlanSet) -> Self {
        Self { vlans, ports: BTreeMap::new(), carried: BTreeMap::new() }
    }

    /// Adds a listed port with all that it carries, and with what of it is ours. `listed`: all names that stand for
    /// the same port of the device. What others of them want is not of a name without VLANs.
    pub fn add(&mut self, port: &FabricPort, carried: Carried, ours: &VlanSet, listed: &[&FabricPort]) {
        let of_others = if port.vlans.is_empty() { vlans_of(listed.iter().copied()) } else { VlanSet::EMPTY };
        let ours = ours.difference(&of_others);
        self.carried.insert(port.name.clone(), carried);
        self.vlans = self.vlans.union(&ours);
        if !ours.is_empty() {
            self.ports.insert(port.name.clone(), ours);
        }
    }

    /// The port forwards nothing, whatever it is configured for.
    pub fn forwards_nothing(&mut self, port: &FabricPort) {
        self.ports.remove(&port.name);
    }

    /// The state for a report. A VLAN without a listed port needs nothing on the device.
    pub fn applied(self, desired: &FabricDesired) -> Applied {
        let unlisted = desired_vlans(desired).difference(&vlans_of(&desired.ports));
        let Self { vlans, ports, carried } = self;
        Applied::Fabric {
            vlans: vlans.union(&unlisted),
            ports,
            carried,
            closed: None,
            before: BTreeMap::new(),
            vrfs: BTreeSet::new(),
            routed: VlanSet::EMPTY,
            lookup: None,
        }
    }
}
