//! Subnets and Routes: addresses, and orders of addresses that CEL can't express.

use std::net::IpAddr;

use eno_core::Name;
use eno_core::kinds::{Invalid, RouteSpec, SubnetSpec};
use eno_nbi_crds as crds;
use eno_schemas::{Dns, Ipam, Pool};
use ipnet::IpNet;

use super::names;

pub(super) fn subnet(source: crds::SubnetSpec) -> Result<SubnetSpec, Invalid> {
    let address = address("Address", &source.address)?;
    let ip_type = source.ip_type;
    if address.is_ipv4() != (ip_type == crds::IpType::V4) {
        let problem = format!("{address} is not an address of Type {ip_type}; change one of the two");
        return Err(Invalid::new("Address", problem));
    }
    let network = network(address, source.mask)?;
    check_network(&network, source.ipam)?;
    let allocation_pool = pools("AllocationPool", network, &source.allocation_pool)?;
    let hot_plug_pool = pools("HotPlugPool", network, &source.hot_plug_pool)?;
    for hot in &hot_plug_pool {
        if let Some(other) =
            allocation_pool.iter().find(|other| hot.start <= other.end && other.start <= hot.end)
        {
            let problem = format!(
                "{}-{} overlaps {}-{} of AllocationPool; no address may be in both",
                hot.start, hot.end, other.start, other.end
            );
            return Err(Invalid::new("HotPlugPool", problem));
        }
    }
    check_owner(source.ipam, &hot_plug_pool, source.sticky)?;
    Ok(SubnetSpec {
        ipam: source.ipam,
        network,
        allocation_pool,
        hot_plug_pool,
        sticky: source.sticky,
        routes: names("Routes", &source.routes)?.into_iter().collect::<Vec<Name>>(),
        dns: dns(source.dns.unwrap_or_default())?,
    })
}

pub(super) fn route(source: &crds::RouteSpec) -> Result<RouteSpec, Invalid> {
    let prefix = network(address("Prefix", &source.prefix)?, source.mask)?;
    let next_hop = address("NextHop", &source.next_hop)?;
    if prefix.addr().is_ipv4() != next_hop.is_ipv4() {
        let problem = format!("{next_hop} is not of the same IP version as {prefix}; change one of the two");
        return Err(Invalid::new("NextHop", problem));
    }
    Ok(RouteSpec { prefix, next_hop })
}

/// The network of an address, without host bits.
fn network(address: IpAddr, mask: u8) -> Result<IpNet, Invalid> {
    let max_prefix = if address.is_ipv4() { 32 } else { 128 };
    IpNet::new(address, mask).map(|network| network.trunc()).map_err(|_| {
        Invalid::new("Mask", format!("{mask} is too long for {address}; use at most {max_prefix}"))
    })
}

/// Checks that pods can get addresses of a network: it has host addresses beyond those that the IPAM plugin needs.
fn check_network(network: &IpNet, ipam: Ipam) -> Result<(), Invalid> {
    let is_of_hosts = match network.network() {
        IpAddr::V4(ip) => !(ip.octets()[0] == 0 || ip.is_loopback() || ip.is_multicast()),
        IpAddr::V6(ip) => {
            !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.to_ipv4_mapped().is_some())
        }
    };
    if !is_of_hosts {
        let problem = format!(
            "{network} is no network of hosts: it is unspecified, loopback, multicast or IPv4 mapped into IPv6; use another"
        );
        return Err(Invalid::new("Address", problem));
    }
    // whereabouts and host-local refuse networks of two addresses.
    let host_bits = if ipam == Ipam::Static { 1 } else { 2 };
    let max_prefix = network.max_prefix_len() - host_bits;
    if network.prefix_len() > max_prefix {
        let problem = format!(
            "{network} is too small for pods to get addresses by Ipam {ipam}; use at most {max_prefix}"
        );
        return Err(Invalid::new("Mask", problem));
    }
    Ok(())
}

/// Checks what only ENO's own addresses have or lack.
fn check_owner(ipam: Ipam, hot_plug_pool: &[Pool], sticky: bool) -> Result<(), Invalid> {
    if ipam == Ipam::Eno && !hot_plug_pool.is_empty() {
        let problem = "running pods get addresses of AllocationPool with Ipam eno; take HotPlugPool out, and widen \
                       AllocationPool by it";
        return Err(Invalid::new("HotPlugPool", problem));
    }
    if ipam != Ipam::Eno && sticky {
        let problem = format!(
            "Ipam {ipam} does not know the former address of a pod; set Ipam to eno or take Sticky out"
        );
        return Err(Invalid::new("Sticky", problem));
    }
    Ok(())
}

fn pools(field: &str, network: IpNet, source: &[crds::IpPool]) -> Result<Vec<Pool>, Invalid> {
    let mut pools: Vec<Pool> = Vec::with_capacity(source.len());
    for (index, pool) in source.iter().enumerate() {
        let start = address(&format!("{field}[{index}].Start"), &pool.start)?;
        let end = address(&format!("{field}[{index}].End"), &pool.end)?;
        for (leaf, one) in [("Start", start), ("End", end)] {
            if !network.contains(&one) {
                let problem = format!("{one} is not in {network}; use an address of the subnet");
                return Err(Invalid::new(format!("{field}[{index}].{leaf}"), problem));
            }
        }
        if start > end {
            let problem = format!("{start} comes after End {end}; swap them");
            return Err(Invalid::new(format!("{field}[{index}].Start"), problem));
        }
        if let Some(other) = pools.iter().find(|other| start <= other.end && other.start <= end) {
            let problem = format!("overlaps {}-{}; join the two", other.start, other.end);
            return Err(Invalid::new(format!("{field}[{index}]"), problem));
        }
        pools.push(Pool { start, end });
    }
    Ok(pools)
}

fn dns(source: crds::Dns) -> Result<Dns, Invalid> {
    for (index, server) in source.nameservers.iter().enumerate() {
        address(&format!("Dns.Nameservers[{index}]"), server)?;
    }
    Ok(Dns { nameservers: source.nameservers, domain: source.domain, search: source.search })
}

pub(super) fn address(field: &str, text: &str) -> Result<IpAddr, Invalid> {
    text.parse().map_err(|_| {
        let problem =
            format!("{text:?} is not an IP address without prefix length, such as 10.10.10.0 or 2001:db8::");
        Invalid::new(field, problem)
    })
}
