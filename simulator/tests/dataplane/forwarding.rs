//! Forwarding according to the running configurations.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use eno_simulator::{Fault, HandEdit, Link, LinkEnd, Topology, VlanSet};
use nix::sched::{CloneFlags, setns};

use crate::common::python;
use crate::dataplane::host::Host;
use crate::dataplane::testbed::{NODE2, Testbed, access, define, interface, trunk, without_vlan};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn hosts_reach_each_other_only_if_every_hop_carries_the_vlan() {
    let testbed = Testbed::new(2).await;
    assert!(!testbed.node1.pings(NODE2), "nothing is configured");
    testbed.put_hosts_into_vlan_100().await;
    assert!(!testbed.node1.pings(NODE2), "no link carries it");
    testbed.carry_vlans(&[100, 200]).await;
    assert!(testbed.node1.pings(NODE2), "every hop carries it");

    // The spanning tree has one path, which needs the VLAN on each of its ports.
    let (spine, port) = testbed.active_spine();
    testbed.hand_edit(&spine, &without_vlan(Some(&port), 100)).await;
    assert!(!testbed.node1.pings(NODE2), "{spine} {port} doesn't carry it");
    testbed.hand_edit(&spine, &trunk(&port, &[100])).await;
    assert!(testbed.node1.pings(NODE2), "it does again");

    // A switch drops a VLAN that it doesn't define on all ports.
    testbed.hand_edit(&spine, &without_vlan(None, 100)).await;
    assert!(!testbed.node1.pings(NODE2), "{spine} doesn't know it");
    testbed.hand_edit(&spine, &define(&[100])).await;
    assert!(testbed.node1.pings(NODE2), "{spine} knows it again");

    // Hosts in different VLANs can't reach each other.
    testbed.hand_edit("leaf2", &access("Ethernet1", 200)).await;
    assert!(!testbed.node1.pings(NODE2), "the hosts are in different VLANs");
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn port_drops_frames_that_its_configuration_lets_pass() {
    let testbed = Testbed::carrying_vlan_100(1).await;
    let leaf = testbed.fabric.switch("leaf1").expect("leaf1");
    let configured = leaf.view();
    let drop = |vlan, port: &str| Fault::DropFrames { vlan, port: Some(port.to_owned()) };
    let native = |vlan, port: &str| Fault::NativeVlan { vlan, port: port.to_owned() };
    for (fault, reached) in [
        (drop(Some(200), "Ethernet49"), true),
        (drop(Some(100), "Ethernet2"), true),
        (drop(Some(100), "Ethernet49"), false),
        (Fault::Clear {}, true),
        (drop(None, "Ethernet1"), false),
        (Fault::Clear {}, true),
        (Fault::DropFrames { vlan: Some(100), port: None }, false),
        (Fault::Clear {}, true),
        (native(200, "Ethernet49"), true),
        (native(100, "Ethernet49"), false),
        (Fault::Clear {}, true),
        (Fault::SwapCables { ports: ["Ethernet2".to_owned(), "Ethernet1".to_owned()] }, false),
        (Fault::Clear {}, true),
        (Fault::SmallMtu { port: "Ethernet1".to_owned(), bytes: 1400 }, true),
    ] {
        leaf.inject(fault.clone());
        testbed.settled().await;
        assert_eq!(testbed.node1.pings(NODE2), reached, "{fault:?}");
        assert_eq!(leaf.view(), configured, "{fault:?}");
    }
    // 28 bytes are headers.
    for (payload, reached) in [("1372", true), ("1373", false)] {
        let mut ping = testbed.node1.command("ping");
        let output =
            ping.args(["-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", payload, NODE2]).output();
        assert_eq!(output.expect("ping runs").status.success(), reached, "{payload}");
    }
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn switches_show_what_they_have_learnt() {
    let python = tokio::task::spawn_blocking(|| python(Path::new(env!("CARGO_MANIFEST_DIR"))))
        .await
        .expect("the environment is there");
    let testbed = Testbed::carrying_vlan_100(1).await;
    assert!(testbed.node1.pings(NODE2));
    let filter = "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance><fdb/>\
                  </network-instance></network-instances>";
    let (near, far) = (testbed.node1.mac_address(), testbed.node2.mac_address());
    for (leaf, mac, port) in [
        ("leaf1", &near, "Ethernet1"),
        ("leaf1", &far, "Ethernet49"),
        ("leaf2", &far, "Ethernet1"),
        ("leaf2", &near, "Ethernet49"),
    ] {
        let shown = testbed.get(&python, leaf, filter).await;
        let entry = shown.split("</entry>").find(|entry| entry.contains(mac.as_str()));
        let entry = entry.unwrap_or_else(|| panic!("{mac} is not shown: {shown}"));
        assert!(entry.contains("<vlan>100</vlan>"), "{leaf} {mac}: {entry}");
        assert!(entry.contains(&format!("<interface>{port}</interface>")), "{leaf} {mac}: {entry}");
    }
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn data_plane_follows_netconf_commits_and_rollbacks() {
    let python = tokio::task::spawn_blocking(|| python(Path::new(env!("CARGO_MANIFEST_DIR"))))
        .await
        .expect("the environment is there");
    let testbed = Testbed::new(1).await;
    testbed.carry_vlans(&[100]).await;
    testbed.hand_edit("leaf1", &access("Ethernet1", 100)).await;
    assert!(!testbed.node1.pings(NODE2), "not configured on leaf2");
    let config = |content: &str| {
        format!(
            "<config xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\">\
             <interfaces xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>Ethernet1</name>\
             <ethernet xmlns=\"http://openconfig.net/yang/interfaces/ethernet\">\
             <switched-vlan xmlns=\"http://openconfig.net/yang/vlan\"><config>{content}</config></switched-vlan>\
             </ethernet></interface></interfaces></config>"
        )
    };
    let in_vlan =
        |vlan| config(&format!("<interface-mode>ACCESS</interface-mode><access-vlan>{vlan}</access-vlan>"));
    testbed.commit(&python, "leaf2", in_vlan(100), None).await;
    testbed.settled().await;
    assert!(testbed.node1.pings(NODE2), "committed");

    let mut version = testbed.fabric.switch("leaf2").expect("leaf2").version();
    let committed = *version.borrow();
    testbed.commit(&python, "leaf2", in_vlan(300), Some(4)).await;
    testbed.settled().await;
    let reached = testbed.node1.pings(NODE2);
    assert!(!reached || *version.borrow() > committed + 1, "in another VLAN, and not yet rolled back");
    version.wait_for(|version| *version > committed + 1).await.expect("the switch is there");
    testbed.settled().await;
    assert!(testbed.node1.pings(NODE2), "rolled back");
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn trunks_isolate_vlans() {
    let testbed = Testbed::new(1).await;
    testbed.carry_vlans(&[100, 200]).await;
    testbed.hand_edit("leaf1", &trunk("Ethernet1", &[100, 200, 300])).await;
    testbed.hand_edit("leaf2", &trunk("Ethernet1", &[100])).await;
    let send = |frames: &[&str]| testbed.node1.send_frames(&testbed.node2, frames);
    let all = ["200:listed-there-only", "300:unknown", "101:never", ":untagged", "100:listed"];
    assert_eq!(send(&all), ["100:listed"]);

    // Removing the last VLAN of a trunk leaves a trunk without a list, which carries all VLANs.
    testbed.hand_edit("leaf2", &without_vlan(Some("Ethernet1"), 100)).await;
    assert_eq!(send(&all), ["200:listed-there-only", "100:listed"]);

    // The native VLAN is untagged on the port and an ordinary VLAN inside the switch.
    testbed.hand_edit("leaf2", &HandEdit { native: Some(200), ..trunk("Ethernet1", &[100, 200]) }).await;
    assert_eq!(send(&all), [":listed-there-only", "100:listed"]);
    testbed.hand_edit("leaf1", &HandEdit { native: Some(100), ..trunk("Ethernet1", &[]) }).await;
    assert_eq!(send(&["300:unknown", ":untagged", "200:last"]), ["100:untagged", ":last"]);

    // An access port accepts untagged frames.
    let clear = HandEdit { port: Some("Ethernet1".to_owned()), clear: true, ..HandEdit::default() };
    testbed.hand_edit("leaf1", &clear).await;
    testbed.hand_edit("leaf1", &access("Ethernet1", 100)).await;
    assert_eq!(send(&["200:tagged", ":last"]), ["100:last"]);
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn disabled_port_has_no_carrier_and_traffic_takes_the_other_spine() {
    let testbed = Testbed::carrying_vlan_100(2).await;
    assert!(testbed.node1.pings(NODE2));
    let (spine, port) = testbed.active_spine();
    testbed.merge_xml(&spine, &interface(&port, "<enabled>false</enabled>")).await;
    assert_ne!(testbed.active_spine().0, spine);
    assert!(testbed.node1.pings(NODE2), "over the other spine");
    testbed.merge_xml(&spine, &interface(&port, "<enabled>true</enabled>")).await;
    assert_eq!(testbed.active_spine().0, spine);
    assert!(testbed.node1.pings(NODE2), "over the first spine again");

    testbed.merge_xml("leaf1", &interface("Ethernet1", "<enabled>false</enabled>")).await;
    assert!(!testbed.node1.has_carrier());
    testbed.merge_xml("leaf1", &interface("Ethernet1", "<enabled>true</enabled>")).await;
    assert!(testbed.node1.has_carrier());
    assert!(testbed.node1.pings(NODE2), "the port is on again");
    testbed.fabric.shutdown().await;
}

/// A link aggregation of Ethernet49 and Ethernet50 as a trunk of VLAN 100.
const AGGREGATION: &str = r#"
<interfaces xmlns="http://openconfig.net/yang/interfaces">
  <interface>
    <name>lag1</name>
    <config>
      <name>lag1</name>
      <type xmlns:t="urn:ietf:params:xml:ns:yang:iana-if-type">t:ieee8023adLag</type>
    </config>
    <aggregation xmlns="http://openconfig.net/yang/interfaces/aggregate">
      <switched-vlan xmlns="http://openconfig.net/yang/vlan">
        <config><interface-mode>TRUNK</interface-mode><trunk-vlans>100</trunk-vlans></config>
      </switched-vlan>
    </aggregation>
  </interface>
  <interface>
    <name>Ethernet49</name>
    <ethernet xmlns="http://openconfig.net/yang/interfaces/ethernet"><config>
      <aggregate-id xmlns="http://openconfig.net/yang/interfaces/aggregate">lag1</aggregate-id>
    </config></ethernet>
  </interface>
  <interface>
    <name>Ethernet50</name>
    <ethernet xmlns="http://openconfig.net/yang/interfaces/ethernet"><config>
      <aggregate-id xmlns="http://openconfig.net/yang/interfaces/aggregate">lag1</aggregate-id>
    </config></ethernet>
  </interface>
</interfaces>"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn lag_members_carry_the_vlans_of_the_lag() {
    let mut topology = Topology::leaf_spine(2, 2, 2);
    topology.switches.retain(|switch| switch.name.starts_with("leaf"));
    let end = |switch: &str, port: &str| LinkEnd { switch: switch.to_owned(), port: port.to_owned() };
    let ports = ["Ethernet49", "Ethernet50"];
    topology.links = ports.map(|port| Link { a: end("leaf1", port), b: end("leaf2", port) }).into();
    let testbed = Testbed::on(&topology).await;
    testbed.put_hosts_into_vlan_100().await;
    assert!(!testbed.node1.pings(NODE2), "no link carries it");
    for leaf in ["leaf1", "leaf2"] {
        testbed.merge_xml(leaf, AGGREGATION).await;
    }
    assert!(testbed.node1.pings(NODE2), "the aggregation carries it");
    for (down, up) in [(ports[0], ports[1]), (ports[1], ports[0])] {
        testbed.merge_xml("leaf1", &interface(up, "<enabled>true</enabled>")).await;
        testbed.merge_xml("leaf1", &interface(down, "<enabled>false</enabled>")).await;
        assert!(testbed.node1.pings(NODE2), "over {up}");
    }
    testbed.merge_xml("leaf1", &interface("lag1", "<enabled>false</enabled>")).await;
    assert!(!testbed.node1.pings(NODE2), "the aggregation is off");
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn unreachable_switch_keeps_forwarding() {
    let testbed = Testbed::carrying_vlan_100(1).await;
    testbed.fabric.switch("spine1").expect("spine1").inject(Fault::Unreachable {});
    assert!(testbed.node1.pings(NODE2));
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn tcp_stream_is_forwarded() {
    let testbed = Testbed::carrying_vlan_100(1).await;
    let listener = on_host(&testbed.node2, || TcpListener::bind((NODE2, 7000))).await.expect("it listens");
    let receiver = tokio::task::spawn_blocking(move || {
        let mut received = Vec::new();
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.read_to_end(&mut received).expect("it ends well");
        received.len()
    });
    let mut stream =
        on_host(&testbed.node1, || TcpStream::connect((NODE2, 7000))).await.expect("it connects");
    let sender = tokio::task::spawn_blocking(move || stream.write_all(&vec![7; 1_000_000]));
    sender.await.expect("no panic").expect("it is sent");
    assert_eq!(receiver.await.expect("no panic"), 1_000_000);
    testbed.fabric.shutdown().await;
}

/// Runs a function on a new thread in a host's namespace. A socket stays in the namespace that created it.
async fn on_host<T: Send + 'static>(host: &Host, run: impl FnOnce() -> T + Send + 'static) -> T {
    let netns = std::fs::File::open(host.netns()).expect("the namespace");
    let thread = std::thread::spawn(move || {
        setns(netns, CloneFlags::CLONE_NEWNET).expect("root may");
        run()
    });
    tokio::task::spawn_blocking(move || thread.join().expect("no panic")).await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn control_api_reports_wires_and_links_once_ready() {
    let testbed = Testbed::new(2).await;
    let leaf = testbed.fabric.switch("leaf1").expect("leaf1");
    leaf.change_by_hand(&access("Ethernet1", 100)).expect("the port exists");
    let status = testbed.get_status("/dataplane?ready=true").await;
    assert!(status.ready, "{status:?}");
    assert_eq!(status.problem, None);
    assert_eq!(status.switches["leaf1"].applied, *leaf.version().borrow());
    let port = &status.switches["leaf1"].ports["Ethernet1"];
    let wire = port.wire.as_ref().expect("a host is plugged in");
    assert_eq!((wire.netns.clone(), wire.interface.as_str()), (Some(testbed.node1.netns()), "eth1"));
    assert_eq!((port.state.as_deref(), port.up), (Some("forwarding"), true));
    let link = status.switches["spine2"].ports["Ethernet2"].link.as_ref().expect("a leaf");
    assert_eq!((link.switch.as_str(), link.port.as_str()), ("leaf2", "Ethernet50"));
    // In a ring of four switches, RSTP blocks one end of one link.
    let ports = status.switches.values().flat_map(|switch| switch.ports.values());
    assert_eq!(ports.filter(|port| port.state.as_deref() != Some("forwarding")).count(), 1);
    let vlans = leaf.view().ports["Ethernet1"].vlans.clone();
    assert_eq!(vlans, [100].into_iter().collect::<VlanSet>());
    testbed.fabric.shutdown().await;
}
