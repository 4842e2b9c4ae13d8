//! Unchanged manifests in the style of the reference implementation.

use eno_nbi_crds::{ConnectionPoint, L2ServiceAttachment, Phase, Route, Subnet};
use eno_tests::with_shared_sandbox;

#[test]
fn reference_implementation_manifests_become_ready() {
    with_shared_sandbox(async |system| {
        system.namespace("ref").await;
        let manifests = include_str!("manifests/reference.yaml");
        system.apply_until_ready::<Route>(manifests, "ref-route-13").await;
        system.becomes::<Subnet>("ref-subnet-13", Phase::Ready).await;
        system.becomes::<ConnectionPoint>("ref-compute-pool", Phase::Ready).await;
        for name in ["ref/access-13", "ref/trunk-10-11", "ref/vf-trunk"] {
            let attachment: L2ServiceAttachment = system.becomes(name, Phase::Ready).await;
            let conditions = attachment.status.map(|status| status.conditions).unwrap_or_default();
            let managed = conditions.iter().find(|condition| condition.type_ == "FabricManaged");
            assert_eq!(managed.map(|condition| &*condition.status), Some("False"), "{name}: {conditions:?}");
        }
        let (_, access) = system.nad("ref/access-13", |config| !config.is_null()).await;
        assert_eq!(
            (&access["type"], &access["vlan"], &access["bridge"]),
            (&"ovs".into(), &13.into(), &"br-data".into())
        );
        assert_eq!(access["ipam"]["routes"][0]["dst"], "30.30.13.0/24", "{access}");
        let (_, trunk) = system.nad("ref/trunk-10-11", |config| !config.is_null()).await;
        assert_eq!((&trunk["bridge"], trunk.get("vlan")), (&"br-data".into(), None));
        let (nad, vf) = system.nad("ref/vf-trunk", |config| !config.is_null()).await;
        assert_eq!(vf["type"], "host-device");
        let annotations = nad.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations["k8s.v1.cni.cncf.io/resourceName"], "intel.com/mellanox_snic0");
        system.delete(manifests).await;
    });
}
