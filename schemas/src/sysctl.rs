//! The settings of one interface below `/proc/sys/net` that may be set for a pod.
//!
//! Safe is what changes how the pod itself treats the packets of that interface. Left out are what lets others in
//! (`route_localnet`, `accept_source_route`), what takes the kernel's memory (queue lengths) and what the kernel
//! doesn't let anyone write.

/// The safe names below `/proc/sys/net/<family>/<group>/<interface>`, ascending; `None`: there is no such
/// group.
pub fn safe_sysctls(family: &str, group: &str) -> Option<&'static [&'static str]> {
    match (family, group) {
        ("ipv4", "conf") => Some(IPV4_CONF),
        ("ipv6", "conf") => Some(IPV6_CONF),
        ("ipv4" | "ipv6", "neigh") => Some(NEIGH),
        _ => None,
    }
}

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
