//! The pools of addresses that IPAM plugins keep. whereabouts has one for each range of the cluster, host-local one for
//! each name of a configuration, whatever the namespace or the VLAN. So two L2Services may share a pool that should
//! have one each: then one of them keeps it, and the other gets a name of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_schemas::{Ipam, VlanType};
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};

use crate::kinds::{AttachmentSpec, Spec, SubnetSpec};
use crate::nad::Nads;
use crate::nad::users::may_use;
use crate::store::Store;
use crate::store::record::Record;
use crate::work::Work;
use crate::{Key, Kind, Name, Status};

/// Maximum length of a pool's name. whereabouts makes it a part of the name of an object.
const MAX_NAME_LEN: usize = 128;

/// The pool of addresses of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressPool {
    /// The one that the plugin chooses.
    Default,
    /// The one that the plugin chooses, which an attachment of another L2Service has too. It gets a name when no pod
    /// uses it.
    Shared(Key),
    /// One with the name of this L2Service.
    Named(Name),
}

impl AddressPool {
    /// The L2Service whose name it has.
    pub fn service(&self) -> Option<&Name> {
        if let Self::Named(service) = self { Some(service) } else { None }
    }

    /// The name that the plugin gets; `None`: it chooses.
    pub fn name(&self) -> Option<String> {
        let service = self.service()?;
        if service.len() <= MAX_NAME_LEN {
            return Some(service.to_string());
        }
        let digest = Sha256::digest(service.as_bytes());
        let digest = digest.iter().take(8).fold(0u64, |all, byte| (all << 8) | u64::from(*byte));
        let digest = format!("{digest:016x}");
        let start = &service[..service.floor_char_boundary(MAX_NAME_LEN - digest.len() - 1)];
        Some(format!("{}-{digest}", start.trim_end_matches(['-', '.'])))
    }

    fn is_default(&self) -> bool {
        matches!(self, Self::Default | Self::Shared(_))
    }
}

/// The pool of addresses of an attachment that has one.
#[derive(Debug)]
pub(super) struct HeldPool {
    pool: AddressPool,
    /// The L2Service whose pool it is.
    service: Option<Name>,
}

/// By L2ServiceAttachment: its pool of addresses.
pub(super) type Pools = HashMap<Key, HeldPool>;

/// Subnets by their networks.
#[derive(Debug, Default)]
pub(crate) struct SubnetIndex {
    subnets: BTreeMap<IpNet, BTreeSet<Name>>,
    networks: HashMap<Name, IpNet>,
}

impl SubnetIndex {
    /// Takes the network of a Subnet; `None`: the Subnet is gone.
    pub fn set(&mut self, name: &Name, network: Option<IpNet>) {
        let network = network.map(|network| network.trunc());
        let before = match network {
            Some(network) => self.networks.insert(name.clone(), network),
            None => self.networks.remove(name),
        };
        if before == network {
            return;
        }
        if let Some(before) = before
            && let Some(names) = self.subnets.get_mut(&before)
        {
            names.remove(name);
            if names.is_empty() {
                self.subnets.remove(&before);
            }
        }
        if let Some(network) = network {
            self.subnets.entry(network).or_default().insert(name.clone());
        }
    }

    /// The Subnets that have an address in common with a network.
    fn overlapping(&self, network: &IpNet) -> BTreeSet<&Name> {
        let wider = (0..network.prefix_len()).filter_map(|length| IpNet::new(network.addr(), length).ok());
        let around = wider.filter_map(|wider| self.subnets.get(&wider.trunc()));
        let last = network.broadcast();
        let inside = self
            .subnets
            .range(network.trunc()..)
            .take_while(|(other, _)| other.addr().is_ipv4() == last.is_ipv4() && other.addr() <= last);
        around.chain(inside.map(|(_, names)| names)).flatten().collect()
    }
}

/// The attachments that have one pool: those of an L2Service, and with host-local those of one name.
struct Sharers {
    service: Name,
    ipam: Ipam,
    /// With host-local.
    name: Option<Name>,
}

impl Sharers {
    /// Those of an attachment; `None`: no plugin keeps a pool for it.
    fn of(store: &Store, key: &Key) -> Option<Self> {
        let spec = store.effective(key, Spec::attachment).filter(|spec| has_pool(spec))?;
        let service = spec.services.first()?.clone();
        let kept = |ipam: &Ipam| matches!(ipam, Ipam::Whereabouts | Ipam::HostLocal);
        let ipam = store.subnets_of(spec).into_iter().map(|(_, subnet)| subnet.ipam).find(kept)?;
        let name = (ipam == Ipam::HostLocal).then(|| key.name.clone());
        Some(Self { service, ipam, name })
    }

    /// The keys of those of an L2Service.
    fn members<'a>(&'a self, store: &'a Store, service: &'a Name) -> impl Iterator<Item = &'a Key> {
        store.referrers(&Key::cluster(Kind::L2Service, service)).filter(move |key| {
            let spec = store.effective(key, Spec::attachment);
            self.name.as_ref().is_none_or(|name| *name == key.name)
                && spec.is_some_and(|spec| has_pool(spec) && spec.services.first() == Some(service))
        })
    }

    /// The pool that those of an L2Service have, with one of them; `None`: none has one yet.
    fn pool<'a>(
        &'a self,
        store: &'a Store,
        pools: &'a Pools,
        service: &'a Name,
    ) -> Option<(&'a Key, &'a AddressPool)> {
        let held = self.members(store, service).filter_map(|key| Some((key, pools.get(key)?)));
        // An attachment that was of another L2Service before does not bring that one's pool.
        let own = held.filter(|(_, held)| {
            let is_own = held.service.as_ref() == Some(service);
            held.pool.service() == Some(service) || (is_own && held.pool.is_default())
        });
        own.map(|(key, held)| (key, &held.pool)).min_by_key(|(_, pool)| pool.is_default())
    }

    /// The L2Services with addresses in common.
    fn rivals<'a>(&self, store: &'a Store, index: &'a SubnetIndex) -> BTreeSet<&'a Name> {
        let service = store.service(&self.service);
        let kept = |name: &Name| store.subnet(name).filter(|subnet: &&SubnetSpec| subnet.ipam == self.ipam);
        let own = service.into_iter().flat_map(|service| &service.subnets).filter_map(kept);
        let subnets = own.flat_map(|subnet| index.overlapping(&subnet.network));
        let subnets = subnets.filter(|name| kept(name).is_some()).collect::<BTreeSet<_>>();
        let has = |service: &&Key, subnet: &Name| {
            service.name != self.service
                && store.service(&service.name).is_some_and(|spec| spec.subnets.contains(subnet))
        };
        let services = subnets.into_iter().flat_map(|subnet| {
            let key = Key::cluster(Kind::Subnet, subnet);
            store.referrers(&key).filter(|service| has(service, subnet)).collect::<Vec<_>>()
        });
        services.map(|service| &service.name).collect()
    }
}

/// True when the pods of an attachment get their addresses from a plugin: it has a NetworkAttachmentDefinition, and no
/// trunk.
fn has_pool(spec: &AttachmentSpec) -> bool {
    spec.vlan_type == VlanType::Access && !spec.anti_spoof
}

impl Nads {
    /// A Subnet was validated, or is gone.
    pub fn index_subnet(&mut self, store: &Store, name: &Name) {
        self.subnets.set(name, store.subnet(name).map(|subnet| subnet.network));
    }

    /// The pool of addresses of an attachment. `None`: it has none, or none yet.
    pub fn pool(&self, key: &Key) -> Option<&AddressPool> {
        self.pools.get(key).map(|held| &held.pool)
    }

    /// Restores the pool that an attachment had under a former leader.
    pub fn restore_pool(&mut self, key: &Key, status: &Status) {
        let spec = status.realized.as_deref().and_then(|spec| spec.attachment());
        let pool = status.address_pool.clone().map(AddressPool::Named);
        if let Some(pool) = pool.or_else(|| spec.map(|_| AddressPool::Default)) {
            let service = spec.and_then(|spec| spec.services.first().cloned());
            self.pools.insert(key.clone(), HeldPool { pool, service });
        }
    }

    /// Something changed by which an attachment may share its pool no longer.
    pub fn revalidate_shared_pools(&self, work: &mut Work) {
        work.validate.extend(self.shared_pools.iter().cloned());
    }

    /// An attachment is gone.
    pub(super) fn forget_pool(&mut self, key: &Key, work: &mut Work) {
        self.shared_pools.remove(key);
        self.pools.remove(key);
        self.revalidate_sharers(key, work);
    }

    /// Those that share the pool of an attachment, or of another of its L2Service, may share it no longer.
    pub(super) fn revalidate_sharers(&self, holder: &Key, work: &mut Work) {
        let service = |key: &Key| self.pools.get(key).and_then(|held| held.service.as_ref());
        let is_of =
            |with: &Key| with == holder || service(with).is_some_and(|name| service(holder) == Some(name));
        let shares = |key: &&Key| matches!(self.pool(key), Some(AddressPool::Shared(with)) if is_of(with));
        work.validate.extend(self.shared_pools.iter().filter(shares).cloned());
    }

    /// Decides on the pool of an attachment, and of those that have it too.
    pub fn decide_pool(&mut self, store: &Store, key: &Key, work: &mut Work) {
        let Some(sharers) = Sharers::of(store, key) else { return self.set_pool(key, None, work) };
        let before = sharers.pool(store, &self.pools, &sharers.service).map(|(_, pool)| pool.clone());
        let pool = self.pool_of(store, &sharers, before.as_ref(), work);
        if before.is_some_and(|before| before != pool) {
            let members: Vec<Key> = sharers.members(store, &sharers.service).cloned().collect();
            for member in members.into_iter().filter(|member| member != key) {
                self.set_pool(&member, Some((pool.clone(), &sharers.service)), work);
                work.validate.insert(member);
            }
        }
        self.set_pool(key, Some((pool, &sharers.service)), work);
    }

    /// `before`: the pool that its attachments have.
    fn pool_of(
        &self,
        store: &Store,
        sharers: &Sharers,
        before: Option<&AddressPool>,
        work: &mut Work,
    ) -> AddressPool {
        let service = &sharers.service;
        if let Some(named @ AddressPool::Named(_)) = before {
            return named.clone();
        }
        let seniority =
            |service: &Name| store.get(&Key::cluster(Kind::L2Service, service)).map(Record::seniority);
        let is_used =
            |service: &Name| sharers.members(store, service).any(|member| self.is_used(store, member));
        let used = is_used(service);
        let mut holder: Option<&Key> = None;
        for rival in sharers.rivals(store, &self.subnets) {
            // One without pods can change its pool at once.
            let comes_first = before.is_none()
                || match (used, is_used(rival)) {
                    (false, true) => true,
                    (true, false) => false,
                    _ => seniority(rival) < seniority(service),
                };
            match sharers.pool(store, &self.pools, rival) {
                Some((other, pool)) if comes_first && pool.is_default() => holder = holder.or(Some(other)),
                // It yields.
                Some((other, AddressPool::Default)) => drop(work.validate.insert(other.clone())),
                _ => {}
            }
        }
        match holder {
            None => AddressPool::Default,
            Some(holder) if before.is_some() && used => AddressPool::Shared(holder.clone()),
            Some(_) => AddressPool::Named(service.clone()),
        }
    }

    /// `pool`: with the L2Service whose pool it is.
    fn set_pool(&mut self, key: &Key, pool: Option<(AddressPool, &Name)>, work: &mut Work) {
        if matches!(pool, Some((AddressPool::Shared(_), _))) {
            self.shared_pools.insert(key.clone())
        } else {
            self.shared_pools.remove(key)
        };
        let before = match pool {
            Some((pool, service)) => {
                self.pools.insert(key.clone(), HeldPool { pool, service: Some(service.clone()) })
            }
            None => self.pools.remove(key),
        };
        let before = before.map(|held| held.pool);
        if before.as_ref() == self.pool(key) {
            return;
        }
        work.evaluate.insert(key.clone());
        if before.is_some_and(|pool| pool.is_default())
            && !self.pool(key).is_some_and(AddressPool::is_default)
        {
            self.revalidate_sharers(key, work);
        }
    }

    /// True when a pod uses the NetworkAttachmentDefinition.
    fn is_used(&self, store: &Store, key: &Key) -> bool {
        self.pods_by_attachment.contains_key(key)
            || self.users_of_any.values().any(|(namespace, _)| may_use(store, key, namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_overlap_when_one_contains_the_other() {
        let mut index = SubnetIndex::default();
        let all = [
            "10.0.0.0/8",
            "10.0.0.0/24",
            "10.0.0.128/25",
            "10.0.1.0/24",
            "0.0.0.0/0",
            "::/0",
            "2001:db8::/64",
        ];
        for network in all {
            index.set(&network.into(), Some(network.parse().expect("a network")));
        }
        let found = |index: &SubnetIndex, network: &str| -> Vec<String> {
            let names = index.overlapping(&network.parse().expect("a network"));
            names.into_iter().map(ToString::to_string).collect()
        };
        for (network, expected) in [
            ("10.0.0.0/24", &["0.0.0.0/0", "10.0.0.0/24", "10.0.0.0/8", "10.0.0.128/25"][..]),
            ("10.0.0.0/25", &["0.0.0.0/0", "10.0.0.0/24", "10.0.0.0/8"]),
            ("10.0.0.0/23", &["0.0.0.0/0", "10.0.0.0/24", "10.0.0.0/8", "10.0.0.128/25", "10.0.1.0/24"]),
            ("192.0.2.0/24", &["0.0.0.0/0"]),
            ("2001:db8::/32", &["2001:db8::/64", "::/0"]),
            ("fd00::/64", &["::/0"]),
        ] {
            assert_eq!(found(&index, network), expected, "{network}");
        }
        index.set(&"10.0.0.0/24".into(), Some("192.0.2.0/25".parse().expect("a network")));
        index.set(&"0.0.0.0/0".into(), None);
        assert_eq!(found(&index, "10.0.0.0/25"), ["10.0.0.0/8"]);
        assert_eq!(found(&index, "192.0.2.0/24"), ["10.0.0.0/24"]);
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let name = |service: &str| AddressPool::Named(service.into()).name().expect("a name");
        assert_eq!(name("media.1"), "media.1");
        let (one, other) = (name(&format!("{}.a", "x".repeat(200))), name(&format!("{}.b", "x".repeat(200))));
        assert!(one != other && one.len() <= MAX_NAME_LEN, "{one} {other}");
        let cut = name(&format!("{}.{}", "x".repeat(110), "y".repeat(100)));
        assert!(!cut.contains(".-"), "{cut}");
    }
}
