//! Exclusive resources of pods: addresses, names and hardware addresses.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{Applied, PrimaryLink};
use ipnet::IpNet;

use crate::pods::ipam::{Holder, PoolKey};
use crate::pods::template::{self, Template};
use crate::pods::{self, Claim, Lease, Withdrawal};
use crate::spec::Spec;
use crate::{Key, Kind, Name, Target};

use crate::engine::Engine;

/// Flattens leases to pairs of a link's name and a lease.
pub(crate) fn named(leases: BTreeMap<Name, Vec<Lease>>) -> impl Iterator<Item = (Name, Lease)> {
    leases.into_iter().flat_map(|(link, own)| own.into_iter().map(move |lease| (link.clone(), lease)))
}

impl Engine {
    /// Restores the leases in the status of an object, before any new lease.
    pub(crate) fn restore_leases(&mut self, key: &Key) {
        let Some(record) = self.store.records.get(key) else { return };
        let entries = record.status.pods.clone();
        let templates = self.templates_of(key);
        for entry in entries {
            let mut leases: BTreeMap<Name, Vec<Lease>> = BTreeMap::new();
            let mut retiring = Vec::new();
            for (link, addresses) in &entry.leases {
                for address in addresses {
                    let holder: Holder = (key.clone(), entry.uid.clone(), link.clone());
                    let pool = self.pool_of(key, &templates, link, *address);
                    let pool = pool.filter(|pool| self.pods.ipam.take(pool, address.addr(), &holder));
                    if let Some(pool) = pool {
                        self.lease_changed(&pool, address.addr());
                        leases.entry(link.clone()).or_default().push(Lease { pool, address: *address });
                    } else {
                        // The pod was losing it, or loses it now.
                        retiring.push((link.clone(), self.reserve_unknown(*address, &holder)));
                    }
                }
            }
            let had_any = !leases.is_empty() || !retiring.is_empty() || !entry.links.is_empty();
            let provider = self.pods.providers.entry(key.clone()).or_default();
            let own = provider.entry(&entry.uid, &entry.name);
            if let Some(state) = self.pods.states.get_mut(&entry.uid) {
                state.entries.insert(key.clone());
            }
            own.leases = leases;
            own.retiring = retiring;
            own.ifname = entry.links.iter().find(|link| link.link == key.name).map(|link| link.name.clone());
            own.was_granted = had_any;
            let work = (key.clone(), entry.uid.clone());
            if had_any {
                self.pods.queue_first.insert(work)
            } else {
                self.pods.queue.insert(work)
            };
        }
    }

    fn reserve_unknown(&mut self, address: IpNet, holder: &Holder) -> Lease {
        self.pods.ipam.take(&PoolKey::Unknown, address.addr(), holder);
        self.lease_changed(&PoolKey::Unknown, address.addr());
        Lease { pool: PoolKey::Unknown, address }
    }

    /// Restores, before any new lease, addresses that agents report in pods for deleted objects. They stay taken
    /// until the nodes have confirmed their removal.
    pub(crate) fn restore_orphan_leases(&mut self) {
        self.pods.orphans_restored = true;
        let mut found: Vec<(Name, Holder, Vec<IpNet>)> = Vec::new();
        for (target, report) in &self.startup.early_reports {
            let (Target::Node(node), Some(Applied::Node { pods, .. })) = (target, &report.applied) else {
                continue;
            };
            for (uid, links) in pods.iter().filter(|_| self.node.node(node).is_some()) {
                let Some(state) = self.pods.states.get(uid.as_str()) else { continue };
                for (id, link) in links.iter().filter(|_| state.pod.node.as_ref() == Some(node)) {
                    let owner = template::owner_of(id, &state.pod.namespace);
                    let Some((key, name)) = owner.filter(|(key, _)| !self.store.records.contains_key(key))
                    else {
                        continue;
                    };
                    let holder = (key, state.pod.uid.clone(), name);
                    found.push((node.clone(), holder, link.addresses.clone()));
                }
            }
        }
        let version = self.node.version();
        for (node, holder, addresses) in found {
            let reserved: Vec<Lease> =
                addresses.into_iter().map(|address| self.reserve_unknown(address, &holder)).collect();
            let (key, uid, link) = holder;
            let Some(state) = self.pods.states.get_mut(&uid) else { continue };
            state.entries.insert(key.clone());
            let name = state.pod.name.clone();
            let entry = self.pods.providers.entry(key).or_default().entry(&uid, &name);
            entry.retiring.extend(reserved.into_iter().map(|lease| (link.clone(), lease)));
            entry.was_granted = true;
            entry.withdrawal = Some(Withdrawal { node: node.clone(), version });
            if let Some(target) = self.node.node_mut(&node) {
                target.track_removal(&uid);
            }
        }
    }

    /// The links of a configuration.
    fn templates_of(&self, key: &Key) -> Vec<Template> {
        let links = self.spec_of(key).and_then(Spec::pod_links).map(|spec| {
            template::templates_for(key, spec, |bridge| self.bridge_settings(&key.namespace, bridge)).0
        });
        links.unwrap_or_default()
    }

    fn spec_of(&self, key: &Key) -> Option<&Spec> {
        let record = self.store.records.get(key)?;
        record.effective.as_deref().or(record.spec.as_deref().ok())
    }

    /// The pool of a link's address, if the link may have this address.
    fn pool_of(&self, key: &Key, templates: &[Template], link: &Name, address: IpNet) -> Option<PoolKey> {
        if let Some(template) = templates.iter().find(|template| template.name == *link) {
            let need = template.needs.iter().find(|need| need.source.keeps(address))?;
            return Some(need.pool.clone());
        }
        let services = &self.spec_of(key)?.attachment()?.services;
        let services = services
            .iter()
            .filter_map(|name| self.effective(&Key::cluster(Kind::L2Service, name), Spec::service));
        services.flat_map(|service| &service.subnets).find_map(|name| {
            let subnet = self.effective(&Key::cluster(Kind::Subnet, name), Spec::subnet)?;
            subnet.network.contains(&address.addr()).then(|| PoolKey::Subnet(name.clone()))
        })
    }

    /// The claims of links: names in the pod, and hardware addresses beside other pods.
    pub(crate) fn claims_for(
        &self,
        key: &Key,
        uid: &Name,
        templates: &[Template],
        primary: Option<&PrimaryLink>,
    ) -> Result<BTreeSet<Claim>, String> {
        let Some(state) = self.pods.states.get(uid) else { return Ok(BTreeSet::new()) };
        let node = state.pod.node.clone().unwrap_or_else(|| "".into());
        let mut claims = BTreeSet::new();
        for template in templates {
            let link = &template.link;
            let name = pods::name_claim(uid, &link.name);
            self.check_claim(key, uid, &name, |(other, _, _)| {
                let Claim::Name(_, name) = &name else { unreachable!() };
                format!("the name {name} is taken by an interface of {} {}", other.kind, other.name)
            })?;
            claims.insert(name);
            if let (Some(mac), Some(master)) = (&link.mac, template::shared_master(&link.kind)) {
                let claim = Claim::Mac(node.clone(), master.to_owned(), mac.clone());
                self.check_claim(key, uid, &claim, |(_, _, pod)| {
                    format!(
                        "link {}: the hardware address {mac} is taken by pod {pod} on {master}",
                        template.name
                    )
                })?;
                claims.insert(claim);
            }
        }
        if let Some(primary) = primary {
            let claim = Claim::Name(uid.clone(), primary.name.clone());
            self.check_claim(key, uid, &claim, |(other, _, _)| {
                format!("its interface {} is changed by {} {} already", primary.name, other.kind, other.name)
            })?;
            claims.insert(claim);
        }
        Ok(claims)
    }

    fn check_claim(
        &self,
        key: &Key,
        uid: &Name,
        claim: &Claim,
        message: impl FnOnce(&pods::Claimant) -> String,
    ) -> Result<(), String> {
        match self.pods.claims.get(claim) {
            Some(holder) if (&holder.0, &holder.1) != (key, uid) => Err(message(holder)),
            _ => Ok(()),
        }
    }

    pub(crate) fn set_claims(&mut self, key: &Key, uid: &Name, claims: BTreeSet<Claim>) {
        let Some(entry) = self.pods.providers.get_mut(key).and_then(|provider| provider.entries.get_mut(uid))
        else {
            return;
        };
        if !claims.is_subset(&entry.claims) {
            // Other objects of the pod may now find that a name is taken.
            let same = self.pods.blocked.iter().filter(|(other, pod)| pod == uid && other != key);
            self.pods.queue.extend(same.cloned());
        }
        for claim in &claims {
            self.pods.claims.insert(claim.clone(), (key.clone(), uid.clone(), entry.name.clone()));
        }
        let before = std::mem::replace(&mut entry.claims, claims);
        let given_up: Vec<Claim> = before.difference(&entry.claims).cloned().collect();
        for claim in &given_up {
            self.pods.claims.remove(claim);
        }
        if !given_up.is_empty() {
            self.unblock();
        }
    }

    /// Queues all pods that were blocked by a claim or lease of another.
    pub(crate) fn unblock(&mut self) {
        self.pods.queue.append(&mut self.pods.blocked);
    }

    /// Leases the addresses of a pod's links: the ones that it has, and new ones where it has none. All or nothing.
    pub(crate) fn lease(
        &mut self,
        key: &Key,
        uid: &Name,
        templates: &[Template],
    ) -> Result<BTreeMap<Name, Vec<Lease>>, String> {
        let entry = self.pods.providers.get(key).and_then(|provider| provider.entries.get(uid));
        let mut had = entry.map(|entry| entry.leases.clone()).unwrap_or_default();
        // Retiring addresses are still its own.
        for (link, lease) in entry.into_iter().flat_map(|entry| &entry.retiring) {
            had.entry(link.clone()).or_default().push(lease.clone());
        }
        let mut leases: BTreeMap<Name, Vec<Lease>> = BTreeMap::new();
        let mut taken: Vec<Lease> = Vec::new();
        for template in templates {
            let holder: Holder = (key.clone(), uid.clone(), template.name.clone());
            let kept = had.get(&template.name);
            for need in &template.needs {
                let fits = |lease: &&Lease| lease.pool == need.pool && need.source.keeps(lease.address);
                let lease = if let Some(lease) = kept.into_iter().flatten().find(fits) {
                    lease.clone()
                } else if let Some(address) = self.pods.ipam.take_any(&need.pool, &need.source, &holder) {
                    let lease = Lease { pool: need.pool.clone(), address };
                    taken.push(lease.clone());
                    lease
                } else {
                    for lease in taken {
                        self.pods.ipam.undo(&lease.pool, lease.address.addr());
                    }
                    return Err(need.exhausted_message.clone());
                };
                leases.entry(template.name.clone()).or_default().push(lease);
            }
        }
        Ok(leases)
    }

    /// Releases what a node has confirmed to be gone.
    pub(crate) fn settle_entry(&mut self, key: &Key, uid: &Name) {
        let Some(entry) = self.pods.providers.get(key).and_then(|provider| provider.entries.get(uid)) else {
            return;
        };
        if let Some(withdrawal) = &entry.withdrawal {
            let has_addresses = !entry.leases.is_empty() || !entry.retiring.is_empty();
            let gone = match self.node.node(&withdrawal.node) {
                Some(node) => {
                    node.caught_up(withdrawal.version) && !node.has_links_of(uid, &template::link_id(key, ""))
                }
                // The node may come back with the pod as it was, so its addresses are not free. Once the object is
                // gone, nothing would tell the next leader of them.
                None => !has_addresses || !self.store.records.contains_key(key),
            };
            if gone {
                self.drop_entry(key, uid);
            }
            return;
        }
        if entry.retiring.is_empty() {
            return;
        }
        let node = self.pods.states.get(uid).and_then(|state| state.pod.node.as_ref());
        let Some(version) = entry.retired_at else { return };
        let caught_up = |node: &Name| self.node.node(node).is_some_and(|node| node.caught_up(version));
        if node.is_none_or(caught_up) {
            let retired = self.pods.providers.get_mut(key).and_then(|provider| provider.entries.get_mut(uid));
            let retired = retired.map(|entry| std::mem::take(&mut entry.retiring)).unwrap_or_default();
            self.release(key, retired.into_iter().map(|(_, lease)| lease).collect());
            if self.store.records.contains_key(key) {
                self.work.evaluate.insert(key.clone());
            }
        }
    }

    pub(crate) fn release(&mut self, key: &Key, leases: Vec<Lease>) {
        if leases.is_empty() {
            return;
        }
        for lease in leases {
            let own = |holder: &Holder| holder.0 == *key;
            let holder = self.pods.ipam.holder(&lease.pool, lease.address.addr());
            if lease.pool == PoolKey::Unknown || holder.is_some_and(own) {
                self.pods.ipam.release(&lease.pool, lease.address.addr());
                self.lease_changed(&lease.pool, lease.address.addr());
            }
        }
        self.unblock();
    }

    /// An object of the same name was created again: its addresses have to be written to the new status.
    pub(crate) fn renew_leases(&mut self, key: &Key) {
        let Some(provider) = self.pods.providers.get_mut(key) else { return };
        provider.unwritten.clear();
        for entry in provider.entries.values_mut() {
            provider.lease_revision += 1;
            entry.lease_revision = provider.lease_revision;
        }
    }
}
