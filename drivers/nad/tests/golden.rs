//! Golden files: attachments and their CNI configurations, one file each in `tests/golden/`.
//!
//! A file holds `attachment` and its result: `config` and `resourceName`, or `impossible` with the reason.
//! `ENO_REFRESH_GOLDEN=1` rewrites the results. A new case is a file with only an `attachment`.

use std::fs;
use std::path::Path;

use eno_driver_nad::codec::render;
use eno_schemas::VlanAttachment;
use serde_json::{Value, json};

const NAME: &str = "net";

fn result(attachment: &VlanAttachment) -> Value {
    match render(NAME, attachment) {
        Ok(rendered) => {
            let config: Value = serde_json::from_str(&rendered.config).expect("a configuration is JSON");
            json!({ "config": config, "resourceName": rendered.resource_name })
        }
        Err(impossible) => json!({ "impossible": impossible.to_string() }),
    }
}

#[test]
fn rendered_configs_match_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let refresh = std::env::var_os("ENO_REFRESH_GOLDEN").is_some_and(|flag| flag == "1");
    let mut cases = 0;
    let mut stale = Vec::new();
    for entry in fs::read_dir(&folder).expect("the folder of golden files") {
        let path = entry.expect("an entry of the folder").path();
        let text = fs::read_to_string(&path).expect("a golden file");
        let golden: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let attachment: VlanAttachment = serde_json::from_value(golden["attachment"].clone())
            .unwrap_or_else(|error| panic!("{}: attachment: {error}", path.display()));
        let mut made = result(&attachment);
        made["attachment"] = golden["attachment"].clone();
        if made != golden {
            if refresh {
                let text = serde_json::to_string_pretty(&made).expect("JSON") + "\n";
                fs::write(&path, text).expect("writing a golden file");
            } else {
                stale.push(format!("{}: {made:#}", path.display()));
            }
        }
        cases += 1;
    }
    assert!(cases >= 40, "only {cases} golden files in {}", folder.display());
    assert!(stale.is_empty(), "differ (ENO_REFRESH_GOLDEN=1 writes them anew):\n{}", stale.join("\n"));
}

/// The reference implementation's output for its own examples, taken from its templates. We add `name` only.
#[test]
fn rendered_configs_match_reference_outputs() {
    let subnet = json!({
        "ipam": "whereabouts", "network": "10.10.13.0/24",
        "pools": [{ "start": "10.10.13.10", "end": "10.10.13.255" }],
        "routes": [{ "prefix": "30.30.13.0/24", "nextHop": "10.10.13.1" }],
    });
    let ipam = json!({
        "range": "10.10.13.10-10.10.13.255/24", "type": "whereabouts",
        "routes": [{ "dst": "30.30.13.0/24", "gw": "10.10.13.1" }],
    });
    let ovs = json!({ "type": "ovs", "bridge": "br-data" });
    let ovs_resource = "ovs-cni.network.kubevirt.io/br-data";
    let cases = [
        (
            json!({ "cni": ovs, "vlans": { "access": 13 }, "subnets": [subnet] }),
            json!({ "cniVersion": "0.3.1", "type": "ovs", "vlan": 13, "bridge": "br-data", "ipam": ipam }),
            ovs_resource,
        ),
        (
            json!({ "cni": ovs, "vlans": { "selective": "10-14" } }),
            json!({
                "cniVersion": "0.3.1", "type": "ovs", "bridge": "br-data",
                "trunk": [{ "id": 10 }, { "id": 11 }, { "id": 12 }, { "id": 13 }, { "id": 14 }],
            }),
            ovs_resource,
        ),
        (
            json!({ "cni": ovs, "vlans": "trunk" }),
            json!({ "cniVersion": "0.3.1", "type": "ovs", "bridge": "br-data" }),
            ovs_resource,
        ),
        (
            json!({ "cni": { "type": "host-device", "pool": "intel.com/virtio_net_device" }, "vlans": "trunk" }),
            json!({ "cniVersion": "0.3.1", "type": "host-device" }),
            "intel.com/virtio_net_device",
        ),
    ];
    for (attachment, mut reference, resource) in cases {
        let attachment: VlanAttachment = serde_json::from_value(attachment).expect("an attachment");
        let rendered = render(NAME, &attachment).expect("a configuration");
        reference["name"] = json!(NAME);
        let config: Value = serde_json::from_str(&rendered.config).expect("JSON");
        assert_eq!(config, reference);
        assert_eq!(rendered.resource_name.as_deref(), Some(resource));
    }
}
