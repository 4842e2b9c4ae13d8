//! The part of the `Open_vSwitch` database (ovs-vswitchd.conf.db(5)) that this driver uses.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::column::{integer, map, text, uuids};
use eno_ovsdb::open_vswitch::{DATABASE, Root};
use eno_ovsdb::{MonitorRequest, Replica, Row, Uuid, Value};
use eno_schemas::VlanId;

use crate::trunks::Trunks;

/// Bridges, ports and interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The only row of table `Open_vSwitch`; absent until `ovs-vsctl init`, which the start of Open vSwitch
    /// runs.
    pub root: Option<Root>,
    /// The ports of each bridge, by the bridge's name.
    pub bridges: BTreeMap<String, BTreeSet<Uuid>>,
    /// By row.
    pub ports: BTreeMap<Uuid, Port>,
    /// By row.
    pub interfaces: BTreeMap<Uuid, Interface>,
}

/// `Port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// Unique.
    pub name: String,
    /// More than one for a bond.
    pub interfaces: BTreeSet<Uuid>,
    /// 0 to 4095.
    pub tag: Option<u16>,
    /// Each 0 to 4095; empty: all.
    pub trunks: Trunks,
    /// Absent: by `tag`.
    pub vlan_mode: Option<String>,
    /// Key-value pairs of any client.
    pub external_ids: BTreeMap<String, String>,
}

/// `Interface`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Unique.
    pub name: String,
    /// Why Open vSwitch could not open the interface.
    pub error: Option<String>,
}

/// The VLAN mode of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One VLAN, untagged; 0 without a tag.
    Access(u16),
    /// Tagged VLANs, and perhaps a native one.
    Trunk {
        /// The VLAN of untagged frames.
        native: Option<VlanId>,
    },
    /// Another mode, such as `dot1q-tunnel`.
    Other(String),
}

impl Port {
    /// The mode as ovs-vswitchd derives it from `vlan_mode` and `tag`.
    pub fn mode(&self) -> Mode {
        match (self.vlan_mode.as_deref(), self.tag) {
            (None, None) | (Some("trunk"), _) => Mode::Trunk { native: None },
            (None, Some(tag)) => Mode::Access(tag),
            (Some("access"), tag) => Mode::Access(tag.unwrap_or(0)),
            (Some("native-tagged" | "native-untagged"), tag) => {
                Mode::Trunk { native: tag.and_then(|tag| VlanId::new(tag).ok()) }
            }
            (Some(other), _) => Mode::Other(other.to_owned()),
        }
    }

    /// A trunk that carries every VLAN.
    pub fn is_open(&self) -> bool {
        matches!(self.mode(), Mode::Trunk { .. }) && self.trunks.is_empty()
    }
}

impl View {
    /// The tables and columns to monitor.
    pub fn request() -> MonitorRequest {
        MonitorRequest::new()
            .table(DATABASE, ["next_cfg", "cur_cfg", "ovs_version"])
            .table("Bridge", ["name", "ports"])
            .table("Port", ["name", "interfaces", "tag", "trunks", "vlan_mode", "external_ids"])
            .table("Interface", ["name", "error"])
    }

    /// Reads a mirror.
    pub fn read(replica: &Replica) -> Self {
        let port = |(uuid, row): (Uuid, &Row)| {
            let vlan = |number: i64| u16::try_from(number).ok();
            let port = Port {
                name: text(row, "name").unwrap_or_default(),
                interfaces: uuids(row, "interfaces"),
                tag: integer(row, "tag").and_then(vlan),
                trunks: row.get("trunks").into_iter().flat_map(Value::integers).filter_map(vlan).collect(),
                vlan_mode: text(row, "vlan_mode"),
                external_ids: map(row, "external_ids"),
            };
            (uuid, port)
        };
        let interface = |(uuid, row): (Uuid, &Row)| {
            let interface =
                Interface { name: text(row, "name").unwrap_or_default(), error: text(row, "error") };
            (uuid, interface)
        };
        Self {
            root: Root::read(replica),
            bridges: replica
                .table("Bridge")
                .map(|(_, row)| (text(row, "name").unwrap_or_default(), uuids(row, "ports")))
                .collect(),
            ports: replica.table("Port").map(port).collect(),
            interfaces: replica.table("Interface").map(interface).collect(),
        }
    }

    /// The interfaces of a port.
    pub fn interfaces_of<'a>(&'a self, port: &'a Port) -> impl Iterator<Item = &'a Interface> {
        port.interfaces.iter().filter_map(|uuid| self.interfaces.get(uuid))
    }

    /// Indexes ports and bridges by name.
    pub fn index(&self) -> Index<'_> {
        let mut index = Index::default();
        for (uuid, port) in &self.ports {
            index.ports.insert(&port.name, *uuid);
            index
                .port_of_interface
                .extend(self.interfaces_of(port).map(|member| (member.name.as_str(), *uuid)));
        }
        for (name, ports) in &self.bridges {
            index.bridge_of_port.extend(ports.iter().map(|port| (*port, name.as_str())));
        }
        index
    }
}

/// Lookup tables of a [`View`].
#[derive(Clone, Debug, Default)]
pub struct Index<'a> {
    ports: BTreeMap<&'a str, Uuid>,
    /// Interface to its port.
    port_of_interface: BTreeMap<&'a str, Uuid>,
    /// Port to its bridge.
    bridge_of_port: BTreeMap<Uuid, &'a str>,
}

impl<'a> Index<'a> {
    /// The port of this name, or the port with an interface of this name, such as the bond of a member.
    pub fn port(&self, name: &str) -> Option<Uuid> {
        self.ports.get(name).or_else(|| self.port_of_interface.get(name)).copied()
    }

    /// The port with this interface.
    pub fn port_of_interface(&self, name: &str) -> Option<Uuid> {
        self.port_of_interface.get(name).copied()
    }

    /// The bridge with this port.
    pub fn bridge(&self, port: Uuid) -> Option<&'a str> {
        self.bridge_of_port.get(&port).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_modes_match_vswitchd_semantics() {
        let vlan = |id| Some(VlanId::new(id).unwrap());
        for (vlan_mode, tag, mode) in [
            (None, None, Mode::Trunk { native: None }),
            (None, Some(5), Mode::Access(5)),
            (Some("access"), Some(5), Mode::Access(5)),
            (Some("access"), None, Mode::Access(0)),
            (Some("trunk"), Some(5), Mode::Trunk { native: None }),
            (Some("native-tagged"), Some(5), Mode::Trunk { native: vlan(5) }),
            (Some("native-untagged"), Some(5), Mode::Trunk { native: vlan(5) }),
            (Some("native-untagged"), None, Mode::Trunk { native: None }),
            (Some("dot1q-tunnel"), Some(5), Mode::Other("dot1q-tunnel".into())),
        ] {
            let port = Port { vlan_mode: vlan_mode.map(str::to_owned), tag, ..Port::default() };
            assert_eq!(port.mode(), mode, "{vlan_mode:?} {tag:?}");
            assert_eq!(port.is_open(), matches!(mode, Mode::Trunk { .. }));
        }
    }
}
