//! Attachments that share a Subnet: a change of one of them, or of a lease, may concern the others.

use std::net::IpAddr;

use eno_schemas::{Ipam, Pool};

use crate::nad::render::nad_subnets;
use crate::pods::ipam::PoolKey;
use crate::spec::Spec;
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name};

/// The attachments whose NetworkAttachmentDefinitions take addresses from a Subnet.
pub(crate) fn attachments_on<'a>(store: &'a Store, subnet: &'a Name) -> impl Iterator<Item = &'a Key> {
    let services = store.referrers(&Key::cluster(Kind::Subnet, subnet));
    services.flat_map(|service| store.referrers(service)).filter(move |key| {
        let spec = store.effective(key, Spec::attachment);
        spec.is_some_and(|spec| nad_subnets(store, spec).iter().any(|(name, _)| *name == subnet))
    })
}

/// An address was leased or released. If it is outside the HotPlugPool of its Subnet, the ranges of
/// NetworkAttachmentDefinitions change.
pub(crate) fn lease_changed(store: &Store, pool: &PoolKey, address: IpAddr, work: &mut Work) {
    let subnets: Vec<Key> = match pool {
        PoolKey::Subnet(name) => vec![Key::cluster(Kind::Subnet, name)],
        PoolKey::Unknown => store.of_kind(Kind::Subnet).map(|(key, _)| key.clone()).collect(),
        PoolKey::Bridge(..) | PoolKey::Link(..) => return,
    };
    let within = |pool: &Pool| (pool.start..=pool.end).contains(&address);
    for key in subnets {
        let subnet = store.effective(&key, Spec::subnet);
        if !subnet.is_some_and(|s| s.network.contains(&address) && !s.hot_plug_pool.iter().any(within)) {
            continue;
        }
        for service in store.referrers(&key) {
            store.revalidate_referrers(service, work);
        }
    }
}

/// An attachment, or a service with its attachments, changed: an attachment that was the only one on a host-local
/// Subnet may not be any more.
pub(crate) fn reevaluate_subnet_neighbours(store: &Store, key: &Key, work: &mut Work) {
    let Some(record) = store.get(key) else { return };
    let services: Vec<&Key> =
        if key.kind == Kind::L2Service { vec![key] } else { record.indexed_references.iter().collect() };
    let specs = services.into_iter().filter_map(|service| store.effective(service, Spec::service));
    let is_own = |other: &Key| {
        other == key || store.get(other).is_some_and(|record| record.indexed_references.contains(key))
    };
    for subnet in specs.flat_map(|service| &service.subnets).filter(|subnet| is_host_local(store, subnet)) {
        let mut others = attachments_on(store, subnet).filter(|other| !is_own(other));
        work.evaluate.extend(others.next().filter(|_| others.next().is_none()).cloned());
    }
}

/// A reference to a Subnet or service was removed: the last attachment on a host-local Subnet may be the only one now.
pub(crate) fn reevaluate_last_on_subnet(store: &Store, reference: &Key, work: &mut Work) {
    let subnets: &[Name] = match reference.kind {
        Kind::Subnet => std::slice::from_ref(&reference.name),
        Kind::L2Service => {
            store.effective(reference, Spec::service).map(|service| &*service.subnets).unwrap_or_default()
        }
        _ => return,
    };
    for subnet in subnets.iter().filter(|subnet| is_host_local(store, subnet)) {
        let mut left = attachments_on(store, subnet);
        work.evaluate.extend(left.next().filter(|_| left.next().is_none()).cloned());
    }
}

fn is_host_local(store: &Store, subnet: &Name) -> bool {
    store.subnet(subnet).is_some_and(|subnet| subnet.ipam == Ipam::HostLocal)
}
