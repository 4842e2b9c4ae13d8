//! What a node needs and has of a Subnet.

use std::net::IpAddr;

use eno_schemas::{AppliedAddresses, PodAddress, WaitingPod, has_ordinal};
use ipnet::IpNet;

use super::users::User;
use crate::node::target::NodeTarget;

/// What a node needs and has.
#[derive(Default)]
pub(super) struct Share<'a> {
    /// The node; `None`: it is gone.
    pub target: Option<&'a NodeTarget>,
    /// Its last report.
    pub report: Option<&'a AppliedAddresses>,
    /// Its agent is alive.
    pub is_alive: bool,
    /// The pods that are bound to it.
    pub pods: Vec<&'a User>,
}

impl<'a> Share<'a> {
    /// The pods that have addresses of a network, by its last report.
    pub fn used_in(&self, net: &IpNet) -> &'a [PodAddress] {
        let used = self.report.map_or(&[][..], |report| &report.used);
        let start = used.partition_point(|one| one.address < net.network());
        let end = used.partition_point(|one| one.address <= net.broadcast());
        &used[start..end.max(start)]
    }

    /// The pod that has an address.
    pub fn user_of(&self, address: IpAddr) -> Option<&'a PodAddress> {
        self.used_in(&IpNet::from(address)).first()
    }

    /// The pods that wait for any address.
    pub fn waiting(&self, is_sticky: bool) -> impl Iterator<Item = &'a WaitingPod> {
        let waiting = self.report.map_or(&[][..], |report| &report.waiting);
        waiting.iter().filter(move |pod| !is_fixed(pod, is_sticky))
    }

    /// Its pods that need an address of a block and have none.
    pub fn lacking(&self, is_sticky: bool) -> u128 {
        let used = self.report.map_or(0, |report| report.used.len());
        let pods = self.pods.iter().filter(|user| !(is_sticky && has_ordinal(&user.name))).count();
        pods.saturating_sub(used) as u128
    }
}

/// True of a pod that waits for an address of its own.
pub(super) fn is_fixed(pod: &WaitingPod, is_sticky: bool) -> bool {
    pod.address.is_some() || (is_sticky && has_ordinal(&pod.pod))
}
