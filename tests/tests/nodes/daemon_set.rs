//! The agents in pods of the DaemonSet of `deploy/`: its capabilities, seccomp profile, read-only root file system and
//! mounts.

use eno_lab::sandbox::{AgentMode, SandboxOptions};
use eno_nbi_crds::{ConfigPhase, ConnectionPoint, L2ServiceAttachment, Phase, PodConfig};
use eno_tests::{System, deployment, two_nodes, with_own_sandbox};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use serde_json::json;

use crate::nodes::hot_plug::{addresses, attachment, network};
use crate::nodes::pod_configs::{configured, field};

const NODES: [&str; 2] = ["node1", "node2"];
/// Paths of the programs in the image.
const AGENT: &str = "usr/local/bin/eno-driver-node";
const RESOLVER: &str = "usr/local/bin/eno-cri-resolver";
const AGENTS: &str = "eno-node";
/// Path of the CNI plugin on a node of the sandbox.
const PLUGIN: &str = "/var/lib/cni/bin/eno-ipam";

/// `CAP_NET_ADMIN` and `CAP_SYS_ADMIN` (capability.h: 12 and 21).
const AGENT_CAPABILITIES: u64 = 1 << 12 | 1 << 21;

/// Checks that a node runs one process of a program, confined to these capabilities; returns its process id.
async fn confined(system: &System, node: &str, program: &str, capabilities: u64) -> String {
    let (pid, status) = system.process(node, program).await;
    let value = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map_or_else(|| panic!("{key} in {status}"), str::trim)
    };
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(u64::from_str_radix(value(set), 16), Ok(capabilities), "{set} of {program}");
    }
    // Seccomp filters system calls (proc_pid_status(5)), and no new privileges lift that.
    assert_eq!((value("Seccomp"), value("NoNewPrivs")), ("2", "1"), "{program}");
    pid
}

/// A TAP device needs `/dev/net/tun`; an interface's kernel parameter needs the mount of `/proc/sys/net`.
const EXTRA: &str = r#"
apiVersion: podconfig.opdev.io/v1alpha1
kind: PodConfig
metadata: {name: extra, namespace: daemon}
spec:
  networkAttachments:
  - {name: tp, linkType: tap}
  - {name: vx, linkType: veth, master: dsbr0, cidr: 192.168.90.0/24, sysctls: {net.ipv4.conf.IFNAME.rp_filter: "2"}}
"#;

#[test]
#[ignore = "needs root: real nodes"]
fn daemon_set_agents_configure_pod_interfaces() {
    let options = |options: &mut SandboxOptions| {
        two_nodes(options);
        options.agent_mode = AgentMode::Pods;
    };
    with_own_sandbox(options, async |system| {
        for node in NODES {
            confined(system, node, AGENT, AGENT_CAPABILITIES).await;
            confined(system, node, RESOLVER, 0).await;
            // The first container of the pod has put it there, and has ended.
            let plugin = system.on_node(node, &["stat", "--format=%A %U", PLUGIN]).await;
            assert_eq!(plugin.trim(), "-rwxr-xr-x root", "{node}");
        }
        let network = network("daemon", 150);
        let oam = attachment("daemon", "oam");
        system.apply(&network).await;
        system.apply(&oam).await;
        system.apply_until_ready::<ConnectionPoint>(EXTRA, "daemon").await;
        let labels = json!({ "attach.eno.k8s.io/oam": "net1", "podconfig": "extra" });
        let cnf = deployment("daemon", "cnf", 2, &labels);
        system.apply(&cnf).await;
        system.running("daemon", "app=cnf", 2).await;
        each_reaches_the_others(system, 2).await;
        extras(system, 2).await;

        killed_agents_come_back(system).await;
        system.apply(&cnf.replace("\"replicas\":2", "\"replicas\":4")).await;
        let pods = system.running("daemon", "app=cnf", 4).await;
        each_reaches_the_others(system, 4).await;
        extras(system, 4).await;

        // All networks are removed from running pods.
        system.delete(EXTRA).await;
        for pod in pods.keys() {
            system.label("daemon", pod, "attach.eno.k8s.io/oam", None).await;
        }
        system.delete(&oam).await;
        for pod in pods.keys() {
            let interfaces = system.interfaces("daemon", pod).await;
            let names: Vec<&str> = interfaces.keys().map(String::as_str).collect();
            assert_eq!(names, ["eth0", "lo"], "{pod}");
        }
        system.delete(&cnf).await;
        system.delete(&network).await;
        for node in NODES {
            let bridges = system.on_node(node, &["ovs-vsctl", "list-br"]).await;
            assert_eq!(bridges, "", "{node}");
            let links = system.on_node(node, &["ip", "-br", "link"]).await;
            assert!(!links.contains("dsbr0") && !links.contains("hvx"), "{node}: {links}");
        }
    });
}

/// Checks that every pod has its own addresses on `net1` and reaches the pods on the other node.
async fn each_reaches_the_others(system: &System, count: usize) {
    let leases = addresses(system, "daemon/oam", count).await;
    assert_eq!(leases.len(), count, "{leases:?}");
    system.becomes::<L2ServiceAttachment>("daemon/oam", Phase::Ready).await;
    for (pod, own) in &leases {
        let interfaces = system.interfaces("daemon", pod).await;
        let net1 = interfaces.get("net1").unwrap_or_else(|| panic!("net1 of {pod}: {interfaces:?}"));
        assert!(own.len() == 2 && own.iter().all(|address| net1.contains(address)), "{own:?} {net1}");
        for (_, others) in leases.iter().filter(|(other, _)| other != pod) {
            system.pings("daemon", pod, &others[0], true).await;
        }
    }
}

/// Checks that every pod has the PodConfig's interfaces.
async fn extras(system: &System, count: usize) {
    let object: PodConfig = configured(system, "daemon/extra", |status| {
        status.phase == Some(ConfigPhase::Configured)
            && status.pod_configurations.iter().filter(|pod| pod.config_list.len() == 2).count() == count
    })
    .await;
    for pod in object.status.expect("a status").pod_configurations {
        let interfaces = system.interfaces("daemon", &pod.pod_name).await;
        assert!(interfaces.keys().any(|name| name.starts_with("tp")), "{pod:?}: {interfaces:?}");
        let names = pod.config_list.iter().map(|entry| field(entry, "podVethName"));
        let name = names.into_iter().find(|name| name.starts_with("vx")).expect("the veth pair");
        let parameter = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        let value = system.exec("daemon", &pod.pod_name, &["cat", &parameter]).await;
        assert_eq!(value.as_deref(), Some("2\n"), "{pod:?}");
    }
}

/// Kills both of a node's processes; the kubelet must restart them as confined as before.
async fn killed_agents_come_back(system: &System) {
    let before = [
        confined(system, NODES[0], AGENT, AGENT_CAPABILITIES).await,
        confined(system, NODES[0], RESOLVER, 0).await,
    ];
    for pid in &before {
        system.on_node(NODES[0], &["kill", "-KILL", pid]).await;
    }
    let restarted = |pod: &Pod| {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        let counted: Vec<_> = statuses.map(|status| status.ready && status.restart_count > 0).collect();
        counted == [true, true]
    };
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", NODES[0]));
    system
        .until(system.pods(AGENTS), config, "the agent's pod again", |all| all.values().any(restarted))
        .await;
    confined(system, NODES[0], AGENT, AGENT_CAPABILITIES).await;
    confined(system, NODES[0], RESOLVER, 0).await;
}
