//! An agent that stores its node's networks in memory, with the host library of real drivers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use eno_sbi::host::{HostOptions, run};
use eno_sbi::nats::Connection;
use eno_sbi::{Driver, Identity, Ownership, Reconciled, Work};
use eno_schemas::{
    Applied, AppliedLink, AppliedNetwork, Desired, HostNetwork, Item, LinkName, NodeDesired, Note,
    PayloadKind, PodLink, VlanSet,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The PID of every container on the node.
pub const PID: u32 = 2_841_804;

/// The received desired states, in order.
pub type ReceivedCommands = Arc<Mutex<Vec<NodeDesired>>>;

/// Inspects a desired state before it is carried out.
pub type Check = Arc<dyn Fn(NodeDesired) -> futures::future::BoxFuture<'static, ()> + Send + Sync>;

struct Memory {
    node: String,
    received: ReceivedCommands,
    check: Check,
}

impl Driver for Memory {
    fn identity(&self) -> Identity {
        Identity { name: "node".into(), kinds: vec![PayloadKind::Node], capabilities: Vec::new() }
    }

    fn only_target(&self) -> Option<String> {
        Some(self.node.clone())
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let Desired::Node(desired) = &work.command.desired else { panic!("{:?}", work.command) };
        (self.check)(desired.clone()).await;
        let before = {
            let mut received = self.received.lock().unwrap();
            received.push(desired.clone());
            received.iter().rev().nth(1).map_or(0, |before| before.pods.len())
        };
        let networks = desired.networks.iter().map(|(name, network)| (name.clone(), carried(network)));
        let pods = desired.pods.iter().map(|(uid, pod)| {
            let mut links: BTreeMap<_, _> =
                pod.links.iter().map(|link| (link.id.clone(), applied_link(link))).collect();
            links.extend(pod.primary.iter().map(|primary| {
                let link = AppliedLink {
                    revision: primary.revision.clone(),
                    name: primary.name.clone(),
                    mtu: primary.mtu,
                    ..AppliedLink::default()
                };
                (primary.id.clone(), link)
            }));
            (uid.clone(), links)
        });
        let applied = Applied::Node { networks: networks.collect(), pods: pods.collect() };
        let mut reconciled = Reconciled::applied(applied);
        if let Some(uid) = desired.pods.keys().next().filter(|_| before == 0) {
            let message = "somebody took an address off it".into();
            reconciled.notes.push(Note { kind: "Repaired".into(), item: Item::pod(uid), message });
        }
        reconciled
    }
}

fn carried(network: &HostNetwork) -> AppliedNetwork {
    match network {
        HostNetwork::Ovs { uplink, vlans, .. } => {
            AppliedNetwork { vlans: vlans.clone(), mtu: uplink.as_ref().and_then(|uplink| uplink.mtu) }
        }
        HostNetwork::Bridge { vlans, mtu, .. } | HostNetwork::Master { vlans, mtu, .. } => {
            AppliedNetwork { vlans: vlans.clone(), mtu: *mtu }
        }
        HostNetwork::PodBridge { mtu, .. } => AppliedNetwork { vlans: VlanSet::EMPTY, mtu: *mtu },
    }
}

fn applied_link(link: &PodLink) -> AppliedLink {
    let (name, host_name) = match &link.name {
        LinkName::Fixed(name) => (name.clone(), None),
        LinkName::WithPid(name) => (format!("{name}{PID}"), Some(format!("h{name}{PID}"))),
    };
    AppliedLink {
        revision: link.revision.clone(),
        name,
        host_name,
        mac: Some("02:00:00:00:00:01".into()),
        mtu: link.mtu.unwrap_or(1500),
        path: None,
        addresses: link.addresses.clone(),
    }
}

/// Runs the agent of a node until `stop`.
pub fn start(
    node: &str,
    connection: Connection,
    check: Check,
    stop: CancellationToken,
) -> (ReceivedCommands, JoinHandle<()>) {
    let received = ReceivedCommands::default();
    let driver = Memory { node: node.into(), received: received.clone(), check };
    let options =
        HostOptions { instance: node.into(), ..HostOptions::new(connection, Ownership::PerTarget, "1") };
    let task = tokio::spawn(async move {
        run(driver, options, stop).await.unwrap();
    });
    (received, task)
}
