//! What Neutron's refusals mean, and what helps.

use crate::error::Refusal;
use crate::request::Request;

/// True when a refusal is about all parts of a request, so that no part of it would be accepted. A right to make ports
/// may be missing on one network alone.
pub(crate) fn is_about_all(request: &Request, refusal: &Refusal) -> bool {
    matches!(refusal.kind.as_str(), "TrunkDisabled" | "TrunkInErrorState")
        || (refusal.status.as_u16() == 403 && !matches!(request, Request::CreatePorts(_)))
        || is_about_physical_network(refusal)
}

fn is_about_physical_network(refusal: &Refusal) -> bool {
    refusal.kind == "InvalidInput" && refusal.message.contains("unknown for VLAN provider network")
}

/// The message of a refusal, with what helps.
pub(crate) fn reason(request: &Request, refusal: &Refusal) -> String {
    let remedy = match (refusal.kind.as_str(), request) {
        ("PolicyNotAuthorized", Request::CreateNetworks(_)) => {
            ". The credential may not make this network: an admin of the cloud grants \
             create_network:provider:network_type, :physical_network and :segmentation_id to its role, or makes the \
             network in this project with the tag eno-vlan-<ID>; or set Neutron.NetworkType to Tenant"
        }
        ("PolicyNotAuthorized", Request::CreatePorts(_)) => {
            ". The network is another project's, whose members alone may set port security and addresses of ports: \
             they turn off the network's port security, with Neutron.PortSecurity Disabled, or an admin makes the \
             network in this project"
        }
        _ if is_about_physical_network(refusal) => {
            ". Set Neutron.PhysicalNetwork of the FabricDevice to a physical network that the cloud has"
        }
        ("VlanIdInUse", _) => {
            ". A network that this credential can't see has it: an admin of the cloud finds it"
        }
        ("OverQuota", _) => ". An admin of the cloud raises the project's quota",
        ("SubPortMtuGreaterThanTrunkPortMtu", _) => {
            ". Set Neutron.MTU of the FabricDevice to at most the MTU of the parent port's network"
        }
        ("TrunkDisabled", _) => ". Enable the trunk with openstack network trunk set --enable",
        ("NetworkInUse", _) => ". ENO deletes the network when others have taken their ports off it",
        ("PortInUseAsSubPort" | "TrunkPortInUse", _) => {
            ". The port is ours on a trunk that Ports does not list: list that trunk, or take the sub-port off it"
        }
        _ => "",
    };
    format!("Neutron refuses to {request}: {refusal}{remedy}")
}
