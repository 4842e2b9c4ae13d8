//! Dialects: the data model, validation and state data of each vendor.
//!
//! A dialect is a schema table and a handful of functions. To add one, add a file with a `static` [`Dialect`] and its
//! tests, and name it in [`Dialect::ALL`].

mod accessors;
mod bgp;
#[cfg(test)]
mod bgp_tests;
mod cursor;
mod ieee8021q;
mod junos;
mod nxos;
mod openconfig;
mod routing;
mod srlinux;
#[cfg(test)]
mod tests;
mod view;
mod violations;

use std::collections::BTreeMap;

use crate::bgp_sessions::BgpSupport;
use crate::mac_table::MacTable;
use crate::model::schema::{Definitions, Module};
use crate::model::tree::Container;
use crate::netconf::error::{PathStyle, RpcError};

pub use bgp::{
    BfdView, BgpFamilyView, BgpNeighbourView, BgpView, GracefulRestartView, MaximumPrefixes, PolicyResult,
    PolicyRule, PrefixRange, RouteSource,
};
pub use openconfig::OPENCONFIG;
pub use view::{
    HandEdit, PortMode, PortView, RouteView, RoutedView, View, VlanSet, VlanSetError, VlanView, VrfView,
};

/// The fixed properties of a switch.
#[derive(Debug, Clone, Default)]
pub struct Hardware {
    /// Names of the physical ports.
    pub ports: Vec<String>,
    /// Link aggregations of the factory configuration, with their member ports.
    pub lags: BTreeMap<String, Vec<String>>,
    /// MAC address of the switch.
    pub mac: [u8; 6],
    /// Whether a port that names an undefined VLAN is an error even if the model allows it.
    pub strict_references: bool,
    /// Whether it is a router: its ports don't switch in the factory configuration.
    pub router: bool,
}

impl Hardware {
    /// The link aggregation that a port belongs to in the factory configuration.
    pub fn lag_of(&self, port: &str) -> Option<&str> {
        self.lags.iter().find(|(_, members)| members.iter().any(|m| m == port)).map(|(lag, _)| lag.as_str())
    }
}

/// A data model and the behaviour of the switches that implement it.
#[derive(Debug)]
pub struct Dialect {
    /// The name in the topology file.
    pub name: &'static str,
    /// YANG modules that `<hello>` announces.
    pub modules: &'static [&'static Module],
    /// Vendor capability URIs that `<hello>` announces.
    pub capability_uris: &'static [&'static str],
    /// The format of `error-path`.
    pub error_path_style: PathStyle,
    /// Returns the name of the n-th port, from 1.
    pub port_name: fn(usize) -> String,
    /// The top-level data nodes of the schema.
    pub roots: Definitions,
    /// Returns the factory configuration.
    pub factory: fn(&Hardware) -> Container,
    /// Validates a whole configuration and returns its errors.
    pub check: fn(&Container, &Hardware) -> Vec<RpcError>,
    /// Returns the content of `<get>`: a running configuration with state data.
    pub operational: fn(&Container, &Hardware) -> Container,
    /// Returns the effective switching state of a running configuration.
    pub view: fn(&Container, &Hardware) -> View,
    /// How it shows its MAC table.
    pub mac_table: MacTable,
    /// How it has BGP; `None`: it does not.
    pub bgp: Option<BgpSupport>,
    /// Translates a hand edit into XML, given the running configuration.
    pub hand_edit_xml: fn(&HandEdit, &Container, &Hardware) -> String,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [&'static Dialect; 5] =
        [&OPENCONFIG, &junos::JUNOS, &srlinux::SRLINUX, &ieee8021q::IEEE8021Q, &nxos::NXOS];

    /// Finds a dialect by its name.
    pub fn named(name: &str) -> Option<&'static Dialect> {
        Self::ALL.into_iter().find(|dialect| dialect.name == name)
    }
}
