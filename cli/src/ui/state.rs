//! What the pages show: the objects, the desired state that follows from them, and the last messages of NATS.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eno_engine::callbacks::Undelivered;
use eno_engine::follow::{ClusterChange, ListScope};
use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_engine::observation::{DesiredState, Observation};
use eno_engine::trace::StoredMessages;
use eno_engine::{MessageChange, stored_messages};
use eno_schemas::{DriverHello, Subject};
use kube::api::DynamicObject;
use serde::Serialize;

use crate::inspect::cabling::Cabling;
use crate::inspect::end_to_end::Inputs;
use crate::inspect::path::{Fabric, NAD_DRIVER, NODE_DRIVER, Reports};

/// More changed objects than this are not named in an event.
const MAX_NAMED: usize = 100;

/// What the pages show.
pub(super) struct State {
    /// The objects that the viewer may read.
    pub world: ClusterState,
    /// The core that knows them and the reports.
    observation: Mutex<Observation>,
    /// What it does not know yet.
    news: News,
    /// What follows from them for nodes and NetworkAttachmentDefinitions.
    pub desired: DesiredState,
    /// What follows for switches.
    pub fabric: Fabric,
    /// Where ports lead.
    pub cabling: Cabling,
    /// The last reports of drivers.
    pub reports: Reports,
    /// The processes of drivers that are alive, by key.
    pub drivers: BTreeMap<String, DriverHello>,
    /// The callbacks that were not taken, by key; `None`: they are not known.
    pub undelivered: Option<BTreeMap<String, Undelivered>>,
    /// Counts the changes.
    pub revision: u64,
}

/// Messages that the core does not know.
#[derive(Default)]
struct News {
    /// Drivers came or went.
    drivers: bool,
    /// The drivers and targets of new reports.
    reports: BTreeSet<(String, String)>,
}

/// What a batch of changes has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Objects.
    pub objects: BTreeSet<String>,
    /// FabricDevices with a new report.
    pub devices: BTreeSet<String>,
    /// Something else.
    pub other: bool,
    /// The desired state may be another one: since a spec changed, or a node, a pod or a namespace.
    pub desired: bool,
    /// The desired state may be another one, since a status changed.
    pub statuses: bool,
}

/// A change of the state, as browsers get it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct StateEvent {
    /// The count of changes.
    pub revision: u64,
    /// The objects that changed; `None`: many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<Vec<String>>,
    /// The FabricDevices with a new report; `None`: many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<String>>,
}

impl Changed {
    /// Nothing has changed.
    pub(super) fn is_empty(&self) -> bool {
        self == &Self::default()
    }

    /// The event of this change.
    pub(super) fn event(self, revision: u64) -> StateEvent {
        let named = |names: BTreeSet<String>| (names.len() <= MAX_NAMED).then(|| names.into_iter().collect());
        StateEvent { revision, objects: named(self.objects), devices: named(self.devices) }
    }
}

impl State {
    /// The state of these objects, without messages.
    pub(super) fn new(world: ClusterState) -> Self {
        let cabling = Cabling::new(&world);
        Self {
            world,
            observation: Mutex::new(Observation::new(&ClusterState::default())),
            news: News::default(),
            desired: DesiredState::default(),
            fabric: Fabric::default(),
            cabling,
            reports: Reports::unknown(),
            drivers: BTreeMap::new(),
            undelivered: None,
            revision: 0,
        }
    }

    /// The core, which knows the objects as of the last computation of the desired state.
    pub(super) fn observation(&self) -> MutexGuard<'_, Observation> {
        self.observation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What paths are computed of.
    pub(super) fn inputs<'a>(&'a self, observation: &'a Observation) -> Inputs<'a> {
        let Self { world, desired, fabric, reports, .. } = self;
        Inputs { world, observation, desired, fabric, reports }
    }

    /// Feeds the core with the messages since the last call.
    pub(super) fn observe(&mut self) {
        let News { drivers, reports } = std::mem::take(&mut self.news);
        if drivers {
            self.observation().set_drivers(self.drivers.values());
        }
        if !reports.is_empty() {
            let reports = reports.iter().filter_map(|(driver, target)| {
                Some((driver.as_str(), target.as_str(), self.reports.get(driver, target)?))
            });
            self.observation().catch_up(reports);
        }
    }

    /// Makes a change of the cluster.
    pub(super) fn apply(&mut self, change: ClusterChange, changed: &mut Changed) {
        self.forget_reports(&change);
        let object = match &change {
            ClusterChange::Object(key, object) => {
                let before = self.world.object(key);
                let is_spec = match (before, object) {
                    (Some(before), Some(after)) => inputs_of(before) != inputs_of(after),
                    (before, after) => before.is_some() != after.is_some(),
                };
                Some((key.to_string(), is_spec))
            }
            _ => None,
        };
        if !self.world.apply(change) {
            return;
        }
        if let Some((object, is_spec)) = object {
            changed.objects.insert(object);
            changed.desired |= is_spec;
            changed.statuses = true;
        } else {
            (changed.other, changed.desired) = (true, true);
        }
    }

    /// Removes the reports on a target that is gone: the stream tells nothing of it.
    fn forget_reports(&mut self, change: &ClusterChange) {
        match change {
            ClusterChange::Object(key, None) if key.kind == Kind::FabricDevice => {
                if let Some((driver, _)) = self.fabric.switches.get(&*key.name) {
                    self.reports.set(driver, &key.name, None);
                }
            }
            ClusterChange::Object(key, None) if key.kind == Kind::L2ServiceAttachment => {
                self.reports.set(NAD_DRIVER, &format!("{}/{}", key.namespace, key.name), None);
            }
            ClusterChange::Node(name, None) => self.reports.set(NODE_DRIVER, name, None),
            _ => {}
        }
    }

    /// True when the viewer may know of a target.
    fn may_know(&self, driver: &str, target: &str) -> bool {
        match target.split_once('/') {
            Some((namespace, name)) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, &namespace.into(), &name.into());
                self.world.object(&key).is_some()
            }
            None if driver == NODE_DRIVER => self.world.has_node(target),
            None => self.world.object(&Key::cluster(Kind::FabricDevice, &target.into())).is_some(),
        }
    }

    /// NATS is asked from now on.
    pub(super) fn begin_messages(&mut self) {
        self.reports = Reports::new(BTreeMap::new(), &self.world);
        self.undelivered = Some(BTreeMap::new());
    }

    /// Makes the changes of the messages of a dump.
    pub(super) fn apply_stored(&mut self, stored: &dyn StoredMessages) {
        let [reports, drivers, callbacks] = stored_messages(stored);
        if reports.is_some() {
            self.reports = Reports::new(BTreeMap::new(), &self.world);
        }
        self.undelivered = callbacks.is_some().then(BTreeMap::new);
        let mut changed = Changed::default();
        for change in [reports, drivers, callbacks].into_iter().flatten().flatten() {
            self.apply_message(change, &mut changed);
        }
        self.observe();
    }

    /// Makes a change of what NATS has last.
    pub(super) fn apply_message(&mut self, change: MessageChange, changed: &mut Changed) {
        match change {
            MessageChange::Report(subject, report) => {
                let Ok(Subject::Result(name)) = subject.parse() else { return };
                // Other targets have names of objects that the viewer may not read.
                if self.may_know(&name.driver, &name.target) {
                    changed.other = true;
                    if !name.target.contains('/') && name.driver != NODE_DRIVER {
                        changed.devices.insert(name.target.to_string());
                        // The engine has commanded something, perhaps for an object that was not read.
                        changed.statuses |= !self.world.decides_switches();
                    }
                }
                self.news.reports.insert((name.driver.to_string(), name.target.to_string()));
                self.reports.set(&name.driver, &name.target, report.map(Arc::from));
            }
            MessageChange::Driver(key, Some(hello)) => {
                self.news.drivers = true;
                changed.other |= self.drivers.insert(key, hello.clone()) != Some(hello);
            }
            MessageChange::Driver(key, None) => {
                self.news.drivers = true;
                changed.other |= self.drivers.remove(&key).is_some();
            }
            MessageChange::Undelivered(key, Some(one)) => {
                changed.other |= may_know(&self.world, &one);
                self.undelivered.get_or_insert_default().insert(key, *one);
            }
            MessageChange::Undelivered(key, None) => {
                changed.other |= self.undelivered.as_mut().and_then(|all| all.remove(&key)).is_some();
            }
        }
    }

    /// Replaces all objects. What NATS said before stays.
    pub(super) fn set_world(&mut self, world: ClusterState) {
        self.world = world;
        self.reports.set_viewer(&self.world);
    }

    /// Sets what follows from the objects, and leaves the former core in the place of the new one: its end takes time.
    /// False: it is the same as before.
    pub(super) fn set_desired(
        &mut self,
        observation: &mut Observation,
        desired: DesiredState,
        fabric: Fabric,
    ) -> bool {
        let cabling = Cabling::new(&self.world);
        if !self.drivers.is_empty() {
            observation.set_drivers(self.drivers.values());
        }
        observation.catch_up(self.reports.iter());
        std::mem::swap(&mut *self.observation(), observation);
        let changes = (&self.cabling, &self.desired, &self.fabric) != (&cabling, &desired, &fabric);
        (self.cabling, self.desired, self.fabric) = (cabling, desired, fabric);
        changes
    }
}

/// What the desired state is computed of, besides the status.
fn inputs_of(object: &DynamicObject) -> impl PartialEq + use<'_> {
    let meta = &object.metadata;
    (meta.generation, &meta.deletion_timestamp, &meta.labels, &meta.annotations)
}

/// True when the viewer may know of an object's callbacks. Who may list only one namespace sees those of the objects that
/// are there: a namespace of the same name may have had another tenant.
pub(super) fn may_know(world: &ClusterState, one: &Undelivered) -> bool {
    let Some(kind) = Kind::of_name(&one.kind) else { return false };
    let name = one.name.as_str().into();
    let key = match &one.namespace {
        Some(namespace) => Key::namespaced(kind, &namespace.as_str().into(), &name),
        None => Key::cluster(kind, &name),
    };
    world.scope_of(kind) == ListScope::Cluster
        || world.object(&key).is_some_and(|object| object.metadata.uid.as_deref() == Some(&one.uid))
}
