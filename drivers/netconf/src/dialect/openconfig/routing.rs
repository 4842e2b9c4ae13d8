//! VRFs of OpenConfig: network-instances of type `L3VRF` (openconfig-network-instance) with their targets, static routes
//! and interfaces. On a router a VLAN is a sub-interface whose index is its VID (openconfig-interfaces, openconfig-vlan),
//! on a switch the interface `Vlan<VID>` with `routed-vlan`. Addresses and MTU: openconfig-if-ip.
//!
//! A VRF with a distinguisher exports its connected and static routes by table-connections to BGP. The protocol of static
//! routes goes with our last route if it has the name that we give it and nothing else. Nothing tells who made such a one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_fabric_driver::desired::listed_name;
use eno_sbi::TooLarge;
use eno_schemas::{FabricDesired, FabricVrf, VlanId};
use ipnet::IpNet;

use super::{IANA_IF_TYPE, INTERFACES, NETWORK_INSTANCE, NETWORK_INSTANCE_TYPES, OpenConfig, VLAN, bgp};
use crate::dialect::locate_error::predicates;
use crate::dialect::{ParseError, RoutingDialect};
use crate::memory::Counter;
use crate::plan::{
    ChangeUnit, Changes, InterfaceValues, ObservedConfig, ObservedInterface, ObservedParent, ObservedRoute,
    ObservedRouting, ObservedVrf, RouteKey, RoutedChange, RoutedId, VrfChange,
};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{NETCONF, Scope, Step, escape, walk};

const IP: &str = "http://openconfig.net/yang/interfaces/ip";
pub(super) const POLICY_TYPES: &str = "http://openconfig.net/yang/policy-types";
const TYPES: &str = "http://openconfig.net/yang/openconfig-types";

/// The name of the static routes of a VRF that has none.
const STATIC_ROUTES: &str = "DEFAULT";
/// The sources of the routes that a VRF exports, and their address families.
const EXPORTED: [(&str, &str); 4] =
    [("DIRECTLY_CONNECTED", "IPV4"), ("DIRECTLY_CONNECTED", "IPV6"), ("STATIC", "IPV4"), ("STATIC", "IPV6")];

impl RoutingDialect for OpenConfig {
    fn filter_routing(&self, desired: &FabricDesired) -> String {
        let vrfs = format!(
            "<network-instances xmlns=\"{NETWORK_INSTANCE}\"><network-instance><name/><config/>\
             <inter-instance-policies><import-export-policy><config/></import-export-policy></inter-instance-policies>\
             <table-connections/><interfaces/><protocols><protocol><identifier/><name/><config/><static-routes/></protocol>\
             </protocols></network-instance></network-instances>"
        );
        // Those of the other role may be left of the time before the role changed.
        let mut interfaces = format!(
            "<interfaces xmlns=\"{INTERFACES}\"><interface><name/><config><description/><enabled/></config>\
             <routed-vlan xmlns=\"{VLAN}\"/></interface>"
        );
        for port in desired.ports.iter().map(listed_name).collect::<BTreeSet<&str>>() {
            let _ =
                write!(interfaces, "<interface><name>{}</name><subinterfaces/></interface>", escape(port));
        }
        interfaces.push_str("</interfaces>");
        vrfs + &interfaces
    }

    fn parse_routing(&self, reply: &Text) -> Result<ObservedRouting, ParseError> {
        let mut parser = Parser::default();
        walk(reply, scope, |step| parser.step(&step))?;
        parser.observed.memory = parser.kept.into();
        Ok(parser.observed)
    }
}

fn scope(namespace: &str) -> Scope {
    match namespace {
        INTERFACES | VLAN | NETWORK_INSTANCE | IP => Scope::Known,
        NETCONF => Scope::Transparent,
        _ => Scope::Foreign,
    }
}

/// The name of the interface beside a VLAN.
fn irb_name(vid: VlanId) -> String {
    format!("Vlan{vid}")
}

/// The VLAN of such an interface.
fn irb_vid(name: &str) -> Option<VlanId> {
    name.strip_prefix("Vlan")?.parse().ok()
}

/// The name of an interface in a network-instance.
fn member_name(id: &RoutedId) -> String {
    match &id.port {
        Some(port) => format!("{port}.{}", id.vid),
        None => irb_name(id.vid),
    }
}

/// A value without the prefix of its module.
fn identity(text: &str) -> &str {
    text.rsplit(':').next().unwrap_or(text)
}

/// Builds the observed state while the reply streams by.
#[derive(Default)]
struct Parser {
    observed: ObservedRouting,
    name: String,
    vrf: ObservedVrf,
    exported: BTreeSet<(String, String)>,
    /// An interface of the VRF: its id, interface and sub-interface.
    member: (String, String, String),
    /// A table-connection: its source, destination and address family.
    connection: (String, String, String),
    /// A protocol: its identifier and name.
    protocol: (String, String),
    prefix: Option<IpNet>,
    next_hop: (ObservedRoute, String),
    port: String,
    unit: Unit,
    address: (String, String),
    kept: Counter,
}

/// A sub-interface, or the routed part of an interface.
#[derive(Default)]
struct Unit {
    is_irb: bool,
    index: String,
    /// The VLAN of its frames.
    vlan: Option<String>,
    /// It is for frames with a tag.
    tagged: bool,
    disabled: bool,
    interface: ObservedInterface,
}

impl Parser {
    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        match step {
            Step::Enter(path) => self.enter(path),
            Step::Leave(path, text) => {
                self.kept.text(text);
                if let Some(rest) = path.strip_prefix("network-instances/network-instance") {
                    self.vrf_leaf(rest.trim_start_matches('/'), text);
                } else if let Some(rest) = path.strip_prefix("interfaces/interface") {
                    self.interface_leaf(rest.trim_start_matches('/'), text);
                }
            }
        }
        self.kept.check()
    }

    fn enter(&mut self, path: &str) {
        match path {
            "network-instances/network-instance" => {
                self.kept.entry(size_of::<ObservedVrf>());
                (self.name, self.vrf, self.exported) = Default::default();
            }
            "network-instances/network-instance/interfaces/interface" => self.member = Default::default(),
            "network-instances/network-instance/table-connections/table-connection" => {
                self.connection = Default::default();
            }
            "network-instances/network-instance/protocols/protocol" => self.protocol = Default::default(),
            "network-instances/network-instance/protocols/protocol/static-routes/static" => {
                self.prefix = None;
            }
            "network-instances/network-instance/protocols/protocol/static-routes/static/next-hops/next-hop" =>
            {
                self.next_hop = Default::default();
            }
            "interfaces/interface" => {
                self.kept.entry(size_of::<ObservedParent>());
                (self.port, self.unit) = Default::default();
            }
            "interfaces/interface/subinterfaces/subinterface" => self.unit = Unit::default(),
            "interfaces/interface/routed-vlan" => self.unit.is_irb = true,
            _ if path.ends_with("/addresses/address") => self.address = Default::default(),
            _ => {}
        }
    }

    fn vrf_leaf(&mut self, rest: &str, text: &str) {
        let vrf = &mut self.vrf;
        match rest {
            "" => {
                vrf.exports = match self.exported.len() {
                    0 => Some(false),
                    all if all == EXPORTED.len() => Some(true),
                    _ => None,
                };
                self.observed.vrfs.insert(std::mem::take(&mut self.name), std::mem::take(vrf));
            }
            "name" => text.clone_into(&mut self.name),
            "config/type" => vrf.is_vrf = identity(text) == "L3VRF",
            "config/description" => vrf.description = Some(text.to_owned()),
            "config/route-distinguisher" => vrf.route_distinguisher = Some(text.to_owned()),
            "inter-instance-policies/import-export-policy/config/import-route-target" => {
                vrf.import_targets.insert(text.trim_start_matches("route-target:").to_owned());
            }
            "inter-instance-policies/import-export-policy/config/export-route-target" => {
                vrf.export_targets.insert(text.trim_start_matches("route-target:").to_owned());
            }
            "interfaces/interface/id" => text.clone_into(&mut self.member.0),
            "interfaces/interface/config/interface" => text.clone_into(&mut self.member.1),
            "interfaces/interface/config/subinterface" => text.clone_into(&mut self.member.2),
            "interfaces/interface" => self.leave_member(),
            "table-connections/table-connection/src-protocol" => {
                identity(text).clone_into(&mut self.connection.0);
            }
            "table-connections/table-connection/dst-protocol" => {
                identity(text).clone_into(&mut self.connection.1);
            }
            "table-connections/table-connection/address-family" => {
                identity(text).clone_into(&mut self.connection.2);
            }
            "table-connections/table-connection" => {
                let (source, destination, family) = std::mem::take(&mut self.connection);
                if destination == "BGP" && EXPORTED.contains(&(&*source, &*family)) {
                    self.exported.insert((source, family));
                }
            }
            "protocols/protocol/identifier" => identity(text).clone_into(&mut self.protocol.0),
            "protocols/protocol/name" => {
                text.clone_into(&mut self.protocol.1);
                if self.protocol.0 == "STATIC" {
                    vrf.static_routes = Some(text.to_owned());
                    vrf.keeps_static_routes |= text != STATIC_ROUTES;
                } else if self.protocol.0 == "BGP" {
                    vrf.has_bgp = true;
                } else if self.protocol.0 != "DIRECTLY_CONNECTED" {
                    vrf.has_others = true;
                }
            }
            _ if self.protocol.0 == "STATIC" => {
                if let Some(leaf) = rest.strip_prefix("protocols/protocol/config/") {
                    let is_made = matches!((leaf, text), ("identifier" | "name", _) | ("enabled", "true"));
                    vrf.keeps_static_routes |= !is_made;
                }
                if let Some(rest) = rest.strip_prefix("protocols/protocol/static-routes/static/") {
                    self.route_leaf(rest, text);
                }
            }
            _ => {}
        }
    }

    /// Reads the sub-interface of a member by its references, or by its name without them.
    fn leave_member(&mut self) {
        let (id, interface, subinterface) = std::mem::take(&mut self.member);
        self.kept.entry(size_of::<RoutedId>());
        let named = if interface.is_empty() { id.as_str() } else { &interface };
        let (port, index) = match named.rsplit_once('.') {
            Some((port, index)) if subinterface.is_empty() => (port, index),
            _ => (named, subinterface.as_str()),
        };
        let routed = match (irb_vid(port), index.parse()) {
            (Some(vid), _) if matches!(index, "" | "0") => Some(RoutedId::irb(vid)),
            (_, Ok(vid)) => Some(RoutedId::on(port, vid)),
            _ => None,
        };
        match routed {
            Some(routed) => drop(self.vrf.interfaces.insert(routed, id)),
            None => self.vrf.has_others = true,
        }
    }

    fn route_leaf(&mut self, rest: &str, text: &str) {
        match rest {
            "prefix" => {
                self.prefix = text.parse().ok();
                self.count_next_hops(0);
            }
            "config/prefix" => {}
            // What we do not make holds the entry as a next hop of others does.
            _ if rest.starts_with("config/") => self.count_next_hops(1),
            "next-hops/next-hop/index" => text.clone_into(&mut self.next_hop.0.key),
            "next-hops/next-hop/config/next-hop" => text.clone_into(&mut self.next_hop.1),
            "next-hops/next-hop/config/preference" => self.next_hop.0.preference = text.parse().ok(),
            "next-hops/next-hop" => {
                let (route, address) = std::mem::take(&mut self.next_hop);
                self.count_next_hops(1);
                let Some(prefix) = self.prefix else { return };
                self.kept.entry(size_of::<ObservedRoute>() + size_of::<RouteKey>());
                if let Ok(address) = address.parse() {
                    self.vrf.routes.insert((prefix, address), route);
                }
            }
            _ => {}
        }
    }

    fn count_next_hops(&mut self, more: usize) {
        if let Some(prefix) = self.prefix {
            *self.vrf.next_hops.entry(prefix).or_default() += more;
        }
    }

    fn interface_leaf(&mut self, rest: &str, text: &str) {
        let unit = &mut self.unit;
        let rest = match rest {
            "" => {
                if unit.is_irb || irb_vid(&self.port).is_some() {
                    self.leave_irb();
                } else {
                    self.observed.parents.entry(std::mem::take(&mut self.port)).or_default();
                }
                return;
            }
            "name" => return text.clone_into(&mut self.port),
            "subinterfaces/subinterface" => return self.leave_subinterface(),
            "config/description" | "subinterfaces/subinterface/config/description" => {
                unit.interface.description = Some(text.to_owned());
                return;
            }
            "config/enabled" | "subinterfaces/subinterface/config/enabled" => {
                unit.disabled = text == "false";
                return;
            }
            "subinterfaces/subinterface/index" => return text.clone_into(&mut unit.index),
            "routed-vlan/config/vlan"
            | "subinterfaces/subinterface/vlan/match/single-tagged/config/vlan-id" => {
                unit.tagged = true;
                unit.vlan = Some(text.to_owned());
                return;
            }
            _ => {
                rest.strip_prefix("subinterfaces/subinterface/").or_else(|| rest.strip_prefix("routed-vlan/"))
            }
        };
        let Some(rest) = rest else { return };
        if rest.starts_with("vlan/") {
            unit.tagged |= !text.is_empty();
            return;
        }
        let Some((family, rest)) = rest.split_once('/') else { return };
        let family = match family {
            "ipv4" => 0,
            "ipv6" => 1,
            _ => return,
        };
        match rest {
            "config/mtu" => unit.interface.mtus[family] = text.parse().ok(),
            "addresses/address/ip" => text.clone_into(&mut self.address.0),
            "addresses/address/config/prefix-length" => text.clone_into(&mut self.address.1),
            "addresses/address" => {
                let (ip, length) = std::mem::take(&mut self.address);
                unit.interface.addresses.extend(format!("{ip}/{length}").parse::<IpNet>());
            }
            _ => {}
        }
    }

    fn leave_irb(&mut self) {
        let unit = std::mem::take(&mut self.unit);
        let Some(vid) = irb_vid(&std::mem::take(&mut self.port)) else { return };
        let fits = unit.vlan.as_deref() == Some(&*vid.to_string());
        self.add(RoutedId::irb(vid), unit, fits);
    }

    /// Adds a sub-interface by its index, and by its VLAN where that is another.
    fn leave_subinterface(&mut self) {
        let unit = std::mem::take(&mut self.unit);
        let parent = self.observed.parents.entry(self.port.clone()).or_default();
        parent.units += 1;
        let is_used = !unit.interface.addresses.is_empty() || unit.interface.description.is_some();
        parent.tagged |= unit.tagged;
        parent.untagged |= is_used && !unit.tagged;
        let index: Option<VlanId> = unit.index.parse().ok();
        let vlan: Option<VlanId> = unit.vlan.as_ref().and_then(|vlan| vlan.parse().ok());
        if let Some(vid) = vlan.filter(|_| vlan != index) {
            let foreign = ObservedInterface {
                description: Some(format!("{}.{}", self.port, unit.index)),
                ..ObservedInterface::default()
            };
            self.observed.interfaces.entry(RoutedId::on(&self.port, vid)).or_insert(foreign);
        }
        if let Some(vid) = index {
            self.add(RoutedId::on(&self.port, vid), unit, vlan == index);
        }
    }

    fn add(&mut self, id: RoutedId, unit: Unit, is_of_vlan: bool) {
        self.kept.entry(size_of::<ObservedInterface>() + size_of::<RoutedId>());
        let Unit { mut interface, disabled, .. } = unit;
        interface.fits = is_of_vlan && !disabled;
        self.observed.interfaces.insert(id, interface);
    }
}

/// The unit of the change of VRFs that an error is about.
pub(super) fn locate_error(error: &RpcError, changes: &Changes) -> Option<ChangeUnit> {
    let keys = predicates(error.location().unwrap_or_default());
    if let Some(group) = changes.routing.bgp.group_of(keys.iter().map(|(_, value)| *value)) {
        return Some(group);
    }
    let (mut vrf, mut vid, mut port) = (None, None, None);
    let named = |vid: VlanId| changes.routing.routed.contains_key(&vid).then_some(vid);
    for (key, value) in keys {
        match key {
            "name" if changes.routing.vrfs.contains_key(value) => vrf = Some(value),
            "name" if irb_vid(value).and_then(named).is_some() => vid = irb_vid(value),
            "name" => port = Some(value),
            "index" if port.is_some() => vid = value.parse().ok().and_then(named).or(vid),
            "id" => {
                let of_port = value.rsplit_once('.').and_then(|(_, index)| index.parse().ok());
                vid = of_port.or(irb_vid(value)).and_then(named).or(vid);
            }
            "prefix" => {
                let of = |(_, change): &(&VlanId, &RoutedChange)| {
                    let mut routes = change.add_routes.keys().chain(&change.remove_routes);
                    routes.any(|route| route.prefix.to_string() == value)
                };
                vid = changes.routing.routed.iter().find(of).map(|(vid, _)| *vid).or(vid);
            }
            _ => {}
        }
    }
    vid.map(ChangeUnit::Routed).or_else(|| vrf.map(|vrf| ChangeUnit::Vrf(vrf.to_owned())))
}

/// Renders what changes of a network-instance. Writing to memory can't fail, so results of `write!` are dropped in this
/// file.
pub(super) fn render_vrf(xml: &mut Text, observed: &ObservedConfig, changes: &Changes, name: &str) {
    let key = escape(name);
    if changes.routing.removes(name) {
        let _ =
            write!(xml, "<network-instance nc:operation=\"remove\"><name>{key}</name></network-instance>");
        return;
    }
    let unknown = ObservedVrf::default();
    let current = observed.routing.read().and_then(|read| read.vrfs.get(name));
    let _ = write!(xml, "<network-instance><name>{key}</name>");
    if let Some(VrfChange::Set { vrf, description }) = changes.routing.vrfs.get(name) {
        render_values(xml, current, vrf, description);
    }
    let current = current.unwrap_or(&unknown);
    render_members(xml, current, changes, name);
    let mut protocols = Text::new();
    render_routes(&mut protocols, current, changes, name);
    bgp::render_protocol(&mut protocols, observed, changes, name);
    if !protocols.is_empty() {
        xml.push_str("<protocols>");
        xml.append(protocols);
        xml.push_str("</protocols>");
    }
    xml.push_str("</network-instance>");
}

/// Renders the values of a VRF of ours.
fn render_values(xml: &mut Text, current: Option<&ObservedVrf>, vrf: &FabricVrf, description: &str) {
    let (name, description) = (escape(&vrf.name), escape(description));
    let _ = write!(
        xml,
        "<config><name>{name}</name><type xmlns:oc-ni-types=\"{NETWORK_INSTANCE_TYPES}\">oc-ni-types:L3VRF</type>\
         <description>{description}</description>"
    );
    let unknown = ObservedVrf::default();
    let current = current.unwrap_or(&unknown);
    let _ = match (&vrf.route_distinguisher, &current.route_distinguisher) {
        (Some(value), _) => write!(xml, "<route-distinguisher>{}</route-distinguisher>", escape(value)),
        (None, Some(old)) => {
            write!(xml, "<route-distinguisher nc:operation=\"remove\">{}</route-distinguisher>", escape(old))
        }
        (None, None) => Ok(()),
    };
    xml.push_str("</config>");
    let targets = [
        ("import-route-target", &current.import_targets, &vrf.import_targets),
        ("export-route-target", &current.export_targets, &vrf.export_targets),
    ];
    if targets.iter().any(|(_, is, want)| !is.iter().eq(want.iter())) {
        xml.push_str("<inter-instance-policies><import-export-policy><config>");
        for (leaf, is, want) in targets {
            for old in is.iter().filter(|old| !want.contains(old)) {
                let _ = write!(xml, "<{leaf} nc:operation=\"remove\">{}</{leaf}>", escape(old));
            }
            for new in want.iter().filter(|new| !is.contains(*new)) {
                let _ = write!(xml, "<{leaf}>{}</{leaf}>", escape(new));
            }
        }
        xml.push_str("</config></import-export-policy></inter-instance-policies>");
    }
    if !current.exports_as(vrf) {
        render_exports(xml, vrf.route_distinguisher.is_some());
    }
}

/// Renders the connections of the tables of connected and static routes to that of BGP.
fn render_exports(xml: &mut Text, exports: bool) {
    xml.push_str("<table-connections>");
    let operation = if exports { "" } else { " nc:operation=\"remove\"" };
    for (source, family) in EXPORTED {
        let key = format!(
            "<src-protocol xmlns:oc-pol-types=\"{POLICY_TYPES}\">oc-pol-types:{source}</src-protocol>\
             <dst-protocol xmlns:oc-pol-types=\"{POLICY_TYPES}\">oc-pol-types:BGP</dst-protocol>\
             <address-family xmlns:oc-types=\"{TYPES}\">oc-types:{family}</address-family>"
        );
        let _ = write!(xml, "<table-connection{operation}>{key}");
        if exports {
            let _ = write!(
                xml,
                "<config>{key}<default-import-policy>ACCEPT_ROUTE</default-import-policy></config>"
            );
        }
        xml.push_str("</table-connection>");
    }
    xml.push_str("</table-connections>");
}

fn render_members(xml: &mut Text, current: &ObservedVrf, changes: &Changes, name: &str) {
    let routed = || changes.routing.routed.values();
    let left: Vec<&RoutedId> =
        routed().flat_map(|change| &change.leave).filter(|(vrf, _)| vrf == name).map(|(_, id)| id).collect();
    let joined: Vec<&RoutedId> = routed()
        .filter_map(|change| change.join.as_ref())
        .filter(|(vrf, _)| vrf == name)
        .map(|(_, id)| id)
        .collect();
    if left.is_empty() && joined.is_empty() {
        return;
    }
    xml.push_str("<interfaces>");
    for id in left.iter().filter_map(|id| current.interfaces.get(id)) {
        let _ = write!(xml, "<interface nc:operation=\"remove\"><id>{}</id></interface>", escape(id));
    }
    for id in joined {
        let (key, own_name) = (member_name(id), irb_name(id.vid));
        let (key, interface) = (escape(&key), escape(id.port.as_deref().unwrap_or(&own_name)));
        let _ =
            write!(xml, "<interface><id>{key}</id><config><id>{key}</id><interface>{interface}</interface>");
        if id.port.is_some() {
            let _ = write!(xml, "<subinterface>{}</subinterface>", id.vid);
        }
        xml.push_str("</config></interface>");
    }
    xml.push_str("</interfaces>");
}

/// Renders the static routes that change. A prefix goes with its last next hop, and the protocol with the last prefix if
/// others have nothing in it.
fn render_routes(xml: &mut Text, current: &ObservedVrf, changes: &Changes, name: &str) {
    let (mut added, mut removed) = (BTreeMap::new(), BTreeMap::<IpNet, Vec<&str>>::new());
    for change in changes.routing.routed.values() {
        for (route, preference) in change.add_routes.iter().filter(|(route, _)| route.vrf == name) {
            added.entry(route.prefix).or_insert_with(Vec::new).push((route.next_hop, *preference));
        }
        for route in change.remove_routes.iter().filter(|route| route.vrf == name) {
            let key = current.routes.get(&(route.prefix, route.next_hop)).map(|route| route.key.as_str());
            removed.entry(route.prefix).or_default().extend(key);
        }
    }
    if added.is_empty() && removed.is_empty() {
        return;
    }
    let goes = |prefix: &IpNet| {
        let all = current.next_hops.get(prefix).copied().unwrap_or_default();
        !added.contains_key(prefix) && removed.get(prefix).is_some_and(|left| all <= left.len())
    };
    let protocol = current.static_routes.as_deref().unwrap_or(STATIC_ROUTES);
    let key = format!(
        "<identifier xmlns:oc-pol-types=\"{POLICY_TYPES}\">oc-pol-types:STATIC</identifier><name>{}</name>",
        escape(protocol)
    );
    if added.is_empty() && !current.keeps_static_routes && current.next_hops.keys().all(goes) {
        let _ = write!(xml, "<protocol nc:operation=\"remove\">{key}</protocol>");
        return;
    }
    let _ = write!(xml, "<protocol>{key}<config>{key}</config><static-routes>");
    let prefixes: BTreeSet<IpNet> = added.keys().chain(removed.keys()).copied().collect();
    for prefix in prefixes {
        if goes(&prefix) {
            let _ = write!(xml, "<static nc:operation=\"remove\"><prefix>{prefix}</prefix></static>");
            continue;
        }
        let _ = write!(
            xml,
            "<static><prefix>{prefix}</prefix><config><prefix>{prefix}</prefix></config><next-hops>"
        );
        for key in removed.get(&prefix).into_iter().flatten() {
            let _ =
                write!(xml, "<next-hop nc:operation=\"remove\"><index>{}</index></next-hop>", escape(key));
        }
        for (next_hop, preference) in added.get(&prefix).into_iter().flatten() {
            let old = current.routes.get(&(prefix, *next_hop));
            let index = old.map_or_else(|| next_hop.to_string(), |route| route.key.clone());
            let index = escape(&index);
            let _ = write!(
                xml,
                "<next-hop><index>{index}</index><config><index>{index}</index><next-hop>{next_hop}</next-hop>"
            );
            let _ = match (preference, old.and_then(|route| route.preference)) {
                (Some(value), _) => write!(xml, "<preference>{value}</preference>"),
                (None, Some(old)) => write!(xml, "<preference nc:operation=\"remove\">{old}</preference>"),
                (None, None) => Ok(()),
            };
            xml.push_str("</config></next-hop>");
        }
        xml.push_str("</next-hops></static>");
    }
    xml.push_str("</static-routes></protocol>");
}

/// Renders the interfaces that lead VLANs into VRFs.
pub(super) fn render_interfaces(xml: &mut Text, observed: &ObservedConfig, changes: &Changes) {
    for id in changes.routing.routed.values().flat_map(|change| &change.remove) {
        let _ = match &id.port {
            Some(port) => write!(
                xml,
                "<interface><name>{}</name><subinterfaces><subinterface nc:operation=\"remove\"><index>{}</index>\
                 </subinterface></subinterfaces></interface>",
                escape(port),
                id.vid
            ),
            None => {
                write!(
                    xml,
                    "<interface nc:operation=\"remove\"><name>{}</name></interface>",
                    irb_name(id.vid)
                )
            }
        };
    }
    for values in changes.routing.routed.values().filter_map(|change| change.set.as_ref()) {
        let current = observed.routing.read().and_then(|read| read.interfaces.get(&values.id));
        render_interface(xml, observed, values, current);
    }
}

fn render_interface(
    xml: &mut Text,
    observed: &ObservedConfig,
    values: &InterfaceValues,
    current: Option<&ObservedInterface>,
) {
    let (vid, description) = (values.id.vid, escape(&values.description));
    let Some(port) = &values.id.port else {
        let name = irb_name(vid);
        let _ = write!(
            xml,
            "<interface><name>{name}</name><config><name>{name}</name>\
             <type xmlns:ianaift=\"{IANA_IF_TYPE}\">ianaift:l3ipvlan</type><description>{description}</description>\
             <enabled>true</enabled></config><routed-vlan xmlns=\"{VLAN}\"><config><vlan>{vid}</vlan></config>"
        );
        render_addresses(xml, values, current);
        xml.push_str("</routed-vlan></interface>");
        return;
    };
    let name = escape(port);
    let _ = write!(xml, "<interface><name>{name}</name>");
    if observed.ports.get(port).is_none_or(|port| !port.configured) {
        let _ = write!(
            xml,
            "<config><name>{name}</name><type xmlns:ianaift=\"{IANA_IF_TYPE}\">ianaift:ethernetCsmacd</type></config>"
        );
    }
    let _ = write!(
        xml,
        "<subinterfaces><subinterface><index>{vid}</index><config><index>{vid}</index>\
         <description>{description}</description><enabled>true</enabled></config><vlan xmlns=\"{VLAN}\"><match>\
         <single-tagged><config><vlan-id>{vid}</vlan-id></config></single-tagged></match></vlan>"
    );
    render_addresses(xml, values, current);
    xml.push_str("</subinterface></subinterfaces></interface>");
}

/// Renders the addresses and the MTU of an interface. A family without addresses goes.
fn render_addresses(xml: &mut Text, values: &InterfaceValues, current: Option<&ObservedInterface>) {
    for (family, is_v4) in [("ipv4", true), ("ipv6", false)] {
        let of_family = |net: &&IpNet| net.addr().is_ipv4() == is_v4;
        let wanted: Vec<&IpNet> = values.addresses.iter().filter(of_family).collect();
        if wanted.is_empty() {
            if current.is_some() {
                let _ = write!(xml, "<{family} xmlns=\"{IP}\" nc:operation=\"remove\"/>");
            }
            continue;
        }
        let _ = write!(xml, "<{family} xmlns=\"{IP}\"><addresses>");
        let old = current.into_iter().flat_map(|current| &current.addresses).filter(of_family);
        for gone in old.filter(|old| !wanted.iter().any(|net| net.addr() == old.addr())) {
            let _ = write!(xml, "<address nc:operation=\"remove\"><ip>{}</ip></address>", gone.addr());
        }
        for net in wanted {
            let (ip, length) = (net.addr(), net.prefix_len());
            let _ = write!(
                xml,
                "<address><ip>{ip}</ip><config><ip>{ip}</ip><prefix-length>{length}</prefix-length></config></address>"
            );
        }
        xml.push_str("</addresses>");
        let old = current.and_then(|current| current.mtus[usize::from(!is_v4)]);
        let _ = match (values.mtu, old) {
            (Some(mtu), _) => write!(xml, "<config><mtu>{mtu}</mtu></config>"),
            (None, Some(old)) => write!(xml, "<config><mtu nc:operation=\"remove\">{old}</mtu></config>"),
            (None, None) => Ok(()),
        };
        let _ = write!(xml, "</{family}>");
    }
}
