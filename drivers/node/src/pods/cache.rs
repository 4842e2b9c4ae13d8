//! The cache that reconciles share. It spares work only: its content can be read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{HostNetwork, LinkKind, NodeDesired, NodePod, PodLink};

use super::cleanup::DeletedEnds;
use super::resolve::Sandbox;
use super::session::Outcome;

/// The state that a reconcile keeps for the next one.
#[derive(Debug, Default)]
pub struct Cache {
    /// Pods that have interfaces of ENO, by uid.
    pub pods: BTreeMap<String, CachedPod>,
    /// True once the node's namespaces were searched for pods that an earlier agent configured.
    pub orphans_searched: bool,
    /// The networks of the last reconcile.
    pub networks: BTreeMap<String, HostNetwork>,
    /// When the last reconcile that read all pods ended. `None` also during a reconcile, and after one that was
    /// dropped.
    pub last_audit: Option<Instant>,
    /// Pods that are not as desired, with their desired state at the last attempt.
    pub unconverged: BTreeMap<String, NodePod>,
    /// Host ends that are open ports of Open vSwitch, for the next reconcile.
    pub open_ports: Arc<BTreeSet<String>>,
}

/// Converged pods that a reconcile need not read, by uid.
pub type Skipped<'a> = BTreeMap<&'a str, Arc<ConvergedPod>>;

impl Cache {
    /// Converged pods without notifications since. `None`: an audit is due, so all pods are to be read. This is the
    /// case when the networks have changed, or when the desired state is unchanged and `last_audit` is older than
    /// `audit`.
    pub fn skippable_pods<'a>(
        &self,
        desired: &'a NodeDesired,
        last_audit: Option<Instant>,
        audit: Duration,
        is_unchanged: impl Fn(&str) -> bool,
    ) -> Option<Skipped<'a>> {
        let last_audit = last_audit.filter(|_| self.networks == desired.networks)?;
        let as_wanted = |(uid, pod): (&'a String, &NodePod)| {
            self.pods.get(uid)?.converged_as(pod).map(|converged| (uid.as_str(), Arc::clone(converged)))
        };
        let mut skipped: Skipped<'a> = desired.pods.iter().filter_map(as_wanted).collect();
        let tried = |(uid, pod): (&String, &NodePod)| {
            skipped.contains_key(uid.as_str()) || self.unconverged.get(uid) == Some(pod)
        };
        let is_known = |uid: &String| desired.pods.contains_key(uid) || self.unconverged.contains_key(uid);
        let nothing_else = desired.pods.iter().all(tried) && self.pods.keys().all(is_known);
        skipped.retain(|uid, _| is_unchanged(uid));
        (!nothing_else || last_audit.elapsed() < audit).then_some(skipped)
    }
}

/// A pod that has interfaces of ENO.
#[derive(Clone, Debug)]
pub struct CachedPod {
    /// Its network namespace.
    pub sandbox: Sandbox,
    /// `NodePod::container` when the sandbox was resolved.
    pub container: String,
    /// Its state when it was last read, if it was as desired.
    pub converged: Option<Arc<ConvergedPod>>,
}

/// A pod that is as desired.
#[derive(Debug)]
pub struct ConvergedPod {
    /// Its desired state.
    pub pod: NodePod,
    /// The outcome of its last reconcile.
    pub outcome: Outcome,
}

impl CachedPod {
    /// True when the pod had nothing but veth pairs, and all of them were deleted with their host ends. Then its
    /// namespace need not be entered.
    pub fn removed_with_host_ends(&self, uid: &str, deleted_ends: &DeletedEnds) -> bool {
        let is_deleted = |link: &PodLink| {
            matches!(link.kind, LinkKind::Veth { .. })
                && link.rules.is_empty()
                && deleted_ends.contains(&(uid.to_owned(), link.id.clone()))
        };
        let pod = self.converged.as_ref().map(|converged| &converged.pod);
        pod.is_some_and(|pod| pod.primary.is_none() && pod.links.iter().all(is_deleted))
    }

    /// The converged state, if it was reached for the same desired state.
    pub fn converged_as(&self, wanted: &NodePod) -> Option<&Arc<ConvergedPod>> {
        self.converged.as_ref().filter(|converged| converged.pod == *wanted)
    }
}
