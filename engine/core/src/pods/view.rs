//! Pods, as far as the core needs them, and their state in statuses.

use std::collections::BTreeMap;

use eno_schemas::{AppliedLink, LinkKind, PodLink};
use ipnet::IpNet;

use crate::node::Nodes;
use crate::pods::template::{self, shared_master};
use crate::pods::{PodState, Pods};
use crate::store::Store;
use crate::work::Work;
use crate::{Effect, Key, Kind, Name};

/// An unfinished pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: Name,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// The NetworkAttachmentDefinitions that it uses.
    pub uses: Uses,
    /// Its labels that choose a configuration: `podconfig`, `podNetworkConfig` and `attach.eno.k8s.io/…`.
    pub labels: BTreeMap<Name, Name>,
    /// The node that it runs on.
    pub node: Option<Name>,
    /// `spec.hostNetwork`: its network namespace is the node's own.
    pub host_network: bool,
    /// The id of its first container, once that runs.
    pub container: Option<Name>,
}

/// The NetworkAttachmentDefinitions that a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uses {
    /// These, by namespace and name, ascending and without duplicates.
    Named(Vec<(Name, Name)>),
    /// Any that it may use: those of its own namespace, and those whose `UsableFrom` selects it. With the reason.
    Any(Name),
}

impl Uses {
    /// Those that are known by name.
    pub fn named(&self) -> &[(Name, Name)] {
        match self {
            Self::Named(names) => names,
            Self::Any(_) => &[],
        }
    }
}

impl Default for Uses {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

/// The entry of one pod in the status of a configuration or attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEntry {
    /// The pod's name.
    pub name: Name,
    /// Its uid.
    pub uid: Name,
    /// Its addresses by name of the link. They are written before a node gets them.
    pub leases: BTreeMap<Name, Vec<IpNet>>,
    /// The name in the pod of an attachment's interface. It is written before a node gets it, too.
    pub ifname: Option<String>,
    /// Its interfaces as read back.
    pub links: Vec<LinkEntry>,
    /// Why something is not there.
    pub problem: Option<String>,
}

/// One interface of a pod that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEntry {
    /// The link's name in the spec.
    pub link: Name,
    /// Its name in the pod.
    pub name: String,
    /// The name of its other end on the host.
    pub host_name: Option<String>,
    /// The bridge that the other end is a port of.
    pub bridge: Option<String>,
    /// Six bytes in hexadecimal with colons.
    pub mac: Option<String>,
    /// Bytes.
    pub mtu: u32,
    /// With the prefix length of their network.
    pub addresses: Vec<IpNet>,
}

/// Everything that one pod was given, by any object: the status of its PodNetwork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Where it runs.
    pub node: Name,
    /// Its interfaces, in the order in which they are made.
    pub interfaces: Vec<PodInterface>,
}

/// An interface of a [`PodView`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodInterface {
    /// The object that gives it.
    pub owner: Key,
    /// The type, as in `ip link add type …`. `primary` for a change of the pod's primary interface, `none` where the
    /// object that a label names does not exist.
    pub kind: &'static str,
    /// The interface as read back; an empty `name` when it does not exist yet.
    pub entry: LinkEntry,
    /// Its routes, as `ip route` writes them.
    pub routes: Vec<String>,
    /// Why it is not complete.
    pub problem: Option<String>,
}

impl Pods {
    /// Emits the PodNetworks of pods that changed.
    pub(crate) fn emit_views(&mut self, store: &Store, nodes: &Nodes, work: &mut Work) {
        for uid in std::mem::take(&mut self.view_queue) {
            let Some(state) = self.states.get_mut(&uid) else { continue };
            let view = PodView::of(store, nodes, &uid, state);
            if state.view == view {
                continue;
            }
            state.view.clone_from(&view);
            let Pod { namespace, name, .. } = state.pod.clone();
            work.effects.push(Effect::PodNetwork { namespace, name, uid, view: view.map(Box::new) });
        }
    }
}

impl PodView {
    /// What a pod was given. `None`: nothing, or its node is not there.
    fn of(store: &Store, nodes: &Nodes, uid: &Name, state: &PodState) -> Option<Self> {
        let name = state.pod.node.clone()?;
        let node = nodes.node(&name)?;
        let mut interfaces = Vec::new();
        for (owner, grant) in &state.grants {
            for (link, wanted) in &grant.links {
                let (found, hop) = node.link_hop(uid, &wanted.id);
                interfaces.push(PodInterface {
                    owner: owner.clone(),
                    kind: template::kind_name(&wanted.kind),
                    entry: found.map_or_else(
                        || LinkEntry::absent(link),
                        |found| LinkEntry::found(link, Some(wanted), found),
                    ),
                    routes: wanted.routes.iter().map(template::route_text).collect(),
                    problem: hop.problem(),
                });
            }
            if let Some(primary) = &grant.primary {
                let link = Name::from(primary.name.as_str());
                let (found, hop) = node.link_hop(uid, &primary.id);
                interfaces.push(PodInterface {
                    owner: owner.clone(),
                    kind: "primary",
                    entry: found.map_or_else(
                        || LinkEntry::absent(&link),
                        |found| LinkEntry::found(&link, None, found),
                    ),
                    routes: Vec::new(),
                    problem: hop.problem(),
                });
            }
        }
        let hot = state.requested.iter().filter(|key| key.kind == Kind::L2ServiceAttachment);
        for owner in hot.filter(|key| !store.contains(key)) {
            let Key { kind, namespace, name } = owner;
            let problem = format!("there is no {kind} {name} in namespace {namespace}, which a label names");
            interfaces.push(PodInterface {
                owner: owner.clone(),
                kind: "none",
                entry: LinkEntry::absent(name),
                routes: Vec::new(),
                problem: Some(problem),
            });
        }
        (!interfaces.is_empty()).then_some(Self { node: name, interfaces })
    }
}

impl LinkEntry {
    /// An interface as read back. `wanted`: what was commanded, unless it is the primary one.
    pub(super) fn found(name: &Name, wanted: Option<&PodLink>, found: &AppliedLink) -> Self {
        let is_veth = wanted.is_some_and(|link| matches!(link.kind, LinkKind::Veth { .. }));
        Self {
            link: name.clone(),
            name: found.name.clone(),
            host_name: found.host_name.clone(),
            bridge: wanted.filter(|_| is_veth).and_then(|link| shared_master(&link.kind)).map(str::to_owned),
            mac: found.mac.clone(),
            mtu: found.mtu,
            addresses: found.addresses.clone(),
        }
    }

    /// An interface that does not exist yet.
    fn absent(link: &Name) -> Self {
        Self {
            link: link.clone(),
            name: String::new(),
            host_name: None,
            bridge: None,
            mac: None,
            mtu: 0,
            addresses: Vec::new(),
        }
    }
}
