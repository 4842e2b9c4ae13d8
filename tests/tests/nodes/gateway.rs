//! Running pods that reach what lies behind a VRF.

use std::process::Stdio;

use eno_nbi_crds::{ConfigPhase, L2Service, L2ServiceAttachment, Phase, PodConfig, VRF, VRFAttachment};
use eno_simulator::{DataPlaneStatus, VrfStatus};
use eno_tests::{
    System, connection_point, deployment, object, poll, service, subnet, unchecked_namespace,
    with_shared_nodes,
};
use serde_json::json;

use crate::nodes::hot_plug::addresses;
use crate::nodes::pod_configs::{configured, field};

/// The address of the host behind each VRF.
const OUTSIDE: &str = "198.51.100.1";

/// Two networks of a namespace, which has to exist, with the same prefixes, each led into a VRF of its name.
fn two_networks(namespace: &str, first_vid: u16) -> String {
    let mut yaml = connection_point(namespace, "br-data", "Interfaces: [eth1]");
    yaml += &object(
        "Route",
        &format!("name: {namespace}"),
        "Prefix: 198.51.100.0, Mask: 24, NextHop: 10.7.0.254",
    );
    for (vid, color) in (first_vid..).zip(["blue", "red"]) {
        let name = format!("{namespace}-{color}");
        let pool = format!(
            "Routes: [{namespace}], HotPlugPool: [{{Start: 10.7.0.{0}, End: 10.7.0.{0}}}]",
            vid % 200
        );
        yaml += &subnet(&name, "10.7.0.0", &pool);
        yaml += &service(&name, vid, &format!("Subnets: [{name}]"));
        yaml += &eno_tests::attachment(namespace, color, namespace, &name, "VlanType: access");
        yaml += &vrf(&name, vid);
        yaml += &vrf_attachment(&name, "10.7.0.254/24", "");
    }
    yaml
}

/// A VRF on the router, which exports its routes with a number.
pub fn vrf(name: &str, number: u16) -> String {
    let spec = format!(
        "Devices: [{{Name: gw1, RouteDistinguisher: '65000:{number}'}}], ExportTargets: ['65000:{number}']"
    );
    object("VRF", &format!("name: {name}"), &spec)
}

/// What leads the service of its name into the VRF of its name.
pub fn vrf_attachment(name: &str, address: &str, more: &str) -> String {
    let spec = format!(
        "VRF: {name}, L2Service: {name}, Interfaces: [{{Device: gw1, Addresses: [{address}]}}], {more}"
    );
    object("VRFAttachment", &format!("name: {name}"), &spec)
}

/// A VRF in the data plane of the router, once it is there.
pub async fn forwarding(system: &System, vrf: &str) -> VrfStatus {
    let router = system.sandbox.switch("gw1").expect("the router");
    let (base, _) = router.control_url.split_once("/switches/").expect("the control API of the simulator");
    let found = poll(async || {
        let answer = system.http.get(format!("{base}/dataplane")).send().await.ok()?;
        let mut status: DataPlaneStatus = answer.json().await.ok()?;
        status.switches.remove("gw1")?.vrfs.remove(vrf)
    });
    found.await.unwrap_or_else(|| panic!("VRF {vrf} does not forward"))
}

/// The MAC address of the router's interface of a VLAN in a VRF.
pub async fn routed_mac(system: &System, vrf: &str, vid: u16) -> String {
    let netns = forwarding(system, vrf).await.netns;
    let link = format!("vlan{vid}");
    let shown = tokio::process::Command::new("nsenter")
        .arg(format!("--net={}", netns.display()))
        .args(["ip", "-br", "link", "show", "dev", &link])
        .output()
        .await
        .expect("nsenter");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let mac = shown.split_whitespace().nth(2);
    mac.unwrap_or_else(|| panic!("{link} of VRF {vrf}: {shown}")).to_owned()
}

/// Waits until the host behind a VRF reaches an address, or until it does not.
async fn host_pings(system: &System, vrf: &str, address: &str, reached: bool) {
    let netns = format!("--net={}", forwarding(system, vrf).await.host.netns.display());
    let seen = poll(async || {
        let mut ping = tokio::process::Command::new("nsenter");
        ping.arg(&netns).args(["ping", "-n", "-c", "1", "-W", "1", address]).stdout(Stdio::null());
        (ping.status().await.ok()?.success() == reached).then_some(())
    });
    assert!(seen.await.is_some(), "the host behind VRF {vrf} pings {address}: not {reached}");
}

#[test]
#[ignore = "needs root: real nodes"]
fn pods_reach_the_hosts_behind_their_vrfs_only() {
    with_shared_nodes(async |system| {
        let objects = two_networks("outward", 160);
        let namespace = unchecked_namespace("outward");
        system.apply(&namespace).await;
        system.apply(&objects).await;
        let pods = deployment("outward", "cnf", 2, &json!({}));
        system.apply(&pods).await;
        let running: Vec<String> = system.running("outward", "app=cnf", 2).await.into_keys().collect();
        for (pod, color) in running.iter().zip(["blue", "red"]) {
            system.label("outward", pod, &format!("attach.eno.k8s.io/{color}"), Some("net1")).await;
        }
        let mut leases = Vec::new();
        for color in ["blue", "red"] {
            leases.extend(addresses(system, &format!("outward/{color}"), 1).await);
        }
        let (blue, red) = ((&*leases[0].0, &*leases[0].1[0]), (&*leases[1].0, &*leases[1].1[0]));
        for (pod, _) in [blue, red] {
            system.pings("outward", pod, "10.7.0.254", true).await;
            system.pings("outward", pod, OUTSIDE, true).await;
        }
        // Both VRFs have the same prefixes, and neither leads to the other's pod.
        host_pings(system, "outward-blue", blue.1, true).await;
        host_pings(system, "outward-red", red.1, true).await;
        host_pings(system, "outward-blue", red.1, false).await;
        host_pings(system, "outward-red", blue.1, false).await;

        // Without its VRFAttachment, the network stays for its pod.
        system.delete(&vrf_attachment("outward-red", "10.7.0.254/24", "")).await;
        system.pings("outward", red.0, OUTSIDE, false).await;
        system.pings("outward", blue.0, OUTSIDE, true).await;
        system.becomes::<L2ServiceAttachment>("outward/red", Phase::Ready).await;
        assert!(system.interfaces("outward", red.0).await.contains_key("net1"));
        assert_eq!(
            system
                .until_one::<L2Service>("outward-red", "ready", |_| true)
                .await
                .status
                .and_then(|status| status.phase),
            Some(Phase::Ready)
        );
        system.delete(&pods).await;
        system.delete(&[objects, namespace].concat()).await;
        assert!(system.view("gw1").await.vrfs.keys().all(|vrf| !vrf.starts_with("outward")));
    });
}

#[test]
#[ignore = "needs root: real nodes"]
fn changed_address_and_static_route_of_a_gateway_lead_to_pods() {
    with_shared_nodes(async |system| {
        let objects = two_networks("behind", 170);
        let namespace = unchecked_namespace("behind");
        system.apply(&namespace).await;
        system.apply(&objects).await;
        let pods =
            deployment("behind", "cnf", 1, &json!({"attach.eno.k8s.io/blue": "net1", "podconfig": "behind"}));
        system.apply(&pods).await;
        let leases = addresses(system, "behind/blue", 1).await;
        let (pod, own) = (&*leases[0].0, &*leases[0].1[0]);
        system.pings("behind", pod, "10.7.0.254", true).await;

        // The pod answers for an address of another network.
        let config = "apiVersion: podconfig.opdev.io/v1alpha1\nkind: PodConfig\nmetadata: {name: behind, namespace: behind}\n\
            spec: {networkAttachments: [{name: bh0, linkType: veth, master: bhbr0, parent: bh0, cidr: 192.168.171.0/24}]}\n";
        system.apply(config).await;
        let of_pod: PodConfig = configured(system, "behind/behind", |status| {
            status.phase == Some(ConfigPhase::Configured)
                && status.pod_configurations.iter().any(|one| !one.config_list.is_empty())
        })
        .await;
        let status = of_pod.status.expect("a status");
        let entry = &status.pod_configurations[0].config_list[0];
        let inner = field(entry, "podIPAddr").split('/').next().expect("an address").to_owned();
        host_pings(system, "behind-blue", &inner, false).await;
        let more = format!("StaticRoutes: [{{Prefix: 192.168.171.0/24, NextHop: {own}}}]");
        system
            .apply_until_ready::<VRFAttachment>(
                &vrf_attachment("behind-blue", "10.7.0.254/24", &more),
                "behind-blue",
            )
            .await;
        host_pings(system, "behind-blue", &inner, true).await;

        // A changed address is answered at once: the first request or the second, a second later.
        let moved = vrf_attachment("behind-blue", "10.7.0.253/24", &more);
        system.apply_until_ready::<VRFAttachment>(&moved, "behind-blue").await;
        let answered = system.exec("behind", pod, &["ping", "-c", "2", "-W", "1", "10.7.0.253"]).await;
        assert!(answered.is_some(), "not answered at once");
        system.pings("behind", pod, "10.7.0.254", false).await;
        system.becomes::<VRF>("behind-blue", Phase::Ready).await;
        system.delete(config).await;
        system.delete(&pods).await;
        system.delete(&[objects, namespace].concat()).await;
    });
}
