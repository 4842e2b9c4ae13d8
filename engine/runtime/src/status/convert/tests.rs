use std::sync::Arc;

use eno_core::kinds::{BridgeSpec, PodLinksSpec, ServiceSpec};
use eno_core::{Condition, ConditionReason, ConditionType, Confirmed, Name};
use eno_schemas::{ChangeOutcome, ChangeReport, DeviceInfo, ProbeOutcome, Rollback, VlanId};

use super::*;
use crate::status::crd_bounds;

/// The answer to a request for new probes: a node asked each of these.
fn verification(asked: &[&str]) -> Verification {
    let result = |to: &&str| VerificationResult {
        from: "node1".into(),
        to: Some((*to).into()),
        vlan: VlanId::new(10).unwrap(),
        other: VlanId::new(11).ok(),
        outcome: ProbeOutcome::Unasked,
        macs: ["02:00:00:00:00:01".into()].into(),
        reason: Some("busy".into()),
    };
    Verification { nonce: "n1".into(), results: asked.iter().map(result).collect(), left_out: 3 }
}

fn full() -> Status {
    let before = PortBefore {
        trunk: true,
        settings: Some([("mode".into(), "TRUNK".into())].into()),
        vlans: "3005".parse().unwrap(),
    };
    let vid = VlanId::new(10).unwrap();
    Status {
        phase: Some(Phase::Ready),
        message: "all hops confirmed".into(),
        observed_generation: 3,
        conditions: vec![Condition {
            kind: ConditionType::Ready,
            holds: true,
            reason: ConditionReason::Confirmed,
            message: String::new(),
            since: "2026-01-02T03:04:05Z".into(),
        }],
        transitions: 4,
        granted_id: Some(vid),
        realized: Some(Arc::new(Spec::Service(ServiceSpec {
            vid,
            subnets: vec!["sn".into()],
            physical_networks: vec![],
            namespaces: None,
        }))),
        placement: Some(PlacementStatus {
            confirmed: Some(Confirmed {
                vlan: vid,
                ports: [("leaf1".into(), ["eth1/0:2".into(), "eth2".into()].into())].into(),
            }),
            desired: VlanId::new(20).ok(),
            rejected_by: Some(("leaf1".into(), false)),
        }),
        address_pool: Some("sn".into()),
        connection_points: vec!["cp".into()],
        switch_ports: vec!["leaf1:eth1/0:2".into()],
        verification: Some(verification(&["node2"])),
        cluster: Some("lab".into()),
        device: Some(DeviceInfo {
            dialect: Some("openconfig".into()),
            model: Some("x".into()),
            rollback: Some(Rollback::Persistent),
            audit_interval: Some(60),
            change_notifications: Some(false),
            ..DeviceInfo::default()
        }),
        last_transaction: Some(LastTransaction {
            change: ChangeReport {
                transaction: Some("3-1".into()),
                at: "2026-01-02T03:04:05Z".into(),
                took_ms: 12,
                added: 3,
                removed: 1,
            },
            outcome: ChangeOutcome::RolledBack,
        }),
        port_memory: PortMemory {
            closed: vec!["Ethernet1".into()],
            leaving: vec!["ae0".into()],
            before: [("Ethernet2".into(), before)].into(),
        },
        pending_changes: Some(0),
        ready_inputs: Some(0x2a),
        ..Status::default()
    }
}

#[test]
fn written_status_is_read_back() {
    let json = to_json(Kind::L2Service, &full());
    assert_eq!(crate::status::convert::read(Kind::L2Service, &json), Some(full()));
    assert_eq!((&json["grantedID"], &json["clusterID"]), (&json!(10), &json!("lab")));
    assert_eq!((&json["dialect"], &json["readyInputs"]), (&json!("openconfig"), &json!("000000000000002a")));
    assert_eq!((&json["rollback"], &json["pendingChanges"]), (&json!("persistent"), &json!(0)));
    assert_eq!((&json["auditInterval"], &json["changeNotifications"]), (&json!(60), &json!(false)));
    assert_eq!(json["lastTransaction"]["outcome"], "rolled-back");
    assert_eq!((&json["closedPorts"], &json["leavingPorts"]), (&json!(["Ethernet1"]), &json!(["ae0"])));
    assert_eq!(
        json["portsBefore"],
        json!([{ "name": "Ethernet2", "trunk": true, "settings": { "mode": "TRUNK" }, "vlans": "3005" }])
    );
    assert_eq!(
        json["placement"],
        json!({
            "confirmedID": 10, "confirmedPorts": ["leaf1:eth1/0:2", "leaf1:eth2"], "desiredID": 20,
            "rejectedBy": "leaf1", "retryable": false,
        })
    );
    assert_eq!(json["conditions"][0]["observedGeneration"], 3);
    let empty = to_json(Kind::L2Service, &Status::default());
    assert_eq!(empty, json!({ "observedGeneration": 0, "transitions": 0 }));
}

#[test]
fn default_status_of_api_server_counts_as_none() {
    let mut status = json!({ "observedGeneration": crds::UNOBSERVED });
    for kind in [Kind::L2Service, Kind::PodConfig] {
        assert_eq!(crate::status::convert::read(kind, &status), None);
    }
    // The callback task may write its condition first.
    status["conditions"] = json!([{ "type": "CallbackDelivered", "status": "False" }]);
    assert_eq!(crate::status::convert::read(Kind::L2Service, &status), None);
    assert!(crate::status::convert::read(Kind::L2Service, &json!({ "observedGeneration": 1 })).is_some());
}

#[test]
fn counter_that_no_engine_reached_makes_a_status_unreadable() {
    for (transitions, readable) in [(1_i64 << 40, true), (1 << 53, false), (i64::MAX, false)] {
        let status = json!({ "observedGeneration": 1, "transitions": transitions });
        for kind in [Kind::L2Service, Kind::PodConfig] {
            let read = crate::status::convert::read(kind, &status);
            assert_eq!(read.is_some(), readable, "{transitions}");
        }
    }
}

#[test]
fn content_hash_ignores_counters_and_times() {
    let content = |status: &Status| content(Kind::L2Service, status);
    let mut later = full();
    later.transitions = 6;
    later.ready_inputs = None;
    later.conditions[0].since = "2026-01-02T03:04:06Z".into();
    assert_eq!(content(&full()), content(&later));
    later.message = "other".into();
    assert_ne!(content(&full()), content(&later));
    // The condition of the callback task is no content.
    let mut with_callbacks = to_json(Kind::L2Service, &full());
    let conditions = with_callbacks["conditions"].as_array_mut().unwrap();
    conditions.push(json!({ "type": "CallbackDelivered", "status": "False" }));
    assert_eq!(content_of(with_callbacks), content(&full()));
}

fn pods() -> Status {
    let entry = |link: &str, addresses: &[&str]| LinkEntry {
        link: link.into(),
        name: format!("{link}2841804"),
        host_name: Some(format!("h{link}2841804")),
        bridge: Some("pcbr0".into()),
        mac: Some("02:00:00:00:00:01".into()),
        mtu: 1500,
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    };
    let primary = LinkEntry { name: "eth0".into(), host_name: None, bridge: None, ..entry("eth0", &[]) };
    let leases =
        [(Name::from("pc0"), vec!["192.168.100.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()])];
    let running = PodEntry {
        name: "p".into(),
        uid: "u".into(),
        leases: leases.into(),
        ifname: None,
        links: vec![entry("pc0", &["192.168.100.2/24", "fd00::2/64"]), primary],
        problem: None,
    };
    let waiting = PodEntry {
        name: "q".into(),
        uid: "v".into(),
        leases: [].into(),
        ifname: None,
        links: vec![],
        problem: Some("no container runs".into()),
    };
    Status {
        phase: Some(Phase::Pending),
        realized: Some(Arc::new(Spec::PodLinks(PodLinksSpec::default()))),
        pods: vec![running, waiting],
        leased: 4,
        ..Status::default()
    }
}

#[test]
fn pod_configurations_use_documented_text_format() {
    let json = to_json(Kind::PodNetworkConfig, &pods());
    assert_eq!(json["phase"], "configuring");
    assert_eq!((&json["pods"], json.get("links")), (&json!("p, q"), None));
    assert_eq!(
        json["PodNetworkConfigs"],
        json!([
            { "podName": "p", "configList": [
                "{podVethName:pc02841804 podIPAddr:192.168.100.2/24,fd00::2/64 peerVethName:hpc02841804 bridge:pcbr0}",
                "MTU: 1500",
            ] },
            { "podName": "q", "configList": [], "message": "no container runs" },
        ])
    );
    let lease =
        json!({ "pod": "p", "uid": "u", "link": "pc0", "addresses": ["192.168.100.2/24", "fd00::2/64"] });
    assert_eq!(json["addresses"], json!([lease]));
    let other = to_json(Kind::PodConfig, &Status { phase: Some(Phase::Ready), ..pods() });
    assert_eq!(other["phase"], "configured");
    assert_eq!(other["podConfigurations"][0]["configList"][0], json["PodNetworkConfigs"][0]["configList"][0]);
    let attachment = to_json(Kind::L2ServiceAttachment, &pods());
    assert_eq!((&attachment["phase"], &attachment["addresses"]), (&json!("pending"), &json["addresses"]));
}

#[test]
fn column_lists_names_up_to_limit() {
    assert_eq!(joined::<&str>([]), None);
    assert_eq!(joined(["pc0"]).as_deref(), Some("pc0"));
    assert_eq!(joined(["pc0", "pc1"]).as_deref(), Some("pc0, pc1"));
    let text = joined(0..20).unwrap();
    assert!(text.starts_with("0, 1, ") && text.ends_with(", 15 and 4 more"), "{text}");
}

#[test]
fn columns_show_realized_spec() {
    let realized = |kind, spec| {
        let spec = crate::watch::ingest::spec(kind, &spec).unwrap();
        to_json(kind, &Status { realized: Some(Arc::new(spec)), ..Status::default() })
    };
    let cni = |name, opts: &str| json!({ "Name": name, "SupportedInterfaceTypes": ["kernel"], "Opts": opts });
    let cnis = [cni("ovs", r#"{"BridgeName": "br"}"#), cni("macvlan", r#"{"Master": "eth1"}"#)];
    let point = realized(Kind::ConnectionPoint, json!({ "SupportedCnis": cnis }));
    assert_eq!(point["cnis"], "ovs, macvlan");
    let link = |name_field: &str, name| json!({ (name_field): name, "linkType": "dummy" });
    let links = [link("name", "a"), link("name", "b")];
    let config = realized(Kind::PodConfig, json!({ "networkAttachments": links }));
    assert_eq!((&config["links"], config.get("pods")), (&json!("a, b"), None));
    let networks = [link("networkName", "c"), link("networkName", "d")];
    let config = realized(Kind::PodNetworkConfig, json!({ "additionalNetworks": networks }));
    assert_eq!(config["links"], "c, d");
}

#[test]
fn outdated_status_is_rewritten_once() {
    let cni =
        json!({ "Name": "bridge", "SupportedInterfaceTypes": ["kernel"], "Opts": r#"{"BridgeName": "br"}"# });
    let links = json!([{ "name": "a", "linkType": "dummy" }]);
    for (kind, spec, column) in [
        (Kind::ConnectionPoint, json!({ "SupportedCnis": [cni] }), Some(CNIS)),
        (Kind::PodConfig, json!({ "networkAttachments": links }), Some(LINKS)),
        (Kind::PodNetworkConfig, json!({ "eth0": { "mtu": 1400 } }), None),
        (Kind::NodePool, json!({ "NodeSelector": { "matchLabels": { "a": "b" } } }), None),
    ] {
        let realized = Some(Arc::new(crate::watch::ingest::spec(kind, &spec).unwrap()));
        let conditions = full().conditions;
        let phase = Some(Phase::Ready);
        let status = Status { phase, realized, conditions, observed_generation: 3, ..Status::default() };
        let now = to_json(kind, &status);
        let mut without_column = now.clone();
        let mut without_generation = now.clone();
        without_generation["conditions"][0].as_object_mut().unwrap().remove("observedGeneration");
        let mut former = vec![without_generation];
        if let Some(column) = column {
            assert!(without_column.as_object_mut().unwrap().remove(column).is_some());
            former.push(without_column);
        }
        for stored in former {
            assert!(is_outdated(kind, &stored), "{stored}");
            let written = to_json(kind, &crate::status::convert::read(kind, &stored).unwrap());
            assert_ne!(content_of(stored), content_of(written.clone()));
            assert_eq!(content_of(written), content_of(now.clone()));
        }
        // Reading and writing it gives the same content, so it is not written again.
        let read = crate::status::convert::read(kind, &now).unwrap();
        assert_eq!(content(kind, &read), content_of(now.clone()));
        let mut with_callbacks = now;
        let conditions = with_callbacks["conditions"].as_array_mut().unwrap();
        conditions.push(json!({ "type": "CallbackDelivered", "status": "False" }));
        assert_eq!(is_outdated(kind, &with_callbacks), kind == Kind::PodNetworkConfig);
    }
}

#[test]
fn leases_are_read_back_without_interfaces() {
    for kind in [Kind::PodConfig, Kind::PodNetworkConfig, Kind::L2ServiceAttachment] {
        let status = Status { realized: None, ..pods() };
        let json = to_json(kind, &status);
        let read = crate::status::convert::read(kind, &json).unwrap();
        assert_eq!((read.phase, read.leased, read.pods.len()), (Some(Phase::Pending), 0, 1));
        let (then, now) = (&status.pods[0], &read.pods[0]);
        assert_eq!((&then.name, &then.uid, &then.leases), (&now.name, &now.uid, &now.leases));
        assert!(now.links.is_empty());
        // This difference causes no write.
        assert_eq!(content_of(json), content(kind, &status));
    }
}

#[test]
fn leases_of_a_subnet_are_read_back() {
    let status = Status {
        phase: Some(Phase::Ready),
        node_addresses: vec![NodeBlocks {
            node: "node1".into(),
            blocks: vec!["10.0.0.16/28".parse().unwrap(), "fd00::10/128".parse().unwrap()],
        }],
        fixed_addresses: vec![FixedAddress {
            address: "10.0.0.5".parse().unwrap(),
            namespace: "ns".into(),
            pod: "db-0".into(),
            node: "node1".into(),
        }],
        leased: 3,
        ..Status::default()
    };
    let json = to_json(Kind::Subnet, &status);
    assert_eq!(
        json["nodeAddresses"],
        json!([{ "node": "node1", "blocks": ["10.0.0.16/28", "fd00::10/128"] }])
    );
    assert_eq!(
        json["fixedAddresses"],
        json!([{ "address": "10.0.0.5", "namespace": "ns", "pod": "db-0", "node": "node1" }])
    );
    let read = crate::status::convert::read(Kind::Subnet, &json).unwrap();
    assert_eq!(read.node_addresses, status.node_addresses);
    assert_eq!((read.fixed_addresses, read.leased), (status.fixed_addresses, 0));
}

#[test]
fn bridge_configs_list_nodes() {
    let spec =
        BridgeSpec { name: "pcbr0".into(), cidrs: vec!["192.168.100.0/24".parse().unwrap()], mtu: None };
    let status = Status {
        phase: Some(Phase::Ready),
        nodes: vec!["worker1".into(), "worker2".into()],
        realized: Some(Arc::new(Spec::Bridge(spec))),
        ..Status::default()
    };
    let json = to_json(Kind::Bridge, &status);
    assert_eq!(json["bridgeConfigs"][0], "{node:worker1 bridge:pcbr0 cidr:192.168.100.0/24}");
    assert_eq!(crate::status::convert::read(Kind::Bridge, &json), Some(status));
    assert_eq!(bridge_node("{node:}"), None);
}

/// The bounds are those of the CRD.
#[test]
fn texts_of_devices_are_within_the_bounds_of_the_fields() {
    let long = "x".repeat(40 * 1024);
    let text = |text: &str| eno_schemas::Text::new(text);
    let mut status = full();
    status.message = format!("a\u{1b}[2J\u{202e}{long}");
    status.conditions[0].message.clone_from(&status.message);
    status.device = Some(DeviceInfo {
        dialect: Some(text(&long)),
        capabilities: (0..1000).map(|n| text(&format!("{}{long}", n % 500))).collect(),
        host_key_fingerprint: Some(text(&long)),
        model: Some(text(&long)),
        ..DeviceInfo::default()
    });
    let json = to_json(Kind::FabricDevice, &status);
    let length = |path: &str| json.pointer(path).and_then(Value::as_str).map_or(0, str::len);
    assert_eq!((length("/message"), length("/conditions/0/message")), (8192, 8192));
    assert!(json["message"].as_str().unwrap().starts_with("a\u{fffd}[2J\u{fffd}x"));
    assert_eq!((length("/dialect"), length("/hostKeyFingerprint"), length("/model")), (63, 256, 1024));
    let capabilities = json["capabilities"].as_array().unwrap();
    let different: BTreeSet<&str> = capabilities.iter().filter_map(Value::as_str).collect();
    assert_eq!((capabilities.len(), different.len()), (256, 256));
    assert!(different.iter().all(|one| one.len() <= 256));
    assert_eq!(json["leftOut"], json!({ "capabilities": 244 }));
}

/// Beyond the bound of its list an entry is left out and counted. The leases of pods are never: the core grants no more
/// than there is room for.
#[test]
fn statuses_of_any_size_are_within_the_bounds_of_the_crd() {
    let total = 20_000;
    let names = || (0..total).map(|n| Name::from(format!("n{n:05}"))).collect::<Vec<_>>();
    let addresses = (1..40).map(|n| format!("10.0.0.{n}/24").parse().unwrap()).collect::<Vec<_>>();
    let long = LinkEntry { addresses: addresses.iter().copied().cycle().take(400).collect(), ..link_entry() };
    let pod = |name: Name| PodEntry {
        problem: (&*name == "n19999").then(|| "x".repeat(5000)),
        links: if &*name == "n00000" { vec![long.clone()] } else { vec![link_entry()] },
        ifname: None,
        leases: if &*name == "n00007" { [("pc0".into(), addresses.clone())].into() } else { [].into() },
        uid: name.clone(),
        name,
    };
    let spec = BridgeSpec { name: "pcbr0".into(), cidrs: vec![], mtu: None };
    let long_result = VerificationResult {
        from: "n".repeat(253).into(),
        macs: (0..9).map(|n| format!("02:00:00:00:00:0{n}")).collect(),
        reason: Some("x".repeat(Text::MAX_BYTES).into()),
        ..verification(&["node2"]).results.remove(0)
    };
    let status = Status {
        realized: Some(Arc::new(Spec::Bridge(spec))),
        connection_points: names(),
        switch_ports: names().iter().map(|name| format!("leaf1:{name}")).collect(),
        nodes: names(),
        pods: names().into_iter().map(pod).collect(),
        verification: Some(Verification {
            nonce: "n".repeat(64).into(),
            results: vec![long_result; Verification::MAX_RESULTS],
            left_out: 1,
        }),
        ..full()
    };
    let size = |value: &Value| serde_json::to_vec(value).unwrap().len();
    for (kind, pods) in [
        (Kind::L2Service, "podConfigurations"),
        (Kind::L2ServiceAttachment, "podConfigurations"),
        (Kind::PhysicalNetwork, "podConfigurations"),
        (Kind::FabricDevice, "podConfigurations"),
        (Kind::Bridge, "podConfigurations"),
        (Kind::PodConfig, "podConfigurations"),
        (Kind::PodNetworkConfig, "PodNetworkConfigs"),
    ] {
        let json = to_json(kind, &status);
        assert_eq!(crd_bounds::excess(kind.as_str(), &json), Vec::<String>::new(), "{kind}");
        assert_eq!(json["leftOut"]["connectionPoints"], total - 1024);
        assert_eq!(json["leftOut"]["switchPorts"], total - 1024);
        for list in ["bridgeConfigs", pods] {
            let shown = json[list].as_array().map_or(0, Vec::len);
            assert!(shown > 1000 && size(&json[list]) <= 192 * 1024, "{list}: {shown}");
            assert_eq!(json["leftOut"][list], total - shown, "{list}");
        }
        assert_eq!(json[pods][0]["podName"], "n19999", "pods that lack something come first");
        let read = crate::status::convert::read(kind, &json).unwrap();
        assert_eq!(read.pods[0].leases[&Name::from("pc0")], addresses);
    }
    assert_eq!(to_json(Kind::L2Service, &full()).get("leftOut"), None);
}

/// An attachment gives an interface without an address, or with several entries.
#[test]
fn name_of_an_interface_is_read_back() {
    let addresses = |count: u8| (1..=count).map(|n| format!("10.0.0.{n}/24").parse().unwrap()).collect();
    let pod = |name: &str, count| PodEntry {
        name: name.into(),
        uid: name.into(),
        leases: [("a".into(), addresses(count)), ("a/s".into(), addresses(1))].into(),
        ifname: Some(format!("{name}0")),
        links: vec![],
        problem: None,
    };
    let status = Status { pods: vec![pod("p", 0), pod("q", 20)], ..full() };
    let json = to_json(Kind::L2ServiceAttachment, &status);
    let named = |entry: &Value| entry.get("interface").is_some();
    assert_eq!(json["addresses"].as_array().unwrap().iter().filter(|entry| named(entry)).count(), 2);
    assert_eq!(crd_bounds::excess("L2ServiceAttachment", &json), Vec::<String>::new());
    assert_eq!(crate::status::convert::read(Kind::L2ServiceAttachment, &json).unwrap().pods, status.pods);
}

/// A trunk may have an interface for each VLAN.
#[test]
fn interfaces_of_a_pod_are_within_the_bounds_of_the_crd() {
    let links = vec![link_entry(); 4095];
    let (leases, ifname) = ([("a".into(), vec![])].into(), None);
    let pod = PodEntry { name: "other/p".into(), uid: "u".into(), leases, ifname, links, problem: None };
    let json = to_json(Kind::L2ServiceAttachment, &Status { pods: vec![pod], ..full() });
    assert_eq!(crd_bounds::excess("L2ServiceAttachment", &json), Vec::<String>::new());
    assert_eq!(json.pointer("/podConfigurations/0/configList").unwrap().as_array().unwrap().len(), 256);
}

fn link_entry() -> LinkEntry {
    LinkEntry {
        link: "pc0".into(),
        name: "pc0284".into(),
        host_name: Some("hpc0284".into()),
        bridge: Some("pcbr0".into()),
        mac: None,
        mtu: 1500,
        addresses: vec![],
    }
}
