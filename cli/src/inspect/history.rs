//! The history of an object, a switch or a namespace, read of the streams of NATS.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::follow::ListScope;
use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_engine::trace::{self, Messages, ObjectRef};
use eno_schemas::{Delivery, Report};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::inspect::output::name;
use crate::inspect::path::{Fabric, networks, vlans_and_ports};
use crate::inspect::timeline::{Entry, is_within, of_delivery, of_report, of_transition, unsettled_periods};

/// Reports are read of so many targets at a time.
pub(crate) const CONCURRENT_READS: usize = 8;

/// Whose history is shown.
#[derive(Clone, Debug)]
pub(crate) enum Whose {
    /// That of every object of the name, also of former ones.
    Any,
    /// Only that of the objects with these uids. Who may list one namespace sees no history of a former namespace of the
    /// same name.
    Present(BTreeSet<String>),
}

impl Whose {
    /// For a viewer who sees `world`: every history of kinds that he may list in the whole cluster.
    pub(crate) fn of(world: &ClusterState, kind: Kind) -> Self {
        if world.scope_of(kind) == ListScope::Cluster {
            return Self::Any;
        }
        let own = world.keys().filter(|key| key.kind == kind).filter_map(|key| world.object(key));
        Self::Present(own.filter_map(|object| object.metadata.uid.clone()).collect())
    }

    fn covers(&self, uid: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Present(uids) => uids.contains(uid),
        }
    }

    fn covers_delivery(&self, delivery: &Delivery) -> bool {
        let uid = delivery.transition.rsplit_once('-').map_or("", |(uid, _)| uid);
        self.covers(uid)
    }
}

/// What the history of an object is read of.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The object.
    pub key: Key,
    /// The drivers and targets on its way.
    pub targets: Vec<(String, String)>,
    /// Whose history is shown.
    pub whose: Whose,
    /// The viewer sees the texts of drivers.
    pub sees_texts: bool,
}

/// What happened to an object in the last 7 days, the oldest first: its phases, its callbacks, and what drivers did on its
/// way while it was not settled. Of a switch: all that its driver did.
pub(crate) async fn of_object(messages: &Messages, subject: &Subject) -> anyhow::Result<Vec<Entry>> {
    let Subject { key, targets, whose, sees_texts } = subject;
    let object = ObjectRef { kind: key.kind.as_str(), namespace: key.namespace(), name: &key.name };
    let mut transitions = trace::transitions(messages, object).await?;
    transitions.retain(|transition| whose.covers(&transition.uid));
    let mut entries: Vec<Entry> = transitions.iter().map(of_transition).collect();
    let name = key.to_string();
    let deliveries = trace::deliveries(messages, object).await?;
    let deliveries = deliveries.iter().filter(|delivery| whose.covers_delivery(delivery));
    entries.extend(deliveries.map(|delivery| of_delivery(delivery, &name)));
    let periods = unsettled_periods(&transitions);
    let is_device = key.kind == Kind::FabricDevice;
    let reports: Vec<Vec<Report>> = stream::iter(targets.clone())
        .map(|(driver, target)| async move { trace::reports(messages, &driver, &target).await })
        .buffered(CONCURRENT_READS)
        .try_collect()
        .await?;
    let meanwhile = |report: &&Report| is_device || is_within(&report.at, &periods);
    let reports = reports.iter().flatten().filter(meanwhile);
    entries.extend(reports.filter_map(|report| of_report(report, *sees_texts)));
    entries.sort();
    Ok(entries)
}

/// The phases and callbacks of the objects of a namespace, by kind, the oldest first. Kinds that are not named are left
/// out.
pub(crate) async fn of_namespace(
    messages: &Messages,
    namespace: &str,
    kinds: &BTreeMap<&str, Whose>,
) -> anyhow::Result<Vec<Entry>> {
    let transitions = trace::transitions_in(messages, namespace).await?;
    let mut objects = BTreeMap::new();
    let mut entries = Vec::new();
    for transition in &transitions {
        if kinds.get(transition.kind.as_str()).is_some_and(|whose| whose.covers(&transition.uid)) {
            let object = name(&transition.kind, transition.namespace.as_deref(), &transition.name);
            objects.insert(transition.id.as_str(), object);
            entries.push(of_transition(transition));
        }
    }
    let deliveries = trace::deliveries_in(messages, namespace).await?;
    entries.extend(
        deliveries
            .iter()
            .filter_map(|delivery| Some(of_delivery(delivery, objects.get(delivery.transition.as_str())?))),
    );
    entries.sort();
    Ok(entries)
}

/// The targets of an object, each with its driver. For a deleted object they are unknown, so all switches are taken.
pub(crate) fn targets(world: &ClusterState, fabric: &Fabric, key: &Key) -> Vec<(String, String)> {
    let networks = networks(world, key);
    let is_vrf = key.kind == Kind::VRF;
    let gone = (is_vrf || key.kind.leads_over_networks()) && world.object(key).is_none();
    let own = key.to_string();
    let mut targets: Vec<(String, String)> = Vec::new();
    for (switch, (driver, fabric)) in &fabric.switches {
        let itself = key.kind == Kind::FabricDevice && *key.name == **switch;
        let has_vrf = is_vrf && fabric.vrfs.iter().any(|vrf| vrf.owner == own);
        if itself || gone || has_vrf || !vlans_and_ports(fabric, &networks).0.is_empty() {
            targets.push((driver.clone(), switch.clone()));
        }
    }
    if let (Kind::L2ServiceAttachment, Some(namespace)) = (key.kind, key.namespace()) {
        targets.push(("nad".into(), format!("{namespace}/{}", key.name)));
    }
    targets
}
