//! The networks of a connection point on its nodes.

use std::collections::BTreeMap;

use eno_schemas::{HostNetwork, OvsDatapath, Uplink, VlanId, VlanSet, VlanType};
use serde::Serialize;

use crate::kinds::{ConnectionPointSpec, Invalid, Plugin};
use crate::{Config, Name};

/// Maximum bytes of an interface's name (`IFNAMSIZ` less its terminator).
pub const NAME_BYTES: usize = 15;

/// The kind of a host network, and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Shape {
    /// An Open vSwitch bridge.
    Ovs {
        /// As [`HostNetwork::Ovs`] has it.
        datapath: Option<OvsDatapath>,
        /// NICs, ascending.
        uplink: Vec<String>,
        /// As [`HostNetwork::Ovs`] has it.
        patch: Option<String>,
    },
    /// A Linux bridge.
    Bridge {
        /// NICs, ascending.
        uplink: Vec<String>,
    },
    /// A NIC or a bond.
    Master {
        /// As [`HostNetwork::Master`] has it, ascending.
        bond: Vec<String>,
    },
}

impl Shape {
    /// Its name in messages.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Ovs { .. } | Self::Bridge { .. } => "bridge",
            Self::Master { .. } => "interface",
        }
    }

    /// The NICs that no other network may have.
    pub fn nics(&self) -> &[String] {
        match self {
            Self::Ovs { uplink, .. } | Self::Bridge { uplink } => uplink,
            Self::Master { bond } => bond,
        }
    }

    /// True when an MTU can be set on it.
    pub fn has_mtu(&self) -> bool {
        matches!(self, Self::Master { .. }) || !self.nics().is_empty()
    }

    /// Renders it for a command.
    pub fn render(&self, vlans: VlanSet, mtu: Option<u32>) -> HostNetwork {
        let uplink = |interfaces: &Vec<String>| {
            (!interfaces.is_empty()).then(|| Uplink { interfaces: interfaces.clone(), mtu })
        };
        match self {
            Self::Ovs { datapath, uplink: nics, patch } => {
                HostNetwork::Ovs { datapath: *datapath, uplink: uplink(nics), patch: patch.clone(), vlans }
            }
            Self::Bridge { uplink: nics } => HostNetwork::Bridge { uplink: uplink(nics), vlans, mtu },
            Self::Master { bond } => HostNetwork::Master { bond: bond.clone(), vlans, mtu },
        }
    }
}

/// The networks of the host that a connection point needs, by name.
pub type Shapes = BTreeMap<String, Shape>;

/// The networks that a connection point needs on each of its nodes.
pub fn shapes(spec: &ConnectionPointSpec) -> Result<Shapes, Invalid> {
    let mut nics = spec.interfaces.clone();
    nics.sort();
    nics.dedup();
    for (i, nic) in spec.interfaces.iter().enumerate() {
        check_name(&format!("Interfaces[{i}]"), nic)?;
    }
    let bridged =
        spec.cnis.iter().any(|cni| matches!(cni.plugin, Plugin::Ovs { .. } | Plugin::Bridge { .. }));
    let mut shapes = Shapes::new();
    for (i, cni) in spec.cnis.iter().enumerate() {
        let field = |option: &str| format!("SupportedCnis[{i}].Opts.{option}");
        let (field, name, shape) = match &cni.plugin {
            Plugin::Ovs { bridge_name, datapath, patch, .. } => {
                if let Some(patch) = patch {
                    check_name(&field("Patch"), patch)?;
                }
                let shape = Shape::Ovs { datapath: *datapath, uplink: nics.clone(), patch: patch.clone() };
                (field("BridgeName"), bridge_name, shape)
            }
            Plugin::Bridge { bridge_name } => {
                (field("BridgeName"), bridge_name, Shape::Bridge { uplink: nics.clone() })
            }
            Plugin::Macvlan { master } | Plugin::Ipvlan { master } | Plugin::Vlan { master } => {
                let is_bond = nics.len() > 1 && !bridged && !nics.contains(master);
                let bond = if is_bond { nics.clone() } else { Vec::new() };
                (field("Master"), master, Shape::Master { bond })
            }
            Plugin::HostDevice { .. } | Plugin::Sriov { .. } | Plugin::Userspace { .. } => continue,
        };
        check_name(&field, name)?;
        if shapes.insert(name.clone(), shape.clone()).is_some_and(|before| before != shape) {
            let problem =
                format!("{name} is also the name of another network of this object; choose another");
            return Err(Invalid::new(field, problem));
        }
    }
    for name in
        shapes.iter().filter(|(_, shape)| !matches!(shape, Shape::Master { .. })).map(|(name, _)| name)
    {
        if nics.contains(name) {
            let problem = format!("{name} can't be a bridge and its uplink; name one of them differently");
            return Err(Invalid::new("Interfaces", problem));
        }
    }
    Ok(shapes)
}

/// Checks the name of an interface for the kernel and Open vSwitch.
pub fn check_name(field: &str, name: &str) -> Result<(), Invalid> {
    match name_problem(name) {
        Some(problem) => Err(Invalid::new(field, problem)),
        None => Ok(()),
    }
}

/// Why `name` can't be the name of an interface.
pub fn name_problem(name: &str) -> Option<String> {
    let printable = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '"' | '\\');
    if name.is_empty() || name == "." || name == ".." || !name.chars().all(printable) {
        return Some(format!(
            "{name:?} can't be the name of an interface; use ASCII letters, digits, '.', '_' and '-'"
        ));
    }
    (name.len() > NAME_BYTES).then(|| {
        format!(
            "{name} has {} bytes, and the name of an interface at most {NAME_BYTES}; shorten it",
            name.len()
        )
    })
}

/// Checks the name of the subinterface that an attachment needs.
pub(crate) fn check_subinterface(
    config: &Config,
    point: &Name,
    plugin: &Plugin,
    vlan_type: VlanType,
    vid: VlanId,
) -> Result<(), Invalid> {
    let (true, Plugin::Macvlan { master } | Plugin::Ipvlan { master }, VlanType::Access) =
        (config.nodes, plugin, vlan_type)
    else {
        return Ok(());
    };
    let name = format!("{master}.{vid}");
    if name.len() <= NAME_BYTES {
        return Ok(());
    }
    let problem = format!(
        "the VLAN interface {name} that {} needs at ConnectionPoint {point} has {} bytes, and the name of an interface at most {}; take an Implementation without one or a shorter Master",
        plugin.name().as_str(),
        name.len(),
        NAME_BYTES
    );
    Err(Invalid::new("ConnectionPoint", problem))
}
