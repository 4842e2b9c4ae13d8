//! Invalid objects get a status that names the field and the remedy, and other objects are unaffected.

use std::fmt::Debug;

use eno_nbi_crds::{ConnectionPoint, EnoResource, L2Service, L2ServiceAttachment, Phase, Subnet};
use eno_tests::{System, access, attachment, object, service, with_shared_sandbox};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::e2e::create_namespace_and_point;

fn subnet(name: &str, more: &str) -> String {
    eno_tests::subnet(name, "10.40.0.0", more)
}

/// Applies an object that must be in error, with these texts in its message.
async fn assert_in_error<K>(system: &System, name: &str, yaml: &str, message_parts: &[&str])
where
    K: EnoResource + Clone + Debug + DeserializeOwned + Serialize + Send + 'static,
{
    system.apply(yaml).await;
    system.becomes::<K>(name, (Phase::Error, message_parts)).await;
}

fn connection_point(name: &str, more: &str, cni: &str) -> String {
    let spec = format!("SupportedCnis: [{{SupportedInterfaceTypes: [kernel], {cni}}}], {more}");
    object("ConnectionPoint", &format!("name: {name}"), &spec)
}

#[test]
fn schema_violations_are_refused_by_the_api_server() {
    with_shared_sandbox(async |system| {
        let cases = [
            (service("bad-range", 4095, ""), &["SegmentationID", "4094"][..]),
            (service("bad-zero", 0, ""), &["SegmentationID", "1"]),
            (service("bad-callback", 400, "CallbackURL: 'ftp://example.com'"), &["CallbackURL", "http"]),
            (service("bad-login", 400, "CallbackURL: 'http://user:pw@example.com'"), &["CallbackURL"]),
            (
                attachment("default", "bad-two", "any", "a, b", "VlanType: access"),
                &["L2Services", "exactly one", "selectivetrunk"],
            ),
            (
                attachment("default", "bad-type", "any", "a", "VlanType: both"),
                &["VlanType", "selectivetrunk"],
            ),
            (subnet("bad-address", "AllocationPool: [{Start: nowhere, End: 10.40.0.9}]"), &["Start"]),
        ];
        for (yaml, message_parts) in cases {
            let answer = system.refused(&yaml).await;
            for part in message_parts {
                assert!(answer.contains(part), "{part:?} is not in {answer:?} for {yaml}");
            }
        }
    });
}

#[test]
fn service_status_names_the_missing_reference() {
    with_shared_sandbox(async |system| {
        let good = service("lacks-good", 410, "PhysicalNW: [island-gw]");
        system.apply_until_ready::<L2Service>(&good, "lacks-good").await;
        system.apply(&[subnet("lacks-one", ""), subnet("lacks-other", "")].concat()).await;
        let narrow = object("PhysicalNetwork", "name: lacks-narrow", "SegmentationIDs: ['20-30']");
        system.apply(&narrow).await;
        let cases: [(&str, u16, &str, &[&str]); 4] = [
            ("lacks-subnet", 411, "Subnets: [nosuch]", &["Subnets", "Subnet nosuch", "create it"]),
            (
                "lacks-network",
                412,
                "PhysicalNW: [nosuch]",
                &["PhysicalNW", "PhysicalNetwork nosuch", "create it"],
            ),
            (
                "lacks-id",
                413,
                "PhysicalNW: [lacks-narrow]",
                &["SegmentationID", "413", "lacks-narrow", "20-30"],
            ),
            ("lacks-family", 414, "Subnets: [lacks-one, lacks-other]", &["Subnets", "family", "one of each"]),
        ];
        for (name, vid, spec, message_parts) in cases {
            assert_in_error::<L2Service>(system, name, &service(name, vid, spec), message_parts).await;
        }
        system
            .apply_until_ready::<L2Service>(&eno_tests::subnet("nosuch", "10.41.0.0", ""), "lacks-subnet")
            .await;
        system.becomes::<L2Service>("lacks-good", Phase::Ready).await;
        let all: String = cases.iter().map(|(name, vid, spec, _)| service(name, *vid, spec)).collect();
        system.delete(&[&*all, &*good].concat()).await;
        system
            .delete(&[subnet("lacks-one", ""), subnet("lacks-other", ""), subnet("nosuch", "")].concat())
            .await;
        system.delete(&narrow).await;
    });
}

#[test]
fn subnet_and_connection_point_status_names_the_invalid_field() {
    with_shared_sandbox(async |system| {
        let subnets: [(&str, &str, &[&str]); 3] = [
            ("wrong-route", "Routes: [nosuch]", &["Routes", "Route nosuch", "create it"]),
            ("wrong-order", "AllocationPool: [{Start: 10.40.0.9, End: 10.40.0.3}]", &["AllocationPool"]),
            ("wrong-pool", "AllocationPool: [{Start: 10.50.0.3, End: 10.50.0.9}]", &["AllocationPool"]),
        ];
        for (name, spec, message_parts) in subnets {
            let yaml = subnet(name, spec);
            assert_in_error::<Subnet>(system, name, &yaml, message_parts).await;
            system.delete(&yaml).await;
        }
        let (pool, bridge) = ("NodePool: nosuch", "Name: ovs, Opts: '{\"BridgeName\": \"br0\"}'");
        let points: [(&str, &str, &str, &[&str]); 4] = [
            ("wrong-pool", pool, bridge, &["NodePool", "nosuch", "create it"]),
            ("wrong-json", "", "Name: ovs, Opts: '{BridgeName: br0}'", &["SupportedCnis[0].Opts", "JSON"]),
            ("wrong-key", "", "Name: ovs, Opts: '{}'", &["SupportedCnis[0].Opts", "BridgeName"]),
            ("wrong-device", "", "Name: host-device", &["SupportedCnis[0].Opts", "PoolName"]),
        ];
        for (name, more, cni, message_parts) in points {
            let yaml = connection_point(name, more, cni);
            assert_in_error::<ConnectionPoint>(system, name, &yaml, message_parts).await;
            system.delete(&yaml).await;
        }
    });
}

#[test]
fn attachment_status_names_the_missing_reference() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "unfit", &["node5"]).await;
        system.apply(&[service("unfit-a", 420, ""), service("unfit-b", 421, "")].concat()).await;
        let device = "Name: host-device, Opts: '{\"PoolName\": \"a.com/b\"}'";
        system
            .apply_until_ready::<ConnectionPoint>(&connection_point("unfit-vf", "", device), "unfit-vf")
            .await;
        system.becomes::<L2Service>("unfit-a", Phase::Ready).await;
        let good = access("unfit", "good", "unfit-b");
        system.apply_until_ready::<L2ServiceAttachment>(&good, "unfit/good").await;
        let foreign = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: taken, \
                       namespace: unfit}\nspec: {config: '{\"cniVersion\": \"0.3.1\", \"name\": \"mine\", \"type\": \
                       \"bridge\"}'}";
        system.apply(foreign).await;
        let cases: [(&str, &str, &str, &str, &[&str]); 6] = [
            ("service", "unfit", "nosuch", "", &["L2Services[0]", "nosuch", "create it"]),
            ("point", "nosuch", "unfit-a", "", &["ConnectionPoint", "nosuch", "create it"]),
            ("cni", "unfit-vf", "unfit-a", "", &["VlanType access", "unfit-vf", "ovs"]),
            ("other", "unfit", "unfit-a", "Implementation: macvlan", &["Implementation", "macvlan", "ovs"]),
            ("dpdk", "unfit", "unfit-a", "PodInterfaceType: dpdk", &["PodInterfaceType dpdk", "userspace"]),
            ("taken", "unfit", "unfit-a", "", &["NetworkAttachmentDefinition", "taken"]),
        ];
        let mut all = String::new();
        for (name, point, service, more, message_parts) in cases {
            let yaml = attachment("unfit", name, point, service, &format!("VlanType: access, {more}"));
            let full_name = format!("unfit/{name}");
            assert_in_error::<L2ServiceAttachment>(system, &full_name, &yaml, message_parts).await;
            all += &yaml;
        }
        let (_, config) = system.nad("unfit/taken", |_| true).await;
        assert_eq!(config["name"], "mine", "the foreign one is untouched");
        system.becomes::<L2ServiceAttachment>("unfit/good", Phase::Ready).await;

        // Once the name is free, the engine creates its definition without a further trigger, maybe before a watch
        // shows the deletion.
        system.request_deletion(foreign).await;
        system.becomes::<L2ServiceAttachment>("unfit/taken", Phase::Ready).await;
        let (_, config) = system.nad("unfit/taken", |_| true).await;
        assert_ne!(config["name"], "mine", "it is ours");
        system
            .delete_with_vlans(
                &[all, good, service("unfit-a", 420, ""), service("unfit-b", 421, "")].concat(),
                [420, 421],
            )
            .await;
    });
}

#[test]
fn unreachable_callback_url_does_not_block_the_service() {
    with_shared_sandbox(async |system| {
        let network =
            service("nowhere-a", 430, "PhysicalNW: [island-gw], CallbackURL: 'http://127.0.0.1:1/gone'");
        system.apply_until_ready::<L2Service>(&network, "nowhere-a").await;
        system.delete(&network).await;
    });
}

#[test]
fn rejected_service_does_not_block_the_others() {
    with_shared_sandbox(async |system| {
        let fault =
            json!({"kind": "reject-edit", "vlan": 666, "message": "VLAN 666 is reserved for the beast"});
        system.fault("island", fault).await;
        let all: String =
            (600..800).map(|vid| service(&format!("many-{vid}"), vid, "PhysicalNW: [island-gw]")).collect();
        system.apply(&all).await;
        system.all_become::<L2Service>("many", 199, Phase::Ready).await;
        let refused = (Phase::Error, &["FabricDevice island", "VLAN 666", "reserved for the beast"]);
        system.becomes::<L2Service>("many-666", refused).await;
        let view = system.view("island").await;
        let found = (600..800).filter(|vid| view.ports["Ethernet48"].vlans.contains(*vid)).count();
        assert_eq!(found, 199);
        assert!(!view.vlans.contains_key(&666));
        system.fault("island", json!({"kind": "clear"})).await;
        system.request_deletion(&all).await;
        system.none_left::<L2Service>("many").await;
        system.until_without(600..800).await;
    });
}
