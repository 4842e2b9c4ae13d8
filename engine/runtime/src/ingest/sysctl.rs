//! Kernel parameters of one interface that concern nobody but its pod.

use eno_core::spec::Invalid;

// Left out is what lets others in, what takes the kernel's memory, and what nobody can write. Agents know the same.

/// Below `ipv4/conf/<interface>`.
const IPV4: &[&str] = &[
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

/// Below `ipv6/conf/<interface>`.
const IPV6: &[&str] = &[
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

/// Below `ipv4/neigh/<interface>` and `ipv6/neigh/<interface>`.
const NEIGHBOURS: &[&str] = &[
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

/// In a manifest it stands for the name of the interface.
const PLACEHOLDER: &str = "IFNAME";

/// The parameter in the spelling of commands, such as `ipv4/conf/rp_filter`, from that of `sysctl`
/// (`net.ipv4.conf.IFNAME.rp_filter`), with slashes or with dots.
pub(super) fn key(field: &str, text: &str) -> Result<String, Invalid> {
    let path = if text.contains('/') { text.to_owned() } else { text.replace('.', "/") };
    let path = path.strip_prefix("net/").unwrap_or(&path);
    let parts: Vec<&str> = path.split('/').collect();
    let known = match parts.as_slice() {
        [family, table, name] | [family, table, PLACEHOLDER, name] => Some((*family, *table, *name)),
        _ => None,
    };
    let list = known.and_then(|(family, table, _)| list(family, table));
    match (known, list) {
        (Some((family, table, name)), Some(list)) if list.contains(&name) => {
            Ok(format!("{family}/{table}/{name}"))
        }
        (Some((family, table, _)), Some(list)) => {
            let problem = format!(
                "unsafe sysctl {text:?}; of net.{family}.{table}.{PLACEHOLDER} those may be set: {}",
                list.join(", ")
            );
            Err(Invalid::new(field, problem))
        }
        _ => {
            let problem = format!(
                "unsafe sysctl {text:?}; only those of the interface itself may be set, such as \
                 net.ipv4.conf.{PLACEHOLDER}.rp_filter: net.ipv4.conf.{PLACEHOLDER}.{{{}}}, \
                 net.ipv6.conf.{PLACEHOLDER}.{{{}}}, net.{{ipv4,ipv6}}.neigh.{PLACEHOLDER}.{{{}}}",
                IPV4.join(","),
                IPV6.join(","),
                NEIGHBOURS.join(",")
            );
            Err(Invalid::new(field, problem))
        }
    }
}

fn list(family: &str, table: &str) -> Option<&'static [&'static str]> {
    match (family, table) {
        ("ipv4", "conf") => Some(IPV4),
        ("ipv6", "conf") => Some(IPV6),
        ("ipv4" | "ipv6", "neigh") => Some(NEIGHBOURS),
        _ => None,
    }
}

/// All of them are whole numbers.
pub(super) fn value(field: &str, text: &str) -> Result<String, Invalid> {
    match text.trim().parse::<i32>() {
        Ok(number) if number >= -1 => Ok(number.to_string()),
        _ => Err(Invalid::new(field, format!("{text:?} is not a whole number from -1 to {}", i32::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_ones_in_any_spelling() {
        for text in
            ["net.ipv4.conf.IFNAME.rp_filter", "net/ipv4/conf/IFNAME/rp_filter", "ipv4/conf/rp_filter"]
        {
            assert_eq!(key("f", text).unwrap(), "ipv4/conf/rp_filter");
        }
        let neighbours = "net.ipv6.neigh.IFNAME.base_reachable_time_ms";
        assert_eq!(key("f", neighbours).unwrap(), "ipv6/neigh/base_reachable_time_ms");
        assert_eq!(value("f", " 2 ").unwrap(), "2");
    }

    #[test]
    fn others_are_refused_by_name() {
        for text in [
            "net.ipv4.ip_forward",
            "net.ipv4.conf.all.rp_filter",
            "net.ipv4.conf.eth0.rp_filter",
            "net.ipv4.conf.IFNAME.route_localnet",
            "net/ipv4/conf/../../core/somaxconn",
            "ipv4/conf/IFNAME/../rp_filter",
            "kernel.core_pattern",
            "",
        ] {
            let refused = key("networkAttachments[0].sysctls", text).unwrap_err();
            assert!(refused.problem.starts_with(&format!("unsafe sysctl {text:?}")), "{refused}");
            assert!(
                refused.problem.contains("rp_filter, secure_redirects")
                    || refused.problem.contains("rp_filter,secure")
            );
        }
        for text in ["", "x", "-2", "1 2", "99999999999"] {
            assert!(value("f", text).is_err(), "{text}");
        }
    }
}
