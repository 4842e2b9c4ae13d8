//! Dialects: how one family of devices writes VLANs and ports.
//!
//! The property of a dialect: `parse(apply(render(diff(observed, desired)))) == desired`, and foreign configuration
//! stays.

pub mod ieee8021q;
pub mod junos;
mod locate_error;
pub mod nxos;
pub mod openconfig;
pub mod srlinux;

use std::collections::BTreeSet;
use std::fmt;

use eno_schemas::{FabricDesired, VlanSet};

use crate::bgp_sessions::{FoundSessions, WantedSessions};
use crate::hello::{Hello, Profile};
use crate::memory::Counter;
use crate::plan::{
    ChangeUnit, Changes, InterfaceState, Inventory, ObservedBgp, ObservedConfig, ObservedPort,
    ObservedRouting,
};
use crate::reply::RpcError;
use crate::stations::{Found, Wanted};
use crate::text::{Text, excerpt};
use crate::xml::{Scope, Step, XmlError, escape, walk};

/// A reply that does not follow the device's model. A retry can't help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The reply is not XML.
    #[error(transparent)]
    Xml(#[from] XmlError),
    /// A leaf has an invalid value, and what it concerns can't be told.
    #[error("{path} holds {value:?}")]
    Leaf {
        /// The path of the leaf.
        path: String,
        /// The value.
        value: String,
    },
}

/// Maximum characters of a device's value in a reason.
const MAX_VALUE: usize = 80;

/// Marks a port as one whose configuration the dialect does not understand. The other ports are not affected.
fn set_unfit(port: &mut ObservedPort, leaf: &str, value: &str) {
    port.unfit.get_or_insert_with(|| not_understood(leaf, value));
    port.unread = true;
}

/// The reason of such a port.
fn not_understood(leaf: &str, value: &str) -> String {
    format!("has {leaf} {:?}, which ENO does not understand and leaves as it is", excerpt(value, MAX_VALUE))
}

/// The list `interfaces` with the content to select of each of these. Nothing for none: an empty list would select all.
fn select_interfaces(namespace: &str, interfaces: &BTreeSet<&str>, content: &str) -> String {
    if interfaces.is_empty() {
        return String::new();
    }
    let entries = interfaces.iter().fold(String::new(), |all, name| {
        all + "<interface><name>" + &escape(name) + "</name>" + content + "</interface>"
    });
    format!("<interfaces xmlns=\"{namespace}\">{entries}</interfaces>")
}

/// Reads the names of interfaces from a reply.
fn named_interfaces(
    reply: &Text,
    scope: fn(&str) -> Scope,
    is_name: impl Fn(&str) -> bool,
) -> Result<Inventory, ParseError> {
    let (mut inventory, mut kept) = (Inventory::new(), Counter::default());
    walk(reply, scope, |step| {
        if let Step::Leave(path, name) = step
            && is_name(path)
        {
            kept.entry(name.len());
            inventory.insert(name.to_owned(), InterfaceState::default());
        }
        kept.check()
    })?;
    Ok(inventory)
}

/// The dialects that a driver knows.
pub type Dialects = &'static [&'static dyn Dialect];

/// A dialect: how a family of devices writes VLANs and ports. Pure.
pub trait Dialect: Send + Sync {
    /// Its name: `Dialect` of a FabricDevice.
    fn name(&self) -> &'static str;

    /// How well it fits the device; 0: not at all. The highest score wins.
    fn score(&self, hello: &Hello) -> u32;

    /// A warning for admins who use it.
    fn caveat(&self) -> Option<&'static str> {
        None
    }

    /// The transaction profile of the device; `None`: its configuration is read-only.
    fn profile(&self, hello: &Hello) -> Option<Profile> {
        Profile::of(hello)
    }

    /// The vendor, model or software, as far as the `<hello>` tells.
    fn model(&self, hello: &Hello) -> Option<String> {
        hello.vendor().map(str::to_owned)
    }

    /// Whether [`parse`](Self::parse) needs the inventory. Otherwise it is read only when requested interfaces are
    /// missing in the configuration.
    fn needs_inventory(&self) -> bool {
        false
    }

    /// A request for the inventory, where `<get>` does not return it. If the device refuses it, `<get>` is used.
    fn inventory_request(&self) -> Option<String> {
        None
    }

    /// The subtree filter for [`parse_inventory`](Self::parse_inventory) of these interfaces.
    fn inventory_filter(&self, interfaces: &BTreeSet<&str>) -> String;

    /// Parses one or several concatenated replies to `<get>` with that filter, or the reply to [the
    /// request](Self::inventory_request).
    fn parse_inventory(&self, reply: &Text) -> Result<Inventory, ParseError>;

    /// The subtree filter for [`parse`](Self::parse): all VLANs, and these interfaces.
    fn filter(&self, interfaces: &BTreeSet<&str>) -> String;

    /// The same filter with these VLANs only; `None`: the model can't select VLANs by VID on all devices.
    fn filter_for(&self, vlans: &VlanSet, interfaces: &BTreeSet<&str>) -> Option<String> {
        let _ = (vlans, interfaces);
        None
    }

    /// The same filter with one interface and no VLAN; `None`: the filter selects all interfaces.
    fn filter_interface(&self, interface: &str) -> Option<String>;

    /// Parses one or several concatenated replies to `<get-config>` with that filter. The inventory is empty unless
    /// it [is needed](Self::needs_inventory).
    fn parse(&self, reply: &Text, inventory: &Inventory) -> Result<ObservedConfig, ParseError>;

    /// The content of `<config>` for an edit that applies `changes` to the state `observed`. The prefix `nc` is bound
    /// to the NETCONF namespace.
    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text;

    /// How it reads VRFs; `None`: ENO knows no VRFs of such devices. [`render`](Self::render) writes their changes.
    fn routing(&self) -> Option<&dyn RoutingDialect> {
        None
    }

    /// How it reads BGP groups; `None`: ENO knows no BGP of such devices. [`render`](Self::render) writes their changes.
    fn bgp(&self) -> Option<&dyn BgpDialect> {
        None
    }

    /// How it reads the MAC table; `None`: ENO does not know where such devices have it.
    fn mac_table(&self) -> Option<&dyn MacTableDialect> {
        None
    }

    /// The unit of `changes` that an error is about, if the error tells.
    fn locate_error(
        &self,
        error: &RpcError,
        observed: &ObservedConfig,
        changes: &Changes,
    ) -> Option<ChangeUnit>;
}

/// How a dialect reads VRFs, and the interfaces that lead VLANs into them. Pure.
pub trait RoutingDialect: Send + Sync {
    /// The subtree filter for [`parse_routing`](Self::parse_routing): all VRFs, and on a switch all interfaces beside VLANs, on a router
    /// the sub-interfaces of the listed ports.
    fn filter_routing(&self, desired: &FabricDesired) -> String;

    /// Parses the reply to `<get-config>` with that filter.
    fn parse_routing(&self, reply: &Text) -> Result<ObservedRouting, ParseError>;
}

/// How a dialect reads BGP groups of VRFs, and the state of their sessions. Pure.
pub trait BgpDialect: Send + Sync {
    /// The subtree filter for [`parse_bgp`](Self::parse_bgp): BGP of all VRFs, and the routing policies of the device.
    fn filter_bgp(&self) -> String;

    /// Parses the reply to `<get-config>` with that filter. `cluster`: whose groups are ours.
    fn parse_bgp(&self, reply: &Text, cluster: &str) -> Result<ObservedBgp, ParseError>;

    /// The operation, an XML element, that reads the state of all sessions.
    fn sessions_request(&self) -> Text;

    /// Picks the sessions of ours of the reply.
    fn parse_sessions(&self, reply: &Text, wanted: &WantedSessions) -> Result<FoundSessions, ParseError>;
}

/// How a dialect reads the MAC table. Pure.
pub trait MacTableDialect: Send + Sync {
    /// The operation, an XML element, that reads it. No model can select addresses by their first bytes. Filters select the
    /// leaves, and no VLANs or ports: some devices answer only the first of several keys in a filter.
    fn mac_table_request(&self) -> Text;

    /// Picks what is wanted of the reply.
    fn parse_mac_table(&self, reply: &Text, wanted: &Wanted<'_>) -> Result<Found, ParseError>;
}

impl fmt::Debug for dyn Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All dialects.
pub const DIALECTS: Dialects = &[
    &openconfig::OpenConfig,
    &junos::PLAIN,
    &junos::QFX,
    &junos::EX,
    &junos::COMMON,
    &nxos::NxOs,
    &srlinux::SrLinux,
    &ieee8021q::Ieee8021Q,
];

/// The best fitting one of `dialects`, among those of this name.
pub fn choose(dialects: Dialects, name: Option<&str>, hello: &Hello) -> Option<&'static dyn Dialect> {
    let fits = |dialect: &&dyn Dialect| match name {
        Some(name) => dialect.name() == name,
        None => dialect.score(hello) > 0,
    };
    dialects.iter().copied().filter(fits).max_by_key(|dialect| dialect.score(hello))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(modules: &[&str]) -> Option<&'static str> {
        let hello = Hello::new(modules.iter().map(|module| format!("{module}?revision=2025-01-01")), None);
        choose(DIALECTS, None, &hello).map(Dialect::name)
    }

    #[test]
    fn announced_modules_select_the_dialect() {
        let openconfig =
            ["interfaces", "vlan", "network-instance"].map(|m| format!("http://openconfig.net/yang/{m}"));
        let openconfig: Vec<&str> = openconfig.iter().map(String::as_str).collect();
        let srlinux = [
            "urn:nokia.com:srlinux:chassis:interfaces",
            "urn:nokia.com:srlinux:chassis:interfaces-vlans",
            "urn:nokia.com:srlinux:net-inst:network-instance",
        ];
        let ieee =
            ["urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge", "urn:ietf:params:xml:ns:yang:ietf-interfaces"];
        assert_eq!(chosen(&openconfig), Some("openconfig"));
        assert_eq!(chosen(&srlinux), Some("srlinux"));
        assert_eq!(chosen(&ieee), Some("ieee8021q"));
        assert_eq!(chosen(&[&openconfig[..], &srlinux].concat()), Some("srlinux"));
        assert_eq!(chosen(&[&openconfig[..], &ieee].concat()), Some("openconfig"));
        assert_eq!(chosen(&srlinux[..2]), None);
    }
}
