use eno_schemas::{Desired, FabricVlans};

use super::*;
use eno_conformance::fabric;

const SECOND: Duration = Duration::from_secs(1);

/// A switch with these VLANs: its command, and its parts with their payloads.
struct Switch {
    command: Command,
    parts: Vec<(PartHash, Vec<u8>)>,
}

impl Switch {
    fn new(sequence: u64, vids: impl IntoIterator<Item = u16>) -> Self {
        let Desired::Fabric(desired) = fabric(vids) else { panic!("no fabric") };
        let tree = Tree::of(&desired);
        let parts = tree.parts().map(|hash| (hash, tree.payload(&desired, hash).unwrap())).collect();
        Self { command: Command::new("d", "t", (1, sequence), Desired::Fabric(desired)), parts }
    }

    fn head(&self) -> Head {
        Head::of(&self.command).unwrap()
    }

    fn complete(&self, age: Duration) -> Step {
        Step::Complete(Box::new(self.command.clone()), age)
    }
}

/// Gives all parts but some to the assembler, and returns what the last one led to.
fn give(assembler: &mut Assembler, switch: &Switch, without: &[PartHash], now: Instant) -> Step {
    let parts = switch.parts.iter().filter(|(hash, _)| !without.contains(hash));
    let steps = parts.map(|(hash, payload)| assembler.part("t", *hash, payload, now).unwrap());
    steps.last().unwrap_or(Step::None)
}

fn vlans(assembler: &Assembler) -> &FabricVlans {
    &assembler.targets["t"].last.as_ref().unwrap().1.vlans
}

#[test]
fn head_and_parts_make_the_command_in_any_order() {
    let (one, now) = (Switch::new(1, [5, 300]), Instant::now());
    let mut before = Assembler::default();
    assert_eq!(give(&mut before, &one, &[], now), Step::None);
    assert_eq!(before.head(one.head(), SECOND, now), one.complete(SECOND));
    let mut after = Assembler::default();
    assert_eq!(after.head(one.head(), SECOND, now), Step::None);
    assert_eq!(give(&mut after, &one, &[], now + 3 * SECOND), one.complete(4 * SECOND));
    // In the order in which they name each other, the last one completes the command.
    let mut backwards = Assembler::default();
    backwards.head(one.head(), SECOND, now);
    let steps: Vec<Step> = one
        .parts
        .iter()
        .rev()
        .map(|(hash, payload)| backwards.part("t", *hash, payload, now + 3 * SECOND).unwrap())
        .filter(|step| *step != Step::None)
        .collect();
    assert_eq!(steps, [one.complete(4 * SECOND)]);
}

#[test]
fn only_parts_that_differ_are_needed_and_others_stay_shared() {
    let (one, two, now) = (Switch::new(1, 1..=40), Switch::new(2, 1..=41), Instant::now());
    let mut assembler = Assembler::default();
    give(&mut assembler, &one, &[], now);
    assembler.head(one.head(), Duration::ZERO, now);
    // All parts come again after a reconnect.
    give(&mut assembler, &one, &[], now);
    assert!(assembler.targets["t"].parts.is_empty(), "the last state has them");
    let before = vlans(&assembler).clone();
    let common: Vec<_> = one.parts.iter().map(|(hash, _)| *hash).collect();
    give(&mut assembler, &two, &common, now);
    assert_eq!(assembler.targets["t"].parts.len(), 3, "a root, a group and a block");
    assert_eq!(assembler.head(two.head(), Duration::ZERO, now), two.complete(Duration::ZERO));
    let shared =
        |key| std::sync::Arc::ptr_eq(vlans(&assembler).block(key).unwrap(), before.block(key).unwrap());
    assert_eq!([0, 1, 2].map(shared), [true, true, false]);
    // The former state comes again without a further message of its parts, for some time.
    let again = Switch::new(3, 1..=40);
    assert_eq!(assembler.head(again.head(), Duration::ZERO, now), again.complete(Duration::ZERO));
    // The decision of a transaction has the same state.
    let decision = Switch::new(4, 1..=40);
    assert_eq!(
        assembler.head(decision.head(), Duration::ZERO, now + 2 * KEEP),
        decision.complete(Duration::ZERO)
    );
    assert!(assembler.targets["t"].parts.is_empty(), "the parts of the state before are dropped");
}

#[test]
fn newer_message_replaces_a_head_that_waits() {
    let (one, two, now) = (Switch::new(1, [5]), Switch::new(2, [6]), Instant::now());
    let mut assembler = Assembler::default();
    assert_eq!(assembler.head(one.head(), Duration::ZERO, now), Step::None);
    assert_eq!(assembler.head(two.head(), Duration::ZERO, now), Step::None);
    assert_eq!(assembler.head(one.head(), Duration::ZERO, now), Step::Older);
    assert_eq!(give(&mut assembler, &one, &[], now), Step::None, "the older one is given up");
    assembler.whole("t", &Switch::new(3, [7]).command.generation);
    assert_eq!(give(&mut assembler, &two, &[], now), Step::None, "a newer whole command came");
    assert_eq!(assembler.wake(), None);
    // An older whole command changes nothing.
    let four = Switch::new(4, [6]);
    assembler.whole("t", &one.command.generation);
    assert_eq!(assembler.head(four.head(), Duration::ZERO, now), four.complete(Duration::ZERO));
    assembler.forget("t");
    assert_eq!(assembler.head(one.head(), Duration::ZERO, now), Step::None, "a target of this name is new");
}

#[test]
fn lacking_parts_are_read_and_then_reported() {
    let (one, now) = (Switch::new(1, [5, 300]), Instant::now());
    let root = one.head().generation.hash;
    let blocks: Vec<PartHash> =
        one.parts.iter().rev().map(|(hash, _)| *hash).filter(|hash| *hash != root).take(2).collect();
    let mut assembler = Assembler::default();
    assembler.replay_started();
    give(&mut assembler, &one, &blocks, now);
    assembler.head(one.head(), Duration::ZERO, now);
    assert_eq!(assembler.due(now + 29 * SECOND), None, "the stored parts were not read yet");
    assembler.replay_caught_up();
    assert_eq!(assembler.wake(), Some(now + SECOND));
    assert_eq!(assembler.due(now), None);
    let sorted = |mut parts: Vec<PartHash>| {
        parts.sort_unstable();
        parts
    };
    let Some(Due::Read(target, parts)) = assembler.due(now + SECOND) else { panic!("nothing is read") };
    assert_eq!(target, "t");
    // A group lacks, and the block that it names is found out later.
    let group = parts.clone();
    assert!(!group.is_empty() && group.iter().all(|part| blocks.contains(part)), "{group:?}");
    assert_eq!(assembler.due(now + SECOND), None);
    let Some(Due::Report(_, lacking)) = assembler.due(now + 2 * SECOND) else {
        panic!("nothing is reported")
    };
    assert_eq!((sorted(lacking.parts), lacking.waited), (sorted(group), 2 * SECOND));
    assert_eq!(lacking.generation, one.command.generation);
    assert_eq!(assembler.wake(), Some(now + 12 * SECOND));
    assert_eq!(give(&mut assembler, &one, &[], now + 3 * SECOND), one.complete(3 * SECOND));
    assert_eq!(assembler.wake(), None);
}

/// A driver that starts anew, or that a target came back to, follows the tree from its root at once.
#[test]
fn parts_that_a_part_names_are_read_alone_as_well() {
    let (one, now) = (Switch::new(1, [5]), Instant::now());
    let mut assembler = Assembler::default();
    assembler.replay_caught_up();
    assembler.head(one.head(), Duration::ZERO, now);
    let mut steps = Vec::new();
    while let Some(Due::Read(_, parts)) = assembler.due(now + SECOND) {
        for (hash, payload) in one.parts.iter().filter(|(hash, _)| parts.contains(hash)) {
            steps.push(assembler.part("t", *hash, payload, now + SECOND).unwrap());
        }
    }
    assert_eq!((steps.len(), steps.pop()), (one.parts.len(), Some(one.complete(SECOND))));
}

#[test]
fn payload_that_is_not_the_part_changes_nothing() {
    let (one, now) = (Switch::new(1, [5]), Instant::now());
    let mut assembler = Assembler::default();
    assembler.head(one.head(), Duration::ZERO, now);
    let (hash, payload) = &one.parts[0];
    assert!(assembler.part("t", *hash, b"{}", now).is_err());
    assembler.part("t", *hash, payload, now).unwrap();
    assert!(assembler.part("t", *hash, b"{}", now).is_ok(), "the good one is there");
    assert_eq!(give(&mut assembler, &one, &[], now), one.complete(Duration::ZERO));
}

#[test]
fn parts_that_make_no_command_are_refused_once() {
    let now = Instant::now();
    let mut one = Switch::new(1, [5]);
    let unknown = br#"{"part":"leaf"}"#;
    one.command.generation.hash = PartHash::of(unknown).to_string();
    let mut assembler = Assembler::default();
    assert!(assembler.part("t", PartHash::of(unknown), unknown, now).is_err(), "nobody waits for it");
    assembler.head(one.head(), Duration::ZERO, now);
    let step = assembler.part("t", PartHash::of(unknown), unknown, now).unwrap();
    assert!(
        matches!(&step, Step::Invalid(generation, _) if *generation == one.command.generation),
        "{step:?}"
    );
    assert_eq!(assembler.wake(), None);
    // The switch part is no root.
    let (switch, payload) = &one.parts[0];
    one.command.generation = eno_schemas::Generation { term: 1, sequence: 2, hash: switch.to_string() };
    assembler.part("t", *switch, payload, now).unwrap();
    assert!(matches!(assembler.head(one.head(), Duration::ZERO, now), Step::Invalid(..)));
}

#[test]
fn parts_that_no_command_names_are_bounded() {
    let (mut assembler, now) = (Assembler::default(), Instant::now());
    assembler.whole("t", &Switch::new(1, []).command.generation);
    let part = |number: u16| {
        let payload = format!(r#"{{"part":"vlans","first":0,"vlans":["1 owner{number}"],"ports":{{}}}}"#);
        (PartHash::of(payload.as_bytes()), payload)
    };
    for number in 0..600 {
        let (hash, payload) = part(number);
        let later = now + u32::from(number) * Duration::from_millis(1);
        assembler.part("t", hash, payload.as_bytes(), later).unwrap();
        assembler.part("another", hash, payload.as_bytes(), later).unwrap();
    }
    let parts = &assembler.targets["t"].parts;
    assert_eq!(parts.len(), MAX_UNNAMED);
    assert!(
        !parts.contains_key(&part(87).0) && parts.contains_key(&part(88).0),
        "the oldest ones are dropped"
    );
    assembler.replay_started();
    assert!(!assembler.targets.contains_key("another"), "it has no command");
}
