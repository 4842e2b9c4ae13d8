//! One change of a VLAN on a switch of 26 ports, by the number of VLANs there.

use divan::Bencher;
use eno_schemas::{
    Command, Desired, Device, FabricDesired, FabricPort, FabricVlan, PartHash, Tree, VlanId, VlanSet,
    assemble, decode, decode_part, encode,
};

const VLANS: [u16; 3] = [100, 1_000, 4_000];
const PORTS: usize = 26;

fn main() {
    divan::main();
}

fn switch(vlans: u16) -> FabricDesired {
    let vids: Vec<VlanId> = (1..=vlans).filter_map(|vid| VlanId::new(vid).ok()).collect();
    let vlan = |vid: &VlanId| FabricVlan::new(*vid, vec![format!("L2Service/bench-{vid}")]);
    let all: VlanSet = vids.iter().copied().collect();
    let ports = (10..10 + PORTS).map(|port| FabricPort::new(format!("Ethernet{port}"), all.clone()));
    FabricDesired {
        cluster: "bench".into(),
        cluster_uid: None,
        device: Device::new("192.0.2.1:830"),
        vrfs: Vec::new(),
        lookup: None,
        vlans: vids.iter().map(vlan).collect(),
        ports: ports.collect(),
    }
}

/// The state with one VLAN more, and the parts that differ.
struct Change {
    before: FabricDesired,
    tree: Tree,
    after: FabricDesired,
    parts: Vec<(PartHash, Vec<u8>)>,
}

impl Change {
    fn new(vlans: u16) -> Self {
        let (before, after) = (switch(vlans), switch(vlans + 1));
        let (tree, new) = (Tree::of(&before), Tree::of(&after));
        let (parts, _) = new.difference(&tree);
        let payload = |part| Some((part, new.payload(&after, part)?));
        // The other blocks are shared, as the engine has them.
        let mut shared = before.clone();
        shared.ports.clone_from(&after.ports);
        shared.vlans.extend(after.vlans.iter().last().cloned());
        Self { before, tree, parts: parts.into_iter().filter_map(payload).collect(), after: shared }
    }
}

/// The tree of the new state, and the payloads of the parts that differ.
#[divan::bench(args = VLANS)]
fn encode_one_change(bencher: Bencher, vlans: u16) {
    let change = Change::new(vlans);
    bencher.bench_local(|| {
        let tree = change.tree.updated(&change.before, &change.after);
        let (parts, _) = tree.difference(&change.tree);
        parts.iter().filter_map(|part| tree.payload(&change.after, *part)).collect::<Vec<_>>()
    });
}

/// The parts that differ, and the new state of them and of the state before.
#[divan::bench(args = VLANS)]
fn decode_one_change(bencher: Bencher, vlans: u16) {
    let change = Change::new(vlans);
    let root = Tree::of(&change.after).root();
    bencher.bench_local(|| {
        let parts: Vec<_> = change
            .parts
            .iter()
            .filter_map(|(hash, payload)| Some((*hash, decode_part(*hash, payload).ok()?)))
            .collect();
        let find = |hash| parts.iter().find(|(found, _)| *found == hash).map(|(_, part)| part);
        assemble(root, find, Some((&change.tree, &change.before))).is_ok()
    });
}

/// The whole command, for comparison.
#[divan::bench(args = VLANS)]
fn encode_whole(bencher: Bencher, vlans: u16) {
    let command = Command::new("netconf", "leaf1", (1, 1), Desired::Fabric(switch(vlans)));
    bencher.bench_local(|| encode(&command).map(|bytes| bytes.len()));
}

/// The whole command, for comparison.
#[divan::bench(args = VLANS)]
fn decode_whole(bencher: Bencher, vlans: u16) {
    let command = Command::new("netconf", "leaf1", (1, 1), Desired::Fabric(switch(vlans)));
    let bytes = encode(&command).unwrap_or_default();
    bencher.bench_local(|| decode::<Command>(&bytes).is_ok());
}
