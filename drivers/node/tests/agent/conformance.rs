//! The conformance suite, with pod bridges as items. The kernel is always reachable and refuses nothing temporarily, so
//! the checks of those cases are left out.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eno_conformance::{DriverFixture, checks};
use eno_driver_node::addresses::Addresses;
use eno_driver_node::driver::{NodeDriver, Switch};
use eno_driver_node::host::state::Installation;
use eno_driver_node::host::{Host, ownership};
use eno_driver_node::netlink::Namespace;
use eno_driver_node::ovs::{Datapath, Ovs};
use eno_driver_node::pods::{Options, Pods, Resolve, Sandbox, Unresolved};
use eno_driver_node::probes::{ProbeMetrics, Probes};
use eno_schemas::{Desired, HostNetwork, Item, NodeDesired};

use crate::host::common::{Net, without_transients};

/// A resolver that knows no pods.
pub struct NoPods;

impl Resolve for NoPods {
    async fn resolve(&self, _uid: &str, _container: Option<&str>) -> Result<Sandbox, Unresolved> {
        Err(Unresolved { message: "no pods here".into(), retryable: false, gone: true })
    }
}

/// The probes of a node in that namespace.
pub fn probes(node: &str, host: &Namespace, switch: &Arc<Switch>) -> Probes {
    Probes::start(node, host.clone(), "/proc/sys/net".into(), Arc::clone(switch), ProbeMetrics::default())
}

struct Node {
    net: Net,
    folder: tempfile::TempDir,
    hosts: Mutex<Vec<Host>>,
}

impl Node {
    fn new() -> Self {
        let net = Net::new();
        net.ip("link add foreign type bridge");
        net.ip("link set foreign addrgenmode none");
        net.ip("link set foreign up");
        net.ip("address add 198.51.100.1/24 dev foreign");
        Self { net, folder: tempfile::tempdir().unwrap(), hosts: Mutex::default() }
    }
}

fn name(item: usize) -> String {
    format!("item{item}")
}

impl DriverFixture for Node {
    type Driver = NodeDriver<NoPods>;

    fn item_count(&self) -> usize {
        3
    }

    fn driver(&self) -> NodeDriver<NoPods> {
        let host = Host::new(self.net.0.clone(), Installation::default());
        self.hosts.lock().unwrap().push(host.clone());
        let options = Options {
            host: self.net.0.clone(),
            audit: Duration::ZERO,
            allowed_masters: BTreeSet::new(),
            ovs_datapath: eno_schemas::OvsDatapath::System,
            proc_sys_net: "/proc/sys/net".into(),
            namespaces: self.folder.path().to_owned(),
        };
        let socket = self.folder.path().join("no-ovsdb");
        let ovs = Ovs::new(format!("unix:{}", socket.display()).parse().unwrap(), Datapath::Netdev);
        let switch = Arc::new(Switch::new(ovs, Some(socket)));
        let probes = probes("node1", &self.net.0, &switch);
        let addresses = Addresses::new(self.folder.path().join("no-ipam"), self.folder.path());
        NodeDriver::new("node1", addresses, host, Pods::new(NoPods, options), switch, probes)
    }

    fn target(&self) -> String {
        "node1".into()
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        let network = |item: usize| HostNetwork::PodBridge {
            addresses: vec![format!("10.66.{item}.1/24").parse().unwrap()],
            mtu: Some(1400),
        };
        Desired::Node(NodeDesired {
            cluster: "test".into(),
            networks: items.iter().map(|item| (name(*item), network(*item))).collect(),
            ..NodeDesired::default()
        })
    }

    async fn items(&self) -> BTreeSet<usize> {
        let (up, rules) = (self.net.ip("-o link show up"), self.net.ip("rule show"));
        let there = |item: &usize| {
            up.contains(&format!(": {}:", name(*item))) && rules.contains(&format!("10.66.{item}.0/24"))
        };
        (0..self.item_count()).filter(there).collect()
    }

    async fn foreign(&self) -> String {
        let all = self.net.ip("-o link show") + &self.net.ip("-o address show") + &self.net.foreign_state();
        without_transients(&all.lines().filter(|line| !line.contains("item")).collect::<Vec<_>>().join("\n"))
    }

    async fn writes(&self) -> u64 {
        self.hosts.lock().unwrap().iter().map(Host::writes).sum()
    }

    async fn set_reachable(&self, _reachable: bool) {}

    async fn set_refused(&self, _item: Option<usize>) {}

    async fn edit(&self, item: usize, present: bool) {
        let name = name(item);
        if present {
            self.net.ip(&format!("link add {name} group {} type bridge", ownership::group("test")));
        } else {
            self.net.ip(&format!("link del {name}"));
        }
    }

    fn names(&self, item: usize, found: &Item) -> bool {
        found.port.as_ref() == Some(&name(item))
    }
}

macro_rules! checked {
    ($($check:ident)+) => { $(
        #[tokio::test(flavor = "multi_thread")]
        #[ignore = "needs root: network namespaces"]
        async fn $check() {
            checks::$check(&Node::new()).await;
        }
    )+ };
}

checked! {
    apply_converges_and_preserves_foreign_config reconcile_without_drift_writes_nothing reconcile_removes_undesired_items reconcile_repairs_external_edits
    superseded_command_writes_nothing interrupted_reconcile_converges_when_repeated
}
