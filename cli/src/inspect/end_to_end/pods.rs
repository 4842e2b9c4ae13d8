//! Pods and their interfaces.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::forecast::{Key, PodInfo};
use eno_schemas::{LinkKind, LinkName, NadDesired, PodLink, VlanSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::progress::link_progress;
use super::{Builder, Hop, Inputs, Part, Tier};
use crate::inspect::addresses::{NetworkStatus, network_statuses};
use crate::inspect::path::{NODE_DRIVER, State};

impl Builder<'_> {
    /// Adds the pods that use an attachment, and their interfaces. False: there are none.
    pub(super) fn pods(
        &mut self,
        key: &Key,
        nad: Option<&NadDesired>,
        bridges: &BTreeMap<String, String>,
        vlans: &VlanSet,
    ) -> bool {
        let (namespace, name) = (&key.namespace, &key.name);
        let mut any = false;
        for pod in self.users.get(&(namespace.clone(), name.clone())).cloned().unwrap_or_default() {
            any = true;
            let hop = self.add(pod_hop(&pod));
            let mut interfaces = self.links_in(&pod, key, vlans);
            let own = format!("{namespace}/{name}");
            for status in network_statuses(pod.metadata).into_iter().filter(|status| status.name == own) {
                interfaces.push(self.attached(&pod, &status, nad, vlans));
            }
            if interfaces.is_empty() {
                let missing = missing_interface(&pod, vlans, self.by_condition(key, "PodsReady"));
                interfaces.push(self.add(missing));
            }
            for interface in interfaces {
                self.link(&hop, &interface);
                if let Some(bridge) = pod.node.as_deref().and_then(|node| bridges.get(node)) {
                    self.link(&interface, bridge);
                }
            }
        }
        any
    }

    /// Adds the interfaces of an object that the agent makes in a pod.
    fn links_in(&mut self, pod: &PodInfo<'_>, key: &Key, vlans: &VlanSet) -> Vec<String> {
        let Inputs { desired, reports, .. } = self.inputs;
        // The ids of interfaces have no namespace: they are of the pod's own.
        let Some(node) = pod.node.as_deref().filter(|_| *pod.namespace() == *key.namespace) else {
            return Vec::new();
        };
        let links = desired.nodes.get(node).and_then(|node| node.pods.get(pod.uid())).map(|pod| &pod.links);
        let prefix = format!("{}/{}/", key.kind, key.name);
        let own = links.into_iter().flatten().filter(|link| link.id.starts_with(&prefix));
        let mut found = Vec::new();
        for link in own {
            let mut applied = None;
            let (state, message) = reports.progress(NODE_DRIVER, node, |report| {
                let (progress, seen) = link_progress(report, pod.uid(), link);
                applied = seen.cloned();
                progress
            });
            let label = applied.as_ref().map_or_else(|| link_name(link), |applied| applied.name.clone());
            let addresses = applied.as_ref().map_or(&link.addresses, |applied| &applied.addresses);
            found.push(self.add(Hop {
                id: format!("link:{}:{}", pod.uid(), link.id),
                tier: Tier::Interfaces,
                label,
                detail: pod_name(pod),
                group: workload(pod.metadata),
                state,
                message,
                vlans: vlans.clone(),
                mtu: applied.as_ref().map(|applied| applied.mtu).or(link.mtu),
                addresses: addresses.iter().map(ToString::to_string).collect(),
                part: Part::Link(node.to_owned(), pod.uid().to_owned(), link.id.clone()),
            }));
        }
        found
    }

    /// Adds an interface that Multus reports.
    fn attached(
        &mut self,
        pod: &PodInfo<'_>,
        status: &NetworkStatus,
        nad: Option<&NadDesired>,
        vlans: &VlanSet,
    ) -> String {
        self.add(Hop {
            id: format!("interface:{}:{}", pod.uid(), status.interface),
            tier: Tier::Interfaces,
            label: status.interface.clone(),
            detail: pod_name(pod),
            group: workload(pod.metadata),
            state: State::Confirmed,
            message: String::new(),
            vlans: vlans.clone(),
            mtu: nad.and_then(|nad| nad.attachment.as_ref()?.mtu),
            addresses: status.ips.clone(),
            part: Part::Attached(pod.uid().to_owned(), status.interface.clone()),
        })
    }

    /// Adds the pods with interfaces of a configuration, and the bridges of these.
    pub(super) fn links_of(&mut self, key: &Key) {
        let world = self.inputs.world;
        for pod in world.pods().filter(|pod| *pod.namespace() == *key.namespace) {
            let interfaces = self.links_in(&pod, key, &VlanSet::EMPTY);
            let Some(node) = pod.node.as_deref().filter(|_| !interfaces.is_empty()) else { continue };
            let hop = self.add(pod_hop(&pod));
            for interface in interfaces {
                self.link(&hop, &interface);
                let bridge = self.master_of(node, pod.uid(), &interface);
                if let Some(bridge) = bridge {
                    let bridge = self.host(node, &bridge, &BTreeSet::new(), &VlanSet::EMPTY);
                    self.link(&interface, &bridge);
                }
            }
        }
    }

    /// The bridge of a pod's interface.
    fn master_of(&self, node: &str, uid: &str, hop: &str) -> Option<String> {
        let links = &self.inputs.desired.nodes.get(node)?.pods.get(uid)?.links;
        let link = links.iter().find(|link| hop.ends_with(&format!(":{}", link.id)))?;
        match &link.kind {
            LinkKind::Veth { master: Some(master) } => Some(master.bridge().to_owned()),
            _ => None,
        }
    }
}

fn link_name(link: &PodLink) -> String {
    match &link.name {
        LinkName::Fixed(name) => name.clone(),
        LinkName::WithPid(name) => format!("{name}<PID>"),
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
