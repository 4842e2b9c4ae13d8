//! Transactions with VRFs on a device of OpenConfig that follows its model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use eno_driver_netconf::dialect::DIALECTS;
use eno_driver_netconf::hello::Hello;

use eno_driver_netconf::session::{Call, CallError, Session};
use eno_driver_netconf::text::Text;
use eno_driver_netconf::transaction::RunContext;
use eno_driver_netconf::transaction::drift::KnownDeviations;
use eno_driver_netconf::{RpcError, RpcErrors};
use eno_sbi::Reconciled;
use eno_schemas::{Applied, BgpGroup, Drift, FabricDesired, Item};
use futures::future::BoxFuture;

use crate::common::{self, run_first_transaction, vid};
use crate::properties::device::{self, Node};
use crate::properties::routing::{Foreign, Led, OPENCONFIG, desired};

/// A device without a candidate. It refuses edits with a certain text, and does not say why.
struct Device {
    hello: Hello,
    running: Mutex<Vec<Node>>,
    refused: &'static str,
    /// It has no routing policies, and refuses to read them.
    hides_bgp: bool,
}

impl Device {
    fn new(is_router: bool, refused: &'static str) -> Self {
        let modules = ["interfaces", "vlan", "network-instance"];
        let modules =
            modules.map(|module| format!("http://openconfig.net/yang/{module}?revision=2025-01-01"));
        let writable = "urn:ietf:params:netconf:capability:writable-running:1.0".to_owned();
        let (vrfs, interfaces) = (BTreeMap::new(), BTreeSet::new());
        let foreign = Foreign { vrfs, interfaces, is_router, is_flexible: false };
        let running = Mutex::new(Node::read(&(OPENCONFIG.device)(&foreign)));
        Self {
            hello: Hello::new(modules.into_iter().chain([writable]), None),
            running,
            refused,
            hides_bgp: false,
        }
    }

    fn running(&self) -> String {
        device::text(&device::canonical(&self.running.lock().unwrap(), OPENCONFIG.model))
    }

    /// Another hand edits the device.
    fn edit(&self, edit: &str) {
        let mut running = self.running.lock().unwrap();
        *running = device::apply(&running, edit, OPENCONFIG.model);
    }

    fn answer(&self, operation: &str) -> Result<String, RpcErrors> {
        if operation.starts_with("<get") {
            if self.hides_bgp && operation.contains("routing-policy") {
                let message = Some("unknown namespace".to_owned());
                return Err(RpcErrors(vec![RpcError { message, ..RpcError::default() }]));
            }
            return Ok(device::reply(&self.running.lock().unwrap()));
        }
        if let Some((_, edit)) = operation.split_once("<config ") {
            if !self.refused.is_empty() && operation.contains(self.refused) {
                let message = Some("no".to_owned());
                return Err(RpcErrors(vec![RpcError { message, ..RpcError::default() }]));
            }
            let (_, edit) = edit.split_once('>').expect("a configuration");
            let (edit, _) = edit.rsplit_once("</config>").expect("a configuration");
            self.edit(edit);
        }
        Ok("<ok/>".to_owned())
    }

    async fn run(&self, desired: &FabricDesired, known: Option<&KnownDeviations>) -> Reconciled {
        let work = common::work("router1", desired.clone());
        let context = RunContext { known, ..RunContext::default() };
        let ran = run_first_transaction(self, DIALECTS, &work, desired, context, None);
        Box::pin(ran).await.0.expect("it runs")
    }
}

impl Session for Device {
    fn hello(&self) -> &Hello {
        &self.hello
    }

    fn call(&self, operation: Text) -> Call {
        let operation = operation.to_string();
        let name = operation.split(['>', '/']).next().unwrap_or_default().to_owned() + ">";
        let answer = self.answer(&operation).map(Text::from);
        let answer = answer.map_err(|errors| CallError::Refused { operation: name, errors });
        Box::pin(async { answer })
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// VLANs 3 and 5 in VRF `x`, on the first port.
fn two(is_router: bool) -> FabricDesired {
    let led = Led {
        vrf: "x".into(),
        port: 0,
        addresses: [(false, 1)].into(),
        mtu: None,
        routes: [(0, None)].into(),
    };
    let other = Led { routes: BTreeMap::new(), ..led.clone() };
    desired(&[(3, led), (5, other)].into(), &["x".to_owned()].into(), is_router, false)
}

fn none(is_router: bool) -> FabricDesired {
    desired(&BTreeMap::new(), &BTreeSet::new(), is_router, false)
}

/// The reported VRFs, routed VLANs, VLANs, and VLANs on the first port.
fn reported(report: &Reconciled) -> (String, String, String, String) {
    let Some(Applied::Fabric { vrfs, routed, vlans, ports, .. }) = &report.applied else {
        panic!("{report:?}")
    };
    let vrfs: Vec<&str> = vrfs.iter().map(String::as_str).collect();
    let on_port = ports.get("a").map(ToString::to_string).unwrap_or_default();
    (vrfs.join(" "), routed.to_string(), vlans.to_string(), on_port)
}

fn texts(vrfs: &str, routed: &str, vlans: &str, on_port: &str) -> (String, String, String, String) {
    (vrfs.into(), routed.into(), vlans.into(), on_port.into())
}

#[tokio::test]
async fn new_session_removes_what_a_dead_driver_left() {
    for is_router in [true, false] {
        let device = Device::new(is_router, "");
        let start = device.running();
        let report = device.run(&two(is_router), None).await;
        assert_eq!(reported(&report), texts("x", "3,5", "3,5", "3,5"), "{report:?}");
        assert_eq!(report.change.map(|change| change.added), Some(if is_router { 3 } else { 7 }));
        let mut nothing = none(is_router);
        if let Some(applied) = &report.applied {
            nothing = common::with_port_memory(nothing, applied);
        }
        assert_eq!(reported(&device.run(&nothing, None).await), texts("", "", "", ""));
        assert_eq!(device.running(), start);
    }
}

#[tokio::test]
async fn drift_of_a_vrf_is_repaired_or_left() {
    let device = Device::new(true, "");
    let mut desired = two(true);
    device.run(&desired, None).await;
    let made = device.running();
    let without_address = "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>a</name>\
        <subinterfaces><subinterface><index>5</index>\
        <ipv4 xmlns=\"http://openconfig.net/yang/interfaces/ip\" nc:operation=\"remove\"/></subinterface>\
        </subinterfaces></interface></interfaces>";
    device.edit(without_address);
    let known = KnownDeviations::default();
    let report = device.run(&desired, Some(&known)).await;
    let notes: Vec<(Item, &str)> = report
        .notes
        .iter()
        .filter(|note| note.kind == "Drift")
        .map(|note| (note.item.clone(), &*note.message))
        .collect();
    let message = "the interface or a route of VLAN 5 in VRF x changed";
    assert_eq!(notes, [(Item::routed("x", vid(5)), message)]);
    assert_eq!(device.running(), made);

    device.edit(without_address);
    desired.device.drift = Drift::Report;
    let report = device.run(&desired, Some(&known)).await;
    assert_eq!(reported(&report), texts("x", "3", "3,5", "3,5"));
    assert_ne!(device.running(), made);
}

#[tokio::test]
async fn refused_interface_is_rejected_alone() {
    for is_router in [true, false] {
        let device = Device::new(is_router, "192.0.5.1");
        let report = device.run(&two(is_router), None).await;
        assert_eq!(reported(&report).1, "3", "{report:?}");
        let items: Vec<Item> = report.rejected.iter().map(|rejection| rejection.item.clone()).collect();
        assert_eq!(items, [Item::routed("x", vid(5))]);
    }
}

/// The same with two groups in the VRF. Their workers are apart.
fn with_groups() -> FabricDesired {
    let mut desired = two(false);
    let group = |name: &str, worker: &str| BgpGroup {
        owner: format!("BGPSessionGroup/{name}"),
        local_as: 64512,
        peer_as: 64513,
        neighbours: vec![worker.parse().unwrap()],
        dynamic_neighbours: Vec::new(),
        hold_time: 90,
        keepalive_time: 30,
        bfd: None,
        graceful_restart: None,
        password: None,
        maximum_prefixes: None,
        accept: vec!["203.0.113.0/24".parse().unwrap()],
        announce: Vec::new(),
        communities: Vec::new(),
    };
    desired.vrfs[0].bgp = vec![group("one", "192.0.3.11"), group("two", "192.0.3.66")];
    desired
}

fn groups(report: &Reconciled) -> Vec<&str> {
    let Some(Applied::Fabric { bgp, .. }) = &report.applied else { panic!("{report:?}") };
    bgp.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn refused_group_is_rejected_alone() {
    let device = Device::new(false, "192.0.3.66");
    let report = device.run(&with_groups(), None).await;
    assert_eq!(reported(&report), texts("x", "3,5", "3,5", "3,5"), "{report:?}");
    assert_eq!(groups(&report), ["BGPSessionGroup/one"]);
    let [one] = report.rejected.as_slice() else { panic!("{report:?}") };
    let two = Item::bgp("x", "BGPSessionGroup/two");
    assert_eq!(one.item, two);
    assert!(one.reason.starts_with("the device refuses it"), "{}", one.reason);
    assert!(!device.running().contains("eno-c1-two"));
    // What is known to be refused is no drift.
    let known = KnownDeviations::of(&[two]);
    let again = device.run(&with_groups(), Some(&known)).await;
    assert_eq!(groups(&again), ["BGPSessionGroup/one"]);
    assert!(again.notes.iter().all(|note| note.kind != "Drift"), "{again:?}");
}

#[tokio::test]
async fn device_without_bgp_has_vrfs_all_the_same() {
    let device = Device { hides_bgp: true, ..Device::new(false, "") };
    let report = device.run(&with_groups(), None).await;
    assert_eq!(reported(&report), texts("x", "3,5", "3,5", "3,5"), "{report:?}");
    assert_eq!((groups(&report).len(), report.rejected.len()), (0, 2));
    assert_eq!(report.rejected[0].item, Item::bgp("x", "BGPSessionGroup/one"));
    let reason = "the device does not show its BGP: ";
    assert!(report.rejected[0].reason.starts_with(reason), "{report:?}");
    let report = device.run(&two(false), None).await;
    assert_eq!((report.rejected, report.change), (vec![], None));
}

#[tokio::test]
async fn drift_of_a_group_is_left_where_it_is_only_reported() {
    let device = Device::new(false, "");
    let mut desired = with_groups();
    desired.device.drift = Drift::Report;
    let first = device.run(&desired, None).await;
    assert_eq!(groups(&first), ["BGPSessionGroup/one", "BGPSessionGroup/two"]);
    device.edit(
        "<routing-policy xmlns=\"http://openconfig.net/yang/routing-policy\"><policy-definitions><policy-definition \
         nc:operation=\"remove\"><name>eno-c1-two-import</name></policy-definition></policy-definitions></routing-policy>",
    );
    let changed = device.running();
    let desired = common::with_port_memory(desired, &first.applied.expect("a state"));
    let report = device.run(&desired, Some(&KnownDeviations::default())).await;
    assert_eq!((groups(&report), device.running()), (vec!["BGPSessionGroup/one"], changed));
    let drift: Vec<&str> =
        report.notes.iter().filter(|note| note.kind == "Drift").map(|note| &*note.message).collect();
    assert_eq!(drift, ["the BGP group eno-c1-two changed"]);
}

#[tokio::test]
async fn refused_vrf_is_no_drift_of_its_vlans() {
    let device = Device::new(true, "L3VRF");
    let first = device.run(&two(true), None).await;
    let items: Vec<Item> = first.rejected.iter().map(|rejection| rejection.item.clone()).collect();
    assert_eq!(items, [Item::vrf("x")]);
    let second = device.run(&two(true), Some(&KnownDeviations::of(&items))).await;
    assert_eq!((second.rejected, second.notes), (first.rejected, first.notes));
}
