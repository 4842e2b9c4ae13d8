//! A core that leads nothing. It is fed with a cluster, and asked what is and what would follow: nothing of what it decides
//! leaves it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Generation, Outcome, Report};

use crate::{
    Config, Effect, Engine, Event, Key, Moment, Name, Object, Participant, PendingCommand, PodView, Status,
    StreamEvent, Target,
};

/// Constant time; no evaluation depends on it.
const NOW: &str = "1970-01-01T00:00:00Z";
/// Commands of one target between two events that are answered.
const MAX_ANSWERS: u32 = 8;

/// What answers commands in the place of drivers.
pub trait Answers {
    /// True: what is decided is carried out, and time passes when nothing else can happen. False: only what is fed
    /// happens.
    const CARRIED_OUT: bool;

    /// The report on a command; its generation is set to that of the command. `None`: there is none.
    fn answer(&self, participant: &Participant) -> Option<Report>;
}

/// The last reports of drivers. They answer whatever is commanded, since the same objects lead to the same commands. A
/// report on an earlier command lacks what was not commanded then.
#[derive(Debug, Default)]
pub struct Reported(BTreeMap<Target, Arc<Report>>);

/// A core, and what it decided.
#[derive(Debug)]
pub struct Observer<A> {
    engine: Engine,
    answers: A,
    objects: BTreeMap<Key, Object>,
    observed: Observed,
    /// The generation of the last command of each target.
    generations: BTreeMap<Target, Generation>,
    /// The virtual time.
    elapsed: Duration,
}

/// What a core decided.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The statuses that it would write, or else those that were read.
    pub statuses: BTreeMap<Key, Status>,
    /// The last command of each target.
    pub desired: BTreeMap<Target, Participant>,
    /// By uid of the pod: namespace, name and interfaces.
    pub pods: BTreeMap<Name, (Name, Name, PodView)>,
}

impl Reported {
    /// The last report on a target.
    pub fn get(&self, target: &Target) -> Option<&Arc<Report>> {
        self.0.get(target)
    }
}

impl Answers for Reported {
    const CARRIED_OUT: bool = false;

    fn answer(&self, participant: &Participant) -> Option<Report> {
        let report = self.0.get(&participant.target)?;
        (*report.driver == *participant.driver).then(|| (**report).clone())
    }
}

impl<A: Answers> Observer<A> {
    /// An empty cluster.
    pub fn new(config: Config, answers: A) -> Self {
        Self {
            engine: Engine::new(config, 1),
            answers,
            objects: BTreeMap::new(),
            observed: Observed::default(),
            generations: BTreeMap::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Takes in an event. [`Self::run`] works out its consequences.
    pub fn handle(&mut self, event: Event) {
        match &event {
            Event::Object(object) => {
                if let (false, Some(status)) = (self.objects.contains_key(&object.key), &object.status) {
                    self.observed.statuses.insert(object.key.clone(), status.clone());
                }
                self.objects.insert(object.key.clone(), (**object).clone());
            }
            Event::ObjectGone(key) => drop(self.objects.remove(key)),
            _ => {}
        }
        self.engine.handle(event);
    }

    /// Works out all that follows from the events so far.
    pub fn run(&mut self) {
        let mut answered = BTreeMap::new();
        loop {
            let moment = Moment { at: NOW.into(), elapsed: self.elapsed, deadline: NOW.into() };
            let reconciled = self.engine.reconcile(&moment);
            if reconciled.is_idle() {
                match reconciled.next.filter(|_| A::CARRIED_OUT) {
                    Some(next) => self.elapsed = self.elapsed.max(next),
                    None => return,
                }
            }
            for effect in reconciled.effects {
                self.apply(effect);
            }
            for (target, driver) in reconciled.removed {
                self.observed.desired.remove(&target);
                self.generations.remove(&target);
                self.engine.handle(Event::Stream(StreamEvent::TargetRemoved(target, driver)));
            }
            for (participant, command) in reconciled.commands {
                let count: &mut u32 = answered.entry(participant.target.clone()).or_default();
                *count += 1;
                let is_answered = A::CARRIED_OUT || *count <= MAX_ANSWERS;
                self.command(participant, command, is_answered);
            }
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::AddFinalizer(key) => {
                let Some(object) = self.objects.get_mut(&key) else { return };
                object.finalized = true;
                let object = object.clone();
                self.engine.handle(Event::Object(Box::new(object)));
            }
            Effect::RemoveFinalizer(key) if A::CARRIED_OUT => self.handle(Event::ObjectGone(key)),
            Effect::Transition { key, status, .. } | Effect::Status { key, status } => {
                let leased = status.leased;
                self.observed.statuses.insert(key.clone(), *status);
                if A::CARRIED_OUT {
                    self.engine.handle(Event::StatusWritten(key, leased));
                }
            }
            Effect::Await(key) => self.engine.handle(Event::AwaitElapsed(key)),
            Effect::PodNetwork { namespace, name, uid, view } => match view {
                Some(view) => drop(self.observed.pods.insert(uid, (namespace, name, *view))),
                None => drop(self.observed.pods.remove(&uid)),
            },
            // Other effects only write to Kubernetes.
            _ => {}
        }
    }

    fn command(&mut self, participant: Participant, command: PendingCommand, is_answered: bool) {
        let (target, generation) = (participant.target.clone(), command.generation);
        let stored = StreamEvent::Published(target.clone(), generation.clone(), generation.sequence);
        self.engine.handle(Event::Stream(stored));
        self.observed.desired.insert(target.clone(), participant);
        self.generations.insert(target.clone(), generation);
        if is_answered {
            self.answer(&target);
        }
    }

    fn answer(&mut self, target: &Target) {
        let (Some(command), Some(generation)) =
            (self.observed.desired.get(target), self.generations.get(target))
        else {
            return;
        };
        let Some(report) = self.answers.answer(command) else { return };
        let report = Report { generation: generation.clone(), ..report };
        if report.outcome != Outcome::Applied && report.applied.is_some() {
            // The driver has read it back, whatever came of its last attempt.
            let before = Report { outcome: Outcome::Applied, rejected: Vec::new(), ..report.clone() };
            self.engine.handle(Event::Report(target.clone(), Box::new(before)));
        }
        self.engine.handle(Event::Report(target.clone(), Box::new(report)));
    }

    /// The objects.
    pub fn objects(&self) -> &BTreeMap<Key, Object> {
        &self.objects
    }

    /// What was decided.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// What answers commands.
    pub fn answers(&self) -> &A {
        &self.answers
    }

    /// The core.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Observer<Reported> {
    /// Takes in the last report on a target. [`Self::run`] works out its consequences.
    pub fn report(&mut self, target: &Target, report: Arc<Report>) {
        self.answers.0.insert(target.clone(), report);
        self.answer(target);
    }
}
