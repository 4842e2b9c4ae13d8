//! The checks of VRFs, and of what leads services into them.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::kinds::{Cause, Invalid, ServiceSpec, Spec, SubnetSpec, VrfAttachmentSpec, VrfSpec, compat};
use crate::nad::subnets::next_hop_problem;
use crate::store::Store;
use crate::validate::Validator;
use crate::work::Work;
use crate::{Key, Kind, Name};

impl Validator<'_> {
    /// Checks that the devices of a VRF can have it, and that no other VRF has its name there.
    pub(super) fn check_vrf(&self, key: &Key, spec: &VrfSpec) -> Result<(), Invalid> {
        for (index, one) in spec.devices.iter().enumerate() {
            let device = self.store.effective(&Key::cluster(Kind::FabricDevice, &one.name), Spec::device);
            if let Some(driver) =
                device.map(|device| &device.driver).filter(|one| self.fabric.lacks_vrfs(one))
            {
                let problem = format!(
                    "the driver {driver} of FabricDevice {} makes no VRFs; name a device of a driver that does, such as netconf",
                    one.name
                );
                return Err(Invalid::new(format!("Devices[{index}].Name"), problem));
            }
        }
        let users = self
            .store
            .referrers(key)
            .filter_map(|user| Some((user, self.store.effective(user, Spec::vrf_attachment)?)));
        for (user, used) in users.filter(|(_, used)| used.vrf == key.name) {
            if let Some(device) = used.devices().find(|one| spec.devices.iter().all(|own| own.name != **one))
            {
                let problem = format!(
                    "VRFAttachment {} leads L2Service {} in on FabricDevice {device}; keep that device until the VRFAttachment \
                     is deleted, or names another device",
                    user.name, used.service
                );
                return Err(Invalid::new("Devices", problem));
            }
        }
        let name = spec.device_name(&key.name);
        let is_realised = self.store.effective(key, Spec::vrf) == Some(spec);
        let others = self.store.of_kind(Kind::VRF);
        let others = others.filter(|(other, _)| self.comes_before(other, key, is_realised));
        let holder = others
            .filter_map(|(other, record)| {
                let theirs = record.effective.as_deref().and_then(Spec::vrf)?;
                let mut shared =
                    theirs.devices.iter().filter(|one| spec.devices.iter().any(|own| own.name == one.name));
                (theirs.device_name(&other.name) == name).then_some((&other.name, &shared.next()?.name))
            })
            .min();
        if let Some((holder, device)) = holder {
            let problem = format!(
                "{name} on FabricDevice {device} is of VRF {holder}; set another DeviceName or delete that one"
            );
            return Err(Invalid::new("DeviceName", problem).because(Cause::NameConflict));
        }
        Ok(())
    }

    /// True when another object keeps what both want: it is realised, and this one is not as it is now, or is younger.
    pub(super) fn comes_before(&self, other: &Key, key: &Key, is_realised: bool) -> bool {
        let (Some(theirs), Some(own)) = (self.store.get(other), self.store.get(key)) else { return false };
        other != key && theirs.effective.is_some() && (!is_realised || theirs.seniority() < own.seniority())
    }

    /// True when a service is led into a VRF as its VRFAttachment wants it.
    fn is_led_in(&self, key: &Key, spec: &VrfAttachmentSpec) -> bool {
        self.store.effective(key, Spec::vrf_attachment) == Some(spec)
    }

    /// Checks what leads a service into a VRF against both, and against all others that lead there.
    pub(super) fn check_vrf_attachment(&self, key: &Key, spec: &VrfAttachmentSpec) -> Result<(), Invalid> {
        let (vrf_key, service_key) =
            (Key::cluster(Kind::VRF, &spec.vrf), Key::cluster(Kind::L2Service, &spec.service));
        for (field, used) in [("VRF", &vrf_key), ("L2Service", &service_key)] {
            self.check_new_user(field, key, used)?;
        }
        let Some(vrf) = self.store.effective(&vrf_key, Spec::vrf) else {
            let problem = format!("VRF {} is being deleted; name another", spec.vrf);
            return Err(Invalid::new("VRF", problem).because(Cause::ReferenceTerminating));
        };
        let Some(service) = self.store.effective(&service_key, Spec::service) else {
            let problem = format!("L2Service {} is being deleted; name another", spec.service);
            return Err(Invalid::new("L2Service", problem).because(Cause::ReferenceTerminating));
        };
        let labels = self.store.get(&service_key).map(|record| &record.labels);
        if let (Some(selector), Some(labels)) = (&vrf.services, labels)
            && !selector.matches(labels)
        {
            let problem = format!(
                "Services of VRF {} do not select L2Service {}; an admin can widen them or label the service",
                spec.vrf, spec.service
            );
            return Err(Invalid::new("L2Service", problem).because(Cause::NotPermitted));
        }
        self.check_devices(key, spec, vrf, service)?;
        self.check_addresses(spec, service)?;
        Self::check_routes(spec)?;
        self.check_mtu(spec, &service_key)?;
        self.check_overlaps(key, spec, &vrf_key)
    }

    /// The devices are of the VRF, no other leads the service in there, and the service holds its VLAN there.
    fn check_devices(
        &self,
        key: &Key,
        spec: &VrfAttachmentSpec,
        vrf: &VrfSpec,
        service: &ServiceSpec,
    ) -> Result<(), Invalid> {
        let service_key = Key::cluster(Kind::L2Service, &spec.service);
        for (index, device) in spec.devices().enumerate() {
            let field = format!("Interfaces[{index}].Device");
            if !vrf.devices.iter().any(|one| one.name == *device) {
                let names: Vec<&str> = vrf.devices.iter().map(|one| &*one.name).collect();
                let problem = format!(
                    "FabricDevice {device} is not in Devices of VRF {}: name one of {}, or add it there",
                    spec.vrf,
                    names.join(", ")
                );
                return Err(Invalid::new(field, problem));
            }
            let is_led_in = self.is_led_in(key, spec);
            let mut others = self.store.vrf_attachments_of(&service_key);
            let other = others.find(|(other, theirs)| {
                self.comes_before(other, key, is_led_in) && theirs.devices().any(|one| one == device)
            });
            if let Some((other, _)) = other {
                let problem = format!(
                    "VRFAttachment {} leads L2Service {} in on FabricDevice {device} already; give that one all addresses, or \
                     delete it",
                    other.name, spec.service
                );
                return Err(Invalid::new(field, problem).because(Cause::NameConflict));
            }
            for scope in self.fabric.device_scopes(device) {
                self.check_id("L2Service", &service_key, service.vid, &scope)?;
            }
        }
        Ok(())
    }

    fn subnets<'a>(&'a self, service: &'a ServiceSpec) -> impl Iterator<Item = (&'a Name, &'a SubnetSpec)> {
        service.subnets.iter().filter_map(|name| Some((name, self.store.subnet(name)?)))
    }

    /// The addresses are of hosts in the service's Subnets that no pod gets or has.
    fn check_addresses(&self, spec: &VrfAttachmentSpec, service: &ServiceSpec) -> Result<(), Invalid> {
        for (index, interface) in spec.interfaces.iter().enumerate() {
            for (at, address) in interface.addresses.iter().enumerate() {
                let invalid =
                    |problem: String| Invalid::new(format!("Interfaces[{index}].Addresses[{at}]"), problem);
                let ip = address.addr();
                let Some((name, subnet)) = self.subnets(service).find(|(_, one)| one.network.contains(&ip))
                else {
                    return Err(invalid(format!(
                        "{ip} is in no Subnet of L2Service {}; give an address of one",
                        spec.service
                    )));
                };
                let length = subnet.network.prefix_len();
                if address.prefix_len() != length {
                    return Err(invalid(format!(
                        "{address} has not the prefix length of Subnet {name}; write {ip}/{length}"
                    )));
                }
                if let Some(problem) = host_problem(ip, &subnet.network) {
                    return Err(invalid(format!("{problem}; give an address of a host")));
                }
                if let Some(pool) =
                    subnet.hot_plug_pool.iter().find(|pool| (pool.start..=pool.end).contains(&ip))
                {
                    return Err(invalid(format!(
                        "{ip} is in the HotPlugPool {}-{} of Subnet {name}, of which running pods get addresses; give \
                         another, or narrow the pool",
                        pool.start, pool.end
                    )));
                }
                let started = || {
                    let pod = self.node.address_holder(name, ip)?;
                    Some(format!("Pod {}/{}", pod.namespace, pod.pod))
                };
                if let Some(pod) = self.pods.lease_holder(self.node, name, ip).or_else(started) {
                    return Err(invalid(format!("{pod} has {ip}; give another address, or delete the pod")));
                }
            }
        }
        Ok(())
    }

    /// The next hops of static routes are hosts in the networks of the interfaces, other than the device itself.
    fn check_routes(spec: &VrfAttachmentSpec) -> Result<(), Invalid> {
        for (index, route) in spec.static_routes.iter().enumerate() {
            let (field, hop) = (format!("StaticRoutes[{index}].NextHop"), route.next_hop);
            let mut networks = spec.addresses().map(IpNet::trunc);
            let Some(network) = networks.find(|network| network.contains(&hop)) else {
                let problem = format!(
                    "{hop} is in the network of no address of Interfaces; give the address of a host in one, or give the \
                     device an address there"
                );
                return Err(Invalid::new(field, problem));
            };
            if let Some(problem) = host_problem(hop, &network) {
                return Err(Invalid::new(field, format!("{problem}; give the address of a host")));
            }
            if spec.addresses().any(|address| address.addr() == hop) {
                let problem =
                    format!("{hop} is the address of the device itself; give that of a host behind it");
                return Err(Invalid::new(field, problem));
            }
        }
        Ok(())
    }

    /// No pod of the service sends packets that are too long.
    fn check_mtu(&self, spec: &VrfAttachmentSpec, service: &Key) -> Result<(), Invalid> {
        let Some(mtu) = spec.mtu else { return Ok(()) };
        for user in self.store.referrers(service) {
            let Some(attachment) = self.store.effective(user, Spec::attachment) else { continue };
            let point = self.store.connection_point(&attachment.connection_point);
            let chosen = point.and_then(|point| compat::choose(attachment, point).ok());
            let theirs = chosen.and_then(|chosen| attachment.mtu(chosen));
            if let Some(theirs) = theirs.filter(|theirs| *theirs > mtu) {
                let problem = format!(
                    "{mtu} is below the {theirs} of L2ServiceAttachment {}/{}; raise it, or lower that one",
                    user.namespace, user.name
                );
                return Err(Invalid::new("MTU", problem));
            }
        }
        Ok(())
    }

    /// No network and no static route overlaps those of another service in the VRF, and no address is given twice.
    fn check_overlaps(&self, key: &Key, spec: &VrfAttachmentSpec, vrf: &Key) -> Result<(), Invalid> {
        let is_led_in = self.is_led_in(key, spec);
        let others = self.store.referrers(vrf).filter(|other| self.comes_before(other, key, is_led_in));
        let others = others.filter_map(|other| {
            let theirs = self.store.effective(other, Spec::vrf_attachment)?;
            (theirs.vrf == spec.vrf).then_some((other, theirs))
        });
        for (other, theirs) in others {
            let whose = format!("VRFAttachment {} in VRF {}", other.name, spec.vrf);
            let is_other = theirs.service != spec.service;
            for (index, interface) in spec.interfaces.iter().enumerate() {
                for (at, address) in interface.addresses.iter().enumerate() {
                    let clash = theirs
                        .addresses()
                        .find(|one| one.addr() == address.addr() || (is_other && overlap(one, address)));
                    let route = theirs.static_routes.iter().map(|route| &route.prefix);
                    let route = route.filter(|_| is_other).find(|prefix| is_within(address, prefix));
                    if let Some(clash) = clash.or(route) {
                        let problem =
                            format!("{address} overlaps {clash} of {whose}; use another network or VRF");
                        let field = format!("Interfaces[{index}].Addresses[{at}]");
                        return Err(Invalid::new(field, problem).because(Cause::NameConflict));
                    }
                }
            }
            for (index, route) in spec.static_routes.iter().enumerate().filter(|_| is_other) {
                let networks = theirs.addresses().filter(|address| is_within(address, &route.prefix));
                let routes = theirs.static_routes.iter().map(|route| &route.prefix);
                let mut clashes = networks.chain(routes.filter(|prefix| are_alike(prefix, &route.prefix)));
                if let Some(clash) = clashes.next() {
                    let problem =
                        format!("{} overlaps {clash} of {whose}; use another prefix or VRF", route.prefix);
                    let field = format!("StaticRoutes[{index}].Prefix");
                    return Err(Invalid::new(field, problem).because(Cause::NameConflict));
                }
            }
        }
        Ok(())
    }
}

/// Why an address of a network is not that of a host. The network's own address is one of all its routers in IPv6.
fn host_problem(ip: IpAddr, network: &IpNet) -> Option<String> {
    let is_anycast = ip.is_ipv6() && ip == network.network() && network.prefix_len() < 127;
    let anycast = is_anycast.then(|| format!("{ip} is the network address of {network}"));
    anycast.or_else(|| next_hop_problem(ip, network))
}

/// True when one of both networks contains the other.
fn overlap(one: &IpNet, other: &IpNet) -> bool {
    let contains = |one: &IpNet, other: IpAddr| one.trunc().contains(&other);
    contains(one, other.addr()) || contains(other, one.addr())
}

/// True when two routes overlap. A default route does with another one only.
fn are_alike(one: &IpNet, other: &IpNet) -> bool {
    one == other || (one.prefix_len() > 0 && is_within(one, other))
}

/// True when a route and the network of an address overlap. A default route leads to all that nothing else does.
fn is_within(address: &IpNet, route: &IpNet) -> bool {
    route.prefix_len() > 0 && overlap(address, route)
}

/// An attachment changed: its MTU may be above that of a device that leads a service of it into a VRF.
pub(crate) fn revalidate_mtus(store: &Store, attachment: &Key, work: &mut Work) {
    let Some(record) = store.get(attachment) else { return };
    for service in record.indexed_references.iter().filter(|named| named.kind == Kind::L2Service) {
        let users = store.referrers(service).filter(|user| user.kind == Kind::VRFAttachment);
        work.validate.extend(users.cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::host_problem;

    #[test]
    fn addresses_of_networks_are_not_of_hosts() {
        for (ip, network, is_host) in [
            ("10.1.0.1", "10.1.0.0/24", true),
            ("10.1.0.0", "10.1.0.0/24", false),
            ("10.1.0.255", "10.1.0.0/24", false),
            ("10.1.0.0", "10.1.0.0/31", true),
            ("2001:db8::1", "2001:db8::/64", true),
            ("2001:db8::", "2001:db8::/64", false),
            ("2001:db8::", "2001:db8::/127", true),
        ] {
            let problem = host_problem(ip.parse().unwrap(), &network.parse().unwrap());
            assert_eq!(problem.is_none(), is_host, "{ip} {network}: {problem:?}");
        }
    }
}
