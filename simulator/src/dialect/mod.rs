//! Dialects: what a kind of switch models, checks and shows.
//!
//! A dialect is a schema table and a handful of functions. To add one, add a file with a `static`
//! [`Dialect`] and name it in [`Dialect::ALL`].

mod ieee8021q;
mod junos;
mod nxos;
mod openconfig;
mod openconfig_checks;
mod srlinux;
mod tables;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;

use crate::model::schema::{Definition, Module};
use crate::model::tree::Container;
use crate::netconf::error::{PathStyle, RpcError};

pub use ieee8021q::IEEE8021Q;
pub use junos::JUNOS;
pub use nxos::NXOS;
pub use openconfig::OPENCONFIG;
pub use srlinux::SRLINUX;
pub use view::{HandEdit, PortMode, PortView, View, VlanSet, VlanSetError, VlanView};

/// The parts of a switch that no configuration changes.
#[derive(Debug, Clone, Default)]
pub struct Hardware {
    /// The names of its physical ports.
    pub ports: Vec<String>,
    /// Link aggregations that it has from the start, with their members.
    pub lags: BTreeMap<String, Vec<String>>,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Refuses a port that names a VLAN which isn't defined, where the model itself would not.
    pub strict_references: bool,
}

impl Hardware {
    /// The link aggregation that a port belongs to from the start.
    pub fn lag_of(&self, port: &str) -> Option<&str> {
        self.lags.iter().find(|(_, members)| members.iter().any(|m| m == port)).map(|(lag, _)| lag.as_str())
    }
}

/// A data model together with the behaviour of the switches that speak it.
#[derive(Debug)]
pub struct Dialect {
    /// As the topology names it.
    pub name: &'static str,
    /// What `<hello>` announces.
    pub modules: &'static [&'static Module],
    /// What `<hello>` announces besides: URIs of the make's own.
    pub uris: &'static [&'static str],
    /// How the make writes `error-path`.
    pub paths: PathStyle,
    /// The name of its n-th port, from 1.
    pub port: fn(usize) -> String,
    /// The schema's top level.
    pub roots: &'static [Definition],
    /// The configuration of a switch as it leaves the factory.
    pub factory: fn(&Hardware) -> Container,
    /// What is wrong with a whole configuration.
    pub check: fn(&Container, &Hardware) -> Vec<RpcError>,
    /// What `<get>` shows of a running configuration: itself and the state.
    pub operational: fn(&Container, &Hardware) -> Container,
    /// What the data plane does with a running configuration.
    pub view: fn(&Container, &Hardware) -> View,
    /// The edit that a person at the console would make.
    pub by_hand: fn(&HandEdit, &Container, &Hardware) -> String,
}

impl Dialect {
    /// All of them.
    pub const ALL: [&'static Dialect; 5] = [&OPENCONFIG, &JUNOS, &SRLINUX, &IEEE8021Q, &NXOS];

    /// The dialect of that name.
    pub fn named(name: &str) -> Option<&'static Dialect> {
        Self::ALL.into_iter().find(|dialect| dialect.name == name)
    }
}
