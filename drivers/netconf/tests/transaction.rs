//! Commands on simulated switches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_driver_netconf::driver::NetconfDriver;
use eno_driver_netconf::session::Session as _;
use eno_sbi::{Driver as _, LatestCommand, Work};
use eno_schemas::{Drift, Item, Outcome, PortMode};
use eno_simulator::{Boot, ConfirmedCommit, Fault, HandEdit, RejectEdit, Topology};
use futures::StreamExt as _;
use tokio::sync::{mpsc, watch};

use crate::common::{
    Bench, access, applied_vlans, calls, command, defined, failed, items, on_switch, removed, trunk, vid,
    work,
};

#[tokio::test]
async fn vlans_are_added_changed_and_removed() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let first = bench.apply("leaf1", "100-110", &["Ethernet1", "Ethernet2"]).await;
    assert_eq!(applied_vlans(&first).0, "100-110");
    assert_eq!(first.rejected, []);
    assert_eq!(first.notes, []);
    let device = first.device.expect("it says what it is");
    assert_eq!(device.dialect.as_deref(), Some("openconfig"));
    assert!(device.capabilities.iter().any(|name| name == "confirmed-commit:1.1"), "{device:?}");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-110".into(), "100-110".into()));

    let (before, calls_before) = (leaf.stats(), calls(leaf));
    let again = bench.apply("leaf1", "100-110", &["Ethernet1", "Ethernet2"]).await;
    assert_eq!(again.applied, first.applied);
    let after = leaf.stats();
    assert_eq!(
        (after.transactions, calls(leaf) - calls_before),
        (before.transactions, 1),
        "one read, no lock"
    );

    let moved = bench.reconcile(
        "leaf1",
        bench.desired_ports("leaf1", "105-120", &[("Ethernet1", "105-110"), ("Ethernet2", "111-120")]),
    );
    assert_eq!(applied_vlans(&moved.await).0, "105-120");
    assert_eq!(on_switch(leaf, "Ethernet2"), ("105-120".into(), "111-120".into()));

    let emptied = bench.apply("leaf1", "", &["Ethernet1", "Ethernet2"]).await;
    assert_eq!(applied_vlans(&emptied), (String::new(), [].into()));
    let port = &leaf.view().ports["Ethernet1"];
    assert!(port.mode.is_none() && !port.open_trunk, "{port:?}");
}

#[tokio::test]
async fn thousand_vlans_take_one_transaction() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let ports = ["Ethernet1", "Ethernet2", "Ethernet49", "Ethernet50"];
    let before = leaf.stats();
    let start = Instant::now();
    let made = bench.apply("leaf1", "1000-1999", &ports).await;
    let taken = start.elapsed();
    assert_eq!(applied_vlans(&made).0, "1000-1999");
    let after = leaf.stats();
    println!("1,000 VLANs on 4 ports: {taken:?}, {} RPCs, login included: {:?}", calls(leaf), after.rpcs);
    assert_eq!(after.transactions - before.transactions, 1);

    let start = Instant::now();
    bench.apply("leaf1", "1000-2000", &ports).await;
    println!("one more: {:?}, {} RPCs", start.elapsed(), calls(leaf) - after.rpcs.values().sum::<u64>());
    let start = Instant::now();
    bench.apply("leaf1", "1000-2000", &ports).await;
    println!("nothing: {:?}", start.elapsed());
    let start = Instant::now();
    let gone = bench.apply("leaf1", "", &ports).await;
    println!("all gone: {:?}", start.elapsed());
    assert_eq!(applied_vlans(&gone).0, "");
    assert!(leaf.view().ports.values().all(|port| !port.open_trunk));
}

#[tokio::test]
async fn foreign_config_is_preserved_and_rejects_only_conflicting_items() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    for edit in [
        defined(&[(10, "users <&>"), (103, "printers")]),
        HandEdit { native: Some(101), ..trunk("Ethernet1", "10,200-210") },
        trunk("Ethernet2", ""),
        access("Ethernet3", 10),
        access("Ethernet4", 10),
    ] {
        bench.edit("leaf1", &edit);
    }
    let ports = ["Ethernet1", "Ethernet2", "Ethernet3", "Ethernet4", "Ethernet5", "Ethernet999"];
    let mut desired = bench.desired("leaf1", "100-104", &ports);
    desired.ports[3].mode = PortMode::Trunk;
    let made = bench.reconcile("leaf1", desired).await;
    let (vlans, carried) = applied_vlans(&made);
    assert_eq!(vlans, "100-102,104");
    let expected = [
        ("Ethernet1", "100,102,104"),
        ("Ethernet2", "100-102,104"),
        ("Ethernet4", "100-102,104"),
        ("Ethernet5", "100-102,104"),
    ];
    assert_eq!(carried, expected.map(|(port, vlans)| (port.to_owned(), vlans.to_owned())).into());
    let expected = [
        Item::vlan(vid(103)),
        Item::port_vlan("Ethernet1", vid(101)),
        Item::port("Ethernet3"),
        Item::port("Ethernet999"),
    ];
    assert_eq!(items(&made), expected.into());
    assert_eq!(made.rejected.len(), 4);
    let reason = |item| &made.rejected.iter().find(|rejection| rejection.item == item).unwrap().reason;
    assert!(reason(Item::vlan(vid(103))).contains("under the name \"printers\", so it is not ours"));
    assert_eq!(reason(Item::port("Ethernet999")), "port Ethernet999 does not exist on the device");
    assert!(made.rejected.iter().all(|rejection| !rejection.retryable));
    assert_eq!(made.notes.iter().map(|note| note.kind.as_str()).collect::<Vec<_>>(), ["OpenTrunk"]);

    bench.apply("leaf1", "", &ports).await;
    let view = leaf.view();
    assert_eq!(view.vlans.keys().copied().collect::<Vec<_>>(), [10, 103]);
    let port = |name: &str| view.ports[name].clone();
    assert_eq!(
        (port("Ethernet1").configured.to_string(), port("Ethernet1").native),
        ("10,200-210".into(), Some(101))
    );
    assert!(port("Ethernet2").open_trunk);
    assert_eq!(port("Ethernet3").access, Some(10));
    assert!(!port("Ethernet4").open_trunk && !port("Ethernet5").open_trunk);
}

#[tokio::test]
async fn trunk_with_native_vlan_gets_a_list_and_never_opens() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    bench.apply("leaf1", "100-110", &["Ethernet1"]).await;
    let port = Some("Ethernet1".to_owned());
    bench.edit("leaf1", &HandEdit { port, native: Some(7), ..HandEdit::default() });
    bench.apply("leaf1", "", &["Ethernet1"]).await;
    let port = &leaf.view().ports["Ethernet1"];
    assert_eq!((port.configured.to_string(), port.native, port.open_trunk), ("7".into(), Some(7), false));
}

/// The configuration of a LAG without members.
const LAG: &str = "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>Port-Channel1</name>\
    <config><name>Port-Channel1</name><type xmlns:i=\"urn:ietf:params:xml:ns:yang:iana-if-type\">i:ieee8023adLag</type>\
    </config></interface></interfaces>";

#[tokio::test]
async fn bond_to_two_switches_uses_lag_and_plain_port() {
    let bench = Bench::start(|topology| topology.switches[0].configuration = Some(LAG.into())).await;
    let names: Vec<String> = bench.fabric.info().iter().take(2).map(|info| info.name.clone()).collect();
    for (vlans, lag, port) in [("100-101", "100-101", "100-101"), ("101", "101", "101"), ("", "", "")] {
        for name in &names {
            let mut desired = bench.desired(name, vlans, &["Ethernet1"]);
            desired.ports[0].lag = (*name == names[0]).then(|| "Port-Channel1".into());
            let made = bench.reconcile(name, desired).await;
            assert_eq!((applied_vlans(&made).0.as_str(), &made.rejected), (vlans, &vec![]), "{name}");
        }
        assert_eq!(on_switch(bench.switch(&names[0]), "Port-Channel1").1, lag);
        assert_eq!(on_switch(bench.switch(&names[0]), "Ethernet1").1, "");
        assert_eq!(on_switch(bench.switch(&names[1]), "Ethernet1").1, port);
    }
}

#[tokio::test]
async fn lost_session_is_reopened() {
    for fault in [
        Fault::DropBeforeCommit { times: Some(1) },
        Fault::DropAfterCommit { times: Some(1) },
        Fault::LoseConfirm { times: Some(1) },
    ] {
        for confirmed_commit in [ConfirmedCommit::V1_1, ConfirmedCommit::V1_0, ConfirmedCommit::None] {
            for restart in [false, true] {
                let mut bench = Bench::start(|topology| {
                    topology.switches[0].capabilities.confirmed_commit = confirmed_commit;
                })
                .await;
                let name = bench.fabric.info()[0].name.clone();
                let desired = bench.desired(&name, "100-110", &["Ethernet1"]);
                bench.switch(&name).inject(fault.clone());
                let first = bench.reconcile(&name, desired.clone()).await;
                let case = format!("{fault:?} {confirmed_commit:?} {restart}");
                let lost = matches!(&first.outcome, Outcome::Failed(failure) if failure.retryable && failure.unreachable);
                // A device without confirmed commit has no confirmation to lose.
                assert!(lost || confirmed_commit == ConfirmedCommit::None, "{case}: {first:?}");
                if restart {
                    bench.restart_driver();
                }
                assert_eq!(applied_vlans(&bench.settle(&name, &desired).await).0, "100-110", "{case}");
                let switch = bench.switch(&name);
                assert_eq!(on_switch(switch, "Ethernet1"), ("100-110".into(), "100-110".into()), "{case}");
                // No commit is pending: a reboot, which rolls back an unconfirmed commit, changes nothing.
                switch.reboot(Boot::Saved);
                assert_eq!(on_switch(switch, "Ethernet1"), ("100-110".into(), "100-110".into()), "{case}");
                assert_eq!(applied_vlans(&bench.settle(&name, &desired).await).0, "100-110", "{case}");
            }
        }
    }
}

#[tokio::test]
async fn denied_lock_is_retried_and_its_holder_named() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let desired = bench.desired("leaf1", "100", &["Ethernet1"]);
    leaf.inject(Fault::LockDenied { times: Some(2) });
    assert_eq!(applied_vlans(&bench.reconcile("leaf1", desired.clone()).await).0, "100");
    leaf.inject(Fault::LockDenied { times: None });
    let denied = bench.apply("leaf1", "200", &["Ethernet1"]).await;
    let (reason, retryable, unreachable) = failed(&denied);
    assert!(reason.contains("session 0"), "{reason}");
    assert!(retryable && !unreachable);
    leaf.inject(Fault::Clear {});
    assert_eq!(applied_vlans(&bench.reconcile("leaf1", desired.clone()).await).0, "100");

    // Another session holds the lock.
    let other = bench.connect().await;
    other.call("<lock><target><candidate/></target></lock>".into()).await.expect("the lock");
    let denied = bench.apply("leaf1", "200", &["Ethernet1"]).await;
    let holder =
        format!("the candidate configuration is locked by session {}", other.hello().session_id().unwrap());
    assert_eq!(failed(&denied).0, holder);
    drop(other);
    assert_eq!(applied_vlans(&bench.settle("leaf1", &desired).await).0, "100");
}

#[tokio::test]
async fn every_capability_profile_is_supported() {
    for (confirmed, running, startup, base11) in [
        (ConfirmedCommit::V1_0, false, false, false),
        (ConfirmedCommit::None, false, true, true),
        (ConfirmedCommit::None, true, true, false),
        (ConfirmedCommit::None, true, false, true),
    ] {
        let bench = Bench::start(|topology| {
            let capabilities = &mut topology.switches[0].capabilities;
            capabilities.confirmed_commit = confirmed;
            capabilities.candidate = !running;
            capabilities.writable_running = running;
            capabilities.startup = startup;
            capabilities.base_1_1 = base11;
            capabilities.notifications = base11;
        })
        .await;
        let name = bench.fabric.info()[0].name.clone();
        let switch = bench.switch(&name);
        let made = bench.settle(&name, &bench.desired(&name, "100-110", &["Ethernet1"])).await;
        let degraded = made.notes.iter().any(|note| note.kind == "NoConfirmedCommit");
        assert_eq!(degraded, confirmed == ConfirmedCommit::None, "{:?}", made.notes);
        assert_eq!(applied_vlans(&made).0, "100-110");
        switch.inject(Fault::RejectEdit(RejectEdit {
            vlan: Some(205),
            without_path: true,
            ..RejectEdit::default()
        }));
        let moved = bench.settle(&name, &bench.desired(&name, "200-210", &["Ethernet1"])).await;
        assert_eq!(applied_vlans(&moved).0, "200-204,206-210");
        switch.reboot(Boot::Saved);
        assert_eq!(
            on_switch(switch, "Ethernet1").0,
            "200-204,206-210",
            "saved: {confirmed:?} {running} {startup}"
        );
    }
}

#[tokio::test]
async fn newer_command_supersedes_older_one_before_commit() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let older = Arc::new(command("leaf1", bench.desired("leaf1", "100", &["Ethernet1"])));
    let (newest, observed) = watch::channel(LatestCommand::Command(older.clone()));
    let (progress, mut progress_messages) = mpsc::channel(8);
    leaf.inject(Fault::LockDenied { times: Some(1) });
    let reconciling = bench.driver.reconcile(Work::new(older.clone(), observed, progress));
    let overtaking = async {
        progress_messages.recv().await.expect("it says that it waits for the lock");
        let newer = bench.desired("leaf1", "200", &["Ethernet1"]);
        let mut newer = command("leaf1", newer);
        newer.generation.sequence = 2;
        newest.send_replace(LatestCommand::Command(Arc::new(newer)));
    };
    let (reconciled, ()) = tokio::join!(reconciling, overtaking);
    assert!(matches!(reconciled.outcome, Outcome::Progress { .. }), "{reconciled:?}");
    assert_eq!(leaf.stats().transactions, 0);
    assert_eq!(applied_vlans(&bench.apply("leaf1", "200", &["Ethernet1"]).await).0, "200");
}

#[tokio::test]
async fn drift_is_repaired_or_reported_by_policy() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let mut changed = Box::pin(bench.driver.changed());
    let mut desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    for drift in [Drift::Report, Drift::Repair] {
        desired.device.drift = drift;
        bench.settle("leaf1", &desired).await;
        bench.edit("leaf1", &removed(Some("Ethernet1"), "100"));
        assert_eq!(changed.next().await.as_deref(), Some("leaf1"), "the device tells");
        let after = bench.reconcile("leaf1", desired.clone()).await;
        let note = after.notes.iter().find(|note| note.kind == "Drift").expect("it is reported");
        assert_eq!(note.message, "VLAN 100 on Ethernet1 missing");
        let carried = if drift == Drift::Repair { "100,102" } else { "102" };
        assert_eq!(applied_vlans(&after).1["Ethernet1"], carried);
        assert_eq!(on_switch(leaf, "Ethernet1").1, carried);
    }
}

#[tokio::test]
async fn lost_session_is_detected_while_idle() {
    let bench = Bench::start(|_| ()).await;
    let mut changed = Box::pin(bench.driver.changed());
    let desired = bench.desired("leaf1", "100", &["Ethernet1"]);
    bench.reconcile("leaf1", desired.clone()).await;
    bench.switch("leaf1").reboot(Boot::Factory);
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    assert_eq!(applied_vlans(&bench.settle("leaf1", &desired).await).0, "100");
    assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1").0, "100");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_devices_are_reconciled_concurrently() {
    let mut topology = Topology::leaf_spine(1, 1, 1);
    let one = topology.switches.remove(0);
    topology = Topology::default();
    for number in 0..64 {
        let mut switch = one.clone();
        switch.name = format!("switch{number}");
        topology.switches.push(switch);
    }
    let bench = Bench::with(&topology).await;
    // Unreachable devices must not affect the others.
    for number in [3, 40] {
        bench.switch(&format!("switch{number}")).inject(Fault::Unreachable {});
    }
    bench.switch("switch5").inject(Fault::Slow { ms: 200, operation: None, times: None });
    let names: Vec<String> = bench.fabric.info().iter().map(|info| info.name.clone()).collect();
    for round in ["connect and make 50 VLANs", "20 more"] {
        let vlans = if round.starts_with("20") { "100-169" } else { "100-149" };
        let start = Instant::now();
        let all = names.iter().map(|name| {
            let driver: Arc<NetconfDriver> = Arc::clone(&bench.driver);
            let work = work(name, bench.desired(name, vlans, &["Ethernet1", "Ethernet2"]));
            async move { (driver.reconcile(work).await, start.elapsed()) }
        });
        let done = futures::future::join_all(all).await;
        let mut times: Vec<Duration> = Vec::new();
        for (name, (reconciled, taken)) in names.iter().zip(done) {
            if ["switch3", "switch40"].contains(&name.as_str()) {
                let (reason, retryable, unreachable) = failed(&reconciled);
                assert!(retryable && unreachable, "{reason}");
            } else {
                assert_eq!(applied_vlans(&reconciled).0, vlans, "{name}");
                times.push(taken);
            }
        }
        times.sort();
        println!("64 devices, {round}: median {:?}, all but the slow one {:?}", times[31], times[60]);
    }
}
