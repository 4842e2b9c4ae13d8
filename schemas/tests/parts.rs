//! Desired states in parts.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{
    Command, CommandMessage, Decision, Desired, Device, FabricDesired, FabricPort, FabricVlan, FabricVlans,
    Head, Incomplete, Part, PartError, PartHash, Transaction, Tree, VlanId, VlanSet, assemble,
    decode_command, decode_part, encode,
};
use proptest::prelude::*;
use serde_json::json;

fn vlan(vid: u16, owner: &str) -> FabricVlan {
    FabricVlan::new(VlanId::new(vid).unwrap(), vec![format!("L2Service/{owner}")])
}

fn set(text: &str) -> VlanSet {
    text.parse().unwrap()
}

fn desired(vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
    FabricDesired {
        cluster: "lab".into(),
        cluster_uid: None,
        device: Device::new("192.0.2.1:830"),
        vrfs: Vec::new(),
        lookup: None,
        vlans: set(vlans).iter().map(|vid| vlan(vid.get(), "a")).collect(),
        ports: ports.iter().map(|(name, vlans)| FabricPort::new(*name, set(vlans))).collect(),
    }
}

/// What a stream has of a state.
fn stored(desired: &FabricDesired) -> BTreeMap<PartHash, Part> {
    let tree = Tree::of(desired);
    let read = |hash| decode_part(hash, &tree.payload(desired, hash).unwrap()).unwrap();
    tree.parts().map(|hash| (hash, read(hash))).collect()
}

/// VIDs at the ends of blocks, of groups and of the range.
fn any_vid() -> impl Strategy<Value = u16> {
    prop_oneof![Just(1), 14u16..18, 254u16..260, 2000u16..2040, 4078u16..=4094]
}

prop_compose! {
    fn any_desired()(
        vlans in prop::collection::btree_map(any_vid(), "[a-b]", 0..20),
        ports in prop::collection::btree_map("[a-d]", (prop::collection::btree_set(any_vid(), 0..12), any::<bool>()), 0..4),
        address in "[a-b]",
        lookup in prop::option::of("[a-b]"),
    ) -> FabricDesired {
        let vlans: FabricVlans = vlans.into_iter().map(|(vid, owner)| vlan(vid, &owner)).collect();
        let port = |(name, (on, closed)): (String, (BTreeSet<u16>, bool))| {
            let on: VlanSet = on.into_iter().map(|vid| VlanId::new(vid).unwrap()).collect();
            FabricPort { closed, ..FabricPort::new(name, on.intersection(&vlans.vids())) }
        };
        let ports = ports.into_iter().map(port).collect();
        FabricDesired { vlans, ports, device: Device::new(address), lookup, ..desired("", &[]) }
    }
}

proptest! {
    #[test]
    fn tree_is_the_same_however_it_was_made(old in any_desired(), new in any_desired()) {
        let (before, after) = (Tree::of(&old), Tree::of(&new));
        prop_assert_eq!(&before.updated(&old, &new), &after);
        prop_assert_eq!(&before.updated(&old, &old), &before);
        prop_assert_eq!(before == after, old == new);
        let (here, there) = after.difference(&before);
        let of = |tree: &Tree| tree.parts().collect::<BTreeSet<_>>();
        prop_assert_eq!(of(&after).len(), after.parts().count());
        prop_assert_eq!(BTreeSet::from_iter(here), &of(&after) - &of(&before));
        prop_assert_eq!(BTreeSet::from_iter(there), &of(&before) - &of(&after));
    }

    #[test]
    fn assembled_parts_are_the_state(old in any_desired(), new in any_desired()) {
        let (before, parts) = (Tree::of(&old), stored(&new));
        let root = Tree::of(&new).root();
        let whole = assemble(root, |hash| parts.get(&hash), None).unwrap();
        prop_assert_eq!(&whole, &(Tree::of(&new), new.clone()));
        let changed: BTreeMap<_, _> =
            Tree::of(&new).difference(&before).0.into_iter().map(|hash| (hash, parts[&hash].clone())).collect();
        let next = assemble(root, |hash| changed.get(&hash), Some((&before, &old))).unwrap();
        prop_assert_eq!(&next, &whole);
    }

    #[test]
    fn changed_vlans_are_those_that_differ(old in any_desired(), new in any_desired()) {
        let vids = old.vlans.vids().union(&new.vlans.vids());
        let differs = |vid: &VlanId| old.vlans.get(*vid) != new.vlans.get(*vid);
        let expected: VlanSet = vids.iter().filter(differs).collect();
        prop_assert_eq!(&new.vlans.changed_since(&old.vlans), &expected);
        prop_assert_eq!(&old.vlans.changed_since(&new.vlans), &expected);
        prop_assert!(new.vlans.changed_since(&new.vlans.clone()).is_empty());
    }
}

#[test]
fn change_of_a_vlan_changes_its_block_and_what_names_it() {
    let old = desired("1-4000", &[("a", "1-4000"), ("b", "1-4000")]);
    let mut new = old.clone();
    new.vlans.retain(|vlan| vlan.vid.get() != 2000);
    new.ports.iter_mut().for_each(|port| _ = port.vlans.remove(VlanId::new(2000).unwrap()));
    let (before, after) = (Tree::of(&old), Tree::of(&old).updated(&old, &new));
    assert_eq!(before.parts().count(), 251 + 16 + 2);
    let (here, there) = after.difference(&before);
    let kinds: Vec<_> = here.iter().filter_map(|hash| after.part(&new, *hash)).collect();
    assert!(matches!(kinds[..], [Part::Root(_), Part::Group(_), Part::Vlans(_)]), "{kinds:?}");
    assert_eq!(there.len(), 3);
    new.ports[0].closed = true;
    let kinds: Vec<_> = after
        .updated(&old, &new)
        .difference(&before)
        .0
        .into_iter()
        .filter_map(|hash| Tree::of(&new).part(&new, hash))
        .collect();
    assert!(
        matches!(kinds[..], [Part::Root(_), Part::Switch(_), Part::Group(_), Part::Vlans(_)]),
        "{kinds:?}"
    );
    assert_eq!(after.payload(&old, after.root()).map(|payload| PartHash::of(&payload)), Some(after.root()));
    assert_eq!(after.payload(&old, here[2]), None, "the block of another state");
    assert_eq!(after.payload(&new, PartHash::of(b"")), None);
}

#[test]
fn hash_of_a_part_is_that_of_its_payload() {
    // printf x | sha256sum | xxd -r -p | head -c 16 | base64 | tr +/ -_
    let hash = PartHash::of(b"x");
    assert_eq!(hash.to_string(), "LXEWQrcmsEQBYnyp-6wy9Q");
    assert_eq!("LXEWQrcmsEQBYnyp-6wy9Q".parse(), Ok(hash));
    for bad in [
        "",
        "LXEWQrcmsEQBYnyp-6wy9",
        "LXEWQrcmsEQBYnyp-6wy9R",
        "LXEWQrcmsEQBYnyp+6wy9Q",
        "LXEWQrcmsEQBYnyp-6wy9Q==",
    ] {
        assert!(bad.parse::<PartHash>().is_err(), "{bad}");
    }
    assert!(matches!(decode_part(hash, b"y"), Err(PartError::Hash(_))));
    assert!(matches!(decode_part(hash, b"x"), Err(PartError::Message(..))));
}

#[test]
fn part_that_breaks_a_rule_is_refused() {
    let port = |name: &str| json!({ "name": name });
    let ports = |ports: [&str; 2]| {
        let ports = ports.map(port);
        json!({ "part": "switch", "cluster": "lab", "device": { "address": "a" }, "ports": ports })
    };
    let block = |first: u16, vlans: &[&str], on: &str| json!({ "part": "vlans", "first": first, "vlans": vlans, "ports": { "a": on } });
    let read = |part: &serde_json::Value| {
        let payload = serde_json::to_vec(part).unwrap();
        decode_part(PartHash::of(&payload), &payload)
    };
    for good in
        [ports(["a", "b"]), block(2000, &["2000", "2015 L2Service/a"], "2015"), block(4080, &["4094"], "")]
    {
        read(&good).unwrap();
    }
    for bad in [
        ports(["b", "a"]),
        ports(["a", "a"]),
        block(2001, &[], ""),
        block(4096, &[], ""),
        block(2000, &["2016"], ""),
        block(2000, &["2001", "2000"], ""),
        block(2000, &["2000", "2000"], ""),
        block(2000, &["2000"], "2001"),
        block(4080, &["4095"], ""),
        json!({ "part": "group", "blocks": { "g": PartHash::of(b"") } }),
        json!({ "part": "group", "blocks": { "00": PartHash::of(b"") } }),
        json!({ "part": "group", "blocks": { "0": "x" } }),
        json!({ "part": "leaf" }),
    ] {
        assert!(read(&bad).is_err(), "{bad}");
    }
}

#[test]
fn parts_that_are_lacking_or_contradict_each_other_are_named() {
    let state = desired("1,17,300", &[("a", "1,300")]);
    let (tree, mut parts) = (Tree::of(&state), stored(&state));
    for lost in tree.parts() {
        let part = parts.remove(&lost).unwrap();
        let found = assemble(tree.root(), |hash| parts.get(&hash), None);
        assert_eq!(found, Err(Incomplete::Lacking(vec![lost])));
        parts.insert(lost, part);
    }
    // A part of another kind, or of another place.
    let blocks: Vec<PartHash> = tree.parts().filter(|hash| matches!(parts[hash], Part::Vlans(_))).collect();
    for wrong in tree.parts().filter(|hash| *hash != tree.root()) {
        for other in [tree.root(), blocks[0], blocks[1]].into_iter().filter(|other| *other != wrong) {
            let found =
                assemble(tree.root(), |hash| parts.get(if hash == wrong { &other } else { &hash }), None);
            assert!(matches!(found, Err(Incomplete::Invalid(_))), "{wrong} {other}: {found:?}");
        }
    }
    // A block names a port that is not listed any more.
    let less = FabricDesired { ports: Vec::new(), ..state.clone() };
    let (Some(Part::Root(mut root)), Some(Part::Root(of_less))) =
        (tree.part(&state, tree.root()), Tree::of(&less).part(&less, Tree::of(&less).root()))
    else {
        panic!("no root")
    };
    root.switch = of_less.switch;
    let root = Part::Root(root);
    let hash = PartHash::of(&root.payload());
    parts.extend(stored(&less));
    parts.insert(hash, root);
    for base in [None, Some((&tree, &state))] {
        let found = assemble(hash, |hash| parts.get(&hash), base);
        assert!(
            matches!(&found, Err(Incomplete::Invalid(reason)) if reason.contains("port a ")),
            "{found:?}"
        );
    }
}

#[test]
fn head_stands_for_the_command() {
    let state = desired("5", &[("a", "5")]);
    let mut command = Command::new("netconf", "leaf1", (3, 7), Desired::Fabric(state.clone()));
    command.transaction = Some(Transaction {
        id: "t".into(),
        participants: Vec::new(),
        deadline: String::new(),
        decide_within_ms: Some(30_000),
        decision: Some(Decision::Confirm),
    });
    let head = Head::of(&command).unwrap();
    assert_eq!(head.generation.hash, Tree::of(&state).root());
    let payload = encode(&head).unwrap();
    assert!(payload.len() < 330, "{}", payload.len());
    assert_eq!(decode_command(&payload).unwrap(), CommandMessage::Head(head.clone()));
    assert_eq!(head.command(state), command);

    let whole = encode(&command).unwrap();
    assert_eq!(decode_command(&whole).unwrap(), CommandMessage::Whole(Box::new(command.clone())));
    let refused = |edit: fn(&mut serde_json::Value)| {
        let mut value: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        edit(&mut value);
        decode_command(&serde_json::to_vec(&value).unwrap()).unwrap_err().to_string()
    };
    assert!(
        refused(|head| head["schemaVersion"] = json!(3))
            .contains("of version 3, and this program reads version 2")
    );
    assert!(refused(|head| head["generation"]["hash"] = json!("00")).contains("/generation/hash"));
    assert!(
        refused(|head| _ = head["transaction"].as_object_mut().unwrap().remove("decideWithinMs"))
            .contains("/transaction")
    );

    command.generation.hash = "0123456789abcdef0123456789abcdef".into();
    assert_eq!(Head::of(&command), None, "a hash of an earlier version");
}

#[test]
fn shared_blocks_stay_shared() {
    let all: FabricVlans = (1..=64).map(|vid| vlan(vid, "a")).collect();
    let mut less = all.clone();
    less.retain(|vlan| vlan.vid.get() != 20);
    less.extend([vlan(40, "b")]);
    let same = |key| std::sync::Arc::ptr_eq(all.block(key).unwrap(), less.block(key).unwrap());
    assert_eq!([0, 1, 2, 3, 4].map(same), [true, false, false, true, true]);
    assert_eq!(less.changed_since(&all), set("20,40"));
    assert_eq!((less.len(), less.vids().len(), less.iter().count()), (63, 63, 63));

    let mut one = FabricVlans::new();
    let twice: std::sync::Arc<[FabricVlan]> =
        [vlan(18, "a"), vlan(17, "a"), vlan(32, "a"), vlan(17, "b")].into();
    one.set_block(1, twice);
    assert_eq!(serde_json::to_value(&one).unwrap(), json!(["17 L2Service/b", "18 L2Service/a"]));
    one.set_block(1, None);
    assert!(one.is_empty() && one.block(1).is_none());
}
