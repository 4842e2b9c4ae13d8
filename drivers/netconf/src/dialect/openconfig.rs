//! OpenConfig: openconfig-network-instance, openconfig-interfaces, openconfig-vlan (openconfig/public).
//!
//! VLANs: `/network-instances/network-instance[name]/vlans/vlan[vlan-id]/config`, in the instance of type
//! `DEFAULT_INSTANCE`. VRFs: [`routing`]. BGP: [`bgp`]. MAC table: [`mac_table`]. Ports: `/interfaces/interface[name]/{ethernet,aggregation}/switched-vlan/config`.

mod bgp;
mod bgp_sessions;
mod mac_table;
mod routing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_sbi::TooLarge;
use eno_schemas::{VlanId, VlanSet};

use crate::dialect::locate_error::{Keys, locate_error};
use crate::dialect::{
    BgpDialect, Dialect, MacTableDialect, ParseError, RoutingDialect, named_interfaces, select_interfaces,
    set_unfit,
};
use crate::hello::Hello;
use crate::memory::Counter;
use crate::plan::{
    ChangeUnit, Changes, Inventory, Layout, Mode, ModeChange, NATIVE, ObservedConfig, ObservedPort,
    ObservedVlan, PortChange, Setting,
};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{NETCONF, Scope, Step, escape, walk};

const INTERFACES: &str = "http://openconfig.net/yang/interfaces";
const ETHERNET: &str = "http://openconfig.net/yang/interfaces/ethernet";
const AGGREGATE: &str = "http://openconfig.net/yang/interfaces/aggregate";
const VLAN: &str = "http://openconfig.net/yang/vlan";
const NETWORK_INSTANCE: &str = "http://openconfig.net/yang/network-instance";
const NETWORK_INSTANCE_TYPES: &str = "http://openconfig.net/yang/network-instance-types";
const IANA_IF_TYPE: &str = "urn:ietf:params:xml:ns:yang:iana-if-type";

/// The name of the network-instance that is created on a device without one.
const DEFAULT_INSTANCE: &str = "default";

/// The name of the network-instance with the VLANs.
struct NetworkInstance(String);

/// The dialect.
#[derive(Clone, Copy, Debug)]
pub struct OpenConfig;

impl Dialect for OpenConfig {
    fn name(&self) -> &'static str {
        "openconfig"
    }

    fn score(&self, hello: &Hello) -> u32 {
        let all = [INTERFACES, VLAN, NETWORK_INSTANCE].iter().all(|module| hello.has_module(module));
        if all { 10 } else { 0 }
    }

    fn filter(&self, interfaces: &BTreeSet<&str>) -> String {
        filter("<vlans><vlan><vlan-id/><config/></vlan></vlans>", interfaces)
    }

    fn filter_for(&self, vlans: &VlanSet, interfaces: &BTreeSet<&str>) -> Option<String> {
        let mut entries = String::new();
        // Writing to memory can't fail, so results of `write!` are dropped in this file.
        for vid in vlans.iter() {
            let _ = write!(entries, "<vlan><vlan-id>{vid}</vlan-id><config/></vlan>");
        }
        // An empty `<vlans/>` would select all VLANs.
        let vlans = if entries.is_empty() { String::new() } else { format!("<vlans>{entries}</vlans>") };
        Some(filter(&vlans, interfaces))
    }

    fn filter_interface(&self, interface: &str) -> Option<String> {
        Some(select_ports(&[interface].into()))
    }

    fn parse(&self, reply: &Text, _: &Inventory) -> Result<ObservedConfig, ParseError> {
        let mut parser = Parser::default();
        walk(reply, scope, |step| parser.step(&step))?;
        Ok(parser.finish())
    }

    fn inventory_filter(&self, interfaces: &BTreeSet<&str>) -> String {
        select_interfaces(INTERFACES, interfaces, "")
    }

    fn parse_inventory(&self, reply: &Text) -> Result<Inventory, ParseError> {
        named_interfaces(reply, scope, |path| path == "interfaces/interface/name")
    }

    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text {
        let mut xml = Text::new();
        let touched_vrfs = changes.routing.touched_vrfs();
        let switches = !changes.create.is_empty() || !changes.delete.is_empty();
        if switches || !touched_vrfs.is_empty() {
            let _ = write!(xml, "<network-instances xmlns=\"{NETWORK_INSTANCE}\">");
            if switches {
                render_vlans(&mut xml, observed, changes);
            }
            for name in touched_vrfs {
                routing::render_vrf(&mut xml, observed, changes, name);
            }
            xml.push_str("</network-instances>");
        }
        bgp::render_policies(&mut xml, changes);
        let routed =
            changes.routing.routed.values().any(|change| change.set.is_some() || !change.remove.is_empty());
        if !changes.ports.is_empty() || routed {
            let _ = write!(xml, "<interfaces xmlns=\"{INTERFACES}\">");
            let unknown = ObservedPort::default();
            let own = observed.vlans.all_settled().union(&changes.create.keys().copied().collect());
            for (name, change) in &changes.ports {
                render_port(&mut xml, name, observed.ports.get(name).unwrap_or(&unknown), change, &own);
            }
            routing::render_interfaces(&mut xml, observed, changes);
            xml.push_str("</interfaces>");
        }
        xml
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

    fn locate_error(&self, error: &RpcError, _: &ObservedConfig, changes: &Changes) -> Option<ChangeUnit> {
        routing::locate_error(error, changes).or_else(|| {
            locate_error(error, changes, &Keys { vlan: &["vlan-id", "trunk-vlans"], interface: "name" })
        })
    }
}

/// The subtree filter. `vlans`: the selection of each network-instance beside its name and type.
fn filter(vlans: &str, interfaces: &BTreeSet<&str>) -> String {
    format!(
        "<network-instances xmlns=\"{NETWORK_INSTANCE}\"><network-instance><name/><config><type/></config>{vlans}\
         </network-instance></network-instances>{}",
        select_ports(interfaces)
    )
}

/// Selects the configuration of these interfaces that the dialect reads.
fn select_ports(interfaces: &BTreeSet<&str>) -> String {
    let holder = |holder: &str, namespace: &str, lag: &str| {
        format!(
            "<{holder} xmlns=\"{namespace}\">{lag}<switched-vlan xmlns=\"{VLAN}\"><config/></switched-vlan></{holder}>"
        )
    };
    let lag = format!("<config><aggregate-id xmlns=\"{AGGREGATE}\"/></config>");
    let (ethernet, aggregation) = (holder("ethernet", ETHERNET, &lag), holder("aggregation", AGGREGATE, ""));
    let content = format!("<config><name/><type/></config>{ethernet}{aggregation}");
    select_interfaces(INTERFACES, interfaces, &content)
}

fn scope(namespace: &str) -> Scope {
    match namespace {
        INTERFACES | ETHERNET | AGGREGATE | VLAN | NETWORK_INSTANCE => Scope::Known,
        NETCONF => Scope::Transparent,
        _ => Scope::Foreign,
    }
}

/// Builds the observed configuration while the reply streams by.
#[derive(Default)]
struct Parser {
    instances: Vec<Instance>,
    vlan: (String, ObservedVlanLeaves),
    ports: BTreeMap<String, ObservedPort>,
    port: (String, ObservedPort),
    kept: Counter,
}

#[derive(Default)]
struct Instance {
    name: String,
    default: bool,
    vlans: BTreeMap<VlanId, ObservedVlan>,
}

#[derive(Default)]
struct ObservedVlanLeaves {
    name: Option<String>,
    suspended: bool,
}

impl Parser {
    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        match step {
            Step::Enter(path) => match *path {
                "network-instances/network-instance" => {
                    self.kept.entry(size_of::<Instance>());
                    self.instances.push(Instance::default());
                }
                "network-instances/network-instance/vlans/vlan" => self.vlan = Default::default(),
                "interfaces/interface" => {
                    self.port = (String::new(), ObservedPort { configured: true, ..ObservedPort::default() });
                }
                _ => {}
            },
            Step::Leave(path, text) => {
                self.kept.text(text);
                if let Some(rest) = path.strip_prefix("interfaces/interface") {
                    self.interface_leaf(rest, text);
                } else if let Some(rest) = path.strip_prefix("network-instances/network-instance/") {
                    self.instance_leaf(rest, text);
                }
            }
        }
        self.kept.check()
    }

    fn instance_leaf(&mut self, rest: &str, text: &str) {
        let Some(instance) = self.instances.last_mut() else { return };
        match rest {
            "name" => text.clone_into(&mut instance.name),
            // An identityref, of which the device chooses the prefix.
            "config/type" => instance.default = text.rsplit(':').next() == Some("DEFAULT_INSTANCE"),
            "vlans/vlan/vlan-id" => text.clone_into(&mut self.vlan.0),
            "vlans/vlan/config/name" => self.vlan.1.name = Some(text.to_owned()),
            "vlans/vlan/config/status" => self.vlan.1.suspended = text == "SUSPENDED",
            "vlans/vlan" => {
                let (id, leaves) = std::mem::take(&mut self.vlan);
                let vlan =
                    ObservedVlan { name: leaves.name, active: !leaves.suspended, rename_blocker: None };
                // Another value is no VLAN ID.
                if let Ok(vid) = id.parse() {
                    self.kept.entry(size_of::<ObservedVlan>());
                    instance.vlans.insert(vid, vlan);
                }
            }
            _ => {}
        }
    }

    fn interface_leaf(&mut self, rest: &str, text: &str) {
        let port = &mut self.port.1;
        let leaf = match rest {
            "" => {
                let (name, mut port) = std::mem::take(&mut self.port);
                port.open =
                    port.mode == Some(Mode::Trunk) && port.tagged.is_empty() && !port.has_unresolved_members;
                let mode = port.mode.map(|mode| if mode == Mode::Trunk { "TRUNK" } else { "ACCESS" });
                let access = port.access.map(|vid| vid.to_string());
                let native = port.native.map(|vid| vid.to_string());
                port.settings = [
                    ("interface-mode", Setting::of(mode, mode != Some("ACCESS"))),
                    ("access-vlan", Setting::of(access.as_deref(), access.is_none())),
                    (NATIVE, Setting::of(native.as_deref(), false)),
                ]
                .into();
                self.kept.port(&name);
                self.ports.insert(name, port);
                return;
            }
            "/name" => {
                text.clone_into(&mut self.port.0);
                return;
            }
            "/config/type" => {
                port.aggregate = text.rsplit(':').next() == Some("ieee8023adLag");
                return;
            }
            "/ethernet/config/aggregate-id" => {
                port.unfit = Some(format!("is a member of the LAG {text}: name that as Lag of the port"));
                return;
            }
            _ => rest
                .strip_prefix("/ethernet/switched-vlan/config/")
                .or_else(|| rest.strip_prefix("/aggregation/switched-vlan/config/")),
        };
        match leaf {
            Some("interface-mode") => match text {
                "TRUNK" => port.mode = Some(Mode::Trunk),
                "ACCESS" => port.mode = Some(Mode::Access),
                _ => set_unfit(port, "interface-mode", text),
            },
            Some("trunk-vlans") => {
                self.kept.ranges(1);
                if let Some(range) = range(text) {
                    port.tagged.push(range);
                } else {
                    port.has_unresolved_members = true;
                    if let Some(known) = known_part(text) {
                        self.kept.set();
                        port.tagged.push(known);
                        port.inherited = port.inherited.union(&[known].into_iter().collect());
                    }
                    set_unfit(port, "trunk-vlans", text);
                }
            }
            Some("native-vlan") => match text.parse() {
                Ok(vid) => port.native = Some(vid),
                Err(_) => set_unfit(port, "native-vlan", text),
            },
            Some("access-vlan") => match text.parse() {
                Ok(vid) => port.access = Some(vid),
                Err(_) => set_unfit(port, "access-vlan", text),
            },
            _ => {}
        }
    }

    fn finish(self) -> ObservedConfig {
        let mut instances = self.instances;
        let network_instance = instances
            .iter()
            .position(|instance| instance.default)
            .or_else(|| instances.iter().position(|i| i.name.eq_ignore_ascii_case(DEFAULT_INSTANCE)))
            .map(|at| instances.swap_remove(at));
        let (layout, vlans) = match network_instance {
            Some(instance) => (Layout::new(NetworkInstance(instance.name)), instance.vlans),
            None => Default::default(),
        };
        let memory = self.kept.into();
        ObservedConfig {
            vlans: vlans.into(),
            ports: self.ports,
            empty_opens: true,
            layout,
            memory,
            ..ObservedConfig::default()
        }
    }
}

/// `100` or `100..200` (openconfig-vlan-types: vlan-id, vlan-range).
fn range(text: &str) -> Option<(VlanId, VlanId)> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

/// The VLANs of a range whose ends are no VLAN IDs, such as `0..4095`.
fn known_part(text: &str) -> Option<(VlanId, VlanId)> {
    let (first, last) = text.split_once("..")?;
    let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
    Some((VlanId::new(first.max(1)).ok()?, VlanId::new(last.min(4094)).ok()?)).filter(|(from, to)| from <= to)
}

fn range_text((first, last): (VlanId, VlanId)) -> String {
    if first == last { first.to_string() } else { format!("{first}..{last}") }
}

fn render_vlans(xml: &mut Text, observed: &ObservedConfig, changes: &Changes) {
    let known = observed.layout.get::<NetworkInstance>();
    let network_instance = escape(known.map_or(DEFAULT_INSTANCE, |NetworkInstance(name)| name));
    let _ = write!(xml, "<network-instance><name>{network_instance}</name>");
    if known.is_none() {
        let _ = write!(
            xml,
            "<config><name>{network_instance}</name><type xmlns:oc-ni-types=\"{NETWORK_INSTANCE_TYPES}\">\
             oc-ni-types:DEFAULT_INSTANCE</type></config>"
        );
    }
    xml.push_str("<vlans>");
    for (vid, name) in &changes.create {
        let _ = write!(
            xml,
            "<vlan><vlan-id>{vid}</vlan-id><config><vlan-id>{vid}</vlan-id><name>{}</name><status>ACTIVE</status>\
             </config></vlan>",
            escape(name)
        );
    }
    for vid in changes.delete.iter() {
        let _ = write!(xml, "<vlan nc:operation=\"remove\"><vlan-id>{vid}</vlan-id></vlan>");
    }
    xml.push_str("</vlans></network-instance>");
}

/// `own`: VLANs of ours.
fn render_port(xml: &mut Text, name: &str, current: &ObservedPort, change: &PortChange, own: &VlanSet) {
    let name = escape(name);
    let _ = write!(xml, "<interface><name>{name}</name>");
    if !current.configured {
        let _ = write!(
            xml,
            "<config><name>{name}</name><type xmlns:ianaift=\"{IANA_IF_TYPE}\">ianaift:ethernetCsmacd</type></config>"
        );
    }
    let (holder, namespace) =
        if current.aggregate { ("aggregation", AGGREGATE) } else { ("ethernet", ETHERNET) };
    let _ = write!(xml, "<{holder} xmlns=\"{namespace}\"><switched-vlan xmlns=\"{VLAN}\"><config>");
    for (leaf, value) in &change.restore {
        let _ = match value {
            Some(value) => write!(xml, "<{leaf}>{}</{leaf}>", escape(value)),
            None => remove_leaf(xml, leaf, current),
        };
    }
    match change.mode {
        ModeChange::Keep => {}
        ModeChange::Trunk => {
            if !change.restore.contains_key("interface-mode") {
                xml.push_str("<interface-mode>TRUNK</interface-mode>");
            }
            if current.access.is_some() {
                let _ = remove_leaf(xml, "access-vlan", current);
            }
        }
        ModeChange::Drop => {
            let _ = remove_leaf(xml, "interface-mode", current);
        }
    }
    // An entry with a VLAN to remove is removed whole, and its other VLANs are added again. An entry of ours becomes
    // one with those that are added beside it: a list that grew by one entry with each change would be read and
    // written ever more slowly.
    let (gone, back) = replaced_entries(current.tagged.entries(), change, own);
    for entry in gone {
        let _ = write!(xml, "<trunk-vlans nc:operation=\"remove\">{}</trunk-vlans>", range_text(entry));
    }
    for entry in back.union(&change.add).ranges() {
        let _ = write!(xml, "<trunk-vlans>{}</trunk-vlans>", range_text(entry));
    }
    let _ = write!(xml, "</config></switched-vlan></{holder}></interface>");
}

/// Removes a leaf, with its value: some servers check that also where it has no meaning.
fn remove_leaf(xml: &mut Text, leaf: &str, current: &ObservedPort) -> std::fmt::Result {
    let value = current.settings.get(leaf).and_then(|setting| setting.value.as_deref()).unwrap_or_default();
    write!(xml, "<{leaf} nc:operation=\"remove\">{}</{leaf}>", escape(value))
}

/// The entries to remove, and the VLANs of them that stay: entries with a VLAN that is removed, and entries of `own`
/// VLANs beside one that is added.
fn replaced_entries(
    entries: &[(VlanId, VlanId)],
    change: &PortChange,
    own: &VlanSet,
) -> (Vec<(VlanId, VlanId)>, VlanSet) {
    let mut gone = Vec::new();
    let mut back = VlanSet::EMPTY;
    let neighbour = |vid: u16| VlanId::new(vid).is_ok_and(|vid| change.add.contains(vid));
    for (first, last) in entries {
        let entry: VlanSet = [(*first, *last)].into_iter().collect();
        let beside_added = neighbour(first.get() - 1) || neighbour(last.get() + 1);
        let joins = beside_added && entry.is_subset(own);
        if joins || !entry.intersection(&change.remove).is_empty() {
            gone.push((*first, *last));
            back = back.union(&entry.difference(&change.remove));
        }
    }
    (gone, back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ObservedVlans;
    use crate::plan::test_states::{own_vlans, set, vid};

    /// The edit of the list of a trunk: removed entries and added entries.
    fn edit(
        vlans: ObservedVlans,
        list: &[(u16, u16)],
        add: &str,
        remove: &str,
    ) -> (Vec<String>, Vec<String>) {
        let tagged = list.iter().map(|(first, last)| (vid(*first), vid(*last))).collect();
        let port =
            ObservedPort { configured: true, mode: Some(Mode::Trunk), tagged, ..ObservedPort::default() };
        let mut observed =
            ObservedConfig { vlans, ports: [("e1".to_owned(), port)].into(), ..ObservedConfig::default() };
        observed.vlans.settle("c");
        let change = PortChange { add: set(add), remove: set(remove), ..PortChange::default() };
        let changes = Changes { ports: [("e1".to_owned(), change)].into(), ..Changes::default() };
        let xml = OpenConfig.render(&observed, &changes).to_string();
        let entries = |start: &str| {
            let parts = xml.split(start).skip(1).filter_map(|part| part.split_once("</trunk-vlans>"));
            parts.map(|(entry, _)| entry.to_owned()).collect()
        };
        (entries("<trunk-vlans nc:operation=\"remove\">"), entries("<trunk-vlans>"))
    }

    #[test]
    fn own_entries_beside_an_added_vlan_become_one() {
        let ours = || own_vlans("10-30");
        let split = |(gone, added): (Vec<String>, Vec<String>)| (gone.join(" "), added.join(" "));
        let list = [(10, 14), (16, 20), (40, 49)];
        assert_eq!(split(edit(ours(), &list, "15", "")), ("10..14 16..20".into(), "10..20".into()));
        assert_eq!(split(edit(ours(), &list, "21-22", "")), ("16..20".into(), "16..22".into()));
        assert_eq!(split(edit(ours(), &list, "30", "")), (String::new(), "30".into()));
        assert_eq!(
            split(edit(ours(), &list, "21", "12")),
            ("10..14 16..20".into(), "10..11 13..14 16..21".into())
        );
        // An entry of others, or with a VLAN of others, stays as it is.
        assert_eq!(split(edit(ours(), &list, "39", "")), (String::new(), "39".into()));
        assert_eq!(split(edit(own_vlans("10-13"), &list, "15", "")), (String::new(), "15".into()));
    }
}
