use eno_schemas::{Device, FabricDesired, FabricPort, FabricVlan, VlanSet};

use super::*;

mod histories;
mod stream;

const SECOND: Duration = Duration::from_secs(1);

fn place() -> Place {
    (Target::Fabric("leaf1".into()), "netconf".into())
}

/// A switch with VLANs, which its one port carries.
fn state(vids: &str) -> SwitchState {
    let on_port: VlanSet = vids.parse().expect("a set of VLANs");
    let vlans = on_port.iter().map(|vid| FabricVlan::new(vid, vec![format!("L2Service/{vid}")]));
    let desired = FabricDesired {
        cluster: "lab".into(),
        cluster_uid: None,
        device: Device::new("192.0.2.1:830"),
        vrfs: Vec::new(),
        lookup: None,
        vlans: vlans.collect(),
        ports: vec![FabricPort::new("eth1", on_port)],
    };
    let tree = Tree::of(&desired);
    SwitchState::new(Desired::Fabric(desired).into(), tree.into())
}

/// The parts of one state that another one does not have.
fn only_in(one: &SwitchState, other: &SwitchState) -> Vec<PartHash> {
    sorted(one.tree.difference(&other.tree).0)
}

fn sorted(mut parts: Vec<PartHash>) -> Vec<PartHash> {
    parts.sort();
    parts
}

/// A ledger with a stream that stores what it lists, at ascending sequences.
#[derive(Default)]
struct Stored {
    ledger: Ledger,
    last: u64,
}

impl Stored {
    fn event(&mut self, event: PartsEvent, now: Duration) {
        self.ledger.on_event(event, now);
    }

    /// The sequences at which parts are stored.
    fn store(&mut self, parts: &[PartHash]) -> Vec<(PartHash, u64)> {
        let mut at_next = |part: &PartHash| {
            self.last += 1;
            (*part, self.last)
        };
        parts.iter().map(&mut at_next).collect()
    }

    /// Parts that were published before a head are stored.
    fn acknowledge(&mut self, parts: &[PartHash], now: Duration) {
        let stored = self.store(parts);
        self.event(PartsEvent::Published(place(), stored), now);
    }

    /// Publishes a head with its parts. Returns the parts that were not stored before.
    fn publish(&mut self, state: &SwitchState, now: Duration) -> Vec<PartHash> {
        let missing = self.ledger.publish(&place(), state, now);
        self.acknowledge(&missing, now);
        self.event(PartsEvent::CommandStored(place(), Some(state.root())), now);
        sorted(missing)
    }

    fn purged(&mut self, now: Duration) -> Vec<PartHash> {
        let purges = self.ledger.purges(now);
        for purge in &purges {
            self.event(PartsEvent::Purged(purge.clone(), true), now);
        }
        sorted(purges.into_iter().map(|purge| purge.part).collect())
    }

    fn resent(&mut self, now: Duration) -> Vec<PartHash> {
        let resends = self.ledger.resends(now);
        for Resend { place, parts, .. } in &resends {
            let stored = self.store(parts);
            self.event(PartsEvent::Resent(place.clone(), stored, true), now);
        }
        sorted(resends.into_iter().flat_map(|resend| resend.parts).collect())
    }
}

#[test]
fn change_publishes_what_it_changes_and_the_rest_is_purged_after_the_grace_time() {
    let mut stored = Stored::default();
    let (few, more) = (state("100,2000-2031"), state("100,101,2000-2031"));
    let all = stored.publish(&few, SECOND);
    assert_eq!(all, sorted(few.tree.parts().collect()));
    assert_eq!(all.len(), 7, "the root, the switch, two groups and three blocks");
    assert_eq!(stored.publish(&few, SECOND), [], "a decision");
    let changed = stored.publish(&more, 2 * SECOND);
    assert_eq!(changed, only_in(&more, &few));
    assert_eq!(changed.len(), 3, "a block, its group and the root");
    let due = 2 * SECOND + PART_GRACE;
    assert_eq!(stored.ledger.next(), Some(due));
    assert_eq!(stored.purged(SECOND + PART_GRACE), [], "a second before");
    assert_eq!(stored.purged(due), only_in(&few, &more));
    assert_eq!(stored.ledger.next(), None);
}

#[test]
fn part_that_is_named_again_is_not_purged() {
    let mut stored = Stored::default();
    let (a, b) = (state("100"), state("200"));
    stored.publish(&a, SECOND);
    stored.publish(&b, 2 * SECOND);
    assert_eq!(stored.publish(&a, 3 * SECOND), [], "all of its parts are stored still");
    assert_eq!(stored.purged(3 * SECOND + PART_GRACE), only_in(&b, &a));
}

#[test]
fn part_that_is_being_purged_is_published_again_and_the_new_copy_stays() {
    let mut stored = Stored::default();
    let (a, b) = (state("100"), state("200"));
    stored.publish(&a, SECOND);
    let last_of_a = stored.last;
    stored.publish(&b, 2 * SECOND);
    let now = 2 * SECOND + PART_GRACE;
    let purges = stored.ledger.purges(now);
    assert!(purges.iter().all(|purge| purge.sequence <= last_of_a), "{purges:?}");
    assert_eq!(stored.publish(&a, now), only_in(&a, &b), "under new sequences");
    // The echo of the first copy comes late.
    let (part, sequence) = (purges[0].part, purges[0].sequence);
    stored.event(PartsEvent::Stored(place(), part, sequence), now);
    for purge in purges {
        stored.event(PartsEvent::Purged(purge, true), now);
    }
    assert_eq!(stored.publish(&a, now), []);
}

#[test]
fn purge_that_failed_is_tried_again() {
    let mut stored = Stored::default();
    let (a, b) = (state("100"), state("200"));
    stored.publish(&a, SECOND);
    stored.publish(&b, 2 * SECOND);
    let mut now = 2 * SECOND + PART_GRACE;
    for purge in stored.ledger.purges(now) {
        stored.event(PartsEvent::Purged(purge, false), now);
    }
    assert_eq!(stored.purged(now), []);
    now += PART_GRACE;
    assert_eq!(stored.purged(now), only_in(&a, &b));
}

#[test]
fn few_purges_are_under_way() {
    let mut stored = Stored::default();
    let (a, b) = (state("1-4094"), state("1"));
    stored.publish(&a, SECOND);
    stored.publish(&b, 2 * SECOND);
    let now = 2 * SECOND + PART_GRACE;
    assert_eq!(stored.ledger.purges(now).len(), MAX_PURGES);
    assert_eq!((stored.ledger.purges(now), stored.ledger.next()), (Vec::new(), None));
}

#[test]
fn head_whose_acknowledgement_is_lost_keeps_its_parts() {
    let mut stored = Stored::default();
    let (a, b, c) = (state("100"), state("200"), state("300"));
    stored.publish(&a, SECOND);
    let missing = stored.ledger.publish(&place(), &b, SECOND);
    stored.acknowledge(&missing, SECOND);
    stored.event(PartsEvent::CommandNotStored(place()), SECOND);
    assert_eq!(stored.purged(10 * PART_GRACE), [], "either head may be stored");
    stored.publish(&c, 10 * PART_GRACE);
    let mut left = [only_in(&a, &c), only_in(&b, &c)].concat();
    left.sort();
    assert_eq!(stored.purged(11 * PART_GRACE), left);
    // The attempts of one switch are bounded.
    for vid in 400..500 {
        let state = state(&vid.to_string());
        let missing = stored.ledger.publish(&place(), &state, 12 * PART_GRACE);
        stored.acknowledge(&missing, 12 * PART_GRACE);
        stored.event(PartsEvent::CommandNotStored(place()), 12 * PART_GRACE);
    }
    assert!(stored.ledger.places[&place()].pending.len() <= MAX_PENDING);
    assert!(!stored.purged(13 * PART_GRACE).is_empty());
}

#[test]
fn whole_command_needs_no_parts() {
    let mut stored = Stored::default();
    let all = stored.publish(&state("100"), SECOND);
    assert!(stored.ledger.is_head(&place(), &state("100").root().to_string()));
    stored.event(PartsEvent::CommandStored(place(), None), SECOND);
    assert_eq!(stored.ledger.heads().count(), 0);
    assert_eq!(stored.purged(SECOND + PART_GRACE), all);
    assert!(stored.ledger.places.is_empty());
}

#[test]
fn lost_parts_are_published_again() {
    let mut stored = Stored::default();
    let a = state("100,2000");
    let all = stored.publish(&a, SECOND);
    stored.event(PartsEvent::StreamLost, SECOND);
    assert_eq!(stored.ledger.next(), Some(SECOND));
    assert_eq!(stored.resent(SECOND), all);
    assert_eq!(stored.resent(SECOND), []);

    // After a reconnect one of them is not there.
    stored.event(PartsEvent::ReadingBegins, SECOND);
    let rest = all[1..].iter().map(|part| (*part, 1)).collect();
    stored.event(PartsEvent::Read(BTreeMap::from([(place(), rest)])), SECOND);
    assert_eq!(stored.resent(SECOND), all[..1]);

    // What was stored after a reading had begun may lack in it.
    stored.event(PartsEvent::ReadingBegins, SECOND);
    let missing = stored.ledger.publish(&place(), &state("100,2000-2016"), SECOND);
    stored.acknowledge(&missing, SECOND);
    let before = all.iter().map(|part| (*part, 1)).collect();
    stored.event(PartsEvent::Read(BTreeMap::from([(place(), before)])), SECOND);
    let root = state("100,2000-2016").root();
    stored.event(PartsEvent::CommandStored(place(), Some(root)), SECOND);
    assert_eq!(stored.resent(SECOND), []);

    // What NATS acknowledged before a reading may be lost since.
    let missing = stored.ledger.publish(&place(), &state("100"), SECOND);
    stored.event(PartsEvent::ReadingBegins, SECOND);
    stored.acknowledge(&missing, SECOND);
    stored.event(PartsEvent::CommandStored(place(), Some(state("100").root())), SECOND);
    assert_eq!(stored.resent(SECOND), [], "the reading tells");
    let all = state("100");
    let read = all.tree.parts().filter(|part| !missing.contains(part)).map(|part| (part, 1)).collect();
    stored.event(PartsEvent::Read(BTreeMap::from([(place(), read)])), SECOND);
    assert_eq!(stored.resent(SECOND), sorted(missing));
}

#[test]
fn lacking_parts_are_published_again_and_only_those_of_the_last_head() {
    let mut stored = Stored::default();
    let (a, b) = (state("100"), state("200"));
    stored.publish(&a, SECOND);
    stored.publish(&b, SECOND);
    let lacking = [b.root(), PartHash::of(b"other")];
    stored.ledger.lacking(&place(), a.root(), &[a.root()], SECOND);
    stored.ledger.lacking(&place(), b.root(), &[PartHash::of(b"other")], SECOND);
    assert_eq!(stored.resent(SECOND), []);
    stored.ledger.lacking(&place(), b.root(), &lacking, SECOND);
    let resends = stored.ledger.resends(SECOND);
    assert_eq!(resends.iter().map(|resend| &resend.parts).collect::<Vec<_>>(), [&[b.root()]]);
    // It says so again before they are stored.
    stored.ledger.lacking(&place(), b.root(), &lacking, SECOND);
    assert!(stored.ledger.resends(SECOND).is_empty());
    stored.event(PartsEvent::Resent(place(), Vec::new(), false), SECOND);
    assert!(stored.ledger.resends(SECOND).is_empty(), "the failure delays the next attempt");
    assert_eq!(stored.resent(SECOND + RETRY_DELAY), [b.root()]);
}

#[test]
fn head_of_a_switch_with_lost_parts_is_published_after_them() {
    let mut stored = Stored::default();
    let (a, b) = (state("100"), state("100,2000"));
    stored.publish(&a, SECOND);
    stored.ledger.lacking(&place(), a.root(), &[a.tree.parts().next().expect("the switch part")], SECOND);
    let mut expected = only_in(&b, &a);
    expected.extend(a.tree.parts().next());
    assert_eq!(stored.publish(&b, SECOND), sorted(expected));
}

#[test]
fn parts_of_nobody_are_purged() {
    let mut stored = Stored::default();
    let a = state("100");
    let other = (Target::Fabric("gone".into()), Name::from("netconf"));
    let of = |parts: Vec<PartHash>| parts.into_iter().map(|part| (part, 7)).collect();
    let found = [(place(), of(a.tree.parts().collect())), (other.clone(), of(vec![a.root()]))];
    stored.ledger.restore_head(place(), a.clone());
    stored.event(PartsEvent::Read(found.into()), SECOND);
    // A late part of a former leader.
    stored.event(PartsEvent::Stored(place(), PartHash::of(b"late"), 9), SECOND);
    let purges = stored.ledger.purges(SECOND + PART_GRACE);
    let purge = |place, part, sequence| Purge { place, part, sequence };
    let expected = [purge(other, a.root(), 7), purge(place(), PartHash::of(b"late"), 9)];
    assert_eq!(purges.len(), 2);
    assert!(expected.iter().all(|one| purges.contains(one)), "{purges:?}");
    assert_eq!(stored.resent(SECOND), [], "the head before this leadership is complete");
}

#[test]
fn forgotten_switch_leaves_nothing() {
    let mut stored = Stored::default();
    stored.publish(&state("100"), SECOND);
    stored.publish(&state("200"), SECOND);
    stored.event(PartsEvent::forgotten(place(), true), SECOND);
    assert_eq!((stored.ledger.next(), stored.purged(10 * PART_GRACE)), (None, Vec::new()));
    assert!(stored.ledger.places.is_empty());
}
