//! Attachments that share a Subnet: a change of one of them may concern the others.

use eno_schemas::Ipam;

use crate::kinds::Spec;
use crate::nad::render::nad_subnets;
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
