//! Dialects: what a kind of switch models, checks and shows.
//!
//! A dialect is a schema table and a handful of functions. To add one, add a file with a `static`
//! [`Dialect`] and name it in [`Dialect::named`].

mod openconfig;
mod openconfig_checks;
mod view;

use crate::model::schema::{Definition, Module};
use crate::model::tree::Container;
use crate::netconf::error::RpcError;

pub use openconfig::OPENCONFIG;
pub use view::{HandEdit, PortMode, PortView, View, VlanSet, VlanSetError, VlanView};

/// The parts of a switch that no configuration changes.
#[derive(Debug, Clone)]
pub struct Hardware {
    /// The names of its physical ports.
    pub ports: Vec<String>,
}

/// A data model together with the behaviour of the switches that speak it.
#[derive(Debug)]
pub struct Dialect {
    /// As the topology names it.
    pub name: &'static str,
    /// What `<hello>` announces.
    pub modules: &'static [&'static Module],
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
    pub by_hand: fn(&HandEdit, &Container) -> String,
}

impl Dialect {
    /// The dialect of that name.
    pub fn named(name: &str) -> Option<&'static Dialect> {
        [&OPENCONFIG].into_iter().find(|dialect| dialect.name == name)
    }
}
