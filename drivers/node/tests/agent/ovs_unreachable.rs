//! An Open vSwitch whose database doesn't answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eno_conformance::soon;
use eno_driver_node::addresses::Addresses;
use eno_driver_node::driver::{NodeDriver, Switch};
use eno_driver_node::host::Host;
use eno_driver_node::host::state::Installation;
use eno_driver_node::pods::{Options, Pods};
use eno_sbi::{Driver as _, Reconciled, Work};
use eno_schemas::{Applied, Command, Desired, HostNetwork, Item, NodeDesired, Outcome, OvsDatapath};

use super::conformance::{NoPods, probes};
use crate::host::common::Net;
use crate::ovs::fixture::{Database, FakeSwitch};

fn work(desired: Desired) -> Work {
    Work::alone(Command::new("node", "node1", (1, 1), desired))
}

fn networks(reconciled: &Reconciled) -> Vec<&str> {
    let Some(Applied::Node { networks, .. }) = &reconciled.applied else { panic!("{reconciled:?}") };
    networks.keys().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: network namespaces"]
async fn hanging_database_rejects_ovs_networks_and_the_rest_is_applied() {
    let (net, database) = (Net::new(), Database::start());
    let _switch = FakeSwitch::start(&database);
    let namespaces = tempfile::tempdir().unwrap();
    let options = Options {
        host: net.0.clone(),
        audit: Duration::ZERO,
        allowed_masters: BTreeSet::new(),
        ovs_datapath: eno_schemas::OvsDatapath::System,
        proc_sys_net: "/proc/sys/net".into(),
        namespaces: namespaces.path().to_owned(),
    };
    let switch = Arc::new(Switch::new(database.ovs(), Some(database.path("db.sock"))));
    let host = Host::new(net.0.clone(), Installation::default());
    let probes = probes("node1", &net.0, &switch);
    let addresses = Addresses::new(namespaces.path().join("no-ipam"), namespaces.path());
    let driver = NodeDriver::new("node1", addresses, host, Pods::new(NoPods, options), switch, probes);
    let ovs = HostNetwork::Ovs {
        datapath: Some(OvsDatapath::Netdev),
        uplink: None,
        patch: None,
        vlans: "10".parse().unwrap(),
    };
    let pods = HostNetwork::PodBridge { addresses: vec!["10.66.0.1/24".parse().unwrap()], mtu: None };
    let desired = Desired::Node(NodeDesired {
        cluster: "test".into(),
        networks: [("br0".to_owned(), ovs), ("pods".to_owned(), pods)].into(),
        ..NodeDesired::default()
    });
    let done = driver.reconcile(work(desired.clone())).await;
    assert_eq!((networks(&done), done.rejected.len()), (vec!["br0", "pods"], 0), "{done:?}");

    database.freeze(true);
    let hung = driver.reconcile(work(desired.clone())).await;
    assert_eq!((networks(&hung), &hung.outcome), (vec!["pods"], &Outcome::Applied));
    let [rejection] = hung.rejected.as_slice() else { panic!("{hung:?}") };
    assert_eq!(rejection.item, Item::port("br0"));
    assert!(rejection.unreachable && rejection.retryable, "{rejection:?}");

    database.freeze(false);
    let back = async {
        while !driver.reconcile(work(desired.clone())).await.rejected.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon("its return", back).await;
}
