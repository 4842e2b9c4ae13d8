//! New probes on request: the annotation `eno.k8s.io/verify`, and the answer in the status.

use eno_core::kinds::Plugin;
use eno_core::{ConditionReason, ConditionType, Event, Key, Kind, NoticeKind, Verification, VerifyRequest};
use eno_schemas::ProbeOutcome::{self, Answered, Isolated, Leaking, Lost, Passed, Silent, TooBig, Unasked};
use eno_schemas::{CniName, CrossedVlans, Phase, VerifyBetween, VerifyMode};

use crate::edits::{edit_attachment, edit_point, edit_subnet};
use crate::fixtures::{kernel_cni, vid};
use crate::world::*;

/// Sets the nonce of an object's annotation; `None` removes the annotation.
pub fn ask(w: &mut World, key: &Key, nonce: Option<&str>) {
    annotate(w, key, nonce.map(|nonce| VerifyRequest::new(nonce.into())));
    w.settle();
}

/// Sets an object's annotation.
fn annotate(w: &mut World, key: &Key, request: Option<VerifyRequest>) {
    let object = w.objects.get_mut(key).unwrap();
    object.verify = request;
    let object = object.clone();
    w.engine.handle(Event::Object(Box::new(object)));
}

/// Asks for packets of the MTU.
fn ask_size(w: &mut World, key: &Key, nonce: &str) {
    annotate(w, key, Some(VerifyRequest { mtu: true, ..VerifyRequest::new(nonce.into()) }));
    w.settle();
}

/// Asks whether an object is isolated from another one.
fn ask_isolation(w: &mut World, [key, other]: [&Key; 2], nonce: &str) {
    let isolation_from = Some(other.clone());
    annotate(w, key, Some(VerifyRequest { isolation_from, ..VerifyRequest::new(nonce.into()) }));
    w.settle();
}

fn answer(w: &World, key: &Key) -> Option<Verification> {
    w.statuses[key].verification.clone()
}

fn nonce(w: &World, key: &Key) -> Option<String> {
    answer(w, key).map(|answer| answer.nonce.to_string())
}

/// Each result as `<from> <to> <vlan>`, with its outcome.
fn results(w: &World, key: &Key) -> Vec<(String, ProbeOutcome)> {
    let results = answer(w, key).unwrap().results.into_iter();
    let shown = |to: Option<_>| to.map_or_else(|| "nobody".to_owned(), |to: eno_core::Name| to.to_string());
    let vlans =
        |vlan, other: Option<_>| other.map_or_else(|| format!("{vlan}"), |other| format!("{vlan}-{other}"));
    let text = |from, to, vlans: &str| format!("{from} {} {vlans}", shown(to));
    results.map(|one| (text(one.from, one.to, &vlans(one.vlan, one.other)), one.outcome)).collect()
}

/// The revision of the only path of a node's probes.
fn revision(w: &World, node: &str) -> String {
    let probes = w.probes_of(node);
    assert_eq!((probes.len(), probes[0].paths.len()), (1, 1), "{probes:?}");
    probes[0].paths[0].revision.clone()
}

/// The services `s` and `t` with their attachments `a` and `b` at `cp`.
fn probed_world() -> (World, [Key; 5]) {
    let mut w = World::with_agents();
    let services = [("s", 100), ("t", 200)].map(|(name, id)| w.apply(service(name, id, &["dc"])));
    let attachments = [("a", "s"), ("b", "t")].map(|(name, of)| w.apply(attachment(name, &[of], "cp")));
    w.settle();
    let point = Key::cluster(Kind::ConnectionPoint, &to_name("cp"));
    let keys: Vec<Key> = services.into_iter().chain(attachments).chain([point]).collect();
    (w, keys.try_into().unwrap())
}

fn ring(vlan: u16, outcome: ProbeOutcome) -> Vec<(String, ProbeOutcome)> {
    let pairs = [("node1", "node2"), ("node2", "node3"), ("node3", "node4"), ("node4", "node1")];
    pairs.iter().map(|(from, to)| (format!("{from} {to} {vlan}"), outcome)).collect()
}

#[test]
fn vlans_of_an_attachment_are_probed_anew_and_its_status_has_the_results() {
    let (mut w, [s, _, a, b, cp]) = probed_world();
    let before = revision(&w, "node1");
    ask(&mut w, &a, Some("n1"));
    let probes = w.probes_of("node1");
    let paths: Vec<_> =
        probes[0].paths.iter().map(|path| (path.vlans.to_string(), path.revision == before)).collect();
    assert!(paths.contains(&("100".into(), false)) && paths.contains(&("200".into(), true)), "{paths:?}");
    assert_eq!((nonce(&w, &a).as_deref(), results(&w, &a)), (Some("n1"), ring(100, Passed)));
    assert_eq!(answer(&w, &a).unwrap().left_out, 0);
    for other in [&s, &b, &cp] {
        assert_eq!(answer(&w, other), None);
    }
    // Nothing is left to do, and later results change nothing.
    let (published, status) = (w.published, w.statuses[&a].verification.clone());
    w.restart_and_settle();
    assert_eq!(w.published, published);
    w.probe_with(|probing| _ = probing.lost.insert(("node1".into(), vid(100))));
    assert_eq!(w.statuses[&a].verification, status);
    // Another nonce asks again.
    ask(&mut w, &a, Some("n2"));
    assert_eq!(nonce(&w, &a).as_deref(), Some("n2"));
    assert_eq!(results(&w, &a)[0], ("node1 node2 100".into(), Lost));
    ask(&mut w, &a, None);
    assert_eq!((answer(&w, &a), revision(&w, "node1")), (None, before));
}

#[test]
fn service_and_point_ask_for_their_vlans() {
    let (mut w, [s, _, a, _, cp]) = probed_world();
    ask(&mut w, &s, Some("n"));
    assert_eq!(results(&w, &s), ring(100, Passed));
    let before = w.probes_of("node1")[0].paths.clone();
    // The same nonce of another object is another request.
    ask(&mut w, &cp, Some("n"));
    let mut both: Vec<_> = ring(100, Passed).into_iter().chain(ring(200, Passed)).collect();
    both.sort();
    assert_eq!(results(&w, &cp), both);
    let now = w.probes_of("node1")[0].paths.clone();
    assert!(now.iter().all(|path| before.iter().all(|former| former.revision != path.revision)));
    assert_eq!((answer(&w, &a), nonce(&w, &s).as_deref()), (None, Some("n")));
}

#[test]
fn any_attachment_on_a_vlan_asks_for_it() {
    let (mut w, [_, _, a, ..]) = probed_world();
    let c = w.apply_and_settle(attachment("c", &["s"], "cp"));
    for key in [&a, &c] {
        let before = w.probes_of("node1")[0].paths.clone();
        ask(&mut w, key, Some("n"));
        assert_ne!(w.probes_of("node1")[0].paths, before, "{key}");
        assert_eq!(results(&w, key), ring(100, Passed));
    }
}

#[test]
fn answer_waits_for_each_node_that_probes() {
    let (mut w, [_, _, a, ..]) = probed_world();
    w.silent.insert(eno_core::Target::Node("node3".into()));
    let writes = w.statuses.clone();
    ask(&mut w, &a, Some("n1"));
    assert_eq!((answer(&w, &a), &w.statuses), (None, &writes), "what node3 reported before is no answer");
    w.restart_and_settle();
    assert_eq!(answer(&w, &a), None);
    w.end_silence();
    assert_eq!(results(&w, &a), ring(100, Passed));
    // The last answer stays until the next one is complete. A node that leaves the ring is not waited for.
    w.silent.insert(eno_core::Target::Node("node3".into()));
    ask(&mut w, &a, Some("n2"));
    assert_eq!(nonce(&w, &a).as_deref(), Some("n1"));
    w.apply_node_and_settle("node3", true, false);
    assert_eq!((nonce(&w, &a).as_deref(), results(&w, &a).len()), (Some("n2"), 3));
}

#[test]
fn engine_that_starts_later_gives_the_answer() {
    let (mut w, [_, _, a, ..]) = probed_world();
    w.silent.insert(eno_core::Target::Node("node3".into()));
    ask(&mut w, &a, Some("n1"));
    w.silent.clear();
    w.probing.lost.insert(("node3".into(), vid(100)));
    w.restart_and_settle();
    assert_eq!(results(&w, &a)[0], ("node3 node4 100".into(), Lost));
}

#[test]
fn what_failed_comes_first_and_results_are_bounded() {
    let mut w = World::with_agents();
    w.apply(route("out", "10.1.0.1"));
    let sn = edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| spec.routes = vec!["out".into()]);
    w.apply(sn);
    w.apply(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
    w.apply_and_settle(attachment("a", &["s"], "cp"));
    let cp = Key::cluster(Kind::ConnectionPoint, &to_name("cp"));
    w.probing.lost.insert(("node2".into(), vid(100)));
    w.probing.unable.insert("node4".into(), "busy".into());
    ask(&mut w, &cp, Some("n1"));
    let outcomes: Vec<ProbeOutcome> = results(&w, &cp).into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(outcomes, [Lost, Unasked, Passed, Passed, Answered, Answered, Answered]);
    let answer = answer(&w, &cp).unwrap();
    assert_eq!(answer.results[1].reason.as_deref(), Some("busy"));
    assert_eq!(answer.results[4].to.as_deref(), Some("10.1.0.1"));
    assert!(answer.results[4].macs.contains("02:00:00:00:00:01"));
    w.probing = Probing { silent: ["10.1.0.1".parse().unwrap()].into(), ..Probing::default() };
    for id in 0..20 {
        let name = format!("t{id:02}");
        w.apply(service(&name, 200 + id, &["dc"]));
        w.apply(attachment(&name, &[&name], "cp"));
    }
    w.settle();
    ask(&mut w, &cp, Some("n2"));
    let answer = w.statuses[&cp].verification.clone().unwrap();
    assert_eq!((answer.results.len(), answer.left_out), (64, 4 + 21 * 4 - 64));
    assert!(answer.results[..4].iter().all(|one| one.outcome == Silent));
}

#[test]
fn object_that_is_not_probed_gets_no_answer() {
    let mut w = World::with_agents();
    let s = w.apply_and_settle(service("s", 100, &["dc"]));
    ask(&mut w, &s, Some("n1"));
    assert_eq!(answer(&w, &s), None);
    // It does once it is.
    w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(results(&w, &s), ring(100, Passed));
    w.delete_and_settle(&Key::namespaced(Kind::L2ServiceAttachment, &to_name("ns"), &to_name("a")));
    assert_eq!(nonce(&w, &s).as_deref(), Some("n1"));
}

/// By VLAN: the size of packets that a node sends.
fn sizes(w: &World, node: &str) -> Vec<(String, Option<u16>)> {
    let probes = w.probes_of(node);
    probes.iter().flat_map(|one| &one.paths).map(|path| (path.vlans.to_string(), path.mtu)).collect()
}

/// The reason and the message of a condition.
fn condition(w: &World, key: &Key, kind: ConditionType) -> Option<(ConditionReason, String)> {
    let mut conditions = w.statuses[key].conditions.iter();
    conditions.find(|one| one.kind == kind).map(|one| (one.reason, one.message.clone()))
}

#[test]
fn packets_of_the_mtu_are_sent_while_the_annotation_asks_for_them() {
    let (mut w, [_, _, a, b, _]) = probed_world();
    w.probing.narrow.insert(("node2".into(), vid(100)), 1499);
    assert_eq!(sizes(&w, "node1"), [("100,200".into(), None)]);
    w.probe();
    assert_eq!(condition(&w, &a, ConditionType::Verified).unwrap().0, ConditionReason::Answered);
    ask_size(&mut w, &a, "n1");
    let (now, mut both) = (sizes(&w, "node1"), [("100".into(), Some(1500)), ("200".into(), None)]);
    both.sort();
    assert!(now.iter().all(|size| both.contains(size)) && now.len() == 2, "{now:?}");
    assert_eq!(
        results(&w, &a)[..2],
        [("node2 node3 100".into(), TooBig), ("node1 node2 100".into(), Passed)]
    );
    let message = "packets of 1500 bytes: one of leaf1 u1 to spine1 leaf1, leaf1 u2 to spine2 leaf1, leaf2 u1 to spine1 leaf2 or 1 more: 1 probe fails, all others pass";
    let found = condition(&w, &a, ConditionType::Verified).unwrap();
    assert_eq!((found.0, &*found.1), (ConditionReason::TooBig, message));
    assert_eq!(condition(&w, &a, ConditionType::Degraded), Some(found));
    assert_eq!(condition(&w, &b, ConditionType::Degraded), None);
    assert!(w.notices.iter().all(|(_, kind, _)| *kind == NoticeKind::PacketsLost));
    let published = w.published;
    w.restart_and_settle();
    w.probe();
    assert_eq!(w.published, published, "nothing is left to do");
    // What is lost says more.
    w.probe_with(|probing| _ = probing.lost.insert(("node1".into(), vid(100))));
    assert_eq!(condition(&w, &a, ConditionType::Verified).unwrap().0, ConditionReason::Lost);
    w.probe_with(|probing| probing.lost.clear());
    assert_eq!(condition(&w, &a, ConditionType::Verified).unwrap().0, ConditionReason::TooBig);
    ask(&mut w, &a, None);
    assert_eq!(sizes(&w, "node1"), [("100,200".into(), None)]);
    assert_eq!(condition(&w, &a, ConditionType::Degraded), None);
}

#[test]
fn size_of_packets_is_what_the_attachments_want_that_are_asked_for() {
    let (mut w, [_, _, a, b, _]) = probed_world();
    ask_size(&mut w, &a, "n1");
    let revision = |w: &World| {
        let probes = w.probes_of("node1");
        probes[0].paths.iter().find(|path| path.mtu.is_some()).unwrap().revision.clone()
    };
    let before = revision(&w);
    let want = |w: &mut World, key: &Key, mtu| {
        let object = edit_attachment(&w.objects[key], |spec| spec.mtu = Some(mtu));
        w.apply_and_settle(object);
    };
    want(&mut w, &b, 65_535);
    assert_eq!(revision(&w), before, "nobody asks it of the other attachment");
    for (mtu, size) in [(9000, 9000), (1000, 1280)] {
        want(&mut w, &a, mtu);
        assert!(sizes(&w, "node1").contains(&("100".into(), Some(size))), "{:?}", sizes(&w, "node1"));
        assert_ne!(revision(&w), before, "it is probed again");
    }
}

fn crossed(w: &World, node: &str) -> Vec<String> {
    let probes = w.probes_of(node);
    let pairs = probes.iter().flat_map(|one| &one.crossed);
    pairs.map(|CrossedVlans { vlan, other }| format!("{vlan}-{other}")).collect()
}

#[test]
fn objects_that_name_each_other_are_crossed() {
    for of_services in [true, false] {
        let (mut w, keys) = probed_world();
        let [one, other] = if of_services { [&keys[0], &keys[1]] } else { [&keys[2], &keys[3]] };
        let conditions = w.statuses[one].conditions.clone();
        ask_isolation(&mut w, [one, other], "n1");
        assert_eq!((crossed(&w, "node1"), answer(&w, one)), (vec![], None), "the other one does not ask");
        ask_isolation(&mut w, [other, one], "n0");
        assert_eq!((crossed(&w, "node1"), answer(&w, one)), (vec![], None), "it asks something else");
        w.silent.insert(eno_core::Target::Node("node3".into()));
        w.probing.leaking.insert((vid(200), vid(100)));
        ask_isolation(&mut w, [other, one], "n1");
        assert_eq!((crossed(&w, "node1"), answer(&w, one)), (vec!["100-200".into(), "200-100".into()], None));
        w.end_silence();
        let with = |ring: Vec<(String, ProbeOutcome)>, other: u16, outcome| {
            let pair = move |(text, _)| (format!("{text}-{other}"), outcome);
            ring.into_iter().map(pair).collect::<Vec<_>>()
        };
        let expected = [with(ring(100, Passed), 200, Isolated), ring(100, Passed)].concat();
        assert_eq!(results(&w, one), expected);
        let expected = [with(ring(200, Passed), 100, Leaking), ring(200, Passed)].concat();
        assert_eq!(results(&w, other), expected);
        assert_eq!(w.statuses[one].conditions, conditions, "it is no condition");
        let published = w.published;
        w.restart_and_settle();
        assert_eq!(w.published, published, "nothing is left to do");
        ask(&mut w, other, None);
        assert_eq!(crossed(&w, "node1"), Vec::<String>::new());
    }
}

#[test]
fn isolation_is_asked_of_nodes_only() {
    let (mut w, [s, t, ..]) = probed_world();
    let gateway_only = edit_point(&connection_point("cp", Some("pool")), |spec| {
        (spec.verify.mode, spec.verify.between) = (VerifyMode::Report, VerifyBetween::Gateway);
    });
    w.apply_and_settle(gateway_only);
    ask_isolation(&mut w, [&s, &t], "n1");
    ask_isolation(&mut w, [&t, &s], "n1");
    assert_eq!((crossed(&w, "node1"), answer(&w, &s)), (vec![], None));
}

/// Results of VLANs on which nobody is asked.
fn unasked(vlans: &[&str]) -> Vec<(String, ProbeOutcome)> {
    vlans.iter().map(|vlan| (format!("node1 nobody {vlan}"), Unasked)).collect()
}

#[test]
fn answer_waits_for_the_path_of_each_vlan() {
    let (mut w, [.., a, _, cp]) = probed_world();
    w.silent.insert(eno_core::Target::Fabric("leaf1".into()));
    w.apply(service("u", 300, &["dc"]));
    w.apply_and_settle(attachment("c", &["u"], "cp"));
    for key in [&cp, &a] {
        ask(&mut w, key, Some("n1"));
    }
    assert_eq!(answer(&w, &cp), None, "nobody has asked on the new VLAN");
    assert_eq!(results(&w, &a), ring(100, Passed));
    w.end_silence();
    assert_eq!(results(&w, &cp).len(), 12);
}

#[test]
fn vlans_that_cannot_be_probed_are_part_of_the_answer() {
    let (mut w, [_, t, ..]) = probed_world();
    let offer = edit_point(&connection_point("other", Some("pool")), |spec| {
        spec.cnis = vec![kernel_cni(Plugin::Sriov { pool_name: "x/y".into() })];
    });
    w.apply_and_settle(created(offer, 50));
    w.apply(service("u", 300, &["dc"]));
    for (name, of) in [("c", "t"), ("d", "u")] {
        w.apply(edit_attachment(&attachment(name, &[of], "other"), |spec| {
            spec.implementation = Some(CniName::Sriov);
        }));
    }
    w.settle();
    ask(&mut w, &t, Some("n1"));
    assert_eq!(results(&w, &t), [unasked(&["200"]), ring(200, Passed)].concat());
    let reason = answer(&w, &t).unwrap().results[0].reason.clone();
    assert_eq!(reason.as_deref(), Some("agents can't probe what sriov makes for access"));
    // Where nothing can be asked, there is no answer.
    let u = Key::cluster(Kind::L2Service, &to_name("u"));
    ask(&mut w, &u, Some("n1"));
    assert_eq!(answer(&w, &u), None);
}

#[test]
fn vlans_on_which_there_is_nobody_to_ask_are_part_of_the_answer() {
    let (mut w, [.., cp]) = probed_world();
    w.apply(route("out", "10.1.0.1"));
    w.apply(edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| spec.routes = vec!["out".into()]));
    w.apply_and_settle(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
    for node in ["node2", "node3", "node4"] {
        w.remove_node_and_settle(node);
    }
    ask(&mut w, &cp, Some("n1"));
    let answered = ("node1 10.1.0.1 100".to_owned(), Answered);
    assert_eq!(results(&w, &cp), [unasked(&["200"]), vec![answered]].concat());
}

#[test]
fn silence_of_a_node_that_is_not_reached_is_no_isolation() {
    let (mut w, [s, t, ..]) = probed_world();
    w.probing.lost.insert(("node1".into(), vid(200)));
    for keys in [[&s, &t], [&t, &s]] {
        ask_isolation(&mut w, keys, "n1");
    }
    let found = answer(&w, &s).unwrap().results;
    assert_eq!((&*found[0].from, found[0].other, found[0].outcome), ("node1", Some(vid(200)), Unasked));
    assert_eq!(found[0].reason.as_deref(), Some("VLAN 200 itself does not pass"));
    assert_eq!(found.iter().filter(|one| one.outcome == Isolated).count(), 3);
}

#[test]
fn what_a_node_found_of_a_former_neighbour_is_no_answer() {
    let (mut w, [_, _, a, ..]) = probed_world();
    w.silent.insert(eno_core::Target::Node("node3".into()));
    w.probing.lost.insert(("node2".into(), vid(100)));
    ask(&mut w, &a, Some("n1"));
    // The next node of node2 is another one, and it has not asked that yet.
    w.silent.insert(eno_core::Target::Node("node2".into()));
    w.probing.lost.clear();
    w.apply_node_and_settle("node3", true, false);
    assert_eq!(answer(&w, &a), None);
    w.end_silence();
    let pairs = ["node1 node2 100", "node2 node4 100", "node4 node1 100"];
    assert_eq!(results(&w, &a), pairs.map(|pair| (pair.to_owned(), Passed)));
}

#[test]
fn gate_lets_small_packets_be_enough() {
    let mut w = World::with_agents();
    w.apply_and_settle(edit_point(&connection_point("cp", Some("pool")), |spec| {
        spec.verify.mode = VerifyMode::Gate;
    }));
    w.apply_and_settle(service("s", 100, &["dc"]));
    w.probing.narrow.insert(("node2".into(), vid(100)), 1499);
    let a = w.apply(attachment("a", &["s"], "cp"));
    ask_size(&mut w, &a, "n1");
    assert_eq!(condition(&w, &a, ConditionType::Verified).unwrap().0, ConditionReason::TooBig);
    assert_eq!(w.phase(&a), Phase::Ready);
}
