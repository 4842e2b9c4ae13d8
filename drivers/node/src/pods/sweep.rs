//! Finding, and clearing away at once, what earlier runs have left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use eno_schemas::{HostNetwork, NodeDesired};
use nix::errno::Errno;
use rtnetlink::packet_route::link::LinkAttribute;

use super::host::{self, Host};
use super::mark::{self, LEAVING};
use super::session::Trouble;
use crate::netlink::{Link, Namespace, NamespaceId, Netlink, NetlinkError, Request, Snapshot};

/// Ends of pairs that were deleted on the host, by the pod's uid and the link's id.
pub type Swept = BTreeSet<(String, String)>;

/// Looks at the host's side, and deletes the ends of pairs that nothing wants: all of them at once.
pub fn look(
    netlink: &mut Netlink,
    desired: &NodeDesired,
    allowed_masters: &BTreeSet<String>,
) -> Result<(Host, Swept), NetlinkError> {
    let mut found = Snapshot { links: netlink.links()?, ..Snapshot::default() };
    if host::has_parents(desired) {
        found.addresses = netlink.addresses()?;
        found.routes = netlink.routes()?;
    }
    let mut host = Host::new(found, &desired.networks, allowed_masters);
    let stale: Vec<Link> = host.stale(desired).cloned().collect();
    if !stale.is_empty() {
        delete(netlink, &stale)?;
    }
    let mut swept = Swept::new();
    for link in &stale {
        host.forget(link.index);
        let whose = link.alias.as_deref().and_then(|alias| mark::read_alias(&desired.cluster, alias));
        swept.extend(whose.map(|(uid, id)| (uid.to_owned(), id.to_owned())));
    }
    Ok((host, swept))
}

/// Looks at what has these names, on a host where nothing is to be deleted.
pub fn look_at(
    netlink: &mut Netlink,
    names: &BTreeSet<String>,
    networks: &BTreeMap<String, HostNetwork>,
) -> Result<Host, NetlinkError> {
    let mut found = Snapshot::default();
    for name in names {
        found.links.extend(netlink.link_named(name)?);
    }
    Ok(Host::new(found, networks, &BTreeSet::new()))
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
