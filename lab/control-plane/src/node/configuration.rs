//! Configuration files of a node's programs, and paths inside a node.

use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

/// Path of containerd's socket (CRI) inside a node.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Path of ovsdb-server's socket inside a node.
pub const OVSDB_SOCKET: &str = "/run/openvswitch/db.sock";
/// Directory of CNI plugins inside a node.
pub const CNI_BIN: &str = "/var/lib/cni/bin";
/// Directory of CNI configurations inside a node.
pub const CNI_CONFIGURATION: &str = "/run/cni/net.d";
/// Bridge of the pods' primary network.
pub const POD_BRIDGE: &str = "cni0";

pub(super) const REGISTRY_CONFIGURATION: &str = "/run/containerd/certs.d";
pub(super) const KUBELET_PORT: u16 = 10250;

/// The configuration of containerd in version 2, which containerd 2 accepts too.
pub(super) fn containerd(snapshotter: &str) -> String {
    let pause = super::image::PAUSE;
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# It would make a directory below /opt.
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  # In a container, the one that runs the sandbox, no process may lower its own.
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  # Pods may ping without NET_RAW, by ICMP datagram sockets.
  enable_unprivileged_icmp = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_BIN}"
    conf_dir = "{CNI_CONFIGURATION}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{REGISTRY_CONFIGURATION}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"#
    )
}

/// The hosts.toml of containerd: it pulls from the sandbox's registry first, then from the registry in the image's
/// name.
pub(super) fn registry(url: &str) -> String {
    format!("[host.\"{url}\"]\n  capabilities = [\"pull\", \"resolve\"]\n")
}

/// The CNI configuration of the pods' primary network: a bridge on the node, which routes to other nodes' pods.
pub(super) fn pod_network(network: Ipv4Net) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "cluster",
        "plugins": [{
            "type": "bridge",
            "bridge": POD_BRIDGE,
            "isGateway": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": network}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

/// The network of all nodes' pods.
pub const POD_NETWORK: &str = "10.244.0.0/16";
/// The address of the Service of the name service, in [`crate::SERVICE_NETWORK`].
pub const DNS_ADDRESS: &str = "10.0.0.10";
/// The domain of the names of Services.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// Rules of nftables: pods reach what is outside of the cluster under their node's address.
pub(super) fn masquerade() -> String {
    format!(
        "table ip cluster {{
           chain postrouting {{
             type nat hook postrouting priority srcnat;
             ip saddr {POD_NETWORK} ip daddr != {POD_NETWORK} masquerade
           }}
         }}"
    )
}

/// The `KubeProxyConfiguration` (v1alpha1).
pub(super) fn kube_proxy(node: &str, address: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": super::machine::PROXY_KUBECONFIG},
        "clusterCIDR": POD_NETWORK,
        "hostnameOverride": node,
        "healthzBindAddress": format!("{address}:10256"),
        "metricsBindAddress": format!("{address}:10249"),
        "nodePortAddresses": [format!("{address}/32")],
        // The kernel's parameters are those of the host.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    })
}

/// Parameters of a kubelet's configuration.
pub(super) struct KubeletParameters<'a> {
    pub(super) address: Ipv4Addr,
    pub(super) cgroup: &'a str,
    pub(super) authority: &'a Path,
    pub(super) certificate: &'a Path,
    pub(super) key: &'a Path,
    /// Whether the cluster has Services and a name service.
    pub(super) services: bool,
}

/// The `KubeletConfiguration` (v1beta1).
pub(super) fn kubelet(kubelet: &KubeletParameters<'_>) -> Value {
    let mut configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": kubelet.address,
        "port": KUBELET_PORT,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": kubelet.authority},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": kubelet.certificate,
        "tlsPrivateKeyFile": kubelet.key,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": kubelet.cgroup,
        "enforceNodeAllocatable": [],
        // Accept the machine's cgroup version and swap.
        "failCgroupV1": false,
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        "maxPods": 240,
        // The minimum that a kubelet accepts: tests would attribute a longer backoff to the operator.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        "serializeImagePulls": false,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "nodeStatusUpdateFrequency": "4s",
    });
    if kubelet.services {
        configuration["clusterDNS"] = json!([DNS_ADDRESS]);
        configuration["clusterDomain"] = json!(CLUSTER_DOMAIN);
    }
    configuration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_network_uses_subnet_of_node() {
        let network = pod_network("10.244.3.0/24".parse().unwrap());
        assert_eq!(network["plugins"][0]["ipam"]["ranges"][0][0]["subnet"], "10.244.3.0/24");
    }
}
