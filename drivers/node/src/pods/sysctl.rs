//! Settings of one interface below `/proc/sys/net`, the safe ones.
//!
//! Safe is what changes how the pod itself treats the packets of that interface. Left out are what lets others in
//! (`route_localnet`, `accept_source_route`), what takes the kernel's memory (queue lengths) and what the kernel
//! doesn't let anyone write.

use std::path::{Path, PathBuf};

use super::check::Refusal;

const IPV4_CONF: &[&str] = &[
    "accept_local",
    "accept_redirects",
    "arp_accept",
    "arp_announce",
    "arp_evict_nocarrier",
    "arp_filter",
    "arp_ignore",
    "arp_notify",
    "drop_gratuitous_arp",
    "drop_unicast_in_l2_multicast",
    "force_igmp_version",
    "forwarding",
    "ignore_routes_with_linkdown",
    "log_martians",
    "promote_secondaries",
    "proxy_arp",
    "proxy_arp_pvlan",
    "rp_filter",
    "secure_redirects",
    "send_redirects",
    "shared_media",
    "src_valid_mark",
];

const IPV6_CONF: &[&str] = &[
    "accept_dad",
    "accept_ra",
    "accept_ra_defrtr",
    "accept_ra_from_local",
    "accept_ra_min_hop_limit",
    "accept_ra_mtu",
    "accept_ra_pinfo",
    "accept_ra_rt_info_max_plen",
    "accept_ra_rt_info_min_plen",
    "accept_ra_rtr_pref",
    "accept_redirects",
    "addr_gen_mode",
    "autoconf",
    "dad_transmits",
    "disable_ipv6",
    "drop_unicast_in_l2_multicast",
    "drop_unsolicited_na",
    "enhanced_dad",
    "force_mld_version",
    "forwarding",
    "hop_limit",
    "ignore_routes_with_linkdown",
    "keep_addr_on_down",
    "ndisc_evict_nocarrier",
    "ndisc_notify",
    "optimistic_dad",
    "proxy_ndp",
    "router_solicitation_delay",
    "router_solicitation_interval",
    "router_solicitations",
    "suppress_frag_ndisc",
    "temp_prefered_lft",
    "temp_valid_lft",
    "use_oif_addrs_only",
    "use_optimistic",
    "use_tempaddr",
];

const NEIGH: &[&str] = &[
    "anycast_delay",
    "app_solicit",
    "base_reachable_time",
    "base_reachable_time_ms",
    "delay_first_probe_time",
    "gc_stale_time",
    "interval_probe_time_ms",
    "locktime",
    "mcast_resolicit",
    "mcast_solicit",
    "proxy_delay",
    "retrans_time",
    "retrans_time_ms",
    "ucast_solicit",
];

/// What turns IPv6 off on an interface: it has to be on for one that gets an IPv6 address.
pub const DISABLE_IPV6: &str = "ipv6/conf/disable_ipv6";

/// Digits that a value has at most, with its sign.
const VALUE: usize = 11;

/// Refuses what is not on the list, and values that are no numbers.
pub fn check(key: &str, value: &str) -> Result<(), Refusal> {
    let known = match parts(key) {
        Some(("ipv4", "conf", name)) => IPV4_CONF.contains(&name),
        Some(("ipv6", "conf", name)) => IPV6_CONF.contains(&name),
        Some(("ipv4" | "ipv6", "neigh", name)) => NEIGH.contains(&name),
        _ => false,
    };
    if !known {
        return Err(Refusal::never(format!("the sysctl {key} is not on the list of those that are safe")));
    }
    if value.is_empty() || value.len() > VALUE || value.parse::<i64>().is_err() {
        return Err(Refusal::never(format!("the value of the sysctl {key} is not a number")));
    }
    Ok(())
}

/// Where it is for one interface, below `/proc/sys/net`. The name of an interface has no `/` in it.
pub fn path(key: &str, interface: &str) -> Option<PathBuf> {
    let (family, group, name) = parts(key)?;
    Some(Path::new(family).join(group).join(interface).join(name))
}

/// The same number.
pub fn same(a: &str, b: &str) -> bool {
    match (a.trim().parse::<i64>(), b.trim().parse::<i64>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a.trim() == b.trim(),
    }
}

fn parts(key: &str) -> Option<(&str, &str, &str)> {
    let mut parts = key.split('/');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed() {
        assert!(check("ipv4/conf/rp_filter", "2").is_ok());
        assert!(check("ipv6/conf/accept_ra", "0").is_ok());
        assert!(check("ipv4/neigh/gc_stale_time", "60").is_ok());
        assert!(check(DISABLE_IPV6, "0").is_ok());
        for bad in [
            "ipv4/conf/route_localnet",
            "ipv4/conf/accept_source_route",
            "ipv4/conf/../rp_filter",
            "ipv4/conf/rp_filter/x",
            "ipv4/ip_forward",
            "ipv4/neigh/unres_qlen_bytes",
            "core/conf/rp_filter",
            "",
        ] {
            assert!(check(bad, "1").is_err(), "{bad}");
        }
        for bad in ["", "x", "1 2", "1\n", "123456789012"] {
            assert!(check("ipv4/conf/rp_filter", bad).is_err(), "{bad:?}");
        }
        assert_eq!(path("ipv4/conf/rp_filter", "eth0.1"), Some("ipv4/conf/eth0.1/rp_filter".into()));
        assert!(same("1\n", "1") && same("-1", " -1 ") && !same("1", "2"));
    }
}
