//! Each dialect on a simulated switch of its vendor. The simulator is written from the vendor's models, independently
//! of the driver.

use std::collections::BTreeSet;
use std::time::Duration;

use eno_driver_netconf::driver::NetconfDriver;
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::{Applied, Decision, Drift, FabricDesired, Item, Outcome, PortMode, VlanId};
use eno_simulator::{
    ConfirmedCommit, Fault, HandEdit, PortView, RejectEdit, Stage, SwitchSpec, Topology, When,
};
use futures::StreamExt as _;

use crate::common::{
    Bench, Part, access, applied_vlans, defined, items, on_switch, removed, rolled_back, set, trunk, vid,
    with_new_port_memory,
};

/// The differences between vendors.
#[derive(Clone, Copy)]
struct Vendor {
    /// The simulator's name of the dialect.
    simulated: &'static str,
    /// The driver's name of the dialect.
    dialect: &'static str,
    /// The prefix of port names; a number from 1 follows.
    port: &'static str,
    /// The name of the LAG.
    lag: &'static str,
    /// Ports are access ports in the factory configuration, and only `Mode: trunk` converts them.
    access: bool,
    /// The VLANs of the factory configuration.
    factory: &'static [u16],
}

const OPENCONFIG: Vendor = Vendor {
    simulated: "openconfig",
    dialect: "openconfig",
    port: "Ethernet",
    lag: "Port-Channel1",
    access: false,
    factory: &[],
};
const JUNOS: Vendor =
    Vendor { simulated: "junos", dialect: "junos", port: "xe-0/0/", lag: "ae0", access: true, factory: &[1] };
const SRLINUX: Vendor = Vendor {
    simulated: "srlinux",
    dialect: "srlinux",
    port: "ethernet-1/",
    lag: "lag1",
    access: false,
    factory: &[],
};
const IEEE8021Q: Vendor = Vendor {
    simulated: "ieee8021q",
    dialect: "ieee8021q",
    port: "eth",
    lag: "lag1",
    access: false,
    factory: &[1],
};
const NXOS: Vendor = Vendor {
    simulated: "nxos",
    dialect: "nxos-experimental",
    port: "eth1/",
    lag: "po1",
    access: false,
    factory: &[1],
};

const SWITCH: &str = "sw";
const LONG: Duration = Duration::from_mins(5);

impl Vendor {
    fn port(self, number: u16) -> String {
        format!("{}{number}", self.port)
    }

    /// One switch with six ports, of which the last two are links of a LAG.
    async fn bench(self) -> Bench {
        self.bench_with(|_| ()).await
    }

    async fn bench_with(self, adapt: impl FnOnce(&mut SwitchSpec)) -> Bench {
        let mut spec = SwitchSpec::new(SWITCH, (1..=6).map(|n| self.port(n)).collect());
        self.simulated.clone_into(&mut spec.dialect);
        spec.lags = [(self.lag.to_owned(), vec![self.port(5), self.port(6)])].into();
        adapt(&mut spec);
        Bench::with(&Topology { switches: vec![spec], ..Topology::default() }).await
    }

    /// The desired state with these VLANs on ports by number, all with `Mode: trunk`.
    fn desired(self, bench: &Bench, vlans: &str, ports: &[(u16, &str)]) -> FabricDesired {
        let names: Vec<(String, &str)> =
            ports.iter().map(|(number, vlans)| (self.port(*number), *vlans)).collect();
        let names: Vec<(&str, &str)> = names.iter().map(|(name, vlans)| (name.as_str(), *vlans)).collect();
        let mut desired = bench.desired_ports(SWITCH, vlans, &names);
        for port in &mut desired.ports {
            port.mode = PortMode::Trunk;
        }
        desired
    }

    /// Reconciles such a state.
    async fn apply(self, bench: &Bench, vlans: &str, ports: &[(u16, &str)]) -> Reconciled {
        bench.reconcile(SWITCH, self.desired(bench, vlans, ports)).await
    }

    fn view(self, bench: &Bench, number: u16) -> PortView {
        bench.switch(SWITCH).view().ports[&self.port(number)].clone()
    }

    /// The tagged VLANs of a port in the switch's own view.
    fn tagged(bench: &Bench, port: &str) -> String {
        let view = bench.switch(SWITCH).view();
        let port = &view.ports[port];
        assert!(!port.open_trunk, "{port:?}");
        let untagged = |vid: &u16| port.native == Some(*vid) || port.access == Some(*vid);
        let tagged: eno_simulator::VlanSet = port.vlans.iter().filter(|vid| !untagged(vid)).collect();
        tagged.to_string()
    }

    /// The VLANs that exist beside the factory configuration.
    fn vlans(self, bench: &Bench) -> String {
        let view = bench.switch(SWITCH).view();
        let vlans: eno_simulator::VlanSet =
            view.vlans.keys().copied().filter(|vid| !self.factory.contains(vid)).collect();
        vlans.to_string()
    }

    /// Configures a foreign trunk with these VLANs, which are named by their VIDs.
    fn foreign_trunk(self, bench: &Bench, number: u16, vids: &[u16]) {
        let vlans = vids.iter().copied().collect();
        let define_vlans = vids.iter().map(|vid| (*vid, format!("theirs-{vid}"))).collect();
        bench.edit(SWITCH, &HandEdit { vlans, define_vlans, ..trunk(&self.port(number), "") });
    }
}

/// Checks that the device has exactly these VLANs of ours, and refused nothing.
#[track_caller]
fn assert_applied(reconciled: &Reconciled, vlans: &str) {
    assert_eq!(
        (applied_vlans(reconciled).0.as_str(), &reconciled.rejected),
        (vlans, &vec![]),
        "{reconciled:?}"
    );
}

async fn vlans_are_added_changed_and_removed(vendor: Vendor) {
    let bench = vendor.bench().await;
    let made = vendor.apply(&bench, "100-110,200", &[(1, "100-110,200"), (2, "105")]).await;
    assert_eq!((applied_vlans(&made).0.as_str(), &made.rejected), ("100-110,200", &vec![]), "{made:?}");
    assert_eq!(made.device.and_then(|device| device.dialect).as_deref(), Some(vendor.dialect));
    assert_eq!(on_switch(bench.switch(SWITCH), &vendor.port(1)).0, "100-110,200");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "100-110,200");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(2)), "105");
    assert_eq!(vendor.view(&bench, 3).vlans.iter().filter(|vid| *vid > 1).count(), 0);

    let before = bench.switch(SWITCH).stats().transactions;
    let again = vendor.apply(&bench, "100-110,200", &[(1, "100-110,200"), (2, "105")]).await;
    assert_eq!((applied_vlans(&again).0.as_str(), again.change), ("100-110,200", None));
    assert_eq!(bench.switch(SWITCH).stats().transactions, before, "nothing was to be done");

    let moved = vendor.apply(&bench, "104-106,300", &[(1, "104,106"), (2, "105,300")]).await;
    assert_eq!((applied_vlans(&moved).0.as_str(), &moved.rejected), ("104-106,300", &vec![]));
    assert_eq!(vendor.vlans(&bench), "104-106,300");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "104,106");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(2)), "105,300");

    let emptied = vendor.apply(&bench, "", &[(1, ""), (2, "")]).await;
    assert_applied(&emptied, "");
    assert_eq!(vendor.vlans(&bench), "");
    for number in [1, 2] {
        assert_eq!(Vendor::tagged(&bench, &vendor.port(number)), "");
    }
    // The driver makes its port a trunk again without `Mode: trunk`, unless it was an access port before.
    let mut desired = vendor.desired(&bench, "100", &[(1, "100")]);
    desired.ports[0].mode = PortMode::Keep;
    let back = bench.reconcile(SWITCH, desired).await;
    if vendor.access {
        assert_eq!(items(&back), [Item::port(vendor.port(1))].into(), "{:?}", back.rejected);
        return;
    }
    assert_applied(&back, "100");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "100");
}

async fn removal_restores_the_initial_config(vendor: Vendor) {
    let mut bench = vendor.bench().await;
    vendor.foreign_trunk(&bench, 3, &[900, 903]);
    let running = |bench: &Bench| bench.switch(SWITCH).running_xml();
    let before = running(&bench);
    let mut last = None;
    for (vlans, ports) in [
        ("100-101", [(1, "100-101"), (2, "101"), (3, "100")]),
        ("101-102", [(1, "101"), (2, ""), (3, "102")]),
        ("", [(1, ""), (2, ""), (3, "")]),
    ] {
        let mut desired = vendor.desired(&bench, vlans, &ports);
        if let Some(last) = &last {
            desired = with_new_port_memory(&desired, last);
        }
        let done = bench.reconcile(SWITCH, desired).await;
        assert_applied(&done, vlans);
        // A new process knows only the command.
        bench.restart_driver();
        last = Some(done);
    }
    assert_eq!(running(&bench), before);
    let Some(Applied::Fabric { before, .. }) = last.and_then(|last| last.applied) else {
        panic!("no switch")
    };
    assert_eq!(before, [].into(), "nothing is left to remember");
}

async fn foreign_vlan_list_is_restored_after_removal(vendor: Vendor) {
    // SR Linux ports have no list of VLANs.
    if vendor.simulated == "srlinux" {
        return;
    }
    let mut bench = vendor.bench().await;
    bench.edit(SWITCH, &trunk(&vendor.port(3), "3000-3010"));
    let listed = |bench: &Bench| {
        let port = vendor.view(bench, 3);
        port.configured.iter().filter(|vid| *vid > 1).collect::<eno_simulator::VlanSet>().to_string()
    };
    assert_eq!(listed(&bench), "3000-3010");
    let taken_off_note = |reconciled: &Reconciled| {
        let notes = reconciled.notes.iter().filter(|note| note.kind == eno_schemas::VLAN_TAKEN_OFF);
        notes.map(|note| (note.item.clone(), note.message.contains("3005"))).collect::<Vec<_>>()
    };
    let desired = vendor.desired(&bench, "3005", &[(1, "3005"), (3, "")]);
    let made = bench.reconcile(SWITCH, desired.clone()).await;
    assert_eq!(applied_vlans(&made).0, "3005");
    let note = vec![(Item::port(vendor.port(3)), true)];
    assert_eq!((listed(&bench).as_str(), taken_off_note(&made)), ("3000-3004,3006-3010", note.clone()));
    bench.restart_driver();
    let again = bench.reconcile(SWITCH, with_new_port_memory(&desired, &made)).await;
    assert_eq!((&again.change, taken_off_note(&again)), (&None, note));
    let none = with_new_port_memory(&vendor.desired(&bench, "", &[(1, ""), (3, "")]), &again);
    let gone = bench.reconcile(SWITCH, none).await;
    assert_eq!(
        (applied_vlans(&gone).0.as_str(), &gone.rejected, taken_off_note(&gone)),
        ("", &vec![], vec![])
    );
    assert_eq!(listed(&bench), "3000-3010");
}

async fn foreign_config_is_preserved(vendor: Vendor) {
    let bench = vendor.bench().await;
    vendor.foreign_trunk(&bench, 1, &[900, 903]);
    let before = bench.switch(SWITCH).view();
    let made = vendor.apply(&bench, "100-102,903", &[(1, "100-102,903"), (2, "101,903")]).await;
    assert_eq!(applied_vlans(&made).0, "100-102");
    assert_eq!(items(&made), [Item::vlan(vid(903))].into(), "{:?}", made.rejected);
    let reason = &made.rejected[0].reason;
    assert!(reason.contains("theirs-903") && reason.contains("not ours"), "{reason}");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "100-102,900,903");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(2)), "101");
    let gone = vendor.apply(&bench, "", &[(1, ""), (2, "")]).await;
    assert_applied(&gone, "");
    let after = bench.switch(SWITCH).view();
    assert_eq!(after.vlans, before.vlans);
    for (name, was) in before.ports.iter().filter(|(name, _)| **name != vendor.port(2)) {
        assert_eq!(&after.ports[name], was, "{name}");
    }
}

async fn access_ports_become_trunks_only_with_mode_trunk(vendor: Vendor) {
    let bench = vendor.bench().await;
    if vendor.simulated != "srlinux" && vendor.simulated != "ieee8021q" {
        let define_vlans = [(900, "theirs".to_owned())].into();
        bench.edit(SWITCH, &HandEdit { define_vlans, ..access(&vendor.port(3), 900) });
    }
    let mut desired = vendor.desired(&bench, "100", &[(1, "100"), (2, "100"), (3, "100")]);
    for port in &mut desired.ports[1..] {
        port.mode = PortMode::Keep;
    }
    let made = bench.reconcile(SWITCH, desired).await;
    let kept: BTreeSet<Item> = match vendor.simulated {
        "srlinux" | "ieee8021q" => BTreeSet::new(),
        _ if vendor.access => [Item::port(vendor.port(2)), Item::port(vendor.port(3))].into(),
        _ => [Item::port(vendor.port(3))].into(),
    };
    assert_eq!(items(&made), kept, "{:?}", made.rejected);
    for rejection in &made.rejected {
        assert!(rejection.reason.contains("set Mode: trunk"), "{}", rejection.reason);
    }
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "100");
    if kept.contains(&Item::port(vendor.port(3))) {
        let port = vendor.view(&bench, 3);
        assert_eq!((port.mode, port.access), (Some(eno_simulator::PortMode::Access), Some(900)));
        // With `Mode: trunk` it is converted.
        let made = vendor.apply(&bench, "100", &[(3, "100")]).await;
        assert_eq!(items(&made), BTreeSet::new(), "{:?}", made.rejected);
        assert_eq!(Vendor::tagged(&bench, &vendor.port(3)), "100");
    }
}

async fn lag_is_configured_for_its_members(vendor: Vendor) {
    let bench = vendor.bench().await;
    let mut desired = vendor.desired(&bench, "100-101", &[(5, "100"), (6, "101")]);
    for port in &mut desired.ports {
        port.lag = Some(vendor.lag.to_owned());
    }
    let made = bench.reconcile(SWITCH, desired).await;
    assert_applied(&made, "100-101");
    assert_eq!(Vendor::tagged(&bench, vendor.lag), "100-101");
    assert!(!vendor.view(&bench, 5).vlans.contains(100), "members carry nothing by themselves");
    // A LAG's member that is listed by itself is rejected.
    let bench = vendor.bench().await;
    let made = vendor.apply(&bench, "100", &[(1, "100"), (5, "100")]).await;
    assert_eq!(items(&made), [Item::port(vendor.port(5))].into(), "{:?}", made.rejected);
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "100");
}

async fn vlan_ranges_are_read_and_written(vendor: Vendor) {
    let bench = vendor.bench().await;
    let made = vendor.apply(&bench, "2-600", &[(1, "2-600"), (2, "2-600")]).await;
    assert_applied(&made, "2-600");
    let holed = vendor.apply(&bench, "2-299,301-600", &[(1, "2-299,301-600"), (2, "2-299,400-600")]).await;
    assert_eq!((applied_vlans(&holed).0.as_str(), &holed.rejected), ("2-299,301-600", &vec![]));
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "2-299,301-600");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(2)), "2-299,400-600");
}

async fn foreign_vlan_in_adopt_is_adopted(vendor: Vendor) {
    let bench = vendor.bench().await;
    vendor.foreign_trunk(&bench, 1, &[900, 901]);
    let mut desired = vendor.desired(&bench, "900", &[(1, "900"), (2, "900")]);
    desired.device.adopt = set("900");
    let made = bench.reconcile(SWITCH, desired).await;
    if vendor.simulated == "junos" {
        // The port refers to the VLAN by name, so the VLAN can't be renamed.
        assert_eq!(items(&made), [Item::vlan(vid(900))].into(), "{:?}", made.rejected);
        assert!(made.rejected[0].reason.contains("can't be adopted"), "{:?}", made.rejected);
        let bench = vendor.bench().await;
        bench.edit(SWITCH, &defined(&[(900, "theirs-900")]));
        let mut desired = vendor.desired(&bench, "900", &[(1, "900")]);
        desired.device.adopt = set("900");
        let made = bench.reconcile(SWITCH, desired).await;
        assert_applied(&made, "900");
        return;
    }
    assert_applied(&made, "900");
    assert_eq!(on_switch(bench.switch(SWITCH), &vendor.port(1)).0, "900");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "900-901");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(2)), "900");
    // An adopted VLAN is removed like any other of ours.
    let gone = vendor.apply(&bench, "", &[(1, ""), (2, "")]).await;
    assert_eq!(applied_vlans(&gone).0, "");
    assert_eq!(vendor.vlans(&bench), "901");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "901");
}

async fn change_is_held_until_decision(vendor: Vendor) {
    for (confirmed, decision) in [
        (ConfirmedCommit::V1_1, Decision::Confirm),
        (ConfirmedCommit::V1_1, Decision::Abort),
        (ConfirmedCommit::V1_0, Decision::Confirm),
        (ConfirmedCommit::V1_0, Decision::Abort),
    ] {
        let bench = vendor.bench_with(|spec| spec.capabilities.confirmed_commit = confirmed).await;
        vendor.apply(&bench, "100", &[(1, "100")]).await;
        let part = Part::new(SWITCH, vendor.desired(&bench, "100-110", &[(1, "100-110")]), LONG);
        let deciding = async |held: Reconciled| {
            assert_eq!((&held.outcome, held.rejected.len()), (&Outcome::Held, 0), "{held:?}");
            assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), "100-110");
            assert!(bench.switch(SWITCH).is_pending());
            part.decide(decision);
        };
        let ended = part.hold(&bench.driver, deciding).await;
        let expected = match decision {
            Decision::Confirm => {
                assert_eq!(applied_vlans(&ended).0, "100-110");
                "100-110"
            }
            Decision::Abort => {
                assert!(rolled_back(&ended).contains("t1"), "{ended:?}");
                "100"
            }
        };
        assert!(!bench.switch(SWITCH).is_pending());
        assert_eq!(
            (vendor.vlans(&bench).as_str(), Vendor::tagged(&bench, &vendor.port(1)).as_str()),
            (expected, expected)
        );
    }
}

async fn refused_items_are_rejected_and_the_rest_applied(vendor: Vendor) {
    let excluded = async |bench: &Bench, what: &str| {
        let made = vendor.apply(bench, "100,3970", &[(1, "100,3970"), (2, "100")]).await;
        // On SR Linux only the port's part of the VLAN is refused.
        let current = applied_vlans(&made).0;
        assert!(current == "100" || vendor.simulated == "srlinux", "{what}: {current} {:?}", made.rejected);
        let named: BTreeSet<Option<VlanId>> = made.rejected.iter().map(|r| r.item.vlan).collect();
        assert_eq!(named, [Some(vid(3970))].into(), "{what}: {:?}", made.rejected);
        assert!(made.rejected.iter().all(|rejection| rejection.reason.contains("the device refuses it")));
        assert_eq!(Vendor::tagged(bench, &vendor.port(1)), "100", "{what}");
        assert_eq!(Vendor::tagged(bench, &vendor.port(2)), "100", "{what}");
    };
    if vendor.simulated == "nxos" {
        excluded(&vendor.bench().await, "the device keeps it to itself").await;
    }
    for (at, without_path) in
        [(Stage::Edit, false), (Stage::Validate, false), (Stage::Commit, false), (Stage::Commit, true)]
    {
        let bench = vendor.bench().await;
        bench.switch(SWITCH).inject(Fault::RejectEdit(RejectEdit {
            vlan: Some(3970),
            message: Some("no room for it".into()),
            at,
            without_path,
            ..RejectEdit::default()
        }));
        excluded(&bench, &format!("{at:?}, {without_path}")).await;
    }
}

async fn drift_is_detected_and_repaired(vendor: Vendor) {
    for yang_push in [false, true] {
        let bench = vendor.bench_with(|spec| spec.capabilities.yang_push = yang_push).await;
        let mut changed = Box::pin(bench.driver.changed());
        let mut desired = vendor.desired(&bench, "100,102", &[(1, "100,102")]);
        for drift in [Drift::Report, Drift::Repair] {
            desired.device.drift = drift;
            bench.settle(SWITCH, &desired).await;
            bench.edit(SWITCH, &removed(Some(&vendor.port(1)), "100"));
            let notified = tokio::time::timeout(Duration::from_secs(10), changed.next()).await;
            assert_eq!(notified.expect("the device tells").as_deref(), Some(SWITCH));
            let after = bench.reconcile(SWITCH, desired.clone()).await;
            let notes: Vec<&str> = after
                .notes
                .iter()
                .filter(|note| note.kind == "Drift")
                .map(|note| note.message.as_str())
                .collect();
            assert_eq!(notes, [format!("VLAN 100 on {} missing", vendor.port(1))]);
            let carried = if drift == Drift::Repair { "100,102" } else { "102" };
            assert_eq!(Vendor::tagged(&bench, &vendor.port(1)), carried);
        }
    }
}

async fn next_process_cancels_unconfirmed_commit(vendor: Vendor) {
    let bench = vendor.bench().await;
    vendor.apply(&bench, "100", &[(1, "100")]).await;
    let killed = NetconfDriver::new(crate::common::options(bench.credentials.path()));
    let part = Part::new(SWITCH, vendor.desired(&bench, "100-110", &[(1, "100-110")]), LONG);
    part.hold_and_kill(killed).await;
    let ended = NetconfDriver::new(crate::common::options(bench.credentials.path()))
        .reconcile(part.work_later(Decision::Abort))
        .await;
    rolled_back(&ended);
    assert_eq!((vendor.vlans(&bench), Vendor::tagged(&bench, &vendor.port(1))), ("100".into(), "100".into()));
}

async fn stale_candidate_of_dead_session_is_discarded(vendor: Vendor) {
    let bench = vendor.bench().await;
    vendor.foreign_trunk(&bench, 2, &[10]);
    bench.settle(SWITCH, &vendor.desired(&bench, "100,105", &[(1, "100,105"), (2, "100")])).await;
    let switch = bench.switch(SWITCH);
    switch.inject(Fault::KeepCandidate {});
    switch.inject(Fault::Drop { operation: Some("validate".into()), when: When::Before, times: Some(1) });
    let changed = vendor.desired(&bench, "105-110", &[(1, "105-110"), (2, "")]);
    let settled = bench.reconcile(SWITCH, changed).await;
    assert_eq!(applied_vlans(&settled).0, "105-110");
    assert_eq!(Vendor::tagged(&bench, &vendor.port(2)), "10");
}

/// The device answers only the first of several interfaces. One of the changed interfaces is not in the next command.
async fn stale_candidate_of_another_command_is_discarded(vendor: Vendor) {
    let bench = vendor.bench().await;
    vendor.foreign_trunk(&bench, 2, &[10]);
    bench.settle(SWITCH, &vendor.desired(&bench, "100,105", &[(1, "100,105"), (2, "100")])).await;
    let switch = bench.switch(SWITCH);
    switch.inject(Fault::KeepCandidate {});
    switch.inject(Fault::FirstSiblingOnly {});
    switch.inject(Fault::Drop { operation: Some("validate".into()), when: When::Before, times: Some(2) });
    let changed = vendor.desired(&bench, "105-110", &[(1, "105-110"), (2, "105"), (3, "106")]);
    assert!(bench.reconcile(SWITCH, changed).await.wants_retry());
    let next = vendor.desired(&bench, "105-107", &[(1, "105-107"), (2, "")]);
    assert_eq!(applied_vlans(&bench.reconcile(SWITCH, next).await).0, "105-107");
    assert_eq!([2, 3].map(|number| Vendor::tagged(&bench, &vendor.port(number))), ["10", ""]);
}

async fn interfaces_missing_in_reply_are_read_singly(vendor: Vendor) {
    let bench = vendor.bench().await;
    let ports = |vlans| [(1, vlans), (2, vlans), (3, vlans)];
    vendor.foreign_trunk(&bench, 2, &[10]);
    bench.switch(SWITCH).inject(Fault::FirstSiblingOnly {});
    bench.settle(SWITCH, &vendor.desired(&bench, "100-102", &ports("100-102"))).await;
    let changed = bench.reconcile(SWITCH, vendor.desired(&bench, "102-103", &ports("102-103"))).await;
    assert_eq!(applied_vlans(&changed).0, "102-103");
    assert_eq!(changed.rejected, []);
    assert_eq!(Vendor::tagged(&bench, &vendor.port(2)), "10,102-103");
    let emptied = bench.reconcile(SWITCH, vendor.desired(&bench, "", &ports(""))).await;
    assert_eq!(applied_vlans(&emptied).0, "");
    assert_eq!(vendor.vlans(&bench), "10");
    assert_eq!([1, 2, 3].map(|number| Vendor::tagged(&bench, &vendor.port(number))), ["", "10", ""]);
}

macro_rules! vendors {
    ($($name:ident = $vendor:expr;)*) => {$(
        vendors! { @tests $name, $vendor;
            vlans_are_added_changed_and_removed, removal_restores_the_initial_config,
            foreign_vlan_list_is_restored_after_removal, foreign_config_is_preserved, access_ports_become_trunks_only_with_mode_trunk,
            lag_is_configured_for_its_members, vlan_ranges_are_read_and_written, foreign_vlan_in_adopt_is_adopted,
            change_is_held_until_decision, refused_items_are_rejected_and_the_rest_applied,
            drift_is_detected_and_repaired, next_process_cancels_unconfirmed_commit,
            stale_candidate_of_dead_session_is_discarded,
            stale_candidate_of_another_command_is_discarded,
            interfaces_missing_in_reply_are_read_singly
        }
    )*};
    (@tests $name:ident, $vendor:expr; $($test:ident),*) => {
        mod $name {
            $(#[tokio::test]
            async fn $test() {
                super::$test($vendor).await;
            })*
        }
    };
}

vendors! {
    openconfig = super::OPENCONFIG;
    junos = super::JUNOS;
    srlinux = super::SRLINUX;
    ieee8021q = super::IEEE8021Q;
    nxos = super::NXOS;
}
