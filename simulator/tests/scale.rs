//! Scale: 64 switches of 48 ports with 4,000 VLANs in one process, and a full switch of each dialect.

use std::time::{Duration, Instant};

use eno_simulator::{Fabric, FabricOptions, HandEdit, PortMode, Topology};

/// Resident memory in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
    kib / 1024
}

/// Defines the VLANs from 2 on.
fn define(last: u16) -> HandEdit {
    let define_vlans = (2..=last).map(|id| (id, format!("service-{id}"))).collect();
    HandEdit { define_vlans, ..HandEdit::default() }
}

/// Makes a port a trunk of the VLANs from 2 on.
fn trunk(port: Option<String>, last: u16) -> HandEdit {
    HandEdit { port, mode: Some(PortMode::Trunk), vlans: (2..=last).collect(), ..HandEdit::default() }
}

#[tokio::test]
async fn sixty_four_switches_hold_four_thousand_vlans_each() {
    let began = Instant::now();
    let topology = Topology::leaf_spine_of(60, 4, 500, &["openconfig", "junos", "ieee8021q", "nxos"]);
    let fabric = Fabric::start(&topology, FabricOptions::default()).await.expect("starts");
    let started = began.elapsed();
    let empty = memory();
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    for switch in fabric.switches() {
        // NX-OS reserves the VLANs from 3968 on.
        let last = if switch.dialect.name == "nxos" { 3967 } else { 4001 };
        let edit = define(last);
        let one = Instant::now();
        switch.change_by_hand(&edit).expect("it fits");
        let port = switch.view().ports.keys().next().cloned();
        switch.change_by_hand(&trunk(port, last)).expect("it fits");
        slowest = slowest.max(one.elapsed());
    }
    let filled = began.elapsed();
    println!(
        "start {started:?}, {empty} MiB; 64 switches filled in {filled:?} (slowest {slowest:?}), {} MiB",
        memory()
    );
    let view = fabric.switch("leaf1").expect("leaf1").view();
    assert_eq!(view.vlans.len(), 4000);
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    fabric.shutdown().await;
}

/// A full switch of each dialect: 4,094 VLANs, or the maximum of the dialect, in ranges on 48 trunks.
#[tokio::test]
async fn full_switch_of_each_dialect_takes_one_more_edit_faster_than_those_that_filled_it() {
    for make in ["openconfig", "junos", "ieee8021q", "nxos", "srlinux"] {
        let topology = Topology::leaf_spine_of(1, 0, 0, &[make]);
        let fabric = Fabric::start(&topology, FabricOptions::default()).await.expect("starts");
        let switch = fabric.switch("leaf1").expect("leaf1");
        // SR Linux needs a subinterface per port and VLAN; its hardware can't hold a full switch.
        let last = match make {
            "nxos" => 3967,
            "srlinux" => 200,
            _ => 4094,
        };
        switch.change_by_hand(&define(last)).expect("it fits");
        let began = Instant::now();
        for port in &topology.switches[0].ports {
            switch.change_by_hand(&trunk(Some(port.clone()), last)).expect("it fits");
        }
        let filled = began.elapsed();
        let began = Instant::now();
        let one = HandEdit { define_vlans: [(2, "renamed".to_owned())].into(), ..HandEdit::default() };
        switch.change_by_hand(&one).expect("it fits");
        let edited = began.elapsed();
        let began = Instant::now();
        let bytes = switch.running_xml().len();
        let written = began.elapsed();
        let began = Instant::now();
        let view = switch.view();
        println!(
            "{make}: 48 trunks {filled:?}, one more edit {edited:?}, {bytes} bytes written in {written:?}, view {:?}, {} MiB",
            began.elapsed(),
            memory()
        );
        assert!(view.ports.values().all(|port| port.vlans.contains(last)), "{make}");
        // They were 48.
        assert!(edited < filled, "{make}: {edited:?}, {filled:?}");
        fabric.shutdown().await;
    }
}
