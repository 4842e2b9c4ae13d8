//! What is remembered between two runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{HostNetwork, LinkKind, NodeDesired, NodePod, PodLink};

use super::resolve::Sandbox;
use super::session::Outcome;
use super::sweep::Swept;

/// What spares work, and no more: all of it can be found again.
#[derive(Debug, Default)]
pub struct Known {
    /// Pods that were given something, by uid.
    pub pods: BTreeMap<String, KnownPod>,
    /// Namespaces were looked through for pods of earlier lives.
    pub searched: bool,
    /// What the pods were last given something on.
    pub networks: BTreeMap<String, HostNetwork>,
    /// When the last run that looked at all of them came to its end; `None` also while one is under way, and after one
    /// that did not come to its end.
    pub looked: Option<Instant>,
    /// What was wanted of those that are not as wanted, when that was last tried.
    pub open: BTreeMap<String, NodePod>,
    /// Host ends that are open ports of Open vSwitch, for the next run.
    pub plugged: Arc<BTreeSet<String>>,
}

/// Pods that are not looked at, by uid.
pub type Resting<'a> = BTreeMap<&'a str, Arc<Settled>>;

impl Known {
    /// Pods that are as wanted, and of which nothing was heard since that was seen. `None`: all are to be looked at,
    /// since they are made on something else than before; or since nothing else is wanted and all were `looked` at
    /// longer than `audit` ago.
    pub fn resting<'a>(
        &self,
        desired: &'a NodeDesired,
        looked: Option<Instant>,
        audit: Duration,
        quiet: impl Fn(&str) -> bool,
    ) -> Option<Resting<'a>> {
        let looked = looked.filter(|_| self.networks == desired.networks)?;
        let as_wanted = |(uid, pod): (&'a String, &NodePod)| {
            self.pods.get(uid)?.settled_as(pod).map(|settled| (uid.as_str(), Arc::clone(settled)))
        };
        let mut resting: Resting<'a> = desired.pods.iter().filter_map(as_wanted).collect();
        let tried = |(uid, pod): (&String, &NodePod)| {
            resting.contains_key(uid.as_str()) || self.open.get(uid) == Some(pod)
        };
        let known = |uid: &String| desired.pods.contains_key(uid) || self.open.contains_key(uid);
        let nothing_else = desired.pods.iter().all(tried) && self.pods.keys().all(known);
        resting.retain(|uid, _| quiet(uid));
        (!nothing_else || looked.elapsed() < audit).then_some(resting)
    }
}

#[derive(Clone, Debug)]
pub struct KnownPod {
    pub sandbox: Sandbox,
    /// `NodePod::container` when it was looked up.
    pub container: String,
    /// What was there when it was last looked at, and nothing else of ours, if all of it was as wanted.
    pub settled: Option<Arc<Settled>>,
}

/// A pod that is as wanted.
#[derive(Debug)]
pub struct Settled {
    pub pod: NodePod,
    pub outcome: Outcome,
}

impl KnownPod {
    /// It had nothing but pairs, all of which have gone with their ends on the host, and what is on them with them:
    /// its namespace need not be entered.
    pub fn went_with(&self, uid: &str, swept: &Swept) -> bool {
        let went = |link: &PodLink| {
            matches!(link.kind, LinkKind::Veth { .. })
                && link.rules.is_empty()
                && swept.contains(&(uid.to_owned(), link.id.clone()))
        };
        let pod = self.settled.as_ref().map(|settled| &settled.pod);
        pod.is_some_and(|pod| pod.primary.is_none() && pod.links.iter().all(went))
    }

    /// It is as wanted, if that is what is wanted.
    pub fn settled_as(&self, wanted: &NodePod) -> Option<&Arc<Settled>> {
        self.settled.as_ref().filter(|settled| settled.pod == *wanted)
    }
}
