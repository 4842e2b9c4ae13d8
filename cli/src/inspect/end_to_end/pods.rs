//! Pods, their interfaces, and NetworkAttachmentDefinitions.

use std::collections::BTreeMap;

use eno_engine::forecast::{Key, Kind, PodInfo};
use eno_engine::observation::{self, PodId};
use eno_schemas::{Applied, LinkKind, NadDesired, VlanSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Builder, Hop, Part, State, Tier};
use crate::inspect::addresses::{NetworkStatus, network_statuses};
use crate::inspect::path::{NAD_DRIVER, NODE_DRIVER};

impl<'a> Builder<'a> {
    /// Adds the pods on a path and their interfaces. The path has those that agents make; Multus reports others.
    pub(super) fn interfaces(&mut self, key: &Key, path: &[observation::Hop<'_>], vlans: &VlanSet) {
        use observation::Part as Core;
        let mut interfaces: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for hop in path {
            match hop.part {
                Core::Pod(pod) => {
                    let (state, message) = self.inputs.reports.verdict(NODE_DRIVER, "", hop);
                    self.pod(&pod, state, message);
                    interfaces.entry(pod.uid.to_string()).or_default();
                }
                Core::Interface { pod, node, id, .. } | Core::Removal { pod, node, id } => {
                    let interface = self.interface(&pod, node, id, hop, vlans);
                    interfaces.entry(pod.uid.to_string()).or_default().push(interface);
                }
                _ => {}
            }
        }
        let nad = if key.kind == Kind::L2ServiceAttachment {
            let (nad, hop) = self.nad(key, path, vlans);
            self.attached(key, nad, vlans, &mut interfaces);
            Some(hop)
        } else {
            None
        };
        for (uid, own) in &interfaces {
            let Some(pod) = self.pods.get(uid).cloned() else { continue };
            let bridge = pod.node.as_deref().and_then(|node| self.bridge_on(node, key, path));
            for interface in own {
                self.link(&format!("pod:{uid}"), interface);
                let master = pod.node.as_deref().and_then(|node| self.master_of(node, uid, interface));
                if let Some(bridge) = bridge.as_ref().or(master.as_ref()) {
                    self.link(interface, bridge);
                }
            }
        }
        if let Some(nad) = nad.filter(|_| interfaces.is_empty()) {
            for node in self.inputs.world.nodes().map(|(name, _)| name.to_owned()).collect::<Vec<_>>() {
                if let Some(bridge) = self.bridge_on(&node, key, path) {
                    self.link(&nad, &bridge);
                }
            }
        }
    }

    /// Adds a pod.
    fn pod(&mut self, pod: &PodId<'_>, state: State, message: String) {
        if let Some(info) = self.pods.get(&**pod.uid) {
            let known = pod_hop(info);
            self.add(if state < known.state { Hop { state, message, ..known } } else { known });
        }
    }

    /// Adds an interface that an agent makes in a pod. Returns the id of its hop.
    fn interface(
        &mut self,
        pod: &PodId<'_>,
        node: &str,
        id: &str,
        hop: &observation::Hop<'_>,
        vlans: &VlanSet,
    ) -> String {
        let (state, message) = self.on_node(node, hop);
        let uid = &**pod.uid;
        let desired = self.inputs.desired.nodes.get(node).and_then(|node| node.pods.get(uid));
        let link = desired.and_then(|pod| pod.links.iter().find(|link| link.id == id));
        let applied =
            match self.inputs.reports.get(NODE_DRIVER, node).and_then(|report| report.applied.as_ref()) {
                Some(Applied::Node { pods, .. }) => pods.get(uid).and_then(|links| links.get(id)),
                _ => None,
            };
        let name = applied
            .map(|applied| applied.name.clone())
            .or_else(|| link.map(|link| link.carried_out("<PID>").name));
        let addresses =
            applied.map(|applied| &applied.addresses).or_else(|| link.map(|link| &link.addresses));
        let info = self.pods.get(uid);
        self.add(Hop {
            id: format!("link:{uid}:{id}"),
            tier: Tier::Interfaces,
            label: name.unwrap_or_else(|| id.to_owned()),
            detail: info.map_or_else(|| pod.name.to_string(), pod_name),
            group: info.map_or_else(String::new, |info| workload(info.metadata)),
            state,
            message,
            vlans: vlans.clone(),
            mtu: applied.map(|applied| applied.mtu).or_else(|| link.and_then(|link| link.mtu)),
            addresses: addresses.into_iter().flatten().map(ToString::to_string).collect(),
            part: Part::Link(node.to_owned(), uid.to_owned(), id.to_owned()),
        })
    }

    /// Adds the pods that name the NetworkAttachmentDefinition of an attachment, and the interfaces that Multus reports.
    fn attached(
        &mut self,
        key: &Key,
        nad: Option<&NadDesired>,
        vlans: &VlanSet,
        interfaces: &mut BTreeMap<String, Vec<String>>,
    ) {
        let name = (key.namespace.clone(), key.name.clone());
        let users: Vec<PodInfo<'_>> =
            self.pods.values().filter(|pod| pod.uses.named().contains(&name)).cloned().collect();
        let own = format!("{}/{}", key.namespace, key.name);
        for pod in users {
            self.add(pod_hop(&pod));
            let found = interfaces.entry(pod.uid().to_owned()).or_default();
            for status in network_statuses(pod.metadata).into_iter().filter(|status| status.name == own) {
                found.push(self.add(attached_hop(&pod, &status, nad, vlans)));
            }
            if found.is_empty() {
                let missing = missing_interface(&pod, vlans, self.by_condition(key, "PodsReady"));
                found.push(self.add(missing));
            }
        }
    }

    /// Adds the NetworkAttachmentDefinition of an attachment. Returns its desired state, and the id of its hop.
    fn nad(
        &mut self,
        key: &Key,
        path: &[observation::Hop<'_>],
        vlans: &VlanSet,
    ) -> (Option<&'a NadDesired>, String) {
        let name = format!("{}/{}", key.namespace, key.name);
        let nad = self.inputs.desired.network_attachment_definitions.get(&name);
        let hop = path.iter().find(|hop| hop.part == observation::Part::Nad);
        let (state, message) = match hop.filter(|_| self.inputs.reports.are_known()) {
            Some(hop) => self.inputs.reports.verdict(NAD_DRIVER, &name, hop),
            None => self.by_condition(key, "NADReady"),
        };
        let id = self.add(Hop {
            id: format!("nad:{name}"),
            tier: Tier::Interfaces,
            label: name.clone(),
            detail: "NetworkAttachmentDefinition".into(),
            group: format!("NetworkAttachmentDefinition/{name}"),
            state,
            message,
            vlans: vlans.clone(),
            mtu: nad.and_then(|nad| nad.attachment.as_ref()?.mtu),
            addresses: Vec::new(),
            part: Part::Nad(name),
        });
        (nad, id)
    }

    /// The hop of the bridge of a pod's interface.
    fn master_of(&self, node: &str, uid: &str, hop: &str) -> Option<String> {
        let links = &self.inputs.desired.nodes.get(node)?.pods.get(uid)?.links;
        let link = links.iter().find(|link| hop.ends_with(&format!(":{}", link.id)))?;
        let LinkKind::Veth { master: Some(master) } = &link.kind else { return None };
        Some(format!("bridge:{node}:{}", master.bridge())).filter(|id| self.hops.contains_key(id))
    }
}

/// An interface that Multus reports.
fn attached_hop(pod: &PodInfo<'_>, status: &NetworkStatus, nad: Option<&NadDesired>, vlans: &VlanSet) -> Hop {
    Hop {
        id: format!("interface:{}:{}", pod.uid(), status.interface),
        tier: Tier::Interfaces,
        label: status.interface.clone(),
        detail: pod_name(pod),
        state: State::Confirmed,
        message: String::new(),
        vlans: vlans.clone(),
        mtu: nad.and_then(|nad| nad.attachment.as_ref()?.mtu),
        addresses: status.ips.clone(),
        part: Part::Attached(pod.uid().to_owned(), status.interface.clone()),
        ..pod_hop(pod)
    }
}

fn pod_name(pod: &PodInfo<'_>) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn pod_hop(pod: &PodInfo<'_>) -> Hop {
    let (state, message) = match &pod.node {
        Some(_) => (State::Confirmed, String::new()),
        None => (State::Waiting, "no node runs it yet".to_owned()),
    };
    Hop {
        id: format!("pod:{}", pod.uid()),
        tier: Tier::Pods,
        label: pod_name(pod),
        detail: pod.node.as_deref().unwrap_or_default().to_owned(),
        group: workload(pod.metadata),
        state,
        message,
        vlans: VlanSet::EMPTY,
        mtu: None,
        addresses: Vec::new(),
        part: Part::Pod(pod.uid().to_owned()),
    }
}

/// The place of an interface that neither Multus nor the agent has made. `pods`: the progress of all pods.
fn missing_interface(pod: &PodInfo<'_>, vlans: &VlanSet, pods: (State, String)) -> Hop {
    let (state, message) = match pods {
        (State::Confirmed | State::Unknown, _) => {
            (State::Waiting, "neither Multus nor an agent reports an interface of it in the pod".to_owned())
        }
        refused_or_waiting => refused_or_waiting,
    };
    Hop {
        id: format!("interface:{}:", pod.uid()),
        tier: Tier::Interfaces,
        label: "no interface yet".into(),
        state,
        message,
        vlans: vlans.clone(),
        detail: pod_name(pod),
        ..pod_hop(pod)
    }
}

/// The workload of a pod: `KIND/NAMESPACE/NAME`. Of a ReplicaSet that a Deployment owns, the Deployment.
pub(crate) fn workload(pod: &ObjectMeta) -> String {
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    let owner = pod.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let hash = pod.labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
    match (owner, hash) {
        (Some(owner), Some(hash)) if owner.kind == "ReplicaSet" => {
            let name = owner.name.strip_suffix(hash.as_str()).and_then(|name| name.strip_suffix('-'));
            name.map_or_else(
                || format!("ReplicaSet/{namespace}/{}", owner.name),
                |name| format!("Deployment/{namespace}/{name}"),
            )
        }
        (Some(owner), _) => format!("{}/{namespace}/{}", owner.kind, owner.name),
        (None, _) => format!("Pod/{namespace}/{}", pod.name.as_deref().unwrap_or_default()),
    }
}
