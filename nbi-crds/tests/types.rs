//! The Rust types read every object that the API server accepts, and write it back unchanged except for
//! defaults.

use std::collections::{BTreeMap, BTreeSet};

use eno_nbi_crds::{
    Definition, Drift, FabricDeviceSpec, FabricPort, InterfaceType, L2ServiceAttachmentSpec, Phase, PortPeer,
    Status, kinds,
};
use serde_json::json;

use crate::apiserver::{accepted, refused};

/// The kinds that people apply.
pub fn applied_kinds() -> impl Iterator<Item = Definition> {
    kinds().into_iter().filter(|kind| kind.is_applied)
}

#[test]
fn types_deserialize_accepted_objects() {
    let kinds: BTreeMap<_, _> =
        applied_kinds().map(|kind| (kind.crd.spec.names.kind, kind.round_trip)).collect();
    for (kind, spec) in accepted() {
        let written = kinds[&kind](spec.clone()).expect("a spec that the API server takes");
        for (field, value) in spec.as_object().expect("an object") {
            let empty = value.as_array().is_some_and(Vec::is_empty);
            assert!(empty || written.get(field) == Some(value), "{kind}: {field} of {spec} became {written}");
        }
    }
}

#[test]
fn every_kind_has_accepted_and_refused_specs() {
    let kinds: BTreeSet<String> = applied_kinds().map(|kind| kind.crd.spec.names.kind).collect();
    let accepted: BTreeSet<String> = accepted().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(accepted, kinds);
    assert_eq!(refused().into_keys().collect::<BTreeSet<_>>(), kinds);
}

#[test]
fn absent_fields_get_schema_defaults() {
    let device: FabricDeviceSpec = serde_json::from_value(json!({ "Address": "leaf1" })).expect("a device");
    assert_eq!((device.driver.as_str(), device.drift), ("netconf", Drift::Repair));
    let attachment: L2ServiceAttachmentSpec =
        serde_json::from_value(json!({ "L2Services": ["a"], "ConnectionPoint": "c", "VlanType": "trunk" }))
            .expect("an attachment");
    assert_eq!(attachment.pod_interface_type, InterfaceType::Kernel);
}

#[test]
fn status_patch_contains_only_set_fields() {
    assert_eq!(serde_json::to_value(<Status>::default()).expect("JSON"), json!({}));
    let status = Status { phase: Some(Phase::Ready), granted_id: Some(100), ..Status::default() };
    assert_eq!(serde_json::to_value(status).expect("JSON"), json!({ "phase": "ready", "grantedID": 100 }));
}

#[test]
fn each_kind_has_only_its_own_status_fields() {
    for Definition { crd, .. } in applied_kinds() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).expect("JSON");
        let fields = &schema["openAPIV3Schema"]["properties"]["status"]["properties"];
        assert!(fields.get("phase").is_some() && fields.get("realized").is_some(), "{}", crd.spec.names.kind);
        let holds_ids = ["L2Service", "L2BridgeDomain"].contains(&crd.spec.names.kind.as_str());
        assert_eq!(fields.get("grantedID").is_some(), holds_ids, "{}", crd.spec.names.kind);
    }
}

#[test]
fn port_has_exactly_one_peer() {
    let port = FabricPort {
        name: "e1".to_owned(),
        device: Some("spine1".to_owned()),
        port: Some("e7".to_owned()),
        ..FabricPort::default()
    };
    assert_eq!(port.peer(), Ok(PortPeer::Device { device: "spine1", port: "e7" }));
    let both = FabricPort { physical_nw: Some("dc-gw".to_owned()), ..port };
    let error = both.peer().expect_err("two things");
    assert!(error.to_string().starts_with("port e1 must lead to exactly one thing"), "{error}");
}
