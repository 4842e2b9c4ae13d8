//! Finds interfaces that earlier reconciles have left, and deletes them in bulk.

use std::collections::BTreeSet;
use std::path::Path;

use eno_schemas::{NodeDesired, OvsDatapath};
use nix::errno::Errno;

use super::host::{self, Host};
use super::monitor::NetlinkMonitor;
use super::ownership::{self, DELETION_GROUP};
use super::plan::Setting;
use super::session::PodError;
use crate::netlink::{Link, Namespace, NamespaceId, Netlink, NetlinkError, PortsVlans, Request, Snapshot};

/// Host ends of veth pairs that were deleted, as (pod uid, link id).
pub type DeletedEnds = BTreeSet<(String, String)>;

/// Reads the state of the host, and deletes all undesired host ends of veth pairs at once. The calling thread and
/// `netlink` are in the host's namespace. `full`: interfaces are listed even if they are cached.
pub fn read_host(
    netlink: &mut Netlink,
    monitor: &NetlinkMonitor,
    desired: &NodeDesired,
    (allowed_masters, ovs_datapath): (&BTreeSet<String>, OvsDatapath),
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
    let read_state = || {
        let links = monitor.lock().view.host_links();
        Host::new(links.unwrap_or_default(), &in_use, desired, allowed_masters, ovs_datapath)
    };
    let host = read_state();
    let stale: Vec<Link> = host.stale_ends(desired).cloned().collect();
    if stale.is_empty() {
        return Ok((host, DeletedEnds::new()));
    }
    delete(netlink, &stale)?;
    let gone = stale.iter().map(|link| (link.index, None));
    monitor.lock().view.host_read(gone, PortsVlans::new());
    let owner = |link: &Link| {
        let (uid, id) = ownership::read_alias(&desired.cluster, link.alias.as_deref()?)?;
        Some((uid.to_owned(), id.to_owned()))
    };
    Ok((read_state(), stale.iter().filter_map(owner).collect()))
}

/// Deletes interfaces in bulk: they are moved to a group of their own, which is deleted in one request.
fn delete(netlink: &mut Netlink, links: &[Link]) -> Result<(), NetlinkError> {
    let group = |link: &Link| Setting::Group(DELETION_GROUP).of(link).tolerating(Errno::ENODEV);
    netlink.batch(links.iter().map(group).collect()).into_iter().collect::<Result<Vec<()>, _>>()?;
    netlink.execute(Request::delete_group(DELETION_GROUP))
}

/// Pods whose marks are in namespaces in `folder`, without the `wanted` ones. Each has its namespace's id. The calling
/// thread enters those namespaces.
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
            Ok((namespace.id(), Netlink::open_in_pod()?.links()?))
        };
        // Files that are no namespaces, and namespaces that end meanwhile, are skipped.
        let Ok((id, links)) = read_state() else { continue };
        let uids: BTreeSet<String> =
            links.iter().filter_map(|link| ownership::read(cluster, link)).map(|(uid, _)| uid).collect();
        found.extend(uids.into_iter().filter(|uid| !wanted.contains(uid)).map(|uid| (uid, id)));
    }
    found
}
