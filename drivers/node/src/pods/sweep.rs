//! Finding, and clearing away at once, what earlier runs have left.

use std::collections::BTreeSet;
use std::path::Path;

use eno_schemas::NodeDesired;
use nix::errno::Errno;
use rtnetlink::packet_route::link::LinkAttribute;

use super::host::{self, Host};
use super::mark::{self, LEAVING};
use super::session::Trouble;
use super::watch::Ears;
use crate::netlink::{Link, Namespace, NamespaceId, Netlink, NetlinkError, PortsVlans, Request, Snapshot};

/// Ends of pairs that were deleted on the host, by the pod's uid and the link's id.
pub type Swept = BTreeSet<(String, String)>;

/// Looks at the host's side, and deletes the ends of pairs that nothing wants: all of them at once. The calling thread
/// and `netlink` are in its namespace. `list`: its interfaces are listed even if they are known.
pub fn look(
    netlink: &mut Netlink,
    ears: &Ears,
    desired: &NodeDesired,
    allowed_masters: &BTreeSet<String>,
    list: bool,
) -> Result<(Host, Swept), NetlinkError> {
    if list {
        ears.list_host(netlink, &desired.cluster)?;
    }
    let mut busy = Snapshot::default();
    if host::has_parents(desired) {
        busy.addresses = netlink.addresses()?;
        busy.routes = netlink.routes()?;
    }
    let look = || Host::new(ears.host().unwrap_or_default(), &busy, desired, allowed_masters);
    let host = look();
    let stale: Vec<Link> = host.stale(desired).cloned().collect();
    if stale.is_empty() {
        return Ok((host, Swept::new()));
    }
    delete(netlink, &stale)?;
    ears.saw(stale.iter().map(|link| (link.index, None)), PortsVlans::new());
    let whose = |link: &Link| {
        let (uid, id) = mark::read_alias(&desired.cluster, link.alias.as_deref()?)?;
        Some((uid.to_owned(), id.to_owned()))
    };
    Ok((look(), stale.iter().filter_map(whose).collect()))
}

/// Deletes interfaces, many in the time of few: they are moved to a group of their own and deleted with it.
fn delete(netlink: &mut Netlink, links: &[Link]) -> Result<(), NetlinkError> {
    let group = |link: &Link| {
        Request::set(&link.name, link.index, "group", vec![LinkAttribute::Group(LEAVING)])
            .tolerating(Errno::ENODEV)
    };
    netlink.batch(links.iter().map(group).collect()).into_iter().collect::<Result<Vec<()>, _>>()?;
    netlink.execute(Request::delete_group(LEAVING))
}

/// Pods that namespaces in `folder` carry marks of, but those that are wanted. Moves the calling thread about.
pub fn marked(folder: &Path, cluster: &str, wanted: &BTreeSet<String>) -> Vec<(String, NamespaceId)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let look = || -> Result<_, Trouble> {
            let namespace = Namespace::open(&entry.path())?;
            namespace.enter()?;
            Ok((namespace.id(), Netlink::open()?.links()?))
        };
        // What is no namespace, or ends just now, is nobody's.
        let Ok((id, links)) = look() else { continue };
        let uids: BTreeSet<String> =
            links.iter().filter_map(|link| mark::read(cluster, link)).map(|(uid, _)| uid).collect();
        found.extend(uids.into_iter().filter(|uid| !wanted.contains(uid)).map(|uid| (uid, id)));
    }
    found
}
