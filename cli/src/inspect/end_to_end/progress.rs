//! The progress of parts of a node by the report of its agent.

use eno_schemas::{Applied, AppliedLink, HostNetwork, Item, PodLink, Report, VlanSet};

use crate::inspect::path::{State, state_of};

/// The progress of VLANs on a network of a host, and its MTU.
pub(super) fn network_progress(
    report: &Report,
    name: &str,
    network: &HostNetwork,
    vlans: &VlanSet,
) -> ((State, String), Option<u32>) {
    let desired = match network {
        HostNetwork::Ovs { vlans: all, .. }
        | HostNetwork::Bridge { vlans: all, .. }
        | HostNetwork::Master { vlans: all, .. } => all.intersection(vlans),
        HostNetwork::PodBridge { .. } => VlanSet::EMPTY,
    };
    let covers = |item: &Item| match item.vlan {
        Some(vid) => desired.contains(vid) && item.covers(vid, name),
        None => item.pod.is_none() && item.port.as_deref().is_none_or(|own| own == name),
    };
    let applied = match &report.applied {
        Some(Applied::Node { networks, .. }) => networks.get(name),
        _ => None,
    };
    let mtu = applied.and_then(|applied| applied.mtu);
    let rejections = report.rejected.iter().filter(|rejection| covers(&rejection.item));
    (state_of(report, rejections, applied.is_some_and(|applied| desired.is_subset(&applied.vlans))), mtu)
}

/// The progress of an interface in a pod, and what is observed of it.
pub(super) fn link_progress<'a>(
    report: &'a Report,
    uid: &str,
    link: &PodLink,
) -> ((State, String), Option<&'a AppliedLink>) {
    let applied = match &report.applied {
        Some(Applied::Node { pods, .. }) => pods.get(uid).and_then(|links| links.get(&link.id)),
        _ => None,
    };
    let rejections = report.rejected.iter().filter(|one| one.item.covers_link(uid, &link.id));
    let is_applied = applied.is_some_and(|applied| applied.revision == link.revision);
    (state_of(report, rejections, is_applied), applied)
}
