//! Which port of a network is on which VLAN, and for what. Pure.

use std::collections::BTreeMap;

use eno_schemas::{VlanId, VlanSet};
use tokio::time::Instant;

use super::schedule::MAX_BATCH;

/// Maximum ports of one network: half of them for asking, half for being visited, so that nodes can't wait for each
/// other.
pub const MAX_PORTS: usize = 2 * MAX_BATCH;

/// What a port is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// This node asks there.
    Asking,
    /// Another node asks this one there, until then.
    Visited(Instant),
}

/// The indexes of a port's interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Of the end in the namespace of probes.
    pub inner: u32,
    /// Of the end on the host; absent: there is none.
    pub host: Option<u32>,
}

/// A port.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    /// The VLAN that it is on.
    pub vlan: Option<VlanId>,
    /// Its interfaces; absent: they have to be made.
    pub link: Option<Link>,
    /// True when the port carries the VLAN.
    pub moved: bool,
    /// True when it is up, with its address.
    pub up: bool,
    /// This node asks there.
    asking: bool,
    /// Another node asks this one there.
    visited: Option<Visited>,
}

/// A visit of another node.
#[derive(Clone, Copy, Debug)]
struct Visited {
    /// It ends then.
    until: Instant,
    /// Echo requests are to be answered.
    echo: bool,
}

impl Slot {
    /// True when nobody uses it.
    pub fn is_idle(&self) -> bool {
        !self.asking && self.visited.is_none()
    }
}

/// The ports of one network, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Slots(pub Vec<Slot>);

impl Slots {
    /// Chooses a port for each of these VLANs, as far as there are any: one that is on the VLAN, whatever it is used
    /// for, or one that nobody uses. No two ports are on one VLAN. Returns their numbers.
    pub fn choose(&mut self, vlans: &VlanSet, purpose: Use) -> BTreeMap<VlanId, usize> {
        let mut chosen = BTreeMap::new();
        for vlan in vlans.iter() {
            if let Some(at) = self.0.iter().position(|slot| slot.vlan == Some(vlan)) {
                self.take(&mut chosen, vlan, at, purpose);
            }
        }
        for vlan in vlans.iter() {
            if chosen.contains_key(&vlan) || self.0.iter().any(|slot| slot.vlan == Some(vlan)) {
                continue;
            }
            let at = match self.0.iter().position(Slot::is_idle) {
                Some(at) => at,
                None if self.0.len() < MAX_PORTS => {
                    self.0.push(Slot::default());
                    self.0.len() - 1
                }
                None => break,
            };
            self.take(&mut chosen, vlan, at, purpose);
        }
        chosen
    }

    fn take(&mut self, chosen: &mut BTreeMap<VlanId, usize>, vlan: VlanId, at: usize, purpose: Use) {
        let used = |slot: &&Slot| match purpose {
            Use::Asking => slot.asking,
            Use::Visited(_) => slot.visited.is_some(),
        };
        let is_full = self.0.iter().filter(used).count() >= MAX_BATCH;
        let Some(slot) = self.0.get_mut(at) else { return };
        if is_full && !used(&&*slot) {
            return;
        }
        match purpose {
            Use::Asking => slot.asking = true,
            Use::Visited(until) => {
                let echo = slot.visited.is_some_and(|visited| visited.echo);
                slot.visited = Some(Visited { until, echo });
            }
        }
        if slot.vlan.replace(vlan) != Some(vlan) {
            slot.moved = false;
        }
        chosen.insert(vlan, at);
    }

    /// Nobody asks any more.
    pub fn end_asking(&mut self) {
        self.0.iter_mut().for_each(|slot| slot.asking = false);
    }

    /// The visits that end by `now` are over.
    pub fn end_visits(&mut self, now: Instant) {
        for slot in &mut self.0 {
            slot.visited.take_if(|visited| visited.until <= now);
        }
    }

    /// The visits to other VLANs than these are over.
    pub fn end_visits_but(&mut self, vlans: &VlanSet) {
        for slot in &mut self.0 {
            slot.visited.take_if(|_| !slot.vlan.is_some_and(|vlan| vlans.contains(vlan)));
        }
    }

    /// While these VLANs are visited, echo requests are to be answered, and on no others.
    pub fn set_echo(&mut self, vlans: &VlanSet) {
        for slot in &mut self.0 {
            if let Some(visited) = &mut slot.visited {
                visited.echo = slot.vlan.is_some_and(|vlan| vlans.contains(vlan));
            }
        }
    }

    /// True when echo requests are to be answered somewhere.
    pub fn echoes(&self) -> bool {
        self.0.iter().any(|slot| slot.visited.is_some_and(|visited| visited.echo))
    }

    /// When the next visit ends.
    pub fn next_end(&self) -> Option<Instant> {
        self.0.iter().filter_map(|slot| slot.visited).map(|visited| visited.until).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn vlans(text: &str) -> VlanSet {
        text.parse().unwrap()
    }

    fn of(chosen: &BTreeMap<VlanId, usize>) -> String {
        chosen.keys().copied().collect::<VlanSet>().to_string()
    }

    /// No two ports are on one VLAN.
    fn on(slots: &Slots) -> Vec<u16> {
        let mut on: Vec<u16> = slots.0.iter().filter_map(|slot| slot.vlan).map(VlanId::get).collect();
        on.sort_unstable();
        assert!(on.is_sorted_by(|a, b| a < b), "{on:?}");
        on
    }

    #[test]
    fn each_use_has_half_of_the_ports() {
        let (mut slots, until) = (Slots::default(), Instant::now());
        assert_eq!(of(&slots.choose(&vlans("1-30"), Use::Asking)), "1-10");
        assert_eq!(of(&slots.choose(&vlans("101-130"), Use::Visited(until))), "101-110");
        assert_eq!(of(&slots.choose(&vlans("11-12,101"), Use::Asking)), "");
        assert_eq!((slots.0.len(), on(&slots).len()), (MAX_PORTS, MAX_PORTS));
        for round in 0..20 {
            slots.end_asking();
            let next = format!("{}-{}", 200 + round * 10, 209 + round * 10);
            assert_eq!(of(&slots.choose(&vlans(&next), Use::Asking)), next);
            assert_eq!((slots.0.len(), on(&slots).len()), (MAX_PORTS, MAX_PORTS));
        }
    }

    #[test]
    fn one_port_of_a_vlan_is_shared_and_idle_ones_stay_on_theirs() {
        let (mut slots, until) = (Slots::default(), Instant::now());
        let asked = slots.choose(&vlans("1-2"), Use::Asking);
        slots.0.iter_mut().for_each(|slot| slot.moved = true);
        assert_eq!(slots.choose(&vlans("2"), Use::Visited(until))[&VlanId::new(2).unwrap()], 1);
        slots.end_asking();
        assert_eq!(slots.0.iter().map(Slot::is_idle).collect::<Vec<_>>(), [true, false]);
        slots.end_visits(until - Duration::from_millis(1));
        slots.end_visits_but(&vlans("2-3"));
        assert_eq!(slots.next_end(), Some(until));
        slots.end_visits(until);
        assert_eq!((slots.next_end(), slots.choose(&vlans("1-2"), Use::Asking)), (None, asked));
        assert!(slots.0.iter().all(|slot| slot.moved), "none has moved");
        slots.choose(&vlans("2"), Use::Visited(until));
        slots.end_visits_but(&vlans("1"));
        assert_eq!(slots.next_end(), None);
        slots.end_asking();
        // The port on VLAN 1 is not taken from it for VLAN 3.
        slots.choose(&vlans("1,3"), Use::Asking);
        assert_eq!(on(&slots), [1, 3]);
        assert_eq!(slots.0.iter().map(|slot| slot.moved).collect::<Vec<_>>(), [true, false]);
    }
    #[test]
    fn echo_ends_with_its_visit() {
        let (mut slots, until) = (Slots::default(), Instant::now());
        slots.choose(&vlans("1-2"), Use::Asking);
        slots.set_echo(&vlans("1-2"));
        assert!(!slots.echoes(), "nobody visits");
        slots.choose(&vlans("2-3"), Use::Visited(until));
        assert!(!slots.echoes(), "echo is not asked for");
        slots.set_echo(&vlans("1,3"));
        assert!(slots.echoes());
        slots.end_visits_but(&vlans("2"));
        assert!(!slots.echoes());
        slots.choose(&vlans("2-3"), Use::Visited(until));
        slots.set_echo(&vlans("2"));
        slots.end_visits(until - Duration::from_millis(1));
        assert!(slots.echoes());
        slots.end_visits(until);
        assert!(!slots.echoes());
        slots.choose(&vlans("2-3"), Use::Visited(until));
        assert!(!slots.echoes(), "a visit that is over says nothing of the next one");
        slots.set_echo(&vlans("3"));
        slots.choose(&vlans("2-3"), Use::Visited(until));
        assert!(slots.echoes());
        slots.set_echo(&VlanSet::EMPTY);
        assert!(!slots.echoes(), "the next visit asks for none");
    }
}
