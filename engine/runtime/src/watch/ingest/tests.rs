//! Tables of valid and invalid values, with the error messages.

#![allow(clippy::needless_pass_by_value, reason = "tables of values read better so")]

use std::num::NonZeroU32;

use eno_core::kinds::{LeadsTo, Plugin, Spec};
use eno_schemas::OvsDatapath;
use serde_json::{Value, json};

use super::*;

fn good(kind: Kind, value: Value) -> Spec {
    spec(kind, &value).unwrap_or_else(|error| panic!("{error}"))
}

fn bad(kind: Kind, value: Value) -> (String, String) {
    match spec(kind, &value) {
        Ok(spec) => panic!("{spec:?}"),
        Err(Invalid { field, problem, .. }) => (field, problem),
    }
}

/// A value as flow-style YAML. An object stands without its braces.
pub fn flow(text: &str) -> Value {
    let text = if text.starts_with('[') { text.to_owned() } else { format!("{{{text}}}") };
    serde_saphyr::from_str(&text).unwrap()
}

/// Merges `change` into `base`.
fn with(base: &Value, change: Value) -> Value {
    let mut merged = base.clone();
    for (key, value) in change.as_object().unwrap() {
        merged[key] = value.clone();
    }
    merged
}

fn cp(name: &str, opts: &str) -> Value {
    json!({ "SupportedCnis": [{ "Name": name, "SupportedInterfaceTypes": ["kernel"], "Opts": opts }] })
}

fn plugin(name: &str, opts: &str) -> Plugin {
    let Spec::ConnectionPoint(spec) = good(Kind::ConnectionPoint, cp(name, opts)) else { panic!() };
    spec.cnis[0].plugin.clone()
}

#[test]
fn cni_options_parse_per_plugin() {
    let br = || "br-data".to_owned();
    for name in ["ovs", "bridge"] {
        assert_eq!(plugin(name, r#"{"BridgeName": "br-data"}"#).bridge(), Some("br-data"));
    }
    let with_socket = plugin("ovs", r#"{"BridgeName": "br-data", "SocketFile": "/run/ovs/db.sock"}"#);
    let socket_file = Some("/run/ovs/db.sock".into());
    let ovs = Plugin::Ovs { bridge_name: br(), socket_file, datapath: None, patch: None, pool_name: None };
    assert_eq!(with_socket, ovs);
    let joined = plugin("ovs", r#"{"BridgeName": "br-data", "Datapath": "netdev", "Patch": "br-phy"}"#);
    let (datapath, patch) = (Some(OvsDatapath::Netdev), Some("br-phy".into()));
    assert_eq!(
        joined,
        Plugin::Ovs { bridge_name: br(), socket_file: None, datapath, patch, pool_name: None }
    );
    let offloaded = plugin("ovs", r#"{"BridgeName": "br-data", "PoolName": "vendor.com/nics"}"#);
    let pool_name = Some("vendor.com/nics".into());
    let (socket_file, datapath, patch) = (None, None, None);
    assert_eq!(offloaded, Plugin::Ovs { bridge_name: br(), socket_file, datapath, patch, pool_name });
    for name in ["macvlan", "ipvlan", "vlan"] {
        assert_eq!(plugin(name, r#"{"Master": "eth1", "Other": 1}"#).master(), Some("eth1"));
    }
    for name in ["host-device", "sriov"] {
        plugin(name, r#"{"PoolName": "vendor.com/pool_1"}"#);
    }
    assert_eq!(
        plugin("userspace", r#"{"BridgeName": "br-data"}"#),
        Plugin::Userspace { bridge_name: br(), engine: "ovs-dpdk".into(), if_type: "vhostuser".into() }
    );
    plugin("userspace", r#"{"BridgeName": "br-data", "Engine": "vpp", "IfType": "memif"}"#);
}

#[test]
fn connection_point_mtu_parses_per_plugin() {
    let mtu = |name, opts| {
        let Spec::ConnectionPoint(spec) = good(Kind::ConnectionPoint, cp(name, opts)) else { panic!() };
        spec.cnis[0].mtu
    };
    assert_eq!(mtu("ovs", r#"{"BridgeName": "br"}"#), None);
    assert_eq!(mtu("ovs", r#"{"BridgeName": "br", "MTU": 9000}"#), Some(9000));
    assert_eq!(mtu("macvlan", r#"{"Master": "eth1", "MTU": "1400"}"#), Some(1400));
    assert_eq!(mtu("bridge", r#"{"BridgeName": "br", "MTU": null}"#), None);
    // These plugins ignore it.
    assert_eq!(mtu("sriov", r#"{"PoolName": "a.com/b", "MTU": "x"}"#), None);
}

#[test]
fn unknown_options_are_reported() {
    let unknown_opts_of = |name, opts| connection_point::unknown_opts(&cp(name, opts));
    for (name, opts) in [
        (
            "ovs",
            r#"{"BridgeName": "b", "SocketFile": "/s", "Datapath": "netdev", "Patch": "p", "PoolName": "x", "MTU": 1500}"#,
        ),
        ("bridge", r#"{"BridgeName": "b", "MTU": 1500}"#),
        ("vlan", r#"{"Master": "eth1", "MTU": 1500}"#),
        ("sriov", r#"{"PoolName": "a.com/b"}"#),
        ("userspace", r#"{"BridgeName": "b", "Engine": "vpp", "IfType": "memif"}"#),
        ("ovs", ""),
        ("ovs", "{"),
    ] {
        assert_eq!(unknown_opts_of(name, opts), None, "{name} {opts}");
    }
    for (name, opts, message) in [
        ("ovs", r#"{"BridgeNmae": "b"}"#, "ovs has no key \"BridgeNmae\"; did you mean BridgeName?"),
        ("ovs", r#"{"BridgeName": "b", "mtu": 1}"#, "ovs has no key \"mtu\"; did you mean MTU?"),
        ("sriov", r#"{"poolname": "p"}"#, "sriov has no key \"poolname\"; did you mean PoolName?"),
        ("sriov", r#"{"PoolName": "p", "MTU": 9000}"#, "sriov has no key \"MTU\"; it has PoolName"),
        ("macvlan", r#"{"Master": "m", "\n": 1}"#, "macvlan has no key \"\\n\"; it has Master, MTU"),
    ] {
        let message = format!("spec.SupportedCnis[0].Opts: {message}");
        assert_eq!(unknown_opts_of(name, opts), Some(message), "{name} {opts}");
    }
    let many: serde_json::Map<_, _> = (0..30).map(|n| (format!("{n:0300}"), json!(""))).collect();
    let message = unknown_opts_of("ovs", &json!(many).to_string()).unwrap();
    assert!(message.ends_with("; 22 more") && message.len() < 4000, "{message}");
    // It causes no error.
    assert_eq!(plugin("bridge", r#"{"BridgeName": "b", "Vlan": 5}"#).bridge(), Some("b"));
}

#[test]
fn unusable_options_count_as_absent() {
    for (name, opts, message) in [
        (
            "ovs",
            r#"{"BridgeName": "b", "MTU": "auto"}"#,
            r#"MTU: "auto" is no number of bytes, such as 9000"#,
        ),
        ("ovs", r#"{"BridgeName": "b", "MTU": ""}"#, r#"MTU: "" is no number of bytes, such as 9000"#),
        (
            "bridge",
            r#"{"BridgeName": "b", "MTU": 1500.5}"#,
            "MTU: 1500.5 is no number of bytes, such as 9000",
        ),
        ("macvlan", r#"{"Master": "m", "MTU": 20}"#, "MTU: is 20; use 68 to 65535 bytes"),
        (
            "ovs",
            r#"{"BridgeName": "b", "PoolName": "a b"}"#,
            r#"PoolName: "a b" is not the name of a resource, such as vendor.com/nics"#,
        ),
    ] {
        let spec = cp(name, opts);
        let message = format!("spec.SupportedCnis[0].Opts.{message}; it counts as absent");
        assert_eq!(connection_point::unknown_opts(&spec), Some(message), "{name} {opts}");
        let Spec::ConnectionPoint(spec) = good(Kind::ConnectionPoint, spec) else { panic!() };
        assert_eq!(spec.cnis[0].mtu, None, "{name} {opts}");
        if let Plugin::Ovs { pool_name, .. } = &spec.cnis[0].plugin {
            assert_eq!(*pool_name, None);
        }
    }
}

#[test]
fn invalid_options_are_refused() {
    for (name, opts, field, message) in [
        ("ovs", "{", "Opts", "is not a JSON object"),
        ("ovs", "[]", "Opts", "is not a JSON object"),
        ("ovs", r#"{"BridgeName": 1}"#, "Opts", "is not a JSON object"),
        ("ovs", "", "Opts", "ovs needs the key BridgeName"),
        ("host-device", "{}", "Opts", "host-device needs the key PoolName"),
        ("macvlan", r#"{"BridgeName": "br"}"#, "Opts", "macvlan needs the key Master"),
        ("bridge", r#"{"BridgeName": "a-bridge-of-16-bs"}"#, "Opts.BridgeName", "at most 15"),
        ("bridge", r#"{"BridgeName": "a b"}"#, "Opts.BridgeName", "is not an interface name"),
        ("bridge", r#"{"BridgeName": "../x"}"#, "Opts.BridgeName", "is not an interface name"),
        ("vlan", r#"{"Master": ""}"#, "Opts.Master", "is not an interface name"),
        ("sriov", r#"{"PoolName": "a/b/c"}"#, "Opts.PoolName", "is not the name of a resource"),
        ("host-device", r#"{"PoolName": "--force"}"#, "Opts.PoolName", "is not the name of a resource"),
        ("ovs", r#"{"BridgeName": "b", "SocketFile": "db.sock"}"#, "Opts.SocketFile", "absolute path"),
        ("ovs", r#"{"BridgeName": "b", "Datapath": "x"}"#, "Opts.Datapath", "use system or netdev"),
        ("ovs", r#"{"BridgeName": "b", "Patch": "a b"}"#, "Opts.Patch", "is not an interface name"),
        ("ovs", r#"{"BridgeName": "b", "Patch": "b"}"#, "Opts.Patch", "is the bridge itself"),
        ("userspace", r#"{"BridgeName": "b", "Engine": "x"}"#, "Opts.Engine", "use ovs-dpdk or vpp"),
        ("userspace", r#"{"BridgeName": "b", "IfType": "x"}"#, "Opts.IfType", "use vhostuser or memif"),
    ] {
        let (at, problem) = bad(Kind::ConnectionPoint, cp(name, opts));
        assert_eq!(at, format!("spec.SupportedCnis[0].{field}"), "{name} {opts}");
        assert!(problem.contains(message), "{name} {opts}: {problem}");
    }
    let (field, _) =
        bad(Kind::ConnectionPoint, with(&cp("ovs", "{}"), json!({ "Interfaces": ["eth0", "a/b"] })));
    assert_eq!(field, "spec.Interfaces[1]");
}

fn subnet() -> Value {
    json!({ "Ipam": "whereabouts", "Address": "10.10.13.7", "Mask": 24, "Type": "v4",
            "AllocationPool": [{ "Start": "10.10.13.10", "End": "10.10.13.99" }],
            "HotPlugPool": [{ "Start": "10.10.13.100", "End": "10.10.13.199" }],
            "Routes": ["r"], "Dns": { "Nameservers": ["10.0.0.1"], "Domain": "example.com" } })
}

#[test]
fn subnets_parse_or_name_the_invalid_field() {
    let Spec::Subnet(spec) = good(Kind::Subnet, subnet()) else { panic!() };
    assert_eq!(spec.network.to_string(), "10.10.13.0/24");
    assert_eq!(spec.allocation_pool[0].end.to_string(), "10.10.13.99");
    assert_eq!(spec.dns.nameservers, ["10.0.0.1"]);
    let v6 = json!({ "Ipam": "static", "Address": "2001:db8::1", "Mask": 64, "Type": "v6" });
    let Spec::Subnet(spec) = good(Kind::Subnet, v6) else { panic!() };
    assert_eq!(spec.network.to_string(), "2001:db8::/64");
    let two = json!({ "Ipam": "static", "Address": "10.0.0.0", "Mask": 31, "Type": "v4",
                      "AllocationPool": [{ "Start": "10.0.0.1", "End": "10.0.0.1" }] });
    good(Kind::Subnet, two);
    let own = json!({ "Ipam": "eno", "Address": "10.0.0.0", "Mask": 30, "Type": "v4", "Sticky": true });
    let Spec::Subnet(spec) = good(Kind::Subnet, own.clone()) else { panic!() };
    assert_eq!((spec.ipam, spec.sticky), (eno_schemas::Ipam::Eno, true));
    for (change, field, message) in [
        ("Mask: 31", "Mask", "addresses by Ipam eno; use at most 30"),
        ("Address: '2001:db8::', Type: v6, Mask: 127", "Mask", "addresses by Ipam eno; use at most 126"),
        ("HotPlugPool: [{Start: 10.0.0.1, End: 10.0.0.2}]", "HotPlugPool", "take HotPlugPool out"),
        ("Ipam: whereabouts", "Sticky", "Ipam whereabouts does not know"),
    ] {
        let (at, problem) = bad(Kind::Subnet, with(&own, flow(change)));
        assert_eq!(at, format!("spec.{field}"), "{change}");
        assert!(problem.contains(message), "{problem}");
    }
    for (change, field, message) in [
        ("Address: '10.10.13'", "Address", "is not an IP address"),
        ("Type: v6", "Address", "not an address of Type v6"),
        ("Mask: 33", "Mask", "use at most 32"),
        (
            "Mask: 32",
            "Mask",
            "10.10.13.7/32 is too small for pods to get addresses by Ipam whereabouts; use at most 30",
        ),
        ("Mask: 31, Ipam: host-local", "Mask", "use at most 30"),
        ("Mask: 32, Ipam: static", "Mask", "use at most 31"),
        ("Address: '2001:db8::1', Type: v6, Mask: 128", "Mask", "use at most 126"),
        ("Address: '2001:db8::1', Type: v6, Mask: 127", "Mask", "use at most 126"),
        ("Address: '2001:db8::1', Type: v6, Mask: 128, Ipam: static", "Mask", "use at most 127"),
        ("Address: 224.0.1.0", "Address", "is no network of hosts"),
        ("Address: 127.0.1.0", "Address", "is no network of hosts"),
        ("Address: 0.0.0.0", "Address", "is no network of hosts"),
        ("Address: 'ff05::', Type: v6", "Address", "is no network of hosts"),
        ("Address: '::ffff:10.0.0.0', Type: v6, Mask: 120", "Address", "is no network of hosts"),
        ("AllocationPool: [{Start: 10.10.13.9, End: 10.10.13.1}]", "AllocationPool[0].Start", "swap them"),
        (
            "AllocationPool: [{Start: 10.10.12.9, End: 10.10.13.1}]",
            "AllocationPool[0].Start",
            "not in 10.10.13.0/24",
        ),
        (
            "AllocationPool: [{Start: 10.10.13.9, End: 10.10.14.1}]",
            "AllocationPool[0].End",
            "not in 10.10.13.0/24",
        ),
        ("AllocationPool: [{Start: '2001:db8::1', End: '2001:db8::2'}]", "AllocationPool[0].Start", "not in"),
        (
            "HotPlugPool: [{Start: 10.10.13.99, End: 10.10.13.120}]",
            "HotPlugPool",
            "no address may be in both",
        ),
        ("Dns: {Nameservers: [here]}", "Dns.Nameservers[0]", "is not an IP address"),
        ("Routes: [r, r]", "Routes", "named twice"),
    ] {
        let (at, problem) = bad(Kind::Subnet, with(&subnet(), flow(change)));
        assert_eq!(at, format!("spec.{field}"));
        assert!(problem.contains(message), "{problem}");
    }
}

#[test]
fn routes_services_and_attachments_parse_or_name_the_invalid_field() {
    let route = json!({ "Prefix": "30.30.13.9", "Mask": 24, "NextHop": "10.10.13.1" });
    let Spec::Route(spec) = good(Kind::Route, route.clone()) else { panic!() };
    assert_eq!(
        (spec.prefix.to_string().as_str(), spec.next_hop.to_string().as_str()),
        ("30.30.13.0/24", "10.10.13.1")
    );
    let service = json!({ "SegmentationID": 100, "Subnets": ["a"], "PhysicalNW": ["p"] });
    good(Kind::L2Service, service.clone());
    assert_eq!(bad(Kind::L2Service, json!({})).0, "spec");
    let attachment = json!({ "L2Services": ["s"], "ConnectionPoint": "cp", "VlanType": "access" });
    let Spec::Attachment(spec) = good(Kind::L2ServiceAttachment, attachment.clone()) else { panic!() };
    assert_eq!(spec.interface, eno_schemas::InterfaceType::Kernel);
    for (kind, base, change, field) in [
        (Kind::Route, &route, "NextHop: '2001:db8::1'", "NextHop"),
        (Kind::Route, &route, "Mask: 64", "Mask"),
        (Kind::L2Service, &service, "SegmentationID: 4095", "SegmentationID"),
        (Kind::L2Service, &service, "Subnets: [a, b, c]", "Subnets"),
        (Kind::L2ServiceAttachment, &attachment, "L2Services: [s, t]", "L2Services"),
        (Kind::L2ServiceAttachment, &attachment, "L2Services: []", "L2Services"),
        (Kind::L2ServiceAttachment, &attachment, "SubInterfaces: true", "SubInterfaces"),
        (
            Kind::L2ServiceAttachment,
            &attachment,
            "VlanType: trunk, AntiSpoof: true, SubInterfaces: true",
            "SubInterfaces",
        ),
    ] {
        assert_eq!(bad(kind, with(base, flow(change))).0, format!("spec.{field}"), "{change}");
    }
}

#[test]
fn callback_urls_are_validated() {
    for url in ["https://nfvo.example.com/eno?x=1", "http://127.0.0.1:8080"] {
        good(Kind::L2Service, json!({ "SegmentationID": 1, "CallbackURL": url }));
    }
    for url in ["/eno", "ftp://host/", "https://user:pass@host/", "http://"] {
        let (field, problem) = bad(Kind::L2Service, json!({ "SegmentationID": 1, "CallbackURL": url }));
        assert_eq!(field, "spec.CallbackURL");
        assert!(!problem.contains("pass@"));
    }
}

#[test]
fn segmentation_ids_and_selectors_are_validated() {
    let network = json!({ "SegmentationIDs": ["10-12", "42"],
        "Namespaces": { "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "c", "operator": "Exists" }] } });
    let Spec::PhysicalNetwork(spec) = good(Kind::PhysicalNetwork, network.clone()) else { panic!() };
    assert_eq!((spec.segmentation_ids.unwrap().to_string().as_str(), spec.unmanaged), ("10-12,42", false));
    let selector = spec.namespaces.unwrap();
    assert!(selector.matches(&Labels::from([("a".into(), "b".into()), ("c".into(), String::new())])));
    assert!(!selector.matches(&Labels::from([("a".into(), "b".into())])));
    let unmanaged = with(&network, json!({ "Unmanaged": true }));
    let Spec::PhysicalNetwork(spec) = good(Kind::PhysicalNetwork, unmanaged) else { panic!() };
    assert!(spec.unmanaged);
    let (field, _) = bad(Kind::PhysicalNetwork, with(&network, json!({ "SegmentationIDs": ["10-12", "x"] })));
    assert_eq!(field, "spec.SegmentationIDs[1]");
    let pool = |operator: &str, values: &[&str]| json!({ "NodeSelector": { "matchExpressions": [{ "key": "k", "operator": operator, "values": values }] } });
    good(Kind::NodePool, pool("In", &["a"]));
    assert_eq!(bad(Kind::NodePool, pool("Near", &["a"])).0, "spec.NodeSelector.matchExpressions[0].operator");
    assert_eq!(bad(Kind::NodePool, pool("Exists", &["a"])).0, "spec.NodeSelector.matchExpressions[0].values");
    assert_eq!(bad(Kind::NodePool, pool("NotIn", &[])).0, "spec.NodeSelector.matchExpressions[0].values");
}

fn device(change: Value) -> Value {
    let base = json!({ "Address": "leaf1", "Credentials": { "SecretName": "s" }, "Ports": [
        { "Name": "eth1", "Node": "n1", "Interface": "ens1" },
        { "Name": "eth2", "PhysicalNW": "gw", "Mode": "trunk", "Lag": "lag1" },
        { "Name": "eth3", "Device": "spine1", "Port": "eth9" },
    ] });
    with(&base, change)
}

#[test]
fn devices_parse_or_name_the_invalid_field() {
    let parsed = |change: &str| good(Kind::FabricDevice, device(flow(change))).device().unwrap().clone();
    let spec = parsed("");
    assert_eq!((&*spec.driver, spec.device.address.as_str()), ("netconf", "leaf1:830"));
    assert_eq!(spec.device.credential.as_deref(), Some("s"));
    assert_eq!(spec.ports[1].leads_to, LeadsTo::PhysicalNetwork("gw".into()));
    for (address, full) in [
        ("192.0.2.1:22", "192.0.2.1:22"),
        ("[2001:db8::1]", "[2001:db8::1]:830"),
        ("[2001:db8::1]:831", "[2001:db8::1]:831"),
    ] {
        assert_eq!(parsed(&format!("Address: '{address}'")).device.address, full);
    }
    let file = parsed("Driver: json-file, Address: 'file:///srv/leaf 1.json'");
    assert_eq!(file.device.address, "file:///srv/leaf 1.json", "the driver checks it itself");
    let adopting = parsed("Adopt: '42,100-199'");
    assert_eq!((adopting.device.adopt.len(), adopting.device.audit_interval), (101, None));
    assert_eq!(parsed("AuditInterval: 60").device.audit_interval.map(NonZeroU32::get), Some(60));
    let refused = |change: &str| bad(Kind::FabricDevice, device(flow(change))).0;
    assert_eq!(refused("AuditInterval: 0"), "spec.AuditInterval");
    for adopt in ["0", "20-10", "a"] {
        assert_eq!(refused(&format!("Adopt: '{adopt}'")), "spec.Adopt");
    }
    for address in ["", "a b", "host:0", "host:65536", "host:x", "[::1", "[x]:1", "2001:db8::1", "-x", "u@h"]
    {
        assert_eq!(refused(&format!("Address: '{address}'")), "spec.Address", "{address}");
    }
    for (ports, field) in [
        ("[{Name: a, PhysicalNW: gw}, {Name: a, PhysicalNW: gw}]", "spec.Ports[1].Name"),
        ("[{Name: a}]", "spec.Ports[0]"),
        ("[{Name: a, Node: n1, Interface: i, PhysicalNW: g}]", "spec.Ports[0]"),
        ("[{Name: a, Node: n1, Interface: 'a/b'}]", "spec.Ports[0].Interface"),
    ] {
        assert_eq!(refused(&format!("Ports: {ports}")), field);
    }
}

fn known(kind: Kind, value: Value) -> Object {
    let source: DynamicObject = serde_json::from_value(value).unwrap();
    object(key(kind, &source.metadata).unwrap(), &source)
}

#[test]
fn object_metadata_is_converted() {
    let object = known(
        Kind::FabricDevice,
        json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "FabricDevice",
            "metadata": { "name": "spine1", "uid": "u", "generation": 2, "creationTimestamp": "1970-01-01T00:01:00Z",
                "deletionTimestamp": "1970-01-01T00:02:00Z", "finalizers": ["x", "eno.k8s.io/engine"],
                "annotations": { "eno.k8s.io/forget": "true" } },
            "spec": device(json!({})), "status": { "phase": "ready", "transitions": 3 },
        }),
    );
    assert!(object.deleting && object.finalized && object.forget && !object.generated);
    assert_eq!((object.generation, object.created), (2, 60));
    assert_eq!(object.status.unwrap().transitions, 3);
    assert_eq!(object.spec.unwrap_err().field, "spec.Ports[2].Device");
    for (kind, finalizer) in [
        (Kind::PodConfig, "podconfig.finalizers.opdev.io"),
        (Kind::PodNetworkConfig, "podnetworkconfig.finalizers.opdev.io"),
        (Kind::Bridge, "bridge.finalizers.opdev.io"),
    ] {
        let of = |finalizer: &str| json!({ "metadata": { "name": "a", "namespace": "ns", "finalizers": [finalizer] } });
        assert!(known(kind, of(finalizer)).finalized && !known(kind, of("eno.k8s.io/engine")).finalized);
    }
    let of =
        |text: &str| json!({ "metadata": { "name": "a", "annotations": { "eno.k8s.io/verify": text } } });
    for kind in [Kind::L2ServiceAttachment, Kind::L2Service, Kind::ConnectionPoint] {
        assert_eq!(known(kind, of(r#"{"nonce": "n-1"}"#)).verify, Some(VerifyRequest::new("n-1".into())));
        let sized = known(kind, of(r#"{"nonce": "n-1", "mtu": true}"#)).verify.unwrap();
        assert!(sized.mtu && sized.isolation_from.is_none());
        for bad in ["n-1", r#"{"nonce": "n-1", "isolation": "b"}"#] {
            assert_eq!(known(kind, of(bad)).verify, None);
        }
    }
    assert_eq!(known(Kind::FabricDevice, of(r#"{"nonce": "n-1"}"#)).verify, None);
    let long = "b".repeat(254);
    for (kind, from, other) in [
        (Kind::L2ServiceAttachment, "b", Some("ns/b")),
        (Kind::L2ServiceAttachment, "other/a", Some("other/a")),
        (Kind::L2ServiceAttachment, "ns/a", None),
        (Kind::L2ServiceAttachment, "ns/b/c", None),
        (Kind::L2ServiceAttachment, "/b", None),
        (Kind::L2Service, "b", Some("b")),
        (Kind::L2Service, "a", None),
        (Kind::L2Service, "ns/b", None),
        (Kind::L2Service, "", None),
        (Kind::L2Service, "B b", None),
        (Kind::L2Service, &long, None),
        (Kind::ConnectionPoint, "b", None),
    ] {
        let mut object = of(&json!({ "nonce": "n", "isolationFrom": from }).to_string());
        if kind == Kind::L2ServiceAttachment {
            object["metadata"]["namespace"] = "ns".into();
        }
        let named = known(kind, object).verify.map(|request| request.isolation_from.unwrap().to_string());
        assert_eq!(named, other.map(|other| format!("{kind}/{other}")), "{kind} {from}");
    }
    let of = |opts: &str| json!({ "metadata": { "name": "cp" }, "spec": cp("ovs", opts) });
    let point = known(Kind::ConnectionPoint, of(r#"{"BridgeName": "b", "Brigde": ""}"#));
    assert!(point.spec.is_ok() && point.unknown_opts.is_some_and(|message| message.contains("Brigde")));
    assert_eq!(known(Kind::ConnectionPoint, of(r#"{"BridgeName": "b"}"#)).unknown_opts, None);
    let domain = known(
        Kind::L2BridgeDomain,
        json!({ "metadata": { "name": "d", "labels": { "app.kubernetes.io/managed-by": "eno" } },
                "spec": { "Vlan": 5, "ConnectionPoints": ["cp"] } }),
    );
    assert!(domain.generated && domain.spec.is_ok() && domain.status.is_none());
}
