//! Giving to pods: which object gives what to which pod, with addresses that are written down first.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::PrimaryLink;

use crate::podnet::template::{self, Template};
use crate::podnet::{self, Given, Lease, Leaving, PodState};
use crate::spec::Spec;
use crate::{Effect, Key, Kind, Name, Pod};

use super::Engine;
use super::leases::named;

/// What an object has for a pod.
pub(super) enum Ask {
    /// Nothing: it does not name the pod, or is not there.
    Nothing,
    /// Nothing yet: the pod does not run.
    Waits,
    /// It can't be, and why.
    Refused(String),
    /// These.
    Links(Vec<Template>, Option<PrimaryLink>),
}

/// True for the kinds that give something to pods.
pub(super) fn gives(kind: Kind) -> bool {
    matches!(kind, Kind::L2ServiceAttachment | Kind::PodNetworkConfig | Kind::PodConfig)
}

impl Engine {
    pub(super) fn pod_is(&mut self, pod: Pod) {
        let asked = if self.config.nodes { podnet::asked(&pod) } else { BTreeSet::new() };
        let hot = asked.iter().filter(|key| key.kind == Kind::L2ServiceAttachment).cloned();
        let nads = pod.uses.iter();
        let nads = nads.map(|(namespace, name)| Key::namespaced(Kind::L2ServiceAttachment, namespace, name));
        let uses: BTreeSet<Key> = nads.chain(hot).collect();
        self.use_by_pod(&pod.uid, (&pod.namespace, &pod.name), uses.into_iter().collect());
        let uid = pod.uid.clone();
        let known = self.podnet.pods.get(&uid);
        // At the start a pod without labels may still have what a former process gave it.
        if asked.is_empty() && known.is_none() && (self.started || !self.config.nodes) {
            return;
        }
        let before = known.map(|state| state.asked.clone()).unwrap_or_default();
        let same = known.is_some_and(|state| state.pod == pod);
        let renewed = known.is_some_and(|state| state.pod.container != pod.container);
        if same {
            return;
        }
        for key in before.difference(&asked) {
            if let Some(pods) = self.podnet.selected.get_mut(key) {
                pods.remove(&uid);
                if pods.is_empty() {
                    self.podnet.selected.remove(key);
                }
            }
        }
        for key in &asked {
            self.podnet.selected.entry(key.clone()).or_default().insert(uid.clone());
        }
        for key in before.union(&asked) {
            self.podwork.insert((key.clone(), uid.clone()));
        }
        if let Some(state) = self.podnet.pods.get_mut(&uid) {
            // A container that is being restarted has no id for a while: what is there stays.
            let container = pod.container.clone().or(state.pod.container.take());
            (state.pod, state.asked) = (Pod { container, ..pod }, asked);
        } else {
            let (entries, given) = (BTreeSet::new(), BTreeMap::new());
            let state = PodState { pod, asked, entries, given, view: None };
            self.podnet.pods.insert(uid.clone(), state);
        }
        if renewed {
            self.sync_pod(&uid);
        }
    }

    pub(super) fn pod_gone(&mut self, uid: &Name) {
        self.use_by_pod(uid, (&Name::from(""), &Name::from("")), Vec::new());
        let Some(state) = self.podnet.pods.get(uid) else { return };
        let (keys, asked) = (state.entries.clone(), state.asked.clone());
        for key in &asked {
            if let Some(pods) = self.podnet.selected.get_mut(key) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.podnet.selected.remove(key);
                }
            }
        }
        for key in &keys {
            self.give(key, uid, None);
            self.drop_entry(key, uid);
        }
        if let Some(state) = self.podnet.pods.remove(uid)
            && state.view.is_some()
        {
            let Pod { namespace, name, .. } = state.pod;
            self.effects.push(Effect::PodNetwork { namespace, name, uid: uid.clone(), view: None });
        }
        self.views.remove(uid);
    }

    /// The status of an object is written with its leases up to `count`.
    pub(super) fn recorded(&mut self, key: &Key, count: u64) {
        let Some(giver) = self.podnet.givers.get_mut(key) else { return };
        giver.recorded = giver.recorded.max(count);
        let later = giver.awaiting.split_off(&(giver.recorded + 1));
        for uid in std::mem::replace(&mut giver.awaiting, later).into_values() {
            self.podwork.insert((key.clone(), uid));
        }
    }

    /// Has all pods of an object looked at again.
    pub(super) fn replan_pods(&mut self, key: &Key) {
        let selected = self.podnet.selected.get(key).into_iter().flatten();
        let entries = self.podnet.givers.get(key).into_iter().flat_map(|giver| giver.entries.keys());
        self.podwork.extend(selected.chain(entries).map(|uid| (key.clone(), uid.clone())));
    }

    /// Has the pods of a node looked at again, which is there now or is not any more: what attachments give depends on
    /// it.
    pub(super) fn replan_pods_on(&mut self, node: &Name) {
        let on = self.podnet.pods.iter().filter(|(_, state)| state.pod.node.as_ref() == Some(node));
        let work = on.flat_map(|(uid, state)| {
            let attachments = state.asked.iter().filter(|key| key.kind == Kind::L2ServiceAttachment);
            attachments.map(move |key| (key.clone(), uid.clone()))
        });
        self.podwork.extend(work);
    }

    /// What an object has for a pod.
    fn ask(&self, key: &Key, state: &PodState) -> Ask {
        let record = self.records.get(key).filter(|record| record.finalized);
        let Some(spec) = record.and_then(|record| record.effective.as_deref()) else { return Ask::Nothing };
        if !state.asked.contains(key) {
            return Ask::Nothing;
        }
        if state.pod.host_network {
            return Ask::Refused(
                "it has hostNetwork, so its network namespace is the node's own, which is not changed".into(),
            );
        }
        if !state.runs() {
            return Ask::Waits;
        }
        match spec {
            Spec::PodLinks(spec) => {
                let (links, primary) =
                    template::of_links(key, spec, |bridge| self.bridge_facts(&key.namespace, bridge));
                Ask::Links(links, primary)
            }
            Spec::Attachment(spec) => match self.hot_plug(key, spec, state) {
                Ok(links) => Ask::Links(links, None),
                Err(problem) => Ask::Refused(problem),
            },
            _ => Ask::Nothing,
        }
    }

    /// Works out what one object gives to one pod.
    pub(super) fn plan_pod(&mut self, key: &Key, uid: &Name) {
        if self.records.contains_key(key) {
            self.judge.insert(key.clone());
        }
        let Some(state) = self.podnet.pods.get(uid) else { return self.drop_entry(key, uid) };
        self.views.insert(uid.clone());
        let name = state.pod.name.clone();
        let ask = self.ask(key, state);
        if !matches!(ask, Ask::Nothing) {
            // It has a pod: its sample's pods, if that is one, are refused no longer.
            self.records.get_mut(key).into_iter().for_each(|record| record.sample_refused = None);
            if let Some(state) = self.podnet.pods.get_mut(uid) {
                state.entries.insert(key.clone());
            }
            let giver = self.podnet.givers.entry(key.clone()).or_default();
            let entry = giver.entry(uid, &name);
            entry.leaving = None;
            entry.problem = None;
        }
        let refused = match ask {
            Ask::Nothing => return self.withdraw_from_pod(key, uid),
            Ask::Waits => return,
            Ask::Refused(problem) => Err(problem),
            Ask::Links(templates, primary) => self.give_to_pod(key, uid, templates, primary),
        };
        if let Err(problem) = refused {
            self.take_back(key, uid);
            self.podnet.blocked.insert((key.clone(), uid.clone()));
            if let Some(entry) = self.podnet.givers.get_mut(key).and_then(|giver| giver.entries.get_mut(uid))
            {
                entry.problem = Some(problem);
            }
        } else {
            self.podnet.blocked.remove(&(key.clone(), uid.clone()));
        }
        self.settle_entry(key, uid);
    }

    /// Gives a pod what it is to have, once its addresses are written down.
    fn give_to_pod(
        &mut self,
        key: &Key,
        uid: &Name,
        templates: Vec<Template>,
        primary: Option<PrimaryLink>,
    ) -> Result<(), String> {
        let claims = self.claims_for(key, uid, &templates, primary.as_ref())?;
        let leases = self.lease(key, uid, &templates)?;
        self.set_claims(key, uid, claims);
        let Some(giver) = self.podnet.givers.get_mut(key) else { return Ok(()) };
        let Some(entry) = giver.entries.get_mut(uid) else { return Ok(()) };
        if entry.leases != leases {
            giver.leased += 1;
            giver.awaiting.remove(&entry.leased_at);
            entry.leased_at = giver.leased;
            let kept: Vec<&Lease> = leases.values().flatten().collect();
            let gone = named(std::mem::take(&mut entry.leases)).filter(|(_, lease)| !kept.contains(&lease));
            entry.retiring.extend(gone);
            // What it has again is not given back.
            entry.retiring.retain(|(_, lease)| !kept.contains(&lease));
            (entry.leases, entry.retired_at) = (leases.clone(), None);
        }
        if entry.leased_at > giver.recorded {
            giver.awaiting.insert(entry.leased_at, uid.clone());
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
            (template.name.clone(), template.finish(own.collect()))
        });
        let given = Given { links: links.collect(), primary, bridges };
        self.give(key, uid, Some(given));
        let version = self.hosts.version();
        if let Some(entry) = self.podnet.givers.get_mut(key).and_then(|giver| giver.entries.get_mut(uid)) {
            entry.retired_at = Some(version);
        }
        // The node's next word lets go of what is retiring, even if the pod had not been told of it.
        let node = self.podnet.pods.get(uid).and_then(|state| state.pod.node.clone());
        if let Some(target) = node.and_then(|node| self.hosts.node_mut(&node)) {
            target.part(uid);
        }
        Ok(())
    }

    /// A pod can't have what an object has for it: it keeps nothing of it, and its addresses are free when the node
    /// has confirmed that.
    fn take_back(&mut self, key: &Key, uid: &Name) {
        self.give(key, uid, None);
        self.set_claims(key, uid, BTreeSet::new());
        let version = self.hosts.version();
        let Some(giver) = self.podnet.givers.get_mut(key) else { return };
        let Some(entry) = giver.entries.get_mut(uid) else { return };
        giver.awaiting.remove(&entry.leased_at);
        if !entry.leases.is_empty() {
            giver.leased += 1;
            entry.leased_at = giver.leased;
            entry.retiring.extend(named(std::mem::take(&mut entry.leases)));
        }
        entry.retired_at = Some(version);
        let node = self.podnet.pods.get(uid).and_then(|state| state.pod.node.clone());
        if let Some(target) = node.and_then(|node| self.hosts.node_mut(&node)) {
            target.part(uid);
        }
    }

    /// An object gives nothing to a pod any more; its entry goes when the node has confirmed that.
    fn withdraw_from_pod(&mut self, key: &Key, uid: &Name) {
        self.podnet.blocked.remove(&(key.clone(), uid.clone()));
        let Some(entry) = self.podnet.givers.get(key).and_then(|giver| giver.entries.get(uid)) else {
            return;
        };
        let state = self.podnet.pods.get(uid);
        let was_given = entry.was_given || state.is_some_and(|state| state.given.contains_key(key));
        let node = state.and_then(|state| state.pod.node.clone()).filter(|_| was_given);
        self.give(key, uid, None);
        self.set_claims(key, uid, BTreeSet::new());
        let version = self.hosts.version();
        let Some(giver) = self.podnet.givers.get_mut(key) else { return };
        let Some(entry) = giver.entries.get_mut(uid) else { return };
        giver.awaiting.remove(&entry.leased_at);
        entry.problem = None;
        match node {
            Some(node) => {
                if let Some(target) = self.hosts.node_mut(&node) {
                    target.part(uid);
                }
                entry.leaving.get_or_insert(Leaving { node, version });
                self.settle_entry(key, uid);
            }
            None => self.drop_entry(key, uid),
        }
    }

    /// Sets what an object gives to a pod and tells the pod's node.
    fn give(&mut self, key: &Key, uid: &Name, given: Option<Given>) {
        let Some(state) = self.podnet.pods.get_mut(uid) else { return };
        if state.given.get(key) == given.as_ref() {
            return;
        }
        let node = state.pod.node.clone();
        let asks = given.as_ref().map(|given| given.bridges.clone()).unwrap_or_default();
        let before = match given {
            Some(given) => state.given.insert(key.clone(), given),
            None => state.given.remove(key),
        };
        let Some(node) = node else { return };
        let mut changed = BTreeSet::new();
        let withdrawn = before.map(|given| given.bridges).unwrap_or_default();
        for (asks, more) in [(&asks, true), (&withdrawn, false)] {
            for (bridge, ask) in asks {
                if self.podnet.ask_bridge(&node, bridge, ask, more) {
                    changed.insert(bridge.clone());
                }
            }
        }
        for bridge in changed {
            let wanted = self.podnet.bridge(&node, &bridge);
            self.hosts.change(&node, |target, version| target.want_bridge(&bridge, wanted, version));
            self.judge_bridge(&key.namespace, &bridge);
        }
        if let Some(entry) = self.podnet.givers.get_mut(key).and_then(|giver| giver.entries.get_mut(uid)) {
            entry.was_given = true;
        }
        self.sync_pod(uid);
        self.views.insert(uid.clone());
    }

    fn sync_pod(&mut self, uid: &Name) {
        let Some(state) = self.podnet.pods.get(uid) else { return };
        let Some(node) = state.pod.node.clone() else { return };
        let pod = state.render();
        self.hosts.change(&node, |target, version| target.want_pod(uid, pod, version));
    }

    /// A node appeared: what its pods are given is wanted there.
    pub(super) fn sync_node(&mut self, node: &Name) {
        let on = |state: &PodState| state.pod.node.as_ref() == Some(node);
        let pods = self.podnet.pods.iter().filter(|(_, state)| on(state)).map(|(uid, _)| uid.clone());
        for uid in pods.collect::<Vec<_>>() {
            self.sync_pod(&uid);
        }
        let bridges = self.podnet.bridges.keys().filter(|(name, _)| name == node);
        for bridge in bridges.map(|(_, bridge)| bridge.clone()).collect::<Vec<_>>() {
            let wanted = self.podnet.bridge(node, &bridge);
            self.hosts.change(node, |target, version| target.want_bridge(&bridge, wanted, version));
        }
    }

    /// Forgets a pod's part of an object, with its addresses.
    pub(super) fn drop_entry(&mut self, key: &Key, uid: &Name) {
        self.podnet.blocked.remove(&(key.clone(), uid.clone()));
        self.set_claims(key, uid, BTreeSet::new());
        let Some(giver) = self.podnet.givers.get_mut(key) else { return };
        let Some(entry) = giver.entries.remove(uid) else { return };
        if let Some(state) = self.podnet.pods.get_mut(uid) {
            state.entries.remove(key);
        }
        giver.awaiting.remove(&entry.leased_at);
        if giver.entries.is_empty() && !self.records.contains_key(key) {
            self.podnet.givers.remove(key);
        }
        let leases = named(entry.leases).chain(entry.retiring).map(|(_, lease)| lease);
        self.release(key, leases.collect());
        if self.records.contains_key(key) {
            self.judge.insert(key.clone());
        }
        self.views.insert(uid.clone());
    }

    /// The object is gone. The addresses of pods whose nodes have not confirmed that stay taken until they do.
    pub(super) fn forget_giver(&mut self, key: &Key) {
        let uids = self.podnet.givers.get(key).map(|giver| giver.entries.keys().cloned().collect::<Vec<_>>());
        for uid in uids.into_iter().flatten() {
            self.withdraw_from_pod(key, &uid);
        }
        if self.podnet.givers.get(key).is_some_and(|giver| giver.entries.is_empty()) {
            self.podnet.givers.remove(key);
        }
    }

    /// Asks for the sample Deployment of a configuration, once.
    pub(super) fn make_sample(&mut self, key: &Key) {
        let sample = self.effective(key, Spec::pod_links).and_then(|spec| spec.sample.clone());
        let Some(record) = self.records.get_mut(key).filter(|record| record.finalized && !record.deleting)
        else {
            return;
        };
        if record.sampled == sample {
            return;
        }
        record.sampled.clone_from(&sample);
        record.sample_refused = None;
        if let Some(name) = sample {
            self.effects.push(Effect::SampleDeployment { owner: key.clone(), name });
        }
    }

    /// A node said something new of these pods.
    pub(super) fn pods_told(&mut self, uids: BTreeSet<Name>) {
        for uid in uids {
            let Some(state) = self.podnet.pods.get(&uid) else { continue };
            let keys = state.entries.clone();
            for key in keys {
                self.settle_entry(&key, &uid);
                if self.records.contains_key(&key) {
                    self.judge.insert(key);
                }
            }
            self.views.insert(uid);
        }
    }
}
