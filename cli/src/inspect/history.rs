//! The history of an object, a switch or a namespace, read of the streams of NATS.

use std::collections::BTreeMap;

use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_engine::trace::{self, Messages, ObjectRef};
use eno_schemas::{Report, Transition};

use crate::inspect::output::name;
use crate::inspect::path::{Fabric, networks, vlans_and_ports};
use crate::inspect::timeline::{Entry, is_within, of_delivery, of_report, of_transition, unsettled_periods};

/// What happened to an object in the last 7 days, the oldest first: its phases, its callbacks, and what drivers did on its
/// way while it was not settled. Of a switch: all that its driver did.
pub(crate) async fn of_object(
    world: &ClusterState,
    fabric: &Fabric,
    messages: &Messages,
    key: &Key,
) -> anyhow::Result<Vec<Entry>> {
    let subject = ObjectRef { kind: key.kind.as_str(), namespace: key.namespace(), name: &key.name };
    let transitions = trace::transitions(messages, subject).await?;
    let mut entries: Vec<Entry> = transitions.iter().map(of_transition).collect();
    let object = key.to_string();
    let deliveries = trace::deliveries(messages, subject).await?;
    entries.extend(deliveries.iter().map(|delivery| of_delivery(delivery, &object)));
    let periods = unsettled_periods(&transitions);
    for (driver, target) in targets(world, fabric, key) {
        let reports = trace::reports(messages, &driver, &target).await?;
        let whole = key.kind == Kind::FabricDevice;
        let meanwhile = |report: &&Report| whole || is_within(&report.at, &periods);
        let texts = world.lists_all_kinds();
        entries.extend(reports.iter().filter(meanwhile).filter_map(|report| of_report(report, texts)));
    }
    entries.sort();
    Ok(entries)
}

/// The phases and callbacks of the objects of a namespace that the viewer may list, the oldest first.
pub(crate) async fn of_namespace(
    world: &ClusterState,
    messages: &Messages,
    namespace: &str,
) -> anyhow::Result<Vec<Entry>> {
    let may_list = |transition: &&Transition| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == transition.kind);
        let key = |kind| Key::namespaced(kind, &namespace.into(), &transition.name.as_str().into());
        kind.is_some_and(|kind| !world.may_miss(&key(kind)))
    };
    let transitions = trace::transitions_in(messages, namespace).await?;
    let mut objects = BTreeMap::new();
    let mut entries = Vec::new();
    for transition in transitions.iter().filter(may_list) {
        let object = name(&transition.kind, transition.namespace.as_deref(), &transition.name);
        objects.insert(transition.id.as_str(), object);
        entries.push(of_transition(transition));
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
    let network = matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain | Kind::L2ServiceAttachment);
    let gone = network && world.object(key).is_none();
    let mut targets: Vec<(String, String)> = Vec::new();
    for (switch, (driver, fabric)) in &fabric.switches {
        let itself = key.kind == Kind::FabricDevice && *key.name == **switch;
        if itself || gone || !vlans_and_ports(fabric, &networks).0.is_empty() {
            targets.push((driver.clone(), switch.clone()));
        }
    }
    if let (Kind::L2ServiceAttachment, Some(namespace)) = (key.kind, key.namespace()) {
        targets.push(("nad".into(), format!("{namespace}/{}", key.name)));
    }
    targets
}
