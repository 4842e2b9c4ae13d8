//! The cost of a change of one VLAN on 26 ports of a switch with N VLANs: what has to be read, the plan, and the report.
//! It is to be the same for each N.
//!
//! `cargo bench -p eno-driver-netconf`

use divan::{Bencher, black_box};
use eno_driver_netconf::plan::{
    Baseline, Exclusions, Mode, ObservedConfig, ObservedPort, ObservedVlan, ObservedVlans, applied, plan,
};
use eno_driver_netconf::transaction::drift::{KnownDeviations, drift};
use eno_fabric_driver::desired::Content;
use eno_schemas::{Device, FabricDesired, FabricPort, FabricVlan, FabricVlans, VlanId, VlanSet};

const SIZES: [u16; 3] = [100, 1_000, 4_000];
const PORTS: usize = 26;

fn main() {
    divan::main();
}

fn vids(last: u16) -> VlanSet {
    (1..=last).filter_map(|id| VlanId::new(id).ok()).collect()
}

/// The VLANs from 1 on.
fn vlans(last: u16) -> FabricVlans {
    vids(last).iter().map(|vid| FabricVlan::new(vid, vec![format!("L2Service/s{vid}")])).collect()
}

/// The desired state with these VLANs, each on all ports.
fn desired(vlans: FabricVlans) -> FabricDesired {
    let on_ports = vlans.vids();
    let port = |number: usize| FabricPort::new(format!("Ethernet{number:02}"), on_ports.clone());
    FabricDesired {
        cluster: "c".into(),
        cluster_uid: None,
        device: Device::new("192.0.2.1:830"),
        vrfs: Vec::new(),
        lookup: None,
        vlans,
        ports: (1..=PORTS).map(port).collect(),
    }
}

/// A switch as the driver reads it, with the VLANs from 1 on.
fn observed(last: u16) -> ObservedConfig {
    let port = |number: usize| {
        let tagged = vids(last).into();
        let port =
            ObservedPort { configured: true, mode: Some(Mode::Trunk), tagged, ..ObservedPort::default() };
        (format!("Ethernet{number:02}"), port)
    };
    let mut observed = ObservedConfig {
        vlans: vids(last).iter().map(|vid| (vid, ObservedVlan::ours("c", vid))).collect(),
        ports: (1..=PORTS).map(port).collect(),
        empty_opens: true,
        ..ObservedConfig::default()
    };
    observed.vlans.settle("c");
    observed
}

/// The desired states before and after a change, which share the blocks of VLANs that do not change.
fn change(size: u16) -> (FabricDesired, FabricDesired) {
    let before = vlans(size);
    let mut after = before.clone();
    after.extend(VlanId::new(size + 1).ok().map(|vid| FabricVlan::new(vid, vec!["L2Service/new".into()])));
    (desired(before), desired(after))
}

#[divan::bench(args = SIZES)]
fn what_to_read(bencher: Bencher<'_, '_>, size: u16) {
    let (before, after) = change(size);
    let baseline = Baseline::of(&observed(size), &before, true);
    bencher.bench_local(|| baseline.unsettled(black_box(&after), &before.vlans.vids()));
}

#[divan::bench(args = SIZES)]
fn complete_what_was_read(bencher: Bencher<'_, '_>, size: u16) {
    let (before, after) = change(size);
    let baseline = Baseline::of(&observed(size), &before, true);
    let Some(read) = baseline.unsettled(&after, &VlanSet::EMPTY) else { return };
    let part = ObservedConfig { vlans: ObservedVlans::default(), ..observed(size) };
    bencher.bench_local(|| {
        let mut observed = part.clone();
        baseline.complete(&mut observed, &read);
        Baseline::of(&observed, &after, true)
    });
}

#[divan::bench(args = SIZES)]
fn plan_change(bencher: Bencher<'_, '_>, size: u16) {
    let (observed, (_, after)) = (observed(size), change(size));
    bencher.bench_local(|| plan(black_box(&observed), &after, &Exclusions::default()));
}

/// The plan from what was read back has no change.
#[divan::bench(args = SIZES)]
fn verify(bencher: Bencher<'_, '_>, size: u16) {
    let (observed, (_, after)) = (observed(size + 1), change(size));
    bencher.bench_local(|| plan(black_box(&observed), &after, &Exclusions::default()).changes.is_empty());
}

#[divan::bench(args = SIZES)]
fn report(bencher: Bencher<'_, '_>, size: u16) {
    let (observed, (_, after)) = (observed(size + 1), change(size));
    bencher.bench_local(|| applied(black_box(&observed), &after));
}

#[divan::bench(args = SIZES)]
fn find_drift(bencher: Bencher<'_, '_>, size: u16) {
    let (observed, (_, after)) = (observed(size + 1), change(size));
    bencher.bench_local(|| drift(black_box(&observed), &after, &KnownDeviations::default()));
}

/// Whether a command has the content of the one before.
#[divan::bench(args = SIZES)]
fn compare_content(bencher: Bencher<'_, '_>, size: u16) {
    let (before, after) = change(size);
    let content = Content::of(before);
    bencher.bench_local(|| Content::of(black_box(&after).clone()) == content);
}
