//! The progress of parts of a node by the report of its agent.

use eno_schemas::{Applied, AppliedLink, HostNetwork, Item, PodLink, Report, VlanSet};

use crate::inspect::path::{State, outcome};

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
    if let Some(rejection) = report.rejected.iter().find(|rejection| covers(&rejection.item)) {
        return ((State::Refused, format!("{}: {}", rejection.item, rejection.reason)), mtu);
    }
    (outcome(report, applied.is_some_and(|applied| desired.is_subset(&applied.vlans))), mtu)
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
    if let Some(rejection) = report.rejected.iter().find(|one| one.item.covers_link(uid, &link.id)) {
        return ((State::Refused, rejection.reason.to_string()), applied);
    }
    (outcome(report, applied.is_some_and(|applied| applied.revision == link.revision)), applied)
}
