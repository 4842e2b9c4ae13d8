//! Grants to pods: which object gives which interfaces to which pod. Addresses are written to the object's status
//! before a node gets them.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::PrimaryLink;

use crate::pods::template::{self, Template};
use crate::pods::{self, Grant, Lease, PodState, Withdrawal};
use crate::spec::Spec;
use crate::{Effect, Key, Kind, Name, Pod};

use crate::engine::Engine;
use crate::pods::leases::named;

/// The offer of an object to a pod.
pub(crate) enum Offer {
    /// Nothing: the pod does not name the object, or the object does not exist.
    Nothing,
    /// Nothing yet: the pod does not run.
    NotRunning,
    /// It can't be done; the reason.
    Refused(String),
    /// These interfaces, and a change of the primary one.
    Links(Vec<Template>, Option<PrimaryLink>),
}

/// True for the kinds that give interfaces to pods.
pub(crate) fn gives_to_pods(kind: Kind) -> bool {
    matches!(kind, Kind::L2ServiceAttachment | Kind::PodNetworkConfig | Kind::PodConfig)
}

impl Engine {
    pub(crate) fn update_pod(&mut self, pod: Pod) {
        let requested = if self.config.nodes { pods::requested(&pod) } else { BTreeSet::new() };
        let hot = requested.iter().filter(|key| key.kind == Kind::L2ServiceAttachment).cloned();
        let nads = pod.uses.iter();
        let nads = nads.map(|(namespace, name)| Key::namespaced(Kind::L2ServiceAttachment, namespace, name));
        let uses: BTreeSet<Key> = nads.chain(hot).collect();
        self.set_pod_uses(&pod.uid, (&pod.namespace, &pod.name), uses.into_iter().collect());
        let uid = pod.uid.clone();
        let known = self.pods.states.get(&uid);
        // At the start a pod without labels may still have interfaces from before.
        if requested.is_empty() && known.is_none() && (self.startup.is_over || !self.config.nodes) {
            return;
        }
        let before = known.map(|state| state.requested.clone()).unwrap_or_default();
        let same = known.is_some_and(|state| state.pod == pod);
        let renewed = known.is_some_and(|state| state.pod.container != pod.container);
        if same {
            return;
        }
        for key in before.difference(&requested) {
            if let Some(pods) = self.pods.selected.get_mut(key) {
                pods.remove(&uid);
                if pods.is_empty() {
                    self.pods.selected.remove(key);
                }
            }
        }
        for key in &requested {
            self.pods.selected.entry(key.clone()).or_default().insert(uid.clone());
        }
        for key in before.union(&requested) {
            self.pods.queue.insert((key.clone(), uid.clone()));
        }
        if let Some(state) = self.pods.states.get_mut(&uid) {
            // A container that restarts has no id for a while: its interfaces stay.
            let container = pod.container.clone().or(state.pod.container.take());
            (state.pod, state.requested) = (Pod { container, ..pod }, requested);
        } else {
            let (entries, grants) = (BTreeSet::new(), BTreeMap::new());
            let state = PodState { pod, requested, entries, grants, view: None };
            self.pods.states.insert(uid.clone(), state);
        }
        if renewed {
            self.sync_pod(&uid);
        }
    }

    pub(crate) fn remove_pod(&mut self, uid: &Name) {
        self.set_pod_uses(uid, (&Name::from(""), &Name::from("")), Vec::new());
        let Some(state) = self.pods.states.get(uid) else { return };
        let (keys, requested) = (state.entries.clone(), state.requested.clone());
        for key in &requested {
            if let Some(pods) = self.pods.selected.get_mut(key) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.pods.selected.remove(key);
                }
            }
        }
        for key in &keys {
            self.set_grant(key, uid, None);
            self.drop_entry(key, uid);
        }
        if let Some(state) = self.pods.states.remove(uid)
            && state.view.is_some()
        {
            let Pod { namespace, name, .. } = state.pod;
            self.work.effects.push(Effect::PodNetwork { namespace, name, uid: uid.clone(), view: None });
        }
        self.pods.view_queue.remove(uid);
    }

    /// The status of an object is written with its leases up to the revision `count`.
    pub(crate) fn leases_written(&mut self, key: &Key, count: u64) {
        let Some(provider) = self.pods.providers.get_mut(key) else { return };
        provider.written_revision = provider.written_revision.max(count);
        let later = provider.unwritten.split_off(&(provider.written_revision + 1));
        for uid in std::mem::replace(&mut provider.unwritten, later).into_values() {
            self.pods.queue.insert((key.clone(), uid));
        }
    }

    /// Queues all pods of an object.
    pub(crate) fn replan_pods(&mut self, key: &Key) {
        let selected = self.pods.selected.get(key).into_iter().flatten();
        let entries = self.pods.providers.get(key).into_iter().flat_map(|provider| provider.entries.keys());
        self.pods.queue.extend(selected.chain(entries).map(|uid| (key.clone(), uid.clone())));
    }

    /// Queues the pods of a node that appeared or disappeared: what attachments give depends on it.
    pub(crate) fn replan_pods_on(&mut self, node: &Name) {
        let on = self.pods.states.iter().filter(|(_, state)| state.pod.node.as_ref() == Some(node));
        let work = on.flat_map(|(uid, state)| {
            let attachments = state.requested.iter().filter(|key| key.kind == Kind::L2ServiceAttachment);
            attachments.map(move |key| (key.clone(), uid.clone()))
        });
        self.pods.queue.extend(work);
    }

    /// The offer of an object to a pod.
    fn offer_for(&self, key: &Key, state: &PodState) -> Offer {
        let record = self.store.records.get(key).filter(|record| record.finalized);
        let Some(spec) = record.and_then(|record| record.effective.as_deref()) else { return Offer::Nothing };
        if !state.requested.contains(key) {
            return Offer::Nothing;
        }
        if state.pod.host_network {
            return Offer::Refused(
                "it has hostNetwork, so its network namespace is the node's own, which is not changed".into(),
            );
        }
        if !state.runs() {
            return Offer::NotRunning;
        }
        match spec {
            Spec::PodLinks(spec) => {
                let (links, primary) =
                    template::templates_for(key, spec, |bridge| self.bridge_settings(&key.namespace, bridge));
                Offer::Links(links, primary)
            }
            Spec::Attachment(spec) => match self.hot_plug(key, spec, state) {
                Ok(links) => Offer::Links(links, None),
                Err(problem) => Offer::Refused(problem),
            },
            _ => Offer::Nothing,
        }
    }

    /// Plans what one object gives to one pod.
    pub(crate) fn plan_pod(&mut self, key: &Key, uid: &Name) {
        if self.store.records.contains_key(key) {
            self.work.evaluate.insert(key.clone());
        }
        let Some(state) = self.pods.states.get(uid) else { return self.drop_entry(key, uid) };
        self.pods.view_queue.insert(uid.clone());
        let name = state.pod.name.clone();
        let offer = self.offer_for(key, state);
        if !matches!(offer, Offer::Nothing) {
            // It has a pod, so pods of its sample Deployment are not refused.
            self.store.records.get_mut(key).into_iter().for_each(|record| record.sample_refused = None);
            if let Some(state) = self.pods.states.get_mut(uid) {
                state.entries.insert(key.clone());
            }
            let provider = self.pods.providers.entry(key.clone()).or_default();
            let entry = provider.entry(uid, &name);
            entry.withdrawal = None;
            entry.problem = None;
        }
        let refused = match offer {
            Offer::Nothing => return self.withdraw_from_pod(key, uid),
            Offer::NotRunning => return,
            Offer::Refused(problem) => Err(problem),
            Offer::Links(templates, primary) => self.grant_to_pod(key, uid, templates, primary),
        };
        if let Err(problem) = refused {
            self.revoke_from_pod(key, uid);
            self.pods.blocked.insert((key.clone(), uid.clone()));
            if let Some(entry) =
                self.pods.providers.get_mut(key).and_then(|provider| provider.entries.get_mut(uid))
            {
                entry.problem = Some(problem);
            }
        } else {
            self.pods.blocked.remove(&(key.clone(), uid.clone()));
        }
        self.settle_entry(key, uid);
    }

    /// Grants interfaces to a pod, once their addresses are written to the status.
    fn grant_to_pod(
        &mut self,
        key: &Key,
        uid: &Name,
        templates: Vec<Template>,
        primary: Option<PrimaryLink>,
    ) -> Result<(), String> {
        let claims = self.claims_for(key, uid, &templates, primary.as_ref())?;
        let leases = self.lease(key, uid, &templates)?;
        self.set_claims(key, uid, claims);
        let Some(provider) = self.pods.providers.get_mut(key) else { return Ok(()) };
        let Some(entry) = provider.entries.get_mut(uid) else { return Ok(()) };
        if entry.leases != leases {
            provider.lease_revision += 1;
            provider.unwritten.remove(&entry.lease_revision);
            entry.lease_revision = provider.lease_revision;
            let kept: Vec<&Lease> = leases.values().flatten().collect();
            let gone = named(std::mem::take(&mut entry.leases)).filter(|(_, lease)| !kept.contains(&lease));
            entry.retiring.extend(gone);
            // An address that it has again is not released.
            entry.retiring.retain(|(_, lease)| !kept.contains(&lease));
            (entry.leases, entry.retired_at) = (leases.clone(), None);
        }
        if entry.lease_revision > provider.written_revision {
            provider.unwritten.insert(entry.lease_revision, uid.clone());
            return Ok(());
        }
        let bridges = templates.iter().filter_map(|template| template.bridge.clone()).collect();
        if let Some(eno_schemas::LinkName::Fixed(name)) =
            templates.first().map(|template| &template.link.name)
        {
            entry.ifname = Some(name.clone());
        }
        let links = templates.into_iter().map(|template| {
            let own = leases.get(&template.name).into_iter().flatten().map(|lease| lease.address);
            (template.name.clone(), template.with_addresses(own.collect()))
        });
        let grant = Grant { links: links.collect(), primary, bridges };
        self.set_grant(key, uid, Some(grant));
        let version = self.node.version();
        if let Some(entry) =
            self.pods.providers.get_mut(key).and_then(|provider| provider.entries.get_mut(uid))
        {
            entry.retired_at = Some(version);
        }
        // The node's next report releases retiring addresses, even if the node never had a command with them.
        let node = self.pods.states.get(uid).and_then(|state| state.pod.node.clone());
        if let Some(target) = node.and_then(|node| self.node.node_mut(&node)) {
            target.track_removal(uid);
        }
        Ok(())
    }

    /// Revokes everything that an object gave to a pod. The addresses are released when the node has confirmed.
    fn revoke_from_pod(&mut self, key: &Key, uid: &Name) {
        self.set_grant(key, uid, None);
        self.set_claims(key, uid, BTreeSet::new());
        let version = self.node.version();
        let Some(provider) = self.pods.providers.get_mut(key) else { return };
        let Some(entry) = provider.entries.get_mut(uid) else { return };
        provider.unwritten.remove(&entry.lease_revision);
        if !entry.leases.is_empty() {
            provider.lease_revision += 1;
            entry.lease_revision = provider.lease_revision;
            entry.retiring.extend(named(std::mem::take(&mut entry.leases)));
        }
        entry.retired_at = Some(version);
        let node = self.pods.states.get(uid).and_then(|state| state.pod.node.clone());
        if let Some(target) = node.and_then(|node| self.node.node_mut(&node)) {
            target.track_removal(uid);
        }
    }

    /// Withdraws an object from a pod. Its entry goes when the node has confirmed.
    fn withdraw_from_pod(&mut self, key: &Key, uid: &Name) {
        self.pods.blocked.remove(&(key.clone(), uid.clone()));
        let Some(entry) = self.pods.providers.get(key).and_then(|provider| provider.entries.get(uid)) else {
            return;
        };
        let state = self.pods.states.get(uid);
        let was_granted = entry.was_granted || state.is_some_and(|state| state.grants.contains_key(key));
        let node = state.and_then(|state| state.pod.node.clone()).filter(|_| was_granted);
        self.set_grant(key, uid, None);
        self.set_claims(key, uid, BTreeSet::new());
        let version = self.node.version();
        let Some(provider) = self.pods.providers.get_mut(key) else { return };
        let Some(entry) = provider.entries.get_mut(uid) else { return };
        provider.unwritten.remove(&entry.lease_revision);
        entry.problem = None;
        match node {
            Some(node) => {
                if let Some(target) = self.node.node_mut(&node) {
                    target.track_removal(uid);
                }
                entry.withdrawal.get_or_insert(Withdrawal { node, version });
                self.settle_entry(key, uid);
            }
            None => self.drop_entry(key, uid),
        }
    }

    /// Sets what an object gives to a pod, and changes the desired state of the pod's node.
    fn set_grant(&mut self, key: &Key, uid: &Name, grant: Option<Grant>) {
        let Some(state) = self.pods.states.get_mut(uid) else { return };
        if state.grants.get(key) == grant.as_ref() {
            return;
        }
        let node = state.pod.node.clone();
        let requests = grant.as_ref().map(|grant| grant.bridges.clone()).unwrap_or_default();
        let before = match grant {
            Some(grant) => state.grants.insert(key.clone(), grant),
            None => state.grants.remove(key),
        };
        let Some(node) = node else { return };
        let mut changed = BTreeSet::new();
        let withdrawn = before.map(|grant| grant.bridges).unwrap_or_default();
        for (requests, more) in [(&requests, true), (&withdrawn, false)] {
            for (bridge, request) in requests {
                if self.pods.count_bridge_request(&node, bridge, request, more) {
                    changed.insert(bridge.clone());
                }
            }
        }
        for bridge in changed {
            let wanted = self.pods.bridge(&node, &bridge);
            self.node.change(&node, |target, version| target.want_bridge(&bridge, wanted, version));
            self.reevaluate_bridge(&key.namespace, &bridge);
        }
        if let Some(entry) =
            self.pods.providers.get_mut(key).and_then(|provider| provider.entries.get_mut(uid))
        {
            entry.was_granted = true;
        }
        self.sync_pod(uid);
        self.pods.view_queue.insert(uid.clone());
    }

    fn sync_pod(&mut self, uid: &Name) {
        let Some(state) = self.pods.states.get(uid) else { return };
        let Some(node) = state.pod.node.clone() else { return };
        let pod = state.render();
        self.node.change(&node, |target, version| target.want_pod(uid, pod, version));
    }

    /// A node appeared: its pods' interfaces and bridges become part of its desired state.
    pub(crate) fn sync_node(&mut self, node: &Name) {
        let on = |state: &PodState| state.pod.node.as_ref() == Some(node);
        let pods = self.pods.states.iter().filter(|(_, state)| on(state)).map(|(uid, _)| uid.clone());
        for uid in pods.collect::<Vec<_>>() {
            self.sync_pod(&uid);
        }
        let bridges = self.pods.bridges.keys().filter(|(name, _)| name == node);
        for bridge in bridges.map(|(_, bridge)| bridge.clone()).collect::<Vec<_>>() {
            let wanted = self.pods.bridge(node, &bridge);
            self.node.change(node, |target, version| target.want_bridge(&bridge, wanted, version));
        }
    }

    /// Removes the entry of a pod from an object, and releases its addresses.
    pub(crate) fn drop_entry(&mut self, key: &Key, uid: &Name) {
        self.pods.blocked.remove(&(key.clone(), uid.clone()));
        self.set_claims(key, uid, BTreeSet::new());
        let Some(provider) = self.pods.providers.get_mut(key) else { return };
        let Some(entry) = provider.entries.remove(uid) else { return };
        if let Some(state) = self.pods.states.get_mut(uid) {
            state.entries.remove(key);
        }
        provider.unwritten.remove(&entry.lease_revision);
        if provider.entries.is_empty() && !self.store.records.contains_key(key) {
            self.pods.providers.remove(key);
        }
        let leases = named(entry.leases).chain(entry.retiring).map(|(_, lease)| lease);
        self.release(key, leases.collect());
        if self.store.records.contains_key(key) {
            self.work.evaluate.insert(key.clone());
        }
        self.pods.view_queue.insert(uid.clone());
    }

    /// Withdraws a deleted object from all pods. Addresses stay taken until the nodes have confirmed.
    pub(crate) fn remove_provider(&mut self, key: &Key) {
        let uids =
            self.pods.providers.get(key).map(|provider| provider.entries.keys().cloned().collect::<Vec<_>>());
        for uid in uids.into_iter().flatten() {
            self.withdraw_from_pod(key, &uid);
        }
        if self.pods.providers.get(key).is_some_and(|provider| provider.entries.is_empty()) {
            self.pods.providers.remove(key);
        }
    }

    /// Requests the sample Deployment of a configuration, once.
    pub(crate) fn make_sample(&mut self, key: &Key) {
        let sample = self.effective(key, Spec::pod_links).and_then(|spec| spec.sample.clone());
        let Some(record) =
            self.store.records.get_mut(key).filter(|record| record.finalized && !record.deleting)
        else {
            return;
        };
        if record.requested_sample == sample {
            return;
        }
        record.requested_sample.clone_from(&sample);
        record.sample_refused = None;
        if let Some(name) = sample {
            self.work.effects.push(Effect::SampleDeployment { owner: key.clone(), name });
        }
    }

    /// A node reported changes of these pods.
    pub(crate) fn handle_pods_changed(&mut self, uids: BTreeSet<Name>) {
        for uid in uids {
            let Some(state) = self.pods.states.get(&uid) else { continue };
            let keys = state.entries.clone();
            for key in keys {
                self.settle_entry(&key, &uid);
                if self.store.records.contains_key(&key) {
                    self.work.evaluate.insert(key);
                }
            }
            self.pods.view_queue.insert(uid);
        }
    }
}
