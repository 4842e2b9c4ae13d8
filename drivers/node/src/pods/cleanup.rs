//! Finding, and clearing away at once, what earlier runs have left.

use std::collections::BTreeSet;
use std::path::Path;

use eno_schemas::NodeDesired;
use nix::errno::Errno;
use rtnetlink::packet_route::link::LinkAttribute;

use super::host::{self, Host};
use super::monitor::NetlinkMonitor;
use super::ownership::{self, DELETION_GROUP};
use super::session::PodError;
use crate::netlink::{Link, Namespace, NamespaceId, Netlink, NetlinkError, PortsVlans, Request, Snapshot};

/// Ends of pairs that were deleted on the host, by the pod's uid and the link's id.
pub type DeletedEnds = BTreeSet<(String, String)>;

/// Looks at the host's side, and deletes the ends of pairs that nothing wants: all of them at once. The calling thread
/// and `netlink` are in its namespace. `full`: its interfaces are listed even if they are known.
pub fn read_host(
    netlink: &mut Netlink,
    monitor: &NetlinkMonitor,
    desired: &NodeDesired,
    allowed_masters: &BTreeSet<String>,
    full: bool,
) -> Result<(Host, DeletedEnds), NetlinkError> {
    if full {
        monitor.list_host(netlink, &desired.cluster)?;
    }
    let mut in_use = Snapshot::default();
    if host::has_parents(desired) {
        in_use.addresses = netlink.addresses()?;
        in_use.routes = netlink.routes()?;
    }
    let read_state =
        || Host::new(monitor.host_links().unwrap_or_default(), &in_use, desired, allowed_masters);
    let host = read_state();
    let stale: Vec<Link> = host.stale_ends(desired).cloned().collect();
    if stale.is_empty() {
        return Ok((host, DeletedEnds::new()));
    }
    delete(netlink, &stale)?;
    monitor.update_links(stale.iter().map(|link| (link.index, None)), PortsVlans::new());
    let owner = |link: &Link| {
        let (uid, id) = ownership::read_alias(&desired.cluster, link.alias.as_deref()?)?;
        Some((uid.to_owned(), id.to_owned()))
    };
    Ok((read_state(), stale.iter().filter_map(owner).collect()))
}

/// Deletes interfaces, many in the time of few: they are moved to a group of their own and deleted with it.
fn delete(netlink: &mut Netlink, links: &[Link]) -> Result<(), NetlinkError> {
    let group = |link: &Link| {
        Request::set(&link.name, link.index, "group", vec![LinkAttribute::Group(DELETION_GROUP)])
            .tolerating(Errno::ENODEV)
    };
    netlink.batch(links.iter().map(group).collect()).into_iter().collect::<Result<Vec<()>, _>>()?;
    netlink.execute(Request::delete_group(DELETION_GROUP))
}

/// Pods that namespaces in `folder` carry marks of, but those that are wanted. Moves the calling thread about.
pub fn find_marked_pods(
    folder: &Path,
    cluster: &str,
    wanted: &BTreeSet<String>,
) -> Vec<(String, NamespaceId)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let read_state = || -> Result<_, PodError> {
            let namespace = Namespace::open(&entry.path())?;
            namespace.enter()?;
            Ok((namespace.id(), Netlink::open()?.links()?))
        };
        // What is no namespace, or ends just now, is nobody's.
        let Ok((id, links)) = read_state() else { continue };
        let uids: BTreeSet<String> =
            links.iter().filter_map(|link| ownership::read(cluster, link)).map(|(uid, _)| uid).collect();
        found.extend(uids.into_iter().filter(|uid| !wanted.contains(uid)).map(|uid| (uid, id)));
    }
    found
}
