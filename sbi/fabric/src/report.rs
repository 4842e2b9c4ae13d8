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
            bgp: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use eno_conformance::fabrics;
    use eno_schemas::{Device, Station};

    use super::*;

    #[test]
    fn lookup_without_an_answer_gets_an_empty_one() {
        let mut desired = fabrics::desired("c1", Device::new("leaf1"), "1", &[]);
        let answered = |desired: &FabricDesired, mut reconciled: Reconciled| {
            answer_lookup(desired, &mut reconciled, || "why".into());
            let Some(Applied::Fabric { lookup, .. }) = reconciled.applied else { return (None, 0) };
            (lookup, reconciled.notes.len())
        };
        let applied = |lookup| {
            let mut applied = desired.carried_out();
            if let Applied::Fabric { lookup: none, .. } = &mut applied {
                *none = lookup;
            }
            Reconciled::applied(applied)
        };
        let station = Station { mac: String::new(), vlan: fabrics::vid(1), port: String::new() };
        let known = Lookup { revision: "r1".into(), stations: vec![station] };
        let (unanswered, answer) = (applied(None), applied(Some(known.clone())));
        assert_eq!(answered(&desired, unanswered.clone()), (None, 0));
        desired.lookup = Some("r1".into());
        let empty = Lookup { stations: Vec::new(), ..known.clone() };
        assert_eq!(answered(&desired, unanswered), (Some(empty), 1));
        assert_eq!(answered(&desired, answer), (Some(known), 0));
        assert_eq!(answered(&desired, Reconciled::progress("busy")), (None, 0));
    }
}
