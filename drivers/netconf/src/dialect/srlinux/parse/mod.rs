//! Parses SR Linux configurations.

mod device;

use std::collections::BTreeSet;
use std::sync::Arc;

use eno_sbi::TooLarge;
use eno_schemas::{VlanId, parse_vlan_name};

use self::device::Device;
use super::{Member, SETTINGS, Subinterface, Vrf, scope};
use crate::dialect::{ParseError, not_understood};
use crate::memory::Counter;
use crate::plan::{ObservedConfig, ObservedVlan};
use crate::text::Text;
use crate::xml::{Step, XmlError, walk};

pub(super) fn parse(reply: &Text) -> Result<ObservedConfig, ParseError> {
    let mut parser = Parser::default();
    walk(reply, scope, |step| parser.step(&step))?;
    Ok(Device::of(parser.instances).observed(parser.interfaces, parser.kept).map_err(XmlError::from)?)
}

/// Collects network-instances and interfaces while the reply streams by.
#[derive(Default)]
struct Parser {
    instances: Vec<Instance>,
    interfaces: Vec<Interface>,
    names: Names,
    kept: Counter,
}

/// Interned names of ports.
#[derive(Default)]
struct Names(BTreeSet<Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.0.insert(Arc::clone(&new));
        new
    }

    fn member(&mut self, name: &str) -> Member {
        let subinterface = name.rsplit_once('.').and_then(|(port, text)| {
            let index: u32 = text.parse().ok()?;
            (index.to_string() == text).then_some((port, index))
        });
        match subinterface {
            Some((port, index)) => Member::Subinterface(self.shared(port), index),
            None => Member::Other(name.into()),
        }
    }
}

#[derive(Default)]
struct Instance {
    /// Its name.
    name: String,
    /// Its type, without a prefix.
    kind: String,
    /// `admin-state` is `disable`.
    disabled: bool,
    /// `description`
    description: Option<String>,
    /// Its interfaces.
    interfaces: Vec<Attached>,
    /// Its other settings.
    settings: BTreeSet<String>,
}

/// An interface of a network-instance.
struct Attached {
    name: Member,
    reference: Option<Box<Reference>>,
}

/// `interface-ref`, which replaces a name with port and index.
#[derive(Default)]
struct Reference {
    interface: Option<String>,
    subinterface: Option<String>,
}

#[derive(Default)]
struct Interface {
    /// Its name.
    name: String,
    /// `vlan-tagging` is true.
    tagging: bool,
    /// The leaf `vlan-tagging` is set.
    tagging_set: bool,
    /// It has a `breakout-mode`.
    is_broken_out: bool,
    /// `aggregate-id`: the LAG that it is a member of.
    aggregate: Option<String>,
    /// Its subinterfaces.
    subinterfaces: Vec<Sub>,
}

#[derive(Default)]
struct Sub {
    index: u32,
    /// Its type, without a prefix; `None`: bridged.
    kind: Option<Box<str>>,
    encap: Option<Encap>,
    /// What of it can't be read.
    unread: Option<String>,
    /// The cluster and the VID in its description, if that has the form of our names.
    name_in_description: Option<(Arc<str>, VlanId)>,
}

enum Encap {
    Untagged,
    Vlan(VlanId),
    Ranges(Vec<(VlanId, VlanId)>),
    /// The outer VID of two.
    Outer(VlanId),
    /// Any VID.
    Any,
}

impl Parser {
    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        match step {
            Step::Enter("network-instance") => {
                // As a VLAN too.
                self.kept.entry(size_of::<Instance>() + size_of::<Vrf>() + size_of::<ObservedVlan>());
                self.instances.push(Instance::default());
            }
            Step::Enter("interface") => {
                self.kept.entry(size_of::<Interface>());
                self.interfaces.push(Interface::default());
            }
            Step::Enter(path) => {
                if let (Some(rest), Some(instance)) =
                    (path.strip_prefix("network-instance/"), self.instances.last_mut())
                {
                    instance.enter(rest, &mut self.kept);
                } else if let (Some(rest), Some(interface)) =
                    (path.strip_prefix("interface/"), self.interfaces.last_mut())
                {
                    interface.enter(rest, &mut self.kept);
                }
            }
            Step::Leave("network-instance", _) => {
                if let Some(instance) = self.instances.last_mut() {
                    instance.interfaces.shrink_to_fit();
                }
            }
            Step::Leave(path, text) => {
                self.kept.text(text);
                if let (Some(rest), Some(instance)) =
                    (path.strip_prefix("network-instance/"), self.instances.last_mut())
                {
                    instance.leaf(rest, text, &mut self.names, &mut self.kept);
                } else if let (Some(rest), Some(interface)) =
                    (path.strip_prefix("interface/"), self.interfaces.last_mut())
                {
                    interface.leaf(rest, text, &mut self.names, &mut self.kept);
                }
            }
        }
        self.kept.check()
    }
}

impl Instance {
    fn enter(&mut self, path: &str, kept: &mut Counter) {
        if path == "interface" {
            // Here, in the index of subinterfaces, and in the layout.
            kept.bytes(size_of::<Attached>() + 32 + size_of::<Member>());
            self.interfaces.push(Attached { name: Member::Other("".into()), reference: None });
        }
    }

    fn leaf(&mut self, path: &str, text: &str, names: &mut Names, kept: &mut Counter) {
        let attached = self.interfaces.last_mut();
        match (path, attached) {
            ("name", _) => text.clone_into(&mut self.name),
            ("type", _) => self.kind = identity(text),
            ("admin-state", _) => self.disabled = text == "disable",
            ("description", _) => self.description = Some(text.to_owned()),
            ("interface/name", Some(attached)) => attached.name = names.member(text),
            ("interface/interface-ref/interface", Some(attached)) => {
                kept.entry(size_of::<Reference>());
                attached.reference.get_or_insert_default().interface = Some(text.to_owned());
            }
            ("interface/interface-ref/subinterface", Some(attached)) => {
                kept.entry(size_of::<Reference>());
                attached.reference.get_or_insert_default().subinterface = Some(text.to_owned());
            }
            ("interface" | "interface/interface-ref", _) => {}
            (path, _) => {
                let top = path.split('/').next().unwrap_or(path);
                // An empty container has no effect.
                if SETTINGS.contains(&top) && (path != top || !text.is_empty()) {
                    self.settings.insert(top.to_owned());
                } else if let Some(of_interface) = path.strip_prefix("interface/")
                    && (of_interface.contains('/') || !text.is_empty())
                {
                    kept.entry(size_of::<String>() + of_interface.len());
                    self.settings.insert(format!("settings of its interfaces ({of_interface})"));
                }
            }
        }
    }
}

impl Attached {
    /// The port and the index of the subinterface.
    fn subinterface_key(&self) -> Option<(&str, u32)> {
        let reference = self
            .reference
            .as_ref()
            .and_then(|reference| Some((reference.interface.as_ref()?, reference.subinterface.as_ref()?)));
        match (reference, &self.name) {
            (Some((port, index)), _) => Some((port, index.parse().ok()?)),
            (None, Member::Subinterface(port, index)) => Some((port, *index)),
            (None, Member::Other(name)) => {
                let (port, index) = name.rsplit_once('.')?;
                Some((port, index.parse().ok()?))
            }
        }
    }
}

impl Interface {
    fn enter(&mut self, path: &str, kept: &mut Counter) {
        if path == "subinterface" {
            // Here, and in the layout.
            kept.bytes(size_of::<Sub>() + 2 * size_of::<Subinterface>());
            self.subinterfaces.push(Sub::default());
        }
    }

    fn leaf(&mut self, path: &str, text: &str, names: &mut Names, kept: &mut Counter) {
        match path {
            "name" => text.clone_into(&mut self.name),
            "vlan-tagging" => (self.tagging, self.tagging_set) = (text == "true", true),
            "breakout-mode/num-breakout-ports" => self.is_broken_out = true,
            "ethernet/aggregate-id" => self.aggregate = Some(text.to_owned()),
            _ => {
                if let (Some(rest), Some(sub)) =
                    (path.strip_prefix("subinterface/"), self.subinterfaces.last_mut())
                    && sub.leaf(rest, text, names, kept).is_none()
                {
                    kept.entry(rest.len());
                    sub.unread.get_or_insert_with(|| not_understood(rest, text));
                }
            }
        }
    }
}

impl Sub {
    /// `None`: the value is invalid.
    fn leaf(&mut self, path: &str, text: &str, names: &mut Names, kept: &mut Counter) -> Option<()> {
        match path {
            "description" => {
                self.name_in_description =
                    parse_vlan_name(text).map(|(cluster, vid)| (names.shared(cluster), vid));
            }
            "index" => self.index = text.parse().ok()?,
            "type" => {
                let kind = identity(text);
                kept.bytes(if kind == "bridged" { 0 } else { kind.len() });
                self.kind = (kind != "bridged").then(|| kind.into());
            }
            "vlan/encap/untagged" => self.encap = Some(Encap::Untagged),
            "vlan/encap/single-tagged/vlan-id" => self.encap = Some(tag(text, Encap::Vlan)?),
            "vlan/encap/double-tagged/outer-vlan-id" => self.encap = Some(tag(text, Encap::Outer)?),
            "vlan/encap/single-tagged-range/low-vlan-id/range-low-vlan-id" => {
                let vid = text.parse().ok()?;
                kept.ranges(2);
                match &mut self.encap {
                    Some(Encap::Ranges(ranges)) => ranges.push((vid, vid)),
                    encap => *encap = Some(Encap::Ranges(vec![(vid, vid)])),
                }
            }
            "vlan/encap/single-tagged-range/low-vlan-id/high-vlan-id" => {
                let vid = text.parse().ok()?;
                if let Some(Encap::Ranges(ranges)) = &mut self.encap
                    && let Some((_, last)) = ranges.last_mut()
                {
                    *last = vid;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn bridged(&self) -> bool {
        self.kind.is_none()
    }
}

/// Parses a VID, or a keyword for several.
fn tag(text: &str, of: impl Fn(VlanId) -> Encap) -> Option<Encap> {
    match text {
        "any" | "optional" => Some(Encap::Any),
        _ => text.parse().ok().map(of),
    }
}

/// An identity without its prefix, which the device chooses.
fn identity(text: &str) -> String {
    text.rsplit(':').next().unwrap_or(text).to_owned()
}
