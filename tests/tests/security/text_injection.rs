//! Text with a special meaning in XML, JSON, OVSDB, a shell, a path or a terminal, in every text field. The API server
//! refuses it, except in the listed fields.

use std::collections::{BTreeMap, BTreeSet};

use eno_control_plane::NatsUser;
use eno_nbi_crds::{ConnectionPoint, FabricDevice, L2ServiceAttachment, Phase, api_version, crds, manifest};
use eno_tests::{System, with_exclusive_sandbox, with_shared_sandbox};
use futures::{StreamExt as _, stream};
use http::Request;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// Valid specs by kind.
const ACCEPTED: &str = include_str!("../../../nbi-crds/tests/apiserver/accepted.yaml");

const INJECTED_TEXTS: [&str; 14] = [
    "\"><inject xmlns=\"x\"/><a b=\"",
    "]]>]]>",
    "a&amp;b",
    "\",\"type\":\"host-device\",\"x\":\"",
    "$(reboot)",
    "`reboot`",
    "a;reboot",
    "../../etc/passwd",
    "--force",
    "a\nb",
    "a\u{0}b",
    "a\u{1b}[2J",
    "a\u{202e}b",
    "ä",
];

/// Fields that accept some of these texts, by kind and path, and why the text is harmless there.
const UNRESTRICTED_FIELDS: &[(&str, &str)] = &[
    ("BGPSessionGroup NodeSelector/matchLabels/edge", "it is compared with labels of nodes"),
    ("ConnectionPoint Description", "nobody reads it but people"),
    ("PhysicalNetwork Description", "nobody reads it but people"),
    ("PodNetworkConfig Name", "nobody reads it but people"),
    ("PodNetworkConfig name", "nobody reads it but people"),
    ("PodNetworkConfig additionalNetworks/*/networkDescription", "nobody reads it but people"),
    (
        "FabricDevice Ports/*/Name",
        "printable ASCII as the device spells it, escaped in XML and in OVSDB's JSON",
    ),
    ("FabricDevice Ports/*/Lag", "the same"),
    ("FabricDevice Ports/*/Port", "it is compared with the names of ports"),
    ("NodePool NodeSelector/matchExpressions/*/key", "it is compared with labels of nodes"),
    ("NodePool NodeSelector/matchExpressions/*/values/*", "they are compared with labels of nodes"),
    ("NodePool NodeSelector/matchLabels/a", "it is compared with labels of nodes"),
    ("PhysicalNetwork Namespaces/matchLabels/tenant", "it is compared with labels of namespaces"),
    ("VRF Services/matchLabels/vrf", "it is compared with labels of L2Services"),
    (
        "PodConfig networkAttachments/*/alias",
        "the engine refuses control characters; netlink carries it as bytes",
    ),
    (
        "PodConfig networkAttachments/*/sysctls/net.ipv4.conf.IFNAME.rp_filter",
        "engine and agent take numbers only",
    ),
];

/// A field without list indices: `FabricDevice Ports/*/Name`.
fn field(kind: &str, pointer: &str) -> String {
    let parts = pointer.split('/').skip(1);
    let parts = parts.map(|part| if part.parse::<usize>().is_ok() { "*" } else { part });
    format!("{kind} {}", parts.collect::<Vec<_>>().join("/"))
}

/// Collects the JSON pointers of all texts in a value.
fn text_pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(all) => {
            for (n, one) in all.iter().enumerate() {
                text_pointers(one, &format!("{at}/{n}"), found);
            }
        }
        Value::Object(all) => {
            for (key, one) in all {
                text_pointers(one, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        _ => {}
    }
}

/// Whether the API server would accept an object with this spec.
async fn is_accepted(client: &Client, kind: &str, spec: &Value) -> bool {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("a kind of ours");
    let namespace = if crd.spec.scope == "Namespaced" { "namespaces/default/" } else { "" };
    let path = format!("/apis/{}/{namespace}{}?dryRun=All", api_version(kind), crd.spec.names.plural);
    let object = manifest(kind, "tried", spec);
    let request =
        Request::post(path).header("content-type", "application/json").body(object.to_string().into_bytes());
    match client.request_text(request.expect("a request")).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => false,
        Err(error) => panic!("{kind} {spec}: {error}"),
    }
}

#[test]
fn api_server_refuses_injected_text_except_in_listed_fields() {
    with_shared_sandbox(async |system| {
        let client = system.sandbox.client();
        let mut tries = BTreeMap::new();
        let accepted: BTreeMap<String, Vec<Value>> = serde_saphyr::from_str(ACCEPTED).expect("YAML");
        for (kind, spec) in
            accepted.iter().flat_map(|(kind, specs)| specs.iter().map(move |spec| (kind, spec)))
        {
            let mut pointers = Vec::new();
            text_pointers(spec, "", &mut pointers);
            for pointer in pointers {
                tries.entry(field(kind, &pointer)).or_insert_with(|| (kind, spec, pointer));
            }
        }
        assert!(tries.len() > 60, "{} fields", tries.len());
        let accepted_texts = stream::iter(&tries)
            .flat_map(|(field, (kind, spec, pointer))| {
                stream::iter(INJECTED_TEXTS.map(move |text| (field, *kind, *spec, pointer, text)))
            })
            .map(async |(field, kind, spec, pointer, text)| {
                let mut spec = spec.clone();
                *spec.pointer_mut(pointer).expect("the place of a text") = json!(text);
                is_accepted(&client, kind, &spec).await.then_some((field.as_str(), text))
            })
            .buffer_unordered(16)
            .filter_map(async |is_accepted| is_accepted)
            .collect::<BTreeSet<_>>()
            .await;
        let mut by_field: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (field, text) in accepted_texts {
            by_field.entry(field).or_default().push(text);
        }
        let unrestricted: BTreeSet<&str> = UNRESTRICTED_FIELDS.iter().map(|(field, _)| *field).collect();
        let found: BTreeSet<&str> = by_field.keys().copied().collect();
        assert_eq!(found, unrestricted, "{by_field:#?}");
    });
}

/// A CNI's options are JSON in a text, which the API server does not parse. The engine refuses them, and nothing of
/// them reaches a NetworkAttachmentDefinition.
#[test]
fn engine_refuses_injected_text_in_cni_options() {
    with_shared_sandbox(async |system| {
        system.namespace("inject").await;
        let service = manifest("L2Service", "inject", json!({ "SegmentationID": 700 })).to_string();
        system.apply(&service).await;
        let mut all = vec![service.clone()];
        let mut names = Vec::new();
        for (number, text) in INJECTED_TEXTS.iter().enumerate() {
            for (cni, key) in [("ovs", "BridgeName"), ("host-device", "PoolName")] {
                let name = format!("inject-{cni}-{number}");
                all.extend(point_and_attachment(&name, cni, &json!({ key: text }).to_string()));
                names.push(name);
            }
        }
        for yaml in &all {
            system.apply(yaml).await;
        }
        let mut failures = Vec::new();
        for name in &names {
            let point = until_decided(system, name).await;
            let status = point.status.clone().unwrap_or_default();
            let message = status.message.unwrap_or_default();
            if status.phase != Some(Phase::Error) || !message.contains("Opts") {
                failures.push(format!("{name}: {:?} {message}", point.spec.supported_cnis));
            }
            system.becomes::<L2ServiceAttachment>(&format!("inject/{name}"), Phase::Error).await;
        }
        let nads = system.nads("inject").list(&kube::api::ListParams::default()).await.expect("a list");
        assert_eq!(nads.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), Vec::<String>::new());
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        for yaml in all.iter().rev() {
            system.request_deletion(yaml).await;
        }
        system.delete(&service).await;
    });
}

fn point_and_attachment(name: &str, cni: &str, options: &str) -> [String; 2] {
    let vlan_type = if cni == "ovs" { "access" } else { "trunk" };
    let cni = json!({ "Name": cni, "SupportedInterfaceTypes": ["kernel"], "Opts": options });
    let point = manifest("ConnectionPoint", name, json!({ "SupportedCnis": [cni] }));
    let spec = json!({ "ConnectionPoint": name, "L2Services": ["inject"], "VlanType": vlan_type });
    let attachment = manifest("L2ServiceAttachment", &format!("inject/{name}"), spec);
    [point.to_string(), attachment.to_string()]
}

/// Waits until the engine has found a ConnectionPoint ready or in error.
async fn until_decided(system: &System, name: &str) -> ConnectionPoint {
    let decided = |point: &ConnectionPoint| {
        let phase = point.status.as_ref().and_then(|status| status.phase);
        matches!(phase, Some(Phase::Ready | Phase::Error))
    };
    system.until_one(name, "decided", decided).await
}

/// Characters that change what a terminal or a page shows.
fn is_hostile(char: char) -> bool {
    (char.is_control() && char != '\n') || ('\u{202a}'..='\u{202e}').contains(&char) || char == '\u{200b}'
}

/// A driver in another language hands on what its device says. Each text is in the status and in the answers of `eno`,
/// cut and without what a terminal obeys.
#[test]
fn texts_of_a_device_are_cut_and_cleaned() {
    const RESULT: &str = "eno.v1.result.netconf.leaf1";
    with_exclusive_sandbox(async |system| {
        system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
        let admin = system.nats(NatsUser::Admin).await;
        let results = admin.get_stream("ENO_RESULTS").await.expect("a stream");
        // The test reports in the place of the driver.
        system.sandbox.stop_child("driver-netconf").await.expect("a driver that leaves");
        let client = system.nats(NatsUser::Part(eno_parts::DRIVER_NETCONF)).await;
        let last = results.get_last_raw_message_by_subject(RESULT).await.expect("a report");
        let mut report: Value = serde_json::from_slice(&last.payload).expect("JSON");
        let hostile = "<rpc-error>\u{1b}[2J\u{9b}31m\u{202e}\u{200b}\r\nlost";
        for (number, size) in [0, 40 * 1024, 1900 * 1024].into_iter().enumerate() {
            let text = format!("{number} {hostile}{}", "x".repeat(size));
            let short: String = text.chars().take(500).collect();
            report["outcome"] =
                json!({ "status": "failed", "reason": text, "retryable": true, "unreachable": true });
            report["notes"] = json!([{ "kind": "OpenTrunk", "message": short }]);
            report["device"]["model"] = short.into();
            let sent = client.publish(RESULT, report.to_string().into()).await.expect("it is sent");
            sent.await.expect("it is stored");
            let start = format!("{number} <rpc-error>");
            let tells_it = |device: &FabricDevice| {
                let mut conditions = device.status.iter().flat_map(|status| &status.conditions);
                conditions.any(|one| one.type_ == "Reachable" && one.message.starts_with(&start))
            };
            let device = system.until_one("leaf1", &format!("text {number}"), tells_it).await;
            let status = serde_json::to_string(&device.status).expect("JSON");
            assert!(!status.chars().any(is_hostile), "{status}");
            assert!(status.len() < 16 * 1024, "{} bytes", status.len());
            for arguments in [&["status", "fd/leaf1"][..], &["status", "-o", "wide"], &["trace", "fd/leaf1"]]
            {
                let output = system.eno(arguments, "").await;
                let shown = String::from_utf8_lossy(&output.stdout);
                assert!(!shown.chars().any(is_hostile), "{arguments:?}: {shown:?}");
            }
            let status = system.eno(&["status", "fd/leaf1"], "").await;
            let shown = String::from_utf8_lossy(&status.stdout);
            assert!(shown.contains("rpc-error"), "{shown}");
        }
        system.sandbox.start_child("driver-netconf").await.expect("the driver again");
        system.becomes::<FabricDevice>("leaf1", Phase::Ready).await;
    });
}
