//! Closed ports: trunks that a driver reported with a VLAN list. Each command repeats them, also after a crash.

use std::collections::BTreeMap;

use eno_core::kinds::LeadsTo;
use eno_schemas::{Command, Desired, Outcome, Phase, PortBefore};

use crate::fixtures::{
    applied_fabric, device_key, leaf1_with_lag, moved_leaf1, ready_world, switch, to_node,
};
use crate::world::*;

/// The closed ports in the last command of leaf1.
fn commanded(w: &World) -> Vec<&str> {
    let ports = w.commanded_fabric("leaf1").ports.iter();
    ports.filter(|port| port.closed).map(|port| port.name.as_str()).collect()
}

fn in_status(w: &World) -> Vec<&str> {
    w.statuses[&device_key("leaf1")].port_memory.closed.iter().map(|name| &**name).collect()
}

/// leaf1 reports the command, with these closed ports.
fn report_closed(w: &mut World, command: &Command, outcome: Outcome, closed: &[&str]) {
    let closed = closed.iter().map(|name| (*name).to_owned()).collect();
    let Desired::Fabric(fabric) = command.desired.clone() else { panic!("{command:?}") };
    let applied = applied_fabric(&fabric, closed, BTreeMap::new());
    w.report_on(&switch("leaf1"), command, outcome, Some(applied), Vec::new());
    w.settle();
}

/// leaf1 has these closed ports in its status and in its last command.
#[track_caller]
fn assert_closed(w: &World, ports: &[&str]) {
    assert_eq!((in_status(w), commanded(w)), (ports.to_vec(), ports.to_vec()));
}

/// The ports of the service in [`ready_world`].
const ALL: [&str; 4] = ["e1", "e2", "u1", "u2"];

#[test]
fn closed_ports_are_in_status_and_in_the_next_command() {
    let (mut w, s, _) = ready_world();
    assert_closed(&w, &ALL);
    // The service does not wait for them.
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready]);
    let (published, statuses) = (w.published, w.statuses.clone());
    w.restart_and_settle();
    assert_eq!((w.published, &w.statuses), (published, &statuses));
}

#[test]
fn closed_ports_are_restored_from_status() {
    let (mut w, ..) = ready_world();
    w.nats.lose_streams();
    w.applied.clear();
    w.restart();
    w.silent.insert(switch("leaf1"));
    w.settle();
    assert_closed(&w, &ALL);
}

/// The engine crashes before it writes them to the status.
#[test]
fn closed_ports_are_restored_from_the_last_report() {
    let (mut w, ..) = ready_world();
    w.statuses.get_mut(&device_key("leaf1")).unwrap().port_memory.closed.clear();
    w.restart();
    w.silent.insert(switch("leaf1"));
    w.settle();
    assert_closed(&w, &ALL);
    let drift = condition(&w.statuses[&device_key("leaf1")], "Drift");
    assert_eq!(drift.map(|drift| drift.holds), Some(false));
}

/// The engine dies after leaf2 reports the removal, and before it writes what follows. NATS holds the command that the
/// report leads to, so no other report comes.
#[test]
fn deleted_service_goes_when_a_report_completes_the_status() {
    let (mut w, s, a) = ready_world();
    w.delete_and_settle(&a);
    let memory = w.statuses[&device_key("leaf2")].port_memory.clone();
    assert!(!memory.closed.is_empty());
    w.silent.insert(switch("leaf2"));
    w.delete_and_settle(&s);
    let (object, status) = (w.objects[&s].clone(), w.statuses[&s].clone());
    assert_eq!(status.phase, Some(Phase::Terminating));
    w.silent.clear();
    w.settle();
    assert!(!w.objects.contains_key(&s));
    w.objects.insert(s.clone(), object);
    w.statuses.insert(s.clone(), status);
    assert_eq!(w.phases.get_mut(&s).unwrap().pop(), Some(Phase::Deleted));
    w.statuses.get_mut(&device_key("leaf2")).unwrap().port_memory = memory;
    w.restart_and_settle();
    assert!(!w.objects.contains_key(&s), "{}", w.message(&s));
}

#[test]
fn held_report_does_not_change_closed_ports() {
    let (mut w, ..) = ready_world();
    let commanded = w.command(&switch("leaf1"));
    report_closed(&mut w, &commanded, Outcome::Held, &["e1"]);
    assert_closed(&w, &ALL);
    w.silent.insert(switch("leaf1"));
    report_closed(&mut w, &commanded, Outcome::RolledBack { reason: "r".into() }, &["e1"]);
    assert_closed(&w, &["e1"]);
}

#[test]
fn closed_ports_end_with_their_last_vlan() {
    let (mut w, _, a) = ready_world();
    w.delete_and_settle(&a);
    assert_closed(&w, &[]);
}

#[test]
fn closed_ports_end_when_the_port_is_removed() {
    let (mut w, ..) = ready_world();
    w.silent.insert(switch("leaf1"));
    let ports = [("e2", to_node("node2"))];
    w.apply_and_settle(device("leaf1", &ports));
    assert_closed(&w, &["e2"]);
    w.apply_and_settle(device(
        "leaf1",
        &[&ports[..], &[("e1", LeadsTo::PhysicalNetwork("dc".into()))]].concat(),
    ));
    assert_closed(&w, &["e2"]);
}

#[test]
fn changed_address_clears_closed_ports() {
    for restarts in [false, true] {
        let (mut w, ..) = ready_world();
        w.silent.insert(switch("leaf1"));
        w.apply(moved_leaf1(&w));
        if restarts {
            w.nats.lose_streams();
            w.applied.clear();
            w.restart();
        }
        w.settle();
        assert_eq!((in_status(&w), commanded(&w)), (vec![], vec![]), "{restarts}");
    }
}

#[test]
fn state_of_ports_that_the_device_has_not_is_not_restored() {
    let (mut w, ..) = ready_world();
    let memory = &mut w.statuses.get_mut(&device_key("leaf1")).unwrap().port_memory;
    memory.closed.push(to_name("e9"));
    memory.before.insert(to_name("e9"), PortBefore::default());
    w.nats.lose_streams();
    w.applied.clear();
    w.restart_and_settle();
    assert_closed(&w, &ALL);
    assert!(w.commanded_fabric("leaf1").ports.iter().all(|port| port.name != "e9"));
    assert!(w.statuses[&device_key("leaf1")].port_memory.before.is_empty());
}

#[test]
fn last_report_of_another_device_is_ignored_after_a_restart() {
    let (mut w, ..) = ready_world();
    w.silent.insert(switch("leaf1"));
    // No engine runs when the address changes. The last command and the last report are still stored.
    let object = moved_leaf1(&w);
    w.objects.insert(device_key("leaf1"), object);
    w.restart_and_settle();
    assert_closed(&w, &[]);
}

#[test]
fn late_report_of_another_device_is_ignored() {
    let (mut w, ..) = ready_world();
    w.silent.insert(switch("leaf1"));
    let former = w.command(&switch("leaf1"));
    w.apply_and_settle(moved_leaf1(&w));
    report_closed(&mut w, &former, Outcome::Applied, &ALL);
    assert_closed(&w, &[]);
    // A report of the new device counts.
    let present = w.command(&switch("leaf1"));
    report_closed(&mut w, &present, Outcome::Applied, &["e2"]);
    assert_closed(&w, &["e2"]);
}

#[test]
fn port_that_joins_a_lag_is_not_closed() {
    for restarts in [false, true] {
        let (mut w, ..) = ready_world();
        w.silent.insert(switch("leaf1"));
        w.apply_or_restart(leaf1_with_lag(&w, "po1"), restarts);
        let rest = &ALL[1..];
        assert_eq!((in_status(&w), commanded(&w)), (rest.into(), rest.into()), "{restarts}");
    }
}
