//! The paths of objects: the states of their hops agree with phases and conditions.

use std::collections::BTreeMap;

use eno_core::{
    ConditionReason, ConditionType, Config, Event, Hop, HopState, Key, Kind, Observer, Part, Reported,
    Status, Target, Tier,
};
use eno_schemas::{Applied, FabricDesired, Item, Outcome, Phase, Rejection};

use crate::fixtures::{device_key, ready_world, rejection, switch, vid};
use crate::world::{
    World, as_fabric, attachment, condition, node_target, pod, pod_config, pod_entry, service, split_fabric,
    to_name, veth,
};

impl World {
    /// The phase and the conditions of all objects follow from the hops of their paths. Everything is settled.
    pub fn assert_paths_agree(&self) {
        if self.delayed_status_writes.is_some() {
            return;
        }
        for (key, status) in self.statuses.iter().filter(|(key, _)| self.objects.contains_key(*key)) {
            assert_agrees(key, status, &self.engine.path(key));
        }
    }

    /// A core that was fed by watches and with the last reports has the same paths. Everything is settled.
    pub fn assert_observer_agrees(&self) {
        // A driver that answers no command reports on an earlier one.
        let is_earlier = !self.silent.is_empty() || !self.drivers.dead.is_empty();
        if is_earlier || self.delayed_status_writes.is_some() {
            return;
        }
        let observer = self.observer();
        for key in self.objects.keys() {
            assert_eq!(observer.engine().path(key), self.engine.path(key), "{key}");
        }
    }

    /// A core that was fed by watches and with the last reports.
    pub fn observer(&self) -> Observer<Reported> {
        let config = Config { cluster: "other".into(), ..self.config(true) };
        let mut observer = Observer::new(config, Reported::default());
        self.watched().into_iter().for_each(|event| observer.handle(event));
        for event in self.nats.events() {
            if let Event::Report(target, report) = event {
                observer.report(&target, report.into());
            }
        }
        observer.run();
        observer
    }

    /// The paths of all objects, as text.
    pub fn paths(&self) -> BTreeMap<Key, Vec<String>> {
        let path = |key| self.engine.path(key).iter().map(|hop| format!("{hop:?}")).collect();
        self.objects.keys().map(|key| (key.clone(), path(key))).collect()
    }
}

/// What hinders hops, as the reason of their condition.
fn hindrance<'a>(mut hops: impl Iterator<Item = &'a Hop<'a>> + Clone) -> ConditionReason {
    // Agents try again what they could not do in a pod.
    let is_retried = |hop: &Hop| {
        matches!(hop.part, Part::Interface { .. } | Part::PodBridge { .. })
            && matches!(hop.state, HopState::Refused { retryable: true, .. })
    };
    let is_refused = |hop: &Hop| matches!(hop.state, HopState::Refused { .. }) && !is_retried(hop);
    if hops.clone().any(is_refused) {
        ConditionReason::Refused
    } else if hops.all(|hop| hop.state.is_there()) {
        ConditionReason::Confirmed
    } else {
        ConditionReason::Waiting
    }
}

fn assert_agrees(key: &Key, status: &Status, hops: &[Hop<'_>]) {
    let phase = status.phase.unwrap();
    let find = |kind| status.conditions.iter().find(|condition| condition.kind == kind);
    let ready = find(ConditionType::Ready).unwrap().reason;
    let is_own_error = phase == Phase::Error && ready != ConditionReason::Refused;
    if matches!(phase, Phase::Terminating | Phase::Deleted) || is_own_error {
        return;
    }
    // An attachment is as ready for other pods.
    let decides = |hop: &&Hop| {
        key.kind != Kind::L2ServiceAttachment || hop.part.condition() != ConditionType::PodsReady
    };
    let deciding = hops.iter().filter(decides);
    let expected = hindrance(deciding.clone());
    if phase == Phase::Ready {
        // It waits without a change of its phase.
        assert_ne!(expected, ConditionReason::Refused, "{key}: {hops:?}");
    } else {
        if status.message.starts_with("waits for the probes:") {
            return assert_eq!(expected, ConditionReason::Confirmed, "{key}: {hops:?}");
        }
        assert_eq!(ready, expected, "{key}: {} {hops:?}", status.message);
        let messages: Vec<String> = deciding.clone().filter_map(Hop::message).collect();
        assert!(messages.contains(&status.message), "{key}: {} {messages:?}", status.message);
    }
    // A session that is not established, or that its node has no interface for.
    let is_down = |hop: &Hop| {
        let is_of_session = matches!(hop.part, Part::Session { .. } | Part::Network { .. });
        is_of_session && matches!(hop.state, HopState::Missing(_))
    };
    let is_silent =
        deciding.clone().any(|hop| matches!(hop.state, HopState::Unreachable { .. }) || is_down(hop));
    let degraded = find(ConditionType::Degraded).map(|degraded| degraded.reason);
    let is_degraded = degraded == Some(ConditionReason::Unreachable);
    assert_eq!(is_degraded, is_silent && phase == Phase::Ready, "{key}: {hops:?}");
    for kind in [ConditionType::FabricReady, ConditionType::NodesReady, ConditionType::NadReady] {
        let Some(condition) = find(kind).filter(|_| phase != Phase::Ready) else { continue };
        let own = hops.iter().filter(|hop| hop.part.condition() == kind);
        assert_eq!(condition.reason, hindrance(own), "{key}: {kind}: {hops:?}");
    }
    if let Some(condition) = find(ConditionType::PodsReady) {
        let own = hops.iter().filter(|hop| hop.part.condition() == ConditionType::PodsReady);
        assert_eq!(condition.reason, hindrance(own), "{key}: {hops:?}");
    }
}

/// A rejection by a driver whose device does not answer for this item.
fn unanswered(item: Item) -> Rejection {
    Rejection { retryable: true, unreachable: true, ..rejection(item, "no answer") }
}

/// The reason of the condition Degraded.
fn degraded(w: &World, key: &Key) -> Option<ConditionReason> {
    condition(&w.statuses[key], "Degraded").map(|condition| condition.reason)
}

/// The states of the hops of a tier, without those that are confirmed.
fn states<'a>(w: &'a World, key: &Key, tier: Tier) -> Vec<HopState<'a>> {
    let hops = w.engine.path(key).into_iter();
    let hops = hops.filter(|hop| hop.part.tier() == tier && hop.state != HopState::Confirmed);
    hops.map(|hop| hop.state).collect()
}

#[test]
fn path_leads_from_pods_to_the_gateway() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_pod_and_settle(pod("p", "node1", &[("attach.eno.k8s.io/a", "")]));
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
    let mut parts: BTreeMap<Tier, Vec<String>> = BTreeMap::new();
    for Hop { part, state } in w.engine.path(&a) {
        assert_eq!(state, HopState::Confirmed, "{part}");
        parts.entry(part.tier()).or_default().push(part.to_string());
    }
    assert_eq!(parts[&Tier::Pods], ["Pod p"]);
    assert_eq!(parts[&Tier::Interfaces], ["NetworkAttachmentDefinition", "link a on Node node1"]);
    assert_eq!(
        parts[&Tier::Bridges][..2],
        ["Node node1: bridge br-cp", "Node node1: bridge br-cp: VLAN 100"]
    );
    assert_eq!(parts[&Tier::Nics][0], "Node node1: NIC eth1");
    assert_eq!(parts[&Tier::Leaves][0], "FabricDevice leaf1: VLAN 100 on port e1");
    assert_eq!((parts[&Tier::Leaves].len(), parts[&Tier::Spines].len()), (4, 8));
    assert_eq!(parts[&Tier::Gateways], ["FabricDevice leaf2: VLAN 100 on port gw"]);
    let subnets = Key::cluster(Kind::PhysicalNetwork, &to_name("dc"));
    assert_eq!(w.engine.path(&subnets), []);
}

#[test]
fn configuration_of_a_target_that_does_not_answer_is_there() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    for (target, tier, name) in
        [(switch("leaf1"), Tier::Leaves, "b"), (node_target("node1"), Tier::Bridges, "c")]
    {
        w.report_unreachable(&target);
        w.settle();
        let silent = HopState::Unreachable { reason: "connect: refused", was_confirmed: true };
        assert_eq!(states(&w, &a, tier), [silent.clone(), silent], "{target}");
        assert_eq!((w.phase(&a), degraded(&w, &a)), (Phase::Ready, Some(ConditionReason::Unreachable)));
        // What is there counts for a new attachment too.
        let b = w.apply_and_settle(attachment(name, &["s"], "cp"));
        assert_eq!((w.phase(&b), degraded(&w, &b)), (Phase::Ready, Some(ConditionReason::Unreachable)));
        w.delete_and_settle(&b);
        w.run_driver_again(&target);
        assert_eq!((states(&w, &a, tier), degraded(&w, &a)), (vec![], None), "{target}");
    }
}

#[test]
fn item_that_does_not_answer_is_not_refused() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    let nad = Target::Nad("ns".into(), "a".into());
    let port = Item::port_vlan("e1", vid(100));
    for (target, item, tier) in [
        (switch("leaf1"), port, Tier::Leaves),
        (node_target("node1"), Item::port("br-cp"), Tier::Bridges),
        (nad, Item::TARGET, Tier::Interfaces),
    ] {
        w.reject(&target, &[unanswered(item.clone())]);
        let silent = HopState::Unreachable { reason: "no answer", was_confirmed: false };
        assert_eq!(states(&w, &a, tier), [silent], "{target}");
        let expected = (Phase::Ready, Some(ConditionReason::Unreachable));
        assert_eq!((w.phase(&a), degraded(&w, &a)), expected, "{target}: {}", w.message(&a));
        w.reject(&target, &[unanswered(item.clone()), rejection(item, "no")]);
        let refused = HopState::Refused { reason: "no", retryable: false };
        assert_eq!((w.phase(&a), states(&w, &a, tier)), (Phase::Error, vec![refused]), "{target}");
        w.reject(&target, &[]);
        assert_eq!((w.phase(&a), degraded(&w, &a)), (Phase::Ready, None), "{target}");
    }
}

#[test]
fn network_waits_for_a_switch_with_a_part_that_does_not_answer() {
    let mut w = split_fabric();
    w.rejections.insert(switch("spine1"), vec![unanswered(Item::vlan(vid(150)))]);
    let s = w.apply(service("s", 150, &["dc"]));
    w.apply_and_settle(attachment("a", &["s"], "left"));
    // The change is on no switch, as if spine1 had refused it.
    let reason = "FabricDevice spine1: VLAN 150: no answer";
    assert_eq!((w.phase(&s), w.message(&s), w.carrying_ports(150)), (Phase::Pending, reason, vec![]));
    let silent = HopState::Unreachable { reason, was_confirmed: false };
    assert!(states(&w, &s, Tier::Spines).contains(&silent));
    w.assert_paths_agree();
    w.rejections.clear();
    w.elapse_backoff_and_settle();
    assert_eq!((w.phase(&s), states(&w, &s, Tier::Spines)), (Phase::Ready, vec![]));
}

#[test]
fn interface_that_does_not_answer_is_waited_for() {
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    let item = Item::link("uid-a", "PodConfig/c/pc0");
    w.rejections.insert(node_target("node1"), vec![unanswered(item)]);
    w.apply_pod_and_settle(pod("a", "node1", &[("podconfig", "c")]));
    let message = "link pc0 on Node node1 waits: no answer";
    assert_eq!((w.phase(&c), w.message(&c)), (Phase::Pending, &*format!("Pod a: {message}")));
    assert_eq!(pod_entry(&w, &c, "a").problem.as_deref(), Some(message));
    let silent = HopState::Unreachable { reason: "no answer", was_confirmed: false };
    assert_eq!(states(&w, &c, Tier::Interfaces), [silent]);
    w.reject(&node_target("node1"), &[]);
    assert_eq!(w.phase(&c), Phase::Ready);
}

#[test]
fn what_a_node_refuses_does_not_count_while_it_is_not_ready() {
    let mut w = World::with_agents();
    let cp = Key::cluster(Kind::ConnectionPoint, &to_name("cp"));
    let item = Item::port("br-cp");
    let refused = (rejection(item.clone(), "no"), Phase::Error, None);
    let silent = (unanswered(item), Phase::Ready, Some(ConditionReason::Unreachable));
    for (rejection, phase, reason) in [refused, silent] {
        w.reject(&node_target("node1"), &[rejection]);
        assert_ne!((w.phase(&cp), degraded(&w, &cp)), (Phase::Ready, None));
        w.apply_node("node1", true, false);
        w.settle();
        assert_eq!((w.phase(&cp), degraded(&w, &cp)), (Phase::Ready, None), "{}", w.message(&cp));
        w.assert_paths_agree();
        w.apply_node("node1", true, true);
        w.settle();
        assert_eq!((w.phase(&cp), degraded(&w, &cp)), (phase, reason));
    }
}

/// A switch reads back its last command, but for a VLAN on a port.
fn report_without(w: &mut World, name: &str, id: u16, port: &str) {
    let target = switch(name);
    let desired = w.commands[&target].clone();
    let Some(mut applied) = as_fabric(&desired).map(FabricDesired::carried_out) else { unreachable!() };
    let Applied::Fabric { ports, .. } = &mut applied else { unreachable!() };
    ports.get_mut(port).unwrap().remove(vid(id));
    w.report(&target, Outcome::Applied, Some(applied), Vec::new());
    w.settle();
}

#[test]
fn each_port_of_a_switch_counts_and_not_only_its_first() {
    let mut w = World::leaf_spine();
    w.settle();
    w.silent.insert(switch("leaf2"));
    let s = w.apply(service("s", 100, &[]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    report_without(&mut w, "leaf2", 100, "e2");
    let message = "FabricDevice leaf2: VLAN 100 on port e2 is not confirmed yet";
    assert_eq!((w.phase(&s), w.message(&s)), (Phase::Pending, message));
}

#[test]
fn message_of_an_attachment_to_two_services_names_the_first_hop_whatever_reports() {
    let (mut w, ..) = ready_world();
    w.silent.insert(switch("leaf1"));
    w.apply(service("t", 201, &[]));
    let b = w.apply(attachment("b", &["s", "t"], "cp"));
    w.settle();
    assert_eq!(w.message(&b), "FabricDevice leaf1: VLAN 201 on port e1 is not confirmed yet");
    report_without(&mut w, "leaf2", 100, "e1");
    assert_eq!(w.message(&b), "FabricDevice leaf2: VLAN 100 on port e1 is not confirmed yet");
}

#[test]
fn removal_does_not_wait_for_a_switch_that_is_gone() {
    let mut w = split_fabric();
    w.apply(service("s", 150, &["dc"]));
    w.apply(attachment("b", &["s"], "right"));
    let a = w.apply(attachment("a", &["s"], "left"));
    w.settle();
    w.silent.insert(switch("spine1"));
    w.delete(&a);
    w.settle();
    assert!(w.message(&a).starts_with("FabricDevice spine1: "), "{}", w.message(&a));
    // Somebody takes the finalizer off the FabricDevice.
    let spine1 = device_key("spine1");
    w.objects.remove(&spine1);
    w.engine.handle(Event::ObjectGone(spine1));
    w.settle();
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}
