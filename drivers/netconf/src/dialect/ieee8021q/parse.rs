//! Parses 802.1Q bridges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_sbi::TooLarge;
use eno_schemas::{VlanId, VlanSet};

use super::entries::{Entry, Registration, registrations_text, vids};
use super::{
    ALL_FRAMES, BridgeLayout, Component, FILTERING, ONLY_UNTAGGED, PortLocation, REGISTRATIONS,
    UNTAGGED_ONLY, scope,
};
use crate::dialect::{ParseError, not_understood};
use crate::memory::Counter;
use crate::plan::{Inventory, Layout, Mode, ObservedConfig, ObservedPort, ObservedVlan, Setting};
use crate::text::Text;
use crate::xml::{Step, XmlError, walk};

/// The default of `pvid`.
const DEFAULT_PVID: u16 = 1;

pub(super) fn parse(reply: &Text, inventory: &Inventory) -> Result<ObservedConfig, ParseError> {
    let mut parser = Parser::default();
    walk(reply, scope, |step| parser.step(&step))?;
    Ok(parser.observed(inventory).map_err(XmlError::from)?)
}

/// Collects bridges and interfaces while the reply streams by.
#[derive(Default)]
struct Parser {
    /// The name of the bridge being parsed.
    bridge: String,
    /// The component being parsed.
    component: Component,
    /// The component is not VLAN-aware, by its type.
    unaware: bool,
    /// The VLAN-aware components.
    components: Vec<Component>,
    /// The registration entry being parsed.
    entry: Entry,
    /// The registrations of the entry, by port number.
    ports: BTreeMap<u32, Registration>,
    /// `entry-type` of the entry is `static`.
    is_static: bool,
    /// The port number and registration being parsed.
    port_map: (u32, Registration),
    /// The VID and name being parsed.
    vlan: (String, Option<String>),
    /// The interface being parsed, with its name.
    interface: (String, BridgePort),
    /// The interfaces by name.
    interfaces: BTreeMap<String, BridgePort>,
    kept: Counter,
}

#[derive(Clone, Default)]
struct BridgePort {
    /// `bridge-name`
    bridge: Option<String>,
    /// `component-name`
    component: Option<String>,
    /// `pvid`
    pvid: Option<u32>,
    /// `acceptable-frame` admits no tagged frames.
    untagged_only: bool,
    /// `acceptable-frame` is `admit-all-frames`.
    admits_all: bool,
    /// `enable-ingress-filtering`
    filtering: Option<String>,
    /// The reason why it can carry no VLAN of ours.
    unfit: Option<String>,
}

impl Parser {
    /// An invalid value concerns its entry or port only, which then lacks it.
    fn step(&mut self, step: &Step<'_>) -> Result<(), TooLarge> {
        match step {
            Step::Enter(path) => self.enter(path),
            Step::Leave(path, text) => {
                self.kept.text(text);
                if let Some(rest) = path.strip_prefix("bridges/bridge/component/") {
                    let _ = self.component_leaf(rest, text);
                } else {
                    self.leaf(path, text);
                }
            }
        }
        self.kept.check()
    }

    fn enter(&mut self, path: &str) {
        match path {
            "bridges/bridge" => self.bridge.clear(),
            "bridges/bridge/component" => {
                (self.component, self.unaware) = (Component::default(), false);
            }
            "bridges/bridge/component/filtering-database/vlan-registration-entry" => {
                (self.entry, self.is_static) = (Entry::default(), true);
                self.ports.clear();
            }
            "bridges/bridge/component/filtering-database/vlan-registration-entry/port-map" => {
                self.port_map = Default::default();
            }
            "bridges/bridge/component/bridge-vlan/vlan" => self.vlan = Default::default(),
            "interfaces/interface" => self.interface = Default::default(),
            _ => {}
        }
    }

    fn leaf(&mut self, path: &str, text: &str) {
        let (name, port) = &mut self.interface;
        match path {
            "bridges/bridge/name" => text.clone_into(&mut self.bridge),
            "bridges/bridge/component" => {
                self.kept.entry(size_of::<Component>());
                self.kept.text(&self.bridge);
                let mut component = std::mem::take(&mut self.component);
                component.bridge.clone_from(&self.bridge);
                if !self.unaware {
                    self.components.push(component);
                }
            }
            "interfaces/interface/name" => text.clone_into(name),
            "interfaces/interface/bridge-port/bridge-name" => port.bridge = Some(text.to_owned()),
            "interfaces/interface/bridge-port/component-name" => port.component = Some(text.to_owned()),
            "interfaces/interface/bridge-port/pvid" => {
                port.pvid = text.parse().ok();
                if port.pvid.is_none() {
                    port.unfit = Some(not_understood("pvid", text));
                }
            }
            "interfaces/interface/bridge-port/acceptable-frame" => {
                port.untagged_only = text == UNTAGGED_ONLY;
                port.admits_all = text == ALL_FRAMES;
            }
            "interfaces/interface/bridge-port/enable-ingress-filtering" => {
                port.filtering = Some(text.to_owned());
            }
            "interfaces/interface" => {
                let (name, port) = std::mem::take(&mut self.interface);
                self.kept.entry(size_of::<BridgePort>() + size_of::<PortLocation>());
                self.interfaces.insert(name, port);
            }
            _ => {}
        }
    }

    /// `None`: the value is invalid.
    fn component_leaf(&mut self, path: &str, text: &str) -> Option<()> {
        const ENTRY: &str = "filtering-database/vlan-registration-entry";
        if let Some(rest) = path.strip_prefix(ENTRY) {
            return self.entry_leaf(rest, text);
        }
        match path {
            "name" => text.clone_into(&mut self.component.name),
            "type" => self.unaware = text.rsplit(':').next() == Some("d-bridge-component"),
            "bridge-vlan/vlan/vid" => text.clone_into(&mut self.vlan.0),
            "bridge-vlan/vlan/name" => self.vlan.1 = Some(text.to_owned()),
            "bridge-vlan/vlan" => {
                let (vid, name) = std::mem::take(&mut self.vlan);
                // VLANs from 4096 on are local to the bridge and have no VID.
                let vid: u32 = vid.parse().ok()?;
                if let Ok(vid) = VlanId::new(u16::try_from(vid).unwrap_or(u16::MAX)) {
                    // In the component, and in the configuration.
                    self.kept.entry(size_of::<Option<String>>() + size_of::<ObservedVlan>());
                    self.component.vlans.insert(vid, name.filter(|name| !name.is_empty()));
                }
            }
            _ => {}
        }
        Some(())
    }

    fn entry_leaf(&mut self, path: &str, text: &str) -> Option<()> {
        match path {
            "/database-id" => self.entry.database = text.parse().ok()?,
            "/vids" => {
                self.entry.vids = vids(text)?;
                text.clone_into(&mut self.entry.text);
            }
            "/entry-type" => self.is_static = text == "static",
            "/port-map/port-ref" => self.port_map.0 = text.parse().ok()?,
            "/port-map/static-vlan-registration-entries/registrar-admin-control" => {
                self.port_map.1.control = Some(Registration::word(text));
            }
            "/port-map/static-vlan-registration-entries/vlan-transmitted" => {
                self.port_map.1.transmitted = Some(Registration::word(text));
            }
            "/port-map" => {
                let (number, registration) = std::mem::take(&mut self.port_map);
                self.ports.insert(number, registration);
            }
            "" if self.is_static => {
                let (mut entry, ports) = (std::mem::take(&mut self.entry), std::mem::take(&mut self.ports));
                let same = self.component.entries.last().filter(|last| *last.ports == ports);
                let own = if same.is_some() { 0 } else { ports.len() * size_of::<(u32, Registration)>() };
                self.kept.entry(size_of::<Entry>() + own);
                self.kept.set();
                entry.ports = same.map_or_else(|| Arc::new(ports), |last| Arc::clone(&last.ports));
                self.component.entries.push(entry);
            }
            _ => {}
        }
        Some(())
    }

    fn observed(mut self, inventory: &Inventory) -> Result<ObservedConfig, TooLarge> {
        let mut layout = BridgeLayout { components: self.components, ports: BTreeMap::new() };
        let mut ports = BTreeMap::new();
        let names: BTreeSet<&String> = self.interfaces.keys().chain(inventory.keys()).collect();
        for name in names {
            let configured = self.interfaces.get(name);
            let bridge_port = configured.cloned().unwrap_or_default();
            let number = inventory.get(name).and_then(|state| state.number);
            let mut port = ObservedPort { configured: configured.is_some(), ..ObservedPort::default() };
            self.kept.port(name);
            self.kept.check()?;
            port.unfit.clone_from(&bridge_port.unfit);
            port.unread = port.unfit.is_some();
            match location(&layout.components, &bridge_port, number) {
                Ok(location) => {
                    layout.components[location.component].holds_vlans = true;
                    layout.ports.insert(name.clone(), location);
                }
                Err(what) => port.unfit = Some(what),
            }
            ports.insert(name.clone(), (port, bridge_port));
        }
        if layout.ports.is_empty()
            && let Some(first) = layout.components.first_mut()
        {
            first.holds_vlans = true;
        }
        let kept = &mut self.kept;
        let ports = ports.into_iter().map(|(name, (port, bridge_port))| {
            let port = match layout.ports.get(&name) {
                Some(location) => {
                    let component = &layout.components[location.component];
                    registered(port, &bridge_port, component, location.number, kept)?
                }
                None => port,
            };
            Ok((name, port))
        });
        let ports = ports.collect::<Result<_, TooLarge>>()?;
        Ok(ObservedConfig {
            vlans: vlans(&layout).into(),
            ports,
            layout: Layout::new(layout),
            memory: self.kept.into(),
            ..ObservedConfig::default()
        })
    }
}

/// The location of a port, or the reason why it has none.
fn location(
    components: &[Component],
    port: &BridgePort,
    number: Option<u32>,
) -> Result<PortLocation, String> {
    let (Some(bridge), Some(component)) = (&port.bridge, &port.component) else {
        return Err("is not configured as a port of a bridge".into());
    };
    let is = |of: &Component| of.bridge == *bridge && of.name == *component;
    let Some(component) = components.iter().position(is) else {
        return Err(format!("is in component {component} of bridge {bridge}, which knows no VLANs"));
    };
    let Some(number) = number else {
        return Err(format!("has no port number in bridge {bridge}"));
    };
    Ok(PortLocation { component, number, untagged_only: port.untagged_only })
}

/// Adds the registrations of the entries to a port.
fn registered(
    mut port: ObservedPort,
    bridge_port: &BridgePort,
    component: &Component,
    number: u32,
    kept: &mut Counter,
) -> Result<ObservedPort, TooLarge> {
    let pvid = bridge_port.pvid.unwrap_or(u32::from(DEFAULT_PVID));
    let pvid = u16::try_from(pvid).ok().and_then(|id| VlanId::new(id).ok());
    let filtering = bridge_port.filtering.as_deref();
    let untagged_only = Setting::of(bridge_port.untagged_only.then_some(""), bridge_port.admits_all);
    port.settings =
        [(FILTERING, Setting::of(filtering, filtering == Some("true"))), (ONLY_UNTAGGED, untagged_only)]
            .into();
    if let Some(text) = registrations_text(&component.entries, number) {
        port.settings.insert(REGISTRATIONS, Setting::of(Some(&text), false));
    }
    for entry in &component.entries {
        let Some(registration) = entry.ports.get(&number) else { continue };
        let all = || entry.vids.iter();
        if registration.is_fixed() && !registration.is_untagged() {
            kept.ranges(entry.vids.ranges().len());
        } else {
            kept.taken(entry.vids.len());
        }
        kept.check()?;
        if registration.is_forbidden() {
            port.taken.extend(all().map(|vid| (vid, "an entry forbids it there".to_owned())));
        } else if registration.is_fixed() && registration.is_untagged() {
            let others = all().filter(|vid| Some(*vid) != pvid || bridge_port.untagged_only);
            port.taken.extend(others.map(|vid| (vid, "it is sent there without a tag".to_owned())));
        } else if registration.is_fixed() {
            port.tagged.extend(entry.vids.ranges());
        }
    }
    if bridge_port.untagged_only {
        port.mode = Some(Mode::Access);
        port.access = pvid;
        let reason = "its untagged frames are of that VLAN";
        port.taken.extend(pvid.map(|vid| (vid, reason.to_owned())));
    } else {
        port.mode = (!port.tagged.is_empty()).then_some(Mode::Trunk);
        port.native = pvid;
    }
    Ok(port)
}

/// The VLANs that exist, over all components.
fn vlans(layout: &BridgeLayout) -> BTreeMap<VlanId, ObservedVlan> {
    let mut vlans: BTreeMap<VlanId, ObservedVlan> = BTreeMap::new();
    let vlan_components: Vec<(usize, &Component)> =
        layout.components.iter().enumerate().filter(|(_, component)| component.holds_vlans).collect();
    for (at, component) in &vlan_components {
        let numbers: BTreeSet<u32> = layout
            .ports
            .values()
            .filter(|location| location.component == *at)
            .map(|location| location.number)
            .collect();
        let mut unnamed = VlanSet::EMPTY;
        for entry in &component.entries {
            let members = entry.ports.iter().filter(|(_, registration)| registration.is_fixed());
            if members.into_iter().any(|(number, _)| !numbers.contains(number)) {
                unnamed = unnamed.union(&entry.vids);
            }
        }
        let unnamed = unnamed.iter().filter(|vid| !component.vlans.contains_key(vid)).map(|vid| (vid, None));
        let named = component.vlans.iter().map(|(vid, name)| (*vid, name.clone()));
        for (vid, name) in named.chain(unnamed) {
            match vlans.get_mut(&vid) {
                None => {
                    vlans.insert(vid, ObservedVlan { name, active: true, rename_blocker: None });
                }
                // A VLAN that is foreign in one component is foreign.
                Some(vlan) if vlan.name != name => {
                    if is_ours_by_form(vid, vlan.name.as_deref()) {
                        vlan.name = name;
                    }
                }
                Some(_) => {}
            }
        }
    }
    for (vid, vlan) in &mut vlans {
        vlan.active = vlan_components.iter().all(|(_, component)| component.vlans.contains_key(vid));
    }
    // Of other components only VLANs under our names count, so that they can be deleted.
    for component in layout.components.iter().filter(|component| !component.holds_vlans) {
        for (vid, name) in &component.vlans {
            if is_ours_by_form(*vid, name.as_deref()) {
                let current = ObservedVlan {
                    name: name.clone(),
                    active: vlan_components.is_empty(),
                    rename_blocker: None,
                };
                vlans.entry(*vid).or_insert(current);
            }
        }
    }
    vlans
}

/// A name of the form `eno-<cluster>-<vid>`.
fn is_ours_by_form(vid: VlanId, name: Option<&str>) -> bool {
    name.and_then(|name| name.strip_prefix("eno-"))
        .and_then(|rest| rest.rsplit_once('-'))
        .is_some_and(|(_, of)| *of == *vid.to_string())
}
