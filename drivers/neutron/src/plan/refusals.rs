//! What Neutron refused.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::VlanId;

use crate::request::Request;
use crate::view::Id;

/// What Neutron refused since the last read, with the reasons. It is not requested again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    pub(super) networks: BTreeMap<VlanId, String>,
    /// By VLAN and trunk.
    pub(super) ports: BTreeMap<(VlanId, Id), String>,
    /// By VLAN and trunk.
    pub(super) sub_ports: BTreeMap<(VlanId, Id), String>,
    /// By port.
    pub(super) removals: BTreeMap<Id, String>,
    /// By network or port.
    pub(super) changes: BTreeMap<Id, String>,
    /// Ports of ours that are sub-ports of trunks that are not listed.
    pub(super) elsewhere: BTreeSet<Id>,
}

impl Refusals {
    /// Records that Neutron refused a request.
    pub fn record(&mut self, request: &Request, reason: &str) {
        let reason = || reason.to_owned();
        match request {
            Request::CreateNetworks(new) => self.networks.extend(new.iter().map(|new| (new.vid, reason()))),
            Request::CreatePorts(new) => {
                self.ports.extend(new.iter().map(|new| ((new.vid, new.trunk.clone()), reason())));
            }
            Request::AddSubPorts { trunk, ports } => {
                self.sub_ports.extend(ports.iter().map(|(_, vid)| ((*vid, trunk.clone()), reason())));
            }
            Request::RemoveSubPorts { ports, .. } => {
                self.removals.extend(ports.iter().map(|(port, _)| (port.clone(), reason())));
            }
            Request::Update { resource, .. } | Request::Delete { resource, .. } => {
                self.changes.insert(resource.id.clone(), reason());
            }
        }
    }

    /// Records that the ports of a request are sub-ports of trunks that are not listed.
    pub fn record_elsewhere(&mut self, request: &Request) {
        match request {
            Request::AddSubPorts { ports, .. } => {
                self.elsewhere.extend(ports.iter().map(|(port, _)| port.clone()));
            }
            Request::Delete { resource, .. } => drop(self.elsewhere.insert(resource.id.clone())),
            _ => {}
        }
    }

    /// True when nothing was refused.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
