//! The checks of BGPSessionGroups, and of what shares an L2Service with one.

use std::collections::BTreeSet;
use std::net::IpAddr;

use eno_schemas::Ipam;

use crate::bgp::{gateways, nodes_of};
use crate::kinds::{AttachmentSpec, BgpSessionGroupSpec, Cause, Family, Invalid, Spec, compat};
use crate::store::Store;
use crate::validate::Validator;
use crate::work::Work;
use crate::{Key, Kind, Name};

/// An object changed, or is gone, that may have been in the way of groups and of what shares their services.
pub(crate) fn revalidate_hindered(store: &Store, key: &Key, work: &mut Work) {
    let concerned: &[Kind] = match key.kind {
        Kind::BGPSessionGroup => &[Kind::BGPSessionGroup, Kind::L2ServiceAttachment],
        Kind::L2ServiceAttachment | Kind::VRFAttachment | Kind::ConnectionPoint => &[Kind::BGPSessionGroup],
        _ => return,
    };
    for kind in concerned {
        let hindered =
            store.of_kind(*kind).filter(|(other, record)| *other != key && record.problem.is_some());
        work.validate.extend(hindered.map(|(other, _)| other.clone()));
    }
}

impl Validator<'_> {
    /// Checks that a group has gateways and addresses of each family, and that no pod and no other group is in its way.
    pub(super) fn check_session_group(&self, key: &Key, spec: &BgpSessionGroupSpec) -> Result<(), Invalid> {
        let [vrf, service, point] = [
            ("VRF", Kind::VRF, &spec.vrf),
            ("L2Service", Kind::L2Service, &spec.service),
            ("ConnectionPoint", Kind::ConnectionPoint, &spec.connection_point),
        ]
        .map(|(field, kind, name)| (field, Key::cluster(kind, name)));
        for (field, used) in [&vrf, &service, &point] {
            self.check_new_user(field, key, used)?;
        }
        let has_network = self
            .store
            .connection_point(&spec.connection_point)
            .is_none_or(|one| compat::host_network(one).is_some());
        if !has_network {
            let problem = format!(
                "ConnectionPoint {} has only CNIs that give devices to pods; name one with ovs, bridge or macvlan",
                spec.connection_point
            );
            return Err(Invalid::new("ConnectionPoint", problem));
        }
        self.check_gateways(spec)?;
        self.check_return_path(spec)?;
        self.check_pods(key, spec)?;
        self.check_equal_gateways(key, spec)
    }

    /// Each family has a gateway, in a Subnet that has addresses for nodes. All devices can make BGP sessions.
    fn check_gateways(&self, spec: &BgpSessionGroupSpec) -> Result<(), Invalid> {
        let Some(service) = self.store.service(&spec.service) else { return Ok(()) };
        for (device, _) in gateways(self.store, spec) {
            let driver = self.store.effective(&Key::cluster(Kind::FabricDevice, device), Spec::device);
            if let Some(driver) = driver.map(|device| &device.driver).filter(|one| self.fabric.lacks_bgp(one))
            {
                let problem = format!(
                    "the driver {driver} of FabricDevice {device} makes no BGP sessions; lead L2Service {} into the VRF on a \
                     device of a driver that does, such as netconf",
                    spec.service
                );
                return Err(Invalid::new("VRF", problem));
            }
        }
        let mut devices =
            gateways(self.store, spec).map(|(device, _)| Key::cluster(Kind::FabricDevice, device));
        let lacks = |key: &Key| {
            let device = self.store.effective(key, Spec::device)?;
            self.fabric.lacks_dynamic_neighbours(&device.driver).then_some(&device.driver)
        };
        if let Some(driver) = devices.find_map(|key| lacks(&key)).filter(|_| spec.by_prefix) {
            let problem =
                format!("the driver {driver} knows neighbours only by their addresses; name PerNode");
            return Err(Invalid::new("Neighbours", problem));
        }
        for family in &spec.address_families {
            let name = family.as_str();
            let of_family =
                gateways(self.store, spec).find(|(_, address)| Family::of(address.addr()) == *family);
            let Some((_, gateway)) = of_family else {
                let problem = format!(
                    "no VRFAttachment leads L2Service {} into VRF {} with an {name} address; create one, or leave {name} out",
                    spec.service, spec.vrf
                );
                return Err(Invalid::new("AddressFamilies", problem).because(Cause::ReferenceNotFound));
            };
            let mut subnets =
                service.subnets.iter().filter_map(|name| Some((name, self.store.subnet(name)?)));
            let subnet = subnets.find(|(_, subnet)| subnet.network.contains(&gateway.addr()));
            if let Some((subnet, spec)) = subnet
                && spec.ipam != Ipam::Eno
                && spec.hot_plug_pool.is_empty()
            {
                let problem = format!(
                    "Subnet {subnet} has no addresses for nodes; set its Ipam to eno, or give it a HotPlugPool"
                );
                return Err(Invalid::new("L2Service", problem));
            }
        }
        Ok(())
    }

    /// Answers have one gateway of each family to go to, where they go to gateways.
    fn check_return_path(&self, spec: &BgpSessionGroupSpec) -> Result<(), Invalid> {
        for family in spec.address_families.iter().filter(|_| spec.symmetric) {
            let mut of_family = gateways(self.store, spec)
                .map(|(_, address)| address.addr())
                .filter(|address| Family::of(*address) == *family);
            if let (Some(first), Some(second)) = (of_family.next(), of_family.next()) {
                let problem = format!(
                    "answers can be led to one gateway of each family, and {first} and {second} are gateways of VRF {}; set it to \
                     None",
                    spec.vrf
                );
                return Err(Invalid::new("ReturnPath", problem));
            }
        }
        Ok(())
    }

    /// No pod gets an interface in the service, unless it may.
    fn check_pods(&self, key: &Key, spec: &BgpSessionGroupSpec) -> Result<(), Invalid> {
        let is_realised =
            self.store.effective(key, Spec::bgp_session_group).is_some_and(|own| own.service == spec.service);
        if spec.allow_pods || is_realised {
            return Ok(());
        }
        let service = Key::cluster(Kind::L2Service, &spec.service);
        let mut users = self
            .store
            .referrers(&service)
            .filter_map(|user| Some((user, self.store.effective(user, Spec::attachment)?)));
        let Some((user, _)) = users.find(|(_, used)| used.services.contains(&spec.service)) else {
            return Ok(());
        };
        let problem = format!(
            "L2ServiceAttachment {}/{} gives pods interfaces in L2Service {}: such a pod could speak BGP in place of a node; \
             name an L2Service without, or set AllowPods with a Password",
            user.namespace, user.name, spec.service
        );
        Err(Invalid::new("L2Service", problem).because(Cause::NotPermitted))
    }

    /// Checks that no group keeps pods away from the services of an attachment that is not realised with them.
    pub(super) fn check_sessions_of_services(&self, key: &Key, spec: &AttachmentSpec) -> Result<(), Invalid> {
        let realised = self.store.effective(key, Spec::attachment);
        for (index, name) in spec.services.iter().enumerate() {
            if realised.is_some_and(|own| own.services.contains(name)) {
                continue;
            }
            let users = self.store.referrers(&Key::cluster(Kind::L2Service, name));
            let mut groups =
                users.filter_map(|user| Some((user, self.store.effective(user, Spec::bgp_session_group)?)));
            if let Some((group, _)) = groups.find(|(_, group)| group.service == *name && !group.allow_pods) {
                let problem = format!(
                    "BGPSessionGroup {} has BGP sessions in L2Service {name}, and allows no pods there; name another L2Service",
                    group.name
                );
                return Err(
                    Invalid::new(format!("L2Services[{index}]"), problem).because(Cause::NotPermitted)
                );
            }
        }
        Ok(())
    }

    /// No other group has a gateway of the same address on one of the nodes.
    fn check_equal_gateways(&self, key: &Key, spec: &BgpSessionGroupSpec) -> Result<(), Invalid> {
        let own: BTreeSet<IpAddr> = gateways(self.store, spec).map(|(_, address)| address.addr()).collect();
        let nodes = nodes_of(self.store, self.node, spec);
        let is_realised = self.store.effective(key, Spec::bgp_session_group) == Some(spec);
        for (other, record) in self.store.of_kind(Kind::BGPSessionGroup) {
            let theirs = record.effective.as_deref().and_then(Spec::bgp_session_group);
            let Some(theirs) = theirs.filter(|_| self.comes_before(other, key, is_realised)) else {
                continue;
            };
            let shared = gateways(self.store, theirs).find(|(_, address)| own.contains(&address.addr()));
            let node: Option<Name> =
                nodes_of(self.store, self.node, theirs).intersection(&nodes).next().cloned();
            if let (Some((_, gateway)), Some(node)) = (shared, node) {
                let problem = format!(
                    "BGPSessionGroup {} has the gateway {} too, and both are on node {node}: a node can't tell the two apart; \
                     give one of both other addresses or other nodes",
                    other.name,
                    gateway.addr()
                );
                return Err(Invalid::new("VRF", problem).because(Cause::NameConflict));
            }
        }
        Ok(())
    }
}
