//! The checks of Subnets and Routes: pods of a Subnet have to reach the next hops of its Routes, and keep their
//! addresses when another plugin follows.

use eno_schemas::Ipam;

use crate::kinds::{Invalid, RouteSpec, Spec, SubnetSpec};
use crate::nad::subnets::next_hop_problem;
use crate::store::Store;
use crate::validate::Validator;
use crate::work::Work;
use crate::{Key, Kind};

impl Validator<'_> {
    /// Checks that pods of the Subnet reach the next hops of its Routes, and that no plugin gives their addresses again.
    pub fn check_subnet(&self, key: &Key, spec: &SubnetSpec) -> Result<(), Invalid> {
        self.check_change_of_ipam(key, spec)?;
        for name in &spec.routes {
            let key = Key::cluster(Kind::Route, name);
            self.check_reference("Routes", &key)?;
            let Some(route) = self.store.effective(&key, Spec::route) else { continue };
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

    /// Checks that no pod has an address that another plugin would give again, since it does not know it.
    fn check_change_of_ipam(&self, key: &Key, spec: &SubnetSpec) -> Result<(), Invalid> {
        let before = self.store.effective(key, Spec::subnet);
        if spec.ipam == Ipam::Eno || before.is_none_or(|before| before.ipam != Ipam::Eno) {
            return Ok(());
        }
        let mut used = self.node.observed_addresses(&key.name).flat_map(|(_, own)| &own.used);
        let Some(first) = used.next() else { return Ok(()) };
        let others = used.count();
        let more = if others > 0 { format!(" and {others} more pods") } else { String::new() };
        let problem = format!(
            "{} does not know that Pod {}/{}{more} got an address by Ipam eno, and would give it again; set it to eno until \
             these pods have ended",
            spec.ipam, first.namespace, first.pod
        );
        Err(Invalid::new("Ipam", problem))
    }

    /// Checks that a Route keeps a next hop that pods reach, unless the Subnet that names it changes as well.
    pub fn check_route(&self, key: &Key, spec: &RouteSpec) -> Result<(), Invalid> {
        let Some(before) = self.store.effective(key, Spec::route) else { return Ok(()) };
        for subnet in self.store.referrers(key) {
            let names = |subnet: &&SubnetSpec| subnet.routes.contains(&key.name);
            let Some(realised) = self.store.effective(subnet, Spec::subnet).filter(names) else { continue };
            let Some(problem) = next_hop_problem(spec.next_hop, &realised.network) else { continue };
            let worked = next_hop_problem(before.next_hop, &realised.network).is_none();
            let wanted = self.store.get(subnet).and_then(|record| record.wanted());
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
}

/// A Subnet changed: invalid Routes that it names may be valid now.
pub(crate) fn revalidate_routes(store: &Store, key: &Key, work: &mut Work) {
    let Some(record) = store.get(key).filter(|_| key.kind == Kind::Subnet) else { return };
    for route in &record.indexed_references {
        revalidate_invalid_route(store, route, work);
    }
}

/// An object that names a Route changed or is gone: the Route may be valid now.
pub(crate) fn revalidate_invalid_route(store: &Store, key: &Key, work: &mut Work) {
    if key.kind == Kind::Route && store.get(key).is_some_and(|record| record.problem.is_some()) {
        work.validate.insert(key.clone());
    }
}
