//! The checks of a spec by its kind. A message names the field and the remedy.

use std::sync::Arc;

use eno_schemas::VlanId;

use crate::kinds::{BridgeDomainSpec, Cause, ConnectionPointSpec, Invalid, ServiceSpec, Spec};
use crate::validate::Validator;
use crate::vlan::VlanScope;
use crate::{Key, Kind};

impl Validator<'_> {
    /// Checks a spec against all that it names.
    pub fn check(&self, key: &Key, spec: &Arc<Spec>) -> Result<(), Invalid> {
        for named in spec.named().into_iter().filter(|named| !named.is_checked_by_part) {
            self.check_reference(named.field, &named.into())?;
        }
        match &**spec {
            Spec::Route(spec) => self.check_route(key, spec),
            Spec::Bridge(spec) => self.pods.check_bridge(self.store, self.node, key, spec),
            Spec::PodLinks(spec) => self.pods.check_links(self.store, self.node, key, spec),
            Spec::Subnet(spec) => self.check_subnet(key, spec),
            Spec::ConnectionPoint(spec) => {
                self.node.check_hosts(self.config, self.store, key, spec)?;
                self.check_point(key, spec)
            }
            Spec::Service(spec) => self.check_service(key, spec),
            Spec::BridgeDomain(spec) => self.check_bridge_domain(key, spec),
            Spec::Attachment(spec) => {
                self.check_attachment(key, spec)?;
                self.check_sessions_of_services(key, spec)?;
                self.trunks.check(key)
            }
            Spec::Vrf(spec) => self.check_vrf(key, spec),
            Spec::VrfAttachment(spec) => self.check_vrf_attachment(key, spec),
            Spec::BgpSessionGroup(spec) => self.check_session_group(key, spec),
            // Ingest has checked what concerns the object alone.
            _ => Ok(()),
        }
    }

    /// The object is there and valid.
    pub fn check_reference(&self, field: &str, reference: &Key) -> Result<(), Invalid> {
        let (kind, name) = (reference.kind, &reference.name);
        let Some(record) = self.store.get(reference) else {
            let problem = format!("{kind} {name} does not exist; create it or correct the name");
            return Err(Invalid::new(field, problem).because(Cause::ReferenceNotFound));
        };
        match &record.problem {
            Some(problem) => {
                let problem = format!("{kind} {name} is in error: {problem}");
                Err(Invalid::new(field, problem).because(Cause::ReferenceNotReady))
            }
            None => Ok(()),
        }
    }

    fn check_point(&self, key: &Key, spec: &ConnectionPointSpec) -> Result<(), Invalid> {
        if let Some(pool) = &spec.node_pool {
            self.check_reference("NodePool", &Key::cluster(Kind::NodePool, pool))?;
        }
        let Some(point) = self.fabric.point(&key.name) else { return Ok(()) };
        let Some((node, nic)) = point.missing.first() else { return Ok(()) };
        let more = match point.missing.len() - 1 {
            0 => String::new(),
            more => format!(" (nor have {more} more)"),
        };
        let pool = spec.node_pool.as_deref().unwrap_or_default();
        let (field, problem) = match nic {
            None => (
                "NodePool",
                format!(
                    "node {node} of NodePool {pool} has no switch port{more} though other nodes of it have one; add the port to a FabricDevice or take the node out of the pool"
                ),
            ),
            Some(nic) => (
                "Interfaces",
                format!(
                    "NIC {nic} of node {node} has no switch port{more} though another NIC of the node has one; add the port to a FabricDevice or name only the others in Interfaces"
                ),
            ),
        };
        Err(Invalid::new(field, problem))
    }

    fn check_service(&self, key: &Key, spec: &ServiceSpec) -> Result<(), Invalid> {
        let v4 = |name| self.store.subnet(name).map(|s| s.network.addr().is_ipv4());
        if let [a, b] = &*spec.subnets
            && v4(a) == v4(b)
        {
            return Err(Invalid::new(
                "Subnets",
                format!("{a} and {b} are of one address family; name one of each"),
            ));
        }
        for name in &spec.physical_networks {
            let network =
                self.store.effective(&Key::cluster(Kind::PhysicalNetwork, name), Spec::physical_network);
            if let Some(allowed) = network.and_then(|network| network.segmentation_ids.as_ref())
                && !allowed.contains(spec.vid)
            {
                let problem =
                    format!("{} is not allowed on PhysicalNetwork {name}; it allows {allowed}", spec.vid);
                return Err(Invalid::new("SegmentationID", problem).because(Cause::NotPermitted));
            }
        }
        let scopes = self.fabric.own_scopes(self.store, key, spec);
        if !scopes.is_empty() {
            return scopes.iter().try_for_each(|scope| self.check_id("SegmentationID", key, spec.vid, scope));
        }
        // The service is only requested: one scope is enough. Attachments check their own scopes.
        let requested = self.fabric.claimed_scopes(self.store, key);
        let mut checks = requested.iter().map(|scope| self.check_id("SegmentationID", key, spec.vid, scope));
        let first = checks.next().unwrap_or(Ok(()));
        if first.is_ok() || checks.any(|check| check.is_ok()) { Ok(()) } else { first }
    }

    fn check_bridge_domain(&self, key: &Key, spec: &BridgeDomainSpec) -> Result<(), Invalid> {
        if self.store.get(key).is_some_and(|record| record.generated) {
            return Ok(());
        }
        self.fabric
            .claimed_scopes(self.store, key)
            .iter()
            .try_for_each(|scope| self.check_id("Vlan", key, spec.vlan, scope))
    }

    /// The network holds the VLAN in a scope.
    pub fn check_id(&self, field: &str, key: &Key, vid: VlanId, scope: &VlanScope) -> Result<(), Invalid> {
        let holder = match self.vlan.check(vid, key, scope) {
            Ok(()) => return Ok(()),
            Err(Some(holder)) => format!("{} {}", holder.kind, holder.name),
            Err(None) => "another object".into(),
        };
        let problem =
            format!("{vid} is held by {holder} in {}; choose another or delete that one", scope.describe());
        Err(Invalid::new(field, problem).because(Cause::IdConflict))
    }
}
