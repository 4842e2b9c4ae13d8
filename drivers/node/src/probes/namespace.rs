//! The network namespace of probes. It asks and answers for link addresses, and is silent to everything else. On request
//! it answers echo requests too.
//!
//! Only this process holds it open: it ends with the process, and so does every interface in it.

use std::path::{Path, PathBuf};

use super::ProbeError;
use crate::netlink::{Namespace, Netlink, Request};

/// The settings, below `/proc/sys/net`. Those of IPv4 are the node's at first, and its IPv4 may forward.
const SYSCTLS: [(&str, &str); 19] = [
    ("ipv4/ip_forward", "0"),
    ("ipv4/icmp_echo_ignore_all", "1"),
    // Sockets for echo requests need no capability then.
    ("ipv4/ping_group_range", "0 2147483647"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/all/forwarding", "0"),
    ("ipv6/conf/default/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
    ("ipv6/conf/default/autoconf", "0"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/keep_addr_on_down", "0"),
    // Duplicates are asked for at once, and then each second.
    ("ipv6/conf/default/accept_dad", "1"),
    ("ipv6/conf/default/dad_transmits", "4"),
    ("ipv6/conf/default/enhanced_dad", "1"),
    ("ipv6/conf/default/router_solicitation_delay", "0"),
    // An answer in fragments is none: it would hide that it is too large.
    ("ipv6/ip6frag_low_thresh", "0"),
    ("ipv6/ip6frag_high_thresh", "0"),
    (ECHO_IGNORE_ALL, "1"),
    ("ipv6/icmp/echo_ignore_multicast", "1"),
];

/// Whether echo requests are ignored.
const ECHO_IGNORE_ALL: &str = "ipv6/icmp/echo_ignore_all";

/// Makes the namespace; `proc_sys_net`: `/proc/sys/net`, writable.
pub async fn create(proc_sys_net: PathBuf) -> Result<Namespace, ProbeError> {
    let made = tokio::task::spawn_blocking(Namespace::create).await;
    let namespace = made.map_err(|error| ProbeError::Other(error.to_string()))??;
    namespace.run(move || prepare(&proc_sys_net)).await??;
    Ok(namespace)
}

/// Answers echo requests in the namespace from now on, or no more.
pub async fn set_echo(namespace: &Namespace, proc_sys_net: PathBuf, on: bool) -> Result<(), ProbeError> {
    namespace.run(move || write(&proc_sys_net, ECHO_IGNORE_ALL, if on { "0" } else { "1" })).await?
}

/// Writes a sysctl of the calling thread's namespace.
fn write(proc_sys_net: &Path, key: &str, value: &str) -> Result<(), ProbeError> {
    let path = proc_sys_net.join(key);
    std::fs::write(&path, value).map_err(|source| ProbeError::File { path, source })
}

/// Prepares the calling thread's namespace, which has no interface but `lo`.
fn prepare(proc_sys_net: &Path) -> Result<(), ProbeError> {
    for (key, value) in SYSCTLS {
        write(proc_sys_net, key, value)?;
    }
    let mut netlink = Netlink::open()?;
    let lo = netlink.index_of("lo")?;
    let requests = vec![
        // Without a first address of IPv4 the kernel takes every address for a broadcast, and never asks.
        Request::set_up("lo", lo, true),
        Request::set_up("lo", lo, false),
        // The rule of own addresses is the first one, so it is made anew behind one that drops. Neighbour discovery needs
        // no route, and nothing but echo gets one: not even an error is sent.
        Request::drop_packets(1, true),
        Request::add_local_rule(2),
        Request::route_echo(3),
        Request::drop_packets(4, false),
        Request::delete_local_rule(0),
    ];
    netlink.batch(requests).into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(())
}
