//! What the running configurations let through.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use eno_simulator::{Fault, HandEdit, Link, LinkEnd, Topology, VlanSet};
use nix::sched::{CloneFlags, setns};

use crate::common::python;
use crate::dataplane::bench::{Bench, NODE2, access, interface, trunk};
use crate::dataplane::host::Host;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn a_vlan_has_to_be_on_every_hop() {
    let bench = Bench::new(2).await;
    assert!(!bench.node1.pings(NODE2), "nothing is configured");
    for leaf in ["leaf1", "leaf2"] {
        bench.change(leaf, &access("Ethernet1", 100)).await;
    }
    assert!(!bench.node1.pings(NODE2), "no link carries it");
    bench.carry(&[100, 200]).await;
    assert!(bench.node1.pings(NODE2), "every hop carries it");

    // The tree has one path; without the VLAN on one of its ports there is none.
    let (spine, port) = bench.active_spine();
    let without = HandEdit {
        port: Some(port.clone()),
        remove_vlans: [100].into_iter().collect(),
        ..HandEdit::default()
    };
    bench.change(&spine, &without).await;
    assert!(!bench.node1.pings(NODE2), "{spine} {port} doesn't carry it");
    bench.change(&spine, &trunk(&port, &[100])).await;
    assert!(bench.node1.pings(NODE2), "it does again");

    // Not defined on a switch, it is nowhere on it.
    let undefined = HandEdit { remove_vlans: [100].into_iter().collect(), ..HandEdit::default() };
    bench.change(&spine, &undefined).await;
    assert!(!bench.node1.pings(NODE2), "{spine} doesn't know it");
    let defined = HandEdit { define_vlans: [(100, "v100".to_owned())].into(), ..HandEdit::default() };
    bench.change(&spine, &defined).await;
    assert!(bench.node1.pings(NODE2), "{spine} knows it again");

    // Another VLAN on the other side is another network.
    bench.change("leaf2", &access("Ethernet1", 200)).await;
    assert!(!bench.node1.pings(NODE2), "the hosts are in different VLANs");
    bench.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn commits_and_rollbacks_over_netconf_are_followed() {
    let python = tokio::task::spawn_blocking(|| python(Path::new(env!("CARGO_MANIFEST_DIR"))))
        .await
        .expect("the environment is there");
    let bench = Bench::new(1).await;
    bench.carry(&[100]).await;
    bench.change("leaf1", &access("Ethernet1", 100)).await;
    assert!(!bench.node1.pings(NODE2), "not configured on leaf2");
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
    bench.commit(&python, "leaf2", in_vlan(100), None).await;
    bench.settled().await;
    assert!(bench.node1.pings(NODE2), "committed");

    let mut version = bench.fabric.switch("leaf2").expect("leaf2").version();
    let committed = *version.borrow();
    bench.commit(&python, "leaf2", in_vlan(300), Some(4)).await;
    bench.settled().await;
    let reached = bench.node1.pings(NODE2);
    assert!(!reached || *version.borrow() > committed + 1, "in another VLAN, and not yet rolled back");
    version.wait_for(|version| *version > committed + 1).await.expect("the switch is there");
    bench.settled().await;
    assert!(bench.node1.pings(NODE2), "rolled back");
    bench.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn trunks_keep_vlans_apart() {
    let bench = Bench::new(1).await;
    bench.carry(&[100, 200]).await;
    bench.change("leaf1", &trunk("Ethernet1", &[100, 200, 300])).await;
    bench.change("leaf2", &trunk("Ethernet1", &[100])).await;
    let send = |frames: &[&str]| bench.node1.frames_to(&bench.node2, frames);
    let all = ["200:listed-there-only", "300:unknown", "101:never", ":untagged", "100:listed"];
    assert_eq!(send(&all), ["100:listed"]);

    // The last VLAN of a trunk taken away leaves one without a list, which carries every VLAN there is.
    let emptied = HandEdit {
        port: Some("Ethernet1".to_owned()),
        remove_vlans: [100].into_iter().collect(),
        ..HandEdit::default()
    };
    bench.change("leaf2", &emptied).await;
    assert_eq!(send(&all), ["200:listed-there-only", "100:listed"]);

    // The native VLAN is untagged outside, and is a VLAN like others inside.
    bench.change("leaf2", &HandEdit { native: Some(200), ..trunk("Ethernet1", &[100, 200]) }).await;
    assert_eq!(send(&all), [":listed-there-only", "100:listed"]);
    bench.change("leaf1", &HandEdit { native: Some(100), ..trunk("Ethernet1", &[]) }).await;
    assert_eq!(send(&["300:unknown", ":untagged", "200:last"]), ["100:untagged", ":last"]);

    // An access port takes what has no tag.
    let clear = HandEdit { port: Some("Ethernet1".to_owned()), clear: true, ..HandEdit::default() };
    bench.change("leaf1", &clear).await;
    bench.change("leaf1", &access("Ethernet1", 100)).await;
    assert_eq!(send(&["200:tagged", ":last"]), ["100:last"]);
    bench.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn a_disabled_port_has_no_carrier_and_traffic_takes_the_other_spine() {
    let bench = Bench::new(2).await;
    bench.carry(&[100]).await;
    for leaf in ["leaf1", "leaf2"] {
        bench.change(leaf, &access("Ethernet1", 100)).await;
    }
    assert!(bench.node1.pings(NODE2));
    let (spine, port) = bench.active_spine();
    bench.change_xml(&spine, &interface(&port, "<enabled>false</enabled>")).await;
    assert_ne!(bench.active_spine().0, spine);
    assert!(bench.node1.pings(NODE2), "over the other spine");
    bench.change_xml(&spine, &interface(&port, "<enabled>true</enabled>")).await;
    assert_eq!(bench.active_spine().0, spine);
    assert!(bench.node1.pings(NODE2), "over the first spine again");

    bench.change_xml("leaf1", &interface("Ethernet1", "<enabled>false</enabled>")).await;
    assert!(!bench.node1.has_carrier());
    bench.change_xml("leaf1", &interface("Ethernet1", "<enabled>true</enabled>")).await;
    assert!(bench.node1.has_carrier());
    assert!(bench.node1.pings(NODE2), "the port is on again");
    bench.fabric.shutdown().await;
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
async fn members_of_an_aggregation_carry_what_it_carries() {
    let mut topology = Topology::leaf_spine(2, 2, 2);
    topology.switches.retain(|switch| switch.name.starts_with("leaf"));
    let end = |switch: &str, port: &str| LinkEnd { switch: switch.to_owned(), port: port.to_owned() };
    let ports = ["Ethernet49", "Ethernet50"];
    topology.links = ports.map(|port| Link { a: end("leaf1", port), b: end("leaf2", port) }).into();
    let bench = Bench::on(&topology).await;
    for leaf in ["leaf1", "leaf2"] {
        bench.change(leaf, &access("Ethernet1", 100)).await;
    }
    assert!(!bench.node1.pings(NODE2), "no link carries it");
    for leaf in ["leaf1", "leaf2"] {
        bench.change_xml(leaf, AGGREGATION).await;
    }
    assert!(bench.node1.pings(NODE2), "the aggregation carries it");
    for (down, up) in [(ports[0], ports[1]), (ports[1], ports[0])] {
        bench.change_xml("leaf1", &interface(up, "<enabled>true</enabled>")).await;
        bench.change_xml("leaf1", &interface(down, "<enabled>false</enabled>")).await;
        assert!(bench.node1.pings(NODE2), "over {up}");
    }
    bench.change_xml("leaf1", &interface("lag1", "<enabled>false</enabled>")).await;
    assert!(!bench.node1.pings(NODE2), "the aggregation is off");
    bench.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn a_switch_that_nobody_can_manage_forwards_on() {
    let bench = Bench::new(1).await;
    bench.carry(&[100]).await;
    for leaf in ["leaf1", "leaf2"] {
        bench.change(leaf, &access("Ethernet1", 100)).await;
    }
    bench.fabric.switch("spine1").expect("spine1").inject(Fault::Unreachable {});
    assert!(bench.node1.pings(NODE2));
    bench.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn tcp_gets_through() {
    let bench = Bench::new(1).await;
    bench.carry(&[100]).await;
    for leaf in ["leaf1", "leaf2"] {
        bench.change(leaf, &access("Ethernet1", 100)).await;
    }
    let listener = inside(&bench.node2, || TcpListener::bind((NODE2, 7000))).await.expect("it listens");
    let receiver = tokio::task::spawn_blocking(move || {
        let mut received = Vec::new();
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.read_to_end(&mut received).expect("it ends well");
        received.len()
    });
    let mut stream = inside(&bench.node1, || TcpStream::connect((NODE2, 7000))).await.expect("it connects");
    let sender = tokio::task::spawn_blocking(move || stream.write_all(&vec![7; 1_000_000]));
    sender.await.expect("no panic").expect("it is sent");
    assert_eq!(receiver.await.expect("no panic"), 1_000_000);
    bench.fabric.shutdown().await;
}

/// Runs something on a thread of its own in a host's namespace; a socket stays in the namespace it was made in.
async fn inside<T: Send + 'static>(host: &Host, run: impl FnOnce() -> T + Send + 'static) -> T {
    let netns = std::fs::File::open(host.netns()).expect("the namespace");
    let thread = std::thread::spawn(move || {
        setns(netns, CloneFlags::CLONE_NEWNET).expect("root may");
        run()
    });
    tokio::task::spawn_blocking(move || thread.join().expect("no panic")).await.expect("no panic")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn the_control_api_says_what_is_plugged_in_where_and_waits() {
    let bench = Bench::new(2).await;
    let leaf = bench.fabric.switch("leaf1").expect("leaf1");
    leaf.change_by_hand(&access("Ethernet1", 100)).expect("the port exists");
    let status = bench.ask("/dataplane?ready=true").await;
    assert!(status.ready, "{status:?}");
    assert_eq!(status.problem, None);
    assert_eq!(status.switches["leaf1"].applied, *leaf.version().borrow());
    let port = &status.switches["leaf1"].ports["Ethernet1"];
    let wire = port.wire.as_ref().expect("a host is plugged in");
    assert_eq!((wire.netns.clone(), wire.interface.as_str()), (Some(bench.node1.netns()), "eth1"));
    assert_eq!((port.state.as_deref(), port.up), (Some("forwarding"), true));
    let link = status.switches["spine2"].ports["Ethernet2"].link.as_ref().expect("a leaf");
    assert_eq!((link.switch.as_str(), link.port.as_str()), ("leaf2", "Ethernet50"));
    // Four links in a ring of four switches: one end of one is the one that doesn't forward.
    let ports = status.switches.values().flat_map(|switch| switch.ports.values());
    assert_eq!(ports.filter(|port| port.state.as_deref() != Some("forwarding")).count(), 1);
    let vlans = leaf.view().ports["Ethernet1"].vlans.clone();
    assert_eq!(vlans, [100].into_iter().collect::<VlanSet>());
    bench.fabric.shutdown().await;
}
