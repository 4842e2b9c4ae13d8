//! The state of what pods are given and of pod bridges, for the statuses of the objects that give them.

use std::collections::BTreeMap;

use eno_schemas::PathMtu;
use ipnet::IpNet;

use crate::node::state::HostStates;
use crate::node::target::LinkState;
use crate::pods::{Entry, Grant, PodState, Pods, Provider, template};
use crate::spec::Spec;
use crate::status::evaluation::Evaluation;
use crate::status::inputs::Inputs;
use crate::store::Store;
use crate::{ConditionReason, ConditionState, ConditionType, Config, Key, Kind, LinkEntry, Name, PodEntry};

/// The message of an object that needs agents where there are none.
const NO_AGENTS: &str = "the engine runs without agents on the nodes";

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

/// The state of one pod of an object.
enum PodProgress {
    /// Everything is confirmed.
    Confirmed,
    /// There is nothing to wait for.
    Idle,
    /// Not confirmed yet: the message, and the node that it waits for.
    Waits(String, Option<Name>),
    /// The agent of this node could not do it, and tries again.
    Retried(String, Name),
    /// It can't be done: the message, and whether that may pass.
    Refused(String, bool),
}

impl PodStates<'_> {
    /// Evaluates what an object gives to pods. The phase of a configuration depends on it. An attachment has a
    /// condition for it, since it is as ready for other pods.
    pub(crate) fn evaluate_pods(&self, key: &Key, evaluation: &mut Evaluation) {
        let is_config = key.kind != Kind::L2ServiceAttachment;
        if is_config && !self.config.nodes {
            return evaluation.wait(NO_AGENTS.into());
        }
        let Some(provider) = self.pods.providers.get(key).filter(|provider| !provider.entries.is_empty())
        else {
            let refused = self.pods.samples.get(key).and_then(|sample| sample.refused.as_ref());
            return refused
                .into_iter()
                .for_each(|message| evaluation.refuse(format!("spec.sampleDeployment: {message}")));
        };
        self.note_narrow_paths(key, provider, evaluation);
        let mut pods = Evaluation::default();
        let mut entries: Vec<(&Name, &Entry)> = provider.entries.iter().collect();
        entries.sort_by_key(|(uid, entry)| (&entry.name, *uid));
        for (uid, entry) in entries {
            match self.progress(key, uid, entry) {
                PodProgress::Confirmed | PodProgress::Idle => {}
                PodProgress::Retried(message, node) => {
                    pods.wait_for(&node, || format!("Pod {}: {message}", entry.name));
                }
                PodProgress::Waits(message, node) => {
                    let message = format!("Pod {}: {message}", entry.name);
                    match node {
                        Some(node) => pods.wait_for(&node, || message),
                        None => pods.wait(message),
                    }
                }
                PodProgress::Refused(message, transient) => {
                    pods.reject(format!("Pod {}: {message}", entry.name), transient);
                }
            }
        }
        if is_config {
            let (refused, waiting, waits_on) = (pods.refused, pods.waiting, pods.waits_on);
            if let Some(message) = refused {
                evaluation.reject(message, !pods.permanent);
            }
            if let Some(message) = waiting {
                evaluation.wait(message);
            }
            evaluation.waits_on = evaluation.waits_on.take().or(waits_on);
            return;
        }
        evaluation.conditions.push(match (pods.refused, pods.waiting) {
            (Some(message), _) => {
                ConditionState::new(ConditionType::PodsReady, false, ConditionReason::Refused, message)
            }
            (None, Some(message)) => {
                ConditionState::new(ConditionType::PodsReady, false, ConditionReason::Waiting, message)
            }
            (None, None) => {
                ConditionState::new(ConditionType::PodsReady, true, ConditionReason::Confirmed, String::new())
            }
        });
        evaluation.waits_on = evaluation.waits_on.take().or(pods.waits_on);
    }

    /// Adds the condition PathMTU for an interface whose MTU the path does not carry: of the first pod by name.
    fn note_narrow_paths(&self, key: &Key, provider: &Provider, evaluation: &mut Evaluation) {
        let narrow = provider.entries.iter().filter_map(|(uid, entry)| {
            let state = self.pods.states.get(uid)?;
            let node = self.hosts.nodes.node(state.pod.node.as_ref()?)?;
            let message = granted_parts(state.grants.get(key)?).find_map(|(link, id)| {
                let found = node.link_hop(uid, id).0?;
                Some(narrow_path(&link, found.mtu, found.path.as_ref()?))
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
        evaluation.conditions.push(ConditionState::new(
            ConditionType::PathMtu,
            false,
            ConditionReason::TooSmall,
            message,
        ));
    }

    fn progress(&self, key: &Key, uid: &Name, entry: &Entry) -> PodProgress {
        if entry.withdrawal.is_some() {
            return PodProgress::Idle;
        }
        if let Some(problem) = &entry.problem {
            return PodProgress::Refused(problem.clone(), true);
        }
        let Some(state) = self.pods.states.get(uid).filter(|state| state.runs()) else {
            return PodProgress::Idle;
        };
        let Some(name) = &state.pod.node else { return PodProgress::Idle };
        let Some(node) = self.hosts.nodes.node(name).filter(|node| node.is_ready()) else {
            return PodProgress::Idle;
        };
        let awaited = self
            .pods
            .providers
            .get(key)
            .is_some_and(|provider| entry.lease_revision > provider.written_revision);
        let Some(grant) = state.grants.get(key).filter(|_| !awaited) else {
            return PodProgress::Waits("its addresses are being written down".into(), None);
        };
        if !node.is_known() && self.was_complete_before(key, uid) {
            return PodProgress::Confirmed;
        }
        for (bridge, _) in &grant.bridges {
            if let Some(rejection) = node.rejection_of(bridge) {
                return refusal(
                    format!("Node {name}: bridge {bridge}: {}", rejection.reason),
                    rejection.retryable,
                    name,
                );
            }
        }
        for (link, id) in granted_parts(grant) {
            match node.link_hop(uid, id).1 {
                LinkState::Confirmed => {}
                LinkState::Refused { reason, retryable } => {
                    return refusal(format!("{link}: {reason}"), retryable, name);
                }
                LinkState::Waiting => {
                    let message = format!("{link} on Node {name} {}", self.hosts.waits_for(name));
                    return PodProgress::Waits(message, Some(name.clone()));
                }
            }
        }
        if let Some(former) = node.unwanted_link(uid, &template::link_id(key, "")) {
            let message = format!("the removal of {former} on Node {name} {}", self.hosts.waits_for(name));
            return PodProgress::Waits(message, Some(name.clone()));
        }
        PodProgress::Confirmed
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
        let Some(provider) = self.pods.providers.get(key) else { return Vec::new() };
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

    fn problem_of(&self, key: &Key, uid: &Name, entry: &Entry, state: Option<&PodState>) -> Option<String> {
        if entry.withdrawal.is_some() {
            return Some("what it was given is being taken back".into());
        }
        if entry.problem.is_none() && state.is_some_and(|state| !state.runs()) {
            return Some("it waits until its first container runs".into());
        }
        match self.progress(key, uid, entry) {
            PodProgress::Refused(message, _) | PodProgress::Retried(message, _) => Some(message),
            _ => None,
        }
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
                    self.hosts.waits_for(name)
                ),
            });
        }
        None
    }

    /// Evaluates a Bridge on the nodes where it is wanted.
    pub(crate) fn evaluate_bridge(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        if !self.config.nodes {
            return evaluation.wait(NO_AGENTS.into());
        }
        let Some(spec) = self.store.effective(key, Spec::bridge) else { return };
        inputs.add(&(&spec.name, &spec.cidrs, spec.mtu));
        for name in self.pods.bridge_nodes(&spec.name) {
            let Some(node) = self.hosts.nodes.node(name).filter(|node| node.is_ready()) else { continue };
            let hop = node.network_hop(&spec.name, None, None, node.bridge_since(&spec.name));
            self.hosts.note_hop(evaluation, name, &hop, || format!("Node {name}: bridge {}", spec.name));
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

fn refusal(message: String, retryable: bool, node: &Name) -> PodProgress {
    if retryable {
        PodProgress::Retried(message + "; it is retried", node.clone())
    } else {
        PodProgress::Refused(message, false)
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

/// The names and ids of the parts of a grant.
fn granted_parts(grant: &Grant) -> impl Iterator<Item = (String, &str)> {
    let links = grant.links.iter().map(|(name, link)| (format!("link {name}"), link.id.as_str()));
    links.chain(grant.primary.iter().map(|primary| (primary.name.clone(), primary.id.as_str())))
}
