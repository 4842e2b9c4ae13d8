//! Where each network is on switches, where it was, and which switch rejected where it is to be.
//!
//! A network that a switch rejects within a transaction is *withheld*. It stays where it was last confirmed on every
//! switch until its spec changes, the switch reports on its own, or a retry is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{RoutedInterface, VlanId};

use crate::{Confirmed, Key, Name};

use super::topology::Ports;

/// A VLAN and the ports that carry it.
pub type Plan = (VlanId, Arc<Ports>);

/// By device: how a VLAN is led into a VRF there.
pub type Routed = BTreeMap<Name, Arc<RoutedInterface>>;

/// The placement of one network.
#[derive(Debug, Default)]
pub struct Placement {
    /// What its spec wants, in components of the fabric where it holds its VLAN.
    pub desired: Option<Plan>,
    /// What switches are commanded: `desired`, or what stays of it while a switch rejects it.
    pub planned: Option<Plan>,
    /// How its spec wants it led into VRFs, on devices of `desired`.
    pub desired_routed: Routed,
    /// How devices are commanded to lead it into VRFs.
    pub routed: Routed,
    /// Where it was confirmed when a switch rejected `desired`.
    pub confirmed: Option<Confirmed>,
    /// The switch that rejected `desired`.
    pub rejected_by: Option<Rejection>,
    /// While it moves to another VLAN: the VLANs involved, until every switch has confirmed.
    pub vlans: BTreeSet<VlanId>,
}

/// The rejection of a network by a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The switch. `None`: an earlier version wrote the status and did not tell.
    pub device: Option<Name>,
    /// The switch, the hop and the switch's own message.
    pub message: String,
    /// The same request may succeed later.
    pub retryable: bool,
    /// A part of the switch did not answer: nothing is known to be wrong with the network.
    pub unreachable: bool,
    /// The number of rejections in a row, from 1.
    pub attempt: u32,
    /// How the network is planned.
    pub mode: PlanMode,
}

/// How a rejected network is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanMode {
    /// As desired: it is tried again.
    Retry,
    /// The part of its confirmed placement that is still desired.
    Reduce,
    /// Its confirmed placement.
    Freeze,
}

impl Rejection {
    /// True while the network is not tried again.
    pub fn is_withheld(&self) -> bool {
        self.mode != PlanMode::Retry
    }
}

impl Placement {
    /// The rejection of a network that is not tried again now.
    pub fn withheld(&self) -> Option<&Rejection> {
        self.rejected_by.as_ref().filter(|rejection| rejection.is_withheld())
    }

    /// True when the network was confirmed on this port.
    pub fn confirmed_on(&self, vid: VlanId, device: &Name, port: &str) -> bool {
        self.confirmed.as_ref().is_some_and(|confirmed| {
            confirmed.vlan == vid && confirmed.ports.get(device).is_some_and(|ports| ports.contains(port))
        })
    }

    fn is_empty(&self) -> bool {
        self.desired.is_none()
            && self.planned.is_none()
            && self.rejected_by.is_none()
            && self.vlans.is_empty()
    }
}

/// The placements of all networks.
#[derive(Debug, Default)]
pub struct Placements {
    /// By network.
    all: HashMap<Key, Placement>,
    /// The networks that a switch rejected.
    rejected: BTreeSet<Key>,
    /// The networks that move to another VLAN.
    moving: BTreeSet<Key>,
    /// By object: the switches that may still carry VLANs of it that were removed.
    left: HashMap<Key, BTreeSet<Name>>,
}

impl Placements {
    /// The placement of a network.
    pub fn get(&self, network: &Key) -> Option<&Placement> {
        self.all.get(network)
    }

    /// The networks with a placement.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.all.keys()
    }

    /// What switches are commanded of a network.
    pub fn planned(&self, network: &Key) -> Option<&Plan> {
        self.all.get(network)?.planned.as_ref()
    }

    /// The rejection of a network.
    pub fn rejection(&self, network: &Key) -> Option<&Rejection> {
        self.all.get(network)?.rejected_by.as_ref()
    }

    /// The VLANs that are involved while a network moves to another one.
    pub fn vlans(&self, network: &Key) -> impl Iterator<Item = VlanId> {
        self.all.get(network).into_iter().flat_map(|placement| placement.vlans.iter().copied())
    }

    /// The networks that a switch rejected.
    pub fn rejected(&self) -> &BTreeSet<Key> {
        &self.rejected
    }

    /// The networks that move to another VLAN, with the VLANs involved.
    pub fn moving(&self) -> impl Iterator<Item = (&Key, &BTreeSet<VlanId>)> {
        self.moving.iter().filter_map(|key| Some((key, &self.all.get(key)?.vlans)))
    }

    /// True when no network is rejected or moves to another VLAN.
    pub fn all_settled(&self) -> bool {
        self.rejected.is_empty() && self.moving.is_empty()
    }

    /// Changes the placement of a network.
    pub fn update<T>(&mut self, network: &Key, change: impl FnOnce(&mut Placement) -> T) -> T {
        let placement = self.all.entry(network.clone()).or_default();
        let result = change(placement);
        for (index, holds) in [
            (&mut self.rejected, placement.rejected_by.is_some()),
            (&mut self.moving, !placement.vlans.is_empty()),
        ] {
            if !holds {
                index.remove(network);
            } else if !index.contains(network) {
                index.insert(network.clone());
            }
        }
        if placement.is_empty() {
            self.all.remove(network);
        }
        result
    }

    /// Notes switches that may still carry VLANs of an object that were removed.
    pub fn note_left(&mut self, object: &Key, devices: impl IntoIterator<Item = Name>) {
        let mut devices = devices.into_iter().peekable();
        if devices.peek().is_some() {
            self.left.entry(object.clone()).or_default().extend(devices);
        }
    }

    /// The switches that may still carry VLANs of an object that were removed.
    pub fn left(&self, object: &Key) -> impl Iterator<Item = &Name> {
        self.left.get(object).into_iter().flatten()
    }

    /// Drops what is known of the switches that an object left: it is gone.
    pub fn forget_left(&mut self, object: &Key) {
        self.left.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn update_keeps_the_indices_and_drops_what_is_empty() {
        let key = Key::cluster(Kind::L2Service, &"s".into());
        let vid = VlanId::new(100).unwrap();
        let mut placements = Placements::default();
        placements.update(&key, |placement| placement.vlans.insert(vid));
        assert_eq!(placements.moving().map(|(key, _)| key).collect::<Vec<_>>(), [&key]);
        let rejection = Rejection {
            device: None,
            message: String::new(),
            retryable: true,
            unreachable: false,
            attempt: 1,
            mode: PlanMode::Freeze,
        };
        placements.update(&key, |placement| placement.rejected_by = Some(rejection));
        assert!(placements.rejected().contains(&key) && !placements.all_settled());
        placements.update(&key, |placement| placement.vlans.clear());
        placements.update(&key, |placement| placement.rejected_by = None);
        assert!(placements.all_settled() && placements.get(&key).is_none());
    }
}
