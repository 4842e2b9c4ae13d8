//! Properties over random histories of services and attachments. A new engine finds nothing to do, and deleted objects
//! leave nothing.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::kinds::{LeadsTo, Spec};
use eno_core::{Key, Kind, Name, Status, Target};
use eno_schemas::{Desired, Phase, VlanId, VlanSet};
use proptest::prelude::*;

use crate::fixtures::{attachment_key, point_without_nics, to_device, to_node};
use crate::world::*;

#[derive(Clone, Debug)]
enum Step {
    Service {
        name: u8,
        vid: u16,
        gateway: bool,
    },
    Attachment {
        name: u8,
        services: Vec<u8>,
        point: u8,
    },
    Delete(u8),
    Node {
        name: u8,
        in_pool: bool,
    },
    /// The ports other than those to nodes: the uplinks of `leaf2`, and the gateways of `leaf2` and `leaf1`.
    Cabling {
        uplinks: bool,
        gateway: bool,
        other_gateway: bool,
    },
    Unmanaged(bool),
    Silence(u8),
    EndSilence,
    Pod {
        attachment: u8,
        exists: bool,
    },
    Settle,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6, 100u16..104, any::<bool>()).prop_map(|(name, vid, gateway)| Step::Service { name, vid, gateway }),
        4 => (0u8..6, proptest::collection::vec(0u8..6, 1..4), 0u8..3)
            .prop_map(|(name, services, point)| Step::Attachment { name, services, point }),
        3 => (0u8..12).prop_map(Step::Delete),
        1 => (1u8..5, any::<bool>()).prop_map(|(name, in_pool)| Step::Node { name, in_pool }),
        2 => any::<(bool, bool, bool)>().prop_map(|(uplinks, gateway, other_gateway)| Step::Cabling { uplinks, gateway, other_gateway }),
        1 => any::<bool>().prop_map(Step::Unmanaged),
        1 => (0u8..4).prop_map(Step::Silence),
        1 => Just(Step::EndSilence),
        1 => (0u8..6, any::<bool>()).prop_map(|(attachment, exists)| Step::Pod { attachment, exists }),
        3 => Just(Step::Settle),
        1 => Just(Step::Restart),
    ]
}

struct History {
    world: World,
    pods: BTreeMap<u8, bool>,
    nodes: BTreeMap<u8, bool>,
    clock: i64,
}

impl History {
    fn new() -> Self {
        let mut world = World::leaf_spine();
        world.apply(point_without_nics("cp1"));
        world.apply_and_settle(connection_point("cp2", Some("pool")));
        Self { world, pods: BTreeMap::new(), nodes: BTreeMap::new(), clock: 1000 }
    }

    /// Skips objects that are being deleted, since the engine ignores their spec.
    fn apply(&mut self, object: eno_core::Object) {
        if self.world.objects.get(&object.key).is_some_and(|object| object.deleting) {
            return;
        }
        self.clock += 1;
        self.world.phases.entry(object.key.clone()).or_default();
        if !self.world.objects.contains_key(&object.key) {
            self.world.phases.insert(object.key.clone(), Vec::new());
            self.world.statuses.remove(&object.key);
        }
        self.world.apply(created(object, self.clock));
    }

    fn pod(&mut self, attachment: u8, exists: bool) {
        let nad = format!("a{attachment}");
        let uses: &[&str] = if exists { &[&nad] } else { &[] };
        self.world.apply_pod(pod_using(&format!("pod{attachment}"), uses));
    }

    fn set_cabling(&mut self, uplinks: bool, gateway: bool, other_gateway: bool) {
        for (leaf, nodes, gateway) in
            [("leaf1", ["node1", "node2"], other_gateway), ("leaf2", ["node3", "node4"], gateway)]
        {
            let mut ports = vec![("e1", to_node(nodes[0])), ("e2", to_node(nodes[1]))];
            if uplinks || leaf == "leaf1" {
                ports.extend([("u1", to_device("spine1", leaf)), ("u2", to_device("spine2", leaf))]);
            }
            if gateway {
                ports.push(("gw", LeadsTo::PhysicalNetwork("dc".into())));
            }
            self.apply(device(leaf, &ports));
        }
    }

    fn run_step(&mut self, step: &Step) {
        match step {
            Step::Service { name, vid, gateway } => {
                let networks: &[&str] = if *gateway { &["dc"] } else { &[] };
                self.apply(service(&format!("s{name}"), *vid, networks));
            }
            Step::Attachment { name, services, point } => {
                let names: Vec<String> = services.iter().map(|name| format!("s{name}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let point = ["cp", "cp1", "cp2"][usize::from(*point)];
                self.apply(attachment(&format!("a{name}"), &names, point));
            }
            Step::Delete(n) => {
                let key = match n {
                    0..6 => Key::cluster(Kind::L2Service, &to_name(&format!("s{n}"))),
                    _ => attachment_key(&format!("a{}", n - 6)),
                };
                if self.world.objects.contains_key(&key) {
                    self.world.delete(&key);
                }
            }
            Step::Node { name, in_pool } => {
                self.nodes.insert(*name, *in_pool);
                self.world.apply_node(&format!("node{name}"), *in_pool, true);
            }
            Step::Cabling { uplinks, gateway, other_gateway } => {
                self.set_cabling(*uplinks, *gateway, *other_gateway);
            }
            Step::Unmanaged(unmanaged) => {
                let dc = &self.world.objects[&Key::cluster(Kind::PhysicalNetwork, &to_name("dc"))];
                let object = edit_spec(dc, |spec| {
                    let Spec::PhysicalNetwork(spec) = spec else { unreachable!() };
                    spec.unmanaged = *unmanaged;
                });
                self.world.apply(object);
            }
            Step::Silence(n) => {
                self.world.silent.insert(Target::Fabric(DEVICES[usize::from(*n)].into()));
            }
            Step::EndSilence => self.world.silent.clear(),
            Step::Pod { attachment, exists } => {
                self.pods.insert(*attachment, *exists);
                self.pod(*attachment, *exists);
            }
            Step::Settle => {
                self.world.settle();
                self.world.assert_paths_agree();
            }
            Step::Restart => {
                // The engine loses its in-flight state, but the drivers keep their commands.
                self.world.settle();
                self.world.restart();
            }
        }
    }

    /// Each VLAN of a switch has one owner, ports carry only VLANs of their switch, and transitions are legal.
    fn check(&self) {
        for desired in self.world.applied.values() {
            let Desired::Fabric(fabric) = desired else { continue };
            let vlans: VlanSet = fabric.vlans.iter().map(|vlan| vlan.vid).collect();
            for vlan in &fabric.vlans {
                assert_eq!(vlan.owners.len(), 1, "{} {:?}", vlan.vid, vlan.owners);
            }
            for port in &fabric.ports {
                assert!(port.vlans.is_subset(&vlans));
            }
        }
        self.world.assert_transitions_are_legal();
    }
}

impl History {
    fn run(steps: &[Step]) -> Self {
        let mut history = Self::new();
        for step in steps {
            history.run_step(step);
        }
        history.world.end_silence();
        history.check();
        history.world.assert_paths_agree();
        history
    }

    /// Ready attachments are applied.
    fn check_ready(&self) {
        for (key, status) in &self.world.statuses {
            let Some(Ok(Spec::Attachment(spec))) = self.world.objects.get(key).map(|object| &object.spec)
            else {
                continue;
            };
            if status.phase != Some(Phase::Ready) {
                continue;
            }
            assert!(self.world.nad(&key.namespace, &key.name).is_some(), "{key} has no NAD");
            for name in &spec.services {
                let service = &self.world.statuses[&Key::cluster(Kind::L2Service, name)];
                let carrying_ports = self.world.carrying_ports(service.granted_id.map_or(0, VlanId::get));
                let in_pool = self.nodes.get(&1).copied().unwrap_or(true);
                let managed = &*spec.connection_point != "cp1";
                assert!(
                    !managed || !in_pool || carrying_ports.contains(&"leaf1:e1".to_owned()),
                    "{key}: {carrying_ports:?}"
                );
            }
        }
    }

    /// Computes from the specs whether a port leads to the network of a service, and whether that and the ends of its
    /// attachments, which all have the same nodes, reach each other; `None`: unknown.
    fn reach(&self, service: &Status) -> Option<(bool, bool)> {
        let Some(Spec::Service(spec)) = service.realized.as_deref() else { return None };
        let managed = |point: &&Name| ***point != *"cp1";
        let points: Vec<&Name> = service.connection_points.iter().filter(managed).collect();
        if points.is_empty() && !service.connection_points.is_empty() {
            return None;
        }
        let mut cables: Vec<(Name, LeadsTo)> = Vec::new();
        let mut unmanaged = false;
        for object in self.world.objects.values() {
            match &object.spec {
                Ok(Spec::Device(device)) => {
                    let leads = device.ports.iter().map(|port| port.leads_to.clone());
                    cables.extend(leads.map(|lead| (object.key.name.clone(), lead)));
                }
                Ok(Spec::PhysicalNetwork(network)) => unmanaged = network.unmanaged,
                _ => {}
            }
        }
        let has_network = !spec.physical_networks.is_empty();
        let mut ends: BTreeSet<Name> = BTreeSet::new();
        let mut edges: Vec<(Name, Name)> = Vec::new();
        for (device, lead) in cables {
            match lead {
                LeadsTo::Node { node, .. } => {
                    let in_pool = self.world.nodes[&node].0.contains_key("pool");
                    ends.extend((!points.is_empty() && in_pool).then_some(device));
                }
                LeadsTo::Device { device: far, .. } => edges.push((device, far)),
                LeadsTo::PhysicalNetwork(network) if has_network => edges.push((device, network)),
                LeadsTo::PhysicalNetwork(_) => {}
            }
        }
        if !points.is_empty() && ends.is_empty() {
            return None;
        }
        // A managed PhysicalNetwork is an endpoint of its own.
        ends.extend((has_network && !unmanaged).then(|| to_name("dc")));
        let mut reached: BTreeSet<Name> = ends.first().cloned().into_iter().collect();
        let mut before = 0;
        while before < reached.len() {
            before = reached.len();
            for (a, b) in &edges {
                if reached.contains(a) || reached.contains(b) {
                    reached.extend([a.clone(), b.clone()]);
                }
            }
        }
        let has_port = !has_network || unmanaged || edges.iter().any(|(_, far)| **far == *"dc");
        Some((has_port, has_port && ends.is_subset(&reached)))
    }

    /// Objects are pending if and only if their endpoints do not reach each other.
    fn check_reachability(&self) {
        let pending = |status: &Status| match status.phase {
            Some(Phase::Pending) => Some(true),
            Some(Phase::Ready) => Some(false),
            _ => None,
        };
        for (key, status) in &self.world.statuses {
            let Some(pending) = pending(status).filter(|_| self.world.objects.contains_key(key)) else {
                continue;
            };
            let broken = match status.realized.as_deref() {
                // Tenants choose the ends of attachments, so these hinder no service.
                Some(Spec::Service(_)) => self.reach(status).is_some_and(|(has_port, _)| !has_port),
                Some(Spec::Attachment(spec)) => {
                    let in_pool = self.world.nodes.values().any(|(labels, _)| labels.contains_key("pool"));
                    let managed = *spec.connection_point != *"cp1" && in_pool;
                    let status_of = |name| &self.world.statuses[&Key::cluster(Kind::L2Service, name)];
                    let is_cut = |name| self.reach(status_of(name)).is_some_and(|(_, all)| !all);
                    managed && spec.services.iter().any(is_cut)
                }
                _ => false,
            };
            assert_eq!(pending, broken, "{key}: {:?} {}", status.phase, status.message);
        }
    }

    /// Deletes all services and attachments, and checks that nothing is left.
    fn delete_all(&mut self) {
        for attachment in self.pods.keys().copied().collect::<Vec<_>>() {
            self.pod(attachment, false);
        }
        let is_ours = |key: &&Key| matches!(key.kind, Kind::L2Service | Kind::L2ServiceAttachment);
        let ours: Vec<Key> = self.world.objects.keys().filter(is_ours).cloned().collect();
        for key in ours {
            self.world.delete(&key);
        }
        self.world.settle();
        self.check();
        assert_eq!(self.world.objects.keys().find(is_ours), None);
        for (target, desired) in &self.world.applied {
            let Desired::Fabric(fabric) = desired else { panic!("{target} is left") };
            assert!(fabric.vlans.is_empty() && fabric.ports.iter().all(|port| port.vlans.is_empty()));
        }
    }
}

/// Gives each service VLAN IDs of its own.
fn with_distinct_vlans(mut steps: Vec<Step>) -> Vec<Step> {
    for step in &mut steps {
        if let Step::Service { name, vid, .. } = step {
            *vid = 100 + u16::from(*name) * 10 + *vid % 2;
        }
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn contending_services_never_share_a_vlan(steps in proptest::collection::vec(step(), 1..60)) {
        let mut history = History::run(&steps);
        history.check_ready();
        history.check_reachability();
        history.delete_all();
    }

    /// A new engine that receives all events in another order finds nothing to do.
    #[test]
    fn new_engine_finds_nothing_to_do(steps in proptest::collection::vec(step(), 1..60).prop_map(with_distinct_vlans)) {
        History::run(&steps).new_engine_finds_nothing_to_do();
    }
}

impl History {
    /// A new engine finds nothing to do, and everything can be deleted.
    fn new_engine_finds_nothing_to_do(&mut self) {
        self.check_ready();
        self.check_reachability();
        let (statuses, published) = (self.world.statuses.clone(), self.world.published);
        let paths = self.world.paths();
        self.world.assert_observer_agrees();
        self.world.restart_and_settle();
        assert_eq!((self.world.published, self.world.paths()), (published, paths));
        for (key, status) in &statuses {
            let now = &self.world.statuses[key];
            assert_eq!((now.phase, &now.message), (status.phase, &status.message), "{key}");
            assert_eq!(now, status, "{key}");
        }
        self.delete_all();
    }
}

/// The count of pending changes falls to 0 without a command and a report.
#[test]
fn pending_changes_that_are_taken_back_are_none() {
    let cut = || Step::Cabling { uplinks: false, gateway: false, other_gateway: false };
    let service = |name, vid| Step::Service { name, vid, gateway: false };
    let steps = [
        cut(),
        service(2, 120),
        Step::Attachment { name: 1, services: vec![4, 2], point: 0 },
        service(4, 140),
        Step::Settle,
        cut(),
        Step::Delete(7),
        Step::Attachment { name: 2, services: vec![2, 4], point: 2 },
    ];
    History::run(&steps).new_engine_finds_nothing_to_do();
}
