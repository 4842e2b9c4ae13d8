//! The topology file: switches, their capabilities and their connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;

/// A fabric: switches, the links between them, and the machines and networks on their ports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Topology {
    /// The simulated switches.
    pub switches: Vec<SwitchSpec>,
    /// Cables between switches.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Machines; each interface is connected to a switch port.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// External networks and the ports to which they are connected.
    #[serde(default)]
    pub physical_networks: Vec<PhysicalNetwork>,
}

/// One switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SwitchSpec {
    /// Name, unique in the topology, of letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// Name of its dialect; `openconfig` if absent.
    #[serde(default = "openconfig")]
    pub dialect: String,
    /// What it does with the VLANs on its ports; switches them if absent.
    #[serde(default, skip_serializing_if = "Role::is_switch")]
    pub role: Role,
    /// Login name; `admin` if absent.
    #[serde(default = "admin")]
    pub username: String,
    /// Password; random if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Authorized OpenSSH public key lines.
    #[serde(default)]
    pub authorized_keys: Vec<String>,
    /// Its NETCONF capabilities.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// Listen address of NETCONF; port 0 stands for a free port.
    #[serde(default = "loopback")]
    pub listen: SocketAddr,
    /// Algorithm of its SSH host key.
    #[serde(default)]
    pub host_key: HostKeyKind,
    /// Link aggregations of the factory configuration, with their member ports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lags: BTreeMap<String, Vec<String>>,
    /// Whether a port that names an undefined VLAN is an error even if the model allows it (Junos).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict_references: bool,
    /// XML merged into the factory configuration, as foreign configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
}

/// What a device does with the VLANs on its ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It switches them.
    #[default]
    Switch,
    /// It routes them: its ports have tagged sub-interfaces, and no VLANs in the factory configuration.
    Router,
}

impl Role {
    /// Whether it is a switch.
    pub fn is_switch(&self) -> bool {
        *self == Role::Switch
    }
}

fn openconfig() -> String {
    "openconfig".to_owned()
}

fn admin() -> String {
    "admin".to_owned()
}

fn loopback() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
}

/// The algorithm of an SSH host key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostKeyKind {
    /// Ed25519.
    #[default]
    Ed25519,
    /// ECDSA on NIST P-256.
    EcdsaP256,
    /// RSA of 3072 bits; its generation takes seconds.
    Rsa,
}

/// The NETCONF capabilities of a switch. By default all but `writableRunning`, `startup` and `yangPush`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[allow(clippy::struct_excessive_bools, reason = "capabilities are independent of each other")]
pub struct Capabilities {
    /// `base:1.0`.
    #[serde(rename = "base10")]
    pub base_1_0: bool,
    /// `base:1.1`.
    #[serde(rename = "base11")]
    pub base_1_1: bool,
    /// `:candidate`.
    pub candidate: bool,
    /// `:confirmed-commit`, which requires `candidate`.
    pub confirmed_commit: ConfirmedCommit,
    /// `:validate`.
    pub validate: bool,
    /// `:writable-running`.
    pub writable_running: bool,
    /// `:rollback-on-error`.
    pub rollback_on_error: bool,
    /// `:startup`.
    pub startup: bool,
    /// `:notification` and `:interleave` (RFC 5277) with RFC 6470's events.
    pub notifications: bool,
    /// YANG-push on change (RFC 8641) through dynamic subscriptions (RFC 8639, 8640).
    pub yang_push: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            base_1_0: true,
            base_1_1: true,
            candidate: true,
            confirmed_commit: ConfirmedCommit::V1_1,
            validate: true,
            writable_running: false,
            rollback_on_error: true,
            startup: false,
            notifications: true,
            yang_push: false,
        }
    }
}

/// The version of `:confirmed-commit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfirmedCommit {
    /// None.
    #[serde(rename = "none")]
    None,
    /// RFC 4741: without `<persist>` and `<cancel-commit>`.
    #[serde(rename = "1.0")]
    V1_0,
    /// RFC 6241.
    #[serde(rename = "1.1")]
    V1_1,
}

/// A cable between two switches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: LinkEnd,
    /// The other end.
    pub b: LinkEnd,
}

/// A switch port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEnd {
    /// The switch's name.
    pub switch: String,
    /// The port's name.
    pub port: String,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its interfaces.
    pub interfaces: Vec<NodeInterface>,
}

/// A network interface of a machine and the switch port to which it is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeInterface {
    /// The interface's name on the machine.
    pub name: String,
    /// The switch's name.
    pub switch: String,
    /// The port's name.
    pub port: String,
}

/// An external network and the switch port to which it is connected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhysicalNetwork {
    /// Its name.
    pub name: String,
    /// The switch's name.
    pub switch: String,
    /// The port's name.
    pub port: String,
}

/// A topology is invalid. A retry doesn't help.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The file is not YAML or JSON of a topology.
    #[error("reading the topology: {0}")]
    Syntax(#[from] serde_saphyr::Error),
    /// The name of a switch is invalid.
    #[error(
        "switch name {0:?}: only letters, digits, '-', '_' and '.' are allowed, and not at its start a '.'"
    )]
    SwitchName(String),
    /// A name is not unique.
    #[error("there is more than one {kind} {name}")]
    Twice {
        /// The kind of the duplicate.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The dialect is unknown.
    #[error("switch {switch}: dialect {dialect:?} is not known")]
    Dialect {
        /// The switch.
        switch: String,
        /// The unknown dialect.
        dialect: String,
    },
    /// The capabilities are inconsistent.
    #[error("switch {switch}: {problem}")]
    Capabilities {
        /// The switch.
        switch: String,
        /// The inconsistency.
        problem: &'static str,
    },
    /// A port does not exist.
    #[error("{what} names port {port} of switch {switch}, which does not exist")]
    NoSuchPort {
        /// The object that names the port.
        what: String,
        /// The switch.
        switch: String,
        /// The port.
        port: String,
    },
    /// A port has several connections.
    #[error("port {port} of switch {switch} is used twice")]
    PortTaken {
        /// The switch.
        switch: String,
        /// The port.
        port: String,
    },
}

impl Topology {
    /// Parses YAML or JSON and validates it.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let topology: Self = serde_saphyr::from_str(text)?;
        topology.validate()?;
        Ok(topology)
    }

    /// Validates the names, the capabilities and the connections.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let mut ports: BTreeSet<LinkEnd> = BTreeSet::new();
        let mut names = BTreeSet::new();
        for switch in &self.switches {
            switch.validate()?;
            if !names.insert(&switch.name) {
                return Err(TopologyError::Twice { kind: "switch", name: switch.name.clone() });
            }
            for port in &switch.ports {
                if !ports.insert(LinkEnd { switch: switch.name.clone(), port: port.clone() }) {
                    return Err(TopologyError::Twice {
                        kind: "port",
                        name: format!("{}/{port}", switch.name),
                    });
                }
            }
        }
        for end in self.cable_ends() {
            let (what, end) = end;
            let LinkEnd { switch, port } = end.clone();
            if !ports.remove(&end) {
                let exists = self.switches.iter().any(|s| s.name == switch && s.ports.contains(&port));
                return Err(if exists {
                    TopologyError::PortTaken { switch, port }
                } else {
                    TopologyError::NoSuchPort { what, switch, port }
                });
            }
        }
        Ok(())
    }

    /// Adds a router of a dialect with a link to the last free port of each of these switches. Without a free port
    /// there is no link.
    pub fn add_router(&mut self, name: &str, dialect: &str, switches: &[&str]) {
        let port_name =
            Dialect::named(dialect).map_or(Dialect::ALL[0].port_name, |dialect| dialect.port_name);
        let ports: Vec<String> = (1..=switches.len()).map(port_name).collect();
        for (switch, own) in switches.iter().zip(&ports) {
            let used: BTreeSet<LinkEnd> = self.cable_ends().into_iter().map(|(_, end)| end).collect();
            let spec = self.switches.iter().find(|spec| spec.name == *switch);
            let mut ends = spec
                .into_iter()
                .flat_map(|spec| spec.ports.iter().rev())
                .map(|port| LinkEnd { switch: (*switch).to_owned(), port: port.clone() });
            if let Some(b) = ends.find(|end| !used.contains(end)) {
                self.links.push(Link { a: LinkEnd { switch: name.to_owned(), port: own.clone() }, b });
            }
        }
        let spec = SwitchSpec::new(name, ports);
        self.switches.push(SwitchSpec { dialect: dialect.to_owned(), role: Role::Router, ..spec });
    }

    fn cable_ends(&self) -> Vec<(String, LinkEnd)> {
        let links = self
            .links
            .iter()
            .flat_map(|link| [&link.a, &link.b])
            .map(|end| ("a link".to_owned(), end.clone()));
        let nodes = self.nodes.iter().flat_map(|node| {
            node.interfaces.iter().map(|i| {
                (format!("node {}", node.name), LinkEnd { switch: i.switch.clone(), port: i.port.clone() })
            })
        });
        let networks = self.physical_networks.iter().map(|n| {
            (
                format!("physical network {}", n.name),
                LinkEnd { switch: n.switch.clone(), port: n.port.clone() },
            )
        });
        links.chain(nodes).chain(networks).collect()
    }

    /// Builds a leaf–spine fabric: `leaf1`…, `spine1`…, one link between each leaf and each spine, nodes `node1`…
    /// with one interface `eth1`, and the network `dc-gw` on the last leaf. Nodes fill the leaves in blocks.
    ///
    /// On a leaf, nodes have the ports `Ethernet1`…, `dc-gw` has `Ethernet48`, and the uplinks follow from
    /// `Ethernet49`. More than 47 nodes on a leaf shift `dc-gw` and the uplinks.
    pub fn leaf_spine(leaves: usize, spines: usize, nodes: usize) -> Self {
        Self::leaf_spine_of(leaves, spines, nodes, &["openconfig"])
    }

    /// Builds a leaf–spine fabric of several dialects. The switches, leaves first, get the dialects in turn, and port
    /// names of the dialect (`xe-0/0/1`, `ethernet-1/1`, …). Without dialects, all are OpenConfig.
    /// [`Self::validate`] refuses unknown dialects.
    pub fn leaf_spine_of(leaves: usize, spines: usize, nodes: usize, dialects: &[&str]) -> Self {
        let dialect_of = |n: usize| dialects.get(n % dialects.len().max(1)).copied().unwrap_or("openconfig");
        let port = |dialect: &str, n: usize| {
            Dialect::named(dialect).map_or_else(|| format!("Ethernet{n}"), |dialect| (dialect.port_name)(n))
        };
        let leaf_port = |leaf: usize, n: usize| port(dialect_of(leaf - 1), n);
        let per_leaf = nodes.div_ceil(leaves.max(1));
        let border = per_leaf.max(47) + 1;
        let mut topology = Topology::default();
        let mut add = |name: String, ports: usize| {
            let dialect = dialect_of(topology.switches.len());
            let ports = (1..=ports).map(|n| port(dialect, n)).collect();
            topology
                .switches
                .push(SwitchSpec { dialect: dialect.to_owned(), ..SwitchSpec::new(name, ports) });
        };
        for leaf in 1..=leaves {
            add(format!("leaf{leaf}"), border + spines);
        }
        for spine in 1..=spines {
            add(format!("spine{spine}"), leaves.max(32));
        }
        for leaf in 1..=leaves {
            for spine in 1..=spines {
                topology.links.push(Link {
                    a: LinkEnd { switch: format!("leaf{leaf}"), port: leaf_port(leaf, border + spine) },
                    b: LinkEnd {
                        switch: format!("spine{spine}"),
                        port: port(dialect_of(leaves + spine - 1), leaf),
                    },
                });
            }
        }
        if leaves > 0 {
            topology.nodes = (0..nodes)
                .map(|n| Node {
                    name: format!("node{}", n + 1),
                    interfaces: vec![NodeInterface {
                        name: "eth1".to_owned(),
                        switch: format!("leaf{}", n / per_leaf + 1),
                        port: leaf_port(n / per_leaf + 1, n % per_leaf + 1),
                    }],
                })
                .collect();
            topology.physical_networks = vec![PhysicalNetwork {
                name: "dc-gw".to_owned(),
                switch: format!("leaf{leaves}"),
                port: leaf_port(leaves, border),
            }];
        }
        topology
    }
}

impl SwitchSpec {
    /// Creates an OpenConfig switch with all defaults.
    pub fn new(name: impl Into<String>, ports: Vec<String>) -> Self {
        Self {
            name: name.into(),
            ports,
            dialect: openconfig(),
            role: Role::default(),
            username: admin(),
            password: None,
            authorized_keys: Vec::new(),
            capabilities: Capabilities::default(),
            listen: loopback(),
            host_key: HostKeyKind::default(),
            lags: BTreeMap::new(),
            strict_references: false,
            configuration: None,
        }
    }

    fn validate(&self) -> Result<(), TopologyError> {
        // The name is used as a directory and in URLs.
        let plain = self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if self.name.is_empty() || self.name.starts_with('.') || !plain {
            return Err(TopologyError::SwitchName(self.name.clone()));
        }
        if Dialect::named(&self.dialect).is_none() {
            return Err(TopologyError::Dialect { switch: self.name.clone(), dialect: self.dialect.clone() });
        }
        let mut members = BTreeSet::new();
        for member in self.lags.values().flatten() {
            let (switch, port) = (self.name.clone(), member.clone());
            if !self.ports.contains(member) {
                return Err(TopologyError::NoSuchPort {
                    what: "a link aggregation".to_owned(),
                    switch,
                    port,
                });
            }
            if !members.insert(member) {
                return Err(TopologyError::PortTaken { switch, port });
            }
        }
        let capabilities = &self.capabilities;
        let problem = if !capabilities.base_1_0 && !capabilities.base_1_1 {
            "it needs base10 or base11"
        } else if !capabilities.candidate && !capabilities.writable_running {
            "it needs candidate or writableRunning"
        } else if !capabilities.candidate && capabilities.confirmed_commit != ConfirmedCommit::None {
            "confirmedCommit needs candidate"
        } else {
            return Ok(());
        };
        Err(TopologyError::Capabilities { switch: self.name.clone(), problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_leaf_spine_equals_built_topology() {
        let shipped = Topology::parse(include_str!("../topologies/leaf-spine.yaml")).expect("valid");
        assert_eq!(shipped, Topology::leaf_spine(2, 2, 4));
    }

    #[test]
    fn leaf_spine_of_any_size_is_valid() {
        for (leaves, spines, nodes) in [(1, 0, 1), (2, 2, 4), (3, 1, 100), (32, 4, 1000), (0, 0, 0)] {
            Topology::leaf_spine(leaves, spines, nodes).validate().expect("valid");
        }
    }

    #[test]
    fn router_is_linked_to_free_ports() {
        let mut topology = Topology::leaf_spine(2, 1, 2);
        topology.add_router("gw1", "junos", &["spine1", "leaf1"]);
        topology.validate().expect("valid");
        let end = |switch: &str, port: &str| LinkEnd { switch: switch.to_owned(), port: port.to_owned() };
        let links = [
            Link { a: end("gw1", "xe-0/0/1"), b: end("spine1", "Ethernet32") },
            Link { a: end("gw1", "xe-0/0/2"), b: end("leaf1", "Ethernet48") },
        ];
        assert_eq!(topology.links[2..], links);
        let text = serde_json::to_string(&topology).expect("JSON");
        assert_eq!(Topology::parse(&text).expect("valid"), topology);
    }

    #[test]
    fn shipped_mixed_topology_is_valid_and_has_every_dialect() {
        let shipped = Topology::parse(include_str!("../topologies/mixed.yaml")).expect("valid");
        let makes: BTreeSet<&str> = shipped.switches.iter().map(|switch| switch.dialect.as_str()).collect();
        assert_eq!(makes.len(), Dialect::ALL.len());
        let made = Topology::leaf_spine_of(3, 2, 6, &["openconfig", "junos", "srlinux", "ieee8021q", "nxos"]);
        made.validate().expect("valid");
        assert_eq!(made.nodes[2].interfaces[0].port, "xe-0/0/1");
        assert_eq!(made.links[5].b.port, "eth1/3");
    }

    #[test]
    fn parse_refuses_inconsistent_topology() {
        let switch = |extra: &str| format!("switches: [{{name: s, ports: [p1, p2]{extra}}}]");
        let cases = [
            ("switches: [{name: ../x, ports: []}]".to_owned(), "switch name"),
            ("switches: [{name: s, ports: []}, {name: s, ports: []}]".to_owned(), "more than one switch"),
            (switch(", dialect: tellabs"), "dialect \"tellabs\" is not known"),
            (switch(", capabilities: {candidate: false}"), "candidate or writableRunning"),
            (switch(", capabilities: {base10: false, base11: false}"), "base10 or base11"),
            (switch(", colour: red"), "colour"),
            (switch("").replace("p2", "p1"), "more than one port"),
            (switch("") + "\nphysicalNetworks: [{name: n, switch: s, port: p3}]", "does not exist"),
            (switch("") + "\nlinks: [{a: {switch: s, port: p1}, b: {switch: s, port: p1}}]", "used twice"),
        ];
        for (text, expected) in cases {
            let error = Topology::parse(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
