//! The checks of an L2ServiceAttachment.

use std::collections::BTreeSet;

use eno_schemas::{Ipam, VlanType};

use crate::kinds::{AttachmentSpec, Cause, Invalid, ServiceSpec, Spec, compat};
use crate::node::shape::check_subinterface;
use crate::store::record::Record;
use crate::validate::Validator;
use crate::{Key, Kind, Name};

impl Validator<'_> {
    /// Checks an attachment against its ConnectionPoint and its services, which are there and valid.
    pub fn check_attachment(&self, key: &Key, spec: &AttachmentSpec) -> Result<(), Invalid> {
        let point_key = Key::cluster(Kind::ConnectionPoint, &spec.connection_point);
        let Some(point) = self.store.effective(&point_key, Spec::connection_point) else {
            let problem = format!("ConnectionPoint {} is being deleted; name another", spec.connection_point);
            return Err(Invalid::new("ConnectionPoint", problem).because(Cause::ReferenceTerminating));
        };
        if spec.vlan_type == VlanType::Access && spec.services.len() != 1 {
            let problem = "an access attachment names exactly one; use trunk or selectivetrunk for more";
            return Err(Invalid::new("L2Services", problem).because(Cause::Spec));
        }
        let chosen = compat::choose(spec, point)?;
        let scopes = self.fabric.point(&spec.connection_point).map(|point| &point.scopes);
        let mut seen: BTreeSet<&Name> = BTreeSet::new();
        for (i, name) in spec.services.iter().enumerate() {
            let field = format!("L2Services[{i}]");
            if !seen.insert(name) {
                let problem = format!("L2Service {name} is named twice; name it once");
                return Err(Invalid::new(field, problem).because(Cause::Spec));
            }
            let service_key = Key::cluster(Kind::L2Service, name);
            self.check_reference(&field, &service_key)?;
            let Some(service) = self.store.effective(&service_key, Spec::service) else {
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
            self.check_agents(&field, spec.vlan_type, service)?;
            check_subinterface(
                self.config,
                &spec.connection_point,
                &chosen.plugin,
                spec.vlan_type,
                service.vid,
            )?;
            for scope in scopes.into_iter().flatten() {
                self.check_id(&field, &service_key, service.vid, scope)?;
            }
            // A service that is being deleted is not validated itself.
            if self.store.get(&service_key).is_some_and(|record| record.deleting) {
                for scope in self.fabric.own_scopes(self.store, &service_key, service) {
                    self.check_id(&field, &service_key, service.vid, &scope)?;
                }
            }
        }
        self.check_new_user("ConnectionPoint", key, &point_key)
    }

    /// Addresses of Subnets with Ipam eno come from the agents of nodes.
    fn check_agents(&self, field: &str, vlan_type: VlanType, service: &ServiceSpec) -> Result<(), Invalid> {
        let is_own = |name: &&Name| self.store.subnet(name).is_some_and(|subnet| subnet.ipam == Ipam::Eno);
        let own = service.subnets.iter().find(is_own);
        let Some(own) = own.filter(|_| vlan_type == VlanType::Access && !self.config.nodes) else {
            return Ok(());
        };
        let problem = format!(
            "Subnet {own} has Ipam eno, whose addresses come from the agents of nodes, and this installation has none: give it another Ipam"
        );
        Err(Invalid::new(field, problem))
    }

    /// An object that is being deleted stays for its users and takes no new ones.
    pub(super) fn check_new_user(&self, field: &str, key: &Key, used: &Key) -> Result<(), Invalid> {
        let deleting = self.store.get(used).is_some_and(|record| record.deleting);
        let uses =
            |record: &Record| record.effective.as_ref().is_some_and(|spec| spec.references().contains(used));
        if deleting && !self.store.get(key).is_some_and(uses) {
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
        let Some(closed) = self.store.closed_to(name, service, &key.namespace) else { return Ok(()) };
        let problem = format!(
            "{} {} is not open to namespace {}; an admin can widen its Namespaces or label the namespace",
            closed.kind, closed.name, key.namespace
        );
        Err(Invalid::new(field, problem).because(Cause::NotPermitted))
    }
}
