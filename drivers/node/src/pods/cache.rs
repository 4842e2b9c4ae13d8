//! What is remembered between two runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{HostNetwork, LinkKind, NodeDesired, NodePod, PodLink};

use super::cleanup::DeletedEnds;
use super::resolve::Sandbox;
use super::session::Outcome;

/// What spares work, and no more: all of it can be found again.
#[derive(Debug, Default)]
pub struct Cache {
    /// Pods that were given something, by uid.
    pub pods: BTreeMap<String, CachedPod>,
    /// Namespaces were looked through for pods of earlier lives.
    pub orphans_searched: bool,
    /// What the pods were last given something on.
    pub networks: BTreeMap<String, HostNetwork>,
    /// When the last run that looked at all of them came to its end; `None` also while one is under way, and after one
    /// that did not come to its end.
    pub last_audit: Option<Instant>,
    /// What was wanted of those that are not as wanted, when that was last tried.
    pub unconverged: BTreeMap<String, NodePod>,
    /// Host ends that are open ports of Open vSwitch, for the next run.
    pub open_ports: Arc<BTreeSet<String>>,
}

/// Pods that are not looked at, by uid.
pub type Skipped<'a> = BTreeMap<&'a str, Arc<ConvergedPod>>;

impl Cache {
    /// Pods that are as wanted, and of which nothing was heard since that was seen. `None`: all are to be looked at,
    /// since they are made on something else than before; or since nothing else is wanted and all were `last_audit` at
    /// longer than `audit` ago.
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

#[derive(Clone, Debug)]
pub struct CachedPod {
    pub sandbox: Sandbox,
    /// `NodePod::container` when it was looked up.
    pub container: String,
    /// What was there when it was last looked at, and nothing else of ours, if all of it was as wanted.
    pub converged: Option<Arc<ConvergedPod>>,
}

/// A pod that is as wanted.
#[derive(Debug)]
pub struct ConvergedPod {
    pub pod: NodePod,
    pub outcome: Outcome,
}

impl CachedPod {
    /// It had nothing but pairs, all of which have gone with their ends on the host, and what is on them with them:
    /// its namespace need not be entered.
    pub fn removed_with_host_ends(&self, uid: &str, deleted_ends: &DeletedEnds) -> bool {
        let is_deleted = |link: &PodLink| {
            matches!(link.kind, LinkKind::Veth { .. })
                && link.rules.is_empty()
                && deleted_ends.contains(&(uid.to_owned(), link.id.clone()))
        };
        let pod = self.converged.as_ref().map(|converged| &converged.pod);
        pod.is_some_and(|pod| pod.primary.is_none() && pod.links.iter().all(is_deleted))
    }

    /// It is as wanted, if that is what is wanted.
    pub fn converged_as(&self, wanted: &NodePod) -> Option<&Arc<ConvergedPod>> {
        self.converged.as_ref().filter(|converged| converged.pod == *wanted)
    }
}
