mod unchanged;

use super::*;

/// Every switch forms its own group.
fn ungrouped(names: &[Name]) -> Vec<TransactionGroup> {
    names.iter().map(|name| TransactionGroup { holding: vec![name.clone()], plain: vec![] }).collect()
}

/// All switches form one group; those called `plain…` can't hold a change.
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

/// Marks the target dirty and publishes its command if it is ready.
fn issue(
    scheduler: &mut CommandScheduler,
    target: &Target,
    hash: &str,
    now: Instant,
) -> Option<PendingCommand> {
    scheduler.mark_dirty(target.clone(), now);
    if !scheduler.ready(now, ungrouped).single.contains(target) {
        return None;
    }
    let command = scheduler.issue_if_changed(target, &"netconf".into(), hash.into(), now)?;
    scheduler.confirm_published(target, &command.generation, 7, now);
    Some(command)
}

fn alive(scheduler: &mut CommandScheduler) {
    scheduler.set_alive(BTreeSet::from(["netconf".into()]));
}

#[test]
fn target_has_one_outstanding_command_while_driver_is_alive() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(3);
    alive(&mut scheduler);
    let first = issue(&mut scheduler, &nad(), "a", now).unwrap();
    assert_eq!((first.generation.term, first.generation.sequence, first.expected), (3, 1, 0));
    assert_eq!(issue(&mut scheduler, &nad(), "b", now), None);
    let ready = scheduler.ready(now, ungrouped);
    assert!(ready.single.is_empty());
    assert_eq!(ready.next, Some(now + DRIVER_TIMEOUT));
    scheduler.handle_report(&nad(), &first.generation, DriverAnswer::Applied, now);
    assert_eq!(issue(&mut scheduler, &nad(), "b", now).unwrap().expected, 7);
}

#[test]
fn large_namespace_does_not_starve_others() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    for n in 0..10_000 {
        scheduler.mark_dirty(Target::Nad("flood".into(), format!("{n:05}").into()), now);
    }
    let (other, node) = (Target::Nad("other".into(), "a".into()), Target::Node("worker1".into()));
    scheduler.mark_dirty(other.clone(), now);
    scheduler.mark_dirty(node.clone(), now);
    let ready = scheduler.ready(now, ungrouped).single;
    assert_eq!(ready.len(), MAX_PUBLISHING);
    assert!(ready[..3].contains(&other) && ready[..3].contains(&node), "{:?}", &ready[..3]);
}

#[test]
fn absent_or_silent_driver_does_not_block_commands() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    issue(&mut scheduler, &nad(), "a", now).unwrap();
    issue(&mut scheduler, &nad(), "b", now).unwrap();
    alive(&mut scheduler);
    assert_eq!(issue(&mut scheduler, &nad(), "c", now), None);
    assert!(issue(&mut scheduler, &nad(), "c", now + DRIVER_TIMEOUT).is_some());
}

#[test]
fn late_command_of_former_leader_is_replaced() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(3);
    let generation = |term, sequence, hash: &str| Generation { term, sequence, hash: hash.into() };
    let found = generation(2, 5, "a");
    let stored = StoredCommand {
        driver: "netconf".into(),
        generation: Some(found.clone()),
        unconfirmed: false,
        sequence: 40,
    };
    scheduler.load_stored(nad(), stored);
    // The stored command, and an older one.
    assert!(
        !scheduler.command_replaced(&nad(), &found, now)
            && !scheduler.command_replaced(&nad(), &generation(2, 4, "b"), now)
    );
    assert!(scheduler.is_commanded(&nad(), &"netconf".into(), "a"));
    assert!(scheduler.command_replaced(&nad(), &generation(2, 6, "b"), now));
    assert!(!scheduler.is_commanded(&nad(), &"netconf".into(), "a"));
    assert_eq!(scheduler.ready(now, ungrouped).single, [nad()]);
    let command = scheduler.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    // A publish in progress: NATS refuses it or stores it after the foreign command.
    assert!(!scheduler.command_replaced(&nad(), &generation(2, 7, "c"), now));
    scheduler.confirm_published(&nad(), &command.generation, 42, now);
    assert!(
        !scheduler.command_replaced(&nad(), &generation(2, 7, "c"), now)
            && !scheduler.command_replaced(&nad(), &command.generation, now)
    );
    assert!(!scheduler.command_replaced(&fabric(), &generation(2, 7, "c"), now), "it was never commanded");
}

#[test]
fn invalid_or_foreign_command_is_replaced() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(3);
    alive(&mut scheduler);
    let generation = |term, sequence, hash: &str| Generation { term, sequence, hash: hash.into() };
    let issued = issue(&mut scheduler, &nad(), "a", now).unwrap().generation;
    // The replacement has no generation, and the driver knows only the previous command.
    assert!(scheduler.command_replaced(&nad(), &generation(issued.term, issued.sequence, ""), now));
    let reissued = issue(&mut scheduler, &nad(), "a", now).unwrap().generation;
    assert!(
        !scheduler.command_replaced(&nad(), &issued, now)
            && !scheduler.command_replaced(&nad(), &reissued, now)
    );
    // The replacement has a generation that was issued to another target, or to none.
    issue(&mut scheduler, &fabric(), "b", now).unwrap();
    assert!(scheduler.command_replaced(&nad(), &generation(3, reissued.sequence + 1, "x"), now));
    assert!(scheduler.has_issued(&generation(3, reissued.sequence + 1, "x")));
    assert!(!scheduler.has_issued(&generation(3, reissued.sequence + 2, "x")));
    // NATS stored the command without an acknowledgement: it does not count as foreign.
    issue(&mut scheduler, &nad(), "a", now).unwrap();
    scheduler.mark_dirty(nad(), now);
    let taken = scheduler.issue_if_changed(&nad(), &"netconf".into(), "c".into(), now).unwrap().generation;
    scheduler.publish_failed(&nad(), None, now);
    assert!(!scheduler.command_replaced(&nad(), &taken, now));
    assert!(!scheduler.is_commanded(&nad(), &"netconf".into(), "a"));
    // The command was unreadable at the start: reports of former terms prove nothing about it.
    let stored =
        StoredCommand { driver: "netconf".into(), generation: None, unconfirmed: false, sequence: 4 };
    scheduler.load_stored(nad(), stored);
    assert!(
        scheduler.command_replaced(&nad(), &generation(2, 1, ""), now)
            && !scheduler.command_replaced(&nad(), &generation(3, 1, ""), now)
    );
}

#[test]
fn unreadable_report_causes_one_republish() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(3);
    alive(&mut scheduler);
    let issued = issue(&mut scheduler, &nad(), "a", now).unwrap().generation;
    scheduler.handle_report(&nad(), &issued, DriverAnswer::Applied, now);
    scheduler.report_unreadable(&nad(), &"ovs".into(), now);
    assert_eq!(issue(&mut scheduler, &nad(), "a", now), None, "it is another driver's");
    scheduler.report_unreadable(&nad(), &"netconf".into(), now);
    let reissued = scheduler.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap().generation;
    scheduler.confirm_published(&nad(), &reissued, 8, now);
    scheduler.report_unreadable(&nad(), &"netconf".into(), now);
    assert!(scheduler.is_commanded(&nad(), &"netconf".into(), "a"));
}

#[test]
fn node_target_waits_only_for_its_own_agent() {
    let now = Instant::now();
    let node = Target::Node("worker1".into());
    let mut scheduler = CommandScheduler::new(1);
    let go = |scheduler: &mut CommandScheduler, hash: &str| {
        scheduler.mark_dirty(node.clone(), now);
        if !scheduler.ready(now, ungrouped).single.contains(&node) {
            return false;
        }
        let command = scheduler.issue_if_changed(&node, &"node".into(), hash.into(), now).unwrap();
        scheduler.confirm_published(&node, &command.generation, 1, now);
        true
    };
    scheduler.set_alive(BTreeSet::from(["node", "node/worker2"].map(Name::from)));
    // Without its agent, every change is published at once.
    assert!(go(&mut scheduler, "a") && go(&mut scheduler, "b"));
    scheduler.set_alive(BTreeSet::from(["node", "node/worker1"].map(Name::from)));
    assert!(!go(&mut scheduler, "c"));
}

#[test]
fn older_report_does_not_finish_newer_command() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    alive(&mut scheduler);
    let first = issue(&mut scheduler, &nad(), "a", now).unwrap();
    scheduler.handle_report(&nad(), &first.generation, DriverAnswer::Applied, now);
    issue(&mut scheduler, &nad(), "b", now).unwrap();
    scheduler.handle_report(&nad(), &first.generation, DriverAnswer::Applied, now);
    assert_eq!(issue(&mut scheduler, &nad(), "c", now), None);
}

#[test]
fn report_before_publish_confirmation_finishes_command() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    alive(&mut scheduler);
    scheduler.mark_dirty(nad(), now);
    let command = scheduler.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    scheduler.mark_dirty(nad(), now);
    assert_eq!(scheduler.ready(now, ungrouped).single, []);
    scheduler.handle_report(&nad(), &command.generation, DriverAnswer::Applied, now);
    scheduler.confirm_published(&nad(), &command.generation, 1, now);
    assert_eq!(scheduler.ready(now, ungrouped).single, [nad()]);
}

#[test]
fn unchanged_state_keeps_its_generation() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(9);
    let generation = Generation { term: 8, sequence: 5, hash: "a".into() };
    scheduler.load_stored(
        nad(),
        StoredCommand {
            driver: "netconf".into(),
            generation: Some(generation),
            unconfirmed: false,
            sequence: 4,
        },
    );
    assert_eq!(issue(&mut scheduler, &nad(), "a", now), None);
    assert_eq!(scheduler.ready(now, ungrouped).single, []);
    assert_eq!(issue(&mut scheduler, &nad(), "b", now).unwrap().expected, 4);
    scheduler.streams_lost();
    let reissued = issue(&mut scheduler, &nad(), "b", now).unwrap();
    assert_eq!((reissued.expected, reissued.generation.term), (0, 9));
}

#[test]
fn switch_commands_are_debounced_and_nad_commands_are_not() {
    let start = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    let mut sent = 0;
    for tick in 0..600_u32 {
        let now = start + Duration::from_millis(10) * tick;
        sent += u32::from(issue(&mut scheduler, &fabric(), &format!("{tick}"), now).is_some());
    }
    // The first change at once, then one command every 0.9 s over 6 s.
    assert_eq!(sent, 7);
    let later = start + Duration::from_secs(20);
    assert!(issue(&mut scheduler, &fabric(), "lone", later).is_some());
    assert!(issue(&mut scheduler, &fabric(), "next", later + DEBOUNCE / 2).is_none());
    assert!(
        scheduler.ready(later + DEBOUNCE * 2, ungrouped).single.contains(&fabric()),
        "the changes paused"
    );
    for hash in 0..20 {
        assert!(issue(&mut scheduler, &nad(), &hash.to_string(), start).is_some());
    }
}

#[test]
fn target_moved_to_other_driver_starts_new_subject() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    issue(&mut scheduler, &nad(), "a", now).unwrap();
    scheduler.mark_dirty(nad(), now);
    let command = scheduler.issue_if_changed(&nad(), &"other".into(), "a".into(), now).unwrap();
    assert_eq!((command.moved_from, command.expected), (Some("netconf".into()), 0));
    assert_eq!(scheduler.remove_target(&nad(), now), Some("other".into()));
}

#[test]
fn recreated_target_waits_until_removal_is_done() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    issue(&mut scheduler, &nad(), "a", now).unwrap();
    assert!(!scheduler.remove_unknown(&nad()), "its command is known");
    assert_eq!(scheduler.remove_target(&nad(), now), Some("netconf".into()));
    // Another driver reports on the target meanwhile.
    assert!(scheduler.remove_unknown(&nad()));
    scheduler.removal_done(&nad());
    assert_eq!(issue(&mut scheduler, &nad(), "b", now), None);
    scheduler.removal_done(&nad());
    assert_eq!(issue(&mut scheduler, &nad(), "b", now).unwrap().expected, 0);
    // A target that no engine knows of.
    assert!(scheduler.remove_unknown(&switch("leaf2")));
    assert_eq!(issue(&mut scheduler, &switch("leaf2"), "c", now), None);
    scheduler.removal_done(&switch("leaf2"));
    assert!(issue(&mut scheduler, &switch("leaf2"), "c", now).is_some());
}

#[test]
fn command_lost_by_nats_is_republished() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    alive(&mut scheduler);
    let (idle, waiting, on_its_way) = (nad(), fabric(), switch("leaf2"));
    let issued = issue(&mut scheduler, &idle, "a", now).unwrap();
    scheduler.handle_report(&idle, &issued.generation, DriverAnswer::Applied, now);
    issue(&mut scheduler, &waiting, "a", now).unwrap();
    scheduler.mark_dirty(on_its_way.clone(), now);
    scheduler.issue_if_changed(&on_its_way, &"netconf".into(), "a".into(), now).unwrap();
    let all = BTreeMap::from([(idle.clone(), 7), (waiting.clone(), 7)]);
    assert_eq!(
        (scheduler.compare_with_stream(&all, now), scheduler.ready(now, ungrouped).single),
        (0, vec![])
    );
    // The previous message of one subject is the last one again.
    assert_eq!(scheduler.compare_with_stream(&BTreeMap::from([(idle.clone(), 3)]), now), 2);
    let ready = scheduler.ready(now + MAX_DELAY, ungrouped).single;
    assert_eq!(ready, [idle.clone(), waiting.clone()]);
    let expected = |scheduler: &mut CommandScheduler, target| {
        scheduler.issue_if_changed(target, &"netconf".into(), "a".into(), now).unwrap().expected
    };
    assert_eq!((expected(&mut scheduler, &idle), expected(&mut scheduler, &waiting)), (3, 0));
}

#[test]
fn failed_publish_is_retried() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(1);
    scheduler.mark_dirty(nad(), now);
    scheduler.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    scheduler.publish_failed(&nad(), Some(42), now);
    let command = scheduler.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    assert_eq!(command.expected, 42);
    scheduler.publish_failed(&nad(), None, now);
    let ready = scheduler.ready(now, ungrouped);
    assert_eq!((ready.single, ready.next), (vec![], Some(now + RETRY_DELAY)));
    assert_eq!(scheduler.ready(now + RETRY_DELAY, ungrouped).single, [nad()]);
}

fn switch(name: &str) -> Target {
    Target::Fabric(name.into())
}

/// A scheduler with switches, some of which can't hold a change, in one transaction.
struct TransactionTest {
    scheduler: CommandScheduler,
    now: Instant,
    generations: HashMap<Target, Generation>,
}

impl TransactionTest {
    fn new(names: &[&str]) -> Self {
        let mut scheduler = CommandScheduler::new(3);
        alive(&mut scheduler);
        let now = Instant::now();
        for name in names {
            scheduler.mark_dirty(switch(name), now);
        }
        Self { scheduler, now, generations: HashMap::new() }
    }

    /// Both participants were sent the confirmation; only leaf1 answered.
    fn with_leaf2_behind() -> Self {
        let mut f = Self::new(&["leaf1", "leaf2"]);
        f.open();
        f.hold("leaf1");
        f.hold("leaf2");
        f.send_decisions();
        f.answer("leaf1", DriverAnswer::Applied);
        f
    }

    fn ready(&mut self) -> ReadyCommands {
        self.scheduler.ready(self.now, connected)
    }

    /// Opens the ready transaction and returns its participants.
    fn open(&mut self) -> Vec<Target> {
        let mut joint = self.ready().joint;
        let targets = joint.pop().expect("a transaction is due");
        let participant = |target: &Target| Participant {
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
        let commands = self.scheduler.open_transaction(
            targets.iter().map(participant).collect(),
            "later".into(),
            self.now,
        );
        for (participant, command) in commands {
            assert_eq!(command.transaction.as_ref().unwrap().decision, None);
            self.scheduler.confirm_published(&participant.target, &command.generation, 1, self.now);
            self.generations.insert(participant.target, command.generation);
        }
        targets
    }

    fn answer(&mut self, name: &str, answer: DriverAnswer) {
        let generation = self.generations[&switch(name)].clone();
        self.scheduler.handle_report(&switch(name), &generation, answer, self.now);
    }

    fn hold(&mut self, name: &str) {
        self.answer(name, DriverAnswer::Held { refused: false });
    }

    /// Sends the decision to the participants and returns it for each.
    fn send_decisions(&mut self) -> Vec<(Target, Decision)> {
        let decisions = self.ready().decisions;
        let sent = decisions.into_iter().map(|target| {
            let (participant, command) = self.scheduler.issue_decision(&target, self.now).unwrap();
            self.scheduler.confirm_published(&participant.target, &command.generation, 2, self.now);
            assert!(command.generation > self.generations[&target] && command.generation.hash == "a");
            self.generations.insert(target.clone(), command.generation);
            (target, command.transaction.unwrap().decision.unwrap())
        });
        sent.collect()
    }

    fn outcome(&mut self) -> (&'static str, Vec<Target>) {
        let mut decided = self.scheduler.take_decided();
        assert_eq!(decided.len(), 1, "{decided:?}");
        let decided = decided.remove(0);
        (decided.outcome, decided.late)
    }
}

#[test]
fn transaction_is_confirmed_when_all_hold() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2", "plain1"]);
    assert_eq!(f.open(), [switch("leaf1"), switch("leaf2")]);
    assert_eq!(f.scheduler.transaction(&switch("leaf1")), Some("3-1"));
    f.hold("leaf1");
    // Changes wait meanwhile, also those of connected switches.
    f.scheduler.mark_dirty(switch("leaf1"), f.now);
    f.scheduler.mark_dirty(switch("leaf3"), f.now);
    let ready = f.ready();
    assert!(ready.single.is_empty() && ready.joint.is_empty() && ready.decisions.is_empty());
    assert_eq!(ready.next, Some(f.now + DEADLINE));
    f.hold("leaf2");
    assert_eq!(f.outcome(), ("confirmed", vec![]));
    let all = f.send_decisions();
    assert_eq!(all, [(switch("leaf1"), Decision::Confirm), (switch("leaf2"), Decision::Confirm)]);
    assert!(f.ready().single.is_empty(), "they have not done it yet");
    f.answer("leaf1", DriverAnswer::Applied);
    f.answer("leaf2", DriverAnswer::Applied);
    assert_eq!(f.scheduler.transaction(&switch("leaf1")), None);
    assert!(f.scheduler.is_commanded(&switch("leaf2"), &"netconf".into(), "a"));
    f.now += MAX_DELAY;
    assert_eq!(f.ready().joint, [[switch("leaf1"), switch("leaf3")]]);
    // An unrelated switch is never delayed.
    assert_eq!(f.scheduler.ready(f.now, ungrouped).single.len(), 3);
}

#[test]
fn transaction_is_aborted_on_refusal_and_retried_at_once() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.answer("leaf1", DriverAnswer::Held { refused: true });
    assert!(f.send_decisions().is_empty(), "the other one may refuse something as well");
    f.hold("leaf2");
    assert_eq!(f.outcome().0, "refused");
    assert_eq!(f.send_decisions().len(), 2);
    f.answer("leaf1", DriverAnswer::RolledBack);
    f.answer("leaf2", DriverAnswer::RolledBack);
    assert!(!f.scheduler.is_commanded(&switch("leaf1"), &"netconf".into(), "a"), "it has to be said again");
    assert_eq!(f.open().len(), 2);
}

#[test]
fn repeated_aborts_back_off_until_confirmed() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    let abort = |f: &mut TransactionTest| {
        f.open();
        f.answer("leaf1", DriverAnswer::Held { refused: true });
        f.hold("leaf2");
        f.send_decisions();
        f.answer("leaf1", DriverAnswer::RolledBack);
        f.answer("leaf2", DriverAnswer::RolledBack);
    };
    abort(&mut f);
    abort(&mut f);
    for seconds in [0.25, 0.5, 1.0, 2.0] {
        abort(&mut f);
        let rest = Duration::from_secs_f64(seconds);
        let ready = f.ready();
        assert_eq!((ready.joint.len(), ready.next), (0, Some(f.now + rest)));
        f.now += rest;
    }
    f.open();
    f.hold("leaf1");
    f.hold("leaf2");
    f.send_decisions();
    f.answer("leaf1", DriverAnswer::Applied);
    f.answer("leaf2", DriverAnswer::Applied);
    f.scheduler.mark_dirty(switch("leaf1"), f.now);
    f.scheduler.mark_dirty(switch("leaf2"), f.now);
    f.now += MAX_DELAY;
    assert_eq!(f.ready().joint.len(), 1, "that is forgotten with the first that is confirmed");
}

#[test]
fn transaction_is_aborted_at_once_on_failure() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2", "leaf3"]);
    f.open();
    f.hold("leaf1");
    f.answer("leaf2", DriverAnswer::Failed);
    assert_eq!(f.outcome(), ("failed", vec![]));
    assert_eq!(f.send_decisions(), [(switch("leaf1"), Decision::Abort), (switch("leaf3"), Decision::Abort)]);
    assert!(f.scheduler.transaction(&switch("leaf2")).is_none());
    f.answer("leaf1", DriverAnswer::RolledBack);
    f.answer("leaf3", DriverAnswer::RolledBack);
    // The core knows by then that leaf2 takes no part in transactions.
    let mut ready = f.scheduler.ready(f.now, |names| {
        let failing = |name: &Name| &**name == "leaf2";
        let (plain, holding) = names.iter().cloned().partition(failing);
        vec![TransactionGroup { holding, plain: vec![] }, TransactionGroup { holding: vec![], plain }]
    });
    assert_eq!((ready.single, ready.joint.remove(0).len()), (vec![switch("leaf2")], 2));
}

#[test]
fn participant_without_answer_at_deadline_is_late() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.hold("leaf1");
    f.now += DEADLINE;
    assert_eq!(f.send_decisions(), [(switch("leaf1"), Decision::Abort)]);
    assert_eq!(f.outcome(), ("late", vec![switch("leaf2")]));
    f.answer("leaf1", DriverAnswer::RolledBack);
    let ready = f.ready();
    // leaf2 is stuck and gets the newest state alone; leaf1 does not wait for it.
    assert_eq!(
        (ready.single, ready.joint),
        (vec![switch("leaf2"), switch("leaf1")], Vec::<Vec<Target>>::new())
    );
}

#[test]
fn lost_decision_is_detected_after_transaction_ends() {
    let mut f = TransactionTest::with_leaf2_behind();
    // The decision for leaf2 is lost. A participant that ignores its decision is released after a timeout.
    let left = BTreeMap::from([(switch("leaf1"), 2)]);
    assert_eq!(f.scheduler.compare_with_stream(&left, f.now), 0);
    f.now += DRIVER_TIMEOUT;
    f.ready();
    assert_eq!(f.scheduler.transaction(&switch("leaf2")), None);
    assert_eq!(f.scheduler.compare_with_stream(&left, f.now), 1);
    f.now += MAX_DELAY;
    assert!(f.ready().single.contains(&switch("leaf2")));
}

#[test]
fn participant_that_rolls_back_on_its_own_is_late() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.hold("leaf1");
    f.answer("leaf1", DriverAnswer::RolledBack);
    assert_eq!(f.outcome(), ("late", vec![switch("leaf1")]));
    assert_eq!(f.send_decisions(), [(switch("leaf2"), Decision::Abort)]);
}

#[test]
fn participant_that_ignores_decision_is_released() {
    let mut f = TransactionTest::with_leaf2_behind();
    f.scheduler.mark_dirty(switch("leaf2"), f.now);
    assert!(f.ready().single.is_empty());
    f.now += DRIVER_TIMEOUT;
    assert_eq!(f.ready().single, [switch("leaf2")]);
}

#[test]
fn failed_decision_publish_is_retried_and_failed_opening_aborts() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.hold("leaf1");
    f.hold("leaf2");
    let decisions = f.ready().decisions;
    let (_, command) = f.scheduler.issue_decision(&decisions[0], f.now).unwrap();
    assert_eq!(command.transaction.unwrap().decision, Some(Decision::Confirm));
    f.scheduler.publish_failed(&decisions[0], None, f.now);
    assert_eq!(f.ready().decisions, [switch("leaf2")]);
    f.now += RETRY_DELAY;
    assert_eq!(f.ready().decisions.len(), 2);
    // A failed publish of the opening command ends the transaction.
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.scheduler.publish_failed(&switch("leaf1"), Some(7), f.now);
    assert_eq!((f.outcome().0, f.send_decisions().len()), ("failed", 1));
}

#[test]
fn removed_target_aborts_its_transaction() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.hold("leaf1");
    f.scheduler.remove_target(&switch("leaf2"), f.now);
    assert_eq!((f.outcome().0, f.send_decisions().len()), ("failed", 1));
}

#[test]
fn inherited_open_transaction_is_aborted_before_new_commands() {
    let now = Instant::now();
    let mut scheduler = CommandScheduler::new(9);
    let generation = Generation { term: 8, sequence: 5, hash: "a".into() };
    let stored = StoredCommand {
        driver: "netconf".into(),
        generation: Some(generation),
        unconfirmed: true,
        sequence: 4,
    };
    scheduler.load_stored(fabric(), stored);
    assert!(!scheduler.is_commanded(&fabric(), &"netconf".into(), "a"));
    // The inherited transaction is aborted first.
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    let open = f.scheduler.transactions.remove(0);
    let (participant, generation) = open.first_participant();
    alive(&mut scheduler);
    let aborted = Transaction { decision: Some(Decision::Abort), ..open.transaction().clone() };
    scheduler.decide_inherited(participant.clone(), generation, aborted, now);
    scheduler.mark_dirty(participant.target.clone(), now);
    let ready = scheduler.ready(now, connected);
    assert_eq!((ready.single, ready.decisions), (vec![], vec![participant.target.clone()]));
    let (_, command) = scheduler.issue_decision(&participant.target, now).unwrap();
    assert_eq!(command.transaction.unwrap().decision, Some(Decision::Abort));
    scheduler.confirm_published(&participant.target, &command.generation, 5, now);
    // A participant that is absent or silent gets no command before it reports its state,
    scheduler.handle_report(&participant.target, &command.generation, DriverAnswer::WillRetry, now);
    let ready = scheduler.ready(now + DRIVER_TIMEOUT, connected);
    assert_eq!((ready.single, ready.decisions, ready.next), (vec![], vec![], None));
    scheduler.handle_report(&participant.target, &command.generation, DriverAnswer::RolledBack, now);
    assert_eq!(scheduler.ready(now + MAX_DELAY, connected).single, [participant.target]);
}

#[test]
fn inherited_participant_with_changed_endpoint_is_released() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    let open = f.scheduler.transactions.remove(0);
    let (participant, generation) = open.first_participant();
    let mut scheduler = CommandScheduler::new(9);
    let aborted = Transaction { decision: Some(Decision::Abort), ..open.transaction().clone() };
    scheduler.decide_inherited(participant.clone(), generation, aborted, f.now);
    scheduler.release_inherited(|_| true);
    assert!(scheduler.transaction(&participant.target).is_some());
    scheduler.release_inherited(|_| false);
    assert!(scheduler.transaction(&participant.target).is_none());
}
