//! VRFs and VRFAttachments: distinguishers, targets and addresses.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use eno_core::kinds::{Invalid, VrfAttachmentSpec, VrfDevice, VrfInterface, VrfSpec};
use eno_nbi_crds as crds;
use eno_schemas::VrfRoute;
use ipnet::IpNet;

use super::{optional_selector, subnet};

pub(super) fn vrf(source: &crds::VRFSpec) -> Result<VrfSpec, Invalid> {
    let mut devices: Vec<VrfDevice> = Vec::with_capacity(source.devices.len());
    for (index, device) in source.devices.iter().enumerate() {
        if devices.iter().any(|known| *known.name == *device.name) {
            let problem = format!("{} is named twice; name it once", device.name);
            return Err(Invalid::new(format!("Devices[{index}].Name"), problem));
        }
        let field = format!("Devices[{index}].RouteDistinguisher");
        let distinguisher = device.route_distinguisher.as_deref();
        devices.push(VrfDevice {
            name: device.name.as_str().into(),
            route_distinguisher: distinguisher.map(|text| distinguisher_of(&field, text)).transpose()?,
        });
    }
    if devices.is_empty() {
        return Err(Invalid::new("Devices", "is empty; name at least one FabricDevice"));
    }
    let import_targets = targets("ImportTargets", &source.import_targets)?;
    let export_targets = targets("ExportTargets", &source.export_targets)?;
    let has_targets = !(import_targets.is_empty() && export_targets.is_empty());
    let is_other = |device: &VrfDevice| device.route_distinguisher.is_some() != has_targets;
    if let Some(index) = devices.iter().position(is_other) {
        let problem = "must be there together with ImportTargets or ExportTargets, on each device; leave all of them out \
                       for a VRF that is local to its devices";
        return Err(Invalid::new(format!("Devices[{index}].RouteDistinguisher"), problem));
    }
    Ok(VrfSpec {
        devices,
        device_name: source.device_name.as_deref().map(Into::into),
        import_targets,
        export_targets,
        services: optional_selector("Services", source.services.as_ref())?,
    })
}

fn targets(field: &str, source: &[String]) -> Result<Vec<String>, Invalid> {
    let all =
        source.iter().enumerate().map(|(index, text)| distinguisher_of(&format!("{field}[{index}]"), text));
    Ok(all.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect())
}

/// A route distinguisher or a route target in its shortest form (RFC 4364, section 4.2; RFC 4360, section 4).
fn distinguisher_of(field: &str, text: &str) -> Result<String, Invalid> {
    let number = |text: &str, last: u32| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| is_number && *number <= last)
    };
    let parsed = text.split_once(':').and_then(|(administrator, assigned)| {
        if let Ok(address) = administrator.parse::<Ipv4Addr>() {
            return Some(format!("{address}:{}", number(assigned, u16::MAX.into())?));
        }
        let asn = number(administrator, u32::MAX)?;
        let last = if asn <= u16::MAX.into() { u32::MAX } else { u16::MAX.into() };
        Some(format!("{asn}:{}", number(assigned, last)?))
    });
    parsed.ok_or_else(|| {
        let problem = format!(
            "{text:?} is neither <ASN>:<number> nor <IPv4 address>:<number>, such as 65000:100, 4200000000:1 or \
             192.0.2.1:100; the number is at most 65535 after an address or an ASN above 65535"
        );
        Invalid::new(field, problem)
    })
}

pub(super) fn attachment(source: &crds::VRFAttachmentSpec) -> Result<VrfAttachmentSpec, Invalid> {
    if source.interfaces.len() != 1 {
        let problem = format!("has {} entries; name exactly one device", source.interfaces.len());
        return Err(Invalid::new("Interfaces", problem));
    }
    let interfaces = source.interfaces.iter().enumerate().map(|(index, one)| interface(index, one));
    let interfaces = interfaces.collect::<Result<Vec<_>, _>>()?;
    let routes = source.static_routes.iter().enumerate().map(|(index, route)| static_route(index, route));
    let static_routes: BTreeSet<VrfRoute> = routes.collect::<Result<_, _>>()?;
    let mut hops = BTreeSet::new();
    if let Some(double) = static_routes.iter().find(|route| !hops.insert((route.prefix, route.next_hop))) {
        let problem = format!("the route to {} by {} is there twice", double.prefix, double.next_hop);
        return Err(Invalid::new("StaticRoutes", problem + "; give it once"));
    }
    Ok(VrfAttachmentSpec {
        vrf: source.vrf.as_str().into(),
        service: source.l2_service.as_str().into(),
        interfaces,
        static_routes: static_routes.into_iter().collect(),
        mtu: source.mtu.map(u32::from),
    })
}

fn interface(index: usize, source: &crds::VrfInterface) -> Result<VrfInterface, Invalid> {
    let mut addresses = BTreeSet::new();
    for (at, text) in source.addresses.iter().enumerate() {
        let field = format!("Interfaces[{index}].Addresses[{at}]");
        let address = prefixed(&field, text)?;
        if !addresses.insert(address) {
            return Err(Invalid::new(field, format!("{address} is given twice; give it once")));
        }
    }
    if addresses.is_empty() {
        let problem = "is empty; give at least one address of the service's Subnets";
        return Err(Invalid::new(format!("Interfaces[{index}].Addresses"), problem));
    }
    Ok(VrfInterface { device: source.device.as_str().into(), addresses: addresses.into_iter().collect() })
}

fn static_route(index: usize, source: &crds::VrfStaticRoute) -> Result<VrfRoute, Invalid> {
    let prefix = prefixed(&format!("StaticRoutes[{index}].Prefix"), &source.prefix)?.trunc();
    let field = format!("StaticRoutes[{index}].NextHop");
    let next_hop: IpAddr = subnet::address(&field, &source.next_hop)?;
    if prefix.addr().is_ipv4() != next_hop.is_ipv4() {
        let problem = format!("{next_hop} is not of the same IP version as {prefix}; change one of the two");
        return Err(Invalid::new(field, problem));
    }
    Ok(VrfRoute { prefix, next_hop, preference: source.preference })
}

fn prefixed(field: &str, text: &str) -> Result<IpNet, Invalid> {
    text.parse().map_err(|_| {
        let problem = format!(
            "{text:?} is not an address with its prefix length, such as 10.10.10.1/24 or 2001:db8::1/64"
        );
        Invalid::new(field, problem)
    })
}
