//! IEEE 802.1Q: ieee802-dot1q-bridge, ietf-interfaces (IEEE Std 802.1Q; YangModels/yang, standard/ieee).
//!
//! The VLANs of a bridge component are `bridge-vlan/vlan[vid]`. The static
//! `filtering-database/vlan-registration-entry[database-id][vids]/port-map[port-ref]` lists the ports that carry
//! them. Ports are numbers, which only the operational state has (`interface/bridge-port/port-number`). Beyond the
//! rules of all dialects:
//! - A port carries a VID tagged when a static entry has it with a fixed registration and `vlan-transmitted` tagged.
//!   A VID that an entry forbids or sends untagged on a port is taken there.
//! - The key of an entry is its list of VIDs. To change one VID, the driver replaces the entry by one without it, and
//!   gives the VID an entry of its own with its registrations.
//! - Untagged frames belong to the VLAN `pvid`, by default 1, so every port has a native VLAN. A port that admits no
//!   tagged frames is an access port.
//! - A VID without a static entry has the registration Normal (802.1Q 8.8.2), to which only MVRP adds members.
//!   Without ingress filtering (8.6.2), which is off by default, a port accepts frames of VLANs that it is not a
//!   member of. The driver switches filtering on with the first VLAN on a port, and restores it after the last one.
//! - A VLAN exists in a component if it is listed there, or if an entry for its VID has an unknown port. VLANs are
//!   created in every component that has a listed port (without any, in the first), and deleted in every one.

mod entries;
mod parse;
mod render;

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::VlanId;

use self::entries::Entry;
use crate::dialect::locate_error::{Named, locate_named_error, predicates};
use crate::dialect::{Dialect, ParseError, select_interfaces};
use crate::hello::Hello;
use crate::memory::Counter;
use crate::plan::{ChangeUnit, Changes, InterfaceState, Inventory, ObservedConfig};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{NETCONF, Scope, Step, walk};

const BRIDGE: &str = "urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge";
const INTERFACES: &str = "urn:ietf:params:xml:ns:yang:ietf-interfaces";

/// The leaves of `bridge-port` that the dialect reads.
const BRIDGE_PORT: &str =
    "<bridge-name/><component-name/><pvid/><acceptable-frame/><enable-ingress-filtering/>";
/// Values of `acceptable-frame`.
const UNTAGGED_ONLY: &str = "admit-only-untagged-and-priority-tagged";
const ALL_FRAMES: &str = "admit-all-frames";
/// Settings of a port: ingress filtering, whether it admits untagged frames only, and registrations that differ from
/// the driver's.
const FILTERING: &str = "enable-ingress-filtering";
const ONLY_UNTAGGED: &str = "only-untagged";
const REGISTRATIONS: &str = "registrations";

/// The dialect.
#[derive(Clone, Copy, Debug)]
pub struct Ieee8021Q;

/// The location of the VLANs and ports of an [`ObservedConfig`] on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BridgeLayout {
    components: Vec<Component>,
    /// Ports by name.
    ports: BTreeMap<String, PortLocation>,
}

/// A VLAN-aware component of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Component {
    bridge: String,
    name: String,
    /// VLANs are created in the component: it has a listed port, or none has.
    holds_vlans: bool,
    /// The listed VLANs, with their names.
    vlans: BTreeMap<VlanId, Option<String>>,
    /// The static VLAN registration entries.
    entries: Vec<Entry>,
}

/// The location of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortLocation {
    /// The index of its component.
    component: usize,
    /// Its port number in the component.
    number: u32,
    /// The port admits no tagged frames.
    untagged_only: bool,
}

impl Dialect for Ieee8021Q {
    fn name(&self) -> &'static str {
        "ieee8021q"
    }

    fn score(&self, hello: &Hello) -> u32 {
        // Below vendors' models, since many devices announce it for other parts of 802.1.
        if hello.has_module(BRIDGE) && hello.has_module(INTERFACES) { 5 } else { 0 }
    }

    fn needs_inventory(&self) -> bool {
        true
    }

    fn inventory_filter(&self, interfaces: &BTreeSet<&str>) -> String {
        select_ports(interfaces, "<type/>", "<port-number/>")
    }

    fn parse_inventory(&self, reply: &Text) -> Result<Inventory, ParseError> {
        let (mut inventory, mut kept) = (Inventory::new(), Counter::default());
        let mut last = (String::new(), InterfaceState::default());
        walk(reply, scope, |step| {
            match step {
                Step::Enter("interfaces/interface") => last = Default::default(),
                Step::Leave("interfaces/interface/name", name) => name.clone_into(&mut last.0),
                Step::Leave("interfaces/interface/bridge-port/port-number", number) => {
                    last.1.number = number.parse().ok();
                }
                Step::Leave("interfaces/interface", _) => {
                    let (name, state) = std::mem::take(&mut last);
                    kept.entry(name.len());
                    inventory.insert(name, state);
                }
                _ => {}
            }
            kept.check()
        })?;
        Ok(inventory)
    }

    fn filter(&self, interfaces: &BTreeSet<&str>) -> String {
        format!(
            "<bridges xmlns=\"{BRIDGE}\"><bridge><name/><component><name/><type/><filtering-database>\
             <vlan-registration-entry/></filtering-database><bridge-vlan><vlan><vid/><name/></vlan></bridge-vlan>\
             </component></bridge></bridges>{}",
            select_ports(interfaces, "", BRIDGE_PORT)
        )
    }

    fn filter_interface(&self, interface: &str) -> Option<String> {
        Some(select_ports(&[interface].into(), "", BRIDGE_PORT))
    }

    fn parse(&self, reply: &Text, inventory: &Inventory) -> Result<ObservedConfig, ParseError> {
        parse::parse(reply, inventory)
    }

    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text {
        observed.layout.get().map_or_else(Text::new, |layout| render::render(layout, observed, changes))
    }

    fn locate_error(
        &self,
        error: &RpcError,
        observed: &ObservedConfig,
        changes: &Changes,
    ) -> Option<ChangeUnit> {
        let touched = changes.vlans();
        let mut named = Named::default();
        let (mut bridge, mut component) = (None, None);
        let mut names = 0;
        for (key, value) in predicates(error.location().unwrap_or_default()) {
            match key {
                "name" if changes.ports.contains_key(value) => named.interface = Some(value.to_owned()),
                "name" => {
                    names += 1;
                    *if names == 1 { &mut bridge } else { &mut component } = Some(value);
                }
                "vid" | "vids" => {
                    named.some_of_range = value.contains(['-', ',']);
                    named.vid = value.parse().ok().filter(|vid| touched.contains(*vid)).or(named.vid);
                }
                "port-ref" => {
                    let at = |location: &PortLocation, layout: &BridgeLayout| {
                        let of = &layout.components[location.component];
                        value.parse() == Ok(location.number)
                            && bridge.is_none_or(|name| name == of.bridge)
                            && component.is_none_or(|name| name == of.name)
                    };
                    let found = observed.layout.get().and_then(|layout: &BridgeLayout| {
                        let ports = layout.ports.iter().filter(|(_, location)| at(location, layout));
                        ports.map(|(name, _)| name).find(|name| changes.ports.contains_key(*name)).cloned()
                    });
                    named.interface = found.or(named.interface);
                }
                _ => {}
            }
        }
        locate_named_error(named, error, changes, |_| None)
    }
}

/// Selects these leaves of interfaces, and of their bridge ports.
fn select_ports(interfaces: &BTreeSet<&str>, leaves: &str, of_port: &str) -> String {
    let content = format!("{leaves}<bridge-port xmlns=\"{BRIDGE}\">{of_port}</bridge-port>");
    select_interfaces(INTERFACES, interfaces, &content)
}

fn scope(namespace: &str) -> Scope {
    match namespace {
        BRIDGE | INTERFACES => Scope::Known,
        NETCONF => Scope::Transparent,
        _ => Scope::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PortChange;

    const STATE: &str = r#"<data xmlns="urn:ietf:params:xml:ns:netconf:base:1.0">
        <interfaces xmlns="urn:ietf:params:xml:ns:yang:ietf-interfaces"><interface><name>p1</name>
         <bridge-port xmlns="urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge"><port-number>17</port-number></bridge-port>
        </interface><interface><name>p2</name></interface></interfaces></data>"#;

    const DEVICE: &str = r#"<data xmlns="urn:ietf:params:xml:ns:netconf:base:1.0">
        <bridges xmlns="urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge"><bridge><name>b</name><component><name>c</name>
         <type xmlns:d="urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge">d:c-vlan-component</type><filtering-database>
         <vlan-registration-entry><database-id>4</database-id><vids>100-200,300</vids><entry-type>static</entry-type>
          <port-map><port-ref>17</port-ref><static-vlan-registration-entries>
           <registrar-admin-control>fixed-new-ignored</registrar-admin-control><vlan-transmitted>tagged</vlan-transmitted>
          </static-vlan-registration-entries></port-map></vlan-registration-entry></filtering-database>
         <bridge-vlan><vlan><vid>100</vid><name>blue</name></vlan><vlan><vid>5000</vid></vlan></bridge-vlan>
        </component></bridge></bridges>
        <interfaces xmlns="urn:ietf:params:xml:ns:yang:ietf-interfaces"><interface><name>p1</name>
         <bridge-port xmlns="urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge"><bridge-name>b</bridge-name>
          <component-name>c</component-name></bridge-port></interface></interfaces></data>"#;

    #[test]
    fn ports_are_identified_by_number() {
        let inventory = Ieee8021Q.parse_inventory(&STATE.into()).unwrap();
        let observed = Ieee8021Q.parse(&DEVICE.into(), &inventory).unwrap();
        let port = &observed.ports["p1"];
        assert_eq!(port.tagged().to_string(), "100-200,300");
        assert_eq!(port.native, VlanId::new(1).ok());
        assert!(observed.ports["p2"].unfit.is_some());
        assert_eq!(observed.vlans.vids().len(), 1);
        let without = Ieee8021Q.parse(&DEVICE.into(), &Inventory::new()).unwrap();
        assert!(without.ports["p1"].unfit.as_ref().unwrap().contains("no port number"));

        let mut changes = Changes::default();
        let vids = |text: &str| entries::vids(text).unwrap();
        let change = PortChange { add: vids("400"), remove: vids("150"), ..PortChange::default() };
        changes.ports.insert("p1".into(), change);
        let root = "/q:bridges/q:bridge[q:name='b']/q:component[q:name='c']/q:filtering-database";
        let entry =
            |vids: &str| format!("{root}/q:vlan-registration-entry[q:database-id='4'][q:vids='{vids}']");
        let on_port = |vid| Some(ChangeUnit::PortVlan("p1".into(), VlanId::new(vid).unwrap()));
        for (path, expected) in [
            (entry("400") + "/q:port-map[q:port-ref='17']", on_port(400)),
            (entry("400"), VlanId::new(400).ok().map(ChangeUnit::Vlan)),
            (entry("100-149") + "/q:port-map[q:port-ref='17']", None),
            (entry("400") + "/q:port-map[q:port-ref='18']", VlanId::new(400).ok().map(ChangeUnit::Vlan)),
            (
                "/if:interfaces/if:interface[if:name='p1']/q:bridge-port".into(),
                Some(ChangeUnit::Port("p1".into())),
            ),
        ] {
            let error = RpcError { path: Some(path), ..RpcError::default() };
            assert_eq!(Ieee8021Q.locate_error(&error, &observed, &changes), expected, "{error:?}");
        }
    }
}
