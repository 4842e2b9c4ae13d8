//! The interfaces that Multus made for a pod, as it says in an annotation (Network Plumbing Working Group,
//! multi-net-spec 4.1.2). Who may patch the pod can write there what he likes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use eno_core::{Attached, Name};
use serde::Deserialize;

use super::MAX_NETWORKS;

/// The annotation: a list of objects, the first of the cluster's own network.
const NETWORK_STATUS: &str = "k8s.v1.cni.cncf.io/network-status";
/// A longer annotation is not read.
const MAX_BYTES: usize = 128 * 1024;
/// The most addresses of an interface that count.
const MAX_ADDRESSES: usize = 16;

/// One object of the annotation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    /// `<namespace>/<name>` of a NetworkAttachmentDefinition; without a namespace one of the pod's own, or the name of the
    /// cluster's network.
    name: Option<String>,
    interface: Option<String>,
    ips: Option<Vec<String>>,
    default: Option<bool>,
}

/// The interfaces of NetworkAttachmentDefinitions that a pod has; none, if the annotation is too large or not as
/// specified. Entries with a name that nothing can have are left out.
pub fn attached(namespace: &str, annotations: Option<&BTreeMap<String, String>>) -> Vec<Attached> {
    let text = annotations.and_then(|all| all.get(NETWORK_STATUS));
    let Some(text) = text.filter(|text| text.len() <= MAX_BYTES) else { return Vec::new() };
    let Ok(entries) = serde_json::from_str::<Vec<Entry>>(text) else { return Vec::new() };
    if entries.len() > MAX_NETWORKS {
        return Vec::new();
    }
    entries.iter().filter_map(|entry| entry.attached(namespace)).collect()
}

impl Entry {
    fn attached(&self, own: &str) -> Option<Attached> {
        let name = self.name.as_deref()?;
        let (namespace, name) = match name.split_once('/') {
            Some(named) => named,
            None if self.default == Some(true) => return None,
            None => (own, name),
        };
        let interface = self.interface.as_deref().filter(|interface| !interface.is_empty());
        if !is_object_name(namespace) || !is_object_name(name) || !interface.is_none_or(is_interface_name) {
            return None;
        }
        let ips = self.ips.iter().flatten().take(MAX_ADDRESSES);
        let addresses: Vec<IpAddr> = ips.filter_map(|ip| ip.parse().ok()).collect();
        Some(Attached {
            nad: (namespace.into(), name.into()),
            interface: interface.map(Name::from),
            addresses,
        })
    }
}

/// True for what the API server takes as the name of an object.
fn is_object_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 253 && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|byte| inner(*byte))
}

/// True for what the kernel may take as the name of an interface.
fn is_interface_name(text: &str) -> bool {
    text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<Attached> {
        attached("ns", Some(&BTreeMap::from([(NETWORK_STATUS.to_owned(), text.to_owned())])))
    }

    fn net1(nad: (&str, &str), addresses: &[&str]) -> Attached {
        Attached {
            nad: (nad.0.into(), nad.1.into()),
            interface: Some("net1".into()),
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        }
    }

    /// What Multus 4.3.0 writes.
    #[test]
    fn interfaces_are_read_as_multus_writes_them() {
        let text = r#"[{
            "name": "kindnet", "interface": "eth0", "ips": ["10.244.0.7"], "mac": "9a:1b:01:02:03:04", "default": true, "dns": {}
        },{
            "name": "other/trunk", "interface": "net1", "mac": "02:00:00:00:00:01", "mtu": 1500, "dns": {},
            "device-info": {"type": "pci", "version": "1.1.0"}
        },{
            "name": "sub", "interface": "net1", "ips": ["10.1.0.5", "fd00::5"], "dns": {}, "gateway": ["<nil>"]
        },{
            "name": "ns/dpdk", "dns": {}
        }]"#;
        let dpdk = Attached { nad: ("ns".into(), "dpdk".into()), interface: None, addresses: vec![] };
        let expected = [net1(("other", "trunk"), &[]), net1(("ns", "sub"), &["10.1.0.5", "fd00::5"]), dpdk];
        assert_eq!(read(text), expected);
        // A NetworkAttachmentDefinition as the pod's first network.
        let default =
            r#"[{"name": "ns/a", "interface": "net1", "default": true, "ips": null, "unknown": 1}]"#;
        assert_eq!(read(default), [net1(("ns", "a"), &[])]);
    }

    #[test]
    fn wrong_annotation_is_ignored() {
        for text in ["", "{", "{}", "[1]", r#"[{"name": 1}]"#, r#"[{"name": "a", "interface": {}}]"#, "null"]
        {
            assert_eq!(read(text), [], "{text}");
        }
        assert_eq!(attached("ns", None), []);
        let one = json!({ "name": "a", "interface": "net1" });
        let many = |count| serde_json::to_string(&vec![one.clone(); count]).unwrap();
        assert_eq!((read(&many(MAX_NETWORKS)).len(), read(&many(MAX_NETWORKS + 1)).len()), (MAX_NETWORKS, 0));
        assert_eq!(read(&format!("{}{}", many(1), " ".repeat(MAX_BYTES))), []);
    }

    #[test]
    fn entry_with_a_name_that_nothing_can_have_is_left_out() {
        let long = "x".repeat(254);
        for name in ["", "/", "a/", "/a", "a/b/c", "A", "a b", "-a", "a_b", "\u{0007}", &long] {
            assert_eq!(read(&json!([{ "name": name, "interface": "net1" }]).to_string()), [], "{name}");
        }
        for interface in ["net 1", "a/b", "../x", "sixteen-bytes-xx", "n\u{0000}", "é"] {
            assert_eq!(
                read(&json!([{ "name": "a", "interface": interface }]).to_string()),
                [],
                "{interface}"
            );
        }
        let ips: Vec<String> = (0..100).map(|n| format!("10.0.0.{n}")).chain(["x".to_owned()]).collect();
        let found = read(&json!([{ "name": "a", "ips": ips }]).to_string());
        assert_eq!(found[0].addresses.len(), MAX_ADDRESSES);
    }
}
