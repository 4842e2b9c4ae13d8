//! The first stage: validates an object against everything that it names, and decides which spec is realised.

pub mod compat;
pub mod trunks;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::vlan::VlanScope;
use eno_schemas::VlanType;

use crate::spec::{AttachmentSpec, BridgeDomainSpec, Cause, ConnectionPointSpec, Invalid, ServiceSpec, Spec};
use crate::{Effect, Key, Kind, Name};

use trunks::Trunks;

use crate::engine::Engine;

/// The objects that are to be validated.
#[derive(Debug, Default)]
pub struct Validation {
    /// Objects to be validated.
    pub queue: BTreeSet<Key>,
    /// Which attachments exclude each other.
    pub trunks: Trunks,
}

impl Engine {
    /// Validates one object and queues what depends on it.
    pub(crate) fn validate(&mut self, key: &Key) {
        if key.kind == Kind::ConnectionPoint {
            self.plan_point(key);
        }
        let Some(record) = self.store.records.get(key) else { return };
        let checked = match &record.spec {
            // An object that is being deleted is not validated.
            Ok(spec) if record.deleting => Ok(spec.clone()),
            Err(invalid) => Err(invalid.clone().because(Cause::Spec)),
            Ok(spec) => self.check(key, spec).map(|()| spec.clone()),
        };
        // A reported phase Deleted is final, even if another object names it before its finalizer is removed.
        let reported_gone = record.status.phase == Some(eno_schemas::Phase::Deleted);
        let in_use = record.deleting && !reported_gone && self.blocking_user(key).is_some();
        let dependencies = record
            .indexed_references
            .iter()
            .filter_map(|key| self.store.records.get(key))
            .map(|r| r.version)
            .max();
        // A spec that only the state of other objects hinders is planned all the same.
        let planned = match (&checked, &record.spec) {
            (Ok(spec), _) => Some(spec.clone()),
            (Err(_), Ok(spec)) if matches!(key.kind, Kind::ConnectionPoint | Kind::FabricDevice) => {
                Some(spec.clone())
            }
            _ => record.effective.clone().filter(|_| !self.validate.trunks.evicts(key)),
        };
        let effective = match (record.deleting, in_use) {
            (false, _) => planned,
            (true, true) => record.effective.clone().or_else(|| record.status.realized.clone()),
            (true, false) => None,
        };
        let problem = checked.err();
        let arriving = |key: &Key| self.store.records.get(key).is_none_or(|record| record.incomplete);
        // No object names the FabricDevices that lead to a connection point: some may not have arrived yet.
        let lacks_ports = key.kind == Kind::ConnectionPoint
            && self.fabric.points.get(&key.name).is_some_and(|point| !point.missing.is_empty());
        let incomplete = problem.is_some()
            && !record.await_elapsed
            && (lacks_ports || record.indexed_references.iter().any(arriving));
        if incomplete && !record.incomplete {
            self.work.effects.push(Effect::Await(key.clone()));
        }
        let same = record.effective == effective
            && (&record.problem, record.incomplete) == (&problem, incomplete)
            && record.version > 0;
        let changed = !same || dependencies.is_some_and(|version| version > record.version);
        let given_up = record.effective.is_some() && effective.is_none();
        let left = if given_up { self.footprint(key) } else { BTreeSet::new() };
        let host_cleanups = if given_up { self.host_footprint(key) } else { None };
        if let Some(record) = self.store.records.get_mut(key) {
            record.cleanup_devices.extend(left);
            if given_up && !record.cleanup_devices.is_empty() {
                self.status.removing.insert(key.clone());
            }
            (record.effective, record.problem, record.incomplete) = (effective, problem, incomplete);
            if changed {
                self.store.version += 1;
                record.version = self.store.version;
            }
        }
        self.update_references(key);
        if !same {
            self.update_trunk_index(key);
        }
        self.update_usage(key);
        self.plan_hosts(key);
        self.record_host_cleanup(key, host_cleanups);
        self.status.queue.insert(key.clone());
        if matches!(key.kind, Kind::PhysicalNetwork | Kind::ConnectionPoint | Kind::L2Service) {
            self.validate.trunks.touch();
        }
        self.pods.object_validated(key);
        if key.kind == Kind::L2ServiceAttachment {
            self.plan_nad(key);
            if !same {
                self.reevaluate_subnet_neighbours(key);
            }
            return;
        }
        if changed {
            self.revalidate_routes(key);
            self.revalidate_referrers(key);
            self.revalidate_bridge_sharers(key);
            self.make_sample(key);
            match key.kind {
                Kind::FabricDevice => self.fabric.topology_dirty = true,
                Kind::L2Service | Kind::L2BridgeDomain => {
                    self.vlan.claim_queue.insert(key.clone());
                    self.fabric.queue.insert(key.clone());
                    self.reevaluate_subnet_neighbours(key);
                }
                _ => {}
            }
        }
    }

    fn check(&self, key: &Key, spec: &Arc<Spec>) -> Result<(), Invalid> {
        match &**spec {
            Spec::NodePool(_) | Spec::PhysicalNetwork(_) => Ok(()),
            Spec::Route(spec) => self.check_route(key, spec),
            Spec::Bridge(spec) => self.check_bridge(key, spec),
            Spec::PodLinks(spec) => self.check_links(key, spec),
            Spec::Subnet(spec) => self.check_subnet(spec),
            Spec::ConnectionPoint(spec) => {
                self.check_hosts(key, spec)?;
                self.check_point(key, spec)
            }
            Spec::Device(_) => self.check_named("Ports[].PhysicalNW", spec, Kind::PhysicalNetwork),
            Spec::Service(service) => {
                self.check_named("Subnets", spec, Kind::Subnet)?;
                self.check_named("PhysicalNW", spec, Kind::PhysicalNetwork)?;
                self.check_service(key, service)
            }
            Spec::BridgeDomain(domain) => {
                self.check_named("ConnectionPoints", spec, Kind::ConnectionPoint)?;
                self.check_bridge_domain(key, domain)
            }
            Spec::Attachment(attachment) => {
                self.check_named("ConnectionPoint", spec, Kind::ConnectionPoint)?;
                self.check_attachment(key, attachment)?;
                self.validate.trunks.check(key)
            }
        }
    }

    /// The objects of one kind that a spec names are there and valid.
    fn check_named(&self, field: &str, spec: &Spec, kind: Kind) -> Result<(), Invalid> {
        for reference in spec.references().into_iter().filter(|reference| reference.kind == kind) {
            self.check_reference(field, &reference)?;
        }
        Ok(())
    }

    pub(crate) fn check_reference(&self, field: &str, reference: &Key) -> Result<(), Invalid> {
        let (kind, name) = (reference.kind, &reference.name);
        let Some(record) = self.store.records.get(reference) else {
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
        let Some(point) = self.fabric.points.get(&key.name) else { return Ok(()) };
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
        let v4 = |name| {
            self.effective(&Key::cluster(Kind::Subnet, name), Spec::subnet)
                .map(|s| s.network.addr().is_ipv4())
        };
        if let [a, b] = &*spec.subnets
            && v4(a) == v4(b)
        {
            return Err(Invalid::new(
                "Subnets",
                format!("{a} and {b} are of one address family; name one of each"),
            ));
        }
        for name in &spec.physical_networks {
            let network = self.effective(&Key::cluster(Kind::PhysicalNetwork, name), Spec::physical_network);
            if let Some(allowed) = network.and_then(|network| network.segmentation_ids.as_ref())
                && !allowed.contains(spec.vid)
            {
                let problem =
                    format!("{} is not allowed on PhysicalNetwork {name}; it allows {allowed}", spec.vid);
                return Err(Invalid::new("SegmentationID", problem).because(Cause::NotPermitted));
            }
        }
        let scopes = self.own_scopes(key, spec);
        if !scopes.is_empty() {
            return scopes.iter().try_for_each(|scope| self.check_id("SegmentationID", key, spec.vid, scope));
        }
        // The service is only requested: one scope is enough. Attachments check their own scopes.
        let requested = self.claimed_scopes(key);
        let mut checks = requested.iter().map(|scope| self.check_id("SegmentationID", key, spec.vid, scope));
        let first = checks.next().unwrap_or(Ok(()));
        if first.is_ok() || checks.any(|check| check.is_ok()) { Ok(()) } else { first }
    }

    fn check_bridge_domain(&self, key: &Key, spec: &BridgeDomainSpec) -> Result<(), Invalid> {
        if self.store.records.get(key).is_some_and(|record| record.generated) {
            return Ok(());
        }
        self.claimed_scopes(key).iter().try_for_each(|scope| self.check_id("Vlan", key, spec.vlan, scope))
    }

    fn check_id(
        &self,
        field: &str,
        key: &Key,
        vid: eno_schemas::VlanId,
        scope: &VlanScope,
    ) -> Result<(), Invalid> {
        let holder = match self.vlan.ids.check(vid, key, scope) {
            Ok(()) => return Ok(()),
            Err(Some(holder)) => format!("{} {}", holder.kind, holder.name),
            Err(None) => "another object".into(),
        };
        let problem =
            format!("{vid} is held by {holder} in {}; choose another or delete that one", scope.describe());
        Err(Invalid::new(field, problem).because(Cause::IdConflict))
    }

    fn check_attachment(&self, key: &Key, spec: &AttachmentSpec) -> Result<(), Invalid> {
        let point_key = Key::cluster(Kind::ConnectionPoint, &spec.connection_point);
        let Some(point) = self.effective(&point_key, Spec::connection_point) else {
            let problem = format!("ConnectionPoint {} is being deleted; name another", spec.connection_point);
            return Err(Invalid::new("ConnectionPoint", problem).because(Cause::ReferenceTerminating));
        };
        if spec.vlan_type == VlanType::Access && spec.services.len() != 1 {
            let problem = "an access attachment names exactly one; use trunk or selectivetrunk for more";
            return Err(Invalid::new("L2Services", problem).because(Cause::Spec));
        }
        let chosen = compat::choose(spec, point)?;
        let scopes = self.fabric.points.get(&spec.connection_point).map(|point| &point.scopes);
        let mut seen: BTreeSet<&Name> = BTreeSet::new();
        for (i, name) in spec.services.iter().enumerate() {
            let field = format!("L2Services[{i}]");
            if !seen.insert(name) {
                let problem = format!("L2Service {name} is named twice; name it once");
                return Err(Invalid::new(field, problem).because(Cause::Spec));
            }
            let service_key = Key::cluster(Kind::L2Service, name);
            self.check_reference(&field, &service_key)?;
            let Some(service) = self.effective(&service_key, Spec::service) else {
                let problem = format!("L2Service {name} is being deleted; name another");
                return Err(Invalid::new(field, problem).because(Cause::ReferenceTerminating));
            };
            self.check_new_user(&field, key, &service_key)?;
            self.check_namespace(&field, key, name, service)?;
            let plugin = chosen.plugin.name();
            if service.subnets.is_empty() && compat::needs_subnet(plugin) {
                let problem = format!(
                    "L2Service {name} has no Subnets; the CNI plugin {} needs one: add a Subnet to it or set Implementation to another plugin",
                    plugin.as_str()
                );
                return Err(Invalid::new(field, problem));
            }
            self.check_subinterface(&spec.connection_point, &chosen.plugin, spec.vlan_type, service.vid)?;
            for scope in scopes.into_iter().flatten() {
                self.check_id(&field, &service_key, service.vid, scope)?;
            }
            // A service that is being deleted is not validated itself.
            if self.store.records.get(&service_key).is_some_and(|record| record.deleting) {
                for scope in self.own_scopes(&service_key, service) {
                    self.check_id(&field, &service_key, service.vid, &scope)?;
                }
            }
        }
        self.check_new_user("ConnectionPoint", key, &point_key)
    }

    /// An object that is being deleted stays for its users and takes no new ones.
    fn check_new_user(&self, field: &str, key: &Key, used: &Key) -> Result<(), Invalid> {
        let deleting = self.store.records.get(used).is_some_and(|record| record.deleting);
        let uses = |record: &crate::store::record::Record| {
            record.effective.as_ref().is_some_and(|spec| spec.references().contains(used))
        };
        if deleting && !self.store.records.get(key).is_some_and(uses) {
            let problem = format!("{} {} is being deleted; name another", used.kind, used.name);
            return Err(Invalid::new(field, problem).because(Cause::ReferenceTerminating));
        }
        Ok(())
    }

    fn check_namespace(
        &self,
        field: &str,
        key: &Key,
        name: &Name,
        service: &ServiceSpec,
    ) -> Result<(), Invalid> {
        let Some(closed) = self.closed_to(name, service, &key.namespace) else { return Ok(()) };
        let problem = format!(
            "{} {} is not open to namespace {}; an admin can widen its Namespaces or label the namespace",
            closed.kind, closed.name, key.namespace
        );
        Err(Invalid::new(field, problem).because(Cause::NotPermitted))
    }

    /// The objects that were never seen, although `key`, or an object that `key` waits for, names them.
    pub fn missing_references(&self, key: &Key) -> BTreeSet<Key> {
        let (mut missing, mut visited) = (BTreeSet::new(), BTreeSet::new());
        let mut next = vec![key];
        while let Some(record) = next.pop().and_then(|key| self.store.records.get(key)) {
            for named in &record.indexed_references {
                match self.store.records.get(named) {
                    None => drop(missing.insert(named.clone())),
                    Some(other) if other.incomplete && visited.insert(named) => next.push(named),
                    Some(_) => {}
                }
            }
        }
        missing
    }

    /// The user that keeps an object from being deleted, as text.
    pub(crate) fn blocking_user(&self, key: &Key) -> Option<String> {
        if key.kind == Kind::L2ServiceAttachment {
            return self.blocking_pods(key);
        }
        if key.kind == Kind::Bridge {
            return self.blocking_bridge_user(key);
        }
        let links = key.kind == Kind::FabricDevice;
        let counts =
            |user: &&Key| !links && self.store.records.get(*user).is_some_and(|record| !record.generated);
        let mut users = self.store.referrers.get(key)?.iter().filter(counts).peekable();
        let first = (*users.peek()?).clone();
        let name =
            first.namespace().map_or_else(|| first.name.to_string(), |ns| format!("{ns}/{}", first.name));
        Some(and_more(&format!("{} {name}", first.kind), users.count()))
    }
}

pub(crate) fn and_more(first: &str, count: usize) -> String {
    if count > 1 { format!("{first} and {} more", count - 1) } else { first.into() }
}
