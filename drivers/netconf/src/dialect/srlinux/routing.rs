//! VRFs of SR Linux: network-instances of type `ip-vrf`, with the distinguisher and the targets of their first instance of
//! `bgp-vpn`, one target in each direction. On a router a VLAN is a routed subinterface whose index is its VID, on a
//! switch that of `irb1`, which is in the mac-vrf of the VLAN too.
//!
//! A port gets `vlan-tagging` with our first subinterface if it had none, and loses it with the last one. Nothing tells
//! who set it, so an admin who sets it on a port without subinterfaces sets it again after our last one. Just so the lists
//! of static routes and of next-hop-groups go with their last entries. A static route of ours has a next-hop-group of its
//! own, which stays while another route uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_fabric_driver::desired::listed_name;
use eno_sbi::TooLarge;
use eno_schemas::{FabricDesired, FabricVrf, VlanId};
use ipnet::IpNet;

use super::{INTERFACES, Member, NETWORK_INSTANCE, SrLinux, VLANS, bgp, push_interfaces, scope, vid_of_name};
use crate::dialect::locate_error::predicates;
use crate::dialect::{ParseError, RoutingDialect};
use crate::memory::Counter;
use crate::plan::{
    ChangeUnit, Changes, InterfaceValues, Layout, ObservedConfig, ObservedInterface, ObservedRoute,
    ObservedRouting, ObservedVrf, RouteKey, RoutedId, VrfChange, family,
};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{Step, escape, walk};

const BGP_VPN: &str = "urn:nokia.com:srlinux:bgp:bgp-vpn";
const STATIC_ROUTES: &str = "urn:nokia.com:srlinux:static-route:static-routes";
const NEXT_HOP_GROUPS: &str = "urn:nokia.com:srlinux:static-route:next-hop-groups";
const REMOVE: &str = " nc:operation=\"remove\"";
/// The interface with a subinterface for each VLAN of a switch that is routed.
const IRB: &str = "irb1";

/// The next-hop-groups of each network-instance: their next hops by index.
#[derive(Default)]
struct Groups(BTreeMap<String, BTreeMap<String, BTreeMap<u16, String>>>);

impl RoutingDialect for SrLinux {
    fn filter_routing(&self, desired: &FabricDesired) -> String {
        let mut filter = format!(
            "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name/><type/><description/><interface/><protocols>\
             <bgp-vpn xmlns=\"{BGP_VPN}\"/></protocols><static-routes xmlns=\"{STATIC_ROUTES}\"/>\
             <next-hop-groups xmlns=\"{NEXT_HOP_GROUPS}\"/></network-instance>"
        );
        // Those of the other role may be left of the time before the role changed.
        let interfaces = desired.ports.iter().map(listed_name).chain([IRB]).collect();
        push_interfaces(&mut filter, &interfaces, "");
        filter
    }

    fn parse_routing(&self, reply: &Text) -> Result<ObservedRouting, ParseError> {
        let mut parser = Parser::default();
        walk(reply, scope, |step| parser.step(&step))?;
        Ok(parser.finish())
    }
}

#[derive(Default)]
struct Parser {
    observed: ObservedRouting,
    name: String,
    kind: String,
    vrf: ObservedVrf,
    members: Vec<String>,
    /// The routes of the network-instance: next-hop-group and preference by prefix.
    routes: BTreeMap<IpNet, (String, Option<u32>)>,
    route: (Option<IpNet>, String, Option<u32>),
    groups: Groups,
    group: (String, BTreeMap<u16, String>),
    next_hop: (Option<u16>, String),
    /// The members of the mac-vrfs of VLANs that are routed.
    bound: Vec<(VlanId, String)>,
    interface: String,
    unit: Unit,
    kept: Counter,
}

#[derive(Default)]
struct Unit {
    index: String,
    vlan: Option<String>,
    tagged: bool,
    is_routed: bool,
    disabled: bool,
    /// Whether each family is enabled.
    enabled: [bool; 2],
    interface: ObservedInterface,
}

impl Parser {
    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        match step {
            Step::Enter(path) => match *path {
                "network-instance" => {
                    self.kept.entry(size_of::<ObservedVrf>());
                    (self.name, self.kind, self.vrf) = Default::default();
                    (self.members, self.routes) = Default::default();
                }
                "network-instance/static-routes/route" => self.route = Default::default(),
                "network-instance/next-hop-groups/group" => self.group = Default::default(),
                "network-instance/next-hop-groups/group/nexthop" => self.next_hop = Default::default(),
                "interface" => self.interface = String::new(),
                "interface/subinterface" => self.unit = Unit::default(),
                _ => {}
            },
            Step::Leave(path, text) => {
                self.kept.text(text);
                if let Some(rest) = path.strip_prefix("network-instance") {
                    self.instance_leaf(rest.trim_start_matches('/'), text);
                } else if let Some(rest) = path.strip_prefix("interface") {
                    self.interface_leaf(rest.trim_start_matches('/'), text);
                }
            }
        }
        self.kept.check()
    }

    fn instance_leaf(&mut self, rest: &str, text: &str) {
        let vrf = &mut self.vrf;
        let target = || text.strip_prefix("target:").unwrap_or(text).to_owned();
        match rest {
            "" => self.leave_instance(),
            "name" => text.clone_into(&mut self.name),
            "type" => text.rsplit(':').next().unwrap_or(text).clone_into(&mut self.kind),
            "description" => vrf.description = Some(text.to_owned()),
            "interface/name" => {
                self.kept.entry(size_of::<RoutedId>());
                self.members.push(text.to_owned());
            }
            "protocols/bgp-vpn/bgp-instance/route-distinguisher/rd" => {
                vrf.route_distinguisher = Some(text.to_owned());
            }
            "protocols/bgp-vpn/bgp-instance/route-target/import-rt" => {
                vrf.import_targets.insert(target());
            }
            "protocols/bgp-vpn/bgp-instance/route-target/export-rt" => {
                vrf.export_targets.insert(target());
            }
            "static-routes/route/prefix" => self.route.0 = text.parse().ok(),
            "static-routes/route/next-hop-group" => text.clone_into(&mut self.route.1),
            "static-routes/route/preference" => self.route.2 = text.parse().ok(),
            "static-routes/route" => {
                let (prefix, group, preference) = std::mem::take(&mut self.route);
                if let Some(prefix) = prefix {
                    self.kept.entry(size_of::<ObservedRoute>() + size_of::<RouteKey>());
                    self.routes.insert(prefix, (group, preference));
                }
            }
            "next-hop-groups/group/name" => text.clone_into(&mut self.group.0),
            "next-hop-groups/group/nexthop/index" => self.next_hop.0 = text.parse().ok(),
            "next-hop-groups/group/nexthop/ip-address" => text.clone_into(&mut self.next_hop.1),
            "next-hop-groups/group/nexthop" => {
                self.kept.entry(size_of::<String>());
                let (index, address) = std::mem::take(&mut self.next_hop);
                self.group.1.extend(index.map(|index| (index, address)));
            }
            "next-hop-groups/group" => {
                self.kept.entry(size_of::<String>());
                let (name, next_hops) = std::mem::take(&mut self.group);
                self.groups.0.entry(self.name.clone()).or_default().insert(name, next_hops);
            }
            _ => {}
        }
    }

    fn leave_instance(&mut self) {
        let (name, mut vrf) = (std::mem::take(&mut self.name), std::mem::take(&mut self.vrf));
        let members = std::mem::take(&mut self.members);
        if self.kind == "mac-vrf" {
            let vid = vid_of_name(&name);
            let irbs = members.into_iter().filter(|member| member.starts_with("irb"));
            self.bound.extend(irbs.filter_map(|member| Some((vid?, member))));
        } else {
            vrf.has_others = members.iter().any(|name| RoutedId::of_unit(name, IRB).is_none());
            let known = members.into_iter().filter_map(|name| Some((RoutedId::of_unit(&name, IRB)?, name)));
            vrf.interfaces = known.collect();
        }
        vrf.is_vrf = self.kind == "ip-vrf";
        // It exports all routes that it has a target for.
        vrf.exports = Some(vrf.route_distinguisher.is_some());
        let none = BTreeMap::new();
        let groups = self.groups.0.get(&name).unwrap_or(&none);
        for (prefix, (group, preference)) in std::mem::take(&mut self.routes) {
            let next_hops = groups.get(&group);
            // A route without next hops drops its packets.
            vrf.next_hops.insert(prefix, next_hops.map_or(1, |all| all.len().max(1)));
            for (index, address) in next_hops.into_iter().flatten() {
                if let Ok(address) = address.parse() {
                    let route = ObservedRoute { preference, key: format!("{index} {group}") };
                    vrf.routes.insert((prefix, address), route);
                }
            }
        }
        self.observed.vrfs.insert(name, vrf);
    }

    fn interface_leaf(&mut self, rest: &str, text: &str) {
        let unit = &mut self.unit;
        match rest {
            "" => drop(self.observed.parents.entry(std::mem::take(&mut self.interface)).or_default()),
            "name" => text.clone_into(&mut self.interface),
            "vlan-tagging" => {
                self.observed.parents.entry(self.interface.clone()).or_default().tagged = text == "true";
            }
            "subinterface" => self.leave_unit(),
            "subinterface/index" => text.clone_into(&mut unit.index),
            "subinterface/description" => unit.interface.description = Some(text.to_owned()),
            "subinterface/admin-state" => unit.disabled = text == "disable",
            "subinterface/type" => unit.is_routed = text.rsplit(':').next() == Some("routed"),
            "subinterface/ip-mtu" => unit.interface.mtus = [text.parse().ok(); 2],
            "subinterface/vlan/encap/single-tagged/vlan-id" => {
                unit.tagged = true;
                unit.vlan = Some(text.to_owned());
            }
            "subinterface/vlan/encap/untagged" => {}
            "subinterface/ipv4/admin-state" => unit.enabled[0] = text == "enable",
            "subinterface/ipv6/admin-state" => unit.enabled[1] = text == "enable",
            "subinterface/ipv4/address/ip-prefix" | "subinterface/ipv6/address/ip-prefix" => {
                unit.interface.addresses.extend(text.parse::<IpNet>());
            }
            _ if rest.starts_with("subinterface/vlan/encap/") => unit.tagged = true,
            _ if rest.starts_with("subinterface/") => {}
            _ => self.observed.parents.entry(self.interface.clone()).or_default().has_others = true,
        }
    }

    /// Adds a subinterface by its index, and by its VLAN where that is another.
    fn leave_unit(&mut self) {
        self.kept.entry(size_of::<ObservedInterface>() + size_of::<RoutedId>());
        let unit = std::mem::take(&mut self.unit);
        let Unit { index, vlan, tagged, is_routed, disabled, enabled, mut interface } = unit;
        let parent = self.observed.parents.entry(self.interface.clone()).or_default();
        parent.units += 1;
        parent.untagged |= !tagged;
        let number: Option<VlanId> = index.parse().ok();
        let vlan: Option<VlanId> = vlan.and_then(|vlan| vlan.parse().ok());
        let is_enabled = !disabled && interface.addresses.iter().all(|net| enabled[family(net)]);
        if self.interface == IRB {
            interface.fits = is_enabled;
            self.observed.interfaces.extend(number.map(|vid| (RoutedId::irb(vid), interface)));
            return;
        }
        if let Some(vid) = vlan.filter(|_| vlan != number) {
            let description = Some(format!("{}.{index}", self.interface));
            let foreign = ObservedInterface { description, ..ObservedInterface::default() };
            self.observed.interfaces.entry(RoutedId::on(&self.interface, vid)).or_insert(foreign);
        }
        if !is_routed {
            // It belongs to a switched VLAN, whose name it may bear.
            interface.description = Some("bridged".to_owned());
        }
        if let Some(vid) = number {
            interface.fits = is_enabled && vlan == number;
            self.observed.interfaces.insert(RoutedId::on(&self.interface, vid), interface);
        }
    }

    fn finish(self) -> ObservedRouting {
        let Self { mut observed, bound, groups, kept, .. } = self;
        let (own, foreign): (Vec<_>, Vec<_>) =
            bound.into_iter().partition(|(vid, name)| *name == RoutedId::irb(*vid).unit_name(IRB));
        let own: BTreeSet<VlanId> = own.into_iter().map(|(vid, _)| vid).collect();
        for (id, interface) in observed.interfaces.iter_mut().filter(|(id, _)| id.port.is_none()) {
            interface.fits &= own.contains(&id.vid);
        }
        for (vid, name) in foreign {
            // The VLAN is routed by another interface.
            let foreign = ObservedInterface { description: Some(name), ..ObservedInterface::default() };
            observed.interfaces.insert(RoutedId::irb(vid), foreign);
        }
        (observed.one_target, observed.one_route) = (true, true);
        observed.layout = Layout::new(groups);
        observed.memory = kept.into();
        observed
    }
}

/// The unit of the change of VRFs that an error is about, by its path and the words of its message.
pub(super) fn locate_error(error: &RpcError, changes: &Changes) -> Option<ChangeUnit> {
    let routed = |vid: VlanId| changes.routing.routed.contains_key(&vid).then_some(vid);
    let (mut vrf, mut vid, mut of_switched) = (None, None, false);
    let keys = predicates(error.location().unwrap_or_default());
    if let Some(group) = changes.routing.bgp.group_of(keys.iter().map(|(_, value)| *value)) {
        return Some(group);
    }
    for (key, value) in keys {
        match key {
            "name" if changes.routing.vrfs.contains_key(value) => vrf = Some(value),
            "name" => {
                of_switched = changes.ports.contains_key(value);
                vid = RoutedId::of_unit(value, IRB).and_then(|id| routed(id.vid)).or(vid);
            }
            "index" if !of_switched => vid = value.parse().ok().and_then(routed).or(vid),
            _ => {}
        }
    }
    let message = error.message.as_deref().unwrap_or_default();
    let words = message.split(|c: char| c.is_whitespace() || "\"'`,;:()<>=".contains(c));
    let in_message = words
        .filter_map(|name| RoutedId::of_unit(name, IRB))
        .filter(|id| id.port.as_ref().is_none_or(|port| !changes.ports.contains_key(port)));
    vid.or_else(|| in_message.into_iter().find_map(|id| routed(id.vid)))
        .map(ChangeUnit::Routed)
        .or_else(|| vrf.map(|vrf| ChangeUnit::Vrf(vrf.to_owned())))
}

/// The subinterfaces beside VLANs that their mac-vrfs get, or lose.
pub(super) fn irbs(changes: &Changes) -> impl Iterator<Item = (VlanId, bool, Member)> {
    let member = |vid: VlanId| Member::Subinterface(IRB.into(), vid.get().into());
    changes.routing.routed.iter().filter_map(move |(vid, change)| {
        let id = RoutedId::irb(*vid);
        let is_set = change.set.as_ref().is_some_and(|set| set.id == id);
        (is_set || change.remove.contains(&id)).then(|| (*vid, is_set, member(*vid)))
    })
}

/// Renders what changes of VRFs and of what leads VLANs into them.
pub(super) fn render(xml: &mut Text, observed: &ObservedConfig, changes: &Changes) {
    render_interfaces(xml, observed, changes);
    for name in changes.routing.touched_vrfs() {
        let key = escape(name);
        if changes.routing.removes(name) {
            let _ = write!(
                xml,
                "<network-instance xmlns=\"{NETWORK_INSTANCE}\"{REMOVE}><name>{key}</name></network-instance>"
            );
            continue;
        }
        let unknown = ObservedVrf::default();
        let current = observed.routing.read().and_then(|read| read.vrfs.get(name)).unwrap_or(&unknown);
        let _ = write!(xml, "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name>{key}</name>");
        let mut protocols = Text::new();
        if let Some(VrfChange::Set { vrf, description }) = changes.routing.vrfs.get(name) {
            let _ = write!(
                xml,
                "<type xmlns:srl_nokia-netinst=\"{NETWORK_INSTANCE}\">srl_nokia-netinst:ip-vrf</type>\
                 <description>{}</description>",
                escape(description)
            );
            render_targets(&mut protocols, current, vrf);
        }
        bgp::render_protocol(&mut protocols, changes, name);
        if !protocols.is_empty() {
            xml.push_str("<protocols>");
            xml.append(protocols);
            xml.push_str("</protocols>");
        }
        for change in changes.routing.routed.values() {
            for (_, id) in change.leave.iter().filter(|(vrf, _)| vrf == name) {
                if let Some(member) = current.interfaces.get(id) {
                    let _ = write!(xml, "<interface{REMOVE}><name>{}</name></interface>", escape(member));
                }
            }
            if let Some((_, id)) = change.join.as_ref().filter(|(vrf, _)| vrf == name) {
                let _ = write!(xml, "<interface><name>{}</name></interface>", escape(&id.unit_name(IRB)));
            }
        }
        render_routes(xml, observed, current, changes, name);
        xml.push_str("</network-instance>");
    }
}

fn render_interfaces(xml: &mut Text, observed: &ObservedConfig, changes: &Changes) {
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
        let key = escape(name);
        if is_last && !parent.has_others && !changes.ports.contains_key(name) {
            let _ = write!(xml, "<interface xmlns=\"{INTERFACES}\"{REMOVE}><name>{key}</name></interface>");
            continue;
        }
        let _ = write!(xml, "<interface xmlns=\"{INTERFACES}\"><name>{key}</name>");
        if name != IRB && is_last && parent.tagged {
            let _ = write!(xml, "<vlan-tagging xmlns=\"{VLANS}\"{REMOVE}>true</vlan-tagging>");
        } else if name != IRB && !set.is_empty() && !parent.tagged {
            let _ = write!(xml, "<vlan-tagging xmlns=\"{VLANS}\">true</vlan-tagging>");
        }
        for vid in removed {
            let _ = write!(xml, "<subinterface{REMOVE}><index>{vid}</index></subinterface>");
        }
        for values in set {
            render_unit(xml, values, read.and_then(|read| read.interfaces.get(&values.id)));
        }
        xml.push_str("</interface>");
    }
}

fn render_unit(xml: &mut Text, values: &InterfaceValues, current: Option<&ObservedInterface>) {
    let vid = values.id.vid;
    let _ = write!(xml, "<subinterface><index>{vid}</index>");
    if values.id.port.is_some() {
        let _ = write!(
            xml,
            "<type xmlns:srl_nokia-if=\"{INTERFACES}\">srl_nokia-if:routed</type><vlan xmlns=\"{VLANS}\"><encap>\
             <single-tagged><vlan-id>{vid}</vlan-id></single-tagged></encap></vlan>"
        );
    }
    let _ = write!(
        xml,
        "<description>{}</description><admin-state>enable</admin-state>",
        escape(&values.description)
    );
    let _ = match (values.mtu, current.and_then(|current| current.mtus[0])) {
        (Some(mtu), _) => write!(xml, "<ip-mtu>{mtu}</ip-mtu>"),
        (None, Some(old)) => write!(xml, "<ip-mtu{REMOVE}>{old}</ip-mtu>"),
        (None, None) => Ok(()),
    };
    for (at, name) in ["ipv4", "ipv6"].into_iter().enumerate() {
        let of_family = |net: &&IpNet| family(net) == at;
        let wanted: Vec<&IpNet> = values.addresses.iter().filter(of_family).collect();
        if wanted.is_empty() {
            if current.is_some() {
                let _ = write!(xml, "<{name}{REMOVE}/>");
            }
            continue;
        }
        let _ = write!(xml, "<{name}><admin-state>enable</admin-state>");
        let old = current.into_iter().flat_map(|current| &current.addresses).filter(of_family);
        for gone in old.filter(|old| !wanted.contains(old)) {
            let _ = write!(xml, "<address{REMOVE}><ip-prefix>{gone}</ip-prefix></address>");
        }
        for net in wanted {
            let _ = write!(xml, "<address><ip-prefix>{net}</ip-prefix></address>");
        }
        let _ = write!(xml, "</{name}>");
    }
    xml.push_str("</subinterface>");
}

/// Renders the distinguisher and the targets of a VRF.
fn render_targets(xml: &mut Text, current: &ObservedVrf, vrf: &FabricVrf) {
    if current.has_values_of(vrf) {
        return;
    }
    let has_any = |vrf: &FabricVrf| {
        vrf.route_distinguisher.is_some() || !vrf.import_targets.is_empty() || !vrf.export_targets.is_empty()
    };
    if !has_any(vrf) {
        let _ = write!(xml, "<bgp-vpn xmlns=\"{BGP_VPN}\"{REMOVE}/>");
        return;
    }
    let _ = write!(xml, "<bgp-vpn xmlns=\"{BGP_VPN}\"><bgp-instance><id>1</id>");
    xml.push_str("<route-distinguisher>");
    leaf(xml, "rd", "", vrf.route_distinguisher.as_ref(), current.route_distinguisher.as_ref());
    xml.push_str("</route-distinguisher><route-target>");
    leaf(xml, "export-rt", "target:", vrf.export_targets.first(), current.export_targets.first());
    leaf(xml, "import-rt", "target:", vrf.import_targets.first(), current.import_targets.first());
    xml.push_str("</route-target></bgp-instance></bgp-vpn>");
}

/// Sets a leaf, or removes it with its value.
fn leaf(xml: &mut Text, name: &str, prefix: &str, value: Option<&String>, old: Option<&String>) {
    let _ = match (value, old) {
        (Some(value), _) => write!(xml, "<{name}>{prefix}{}</{name}>", escape(value)),
        (None, Some(old)) => write!(xml, "<{name}{REMOVE}>{prefix}{}</{name}>", escape(old)),
        (None, None) => Ok(()),
    };
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
        let all = current.next_hops.get(prefix).copied().unwrap_or_default();
        self.add.is_empty() && all <= self.remove.len()
    }
}

/// Renders the static routes that change, each with its next-hop-group. The lists go with their last entries.
fn render_routes(
    xml: &mut Text,
    observed: &ObservedConfig,
    current: &ObservedVrf,
    changes: &Changes,
    name: &str,
) {
    let mut edits: BTreeMap<IpNet, RouteEdit<'_>> = BTreeMap::new();
    for change in changes.routing.routed.values() {
        for (route, preference) in change.add_routes.iter().filter(|(route, _)| route.vrf == name) {
            let edit = edits.entry(route.prefix).or_default();
            edit.preference = *preference;
            edit.add.push(route);
        }
        for route in change.remove_routes.iter().filter(|route| route.vrf == name) {
            edits.entry(route.prefix).or_default().remove.push(route);
        }
    }
    if edits.is_empty() {
        return;
    }
    let layout = observed.routing.read().and_then(|read| read.layout.get::<Groups>());
    let none = BTreeMap::new();
    let groups = layout.and_then(|layout| layout.0.get(name)).unwrap_or(&none);
    let (mut routes, mut hops) = (String::new(), String::new());
    let (mut gone_routes, mut gone_groups) = (0, 0);
    let stays = |prefix: &IpNet| edits.get(prefix).is_none_or(|edit| !edit.removes_all(current, prefix));
    let group_of = |route: &ObservedRoute| route.key.split_once(' ').map(|(_, group)| group.to_owned());
    let staying = current.routes.iter().filter(|((prefix, _), _)| stays(prefix));
    let mut used: BTreeSet<String> = staying.filter_map(|(_, route)| group_of(route)).collect();
    for (prefix, edit) in &edits {
        let old = current.routes_to(prefix).next().map(|(_, route)| route);
        let group = old.and_then(group_of).unwrap_or_else(|| format!("eno-{prefix}"));
        let key = escape(&group);
        if edit.removes_all(current, prefix) {
            gone_routes += 1;
            let _ = write!(routes, "<route{REMOVE}><prefix>{prefix}</prefix></route>");
            if used.insert(group.clone()) {
                gone_groups += 1;
                let _ = write!(hops, "<group{REMOVE}><name>{key}</name></group>");
            }
            continue;
        }
        let _ = write!(routes, "<route><prefix>{prefix}</prefix><next-hop-group>{key}</next-hop-group>");
        if !edit.add.is_empty() {
            let _ = match (edit.preference, old.and_then(|route| route.preference)) {
                (Some(value), _) => write!(routes, "<preference>{value}</preference>"),
                (None, Some(old)) => write!(routes, "<preference{REMOVE}>{old}</preference>"),
                (None, None) => Ok(()),
            };
        }
        routes.push_str("</route>");
        let _ = write!(hops, "<group><name>{key}</name>");
        let index_of = |route: &RouteKey| {
            let route = current.routes.get(&(*prefix, route.next_hop))?;
            Some(route.key.split_once(' ')?.0)
        };
        for index in edit.remove.iter().filter_map(|route| index_of(route)) {
            let _ = write!(hops, "<nexthop{REMOVE}><index>{index}</index></nexthop>");
        }
        let taken = groups.get(&group).unwrap_or(const { &BTreeMap::new() });
        let mut free = (1_u16..).filter(|index| !taken.contains_key(index));
        for route in edit.add.iter().filter(|route| index_of(route).is_none()) {
            let Some(index) = free.next() else { break };
            let _ = write!(
                hops,
                "<nexthop><index>{index}</index><ip-address>{}</ip-address></nexthop>",
                route.next_hop
            );
        }
        hops.push_str("</group>");
    }
    let lists = [
        ("static-routes", STATIC_ROUTES, routes, current.next_hops.len() == gone_routes),
        ("next-hop-groups", NEXT_HOP_GROUPS, hops, groups.len() == gone_groups),
    ];
    for (list, namespace, content, is_gone) in lists {
        // Those that are made are no part of the figures.
        let _ = if is_gone && gone_routes == edits.len() {
            write!(xml, "<{list} xmlns=\"{namespace}\"{REMOVE}/>")
        } else {
            write!(xml, "<{list} xmlns=\"{namespace}\">{content}</{list}>")
        };
    }
}
