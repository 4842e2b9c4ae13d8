//! The state of what pods are given and of pod bridges, for the statuses of the objects that give them.

use std::collections::BTreeMap;

use eno_schemas::PathMtu;
use ipnet::IpNet;

use crate::kinds::Spec;
use crate::node::state::HostStates;
use crate::pods::ipam::PoolKey;
use crate::pods::{Entry, Grant, PodState, Pods, Provider, template};
use crate::status::evaluation::Evaluation;
use crate::status::hop::{Aspect, Hop, HopState, Part, PodId, Wait};
use crate::status::inputs::Inputs;
use crate::store::Store;
use crate::{ConditionReason, ConditionType, Config, Key, Kind, LinkEntry, Name, PodEntry};

/// The message of an object that needs agents where there are none.
pub(crate) const NO_AGENTS: &str = "the engine runs without agents on the nodes";

/// Reads the state of what pods are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodStates<'a> {
    /// How the cluster is configured.
    pub config: &'a Config,
    /// The objects.
    pub store: &'a Store,
    /// The nodes.
    pub hosts: HostStates<'a>,
    /// The pods.
    pub pods: &'a Pods,
}

impl<'a> PodStates<'a> {
    /// Visits what an object gives to pods, by the names of these.
    pub(crate) fn visit_pods(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        if key.kind != Kind::L2ServiceAttachment && !self.config.nodes {
            return visit(Hop::missing(Part::Agents, NO_AGENTS));
        }
        let Some((key, provider)) = self.provider(key) else {
            let refused = self.pods.samples.get(key).and_then(|sample| sample.refused.as_ref());
            return refused.into_iter().for_each(|reason| {
                visit(Hop { part: Part::Sample, state: HopState::Refused { reason, retryable: true } });
            });
        };
        let mut entries: Vec<(&Name, &Entry)> = provider.entries.iter().collect();
        entries.sort_by_key(|(uid, entry)| (&entry.name, *uid));
        for (uid, entry) in entries {
            self.visit_pod(key, uid, entry, visit);
        }
    }

    /// True when an object gives something to a pod.
    pub(crate) fn has_pods(&self, key: &Key) -> bool {
        self.provider(key).is_some()
    }

    /// An object that gives something to a pod.
    fn provider(&self, key: &Key) -> Option<(&'a Key, &'a Provider)> {
        self.pods.providers.get_key_value(key).filter(|(_, provider)| !provider.entries.is_empty())
    }

    /// Adds the condition PathMTU for an interface whose MTU the path does not carry: of the first pod by name.
    pub(crate) fn note_narrow_paths(&self, key: &Key, evaluation: &mut Evaluation) {
        let Some((_, provider)) = self.provider(key) else { return };
        let narrow = provider.entries.iter().filter_map(|(uid, entry)| {
            let state = self.pods.states.get(uid)?;
            let node = self.hosts.nodes.node(state.pod.node.as_ref()?)?;
            let message = granted_parts(state.grants.get(key)?).find_map(|(link, id, is_primary)| {
                let found = node.link_hop(uid, id).0?;
                let noun = if is_primary { "" } else { "link " };
                Some(narrow_path(&format!("{noun}{link}"), found.mtu, found.path.as_ref()?))
            })?;
            Some((&entry.name, uid, state.pod.node.clone()?, message))
        });
        let narrow: Vec<_> = narrow.collect();
        let Some((pod, _, node, message)) = narrow.iter().min_by_key(|(pod, uid, ..)| (*pod, *uid)) else {
            return;
        };
        let others = match narrow.len() - 1 {
            0 => String::new(),
            others => format!(" (and {others} more)"),
        };
        let message = format!("Pod {pod} on Node {node}: {message}{others}");
        evaluation.note(ConditionType::PathMtu, false, ConditionReason::TooSmall, message);
    }

    /// Visits what an object gives to a pod. Nothing is visited of a pod that does not run, or loses all of it.
    fn visit_pod(&self, key: &'a Key, uid: &'a Name, entry: &'a Entry, visit: &mut dyn FnMut(Hop<'a>)) {
        if entry.withdrawal.is_some() {
            return;
        }
        let pod = PodId { name: &entry.name, uid };
        if let Some(reason) = &entry.problem {
            return visit(Hop { part: Part::Pod(pod), state: HopState::Refused { reason, retryable: true } });
        }
        let Some(state) = self.pods.states.get(uid).filter(|state| state.runs()) else { return };
        let Some((name, node)) = state.pod.node.as_ref().and_then(|name| self.hosts.nodes.ready_node(name))
        else {
            return;
        };
        let provider = self.pods.providers.get(key);
        let awaited = provider.is_some_and(|provider| entry.lease_revision > provider.written_revision);
        let Some(grant) = state.grants.get(key).filter(|_| !awaited) else {
            return visit(Hop { part: Part::Pod(pod), state: HopState::Waiting(Wait::Leases) });
        };
        visit(Hop { part: Part::Pod(pod), state: HopState::Confirmed });
        if !node.is_known() && self.was_complete_before(key, uid) {
            return;
        }
        for (bridge, _) in &grant.bridges {
            let part = Part::PodBridge { pod, node: name, bridge };
            visit(self.hosts.hop(name, part, node.pod_bridge_hop(bridge)));
        }
        for (link, id, is_primary) in granted_parts(grant) {
            let part = Part::Interface { pod, node: name, id, name: link, is_primary };
            visit(self.hosts.hop(name, part, node.link_hop(uid, id).1));
        }
        if let Some(id) = node.unwanted_link(uid, &template::link_id(key, &state.pod.namespace, "")) {
            let part = Part::Removal { pod, node: name, id };
            visit(self.hosts.hop(name, part, HopState::Waiting(Wait::Report)));
        }
    }

    /// True when the last status showed all interfaces of a pod.
    fn was_complete_before(&self, key: &Key, uid: &Name) -> bool {
        let entry = self.last_entry(key, uid);
        entry.is_some_and(|entry| entry.problem.is_none() && !entry.links.is_empty())
    }

    fn last_entry(&self, key: &Key, uid: &Name) -> Option<&PodEntry> {
        self.store.get(key)?.status.pods.iter().find(|entry| entry.uid == *uid)
    }

    /// The entries of pods in the status of an object.
    pub(crate) fn entries(&self, key: &Key) -> Vec<PodEntry> {
        let Some((key, provider)) = self.provider(key) else { return Vec::new() };
        let mut entries: Vec<PodEntry> = provider
            .entries
            .iter()
            .map(|(uid, entry)| {
                let mut leases: BTreeMap<Name, Vec<IpNet>> = BTreeMap::new();
                for (link, own) in &entry.leases {
                    leases.insert(link.clone(), own.iter().map(|lease| lease.address).collect());
                }
                for (link, lease) in &entry.retiring {
                    leases.entry(link.clone()).or_default().push(lease.address);
                }
                if entry.is_recorded && leases.is_empty() {
                    leases.entry(key.name.clone()).or_default();
                }
                // Sorted, so that the next leader has the same order, whichever are retiring.
                for addresses in leases.values_mut() {
                    addresses.sort_unstable();
                }
                let state = self.pods.states.get(uid);
                PodEntry {
                    name: entry.name.clone(),
                    uid: uid.clone(),
                    leases,
                    ifname: entry.ifname.clone(),
                    links: self.present_links(key, uid, state),
                    problem: self.problem_of(key, uid, entry, state),
                }
            })
            .collect();
        entries.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        entries
    }

    fn problem_of(
        &self,
        key: &'a Key,
        uid: &'a Name,
        entry: &'a Entry,
        state: Option<&PodState>,
    ) -> Option<String> {
        if entry.withdrawal.is_some() {
            return Some("what it was given is being taken back".into());
        }
        if entry.problem.is_none() && state.is_some_and(|state| !state.runs()) {
            return Some("it waits until its first container runs".into());
        }
        let mut problem = None;
        self.visit_pod(key, uid, entry, &mut |hop| {
            if problem.is_none() && hop.state.problem().is_some() {
                problem = hop.message_in_pod();
            }
        });
        problem
    }

    /// The interfaces of an object that are present in a pod.
    fn present_links(&self, key: &Key, uid: &Name, state: Option<&PodState>) -> Vec<LinkEntry> {
        let Some(state) = state else { return Vec::new() };
        let node = state.pod.node.as_ref().and_then(|name| self.hosts.nodes.node(name));
        let Some(node) = node.filter(|node| node.is_known()) else {
            // Without a report since the start the last status still holds.
            return self.last_entry(key, uid).map(|entry| entry.links.clone()).unwrap_or_default();
        };
        let Some(grant) = state.grants.get(key) else { return Vec::new() };
        let links = grant.links.iter().filter_map(|(name, link)| {
            Some(LinkEntry::found(name, Some(link), node.link_hop(uid, &link.id).0?))
        });
        let primary = grant.primary.iter().filter_map(|primary| {
            let name = Name::from(primary.name.as_str());
            Some(LinkEntry::found(&name, None, node.link_hop(uid, &primary.id).0?))
        });
        links.chain(primary).collect()
    }

    /// The first pod that is not confirmed to have lost what a deleted object gave it.
    pub(crate) fn remains(&self, key: &Key, evaluation: &mut Evaluation) -> Option<String> {
        let provider = self.pods.providers.get(key)?;
        for entry in provider.entries.values() {
            let Some(withdrawal) = &entry.withdrawal else { continue };
            let name = &withdrawal.node;
            let Some(node) = self.hosts.nodes.node(name) else { continue };
            if !node.is_ready() {
                evaluation.final_message =
                    format!("Node {name} is not ready: what is left there goes when it is back");
                continue;
            }
            evaluation.waits_on = Some(name.clone());
            return Some(match node.failure() {
                Some(failure) => format!(
                    "Pod {} on Node {name}: what it was given can't be taken back yet: {}",
                    entry.name, failure.reason
                ),
                None => format!(
                    "Pod {} on Node {name}: the removal of what it was given {}",
                    entry.name,
                    self.hosts.wait(name)
                ),
            });
        }
        None
    }

    /// The first node that is not confirmed to hold no address of a deleted Subnet. One that is not ready counts while a pod
    /// has an address there.
    pub(crate) fn remaining_addresses(&self, key: &Key, evaluation: &mut Evaluation) -> Option<String> {
        if key.kind != Kind::Subnet {
            return None;
        }
        let pool = PoolKey::Subnet(key.name.clone());
        for (net, block) in self.pods.ipam().blocks(&pool) {
            let Some(node) = self.hosts.nodes.node(&block.node) else { continue };
            let used = node.observed_addresses(&key.name).map_or(&[][..], |own| &own.used);
            let pod = used.iter().find(|one| net.contains(&one.address));
            if pod.is_none() && !node.is_ready() {
                continue;
            }
            evaluation.waits_on = Some(block.node.clone());
            return Some(match pod {
                Some(pod) => {
                    format!(
                        "Pod {}/{} on Node {} has its address {}",
                        pod.namespace, pod.pod, block.node, pod.address
                    )
                }
                None => format!(
                    "Node {}: the removal of its addresses {}",
                    block.node,
                    self.hosts.wait(&block.node)
                ),
            });
        }
        None
    }

    /// Visits a Bridge on the nodes where it is wanted.
    pub(crate) fn visit_bridge(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        if !self.config.nodes {
            return visit(Hop::missing(Part::Agents, NO_AGENTS));
        }
        let Some(spec) = self.store.effective(key, Spec::bridge) else { return };
        for name in self.pods.bridge_nodes(&spec.name) {
            let Some((name, node)) = self.hosts.nodes.ready_node(name) else { continue };
            let state = node.network_hop(&spec.name, None, None, node.bridge_since(&spec.name));
            let (network, aspect) = (spec.name.as_str(), Aspect::Whole);
            visit(self.hosts.hop(name, Part::Network { node: name, noun: "bridge", network, aspect }, state));
        }
    }

    /// Adds what a Bridge is to its inputs.
    pub(crate) fn add_bridge_inputs(&self, key: &Key, inputs: &mut Inputs) {
        if let Some(spec) = self.store.effective(key, Spec::bridge).filter(|_| self.config.nodes) {
            inputs.add(&(&spec.name, &spec.cidrs, spec.mtu));
        }
    }

    /// The nodes where a Bridge is present, for its status.
    pub(crate) fn nodes_with(&self, key: &Key) -> Vec<Name> {
        let Some(spec) = self.store.effective(key, Spec::bridge) else { return Vec::new() };
        let last = self.store.get(key).map(|record| &record.status.nodes);
        let there = |name: &&Name| {
            self.hosts.nodes.node(name).is_some_and(|node| {
                // Without a report since the start the last status still holds.
                let held = !node.is_known() && last.is_some_and(|nodes| nodes.contains(*name));
                held || node.observed_network(&spec.name).is_some()
            })
        };
        self.pods.bridge_nodes(&spec.name).filter(there).cloned().collect()
    }
}

fn narrow_path(link: &str, mtu: u32, path: &PathMtu) -> String {
    let PathMtu { interface, mtu: there, overhead } = path;
    let needed = match overhead {
        0 => String::new(),
        overhead => format!(", and {overhead} bytes more in its tunnel"),
    };
    format!("{link} has an MTU of {mtu}{needed}, but {interface} on its way has {there}")
}

/// The names and ids of the parts of a grant, and whether each is the primary interface.
fn granted_parts(grant: &Grant) -> impl Iterator<Item = (&str, &str, bool)> {
    let links = grant.links.iter().map(|(name, link)| (&**name, link.id.as_str(), false));
    links.chain(grant.primary.iter().map(|primary| (primary.name.as_str(), primary.id.as_str(), true)))
}
