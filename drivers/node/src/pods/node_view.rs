//! The one view of the node: what is known of the host and of each pod, and what has to be read again, and why. Pure.
//!
//! | what is known | until | then |
//! |---|---|---|
//! | the host's interfaces ([`Mirror`]) | notifications are lost, or an audit is due ([`AuditReason`]) | the interfaces are listed, and all pods are read |
//! | that a pod is as desired | its desired state changes, or the kernel notifies a change of it ([`ReadReason`]) | this pod is read |
//!
//! The [`monitor`](super::monitor) keeps the view true with what netlink notifies. A reconcile asks the view what to
//! read, and records what it has read. The view spares work only: all of it can be read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{HostNetwork, LinkKind, NodeDesired, NodePod, PodLink};

use super::cleanup::DeletedEnds;
use super::resolve::Sandbox;
use super::session::Outcome;
use super::{empty_pod, ownership};
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
    /// The last audit is as old as their interval, and nothing else is to be done. The kernel does not notify every
    /// change.
    Interval,
}

/// Why a pod is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadReason {
    /// All pods are read.
    Audit(AuditReason),
    /// It was never read. It has no routes or rules of ENO unless it has interfaces of ENO: pods that an earlier agent
    /// configured are read in an audit.
    New,
    /// It is not desired any more.
    Undesired,
    /// Its desired state has changed, or its last reconcile failed.
    NotAsDesired,
    /// The kernel has notified a change in its namespace, or of its host ends.
    Notified,
    /// Its changes are not notified: it has no subscription, or its namespace has ended.
    Unwatched,
}

/// What a reconcile has to read.
#[derive(Debug)]
pub struct Reads<'a> {
    /// Why the host is listed and all pods are read; `None`: the host's interfaces are known.
    pub audit: Option<AuditReason>,
    /// The desired pods that are read, by uid.
    pods: BTreeMap<&'a str, ReadReason>,
    /// The pods that are not read, by uid: they are as desired, or postponed.
    pub skipped: BTreeMap<String, Arc<LastRead>>,
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
    /// The result of the last reconcile.
    pub before: Option<Arc<LastRead>>,
    /// [`Outcome::granted`] of the last reconcile that came to its end.
    pub granted: BTreeSet<u32>,
}

/// The network namespace of a pod.
#[derive(Clone, Debug)]
pub struct PodNamespace {
    /// Where it is.
    pub sandbox: Sandbox,
    /// `NodePod::container` when it was resolved.
    pub container: String,
}

/// What a reconcile of a pod has shown.
#[derive(Debug)]
pub struct LastRead {
    /// The desired state.
    pub pod: NodePod,
    /// How far the pod is as desired.
    pub outcome: Outcome,
}

/// What is known of a pod.
#[derive(Debug, Default)]
struct KnownPod {
    /// Its network namespace; `None`: it could not be resolved, so nothing of ENO is known to be in it.
    namespace: Option<PodNamespace>,
    /// The last reconcile; `None`: there was none, it is in progress, or it did not come to its end.
    last: Option<Arc<LastRead>>,
    /// [`Outcome::granted`] of the last reconcile that came to its end.
    granted: BTreeSet<u32>,
    /// True when a change was notified since it was last read.
    notified: bool,
    /// CPU time that its reads took, less what the time since allows, as of this time.
    spent: Option<(Duration, Instant)>,
    /// It is not read again before this time, unless its desired state changes: its reads took too much CPU time.
    postponed: Option<Instant>,
}

impl KnownPod {
    /// The last reconcile of a pod that is postponed at this time.
    fn if_postponed(&self, now: Instant) -> Option<&Arc<LastRead>> {
        let is_postponed = self.postponed.is_some_and(|until| until > now);
        self.last.as_ref().filter(|last| is_postponed && last.outcome.awaiting_port.is_empty())
    }
}

/// CPU time that the reads of a pod may take at once. A pod beyond that is postponed, since it may keep changing.
const CPU_BURST: Duration = Duration::from_secs(1);

/// In the long run the reads of a pod take at most this part of a worker's time.
const CPU_SHARE: u32 = 10;

/// The view; see the [module](self).
#[derive(Debug, Default)]
pub struct NodeView {
    /// The interfaces of the host.
    mirror: Mirror,
    /// False before the host's interfaces were listed, and when notifications of them were lost.
    is_host_known: bool,
    /// The cluster's name in ownership marks.
    cluster: String,
    /// The pods that are desired, or have interfaces of ENO, by uid.
    pods: BTreeMap<String, KnownPod>,
    /// The networks of the last reconcile.
    networks: BTreeMap<String, HostNetwork>,
    /// When the last reconcile that read all pods ended. `None` also during a reconcile, and after one that did not
    /// come to its end.
    last_audit: Option<Instant>,
    /// True once the node's namespaces were searched for pods that an earlier agent configured.
    pub orphans_searched: bool,
}

/// What is notified, and what was read of the host.
impl NodeView {
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

    /// Takes interfaces of the host that were read, by index, and the VLANs of filtering ports.
    pub fn host_read(&mut self, links: impl IntoIterator<Item = (u32, Option<Link>)>, mut vlans: PortsVlans) {
        for (index, link) in links {
            self.mirror.update(index, link, vlans.remove(&index));
        }
    }

    /// Takes what the kernel has notified of the host. True when a pod may have changed.
    pub fn host_notified(&mut self, notifications: Notifications) -> bool {
        let changed = self.mirror.receive(notifications);
        self.mark_owners(&changed)
    }

    /// From here on changes of the host's interfaces may have been missed.
    pub fn host_lost(&mut self) {
        self.is_host_known = false;
    }

    /// Takes a notification from the namespace of a pod.
    pub fn pod_notified(&mut self, uid: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.notified = true;
        }
    }

    /// Marks the pods of these host ends as changed. True when any interface is the host end of a pod.
    fn mark_owners(&mut self, changed: &[Link]) -> bool {
        let owner =
            |link: &Link| Some(ownership::read_alias(&self.cluster, link.alias.as_deref()?)?.0.to_owned());
        let uids: Vec<String> = changed.iter().filter_map(owner).collect();
        for uid in &uids {
            self.pod_notified(uid);
        }
        !uids.is_empty()
    }
}

/// What a reconcile reads, and what it has read.
impl NodeView {
    /// Starts a reconcile: what it has to read. `interval`: the time between audits. `is_watched`: pods whose changes
    /// are notified, by uid.
    pub fn start<'a>(
        &mut self,
        desired: &'a NodeDesired,
        now: Instant,
        interval: Duration,
        is_watched: impl Fn(&str) -> bool,
    ) -> Reads<'a> {
        let audit = self.audit_reason(desired, now, interval);
        let last_audit = self.last_audit.take();
        let mut reads = Reads { audit, pods: BTreeMap::new(), skipped: BTreeMap::new(), last_audit };
        for (uid, pod) in &desired.pods {
            match self.pod_state(uid, pod, audit, now, &is_watched) {
                Ok(last) => drop(reads.skipped.insert(uid.clone(), last)),
                Err(reason) => drop(reads.pods.insert(uid, reason)),
            }
        }
        for (uid, pod) in self.pods.iter().filter(|(uid, _)| !desired.pods.contains_key(*uid)) {
            let removed = pod.if_postponed(now).filter(|last| last.pod == empty_pod());
            reads.skipped.extend(removed.map(|last| (uid.clone(), Arc::clone(last))));
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
        // An audit waits while the desired state of the pods is just changing.
        let is_tried = |(uid, wanted): (&String, &NodePod)| {
            self.pods.get(uid).and_then(|pod| pod.last.as_ref()).is_some_and(|last| last.pod == *wanted)
        };
        let is_removal_tried = |(uid, pod): (&String, &KnownPod)| {
            desired.pods.contains_key(uid)
                || pod.namespace.is_none()
                || pod.last.as_ref().is_some_and(|last| !last.outcome.is_complete())
        };
        let is_due = desired.pods.iter().all(is_tried)
            && self.pods.iter().all(is_removal_tried)
            && now.saturating_duration_since(last_audit) >= interval;
        is_due.then_some(AuditReason::Interval)
    }

    /// The last state of a desired pod that is not read, or why it has to be read.
    fn pod_state(
        &self,
        uid: &str,
        wanted: &NodePod,
        audit: Option<AuditReason>,
        now: Instant,
        is_watched: impl Fn(&str) -> bool,
    ) -> Result<Arc<LastRead>, ReadReason> {
        let pod = self.pods.get(uid);
        if let Some(last) = pod.and_then(|pod| pod.if_postponed(now)).filter(|last| last.pod == *wanted) {
            return Ok(Arc::clone(last));
        }
        if let Some(audit) = audit {
            return Err(ReadReason::Audit(audit));
        }
        let pod = pod.ok_or(ReadReason::New)?;
        match &pod.last {
            Some(last) if last.pod == *wanted && last.outcome.is_complete() => match pod.notified {
                true => Err(ReadReason::Notified),
                false if !is_watched(uid) => Err(ReadReason::Unwatched),
                false => Ok(Arc::clone(last)),
            },
            _ => Err(ReadReason::NotAsDesired),
        }
    }

    /// The pods that the reconcile reads, those that are not desired first. Their state is unknown from here on, even
    /// if the reconcile does not come to its end.
    pub fn pods_to_read(&mut self, desired: &NodeDesired, reads: &Reads<'_>) -> Vec<PodRead> {
        self.pods.retain(|uid, pod| pod.namespace.is_some() || desired.pods.contains_key(uid));
        let reason = reads.audit.map_or(ReadReason::Undesired, ReadReason::Audit);
        let is_read = |uid: &&String| !desired.pods.contains_key(*uid) && !reads.skipped.contains_key(*uid);
        let undesired = self.pods.keys().filter(is_read);
        let undesired: Vec<_> = undesired.map(|uid| (uid.clone(), reason)).collect();
        let wanted = reads.pods.iter().map(|(uid, reason)| ((*uid).to_owned(), *reason));
        let read = |(uid, reason): (String, ReadReason)| {
            let pod = self.pods.entry(uid.clone()).or_default();
            let (namespace, granted) = (pod.namespace.clone(), pod.granted.clone());
            PodRead { uid, reason, namespace, before: pod.last.take(), granted }
        };
        undesired.into_iter().chain(wanted).map(read).collect()
    }

    /// Changes of a pod that is about to be read are notified from here on.
    pub fn pod_starts(&mut self, uid: &str) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.notified = false;
        }
    }

    /// Records what was read of a pod, which took so much CPU time. Nothing of ENO is left in a pod that is as desired without
    /// being desired.
    pub fn record(
        &mut self,
        uid: &str,
        is_desired: bool,
        namespace: Option<PodNamespace>,
        last: LastRead,
        (now, took): (Instant, Duration),
    ) {
        if !is_desired && last.outcome.is_complete() {
            self.pods.remove(uid);
        } else if let Some(pod) = self.pods.get_mut(uid) {
            pod.namespace = namespace;
            pod.granted.clone_from(&last.outcome.granted);
            pod.last = Some(Arc::new(last));
            let (spent, since) = pod.spent.unwrap_or((Duration::ZERO, now));
            let spent = spent.saturating_sub(now.saturating_duration_since(since) / CPU_SHARE) + took;
            pod.spent = Some((spent, now));
            let excess = spent.saturating_sub(CPU_BURST);
            pod.postponed = (excess > Duration::ZERO).then(|| now + excess * CPU_SHARE);
        }
    }

    /// True when a pod that was notified and postponed is to be read now.
    pub fn is_postponed_due(&self, now: Instant) -> bool {
        self.pods.values().any(|pod| pod.notified && pod.postponed.is_some_and(|until| until <= now))
    }

    /// Ends a reconcile that came to its end.
    pub fn finish(&mut self, reads: &Reads<'_>, now: Instant) {
        self.last_audit = if reads.audit.is_some() { Some(now) } else { reads.last_audit };
    }

    /// True when a pod is desired, or has interfaces of ENO.
    pub fn has_pod(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Adds a pod that an earlier agent configured.
    pub fn add_orphan(&mut self, uid: String, sandbox: Sandbox) {
        let namespace = Some(PodNamespace { sandbox, container: String::new() });
        self.pods.insert(uid, KnownPod { namespace, ..KnownPod::default() });
    }

    /// Forgets undesired pods that had nothing but veth pairs, all of which were deleted with their host ends. Their
    /// namespaces need not be entered.
    pub fn forget_removed(&mut self, desired: &NodeDesired, deleted_ends: &DeletedEnds) {
        self.pods.retain(|uid, pod| {
            let is_deleted = |link: &PodLink| {
                matches!(link.kind, LinkKind::Veth { .. })
                    && link.rules.is_empty()
                    && deleted_ends.contains(&(uid.clone(), link.id.clone()))
            };
            let last = pod.last.as_ref().filter(|last| last.outcome.is_complete());
            let is_removed =
                last.is_some_and(|last| last.pod.primary.is_none() && last.pod.links.iter().all(is_deleted));
            desired.pods.contains_key(uid) || !is_removed
        });
    }
}

#[cfg(test)]
#[path = "node_view_tests.rs"]
mod tests;
