//! Random histories of an engine, a driver and what NATS stores of one switch: changes, lost messages and answers,
//! other orders, crashes of either side, lost and restored streams, and late messages of former leaders. In the end the
//! driver has the newest command, and NATS stores the parts that it names and no others.

use std::collections::VecDeque;
use std::time::Instant;

use eno_sbi::host::parts::{Assembler, Due, Step};
use eno_schemas::{Command, Generation, Head, Part, decode_part};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What may happen. Numbers select one of several messages.
#[derive(Clone, Debug)]
enum Op {
    /// The desired state becomes one of a few.
    Change(usize),
    /// A message arrives at NATS.
    Arrive(usize),
    /// A message is lost, and so is an answer.
    LoseMessage(usize),
    Answer(usize),
    LoseAnswer(usize),
    /// The engine sees the next stored part.
    Echo,
    /// The driver sees the next stored part or head.
    SeePart,
    SeeHead,
    Pass(u64),
    CrashEngine,
    CrashDriver,
    LosePart(usize),
    /// A server's answer takes the place of a part.
    GarblePart(usize),
    LoseStreams,
    Snapshot,
    /// The store becomes that of the snapshot.
    Restore,
}

fn op() -> impl Strategy<Value = Op> {
    let some = 0..100usize;
    prop_oneof![
        6 => (0..6usize).prop_map(Op::Change),
        20 => some.clone().prop_map(Op::Arrive),
        2 => some.clone().prop_map(Op::LoseMessage),
        20 => some.clone().prop_map(Op::Answer),
        2 => some.clone().prop_map(Op::LoseAnswer),
        8 => Just(Op::Echo),
        8 => Just(Op::SeePart),
        8 => Just(Op::SeeHead),
        6 => (1..40u64).prop_map(Op::Pass),
        1 => Just(Op::CrashEngine),
        1 => Just(Op::CrashDriver),
        1 => some.clone().prop_map(Op::LosePart),
        1 => some.prop_map(Op::GarblePart),
        1 => Just(Op::LoseStreams),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Restore),
    ]
}

/// A message under way to NATS.
#[derive(Clone, Debug)]
struct Message {
    /// The term of its engine.
    term: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Part(PartHash, Vec<u8>),
    /// With the sequence that the subject must have.
    Head(Head, u64),
    Purge(Purge),
}

/// An answer under way to an engine. The message was lost if it has no result.
#[derive(Clone, Debug)]
struct Answer {
    message: Message,
    result: Option<Result<u64, u64>>,
}

/// What NATS stores.
#[derive(Clone, Debug, Default)]
struct Nats {
    last: u64,
    parts: BTreeMap<PartHash, (u64, Vec<u8>)>,
    head: Option<(u64, Head)>,
}

impl Nats {
    fn sequence(&self) -> u64 {
        self.head.as_ref().map_or(0, |(sequence, _)| *sequence)
    }

    fn sequences(&self) -> Sequences {
        let parts = self.parts.iter().map(|(part, (sequence, _))| (*part, *sequence));
        [(place(), parts.collect())].into()
    }
}

/// Parts that are being published: those of a head, or lost ones.
#[derive(Debug, Default)]
struct Batch {
    waiting: BTreeSet<PartHash>,
    stored: Vec<(PartHash, u64)>,
    failed: bool,
}

impl Batch {
    /// Takes in an answer. True: it was the last one.
    fn answered(&mut self, part: PartHash, sequence: Option<u64>) -> bool {
        self.failed |= sequence.is_none();
        self.stored.extend(sequence.map(|sequence| (part, sequence)));
        self.waiting.remove(&part) && self.waiting.is_empty()
    }
}

/// The leader: the ledger, and as much of the schedule as it needs.
#[derive(Default)]
struct Engine {
    term: u64,
    sequence: u64,
    ledger: Ledger,
    /// The index of the desired state that the stored head has; `None`: it has to be commanded.
    commanded: Option<usize>,
    /// The sequence of the last message on the subject of commands.
    seen: u64,
    /// The head that is being published, with the index of its state.
    publishing: Option<(usize, Head)>,
    batch: Batch,
    resending: Batch,
    /// What it reads of the stream of parts.
    echoes: VecDeque<PartsEvent>,
}

struct Driver {
    assembler: Assembler,
    parts: VecDeque<(PartHash, Vec<u8>)>,
    heads: VecDeque<Head>,
    /// The last command.
    command: Option<Command>,
}

struct World {
    states: Vec<SwitchState>,
    wanted: usize,
    now: Duration,
    began: Instant,
    nats: Nats,
    snapshot: Nats,
    under_way: Vec<Message>,
    answers: Vec<Answer>,
    engine: Engine,
    driver: Driver,
}

impl World {
    fn new() -> Self {
        let states = ["", "100", "100-131", "100,2000-2040", "1-4094", "2000"].map(state).into();
        let driver = Driver {
            assembler: Assembler::default(),
            parts: VecDeque::new(),
            heads: VecDeque::new(),
            command: None,
        };
        let mut world = Self {
            states,
            wanted: 0,
            now: SECOND,
            began: Instant::now(),
            nats: Nats::default(),
            snapshot: Nats::default(),
            under_way: Vec::new(),
            answers: Vec::new(),
            engine: Engine::default(),
            driver,
        };
        world.start_engine();
        world
    }

    fn send(&mut self, content: Content) {
        self.under_way.push(Message { term: self.engine.term, content });
    }

    /// A new leader reads what NATS stores. Messages of the former one are under way still.
    fn start_engine(&mut self) {
        let term = self.engine.term + 1;
        self.answers.clear();
        self.engine = Engine { term, seen: self.nats.sequence(), ..Engine::default() };
        let head = self.nats.head.as_ref().map(|(_, head)| head.clone());
        if let Some(head) = head {
            let parts: BTreeMap<PartHash, Part> = self
                .nats
                .parts
                .iter()
                .filter_map(|(hash, (_, payload))| Some((*hash, decode_part(*hash, payload).ok()?)))
                .collect();
            let found = eno_schemas::assemble(head.generation.hash, |hash| parts.get(&hash), None);
            if let Ok((tree, desired)) = found {
                let state = SwitchState::new(Arc::new(Desired::Fabric(desired)), Arc::new(tree));
                self.engine.commanded = self.states.iter().position(|one| one.root() == state.root());
                self.engine.ledger.restore_head(place(), state);
            }
        }
        self.engine.ledger.on_event(PartsEvent::Read(self.nats.sequences()), self.now);
        self.read_parts();
    }

    /// The engine reads all parts again, and then follows them.
    fn read_parts(&mut self) {
        self.engine.echoes.clear();
        self.engine.ledger.on_event(PartsEvent::ReadingBegins, self.now);
        self.engine.echoes.push_back(PartsEvent::Read(self.nats.sequences()));
    }

    /// All connections were broken.
    fn reconnect(&mut self) {
        self.read_parts();
        self.read_as_driver();
    }

    fn read_as_driver(&mut self) {
        self.driver.assembler.replay_started();
        self.driver.parts =
            self.nats.parts.iter().map(|(part, (_, payload))| (*part, payload.clone())).collect();
        self.driver.heads = self.nats.head.iter().map(|(_, head)| head.clone()).collect();
    }

    /// The engine does what is due.
    fn work(&mut self) {
        // The schedule compares the sequences for a minute after a connection.
        if self.engine.publishing.is_none() && self.nats.sequence() < self.engine.seen {
            (self.engine.commanded, self.engine.seen) = (None, self.nats.sequence());
        }
        if self.engine.publishing.is_none() && self.engine.commanded != Some(self.wanted) {
            self.publish();
        }
        for Resend { state, parts, .. } in self.engine.ledger.resends(self.now) {
            self.engine.resending = Batch { waiting: parts.iter().copied().collect(), ..Batch::default() };
            for part in parts {
                self.send(Content::Part(part, state.payload(part).expect("a part of the state")));
            }
        }
        for purge in self.engine.ledger.purges(self.now) {
            self.send(Content::Purge(purge));
        }
    }

    fn publish(&mut self) {
        let index = self.wanted;
        let state = self.states[index].clone();
        self.engine.sequence += 1;
        let generation = Generation {
            term: self.engine.term,
            sequence: self.engine.sequence,
            hash: state.root().to_string(),
        };
        let (driver, target) = ("netconf".to_owned(), "leaf1".to_owned());
        let desired = Desired::clone(&state.desired);
        let head = Head::of(&Command { driver, target, generation, desired, transaction: None });
        self.engine.publishing = Some((index, head.expect("a switch")));
        let missing = self.engine.ledger.publish(&place(), &state, self.now);
        self.engine.batch = Batch { waiting: missing.iter().copied().collect(), ..Batch::default() };
        if missing.is_empty() {
            self.send_head();
        }
        for part in missing {
            self.send(Content::Part(part, state.payload(part).expect("a part of the state")));
        }
    }

    fn send_head(&mut self) {
        let Some((_, head)) = self.engine.publishing.clone() else { return };
        self.send(Content::Head(head, self.engine.seen));
    }

    /// A message arrives at NATS.
    fn arrive(&mut self, message: Message) {
        let nats = &mut self.nats;
        let result = match &message.content {
            Content::Part(part, payload) => {
                nats.last += 1;
                nats.parts.insert(*part, (nats.last, payload.clone()));
                let stored = PartsEvent::Stored(place(), *part, nats.last);
                self.engine.echoes.push_back(stored);
                self.driver.parts.push_back((*part, payload.clone()));
                Ok(nats.last)
            }
            Content::Head(_, expected) if *expected != nats.sequence() => Err(nats.sequence()),
            Content::Head(head, _) => {
                nats.last += 1;
                nats.head = Some((nats.last, head.clone()));
                self.driver.heads.push_back(head.clone());
                if message.term != self.engine.term {
                    (self.engine.commanded, self.engine.seen) = (None, nats.last);
                }
                Ok(nats.last)
            }
            Content::Purge(Purge { part, sequence, .. }) => {
                if nats.parts.get(part).is_some_and(|(stored, _)| stored <= sequence) {
                    nats.parts.remove(part);
                }
                Ok(0)
            }
        };
        self.answers.push(Answer { message, result: Some(result) });
    }

    /// An answer arrives at its engine.
    fn answered(&mut self, Answer { message, result }: Answer) {
        if message.term != self.engine.term {
            return;
        }
        let (engine, now) = (&mut self.engine, self.now);
        match message.content {
            Content::Part(part, _) => {
                let sequence = result.and_then(Result::ok);
                if engine.resending.waiting.contains(&part) {
                    if engine.resending.answered(part, sequence) {
                        let Batch { stored, failed, .. } = std::mem::take(&mut engine.resending);
                        engine.ledger.on_event(PartsEvent::Resent(place(), stored, !failed), now);
                    }
                } else if engine.batch.answered(part, sequence) {
                    let Batch { stored, failed, .. } = std::mem::take(&mut engine.batch);
                    engine.ledger.on_event(PartsEvent::Published(place(), stored), now);
                    if failed {
                        engine.ledger.on_event(PartsEvent::CommandNotStored(place()), now);
                        (engine.publishing, engine.commanded) = (None, None);
                    } else {
                        self.send_head();
                    }
                }
            }
            Content::Head(head, _) => {
                let Some((index, _)) = engine.publishing.take() else { return };
                match result {
                    Some(Ok(sequence)) => {
                        let root = Some(head.generation.hash);
                        engine.ledger.on_event(PartsEvent::CommandStored(place(), root), now);
                        // Another command may have come since.
                        engine.commanded = Some(index).filter(|_| engine.seen <= sequence);
                        engine.seen = engine.seen.max(sequence);
                    }
                    Some(Err(found)) => {
                        engine.ledger.on_event(PartsEvent::CommandNotStored(place()), now);
                        (engine.commanded, engine.seen) = (None, found);
                    }
                    None => {
                        engine.ledger.on_event(PartsEvent::CommandNotStored(place()), now);
                        engine.commanded = None;
                    }
                }
            }
            Content::Purge(purge) => {
                engine.ledger.on_event(PartsEvent::Purged(purge, result.is_some()), now);
            }
        }
    }

    fn lose(&mut self, message: Message) {
        self.answers.push(Answer { message, result: None });
    }

    fn echo(&mut self) {
        if let Some(event) = self.engine.echoes.pop_front() {
            self.engine.ledger.on_event(event, self.now);
        }
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Complete(command, _) => self.driver.command = Some(*command),
            Step::Invalid(_, reason) => panic!("the parts that an engine publishes are valid: {reason}"),
            Step::None | Step::Older => {}
        }
    }

    fn see_part(&mut self) {
        if let Some((part, payload)) = self.driver.parts.pop_front() {
            let at = self.began + self.now;
            // A garbled part is ignored.
            if let Ok(step) = self.driver.assembler.part("leaf1", part, &payload, at) {
                self.take_step(step);
            }
        }
        if self.driver.parts.is_empty() {
            self.driver.assembler.replay_caught_up();
        }
    }

    fn see_head(&mut self) {
        if let Some(head) = self.driver.heads.pop_front() {
            let step = self.driver.assembler.head(head, Duration::ZERO, self.began + self.now);
            self.take_step(step);
        }
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        while let Some(due) = self.driver.assembler.due(self.began + self.now) {
            match due {
                Due::Read(_, parts) => {
                    let stored = |part| Some((part, self.nats.parts.get(&part)?.1.clone()));
                    let found: Vec<_> = parts.into_iter().filter_map(stored).collect();
                    self.driver.parts.extend(found);
                }
                Due::Report(_, lacking) => {
                    let root = lacking.generation.hash.parse().expect("a root");
                    self.engine.ledger.lacking(&place(), root, &lacking.parts, self.now);
                }
            }
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Change(index) => self.wanted = index % self.states.len(),
            Op::Arrive(which) if !self.under_way.is_empty() => {
                let message = self.under_way.swap_remove(which % self.under_way.len());
                self.arrive(message);
            }
            Op::LoseMessage(which) if !self.under_way.is_empty() => {
                let message = self.under_way.swap_remove(which % self.under_way.len());
                self.lose(message);
            }
            Op::Answer(which) if !self.answers.is_empty() => {
                let answer = self.answers.swap_remove(which % self.answers.len());
                self.answered(answer);
            }
            Op::LoseAnswer(which) if !self.answers.is_empty() => {
                let answer = self.answers.swap_remove(which % self.answers.len());
                self.answered(Answer { result: None, ..answer });
            }
            Op::Echo => self.echo(),
            Op::SeePart => self.see_part(),
            Op::SeeHead => self.see_head(),
            Op::Pass(seconds) => self.pass(seconds),
            Op::CrashEngine => self.start_engine(),
            Op::CrashDriver => {
                self.driver.assembler = Assembler::default();
                self.read_as_driver();
            }
            Op::LosePart(which) => {
                if let Some(part) = self.nats.parts.keys().copied().nth(which) {
                    self.nats.parts.remove(&part);
                    self.reconnect();
                }
            }
            Op::GarblePart(which) => {
                if let Some(part) = self.nats.parts.keys().copied().nth(which) {
                    self.nats.last += 1;
                    let sequence = self.nats.last;
                    self.nats.parts.insert(part, (sequence, b"{}".to_vec()));
                    self.engine.echoes.push_back(PartsEvent::Stored(place(), part, sequence));
                    self.driver.parts.push_back((part, b"{}".to_vec()));
                }
            }
            Op::LoseStreams => {
                self.nats = Nats::default();
                self.engine.ledger.on_event(PartsEvent::StreamLost, self.now);
                (self.engine.commanded, self.engine.seen) = (None, 0);
                self.reconnect();
            }
            Op::Snapshot => self.snapshot = self.nats.clone(),
            Op::Restore => {
                self.nats = self.snapshot.clone();
                self.reconnect();
            }
            Op::Arrive(_) | Op::LoseMessage(_) | Op::Answer(_) | Op::LoseAnswer(_) => {}
        }
        self.work();
    }

    /// Everything arrives, in the order in which it was sent, and a minute passes several times.
    fn settle(&mut self) {
        for _ in 0..8 {
            for _ in 0..60 {
                self.pass(1);
                self.work();
                while self.has_work() {
                    for message in std::mem::take(&mut self.under_way) {
                        self.arrive(message);
                    }
                    for answer in std::mem::take(&mut self.answers) {
                        self.answered(answer);
                    }
                    self.echo();
                    self.see_part();
                    self.see_head();
                    self.work();
                }
            }
        }
    }

    fn has_work(&self) -> bool {
        let Self { under_way, answers, engine, driver, .. } = self;
        let queues = !engine.echoes.is_empty() || !driver.parts.is_empty() || !driver.heads.is_empty();
        let is_due = engine.publishing.is_none() && engine.commanded != Some(self.wanted);
        queues || !under_way.is_empty() || !answers.is_empty() || is_due
    }

    fn assert_settled(&self) {
        let wanted = &self.states[self.wanted];
        let (_, head) = self.nats.head.as_ref().expect("a head");
        assert_eq!(head.generation.hash, wanted.root(), "the last head has another state");
        let command = self.driver.command.as_ref().expect("a command");
        assert_eq!(command.generation, head.generation(), "the driver has another command");
        assert_eq!(command.desired, *wanted.desired);
        let named: BTreeSet<PartHash> = wanted.tree.parts().collect();
        let stored: BTreeSet<PartHash> = self.nats.parts.keys().copied().collect();
        assert_eq!(stored, named, "NATS stores other parts than the head names");
        let known: BTreeSet<PartHash> = self.engine.ledger.places[&place()].stored.keys().copied().collect();
        assert_eq!(known, named, "the ledger knows other parts");
        assert_eq!(self.engine.ledger.next(), None);
    }
}

proptest! {
    #[test]
    fn driver_gets_the_newest_command_and_no_part_is_left(ops in vec(op(), 0..150)) {
        let mut world = World::new();
        world.work();
        for op in ops {
            world.run(&op);
        }
        world.settle();
        // A late purge of a former leader may have taken a part that the driver has already. One that starts asks for it.
        world.run(&Op::CrashDriver);
        world.settle();
        world.assert_settled();
    }
}
