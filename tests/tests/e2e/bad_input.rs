//! Invalid objects get a status that names the field and the remedy, and other objects are unaffected.

use eno_nbi_crds::{ConnectionPoint, L2Service, L2ServiceAttachment, Phase, Subnet};
use eno_tests::{ExpectedStatus, attachment, object, service, with_shared_sandbox};
use serde_json::json;

use crate::e2e::create_connection_point;

fn subnet(name: &str, more: &str) -> String {
    eno_tests::subnet(name, "10.40.0.0", more)
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
        system.apply(&good).await;
        system.becomes::<L2Service>("lacks-good", Phase::Ready).await;
        system.apply(&[subnet("lacks-one", ""), subnet("lacks-other", "")].concat()).await;
        let narrow = object("PhysicalNetwork", "name: lacks-narrow", "SegmentationIDs: ['20-30']");
        system.apply(&narrow).await;
        let cases = [
            (
                service("lacks-subnet", 411, "Subnets: [nosuch]"),
                &["Subnets", "Subnet nosuch", "create it"][..],
            ),
            (
                service("lacks-network", 412, "PhysicalNW: [nosuch]"),
                &["PhysicalNW", "PhysicalNetwork nosuch", "create it"],
            ),
            (
                service("lacks-id", 413, "PhysicalNW: [lacks-narrow]"),
                &["SegmentationID", "413", "lacks-narrow", "20-30"],
            ),
            (
                service("lacks-family", 414, "Subnets: [lacks-one, lacks-other]"),
                &["Subnets", "family", "one of each"],
            ),
        ];
        for (yaml, message_parts) in &cases {
            system.apply(yaml).await;
            let name = yaml.split("name: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a name");
            system.becomes::<L2Service>(name, ExpectedStatus { phase: Phase::Error, message_parts }).await;
        }
        system.apply(&eno_tests::subnet("nosuch", "10.41.0.0", "")).await;
        system.becomes::<L2Service>("lacks-subnet", Phase::Ready).await;
        system.becomes::<L2Service>("lacks-good", Phase::Ready).await;
        let all: String = cases.iter().map(|(yaml, _)| yaml.as_str()).collect();
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
        let subnets = [
            (subnet("wrong-route", "Routes: [nosuch]"), &["Routes", "Route nosuch", "create it"][..]),
            (
                subnet("wrong-order", "AllocationPool: [{Start: 10.40.0.9, End: 10.40.0.3}]"),
                &["AllocationPool"],
            ),
            (
                subnet("wrong-pool", "AllocationPool: [{Start: 10.50.0.3, End: 10.50.0.9}]"),
                &["AllocationPool"],
            ),
        ];
        for (yaml, message_parts) in &subnets {
            system.apply(yaml).await;
            let name = yaml.split("name: ").nth(1).and_then(|rest| rest.split('}').next()).expect("a name");
            system.becomes::<Subnet>(name, ExpectedStatus { phase: Phase::Error, message_parts }).await;
            system.delete(yaml).await;
        }
        let points = [
            (
                connection_point(
                    "wrong-pool",
                    "NodePool: nosuch",
                    "Name: ovs, Opts: '{\"BridgeName\": \"br0\"}'",
                ),
                &["NodePool", "nosuch", "create it"][..],
            ),
            (
                connection_point("wrong-json", "", "Name: ovs, Opts: '{BridgeName: br0}'"),
                &["SupportedCnis[0].Opts", "JSON"],
            ),
            (
                connection_point("wrong-key", "", "Name: ovs, Opts: '{}'"),
                &["SupportedCnis[0].Opts", "BridgeName"],
            ),
            (
                connection_point("wrong-device", "", "Name: host-device"),
                &["SupportedCnis[0].Opts", "PoolName"],
            ),
        ];
        for (yaml, message_parts) in &points {
            system.apply(yaml).await;
            let name = yaml.split("name: ").nth(1).and_then(|rest| rest.split('}').next()).expect("a name");
            system
                .becomes::<ConnectionPoint>(name, ExpectedStatus { phase: Phase::Error, message_parts })
                .await;
            system.delete(yaml).await;
        }
    });
}

#[test]
fn attachment_status_names_the_missing_reference() {
    with_shared_sandbox(async |system| {
        system.namespace("unfit").await;
        create_connection_point(system, "unfit", &["node5"]).await;
        system.apply(&[service("unfit-a", 420, ""), service("unfit-b", 421, "")].concat()).await;
        system
            .apply(&connection_point(
                "unfit-vf",
                "",
                "Name: host-device, Opts: '{\"PoolName\": \"a.com/b\"}'",
            ))
            .await;
        system.becomes::<ConnectionPoint>("unfit-vf", Phase::Ready).await;
        system.becomes::<L2Service>("unfit-a", Phase::Ready).await;
        let made = |name: &str, point: &str, services: &str, more: &str| {
            attachment("unfit", name, point, services, more)
        };
        let good = made("good", "unfit", "unfit-b", "VlanType: access");
        system.apply(&good).await;
        system.becomes::<L2ServiceAttachment>("unfit/good", Phase::Ready).await;
        let foreign = "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: taken, \
                       namespace: unfit}\nspec: {config: '{\"cniVersion\": \"0.3.1\", \"name\": \"mine\", \"type\": \
                       \"bridge\"}'}";
        system.apply(foreign).await;
        let cases = [
            (
                "service",
                made("service", "unfit", "nosuch", "VlanType: access"),
                &["L2Services[0]", "nosuch", "create it"][..],
            ),
            (
                "point",
                made("point", "nosuch", "unfit-a", "VlanType: access"),
                &["ConnectionPoint", "nosuch", "create it"],
            ),
            (
                "cni",
                made("cni", "unfit-vf", "unfit-a", "VlanType: access"),
                &["VlanType access", "unfit-vf", "ovs"],
            ),
            (
                "other",
                made("other", "unfit", "unfit-a", "VlanType: access, Implementation: macvlan"),
                &["Implementation", "macvlan", "ovs"],
            ),
            (
                "dpdk",
                made("dpdk", "unfit", "unfit-a", "VlanType: access, PodInterfaceType: dpdk"),
                &["PodInterfaceType dpdk", "userspace"],
            ),
            (
                "taken",
                made("taken", "unfit", "unfit-a", "VlanType: access"),
                &["NetworkAttachmentDefinition", "taken"],
            ),
        ];
        for (name, yaml, message_parts) in &cases {
            system.apply(yaml).await;
            let wanted = ExpectedStatus { phase: Phase::Error, message_parts };
            system.becomes::<L2ServiceAttachment>(&format!("unfit/{name}"), wanted).await;
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
        let all: String = cases.iter().map(|(_, yaml, _)| yaml.as_str()).collect();
        system.delete(&[all, good, service("unfit-a", 420, ""), service("unfit-b", 421, "")].concat()).await;
        system.until_without([420, 421]).await;
    });
}

#[test]
fn unreachable_callback_url_does_not_block_the_service() {
    with_shared_sandbox(async |system| {
        let network =
            service("nowhere-a", 430, "PhysicalNW: [island-gw], CallbackURL: 'http://127.0.0.1:1/gone'");
        system.apply(&network).await;
        system.becomes::<L2Service>("nowhere-a", Phase::Ready).await;
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
        let message_parts = &["FabricDevice island", "VLAN 666", "reserved for the beast"][..];
        system.becomes::<L2Service>("many-666", ExpectedStatus { phase: Phase::Error, message_parts }).await;
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
