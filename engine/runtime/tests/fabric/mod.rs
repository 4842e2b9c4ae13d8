//! Switches in memory, with the host library of real drivers.

use std::sync::{Arc, Mutex};

use eno_sbi::host::{HostOptions, run};
use eno_sbi::nats::Connection;
use eno_sbi::{Driver, Identity, Ownership, Reconciled, Work};
use eno_schemas::{Desired, FabricDesired, PayloadKind};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The received desired states, in order.
pub type ReceivedCommands = Arc<Mutex<Vec<FabricDesired>>>;

struct Memory(ReceivedCommands);

impl Driver for Memory {
    fn identity(&self) -> Identity {
        Identity { name: "memory".into(), kinds: vec![PayloadKind::Fabric], capabilities: Vec::new() }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let Desired::Fabric(desired) = &work.command.desired else { panic!("{:?}", work.command) };
        self.0.lock().unwrap().push(desired.clone());
        Reconciled::applied(desired.carried_out())
    }
}

/// Runs the driver until `stop`.
pub fn start(connection: Connection, stop: CancellationToken) -> (ReceivedCommands, JoinHandle<()>) {
    let received = ReceivedCommands::default();
    let driver = Memory(received.clone());
    let task = tokio::spawn(async move {
        run(driver, HostOptions::new(connection, Ownership::WholeDriver, "1"), stop).await.unwrap();
    });
    (received, task)
}
