//! New probes on request: the annotation `eno.k8s.io/verify`, and the answer in the status.

use eno_core::{Event, Key, Kind, Verification};
use eno_schemas::ProbeOutcome::{self, Answered, Lost, Passed, Silent, Unasked};

use crate::fixtures::vid;
use crate::world::*;

/// Sets the nonce of an object's annotation; `None` removes the annotation.
pub fn ask(w: &mut World, key: &Key, nonce: Option<&str>) {
    let object = w.objects.get_mut(key).unwrap();
    object.verify = nonce.map(to_name);
    let object = object.clone();
    w.engine.handle(Event::Object(Box::new(object)));
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
    results.map(|one| (format!("{} {} {}", one.from, shown(one.to), one.vlan), one.outcome)).collect()
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
    let sn = crate::edits::edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| spec.routes = vec!["out".into()]);
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
