//! The kinds of NetworkAttachmentDefinitions, with their prerequisites and expected results.

use eno_schemas::{Cni, Dns, Ipam, NadRoute, NadSubnet, NadVlans, Pool, VlanAttachment, VlanId};
use serde_json::{Value, json};

use crate::cnitool::netns::Namespace;

/// One kind.
pub struct Kind {
    /// The name in messages.
    pub name: &'static str,
    /// A kernel feature that may be missing.
    pub needs: Option<Needs>,
    /// Sets up the host's side.
    pub prepare: fn(&Namespace),
    /// The attachment to render.
    pub attachment: fn() -> VlanAttachment,
    /// The device that Multus would pass.
    pub device: Option<&'static str>,
    /// The pod's global addresses, sorted.
    pub addresses: &'static [&'static str],
    /// Checks the pod's interface (as `ip -d -j` shows it), the host and the pod.
    pub check: fn(&Value, &Namespace, &Namespace),
}

/// A kernel feature that may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    Macvlan,
    Ipvlan,
    Vlan,
    BridgeVlanFiltering,
}

impl Needs {
    pub const ALL: [Self; 4] = [Self::Macvlan, Self::Ipvlan, Self::Vlan, Self::BridgeVlanFiltering];

    /// Tries the feature; returns why it is missing.
    pub fn missing(self, probe: &Namespace) -> Option<String> {
        let tried = match self {
            Self::Macvlan => on_veth(probe, "pm", &["type", "macvlan", "mode", "bridge"]),
            Self::Ipvlan => on_veth(probe, "pi", &["type", "ipvlan", "mode", "l2"]),
            Self::Vlan => on_veth(probe, "pv", &["type", "vlan", "id", "5"]),
            Self::BridgeVlanFiltering => {
                probe.try_ip(&["link", "add", "pb", "type", "bridge", "vlan_filtering", "1"])
            }
        };
        let what = match self {
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
            Self::Vlan => "802.1Q",
            Self::BridgeVlanFiltering => "bridge VLAN filtering",
        };
        tried.err().map(|why| format!("{what}: {why}"))
    }
}

fn on_veth(probe: &Namespace, name: &str, of: &[&str]) -> Result<(), String> {
    let lower = format!("{name}0");
    probe.ip(&["link", "add", &lower, "type", "veth", "peer", "name", &format!("{name}1")]);
    probe.try_ip(&[&["link", "add", "link", &lower, "name", name], of].concat())
}

pub static KINDS: [Kind; 9] = [
    Kind {
        name: "macvlan-trunk",
        needs: Some(Needs::Macvlan),
        prepare: |host| uplink(host, "up0"),
        attachment: || VlanAttachment { mtu: Some(1400), ..tagged(Cni::Macvlan { master: "up0".into() }) },
        device: None,
        addresses: &[],
        check: |link, _, _| {
            assert_eq!(link["linkinfo"]["info_kind"], "macvlan");
            assert_eq!(link["linkinfo"]["info_data"]["mode"], "bridge");
            assert_eq!(link["mtu"], 1400);
        },
    },
    Kind {
        name: "macvlan-access-static",
        needs: Some(Needs::Macvlan),
        // The node driver creates this VLAN subinterface; macvlan works on any master.
        prepare: |host| uplink(host, "up0.13"),
        attachment: || {
            access(Cni::Macvlan { master: "up0.13".into() }, vec![v4(Ipam::Static), v6(Ipam::Static)])
        },
        device: None,
        addresses: &["10.10.13.10/24", "2001:db8::10/64"],
        check: |link, _, _| assert_eq!(link["linkinfo"]["info_kind"], "macvlan"),
    },
    Kind {
        name: "macvlan-access-host-local",
        needs: Some(Needs::Macvlan),
        prepare: |host| uplink(host, "up0.13"),
        attachment: || {
            let mut v4 = v4(Ipam::HostLocal);
            v4.pools.insert(0, pool("10.10.13.200", "10.10.13.210"));
            access(Cni::Macvlan { master: "up0.13".into() }, vec![v4, v6(Ipam::HostLocal)])
        },
        device: None,
        addresses: &["10.10.13.10/24", "2001:db8::10/64"],
        check: |link, _, _| assert_eq!(link["linkinfo"]["info_kind"], "macvlan"),
    },
    Kind {
        name: "host-device-trunk",
        needs: None,
        prepare: |host| uplink(host, "dev0"),
        attachment: || tagged(Cni::HostDevice { pool: "example.com/pool".into() }),
        device: Some("dev0"),
        addresses: &[],
        check: |link, host, _| {
            assert_eq!(link["linkinfo"]["info_kind"], "veth");
            assert!(!host.links().iter().any(|link| link == "dev0"), "the device left the host");
        },
    },
    Kind {
        name: "bridge-access",
        needs: Some(Needs::BridgeVlanFiltering),
        prepare: |_| (),
        attachment: || VlanAttachment {
            mtu: Some(1400),
            ..access(Cni::Bridge { bridge: "br13".into() }, vec![v4(Ipam::HostLocal), v6(Ipam::HostLocal)])
        },
        device: None,
        addresses: &["10.10.13.10/24", "2001:db8::10/64"],
        check: |link, host, _| {
            assert_eq!(link["mtu"], 1400);
            // VLAN 13 untagged and no other, in particular not VLAN 1.
            assert_eq!(
                bridge_port_vlans(host),
                json!([{ "vlan": 13, "flags": ["PVID", "Egress Untagged"] }])
            );
        },
    },
    Kind {
        name: "bridge-selective",
        needs: Some(Needs::BridgeVlanFiltering),
        prepare: |_| (),
        attachment: || VlanAttachment {
            vlans: NadVlans::Selective("10-12,20".parse().expect("a set")),
            ..tagged(Cni::Bridge { bridge: "br0".into() })
        },
        device: None,
        addresses: &[],
        check: |link, host, pod| {
            let vlans = json!([{ "vlan": 10 }, { "vlan": 11 }, { "vlan": 12 }, { "vlan": 20 }]);
            assert_eq!(bridge_port_vlans(host), vlans);
            // Untagged frames of the pod enter no VLAN, tagged ones their own.
            pod.ip(&["addr", "add", "192.0.2.1/24", "dev", "net1"]);
            pod.ping("192.0.2.2");
            assert_eq!(learned(host, link), Vec::<u64>::new());
            pod.ip(&["link", "add", "link", "net1", "name", "net1.20", "type", "vlan", "id", "20"]);
            pod.ip(&["link", "set", "net1.20", "up"]);
            pod.ip(&["addr", "add", "198.51.100.1/24", "dev", "net1.20"]);
            pod.ping("198.51.100.2");
            assert_eq!(learned(host, link), vec![20_u64]);
        },
    },
    Kind {
        name: "ipvlan-access",
        needs: Some(Needs::Ipvlan),
        prepare: |host| uplink(host, "up0.13"),
        attachment: || {
            access(Cni::Ipvlan { master: "up0.13".into() }, vec![v4(Ipam::HostLocal), v6(Ipam::HostLocal)])
        },
        device: None,
        addresses: &["10.10.13.10/24", "2001:db8::10/64"],
        check: |link, _, _| assert_eq!(link["linkinfo"]["info_kind"], "ipvlan"),
    },
    Kind {
        name: "vlan-access-static",
        needs: Some(Needs::Vlan),
        prepare: |host| uplink(host, "up0"),
        attachment: || VlanAttachment {
            mtu: Some(1400),
            ..access(Cni::Vlan { master: "up0".into() }, vec![v4(Ipam::Static)])
        },
        device: None,
        addresses: &["10.10.13.10/24"],
        check: |link, _, _| {
            assert_eq!(link["linkinfo"]["info_data"]["id"], 13);
            assert_eq!(link["mtu"], 1400);
        },
    },
    Kind {
        name: "vlan-access-host-local",
        needs: Some(Needs::Vlan),
        prepare: |host| uplink(host, "up0"),
        attachment: || access(Cni::Vlan { master: "up0".into() }, vec![v4(Ipam::HostLocal)]),
        device: None,
        addresses: &["10.10.13.10/24"],
        check: |link, _, _| assert_eq!(link["linkinfo"]["info_kind"], "vlan"),
    },
];

/// An interface that is up and has no peer.
pub fn uplink(host: &Namespace, name: &str) {
    host.ip(&["link", "add", name, "type", "veth", "peer", "name", "far"]);
    host.ip(&["link", "set", name, "up"]);
    host.ip(&["link", "set", "far", "up"]);
}

/// The VLANs of the bridge's one port.
fn bridge_port_vlans(host: &Namespace) -> Value {
    let all = host.bridge_json(&["vlan", "show"]);
    let port = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|port| port["ifname"].as_str().is_some_and(|n| n.starts_with("veth")));
    port.map_or(Value::Null, |port| port["vlans"].clone())
}

/// The VLANs in which the bridge has seen frames of the pod's interface.
fn learned(host: &Namespace, link: &Value) -> Vec<u64> {
    let all = host.bridge_json(&["fdb", "show", "br", "br0"]);
    let entries = all.as_array().into_iter().flatten().filter(|entry| entry["mac"] == link["address"]);
    entries.map(|entry| entry["vlan"].as_u64().unwrap_or_default()).collect()
}

/// An access attachment with addresses of host-local.
pub fn macvlan_by_host_local() -> VlanAttachment {
    access(Cni::Macvlan { master: "up0.13".into() }, vec![v4(Ipam::HostLocal)])
}

fn tagged(cni: Cni) -> VlanAttachment {
    VlanAttachment { cni, vlans: NadVlans::Trunk, mtu: None, subnets: Vec::new(), pool: None }
}

fn access(cni: Cni, subnets: Vec<NadSubnet>) -> VlanAttachment {
    VlanAttachment {
        cni,
        vlans: NadVlans::Access(VlanId::new(13).expect("a VLAN ID")),
        mtu: None,
        subnets,
        pool: None,
    }
}

fn pool(start: &str, end: &str) -> Pool {
    Pool { start: start.parse().expect("an address"), end: end.parse().expect("an address") }
}

fn v4(ipam: Ipam) -> NadSubnet {
    NadSubnet {
        subnet: None,
        ipam,
        network: "10.10.13.0/24".parse().expect("a network"),
        pools: vec![pool("10.10.13.10", "10.10.13.100")],
        routes: vec![NadRoute {
            prefix: "30.30.13.0/24".parse().expect("a network"),
            next_hop: "10.10.13.1".parse().expect("an address"),
        }],
        dns: Dns {
            nameservers: vec!["192.0.2.53".into()],
            domain: Some("example.com".into()),
            search: vec!["a.example.com".into()],
        },
    }
}

fn v6(ipam: Ipam) -> NadSubnet {
    NadSubnet {
        subnet: None,
        ipam,
        network: "2001:db8::/64".parse().expect("a network"),
        pools: vec![pool("2001:db8::10", "2001:db8::100")],
        routes: vec![NadRoute {
            prefix: "2001:db8:1::/64".parse().expect("a network"),
            next_hop: "2001:db8::1".parse().expect("an address"),
        }],
        dns: Dns::default(),
    }
}
