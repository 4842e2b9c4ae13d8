//! An agent that stores its node's networks in memory, with the host library of real drivers.

use std::sync::{Arc, Mutex};

use eno_sbi::host::{HostOptions, run};
use eno_sbi::nats::Connection;
use eno_sbi::{Driver, Identity, Ownership, Reconciled, Work};
use eno_schemas::{AppliedLink, Desired, Item, NodeDesired, Note, PayloadKind};
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
        let applied = desired.carried_out(|_, link| AppliedLink {
            mac: Some("02:00:00:00:00:01".into()),
            ..link.carried_out(&PID.to_string())
        });
        let mut reconciled = Reconciled::applied(applied);
        if let Some(uid) = desired.pods.keys().next().filter(|_| before == 0) {
            let message = "somebody took an address off it".into();
            reconciled.notes.push(Note { kind: "Repaired".into(), item: Item::pod(uid), message });
        }
        reconciled
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
