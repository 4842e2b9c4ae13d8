//! Address management: `ipam` of a CNI configuration.

use std::net::IpAddr;

use eno_schemas::{Dns, Ipam, NadSubnet, Pool};
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use serde::Serialize;

use super::UnsupportedAttachment;

/// `ipam`. It has no gateway: routes say what a pod reaches beyond its subnets.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum IpamConfig<'a> {
    Whereabouts {
        #[serde(flatten)]
        ranges: WhereaboutsRanges,
        /// whereabouts keeps one pool for each range in the cluster, and one more for each name.
        #[serde(rename = "network_name", skip_serializing_if = "Option::is_none")]
        network_name: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        routes: Vec<Route>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dns: Option<&'a Dns>,
    },
    /// host-local has no `dns`.
    HostLocal {
        /// One address is taken from each of the outer entries.
        ranges: Vec<Vec<LocalRange>>,
        /// host-local keeps the addresses below it, in a directory with the `name` of the configuration.
        #[serde(skip_serializing_if = "Option::is_none")]
        data_dir: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        routes: Vec<Route>,
    },
    /// The plugin looks up each Subnet in the files that the node's agent keeps.
    #[serde(rename = "eno-ipam")]
    Eno {
        pools: Vec<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        routes: Vec<Route>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dns: Option<&'a Dns>,
    },
    Static {
        addresses: Vec<Address>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        routes: Vec<Route>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dns: Option<&'a Dns>,
    },
}

/// whereabouts takes one address from each entry of `ipRanges`, so the pools of one subnet can't be entries of
/// their own: they are one range from the first to the last, less the gaps.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WhereaboutsRanges {
    One(WhereaboutsRange),
    Two {
        #[serde(rename = "ipRanges")]
        ranges: Vec<WhereaboutsRange>,
    },
}

#[derive(Serialize)]
pub(super) struct WhereaboutsRange {
    /// `network/length` or `first-last/length`.
    range: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<IpNet>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LocalRange {
    subnet: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_start: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    range_end: Option<IpAddr>,
}

#[derive(Serialize)]
pub(super) struct Address {
    /// `address/length`.
    address: String,
}

#[derive(Serialize)]
pub(super) struct Route {
    dst: IpNet,
    gw: IpAddr,
}

/// The directory of host-local, unless the configuration names another.
const HOST_LOCAL_DIR: &str = "/var/lib/cni/networks";

/// `ipam` for no, one or two subnets.
pub(super) fn ipam<'a>(
    subnets: &'a [NadSubnet],
    pool: Option<&'a str>,
    dns: Option<&'a Dns>,
) -> Result<Option<IpamConfig<'a>>, UnsupportedAttachment> {
    let Some((first, others)) = subnets.split_first() else { return Ok(None) };
    for (at, subnet) in others.iter().enumerate() {
        if subnet.ipam != first.ipam {
            return Err(UnsupportedAttachment::MixedIpam(first.network, subnet.network));
        }
        let v4 = subnet.network.addr().is_ipv4();
        if let Some(same) = subnets[..=at].iter().find(|earlier| earlier.network.addr().is_ipv4() == v4) {
            return Err(UnsupportedAttachment::SameFamily(same.network, subnet.network));
        }
    }
    let routes = subnets
        .iter()
        .flat_map(|subnet| &subnet.routes)
        .map(|route| Route { dst: route.prefix, gw: route.next_hop })
        .collect();
    Ok(Some(match first.ipam {
        Ipam::Whereabouts => {
            let range = whereabouts(first);
            let ranges = if others.is_empty() {
                WhereaboutsRanges::One(range)
            } else {
                let ranges = std::iter::once(range).chain(others.iter().map(whereabouts)).collect();
                WhereaboutsRanges::Two { ranges }
            };
            IpamConfig::Whereabouts { ranges, network_name: pool, routes, dns }
        }
        Ipam::HostLocal => IpamConfig::HostLocal {
            ranges: subnets.iter().map(host_local).collect(),
            // A network has the name of an attachment: no directory of addresses has this one.
            data_dir: pool.map(|pool| format!("{HOST_LOCAL_DIR}/.eno/{pool}")),
            routes,
        },
        Ipam::Eno => {
            let name = |subnet: &'a NadSubnet| {
                subnet.subnet.as_deref().ok_or(UnsupportedAttachment::UnnamedSubnet(subnet.network))
            };
            IpamConfig::Eno { pools: subnets.iter().map(name).collect::<Result<_, _>>()?, routes, dns }
        }
        Ipam::Static => {
            let addresses = subnets.iter().map(static_address).collect::<Result<_, _>>()?;
            IpamConfig::Static { addresses, routes, dns }
        }
    }))
}

/// The resolver settings of all subnets together, `None` when there are none.
pub(super) fn dns(subnets: &[NadSubnet]) -> Option<Dns> {
    let mut all = Dns::default();
    for dns in subnets.iter().map(|subnet| &subnet.dns) {
        for (from, to) in [(&dns.nameservers, &mut all.nameservers), (&dns.search, &mut all.search)] {
            for entry in from {
                if !to.contains(entry) {
                    to.push(entry.clone());
                }
            }
        }
        all.domain = all.domain.or_else(|| dns.domain.clone());
    }
    (!all.is_empty()).then_some(all)
}

fn whereabouts(subnet: &NadSubnet) -> WhereaboutsRange {
    let pools = merged(&subnet.pools);
    let range = match (pools.first(), pools.last()) {
        (Some(first), Some(last)) => format!("{}-{}/{}", first.start, last.end, subnet.network.prefix_len()),
        _ => subnet.network.to_string(),
    };
    let exclude = pools.windows(2).flat_map(|pair| between(pair[0].end, pair[1].start)).collect();
    WhereaboutsRange { range, exclude }
}

fn host_local(subnet: &NadSubnet) -> Vec<LocalRange> {
    let pools = merged(&subnet.pools);
    if pools.is_empty() {
        return vec![LocalRange { subnet: subnet.network, range_start: None, range_end: None }];
    }
    pools
        .into_iter()
        .map(|pool| LocalRange {
            subnet: subnet.network,
            range_start: Some(pool.start),
            range_end: Some(pool.end),
        })
        .collect()
}

fn static_address(subnet: &NadSubnet) -> Result<Address, UnsupportedAttachment> {
    let pool = subnet.pools.first().ok_or(UnsupportedAttachment::StaticPool(subnet.network))?;
    Ok(Address { address: format!("{}/{}", pool.start, subnet.network.prefix_len()) })
}

/// Merges pools to ascending ones that neither overlap nor touch: host-local refuses overlaps.
fn merged(pools: &[Pool]) -> Vec<Pool> {
    let mut sorted = pools.to_vec();
    sorted.sort_by_key(|pool| (pool.start, pool.end));
    let mut merged: Vec<Pool> = Vec::with_capacity(sorted.len());
    for pool in sorted {
        match merged.last_mut() {
            Some(last) if next(last.end).is_none_or(|next| pool.start <= next) => {
                last.end = last.end.max(pool.end);
            }
            _ => merged.push(pool),
        }
    }
    merged
}

/// The fewest networks that cover the addresses between two others, exclusive.
fn between(after: IpAddr, before: IpAddr) -> Vec<IpNet> {
    match (next(after), previous(before)) {
        (Some(IpAddr::V4(start)), Some(IpAddr::V4(end))) => {
            Ipv4Subnets::new(start, end, 0).map(IpNet::V4).collect()
        }
        (Some(IpAddr::V6(start)), Some(IpAddr::V6(end))) => {
            Ipv6Subnets::new(start, end, 0).map(IpNet::V6).collect()
        }
        _ => Vec::new(),
    }
}

fn next(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(v6) => v6.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

fn previous(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => v4.to_bits().checked_sub(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(v6) => v6.to_bits().checked_sub(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(start: u32, end: u32) -> Pool {
        Pool { start: IpAddr::V4(start.into()), end: IpAddr::V4(end.into()) }
    }

    fn bits(address: IpAddr) -> u32 {
        match address {
            IpAddr::V4(v4) => v4.to_bits(),
            IpAddr::V6(_) => unreachable!("only IPv4 is generated"),
        }
    }

    proptest! {
        /// The range without its exclusions equals the pools, address by address.
        #[test]
        fn host_local_ranges_exclude_gaps_between_pools(spans in proptest::collection::vec((0u32..2000, 0u32..60), 1..8)) {
            let base = 0x0a00_0000;
            let pools: Vec<Pool> = spans.iter().map(|(at, len)| pool(base + at, base + at + len)).collect();
            let merged = merged(&pools);
            let excluded: Vec<IpNet> =
                merged.windows(2).flat_map(|pair| between(pair[0].end, pair[1].start)).collect();
            let (first, last) = (bits(merged[0].start), bits(merged[merged.len() - 1].end));
            for address in first..=last {
                let ip = IpAddr::V4(address.into());
                let wanted = pools.iter().any(|pool| pool.start <= ip && ip <= pool.end);
                prop_assert_eq!(wanted, !excluded.iter().any(|net| net.contains(&ip)));
            }
            for pair in merged.windows(2) {
                prop_assert!(bits(pair[0].end) + 1 < bits(pair[1].start));
            }
        }
    }
}
