//! L2Services that are led into VRFs on a router.

use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, Phase, Subnet, VRF, VRFAttachment};
use eno_simulator::{View, VrfView};
use eno_tests::{Ports, Receiver, System, access, object, service, subnet, with_shared_sandbox};

use crate::e2e::create_namespace_and_point;

/// The router of the sandbox, the port of the leaf that leads to it, and its own port.
const ROUTER: &str = "gw1";
const LEAF_PORT: (&str, &str) = ("leaf2", "Ethernet47");
const ROUTER_PORT: (&str, &str) = (ROUTER, "Ethernet1");

/// A VRF on the router with this number in its distinguisher and targets; `more` is the rest of its spec.
fn vrf(name: &str, number: u16, more: &str) -> String {
    let spec = format!(
        "Devices: [{{Name: {ROUTER}, RouteDistinguisher: '65000:{number}'}}], ImportTargets: ['65000:{number}'], \
         ExportTargets: ['65000:{number}'], {more}"
    );
    object("VRF", &format!("name: {name}"), &spec)
}

/// What leads the service of its name into a VRF; `more` is the rest of its spec.
fn vrf_attachment(name: &str, vrf: &str, addresses: &str, more: &str) -> String {
    let spec = format!(
        "VRF: {vrf}, L2Service: {name}, Interfaces: [{{Device: {ROUTER}, Addresses: [{addresses}]}}], {more}"
    );
    object("VRFAttachment", &format!("name: {name}"), &spec)
}

/// True if a VRF has these addresses on the sub-interface of a VLAN.
fn answers(view: &View, vrf: &str, vid: u16, addresses: &[&str]) -> bool {
    let interfaces = view.vrfs.get(vrf).into_iter().flat_map(|vrf| vrf.interfaces.values());
    let of_vlan =
        interfaces.filter(|one| one.vlan == Some(vid) && one.port.as_deref() == Some(ROUTER_PORT.1));
    of_vlan.flat_map(|one| &one.addresses).map(ToString::to_string).eq(addresses.iter().copied())
}

/// Waits until the router has these addresses for a VLAN, or nothing of the VLAN.
async fn until_answering(system: &System, vrf: &str, vid: u16, addresses: &[&str]) -> VrfView {
    let what = format!("{addresses:?} of VLAN {vid} in {vrf}");
    let mut view = system.until_view(ROUTER, &what, |view| answers(view, vrf, vid, addresses)).await;
    view.vrfs.remove(vrf).unwrap_or_default()
}

fn message_of(subnet: &Subnet) -> Option<&str> {
    let conditions = subnet.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let found = conditions.iter().find(|one| one.type_ == "NextHopAnswers")?;
    Some(&found.message)
}

#[test]
fn service_is_led_into_a_vrf_and_out_of_it() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "led", &["node1"]).await;
        let receiver = Receiver::start().await;
        let callback = format!("CallbackURL: '{}'", receiver.url());
        let network = [
            object("Route", "name: led", "Prefix: 198.51.100.0, Mask: 24, NextHop: 10.64.0.1"),
            subnet("led", "10.64.0.0", "Routes: [led]"),
            service("led", 640, "Subnets: [led]"),
            access("led", "user", "led"),
        ]
        .concat();
        system.apply_until_ready::<L2ServiceAttachment>(&network, "led/user").await;
        let vrf = vrf("led", 640, &callback);
        system.apply_until_ready::<VRF>(&vrf, "led").await;
        let leading = vrf_attachment(
            "led",
            "led",
            "10.64.0.1/24",
            &format!(
                "MTU: 1500, StaticRoutes: [{{Prefix: 10.200.0.0/16, NextHop: 10.64.0.20, Preference: 7}}], {callback}"
            ),
        );
        system.apply_until_ready::<VRFAttachment>(&leading, "led").await;

        let on_router = until_answering(system, "led", 640, &["10.64.0.1/24"]).await;
        assert_eq!(on_router.route_distinguisher.as_deref(), Some("65000:640"));
        assert_eq!(
            (on_router.import_targets, on_router.export_targets),
            (vec!["65000:640".to_owned()], vec!["65000:640".to_owned()])
        );
        assert_eq!(on_router.exports.into_iter().collect::<Vec<_>>(), ["connected", "static"]);
        let routes: Vec<_> = on_router
            .routes
            .iter()
            .map(|one| (one.prefix.to_string(), one.next_hop.to_string(), one.preference))
            .collect();
        assert_eq!(routes, [("10.200.0.0/16".to_owned(), "10.64.0.20".to_owned(), Some(7))]);
        let [interface] = on_router.interfaces.values().collect::<Vec<_>>()[..] else {
            panic!("one interface")
        };
        assert_eq!(
            (interface.mtu, interface.description.as_deref()),
            (Some(1500), Some(&*format!("{}640", eno_tests::VLAN_PREFIX)))
        );
        let ports = system.ports_of(640).await;
        for (switch, port) in [LEAF_PORT, ("leaf1", "Ethernet1"), ("leaf2", "Ethernet49")] {
            assert!(ports.contains(&(switch.to_owned(), port.to_owned())), "{ports:?}");
        }

        // A condition of the Subnet names a next hop that the gateway no longer has.
        let moved = leading.replace("10.64.0.1/24", "10.64.0.2/24");
        system.apply_until_ready::<VRFAttachment>(&moved, "led").await;
        until_answering(system, "led", 640, &["10.64.0.2/24"]).await;
        let names_the_hop = |subnet: &Subnet| {
            message_of(subnet).is_some_and(|text| text.contains("NextHop 10.64.0.1 of Route led"))
        };
        system.until_one::<Subnet>("led", "a next hop that does not answer", names_the_hop).await;
        system.apply_until_ready::<VRFAttachment>(&leading, "led").await;
        system
            .until_one::<Subnet>("led", "a next hop that answers", |subnet| message_of(subnet).is_none())
            .await;

        system.request_deletion(&vrf).await;
        system.becomes::<VRF>("led", (Phase::Terminating, &["in use by", "VRFAttachment led"])).await;
        until_answering(system, "led", 640, &["10.64.0.1/24"]).await;

        // The VLAN stays for the pods; the gateway's part goes, and with it the VRF.
        system.delete(&leading).await;
        system.delete(&vrf).await;
        let view = system.view(ROUTER).await;
        assert!(
            !view.vrfs.contains_key("led") && !view.ports[ROUTER_PORT.1].configured.contains(640),
            "{view:?}"
        );
        system.becomes::<L2ServiceAttachment>("led/user", Phase::Ready).await;
        system.becomes::<L2Service>("led", Phase::Ready).await;
        system.assert_vlan_on(640, &Ports::from([("leaf1", "Ethernet1")])).await;
        for object in ["VRF led", "VRFAttachment led"] {
            receiver.until(&[object.to_owned()], "deleted").await;
        }
        let phases = receiver.phases("VRF led");
        assert_eq!(
            (phases.first().map(|one| &**one), &phases[phases.len() - 2..]),
            (Some("pending"), &["terminating".to_owned(), "deleted".to_owned()][..]),
            "{phases:?}"
        );
        system.delete_with_vlans(&network, [640]).await;
    });
}

/// The sub-interface of a VLAN on the router's port with this content, merged by hand.
fn subinterface(vid: u16, content: &str) -> String {
    format!(
        "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\" \
         xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><interface><name>{}</name><subinterfaces>{content}\
         </subinterfaces></interface></interfaces>",
        ROUTER_PORT.1
    )
    .replace("VID", &vid.to_string())
}

/// A sub-interface that somebody else has configured, with an address.
const OF_OTHERS: &str = "<subinterface><index>VID</index><config><index>VID</index><description>eno-other-VID</description>\
    </config><vlan xmlns=\"http://openconfig.net/yang/vlan\"><match><single-tagged><config><vlan-id>VID</vlan-id></config>\
    </single-tagged></match></vlan><ipv4 xmlns=\"http://openconfig.net/yang/interfaces/ip\"><addresses><address>\
    <ip>192.0.2.1</ip><config><ip>192.0.2.1</ip><prefix-length>24</prefix-length></config></address></addresses></ipv4>\
    </subinterface>";
/// Removes the addresses of a sub-interface.
const WITHOUT_ADDRESSES: &str = "<subinterface><index>VID</index><ipv4 xmlns=\"http://openconfig.net/yang/interfaces/ip\" \
    nc:operation=\"remove\"/></subinterface>";
/// Removes a sub-interface.
const REMOVED: &str = "<subinterface nc:operation=\"remove\"><index>VID</index></subinterface>";

/// A VRF of another cluster.
const VRF_OF_OTHERS: &str = "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\" \
    xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><network-instance><name>shared</name><config><name>shared</name><type \
    xmlns:t=\"http://openconfig.net/yang/network-instance-types\">t:L3VRF</type><description>eno-other shared</description>\
    <route-distinguisher>65000:999</route-distinguisher></config></network-instance></network-instances>";
/// Removes it.
const VRF_OF_OTHERS_REMOVED: &str = "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\" \
    xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><network-instance nc:operation=\"remove\"><name>shared</name>\
    </network-instance></network-instances>";

#[test]
fn drift_on_a_router_is_repaired() {
    with_shared_sandbox(async |system| {
        let objects = [
            subnet("drifted", "10.64.1.0", ""),
            service("drifted", 641, "Subnets: [drifted]"),
            vrf("drifted", 641, ""),
            vrf_attachment("drifted", "drifted", "10.64.1.1/24", ""),
        ]
        .concat();
        system.apply_until_ready::<VRFAttachment>(&objects, "drifted").await;
        until_answering(system, "drifted", 641, &["10.64.1.1/24"]).await;
        system.edit_by_xml(ROUTER, &subinterface(641, WITHOUT_ADDRESSES)).await;
        until_answering(system, "drifted", 641, &["10.64.1.1/24"]).await;
        system.becomes::<VRFAttachment>("drifted", Phase::Ready).await;
        system.delete(&objects).await;
        system.until_view(ROUTER, "no VRF", |view| !view.vrfs.contains_key("drifted")).await;
    });
}

#[test]
fn what_another_cluster_has_on_a_router_stays() {
    with_shared_sandbox(async |system| {
        system.edit_by_xml(ROUTER, &subinterface(642, OF_OTHERS)).await;
        system.edit_by_xml(ROUTER, VRF_OF_OTHERS).await;
        let objects = [
            subnet("theirs", "10.64.2.0", ""),
            service("theirs", 642, "Subnets: [theirs]"),
            vrf("theirs", 642, ""),
            vrf_attachment("theirs", "theirs", "10.64.2.1/24", ""),
        ]
        .concat();
        let shared = vrf("shared", 643, "");
        system.apply(&objects).await;
        system.apply(&shared).await;
        system.becomes::<VRFAttachment>("theirs", (Phase::Error, &["642", "eno-other-642"])).await;
        system.becomes::<VRF>("shared", (Phase::Error, &["65000:999", "65000:643"])).await;
        system.becomes::<VRF>("theirs", Phase::Ready).await;
        system.becomes::<FabricDevice>(ROUTER, Phase::Ready).await;
        // Another service is led in all the same.
        let other = [
            subnet("ours", "10.64.3.0", ""),
            service("ours", 644, "Subnets: [ours]"),
            vrf_attachment("ours", "theirs", "10.64.3.1/24", ""),
        ]
        .concat();
        system.apply_until_ready::<VRFAttachment>(&other, "ours").await;
        // Once it is gone by hand, the VLAN is led in.
        system.edit_by_xml(ROUTER, &subinterface(642, REMOVED)).await;
        system.becomes::<VRFAttachment>("theirs", Phase::Ready).await;
        until_answering(system, "theirs", 642, &["10.64.2.1/24"]).await;
        system.delete(&[other, objects, shared].concat()).await;
        let view = system.until_view(ROUTER, "no VRF", |view| !view.vrfs.contains_key("theirs")).await;
        assert_eq!(view.vrfs["shared"].description.as_deref(), Some("eno-other shared"));
        assert_eq!(view.vrfs["shared"].route_distinguisher.as_deref(), Some("65000:999"));
        system.edit_by_xml(ROUTER, VRF_OF_OTHERS_REMOVED).await;
    });
}
