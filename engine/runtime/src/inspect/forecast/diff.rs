//! The difference between two snapshots of the cluster, for people and programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_core::{Key, Name, Observed, Participant, PodView, Status, Target};
use eno_schemas::{
    Desired, FabricDesired, FabricVrf, Phase, RoutedInterface, SpeakerDesired, SpeakerSessions, VlanId,
    VlanSet,
};
use serde::Serialize;

use super::ClusterState;
use super::simulation::Simulation;

/// The effects of a change.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// Objects that are changed, and those whose status would change.
    pub objects: Vec<ObjectForecast>,
    /// Switches whose desired state would change.
    pub switches: Vec<SwitchForecast>,
    /// NetworkAttachmentDefinitions that would change.
    pub network_attachment_definitions: Vec<NadForecast>,
    /// What BGP speakers know that would change.
    pub speakers: Vec<SpeakerForecast>,
    /// Nodes whose networks would change.
    pub nodes: Vec<NodeForecast>,
    /// Running pods whose interfaces would change.
    pub pods: Vec<PodForecast>,
}

impl Forecast {
    /// Objects that would fail because of the change, and changed objects that would keep failing.
    pub fn failures(&self) -> impl Iterator<Item = &ObjectForecast> {
        self.objects.iter().filter(|object| {
            let fails = |evaluation: &Option<Evaluation>| {
                evaluation.as_ref().is_some_and(|v| v.phase == Some(Phase::Error))
            };
            fails(&object.after) && (object.act != Action::None || !fails(&object.before))
        })
    }
}

/// The change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is created.
    Create,
    /// Its spec changes.
    Change,
    /// It is deleted.
    Delete,
    /// It stays, but its status may change.
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
    /// Its change.
    pub act: Action,
    /// Its current status; absent: it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Evaluation>,
    /// Its future status; absent: it would be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Evaluation>,
}

/// Phase and message of an object's status.
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
    /// VLANs that would be created.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub make: VlanSet,
    /// VLANs that would be deleted.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub delete: VlanSet,
    /// Ports that would change, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, PortForecast>,
    /// VRFs that would be made, changed or left, by their names on the device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vrfs: BTreeMap<String, Action>,
    /// VLANs that would be led into VRFs, otherwise than now, or no more.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routed: BTreeMap<VlanId, RoutedForecast>,
    /// It is unreachable or refuses every change at present.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// Its future desired state; `None`: it would be no target any more.
    #[serde(skip)]
    pub desired: Option<FabricDesired>,
}

/// One port of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PortForecast {
    /// Tagged VLANs to be added.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub add: VlanSet,
    /// Tagged VLANs to be removed.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub remove: VlanSet,
}

/// The interface by which a switch leads a VLAN into a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutedForecast {
    /// Its change.
    pub act: Action,
    /// The name of the VRF on the device.
    pub vrf: String,
    /// Its addresses with the prefix lengths of their networks.
    pub addresses: Vec<String>,
}

/// One NetworkAttachmentDefinition.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NadForecast {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its change.
    pub act: Action,
}

/// What a BGP speaker knows of one BGPSessionGroup.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpeakerForecast {
    /// The BGPSessionGroup.
    pub group: String,
    /// Peers of the speaker that would be created, changed or removed, by name.
    pub peers: BTreeMap<String, Action>,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeForecast {
    /// Its name.
    pub name: String,
    /// Host networks that would be created, changed or removed, by name.
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
    /// Interfaces that would be created, changed or removed.
    pub interfaces: Vec<InterfaceForecast>,
}

/// An interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceForecast {
    /// Name of the interface in the pod.
    pub name: String,
    /// The object that requests it.
    pub owner: String,
    /// Its change.
    pub act: Action,
}

/// The difference that `acts` make. `unreachable`: switches that confirm nothing at present.
pub(super) fn compare(
    before: &Observed,
    after: &Observed,
    acts: &BTreeMap<Key, Action>,
    unreachable: &BTreeSet<Target>,
) -> Forecast {
    let mut forecast = Forecast::default();
    let keys: BTreeSet<&Key> =
        before.statuses.keys().chain(after.statuses.keys()).chain(acts.keys()).collect();
    for key in keys {
        let evaluation_in = |snapshot: &Observed| snapshot.statuses.get(key).and_then(evaluation);
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
        if was.map(|command| &command.desired) != is.map(|command| &command.desired) {
            add_target(&mut forecast, target, was, is, unreachable.contains(target));
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

/// Replaces the forecast of an object that depends on unread objects. False: nothing is left to show.
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
        cluster.object(&key).and_then(|there| crate::status::convert::read(kind, there.data.get("status")?));
    object.before = status.as_ref().and_then(evaluation);
    if let Some(after) = &mut object.after
        && object.act != Action::Delete
        && (unread.is_direct || after.phase != Some(Phase::Error))
    {
        *after = Evaluation { phase: None, message: format!("not known: {}", unread.message) };
    }
    object.act != Action::None
}

/// A deleted object has no evaluation.
fn evaluation(status: &Status) -> Option<Evaluation> {
    let gone = status.phase == Some(Phase::Deleted);
    (!gone).then(|| Evaluation { phase: status.phase, message: status.message.clone() })
}

fn add_target(
    forecast: &mut Forecast,
    target: &Target,
    was: Option<&Participant>,
    is: Option<&Participant>,
    unreachable: bool,
) {
    let driver = is.map_or_else(String::new, |command| command.driver.to_string());
    let [was, is] = [was, is].map(|command| command.map(|command| &*command.desired));
    match target {
        Target::Fabric(name) => {
            let of = |desired: Option<&Desired>| match desired {
                Some(Desired::Fabric(fabric)) => Some(fabric.clone()),
                _ => None,
            };
            forecast.switches.push(switch(name, driver, of(was).as_ref(), of(is), unreachable));
        }
        Target::Nad(namespace, name) => {
            let is_present = |desired: Option<&Desired>| matches!(desired, Some(Desired::Nad(nad)) if nad.attachment.is_some());
            let act = act(is_present(was), is_present(is));
            let (namespace, name) = (namespace.to_string(), name.to_string());
            forecast.network_attachment_definitions.push(NadForecast { namespace, name, act });
        }
        Target::Speaker(name) => {
            let of = |desired: Option<&Desired>| -> BTreeMap<String, SpeakerSessions> {
                let Some(Desired::Speaker(SpeakerDesired { sessions: Some(sessions), .. })) = desired else {
                    return BTreeMap::new();
                };
                sessions.peers.keys().map(|peer| (peer.clone(), sessions.clone())).collect()
            };
            let peers = acts(&of(was), &of(is));
            if !peers.is_empty() {
                forecast.speakers.push(SpeakerForecast { group: name.to_string(), peers });
            }
        }
        Target::Node(name) => {
            let of = |desired: Option<&'_ Desired>| match desired {
                Some(Desired::Node(node)) => node.networks.clone(),
                _ => BTreeMap::new(),
            };
            let networks = acts(&of(was), &of(is));
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

/// The entries that differ.
fn acts<K: Clone + Ord, V: PartialEq>(was: &BTreeMap<K, V>, is: &BTreeMap<K, V>) -> BTreeMap<K, Action> {
    let keys = was.keys().chain(is.keys()).filter(|key| was.get(key) != is.get(key));
    keys.map(|key| (key.clone(), act(was.contains_key(key), is.contains_key(key)))).collect()
}

/// The changes of what leads VLANs into VRFs.
fn routed(was: Option<&FabricDesired>, is: Option<&FabricDesired>) -> BTreeMap<VlanId, RoutedForecast> {
    let of = |fabric: Option<&FabricDesired>| -> BTreeMap<VlanId, Arc<RoutedInterface>> {
        let vlans = fabric.into_iter().flat_map(|fabric| &fabric.vlans);
        vlans.filter_map(|vlan| Some((vlan.vid, vlan.routed.clone()?))).collect()
    };
    let (was, is) = (of(was), of(is));
    let changes = acts(&was, &is).into_iter().filter_map(|(vid, act)| {
        let interface = is.get(&vid).or_else(|| was.get(&vid))?;
        let addresses = interface.addresses.iter().map(ToString::to_string).collect();
        Some((vid, RoutedForecast { act, vrf: interface.vrf.clone(), addresses }))
    });
    changes.collect()
}

/// The changes of VRFs.
fn vrfs(was: Option<&FabricDesired>, is: Option<&FabricDesired>) -> BTreeMap<String, Action> {
    let of = |fabric: Option<&FabricDesired>| -> BTreeMap<String, FabricVrf> {
        let vrfs = fabric.into_iter().flat_map(|fabric| &fabric.vrfs);
        vrfs.map(|vrf| (vrf.name.clone(), vrf.clone())).collect()
    };
    acts(&of(was), &of(is))
}

fn switch(
    name: &Name,
    driver: String,
    was: Option<&FabricDesired>,
    is: Option<FabricDesired>,
    waits: bool,
) -> SwitchForecast {
    // A router has sub-interfaces and no VLANs.
    let vlans = |fabric: Option<&FabricDesired>| -> VlanSet {
        let fabric = fabric.filter(|fabric| fabric.device.role.is_switch());
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
        vrfs: vrfs(was, is.as_ref()),
        routed: routed(was, is.as_ref()),
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
