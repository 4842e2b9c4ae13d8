//! BGP sessions of nodes with a gateway: a speaker on each node, FRR behind the simulated gateway.

use std::collections::BTreeSet;

use eno_nbi_crds::{BGPSessionGroup, Phase};
use eno_tests::{Speaker, System, connection_point, object, poll, service, with_shared_nodes};

use serde_json::json;

use crate::nodes::gateway::{forwarding, vrf, vrf_attachment};

const GATEWAY: &str = "10.9.0.254";
const NODES: [&str; 2] = ["node1", "node2"];
/// An address of a service, which speakers announce.
const SERVICE: &str = "203.0.113.10/32";

fn objects(name: &str, vid: u16) -> String {
    let group = "VRF: NAME, L2Service: NAME, ConnectionPoint: NAME, LocalASN: 64512, PeerASN: 65000, AddressFamilies: [IPv4], \
                 HoldTime: 9, KeepaliveTime: 3, AcceptPrefixes: [203.0.113.0/24], MaximumPrefixes: 1, \
                 ReturnPath: Symmetric";
    [
        connection_point(name, "br-data", "Interfaces: [eth1]"),
        object("Subnet", &format!("name: {name}"), "Type: v4, Ipam: eno, Address: 10.9.0.0, Mask: 24"),
        service(name, vid, &format!("Subnets: [{name}]")),
        vrf(name, vid),
        vrf_attachment(name, &format!("{GATEWAY}/24"), ""),
        object("BGPSessionGroup", &format!("name: {name}"), &group.replace("NAME", name)),
    ]
    .concat()
}

/// What the host has beside the interfaces of ENO, and the bridge of pods, which the first pod makes.
async fn host(system: &System, node: &str) -> Vec<String> {
    let mut all = Vec::new();
    for command in [
        &["ip", "route"][..],
        &["ip", "-6", "route"],
        &["ip", "rule"],
        &["nft", "list", "table", "inet", "eno"],
        &["ip", "-br", "addr", "show", "eth0"],
    ] {
        let shown = system.on_node(node, command).await;
        all.extend(shown.lines().filter(|line| !line.contains("cni0")).map(str::to_owned));
    }
    all
}

/// Starts a speaker on each node that announces these addresses.
fn speakers(system: &System, own_as: u32, announced: &[&str]) -> Vec<Speaker> {
    speakers_with(system, own_as, announced, &[])
}

/// The same with more lines of configuration.
fn speakers_with(system: &System, own_as: u32, announced: &[&str], more: &[String]) -> Vec<Speaker> {
    let mut lines =
        vec![format!("neighbor {GATEWAY} remote-as 65000"), format!("neighbor {GATEWAY} timers 3 9")];
    lines.push(format!("neighbor {GATEWAY} timers connect 1"));
    lines.extend_from_slice(more);
    lines.push("address-family ipv4 unicast".to_owned());
    lines.extend(announced.iter().map(|address| format!(" network {address}")));
    // Without a filter, FRR announces to the gateway what the gateway has announced, and that counts too.
    lines.push(format!(" neighbor {GATEWAY} prefix-list services out"));
    lines.push("exit-address-family".to_owned());
    lines.push("ip prefix-list services permit 203.0.113.0/24 le 32".to_owned());
    let start = |(number, node): (usize, &&str)| {
        let own = format!("bgp router-id 192.0.2.{}", number + 1);
        Speaker::start(system, node, own_as, &[std::slice::from_ref(&own), &lines].concat())
    };
    NODES.iter().enumerate().map(start).collect()
}

/// Waits until the first session of a group has an error with this text.
async fn until_error(system: &System, name: &str, text: &str) {
    let has_it = |group: &BGPSessionGroup| {
        let sessions = group.status.iter().flat_map(|status| &status.sessions);
        sessions.filter_map(|session| session.last_error.as_deref()).any(|error| error.contains(text))
    };
    system.until_one::<BGPSessionGroup>(name, text, has_it).await;
}

async fn until_established(system: &System, name: &str) {
    system.becomes::<BGPSessionGroup>(name, Phase::Ready).await;
    let all = |group: &BGPSessionGroup| {
        group.status.as_ref().is_some_and(|status| status.established_sessions == Some(2))
    };
    system.until_one::<BGPSessionGroup>(name, "two established sessions", all).await;
}

async fn stop(speakers: Vec<Speaker>) {
    for speaker in speakers {
        speaker.stop().await;
    }
}

#[test]
#[ignore = "needs root: real nodes"]
fn nodes_and_a_gateway_speak_bgp() {
    with_shared_nodes(async |system| {
        let name = "speaking";
        let mut before = Vec::new();
        for node in NODES {
            before.push(host(system, node).await);
        }
        let objects = objects(name, 180);
        system.apply(&objects).await;
        until_error(system, name, &format!("no speaker with peer {GATEWAY} answers")).await;
        let running = speakers(system, 64512, &[SERVICE]);
        until_established(system, name).await;

        // The gateway sends packets to the service to both nodes.
        let group = system.until_one::<BGPSessionGroup>(name, "its workers", |_| true).await;
        let workers = group.status.expect("a status").workers;
        let addresses: BTreeSet<String> = workers
            .iter()
            .filter_map(|one| Some(one.addresses.first()?.split('/').next()?.to_owned()))
            .collect();
        assert_eq!(addresses.len(), 2, "{workers:?}");
        let netns = forwarding(system, name).await.netns;
        let has_both = poll(async || {
            let shown = tokio::process::Command::new("nsenter")
                .arg(format!("--net={}", netns.display()))
                .args(["ip", "route", "show", "203.0.113.10"])
                .output()
                .await
                .ok()?;
            let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
            addresses.iter().all(|address| shown.contains(address.as_str())).then_some(())
        });
        assert!(has_both.await.is_some(), "no route of VRF {name} by {addresses:?}");

        stop(running).await;
        // While all are established, the driver looks every minute only. A change makes it look at once.
        let announced = json!({"spec": {"AnnouncePrefixes": ["198.51.100.0/24"]}});
        system.patch("BGPSessionGroup", name, announced).await;
        let other_as = speakers(system, 64999, &[SERVICE]);
        until_error(system, name, "(0202)").await;
        stop(other_as).await;
        let too_many = speakers(system, 64512, &[SERVICE, "203.0.113.11/32"]);
        until_error(system, name, "(0601); raise MaximumPrefixes").await;
        system.patch("BGPSessionGroup", name, json!({"spec": {"MaximumPrefixes": 2}})).await;
        until_established(system, name).await;
        let metric = format!("eno_driver_bgp_prefixes{{device=\"gw1\",group=\"{name}\"}}");
        let of_both = poll(async || {
            system.metric("driver-netconf", &metric).await.filter(|number| number == "4").map(drop)
        });
        assert!(of_both.await.is_some(), "no metric of 4 prefixes");
        stop(too_many).await;

        // The gateway takes sessions from all addresses of the Subnet, with a password.
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": { "password": "same-on-both-sides" },
            "metadata": {
                "name": name, "namespace": "eno-devices", "annotations": { "eno.k8s.io/bgp-devices": "gw1" },
            },
        });
        let secret = secret.to_string();
        system.apply(&secret).await;
        let by_prefix = json!({"spec": {"Neighbours": "Prefix", "Password": {"DeviceSecretName": name}}});
        system.patch("BGPSessionGroup", name, by_prefix).await;
        until_error(system, name, "or its password is another one").await;
        let with = |password: &str| format!("neighbor {GATEWAY} password {password}");
        let other = speakers_with(system, 64512, &[SERVICE], &[with("another")]);
        until_error(system, name, "or its password is another one").await;
        stop(other).await;
        let same = speakers_with(system, 64512, &[SERVICE], &[with("same-on-both-sides")]);
        until_established(system, name).await;
        stop(same).await;
        system.delete(&secret).await;
        system.delete(&objects).await;
        for (node, before) in NODES.iter().zip(before) {
            assert_eq!(host(system, node).await, before, "{node}");
        }
        assert!(!system.view("gw1").await.vrfs.contains_key(name));
    });
}
