//! BGP groups of each dialect that has them, on simulated switches.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use eno_conformance::fabrics::write_secret;
use eno_driver_netconf::driver::NetconfDriver;
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::{Applied, Bfd, BgpGroup, BgpState, DeviceRole, FabricDesired, Item};
use eno_simulator::{BgpNeighbourView, BgpView, Capabilities, ConfirmedCommit, PolicyResult, PolicyRule};
use futures::StreamExt as _;

use crate::common::{Bench, list_device, options, with_new_port_memory, work};
use crate::vrfs::{DEVICE, JUNOS, NETCONF, OPENCONFIG, SRLINUX, Subject, VRF, running};

const OWNER: &str = "BGPSessionGroup/red";
const GROUP: &str = "eno-test-red";
const SECRET: &str = "red-bgp";

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A group with a worker of each family, and a network of workers.
fn group(subject: Subject) -> BgpGroup {
    let net = |text: &str| text.parse().expect("a network");
    let bfd = Bfd { receive_interval: 300, transmit_interval: 300, detect_multiplier: 3 };
    BgpGroup {
        owner: OWNER.into(),
        local_as: 64512,
        peer_as: 64513,
        neighbours: vec![address("192.0.2.11"), address("2001:db8::11")],
        dynamic_neighbours: vec![net("192.0.2.128/25")],
        hold_time: 9,
        keepalive_time: 3,
        bfd: (subject.dialect != "srlinux").then_some(bfd),
        graceful_restart: None,
        password: None,
        maximum_prefixes: Some(100),
        accept: vec![net("203.0.113.0/24"), net("2001:db8:9::/48")],
        announce: vec![net("0.0.0.0/0")],
        communities: vec!["65000:100".into()],
    }
}

/// A VLAN in a VRF with these groups.
fn desired(subject: Subject, bench: &Bench, groups: &[BgpGroup]) -> FabricDesired {
    let mut desired = subject.desired(bench, DeviceRole::Switch, "192.0.2.1/24");
    desired.vrfs[0].bgp = groups.to_vec();
    desired
}

fn seen(bench: &Bench) -> Option<BgpView> {
    bench.switch(DEVICE).view().bgp.remove(VRF)
}

fn transactions(bench: &Bench) -> u64 {
    bench.switch(DEVICE).stats().transactions
}

/// The reported groups, with the state of each of their sessions.
fn reported(reconciled: &Reconciled) -> BTreeMap<String, Vec<(IpAddr, BgpState)>> {
    let Some(Applied::Fabric { bgp, .. }) = &reconciled.applied else { panic!("{reconciled:?}") };
    let sessions = |sessions: &Vec<eno_schemas::BgpSession>| {
        sessions.iter().map(|session| (session.address, session.state)).collect()
    };
    bgp.iter().map(|(owner, of)| (owner.clone(), sessions(of))).collect()
}

/// Checks that the group is reported, with sessions of these neighbours, which wait for their workers.
#[track_caller]
fn assert_made(reconciled: &Reconciled, neighbours: &[IpAddr]) {
    assert_eq!(reconciled.rejected, []);
    let waiting = neighbours.iter().map(|address| (*address, BgpState::Active)).collect();
    assert_eq!(reported(reconciled), [(OWNER.to_owned(), waiting)].into(), "{reconciled:?}");
}

/// What is taken and announced of one family: prefixes with their longest length, and communities.
fn policies(neighbour: &BgpNeighbourView, is_v6: bool) -> [BTreeSet<String>; 2] {
    let family = if is_v6 { &neighbour.ipv6 } else { &neighbour.ipv4 }.as_ref().expect("the family");
    let accepted = |rules: &[PolicyRule]| -> BTreeSet<String> {
        // What follows a rule that rejects all never counts.
        let ends = |rule: &&PolicyRule| rule.prefixes.is_none() && rule.result == PolicyResult::Reject;
        let rules = rules.iter().take_while(|rule| !ends(rule));
        let accept = rules.filter(|rule| rule.result == PolicyResult::Accept);
        let of_rule = |rule: &PolicyRule| {
            let ranges = rule.prefixes.clone().expect("a rule that takes all");
            let communities: Vec<&str> = rule.communities.iter().map(String::as_str).collect();
            let communities = communities.join(" ");
            let of_family = ranges.into_iter().filter(|range| range.prefix.addr().is_ipv6() == is_v6);
            of_family
                .map(|range| format!("{} to {} {communities}", range.prefix, range.max))
                .collect::<Vec<_>>()
        };
        accept.flat_map(of_rule).collect()
    };
    let maximum = family.maximum_prefixes.expect("a maximum");
    assert_eq!((maximum.number, maximum.received, maximum.warning_only), (100, true, false));
    [accepted(&family.import), accepted(&family.export)]
}

/// Checks the device's own view of the group.
fn check_view(subject: Subject, view: &BgpView) {
    let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<String>>();
    for (neighbour, is_v6) in [("192.0.2.11", false), ("2001:db8::11", true)] {
        let seen = &view.neighbours[&address(neighbour)];
        assert_eq!(seen.group.as_deref(), Some(GROUP));
        assert_eq!(seen.peer_as, Some(64513));
        assert_eq!(seen.local_as.unwrap_or(view.asn), 64512);
        assert_eq!((seen.hold_time, seen.keepalive_time), (9, 3));
        assert_eq!((seen.ipv4.is_some(), seen.ipv6.is_some()), (!is_v6, is_v6));
        assert_eq!(seen.bfd.is_some(), subject.dialect != "srlinux");
        let [import, export] = policies(seen, is_v6);
        if is_v6 {
            assert_eq!((import, export), (set(&["2001:db8:9::/48 to 128 65000:100"]), set(&[])));
        } else {
            assert_eq!(
                (import, export),
                (set(&["203.0.113.0/24 to 32 65000:100"]), set(&["0.0.0.0/0 to 0 "]))
            );
        }
    }
    let networks: Vec<String> = view.dynamic_neighbours.keys().map(ToString::to_string).collect();
    assert_eq!(networks, ["192.0.2.128/25"]);
}

async fn group_is_made_kept_changed_and_removed(subject: Subject) {
    for candidate in [true, false] {
        let running_only = |capabilities: &mut Capabilities| {
            if !candidate {
                (capabilities.candidate, capabilities.writable_running) = (false, true);
                capabilities.confirmed_commit = ConfirmedCommit::None;
            }
        };
        let mut bench = subject.bench_with(DeviceRole::Switch, running_only).await;
        let before = running(&bench);
        let mut of_group = group(subject);
        let wanted = desired(subject, &bench, &[of_group.clone()]);
        let made = bench.reconcile(DEVICE, wanted.clone()).await;
        assert_made(&made, &of_group.neighbours);
        check_view(subject, &seen(&bench).expect("BGP in the VRF"));

        let count = transactions(&bench);
        let again = bench.reconcile(DEVICE, with_new_port_memory(&wanted, &made)).await;
        assert_made(&again, &of_group.neighbours);
        assert_eq!((again.change, transactions(&bench)), (None, count));

        // A node comes, and the group gets another AS.
        of_group.neighbours.insert(1, address("192.0.2.12"));
        of_group.local_as = 64600;
        let wanted = with_new_port_memory(&desired(subject, &bench, &[of_group.clone()]), &made);
        let changed = bench.reconcile(DEVICE, wanted.clone()).await;
        assert_made(&changed, &of_group.neighbours);
        let view = seen(&bench).expect("BGP in the VRF");
        let neighbour = &view.neighbours[&address("192.0.2.12")];
        assert_eq!(
            (neighbour.group.as_deref(), neighbour.local_as.unwrap_or(view.asn)),
            (Some(GROUP), 64600)
        );

        // Without groups, the VRF stays as it was before.
        let wanted = with_new_port_memory(&desired(subject, &bench, &[]), &changed);
        let without = bench.reconcile(DEVICE, wanted.clone()).await;
        assert_eq!(
            (without.rejected.as_slice(), reported(&without)),
            (&[][..], BTreeMap::new()),
            "{without:?}"
        );
        assert_eq!(seen(&bench), None);
        assert!(!running(&bench).contains(GROUP), "{}", running(&bench));

        // A new process knows only the command, and takes all away at once.
        bench.reconcile(DEVICE, desired(subject, &bench, &[group(subject)])).await;
        bench.restart_driver();
        let nothing = with_new_port_memory(&subject.nothing(&bench, DeviceRole::Switch), &made);
        let gone = bench.reconcile(DEVICE, nothing).await;
        assert_eq!((gone.rejected.as_slice(), reported(&gone)), (&[][..], BTreeMap::new()), "{gone:?}");
        assert_eq!(running(&bench), before, "candidate: {candidate}");
    }
}

/// A password is read from a Secret that names the device, and written once by each process.
async fn password_is_written_once(subject: Subject) {
    let mut bench = subject.bench_with(DeviceRole::Switch, |_| ()).await;
    let of_group = BgpGroup { password: Some(SECRET.into()), ..group(subject) };
    let wanted = desired(subject, &bench, std::slice::from_ref(&of_group));
    let password = |bench: &Bench| {
        let view = seen(bench).expect("BGP in the VRF");
        view.neighbours[&address("192.0.2.11")].password.clone()
    };
    let refusal = |reconciled: &Reconciled| {
        let [one] = reconciled.rejected.as_slice() else { panic!("{reconciled:?}") };
        assert_eq!((&one.item, one.retryable), (&Item::bgp(VRF, OWNER), true));
        assert_eq!(reported(reconciled), BTreeMap::new());
        one.reason.to_string()
    };
    write_secret(bench.credentials.path(), SECRET, [("password", "s3cret-1\n")]);
    let unnamed = bench.reconcile(DEVICE, wanted.clone()).await;
    assert!(refusal(&unnamed).contains("is not for gw"), "{unnamed:?}");
    let line = format!("{} {}\n", bench.device(DEVICE).address, bench.info(DEVICE).host_key);
    write_secret(bench.credentials.path(), SECRET, [("bgp-devices", line)]);

    let preview = bench.driver.preview(work(DEVICE, wanted.clone()).command).await.expect("a preview");
    assert!(preview.edits.concat().contains("********") && !preview.edits.concat().contains("s3cret"));
    let made = bench.reconcile(DEVICE, wanted.clone()).await;
    assert_made(&made, &of_group.neighbours);
    assert_eq!(password(&bench).as_deref(), Some("s3cret-1"));
    assert!(!format!("{made:?}").contains("s3cret"));
    let wanted = with_new_port_memory(&wanted, &made);
    let count = transactions(&bench);
    assert_made(&bench.reconcile(DEVICE, wanted.clone()).await, &of_group.neighbours);
    assert_eq!(transactions(&bench), count);

    write_secret(bench.credentials.path(), SECRET, [("password", "s3cret-2")]);
    let changed = bench.reconcile(DEVICE, wanted.clone()).await;
    assert_made(&changed, &of_group.neighbours);
    assert_eq!(password(&bench).as_deref(), Some("s3cret-2"));
    assert!(changed.notes.iter().all(|note| note.kind != "Drift"), "{changed:?}");

    bench.restart_driver();
    let count = transactions(&bench);
    for _ in 0..2 {
        assert_made(&bench.reconcile(DEVICE, wanted.clone()).await, &of_group.neighbours);
    }
    assert_eq!(transactions(&bench), count + 1, "a new process does not know which password is there");

    // The Secret is for the device no more: what is there stays, and the message says why.
    list_device(bench.credentials.path(), DEVICE, &bench.device(DEVICE));
    write_secret(bench.credentials.path(), SECRET, [("bgp-devices", "elsewhere ssh-ed25519 AAAA")]);
    let refused = bench.reconcile(DEVICE, wanted.clone()).await;
    assert!(refusal(&refused).contains("is not for gw"));
    assert_eq!(password(&bench).as_deref(), Some("s3cret-2"));

    let without = desired(subject, &bench, &[group(subject)]);
    assert_made(&bench.reconcile(DEVICE, with_new_port_memory(&without, &made)).await, &of_group.neighbours);
    assert_eq!(password(&bench), None);
}

/// Two clusters have groups in one VRF, and want one neighbour.
async fn neighbour_of_another_cluster_is_left_and_named(subject: Subject) {
    let bench = subject.bench_with(DeviceRole::Switch, |_| ()).await;
    let other = NetconfDriver::new(options(bench.credentials.path()));
    let mut theirs = subject.nothing(&bench, DeviceRole::Switch);
    theirs.cluster = "other".into();
    theirs.vrfs = desired(subject, &bench, &[group(subject)]).vrfs;
    // Their VRF has no address of its own yet.
    if subject.dialect == "srlinux" {
        theirs = FabricDesired { cluster: "other".into(), ..desired(subject, &bench, &[group(subject)]) };
    }
    let made = other.reconcile(work(DEVICE, theirs.clone())).await;
    assert_eq!(reported(&made).len(), 1, "{made:?}");
    let before = running(&bench);

    let mut ours = subject.nothing(&bench, DeviceRole::Switch);
    ours.vrfs = desired(subject, &bench, &[group(subject)]).vrfs;
    let refused = bench.reconcile(DEVICE, ours.clone()).await;
    let [one] = refused.rejected.as_slice() else { panic!("{refused:?}") };
    let reason = format!("VRF {VRF} has a neighbour 192.0.2.11 already that is not ENO's");
    assert_eq!((&one.item, &*one.reason), (&Item::bgp(VRF, OWNER), reason.as_str()));
    assert_eq!((reported(&refused), running(&bench)), (BTreeMap::new(), before.clone()));

    ours.vrfs[0].bgp[0].neighbours = vec![address("192.0.2.77")];
    ours.vrfs[0].bgp[0].dynamic_neighbours = Vec::new();
    let made = bench.reconcile(DEVICE, ours.clone()).await;
    assert_made(&made, &[address("192.0.2.77")]);
    ours.vrfs.clear();
    let gone = bench.reconcile(DEVICE, ours).await;
    assert_eq!((gone.rejected, running(&bench)), (vec![], before));
}

macro_rules! for_each_dialect {
    ($($test:ident,)*) => {
        mod openconfig {
            $(#[tokio::test] async fn $test() { Box::pin(super::$test(super::OPENCONFIG)).await; })*
        }
        mod junos {
            $(#[tokio::test] async fn $test() { Box::pin(super::$test(super::JUNOS)).await; })*
        }
        mod srlinux {
            $(#[tokio::test] async fn $test() { Box::pin(super::$test(super::SRLINUX)).await; })*
        }
    };
}

for_each_dialect! {
    group_is_made_kept_changed_and_removed,
    password_is_written_once,
    neighbour_of_another_cluster_is_left_and_named,
}

/// The edit by which somebody takes a neighbour away.
fn without_neighbour() -> String {
    format!(
        "<network-instances xmlns='http://openconfig.net/yang/network-instance'><network-instance><name>{VRF}</name>\
         <protocols><protocol><identifier xmlns:p='http://openconfig.net/yang/policy-types'>p:BGP</identifier>\
         <name>BGP</name><bgp><neighbors><neighbor xmlns:nc='{NETCONF}' nc:operation='remove'><neighbor-address>192.0.2.11\
         </neighbor-address></neighbor></neighbors></bgp></protocol></protocols></network-instance></network-instances>"
    )
}

#[tokio::test]
async fn drift_of_a_group_is_found_and_repaired() {
    let bench = OPENCONFIG.bench_with(DeviceRole::Switch, |_| ()).await;
    let wanted = desired(OPENCONFIG, &bench, &[group(OPENCONFIG)]);
    let made = bench.reconcile(DEVICE, wanted.clone()).await;
    let as_made = running(&bench);
    let mut notified = Box::pin(bench.driver.changed());
    bench.switch(DEVICE).edit_xml_by_hand(&without_neighbour()).expect("an edit");
    let change = tokio::time::timeout(Duration::from_secs(10), notified.next()).await;
    assert_eq!(change.expect("a notification").as_deref(), Some(DEVICE));
    drop(notified);
    let repaired = bench.reconcile(DEVICE, with_new_port_memory(&wanted, &made)).await;
    assert_made(&repaired, &group(OPENCONFIG).neighbours);
    let drift: Vec<(&Item, &str)> = repaired
        .notes
        .iter()
        .filter(|note| note.kind == "Drift")
        .map(|note| (&note.item, &*note.message))
        .collect();
    assert_eq!(drift, [(&Item::vrf(VRF), "the BGP group eno-test-red changed")]);
    assert_eq!(running(&bench), as_made);
}

/// Without notifications, the looks at sessions find that one is gone.
#[tokio::test]
async fn look_at_sessions_finds_a_change() {
    let silent = |capabilities: &mut Capabilities| {
        (capabilities.notifications, capabilities.yang_push) = (false, false);
    };
    let bench = OPENCONFIG.bench_with(DeviceRole::Switch, silent).await;
    let wanted = desired(OPENCONFIG, &bench, &[group(OPENCONFIG)]);
    let made = bench.reconcile(DEVICE, wanted.clone()).await;
    assert_made(&made, &group(OPENCONFIG).neighbours);
    let mut changed = Box::pin(bench.driver.changed());
    let requests = crate::common::calls(bench.switch(DEVICE));
    let looked = async {
        while crate::common::calls(bench.switch(DEVICE)) < requests + 3 {
            tokio::task::yield_now().await;
        }
    };
    // Looks without a change tell nothing.
    tokio::select! {
        target = changed.next() => panic!("{target:?} did not change"),
        () = looked => {}
    }
    bench.switch(DEVICE).edit_xml_by_hand(&without_neighbour()).expect("an edit");
    let change = tokio::time::timeout(Duration::from_secs(10), changed.next()).await;
    assert_eq!(change.expect("a look").as_deref(), Some(DEVICE));
}
