//! Changes of pods, objects and nodes: which pairs of an object and a pod they put into the queue.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::Report;

use crate::kinds::Spec;
use crate::node::Nodes;
use crate::node::demands::PointChange;
use crate::node::target::NodeChanges;
use crate::pods::{Context, PodState, Pods, requested};
use crate::status::Status;
use crate::store::Store;
use crate::work::Work;
use crate::{Config, Effect, Key, Kind, Name, Pod, Target};

impl Pods {
    /// Takes what other parts request.
    pub(crate) fn take_requests(&mut self, work: &mut Work) {
        self.queue.extend(std::mem::take(&mut work.grant));
        self.view_queue.extend(std::mem::take(&mut work.view));
    }

    /// True when [`Self::step`] and [`Self::emit_views`] have nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.restore_queue.is_empty()
            && self.ranges.is_idle()
            && self.queue_first.is_empty()
            && self.queue.is_empty()
            && self.view_queue.is_empty()
    }

    /// Does the next work: restores leases before it plans what a pod is given. Returns false when nothing is left.
    /// `early_reports` came before the first call.
    pub(crate) fn step(&mut self, cx: &mut Context<'_>, early_reports: &[(Target, Report)]) -> bool {
        if let Some(key) = self.restore_queue.pop_first() {
            self.restore_leases(cx.store, &key, cx.work);
        } else if let Some(name) = self.ranges.restore_queue.pop_first() {
            self.restore_ranges(cx, &name);
        } else if !self.orphans_restored {
            self.restore_reported(cx, early_reports);
            self.restore_reported_ranges(cx, early_reports);
        } else if let Some((key, uid)) = self.queue_first.pop_first().or_else(|| self.queue.pop_first()) {
            self.plan(cx, &key, &uid);
        } else if let Some(name) = self.ranges.pop() {
            self.plan_ranges(cx, &name);
        } else {
            return false;
        }
        true
    }

    /// Takes a pod that is new or changed. `keep_unlabelled`: a pod whose labels name nothing is kept, since it may
    /// still have interfaces from before the start.
    pub(crate) fn update(&mut self, nodes: &mut Nodes, pod: Pod, keep_unlabelled: bool) {
        let requested = requested(&pod);
        let uid = pod.uid.clone();
        let known = self.states.get(&uid);
        if (requested.is_empty() && known.is_none() && !keep_unlabelled)
            || known.is_some_and(|state| state.pod == pod)
        {
            return;
        }
        let before = known.map(|state| state.requested.clone()).unwrap_or_default();
        let renewed = known.is_some_and(|state| state.pod.container != pod.container);
        self.unselect(before.difference(&requested), &uid);
        for key in &requested {
            self.selected.entry(key.clone()).or_default().insert(uid.clone());
        }
        self.queue.extend(before.union(&requested).map(|key| (key.clone(), uid.clone())));
        if let Some(state) = self.states.get_mut(&uid) {
            // A container that restarts has no id for a while: its interfaces stay.
            let container = pod.container.clone().or(state.pod.container.take());
            (state.pod, state.requested) = (Pod { container, ..pod }, requested);
        } else {
            let (entries, grants) = (BTreeSet::new(), BTreeMap::new());
            let state = PodState { pod, requested, entries, grants, view: None };
            self.states.insert(uid.clone(), state);
        }
        if renewed {
            self.sync_pod(nodes, &uid);
        }
    }

    /// Removes a pod that is finished or gone.
    pub(crate) fn remove(&mut self, cx: &mut Context<'_>, uid: &Name) {
        let Some(state) = self.states.get(uid) else { return };
        let (keys, requested) = (state.entries.clone(), state.requested.clone());
        self.unselect(requested.iter(), uid);
        for key in &keys {
            self.set_grant(cx, key, uid, None);
            self.drop_entry(cx.store, key, uid, cx.work);
        }
        if let Some(state) = self.states.remove(uid)
            && state.view.is_some()
        {
            let Pod { namespace, name, .. } = state.pod;
            cx.work.effects.push(Effect::PodNetwork { namespace, name, uid: uid.clone(), view: None });
        }
        self.view_queue.remove(uid);
    }

    fn unselect<'a>(&mut self, keys: impl Iterator<Item = &'a Key>, uid: &Name) {
        for key in keys {
            if let Some(pods) = self.selected.get_mut(key) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.selected.remove(key);
                }
            }
        }
    }

    /// Drops the pods that request nothing and have nothing.
    pub(crate) fn forget_idle(&mut self) {
        self.states.retain(|_, state| !state.requested.is_empty() || !state.entries.is_empty());
        self.states.shrink_to_fit();
    }

    /// Queues all pods of an object.
    pub(crate) fn replan(&mut self, key: &Key) {
        let selected = self.selected.get(key).into_iter().flatten();
        let entries = self.providers.get(key).into_iter().flat_map(|provider| provider.entries.keys());
        self.queue.extend(selected.chain(entries).map(|uid| (key.clone(), uid.clone())));
    }

    /// The labels of a namespace changed: its pods may use other attachments of other namespaces now.
    pub(crate) fn change_namespace(&mut self, namespace: &Name) {
        let own = self.states.iter().filter(|(_, state)| state.pod.namespace == *namespace);
        let foreign = own.flat_map(|(uid, state)| state.requested.iter().map(move |key| (key, uid)));
        let foreign = foreign.filter(|(key, _)| key.namespace != *namespace);
        self.queue.extend(foreign.map(|(key, uid)| (key.clone(), uid.clone())));
    }

    /// An object was validated: what it gives may be another.
    pub(crate) fn object_validated(&mut self, store: &Store, config: &Config, key: &Key) {
        if config.nodes {
            self.follow_object(store, key);
        }
        if key.kind.facts().gives_to_pods {
            self.replan(key);
        }
    }

    /// An object is new, with the status that it was found with.
    pub(crate) fn add_object(&mut self, key: &Key, status: &Status) {
        if key.kind == Kind::Subnet {
            self.add_subnet(&key.name, status);
        }
        if !key.kind.facts().gives_to_pods {
            return;
        }
        self.renew_leases(key);
        if status.pods.is_empty() {
            self.replan(key);
        } else {
            self.restore_queue.insert(key.clone());
        }
    }

    /// Withdraws a deleted object from all pods. Addresses stay taken until the nodes have confirmed.
    pub(crate) fn remove_object(&mut self, cx: &mut Context<'_>, key: &Key) {
        self.update_bridge_index(cx.store, key, cx.work);
        self.samples.remove(key);
        if !key.kind.facts().gives_to_pods {
            return;
        }
        let uids =
            self.providers.get(key).map(|provider| provider.entries.keys().cloned().collect::<Vec<_>>());
        for uid in uids.into_iter().flatten() {
            self.withdraw_from_pod(cx, key, &uid);
        }
        if self.providers.get(key).is_some_and(|provider| provider.entries.is_empty()) {
            self.providers.remove(key);
        }
        self.restore_queue.remove(key);
        self.view_queue.extend(self.selected.get(key).into_iter().flatten().cloned());
    }

    /// A node appeared: its pods' interfaces and bridges become part of its desired state.
    pub(crate) fn add_node(&mut self, nodes: &mut Nodes, node: &Name) {
        for uid in self.pods_on(node) {
            self.sync_pod(nodes, &uid);
        }
        for (_, bridge) in self.bridges.keys().filter(|(name, _)| name == node) {
            nodes.want_bridge(node, bridge, self.wanted_bridge(node, bridge));
        }
        self.replan_on(node);
        self.follow_nodes();
    }

    /// A node is gone, and with it what deleted objects left there.
    pub(crate) fn remove_node(&mut self, cx: &mut Context<'_>, node: &Name) {
        self.follow_nodes();
        self.reevaluate_bridges_on(node, cx.work);
        self.settle_pods(cx, self.pods_on(node));
        self.replan_on(node);
        for (key, provider) in &self.providers {
            let cleanup = provider.entries.iter().filter(|(_, entry)| {
                entry.withdrawal.as_ref().is_some_and(|withdrawal| withdrawal.node == *node)
            });
            self.queue.extend(cleanup.map(|(uid, _)| (key.clone(), uid.clone())));
        }
    }

    /// The known state of a node changed.
    pub(crate) fn change_node(&mut self, cx: &mut Context<'_>, node: &Name, changes: NodeChanges) {
        let NodeChanges { mut pods, all_pods, networks, addresses, all_bridges } = changes;
        self.follow_report(node, &addresses);
        if all_bridges {
            self.reevaluate_bridges_on(node, cx.work);
        }
        if all_pods {
            pods.extend(self.pods_on(node));
        }
        self.settle_pods(cx, pods);
        for network in networks {
            self.reevaluate_bridges(&network, cx.work);
        }
    }

    /// The host networks of a connection point changed: its names may be free or taken for pod bridges, and pods may
    /// run on a node that joined or left it.
    pub(crate) fn change_point(&mut self, store: &Store, key: &Key, change: &PointChange, work: &mut Work) {
        for name in &change.names {
            self.revalidate_bridge_users(name, key, work);
        }
        if change.changed {
            let is_there = |user: &&Key| {
                let spec = store.effective(user, Spec::attachment);
                spec.is_some_and(|spec| spec.connection_point == key.name)
            };
            let users: Vec<Key> = self.providers.keys().filter(is_there).cloned().collect();
            for user in users {
                self.replan(&user);
            }
        }
    }

    fn pods_on(&self, node: &Name) -> BTreeSet<Name> {
        let on = self.states.iter().filter(|(_, state)| state.pod.node.as_ref() == Some(node));
        on.map(|(uid, _)| uid.clone()).collect()
    }

    /// Queues the pods of a node that appeared or disappeared: what attachments give depends on it.
    fn replan_on(&mut self, node: &Name) {
        let on = self.states.iter().filter(|(_, state)| state.pod.node.as_ref() == Some(node));
        self.queue.extend(on.flat_map(|(uid, state)| {
            let attachments = state.requested.iter().filter(|key| key.kind == Kind::L2ServiceAttachment);
            attachments.map(move |key| (key.clone(), uid.clone()))
        }));
    }

    fn reevaluate_bridges_on(&self, node: &Name, work: &mut Work) {
        for (_, bridge) in self.bridges.keys().filter(|(name, _)| name == node) {
            self.reevaluate_bridges(bridge, work);
        }
    }

    /// Releases what these pods are known to have lost, after their nodes changed.
    fn settle_pods(&mut self, cx: &mut Context<'_>, uids: BTreeSet<Name>) {
        for uid in uids {
            let Some(state) = self.states.get(&uid) else { continue };
            for key in state.entries.clone() {
                self.settle_entry(cx, &key, &uid);
                cx.work.evaluate.insert(key);
            }
            self.view_queue.insert(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::fixture::{key, store};
    use crate::{Kind, Uses};

    #[test]
    fn labelled_pod_gets_its_link_once_and_loses_it_with_the_label() {
        let link = json!({ "name": "l", "kind": { "type": "veth" }, "up": true });
        let store = store([(Kind::PodNetworkConfig, "net", json!({ "links": [link] }))]);
        let config = key(Kind::PodNetworkConfig, "net");
        let (mut pods, mut nodes, mut work) = (Pods::default(), Nodes::default(), Work::default());
        nodes.add_node(&"node1".into(), true);
        let now = std::time::Duration::ZERO;
        let pod = |labels: &[(&str, &str)]| Pod {
            uid: "uid".into(),
            namespace: "ns".into(),
            name: "p".into(),
            uses: Uses::default(),
            labels: labels.iter().map(|(label, value)| (Name::from(*label), Name::from(*value))).collect(),
            node: Some("node1".into()),
            host_network: false,
            container: Some("containerd://p".into()),
            attached: Vec::new(),
        };
        for (labels, links) in [(&[("podNetworkConfig", "net")][..], 1), (&[], 0)] {
            pods.update(&mut nodes, pod(labels), false);
            assert!(!pods.is_idle());
            while pods.step(&mut Context { store: &store, nodes: &mut nodes, work: &mut work, now }, &[]) {}
            // The status has it.
            pods.leases_written(&config, pods.lease_revision(&config));
            while pods.step(&mut Context { store: &store, nodes: &mut nodes, work: &mut work, now }, &[]) {}
            assert!(std::mem::take(&mut work.evaluate).contains(&config));
            let state = pods.states.get("uid").expect("the pod");
            assert_eq!(state.grants.values().map(|grant| grant.links.len()).sum::<usize>(), links);
        }
    }
}
