//! The addresses of pods: they are leased, written to statuses, restored from there, and released when nodes confirm
//! that they are gone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::slice;

use eno_schemas::{Applied, Ipam, Pool, Report};
use ipnet::IpNet;

use crate::kinds::Spec;
use crate::node::shape::name_problem;
use crate::pods::claims::Claim;
use crate::pods::ipam::{Holder, PoolKey};
use crate::pods::template::{self, AddressNeed, Template};
use crate::pods::{Context, Entry, Lease, Pods, Withdrawal, shown_name};
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Target};

/// Maximum bytes of an object's leases in its status. The API server takes no object of more than 1.5 MiB.
const MAX_LEASE_BYTES: usize = 1 << 20;

/// The bytes of the leases of a pod in a status, or slightly more. Each link is an entry with the names of the pod. One
/// is there without addresses too, and the first one of an attachment has the name of the interface.
fn stored_size(
    key: &Key,
    pod: &Name,
    uid: &Name,
    leases: &BTreeMap<Name, Vec<Lease>>,
    retiring: &[(Name, Lease)],
) -> usize {
    const FIELDS: usize = r#"{"pod":"","uid":"","link":"","addresses":[]},"#.len();
    const INTERFACE: usize = r#""interface":"0123456789abcde","#.len();
    const V4: usize = r#""255.255.255.255/32","#.len();
    const V6: usize = r#""ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128","#.len();
    let address = |lease: &Lease| if lease.address.addr().is_ipv4() { V4 } else { V6 };
    let entry = |link: &Name, own: &[Lease]| {
        FIELDS + pod.len() + uid.len() + link.len() + own.iter().map(address).sum::<usize>()
    };
    let retiring = retiring.iter().map(|(link, lease)| entry(link, slice::from_ref(lease)));
    let interface = if key.kind == Kind::L2ServiceAttachment { INTERFACE } else { 0 };
    interface
        + entry(&key.name, &[])
        + leases.iter().map(|(link, own)| entry(link, own)).chain(retiring).sum::<usize>()
}

/// An address was leased or released. If it is outside the HotPlugPool of its Subnet, the ranges of
/// NetworkAttachmentDefinitions change.
fn lease_changed(store: &Store, pool: &PoolKey, address: IpAddr, work: &mut Work) {
    let subnets: Vec<Key> = match pool {
        PoolKey::Subnet(name) => vec![Key::cluster(Kind::Subnet, name)],
        PoolKey::Unknown => store.of_kind(Kind::Subnet).map(|(key, _)| key.clone()).collect(),
        PoolKey::Bridge(..) | PoolKey::Link(..) => return,
    };
    let within = |pool: &Pool| (pool.start..=pool.end).contains(&address);
    for key in subnets {
        let subnet = store.effective(&key, Spec::subnet);
        if subnet.is_some_and(|subnet| subnet.ipam == Ipam::Eno) {
            // No address is in its NetworkAttachmentDefinitions.
            work.evaluate.insert(key);
            continue;
        }
        if !subnet.is_some_and(|s| s.network.contains(&address) && !s.hot_plug_pool.iter().any(within)) {
            continue;
        }
        for service in store.referrers(&key) {
            store.revalidate_referrers(service, work);
        }
    }
}

/// Flattens leases to pairs of a link's name and a lease.
pub(super) fn named(leases: BTreeMap<Name, Vec<Lease>>) -> impl Iterator<Item = (Name, Lease)> {
    leases.into_iter().flat_map(|(link, own)| own.into_iter().map(move |lease| (link.clone(), lease)))
}

impl Pods {
    /// Restores the leases in the status of an object, before any new lease.
    pub(super) fn restore_leases(&mut self, store: &Store, key: &Key, work: &mut Work) {
        let Some(record) = store.get(key) else { return };
        let entries = record.status.pods.clone();
        let templates = self.templates_of(store, key);
        for entry in entries {
            let mut leases: BTreeMap<Name, Vec<Lease>> = BTreeMap::new();
            let mut retiring = Vec::new();
            for (link, addresses) in &entry.leases {
                for address in addresses {
                    let holder: Holder = (key.clone(), entry.uid.clone(), link.clone());
                    let pool = pool_of(store, key, &templates, link, *address);
                    let pool = pool.filter(|pool| self.ipam.take(pool, address.addr(), &holder));
                    if let Some(pool) = pool {
                        lease_changed(store, &pool, address.addr(), work);
                        leases.entry(link.clone()).or_default().push(Lease { pool, address: *address });
                    } else {
                        // The pod was losing it, or loses it now.
                        retiring.push((link.clone(), self.reserve_unknown(store, *address, &holder, work)));
                    }
                }
            }
            let is_recorded = !entry.leases.is_empty();
            let provider = self.providers.entry(key.clone()).or_default();
            provider.lease_bytes = None;
            let own = provider.entry(&entry.uid, &entry.name);
            if let Some(state) = self.states.get_mut(&entry.uid) {
                state.entries.insert(key.clone());
            }
            own.leases = leases;
            own.retiring = retiring;
            own.ifname.clone_from(&entry.ifname);
            (own.is_recorded, own.was_granted) = (is_recorded, is_recorded);
            // Another object of the pod that wants the same name comes second, whichever is planned first.
            let name = entry.ifname.map(|name| Claim::Name(entry.uid.clone(), name));
            let claims = name.into_iter().filter(|name| !self.claims.contains_key(name)).collect();
            self.set_claims(key, &entry.uid, claims);
            let work = (key.clone(), entry.uid.clone());
            if is_recorded {
                self.queue_first.insert(work)
            } else {
                self.queue.insert(work)
            };
        }
    }

    fn reserve_unknown(&mut self, store: &Store, address: IpNet, holder: &Holder, work: &mut Work) -> Lease {
        self.ipam.take(&PoolKey::Unknown, address.addr(), holder);
        lease_changed(store, &PoolKey::Unknown, address.addr(), work);
        Lease { pool: PoolKey::Unknown, address }
    }

    /// Restores, before any new lease, what agents report in pods and no status says. Addresses for deleted objects stay
    /// taken until the nodes have confirmed their removal. A status of an earlier version does not say which pods have
    /// interfaces without addresses.
    pub(super) fn restore_reported(&mut self, cx: &mut Context<'_>, early_reports: &[(Target, Report)]) {
        self.orphans_restored = true;
        let mut found: Vec<(Name, Holder, Vec<IpNet>)> = Vec::new();
        let mut present: Vec<(Holder, String)> = Vec::new();
        for (target, report) in early_reports {
            let (Target::Node(node), Some(Applied::Node { pods, .. })) = (target, &report.applied) else {
                continue;
            };
            for (uid, links) in pods.iter().filter(|_| cx.nodes.node(node).is_some()) {
                let Some(state) = self.states.get(uid.as_str()) else { continue };
                for (id, link) in links.iter().filter(|_| state.pod.node.as_ref() == Some(node)) {
                    let Some((key, name)) = template::owner_of(id, &state.pod.namespace) else { continue };
                    let holder = (key, state.pod.uid.clone(), name);
                    if cx.store.contains(&holder.0) {
                        present.push((holder, link.name.clone()));
                    } else {
                        found.push((node.clone(), holder, link.addresses.clone()));
                    }
                }
            }
        }
        for (holder, ifname) in present {
            self.restore_present(&holder, ifname);
        }
        let version = cx.nodes.version();
        for (node, holder, addresses) in found {
            let reserve = |address| self.reserve_unknown(cx.store, address, &holder, cx.work);
            let reserved: Vec<Lease> = addresses.into_iter().map(reserve).collect();
            let (key, uid, link) = holder;
            let Some(state) = self.states.get_mut(&uid) else { continue };
            state.entries.insert(key.clone());
            let name = shown_name(&key, &state.pod);
            let entry = self.providers.entry(key).or_default().entry(&uid, &name);
            entry.retiring.extend(reserved.into_iter().map(|lease| (link.clone(), lease)));
            entry.was_granted = true;
            entry.withdrawal = Some(Withdrawal { node: node.clone(), version });
            cx.nodes.track_removal(&node, &uid);
        }
    }

    /// A pod has an interface of an object. Those that the status says come first.
    fn restore_present(&mut self, (key, uid, link): &Holder, ifname: String) {
        let Some(state) = self.states.get_mut(uid) else { return };
        let name = shown_name(key, &state.pod);
        let entry = self.providers.entry(key.clone()).or_default().entry(uid, &name);
        if entry.is_recorded {
            return;
        }
        let is_main = key.kind == Kind::L2ServiceAttachment && *link == key.name;
        // A node may report any text.
        let is_free = !self.claims.contains_key(&Claim::Name(uid.clone(), ifname.clone()));
        if is_main && is_free && name_problem(&ifname).is_none() {
            entry.ifname = Some(ifname);
        }
        entry.was_granted = true;
        state.entries.insert(key.clone());
        self.queue.insert((key.clone(), uid.clone()));
    }

    /// The links of a configuration.
    fn templates_of(&self, store: &Store, key: &Key) -> Vec<Template> {
        let links = spec_of(store, key).and_then(Spec::pod_links).map(|spec| {
            let settings = |bridge: &str| self.bridge_settings(store, &key.namespace, bridge);
            template::templates_for(key, spec, settings).templates
        });
        links.unwrap_or_default()
    }

    /// Leases the addresses of a pod's links: the ones that it has, and new ones where it has none. All or nothing.
    pub(super) fn lease(
        &mut self,
        key: &Key,
        uid: &Name,
        templates: &[Template],
    ) -> Result<BTreeMap<Name, Vec<Lease>>, String> {
        let entry = self.entry(key, uid);
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
                } else if let Some(address) = self.ipam.take_any(&need.pool, &need.source, &holder) {
                    let lease = Lease { pool: need.pool.clone(), address };
                    taken.push(lease.clone());
                    lease
                } else {
                    self.undo(taken);
                    self.ranges.starve(&need.pool, key, uid);
                    return Err(need.exhausted_message.clone());
                };
                leases.entry(template.name.clone()).or_default().push(lease);
            }
        }
        let is_new = self.entry(key, uid).is_none_or(|entry| !entry.is_recorded);
        if (is_new || !taken.is_empty())
            && let Err(message) = self.check_room(key, uid, &leases)
        {
            self.undo(taken);
            return Err(message);
        }
        Ok(leases)
    }

    /// Counts the addresses that a pod is losing where the next leader would: in the pool that the present spec gives
    /// them, or in [`PoolKey::Unknown`].
    pub(super) fn recount_lost(&mut self, store: &Store, key: &Key, uid: &Name, work: &mut Work) {
        let is_losing = |entry: &Entry| !entry.retiring.is_empty() || entry.withdrawal.is_some();
        if !self.entry(key, uid).is_some_and(is_losing) {
            return;
        }
        let templates = self.templates_of(store, key);
        let provider = self.providers.get_mut(key);
        let Some(entry) = provider.and_then(|provider| provider.entries.get_mut(uid)) else { return };
        let withdrawn = entry.leases.iter_mut().filter(|_| entry.withdrawal.is_some());
        let withdrawn = withdrawn.flat_map(|(link, own)| own.iter_mut().map(move |lease| (link, lease)));
        let retiring = entry.retiring.iter_mut().map(|(link, lease)| (&*link, lease));
        let mut is_moved = false;
        for (link, lease) in withdrawn.chain(retiring) {
            let (ip, holder) = (lease.address.addr(), (key.clone(), uid.clone(), link.clone()));
            let mut has_it = |pool: &PoolKey| *pool == lease.pool || self.ipam.take(pool, ip, &holder);
            let pool = pool_of(store, key, &templates, link, lease.address).filter(&mut has_it);
            let pool = pool.unwrap_or_else(|| {
                has_it(&PoolKey::Unknown);
                PoolKey::Unknown
            });
            if pool != lease.pool {
                let former = std::mem::replace(&mut lease.pool, pool);
                self.ipam.release(&former, ip);
                for pool in [&former, &lease.pool] {
                    lease_changed(store, pool, ip, work);
                }
                is_moved = true;
            }
        }
        if is_moved {
            self.unblock();
        }
    }

    /// Leases an address for something that is no pod. `None`: there is none.
    pub(crate) fn take_any(&mut self, need: &AddressNeed, holder: &Holder) -> Option<Lease> {
        let Some(address) = self.ipam.take_any(&need.pool, &need.source, holder) else {
            self.ranges.starve(&need.pool, &holder.0, &holder.1);
            return None;
        };
        Some(Lease { pool: need.pool.clone(), address })
    }

    /// Of the nodes that lack an address for a group, all but `still` do so no more.
    pub(crate) fn sate(&mut self, key: &Key, still: impl Fn(&Name) -> bool) {
        self.ranges.sate(key, still);
    }

    /// Leases an address that something which is no pod has. Returns false when another one has it: then it is taken in
    /// [`PoolKey::Unknown`].
    pub(crate) fn take_given(&mut self, pool: &PoolKey, address: IpNet, holder: &Holder) -> bool {
        self.ipam.take(pool, address.addr(), holder) || {
            self.ipam.take(&PoolKey::Unknown, address.addr(), holder);
            false
        }
    }

    /// True when addresses were released since the last call.
    pub(crate) fn take_released(&mut self) -> bool {
        std::mem::take(&mut self.released)
    }

    /// Requests what follows from a new lease of something that is no pod.
    pub(crate) fn leased(store: &Store, lease: &Lease, work: &mut Work) {
        lease_changed(store, &lease.pool, lease.address.addr(), work);
    }

    pub(crate) fn undo(&mut self, taken: Vec<Lease>) {
        for lease in taken {
            self.ipam.undo(&lease.pool, lease.address.addr());
        }
    }

    /// Checks that the status of an object has room for these leases of a pod, beside those of its other pods.
    fn check_room(
        &mut self,
        key: &Key,
        uid: &Name,
        leases: &BTreeMap<Name, Vec<Lease>>,
    ) -> Result<(), String> {
        let Some(provider) = self.providers.get_mut(key) else { return Ok(()) };
        let Some(own) = provider.entries.get(uid) else { return Ok(()) };
        let own = stored_size(key, &own.name, uid, leases, &own.retiring);
        let at_most = provider.lease_bytes.map(|others| others + own).filter(|all| *all <= MAX_LEASE_BYTES);
        if at_most.is_some() {
            provider.lease_bytes = at_most;
            return Ok(());
        }
        let (mut pods, mut bytes) = (0, own);
        for (other, entry) in provider.entries.iter().filter(|(other, _)| *other != uid) {
            let size = stored_size(key, &entry.name, other, &entry.leases, &entry.retiring);
            (pods, bytes) = (pods + usize::from(size > 0), bytes + size);
        }
        if bytes <= MAX_LEASE_BYTES {
            provider.lease_bytes = Some(bytes);
            return Ok(());
        }
        Err(format!(
            "the status has room for {MAX_LEASE_BYTES} bytes of leased addresses, which {pods} other pods fill; \
             let this pod use another {}",
            key.kind
        ))
    }

    /// Releases what a node has confirmed to be gone.
    pub(super) fn settle_entry(&mut self, cx: &mut Context<'_>, key: &Key, uid: &Name) {
        let Some(entry) = self.entry(key, uid) else { return };
        if let Some(withdrawal) = &entry.withdrawal {
            let has_addresses = !entry.leases.is_empty() || !entry.retiring.is_empty();
            let namespace = self.states.get(uid).map_or(&key.namespace, |state| &state.pod.namespace);
            let own = template::link_id(key, namespace, "");
            let gone = match cx.nodes.node(&withdrawal.node) {
                Some(node) => node.caught_up(withdrawal.version) && !node.has_links_of(uid, &own),
                // The node may come back with the pod as it was, so its addresses are not free. Once the object is
                // gone, nothing would tell the next leader of them.
                None => !has_addresses || !cx.store.contains(key),
            };
            if gone {
                self.drop_entry(cx.store, key, uid, cx.work);
            }
            return;
        }
        if entry.retiring.is_empty() {
            return;
        }
        let node = self.states.get(uid).and_then(|state| state.pod.node.as_ref());
        let Some(version) = entry.retired_at else { return };
        let caught_up = |node: &Name| cx.nodes.node(node).is_some_and(|node| node.caught_up(version));
        if node.is_none_or(caught_up) {
            let retired =
                self.entry_mut(key, uid).map(|entry| std::mem::take(&mut entry.retiring)).unwrap_or_default();
            self.release(cx.store, key, retired.into_iter().map(|(_, lease)| lease).collect(), cx.work);
            cx.work.evaluate.insert(key.clone());
        }
    }

    /// Releases addresses of an object.
    pub(crate) fn release(&mut self, store: &Store, key: &Key, leases: Vec<Lease>, work: &mut Work) {
        if leases.is_empty() {
            return;
        }
        for lease in leases {
            let own = |holder: &Holder| holder.0 == *key;
            let holder = self.ipam.holder(&lease.pool, lease.address.addr());
            if lease.pool == PoolKey::Unknown || holder.is_some_and(own) {
                self.ipam.release(&lease.pool, lease.address.addr());
                self.ranges.touch(&lease.pool);
                lease_changed(store, &lease.pool, lease.address.addr(), work);
            }
        }
        self.unblock();
    }

    /// The status of an object is written with its leases up to the revision `count`.
    pub(crate) fn leases_written(&mut self, key: &Key, count: u64) {
        if key.kind == Kind::Subnet {
            return self.ranges.written(&key.name, count);
        }
        let Some(provider) = self.providers.get_mut(key) else { return };
        provider.written_revision = provider.written_revision.max(count);
        let later = provider.unwritten.split_off(&(provider.written_revision + 1));
        for uid in std::mem::replace(&mut provider.unwritten, later).into_values() {
            self.queue.insert((key.clone(), uid));
        }
    }

    /// An object of the same name was created again: its addresses have to be written to the new status.
    pub(super) fn renew_leases(&mut self, key: &Key) {
        let Some(provider) = self.providers.get_mut(key) else { return };
        provider.unwritten.clear();
        for entry in provider.entries.values_mut() {
            provider.lease_revision += 1;
            entry.lease_revision = provider.lease_revision;
        }
    }
}

/// The realised spec of an object, or else that of its manifest.
fn spec_of<'a>(store: &'a Store, key: &Key) -> Option<&'a Spec> {
    let record = store.get(key)?;
    record.effective.as_deref().or(record.spec.as_deref().ok())
}

/// The pool of a link's address, if the link may have this address.
fn pool_of(store: &Store, key: &Key, templates: &[Template], link: &Name, address: IpNet) -> Option<PoolKey> {
    if let Some(template) = templates.iter().find(|template| template.name == *link) {
        let need = template.needs.iter().find(|need| need.source.keeps(address))?;
        return Some(need.pool.clone());
    }
    let services = spec_of(store, key)?.attachment()?.services.iter().filter_map(|name| store.service(name));
    services.flat_map(|service| &service.subnets).find_map(|name| {
        let subnet = store.subnet(name)?;
        subnet.network.contains(&address.addr()).then(|| PoolKey::Subnet(name.clone()))
    })
}
