//! The one view of the node: what is known of the host and of each pod, and what of it has to be read, and why. Pure.
//!
//! | what | is true until | and then |
//! |---|---|---|
//! | the host's interfaces ([`Mirror`]) | notifications are lost, or an audit is due ([`AuditReason`]) | they are listed, and all pods are read |
//! | a pod is as desired ([`LastRead::Converged`]) | its desired state changes, or the kernel notifies a change in its namespace or of its host ends ([`ReadReason`]) | this pod is read |
//!
//! Netlink keeps the host's interfaces and the marks of changed pods true ([`NetlinkMonitor`](super::monitor)); a
//! reconcile asks what to read, and records what it has read. The view spares work only: all of it can be read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{HostNetwork, LinkKind, NodeDesired, NodePod, PodLink};

use super::cleanup::DeletedEnds;
use super::ownership;
use super::resolve::Sandbox;
use super::session::Outcome;
use crate::netlink::{Link, Links, Mirror, Notifications, PortsVlans};

/// Why the host's interfaces are listed and all pods are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditReason {
    /// The host's interfaces were not listed yet, or notifications of them were lost: any pod may have changed.
    HostUnknown,
    /// There was no reconcile yet, or the last one did not come to its end.
    Unfinished,
    /// The networks of the host have changed.
    Networks,
    /// The last audit is as old as their interval, and there is nothing else to do. The kernel does not notify every
    /// change.
    Interval,
}

/// Why a pod is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadReason {
    /// All pods are read.
    Audit(AuditReason),
    /// This process has not seen it, so it has no routes or rules of ENO unless it has interfaces of ENO. An agent that
    /// has just started makes an audit.
    New,
    /// It is not desired any more.
    Undesired,
    /// It is not known to be as desired: its desired state has changed, or its last reconcile failed.
    NotAsDesired,
    /// The kernel has notified a change in its namespace, or of its host ends.
    Notified,
    /// Nobody would notify its changes: it has no subscription, or its namespace has ended.
    Unwatched,
}

/// What a reconcile has to read.
#[derive(Debug)]
pub struct Reads<'a> {
    /// Why the host is listed and all pods are read; `None`: the host's interfaces are known.
    pub audit: Option<AuditReason>,
    /// The desired pods that are read, by uid.
    pods: BTreeMap<&'a str, ReadReason>,
    /// The pods that are as desired and are not read, by uid.
    pub skipped: BTreeMap<&'a str, Arc<ConvergedPod>>,
    /// [`NodeView::last_audit`] at the start.
    last_audit: Option<Instant>,
}

/// A pod that a reconcile reads.
#[derive(Debug)]
pub struct PodRead {
    /// Its uid.
    pub uid: String,
    /// Why it is read.
    pub reason: ReadReason,
    /// Its network namespace, if it was resolved before.
    pub namespace: Option<PodNamespace>,
    /// The state that it was last in, if that was as desired.
    pub before: Option<Arc<ConvergedPod>>,
}

/// The network namespace of a pod.
#[derive(Clone, Debug)]
pub struct PodNamespace {
    /// Where it is.
    pub sandbox: Sandbox,
    /// `NodePod::container` when it was resolved.
    pub container: String,
}

/// A pod that is as desired.
#[derive(Debug)]
pub struct ConvergedPod {
    /// Its desired state.
    pub pod: NodePod,
    /// The outcome of its last reconcile.
    pub outcome: Outcome,
}

/// What the last reconcile of a pod has shown.
#[derive(Debug, Default)]
pub enum LastRead {
    /// There was none, it is in progress, or it did not come to its end.
    #[default]
    Unknown,
    /// The pod is as desired.
    Converged(Arc<ConvergedPod>),
    /// This desired state was not reached.
    Unconverged(NodePod),
}

/// What is known of a pod. `S`: a subscription to the changes in its namespace.
#[derive(Debug)]
struct KnownPod<S> {
    /// Its network namespace; `None`: it could not be resolved, so the pod has nothing of ENO that is known.
    namespace: Option<PodNamespace>,
    last: LastRead,
    /// `None` while it is being read.
    subscription: Option<S>,
    /// True when a change was notified since it was last read.
    notified: bool,
}

/// The view; see the [module](self). `S`: a subscription to the changes in a pod's namespace; it has a socket, and
/// tests have none.
#[derive(Debug)]
pub struct NodeView<S> {
    /// The interfaces of the host.
    mirror: Mirror,
    /// False before the host's interfaces were listed, and when notifications of them were lost.
    is_host_known: bool,
    /// The cluster's name in ownership marks.
    cluster: String,
    /// The pods that are desired, or have interfaces of ENO, by uid.
    pods: BTreeMap<String, KnownPod<S>>,
    /// The networks of the last reconcile.
    networks: BTreeMap<String, HostNetwork>,
    /// When the last reconcile that read all pods ended. `None` also during a reconcile, and after one that did not
    /// come to its end.
    last_audit: Option<Instant>,
    /// True once the node's namespaces were searched for pods that an earlier agent configured.
    pub orphans_searched: bool,
}

impl<S> Default for KnownPod<S> {
    fn default() -> Self {
        Self { namespace: None, last: LastRead::Unknown, subscription: None, notified: false }
    }
}

impl<S> Default for NodeView<S> {
    fn default() -> Self {
        Self {
            mirror: Mirror::default(),
            is_host_known: false,
            cluster: String::new(),
            pods: BTreeMap::new(),
            networks: BTreeMap::new(),
            last_audit: None,
            orphans_searched: false,
        }
    }
}

/// The host.
impl<S> NodeView<S> {
    /// The interfaces of the host; `None`: they have to be listed.
    pub fn host_links(&mut self) -> Option<Arc<Links>> {
        self.is_host_known.then(|| Arc::clone(self.mirror.links()))
    }

    /// True when notifications about the VLANs of this port of the host are of use.
    pub fn tracks_vlans(&self, port: u32) -> bool {
        self.mirror.tracks_vlans(port)
    }

    /// Takes a list of all interfaces of the host.
    pub fn host_listed(&mut self, cluster: &str, links: Vec<Link>) {
        cluster.clone_into(&mut self.cluster);
        self.is_host_known = true;
        let changed = self.mirror.list(links);
        self.mark_owners(&changed);
    }

    /// Takes what the kernel has notified of the host; `None`: notifications were lost. True when a pod may have
    /// changed.
    pub fn host_notified(&mut self, notifications: Option<Notifications>) -> bool {
        match notifications {
            Some(notifications) => {
                let changed = self.mirror.receive(notifications);
                self.mark_owners(&changed)
            }
            None => {
                self.host_lost();
                true
            }
        }
    }

    /// From here on changes of the host's interfaces may have been missed.
    pub fn host_lost(&mut self) {
        self.is_host_known = false;
    }

    /// Takes interfaces of the host that were read, by index, and the VLANs of filtering ports.
    pub fn host_read(&mut self, links: impl IntoIterator<Item = (u32, Option<Link>)>, mut vlans: PortsVlans) {
        for (index, link) in links {
            self.mirror.update(index, link, vlans.remove(&index));
        }
    }

    /// Marks the pods of these host ends as changed. True when any interface is the host end of a pod.
    fn mark_owners(&mut self, changed: &[Link]) -> bool {
        let mut any = false;
        for alias in changed.iter().filter_map(|link| link.alias.as_deref()) {
            if let Some((uid, _)) = ownership::read_alias(&self.cluster, alias) {
                any = true;
                if let Some(pod) = self.pods.get_mut(uid) {
                    pod.notified = true;
                }
            }
        }
        any
    }
}

/// Subscriptions to the namespaces of pods.
impl<S> NodeView<S> {
    /// Subscribes to a pod's changes, except to a pod that has no interface of ENO any more.
    pub fn subscribe(&mut self, uid: &str, subscription: S) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.subscription = Some(subscription);
        }
    }

    /// Ends the subscription to a pod that is about to be read: it is as yet unchanged.
    pub fn unsubscribe(&mut self, uid: &str) -> Option<S> {
        let pod = self.pods.get_mut(uid)?;
        pod.notified = false;
        pod.subscription.take()
    }

    /// All subscriptions, ascending by the pods' uids.
    pub fn subscriptions(&self) -> impl Iterator<Item = &S> {
        self.pods.values().filter_map(|pod| pod.subscription.as_ref())
    }

    /// Ends the subscriptions that `keep` does not accept.
    pub fn retain_subscriptions(&mut self, mut keep: impl FnMut(&mut S) -> bool) {
        for pod in self.pods.values_mut() {
            if !pod.subscription.as_mut().is_some_and(&mut keep) {
                pod.subscription = None;
            }
        }
    }

    /// Marks the pods whose subscription `is_notified` accepts as changed. True when there are any.
    pub fn pods_notified(&mut self, mut is_notified: impl FnMut(&S) -> bool) -> bool {
        let mut any = false;
        for pod in self.pods.values_mut() {
            if pod.subscription.as_ref().is_some_and(&mut is_notified) {
                pod.notified = true;
                any = true;
            }
        }
        any
    }
}

/// What a reconcile reads.
impl<S> NodeView<S> {
    /// Starts a reconcile: what it has to read. `interval`: the time between audits.
    pub fn start<'a>(&mut self, desired: &'a NodeDesired, now: Instant, interval: Duration) -> Reads<'a> {
        let audit = self.audit_reason(desired, now, interval);
        let mut reads = Reads {
            audit,
            pods: BTreeMap::new(),
            skipped: BTreeMap::new(),
            last_audit: self.last_audit.take(),
        };
        for (uid, pod) in &desired.pods {
            match self.pod_state(uid, pod, audit) {
                Ok(converged) => drop(reads.skipped.insert(uid, converged)),
                Err(reason) => drop(reads.pods.insert(uid, reason)),
            }
        }
        self.networks.clone_from(&desired.networks);
        reads
    }

    /// Why the host has to be listed and all pods have to be read; `None`: they need not.
    fn audit_reason(&self, desired: &NodeDesired, now: Instant, interval: Duration) -> Option<AuditReason> {
        if !self.is_host_known {
            return Some(AuditReason::HostUnknown);
        }
        let Some(last_audit) = self.last_audit else { return Some(AuditReason::Unfinished) };
        if self.networks != desired.networks {
            return Some(AuditReason::Networks);
        }
        let is_due = self.is_tried(desired) && now.saturating_duration_since(last_audit) >= interval;
        is_due.then_some(AuditReason::Interval)
    }

    /// True when a reconcile has tried this very desired state of the pods.
    fn is_tried(&self, desired: &NodeDesired) -> bool {
        let is_pod_tried = |(uid, wanted): (&String, &NodePod)| {
            let pod = self.pods.get(uid).map(|pod| &pod.last);
            match pod {
                Some(LastRead::Converged(converged)) => converged.pod == *wanted,
                Some(LastRead::Unconverged(tried)) => tried == wanted,
                Some(LastRead::Unknown) | None => false,
            }
        };
        let is_removal_tried = |(uid, pod): (&String, &KnownPod<S>)| {
            desired.pods.contains_key(uid)
                || pod.namespace.is_none()
                || matches!(pod.last, LastRead::Unconverged(_))
        };
        desired.pods.iter().all(is_pod_tried) && self.pods.iter().all(is_removal_tried)
    }

    /// The state of a desired pod that need not be read, or why it has to be read.
    fn pod_state(
        &self,
        uid: &str,
        wanted: &NodePod,
        audit: Option<AuditReason>,
    ) -> Result<Arc<ConvergedPod>, ReadReason> {
        if let Some(audit) = audit {
            return Err(ReadReason::Audit(audit));
        }
        let pod = self.pods.get(uid).ok_or(ReadReason::New)?;
        match &pod.last {
            LastRead::Converged(converged) if converged.pod == *wanted => match pod {
                KnownPod { notified: true, .. } => Err(ReadReason::Notified),
                KnownPod { subscription: None, .. } => Err(ReadReason::Unwatched),
                _ => Ok(Arc::clone(converged)),
            },
            _ => Err(ReadReason::NotAsDesired),
        }
    }

    /// The pods that the reconcile reads, those that are not desired first. Their state is unknown from here on, even
    /// if the reconcile does not come to its end.
    pub fn pods_to_read(&mut self, desired: &NodeDesired, reads: &Reads<'_>) -> Vec<PodRead> {
        self.pods.retain(|uid, pod| pod.namespace.is_some() || desired.pods.contains_key(uid));
        let undesired = self.pods.keys().filter(|uid| !desired.pods.contains_key(*uid));
        let reason = reads.audit.map_or(ReadReason::Undesired, ReadReason::Audit);
        let undesired: Vec<_> = undesired.map(|uid| (uid.clone(), reason)).collect();
        let wanted = reads.pods.iter().map(|(uid, reason)| ((*uid).to_owned(), *reason));
        let read = |(uid, reason): (String, ReadReason)| {
            let pod = self.pods.entry(uid.clone()).or_default();
            let before = match std::mem::take(&mut pod.last) {
                LastRead::Converged(converged) => Some(converged),
                LastRead::Unconverged(_) | LastRead::Unknown => None,
            };
            PodRead { uid, reason, namespace: pod.namespace.clone(), before }
        };
        undesired.into_iter().chain(wanted).map(read).collect()
    }

    /// Records what was read of a pod.
    pub fn record(&mut self, uid: &str, namespace: Option<PodNamespace>, last: LastRead) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.namespace = namespace;
            pod.last = last;
        }
    }

    /// Records that nothing of ENO is left in a pod.
    pub fn forget(&mut self, uid: &str) {
        self.pods.remove(uid);
    }

    /// Adds a pod that an earlier agent configured.
    pub fn add_orphan(&mut self, uid: String, sandbox: Sandbox) {
        let pod = self.pods.entry(uid).or_default();
        pod.namespace = Some(PodNamespace { sandbox, container: String::new() });
        pod.last = LastRead::Unknown;
    }

    /// Forgets undesired pods that had nothing but veth pairs, all of which were deleted with their host ends. Their
    /// namespaces need not be entered.
    pub fn forget_removed(&mut self, desired: &NodeDesired, deleted_ends: &DeletedEnds) {
        self.pods.retain(|uid, pod| {
            let LastRead::Converged(converged) = &pod.last else { return true };
            let is_deleted = |link: &PodLink| {
                matches!(link.kind, LinkKind::Veth { .. })
                    && link.rules.is_empty()
                    && deleted_ends.contains(&(uid.clone(), link.id.clone()))
            };
            let pod = &converged.pod;
            desired.pods.contains_key(uid) || pod.primary.is_some() || !pod.links.iter().all(is_deleted)
        });
    }

    /// Ends a reconcile that came to its end.
    pub fn finish(&mut self, reads: &Reads<'_>, now: Instant) {
        self.last_audit = if reads.audit.is_some() { Some(now) } else { reads.last_audit };
    }
}

#[cfg(test)]
#[path = "node_view_tests.rs"]
mod tests;
