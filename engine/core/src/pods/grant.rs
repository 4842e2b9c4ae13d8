//! Grants to pods: which object gives which interfaces to which pod. Addresses are written to the object's status
//! before a node gets them.

use std::collections::BTreeSet;

use eno_schemas::LinkName;

use crate::kinds::Spec;
use crate::node::Nodes;
use crate::pods::leases::named;
use crate::pods::sub_interfaces::asks_for;
use crate::pods::template::{self, Interfaces};
use crate::pods::{Context, Grant, Lease, PodState, Pods, Withdrawal, shown_name};
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name};

/// The offer of an object to a pod.
enum Offer {
    /// Nothing: the pod does not name the object, or the object does not exist.
    Nothing,
    /// Nothing yet: the pod does not run.
    NotRunning,
    /// It can't be done; the reason.
    Refused(String),
    /// These interfaces.
    Interfaces(Interfaces),
}

impl Pods {
    /// The offer of an object to a pod.
    fn offer_for(&self, store: &Store, nodes: &Nodes, key: &Key, state: &PodState) -> Offer {
        let record = store.get(key).filter(|record| record.finalized);
        let Some(spec) = record.and_then(|record| record.effective.as_deref()) else { return Offer::Nothing };
        if !asks_for(store, key, spec, &state.pod) {
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
                let settings = |bridge: &str| self.bridge_settings(store, &key.namespace, bridge);
                Offer::Interfaces(template::templates_for(key, spec, settings))
            }
            Spec::Attachment(spec) => match self.attachment_links(store, nodes, key, spec, state) {
                Ok(templates) => Offer::Interfaces(Interfaces { templates, primary: None }),
                Err(problem) => Offer::Refused(problem),
            },
            _ => Offer::Nothing,
        }
    }

    /// Plans what one object gives to one pod.
    pub(super) fn plan(&mut self, cx: &mut Context<'_>, key: &Key, uid: &Name) {
        let Some(state) = self.states.get(uid) else { return self.drop_entry(cx.store, key, uid, cx.work) };
        self.view_queue.insert(uid.clone());
        let name = shown_name(key, &state.pod);
        let offer = self.offer_for(cx.store, cx.nodes, key, state);
        if matches!(offer, Offer::Nothing) && self.entry(key, uid).is_none() {
            return;
        }
        cx.work.evaluate.insert(key.clone());
        self.recount_lost(cx.store, key, uid, cx.work);
        if !matches!(offer, Offer::Nothing) {
            // It has a pod, so pods of its sample Deployment are not refused.
            self.samples.get_mut(key).into_iter().for_each(|sample| sample.refused = None);
            if let Some(state) = self.states.get_mut(uid) {
                state.entries.insert(key.clone());
            }
            let provider = self.providers.entry(key.clone()).or_default();
            let entry = provider.entry(uid, &name);
            entry.withdrawal = None;
            entry.problem = None;
        }
        let refused = match offer {
            Offer::Nothing => return self.withdraw_from_pod(cx, key, uid),
            Offer::NotRunning => return,
            Offer::Refused(problem) => Err(problem),
            Offer::Interfaces(offered) => self.grant_to_pod(cx, key, uid, offered),
        };
        if let Err(problem) = refused {
            self.revoke_from_pod(cx, key, uid);
            self.blocked.insert((key.clone(), uid.clone()));
            if let Some(entry) = self.entry_mut(key, uid) {
                entry.problem = Some(problem);
            }
        } else {
            self.blocked.remove(&(key.clone(), uid.clone()));
        }
        self.recount_lost(cx.store, key, uid, cx.work);
        self.settle_entry(cx, key, uid);
    }

    /// Grants interfaces to a pod, once their addresses are written to the status.
    fn grant_to_pod(
        &mut self,
        cx: &mut Context<'_>,
        key: &Key,
        uid: &Name,
        offered: Interfaces,
    ) -> Result<(), String> {
        let claims = self.claims_for(key, uid, &offered)?;
        let leases = self.lease(key, uid, &offered.templates)?;
        self.set_claims(key, uid, claims);
        let Some(provider) = self.providers.get_mut(key) else { return Ok(()) };
        let Some(entry) = provider.entries.get_mut(uid) else { return Ok(()) };
        let mut main = offered.templates.iter().filter(|_| key.kind == Kind::L2ServiceAttachment);
        let main = main.find(|template| template.name == key.name);
        let ifname = main.and_then(|template| match &template.link.name {
            LinkName::Fixed(name) => Some(name.clone()),
            LinkName::WithPid(_) => None,
        });
        let is_something = !offered.templates.is_empty() || offered.primary.is_some();
        let was_there = entry.was_granted && !entry.is_recorded && entry.lease_revision == 0;
        if was_there && entry.leases == leases {
            // A node that has it since before a status says so keeps it meanwhile.
            (entry.ifname, entry.is_recorded) = (ifname, is_something);
        } else if entry.leases != leases || entry.ifname != ifname || entry.is_recorded != is_something {
            provider.lease_revision += 1;
            provider.unwritten.remove(&entry.lease_revision);
            entry.lease_revision = provider.lease_revision;
            let kept: Vec<&Lease> = leases.values().flatten().collect();
            let gone = named(std::mem::take(&mut entry.leases)).filter(|(_, lease)| !kept.contains(&lease));
            entry.retiring.extend(gone);
            // An address that it has again is not released.
            entry.retiring.retain(|(_, lease)| !kept.contains(&lease));
            (entry.leases, entry.ifname, entry.retired_at) = (leases.clone(), ifname, None);
            entry.is_recorded = is_something;
        }
        if entry.lease_revision > provider.written_revision {
            provider.unwritten.insert(entry.lease_revision, uid.clone());
            return Ok(());
        }
        let Interfaces { templates, primary } = offered;
        let bridges = templates.iter().filter_map(|template| template.bridge.clone()).collect();
        let links = templates.into_iter().map(|template| {
            let own = leases.get(&template.name).into_iter().flatten().map(|lease| lease.address);
            (template.name.clone(), template.with_addresses(own.collect()))
        });
        let grant = Grant { links: links.collect(), primary, bridges };
        self.set_grant(cx, key, uid, Some(grant));
        if let Some(entry) = self.entry_mut(key, uid) {
            entry.retired_at = Some(cx.nodes.version());
        }
        // The node's next report releases retiring addresses, even if the node never had a command with them.
        if let Some(node) = self.states.get(uid).and_then(|state| state.pod.node.as_ref()) {
            cx.nodes.track_removal(node, uid);
        }
        Ok(())
    }

    /// Revokes everything that an object gave to a pod. The addresses are released when the node has confirmed.
    fn revoke_from_pod(&mut self, cx: &mut Context<'_>, key: &Key, uid: &Name) {
        self.set_grant(cx, key, uid, None);
        self.set_claims(key, uid, BTreeSet::new());
        let Some(provider) = self.providers.get_mut(key) else { return };
        let Some(entry) = provider.entries.get_mut(uid) else { return };
        provider.unwritten.remove(&entry.lease_revision);
        entry.ifname = None;
        if std::mem::take(&mut entry.is_recorded) {
            provider.lease_revision += 1;
            entry.lease_revision = provider.lease_revision;
            entry.retiring.extend(named(std::mem::take(&mut entry.leases)));
        }
        entry.retired_at = Some(cx.nodes.version());
        if let Some(node) = self.states.get(uid).and_then(|state| state.pod.node.as_ref()) {
            cx.nodes.track_removal(node, uid);
        }
    }

    /// Withdraws an object from a pod. Its entry goes when the node has confirmed.
    pub(super) fn withdraw_from_pod(&mut self, cx: &mut Context<'_>, key: &Key, uid: &Name) {
        self.blocked.remove(&(key.clone(), uid.clone()));
        let Some(entry) = self.entry(key, uid) else { return };
        let state = self.states.get(uid);
        let was_granted = entry.was_granted || state.is_some_and(|state| state.grants.contains_key(key));
        let node = state.and_then(|state| state.pod.node.clone()).filter(|_| was_granted);
        self.set_grant(cx, key, uid, None);
        self.set_claims(key, uid, BTreeSet::new());
        let Some(provider) = self.providers.get_mut(key) else { return };
        let Some(entry) = provider.entries.get_mut(uid) else { return };
        provider.unwritten.remove(&entry.lease_revision);
        entry.problem = None;
        match node {
            Some(node) => {
                cx.nodes.track_removal(&node, uid);
                entry.withdrawal.get_or_insert(Withdrawal { node, version: cx.nodes.version() });
                self.recount_lost(cx.store, key, uid, cx.work);
                self.settle_entry(cx, key, uid);
            }
            None => self.drop_entry(cx.store, key, uid, cx.work),
        }
    }

    /// Sets what an object gives to a pod, and changes the desired state of the pod's node.
    pub(super) fn set_grant(&mut self, cx: &mut Context<'_>, key: &Key, uid: &Name, grant: Option<Grant>) {
        let Some(state) = self.states.get_mut(uid) else { return };
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
                if self.count_bridge_request(&node, bridge, request, more) {
                    changed.insert(bridge.clone());
                }
            }
        }
        for bridge in changed {
            let wanted = self.wanted_bridge(&node, &bridge);
            cx.nodes.want_bridge(&node, &bridge, wanted);
            self.reevaluate_bridge(cx.store, &key.namespace, &bridge, cx.work);
        }
        if let Some(entry) = self.entry_mut(key, uid) {
            entry.was_granted = true;
        }
        self.sync_pod(cx.nodes, uid);
        self.view_queue.insert(uid.clone());
    }

    /// Updates what a pod is given in the desired state of its node.
    pub(super) fn sync_pod(&self, nodes: &mut Nodes, uid: &Name) {
        let Some(state) = self.states.get(uid) else { return };
        let Some(node) = &state.pod.node else { return };
        nodes.want_pod(node, uid, state.render());
    }

    /// Removes the entry of a pod from an object, and releases its addresses.
    pub(super) fn drop_entry(&mut self, store: &Store, key: &Key, uid: &Name, work: &mut Work) {
        self.blocked.remove(&(key.clone(), uid.clone()));
        self.set_claims(key, uid, BTreeSet::new());
        let Some(provider) = self.providers.get_mut(key) else { return };
        let Some(entry) = provider.entries.remove(uid) else { return };
        self.ranges.sate(key, |holder| holder != uid);
        if let Some(state) = self.states.get_mut(uid) {
            state.entries.remove(key);
        }
        provider.unwritten.remove(&entry.lease_revision);
        if provider.entries.is_empty() && !store.contains(key) {
            self.providers.remove(key);
        }
        let leases = named(entry.leases).chain(entry.retiring).map(|(_, lease)| lease);
        self.release(store, key, leases.collect(), work);
        work.evaluate.insert(key.clone());
        self.view_queue.insert(uid.clone());
    }
}
