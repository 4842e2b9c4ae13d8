//! Text on devices that is not ours: in other encodings, with characters and references that XML forbids.

use std::sync::Arc;
use std::time::Duration;

use eno_driver_netconf::dialect::{DIALECTS, Dialect};
use eno_driver_netconf::plan::{Inventory, ObservedConfig};
use eno_driver_netconf::session::{Session as _, StreamSession};
use eno_driver_netconf::text::Text;
use eno_driver_netconf::transaction::RunContext;
use eno_sbi::Reconciled;
use eno_schemas::{FabricDesired, Item, PortMode};
use eno_simulator::Topology;
use tokio::io::AsyncWriteExt as _;

use crate::common::{Bench, TappedSession, applied_vlans, items, run_transaction, vid, work};

/// Replies of devices whose operators wrote TEXT into descriptions, by dialect.
const REPLIES: [(&str, &str); 5] = [
    (
        "openconfig",
        "<network-instances xmlns='http://openconfig.net/yang/network-instance'><network-instance><name>default</name>\
         <config><description>TEXT</description><type xmlns:t='http://openconfig.net/yang/network-instance-types'>\
         t:DEFAULT_INSTANCE</type></config><vlans><vlan><vlan-id>100</vlan-id><config><name>eno-test-100</name></config>\
         </vlan></vlans></network-instance></network-instances><interfaces xmlns='http://openconfig.net/yang/interfaces'>\
         <interface><name>Ethernet1</name><config><description>TEXT</description></config></interface></interfaces>",
    ),
    (
        "junos",
        "<configuration xmlns='http://xml.juniper.net/xnm/1.1/xnm'><vlans><vlan><name>eno-test-100</name>\
         <description>TEXT</description><vlan-id>100</vlan-id></vlan></vlans><interfaces><interface>\
         <name>Ethernet1</name><description>TEXT</description></interface></interfaces></configuration>",
    ),
    (
        "nxos-experimental",
        "<System xmlns='http://cisco.com/ns/yang/cisco-nx-os-device'><bd-items><bd-items><BD-list>\
         <fabEncap>vlan-100</fabEncap><name>eno-test-100</name></BD-list></bd-items></bd-items><intf-items><phys-items>\
         <PhysIf-list><id>Ethernet1</id><descr>TEXT</descr></PhysIf-list></phys-items></intf-items></System>",
    ),
    (
        "srlinux",
        "<network-instance xmlns='urn:nokia.com:srlinux:net-inst:network-instance'><name>eno-test-100</name>\
         <type>mac-vrf</type><description>TEXT</description></network-instance>\
         <interface xmlns='urn:nokia.com:srlinux:chassis:interfaces'><name>Ethernet1</name>\
         <description>TEXT</description></interface>",
    ),
    (
        "ieee8021q",
        "<bridges xmlns='urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge'><bridge><name>b</name><component><name>c</name>\
         <bridge-vlan><vlan><vid>100</vid><name>eno-test-100</name></vlan></bridge-vlan></component></bridge></bridges>\
         <interfaces xmlns='urn:ietf:params:xml:ns:yang:ietf-interfaces'><interface><name>Ethernet1</name>\
         <description>TEXT</description></interface></interfaces>",
    ),
];

fn dialect(name: &str) -> &'static dyn Dialect {
    *DIALECTS.iter().find(|dialect| dialect.name() == name).expect("a dialect")
}

/// The reply with `content` as the driver's session reads it.
async fn read(declaration: &str, content: &[u8]) -> Text {
    const END: &[u8] = b"]]>]]>";
    let hello = b"<hello><capabilities><capability>urn:ietf:params:netconf:base:1.0</capability></capabilities></hello>";
    let head = format!(
        "{declaration}<rpc-reply xmlns='urn:ietf:params:xml:ns:netconf:base:1.0' message-id='1'><data>"
    );
    let (ours, mut stream) = tokio::io::duplex(1 << 16);
    let (wait, ignore) = (Duration::from_secs(10), Box::new(|_: &Text| ()));
    let open = StreamSession::open(ours, wait, wait, ignore);
    stream.write_all(&[hello, END].concat()).await.expect("it listens");
    let session = open.await.expect("a session");
    let call = session.call("<get/>".into());
    let reply = [head.as_bytes(), content, b"</data></rpc-reply>", END].concat();
    stream.write_all(&reply).await.expect("it listens");
    call.await.expect("a reply")
}

#[tokio::test]
async fn descriptions_do_not_affect_what_is_read() {
    let parts = |observed: ObservedConfig| (observed.vlans, observed.ports);
    for (name, reply) in REPLIES {
        let parse = |reply: &Text| dialect(name).parse(reply, &Inventory::new());
        let plain = parts(parse(&read("", reply.as_bytes()).await).expect("a configuration"));
        assert_eq!(plain.0.name(vid(100)).as_deref(), Some("eno-test-100"), "{name}");
        assert!(plain.1.contains_key("Ethernet1"), "{name}: {:?}", plain.1);
        for declaration in ["", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>"] {
            for text in [&b"Z\xfcrich"[..], b"R&D", b"a &nbsp; b", b"&#0;&#xd800;", b"\x01\x1b[0m", b"&"] {
                let parts_of_reply: Vec<&[u8]> = reply.split("TEXT").map(str::as_bytes).collect();
                let odd = read(declaration, &parts_of_reply.join(text)).await;
                let odd = parts(parse(&odd).unwrap_or_else(|error| panic!("{name} {text:?}: {error}")));
                assert_eq!(odd, plain, "{name} {text:?}");
            }
        }
    }
}

/// Applies the desired state to a leaf that shows `to` in place of `from`.
async fn apply(bench: &Bench, desired: FabricDesired, from: &'static str, to: &'static str) -> Reconciled {
    let tap = Arc::new(move |reply: String| reply.replace(from, to));
    let session = TappedSession { session: bench.connect().await, tap };
    let work = work("leaf1", desired.clone());
    run_transaction(&session, DIALECTS, &work, &desired, RunContext::default()).await.0.expect("it is done")
}

#[tokio::test]
async fn text_that_cannot_be_read_is_never_written() {
    let bench = Bench::with(&Topology::leaf_spine_of(1, 1, 2, &["junos"])).await;
    let leaf = bench.switch("leaf1");
    let foreign = "<configuration xmlns='http://yang.juniper.net/junos-qfx/conf/root'>\
                   <vlans xmlns='http://yang.juniper.net/junos-qfx/conf/vlans'><vlan><name>storage</name>\
                   <description>Zurich</description><vlan-id>300</vlan-id></vlan></vlans></configuration>";
    leaf.edit_xml_by_hand(foreign).expect("an edit");
    let mut desired = bench.desired("leaf1", "100,300", &["xe-0/0/1"]);
    desired.ports[0].mode = PortMode::Trunk;
    desired.device.adopt = "300".parse().expect("a set of VLANs");
    let made = apply(&bench, desired.clone(), "Zurich", "Z\u{fffd}rich").await;
    assert_eq!(applied_vlans(&made).0, "100");
    assert_eq!(items(&made), [Item::vlan(vid(300))].into());
    assert!(made.rejected[0].reason.contains("can't be read"), "{:?}", made.rejected);
    assert_eq!(leaf.view().vlans[&300].name.as_deref(), Some("storage"));
    // A description that is read exactly is kept.
    let made = apply(&bench, desired, "Zurich", "Zürich").await;
    assert_eq!(applied_vlans(&made).0, "100,300");
}

#[tokio::test]
async fn port_that_is_not_understood_does_not_affect_others() {
    for (dialect, from, to) in [
        ("openconfig", "<trunk-vlans>77<", "<trunk-vlans>4095<"),
        ("openconfig", "<trunk-vlans>77<", "<trunk-vlans>0<"),
        ("openconfig", "<trunk-vlans>77<", "<trunk-vlans>77..4095<"),
        ("openconfig", "<trunk-vlans>77<", "<native-vlan>4095</native-vlan><trunk-vlans>77<"),
        ("openconfig", "<trunk-vlans>77<", "<interface-mode>HYBRID</interface-mode><trunk-vlans>77<"),
        ("nxos", "<trunkVlans>77<", "<trunkVlans>77,4095<"),
        ("srlinux", "<vlan-id>77<", "<vlan-id>4095<"),
    ] {
        let bench = Bench::with(&Topology::leaf_spine_of(1, 1, 3, &[dialect])).await;
        let names: Vec<String> = bench.switch("leaf1").view().ports.keys().take(2).cloned().collect();
        bench.edit("leaf1", &crate::common::defined(&[(77, "theirs")]));
        bench.edit("leaf1", &crate::common::trunk(&names[1], "77"));
        let desired = bench.desired("leaf1", "20", &[&names[0], &names[1]]);
        let made = apply(&bench, desired, from, to).await;
        let on_first = [(names[0].clone(), "20".to_owned())].into();
        assert_eq!(applied_vlans(&made), ("20".to_owned(), on_first), "{to}");
        assert_eq!(items(&made), [Item::port(&names[1])].into(), "{to}");
        let reason = &made.rejected[0].reason;
        let value = if to.contains("HYBRID") {
            "HYBRID"
        } else {
            to.trim_end_matches('<').rsplit('>').next().unwrap()
        };
        let value = if to.contains("native") { "4095" } else { value };
        assert!(reason.contains(&names[1]) && reason.contains(value), "{reason}");
        assert_eq!(crate::common::on_switch(bench.switch("leaf1"), &names[1]).1, "77");
    }
}
