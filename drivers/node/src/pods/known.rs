//! What is remembered between two runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{HostNetwork, LinkKind, Master, NodeDesired, NodePod, PodLink};

use super::check;
use super::kind::{self, Base};
use super::resolve::Sandbox;
use super::session::Outcome;
use super::sweep::Swept;
use super::watch::Watched;

/// What spares work, and no more: all of it can be found again.
#[derive(Debug, Default)]
pub struct Known {
    /// Pods that were given something, by uid.
    pub pods: BTreeMap<String, KnownPod>,
    /// Namespaces were looked through for pods of earlier lives.
    pub searched: bool,
    /// The host is watched.
    pub host: Option<Watched>,
    /// What the pods were last given something on.
    pub networks: BTreeMap<String, HostNetwork>,
    /// The last run that was to look at all of them came to its end.
    pub seen: bool,
}

/// Pods that are not looked at, by uid.
pub type Resting = BTreeMap<String, Arc<Settled>>;

impl Known {
    /// Pods that are as wanted, and of which nothing was heard since that was seen; none when nothing else is wanted
    /// than before: then they are what is to be looked at.
    pub fn resting(&self, desired: &NodeDesired) -> Resting {
        let quiet = self.seen && self.host.as_ref().is_some_and(Watched::is_quiet);
        if !quiet || self.networks != desired.networks {
            return Resting::new();
        }
        let resting: Resting = desired
            .pods
            .iter()
            .filter_map(|(uid, pod)| {
                let known = self.pods.get(uid)?;
                let settled = known.settled_as(pod)?;
                known.watched.as_ref()?.is_quiet().then(|| (uid.clone(), Arc::clone(settled)))
            })
            .collect();
        let all = resting.len() == desired.pods.len() && resting.len() == self.pods.len();
        if all { Resting::new() } else { resting }
    }

    /// True when nothing is to be done but to look at the host and to work on one pod that is wanted.
    pub fn lacks_one(&self, desired: &NodeDesired, resting: &Resting) -> bool {
        self.host.is_some()
            && self.searched
            && desired.pods.len() == resting.len() + 1
            && self.pods.keys().all(|uid| desired.pods.contains_key(uid))
    }
}

#[derive(Clone, Debug)]
pub struct KnownPod {
    pub sandbox: Sandbox,
    /// `NodePod::container` when it was looked up.
    pub container: String,
    /// What was there at the end of the last run, and nothing else of ours, if all of it was as wanted.
    pub settled: Option<Arc<Settled>>,
    pub watched: Option<Watched>,
}

/// A pod that is as wanted.
#[derive(Debug)]
pub struct Settled {
    pub pod: NodePod,
    pub outcome: Outcome,
}

impl KnownPod {
    /// What of the host its work has to do with, by name: bridges, and the host's ends of what it has. `None`: it is to
    /// be given what is made on another interface of the host, or what it has is not known. `new`: this process has
    /// never worked on it; that a name is taken shows when its end is made.
    pub fn concerned(&self, new: bool, wanted: &NodePod) -> Option<BTreeSet<String>> {
        if self.settled.is_none() && !new {
            return None;
        }
        let applied = self.settled.iter().flat_map(|settled| settled.outcome.applied.values());
        let mut names: BTreeSet<String> = applied.filter_map(|link| link.host_name.clone()).collect();
        for link in &wanted.links {
            match &link.kind {
                LinkKind::Veth { master: Some(Master::Bridge { bridge, .. }) } => {
                    names.extend(check::interface_name(bridge).map(|()| bridge.clone()));
                }
                kind if matches!(kind::base(kind), Base::Host(_)) => return None,
                _ => {}
            }
        }
        Some(names)
    }

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
