//! Pods on nodes that are VMs of OpenStack: their NICs are trunks of Neutron, and a bridge carries the VLANs of the
//! trunks' sub-ports.

use eno_control_plane::node::Machine;
use eno_nbi_crds::{ConnectionPoint, FabricDevice, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{Placed, System, deployment, two_nodes, until, with_own_sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::nodes::hot_plug::{addresses, attachment, network};

/// The machine behind the physical network.
const GATEWAY: &str = "cloud-gw";
/// Its address in the VLAN.
const GATEWAY_ADDRESS: &str = "10.100.0.1";

/// Runs a program on the gateway.
async fn on_gateway(system: &System, command: &str) {
    let machine = system.sandbox.machine(GATEWAY).expect("a gateway");
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let mut command = machine.command(program);
    command.args(arguments.split(' '));
    let output = tokio::process::Command::from(command).output().await.expect("a program");
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Gives the gateway an address in VLAN 100, as its administrator does.
async fn set_up_gateway(system: &System) {
    let ports = "ovs-vsctl add-br gw -- set bridge gw datapath_type=netdev -- add-port gw eth1 \
                 -- add-port gw inside tag=100 -- set interface inside type=internal";
    on_gateway(system, ports).await;
    on_gateway(system, &format!("ip address add {GATEWAY_ADDRESS}/24 dev inside")).await;
    on_gateway(system, "ip link set inside up").await;
}

/// Takes the sub-port of a VLAN off a trunk, as another client of Neutron may do.
async fn remove_sub_port(system: &System, trunk: &str, vid: u16) {
    let trunk = system.trunk(trunk).await;
    let sub_ports = trunk["sub_ports"].as_array().expect("a list");
    let port = sub_ports.iter().find(|sub| sub["segmentation_id"] == vid).expect("a sub-port");
    let path = format!("/v2.0/trunks/{}/remove_subports", trunk["id"].as_str().expect("an id"));
    let body = json!({ "sub_ports": [{ "port_id": port["port_id"] }] });
    system.cloud().client().put(&path, body).await.expect("Neutron");
}

/// Kills the machine of the bridge, and Neutron, which the sandbox starts again.
async fn check_restarts(system: &System) {
    let bridge = system.sandbox.machine("hypervisor").expect("a machine");
    let servers = system.cloud().server().supervisor();
    let before = (bridge.pid(), servers.pid("neutron").expect("a process"));
    for pid in [before.0, before.1] {
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("a process");
    }
    let restarted = until("both run again", async || {
        bridge.is_up()
            && bridge.pid() != before.0
            && servers.pid("neutron").is_some_and(|pid| pid != before.1)
            && system.cloud().client().get("/v2.0/networks").await.is_ok()
            && has_ports(bridge).await
    });
    tokio::select! {
        ended = system.sandbox.supervise() => panic!("{ended}"),
        _ = restarted => {}
    }
}

/// Whether the bridge has a port for each VM.
async fn has_ports(bridge: &Machine) -> bool {
    let mut command = bridge.command("ovs-vsctl");
    command.args(["--timeout=10", "list-ports", "cloud"]);
    let output = tokio::process::Command::from(command).output().await.expect("a program");
    String::from_utf8_lossy(&output.stdout).lines().filter(|port| port.starts_with("vm")).count() == 2
}

#[test]
#[ignore = "needs root: real nodes"]
fn pods_on_two_vms_reach_each_other_through_sub_ports() {
    let options = |options: &mut eno_lab::sandbox::SandboxOptions| {
        two_nodes(options);
        options.openstack = true;
    };
    with_own_sandbox(options, async |system| {
        let network = network("plug", 100)
            .replace("SegmentationID: 100,", "SegmentationID: 100, PhysicalNW: [cloud-gw],");
        system.apply_until_ready::<ConnectionPoint>(&network, "plug").await;
        let oam = attachment("plug", "oam");
        system.apply_until_ready::<L2ServiceAttachment>(&oam, "plug/oam").await;
        system.becomes::<L2Service>("plug", Phase::Ready).await;
        assert_eq!(system.placed(100).await, Placed::on(&["node1-trunk", "node2-trunk"]));
        set_up_gateway(system).await;
        let cnf = deployment("plug", "cnf", 2, &json!({ "attach.eno.k8s.io/oam": "net1" }));
        system.apply(&cnf).await;
        system.running("plug", "app=cnf", 2).await;
        let leases = addresses(system, "plug/oam", 2).await;
        assert_eq!(leases.len(), 2, "{leases:?}");
        let (first, other) = (&leases[0].0, &leases[1].1[0]);
        for (pod, address) in [(first, other), (&leases[1].0, &leases[0].1[0])] {
            system.pings("plug", pod, address, true).await;
            system.pings("plug", pod, GATEWAY_ADDRESS, true).await;
        }

        // Without its sub-port, a VM is off the VLAN until the driver repairs it.
        remove_sub_port(system, "node2-trunk", 100).await;
        system.pings("plug", first, other, false).await;
        system.patch("FabricDevice", "openstack", json!({ "spec": { "AuditInterval": 10 } })).await;
        system.pings("plug", first, other, true).await;
        assert_eq!(system.placed(100).await, Placed::on(&["node1-trunk", "node2-trunk"]));
        system.becomes::<FabricDevice>("openstack", Phase::Ready).await;

        check_restarts(system).await;
        system.pings("plug", first, other, true).await;

        system.delete(&cnf).await;
        system.delete(&[network, oam].concat()).await;
        system.assert_neutron_is_clean().await;
    });
}
