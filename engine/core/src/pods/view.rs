//! What pods were given, for their PodNetworks and for statuses.

use eno_schemas::{AppliedLink, LinkKind, PodLink};

use crate::node::Nodes;
use crate::pods::template::{self, shared_master};
use crate::pods::{PodState, Pods, labelled};
use crate::store::Store;
use crate::work::Work;
use crate::{Effect, Key, Kind, LinkEntry, Name, Pod, PodInterface, PodView};

impl Pods {
    /// Emits the PodNetworks of pods that changed.
    pub(crate) fn emit_views(&mut self, store: &Store, nodes: &Nodes, work: &mut Work) {
        for uid in std::mem::take(&mut self.view_queue) {
            let Some(state) = self.states.get(&uid) else { continue };
            let view = PodView::of(store, nodes, &uid, state, self.refused(&uid, state));
            let Some(state) = self.states.get_mut(&uid).filter(|state| state.view != view) else { continue };
            state.view.clone_from(&view);
            let Pod { namespace, name, .. } = state.pod.clone();
            work.effects.push(Effect::PodNetwork { namespace, name, uid, view: view.map(Box::new) });
        }
    }

    /// The attachments whose interfaces of VLANs a pod does not get, each with the reason.
    fn refused<'a>(&self, uid: &Name, state: &'a PodState) -> Vec<(&'a Key, String)> {
        let labelled = labelled(&state.pod);
        let attached = state.requested.iter().filter(|key| !labelled.contains(*key));
        let problem = |key| self.entry(key, uid)?.problem.clone();
        attached.filter_map(|key| Some((key, problem(key)?))).collect()
    }
}

impl PodView {
    /// What a pod was given. `None`: nothing, or its node is not there.
    fn of(
        store: &Store,
        nodes: &Nodes,
        uid: &Name,
        state: &PodState,
        refused: Vec<(&Key, String)>,
    ) -> Option<Self> {
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
        let labelled = labelled(&state.pod).into_iter();
        let hot = labelled.filter(|key| key.kind == Kind::L2ServiceAttachment && !store.contains(key));
        for owner in hot {
            let Key { kind, namespace, name } = &owner;
            let problem = format!("there is no {kind} {name} in namespace {namespace}, which a label names");
            interfaces.push(PodInterface {
                kind: "none",
                entry: LinkEntry::absent(name),
                owner: owner.clone(),
                routes: Vec::new(),
                problem: Some(problem),
            });
        }
        interfaces.extend(refused.into_iter().map(|(owner, problem)| PodInterface {
            owner: owner.clone(),
            kind: "refused",
            entry: LinkEntry::absent(&owner.name),
            routes: Vec::new(),
            problem: Some(problem),
        }));
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
