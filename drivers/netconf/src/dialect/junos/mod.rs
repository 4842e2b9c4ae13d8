//! Junos as on QFX switches: the native model (`junos-qfx-conf-*`, Juniper/yang), with enhanced layer-2 software.
//!
//! VLANs: `/configuration/vlans/vlan[name]/vlan-id`. Ports: `/configuration/interfaces/interface[name]/unit[name='0']
//! /family/ethernet-switching/{interface-mode,vlan/members}`, LAGs too (`ae0`). A member is a VLAN's name, its VID, a
//! range `100-200`, or `all`; we write VIDs and ranges. The schema has trunks without members, and a commit refuses
//! them: when our last VLAN goes, so does the mode, and the family with it if nothing else is set there. Where it is
//! remembered what there was before our first VLAN, what was not there goes, up to the interface.
//!
//! What `<get-config>` shows is what was written: groups (`apply-groups`), interface ranges and what is deactivated
//! are worked out here, as far as VLANs and ports go. Not read: other routing instances and logical systems.
//!
//! The schema lets a VLAN go that an interface still names, also one that is not listed; the plan keeps such a VLAN.
//!
//! Juniper documents `create`, `delete` and `replace` as the operations of an `<edit-config>` (not `remove`), so
//! everything that is removed here was seen before, under the lock.

mod inherit;
mod locate_error;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::VlanId;

use crate::dialect::{Dialect, ParseError};
use crate::hello::{Hello, Profile, Target};
use crate::plan::{ChangeUnit, Changes, InterfaceState, Inventory, ObservedConfig};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{Scope, Step, escape, walk};

/// What a device announces that speaks Junos' own protocol.
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

/// What is remembered of an interface: what there was of it, down to the family, the leaf for the mode, which is called
/// otherwise in older versions, and the members of an access port.
const INTERFACE: &str = "interface";
const UNIT: &str = "unit";
const SWITCHING: &str = "ethernet-switching";
const INTERFACE_MODE: &str = "interface-mode";
const PORT_MODE: &str = "port-mode";
const MEMBERS: &str = "members";

/// The member that stands for every VLAN.
const ALL: &str = "all";

/// How the device writes what was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Of VLANs, by VID.
    vlans: BTreeMap<VlanId, VlanSource>,
    /// Of interfaces, without what they inherit.
    ports: BTreeMap<String, SwitchingFamily>,
}

/// The family ethernet-switching of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SwitchingFamily {
    /// The list of members.
    entries: Vec<Entry>,
    /// The leaf that says the mode.
    mode: Option<&'static str>,
    /// It has more than a mode and members.
    has_other_settings: bool,
}

/// A VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct VlanSource {
    /// It is not from a group.
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
    /// The VLANs that it tells.
    fn vids(&self) -> Option<(VlanId, VlanId)> {
        match self {
            Self::Range(first, last) | Self::Text(first, last, _) => Some((*first, *last)),
            Self::Other(_) => None,
        }
    }

    /// As it is written.
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

    /// Of all interfaces: about one that does not exist it is an error to ask.
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
        let mut inventory = Inventory::new();
        walk(
            reply,
            |_| Scope::Known,
            |step| {
                let Step::Leave(path, name) = step else { return };
                let configured = path.ends_with("/configuration/interfaces/interface/name");
                if configured || path.ends_with("/interface-information/physical-interface/name") {
                    inventory.insert(name.to_owned(), InterfaceState::default());
                }
            },
        )?;
        Ok(inventory)
    }

    /// All interfaces: names of VLANs are looked for on those that were not asked for too. Of groups only what may
    /// be inherited here, for they may hold secrets.
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
        let (main, groups) = read::read(reply)?;
        Ok(inherit::effective(&main, &groups))
    }

    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text {
        write::render(*self, observed, changes)
    }

    fn locate_error(
        &self,
        error: &RpcError,
        observed: &ObservedConfig,
        changes: &Changes,
    ) -> Option<ChangeUnit> {
        locate_error::locate_error(error, observed, changes)
    }
}
