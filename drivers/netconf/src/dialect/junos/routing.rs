//! VRFs of Junos: routing instances of type `vrf`, or `virtual-router` without a distinguisher. On a router a VLAN is
//! the unit of that number with its `vlan-id`, on a switch the unit of `irb` that is the `l3-interface` of the VLAN.
//!
//! A VRF with a distinguisher exports its connected and static routes by `vrf-table-label`. It has one target in each
//! direction, since more need policies. Policies are not ENO's: they stay, and a direction with one is not compared in a
//! VRF of others. Groups are not applied to routing instances and units.
//!
//! An interface gets `vlan-tagging` with our first unit if it had none, and loses it with the last one. Nothing tells who
//! set it, so an admin who sets it on an interface without units sets it again after our last one. Just so an entry of
//! `rib` without content goes with our last route of IPv6. All else that others set stays, deactivated or not.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_fabric_driver::desired::listed_name;
use eno_sbi::TooLarge;
use eno_schemas::{FabricDesired, FabricVrf, VlanId};
use ipnet::IpNet;

use super::{Junos, bgp};
use crate::dialect::{ParseError, RoutingDialect};
use crate::memory::Counter;
use crate::plan::{
    ChangeUnit, Changes, InterfaceValues, Layout, ObservedConfig, ObservedInterface, ObservedRoute,
    ObservedRouting, ObservedVrf, RouteKey, RoutedId, VrfChange, family,
};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{Element, NETCONF, Scope, Step, escape, walk_tags};

const DELETE: &str = " nc:operation=\"delete\"";
/// The interface with a unit for each VLAN of a switch that is routed.
const IRB: &str = "irb";
/// The path of the options of a routing instance.
const ROUTING_OPTIONS: &str = "routing-instances/instance/routing-options/";

impl RoutingDialect for Junos {
    fn filter_routing(&self, desired: &FabricDesired) -> String {
        let root = self.namespace("root");
        let instances = self.namespace("routing-instances");
        // Those of the other role may be left of the time before the role changed.
        let interfaces: BTreeSet<&str> = desired.ports.iter().map(listed_name).chain([IRB]).collect();
        let mut names = format!("<interfaces xmlns=\"{}\">", self.namespace("interfaces"));
        for name in interfaces {
            let _ = write!(names, "<interface><name>{}</name></interface>", escape(name));
        }
        names.push_str("</interfaces>");
        let vlans = self.namespace("vlans");
        format!(
            "<configuration xmlns=\"{root}\"><routing-instances xmlns=\"{instances}\"><instance><name/><instance-type/>\
             <description/><interface/><route-distinguisher/><vrf-target/><vrf-import/><vrf-export/><vrf-table-label/>\
             <routing-options/></instance></routing-instances>\
             <vlans xmlns=\"{vlans}\"><vlan><name/><vlan-id/><l3-interface/></vlan></vlans>{names}</configuration>"
        )
    }

    fn parse_routing(&self, reply: &Text) -> Result<ObservedRouting, ParseError> {
        let (mut parser, found) = (Parser::default(), Cell::new(Found::default()));
        walk_tags(reply, |element| scope(element, &found), |step| parser.step(&step, found.take()))?;
        Ok(parser.finish())
    }
}

/// What a reply has before a step.
#[derive(Clone, Copy, Default)]
struct Found {
    /// An instance or unit begins that is deactivated.
    inactive: bool,
    /// Elements are left out.
    hidden: bool,
}

/// Deactivated elements count as absent, except instances and units, whose names stay in use.
fn scope(element: &Element<'_>, found: &Cell<Found>) -> Scope {
    let envelope = element.within.is_empty() && matches!(element.name(), "rpc-reply" | "data");
    if element.namespace == NETCONF && envelope {
        return Scope::Transparent;
    }
    let known = matches!(element.namespace, NETCONF | "")
        || ["http://yang.juniper.net/", "http://xml.juniper.net/"]
            .iter()
            .any(|base| element.namespace.starts_with(base));
    let inactive = element.has_attribute("inactive", "inactive") || element.has_attribute("active", "false");
    let stays = matches!(element.name(), "instance" | "unit");
    let is_hidden = !known || inactive && !stays;
    found.set(Found { inactive: inactive && stays, hidden: found.get().hidden || is_hidden });
    if is_hidden { Scope::Foreign } else { Scope::Known }
}

/// Whether an instance has more than our static routes, in its `routing-options`, in the entry of `rib` for IPv6, and in
/// `static` of either.
#[derive(Clone, Copy, Default)]
struct OtherOptions {
    options: bool,
    rib: bool,
    statics: [bool; 2],
}

impl OtherOptions {
    fn any(self) -> bool {
        self.options || self.rib || self.statics.contains(&true)
    }
}

/// The [`OtherOptions`] of each instance.
#[derive(Default)]
struct Options(BTreeMap<String, OtherOptions>);

/// A target or distinguisher as [`FabricVrf`] writes it: without the letter after an AS number of four bytes.
fn plain(text: &str) -> String {
    let text = text.strip_prefix("target:").unwrap_or(text);
    match text.split_once(':') {
        Some((administrator, number)) => {
            format!("{}:{number}", administrator.strip_suffix('L').unwrap_or(administrator))
        }
        None => text.to_owned(),
    }
}

/// The same as Junos writes it: with `L` after an AS number of four bytes.
fn written(text: &str) -> String {
    match text.split_once(':') {
        Some((administrator, number)) if administrator.parse::<u32>().is_ok_and(|asn| asn > 0xffff) => {
            format!("{administrator}L:{number}")
        }
        _ => text.to_owned(),
    }
}

#[derive(Default)]
struct Parser {
    observed: ObservedRouting,
    name: String,
    vrf: ObservedVrf,
    has_label: bool,
    others: OtherOptions,
    /// The entry of `rib` is the one of the routes of IPv6.
    is_own_rib: bool,
    options: Options,
    /// The routing instance is deactivated.
    inactive: bool,
    /// A static route: its prefix, next hops and preference, and whether it has other settings.
    route: (Option<IpNet>, Vec<String>, Option<u32>, bool),
    /// A VLAN: its VID and `l3-interface`.
    vlan: (String, String),
    /// `l3-interface` by VLAN.
    bound: BTreeMap<VlanId, String>,
    port: String,
    unit: Unit,
    kept: Counter,
}

#[derive(Default)]
struct Unit {
    inactive: bool,
    name: String,
    vlan: Option<String>,
    tagged: bool,
    interface: ObservedInterface,
}

impl Parser {
    fn step(&mut self, step: &Step<'_>, found: Found) -> Result<(), TooLarge> {
        if found.hidden {
            self.note_hidden(match step {
                Step::Enter(path) => path.rsplit_once('/').map_or("", |(around, _)| around),
                Step::Leave(path, _) => path,
            });
        }
        match step {
            Step::Enter(path) => {
                self.enter(path.strip_prefix("configuration/").unwrap_or_default(), found.inactive);
            }
            Step::Leave(path, text) => {
                self.kept.text(text);
                let Some(path) = path.strip_prefix("configuration/") else { return self.kept.check() };
                if let Some(rest) = path.strip_prefix("routing-instances/instance") {
                    self.vrf_leaf(rest.trim_start_matches('/'), text);
                } else if let Some(rest) = path.strip_prefix("interfaces/interface") {
                    self.interface_leaf(rest.trim_start_matches('/'), text);
                } else {
                    self.vlan_leaf(path, text);
                }
            }
        }
        self.kept.check()
    }

    fn enter(&mut self, path: &str, inactive: bool) {
        match path {
            "routing-instances/instance" => {
                self.kept.entry(size_of::<ObservedVrf>());
                (self.name, self.vrf, self.has_label, self.others) = Default::default();
                self.inactive = inactive;
            }
            "vlans/vlan" => self.vlan = Default::default(),
            "interfaces/interface" => self.port = String::new(),
            "interfaces/interface/unit" => self.unit = Unit { inactive, ..Unit::default() },
            _ => {
                if let Some(rest) = path.strip_prefix(ROUTING_OPTIONS) {
                    self.note_option(rest);
                }
            }
        }
    }

    /// Notes what a static route does not need.
    fn note_option(&mut self, rest: &str) {
        let (others, is_own_rib) = (&mut self.others, self.is_own_rib);
        match rest {
            "static/route" | "rib/static/route" => self.route = Default::default(),
            "rib" => self.is_own_rib = false,
            "" | "static" | "rib/name" => {}
            "rib/static" if is_own_rib => {}
            _ if rest.starts_with("static/route/") => {}
            _ if rest.starts_with("static/") => others.statics[0] = true,
            _ if is_own_rib && rest.starts_with("rib/static/route/") => {}
            _ if is_own_rib && rest.starts_with("rib/static/") => others.statics[1] = true,
            _ if is_own_rib && rest.starts_with("rib/") => others.rib = true,
            _ => others.options = true,
        }
    }

    /// Notes that something was left out within this element.
    fn note_hidden(&mut self, around: &str) {
        let Some(around) = around.strip_prefix("configuration/") else { return };
        if around == "interfaces/interface" {
            self.observed.parents.entry(self.port.clone()).or_default().has_others = true;
        } else if around == "routing-instances/instance" {
            self.vrf.has_others = true;
        } else if around.contains("/static/route") {
            self.route.3 = true;
        } else if let Some(rest) = format!("{around}/").strip_prefix(ROUTING_OPTIONS) {
            self.note_option(&format!("{rest}hidden"));
        }
    }

    fn leave_instance(&mut self) {
        let (name, mut vrf) = (std::mem::take(&mut self.name), std::mem::take(&mut self.vrf));
        vrf.exports = Some(self.has_label);
        vrf.is_vrf &= !self.inactive;
        vrf.has_others |= self.others.any() || vrf.policies.contains(&true);
        self.options.0.insert(name.clone(), self.others);
        self.observed.vrfs.insert(name, vrf);
    }

    fn vrf_leaf(&mut self, rest: &str, text: &str) {
        let vrf = &mut self.vrf;
        match rest {
            "" => self.leave_instance(),
            "name" => text.clone_into(&mut self.name),
            "instance-type" => vrf.is_vrf = matches!(text, "vrf" | "virtual-router"),
            "description" => vrf.description = Some(text.to_owned()),
            "route-distinguisher/rd-type" => vrf.route_distinguisher = Some(plain(text)),
            "vrf-target/community" => {
                vrf.import_targets.insert(plain(text));
                vrf.export_targets.insert(plain(text));
            }
            "vrf-target/import" => drop(vrf.import_targets.insert(plain(text))),
            "vrf-target/export" => drop(vrf.export_targets.insert(plain(text))),
            "vrf-import" => vrf.policies[0] = true,
            "vrf-export" => vrf.policies[1] = true,
            "vrf-table-label" => self.has_label = true,
            "interface/name" => match RoutedId::of_unit(text, IRB) {
                Some(id) => {
                    self.kept.entry(size_of::<RoutedId>());
                    vrf.interfaces.insert(id, text.to_owned());
                }
                None => vrf.has_others = true,
            },
            "routing-options/rib/name" => {
                self.is_own_rib = text.strip_suffix(".inet6.0") == Some(&self.name);
                self.others.options |= !self.is_own_rib;
            }
            // Without routes of IPv6 it is not of our making.
            "routing-options/rib" => {
                let has_routes = vrf.next_hops.keys().any(|prefix| family(prefix) == 1);
                self.others.rib |= self.is_own_rib && !has_routes;
            }
            _ => {
                let of_rib = || rest.strip_prefix("routing-options/rib/static/route");
                let route = rest
                    .strip_prefix("routing-options/static/route")
                    .or_else(|| of_rib().filter(|_| self.is_own_rib));
                if let Some(rest) = route {
                    self.route_leaf(rest, text);
                }
            }
        }
    }

    fn route_leaf(&mut self, rest: &str, text: &str) {
        let route = &mut self.route;
        match rest {
            "/name" => route.0 = text.parse().ok(),
            "/next-hop" => route.1.push(text.to_owned()),
            "/preference/metric-value" => route.2 = text.parse().ok(),
            "/preference" if !text.is_empty() => route.2 = text.parse().ok(),
            "/preference" => {}
            "" => {
                let (prefix, next_hops, preference, has_others) = std::mem::take(route);
                let Some(prefix) = prefix else { return };
                self.kept.entry(size_of::<ObservedRoute>() + size_of::<RouteKey>());
                *self.vrf.next_hops.entry(prefix).or_default() += next_hops.len() + usize::from(has_others);
                for next_hop in next_hops {
                    if let Ok(address) = next_hop.parse() {
                        self.vrf
                            .routes
                            .insert((prefix, address), ObservedRoute { preference, key: next_hop });
                    }
                }
            }
            _ => route.3 = true,
        }
    }

    fn vlan_leaf(&mut self, path: &str, text: &str) {
        match path {
            "vlans/vlan/vlan-id" => text.clone_into(&mut self.vlan.0),
            "vlans/vlan/l3-interface" => text.clone_into(&mut self.vlan.1),
            "vlans/vlan" => {
                let (vid, interface) = std::mem::take(&mut self.vlan);
                if let Some(vid) = vid.parse().ok().filter(|_| !interface.is_empty()) {
                    self.bound.insert(vid, interface);
                }
            }
            _ => {}
        }
    }

    fn interface_leaf(&mut self, rest: &str, text: &str) {
        let unit = &mut self.unit;
        match rest {
            "" => drop(self.observed.parents.entry(std::mem::take(&mut self.port)).or_default()),
            "name" => text.clone_into(&mut self.port),
            "vlan-tagging" | "flexible-vlan-tagging" => {
                let parent = self.observed.parents.entry(self.port.clone()).or_default();
                parent.tagged = true;
                parent.is_plain |= rest == "vlan-tagging";
                parent.has_others |= rest != "vlan-tagging";
            }
            "unit" => self.leave_unit(),
            "unit/name" => text.clone_into(&mut unit.name),
            "unit/description" => unit.interface.description = Some(text.to_owned()),
            "unit/vlan-id" => {
                unit.tagged = true;
                unit.vlan = Some(text.to_owned());
            }
            "unit/vlan-tags" | "unit/vlan-id-list" | "unit/vlan-id-range" => unit.tagged = true,
            "unit/family/inet/mtu" => unit.interface.mtus[0] = text.parse().ok(),
            "unit/family/inet6/mtu" => unit.interface.mtus[1] = text.parse().ok(),
            "unit/family/inet/address/name" | "unit/family/inet6/address/name" => {
                unit.interface.addresses.extend(text.parse::<IpNet>());
            }
            _ if rest.starts_with("unit/") => {}
            _ => self.observed.parents.entry(self.port.clone()).or_default().has_others = true,
        }
    }

    /// Adds a unit by its number, and by its VLAN where that is another.
    fn leave_unit(&mut self) {
        let Unit { inactive, name, vlan, tagged, mut interface } = std::mem::take(&mut self.unit);
        if inactive {
            interface.description = Some("deactivated".to_owned());
        }
        self.kept.entry(size_of::<ObservedInterface>() + size_of::<RoutedId>());
        let parent = self.observed.parents.entry(self.port.clone()).or_default();
        parent.units += 1;
        parent.untagged |= !tagged;
        let number: Option<VlanId> = name.parse().ok();
        let vlan: Option<VlanId> = vlan.and_then(|vlan| vlan.parse().ok());
        if self.port == IRB {
            if let Some(vid) = number {
                self.observed.interfaces.insert(RoutedId::irb(vid), interface);
            }
            return;
        }
        if let Some(vid) = vlan.filter(|_| vlan != number) {
            let description = Some(format!("{}.{name}", self.port));
            let foreign = ObservedInterface { description, ..ObservedInterface::default() };
            self.observed.interfaces.entry(RoutedId::on(&self.port, vid)).or_insert(foreign);
        }
        if let Some(vid) = number {
            interface.fits = vlan == number;
            self.observed.interfaces.insert(RoutedId::on(&self.port, vid), interface);
        }
    }

    fn finish(self) -> ObservedRouting {
        let Self { mut observed, bound, options, kept, .. } = self;
        for (vid, interface) in bound {
            let id = RoutedId::irb(vid);
            if interface == id.unit_name(IRB) {
                observed.interfaces.entry(id).and_modify(|unit| unit.fits = true);
            } else {
                // The VLAN is routed by another interface.
                let foreign =
                    ObservedInterface { description: Some(interface), ..ObservedInterface::default() };
                observed.interfaces.insert(id, foreign);
            }
        }
        (observed.one_target, observed.one_route) = (true, true);
        observed.layout = Layout::new(options);
        observed.memory = kept.into();
        observed
    }
}

/// The unit of the change of VRFs that an error is about, by the words of its path and message.
pub(super) fn locate_error(error: &RpcError, changes: &Changes) -> Option<ChangeUnit> {
    let texts = [error.path.as_deref(), error.info("bad-element"), error.message.as_deref()];
    let words: Vec<&str> = texts
        .into_iter()
        .flatten()
        .flat_map(|text| text.split(|c: char| c.is_whitespace() || "[]\"'`,;()<>=".contains(c)))
        .collect();
    if let Some(group) = changes.routing.bgp.group_of(words.iter().copied()) {
        return Some(group);
    }
    let routed = |vid: VlanId| changes.routing.routed.contains_key(&vid).then_some(vid);
    let named = words.iter().find_map(|word| RoutedId::of_unit(word, IRB).and_then(|id| routed(id.vid)));
    let unit = || {
        let after = words.windows(2).filter(|pair| pair[0] == "unit");
        after.filter_map(|pair| pair[1].parse().ok()).find_map(routed)
    };
    let vrf = || {
        let mut after = words.windows(2).filter(|pair| matches!(pair[0], "routing-instances" | "instance"));
        after.find(|pair| changes.routing.vrfs.contains_key(pair[1])).map(|pair| pair[1].to_owned())
    };
    named.or_else(unit).map(ChangeUnit::Routed).or_else(|| vrf().map(ChangeUnit::Vrf))
}

/// The VLANs that get or lose an interface beside them: whether they get it. Writing to memory can't fail, so results of
/// `write!` are dropped in this file.
pub(super) fn bound_vlans(observed: &ObservedConfig, changes: &Changes) -> BTreeMap<VlanId, bool> {
    let mut bound = BTreeMap::new();
    for (vid, change) in &changes.routing.routed {
        let id = RoutedId::irb(*vid);
        let current = observed.routing.read().and_then(|read| read.interfaces.get(&id));
        let fits = current.is_some_and(|current| current.fits);
        if change.set.as_ref().is_some_and(|set| set.id == id) {
            bound.insert(*vid, true);
        } else if change.remove.contains(&id) && fits && observed.vlans.contains(*vid) {
            bound.insert(*vid, false);
        }
    }
    bound
}

/// Adds the interface beside a VLAN to its entry, or takes it away.
pub(super) fn bind(xml: &mut Text, vid: VlanId, is_bound: Option<bool>) {
    let _ = match is_bound {
        Some(true) => write!(xml, "<l3-interface>{IRB}.{vid}</l3-interface>"),
        Some(false) => write!(xml, "<l3-interface{DELETE}>{IRB}.{vid}</l3-interface>"),
        None => Ok(()),
    };
}

/// Whether units of interfaces change.
pub(super) fn changes_interfaces(changes: &Changes) -> bool {
    changes.routing.routed.values().any(|change| change.set.is_some() || !change.remove.is_empty())
}

/// Renders the units that lead VLANs into VRFs.
pub(super) fn render_interfaces(xml: &mut Text, observed: &ObservedConfig, changes: &Changes) {
    let mut by_name: BTreeMap<&str, (Vec<VlanId>, Vec<&InterfaceValues>)> = BTreeMap::new();
    for change in changes.routing.routed.values() {
        for id in &change.remove {
            by_name.entry(id.interface_name(IRB)).or_default().0.push(id.vid);
        }
        if let Some(set) = &change.set {
            by_name.entry(set.id.interface_name(IRB)).or_default().1.push(set);
        }
    }
    let read = observed.routing.read();
    for (name, (removed, set)) in by_name {
        let parent = read.and_then(|read| read.parents.get(name)).copied().unwrap_or_default();
        let is_last = set.is_empty() && parent.units == removed.len();
        if is_last && !parent.has_others && !changes.ports.contains_key(name) {
            let _ = write!(xml, "<interface{DELETE}><name>{}</name></interface>", escape(name));
            continue;
        }
        let _ = write!(xml, "<interface><name>{}</name>", escape(name));
        if name != IRB && is_last && parent.is_plain {
            let _ = write!(xml, "<vlan-tagging{DELETE}/>");
        } else if name != IRB && !set.is_empty() && !parent.tagged {
            xml.push_str("<vlan-tagging/>");
        }
        for vid in removed {
            let _ = write!(xml, "<unit{DELETE}><name>{vid}</name></unit>");
        }
        for values in set {
            render_unit(xml, values, read.and_then(|read| read.interfaces.get(&values.id)));
        }
        xml.push_str("</interface>");
    }
}

fn render_unit(xml: &mut Text, values: &InterfaceValues, current: Option<&ObservedInterface>) {
    let vid = values.id.vid;
    let _ = write!(xml, "<unit><name>{vid}</name><description>{}</description>", escape(&values.description));
    if values.id.port.is_some() {
        let _ = write!(xml, "<vlan-id>{vid}</vlan-id>");
    }
    xml.push_str("<family>");
    for (at, name) in ["inet", "inet6"].into_iter().enumerate() {
        let of_family = |net: &&IpNet| family(net) == at;
        let wanted: Vec<&IpNet> = values.addresses.iter().filter(of_family).collect();
        let old = current.into_iter().flat_map(|current| &current.addresses).filter(of_family);
        let old: Vec<&IpNet> = old.collect();
        if wanted.is_empty() {
            if !old.is_empty() {
                let _ = write!(xml, "<{name}{DELETE}/>");
            }
            continue;
        }
        let _ = write!(xml, "<{name}>");
        let _ = match (values.mtu, current.and_then(|current| current.mtus[at])) {
            (Some(mtu), _) => write!(xml, "<mtu>{mtu}</mtu>"),
            (None, Some(old)) => write!(xml, "<mtu{DELETE}>{old}</mtu>"),
            (None, None) => Ok(()),
        };
        for gone in old.iter().filter(|old| !wanted.contains(old)) {
            let _ = write!(xml, "<address{DELETE}><name>{gone}</name></address>");
        }
        for net in wanted.iter().filter(|net| !old.contains(net)) {
            let _ = write!(xml, "<address><name>{net}</name></address>");
        }
        let _ = write!(xml, "</{name}>");
    }
    xml.push_str("</family></unit>");
}

/// Renders the routing instances that change.
pub(super) fn render_vrfs(xml: &mut Text, junos: Junos, observed: &ObservedConfig, changes: &Changes) {
    let touched = changes.routing.touched_vrfs();
    if touched.is_empty() {
        return;
    }
    let _ = write!(xml, "<routing-instances xmlns=\"{}\">", junos.namespace("routing-instances"));
    for name in touched {
        let key = escape(name);
        if changes.routing.removes(name) {
            let _ = write!(xml, "<instance{DELETE}><name>{key}</name></instance>");
            continue;
        }
        let unknown = ObservedVrf::default();
        let current = observed.routing.read().and_then(|read| read.vrfs.get(name)).unwrap_or(&unknown);
        let _ = write!(xml, "<instance><name>{key}</name>");
        if let Some(VrfChange::Set { vrf, description }) = changes.routing.vrfs.get(name) {
            render_values(xml, current, vrf, description);
        }
        render_members(xml, current, changes, name);
        render_routes(xml, observed, current, changes, name);
        bgp::render_protocols(xml, changes, name);
        xml.push_str("</instance>");
    }
    xml.push_str("</routing-instances>");
}

fn render_values(xml: &mut Text, current: &ObservedVrf, vrf: &FabricVrf, description: &str) {
    let kind = if vrf.route_distinguisher.is_some() { "vrf" } else { "virtual-router" };
    let _ = write!(
        xml,
        "<instance-type>{kind}</instance-type><description>{}</description>",
        escape(description)
    );
    let _ = match (&vrf.route_distinguisher, &current.route_distinguisher) {
        (Some(value), _) => write!(
            xml,
            "<route-distinguisher><rd-type>{}</rd-type></route-distinguisher>",
            escape(&written(value))
        ),
        (None, Some(_)) => write!(xml, "<route-distinguisher{DELETE}/>"),
        (None, None) => Ok(()),
    };
    let targets = [("import", &vrf.import_targets), ("export", &vrf.export_targets)];
    let (had, has) = (
        !current.import_targets.is_empty() || !current.export_targets.is_empty(),
        targets.iter().any(|(_, targets)| !targets.is_empty()),
    );
    if !current.has_targets_of(vrf) {
        if has {
            // The list of targets has one form of several.
            let replace = if had { " nc:operation=\"replace\"" } else { "" };
            let _ = write!(xml, "<vrf-target{replace}>");
            for (leaf, target) in targets.iter().filter_map(|(leaf, all)| Some((leaf, all.first()?))) {
                let _ = write!(xml, "<{leaf}>target:{}</{leaf}>", escape(&written(target)));
            }
            xml.push_str("</vrf-target>");
        } else {
            let _ = write!(xml, "<vrf-target{DELETE}/>");
        }
    }
    if !current.exports_as(vrf) {
        let operation = if vrf.route_distinguisher.is_some() { "" } else { DELETE };
        if operation.is_empty() || current.exports == Some(true) {
            let _ = write!(xml, "<vrf-table-label{operation}/>");
        }
    }
}

fn render_members(xml: &mut Text, current: &ObservedVrf, changes: &Changes, name: &str) {
    for change in changes.routing.routed.values() {
        for (_, id) in change.leave.iter().filter(|(vrf, _)| vrf == name) {
            if let Some(member) = current.interfaces.get(id) {
                let _ = write!(xml, "<interface{DELETE}><name>{}</name></interface>", escape(member));
            }
        }
        if let Some((_, id)) = change.join.as_ref().filter(|(vrf, _)| vrf == name) {
            let _ = write!(xml, "<interface><name>{}</name></interface>", escape(&id.unit_name(IRB)));
        }
    }
}

/// Renders the static routes that change. A route goes with its last next hop, and what is around it with the last route
/// if others have nothing in it.
fn render_routes(
    xml: &mut Text,
    observed: &ObservedConfig,
    current: &ObservedVrf,
    changes: &Changes,
    name: &str,
) {
    let routes = route_edits(changes, name);
    if routes.iter().all(BTreeMap::is_empty) {
        return;
    }
    let layout = observed.routing.read().and_then(|read| read.layout.get::<Options>());
    let others = layout.and_then(|options| options.0.get(name)).copied().unwrap_or_default();
    let goes = [0, 1].map(|at| !others.statics[at] && leaves_no_route(current, &routes[at], at));
    if goes == [true, true] && !others.rib && !others.options {
        let _ = write!(xml, "<routing-options{DELETE}/>");
        return;
    }
    xml.push_str("<routing-options>");
    let rib = format!("<name>{}.inet6.0</name>", escape(name));
    for (at, list) in routes.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        if goes[at] && at == 1 && !others.rib {
            let _ = write!(xml, "<rib{DELETE}>{rib}</rib>");
            continue;
        }
        let _ = if at == 1 { write!(xml, "<rib>{rib}") } else { Ok(()) };
        if goes[at] {
            let _ = write!(xml, "<static{DELETE}/>");
        } else {
            xml.push_str("<static>");
            for (prefix, edit) in list {
                edit.render(xml, current, prefix);
            }
            xml.push_str("</static>");
        }
        xml.push_str(if at == 1 { "</rib>" } else { "" });
    }
    xml.push_str("</routing-options>");
}

/// The changes of the routes of a VRF by prefix, for IPv4 and IPv6.
fn route_edits<'a>(changes: &'a Changes, name: &str) -> [BTreeMap<IpNet, RouteEdit<'a>>; 2] {
    let mut routes: [BTreeMap<IpNet, RouteEdit<'_>>; 2] = Default::default();
    for change in changes.routing.routed.values() {
        for (route, preference) in change.add_routes.iter().filter(|(route, _)| route.vrf == name) {
            let edit = routes[family(&route.prefix)].entry(route.prefix).or_default();
            edit.preference = *preference;
            edit.add.push(route);
        }
        for route in change.remove_routes.iter().filter(|route| route.vrf == name) {
            routes[family(&route.prefix)].entry(route.prefix).or_default().remove.push(route);
        }
    }
    routes
}

/// Whether no route of a family is left after these edits.
fn leaves_no_route(current: &ObservedVrf, edits: &BTreeMap<IpNet, RouteEdit<'_>>, at: usize) -> bool {
    let mut prefixes = current.next_hops.keys().filter(|prefix| family(prefix) == at);
    prefixes.all(|prefix| edits.get(prefix).is_some_and(|edit| edit.removes_all(current, prefix)))
        && edits.values().all(|edit| edit.add.is_empty())
}

/// What changes of the static route to one prefix.
#[derive(Default)]
struct RouteEdit<'a> {
    add: Vec<&'a RouteKey>,
    preference: Option<u8>,
    remove: Vec<&'a RouteKey>,
}

impl RouteEdit<'_> {
    /// Nothing is left of the route.
    fn removes_all(&self, current: &ObservedVrf, prefix: &IpNet) -> bool {
        self.add.is_empty() && current.next_hops.get(prefix).is_none_or(|all| *all <= self.remove.len())
    }

    fn render(&self, xml: &mut Text, current: &ObservedVrf, prefix: &IpNet) {
        if self.removes_all(current, prefix) {
            let _ = write!(xml, "<route{DELETE}><name>{prefix}</name></route>");
            return;
        }
        let _ = write!(xml, "<route><name>{prefix}</name>");
        for route in &self.remove {
            let _ = write!(xml, "<next-hop{DELETE}>{}</next-hop>", route.next_hop);
        }
        for route in self.add.iter().filter(|route| !current.routes.contains_key(&(*prefix, route.next_hop)))
        {
            let _ = write!(xml, "<next-hop>{}</next-hop>", route.next_hop);
        }
        let had = current.routes_to(prefix).any(|(_, route)| route.preference.is_some());
        if !self.add.is_empty() {
            let _ = match self.preference {
                Some(value) => write!(xml, "<preference><metric-value>{value}</metric-value></preference>"),
                None if had => write!(xml, "<preference{DELETE}/>"),
                None => Ok(()),
            };
        }
        xml.push_str("</route>");
    }
}
