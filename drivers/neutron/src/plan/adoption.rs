//! What others have in the place of ours: it is refused, or adopted.

use eno_schemas::{Item, VlanId};

use super::planner::Planner;
use crate::mark::offer_tag;
use crate::request::{Request, Resource};
use crate::text::shown;
use crate::view::{Id, Network};

impl Planner<'_> {
    /// A network of others is the VLAN.
    pub(super) fn adopt_network(&mut self, vid: VlanId, network: &Network) {
        let Network { id, name, description, .. } = network;
        let what = format!(
            "VLAN {vid} of physical network {} is that of network {} ({id})",
            self.attributes.physical_network().unwrap_or_default(),
            shown(name)
        );
        let reason = if self.mark.is_of_other_cluster(name, description) {
            format!("{what}, which belongs to another cluster")
        } else if network.project_id != self.view.project {
            format!(
                "{what}, which is another project's: choose another VLAN, or have the network tagged {} and trust \
                 its project in Neutron.TrustedProjects",
                offer_tag(vid)
            )
        } else if !self.desired.device.adopt.contains(vid) {
            format!(
                "{what}, which is not ours: delete it there, have the VLAN adopted, or give the network the tag {} \
                 to have it used as it is",
                offer_tag(vid)
            )
        } else if let Some(reason) = self.refusals.changes.get(id) {
            reason.clone()
        } else {
            let resource = Resource::network(id, vid);
            let (revision, attributes) = (network.revision_number, self.attributes.mark_of_network(vid));
            self.changes.push(Request::Update { resource, revision, attributes });
            return;
        };
        self.reject(Item::vlan(vid), reason);
    }

    /// A port of others is the sub-port of a trunk for the VLAN.
    pub(super) fn adopt_sub_port(&mut self, trunk: &Id, vid: VlanId, occupant: &str, network: &str) {
        let port = self.view.ports.get(occupant);
        let what = format!(
            "the sub-port of trunk {} with the segmentation id {vid} is port {} ({occupant})",
            self.trunk_name(trunk),
            shown(port.map(|port| port.name.as_str()).unwrap_or_default())
        );
        let reason = match port {
            None => format!("{what}, which this credential can't see: take it off the trunk"),
            Some(port) if self.mark.is_of_other_cluster(&port.name, &port.description) => {
                format!("{what}, which belongs to another cluster")
            }
            Some(_) if !self.desired.device.adopt.contains(vid) => {
                format!("{what}, which is not ours: take it off the trunk, or have the VLAN adopted")
            }
            Some(port) if port.network_id != network => format!(
                "{what} on network {}, and VLAN {vid} is that of network {network}, so it can't be adopted: take it \
                 off the trunk",
                port.network_id
            ),
            Some(port) => {
                let Some(reason) = self.refusals.changes.get(occupant) else {
                    let resource = Resource::port(&port.id, vid);
                    let (revision, attributes) = (port.revision_number, self.attributes.mark_of(vid));
                    self.changes.push(Request::Update { resource, revision, attributes });
                    return;
                };
                reason.clone()
            }
        };
        self.reject_on(trunk, vid, &reason);
    }
}
