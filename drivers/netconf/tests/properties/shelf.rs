//! A dialect of an invented model, which no list of the driver names: a driver that gets it configures such devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;

use eno_driver_netconf::dialect::{Dialect, Dialects, ParseError};
use eno_driver_netconf::driver::{NetconfDriver, Options};
use eno_driver_netconf::hello::Hello;
use eno_driver_netconf::plan::{
    ChangeUnit, Changes, InterfaceState, Inventory, Layout, Mode, ModeChange, ObservedConfig, ObservedPort,
    ObservedVlan, Setting,
};
use eno_driver_netconf::session::{Call, CallError, Session};
use eno_driver_netconf::text::Text;
use eno_driver_netconf::transaction::RunContext;
use eno_driver_netconf::{RpcError, RpcErrors};
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::{FabricDesired, FabricVlans, Item, VlanId};
use futures::future::BoxFuture;
use proptest::prelude::*;
use quick_xml::escape::escape;

use crate::common::{self, applied_vlans, items, run_transaction, with_port_memory};
use crate::properties::device::{self, Model, Node};
use crate::properties::{DialectUnderTest, VIDS, Vlans, any_ports, any_vlans, name_of};

/// The dialects of a driver for such devices.
const DIALECTS: Dialects = &[&Shelf];

/// The namespace of the model.
const SHELF: &str = "urn:example:shelf";

/// VLANs and ports of one shelf, which every edit has to name by its slot. The device refuses a tagged port without
/// VLANs.
struct Shelf;

/// The slot of the shelf.
struct Slot(String);

impl Dialect for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn score(&self, hello: &Hello) -> u32 {
        u32::from(hello.has_module(SHELF))
    }

    fn inventory_filter(&self, _: &BTreeSet<&str>) -> String {
        format!("<shelf xmlns=\"{SHELF}\"/>")
    }

    fn parse_inventory(&self, reply: &Text) -> Result<Inventory, ParseError> {
        let ports = self.parse(reply, &Inventory::new())?.ports;
        Ok(ports.into_keys().map(|name| (name, InterfaceState::default())).collect())
    }

    fn filter(&self, interfaces: &BTreeSet<&str>) -> String {
        self.inventory_filter(interfaces)
    }

    fn filter_interface(&self, _: &str) -> Option<String> {
        None
    }

    fn parse(&self, reply: &Text, _: &Inventory) -> Result<ObservedConfig, ParseError> {
        let mut observed = ObservedConfig { empty_opens: true, ..ObservedConfig::default() };
        let reply = Node::read(&reply.to_string());
        let shelf = reply[0].child("data").and_then(|data| data.child("shelf"));
        for node in shelf.map_or(&[][..], |shelf| &shelf.children) {
            match node.name.as_str() {
                "slot" => observed.layout = Layout::new(Slot(node.text.clone())),
                "vlan" => observed.vlans.insert(vid(node)?, vlan(node)),
                "port" => drop(observed.ports.insert(leaf(node, "id").unwrap_or_default(), port(node)?)),
                _ => {}
            }
        }
        Ok(observed)
    }

    fn render(&self, observed: &ObservedConfig, changes: &Changes) -> Text {
        let Slot(slot) = observed.layout.get().expect("the layout of this dialect");
        let mut xml = format!("<shelf xmlns=\"{SHELF}\"><slot>{slot}</slot>");
        for (vid, name) in &changes.create {
            let label = escape(name.as_str());
            let off = "<off nc:operation=\"remove\"/>";
            write!(xml, "<vlan><vid>{vid}</vid><label>{label}</label>{off}</vlan>").unwrap();
        }
        for vid in changes.delete.iter() {
            write!(xml, "<vlan nc:operation=\"delete\"><vid>{vid}</vid></vlan>").unwrap();
        }
        for (id, change) in &changes.ports {
            let mut leaves: BTreeMap<&str, Option<&str>> =
                change.restore.iter().map(|(leaf, value)| (*leaf, value.as_deref())).collect();
            match change.mode {
                ModeChange::Keep => {}
                ModeChange::Trunk => leaves.extend([("role", Some("tagged")), ("plain", None)]),
                ModeChange::Drop => leaves.extend([("role", None)]),
            }
            write!(xml, "<port><id>{id}</id>").unwrap();
            for (leaf, value) in leaves {
                match value {
                    Some(value) => write!(xml, "<{leaf}>{value}</{leaf}>").unwrap(),
                    None => write!(xml, "<{leaf} nc:operation=\"remove\"/>").unwrap(),
                }
            }
            for vid in change.remove.iter() {
                write!(xml, "<vid nc:operation=\"delete\">{vid}</vid>").unwrap();
            }
            for vid in change.add.iter() {
                write!(xml, "<vid>{vid}</vid>").unwrap();
            }
            xml.push_str("</port>");
        }
        (xml + "</shelf>").into()
    }

    fn locate_error(&self, error: &RpcError, _: &ObservedConfig, _: &Changes) -> Option<ChangeUnit> {
        Some(ChangeUnit::Vlan(error.info("vid")?.parse().ok()?))
    }
}

fn leaf(node: &Node, name: &str) -> Option<String> {
    node.child(name).map(|leaf| leaf.text.clone())
}

/// The VID of a `vid` leaf, or in one.
fn vid(node: &Node) -> Result<VlanId, ParseError> {
    let value = if node.name == "vid" { node.text.clone() } else { leaf(node, "vid").unwrap_or_default() };
    value.parse().map_err(|_| ParseError::Leaf { path: "shelf/vlan/vid".into(), value })
}

fn vlan(node: &Node) -> ObservedVlan {
    ObservedVlan { name: leaf(node, "label"), active: node.child("off").is_none(), rename_blocker: None }
}

fn port(node: &Node) -> Result<ObservedPort, ParseError> {
    let (role, plain) = (leaf(node, "role"), leaf(node, "plain"));
    let tagged = node.children.iter().filter(|child| child.name == "vid");
    let tagged: Vec<VlanId> = tagged.map(vid).collect::<Result<_, _>>()?;
    let mode = role.as_deref().map(|role| if role == "tagged" { Mode::Trunk } else { Mode::Access });
    Ok(ObservedPort {
        configured: true,
        mode,
        tagged: tagged.into_iter().map(|vid| (vid, vid)).collect(),
        access: plain.as_deref().and_then(|vid| vid.parse().ok()),
        settings: [
            ("role", Setting::of(role.as_deref(), mode != Some(Mode::Access))),
            ("plain", Setting::of(plain.as_deref(), plain.is_none())),
        ]
        .into(),
        ..ObservedPort::default()
    })
}

const MODEL: Model = Model {
    lists: &[("shelf", &["slot"]), ("vlan", &["vid"]), ("port", &["id"])],
    leaf_lists: &["port/vid"],
    choices: &[],
    presence: &["off", "label"],
    ranges: &[],
};

/// The role of a port: a trunk with a list of VLANs, or an access port.
#[derive(Clone, Debug)]
enum Role {
    Tagged(BTreeSet<u16>),
    Untagged(u16),
}

fn shelf(vlans: &Vlans, ports: &BTreeMap<String, Option<Role>>) -> Vec<Node> {
    let mut xml = format!("<shelf xmlns=\"{SHELF}\"><slot>7</slot><rack>3</rack>");
    for (vid, (owner, active)) in vlans {
        let name = name_of(*owner, *vid).map(|name| format!("<label>{}</label>", escape(name.as_str())));
        let (label, off) = (name.unwrap_or_default(), if *active { "" } else { "<off/>" });
        write!(xml, "<vlan><vid>{vid}</vid>{label}{off}<mtu>9000</mtu></vlan>").unwrap();
    }
    for (id, role) in ports {
        write!(xml, "<port><id>{id}</id><speed>100</speed>").unwrap();
        match role {
            None => {}
            Some(Role::Untagged(vid)) => {
                write!(xml, "<role>untagged</role><plain>{vid}</plain>").unwrap();
            }
            Some(Role::Tagged(vids)) => {
                xml.push_str("<role>tagged</role>");
                for vid in vids {
                    write!(xml, "<vid>{vid}</vid>").unwrap();
                }
            }
        }
        xml.push_str("</port>");
    }
    Node::read(&(xml + "</shelf>"))
}

fn any_port() -> impl Strategy<Value = Option<Role>> {
    prop_oneof![
        1 => Just(None),
        1 => VIDS.prop_map(|vid| Some(Role::Untagged(vid))),
        3 => prop::collection::btree_set(VIDS, 1..12).prop_map(|vids| Some(Role::Tagged(vids))),
    ]
}

#[test]
fn apply_converges_and_preserves_foreign_config() {
    let devices = (any_vlans(0..4, 0..16), any_ports(any_port()));
    DialectUnderTest::new(&Shelf, &MODEL).check_apply(devices, |(vlans, ports)| shelf(vlans, ports));
}

#[test]
fn removal_restores_the_initial_config() {
    let devices = (any_vlans(1..4, 0..10), any_ports(any_port()));
    DialectUnderTest::new(&Shelf, &MODEL).check_removal(devices, |(vlans, ports)| shelf(vlans, ports));
}

/// A device of this model without a candidate. It refuses VLAN 13.
struct Device {
    hello: Hello,
    running: Mutex<Vec<Node>>,
}

impl Device {
    fn new(running: Vec<Node>) -> Self {
        let writable = "urn:ietf:params:netconf:capability:writable-running:1.0";
        let hello = Hello::new([writable, SHELF].map(str::to_owned), None);
        Self { hello, running: Mutex::new(running) }
    }

    fn running(&self) -> String {
        device::text(&device::canonical(&self.running.lock().unwrap(), &MODEL))
    }

    fn answer(&self, request: &Node) -> Result<String, RpcErrors> {
        let mut running = self.running.lock().unwrap();
        match request.name.as_str() {
            "get-config" => return Ok(device::reply(&running)),
            "edit-config" => {
                let config = &request.child("config").expect("a configuration").children;
                if config[0].children.iter().any(|vlan| leaf(vlan, "vid").as_deref() == Some("13")) {
                    let info = vec![("vid".to_owned(), "13".to_owned())];
                    return Err(RpcErrors(vec![RpcError { info, ..RpcError::default() }]));
                }
                Node::apply(&mut running, config, "", &MODEL);
            }
            "lock" | "unlock" => {}
            other => panic!("<{other}>"),
        }
        Ok("<ok/>".to_owned())
    }

    async fn run(&self, desired: &FabricDesired) -> Reconciled {
        let work = common::work("shelf1", desired.clone());
        run_transaction(self, DIALECTS, &work, desired, RunContext::default()).await.0.expect("it runs")
    }
}

impl Session for Device {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn call(&self, operation: Text) -> Call {
        let request =
            Node::read(&format!("<rpc xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\">{operation}</rpc>"));
        let request = &request[0].children[0];
        let answer = self.answer(request);
        let operation = format!("<{}>", request.name);
        let answer = answer.map(Text::from).map_err(|errors| CallError::Refused { operation, errors });
        Box::pin(async { answer })
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn transaction_configures_and_restores_a_device() {
    let ports =
        [("a".to_owned(), Some(Role::Untagged(9))), ("b".to_owned(), Some(Role::Tagged([50].into())))];
    let device = Device::new(shelf(&[(9, (2, true)), (50, (3, true))].into(), &ports.into()));
    let start = device.running();
    let mut desired =
        common::desired(eno_schemas::Device::new(""), "10-13", &[("a", "10-11"), ("b", "12-13")]);
    desired.ports.iter_mut().for_each(|port| port.mode = eno_schemas::PortMode::Trunk);
    let report = device.run(&desired).await;
    let (vlans, on_ports) = applied_vlans(&report);
    assert_eq!((vlans.as_str(), on_ports["a"].as_str(), on_ports["b"].as_str()), ("10-12", "10-11", "12"));
    assert_eq!(items(&report), [Item::vlan(common::vid(13))].into());

    let mut none = FabricDesired { vlans: FabricVlans::new(), ..desired };
    none.ports.iter_mut().for_each(|port| port.vlans = common::set(""));
    let none = with_port_memory(none, report.applied.as_ref().expect("an applied state"));
    assert_eq!(applied_vlans(&device.run(&none).await).0, "");
    assert_eq!(device.running(), start);
}

#[test]
fn driver_announces_the_dialects_that_it_gets() {
    let options = common::options(std::path::Path::new("/nowhere"));
    let driver = NetconfDriver::new(Options { dialects: DIALECTS, ..options });
    assert_eq!(
        driver.identity().capabilities,
        ["bgp", "dynamicNeighbours", "hold", "lookups", "vrfs", "dialect:shelf"]
    );
}
