//! Dialects: how one family of devices writes VLANs and ports.
//!
//! The law of a dialect: `parse(apply(render(diff(seen, wanted)))) == wanted`, and what is not ours untouched.

mod blame;
pub mod openconfig;

use std::collections::BTreeSet;

use crate::hello::{Hello, Profile};
use crate::plan::{Changes, Seen, Unit};
use crate::reply::RpcError;
use crate::xml::XmlError;

/// A device's answer that does not follow its model. A retry can't help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not XML.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// A leaf that can't be read.
    #[error("{path} holds {value:?}")]
    Leaf {
        /// Its path.
        path: String,
        /// What is there.
        value: String,
    },
}

/// One way to write VLANs and ports. Pure.
pub trait Dialect: Send + Sync {
    /// Its name, as FabricDevice `Dialect` has it.
    fn name(&self) -> &'static str;

    /// How well it fits the device; 0: not at all. The highest wins.
    fn score(&self, hello: &Hello) -> u32;

    /// How a transaction runs on the device; `None`: its configuration can't be written.
    fn profile(&self, hello: &Hello) -> Option<Profile> {
        Profile::of(hello)
    }

    /// The subtree filter for [`parse`](Self::parse): all VLANs, and these interfaces.
    fn filter(&self, interfaces: &BTreeSet<&str>) -> String;

    /// Reads the reply to a `<get-config>` with that filter.
    fn parse(&self, reply: &str) -> Result<Seen, ParseError>;

    /// The subtree filter for [`parse_inventory`](Self::parse_inventory): whether these interfaces exist.
    fn inventory_filter(&self, interfaces: &BTreeSet<&str>) -> String;

    /// Reads the reply to a `<get>` with that filter.
    fn parse_inventory(&self, reply: &str) -> Result<BTreeSet<String>, ParseError>;

    /// The content of `<config>` for an edit that makes `changes` to a device in state `seen`. The prefix `nc` is
    /// bound to NETCONF's namespace.
    fn render(&self, seen: &Seen, changes: &Changes) -> String;

    /// The unit of `changes` that an error is about, if it tells.
    fn blame(&self, error: &RpcError, changes: &Changes) -> Option<Unit>;
}

/// All dialects.
pub const DIALECTS: [&dyn Dialect; 1] = [&openconfig::OpenConfig];

/// The named one, or the one that fits best.
pub fn choose(name: Option<&str>, hello: &Hello) -> Option<&'static dyn Dialect> {
    match name {
        Some(name) => DIALECTS.into_iter().find(|dialect| dialect.name() == name),
        None => DIALECTS
            .into_iter()
            .filter(|dialect| dialect.score(hello) > 0)
            .max_by_key(|dialect| dialect.score(hello)),
    }
}
