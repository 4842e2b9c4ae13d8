//! The difference between two states of the world, as it is told to people and programs.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::{Key, Name, PodView, Status, Target};
use eno_schemas::{Desired, FabricDesired, Phase, VlanSet};
use serde::Serialize;

use super::ClusterState;
use super::simulation::{Simulation, Snapshot};

/// What would become of it all.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The objects that are changed, and those that something becomes of.
    pub objects: Vec<ObjectForecast>,
    /// The switches that are changed.
    pub switches: Vec<SwitchForecast>,
    /// The NetworkAttachmentDefinitions that are changed.
    pub network_attachment_definitions: Vec<NadForecast>,
    /// The nodes that are changed.
    pub nodes: Vec<NodeForecast>,
    /// The running pods that are changed.
    pub pods: Vec<PodForecast>,
}

impl Forecast {
    /// The objects that would be in error because of the change, or stay so although they are a part of it.
    pub fn failures(&self) -> impl Iterator<Item = &ObjectForecast> {
        self.objects.iter().filter(|object| {
            let fails = |evaluation: &Option<Evaluation>| {
                evaluation.as_ref().is_some_and(|v| v.phase == Some(Phase::Error))
            };
            fails(&object.after) && (object.act != Action::None || !fails(&object.before))
        })
    }
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is made.
    Create,
    /// Its spec changes.
    Change,
    /// It is deleted.
    Delete,
    /// Nothing, but something becomes of it.
    None,
}

/// One object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectForecast {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// What is done to it.
    pub act: Action,
    /// How it is; absent: it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Evaluation>,
    /// How it would be; absent: it would be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Evaluation>,
}

/// What is said of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evaluation {
    /// Its phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Its message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One switch.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SwitchForecast {
    /// Its FabricDevice.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// VLANs that are made.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub make: VlanSet,
    /// VLANs that are deleted.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub delete: VlanSet,
    /// Ports that are changed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, PortForecast>,
    /// It does not answer, or refuses everything, at present.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// What would be wanted of it; `None`: it is no target any more.
    #[serde(skip)]
    pub desired: Option<FabricDesired>,
}

/// One port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortForecast {
    /// Tagged VLANs that it gets.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub add: VlanSet,
    /// Tagged VLANs that it loses.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub remove: VlanSet,
}

/// One NetworkAttachmentDefinition.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NadForecast {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub act: Action,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeForecast {
    /// Its name.
    pub name: String,
    /// The networks of the host that are made, changed or removed, by name.
    pub networks: BTreeMap<String, Action>,
}

/// One running pod.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodForecast {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its interfaces that are made, changed or removed, each with the object that asks for it.
    pub interfaces: Vec<InterfaceForecast>,
}

/// An interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceForecast {
    /// What it is called in the pod.
    pub name: String,
    /// Who asks for it.
    pub owner: String,
    /// What becomes of it.
    pub act: Action,
}

pub(super) fn compare(before: &Snapshot, after: &Snapshot, acts: &BTreeMap<Key, Action>) -> Forecast {
    let mut forecast = Forecast::default();
    let keys: BTreeSet<&Key> =
        before.statuses.keys().chain(after.statuses.keys()).chain(acts.keys()).collect();
    for key in keys {
        let evaluation_in = |snapshot: &Snapshot| snapshot.statuses.get(key).and_then(evaluation);
        let (was, is) = (evaluation_in(before), evaluation_in(after));
        let act = acts.get(key).copied();
        if act.is_none() && was == is {
            continue;
        }
        forecast.objects.push(ObjectForecast {
            kind: key.kind.as_str(),
            namespace: key.namespace().map(str::to_owned),
            name: key.name.to_string(),
            act: act.unwrap_or(Action::None),
            before: was,
            after: is,
        });
    }
    let targets: BTreeSet<&Target> = before.desired.keys().chain(after.desired.keys()).collect();
    for target in targets {
        let (was, is) = (before.desired.get(target), after.desired.get(target));
        if was.map(|(_, desired)| desired) != is.map(|(_, desired)| desired) {
            let unreachable = after.unreachable.contains(target);
            add_target(&mut forecast, target, was.map(|(_, d)| d), is, unreachable);
        }
    }
    let uids: BTreeSet<&Name> = before.pods.keys().chain(after.pods.keys()).collect();
    for uid in uids {
        let (was, is) = (before.pods.get(uid), after.pods.get(uid));
        let Some((namespace, name, _)) = is.or(was) else { continue };
        let interfaces = interfaces(was.map(|(.., view)| view), is.map(|(.., view)| view));
        if !interfaces.is_empty() {
            let (namespace, name) = (namespace.to_string(), name.to_string());
            forecast.pods.push(PodForecast { namespace, name, interfaces });
        }
    }
    forecast
}

/// Takes back what was worked out of an object from less than it depends on. False: then nothing is left to be told.
pub(super) fn drop_uncertain(
    object: &mut ObjectForecast,
    cluster: &ClusterState,
    simulation: &Simulation,
) -> bool {
    let Some(kind) = super::kind(object.kind) else { return true };
    let name = Name::from(object.name.as_str());
    let key = match &object.namespace {
        Some(namespace) => Key::namespaced(kind, &namespace.as_str().into(), &name),
        None => Key::cluster(kind, &name),
    };
    let Some(unread) = simulation.unread_dependency(&key, cluster) else { return true };
    let status =
        cluster.object(&key).and_then(|there| crate::ingest::status(kind, there.data.get("status")?));
    object.before = status.as_ref().and_then(evaluation);
    if let Some(after) = &mut object.after
        && object.act != Action::Delete
        && (unread.is_direct || after.phase != Some(Phase::Error))
    {
        *after = Evaluation { phase: None, message: format!("not known: {}", unread.message) };
    }
    object.act != Action::None
}

/// What is gone has no verdict any more.
fn evaluation(status: &Status) -> Option<Evaluation> {
    let gone = status.phase == Some(Phase::Deleted);
    (!gone).then(|| Evaluation { phase: status.phase, message: status.message.clone() })
}

fn add_target(
    forecast: &mut Forecast,
    target: &Target,
    was: Option<&Desired>,
    is: Option<&(Name, Desired)>,
    unreachable: bool,
) {
    match target {
        Target::Fabric(name) => {
            let of = |desired: Option<&Desired>| match desired {
                Some(Desired::Fabric(fabric)) => Some(fabric.clone()),
                _ => None,
            };
            let (was, now) = (of(was), of(is.map(|(_, desired)| desired)));
            let driver = is.map_or_else(String::new, |(driver, _)| driver.to_string());
            forecast.switches.push(switch(name, driver, was.as_ref(), now, unreachable));
        }
        Target::Nad(namespace, name) => {
            let is_present = |desired: Option<&Desired>| matches!(desired, Some(Desired::Nad(nad)) if nad.attachment.is_some());
            let act = act(is_present(was), is_present(is.map(|(_, desired)| desired)));
            let (namespace, name) = (namespace.to_string(), name.to_string());
            forecast.network_attachment_definitions.push(NadForecast { namespace, name, act });
        }
        Target::Node(name) => {
            let empty = BTreeMap::new();
            let of = |desired: Option<&'_ Desired>| match desired {
                Some(Desired::Node(node)) => node.networks.clone(),
                _ => BTreeMap::new(),
            };
            let (was, is) = (of(was), of(is.map(|(_, desired)| desired)));
            let mut networks: BTreeMap<String, Action> = empty;
            for name in was.keys().chain(is.keys()) {
                if was.get(name) != is.get(name) {
                    networks.insert(name.clone(), act(was.contains_key(name), is.contains_key(name)));
                }
            }
            if !networks.is_empty() {
                forecast.nodes.push(NodeForecast { name: name.to_string(), networks });
            }
        }
    }
}

fn act(was: bool, is: bool) -> Action {
    match (was, is) {
        (false, true) => Action::Create,
        (true, true) => Action::Change,
        (true, false) => Action::Delete,
        (false, false) => Action::None,
    }
}

fn switch(
    name: &Name,
    driver: String,
    was: Option<&FabricDesired>,
    is: Option<FabricDesired>,
    waits: bool,
) -> SwitchForecast {
    let vlans = |fabric: Option<&FabricDesired>| -> VlanSet {
        fabric.into_iter().flat_map(|fabric| fabric.vlans.iter().map(|vlan| vlan.vid)).collect()
    };
    let carried = |fabric: Option<&FabricDesired>| -> BTreeMap<String, VlanSet> {
        fabric
            .into_iter()
            .flat_map(|fabric| fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())))
            .collect()
    };
    let (vlans_were, vlans_are) = (vlans(was), vlans(is.as_ref()));
    let (were, are) = (carried(was), carried(is.as_ref()));
    let mut ports = BTreeMap::new();
    for port in were.keys().chain(are.keys()) {
        let (was, is) = (were.get(port).unwrap_or(&VlanSet::EMPTY), are.get(port).unwrap_or(&VlanSet::EMPTY));
        if was != is {
            ports.insert(port.clone(), PortForecast { add: is.difference(was), remove: was.difference(is) });
        }
    }
    SwitchForecast {
        name: name.to_string(),
        driver,
        make: vlans_are.difference(&vlans_were),
        delete: vlans_were.difference(&vlans_are),
        ports,
        waits,
        desired: is,
    }
}

fn interfaces(was: Option<&PodView>, is: Option<&PodView>) -> Vec<InterfaceForecast> {
    let of = |view: Option<&PodView>| {
        let interfaces = view.into_iter().flat_map(|view| view.interfaces.clone());
        interfaces
            .map(|interface| ((interface.owner.clone(), interface.entry.link.clone()), interface))
            .collect::<BTreeMap<_, _>>()
    };
    let (was, is) = (of(was), of(is));
    let keys: BTreeSet<_> = was.keys().chain(is.keys()).collect();
    let interfaces_changed = keys.into_iter().filter_map(|key| {
        let (before, after) = (was.get(key), is.get(key));
        let interface = after.or(before)?;
        (before != after).then(|| InterfaceForecast {
            name: if interface.entry.name.is_empty() {
                key.1.to_string()
            } else {
                interface.entry.name.clone()
            },
            owner: key.0.to_string(),
            act: act(before.is_some(), after.is_some()),
        })
    });
    interfaces_changed.collect()
}
