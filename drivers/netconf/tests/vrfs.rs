//! VRFs and routed VLANs of each dialect that has them, on a simulated router and on a simulated switch.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use eno_driver_netconf::driver::NetconfDriver;
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::{
    Applied, Decision, DeviceRole, FabricDesired, FabricVlan, FabricVrf, Item, Outcome, PortMode,
    RoutedInterface, VrfRoute,
};
use eno_simulator::{
    Capabilities, ConfirmedCommit, Role, RouteView, RoutedView, SwitchSpec, Topology, VrfView,
};
use futures::{FutureExt as _, StreamExt as _};
use ipnet::IpNet;

use crate::common::{Bench, Part, items, rolled_back, vid, with_new_port_memory, work};

pub const NETCONF: &str = "urn:ietf:params:xml:ns:netconf:base:1.0";
pub const DEVICE: &str = "gw";
pub const VRF: &str = "blue";
const VLAN: u16 = 100;
const ROLES: [DeviceRole; 2] = [DeviceRole::Router, DeviceRole::Switch];
/// An AS number of four bytes, which Junos writes in its own way.
const DISTINGUISHER: &str = "4200000000:1";
const TARGET: &str = "4200000000:7";

/// The differences between dialects.
#[derive(Clone, Copy)]
pub struct Subject {
    pub dialect: &'static str,
    /// The first port.
    port: &'static str,
    /// The name of the interface beside the VLAN.
    irb: &'static str,
    /// The edit by which somebody takes the IPv4 addresses of the interface away, on a router and on a switch.
    without_addresses: [&'static str; 2],
    /// Configuration of others.
    configuration: Option<&'static str>,
}

pub const OPENCONFIG: Subject = Subject {
    dialect: "openconfig",
    port: "Ethernet1",
    irb: "Vlan100",
    without_addresses: [
        "<interfaces xmlns='http://openconfig.net/yang/interfaces'><interface><name>Ethernet1</name><subinterfaces>\
         <subinterface><index>100</index><ipv4 xmlns='http://openconfig.net/yang/interfaces/ip' nc:operation='remove'/>\
         </subinterface></subinterfaces></interface></interfaces>",
        "<interfaces xmlns='http://openconfig.net/yang/interfaces'><interface><name>Vlan100</name>\
         <routed-vlan xmlns='http://openconfig.net/yang/vlan'>\
         <ipv4 xmlns='http://openconfig.net/yang/interfaces/ip' nc:operation='remove'/></routed-vlan></interface>\
         </interfaces>",
    ],
    configuration: None,
};
pub const JUNOS: Subject = Subject {
    dialect: "junos",
    port: "xe-0/0/1",
    irb: "irb.100",
    without_addresses: [
        "<configuration xmlns='http://yang.juniper.net/junos-qfx/conf/root'>\
         <interfaces xmlns='http://yang.juniper.net/junos-qfx/conf/interfaces'><interface><name>xe-0/0/1</name><unit>\
         <name>100</name><family><inet nc:operation='delete'/></family></unit></interface></interfaces></configuration>",
        "<configuration xmlns='http://yang.juniper.net/junos-qfx/conf/root'>\
         <interfaces xmlns='http://yang.juniper.net/junos-qfx/conf/interfaces'><interface><name>irb</name><unit>\
         <name>100</name><family><inet nc:operation='delete'/></family></unit></interface></interfaces></configuration>",
    ],
    // An interface without configuration would lose its entry with our last unit.
    configuration: Some(
        "<configuration xmlns='http://yang.juniper.net/junos-qfx/conf/root'>\
         <interfaces xmlns='http://yang.juniper.net/junos-qfx/conf/interfaces'><interface><name>xe-0/0/1</name>\
         <description>mine</description></interface></interfaces></configuration>",
    ),
};
pub const SRLINUX: Subject = Subject {
    dialect: "srlinux",
    port: "ethernet-1/1",
    irb: "irb1.100",
    without_addresses: [
        "<interface xmlns='urn:nokia.com:srlinux:chassis:interfaces'><name>ethernet-1/1</name><subinterface>\
         <index>100</index><ipv4 nc:operation='remove'/></subinterface></interface>",
        "<interface xmlns='urn:nokia.com:srlinux:chassis:interfaces'><name>irb1</name><subinterface>\
         <index>100</index><ipv4 nc:operation='remove'/></subinterface></interface>",
    ],
    configuration: None,
};

fn net(text: &str) -> IpNet {
    text.parse().expect("a network")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A VRF with a distinguisher and a target.
fn vrf(distinguisher: &str) -> FabricVrf {
    FabricVrf {
        name: VRF.into(),
        owner: format!("VRF/{VRF}"),
        route_distinguisher: Some(distinguisher.into()),
        import_targets: vec![TARGET.into()],
        export_targets: vec![TARGET.into()],
        bgp: Vec::new(),
    }
}

/// The VLAN in the VRF, with this IPv4 address and an IPv6 address, and a route of each family.
fn routed(v4: &str) -> RoutedInterface {
    let route = |prefix, next_hop, preference| VrfRoute {
        prefix: net(prefix),
        next_hop: address(next_hop),
        preference,
    };
    RoutedInterface {
        vrf: VRF.into(),
        owner: "VRFAttachment/a".into(),
        addresses: vec![net(v4), net("2001:db8::1/64")],
        mtu: Some(1400),
        routes: vec![
            route("10.9.0.0/16", "192.0.2.9", Some(7)),
            route("2001:db8:9::/48", "2001:db8::9", None),
        ],
    }
}

impl Subject {
    /// A device of this role. Without `candidate` only running can be written.
    async fn bench(self, role: DeviceRole, candidate: bool) -> Bench {
        let running_only = |capabilities: &mut Capabilities| {
            if !candidate {
                (capabilities.candidate, capabilities.writable_running) = (false, true);
                capabilities.confirmed_commit = ConfirmedCommit::None;
            }
        };
        self.bench_with(role, running_only).await
    }

    pub async fn bench_with(self, role: DeviceRole, set: impl FnOnce(&mut Capabilities)) -> Bench {
        let mut spec = SwitchSpec::new(DEVICE, vec![self.port.to_owned()]);
        self.dialect.clone_into(&mut spec.dialect);
        spec.configuration = self.configuration.map(str::to_owned);
        spec.role = if role == DeviceRole::Router { Role::Router } else { Role::Switch };
        set(&mut spec.capabilities);
        Bench::with(&Topology { switches: vec![spec], ..Topology::default() }).await
    }

    /// The desired state without a VRF.
    pub fn nothing(self, bench: &Bench, role: DeviceRole) -> FabricDesired {
        let mut desired = bench.desired_ports(DEVICE, "", &[(self.port, "")]);
        desired.device.role = role;
        desired.ports[0].mode = PortMode::Trunk;
        desired
    }

    /// The desired state with the VLAN in the VRF.
    pub fn desired(self, bench: &Bench, role: DeviceRole, v4: &str) -> FabricDesired {
        let mut desired = self.nothing(bench, role);
        desired.ports[0].vlans = [vid(VLAN)].into_iter().collect();
        let vlan = FabricVlan { routed: Some(Arc::new(routed(v4))), ..FabricVlan::new(vid(VLAN), vec![]) };
        desired.vlans = [vlan].into_iter().collect();
        desired.vrfs = vec![vrf(DISTINGUISHER)];
        desired
    }

    /// The device's own view of the VRF in that state.
    fn view(self, role: DeviceRole, v4: &str) -> VrfView {
        let is_router = role == DeviceRole::Router;
        let (name, port) = if is_router {
            (format!("{}.{VLAN}", self.port), Some(self.port.to_owned()))
        } else {
            (self.irb.to_owned(), None)
        };
        let interface = RoutedView {
            port,
            vlan: Some(VLAN),
            description: Some(format!("eno-test-{VLAN}")),
            addresses: vec![net(v4), net("2001:db8::1/64")],
            mtu: Some(1400),
            disabled: false,
        };
        let route = |prefix, next_hop, preference| RouteView {
            prefix: net(prefix),
            next_hop: address(next_hop),
            preference,
        };
        VrfView {
            description: Some(format!("eno-test {VRF}")),
            route_distinguisher: Some(DISTINGUISHER.into()),
            import_targets: vec![TARGET.into()],
            export_targets: vec![TARGET.into()],
            exports: ["connected".to_owned(), "static".to_owned()].into(),
            interfaces: [(name, interface)].into(),
            routes: vec![
                route("10.9.0.0/16", "192.0.2.9", Some(7)),
                route("2001:db8:9::/48", "2001:db8::9", None),
            ],
        }
    }
}

fn seen(bench: &Bench) -> Option<VrfView> {
    bench.switch(DEVICE).view().vrfs.remove(VRF)
}

pub fn running(bench: &Bench) -> String {
    bench.switch(DEVICE).running_xml()
}

/// The reported VRFs, routed VLANs and VLANs on the first port.
fn reported(reconciled: &Reconciled) -> (String, String, String) {
    let Some(Applied::Fabric { vrfs, routed, ports, .. }) = &reconciled.applied else {
        panic!("{reconciled:?}")
    };
    let vrfs: Vec<&str> = vrfs.iter().map(String::as_str).collect();
    let on_port = ports.values().next().map(ToString::to_string).unwrap_or_default();
    (vrfs.join(" "), routed.to_string(), on_port)
}

/// Checks that the VRF and the VLAN are reported as desired.
#[track_caller]
fn assert_made(reconciled: &Reconciled) {
    assert_eq!(reconciled.rejected, []);
    let expected = (VRF.to_owned(), VLAN.to_string(), VLAN.to_string());
    assert_eq!(reported(reconciled), expected, "{reconciled:?}");
}

async fn vrf_is_made_changed_repaired_and_removed(subject: Subject) {
    for (role, candidate) in ROLES.into_iter().flat_map(|role| [(role, true), (role, false)]) {
        let mut bench = subject.bench(role, candidate).await;
        let before = running(&bench);
        let desired = subject.desired(&bench, role, "192.0.2.1/24");
        let made = bench.reconcile(DEVICE, desired.clone()).await;
        assert_made(&made);
        assert_eq!(seen(&bench), Some(subject.view(role, "192.0.2.1/24")));
        let is_switched = bench.switch(DEVICE).view().vlans.contains_key(&VLAN);
        assert_eq!(is_switched, role == DeviceRole::Switch);

        let again = bench.reconcile(DEVICE, with_new_port_memory(&desired, &made)).await;
        assert_made(&again);
        assert_eq!(again.change, None);

        let mut desired = with_new_port_memory(&subject.desired(&bench, role, "192.0.2.2/24"), &again);
        let changed = bench.reconcile(DEVICE, desired.clone()).await;
        assert_made(&changed);
        assert_eq!(seen(&bench), Some(subject.view(role, "192.0.2.2/24")));

        desired = with_new_port_memory(&desired, &changed);
        let mut notified = Box::pin(bench.driver.changed());
        let edit = subject.without_addresses[usize::from(role == DeviceRole::Switch)];
        let edit = edit.replace("nc:operation", &format!("xmlns:nc='{NETCONF}' nc:operation"));
        bench.switch(DEVICE).edit_xml_by_hand(&edit).expect("an edit");
        let change = tokio::time::timeout(Duration::from_secs(10), notified.next()).await;
        assert_eq!(change.expect("a notification").as_deref(), Some(DEVICE));
        drop(notified);
        let repaired = bench.reconcile(DEVICE, desired.clone()).await;
        assert_made(&repaired);
        let drift: Vec<&Item> =
            repaired.notes.iter().filter(|note| note.kind == "Drift").map(|note| &note.item).collect();
        assert_eq!(drift, [&Item::routed(VRF, vid(VLAN))]);
        assert_eq!(seen(&bench), Some(subject.view(role, "192.0.2.2/24")));

        // A new process knows only the command.
        bench.restart_driver();
        let nothing = with_new_port_memory(&subject.nothing(&bench, role), &repaired);
        let gone = bench.reconcile(DEVICE, nothing).await;
        assert_eq!((gone.rejected.as_slice(), reported(&gone).0), (&[][..], String::new()), "{gone:?}");
        assert_eq!(running(&bench), before, "{role:?}, candidate: {candidate}");
    }
}

async fn change_is_held_and_taken_back(subject: Subject) {
    for role in ROLES {
        let bench = subject.bench(role, true).await;
        let before = running(&bench);
        let part = Part::new(DEVICE, subject.desired(&bench, role, "192.0.2.1/24"), Duration::from_mins(5));
        let deciding = async |held: Reconciled| {
            assert_eq!((&held.outcome, held.rejected.len()), (&Outcome::Held, 0), "{held:?}");
            assert_eq!(seen(&bench), Some(subject.view(role, "192.0.2.1/24")));
            part.decide(Decision::Abort);
        };
        let ended = part.hold(&bench.driver, deciding).await;
        rolled_back(&ended);
        assert_eq!(running(&bench), before);
    }
}

/// The VRF is of another cluster, and so of others.
async fn foreign_vrf_is_used_kept_and_adopted(subject: Subject) {
    for role in ROLES {
        let bench = subject.bench(role, true).await;
        let mut theirs = subject.nothing(&bench, role);
        theirs.cluster = "other".into();
        theirs.vrfs = vec![vrf(DISTINGUISHER)];
        let other = NetconfDriver::new(crate::common::options(bench.credentials.path()));
        let made = other.reconcile(work(DEVICE, theirs)).await;
        assert_eq!((reported(&made).0.as_str(), &made.rejected), (VRF, &vec![]), "{made:?}");
        let before = running(&bench);

        let desired = subject.desired(&bench, role, "192.0.2.1/24");
        let made = bench.reconcile(DEVICE, desired.clone()).await;
        assert_made(&made);
        let view =
            VrfView { description: Some(format!("eno-other {VRF}")), ..subject.view(role, "192.0.2.1/24") };
        assert_eq!(seen(&bench), Some(view));
        let nothing = with_new_port_memory(&subject.nothing(&bench, role), &made);
        let gone = bench.reconcile(DEVICE, nothing).await;
        assert_eq!(running(&bench), before);

        let mut desired = with_new_port_memory(&desired, &gone);
        desired.vrfs = vec![vrf("65000:2")];
        let refused = bench.reconcile(DEVICE, desired.clone()).await;
        assert_eq!(items(&refused), [Item::vrf(VRF)].into(), "{:?}", refused.rejected);
        let reason = &refused.rejected[0].reason;
        assert!(reason.contains("distinguisher 4200000000:1 instead of 65000:2"), "{reason}");
        assert!(reason.contains("AdoptVRFs"), "{reason}");
        let with_interface = seen(&bench).is_some_and(|vrf| !vrf.interfaces.is_empty());
        assert!(!with_interface, "a refused VRF gets no interface");

        desired = with_new_port_memory(&desired, &refused);
        desired.device.adopt_vrfs = vec![VRF.into()];
        assert_made(&bench.reconcile(DEVICE, desired).await);
        let adopted = seen(&bench).expect("the VRF");
        assert_eq!(
            (adopted.description.as_deref(), adopted.route_distinguisher.as_deref()),
            (Some("eno-test blue"), Some("65000:2"))
        );
    }
}

/// The sub-interface is of another cluster, and so of others.
async fn foreign_sub_interface_is_refused_and_kept(subject: Subject) {
    let role = DeviceRole::Router;
    let bench = subject.bench(role, true).await;
    let mut theirs = subject.desired(&bench, role, "192.0.2.3/24");
    theirs.cluster = "other".into();
    let other = NetconfDriver::new(crate::common::options(bench.credentials.path()));
    assert_made(&other.reconcile(work(DEVICE, theirs)).await);
    let before = running(&bench);
    let refused = bench.reconcile(DEVICE, subject.desired(&bench, role, "192.0.2.1/24")).await;
    assert_eq!(items(&refused), [Item::routed(VRF, vid(VLAN))].into(), "{:?}", refused.rejected);
    let reason = &refused.rejected[0].reason;
    assert!(reason.contains("192.0.2.3/24") && reason.contains("is not ours"), "{reason}");
    assert_eq!(running(&bench), before);
}

/// What was made in the former role goes.
async fn role_of_the_device_changes(subject: Subject) {
    let bench = subject.bench(DeviceRole::Router, true).await;
    let before = running(&bench);
    let mut last: Option<Reconciled> = None;
    for role in [DeviceRole::Router, DeviceRole::Switch, DeviceRole::Router] {
        let mut made = last;
        loop {
            let mut desired = subject.desired(&bench, role, "192.0.2.1/24");
            if let Some(made) = &made {
                desired = with_new_port_memory(&desired, made);
            }
            let next = made.insert(bench.reconcile(DEVICE, desired).await);
            if !next.wants_retry() {
                break;
            }
        }
        assert_made(made.as_ref().expect("a report"));
        assert_eq!(seen(&bench), Some(subject.view(role, "192.0.2.1/24")));
        last = made;
    }
    let nothing = subject.nothing(&bench, DeviceRole::Router);
    bench.reconcile(DEVICE, with_new_port_memory(&nothing, &last.expect("a report"))).await;
    assert_eq!(running(&bench), before);
}

/// A session that began before the first VRF is followed by one that is notified of VRFs.
async fn change_of_the_first_vrf_is_notified(subject: Subject) {
    let role = DeviceRole::Switch;
    let bench = subject
        .bench_with(role, |capabilities| (capabilities.notifications, capabilities.yang_push) = (false, true))
        .await;
    let nothing = bench.settle(DEVICE, &subject.nothing(&bench, role)).await;
    let desired = with_new_port_memory(&subject.desired(&bench, role, "192.0.2.1/24"), &nothing);
    let made = bench.settle(DEVICE, &desired).await;
    assert_made(&made);
    assert_made(&bench.settle(DEVICE, &with_new_port_memory(&desired, &made)).await);
    let mut notified = Box::pin(bench.driver.changed());
    // The device notifies of changes of the driver itself too.
    while notified.next().now_or_never().is_some() {}
    let edit =
        subject.without_addresses[1].replace("nc:operation", &format!("xmlns:nc='{NETCONF}' nc:operation"));
    bench.switch(DEVICE).edit_xml_by_hand(&edit).expect("an edit");
    let change = tokio::time::timeout(Duration::from_secs(10), notified.next()).await;
    assert_eq!(change.expect("a notification").as_deref(), Some(DEVICE));
}

/// Two clusters with one identifier end with the interfaces of both.
async fn cluster_id_clash_is_detected_on_a_router(subject: Subject) {
    let role = DeviceRole::Router;
    let bench = subject.bench(role, true).await;
    let ours = subject.desired(&bench, role, "192.0.2.1/24");
    let mut theirs = subject.desired(&bench, role, "192.0.2.1/24");
    let routed = RoutedInterface {
        addresses: vec![net("198.51.100.1/24")],
        routes: Vec::new(),
        ..routed("198.51.100.1/24")
    };
    let vlan = FabricVlan { routed: Some(Arc::new(routed)), ..FabricVlan::new(vid(VLAN + 1), vec![]) };
    theirs.vlans = [vlan].into_iter().collect();
    theirs.ports[0].vlans = [vid(VLAN + 1)].into_iter().collect();
    let other = NetconfDriver::new(crate::common::options(bench.credentials.path()));
    let clash = |reconciled: &Reconciled| -> Vec<Item> {
        let notes = reconciled.notes.iter().filter(|note| note.kind == "ClusterIDClash");
        notes.map(|note| note.item.clone()).collect()
    };
    let mut found = (Vec::new(), Vec::new());
    for _ in 0..4 {
        found.1 = clash(&other.reconcile(work(DEVICE, theirs.clone())).await);
        found.0 = clash(&bench.settle(DEVICE, &ours).await);
    }
    assert_eq!(found, (vec![Item::vlan(vid(VLAN + 1))], vec![Item::vlan(vid(VLAN))]));
    assert_eq!(seen(&bench).expect("the VRF").interfaces.len(), 2);
}

macro_rules! subjects {
    ($($name:ident = $subject:expr;)*) => {$(
        subjects! { @tests $name, $subject;
            vrf_is_made_changed_repaired_and_removed, change_is_held_and_taken_back,
            foreign_vrf_is_used_kept_and_adopted, foreign_sub_interface_is_refused_and_kept,
            role_of_the_device_changes, change_of_the_first_vrf_is_notified, cluster_id_clash_is_detected_on_a_router
        }
    )*};
    (@tests $name:ident, $subject:expr; $($test:ident),*) => {
        mod $name {
            $(#[tokio::test]
            async fn $test() {
                super::$test($subject).await;
            })*
        }
    };
}

subjects! {
    openconfig = super::OPENCONFIG;
    junos = super::JUNOS;
    srlinux = super::SRLINUX;
}

#[tokio::test]
async fn dialects_without_vrfs_refuse_them_and_do_the_rest() {
    for (dialect, named, port) in
        [("ieee8021q", "ieee8021q", "eth1"), ("nxos", "nxos-experimental", "eth1/1")]
    {
        let subject = Subject { dialect, port, ..OPENCONFIG };
        let bench = subject.bench(DeviceRole::Switch, true).await;
        let desired = subject.desired(&bench, DeviceRole::Switch, "192.0.2.1/24");
        let made = bench.reconcile(DEVICE, desired).await;
        assert_eq!(items(&made), [Item::vrf(VRF), Item::routed(VRF, vid(VLAN))].into());
        let reason = format!("ENO knows no VRFs of devices with the dialect {named}");
        assert!(made.rejected.iter().all(|rejection| *rejection.reason == *reason), "{:?}", made.rejected);
        assert_eq!(reported(&made), (String::new(), String::new(), VLAN.to_string()));
    }
}
