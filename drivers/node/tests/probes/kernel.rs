//! Probes without Open vSwitch: by ports of a Linux bridge, and on VLAN subinterfaces of a NIC.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eno_conformance::soon;
use eno_driver_node::addresses::Addresses;
use eno_driver_node::driver::{NodeDriver, Switch};
use eno_driver_node::host::Host;
use eno_driver_node::host::state::Installation;
use eno_driver_node::ovs::{Datapath, Ovs};
use eno_driver_node::pods::{Options, Pods};
use eno_driver_node::probes::{GROUP, ProbeMetrics, Probes};
use eno_sbi::{Driver as _, Work};
use eno_schemas::{
    Applied, Command, Desired, HostNetwork, NetworkProbes, NodeDesired, ProbeResults, Uplink, VlanSet,
};
use futures::StreamExt as _;

use super::fixture::{CLUSTER, gateway, mac, ring, vlans};
use crate::agent::conformance::NoPods;
use crate::host::common::{Net, kernel_lacks};

/// A node without Open vSwitch.
struct Node {
    net: Net,
    host: Host,
    driver: NodeDriver<NoPods>,
    _folder: tempfile::TempDir,
}

impl Node {
    fn new(net: Net, proc_sys_net: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            host: net.0.clone(),
            audit: Duration::from_hours(1),
            allowed_masters: BTreeSet::new(),
            ovs_datapath: eno_schemas::OvsDatapath::System,
            proc_sys_net: "/proc/sys/net".into(),
            namespaces: folder.path().to_owned(),
        };
        let socket = folder.path().join("no-ovsdb");
        let ovs = Ovs::new(format!("unix:{}", socket.display()).parse().unwrap(), Datapath::Netdev);
        let switch = Arc::new(Switch::new(ovs, Some(socket)));
        let metrics = ProbeMetrics::default();
        let probes = Probes::start("node1", net.0.clone(), proc_sys_net, Arc::clone(&switch), metrics);
        let host = Host::new(net.0.clone(), Installation::default());
        let addresses = Addresses::new(folder.path().join("no-ipam"), folder.path());
        let driver =
            NodeDriver::new("node1", addresses, host.clone(), Pods::new(NoPods, options), switch, probes);
        Self { net, host, driver, _folder: folder }
    }

    async fn reconcile(&self, desired: &NodeDesired) -> Vec<ProbeResults> {
        let command = Command::new("node", "node1", (1, 1), Desired::Node(desired.clone()));
        let done = self.driver.reconcile(Work::alone(command)).await;
        assert!(done.rejected.is_empty(), "{done:?}");
        let Some(Applied::Node { probes, .. }) = done.applied else { panic!("{done:?}") };
        probes
    }

    /// The results, once they are as expected.
    async fn results(&self, desired: &NodeDesired, expected: impl Fn(&ProbeResults) -> bool) -> ProbeResults {
        let mut changed = std::pin::pin!(self.driver.changed());
        let found = async {
            loop {
                match self.reconcile(desired).await.pop() {
                    Some(found) if expected(&found) => return found,
                    _ => drop(changed.next().await),
                }
            }
        };
        soon("the results", found).await
    }

    fn ends(&self) -> bool {
        self.net.ip(&format!("link show group {GROUP}")).contains("enop")
    }
}

/// A desired state with that network, whose gateway is asked on VLANs 10 and 11.
fn desired(name: &str, network: HostNetwork) -> NodeDesired {
    let probes = NetworkProbes {
        network: name.to_owned(),
        next: None,
        previous: None,
        gateways: vec![gateway("192.0.2.1", "10-11")],
        ..ring(0, "10-11")
    };
    NodeDesired {
        cluster: CLUSTER.to_owned(),
        networks: BTreeMap::from([(name.to_owned(), network)]),
        probes: vec![probes],
        ..NodeDesired::default()
    }
}

/// Checks that the gateway on VLAN 10 answers, that nothing else of the host changes, and that nothing is left.
async fn check_gateway(name: &str, network: HostNetwork) {
    if kernel_lacks(&["filtering", "vlan", "macvlan"]) {
        return;
    }
    let (net, fabric) = (Net::new(), Net::new());
    net.nic("eth1", &fabric, "gw");
    fabric.ip("link set gw up");
    fabric.ip("link add link gw name gw.10 type vlan id 10");
    fabric.ip("address add 192.0.2.1/24 dev gw.10");
    fabric.ip("link set gw.10 up");
    let node = Node::new(net, "/proc/sys/net".into());
    let desired = desired(name, network);
    let found = node.results(&desired, |found| found.gateways.len() == 2).await;
    let answers: Vec<(String, Vec<String>)> = found
        .gateways
        .iter()
        .map(|one| (one.vlans.to_string(), one.macs.iter().cloned().collect()))
        .collect();
    let expected = [("11".to_owned(), vec![]), ("10".to_owned(), vec![mac(&fabric, "gw.10")])];
    assert_eq!(answers, expected);
    // The ports of probes are no drift.
    let writes = node.host.writes();
    node.reconcile(&desired).await;
    assert_eq!(node.host.writes(), writes);
    let Node { net, host, driver, _folder } = node;
    drop((driver, host));
    let gone = async { while net.ip(&format!("link show group {GROUP}")).contains("enop") {} };
    soon("no interface is left", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn gateway_is_asked_by_ports_of_a_linux_bridge() {
    let uplink = Some(Uplink { interfaces: vec!["eth1".to_owned()], mtu: None });
    check_gateway("br0", HostNetwork::Bridge { uplink, vlans: vlans("10-11"), mtu: None }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn gateway_is_asked_on_subinterfaces_of_a_nic() {
    check_gateway("eth1", HostNetwork::Master { bond: Vec::new(), vlans: vlans("10-11"), mtu: None }).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn namespace_that_cant_be_made_fails_no_reconcile() {
    let net = Net::new();
    net.ip("link add eth1 type veth peer name gw");
    let node = Node::new(net, "/none".into());
    let master = HostNetwork::Master { bond: Vec::new(), vlans: VlanSet::EMPTY, mtu: None };
    let found = node.results(&desired("eth1", master), |found| !found.unasked.is_empty()).await;
    assert_eq!((found.unasked[0].vlans.to_string().as_str(), found.gateways.len()), ("10-11", 0));
    let reason = found.unasked[0].reason.to_string();
    assert!(reason.contains("/none/ipv4/ip_forward"), "{reason}");
    assert!(!node.ends());
}
