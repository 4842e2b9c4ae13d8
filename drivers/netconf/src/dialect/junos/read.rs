//! Parses a Junos configuration as written, without applying groups and interface ranges.

use std::cell::Cell;

use eno_sbi::TooLarge;

use super::{SwitchingFamily, VlanSource};
use crate::dialect::ParseError;
use crate::memory::Counter;
use crate::plan::Mode;
use crate::text::Text;
use crate::xml::{Element, NETCONF, Scope, Step, walk_tags};

/// The configuration itself, or one of its groups.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// A group's name; empty for the configuration itself.
    pub(super) name: String,
    /// The groups that apply to all of it.
    pub(super) applied_groups: Vec<String>,
    /// The groups that apply to its VLANs.
    pub(super) groups_for_vlans: Vec<String>,
    /// The groups that apply to its interfaces.
    pub(super) groups_for_ports: Vec<String>,
    /// Entries of `vlans`.
    pub(super) vlans: Vec<Vlan>,
    /// Entries of `interfaces`.
    pub(super) ports: Vec<Port>,
    /// Entries of `interface-range`.
    pub(super) ranges: Vec<Range>,
}

/// An entry of `vlans`.
#[derive(Debug, Default)]
pub(super) struct Vlan {
    /// Its name, which is its key.
    pub(super) name: String,
    /// The VIDs of `vlan-id` or `vlan-id-list`, as written.
    pub(super) ids: Vec<String>,
    /// The VIDs are of `vlan-id-list`.
    pub(super) list: bool,
    /// `description`
    pub(super) description: Option<String>,
    /// The VLAN is deactivated: it exists without effect.
    pub(super) inactive: bool,
    /// The VLAN has other settings than name, description and VIDs.
    pub(super) has_other_leaves: bool,
    /// Logical interfaces that the VLAN lists as its members.
    pub(super) interfaces: Vec<String>,
    /// The groups that apply to the VLAN.
    pub(super) applied_groups: Vec<String>,
}

/// An interface, or what an interface range gives to its members.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    /// Its name, or a wildcard in a group.
    pub(super) name: String,
    /// The interface has an entry of its own.
    pub(super) listed: bool,
    /// The interface has other settings than unit 0.
    pub(super) has_other_leaves: bool,
    /// Its switching settings.
    pub(super) settings: Settings,
    /// The groups that apply to the interface.
    pub(super) applied_groups: Vec<String>,
    /// `apply-groups-except`
    pub(super) excepted_groups: Vec<String>,
}

/// The switching settings of an interface and its unit 0.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the interface")]
pub(super) struct Settings {
    /// The mode.
    pub(super) mode: Option<Mode>,
    /// The leaf that sets the mode.
    pub(super) mode_leaf: Option<&'static str>,
    /// The text of that leaf.
    pub(super) mode_text: String,
    /// Unit 0 exists.
    pub(super) unit: bool,
    /// Unit 0 has other settings than the family ethernet-switching.
    pub(super) unit_has_other_leaves: bool,
    /// Unit 0 has that family.
    pub(super) switching: bool,
    /// The family has other settings than mode and members.
    pub(super) has_other_leaves: bool,
    /// Another family of unit 0.
    pub(super) other_family: Option<String>,
    /// The list of members, as written.
    pub(super) members: Vec<String>,
    /// `native-vlan-id`, as written.
    pub(super) native: Option<String>,
    /// The LAG that it is a member of.
    pub(super) bundle: Option<String>,
}

/// An `interface-range`.
#[derive(Debug, Default)]
pub(super) struct Range {
    /// Names with wildcards.
    pub(super) members: Vec<String>,
    /// First and last names.
    pub(super) spans: Vec<(String, String)>,
    pub(super) port: Port,
}

/// Reads a reply: the configuration, and its groups.
pub(super) fn read(reply: &Text) -> Result<(Layer, Vec<Layer>, Counter), ParseError> {
    let (inactive_vlan, skipped) = (Cell::new(false), Cell::new(false));
    let mut reader = Reader::default();
    walk_tags(
        reply,
        |element| {
            let scope = scope(element, &inactive_vlan);
            if scope == Scope::Foreign && element.within.contains("/interfaces/interface") {
                skipped.set(true);
            }
            scope
        },
        |step| reader.step(&step, &inactive_vlan, &skipped),
    )?;
    Ok((reader.main, reader.groups, reader.kept))
}

/// Namespaces differ by model and version, and older versions omit them. Deactivated elements count as absent, except
/// VLANs, whose names stay in use.
fn scope(element: &Element<'_>, inactive_vlan: &Cell<bool>) -> Scope {
    let envelope = element.within.is_empty() && matches!(element.name(), "rpc-reply" | "data");
    if element.namespace == NETCONF && envelope {
        return Scope::Transparent;
    }
    let known = matches!(element.namespace, NETCONF | "")
        || ["http://yang.juniper.net/", "http://xml.juniper.net/"]
            .iter()
            .any(|base| element.namespace.starts_with(base));
    let inactive = element.has_attribute("inactive", "inactive") || element.has_attribute("active", "false");
    if inactive && element.name() == "vlan" && element.within.ends_with("/vlans") {
        inactive_vlan.set(true);
    } else if inactive || !known {
        return Scope::Foreign;
    }
    Scope::Known
}

#[derive(Default)]
struct Reader {
    main: Layer,
    groups: Vec<Layer>,
    unit: (String, Settings),
    span: (String, String),
    kept: Counter,
}

impl Reader {
    /// `skipped`: an element of the interface was not read.
    fn step(
        &mut self,
        step: &Step<'_>,
        inactive_vlan: &Cell<bool>,
        skipped: &Cell<bool>,
    ) -> Result<(), TooLarge> {
        let (path, text) = match step {
            Step::Enter(path) => (path, None),
            Step::Leave(path, text) => (path, Some(*text)),
        };
        if let Some(rest) = path.strip_prefix("configuration/") {
            self.within(path, rest, text, inactive_vlan, skipped);
        }
        self.kept.check()
    }

    /// A step at `path`, which is `configuration/` and `rest`.
    fn within(
        &mut self,
        path: &str,
        rest: &str,
        text: Option<&str>,
        inactive_vlan: &Cell<bool>,
        skipped: &Cell<bool>,
    ) {
        self.count(rest, text);
        let rest = match rest.strip_prefix("groups") {
            Some("") => {
                if text.is_none() {
                    self.groups.push(Layer::default());
                }
                return;
            }
            Some(within) if within.starts_with('/') => &within[1..],
            _ => rest,
        };
        let layer = match self.groups.last_mut() {
            Some(group) if path.starts_with("configuration/groups/") => group,
            _ => &mut self.main,
        };
        if let Some(within) = below(rest, "vlans/vlan") {
            vlan(layer, within, text, inactive_vlan);
        } else if let Some(within) = below(rest, "interfaces/interface") {
            if within.is_empty() && text.is_none() {
                skipped.set(false);
                layer.ports.push(Port { listed: true, ..Port::default() });
            } else if let Some(port) = layer.ports.last_mut() {
                port_leaf(port, &mut self.unit, within, text);
                if within.is_empty() && skipped.take() {
                    (
                        port.has_other_leaves,
                        port.settings.unit_has_other_leaves,
                        port.settings.has_other_leaves,
                    ) = (true, true, true);
                }
            }
        } else if let Some(within) = below(rest, "interfaces/interface-range") {
            range(layer, &mut self.unit, &mut self.span, within, text);
        } else if let Some(text) = text {
            match rest {
                "name" => text.clone_into(&mut layer.name),
                "apply-groups" => layer.applied_groups.push(text.to_owned()),
                "vlans/apply-groups" => layer.groups_for_vlans.push(text.to_owned()),
                "interfaces/apply-groups" => layer.groups_for_ports.push(text.to_owned()),
                _ => {}
            }
        }
    }
}

impl Reader {
    /// Counts what is kept of a step.
    fn count(&mut self, path: &str, text: Option<&str>) {
        let path = path.strip_prefix("groups/").unwrap_or(path);
        match (path, text) {
            ("groups", None) => self.kept.entry(size_of::<Layer>()),
            ("vlans/vlan", None) => self.kept.entry(size_of::<Vlan>() + size_of::<VlanSource>()),
            ("interfaces/interface", None) => {
                self.kept.entry(size_of::<Port>() + size_of::<SwitchingFamily>());
            }
            ("interfaces/interface-range", None) => self.kept.entry(size_of::<Range>()),
            (_, Some(text)) => {
                // An entry of a list.
                self.kept.bytes(if text.is_empty() { 0 } else { size_of::<String>() });
                self.kept.text(text);
            }
            _ => {}
        }
    }
}

/// The part of `path` below `node`; empty for the node itself.
fn below<'a>(path: &'a str, node: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(node)?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn vlan(layer: &mut Layer, path: &str, text: Option<&str>, inactive_vlan: &Cell<bool>) {
    let Some(text) = text else {
        if path.is_empty() {
            layer.vlans.push(Vlan { inactive: inactive_vlan.take(), ..Vlan::default() });
        }
        return;
    };
    let Some(vlan) = layer.vlans.last_mut() else { return };
    match path {
        "" => {}
        "name" => text.clone_into(&mut vlan.name),
        "vlan-id" => vlan.ids.push(text.to_owned()),
        "vlan-id-list" => {
            vlan.list = true;
            vlan.ids.push(text.to_owned());
        }
        "description" => vlan.description = Some(text.to_owned()),
        "interface/name" => {
            vlan.has_other_leaves = true;
            vlan.interfaces.push(text.to_owned());
        }
        "apply-groups" => {
            vlan.has_other_leaves = true;
            vlan.applied_groups.push(text.to_owned());
        }
        _ => vlan.has_other_leaves = true,
    }
}

fn range(
    layer: &mut Layer,
    unit: &mut (String, Settings),
    span: &mut (String, String),
    path: &str,
    text: Option<&str>,
) {
    if path.is_empty() && text.is_none() {
        layer.ranges.push(Range::default());
    }
    let Some(range) = layer.ranges.last_mut() else { return };
    match (path, text) {
        ("member/name", Some(text)) => range.members.push(text.to_owned()),
        ("member-range", None) => *span = Default::default(),
        ("member-range/name", Some(text)) => text.clone_into(&mut span.0),
        ("member-range/end-range", Some(text)) => text.clone_into(&mut span.1),
        ("member-range", Some(_)) => range.spans.push(std::mem::take(span)),
        _ => port_leaf(&mut range.port, unit, path, text),
    }
}

fn port_leaf(port: &mut Port, unit: &mut (String, Settings), path: &str, text: Option<&str>) {
    if let Some(of_unit) = below(path, "unit") {
        let known =
            matches!(of_unit, "" | "name" | "family") || of_unit.starts_with("family/ethernet-switching");
        unit.1.unit_has_other_leaves |= !known;
    } else {
        port.has_other_leaves |= !matches!(path, "" | "name");
    }
    if path.ends_with("apply-groups") {
        unit.1.has_other_leaves |= path.starts_with("unit/family/ethernet-switching");
        port.applied_groups.extend(text.map(str::to_owned));
        return;
    }
    if path.ends_with("apply-groups-except") {
        unit.1.has_other_leaves |= path.starts_with("unit/family/ethernet-switching");
        port.excepted_groups.extend(text.map(str::to_owned));
        return;
    }
    if let Some(family) = path.strip_prefix("unit/family/") {
        unit_leaf(&mut unit.1, family, text);
        return;
    }
    match (path, text) {
        ("name", Some(text)) => text.clone_into(&mut port.name),
        ("native-vlan-id", Some(text)) => port.settings.native = Some(text.to_owned()),
        ("unit", None) => *unit = Default::default(),
        ("unit/name", Some(text)) => text.clone_into(&mut unit.0),
        ("unit", Some(_)) => {
            let (name, mut of_unit) = std::mem::take(unit);
            if super::inherit::matches_name(&name, "0") {
                of_unit.unit = true;
                let settings = &mut port.settings;
                // The leaf of the interface takes precedence.
                let native = settings.native.take().or(of_unit.native);
                let bundle = settings.bundle.take();
                *settings = Settings { native, bundle, ..of_unit };
            } else {
                port.has_other_leaves = true;
            }
        }
        (_, Some(text)) if path.ends_with("options/ieee-802.3ad/bundle") => {
            port.settings.bundle = Some(text.to_owned());
        }
        _ => {}
    }
}

fn unit_leaf(settings: &mut Settings, family: &str, text: Option<&str>) {
    let Some(switching) = below(family, "ethernet-switching") else {
        if !family.contains('/') && text.is_none() {
            settings.other_family = Some(family.to_owned());
        }
        return;
    };
    settings.switching = true;
    let Some(text) = text else { return };
    match switching {
        // `port-mode` is the older name.
        "interface-mode" | "port-mode" => {
            settings.mode = Some(if text == "trunk" { Mode::Trunk } else { Mode::Access });
            text.clone_into(&mut settings.mode_text);
            settings.mode_leaf = Some(if switching == "port-mode" { "port-mode" } else { "interface-mode" });
        }
        "vlan/members" => settings.members.push(text.to_owned()),
        "native-vlan-id" => {
            settings.native = Some(text.to_owned());
            settings.has_other_leaves = true;
        }
        "" | "vlan" => {}
        _ => settings.has_other_leaves = true,
    }
}
