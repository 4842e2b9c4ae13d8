//! The content of a NetworkAttachmentDefinition: the CNI plugin, the VLANs, and the addresses that it hands out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use eno_schemas::{NadRoute, NadSubnet, Pool, VlanAttachment, VlanType};

use crate::kinds::{AttachmentSpec, Spec, SubnetSpec, compat};
use crate::nad::pools::AddressPool;
use crate::nad::subnets::ipam_pools;
use crate::nad::target;
use crate::pods::ipam::{Ipam, PoolKey};
use crate::store::Store;
use crate::{Key, Name};

/// How addresses that the engine leases are treated in the ranges of a NetworkAttachmentDefinition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leases<'a> {
    /// They are left out of the ranges.
    Exclude(&'a Ipam),
    /// They are ignored, as if nothing were leased.
    Ignore,
}

/// Renders the configuration of an attachment's NetworkAttachmentDefinition. `None`: an object that it names is gone.
pub(crate) fn render(
    store: &Store,
    pool: Option<&AddressPool>,
    key: &Key,
    leases: Leases<'_>,
) -> Option<VlanAttachment> {
    let spec = store.effective(key, Spec::attachment)?;
    let point = store.connection_point(&spec.connection_point)?;
    let chosen = compat::choose(spec, point).ok()?;
    let mut vids = BTreeSet::new();
    let mut subnets = Vec::new();
    for name in &spec.services {
        let service = store.service(name)?;
        vids.insert(service.vid);
        if spec.vlan_type == VlanType::Access {
            for subnet in &service.subnets {
                subnets.push(render_subnet(store, subnet, leases)?);
            }
        }
    }
    let (cni, vlans) = target::cni(&chosen.plugin, spec.interface, spec.vlan_type, &vids);
    let pool = pool.filter(|_| !subnets.is_empty()).and_then(AddressPool::name);
    Some(VlanAttachment { cni, vlans, mtu: spec.mtu(chosen), subnets, pool })
}

/// The Subnet of an access attachment that has no address left for its NetworkAttachmentDefinition.
pub(crate) fn exhausted(store: &Store, key: &Key, leases: Leases<'_>) -> Option<Name> {
    let spec = store.effective(key, Spec::attachment)?;
    let mut subnets = nad_subnets(store, spec).into_iter();
    subnets
        .find(|(name, subnet)| nad_pools(store, name, subnet, leases).is_none())
        .map(|(name, _)| name.clone())
}

/// The Subnets that an attachment's NetworkAttachmentDefinition takes addresses from.
pub(crate) fn nad_subnets<'a>(store: &'a Store, spec: &AttachmentSpec) -> Vec<(&'a Name, &'a SubnetSpec)> {
    if spec.vlan_type == VlanType::Access { store.subnets_of(spec) } else { Vec::new() }
}

fn render_subnet(store: &Store, name: &Name, leases: Leases<'_>) -> Option<NadSubnet> {
    let subnet = store.subnet(name)?;
    if !subnet.routes.iter().all(|name| store.route(name).is_some()) {
        return None;
    }
    let routes = store.routes_of(subnet).into_iter();
    Some(NadSubnet {
        ipam: subnet.ipam,
        subnet: (subnet.ipam == eno_schemas::Ipam::Eno).then(|| name.to_string()),
        network: subnet.network,
        pools: nad_pools(store, name, subnet, leases)?,
        routes: routes.map(|route| NadRoute { prefix: route.prefix, next_hop: route.next_hop }).collect(),
        dns: subnet.dns.clone(),
    })
}

/// The ranges of a Subnet that a NetworkAttachmentDefinition may hand out. `None`: no address is left.
fn nad_pools(store: &Store, name: &Name, subnet: &SubnetSpec, leases: Leases<'_>) -> Option<Vec<Pool>> {
    // The node's agent tells its plugin what it may hand out.
    if subnet.ipam == eno_schemas::Ipam::Eno {
        return Some(Vec::new());
    }
    let next_hops = store.routes_of(subnet).into_iter().map(|route| route.next_hop);
    let next_hops: Vec<IpAddr> = next_hops.chain(store.routed_addresses(name)).collect();
    let pool = PoolKey::Subnet(name.clone());
    ipam_pools(subnet, &next_hops, |range| match leases {
        Leases::Exclude(ipam) => ipam.taken(&pool, range),
        Leases::Ignore => BTreeSet::new(),
    })
}
