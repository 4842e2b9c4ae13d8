//! Subnets and Routes: their validation, and the part of a Subnet that a NetworkAttachmentDefinition may hand out.

use std::collections::BTreeSet;
use std::net::IpAddr;

use eno_schemas::{Ipam, NadRoute, NadSubnet, Pool, VlanType};

use crate::nad::subnets::{ipam_pools, next_hop_problem};
use crate::pods::ipam::PoolKey;
use crate::spec::{AttachmentSpec, Invalid, RouteSpec, Spec, SubnetSpec};
use crate::{ConditionReason, ConditionState, ConditionType, Key, Kind, Name};

use crate::engine::Engine;
use crate::status::evaluate::Evaluation;
use crate::store::Store;
use crate::work::Work;

/// How addresses that the engine leases are treated in the ranges of a NetworkAttachmentDefinition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeaseHandling {
    /// They are left out of the ranges.
    Exclude,
    /// They are ignored, as if nothing were leased.
    Ignore,
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
            work.validate.extend(store.referrers(service).cloned());
        }
    }
}

impl Engine {
    /// Checks that pods of the Subnet reach the next hops of its Routes.
    pub(crate) fn check_subnet(&self, spec: &SubnetSpec) -> Result<(), Invalid> {
        for name in &spec.routes {
            let key = Key::cluster(Kind::Route, name);
            self.check_reference("Routes", &key)?;
            let Some(route) = self.effective(&key, Spec::route) else { continue };
            if route.next_hop.is_ipv4() != spec.network.addr().is_ipv4() {
                let problem = format!(
                    "Route {name} is of the other address family than the subnet; take one of its own"
                );
                return Err(Invalid::new("Routes", problem));
            }
            if let Some(problem) = next_hop_problem(route.next_hop, &spec.network) {
                let problem = format!(
                    "the NextHop of Route {name} can't be reached from the subnet: {problem}; set NextHop to an address of the subnet, or take the Route out"
                );
                return Err(Invalid::new("Routes", problem));
            }
        }
        Ok(())
    }

    /// Checks that a Route keeps a next hop that pods reach, unless the Subnet that names it changes as well.
    pub(crate) fn check_route(&self, key: &Key, spec: &RouteSpec) -> Result<(), Invalid> {
        let Some(before) = self.effective(key, Spec::route) else { return Ok(()) };
        for subnet in self.store.referrers.get(key).into_iter().flatten() {
            let names = |subnet: &&SubnetSpec| subnet.routes.contains(&key.name);
            let Some(realised) = self.effective(subnet, Spec::subnet).filter(names) else { continue };
            let Some(problem) = next_hop_problem(spec.next_hop, &realised.network) else { continue };
            let worked = next_hop_problem(before.next_hop, &realised.network).is_none();
            let wanted = self.store.records.get(subnet).and_then(|record| record.wanted());
            let follows = wanted.and_then(|wanted| wanted.subnet()).is_some_and(|wanted| {
                !names(&wanted) || next_hop_problem(spec.next_hop, &wanted.network).is_none()
            });
            if worked && !follows {
                let problem = format!(
                    "{problem}, the network of Subnet {}, which names this Route; use an address of it, or take the Route out of its Routes",
                    subnet.name
                );
                return Err(Invalid::new("NextHop", problem));
            }
        }
        Ok(())
    }

    /// A Subnet changed: invalid Routes that it names may be valid now.
    pub(crate) fn revalidate_routes(&mut self, key: &Key) {
        let Some(record) = self.store.records.get(key).filter(|_| key.kind == Kind::Subnet) else { return };
        let routes: Vec<Key> = record.indexed_references.iter().cloned().collect();
        for route in &routes {
            self.revalidate_invalid_route(route);
        }
    }

    pub(crate) fn revalidate_invalid_route(&mut self, key: &Key) {
        let is_bad = |record: &crate::store::record::Record| record.problem.is_some();
        if key.kind == Kind::Route && self.store.records.get(key).is_some_and(is_bad) {
            self.validate.queue.insert(key.clone());
        }
    }

    /// The Routes of a Subnet, each prefix and next hop once: the kernel takes no route twice.
    pub(crate) fn routes_of(&self, subnet: &SubnetSpec) -> Vec<&RouteSpec> {
        let mut routes: Vec<&RouteSpec> = Vec::new();
        for name in &subnet.routes {
            let route = self.effective(&Key::cluster(Kind::Route, name), Spec::route);
            routes.extend(route.filter(|route| !routes.contains(route)));
        }
        routes
    }

    pub(crate) fn render_subnet(&self, name: &Name, leases: LeaseHandling) -> Option<NadSubnet> {
        let subnet = self.effective(&Key::cluster(Kind::Subnet, name), Spec::subnet)?;
        let is_there = |name| self.effective(&Key::cluster(Kind::Route, name), Spec::route).is_some();
        if !subnet.routes.iter().all(is_there) {
            return None;
        }
        let routes = self.routes_of(subnet).into_iter();
        Some(NadSubnet {
            ipam: subnet.ipam,
            network: subnet.network,
            pools: self.nad_pools(name, subnet, leases)?,
            routes: routes.map(|route| NadRoute { prefix: route.prefix, next_hop: route.next_hop }).collect(),
            dns: subnet.dns.clone(),
        })
    }

    /// The ranges of a Subnet that a NetworkAttachmentDefinition may hand out. `None`: no address is left.
    fn nad_pools(&self, name: &Name, subnet: &SubnetSpec, leases: LeaseHandling) -> Option<Vec<Pool>> {
        let next_hops: Vec<IpAddr> = self.routes_of(subnet).into_iter().map(|route| route.next_hop).collect();
        let pool = PoolKey::Subnet(name.clone());
        ipam_pools(subnet, &next_hops, |range| match leases {
            LeaseHandling::Exclude => self.pods.ipam().taken(&pool, range),
            LeaseHandling::Ignore => BTreeSet::new(),
        })
    }

    /// The Subnet of an access attachment that has no address left for its NetworkAttachmentDefinition.
    pub(crate) fn exhausted(&self, key: &Key, leases: LeaseHandling) -> Option<Name> {
        let spec = self.effective(key, Spec::attachment)?;
        self.nad_subnets(spec)
            .into_iter()
            .find(|(name, subnet)| self.nad_pools(name, subnet, leases).is_none())
            .map(|(name, _)| name.clone())
    }

    /// The Subnets that an attachment's NetworkAttachmentDefinition takes addresses from.
    fn nad_subnets(&self, spec: &AttachmentSpec) -> Vec<(&Name, &SubnetSpec)> {
        if spec.vlan_type == VlanType::Access { self.subnets_of(spec) } else { Vec::new() }
    }

    fn subnets_of(&self, spec: &AttachmentSpec) -> Vec<(&Name, &SubnetSpec)> {
        let services = spec.services.iter();
        services
            .filter_map(|name| self.effective(&Key::cluster(Kind::L2Service, name), Spec::service))
            .flat_map(|service| &service.subnets)
            .filter_map(|name| Some((name, self.effective(&Key::cluster(Kind::Subnet, name), Spec::subnet)?)))
            .collect()
    }

    /// Adds the conditions on addresses that pods get by an attachment's NetworkAttachmentDefinition.
    pub(crate) fn note_addresses(&self, key: &Key, spec: &AttachmentSpec, evaluation: &mut Evaluation) {
        if spec.vlan_type != VlanType::Access {
            let names: BTreeSet<&str> = self.subnets_of(spec).into_iter().map(|(name, _)| &**name).collect();
            if !names.is_empty() {
                let names = names.into_iter().collect::<Vec<_>>().join(", ");
                let message = format!(
                    "with VlanType {} a pod that uses the NetworkAttachmentDefinition sets the addresses and routes of each VLAN itself: Subnets {names}",
                    spec.vlan_type.as_str()
                );
                evaluation.conditions.push(ConditionState::new(
                    ConditionType::AddressesAssigned,
                    false,
                    ConditionReason::SetByPod,
                    message,
                ));
            }
            return;
        }
        if let Some(subnet) = self.exhausted(key, LeaseHandling::Exclude) {
            let message = format!(
                "Subnet {subnet} has no address left for the NetworkAttachmentDefinition, which is not there; narrow its HotPlugPool or widen its AllocationPool"
            );
            evaluation.conditions.push(ConditionState::new(
                ConditionType::AddressesAssigned,
                false,
                ConditionReason::NoneLeft,
                message,
            ));
        }
        let subnets = self.nad_subnets(spec);
        let Some((name, _)) = subnets.iter().find(|(_, subnet)| subnet.ipam == Ipam::HostLocal) else {
            return;
        };
        let point = &spec.connection_point;
        let (reason, others) = if self.fabric.points.get(point).is_some_and(|point| point.has_several_nodes) {
            (ConditionReason::PerNode, format!("pods on different nodes of ConnectionPoint {point}"))
        } else if self.attachments_on(name).any(|other| other != key) {
            (ConditionReason::PerAttachment, "pods of this attachment and of others on the Subnet".into())
        } else {
            return;
        };
        let message =
            format!("Subnet {name} has Ipam host-local: {others} get the same addresses; use whereabouts");
        let unique = ConditionState::new(ConditionType::AddressesUnique, false, reason, message);
        evaluation.conditions.push(unique);
    }

    /// The attachments whose NetworkAttachmentDefinitions take addresses from a Subnet.
    fn attachments_on<'a>(&'a self, subnet: &'a Name) -> impl Iterator<Item = &'a Key> {
        let referrers = move |key: &Key| self.store.referrers.get(key).into_iter().flatten();
        referrers(&Key::cluster(Kind::Subnet, subnet)).flat_map(referrers).filter(move |key| {
            let spec = self.effective(key, Spec::attachment);
            spec.is_some_and(|spec| self.nad_subnets(spec).iter().any(|(name, _)| *name == subnet))
        })
    }

    /// An attachment, or a service with its attachments, changed: an attachment that was the only one on a host-local
    /// Subnet may not be any more.
    pub(crate) fn reevaluate_subnet_neighbours(&mut self, key: &Key) {
        let Some(record) = self.store.records.get(key) else { return };
        let services: Vec<&Key> =
            if key.kind == Kind::L2Service { vec![key] } else { record.indexed_references.iter().collect() };
        let specs = services.into_iter().filter_map(|service| self.effective(service, Spec::service));
        let is_own = |other: &Key| {
            let names = |record: &crate::store::record::Record| record.indexed_references.contains(key);
            other == key || self.store.records.get(other).is_some_and(names)
        };
        let mut alone: Vec<Key> = Vec::new();
        for subnet in specs.flat_map(|service| &service.subnets).filter(|subnet| self.is_host_local(subnet)) {
            let mut others = self.attachments_on(subnet).filter(|other| !is_own(other));
            alone.extend(others.next().filter(|_| others.next().is_none()).cloned());
        }
        self.status.queue.extend(alone);
    }

    /// A reference to a Subnet or service was removed: the last attachment on a host-local Subnet may be the only one
    /// now.
    pub(crate) fn reevaluate_last_on_subnet(&mut self, reference: &Key) {
        let subnets: Vec<Name> = match reference.kind {
            Kind::Subnet => vec![reference.name.clone()],
            Kind::L2Service => {
                let service = self.effective(reference, Spec::service);
                service.map(|service| service.subnets.clone()).unwrap_or_default()
            }
            _ => return,
        };
        let mut alone: Vec<Key> = Vec::new();
        for subnet in subnets.iter().filter(|subnet| self.is_host_local(subnet)) {
            let mut left = self.attachments_on(subnet);
            alone.extend(left.next().filter(|_| left.next().is_none()).cloned());
        }
        self.status.queue.extend(alone);
    }

    fn is_host_local(&self, subnet: &Name) -> bool {
        let subnet = self.effective(&Key::cluster(Kind::Subnet, subnet), Spec::subnet);
        subnet.is_some_and(|subnet| subnet.ipam == Ipam::HostLocal)
    }
}
