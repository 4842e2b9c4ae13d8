//! SR Linux: srl_nokia-interfaces, srl_nokia-interfaces-vlans, srl_nokia-network-instance (nokia/srlinux-yang-models).
//!
//! VIDs are local to a port. A VLAN of ours is a network-instance of type `mac-vrf` under the VLAN's name, with a
//! bridged subinterface of that VID on each of its ports. The index of the subinterface is the VID if that is free.
//! Ownership, beyond the rules of all dialects:
//! - A VID of a listed port in another mac-vrf is a foreign VLAN under the name of that mac-vrf. If the VID has a
//!   mac-vrf of its own, it is taken on that port alone. VIDs in ranges, in routed subinterfaces and as outer tags
//!   are taken too.
//! - A bridged subinterface of one VID in no network-instance carries nothing. The driver uses it when its VLAN is
//!   desired on the port, such as after somebody deleted the mac-vrf. It stays after the VLAN if it was there before
//!   our first VLAN on the port. A subinterface with our name as its description is ours: without its VLAN it is left
//!   from a crash, and is removed.
//! - Without `vlan-tagging`, the only subinterface of a port receives all frames, whatever their tags. If it is
//!   bridged, the port is an access port. On a port that becomes a trunk it becomes the subinterface for untagged
//!   frames.
//! - VRFs: see the module `routing`. BGP: see the module `bgp`. The MAC table: see the module `mac_table`.
//! - A mac-vrf can't be renamed. Adoption replaces it by one of our name with the same interfaces, in one edit. A
//!   mac-vrf with settings that would be lost can't be adopted.

mod bgp;
mod bgp_sessions;
mod mac_table;
mod parse;
mod render;
mod routing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use eno_schemas::{VlanId, parse_vlan_name};

use crate::dialect::locate_error::{Named, locate_named_error, predicates};
use crate::dialect::{BgpDialect, Dialect, MacTableDialect, ParseError, RoutingDialect, named_interfaces};
use crate::hello::Hello;
use crate::plan::{ChangeUnit, Changes, Inventory, ObservedConfig};
use crate::reply::RpcError;
use crate::text::Text;
use crate::xml::{NETCONF, Scope, escape};

const INTERFACES: &str = "urn:nokia.com:srlinux:chassis:interfaces";
const VLANS: &str = "urn:nokia.com:srlinux:chassis:interfaces-vlans";
const NETWORK_INSTANCE: &str = "urn:nokia.com:srlinux:net-inst:network-instance";
/// The prefix of the namespaces of all modules.
const SRLINUX: &str = "urn:nokia.com:srlinux:";

/// Settings of a mac-vrf that forbid to replace it by another.
const SETTINGS: [&str; 6] =
    ["vxlan-interface", "protocols", "bridge-table", "connection-point", "multicast-routing", "mtu"];

/// Settings of a port: `vlan-tagging`, the index of its subinterface for untagged frames, and the VIDs of
/// subinterfaces that were in no network-instance.
const TAGGING: &str = "vlan-tagging";
const UNTAGGED: &str = "untagged";
const ORPHANS: &str = "subinterfaces";

/// The dialect.
#[derive(Clone, Copy, Debug)]
pub struct SrLinux;

/// The location of the VLANs and ports of an [`ObservedConfig`] on the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SrLinuxLayout {
    /// The mac-vrf of each VLAN.
    vrfs: BTreeMap<VlanId, Vrf>,
    ports: BTreeMap<String, Subinterfaces>,
}

/// A mac-vrf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Vrf {
    name: String,
    description: Option<String>,
    interfaces: Arc<[Member]>,
}

/// An interface of a network-instance, by its name there. A full device has 200,000 of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Member {
    /// Port and index of the subinterface, as `ethernet-1/1.100`; the port's name is shared.
    Subinterface(Arc<str>, u32),
    /// Any other name.
    Other(Arc<str>),
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subinterface(port, index) => write!(f, "{port}.{index}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// The subinterfaces of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Subinterfaces {
    /// `vlan-tagging` is true.
    tagging: bool,
    /// The indices of all subinterfaces.
    used: BTreeSet<u32>,
    /// The bridged subinterfaces of one VID each that are in the VLAN of that VID, or in none.
    vlans: BTreeMap<VlanId, Subinterface>,
    /// The bridged subinterfaces of a port without `vlan-tagging`.
    whole: BTreeSet<u32>,
    /// The subinterfaces for untagged frames of a port with `vlan-tagging`.
    untagged: BTreeSet<u32>,
}

/// A subinterface that is in the VLAN of its VID, or in none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Subinterface {
    index: u32,
    attached: Attachment,
}

/// How a mac-vrf refers to a subinterface.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attachment {
    /// No mac-vrf has it.
    None,
    /// By port and index.
    Usual,
    /// By another name.
    Named(Arc<str>),
}

impl Dialect for SrLinux {
    fn name(&self) -> &'static str {
        "srlinux"
    }

    fn score(&self, hello: &Hello) -> u32 {
        let all = [INTERFACES, VLANS, NETWORK_INSTANCE].iter().all(|module| hello.has_module(module));
        // Above OpenConfig, which such devices may support by mapping it to this model.
        if all { 20 } else { 0 }
    }

    fn inventory_filter(&self, interfaces: &BTreeSet<&str>) -> String {
        let mut filter = String::new();
        push_interfaces(&mut filter, interfaces, "");
        filter
    }

    fn parse_inventory(&self, reply: &Text) -> Result<Inventory, ParseError> {
        named_interfaces(reply, scope, |path| path == "interface/name")
    }

    fn filter(&self, interfaces: &BTreeSet<&str>) -> String {
        let mut filter = format!(
            "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name/><type/><admin-state/><description/><interface/>"
        );
        for setting in SETTINGS {
            let _ = write!(filter, "<{setting}/>");
        }
        filter.push_str("</network-instance>");
        push_interfaces(&mut filter, interfaces, &port_content());
        filter
    }

    fn filter_interface(&self, interface: &str) -> Option<String> {
        let mut filter = String::new();
        push_interfaces(&mut filter, &[interface].into(), &port_content());
        Some(filter)
    }

    fn parse(&self, reply: &Text, _: &Inventory) -> Result<ObservedConfig, ParseError> {
        parse::parse(reply)
    }

    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text {
        render::render(observed, changes)
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

    fn locate_error(
        &self,
        error: &RpcError,
        observed: &ObservedConfig,
        changes: &Changes,
    ) -> Option<ChangeUnit> {
        if let Some(unit) = routing::locate_error(error, changes) {
            return Some(unit);
        }
        let touched = changes.vlans();
        // `eno-c1-100`, or `ethernet-1/1.100`.
        let known = |word: &str| {
            if let Some((port, index)) =
                word.rsplit_once('.').filter(|(port, _)| changes.ports.contains_key(*port))
            {
                let vid = vid_of(observed, port, index).filter(|vid| touched.contains(*vid));
                return Some(Named { interface: Some(port.to_owned()), vid, some_of_range: false });
            }
            let vid = vid_of_name(word).filter(|vid| touched.contains(*vid))?;
            Some(Named { interface: None, vid: Some(vid), some_of_range: false })
        };
        let mut named = Named::default();
        for (key, value) in predicates(error.location().unwrap_or_default()) {
            match (key, &named.interface) {
                ("name", _) if changes.ports.contains_key(value) => named.interface = Some(value.to_owned()),
                ("name", _) => {
                    let found = known(value).unwrap_or_default();
                    named.interface = found.interface.or(named.interface);
                    named.vid = found.vid.or(named.vid);
                }
                ("index", Some(port)) => {
                    named.vid = vid_of(observed, port, value).filter(|vid| touched.contains(*vid));
                }
                _ => {}
            }
        }
        locate_named_error(named, error, changes, known)
    }
}

/// The VID of the subinterface that a port has, or gets, at this index.
fn vid_of(observed: &ObservedConfig, port: &str, index: &str) -> Option<VlanId> {
    let index: u32 = index.parse().ok()?;
    let current = observed.layout.get().and_then(|layout: &SrLinuxLayout| layout.ports.get(port));
    let current = current.and_then(|port| port.vlans.iter().find(|(_, sub)| sub.index == index));
    current.map(|(vid, _)| *vid).or_else(|| VlanId::new(u16::try_from(index).ok()?).ok())
}

/// The VID in a name of the form `eno-<cluster>-<vid>`.
fn vid_of_name(name: &str) -> Option<VlanId> {
    parse_vlan_name(name).map(|(_, vid)| vid)
}

/// The selection of a port's content. Writing to memory can't fail, so results of `write!` are dropped in this
/// dialect.
fn port_content() -> String {
    format!(
        "<vlan-tagging xmlns=\"{VLANS}\"/><breakout-mode/><ethernet><aggregate-id/></ethernet>\
         <subinterface><index/><type/><description/><vlan xmlns=\"{VLANS}\"><encap/></vlan></subinterface>"
    )
}

fn push_interfaces(filter: &mut String, interfaces: &BTreeSet<&str>, content: &str) {
    for name in interfaces {
        let _ = write!(
            filter,
            "<interface xmlns=\"{INTERFACES}\"><name>{}</name>{content}</interface>",
            escape(name)
        );
    }
}

fn scope(namespace: &str) -> Scope {
    match namespace {
        NETCONF => Scope::Transparent,
        other if other.starts_with(SRLINUX) => Scope::Known,
        _ => Scope::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::{FabricDesired, VlanSet};

    use super::*;
    use crate::plan::test_states::{desired, vid};
    use crate::plan::{Exclusions, PortChange, plan};

    const DEVICE: &str = r#"<data xmlns="urn:ietf:params:xml:ns:netconf:base:1.0">
        <interface xmlns="urn:nokia.com:srlinux:chassis:interfaces"><name>ethernet-1/1</name>
         <vlan-tagging xmlns="urn:nokia.com:srlinux:chassis:interfaces-vlans">true</vlan-tagging>
         <subinterface><index>7</index><type>srl_nokia-interfaces:bridged</type>
          <vlan xmlns="urn:nokia.com:srlinux:chassis:interfaces-vlans"><encap><single-tagged><vlan-id>100</vlan-id>
          </single-tagged></encap></vlan></subinterface>
         <subinterface><index>9</index><type>bridged</type>
          <vlan xmlns="urn:nokia.com:srlinux:chassis:interfaces-vlans"><encap><single-tagged-range><low-vlan-id>
           <range-low-vlan-id>300</range-low-vlan-id><high-vlan-id>309</high-vlan-id></low-vlan-id>
          </single-tagged-range></encap></vlan></subinterface></interface>
        <interface xmlns="urn:nokia.com:srlinux:chassis:interfaces"><name>ethernet-1/2</name>
         <ethernet><aggregate-id>lag1</aggregate-id></ethernet></interface>
        <interface xmlns="urn:nokia.com:srlinux:chassis:interfaces"><name>ethernet-1/3</name>
         <subinterface><index>0</index><type>routed</type></subinterface></interface>
        <network-instance xmlns="urn:nokia.com:srlinux:net-inst:network-instance"><name>blue</name><type>mac-vrf</type>
         <description>B</description><interface><name>ethernet-1/1.7</name></interface>
         <interface><name>ethernet-1/9.3</name></interface></network-instance>
        <network-instance xmlns="urn:nokia.com:srlinux:net-inst:network-instance"><name>red</name><type>x:mac-vrf</type>
         <interface><name>ethernet-1/1.9</name></interface></network-instance></data>"#;

    #[test]
    fn effective_port_state_is_read() {
        let observed = SrLinux.parse(&DEVICE.into(), &Inventory::new()).unwrap();
        assert_eq!(observed.vlans.vids().iter().collect::<Vec<_>>(), [vid(100)]);
        assert_eq!(observed.vlans.name(vid(100)).as_deref(), Some("blue"));
        let port = &observed.ports["ethernet-1/1"];
        assert_eq!(port.tagged().to_string(), "100,300-309");
        assert!(port.taken[&vid(300)].contains("red") && !port.taken.contains_key(&vid(100)));
        assert!(observed.ports["ethernet-1/2"].unfit.as_ref().unwrap().contains("lag1"));
        assert!(observed.ports["ethernet-1/3"].unfit.is_some());
    }

    #[test]
    fn adopted_mac_vrf_keeps_its_interfaces() {
        let observed = SrLinux.parse(&DEVICE.into(), &Inventory::new()).unwrap();
        let changes = Changes { create: [(vid(100), "eno-c1-100".to_owned())].into(), ..Changes::default() };
        assert_eq!(
            SrLinux.render(&observed, &changes).to_string(),
            format!(
                "<network-instance xmlns=\"{NETWORK_INSTANCE}\" nc:operation=\"remove\"><name>blue</name>\
                 </network-instance><network-instance xmlns=\"{NETWORK_INSTANCE}\"><name>eno-c1-100</name>\
                 <type xmlns:srl_nokia-netinst=\"{NETWORK_INSTANCE}\">srl_nokia-netinst:mac-vrf</type>\
                 <description>B</description><interface><name>ethernet-1/1.7</name></interface>\
                 <interface><name>ethernet-1/9.3</name></interface></network-instance>"
            )
        );
    }

    #[test]
    fn error_paths_locate_subinterfaces_and_network_instances() {
        let observed = SrLinux.parse(&DEVICE.into(), &Inventory::new()).unwrap();
        let vids: VlanSet = [vid(100), vid(200)].into_iter().collect();
        let change = PortChange { add: vids, ..PortChange::default() };
        let mut changes = Changes::default();
        changes.ports.insert("ethernet-1/1".into(), change);
        changes.create.insert(vid(200), "eno-c1-200".into());
        let on_port = |id| Some(ChangeUnit::PortVlan("ethernet-1/1".into(), vid(id)));
        for (path, message, expected) in [
            ("/if:interface[if:name='ethernet-1/1']/if:subinterface[if:index='7']/v:vlan", "", on_port(100)),
            ("/if:interface[name='ethernet-1/1']/subinterface[index='200']", "no", on_port(200)),
            ("/ni:network-instance[name='eno-c1-200']", "no", Some(ChangeUnit::Vlan(vid(200)))),
            ("/ni:network-instance[name='eno-c1-200']/interface[name='ethernet-1/1.200']", "", on_port(200)),
            ("", "Subinterface 'ethernet-1/1.200' does not exist.", on_port(200)),
            ("", "network-instance eno-c1-200: too many", Some(ChangeUnit::Vlan(vid(200)))),
            ("", "too many", None),
        ] {
            let path = (!path.is_empty()).then(|| path.to_owned());
            let error = RpcError { path, message: Some(message.into()), ..RpcError::default() };
            assert_eq!(SrLinux.locate_error(&error, &observed, &changes), expected, "{error:?}");
        }
    }

    #[test]
    fn leftovers_of_own_objects_are_removed() {
        let sub = |index: u16, description: &str, vid: u16| {
            format!(
                "<subinterface><index>{index}</index><type>bridged</type><description>{description}</description>\
                 <vlan xmlns=\"{VLANS}\"><encap><single-tagged><vlan-id>{vid}</vlan-id></single-tagged></encap></vlan>\
                 </subinterface>"
            )
        };
        let subs =
            [(100, "eno-c-100", 100), (101, "eno-d-101", 101), (102, "uplink", 102), (103, "eno-c-103", 104)];
        let subs: String = subs.iter().map(|(index, text, vid)| sub(*index, text, *vid)).collect();
        let device = format!(
            "<data xmlns=\"{NETCONF}\"><interface xmlns=\"{INTERFACES}\"><name>ethernet-1/1</name>\
             <vlan-tagging xmlns=\"{VLANS}\">true</vlan-tagging>{subs}</interface></data>"
        );
        let observed = SrLinux.parse(&device.into(), &Inventory::new()).unwrap();
        let changes = |cluster: &str| {
            let desired = FabricDesired { cluster: cluster.into(), ..desired("", &[("ethernet-1/1", "")]) };
            plan(&observed, &desired, &Exclusions::default()).changes
        };
        assert_eq!(
            SrLinux.render(&observed, &changes("c")).to_string(),
            format!(
                "<interface xmlns=\"{INTERFACES}\"><name>ethernet-1/1</name>\
                 <subinterface nc:operation=\"remove\"><index>100</index></subinterface></interface>"
            )
        );
        assert!(changes("e").is_empty());
    }
}
