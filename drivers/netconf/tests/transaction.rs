//! Commands on simulated switches.

mod common;

use std::time::Instant;

use common::{Bench, calls, failed, on_switch, set, there, work};
use eno_sbi::Driver as _;
use eno_simulator::{ConfirmedCommit, Fault, HandEdit};

#[tokio::test]
async fn vlans_come_change_and_go() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let first = bench.reconcile("leaf1", bench.desired("leaf1", "100-110", &["Ethernet1", "Ethernet2"])).await;
    assert_eq!(there(&first).0, "100-110");
    assert_eq!(first.rejected, []);
    assert_eq!(first.notes, []);
    let device = first.device.expect("it says what it is");
    assert_eq!(device.dialect.as_deref(), Some("openconfig"));
    assert!(device.capabilities.iter().any(|name| name == "confirmed-commit:1.1"), "{device:?}");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-110".into(), "100-110".into()));

    let (before, calls_before) = (leaf.stats(), calls(leaf));
    let again = bench.reconcile("leaf1", bench.desired("leaf1", "100-110", &["Ethernet1", "Ethernet2"])).await;
    assert_eq!(there(&again), there(&first_again(&bench).await));
    let after = leaf.stats();
    assert_eq!((after.transactions, calls(leaf) - calls_before), (before.transactions, 2), "one read each, no lock");

    let moved = bench.reconcile(
        "leaf1",
        bench.desired_ports("leaf1", "105-120", &[("Ethernet1", "105-110"), ("Ethernet2", "111-120")]),
    );
    assert_eq!(there(&moved.await).0, "105-120");
    assert_eq!(on_switch(leaf, "Ethernet2"), ("105-120".into(), "111-120".into()));

    let emptied = bench.reconcile("leaf1", bench.desired("leaf1", "", &["Ethernet1", "Ethernet2"])).await;
    assert_eq!(there(&emptied), (String::new(), [].into()));
    let port = &leaf.view().ports["Ethernet1"];
    assert!(port.mode.is_none() && !port.open_trunk, "{port:?}");
}

async fn first_again(bench: &Bench) -> eno_sbi::Reconciled {
    bench.reconcile("leaf1", bench.desired("leaf1", "100-110", &["Ethernet1", "Ethernet2"])).await
}

#[tokio::test]
async fn a_thousand_vlans_are_one_transaction() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let ports = ["Ethernet1", "Ethernet2", "Ethernet49", "Ethernet50"];
    let before = leaf.stats();
    let start = Instant::now();
    let made = bench.reconcile("leaf1", bench.desired("leaf1", "1000-1999", &ports)).await;
    let taken = start.elapsed();
    assert_eq!(there(&made).0, "1000-1999");
    let after = leaf.stats();
    println!("1,000 VLANs on 4 ports: {taken:?}, {} RPCs, login included: {:?}", calls(leaf), after.rpcs);
    assert_eq!(after.transactions - before.transactions, 1);

    let start = Instant::now();
    bench.reconcile("leaf1", bench.desired("leaf1", "1000-2000", &ports)).await;
    println!("one more: {:?}, {} RPCs", start.elapsed(), calls(leaf) - after.rpcs.values().sum::<u64>());
    let start = Instant::now();
    bench.reconcile("leaf1", bench.desired("leaf1", "1000-2000", &ports)).await;
    println!("nothing: {:?}", start.elapsed());
    let start = Instant::now();
    let gone = bench.reconcile("leaf1", bench.desired("leaf1", "", &ports)).await;
    println!("all gone: {:?}", start.elapsed());
    assert_eq!(there(&gone).0, "");
    assert!(leaf.view().ports.values().all(|port| !port.open_trunk));
}
