//! Notes about what was changed by another hand.

use eno_fabric_driver::report::DRIFT;
use eno_schemas::{Item, Note};

use crate::plan::Plan;
use crate::request::Request;
use crate::view::View;

/// Notes about external changes: what a plan changes although the whole state was verified before.
pub(crate) fn drift_notes(planned: &Plan, view: &View) -> Vec<Note> {
    let name_of = |id: &str| {
        let listed = view.trunk_of.iter().find(|(_, trunk)| *trunk == id);
        listed.map_or(id.to_owned(), |(name, _)| name.clone())
    };
    let note = |request: &Request| {
        let vlans = request.vlans();
        let (item, message) = match request {
            Request::CreateNetworks(_) => (Item::TARGET, format!("the networks of VLANs {vlans} were gone")),
            Request::CreatePorts(new) => {
                let trunk = new.first().map(|new| new.trunk.as_str()).unwrap_or_default();
                (Item::port(name_of(trunk)), format!("the ports of VLANs {vlans} were gone"))
            }
            Request::AddSubPorts { trunk, .. } => {
                let name = name_of(trunk);
                let message = format!("trunk {name} had lost the sub-ports of VLANs {vlans}");
                (Item::port(name), message)
            }
            Request::RemoveSubPorts { trunk, .. } => {
                let name = name_of(trunk);
                let message = format!("trunk {name} had sub-ports of VLANs {vlans} again");
                (Item::port(name), message)
            }
            Request::Update { resource, attributes, .. } => {
                let keys = attributes.keys().cloned().collect::<Vec<_>>().join(", ");
                let (kind, id) = (resource.kind.singular(), &resource.id);
                (Item::vlan(resource.vid), format!("{keys} of {kind} {id} of VLAN {vlans} was changed"))
            }
            Request::Delete { resource } => {
                let (kind, id) = (resource.kind.singular(), &resource.id);
                (Item::vlan(resource.vid), format!("there was a {kind} {id} of VLAN {vlans} again"))
            }
        };
        Note::new(DRIFT, item, format!("changed by another hand: {message}"))
    };
    planned.requests.iter().map(note).collect()
}
