//! What objects say about each other: the nodes of a ConnectionPoint, the Subnets of an attachment, the namespaces that
//! a service is open to.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::kinds::{
    AttachmentSpec, ConnectionPointSpec, RouteSpec, ServiceSpec, Spec, SubnetSpec, VrfAttachmentSpec,
};
use crate::store::Store;
use crate::{Key, Kind, Labels, Name, Selector};

impl Store {
    /// The realised ConnectionPoint of this name.
    pub fn connection_point(&self, name: &Name) -> Option<&ConnectionPointSpec> {
        self.effective(&Key::cluster(Kind::ConnectionPoint, name), Spec::connection_point)
    }

    /// The realised L2Service of this name.
    pub fn service(&self, name: &Name) -> Option<&ServiceSpec> {
        self.effective(&Key::cluster(Kind::L2Service, name), Spec::service)
    }

    /// The realised Subnet of this name.
    pub fn subnet(&self, name: &Name) -> Option<&SubnetSpec> {
        self.effective(&Key::cluster(Kind::Subnet, name), Spec::subnet)
    }

    /// The realised Route of this name.
    pub fn route(&self, name: &Name) -> Option<&RouteSpec> {
        self.effective(&Key::cluster(Kind::Route, name), Spec::route)
    }

    /// The nodes of a connection point.
    pub fn members(&self, spec: &ConnectionPointSpec) -> Arc<BTreeSet<Name>> {
        Arc::new(self.nodes_of(spec).cloned().collect())
    }

    /// The nodes of a connection point: those of its NodePool, or all.
    pub fn nodes_of(&self, spec: &ConnectionPointSpec) -> impl Iterator<Item = &Name> {
        let pool = spec.node_pool.as_ref().map(|name| Key::cluster(Kind::NodePool, name));
        let selector =
            pool.map(|pool| self.effective(&pool, Spec::node_pool).map(|pool| &pool.node_selector));
        let is_member =
            move |labels: &Labels| selector.is_none_or(|one| one.is_some_and(|one| one.matches(labels)));
        self.nodes.iter().filter(move |(_, labels)| is_member(labels)).map(|(name, _)| name)
    }

    /// The Subnets of an attachment's services.
    pub fn subnets_of<'a>(&'a self, spec: &AttachmentSpec) -> Vec<(&'a Name, &'a SubnetSpec)> {
        let services = spec.services.iter().filter_map(|name| self.service(name));
        let subnets = services.flat_map(|service| &service.subnets);
        subnets.filter_map(|name| Some((name, self.subnet(name)?))).collect()
    }

    /// The Routes of a Subnet, each prefix and next hop once: the kernel takes no route twice.
    pub fn routes_of(&self, subnet: &SubnetSpec) -> Vec<&RouteSpec> {
        let mut routes: Vec<&RouteSpec> = Vec::new();
        for name in &subnet.routes {
            routes.extend(self.route(name).filter(|route| !routes.contains(route)));
        }
        routes
    }

    /// The objects that lead a service into VRFs now.
    pub fn vrf_attachments_of<'a>(
        &'a self,
        service: &'a Key,
    ) -> impl Iterator<Item = (&'a Key, &'a VrfAttachmentSpec)> + use<'a> {
        self.referrers(service).filter(|user| user.kind == Kind::VRFAttachment).filter_map(|user| {
            let spec = self.effective(user, Spec::vrf_attachment)?;
            (spec.service == service.name).then_some((user, spec))
        })
    }

    /// The addresses of a Subnet that no pod may have: those of devices that lead services with it into VRFs.
    pub fn routed_addresses(&self, subnet: &Name) -> BTreeSet<IpAddr> {
        let subnet = Key::cluster(Kind::Subnet, subnet);
        let services = self.referrers(&subnet).filter(|user| user.kind == Kind::L2Service);
        let specs = services.flat_map(|service| self.vrf_attachments_of(service));
        specs.flat_map(|(_, spec)| spec.addresses()).map(IpNet::addr).collect()
    }

    /// The object that closes a service to a namespace: the service or a PhysicalNetwork.
    pub fn closed_to(&self, name: &Name, service: &ServiceSpec, namespace: &Name) -> Option<Key> {
        let labels = self.namespace(namespace);
        let has = |selector: &Selector| labels.is_some_and(|labels| selector.matches(labels));
        if service.namespaces.as_ref().is_some_and(|selector| !has(selector)) {
            return Some(Key::cluster(Kind::L2Service, name));
        }
        let mut networks =
            service.physical_networks.iter().map(|name| Key::cluster(Kind::PhysicalNetwork, name));
        networks.find(|key| {
            let network = self.effective(key, Spec::physical_network);
            network.and_then(|network| network.namespaces.as_ref()).is_some_and(|selector| !has(selector))
        })
    }

    /// True when pods of a namespace may use an attachment with this spec: those of its own, and those that `UsableFrom`
    /// selects.
    pub fn is_usable_from(&self, key: &Key, spec: Option<&AttachmentSpec>, namespace: &Name) -> bool {
        let selector = spec.and_then(|spec| spec.usable_from.as_ref());
        key.namespace == *namespace
            || selector
                .zip(self.namespace(namespace))
                .is_some_and(|(selector, labels)| selector.matches(labels))
    }

    /// The objects that were never seen, although `key`, or an object that `key` waits for, names them.
    pub fn missing_references(&self, key: &Key) -> BTreeSet<Key> {
        let (mut missing, mut visited) = (BTreeSet::new(), BTreeSet::new());
        let mut next = vec![key];
        while let Some(record) = next.pop().and_then(|key| self.get(key)) {
            for named in &record.indexed_references {
                match self.get(named) {
                    None => drop(missing.insert(named.clone())),
                    Some(other) if other.incomplete && visited.insert(named) => next.push(named),
                    Some(_) => {}
                }
            }
        }
        missing
    }
}
