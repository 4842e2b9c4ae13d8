//! The rows and columns of the `Open_vSwitch` database (ovs-vswitchd.conf.db(5)) that this driver reads.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::column::{integer, map, text, uuids};
use eno_ovsdb::open_vswitch::{DATABASE, Root};
use eno_ovsdb::{MonitorRequest, Replica, Row, Uuid};

/// Bridges, ports and interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The only row of table `Open_vSwitch`; absent until `ovs-vsctl init`, which starting Open vSwitch does.
    pub(super) root: Option<Root>,
    /// Bridges by name.
    pub(super) bridges: BTreeMap<String, Bridge>,
    /// Ports by row; each is on a bridge.
    pub(super) ports: BTreeMap<Uuid, Port>,
    /// Interfaces by row; each is on a port.
    pub(super) interfaces: BTreeMap<Uuid, Interface>,
}

/// `Bridge`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bridge {
    pub(super) uuid: Uuid,
    pub(super) datapath: String,
    pub(super) ports: BTreeSet<Uuid>,
    pub(super) external_ids: BTreeMap<String, String>,
}

/// `Port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Port {
    /// `name`.
    pub(super) name: String,
    /// `interfaces`: rows of its interfaces.
    pub(super) interfaces: BTreeSet<Uuid>,
    /// `tag`: the VLAN of an access port, or the native VLAN.
    pub(super) tag: Option<i64>,
    /// `trunks`: VLANs of a trunk; empty: all.
    pub(super) trunks: BTreeSet<i64>,
    /// `vlan_mode`.
    pub(super) vlan_mode: Option<String>,
    /// `bond_mode`.
    pub(super) bond_mode: Option<String>,
    /// `external_ids`.
    pub(super) external_ids: BTreeMap<String, String>,
}

/// `Interface`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Interface {
    /// `name`.
    pub(super) name: String,
    /// `type`: empty for an interface of the host.
    pub(super) kind: String,
    /// `options`.
    pub(super) options: BTreeMap<String, String>,
    /// `external_ids`.
    pub(super) external_ids: BTreeMap<String, String>,
    /// `ofport`: -1 when it could not be opened; absent until that was tried.
    pub(super) ofport: Option<i64>,
    /// `error`: why it could not be opened.
    pub(super) error: Option<String>,
    /// `ifindex`: that of the host interface that was opened; 0 when that is gone.
    pub(super) ifindex: Option<i64>,
    /// `mtu`, in bytes.
    pub(super) mtu: Option<i64>,
    /// `mtu_request`, in bytes.
    pub(super) mtu_request: Option<i64>,
}

impl Interface {
    /// True when the host's interface is gone, but Open vSwitch still has it open. The userspace datapath does so, and
    /// does not notice a new interface of that name: the port has to be made again.
    pub(super) fn is_gone(&self) -> bool {
        self.kind.is_empty() && self.ifindex == Some(0) && self.ofport.is_some_and(|ofport| ofport >= 0)
    }

    /// Why the interface does not work, as a message; `None`: it works.
    pub(super) fn fault(&self) -> Option<String> {
        match (&self.error, self.ofport) {
            (Some(error), _) => Some(error.clone()),
            (None, Some(..0)) => Some("Open vSwitch could not open it".into()),
            (None, Some(0..)) if self.is_gone() => Some("it is gone from the host".into()),
            (None, Some(0..)) => None,
            (None, None) => Some("Open vSwitch has not opened it yet".into()),
        }
    }
}

impl View {
    /// The tables and columns to mirror.
    pub(super) fn request() -> MonitorRequest {
        MonitorRequest::new()
            .table(DATABASE, ["next_cfg", "cur_cfg"])
            .table("Bridge", ["name", "datapath_type", "ports", "external_ids"])
            .table("Port", ["name", "interfaces", "tag", "trunks", "vlan_mode", "bond_mode", "external_ids"])
            .table(
                "Interface",
                [
                    "name",
                    "type",
                    "options",
                    "external_ids",
                    "ofport",
                    "error",
                    "ifindex",
                    "mtu",
                    "mtu_request",
                ],
            )
    }

    /// Reads the mirrored tables.
    pub(super) fn read(replica: &Replica) -> Self {
        let bridge = |(uuid, row): (Uuid, &Row)| {
            let bridge = Bridge {
                uuid,
                datapath: name(row, "datapath_type"),
                ports: uuids(row, "ports"),
                external_ids: map(row, "external_ids"),
            };
            (name(row, "name"), bridge)
        };
        let port = |(uuid, row): (Uuid, &Row)| {
            let port = Port {
                name: name(row, "name"),
                interfaces: uuids(row, "interfaces"),
                tag: integer(row, "tag"),
                trunks: row.get("trunks").map(|trunks| trunks.integers().collect()).unwrap_or_default(),
                vlan_mode: text(row, "vlan_mode"),
                bond_mode: text(row, "bond_mode"),
                external_ids: map(row, "external_ids"),
            };
            (uuid, port)
        };
        let interface = |(uuid, row): (Uuid, &Row)| {
            let interface = Interface {
                name: name(row, "name"),
                kind: name(row, "type"),
                options: map(row, "options"),
                external_ids: map(row, "external_ids"),
                ofport: integer(row, "ofport"),
                ifindex: integer(row, "ifindex"),
                error: text(row, "error"),
                mtu: integer(row, "mtu"),
                mtu_request: integer(row, "mtu_request"),
            };
            (uuid, interface)
        };
        Self {
            root: Root::read(replica),
            bridges: replica.table("Bridge").map(bridge).collect(),
            ports: replica.table("Port").map(port).collect(),
            interfaces: replica.table("Interface").map(interface).collect(),
        }
    }

    /// The interfaces of a port.
    pub(super) fn interfaces_of<'a>(&'a self, port: &'a Port) -> impl Iterator<Item = (Uuid, &'a Interface)> {
        port.interfaces.iter().filter_map(|uuid| Some((*uuid, self.interfaces.get(uuid)?)))
    }

    /// The ports of a bridge.
    pub(super) fn ports_of<'a>(&'a self, bridge: &'a Bridge) -> impl Iterator<Item = (Uuid, &'a Port)> {
        bridge.ports.iter().filter_map(|uuid| Some((*uuid, self.ports.get(uuid)?)))
    }
}

/// The text in a column that every row has.
fn name(row: &Row, column: &str) -> String {
    text(row, column).unwrap_or_default()
}
