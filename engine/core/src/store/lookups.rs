//! What objects say about each other: the nodes of a ConnectionPoint, the Subnets of an attachment, the namespaces that
//! a service is open to.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::spec::{ConnectionPointSpec, RouteSpec, ServiceSpec, Spec, SubnetSpec};
use crate::store::Store;
use crate::{Key, Kind, Name};

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
        let pool = spec.node_pool.as_ref().map(|name| Key::cluster(Kind::NodePool, name));
        let selector =
            pool.as_ref().map(|pool| self.effective(pool, Spec::node_pool).map(|pool| &pool.node_selector));
        let selected = self.nodes.iter().filter(|(_, labels)| {
            selector.is_none_or(|selector| selector.is_some_and(|selector| selector.matches(labels)))
        });
        Arc::new(selected.map(|(name, _)| name.clone()).collect())
    }

    /// The Routes of a Subnet, each prefix and next hop once: the kernel takes no route twice.
    pub fn routes_of(&self, subnet: &SubnetSpec) -> Vec<&RouteSpec> {
        let mut routes: Vec<&RouteSpec> = Vec::new();
        for name in &subnet.routes {
            routes.extend(self.route(name).filter(|route| !routes.contains(route)));
        }
        routes
    }
}
