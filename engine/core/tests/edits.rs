//! Copies of objects with a changed spec, by kind.

use eno_core::Object;
use eno_core::kinds::{
    AttachmentSpec, BgpSessionGroupSpec, ConnectionPointSpec, DeviceSpec, PodLinksSpec, ServiceSpec, Spec,
    SubnetSpec, VrfAttachmentSpec, VrfSpec,
};

use crate::world::edit_spec;

pub fn edit_attachment(object: &Object, change: impl FnOnce(&mut AttachmentSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::Attachment(spec) => change(spec),
        _ => panic!("no L2ServiceAttachment: {spec:?}"),
    })
}

pub fn edit_point(object: &Object, change: impl FnOnce(&mut ConnectionPointSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::ConnectionPoint(spec) => change(spec),
        _ => panic!("no ConnectionPoint: {spec:?}"),
    })
}

pub fn edit_device(object: &Object, change: impl FnOnce(&mut DeviceSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::Device(spec) => change(spec),
        _ => panic!("no FabricDevice: {spec:?}"),
    })
}

pub fn edit_links(object: &Object, change: impl FnOnce(&mut PodLinksSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::PodLinks(spec) => change(spec),
        _ => panic!("no PodConfig or PodNetworkConfig: {spec:?}"),
    })
}

pub fn edit_service(object: &Object, change: impl FnOnce(&mut ServiceSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::Service(spec) => change(spec),
        _ => panic!("no L2Service: {spec:?}"),
    })
}

pub fn edit_subnet(object: &Object, change: impl FnOnce(&mut SubnetSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::Subnet(spec) => change(spec),
        _ => panic!("no Subnet: {spec:?}"),
    })
}

pub fn edit_vrf(object: &Object, change: impl FnOnce(&mut VrfSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::Vrf(spec) => change(spec),
        _ => panic!("no VRF: {spec:?}"),
    })
}

pub fn edit_group(object: &Object, change: impl FnOnce(&mut BgpSessionGroupSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::BgpSessionGroup(spec) => change(spec),
        _ => panic!("no BGPSessionGroup: {spec:?}"),
    })
}

pub fn edit_routed(object: &Object, change: impl FnOnce(&mut VrfAttachmentSpec)) -> Object {
    edit_spec(object, |spec| match spec {
        Spec::VrfAttachment(spec) => change(spec),
        _ => panic!("no VRFAttachment: {spec:?}"),
    })
}
