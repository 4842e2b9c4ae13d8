//! Random histories: whatever happens in whatever order, the same world leads to the same state, a new engine
//! finds nothing to do, and when everything is deleted nothing is left.

use std::collections::BTreeMap;

use eno_core::spec::Spec;
use eno_core::{Key, Kind, Target};
use eno_schemas::{Desired, Phase, VlanId, VlanSet};
use proptest::prelude::*;

#[allow(clippy::wildcard_imports, reason = "the words that worlds are told in")]
use crate::world::*;
#[derive(Clone, Debug)]
enum Step {
    Service { name: u8, vid: u16, gateway: bool },
    Attachment { name: u8, services: Vec<u8>, point: u8 },
    Delete(u8),
    Node { name: u8, inside: bool },
    Silence(u8),
    Listen,
    Pod { attachment: u8, there: bool },
    Settle,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6, 100u16..104, any::<bool>()).prop_map(|(name, vid, gateway)| Step::Service { name, vid, gateway }),
        4 => (0u8..6, proptest::collection::vec(0u8..6, 1..4), 0u8..3)
            .prop_map(|(name, services, point)| Step::Attachment { name, services, point }),
        3 => (0u8..12).prop_map(Step::Delete),
        1 => (1u8..5, any::<bool>()).prop_map(|(name, inside)| Step::Node { name, inside }),
        1 => (0u8..4).prop_map(Step::Silence),
        1 => Just(Step::Listen),
        1 => (0u8..6, any::<bool>()).prop_map(|(attachment, there)| Step::Pod { attachment, there }),
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
        let mut bare = point("cp1", None);
        let Ok(Spec::ConnectionPoint(spec)) = &mut bare.spec else { unreachable!() };
        spec.interfaces.clear();
        spec.cnis.truncate(1);
        world.apply(bare);
        world.apply(point("cp2", Some("pool")));
        world.settle();
        Self { world, pods: BTreeMap::new(), nodes: BTreeMap::new(), clock: 1000 }
    }

    /// Deleted objects are not edited: the API server would take it, but nobody would look.
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

    fn pod(&mut self, attachment: u8, there: bool) {
        let nad = format!("a{attachment}");
        let uses: &[&str] = if there { &[&nad] } else { &[] };
        self.world.pod(user(&format!("pod{attachment}"), uses));
    }

    fn take(&mut self, step: &Step) {
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
                    0..6 => Key::cluster(Kind::L2Service, &arc(&format!("s{n}"))),
                    _ => Key::namespaced(Kind::L2ServiceAttachment, &arc("ns"), &arc(&format!("a{}", n - 6))),
                };
                if self.world.objects.contains_key(&key) {
                    self.world.delete(&key);
                }
            }
            Step::Node { name, inside } => {
                self.nodes.insert(*name, *inside);
                self.world.node(&format!("node{name}"), *inside, true);
            }
            Step::Silence(n) => {
                self.world.silent.insert(Target::Fabric(DEVICES[usize::from(*n)].into()));
            }
            Step::Listen => self.world.silent.clear(),
            Step::Pod { attachment, there } => {
                self.pods.insert(*attachment, *there);
                self.pod(*attachment, *there);
            }
            Step::Settle => self.world.settle(),
            Step::Restart => {
                // What is on its way is lost with the process that waited for it; the drivers still have it.
                self.world.settle();
                self.world.restart();
            }
        }
    }

    /// One owner per VLAN and switch; no VLAN on a port that the switch doesn't have.
    fn check(&self) {
        for desired in self.world.targets.values() {
            let Desired::Fabric(fabric) = desired else { continue };
            let vlans: VlanSet = fabric.vlans.iter().map(|vlan| vlan.vid).collect();
            for vlan in &fabric.vlans {
                assert_eq!(vlan.owners.len(), 1, "{} {:?}", vlan.vid, vlan.owners);
            }
            for port in &fabric.ports {
                assert!(port.vlans.is_subset(&vlans));
            }
        }
        for (key, phases) in &self.world.phases {
            for pair in phases.windows(2) {
                let legal = match pair[0] {
                    Phase::Terminating => pair[1] == Phase::Deleted,
                    Phase::Deleted => false,
                    _ => pair[1] != Phase::Deleted && pair[0] != pair[1],
                };
                assert!(legal, "{key}: {phases:?}");
            }
        }
    }
}

impl History {
    fn run(steps: &[Step]) -> Self {
        let mut history = Self::new();
        for step in steps {
            history.take(step);
        }
        history.world.silent.clear();
        history.world.settle();
        history.check();
        history
    }

    /// What is ready is really there.
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
                let carriers = self.world.carriers(service.granted_id.map_or(0, VlanId::get));
                let inside = self.nodes.get(&1).copied().unwrap_or(true);
                let managed = &*spec.connection_point != "cp1";
                assert!(
                    !managed || !inside || carriers.contains(&"leaf1:e1".to_owned()),
                    "{key}: {carriers:?}"
                );
            }
        }
    }

    /// When all is deleted, nothing is left.
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
        for (target, desired) in &self.world.targets {
            let Desired::Fabric(fabric) = desired else { panic!("{target} is left") };
            assert!(fabric.vlans.is_empty() && fabric.ports.iter().all(|port| port.vlans.is_empty()));
        }
    }
}

/// No two services ever want one VLAN.
fn apart(mut steps: Vec<Step>) -> Vec<Step> {
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
    fn services_that_contend_for_vlans_never_share_one(steps in proptest::collection::vec(step(), 1..60)) {
        let mut history = History::run(&steps);
        history.check_ready();
        history.delete_all();
    }

    /// A new engine, told everything in another order, finds nothing to do.
    #[test]
    fn a_new_engine_finds_nothing_to_do(steps in proptest::collection::vec(step(), 1..60).prop_map(apart)) {
        let mut history = History::run(&steps);
        history.check_ready();
        let (statuses, published) = (history.world.statuses.clone(), history.world.published);
        history.world.restart();
        history.world.settle();
        assert_eq!(history.world.published, published);
        for (key, status) in &statuses {
            let now = &history.world.statuses[key];
            assert_eq!((now.phase, &now.message), (status.phase, &status.message), "{key}");
            assert_eq!(now, status, "{key}");
        }
        history.delete_all();
    }
}
