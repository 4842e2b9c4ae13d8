mod unchanged;

use super::*;

/// No switch has to do with another.
fn apart(names: &[Name]) -> Vec<TransactionGroup> {
    names.iter().map(|name| TransactionGroup { holding: vec![name.clone()], plain: vec![] }).collect()
}

/// All have to change together; those called `plain…` can't hold a change.
fn connected(names: &[Name]) -> Vec<TransactionGroup> {
    let (plain, holding) = names.iter().cloned().partition(|name| name.starts_with("plain"));
    vec![TransactionGroup { holding, plain }]
}

fn fabric() -> Target {
    Target::Fabric("leaf1".into())
}

fn nad() -> Target {
    Target::Nad("ns".into(), "a".into())
}

/// Publishes what is due and tells how many went.
fn turn(gate: &mut Gate, target: &Target, hash: &str, now: Instant) -> Option<Turn> {
    gate.changed(target.clone(), now);
    if !gate.due(now, apart).alone.contains(target) {
        return None;
    }
    let turn = gate.take(target, &"netconf".into(), hash.into(), now)?;
    gate.published(target, &turn.generation, 7, now);
    Some(turn)
}

fn alive(gate: &mut Gate) {
    gate.alive(BTreeSet::from(["netconf".into()]));
}

#[test]
fn one_outstanding_while_the_driver_is_alive() {
    let now = Instant::now();
    let mut gate = Gate::new(3);
    alive(&mut gate);
    let first = turn(&mut gate, &nad(), "a", now).unwrap();
    assert_eq!((first.generation.term, first.generation.sequence, first.expected), (3, 1, 0));
    assert_eq!(turn(&mut gate, &nad(), "b", now), None);
    let due = gate.due(now, apart);
    assert!(due.alone.is_empty());
    assert_eq!(due.next, Some(now + PATIENCE));
    gate.reported(&nad(), &first.generation, Answer::Applied, now);
    assert_eq!(turn(&mut gate, &nad(), "b", now).unwrap().expected, 7);
}

#[test]
fn a_namespace_with_many_targets_keeps_no_other_waiting() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    for n in 0..10_000 {
        gate.changed(Target::Nad("flood".into(), format!("{n:05}").into()), now);
    }
    let (other, node) = (Target::Nad("other".into(), "a".into()), Target::Node("worker1".into()));
    gate.changed(other.clone(), now);
    gate.changed(node.clone(), now);
    let due = gate.due(now, apart).alone;
    assert_eq!(due.len(), PUBLISHING);
    assert!(due[..3].contains(&other) && due[..3].contains(&node), "{:?}", &due[..3]);
}

#[test]
fn a_driver_that_is_away_or_silent_does_not_hold_up() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    turn(&mut gate, &nad(), "a", now).unwrap();
    turn(&mut gate, &nad(), "b", now).unwrap();
    alive(&mut gate);
    assert_eq!(turn(&mut gate, &nad(), "c", now), None);
    assert!(turn(&mut gate, &nad(), "c", now + PATIENCE).is_some());
}

#[test]
fn a_word_of_a_former_leader_that_came_late_is_replaced() {
    let now = Instant::now();
    let mut gate = Gate::new(3);
    let word = |term, sequence, hash: &str| Generation { term, sequence, hash: hash.into() };
    let found = word(2, 5, "a");
    let held =
        Held { driver: "netconf".into(), generation: Some(found.clone()), unconfirmed: false, sequence: 40 };
    gate.found(nad(), held);
    // What was found, and what came before it.
    assert!(!gate.overwritten(&nad(), &found, now) && !gate.overwritten(&nad(), &word(2, 4, "b"), now));
    assert!(gate.is_said(&nad(), &"netconf".into(), "a"));
    assert!(gate.overwritten(&nad(), &word(2, 6, "b"), now));
    assert!(!gate.is_said(&nad(), &"netconf".into(), "a"));
    assert_eq!(gate.due(now, apart).alone, [nad()]);
    let turn = gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    // It is on its way: NATS refuses it, or has it after theirs.
    assert!(!gate.overwritten(&nad(), &word(2, 7, "c"), now));
    gate.published(&nad(), &turn.generation, 42, now);
    assert!(
        !gate.overwritten(&nad(), &word(2, 7, "c"), now) && !gate.overwritten(&nad(), &turn.generation, now)
    );
    assert!(!gate.overwritten(&fabric(), &word(2, 7, "c"), now), "it was never commanded");
}

#[test]
fn what_is_no_command_is_replaced() {
    let now = Instant::now();
    let mut gate = Gate::new(3);
    alive(&mut gate);
    let word = |term, sequence, hash: &str| Generation { term, sequence, hash: hash.into() };
    let said = turn(&mut gate, &nad(), "a", now).unwrap().generation;
    // It has no generation of its own, and the driver knows only what came before.
    assert!(gate.overwritten(&nad(), &word(said.term, said.sequence, ""), now));
    let again = turn(&mut gate, &nad(), "a", now).unwrap().generation;
    assert!(!gate.overwritten(&nad(), &said, now) && !gate.overwritten(&nad(), &again, now));
    // It has one, which was given to another target, or to none.
    turn(&mut gate, &fabric(), "b", now).unwrap();
    assert!(gate.overwritten(&nad(), &word(3, again.sequence + 1, "x"), now));
    assert!(gate.has_issued(&word(3, again.sequence + 1, "x")));
    assert!(!gate.has_issued(&word(3, again.sequence + 2, "x")));
    // NATS took it, and nobody heard of that: it is not taken for what was there before.
    turn(&mut gate, &nad(), "a", now).unwrap();
    gate.changed(nad(), now);
    let taken = gate.take(&nad(), &"netconf".into(), "c".into(), now).unwrap().generation;
    gate.failed(&nad(), None, now);
    assert!(!gate.overwritten(&nad(), &taken, now));
    assert!(!gate.is_said(&nad(), &"netconf".into(), "a"));
    // It was found at the start: what former drivers said of it tells nothing.
    let held = Held { driver: "netconf".into(), generation: None, unconfirmed: false, sequence: 4 };
    gate.found(nad(), held);
    assert!(
        gate.overwritten(&nad(), &word(2, 1, ""), now) && !gate.overwritten(&nad(), &word(3, 1, ""), now)
    );
}

#[test]
fn after_a_report_that_cannot_be_read_it_is_said_again_once() {
    let now = Instant::now();
    let mut gate = Gate::new(3);
    alive(&mut gate);
    let said = turn(&mut gate, &nad(), "a", now).unwrap().generation;
    gate.reported(&nad(), &said, Answer::Applied, now);
    gate.unread(&nad(), &"ovs".into(), now);
    assert_eq!(turn(&mut gate, &nad(), "a", now), None, "it is another driver's");
    gate.unread(&nad(), &"netconf".into(), now);
    let again = gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap().generation;
    gate.published(&nad(), &again, 8, now);
    gate.unread(&nad(), &"netconf".into(), now);
    assert!(gate.is_said(&nad(), &"netconf".into(), "a"));
}

#[test]
fn another_node_s_agent_is_not_waited_for() {
    let now = Instant::now();
    let node = Target::Node("worker1".into());
    let mut gate = Gate::new(1);
    let go = |gate: &mut Gate, hash: &str| {
        gate.changed(node.clone(), now);
        if !gate.due(now, apart).alone.contains(&node) {
            return false;
        }
        let turn = gate.take(&node, &"node".into(), hash.into(), now).unwrap();
        gate.published(&node, &turn.generation, 1, now);
        true
    };
    gate.alive(BTreeSet::from(["node", "node/worker2"].map(Name::from)));
    // At once, as often as there is news.
    assert!(go(&mut gate, "a") && go(&mut gate, "b"));
    gate.alive(BTreeSet::from(["node", "node/worker1"].map(Name::from)));
    assert!(!go(&mut gate, "c"));
}

#[test]
fn an_older_report_opens_nothing() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    alive(&mut gate);
    let first = turn(&mut gate, &nad(), "a", now).unwrap();
    gate.reported(&nad(), &first.generation, Answer::Applied, now);
    turn(&mut gate, &nad(), "b", now).unwrap();
    gate.reported(&nad(), &first.generation, Answer::Applied, now);
    assert_eq!(turn(&mut gate, &nad(), "c", now), None);
}

#[test]
fn a_report_may_overtake_the_confirmation_of_nats() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    alive(&mut gate);
    gate.changed(nad(), now);
    let turn = gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    gate.changed(nad(), now);
    assert_eq!(gate.due(now, apart).alone, []);
    gate.reported(&nad(), &turn.generation, Answer::Applied, now);
    gate.published(&nad(), &turn.generation, 1, now);
    assert_eq!(gate.due(now, apart).alone, [nad()]);
}

#[test]
fn the_same_state_keeps_its_generation() {
    let now = Instant::now();
    let mut gate = Gate::new(9);
    let generation = Generation { term: 8, sequence: 5, hash: "a".into() };
    gate.found(
        nad(),
        Held { driver: "netconf".into(), generation: Some(generation), unconfirmed: false, sequence: 4 },
    );
    assert_eq!(turn(&mut gate, &nad(), "a", now), None);
    assert_eq!(gate.due(now, apart).alone, []);
    assert_eq!(turn(&mut gate, &nad(), "b", now).unwrap().expected, 4);
    gate.lost();
    let again = turn(&mut gate, &nad(), "b", now).unwrap();
    assert_eq!((again.expected, again.generation.term), (0, 9));
}

#[test]
fn switches_are_paced_and_nads_are_not() {
    let start = Instant::now();
    let mut gate = Gate::new(1);
    let mut sent = 0;
    for tick in 0..600_u32 {
        let now = start + Duration::from_millis(10) * tick;
        sent += u32::from(turn(&mut gate, &fabric(), &format!("{tick}"), now).is_some());
    }
    // One at once, then one in 0.9 s over 6 s.
    assert_eq!(sent, 7);
    let later = start + Duration::from_secs(20);
    assert!(turn(&mut gate, &fabric(), "lone", later).is_some());
    assert!(turn(&mut gate, &fabric(), "next", later + PAUSE / 2).is_none());
    assert!(gate.due(later + PAUSE * 2, apart).alone.contains(&fabric()), "the changes paused");
    for hash in 0..20 {
        assert!(turn(&mut gate, &nad(), &hash.to_string(), start).is_some());
    }
}

#[test]
fn a_target_that_changes_hands() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    turn(&mut gate, &nad(), "a", now).unwrap();
    gate.changed(nad(), now);
    let turn = gate.take(&nad(), &"other".into(), "a".into(), now).unwrap();
    assert_eq!((turn.moved_from, turn.expected), (Some("netconf".into()), 0));
    assert_eq!(gate.forget(&nad(), now), Some("other".into()));
}

#[test]
fn a_target_that_comes_back_waits_until_it_is_forgotten() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    turn(&mut gate, &nad(), "a", now).unwrap();
    assert!(!gate.forget_unknown(&nad()), "its command is known");
    assert_eq!(gate.forget(&nad(), now), Some("netconf".into()));
    // Another driver reports on it meanwhile.
    assert!(gate.forget_unknown(&nad()));
    gate.forgotten(&nad());
    assert_eq!(turn(&mut gate, &nad(), "b", now), None);
    gate.forgotten(&nad());
    assert_eq!(turn(&mut gate, &nad(), "b", now).unwrap().expected, 0);
    // One that no engine knows of.
    assert!(gate.forget_unknown(&switch("leaf2")));
    assert_eq!(turn(&mut gate, &switch("leaf2"), "c", now), None);
    gate.forgotten(&switch("leaf2"));
    assert!(turn(&mut gate, &switch("leaf2"), "c", now).is_some());
}

#[test]
fn a_command_that_nats_lost_is_published_again() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    alive(&mut gate);
    let (idle, waiting, on_its_way) = (nad(), fabric(), switch("leaf2"));
    let said = turn(&mut gate, &idle, "a", now).unwrap();
    gate.reported(&idle, &said.generation, Answer::Applied, now);
    turn(&mut gate, &waiting, "a", now).unwrap();
    gate.changed(on_its_way.clone(), now);
    gate.take(&on_its_way, &"netconf".into(), "a".into(), now).unwrap();
    let all = BTreeMap::from([(idle.clone(), 7), (waiting.clone(), 7)]);
    assert_eq!((gate.kept(&all, now), gate.due(now, apart).alone), (0, vec![]));
    // Of one the message before is there again.
    assert_eq!(gate.kept(&BTreeMap::from([(idle.clone(), 3)]), now), 2);
    let due = gate.due(now + LIMIT, apart).alone;
    assert_eq!(due, [idle.clone(), waiting.clone()]);
    let expected =
        |gate: &mut Gate, target| gate.take(target, &"netconf".into(), "a".into(), now).unwrap().expected;
    assert_eq!((expected(&mut gate, &idle), expected(&mut gate, &waiting)), (3, 0));
}

#[test]
fn a_failed_publish_is_tried_again() {
    let now = Instant::now();
    let mut gate = Gate::new(1);
    gate.changed(nad(), now);
    gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    gate.failed(&nad(), Some(42), now);
    let turn = gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    assert_eq!(turn.expected, 42);
    gate.failed(&nad(), None, now);
    let due = gate.due(now, apart);
    assert_eq!((due.alone, due.next), (vec![], Some(now + RETRY)));
    assert_eq!(gate.due(now + RETRY, apart).alone, [nad()]);
}

fn switch(name: &str) -> Target {
    Target::Fabric(name.into())
}

/// A gate with two switches and one that can't hold a change, all in one transaction that is open.
struct Fabric {
    gate: Gate,
    now: Instant,
    generations: HashMap<Target, Generation>,
}

impl Fabric {
    fn new(names: &[&str]) -> Self {
        let mut gate = Gate::new(3);
        alive(&mut gate);
        let now = Instant::now();
        for name in names {
            gate.changed(switch(name), now);
        }
        Self { gate, now, generations: HashMap::new() }
    }

    /// Two that were told to confirm; one has done so.
    fn with_leaf2_behind() -> Self {
        let mut f = Self::new(&["leaf1", "leaf2"]);
        f.open();
        f.holds("leaf1");
        f.holds("leaf2");
        f.tell();
        f.says("leaf1", Answer::Applied);
        f
    }

    fn due(&mut self) -> Due {
        self.gate.due(self.now, connected)
    }

    /// Those of the transaction that is opened now.
    fn open(&mut self) -> Vec<Target> {
        let mut together = self.due().together;
        let targets = together.pop().expect("a transaction is due");
        let who = |target: &Target| Participant {
            target: target.clone(),
            driver: "netconf".into(),
            desired: eno_schemas::Desired::Nad(eno_schemas::NadDesired {
                namespace: "a".into(),
                name: "b".into(),
                owner: eno_schemas::NadOwner { uid: "c".into() },
                attachment: None,
            }),
            hash: "a".into(),
        };
        let turns = self.gate.open(targets.iter().map(who).collect(), "later".into(), self.now);
        for (who, turn) in turns {
            assert_eq!(turn.transaction.as_ref().unwrap().decision, None);
            self.gate.published(&who.target, &turn.generation, 1, self.now);
            self.generations.insert(who.target, turn.generation);
        }
        targets
    }

    fn says(&mut self, name: &str, answer: Answer) {
        let generation = self.generations[&switch(name)].clone();
        self.gate.reported(&switch(name), &generation, answer, self.now);
    }

    fn holds(&mut self, name: &str) {
        self.says(name, Answer::Held { refused: false });
    }

    /// Tells the participants what was decided, and what that was.
    fn tell(&mut self) -> Vec<(Target, Decision)> {
        let decided = self.due().decided;
        let tell = decided.into_iter().map(|target| {
            let (who, turn) = self.gate.decision(&target, self.now).unwrap();
            self.gate.published(&who.target, &turn.generation, 2, self.now);
            assert!(turn.generation > self.generations[&target] && turn.generation.hash == "a");
            self.generations.insert(target.clone(), turn.generation);
            (target, turn.transaction.unwrap().decision.unwrap())
        });
        tell.collect()
    }

    fn outcome(&mut self) -> (&'static str, Vec<Target>) {
        let mut ended = self.gate.ended();
        assert_eq!(ended.len(), 1, "{ended:?}");
        let ended = ended.remove(0);
        (ended.outcome, ended.late)
    }
}

#[test]
fn confirmed_when_all_hold_and_followed_by_those_that_cannot() {
    let mut f = Fabric::new(&["leaf1", "leaf2", "plain1"]);
    assert_eq!(f.open(), [switch("leaf1"), switch("leaf2")]);
    assert_eq!(f.gate.transaction(&switch("leaf1")), Some("3-1"));
    f.holds("leaf1");
    // What changes meanwhile waits, also elsewhere when it is connected.
    f.gate.changed(switch("leaf1"), f.now);
    f.gate.changed(switch("leaf3"), f.now);
    let due = f.due();
    assert!(due.alone.is_empty() && due.together.is_empty() && due.decided.is_empty());
    assert_eq!(due.next, Some(f.now + DEADLINE));
    f.holds("leaf2");
    assert_eq!(f.outcome(), ("confirmed", vec![]));
    let all = f.tell();
    assert_eq!(all, [(switch("leaf1"), Decision::Confirm), (switch("leaf2"), Decision::Confirm)]);
    assert!(f.due().alone.is_empty(), "they have not done it yet");
    f.says("leaf1", Answer::Applied);
    f.says("leaf2", Answer::Applied);
    assert_eq!(f.gate.transaction(&switch("leaf1")), None);
    assert!(f.gate.is_said(&switch("leaf2"), &"netconf".into(), "a"));
    f.now += LIMIT;
    assert_eq!(f.due().together, [[switch("leaf1"), switch("leaf3")]]);
    // A switch that has nothing to do with them is not held up at any time.
    assert_eq!(f.gate.due(f.now, apart).alone.len(), 3);
}

#[test]
fn aborted_when_one_refuses_and_tried_again_at_once() {
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    f.says("leaf1", Answer::Held { refused: true });
    assert!(f.tell().is_empty(), "the other one may refuse something as well");
    f.holds("leaf2");
    assert_eq!(f.outcome().0, "refused");
    assert_eq!(f.tell().len(), 2);
    f.says("leaf1", Answer::RolledBack);
    f.says("leaf2", Answer::RolledBack);
    assert!(!f.gate.is_said(&switch("leaf1"), &"netconf".into(), "a"), "it has to be said again");
    assert_eq!(f.open().len(), 2);
}

#[test]
fn who_is_aborted_again_and_again_rests() {
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    let abort = |f: &mut Fabric| {
        f.open();
        f.says("leaf1", Answer::Held { refused: true });
        f.holds("leaf2");
        f.tell();
        f.says("leaf1", Answer::RolledBack);
        f.says("leaf2", Answer::RolledBack);
    };
    abort(&mut f);
    abort(&mut f);
    for seconds in [0.25, 0.5, 1.0, 2.0] {
        abort(&mut f);
        let rest = Duration::from_secs_f64(seconds);
        let due = f.due();
        assert_eq!((due.together.len(), due.next), (0, Some(f.now + rest)));
        f.now += rest;
    }
    f.open();
    f.holds("leaf1");
    f.holds("leaf2");
    f.tell();
    f.says("leaf1", Answer::Applied);
    f.says("leaf2", Answer::Applied);
    f.gate.changed(switch("leaf1"), f.now);
    f.gate.changed(switch("leaf2"), f.now);
    f.now += LIMIT;
    assert_eq!(f.due().together.len(), 1, "that is forgotten with the first that is confirmed");
}

#[test]
fn aborted_at_once_when_one_fails() {
    let mut f = Fabric::new(&["leaf1", "leaf2", "leaf3"]);
    f.open();
    f.holds("leaf1");
    f.says("leaf2", Answer::Failed);
    assert_eq!(f.outcome(), ("failed", vec![]));
    assert_eq!(f.tell(), [(switch("leaf1"), Decision::Abort), (switch("leaf3"), Decision::Abort)]);
    assert!(f.gate.transaction(&switch("leaf2")).is_none());
    f.says("leaf1", Answer::RolledBack);
    f.says("leaf3", Answer::RolledBack);
    // By now it is known not to take part.
    let mut due = f.gate.due(f.now, |names| {
        let failing = |name: &Name| &**name == "leaf2";
        let (plain, holding) = names.iter().cloned().partition(failing);
        vec![TransactionGroup { holding, plain: vec![] }, TransactionGroup { holding: vec![], plain }]
    });
    assert_eq!((due.alone, due.together.remove(0).len()), (vec![switch("leaf2")], 2));
}

#[test]
fn who_does_not_answer_in_time_is_late() {
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    f.holds("leaf1");
    f.now += DEADLINE;
    assert_eq!(f.tell(), [(switch("leaf1"), Decision::Abort)]);
    assert_eq!(f.outcome(), ("late", vec![switch("leaf2")]));
    f.says("leaf1", Answer::RolledBack);
    let due = f.due();
    // The one is stuck and told the newest alone; nobody waits for it.
    assert_eq!(
        (due.alone, due.together),
        (vec![switch("leaf2"), switch("leaf1")], Vec::<Vec<Target>>::new())
    );
}

#[test]
fn what_nats_lost_of_a_transaction_is_seen_when_that_is_over() {
    let mut f = Fabric::with_leaf2_behind();
    // The decision for the other one is lost. Who does not do as decided is let go after a while.
    let left = BTreeMap::from([(switch("leaf1"), 2)]);
    assert_eq!(f.gate.kept(&left, f.now), 0);
    f.now += PATIENCE;
    f.due();
    assert_eq!(f.gate.transaction(&switch("leaf2")), None);
    assert_eq!(f.gate.kept(&left, f.now), 1);
    f.now += LIMIT;
    assert!(f.due().alone.contains(&switch("leaf2")));
}

#[test]
fn who_takes_its_change_back_by_itself_is_late() {
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    f.holds("leaf1");
    f.says("leaf1", Answer::RolledBack);
    assert_eq!(f.outcome(), ("late", vec![switch("leaf1")]));
    assert_eq!(f.tell(), [(switch("leaf2"), Decision::Abort)]);
}

#[test]
fn who_does_not_do_as_decided_is_not_waited_for() {
    let mut f = Fabric::with_leaf2_behind();
    f.gate.changed(switch("leaf2"), f.now);
    assert!(f.due().alone.is_empty());
    f.now += PATIENCE;
    assert_eq!(f.due().alone, [switch("leaf2")]);
}

#[test]
fn publishes_that_fail() {
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    f.holds("leaf1");
    f.holds("leaf2");
    let decided = f.due().decided;
    let (_, turn) = f.gate.decision(&decided[0], f.now).unwrap();
    assert_eq!(turn.transaction.unwrap().decision, Some(Decision::Confirm));
    f.gate.failed(&decided[0], None, f.now);
    assert_eq!(f.due().decided, [switch("leaf2")]);
    f.now += RETRY;
    assert_eq!(f.due().decided.len(), 2);
    // One that was to open a transaction ends it.
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    f.gate.failed(&switch("leaf1"), Some(7), f.now);
    assert_eq!((f.outcome().0, f.tell().len()), ("failed", 1));
}

#[test]
fn a_target_that_goes_away_ends_its_transaction() {
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    f.holds("leaf1");
    f.gate.forget(&switch("leaf2"), f.now);
    assert_eq!((f.outcome().0, f.tell().len()), ("failed", 1));
}

#[test]
fn what_a_former_leader_left_open_is_said_again() {
    let now = Instant::now();
    let mut gate = Gate::new(9);
    let generation = Generation { term: 8, sequence: 5, hash: "a".into() };
    let held =
        Held { driver: "netconf".into(), generation: Some(generation), unconfirmed: true, sequence: 4 };
    gate.found(fabric(), held);
    assert!(!gate.is_said(&fabric(), &"netconf".into(), "a"));
    // It is taken back first.
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    let open = f.gate.transactions.remove(0);
    let (who, generation) = open.found();
    alive(&mut gate);
    let aborted = Transaction { decision: Some(Decision::Abort), ..open.transaction().clone() };
    gate.decide_found(who.clone(), generation, aborted, now);
    gate.changed(who.target.clone(), now);
    let due = gate.due(now, connected);
    assert_eq!((due.alone, due.decided), (vec![], vec![who.target.clone()]));
    let (_, turn) = gate.decision(&who.target, now).unwrap();
    assert_eq!(turn.transaction.unwrap().decision, Some(Decision::Abort));
    gate.published(&who.target, &turn.generation, 5, now);
    // Who is away or silent is told nothing more before it has said what is there,
    gate.reported(&who.target, &turn.generation, Answer::Waits, now);
    let due = gate.due(now + PATIENCE, connected);
    assert_eq!((due.alone, due.decided, due.next), (vec![], vec![], None));
    gate.reported(&who.target, &turn.generation, Answer::RolledBack, now);
    assert_eq!(gate.due(now + LIMIT, connected).alone, [who.target]);
}

#[test]
fn what_a_former_leader_left_open_is_let_go_when_it_is_reached_otherwise() {
    let mut f = Fabric::new(&["leaf1", "leaf2"]);
    f.open();
    let open = f.gate.transactions.remove(0);
    let (who, generation) = open.found();
    let mut gate = Gate::new(9);
    let aborted = Transaction { decision: Some(Decision::Abort), ..open.transaction().clone() };
    gate.decide_found(who.clone(), generation, aborted, f.now);
    gate.release(|_| true);
    assert!(gate.transaction(&who.target).is_some());
    gate.release(|_| false);
    assert!(gate.transaction(&who.target).is_none());
}
