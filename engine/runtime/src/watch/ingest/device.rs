//! FabricDevices: addresses of switches and the links of their ports.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use eno_core::kinds::{DevicePort, DeviceSpec, Invalid, LeadsTo};
use eno_nbi_crds as crds;
use eno_schemas::{Device, VlanSet};

use super::interface_name;

/// The port of NETCONF over SSH (RFC 6242, section 6).
const NETCONF: u16 = 830;

pub(super) fn device(source: crds::FabricDeviceSpec) -> Result<DeviceSpec, Invalid> {
    let mut known = BTreeSet::new();
    let mut ports = Vec::with_capacity(source.ports.len());
    for (index, port) in source.ports.iter().enumerate() {
        if !known.insert(port.name.as_str()) {
            let problem = format!("port {} is listed twice; list it once", port.name);
            return Err(Invalid::new(format!("Ports[{index}].Name"), problem));
        }
        ports.push(parse_port(index, port)?);
    }
    Ok(DeviceSpec {
        device: Device {
            address: if source.driver == "netconf" { host_port(&source.address)? } else { source.address },
            dialect: source.dialect,
            credential: source.credentials.map(|credentials| credentials.secret_name),
            host_key: source.host_key,
            drift: source.drift,
            audit_interval: source.audit_interval.map(audit_interval).transpose()?,
            adopt: source.adopt.as_deref().map_or(Ok(VlanSet::EMPTY), adopted)?,
            role: source.role,
            adopt_vrfs: adopted_vrfs(source.adopt_vrfs),
            neutron: source.neutron.map(Into::into),
        },
        driver: source.driver.into(),
        ports,
    })
}

fn audit_interval(seconds: u32) -> Result<NonZeroU32, Invalid> {
    NonZeroU32::new(seconds)
        .ok_or_else(|| Invalid::new("AuditInterval", "must be a number of seconds from 10 to 604800"))
}

fn adopted(text: &str) -> Result<VlanSet, Invalid> {
    text.parse()
        .map_err(|error| Invalid::new("Adopt", format!("{error}; write IDs and ranges such as 42,100-199")))
}

/// Ascending, each once.
fn adopted_vrfs(names: Vec<String>) -> Vec<String> {
    names.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

fn parse_port(index: usize, source: &crds::FabricPort) -> Result<DevicePort, Invalid> {
    let leads_to =
        match source.peer().map_err(|error| Invalid::new(format!("Ports[{index}]"), error.to_string()))? {
            crds::PortPeer::Node { node, interface } => {
                interface_name(&format!("Ports[{index}].Interface"), interface)?;
                LeadsTo::Node { node: node.into(), interface: interface.into() }
            }
            crds::PortPeer::PhysicalNetwork(name) => LeadsTo::PhysicalNetwork(name.into()),
            crds::PortPeer::Device { device, port } => {
                LeadsTo::Device { device: device.into(), port: port.into() }
            }
        };
    Ok(DevicePort {
        name: source.name.as_str().into(),
        mode: source.mode.unwrap_or_default(),
        lag: source.lag.as_deref().map(Into::into),
        leads_to,
    })
}

/// Refuses links of a device to itself; the spec alone does not contain the device's name.
pub(super) fn no_link_to_itself(name: &str, spec: &DeviceSpec) -> Result<(), Invalid> {
    let own =
        |port: &DevicePort| matches!(&port.leads_to, LeadsTo::Device { device, .. } if &**device == name);
    match spec.ports.iter().position(own) {
        None => Ok(()),
        Some(index) => {
            let problem =
                format!("{name} is this device itself; name the device at the other end of the link");
            Err(Invalid::new(format!("Ports[{index}].Device"), problem))
        }
    }
}

/// Normalises `host`, `host:port`, `address`, `address:port`, `[v6]` and `[v6]:port` to the form with a port.
fn host_port(text: &str) -> Result<String, Invalid> {
    let bad = |problem: String| Invalid::new("Address", problem);
    let no_host = || {
        bad(format!(
            "{text:?} is neither a host name nor an address with an optional port, such as leaf1.example.com, \
             192.0.2.1:830 or [2001:db8::1]:830"
        ))
    };
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or_else(no_host)?;
        address.parse::<std::net::Ipv6Addr>().map_err(|_| no_host())?;
        let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(no_host)?) };
        (format!("[{address}]"), port)
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = host.as_bytes();
        if !edge(bytes.first()) || !edge(bytes.last()) || !host.bytes().all(letters) {
            return Err(no_host());
        }
        (host.to_owned(), port)
    };
    let port = match port {
        None => NETCONF,
        Some(text) => text
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| bad(format!("port {text:?} is not a number from 1 to 65535")))?,
    };
    Ok(format!("{host}:{port}"))
}
