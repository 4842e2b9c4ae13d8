//! Tests of imports and their errors.

use eno_nbi_crds::{ConnectionPoint, FabricDevice, NodePool, manifest};
use serde_json::{Value, json};

use eno::import::Source;
use eno::import::ovs_plugin::{DEFAULT_ADDRESS, ImportOptions, Object, import, yaml};

const LINKS: &str = "
- {hostname: master0, interfaceName: ens26, switchName: br-fabric, switchPort: vport7}
- {hostname: master0, interfaceName: ens2, switchName: br_admin, switchPort: vport3}
- {hostname: node0, interfaceName: ens10, switchName: br-fabric, switchPort: vport13}
";
const POOLS: &str = "
- poolConf:
    name: ovs-pool
    netConf:
      interfaces:
      - {name: ens2, type: ethernet, state: up}
      - {name: ens26, type: ethernet, state: up, connectionPoint: cp-br-trunk}
- poolConf:
    name: virtio-pool
    netConf:
      interfaces:
      - {name: ens10, connectionPoint: cp-virtio}
      - {name: ens11, connectionPoint: cp-virtio}
";

fn source(name: &str, text: &str) -> Source {
    Source { name: name.into(), text: text.into() }
}

fn config_map(key: &str, text: &str) -> String {
    let data = text.replace('\n', "\n    ");
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  {key}: |{data}\n")
}

fn imported(sources: &[Source]) -> Vec<Object> {
    import(sources, &ImportOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(links: &str, pools: &str) -> String {
    let sources = [source("l", links), source("p", pools)];
    match import(&sources, &ImportOptions::default()) {
        Err(error) => error.to_string(),
        Ok(objects) => panic!("{objects:?}"),
    }
}

#[test]
fn every_configuration_form_imports_the_same() {
    let list = |text: &str| serde_saphyr::from_str::<Value>(text).expect("YAML");
    let both = json!({ "links": list(LINKS), "nodePools": list(POOLS) });
    let expected = imported(&[source("a", LINKS), source("b", POOLS)]);
    for sources in [
        vec![source("a", &config_map("links", LINKS)), source("b", &config_map("nodePools", POOLS))],
        vec![source("a", &format!("{}---\n{}", config_map("links", LINKS), config_map("nodePools", POOLS)))],
        vec![source("a", &both.to_string())],
        vec![source("a", &json!({ "links": LINKS, "nodePools": POOLS }).to_string())],
        vec![source("a", &format!("links:{LINKS}nodePools:{POOLS}"))],
        vec![
            source("a", &json!({ "kind": "Role", "rules": [] }).to_string()),
            source("b", &list(LINKS).to_string()),
            source("c", &list(POOLS).to_string()),
        ],
        vec![source(
            "a",
            &json!({ "kind": "List", "items": [list(&config_map("links", LINKS)), list(&config_map("nodePools", POOLS))] })
                .to_string(),
        )],
    ] {
        assert_eq!(imported(&sources), expected, "{sources:?}");
    }
}

#[test]
fn import_makes_devices_pools_and_connection_points() {
    let objects = imported(&[source("a", LINKS), source("b", POOLS)]);
    let spec = |kind: &str, name: &str| {
        let found = objects
            .iter()
            .find(|object| object.manifest["kind"] == kind && object.manifest["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("{kind} {name}")).manifest["spec"].clone()
    };
    assert_eq!(objects.len(), 6);
    let pool = json!({ "NodeSelector": { "matchLabels": { "node-pool": "ovs-pool" } } });
    assert_eq!(spec("NodePool", "ovs-pool"), pool);
    let device = json!({
        "Driver": "ovs-fabric",
        "Address": DEFAULT_ADDRESS,
        "Ports": [
            { "Name": "vport7", "Node": "master0", "Interface": "ens26" },
            { "Name": "vport13", "Node": "node0", "Interface": "ens10" },
        ],
    });
    assert_eq!(spec("FabricDevice", "br-fabric"), device);
    assert_eq!(spec("FabricDevice", "br-admin")["Ports"][0]["Name"], "vport3");
    let bridge = json!({
        "NodePool": "ovs-pool",
        "Interfaces": ["ens26"],
        "SupportedCnis": [{ "Name": "ovs", "SupportedInterfaceTypes": ["kernel"], "Opts": "{\"BridgeName\":\"br-trunk\"}" }],
    });
    assert_eq!(spec("ConnectionPoint", "cp-br-trunk"), bridge);
    let virtio = spec("ConnectionPoint", "cp-virtio");
    assert_eq!(virtio["Interfaces"], json!(["ens10", "ens11"]));
    assert_eq!(virtio["SupportedCnis"][0]["Name"], "host-device");

    let text = yaml(&objects).expect("YAML");
    assert!(text.contains("# SupportedCnis is assumed") && text.contains("# Address is that"), "{text}");
    let read: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    assert_eq!(read, objects.iter().map(|object| object.manifest.clone()).collect::<Vec<_>>());
    for manifest in read {
        let fits = match manifest["kind"].as_str() {
            Some("NodePool") => serde_json::from_value::<NodePool>(manifest.clone()).map(drop),
            Some("FabricDevice") => serde_json::from_value::<FabricDevice>(manifest.clone()).map(drop),
            _ => serde_json::from_value::<ConnectionPoint>(manifest.clone()).map(drop),
        };
        fits.unwrap_or_else(|error| panic!("{error}: {manifest}"));
    }
}

#[test]
fn import_uses_the_other_documents_of_the_files() {
    let deployment = json!({
        "kind": "Deployment",
        "spec": { "template": { "spec": { "containers": [{ "env": [
            { "name": "FABRIC_OVS_IP", "value": "192.0.2.1" }, { "name": "FABRIC_OVS_PORT", "value": "6641" },
        ] }] } } },
    });
    let point = manifest("ConnectionPoint", "cp-virtio", json!({ "SupportedCnis": [{ "Name": "sriov" }] }));
    let sources = [
        source("a", LINKS),
        source("b", POOLS),
        source("c", &deployment.to_string()),
        source("d", &point.to_string()),
    ];
    let objects = imported(&sources);
    let device = objects.iter().find(|object| object.manifest["kind"] == "FabricDevice").expect("a device");
    assert_eq!(device.manifest["spec"]["Address"], "tcp:192.0.2.1:6641");
    assert!(device.remarks.is_empty());
    let virtio =
        objects.iter().find(|object| object.manifest["metadata"]["name"] == "cp-virtio").expect("a point");
    assert_eq!(
        virtio.manifest["spec"],
        json!({ "SupportedCnis": [{ "Name": "sriov" }], "NodePool": "virtio-pool", "Interfaces": ["ens10", "ens11"] })
    );
    assert!(virtio.remarks.is_empty());

    let options = ImportOptions { address: Some("ssl:ovs:6640".into()), secret: Some("ovs".into()) };
    let objects = import(&sources, &options).expect("objects");
    let device = objects.iter().find(|object| object.manifest["kind"] == "FabricDevice").expect("a device");
    assert_eq!(device.manifest["spec"]["Address"], "ssl:ovs:6640");
    assert_eq!(device.manifest["spec"]["Credentials"]["SecretName"], "ovs");
}

#[test]
fn import_errors_name_their_field() {
    let link = |text: &str| format!("links:\n- {{{text}}}\n");
    let pool = |text: &str| format!("nodePools:\n- poolConf: {{{text}}}\n");
    for (links, expected) in [
        (link("interfaceName: a, switchName: b, switchPort: p"), "l: links[0].hostname is not there"),
        (
            link("hostname: '', interfaceName: a, switchName: b, switchPort: p"),
            "l: links[0].hostname is empty",
        ),
        (
            link("hostname: h, interfaceName: a, switchName: b, switchPort: 7"),
            "l: links[0].switchPort is 7, which is no text",
        ),
        (link("hostname: H, interfaceName: a, switchName: b, switchPort: p"), "l: links[0].hostname \"H\""),
        (
            link("hostname: h, interfaceName: a/b, switchName: b, switchPort: p"),
            "l: links[0].interfaceName \"a/b\"",
        ),
        (link("hostname: h, interfaceName: a, switchName: _, switchPort: p"), "l: links[0].switchName \"_\""),
        ("links: {a: b}".into(), "l: links is not a list"),
        ("kind: ConfigMap\ndata: {links: 'a: b'}".into(), "l: data.links is not a list"),
        ("kind: ConfigMap\ndata: {links: '- [a'}".into(), "l: data.links: "),
        ("other: 1".into(), "l: holds neither links nor nodePools"),
        ("- {hostname: h, interfaceName: a, switchName: b}".into(), "l: [0].switchPort is not there"),
        (String::new(), "none of the files holds links"),
    ] {
        let error = refused(&links, POOLS);
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
    for (pools, expected) in [
        ("nodePools: [{}]".into(), "p: nodePools[0].poolConf is not there"),
        (pool("name: A_B"), "p: nodePools[0].poolConf.name \"A_B\""),
        (
            pool("name: a, netConf: {interfaces: [{connectionPoint: c}]}"),
            "p: nodePools[0].poolConf.netConf.interfaces[0].name is not there",
        ),
        (
            pool("name: a, netConf: {interfaces: [{name: e1, connectionPoint: C}]}"),
            "p: nodePools[0].poolConf.netConf.interfaces[0].connectionPoint \"C\"",
        ),
        (
            pool("name: a, netConf: {interfaces: x}"),
            "p: nodePools[0].poolConf.netConf.interfaces is not a list",
        ),
        ("links: []".into(), "l: and p: links both hold links"),
    ] {
        let error = refused(LINKS, &pools);
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
}

#[test]
fn contradictory_entries_are_both_named() {
    let link = |node: &str, nic: &str, switch: &str, port: &str| {
        format!("- {{hostname: {node}, interfaceName: {nic}, switchName: {switch}, switchPort: {port}}}\n")
    };
    for (first, second, expected) in [
        (link("a", "e1", "b", "p"), link("c", "e1", "d", "p"), "l: [0] and l: [1] both have switchPort p"),
        (
            link("a", "e1", "b", "p"),
            link("a", "e1", "b", "q"),
            "l: [0] and l: [1] both have interfaceName e1 of a",
        ),
        (
            link("a", "e1", "br_x", "p"),
            link("a", "e2", "br-x", "q"),
            "l: [0] and l: [1] have switchName br_x and br-x",
        ),
    ] {
        let error = refused(&format!("{first}{second}"), POOLS);
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
    let pool = |name: &str, nic: &str, point: &str| {
        format!(
            "- poolConf: {{name: {name}, netConf: {{interfaces: [{{name: {nic}, connectionPoint: {point}}}]}}}}\n"
        )
    };
    let spread = refused(LINKS, &format!("{}{}", pool("one", "e1", "cp"), pool("two", "e2", "cp")));
    assert!(spread.contains("connectionPoint cp in nodePools one and two"), "{spread}");
    assert!(
        spread.contains("[0].poolConf.netConf.interfaces[0]") && spread.contains("[1].poolConf"),
        "{spread}"
    );
    let twice = refused(LINKS, &format!("{}{}", pool("one", "e1", "c"), pool("one", "e2", "d")));
    assert!(twice.contains("are both named one"), "{twice}");

    let point = "kind: ConnectionPoint\nmetadata: {name: cp-virtio}\nspec: {NodePool: other}\n";
    let sources = [source("l", LINKS), source("p", POOLS), source("c", point)];
    let error = import(&sources, &ImportOptions::default()).expect_err("a conflict").to_string();
    assert!(
        error.contains("c: ConnectionPoint cp-virtio") && error.contains("NodePool is \"other\""),
        "{error}"
    );
}
