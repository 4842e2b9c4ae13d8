//! One node as a target: its desired state, and what its agent has confirmed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use eno_schemas::{
    Applied, AppliedAddresses, AppliedLink, AppliedNetwork, Desired, Failure, HostNetwork, Item,
    NetworkProbes, NodeAddresses, NodeDesired, NodePod, Outcome, Rejection, Report, VlanId,
};

use crate::node::addresses;
use crate::node::probes::{Results, bounded};
use crate::status::hop::{HopState, Wait};
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name};

/// Maximum of issued states that are remembered. More are never in flight at once.
const MAX_ISSUED: usize = 8;

/// The state of one node. Versions are those of [`crate::node::Nodes`].
#[allow(clippy::struct_excessive_bools, reason = "facts of a node, independent of each other")]
#[derive(Debug, Default)]
pub struct NodeTarget {
    /// Its condition `Ready` holds.
    pub(super) ready: bool,
    /// The connection points whose pool selects it, each with the version since when.
    pub(super) points: BTreeMap<Name, u64>,
    /// Its pods by uid.
    pods: BTreeMap<Name, PodSlot>,
    /// The pod bridges wanted on it, by name.
    bridges: BTreeMap<String, HostNetwork>,
    /// The addresses that it may give to pods, by Subnet.
    addresses: BTreeMap<Name, NodeAddresses>,
    /// The host networks of the last report, by name.
    observed_networks: BTreeMap<String, AppliedNetwork>,
    /// The interfaces of the last report, by pod uid and link id.
    observed_pods: BTreeMap<String, BTreeMap<String, AppliedLink>>,
    /// The addresses of the last report, by Subnet.
    pub(super) observed_addresses: BTreeMap<Name, AppliedAddresses>,
    /// The version that [`Self::observed_addresses`] follow. `None`: no state of this process.
    addresses_version: Option<u64>,
    /// The rejections of the last report.
    rejected: Vec<Rejection>,
    /// The failure of the last report, if it was one.
    pub(super) failure: Option<Failure>,
    /// The version of the last change of its desired state.
    desired_version: u64,
    /// The version that the node has reported as applied. `None`: no state of this process.
    applied_version: Option<u64>,
    /// The hashes of the last issued states, each with its version.
    issued: VecDeque<(String, u64)>,
    /// The hash of the state last reported as applied.
    reported_hash: Option<String>,
    /// The labels and extended resources last emitted for its Node object: connection points and Open vSwitch
    /// bridges.
    pub(super) published_labels: Option<(BTreeSet<Name>, BTreeSet<Name>)>,
    /// The objects to evaluate again when this node reports.
    pub(super) waiters: BTreeSet<Key>,
    /// Pods with changes that the node has not reported on.
    unconfirmed: BTreeSet<Name>,
    /// Pods that lose interfaces, until the node has caught up.
    losing: BTreeSet<Name>,
    /// Pods with a changed state, for [`Self::take_changes`].
    changed_pods: BTreeSet<Name>,
    /// [`Self::take_changes`] has returned the changes by its first report.
    first_report_handled: bool,
    /// Host networks that appeared or disappeared, for [`Self::take_changes`].
    changed_networks: BTreeSet<String>,
    /// Subnets of which it has other addresses, for [`Self::take_changes`].
    changed_addresses: BTreeSet<Name>,
    /// It was there before this process.
    pub(super) is_inherited: bool,
    /// It has reported, if only to an earlier process.
    has_reported: bool,
    /// What its probes found, by the last report.
    pub(super) probes: Results,
    /// What of that counts.
    pub(super) counted: Results,
    /// By pod bridge: the version of its last change.
    bridges_since: BTreeMap<String, u64>,
}

/// The desired state of a pod of the node.
#[derive(Debug)]
struct PodSlot {
    /// As in the command.
    pod: Arc<NodePod>,
    /// By link id: the version of its last change.
    since: BTreeMap<String, u64>,
}

/// The effect of a report on objects that depend on the node.
#[derive(Debug, PartialEq, Eq)]
pub enum ReportChange {
    /// Nothing.
    None,
    /// Waiting objects may be confirmed.
    Progress,
    /// The failure or the rejections changed.
    Evaluation,
}

/// Changes of what a node is known to have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeChanges {
    /// Pods with a changed state.
    pub pods: BTreeSet<Name>,
    /// It is the first state that is known: all pods on the node are changed.
    pub all_pods: bool,
    /// Host networks that appeared or disappeared.
    pub networks: BTreeSet<String>,
    /// Subnets of which it has other addresses.
    pub addresses: BTreeSet<Name>,
    /// All pod bridges on the node may have changed.
    pub all_bridges: bool,
}

impl NodeTarget {
    /// Requests the evaluation of its connection points and of what uses these.
    pub(super) fn reevaluate_points(&self, store: &Store, work: &mut Work) {
        for point in self.points.keys() {
            let key = Key::cluster(Kind::ConnectionPoint, point);
            work.evaluate.extend(store.referrers(&key).cloned());
            work.evaluate.insert(key);
        }
    }

    /// Its condition `Ready` holds.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// It may be one of the nodes that probe.
    pub(super) fn can_probe(&self) -> bool {
        self.ready && self.has_reported
    }

    /// The failure of the last report, if it was one.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Records a change of the desired state.
    pub fn touch(&mut self, version: u64) {
        self.desired_version = version;
    }

    /// Sets what a pod is given; `None`: nothing. Returns true on a change.
    pub fn want_pod(&mut self, uid: &Name, pod: Option<Arc<NodePod>>, version: u64) -> bool {
        let before = self.pods.get(uid);
        if before.map(|slot| &*slot.pod) == pod.as_deref() {
            return false;
        }
        self.unconfirmed.insert(uid.clone());
        let Some(pod) = pod else {
            self.pods.remove(uid);
            self.losing.insert(uid.clone());
            self.touch(version);
            return true;
        };
        let same = before.filter(|slot| slot.pod.container == pod.container);
        let since = revisions(&pod).map(|(id, revision)| {
            let kept = same.filter(|slot| revisions(&slot.pod).any(|known| known == (id, revision)));
            (id.to_owned(), kept.and_then(|slot| slot.since.get(id).copied()).unwrap_or(version))
        });
        let since: BTreeMap<String, u64> = since.collect();
        if before.is_some_and(|slot| slot.since.keys().any(|id| !since.contains_key(id))) {
            self.losing.insert(uid.clone());
        }
        self.pods.insert(uid.clone(), PodSlot { pod, since });
        self.touch(version);
        true
    }

    /// Tracks a pod that loses something, which an earlier process may have given it.
    pub fn track_removal(&mut self, uid: &Name) {
        self.losing.insert(uid.clone());
        self.unconfirmed.insert(uid.clone());
    }

    /// Sets the desired state of a pod bridge; `None`: not wanted. Returns true on a change.
    pub fn want_bridge(&mut self, name: &str, bridge: Option<HostNetwork>, version: u64) -> bool {
        if self.bridges.get(name) == bridge.as_ref() {
            return false;
        }
        if let Some(bridge) = bridge {
            self.bridges.insert(name.to_owned(), bridge);
            self.bridges_since.insert(name.to_owned(), version);
        } else {
            self.bridges.remove(name);
            self.bridges_since.remove(name);
        }
        self.touch(version);
        true
    }

    /// Sets the addresses of a Subnet that it may give to pods; `None`: the Subnet is not commanded. Returns true on a
    /// change.
    pub fn want_addresses(&mut self, subnet: &Name, addresses: Option<NodeAddresses>, version: u64) -> bool {
        if self.addresses.get(subnet) == addresses.as_ref() {
            return false;
        }
        match addresses {
            Some(addresses) => self.addresses.insert(subnet.clone(), addresses),
            None => self.addresses.remove(subnet),
        };
        self.touch(version);
        true
    }

    /// The addresses of a Subnet that it had at its last report.
    pub fn observed_addresses(&self, subnet: &Name) -> Option<&AppliedAddresses> {
        self.observed_addresses.get(subnet)
    }

    /// True when its last report tells what it has of a Subnet after all that was wanted at `version`. An agent that does
    /// not know of addresses tells nothing.
    pub fn has_confirmed_addresses(&self, subnet: &Name, version: u64) -> bool {
        let tells = match self.observed_addresses.get(subnet) {
            Some(own) => own.unread.is_none(),
            None => !self.addresses.contains_key(subnet),
        };
        tells && self.addresses_version.is_some_and(|applied| applied >= version.min(self.desired_version))
    }

    /// The complete desired state, with these networks of connection points and probes.
    pub fn render(
        &self,
        cluster: &str,
        mut networks: BTreeMap<String, HostNetwork>,
        probes: Vec<NetworkProbes>,
    ) -> Desired {
        for (name, bridge) in &self.bridges {
            networks.entry(name.clone()).or_insert_with(|| bridge.clone());
        }
        let pods = self.pods.iter().map(|(uid, slot)| (uid.to_string(), NodePod::clone(&slot.pod))).collect();
        let addresses =
            self.addresses.iter().map(|(subnet, own)| (subnet.to_string(), own.clone())).collect();
        Desired::Node(NodeDesired { cluster: cluster.into(), networks, pods, probes, addresses })
    }

    /// Records that the desired state of `version` is issued, with its hash. Returns true when that confirms
    /// something at once: a state that the node has already reported gets no new report. `is_stored`: NATS holds this
    /// state, so that no other one was commanded since.
    pub fn record_issued(&mut self, hash: &str, version: u64, is_stored: bool) -> bool {
        self.issued.pop_back_if(|(last, _)| last == hash);
        self.issued.push_back((hash.to_owned(), version));
        if self.issued.len() > MAX_ISSUED {
            self.issued.pop_front();
        }
        let confirmed = self.reported_hash.as_deref() == Some(hash)
            && self.applied_version.is_none_or(|applied| applied < self.desired_version);
        if confirmed {
            self.applied_version = Some(version);
            if is_stored && self.addresses_version.is_some() {
                self.addresses_version = Some(version);
            }
            self.changed_pods.append(&mut self.unconfirmed);
            self.losing.clear();
        }
        confirmed
    }

    /// Processes a report of the agent.
    pub fn report(&mut self, report: Report) -> ReportChange {
        let failure = match report.outcome {
            Outcome::Held | Outcome::RolledBack { .. } | Outcome::Progress { .. } => {
                return ReportChange::None;
            }
            Outcome::Failed(failure) => Some(failure),
            Outcome::Applied => None,
        };
        let change = if self.failure != failure || self.rejected != report.rejected {
            ReportChange::Evaluation
        } else {
            ReportChange::Progress
        };
        let applied = failure.is_none();
        self.has_reported = true;
        (self.failure, self.rejected) = (failure, report.rejected);
        if change == ReportChange::Evaluation || self.applied_version.is_none() {
            self.changed_pods.extend(self.pods.keys().cloned());
        }
        self.changed_pods.append(&mut self.unconfirmed);
        let mut are_read = false;
        if let Some(Applied::Node { networks, pods, probes, addresses }) = report.applied {
            for name in self.observed_networks.keys().chain(networks.keys()) {
                if self.observed_networks.contains_key(name) != networks.contains_key(name) {
                    self.changed_networks.insert(name.clone());
                }
            }
            for uid in self.observed_pods.keys().chain(pods.keys()) {
                if self.observed_pods.get(uid) != pods.get(uid) {
                    self.changed_pods.insert(Name::from(uid.as_str()));
                }
            }
            (self.observed_networks, self.observed_pods) = (networks, pods);
            let probes = probes.into_iter().map(bounded);
            let probes =
                probes.map(|found| ((found.point.as_str().into(), found.network.clone()), found.into()));
            self.probes = probes.collect();
            are_read = self.observe_addresses(addresses);
        }
        if applied {
            let hash = report.generation.hash;
            let applied_version = self.issued.iter().rev().find(|(known, _)| *known == hash);
            let applied_version = applied_version.map(|(_, version)| *version);
            self.applied_version = applied_version.or(self.applied_version);
            if are_read {
                self.addresses_version = applied_version.or(self.addresses_version);
            }
            self.reported_hash = Some(hash);
        }
        if self.applied_version.is_none_or(|applied_version| applied_version < self.desired_version) {
            // Changes after the reported state are not confirmed yet.
            let late = |slot: &PodSlot| {
                slot.since.values().any(|since| self.applied_version.is_none_or(|c| c < *since))
            };
            self.unconfirmed =
                self.pods.iter().filter(|(_, slot)| late(slot)).map(|(uid, _)| uid.clone()).collect();
            self.unconfirmed.extend(self.losing.iter().cloned());
        } else {
            self.losing.clear();
        }
        change
    }

    /// Returns false when there are more than are read: then the earlier ones stay.
    fn observe_addresses(&mut self, reported: BTreeMap<String, AppliedAddresses>) -> bool {
        let Some(addresses) = addresses::bounded(reported) else { return false };
        for subnet in self.observed_addresses.keys().chain(addresses.keys()) {
            if self.observed_addresses.get(subnet) != addresses.get(subnet) {
                self.changed_addresses.insert(subnet.clone());
            }
        }
        self.observed_addresses = addresses;
        true
    }

    /// Takes the changes since the last call.
    pub fn take_changes(&mut self) -> NodeChanges {
        let is_first = self.is_known() && !self.first_report_handled;
        self.first_report_handled |= is_first;
        NodeChanges {
            pods: std::mem::take(&mut self.changed_pods),
            all_pods: is_first,
            networks: std::mem::take(&mut self.changed_networks),
            addresses: std::mem::take(&mut self.changed_addresses),
            all_bridges: false,
        }
    }

    /// The version of the last change of a pod bridge.
    pub fn bridge_since(&self, name: &str) -> u64 {
        self.bridges_since.get(name).copied().unwrap_or(self.desired_version)
    }

    /// The state of a pod bridge that interfaces need, by its rejections. These interfaces tell whether it is there.
    pub fn pod_bridge_hop(&self, network: &str) -> HopState<'_> {
        let is_about =
            |item: &Item| item.port.as_deref() == Some(network) && item.vlan.is_none() && item.pod.is_none();
        HopState::of_report(self.rejected.iter().filter(|rejection| is_about(&rejection.item)), true, None)
    }

    /// True when a link whose id has this prefix is in a pod or could not be removed from it.
    pub fn has_links_of(&self, uid: &str, prefix: &str) -> bool {
        let seen =
            self.observed_pods.get(uid).is_some_and(|links| links.keys().any(|id| id.starts_with(prefix)));
        let kept = |rejection: &Rejection| {
            let item = &rejection.item;
            item.pod.as_deref() == Some(uid) && item.link.as_ref().is_some_and(|id| id.starts_with(prefix))
        };
        seen || self.rejected.iter().any(kept)
    }

    /// The id of a link with this prefix that was observed in a pod and is not wanted there.
    pub fn unwanted_link(&self, uid: &Name, prefix: &str) -> Option<&str> {
        let wanted = self.pods.get(uid);
        let mut seen = self.observed_pods.get(&**uid).into_iter().flat_map(BTreeMap::keys);
        let is_wanted = |id: &str| wanted.is_some_and(|slot| revisions(&slot.pod).any(|(own, _)| own == id));
        seen.find(|id| id.starts_with(prefix) && !is_wanted(id)).map(String::as_str)
    }

    /// An interface of a pod as observed, if it has the wanted revision, and its state.
    pub fn link_hop(&self, uid: &Name, id: &str) -> (Option<&AppliedLink>, HopState<'_>) {
        let Some(slot) = self.pods.get(uid) else { return (None, HopState::Waiting(Wait::Report)) };
        let wanted = revisions(&slot.pod).find(|(own, _)| *own == id).map(|(_, revision)| revision);
        let found = self.observed_pods.get(&**uid).and_then(|links| links.get(id));
        let found = found.filter(|found| Some(found.revision.as_str()) == wanted);
        let since = slot.since.get(id).copied().unwrap_or(self.desired_version);
        let rejections = self.rejected.iter().filter(|rejection| rejection.item.covers_link(uid, id));
        let is_confirmed = found.is_some() && self.caught_up(since);
        (found, HopState::of_report(rejections, is_confirmed, self.failure.as_ref()))
    }

    /// True once the node has reported on a state of this process.
    pub fn is_known(&self) -> bool {
        self.applied_version.is_some()
    }

    /// True when the node has applied everything that was wanted at `version`.
    pub fn caught_up(&self, version: u64) -> bool {
        self.applied_version
            .is_some_and(|applied_version| applied_version >= version.min(self.desired_version))
    }

    /// The state of a host network that is wanted since `version`, or with `vlan` of that VLAN on it.
    pub fn network_hop(
        &self,
        name: &str,
        vlan: Option<VlanId>,
        mtu: Option<u32>,
        version: u64,
    ) -> HopState<'_> {
        let covers = |rejection: &&Rejection| {
            let item = &rejection.item;
            match vlan {
                _ if item.link.is_some() => false,
                Some(vid) => item.covers(vid, name),
                None => {
                    let whole = item.pod.is_none() && item.vlan.is_none();
                    whole && item.port.as_deref().is_none_or(|port| port == name)
                }
            }
        };
        let is_there = self.observed_networks.get(name).is_some_and(|seen| {
            vlan.is_none_or(|vid| seen.vlans.contains(vid))
                && mtu.is_none_or(|requested| seen.mtu.is_some_and(|there| there >= requested))
        });
        let rejections = self.rejected.iter().filter(covers);
        HopState::of_report(rejections, is_there && self.caught_up(version), self.failure.as_ref())
    }

    /// Why it is unknown whether a host network is present: the daemon that holds it did not answer.
    pub fn unanswered(&self, network: &str) -> Option<&str> {
        let about =
            |item: &Item| item.pod.is_none() && item.port.as_deref().is_none_or(|port| port == network);
        let mut rejections = self.rejected.iter().filter(|rejection| rejection.unreachable);
        rejections.find(|rejection| about(&rejection.item)).map(|rejection| rejection.reason.as_str())
    }

    /// The agent could not remove something that is not wanted any more.
    pub fn has_leftovers(&self) -> bool {
        self.rejected.iter().any(|rejection| rejection.item == Item::TARGET)
    }

    /// A host network as last observed.
    pub fn observed_network(&self, name: &str) -> Option<&AppliedNetwork> {
        self.observed_networks.get(name)
    }
}

/// The link ids of a pod with their revisions.
fn revisions(pod: &NodePod) -> impl Iterator<Item = (&str, &str)> {
    let links = pod.links.iter().map(|link| (link.id.as_str(), link.revision.as_str()));
    links.chain(pod.primary.iter().map(|primary| (primary.id.as_str(), primary.revision.as_str())))
}
