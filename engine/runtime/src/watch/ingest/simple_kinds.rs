//! Kinds whose fields need little more than deserialisation.

use eno_core::kinds::{
    AttachmentSpec, BridgeDomainSpec, Invalid, NodePoolSpec, PhysicalNetworkSpec, ServiceSpec,
};
use eno_nbi_crds as crds;
use eno_schemas::{VlanSet, VlanType};

use super::{names, optional_selector, selector, vlan};

pub(super) fn service(source: &crds::L2ServiceSpec) -> Result<ServiceSpec, Invalid> {
    if source.subnets.len() > 2 {
        let problem = format!("names {} Subnets; name at most two, one of each Type", source.subnets.len());
        return Err(Invalid::new("Subnets", problem));
    }
    Ok(ServiceSpec {
        vid: vlan("SegmentationID", source.segmentation_id)?,
        subnets: names("Subnets", &source.subnets)?,
        physical_networks: names("PhysicalNW", &source.physical_nw)?,
        namespaces: optional_selector("Namespaces", source.namespaces.as_ref())?,
    })
}

pub(super) fn attachment(source: &crds::L2ServiceAttachmentSpec) -> Result<AttachmentSpec, Invalid> {
    let services = names("L2Services", &source.l2_services)?;
    let vlan_type = source.vlan_type;
    if services.is_empty() {
        return Err(Invalid::new("L2Services", "is empty; name at least one L2Service"));
    }
    if vlan_type == VlanType::Access && services.len() > 1 {
        let problem = format!(
            "names {} L2Services; with VlanType access name exactly one, or use selectivetrunk",
            services.len()
        );
        return Err(Invalid::new("L2Services", problem));
    }
    if source.sub_interfaces && vlan_type == VlanType::Access {
        let problem =
            "is for trunk and selectivetrunk; with VlanType access the interface has the addresses itself";
        return Err(Invalid::new("SubInterfaces", problem));
    }
    if source.sub_interfaces && source.anti_spoof {
        let problem =
            "can't be combined with AntiSpoof, which has no NetworkAttachmentDefinition; leave out one";
        return Err(Invalid::new("SubInterfaces", problem));
    }
    Ok(AttachmentSpec {
        services,
        connection_point: source.connection_point.as_str().into(),
        interface: source.pod_interface_type,
        vlan_type,
        implementation: source.implementation,
        mtu: source.mtu.map(u32::from),
        usable_from: optional_selector("UsableFrom", source.usable_from.as_ref())?,
        anti_spoof: source.anti_spoof,
        sub_interfaces: source.sub_interfaces,
    })
}

pub(super) fn bridge_domain(source: &crds::L2BridgeDomainSpec) -> Result<BridgeDomainSpec, Invalid> {
    Ok(BridgeDomainSpec {
        vlan: vlan("Vlan", source.vlan)?,
        connection_points: names("ConnectionPoints", &source.connection_points)?,
    })
}

pub(super) fn node_pool(source: &crds::NodePoolSpec) -> Result<NodePoolSpec, Invalid> {
    Ok(NodePoolSpec { node_selector: selector("NodeSelector", &source.node_selector)? })
}

pub(super) fn physical_network(source: &crds::PhysicalNetworkSpec) -> Result<PhysicalNetworkSpec, Invalid> {
    let mut ids = VlanSet::EMPTY;
    for (index, text) in source.segmentation_ids.iter().enumerate() {
        let field = format!("SegmentationIDs[{index}]");
        let range: std::ops::RangeInclusive<u16> = text
            .parse::<crds::SegmentationRange>()
            .map_err(|error| Invalid::new(&field, error.to_string()))?
            .into();
        for id in range {
            ids.insert(vlan(&field, id)?);
        }
    }
    Ok(PhysicalNetworkSpec {
        segmentation_ids: (!source.segmentation_ids.is_empty()).then_some(ids),
        namespaces: optional_selector("Namespaces", source.namespaces.as_ref())?,
        unmanaged: source.unmanaged,
    })
}
