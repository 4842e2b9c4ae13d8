//! Junos as on QFX switches: the native model (`junos-qfx-conf-*`, Juniper/yang), with enhanced layer-2 software.
//!
//! VLANs: `/configuration/vlans/vlan[name]/vlan-id`. Ports: `family/ethernet-switching/{interface-mode,vlan/members}`
//! of `/configuration/interfaces/interface[name]/unit[name='0']`, LAGs too (`ae0`). A member is a VLAN's name, its
//! VID, a range `100-200`, or `all`; the driver writes VIDs and ranges. A commit refuses trunks without members. So
//! our last VLAN takes the mode with it, and the family if nothing else is set there. With port memory, everything
//! goes that was not there before our first VLAN, up to the interface.
//!
//! `<get-config>` returns the configuration as written. The dialect itself applies groups (`apply-groups`), interface
//! ranges and deactivation to VLANs and ports. Other routing instances and logical systems are not read.
//!
//! The schema allows to delete a VLAN that an interface still names, also an unlisted one; the plan keeps such a
//! VLAN.
//!
//! VRFs: see the module `routing`. BGP: see the module `bgp`. The MAC table: see the module `mac_table`.
//!
//! Juniper documents `create`, `delete` and `replace` as the operations of an `<edit-config>` (not `remove`). So the
//! driver removes only what it has read under the lock.

mod bgp;
mod bgp_sessions;
mod inherit;
mod locate_error;
mod mac_table;
mod read;
mod routing;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::VlanId;

use crate::dialect::{BgpDialect, Dialect, MacTableDialect, ParseError, RoutingDialect, named_interfaces};
use crate::hello::{Hello, Profile, Target};
use crate::plan::{ChangeUnit, Changes, Inventory, ObservedConfig};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{Scope, XmlError, escape};

/// The capability of Junos' own protocol.
const JUNOS: &str = "http://xml.juniper.net/netconf/junos/1.0";
/// The namespace of a configuration in Junos' own protocol.
const XNM: &str = "http://xml.juniper.net/xnm/1.1/xnm";

/// The dialect, for one family of models.
#[derive(Clone, Copy, Debug)]
pub struct Junos {
    family: Option<&'static str>,
}

/// Without YANG modules, as most devices are set up: `http://xml.juniper.net/xnm/1.1/xnm`.
pub const PLAIN: Junos = Junos { family: None };
/// QFX switches from 17.4: `http://yang.juniper.net/junos-qfx/conf/…`.
pub const QFX: Junos = Junos { family: Some("junos-qfx") };
/// EX switches from 17.4: `http://yang.juniper.net/junos-ex/conf/…`.
pub const EX: Junos = Junos { family: Some("junos-ex") };
/// Junos OS Evolved, and devices without modules of their own: `http://yang.juniper.net/junos/conf/…`.
pub const COMMON: Junos = Junos { family: Some("junos") };

/// Settings of an interface: whether it, its unit 0 and the family exist, the leaf for the mode by its newer and its
/// older name, and the members of an access port.
const INTERFACE: &str = "interface";
const UNIT: &str = "unit";
const SWITCHING: &str = "ethernet-switching";
const INTERFACE_MODE: &str = "interface-mode";
const PORT_MODE: &str = "port-mode";
const MEMBERS: &str = "members";

/// The member that stands for every VLAN.
const ALL: &str = "all";

/// Details of the configuration that rendering needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Layout {
    /// VLANs by VID.
    vlans: BTreeMap<VlanId, VlanSource>,
    /// Interfaces by name, without inherited settings.
    ports: BTreeMap<String, SwitchingFamily>,
}

/// The family ethernet-switching of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SwitchingFamily {
    /// The list of members.
    entries: Vec<Entry>,
    /// The leaf that sets the mode.
    mode: Option<&'static str>,
    /// It has other settings than mode and members.
    has_other_leaves: bool,
}

/// The source of a VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct VlanSource {
    /// The VLAN is not from a group.
    own: bool,
    description: Option<String>,
}

/// An entry of a list of members.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// `100` or `100-200`, as it is written.
    Range(VlanId, VlanId),
    /// The name of a VLAN, or VIDs written otherwise.
    Text(VlanId, VlanId, Box<str>),
    /// `all`, or the name of what does not exist.
    Other(Box<str>),
}

impl Entry {
    /// The VLANs of the entry, if they are known.
    fn vids(&self) -> Option<(VlanId, VlanId)> {
        match self {
            Self::Range(first, last) | Self::Text(first, last, _) => Some((*first, *last)),
            Self::Other(_) => None,
        }
    }

    /// The entry as written.
    fn text(&self) -> String {
        match self {
            Self::Range(first, last) => inherit::range_text((*first, *last)),
            Self::Text(_, _, text) | Self::Other(text) => text.to_string(),
        }
    }
}

impl Junos {
    /// The namespace of a part of the configuration.
    fn namespace(self, part: &str) -> String {
        match self.family {
            Some(family) => format!("http://yang.juniper.net/{family}/conf/{part}"),
            None => XNM.to_owned(),
        }
    }
}

impl Dialect for Junos {
    fn name(&self) -> &'static str {
        "junos"
    }

    fn score(&self, hello: &Hello) -> u32 {
        match self.family {
            Some(_) if hello.has_module(&self.namespace("root")) => 30,
            None if hello.has_module(JUNOS) => 20,
            _ => 0,
        }
    }

    /// Junos documents a lock of the candidate only, which keeps others from committing too.
    fn profile(&self, hello: &Hello) -> Option<Profile> {
        let profile = Profile::of(hello)?;
        let candidate = profile.target == Target::Candidate;
        Some(Profile { locks: if candidate { &["candidate"] } else { profile.locks }, ..profile })
    }

    /// Requests all interfaces, since a request for a missing one fails.
    fn inventory_request(&self) -> Option<String> {
        Some("<get-interface-information><terse/></get-interface-information>".to_owned())
    }

    fn inventory_filter(&self, interfaces: &BTreeSet<&str>) -> String {
        let names = interfaces.iter().fold(String::new(), |all, name| {
            all + &format!("<interface><name>{}</name></interface>", escape(name))
        });
        let (root, of_interfaces) = (self.namespace("root"), self.namespace("interfaces"));
        format!(
            "<configuration xmlns=\"{root}\"><interfaces xmlns=\"{of_interfaces}\">{names}</interfaces></configuration>"
        )
    }

    fn parse_inventory(&self, reply: &Text) -> Result<Inventory, ParseError> {
        let is_name = |path: &str| {
            path.ends_with("/configuration/interfaces/interface/name")
                || path.ends_with("/interface-information/physical-interface/name")
        };
        named_interfaces(reply, |_| Scope::Known, is_name)
    }

    /// Selects all interfaces, since unlisted ones may refer to VLANs by name. Of groups it selects only VLANs and
    /// interfaces, since groups may hold secrets.
    fn filter(&self, _: &BTreeSet<&str>) -> String {
        let (root, vlans) = (self.namespace("root"), self.namespace("vlans"));
        let parts =
            format!("<vlans xmlns=\"{vlans}\"/><interfaces xmlns=\"{}\"/>", self.namespace("interfaces"));
        format!(
            "<configuration xmlns=\"{root}\"><apply-groups/><groups><name/>{parts}</groups>{parts}</configuration>"
        )
    }

    fn filter_interface(&self, _: &str) -> Option<String> {
        None
    }

    fn parse(&self, reply: &Text, _: &Inventory) -> Result<ObservedConfig, ParseError> {
        let (main, groups, kept) = read::read(reply)?;
        Ok(inherit::effective(&main, &groups, kept).map_err(XmlError::from)?)
    }

    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text {
        write::render(*self, observed, changes)
    }

    fn routing(&self) -> Option<&dyn RoutingDialect> {
        Some(self)
    }

    fn bgp(&self) -> Option<&dyn BgpDialect> {
        Some(self)
    }

    fn mac_table(&self) -> Option<&dyn MacTableDialect> {
        Some(self)
    }

    fn locate_error(
        &self,
        error: &RpcError,
        observed: &ObservedConfig,
        changes: &Changes,
    ) -> Option<ChangeUnit> {
        if let Some(unit) = routing::locate_error(error, changes) {
            return Some(unit);
        }
        locate_error::locate_error(error, observed, changes)
    }
}
