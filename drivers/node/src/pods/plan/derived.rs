//! Interfaces that a pod made on ENO's macvlan or ipvlan. The kernel makes them on the host's interface below, so they
//! outlive ENO's. They end once ENO has nothing on that interface for the pod.

use std::collections::BTreeSet;

use super::{DesiredPod, Op, Planner};
use crate::netlink::{Kind, Link, Request};
use crate::pods::check::Refusal;
use crate::pods::host::HostView;
use crate::pods::kind::{self, Base};
use crate::pods::ownership::{self, OwnershipMark};

/// The host's interfaces that a pod has, or had, ENO's interfaces on. `host_number`:
/// [`Observed::host_number`](super::Observed).
pub fn granted_parents(desired: &DesiredPod<'_>, links: &[Link], host_number: Option<i32>) -> BTreeSet<u32> {
    let marked = links.iter().filter(|link| is_marked(desired, link));
    marked.filter_map(|link| host_parent(link, host_number)).chain(desired.granted.iter().copied()).collect()
}

/// True when an interface has the mark of a link of this pod.
fn is_marked(desired: &DesiredPod<'_>, link: &Link) -> bool {
    ownership::read(desired.cluster, link)
        .is_some_and(|(uid, mark)| uid == desired.uid && matches!(mark, OwnershipMark::Link(_)))
}

/// Those of the granted parents that no desired interface is on.
pub fn revoked_parents(
    desired: &DesiredPod<'_>,
    granted: &BTreeSet<u32>,
    host: &HostView<'_>,
) -> BTreeSet<u32> {
    let parent = |name: &str| host.named(name).map(|link| link.index);
    let wanted: BTreeSet<u32> = desired
        .pod
        .links
        .iter()
        .filter_map(|link| match kind::base(&link.kind) {
            Base::Host(name) => parent(name),
            _ => None,
        })
        .collect();
    granted.difference(&wanted).copied().collect()
}

/// The index of the host's interface below a macvlan, macvtap, ipvlan or ipvtap.
fn host_parent(link: &Link, host_number: Option<i32>) -> Option<u32> {
    let shares = match &link.kind {
        Kind::Macvlan { .. } | Kind::Ipvlan { .. } => true,
        Kind::Other(kind) => kind == "macvtap" || kind == "ipvtap",
        _ => false,
    };
    link.parent.filter(|_| shares && host_number.is_some() && link.parent_namespace == host_number)
}

impl Planner<'_> {
    /// Deletes what the pod made on revoked parents, and what is left of ENO in its nested namespaces.
    pub(super) fn delete_derived(&mut self) {
        let observed = self.observed;
        let revoked = revoked_parents(self.desired, &self.plan.granted, &observed.host);
        let is_derived = |link: &Link| {
            host_parent(link, observed.host_number).is_some_and(|parent| revoked.contains(&parent))
        };
        let kept: BTreeSet<u32> = self.ours.values().map(|link| link.index).collect();
        for found in observed.pod.links.iter().filter(|link| is_derived(link) && !kept.contains(&link.index))
        {
            self.delete_link(None, found);
        }
        for (number, links) in &observed.nested {
            for found in links.iter().filter(|link| is_derived(link) || is_marked(self.desired, link)) {
                let request = Request::delete_link_in(*number, &found.name, found.index);
                self.push(None, Op::Pod(request));
            }
        }
        if self.plan.steps.is_empty() {
            self.plan.granted.retain(|parent| !revoked.contains(parent));
        }
    }

    /// Refuses the first interface of ENO on a host's interface that the pod has others on. Later nobody could tell them
    /// from those that the pod makes.
    pub(super) fn check_parent(&self, parent: u32) -> Result<(), Refusal> {
        if self.plan.granted.contains(&parent) {
            return Ok(());
        }
        let ours: BTreeSet<u32> = self.ours.values().map(|link| link.index).collect();
        let other = self.observed.pod.links.iter().find(|link| {
            host_parent(link, self.observed.host_number) == Some(parent)
                && !ours.contains(&link.index)
                && !self.deleted.contains(&link.index)
        });
        other.map_or(Ok(()), |link| {
            Err(Refusal::temporary(format!(
                "the pod's interface {} is on the same interface of the host and not ENO's; a pod gets such interfaces from one hand only",
                link.name
            )))
        })
    }
}
