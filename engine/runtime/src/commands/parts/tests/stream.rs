//! Commands in parts on a real NATS server.

use eno_conformance::NatsServer;
use eno_core::PendingCommand;
use eno_sbi::nats::{Connection, ensure_streams};
use eno_schemas::{Command, Generation, Subject, subject};
use tokio::sync::mpsc;

use super::*;
use crate::commands::drivers::{StoredCommands, commands};
use crate::commands::publish::{self, Outgoing};
use crate::metrics::Metrics;
use crate::watch::mailbox::Input;

struct Publisher {
    _server: NatsServer,
    connection: Connection,
    ledger: Ledger,
    /// The sequence of the last command.
    last: u64,
    sequence: u64,
}

impl Publisher {
    async fn start() -> Self {
        let server = NatsServer::start().await;
        let connection = server.connect("eno-engine").await;
        ensure_streams(&connection.jetstream, 1).await.unwrap();
        Self { _server: server, connection, ledger: Ledger::default(), last: 0, sequence: 0 }
    }

    /// Takes in what a task posted.
    fn take_in(&mut self, inputs: &mut mpsc::Receiver<Input>) {
        while let Ok(input) = inputs.try_recv() {
            match input {
                Input::Parts(event) => self.ledger.on_event(event, SECOND),
                Input::Event(eno_core::Event::Stream(eno_core::StreamEvent::Published(_, _, sequence))) => {
                    self.last = sequence;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Publishes a state. Returns the number of parts that had to be published.
    async fn publish(&mut self, state: &SwitchState, in_parts: bool) -> usize {
        self.sequence += 1;
        let (target, driver) = place();
        let parts = in_parts.then(|| (state.clone(), self.ledger.publish(&place(), state, SECOND)));
        let count = parts.as_ref().map_or(0, |(_, missing)| missing.len());
        let generation = Generation { term: 1, sequence: self.sequence, hash: state.root().to_string() };
        let pending = PendingCommand {
            generation,
            expected: self.last,
            moved_from: None,
            transaction: None,
            tree: Some(state.tree.clone()),
        };
        let outgoing = Outgoing { target, driver, desired: state.desired.clone(), pending, parts };
        let (mailbox, mut inputs) = mpsc::channel(100);
        publish::publish(&self.connection, &mailbox, &Metrics::default(), outgoing).await;
        self.take_in(&mut inputs);
        count
    }

    async fn stored(&self) -> StoredCommands {
        commands(&self.connection, &Metrics::default()).await.unwrap()
    }

    /// The command as a new leader reads it.
    async fn command(&self) -> Option<Command> {
        self.stored().await.commands.pop().expect("a command").command
    }

    async fn stored_parts(&self) -> Vec<PartHash> {
        let stored = self.stored().await;
        sorted(stored.parts.values().flatten().map(|(part, _)| *part).collect())
    }

    async fn purge(&mut self, purge: Purge) {
        let (mailbox, mut inputs) = mpsc::channel(1);
        publish::purge_part(&self.connection, &mailbox, purge).await;
        self.take_in(&mut inputs);
    }
}

#[tokio::test]
async fn command_in_parts_is_read_back_as_a_whole_one() {
    let mut nats = Publisher::start().await;
    let (few, more) = (state("100,2000-2031"), state("100,101,2000-2031"));
    assert_eq!(nats.publish(&few, true).await, 7);
    assert_eq!(nats.publish(&more, true).await, 3);
    let command = nats.command().await.expect("its parts are all there");
    assert_eq!((command.desired, command.generation.sequence), ((*more.desired).clone(), 2));
    let stored = nats.stored().await;
    assert_eq!(*stored.trees[&place()], *more.tree, "its tree is known without hashing");

    // What only the former head names is purged, and nothing else.
    for purge in nats.ledger.purges(SECOND + PART_GRACE) {
        nats.purge(purge).await;
    }
    assert_eq!(nats.stored_parts().await, sorted(more.tree.parts().collect()));

    // A whole command takes the place of the head.
    nats.publish(&few, false).await;
    assert_eq!(nats.command().await.expect("a command").desired, *few.desired);
    for purge in nats.ledger.purges(SECOND + PART_GRACE) {
        nats.purge(purge).await;
    }
    assert_eq!(nats.stored_parts().await, []);
}

#[tokio::test]
async fn late_purge_leaves_a_part_that_was_published_again() {
    let mut nats = Publisher::start().await;
    let (a, b) = (state("100"), state("200"));
    nats.publish(&a, true).await;
    nats.publish(&b, true).await;
    let purges = nats.ledger.purges(SECOND + PART_GRACE);
    assert_eq!(purges.len(), 3);
    nats.publish(&a, true).await;
    for purge in purges {
        nats.purge(purge).await;
    }
    assert_eq!(nats.command().await.expect("its parts are all there").desired, *a.desired);
}

#[tokio::test]
async fn command_that_lacks_a_part_counts_as_unreadable_until_it_is_published_again() {
    let mut nats = Publisher::start().await;
    let a = state("100");
    nats.publish(&a, true).await;
    let lost = Subject::part("netconf", "leaf1", a.root()).to_string();
    let stream = nats.connection.jetstream.get_stream(subject::PARTS).await.unwrap();
    stream.purge().filter(&lost).await.unwrap();
    assert_eq!(nats.command().await, None);
    nats.ledger.lacking(&place(), a.root(), &[a.root()], SECOND);
    for resend in nats.ledger.resends(SECOND) {
        let (mailbox, mut inputs) = mpsc::channel(10);
        publish::resend(&nats.connection, &mailbox, resend).await;
        nats.take_in(&mut inputs);
    }
    assert_eq!(nats.command().await.expect("its parts are all there").desired, *a.desired);
    assert_eq!(nats.ledger.next(), None);
}
