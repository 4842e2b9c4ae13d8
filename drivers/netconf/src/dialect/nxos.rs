//! NX-OS: the native model (`Cisco-NX-OS-device`, YangModels/yang `vendor/cisco/nx`). **Experimental**: written from
//! the model and the vendor's examples, and not yet tried on a device.
//!
//! VLANs: `/System/bd-items/bd-items/BD-list[fabEncap='vlan-100']`. Ports: `/System/intf-items/phys-items
//! /PhysIf-list[id='eth1/1']`, LAGs: `/System/intf-items/aggr-items/AggrIf-list[id='po10']`. The list of a trunk is
//! one leaf, `trunkVlans`, such as `10-20,100`, and is written whole. It is `1-4094`, all, where it is not set, and
//! empty for none, so an empty one is what is left when our last VLAN goes.
//!
//! - Interfaces may be named as on the command line too: `Ethernet1/1`, `port-channel10`.
//! - An access port of VLAN 1 is in the factory configuration, and becomes a trunk with its first VLAN. A routed port
//!   (`layer` is `Layer3`) counts as a foreign access port: only `Mode: trunk` of the FabricDevice makes it a
//!   switched port.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_sbi::TooLarge;
use eno_schemas::{VlanId, VlanSet};

use crate::dialect::locate_error::{Keys, locate_error};
use crate::dialect::{Dialect, MAX_VALUE, ParseError, set_unfit};
use crate::hello::Hello;
use crate::memory::Counter;
use crate::plan::{
    ChangeUnit, Changes, InterfaceState, Inventory, Mode, ModeChange, ObservedConfig, ObservedPort,
    ObservedVlan, PortChange, Setting,
};
use crate::reply::RpcError;
use crate::text::{Text, excerpt};
use crate::xml::{NETCONF, Scope, Step, escape, walk};

const DEVICE: &str = "http://cisco.com/ns/yang/cisco-nx-os-device";
const BD: &str = "System/bd-items/bd-items/BD-list";
const PHYS: &str = "System/intf-items/phys-items/PhysIf-list";
const AGGR: &str = "System/intf-items/aggr-items/AggrIf-list";

/// The VLAN of access ports and of untagged frames where none is set.
const DEFAULT_VLAN: &str = "vlan-1";

/// The leaves of a VLAN that the dialect reads.
const BD_LEAVES: &str = "<name/><adminSt/><BdState/>";
/// The leaves of an interface that the dialect reads.
const LEAVES: &str = "<layer/><mode/><trunkVlans/><accessVlan/><nativeVlan/>";
/// The setting of an interface that is no trunk: layer, mode and list.
const SWITCHING: &str = "switching";
/// Placeholders in that setting: for an unset leaf, and for a leaf without text.
const NOT_SET: &str = "-";
const EMPTY: &str = "none";
/// The value of that setting for a trunk.
const IS_TRUNK: &str = "trunk";

/// The dialect.
#[derive(Clone, Copy, Debug)]
pub struct NxOs;

impl Dialect for NxOs {
    fn name(&self) -> &'static str {
        "nxos-experimental"
    }

    /// Below OpenConfig, which such devices support too.
    fn score(&self, hello: &Hello) -> u32 {
        if hello.has_module(DEVICE) { 5 } else { 0 }
    }

    fn caveat(&self) -> Option<&'static str> {
        Some(
            "the dialect nxos-experimental was never tried on a device: check what it does before you rely on it",
        )
    }

    fn inventory_filter(&self, interfaces: &BTreeSet<&str>) -> String {
        let ids: BTreeSet<String> = interfaces.iter().map(|name| id(name)).collect();
        let list = |list: &str| {
            let keys = ids.iter().filter(|id| (list_of(id) == list) && !id.is_empty());
            keys.fold(String::new(), |all, id| all + &format!("<{list}><id>{}</id></{list}>", escape(id)))
        };
        format!(
            "<System xmlns=\"{DEVICE}\"><intf-items><phys-items>{}</phys-items><aggr-items>{}</aggr-items>\
             </intf-items></System>",
            list("PhysIf-list"),
            list("AggrIf-list")
        )
    }

    fn parse_inventory(&self, reply: &Text) -> Result<Inventory, ParseError> {
        let (mut inventory, mut kept) = (Inventory::new(), Counter::default());
        walk(reply, scope, |step| {
            let Step::Leave(path, id) = step else { return Ok(()) };
            if path.strip_suffix("/id").is_some_and(|list| list == PHYS || list == AGGR) {
                for name in names(id) {
                    kept.entry(name.len());
                    inventory.insert(name, InterfaceState::default());
                }
            }
            kept.check()
        })?;
        Ok(inventory)
    }

    /// Selects all port channels, since they list their members.
    fn filter(&self, interfaces: &BTreeSet<&str>) -> String {
        filter(&format!("<BD-list><fabEncap/>{BD_LEAVES}</BD-list>"), interfaces)
    }

    fn filter_for(&self, vlans: &VlanSet, interfaces: &BTreeSet<&str>) -> Option<String> {
        let mut entries = String::new();
        for vid in vlans.iter() {
            let _ = write!(entries, "<BD-list><fabEncap>vlan-{vid}</fabEncap>{BD_LEAVES}</BD-list>");
        }
        Some(filter(&entries, interfaces))
    }

    fn filter_interface(&self, interface: &str) -> Option<String> {
        let id = id(interface);
        (list_of(&id) == "PhysIf-list").then(|| {
            format!(
                "<System xmlns=\"{DEVICE}\"><intf-items><phys-items><PhysIf-list><id>{}</id>{LEAVES}</PhysIf-list>\
                 </phys-items></intf-items></System>",
                escape(&id)
            )
        })
    }

    fn parse(&self, reply: &Text, _: &Inventory) -> Result<ObservedConfig, ParseError> {
        let mut parser = Parser::default();
        walk(reply, scope, |step| parser.step(&step))?;
        Ok(parser.finish())
    }

    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text {
        let mut xml = Text::from(format!("<System xmlns=\"{DEVICE}\">"));
        if !changes.create.is_empty() || !changes.delete.is_empty() {
            xml.push_str("<bd-items><bd-items>");
            for (vid, name) in &changes.create {
                let _ = write!(
                    xml,
                    "<BD-list><fabEncap>vlan-{vid}</fabEncap><BdState>active</BdState><name>{}</name>\
                     <adminSt>active</adminSt></BD-list>",
                    escape(name)
                );
            }
            for vid in changes.delete.iter() {
                let _ =
                    write!(xml, "<BD-list nc:operation=\"remove\"><fabEncap>vlan-{vid}</fabEncap></BD-list>");
            }
            xml.push_str("</bd-items></bd-items>");
        }
        if !changes.ports.is_empty() {
            xml.push_str("<intf-items>");
            for (holder, list) in [("phys-items", "PhysIf-list"), ("aggr-items", "AggrIf-list")] {
                let mut ports =
                    changes.ports.iter().filter(|(name, _)| list_of(&id(name)) == list).peekable();
                if ports.peek().is_none() {
                    continue;
                }
                let _ = write!(xml, "<{holder}>");
                for (name, change) in ports {
                    let tagged = observed.ports.get(name).map_or(&VlanSet::EMPTY, ObservedPort::tagged);
                    let _ = write!(xml, "<{list}><id>{}</id>", escape(&id(name)));
                    change_port(&mut xml, tagged, change);
                    let _ = write!(xml, "</{list}>");
                }
                let _ = write!(xml, "</{holder}>");
            }
            xml.push_str("</intf-items>");
        }
        xml.push_str("</System>");
        xml
    }

    fn locate_error(&self, error: &RpcError, _: &ObservedConfig, changes: &Changes) -> Option<ChangeUnit> {
        // The model writes a VID as `vlan-100`, and commands may name interfaces otherwise than the model.
        let mut error = error.clone();
        for text in [&mut error.path, &mut error.message].into_iter().flatten() {
            *text = text.replace("'vlan-", "'").replace("\"vlan-", "\"").replace("vlan-", "vlan ");
        }
        for name in changes.ports.keys() {
            let id = id(name);
            if let Some(path) = error.path.as_mut().filter(|_| id != *name) {
                *path = path.replace(&format!("'{id}'"), &format!("'{name}'"));
                *path = path.replace(&format!("\"{id}\""), &format!("\"{name}\""));
            }
        }
        let of_list = error.path.as_ref().is_some_and(|path| path.ends_with("trunkVlans"));
        let unit = locate_error(&error, changes, &Keys { vlan: &["fabEncap"], interface: "id" });
        // The list is one leaf, so bisection finds the refused VLANs.
        unit.filter(|unit| !of_list || !matches!(unit, ChangeUnit::Port(_)))
    }
}

/// The subtree filter. `vlans`: the selected VLANs; none: no VLAN.
fn filter(vlans: &str, interfaces: &BTreeSet<&str>) -> String {
    let mut filter = format!("<System xmlns=\"{DEVICE}\">");
    // An empty container would select all VLANs.
    if !vlans.is_empty() {
        let _ = write!(filter, "<bd-items><bd-items>{vlans}</bd-items></bd-items>");
    }
    filter.push_str("<intf-items>");
    let ids: BTreeSet<String> = interfaces.iter().map(|name| id(name)).collect();
    let mut ports = ids.iter().filter(|id| list_of(id) == "PhysIf-list").peekable();
    if ports.peek().is_some() {
        filter.push_str("<phys-items>");
        for port in ports {
            let _ = write!(filter, "<PhysIf-list><id>{}</id>{LEAVES}</PhysIf-list>", escape(port));
        }
        filter.push_str("</phys-items>");
    }
    let _ = write!(
        filter,
        "<aggr-items><AggrIf-list><id/>{LEAVES}<rsmbrIfs-items/></AggrIf-list></aggr-items></intf-items></System>"
    );
    filter
}

/// Writing to memory can't fail, so results of `write!` are dropped in this file.
fn change_port(xml: &mut Text, tagged: &VlanSet, change: &PortChange) {
    if let Some(before) = change.restore.get(SWITCHING) {
        let mut words = before.as_deref().unwrap_or_default().split(' ');
        for (leaf, value) in [("layer", "Layer2"), ("mode", IS_TRUNK), ("trunkVlans", &*tagged.to_string())] {
            let _ = match words.next() {
                // Some servers check the value of what is removed.
                None | Some("" | NOT_SET) => write!(xml, "<{leaf} nc:operation=\"remove\">{value}</{leaf}>"),
                Some(EMPTY) => write!(xml, "<{leaf}></{leaf}>"),
                Some(word) => write!(xml, "<{leaf}>{}</{leaf}>", escape(word)),
            };
        }
        return;
    }
    if change.mode == ModeChange::Trunk {
        xml.push_str("<layer>Layer2</layer><mode>trunk</mode>");
    }
    let list = tagged.difference(&change.remove).union(&change.add);
    let _ = write!(xml, "<trunkVlans>{list}</trunkVlans>");
}

fn scope(namespace: &str) -> Scope {
    match namespace {
        DEVICE => Scope::Known,
        NETCONF => Scope::Transparent,
        _ => Scope::Foreign,
    }
}

/// The key of an interface: `eth1/1` for `Ethernet1/1`, `po10` for `port-channel10`.
fn id(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    for (long, short) in [("ethernet", "eth"), ("port-channel", "po")] {
        if let Some(rest) = lower.strip_prefix(long) {
            return format!("{short}{rest}");
        }
    }
    lower
}

/// The names that a command may use for an interface.
fn names(id: &str) -> Vec<String> {
    let mut names = vec![id.to_owned()];
    for (long, short) in [("Ethernet", "eth"), ("port-channel", "po")] {
        names.extend(id.strip_prefix(short).map(|rest| format!("{long}{rest}")));
    }
    names
}

fn list_of(id: &str) -> &'static str {
    if id.starts_with("po") { "AggrIf-list" } else { "PhysIf-list" }
}

#[derive(Default)]
struct Parser {
    /// VLANs by VID.
    vlans: BTreeMap<VlanId, ObservedVlan>,
    /// The VLAN being parsed.
    vlan: Bd,
    /// Interfaces by each of their names.
    ports: BTreeMap<String, ObservedPort>,
    /// The interface being parsed.
    port: Port,
    /// Port channels by member.
    members: BTreeMap<String, String>,
    kept: Counter,
}

#[derive(Default)]
struct Bd {
    encap: String,
    name: Option<String>,
    suspended: bool,
}

/// The leaves of an interface. Many devices return an unset leaf as an empty one.
#[derive(Default)]
struct Port {
    /// `id`, such as `eth1/1`.
    id: String,
    /// `layer`: `Layer2` or `Layer3`.
    layer: String,
    /// `mode`, such as `trunk`.
    mode: String,
    /// `trunkVlans`; `None`: unset.
    trunk: Option<String>,
    /// `accessVlan`, such as `vlan-1`.
    access: String,
    /// `nativeVlan`, such as `vlan-1`.
    native: String,
    /// Members of a port channel, by id.
    members: Vec<String>,
}

impl Parser {
    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        let (path, text) = match step {
            Step::Enter(path) => {
                if *path == BD {
                    self.vlan = Bd::default();
                } else if *path == PHYS || *path == AGGR {
                    self.port = Port::default();
                }
                return Ok(());
            }
            Step::Leave(path, text) => (*path, *text),
        };
        self.kept.text(text);
        if let Some(leaf) = path.strip_prefix(BD) {
            match leaf {
                "/fabEncap" => text.clone_into(&mut self.vlan.encap),
                "/name" if !text.is_empty() => self.vlan.name = Some(text.to_owned()),
                "/adminSt" | "/BdState" => self.vlan.suspended |= text == "suspend",
                "" => {
                    let bd = std::mem::take(&mut self.vlan);
                    // Other encapsulations than VLANs have entries too.
                    if let Some(id) = bd.encap.strip_prefix("vlan-") {
                        let vlan =
                            ObservedVlan { name: bd.name, active: !bd.suspended, rename_blocker: None };
                        if let Ok(vid) = id.parse() {
                            self.kept.entry(size_of::<ObservedVlan>());
                            self.vlans.insert(vid, vlan);
                        }
                    }
                }
                _ => {}
            }
        } else if let Some(leaf) = path.strip_prefix(PHYS) {
            self.interface(leaf, text, false);
        } else if let Some(leaf) = path.strip_prefix(AGGR) {
            self.interface(leaf, text, true);
        }
        self.kept.check()
    }

    fn interface(&mut self, leaf: &str, text: &str, aggregate: bool) {
        let port = &mut self.port;
        match leaf {
            "/id" => text.clone_into(&mut port.id),
            "/layer" => text.clone_into(&mut port.layer),
            "/mode" => text.clone_into(&mut port.mode),
            "/trunkVlans" => port.trunk = Some(text.to_owned()),
            "/accessVlan" => text.clone_into(&mut port.access),
            "/nativeVlan" => text.clone_into(&mut port.native),
            "/rsmbrIfs-items/RsMbrIfs-list/tDn" => {
                // It is kept with its port channel, and with its name twice.
                self.kept.entry(2 * size_of::<[String; 2]>());
                port.members.extend(member(text));
            }
            "" => {
                let port = std::mem::take(&mut self.port);
                for member in &port.members {
                    self.members.insert(member.clone(), port.id.clone());
                }
                let observed = port.observed(aggregate);
                for name in names(&port.id) {
                    self.kept.port(&name);
                    self.kept.ranges(observed.tagged.entries().len());
                    self.ports.insert(name, observed.clone());
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> ObservedConfig {
        for (member, lag) in self.members {
            for name in names(&member) {
                if let Some(port) = self.ports.get_mut(&name) {
                    let what =
                        format!("is a member of the LAG {lag}, which carries the VLANs of its members");
                    port.unfit = Some(what);
                }
            }
        }
        let Self { vlans, ports, kept, .. } = self;
        ObservedConfig { vlans: vlans.into(), ports, memory: kept.into(), ..ObservedConfig::default() }
    }
}

/// The interface that a distinguished name ends with: `…/PhysIf-list[id='eth1/1']`.
fn member(dn: &str) -> Option<String> {
    let (_, rest) = dn.rsplit_once("[id=")?;
    Some(rest.trim_matches(|c| "'\"]".contains(c)).to_owned())
}

impl Port {
    fn switching(&self) -> Setting {
        if self.layer != "Layer3" && self.mode == "trunk" {
            return Setting::of(Some(IS_TRUNK), true);
        }
        let word = |text: &str| if text.is_empty() { NOT_SET.to_owned() } else { text.replace(' ', "") };
        let list = match self.trunk.as_deref() {
            None => NOT_SET.to_owned(),
            Some("") => EMPTY.to_owned(),
            Some(list) => word(list),
        };
        Setting::of(Some(&format!("{} {} {list}", word(&self.layer), word(&self.mode))), false)
    }

    fn observed(&self, aggregate: bool) -> ObservedPort {
        let mut observed = ObservedPort {
            configured: true,
            aggregate,
            settings: [(SWITCHING, self.switching())].into(),
            ..ObservedPort::default()
        };
        observed.native = vlan(&mut observed, "nativeVlan", &self.native);
        if self.layer == "Layer3" {
            observed.mode = Some(Mode::Access);
            return observed;
        }
        match self.mode.as_str() {
            "trunk" => {
                observed.mode = Some(Mode::Trunk);
                let list = match self.trunk.as_deref() {
                    None => VlanSet::all(),
                    Some("") => VlanSet::EMPTY,
                    Some(text) => text.parse().unwrap_or_else(|_| {
                        observed.has_unresolved_members = true;
                        set_unfit(&mut observed, "trunkVlans", text);
                        let parts = text.split(',').filter_map(|part| part.parse::<VlanSet>().ok());
                        parts.fold(VlanSet::EMPTY, |all, part| all.union(&part))
                    }),
                };
                observed.open = list == VlanSet::all();
                if !observed.open {
                    observed.tagged = list.into();
                }
            }
            "" | "access" => {
                observed.access = vlan(&mut observed, "accessVlan", &self.access);
                observed.mode = observed.access.map(|_| Mode::Access);
            }
            other => {
                let other = excerpt(other, MAX_VALUE);
                observed.unfit = Some(format!("is a port of mode {other}, which is left as it is"));
            }
        }
        observed
    }
}

/// The VLAN of a leaf such as `nativeVlan`.
fn vlan(port: &mut ObservedPort, leaf: &str, text: &str) -> Option<VlanId> {
    if matches!(text, "" | "unknown" | DEFAULT_VLAN) {
        return None;
    }
    let vid = text.strip_prefix("vlan-").and_then(|id| id.parse().ok());
    if vid.is_none() {
        set_unfit(port, leaf, text);
    }
    vid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::test_states::vid;

    const REPLY: &str = r#"<rpc-reply xmlns="urn:ietf:params:xml:ns:netconf:base:1.0" message-id="7"><data>
      <System xmlns="http://cisco.com/ns/yang/cisco-nx-os-device">
        <bd-items><bd-items>
          <BD-list><fabEncap>vlan-1</fabEncap><BdState>active</BdState><adminSt>active</adminSt><name>default</name></BD-list>
          <BD-list><fabEncap>vlan-20</fabEncap><BdState>suspend</BdState><adminSt>active</adminSt></BD-list>
          <BD-list><fabEncap>vlan-100</fabEncap><BdState>active</BdState><adminSt>active</adminSt><name>eno-c1-100</name></BD-list>
          <BD-list><fabEncap>vxlan-10000</fabEncap></BD-list>
        </bd-items></bd-items>
        <intf-items>
          <phys-items>
            <PhysIf-list><id>eth1/1</id><layer>Layer2</layer><mode>trunk</mode><trunkVlans>20-30,100</trunkVlans><accessVlan>vlan-1</accessVlan><nativeVlan>vlan-5</nativeVlan></PhysIf-list>
            <PhysIf-list><id>eth1/2</id><layer>Layer2</layer><mode>trunk</mode><trunkVlans>1-4094</trunkVlans><accessVlan>vlan-1</accessVlan><nativeVlan>vlan-1</nativeVlan></PhysIf-list>
            <PhysIf-list><id>eth1/3</id><layer>Layer2</layer><mode>trunk</mode><trunkVlans/></PhysIf-list>
            <PhysIf-list><id>eth1/4</id><layer>Layer2</layer><mode>access</mode><trunkVlans>1-4094</trunkVlans><accessVlan>vlan-20</accessVlan></PhysIf-list>
            <PhysIf-list><id>eth1/5</id><layer>Layer2</layer><mode>access</mode><trunkVlans>1-4094</trunkVlans><accessVlan>vlan-1</accessVlan></PhysIf-list>
            <PhysIf-list><id>eth1/6</id><layer>Layer3</layer><mode>access</mode><trunkVlans>1-4094</trunkVlans><accessVlan>unknown</accessVlan></PhysIf-list>
            <PhysIf-list><id>eth1/7</id><layer>Layer2</layer><mode>fex-fabric</mode></PhysIf-list>
            <PhysIf-list><id>eth1/8</id><layer>Layer2</layer><mode>trunk</mode></PhysIf-list>
          </phys-items>
          <aggr-items><AggrIf-list><id>po10</id><layer>Layer2</layer><mode>trunk</mode><trunkVlans>100</trunkVlans>
            <rsmbrIfs-items><RsMbrIfs-list><tDn>/System/intf-items/phys-items/PhysIf-list[id='eth1/8']</tDn></RsMbrIfs-list></rsmbrIfs-items>
          </AggrIf-list></aggr-items>
        </intf-items></System></data></rpc-reply>"#;

    #[test]
    fn reply_is_parsed() {
        let observed = NxOs.parse(&REPLY.into(), &Inventory::new()).unwrap();
        let vlans: Vec<_> =
            observed.vlans.iter().map(|(vid, v)| (vid.get(), v.name.clone(), v.active)).collect();
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(vlans, [(1, named("default"), true), (20, None, false), (100, named("eno-c1-100"), true)]);
        let (trunk, access) = (Some(Mode::Trunk), Some(Mode::Access));
        for (name, mode, tagged, native, open) in [
            ("eth1/1", trunk, "20-30,100", Some(5), false),
            ("Ethernet1/1", trunk, "20-30,100", Some(5), false),
            ("eth1/2", trunk, "", None, true),
            ("eth1/3", trunk, "", None, false),
            ("eth1/4", access, "", None, false),
            ("eth1/5", None, "", None, false),
            ("eth1/6", access, "", None, false),
            ("eth1/8", trunk, "", None, true),
            ("port-channel10", trunk, "100", None, false),
        ] {
            let port = &observed.ports[name];
            let read = (port.mode, port.tagged().to_string(), port.native.map(VlanId::get), port.open);
            assert_eq!(read, (mode, tagged.to_owned(), native, open), "{name}");
        }
        assert_eq!(observed.ports["eth1/4"].access, Some(vid(20)));
        assert!(observed.ports["eth1/7"].unfit.as_ref().unwrap().contains("fex-fabric"));
        assert!(observed.ports["Ethernet1/8"].unfit.as_ref().unwrap().contains("LAG po10"));
        assert!(observed.ports["po10"].aggregate && observed.ports["po10"].unfit.is_none());
    }

    #[test]
    fn filter_selects_single_vlans_and_ports() {
        let one = NxOs.filter_for(&[vid(100)].into_iter().collect(), &["Ethernet1/1"].into()).unwrap();
        assert!(one.contains("<BD-list><fabEncap>vlan-100</fabEncap><name/>"), "{one}");
        assert!(one.contains("<PhysIf-list><id>eth1/1</id>") && !one.contains("<fabEncap/>"), "{one}");
        // Empty lists would select everything. Port channels list their members.
        let none = NxOs.filter_for(&VlanSet::EMPTY, &BTreeSet::new()).unwrap();
        assert!(!none.contains("bd-items") && !none.contains("phys-items"), "{none}");
        assert!(none.contains("<AggrIf-list><id/>"), "{none}");
    }

    #[test]
    fn lists_are_written_completely() {
        let observed = NxOs.parse(&REPLY.into(), &Inventory::new()).unwrap();
        let mut changes = Changes::default();
        changes.delete.insert(vid(100));
        let change = PortChange {
            add: [vid(200)].into_iter().collect(),
            remove: [vid(100)].into_iter().collect(),
            ..PortChange::default()
        };
        changes.ports.insert("Ethernet1/1".into(), change);
        let last = PortChange {
            remove: [vid(100)].into_iter().collect(),
            mode: ModeChange::Drop,
            ..PortChange::default()
        };
        changes.ports.insert("po10".into(), last);
        assert_eq!(
            NxOs.render(&observed, &changes).to_string(),
            "<System xmlns=\"http://cisco.com/ns/yang/cisco-nx-os-device\"><bd-items><bd-items>\
             <BD-list nc:operation=\"remove\"><fabEncap>vlan-100</fabEncap></BD-list></bd-items></bd-items><intf-items>\
             <phys-items><PhysIf-list><id>eth1/1</id><trunkVlans>20-30,200</trunkVlans></PhysIf-list></phys-items>\
             <aggr-items><AggrIf-list><id>po10</id><trunkVlans></trunkVlans></AggrIf-list></aggr-items></intf-items></System>"
        );
    }

    #[test]
    fn error_paths_of_the_model_locate_items() {
        let mut changes = Changes::default();
        changes.create.insert(vid(3970), "eno-c1-3970".into());
        changes.ports.insert("Ethernet1/1".into(), PortChange::default());
        for (path, message, unit) in [
            (
                Some("/System/bd-items/bd-items/BD-list[fabEncap='vlan-3970']"),
                "no",
                ChangeUnit::Vlan(vid(3970)),
            ),
            (
                Some("/System/intf-items/phys-items/PhysIf-list[id='eth1/1']/mode"),
                "no",
                ChangeUnit::Port("Ethernet1/1".into()),
            ),
            (None, "vlan-3970 is reserved", ChangeUnit::Vlan(vid(3970))),
        ] {
            let error = RpcError {
                path: path.map(str::to_owned),
                message: Some(message.into()),
                ..RpcError::default()
            };
            assert_eq!(
                NxOs.locate_error(&error, &ObservedConfig::default(), &changes),
                Some(unit),
                "{path:?} {message}"
            );
        }
    }
}
