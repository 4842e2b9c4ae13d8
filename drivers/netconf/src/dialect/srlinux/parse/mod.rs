//! Parses SR Linux configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{VlanId, VlanSet, vlan_name};

use super::{
    Attachment, Member, ORPHANS, SETTINGS, SrLinuxLayout, Subinterface, Subinterfaces, TAGGING, UNTAGGED,
    Vrf, parts_of_name, scope, vid_of_name,
};
use crate::dialect::{Layout, ParseError};
use crate::plan::{Mode, ObservedConfig, ObservedPort, ObservedVlan, Setting};
use crate::text::Text;
use crate::xml::{Step, walk};

pub(super) fn parse(reply: &Text) -> Result<ObservedConfig, ParseError> {
    let mut parser = Parser::default();
    walk(reply, scope, |step| parser.step(&step))?;
    match parser.bad {
        Some(bad) => Err(bad),
        None => Ok(Device::of(parser.instances).observed(parser.interfaces)),
    }
}

/// Collects network-instances and interfaces while the reply streams by.
#[derive(Default)]
struct Parser {
    instances: Vec<Instance>,
    interfaces: Vec<Interface>,
    names: Names,
    bad: Option<ParseError>,
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
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Enter("network-instance") => self.instances.push(Instance::default()),
            Step::Enter("interface") => self.interfaces.push(Interface::default()),
            Step::Enter(path) => {
                if let (Some(rest), Some(instance)) =
                    (path.strip_prefix("network-instance/"), self.instances.last_mut())
                {
                    instance.enter(rest);
                } else if let (Some(rest), Some(interface)) =
                    (path.strip_prefix("interface/"), self.interfaces.last_mut())
                {
                    interface.enter(rest);
                }
            }
            Step::Leave("network-instance", _) => {
                if let Some(instance) = self.instances.last_mut() {
                    instance.interfaces.shrink_to_fit();
                }
            }
            Step::Leave(path, text) => {
                if let (Some(rest), Some(instance)) =
                    (path.strip_prefix("network-instance/"), self.instances.last_mut())
                {
                    instance.leaf(rest, text, &mut self.names);
                } else if let (Some(rest), Some(interface)) =
                    (path.strip_prefix("interface/"), self.interfaces.last_mut())
                    && interface.leaf(rest, text, &mut self.names).is_none()
                {
                    let (path, value) = ((*path).to_owned(), (*text).to_owned());
                    self.bad.get_or_insert(ParseError::Leaf { path, value });
                }
            }
        }
    }
}

impl Instance {
    fn enter(&mut self, path: &str) {
        if path == "interface" {
            self.interfaces.push(Attached { name: Member::Other("".into()), reference: None });
        }
    }

    fn leaf(&mut self, path: &str, text: &str, names: &mut Names) {
        let attached = self.interfaces.last_mut();
        match (path, attached) {
            ("name", _) => text.clone_into(&mut self.name),
            ("type", _) => self.kind = identity(text),
            ("admin-state", _) => self.disabled = text == "disable",
            ("description", _) => self.description = Some(text.to_owned()),
            ("interface/name", Some(attached)) => attached.name = names.member(text),
            ("interface/interface-ref/interface", Some(attached)) => {
                attached.reference.get_or_insert_default().interface = Some(text.to_owned());
            }
            ("interface/interface-ref/subinterface", Some(attached)) => {
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
    fn enter(&mut self, path: &str) {
        if path == "subinterface" {
            self.subinterfaces.push(Sub::default());
        }
    }

    /// `None`: the value is invalid.
    fn leaf(&mut self, path: &str, text: &str, names: &mut Names) -> Option<()> {
        match path {
            "name" => text.clone_into(&mut self.name),
            "vlan-tagging" => (self.tagging, self.tagging_set) = (text == "true", true),
            "breakout-mode/num-breakout-ports" => self.is_broken_out = true,
            "ethernet/aggregate-id" => self.aggregate = Some(text.to_owned()),
            _ => {
                if let (Some(rest), Some(sub)) =
                    (path.strip_prefix("subinterface/"), self.subinterfaces.last_mut())
                {
                    return sub.leaf(rest, text, names);
                }
            }
        }
        Some(())
    }
}

impl Sub {
    fn leaf(&mut self, path: &str, text: &str, names: &mut Names) -> Option<()> {
        match path {
            "description" => {
                self.name_in_description =
                    parts_of_name(text).map(|(cluster, vid)| (names.shared(cluster), vid));
            }
            "index" => self.index = text.parse().ok()?,
            "type" => {
                let kind = identity(text);
                self.kind = (kind != "bridged").then(|| kind.into());
            }
            "vlan/encap/untagged" => self.encap = Some(Encap::Untagged),
            "vlan/encap/single-tagged/vlan-id" => self.encap = Some(tag(text, Encap::Vlan)?),
            "vlan/encap/double-tagged/outer-vlan-id" => self.encap = Some(tag(text, Encap::Outer)?),
            "vlan/encap/single-tagged-range/low-vlan-id/range-low-vlan-id" => {
                let vid = text.parse().ok()?;
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

/// The settings that our first VLAN changes, and the subinterfaces that our VLANs may use.
fn settings(
    interface: &Interface,
    layout: &Subinterfaces,
    leftovers: &BTreeMap<VlanId, String>,
) -> BTreeMap<&'static str, Setting> {
    let untagged = |sub: &&Sub| matches!(sub.encap, Some(Encap::Untagged));
    let untagged = interface.subinterfaces.iter().find(untagged).filter(|_| interface.tagging);
    let orphans: VlanSet = layout
        .vlans
        .iter()
        .filter(|(vid, sub)| sub.attached == Attachment::None && !leftovers.contains_key(vid))
        .map(|(vid, _)| *vid)
        .collect();
    let known = layout.vlans.len() - orphans.len() + usize::from(untagged.is_some());
    // Any other subinterface needs `vlan-tagging`.
    let tagging_is_ours =
        !interface.tagging_set || interface.tagging && interface.subinterfaces.len() == known;
    let tagging = interface.tagging_set.then(|| interface.tagging.to_string());
    let untagged = untagged.map(|sub| sub.index.to_string());
    let orphans = (!orphans.is_empty()).then(|| orphans.to_string());
    [
        (TAGGING, Setting::of(tagging.as_deref(), tagging_is_ours)),
        (UNTAGGED, Setting::of(untagged.as_deref(), interface.tagging)),
        (ORPHANS, Setting::of(orphans.as_deref(), false)),
    ]
    .into()
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

/// The network-instances of a device, with their subinterfaces and VLANs.
struct Device {
    instances: Vec<Instance>,
    /// By port and index of a subinterface: the network-instance, and the position among its interfaces.
    instances_by_subinterface: BTreeMap<Arc<str>, BTreeMap<u32, (u32, u32)>>,
    /// The network-instance of each VLAN.
    vlans: BTreeMap<VlanId, usize>,
    /// Reasons against renaming VLANs.
    rename_blocker: BTreeMap<VlanId, String>,
}

impl Device {
    fn of(mut instances: Vec<Instance>) -> Self {
        instances.sort_by(|one, other| one.name.cmp(&other.name));
        let mut instances_by_subinterface: BTreeMap<Arc<str>, BTreeMap<u32, (u32, u32)>> = BTreeMap::new();
        for (at, instance) in (0..).zip(&instances) {
            for (which, attached) in (0..).zip(&instance.interfaces) {
                let Some((port, index)) = attached.subinterface_key() else { continue };
                if let Some(of_port) = instances_by_subinterface.get_mut(port) {
                    of_port.insert(index, (at, which));
                } else {
                    instances_by_subinterface.insert(port.into(), [(index, (at, which))].into());
                }
            }
        }
        let named = |(at, instance): (usize, &Instance)| Some((vid_of_name(&instance.name)?, at));
        // Of several network-instances for a VID, the first by name counts.
        let vlans = instances.iter().enumerate().rev().filter_map(named).collect();
        Self { instances, instances_by_subinterface, vlans, rename_blocker: BTreeMap::new() }
    }

    /// The network-instance of a subinterface, and its name there.
    fn network_instance_of(&self, port: &str, index: u32) -> Option<(usize, &Member)> {
        let (at, which) = *self.instances_by_subinterface.get(port)?.get(&index)?;
        let at = at as usize;
        let attached = self.instances.get(at)?.interfaces.get(which as usize)?;
        Some((at, &attached.name))
    }

    fn observed(mut self, interfaces: Vec<Interface>) -> ObservedConfig {
        self.find_foreign(&interfaces);
        let (mut ports, mut layout) = (BTreeMap::new(), SrLinuxLayout::default());
        for interface in interfaces {
            let (port, subinterfaces) = self.port(&interface);
            ports.insert(interface.name.clone(), port);
            layout.ports.insert(interface.name, subinterfaces);
        }
        let mut vlans = BTreeMap::new();
        for (vid, at) in &self.vlans {
            let instance = &self.instances[*at];
            let is_vrf = instance.kind == "mac-vrf";
            let name =
                if is_vrf { instance.name.clone() } else { format!("{} ({})", instance.name, instance.kind) };
            let rename_blocker = self.rename_blocker(*vid, instance);
            vlans.insert(*vid, ObservedVlan { name: Some(name), active: !instance.disabled, rename_blocker });
        }
        // Freed early, since a full device has too many to keep twice.
        self.instances_by_subinterface.clear();
        let vrfs = self.instances.into_iter().map(|instance| {
            let interfaces: Arc<[Member]> =
                instance.interfaces.into_iter().map(|attached| attached.name).collect();
            (instance.name, instance.description, interfaces)
        });
        let vrfs: Vec<_> = vrfs.collect();
        for (vid, at) in self.vlans {
            let (name, description, interfaces) = &vrfs[at];
            let (name, description) = (name.clone(), description.clone());
            layout.vrfs.insert(vid, Vrf { name, description, interfaces: Arc::clone(interfaces) });
        }
        ObservedConfig { vlans, ports, layout: Layout::new(layout), ..ObservedConfig::default() }
    }

    /// Adds foreign mac-vrfs as the VLANs of the VIDs that ports have in them.
    fn find_foreign(&mut self, interfaces: &[Interface]) {
        let mut found: BTreeMap<usize, BTreeSet<VlanId>> = BTreeMap::new();
        for interface in interfaces.iter().filter(|interface| interface.tagging) {
            for sub in interface.subinterfaces.iter().filter(|sub| sub.bridged()) {
                let (Some(Encap::Vlan(vid)), Some((at, _))) =
                    (&sub.encap, self.network_instance_of(&interface.name, sub.index))
                else {
                    continue;
                };
                if self.instances[at].kind == "mac-vrf" && self.vlans.get(vid) != Some(&at) {
                    found.entry(at).or_default().insert(*vid);
                }
            }
        }
        for (at, vids) in found {
            let name = &self.instances[at].name;
            let own = vid_of_name(name);
            for vid in &vids {
                if let Some(other) = self.vlans.get(vid) {
                    let why =
                        format!("network-instances {} and {name} both use it", self.instances[*other].name);
                    self.rename_blocker.entry(*vid).or_insert(why);
                } else if own.is_none() {
                    self.vlans.insert(*vid, at);
                    if vids.len() > 1 {
                        let why = format!("network-instance {name} is used for {} VIDs", vids.len());
                        self.rename_blocker.entry(*vid).or_insert(why);
                    }
                }
            }
        }
    }

    fn rename_blocker(&self, vid: VlanId, instance: &Instance) -> Option<String> {
        if instance.kind != "mac-vrf" {
            return Some(format!("network-instance {} is no mac-vrf", instance.name));
        }
        if let Some(why) = self.rename_blocker.get(&vid) {
            return Some(why.clone());
        }
        if instance.interfaces.iter().any(|attached| {
            attached.reference.as_ref().is_some_and(|reference| reference.interface.is_some())
        }) {
            return Some(format!("network-instance {} names its interfaces by interface-ref", instance.name));
        }
        let settings: Vec<&str> = instance.settings.iter().map(String::as_str).collect();
        (!settings.is_empty()).then(|| {
            format!(
                "network-instance {} has {}, which would be lost, since it can't be renamed",
                instance.name,
                settings.join(", ")
            )
        })
    }

    fn port(&self, interface: &Interface) -> (ObservedPort, Subinterfaces) {
        let mut port = ObservedPort {
            configured: true,
            aggregate: interface.name.starts_with("lag"),
            mode: interface.tagging.then_some(Mode::Trunk),
            ..ObservedPort::default()
        };
        let mut layout = Subinterfaces { tagging: interface.tagging, ..Subinterfaces::default() };
        if let Some(lag) = &interface.aggregate {
            port.unfit = Some(format!("is a member of the LAG {lag}: name that as Lag of the port"));
        } else if interface.is_broken_out {
            port.unfit = Some("is broken out into ports of their own".into());
        }
        for sub in &interface.subinterfaces {
            layout.used.insert(sub.index);
            if interface.tagging {
                self.tagged(interface, sub, &mut port, &mut layout);
            } else if sub.bridged() {
                port.mode = Some(Mode::Access);
                layout.whole.insert(sub.index);
                port.access = self.untagged(interface, sub, &mut port);
            } else {
                port.unfit.get_or_insert_with(|| {
                    format!("is not VLAN-tagged, and all its frames are {}.{}'s", interface.name, sub.index)
                });
            }
        }
        port.settings = settings(interface, &layout, &port.leftovers);
        (port, layout)
    }

    /// The VLAN of untagged frames, known if the mac-vrf's name has its VID. The VIDs of the mac-vrf are taken on the
    /// port.
    fn untagged(&self, interface: &Interface, sub: &Sub, port: &mut ObservedPort) -> Option<VlanId> {
        let (at, _) = self.network_instance_of(&interface.name, sub.index)?;
        let vlans = self.vlans.iter().filter(|(_, vlan)| **vlan == at);
        let what = format!("it has the frames without a tag as {}.{}", interface.name, sub.index);
        port.taken.extend(vlans.map(|(vid, _)| (*vid, what.clone())));
        let vid = vid_of_name(&self.instances[at].name)?;
        (self.vlans.get(&vid) == Some(&at)).then_some(vid)
    }

    /// Adds a subinterface of a port with `vlan-tagging`.
    fn tagged(&self, interface: &Interface, sub: &Sub, port: &mut ObservedPort, layout: &mut Subinterfaces) {
        let name = format!("{}.{}", interface.name, sub.index);
        let network_instance = self.network_instance_of(&interface.name, sub.index);
        let owner = match network_instance {
            Some((at, _)) => format!("{name} of network-instance {}", self.instances[at].name),
            None => format!(
                "{name}, a {} subinterface of no network-instance",
                sub.kind.as_deref().unwrap_or("bridged")
            ),
        };
        match &sub.encap {
            Some(Encap::Vlan(vid)) => match network_instance {
                None if sub.bridged() && !layout.vlans.contains_key(vid) => {
                    if let Some((cluster, _)) =
                        sub.name_in_description.as_ref().filter(|(_, marked)| marked == vid)
                    {
                        port.leftovers.insert(*vid, vlan_name(cluster, *vid));
                    }
                    layout.vlans.insert(*vid, Subinterface { index: sub.index, attached: Attachment::None });
                }
                Some((at, attached)) if sub.bridged() && self.vlans.get(vid) == Some(&at) => {
                    port.tagged.push((*vid, *vid));
                    let attached = match attached {
                        Member::Subinterface(port, index)
                            if **port == *interface.name && *index == sub.index =>
                        {
                            Attachment::Usual
                        }
                        Member::Other(name) => Attachment::Named(Arc::clone(name)),
                        other @ Member::Subinterface(..) => Attachment::Named(other.to_string().into()),
                    };
                    layout.vlans.insert(*vid, Subinterface { index: sub.index, attached });
                }
                _ => {
                    port.tagged.push((*vid, *vid));
                    port.taken.insert(*vid, format!("it belongs to {owner}"));
                }
            },
            Some(Encap::Outer(vid)) => {
                port.tagged.push((*vid, *vid));
                port.taken.insert(*vid, format!("it is an outer tag of {owner}"));
            }
            Some(Encap::Ranges(ranges)) => {
                for (first, last) in ranges {
                    port.tagged.push((*first, *last));
                    let vids = (first.get()..=last.get()).filter_map(|id| VlanId::new(id).ok());
                    port.taken.extend(vids.map(|vid| (vid, format!("it is in a range of {owner}"))));
                }
            }
            Some(Encap::Untagged) => {
                layout.untagged.insert(sub.index);
                port.native = self.untagged(interface, sub, port);
            }
            Some(Encap::Any) => {
                port.unfit.get_or_insert_with(|| format!("carries every VLAN to {owner}"));
            }
            None => {
                port.unfit.get_or_insert_with(|| format!("has frames that no VLAN is said for: {owner}"));
            }
        }
    }
}
