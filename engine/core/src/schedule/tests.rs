mod unchanged;

use eno_schemas::{Command, Desired, Device, FabricDesired, FabricVlans};

use super::answers::RETRY_DELAY;
use super::*;
use crate::StoredCommand;

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

/// A switch without VLANs.
fn nothing() -> Desired {
    let device = Device::new("127.0.0.1:830");
    let (vlans, ports) = (FabricVlans::new(), Vec::new());
    Desired::Fabric(FabricDesired {
        cluster: "c1".into(),
        cluster_uid: None,
        device,
        vrfs: Vec::new(),
        lookup: None,
        vlans,
        ports,
    })
}

fn nad() -> Target {
    Target::Nad("ns".into(), "a".into())
}

/// Number of commands that NATS lost, by the sequences that it stores.
fn lost(schedule: &mut Schedule, sequences: &BTreeMap<Target, u64>, now: Duration) -> usize {
    schedule.compare_with_stream(sequences, now);
    schedule.take_republished().len()
}

impl Schedule {
    /// Loads a command that NATS stored before this engine led.
    fn load_stored(&mut self, target: Target, stored: Stored) {
        self.slots.entry(target).or_default().stored = Some(stored);
    }

    /// The targets that may be published now. `groups` returns which of the given switches have to change together.
    fn ready(
        &mut self,
        now: Duration,
        groups: impl FnOnce(&[Name]) -> Vec<TransactionGroup>,
    ) -> ReadyCommands {
        let (mut ready, switches) = self.collect_ready(now);
        if let Some(switches) = switches {
            self.add_groups(groups(&switches), now, &mut ready);
        }
        ready
    }
}

/// Marks the target dirty and publishes its command if it is ready.
fn issue(schedule: &mut Schedule, target: &Target, hash: &str, now: Duration) -> Option<PendingCommand> {
    schedule.mark_dirty(target.clone(), now);
    if !schedule.ready(now, ungrouped).single.contains(target) {
        return None;
    }
    let command = schedule.issue_if_changed(target, &"netconf".into(), hash.into(), now)?;
    schedule.confirm_published(target, &command.generation, 7, now);
    Some(command)
}

/// The schedule of this term and the time, without a driver.
fn without_driver(term: u64) -> (Schedule, Duration) {
    (Schedule::new(term), Duration::from_secs(100))
}

/// The same with a driver.
fn with_driver(term: u64) -> (Schedule, Duration) {
    let (mut schedule, now) = without_driver(term);
    alive(&mut schedule);
    (schedule, now)
}

fn alive(schedule: &mut Schedule) {
    schedule.live_drivers = BTreeSet::from(["netconf".into()]);
}

#[test]
fn target_has_one_outstanding_command_while_driver_is_alive() {
    let (mut schedule, now) = with_driver(3);
    let first = issue(&mut schedule, &nad(), "a", now).unwrap();
    assert_eq!((first.generation.term, first.generation.sequence, first.expected), (3, 1, 0));
    assert_eq!(issue(&mut schedule, &nad(), "b", now), None);
    let ready = schedule.ready(now, ungrouped);
    assert!(ready.single.is_empty());
    assert_eq!(ready.next, Some(now + DRIVER_TIMEOUT));
    schedule.handle_report(&nad(), &first.generation, DriverAnswer::Applied, now);
    assert_eq!(issue(&mut schedule, &nad(), "b", now).unwrap().expected, 7);
}

#[test]
fn large_namespace_does_not_starve_others() {
    let (mut schedule, now) = without_driver(1);
    for n in 0..10_000 {
        schedule.mark_dirty(Target::Nad("flood".into(), format!("{n:05}").into()), now);
    }
    let (other, node) = (Target::Nad("other".into(), "a".into()), Target::Node("worker1".into()));
    schedule.mark_dirty(other.clone(), now);
    schedule.mark_dirty(node.clone(), now);
    let ready = schedule.ready(now, ungrouped).single;
    assert_eq!(ready.len(), MAX_PUBLISHING);
    assert!(ready[..3].contains(&other) && ready[..3].contains(&node), "{:?}", &ready[..3]);
}

#[test]
fn absent_or_silent_driver_does_not_block_commands() {
    let (mut schedule, now) = without_driver(1);
    issue(&mut schedule, &nad(), "a", now).unwrap();
    issue(&mut schedule, &nad(), "b", now).unwrap();
    alive(&mut schedule);
    assert_eq!(issue(&mut schedule, &nad(), "c", now), None);
    assert!(issue(&mut schedule, &nad(), "c", now + DRIVER_TIMEOUT).is_some());
}

#[test]
fn late_command_of_former_leader_is_replaced() {
    let (mut schedule, now) = without_driver(3);
    let generation = |term, sequence, hash: &str| Generation { term, sequence, hash: hash.into() };
    let found = generation(2, 5, "a");
    let stored = Stored {
        driver: "netconf".into(),
        generation: Some(found.clone()),
        unconfirmed: false,
        sequence: 40,
    };
    schedule.load_stored(nad(), stored);
    // The stored command, and an older one.
    assert!(
        !schedule.replace_foreign_command(&nad(), &found, now)
            && !schedule.replace_foreign_command(&nad(), &generation(2, 4, "b"), now)
    );
    assert!(schedule.is_commanded(&nad(), &"netconf".into(), "a"));
    assert!(schedule.replace_foreign_command(&nad(), &generation(2, 6, "b"), now));
    assert!(!schedule.is_commanded(&nad(), &"netconf".into(), "a"));
    assert_eq!(schedule.ready(now, ungrouped).single, [nad()]);
    let command = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    // A publish in progress: NATS refuses it or stores it after the foreign command.
    assert!(!schedule.replace_foreign_command(&nad(), &generation(2, 7, "c"), now));
    schedule.confirm_published(&nad(), &command.generation, 42, now);
    assert!(
        !schedule.replace_foreign_command(&nad(), &generation(2, 7, "c"), now)
            && !schedule.replace_foreign_command(&nad(), &command.generation, now)
    );
    assert!(
        !schedule.replace_foreign_command(&fabric(), &generation(2, 7, "c"), now),
        "it was never commanded"
    );
}

#[test]
fn invalid_or_foreign_command_is_replaced() {
    let (mut schedule, now) = with_driver(3);
    let generation = |term, sequence, hash: &str| Generation { term, sequence, hash: hash.into() };
    let issued = issue(&mut schedule, &nad(), "a", now).unwrap().generation;
    // The replacement has no generation, and the driver knows only the previous command.
    assert!(schedule.replace_foreign_command(&nad(), &generation(issued.term, issued.sequence, ""), now));
    let reissued = issue(&mut schedule, &nad(), "a", now).unwrap().generation;
    assert!(
        !schedule.replace_foreign_command(&nad(), &issued, now)
            && !schedule.replace_foreign_command(&nad(), &reissued, now)
    );
    // The replacement has a generation that was issued to another target, or to none.
    issue(&mut schedule, &fabric(), "b", now).unwrap();
    assert!(schedule.replace_foreign_command(&nad(), &generation(3, reissued.sequence + 1, "x"), now));
    assert!(!schedule.is_foreign(&generation(3, reissued.sequence + 1, "x")));
    assert!(schedule.is_foreign(&generation(3, reissued.sequence + 2, "x")));
    // NATS stored the command without an acknowledgement: it does not count as foreign.
    issue(&mut schedule, &nad(), "a", now).unwrap();
    schedule.mark_dirty(nad(), now);
    let taken = schedule.issue_if_changed(&nad(), &"netconf".into(), "c".into(), now).unwrap().generation;
    schedule.publish_failed(&nad(), None, now);
    assert!(!schedule.replace_foreign_command(&nad(), &taken, now));
    assert!(!schedule.is_commanded(&nad(), &"netconf".into(), "a"));
    // The command was unreadable at the start: reports of former terms prove nothing about it.
    let stored = Stored { driver: "netconf".into(), generation: None, unconfirmed: false, sequence: 4 };
    schedule.load_stored(nad(), stored);
    assert!(
        schedule.replace_foreign_command(&nad(), &generation(2, 1, ""), now)
            && !schedule.replace_foreign_command(&nad(), &generation(3, 1, ""), now)
    );
}

#[test]
fn unreadable_reports_cause_fewer_and_fewer_republishes() {
    let (mut schedule, now) = with_driver(3);
    let issued = issue(&mut schedule, &nad(), "a", now).unwrap().generation;
    schedule.handle_report(&nad(), &issued, DriverAnswer::Applied, now);
    let unreadable = |schedule: &mut Schedule, driver: &str, now| {
        schedule.now = now;
        schedule.on_stream(crate::StreamEvent::ReportUnreadable(nad(), driver.into()));
    };
    unreadable(&mut schedule, "ovs", now);
    assert_eq!(issue(&mut schedule, &nad(), "a", now), None, "it is another driver's");
    unreadable(&mut schedule, "netconf", now);
    let reissued = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap().generation;
    // The driver answers each command, and all its reports are unreadable.
    schedule.confirm_published(&nad(), &reissued, 7, now);
    unreadable(&mut schedule, "netconf", now);
    let mut commands = 0;
    for second in 0..600 {
        let now = now + Duration::from_secs(second);
        if issue(&mut schedule, &nad(), "a", now).is_some() {
            unreadable(&mut schedule, "netconf", now);
            commands += 1;
        }
    }
    assert!((8..30).contains(&commands), "{commands}");
}

#[test]
fn report_of_a_generation_that_nobody_issued_is_purged() {
    let (mut schedule, now) = with_driver(3);
    let issued = issue(&mut schedule, &nad(), "a", now).unwrap().generation;
    schedule.handle_report(&nad(), &issued, DriverAnswer::Applied, now);
    let unissued = Generation { sequence: issued.sequence + 99, ..issued.clone() };
    for generation in [Generation { term: u64::MAX, ..issued }, unissued] {
        assert!(schedule.is_foreign(&generation));
        schedule.report_unissued(nad(), "netconf", generation.clone());
        assert_eq!(schedule.take_purges(), [(nad(), "netconf".into())]);
        assert_eq!(issue(&mut schedule, &nad(), "a", now), None, "the purge would delete it");
        schedule.removal_done(&nad(), &"netconf".into(), now);
        schedule.mark_dirty(nad(), now);
        assert!(schedule.ready(now + MAX_DELAY, ungrouped).single.contains(&nad()));
        let again = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
        assert_eq!((again.expected, again.generation.term), (0, 3));
        // While it is published, the purge waits.
        assert!(schedule.is_foreign(&generation));
        schedule.report_unissued(nad(), "netconf", generation.clone());
        assert_eq!(schedule.take_purges(), []);
        schedule.confirm_published(&nad(), &again.generation, 7, now);
        schedule.ready(now, ungrouped);
        assert_eq!(schedule.take_purges(), [(nad(), "netconf".into())]);
        schedule.removal_done(&nad(), &"netconf".into(), now);
        let again = issue(&mut schedule, &nad(), "a", now + 2 * MAX_DELAY).unwrap();
        schedule.handle_report(&nad(), &again.generation, DriverAnswer::Applied, now);
    }
    // A target that does not exist.
    let generation = Generation { term: u64::MAX, sequence: 1, hash: "a".into() };
    schedule.report_unissued(fabric(), "netconf", generation);
    assert_eq!(schedule.take_purges(), [(fabric(), "netconf".into())]);
    assert_eq!(schedule.take_uncommanded(), BTreeSet::new());
}

/// No report of the driver would take its place: it is newer, or of the very generation that comes next.
#[test]
fn report_that_nobody_can_have_made_goes_before_the_first_command_of_its_target() {
    let mut schedule = Schedule::new(3);
    let generation = Generation { term: 3, sequence: 1, hash: "a".into() };
    schedule.report_unissued(nad(), "netconf", generation.clone());
    assert_eq!(schedule.take_purges(), [(nad(), "netconf".into())]);
    schedule.mark_dirty(nad(), Duration::ZERO);
    assert!(!schedule.ready(MAX_DELAY, ungrouped).single.contains(&nad()), "the purge would delete it");
    schedule.removal_done(&nad(), &"netconf".into(), Duration::ZERO);
    assert!(schedule.ready(MAX_DELAY, ungrouped).single.contains(&nad()));
    let first = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), MAX_DELAY).unwrap();
    assert_eq!((first.generation, first.expected), (generation, 0));
}

#[test]
fn stored_command_of_a_later_term_is_purged() {
    let mut schedule = Schedule::new(3);
    let command = Command::new("netconf", "leaf1", (50_000, 1), nothing());
    let stored =
        StoredCommand { target: fabric(), driver: "netconf".into(), sequence: 7, command: Some(command) };
    schedule.restore(&[stored]);
    assert_eq!(schedule.take_purges(), [(fabric(), "netconf".into())]);
    schedule.removal_done(&fabric(), &"netconf".into(), Duration::ZERO);
    assert_eq!(issue(&mut schedule, &fabric(), "a", Duration::ZERO).unwrap().expected, 0);
}

#[test]
fn command_that_somebody_overwrote_is_replaced() {
    let (mut schedule, now) = with_driver(3);
    let stored = |schedule: &mut Schedule, driver: &str, sequence, now| {
        schedule.command_stored(nad(), driver.into(), sequence, now);
        schedule.take_republished()
    };
    let issued = issue(&mut schedule, &nad(), "a", now).unwrap();
    schedule.handle_report(&nad(), &issued.generation, DriverAnswer::Applied, now);
    let sequence = schedule.slots[&nad()].stored.as_ref().unwrap().sequence;
    assert_eq!(stored(&mut schedule, "netconf", sequence, now), [], "it is the command itself");
    for (round, delay) in [(0, Duration::ZERO), (1, Duration::from_millis(100)), (9, Duration::from_secs(1))]
    {
        let now = now + Duration::from_secs(round);
        let last = schedule.slots[&nad()].stored.as_ref().unwrap().sequence;
        assert_eq!(stored(&mut schedule, "netconf", last + 1, now), [(nad(), Republished::Replaced)]);
        assert!(schedule.ready(now + delay, ungrouped).single.contains(&nad()), "{round}");
        let again = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now + delay).unwrap();
        assert_eq!(again.expected, last + 1);
        // Both are told before the acknowledgement.
        assert_eq!(stored(&mut schedule, "netconf", last + 2, now), []);
        schedule.confirm_published(&nad(), &again.generation, last + 2, now);
        schedule.handle_report(&nad(), &again.generation, DriverAnswer::Applied, now);
        assert_eq!(schedule.take_republished(), []);
    }
    // Others that write time after time put the command off for a second at most.
    let flooded = now + Duration::from_mins(2);
    let last = schedule.slots[&nad()].stored.as_ref().unwrap().sequence;
    let republished = (0..40).find(|tick| {
        let now = flooded + Duration::from_millis(100) * *tick;
        stored(&mut schedule, "netconf", last + 1 + u64::from(*tick), now);
        *tick > 0 && schedule.ready(now, ungrouped).single.contains(&nad())
    });
    assert!(republished.is_some_and(|tick| tick <= 11), "{republished:?}");
    let (last, now) = (last + 41, now + Duration::from_mins(3));
    let again = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    schedule.confirm_published(&nad(), &again.generation, last, now);
    schedule.handle_report(&nad(), &again.generation, DriverAnswer::Applied, now);
    schedule.take_republished();
    // A message that comes after the command and is told before its acknowledgement.
    let last = schedule.slots[&nad()].stored.as_ref().unwrap().sequence;
    let now = now + Duration::from_mins(1);
    schedule.mark_dirty(nad(), now);
    let command = schedule.issue_if_changed(&nad(), &"netconf".into(), "b".into(), now).unwrap();
    assert_eq!(stored(&mut schedule, "netconf", last + 2, now), []);
    schedule.confirm_published(&nad(), &command.generation, last + 1, now);
    assert_eq!(schedule.take_republished(), [(nad(), Republished::Replaced)]);
    // The subject of a driver that the target is not of, and one of a target that does not exist.
    assert_eq!(stored(&mut schedule, "other", 90, now), []);
    schedule.command_stored(fabric(), "netconf".into(), 91, now);
    let of_nobody = BTreeSet::from([(nad(), "other".into()), (fabric(), "netconf".into())]);
    assert_eq!(schedule.take_uncommanded(), of_nobody);
}

#[test]
fn messages_for_a_driver_that_the_target_is_not_of_delay_no_command() {
    let (now, other) = (Duration::from_secs(100), Name::from("other"));
    let mut schedule = Schedule::new(3);
    issue(&mut schedule, &nad(), "a", now).unwrap();
    schedule.command_stored(nad(), other.clone(), 90, now);
    assert_eq!(schedule.take_uncommanded(), BTreeSet::from([(nad(), other.clone())]));
    schedule.purge(nad(), other.clone());
    // What comes during the purge is purged after it.
    schedule.command_stored(nad(), other.clone(), 91, now);
    assert_eq!(schedule.take_uncommanded(), BTreeSet::new());
    let later = now + MAX_DELAY;
    schedule.mark_dirty(nad(), later);
    assert!(schedule.ready(later, ungrouped).single.contains(&nad()));
    // The target becomes that driver's meanwhile: the purge may delete the command.
    let moved = schedule.issue_if_changed(&nad(), &other, "a".into(), later).unwrap();
    schedule.confirm_published(&nad(), &moved.generation, 92, later);
    schedule.take_purges();
    schedule.removal_done(&nad(), &other, later);
    assert_eq!(schedule.take_purges(), [(nad(), other.clone())]);
    schedule.removal_done(&nad(), &other, later);
    assert_eq!(schedule.take_purges(), []);
    let again = schedule.ready(later + MAX_DELAY, ungrouped).single;
    assert!(again.contains(&nad()), "it is published again");
    assert_eq!(schedule.take_uncommanded(), BTreeSet::new(), "its command is known");
}

#[test]
fn node_target_waits_only_for_its_own_agent() {
    let now = Duration::from_secs(100);
    let node = Target::Node("worker1".into());
    let mut schedule = Schedule::new(1);
    let go = |schedule: &mut Schedule, hash: &str| {
        schedule.mark_dirty(node.clone(), now);
        if !schedule.ready(now, ungrouped).single.contains(&node) {
            return false;
        }
        let command = schedule.issue_if_changed(&node, &"node".into(), hash.into(), now).unwrap();
        schedule.confirm_published(&node, &command.generation, 1, now);
        true
    };
    schedule.live_drivers = BTreeSet::from(["node", "node/worker2"].map(Name::from));
    // Without its agent, every change is published at once.
    assert!(go(&mut schedule, "a") && go(&mut schedule, "b"));
    schedule.live_drivers = BTreeSet::from(["node", "node/worker1"].map(Name::from));
    assert!(!go(&mut schedule, "c"));
}

#[test]
fn older_report_does_not_finish_newer_command() {
    let (mut schedule, now) = with_driver(1);
    let first = issue(&mut schedule, &nad(), "a", now).unwrap();
    schedule.handle_report(&nad(), &first.generation, DriverAnswer::Applied, now);
    issue(&mut schedule, &nad(), "b", now).unwrap();
    schedule.handle_report(&nad(), &first.generation, DriverAnswer::Applied, now);
    assert_eq!(issue(&mut schedule, &nad(), "c", now), None);
}

#[test]
fn report_before_publish_confirmation_finishes_command() {
    let (mut schedule, now) = with_driver(1);
    schedule.mark_dirty(nad(), now);
    let command = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    schedule.mark_dirty(nad(), now);
    assert_eq!(schedule.ready(now, ungrouped).single, []);
    schedule.handle_report(&nad(), &command.generation, DriverAnswer::Applied, now);
    schedule.confirm_published(&nad(), &command.generation, 1, now);
    assert_eq!(schedule.ready(now, ungrouped).single, [nad()]);
}

#[test]
fn unchanged_state_keeps_its_generation() {
    let (mut schedule, now) = without_driver(9);
    let generation = Generation { term: 8, sequence: 5, hash: "a".into() };
    schedule.load_stored(
        nad(),
        Stored { driver: "netconf".into(), generation: Some(generation), unconfirmed: false, sequence: 4 },
    );
    assert_eq!(issue(&mut schedule, &nad(), "a", now), None);
    assert_eq!(schedule.ready(now, ungrouped).single, []);
    assert_eq!(issue(&mut schedule, &nad(), "b", now).unwrap().expected, 4);
    schedule.streams_lost();
    let reissued = issue(&mut schedule, &nad(), "b", now).unwrap();
    assert_eq!((reissued.expected, reissued.generation.term), (0, 9));
}

#[test]
fn switch_commands_are_debounced_and_nad_commands_are_not() {
    let start = Duration::from_secs(100);
    let mut schedule = Schedule::new(1);
    let mut sent = 0;
    for tick in 0..600_u32 {
        let now = start + Duration::from_millis(10) * tick;
        sent += u32::from(issue(&mut schedule, &fabric(), &format!("{tick}"), now).is_some());
    }
    // The first change at once, then one command every 0.9 s over 6 s.
    assert_eq!(sent, 7);
    let later = start + Duration::from_secs(20);
    assert!(issue(&mut schedule, &fabric(), "lone", later).is_some());
    assert!(issue(&mut schedule, &fabric(), "next", later + DEBOUNCE / 2).is_none());
    assert!(schedule.ready(later + DEBOUNCE * 2, ungrouped).single.contains(&fabric()), "the changes paused");
    for hash in 0..20 {
        assert!(issue(&mut schedule, &nad(), &hash.to_string(), start).is_some());
    }
}

#[test]
fn target_moved_to_other_driver_starts_new_subject() {
    let (mut schedule, now) = without_driver(1);
    issue(&mut schedule, &nad(), "a", now).unwrap();
    schedule.mark_dirty(nad(), now);
    let command = schedule.issue_if_changed(&nad(), &"other".into(), "a".into(), now).unwrap();
    assert_eq!((command.moved_from, command.expected), (Some("netconf".into()), 0));
    assert_eq!(schedule.remove_target(&nad(), now), Some("other".into()));
}

#[test]
fn recreated_target_waits_until_removal_is_done() {
    let (mut schedule, now) = without_driver(1);
    issue(&mut schedule, &nad(), "a", now).unwrap();
    assert_eq!(schedule.remove_target(&nad(), now), Some("netconf".into()));
    // Another driver reports on the target meanwhile.
    schedule.uncommanded.insert((nad(), "other".into()));
    assert_eq!(schedule.take_uncommanded(), BTreeSet::from([(nad(), "other".into())]));
    schedule.purge(nad(), "other".into());
    schedule.removal_done(&nad(), &"other".into(), now);
    assert_eq!(issue(&mut schedule, &nad(), "b", now), None);
    schedule.removal_done(&nad(), &"netconf".into(), now);
    assert_eq!(issue(&mut schedule, &nad(), "b", now).unwrap().expected, 0);
    // A target that no engine knows of.
    schedule.purge(switch("leaf2"), "netconf".into());
    assert_eq!(issue(&mut schedule, &switch("leaf2"), "c", now), None);
    schedule.removal_done(&switch("leaf2"), &"netconf".into(), now);
    assert!(issue(&mut schedule, &switch("leaf2"), "c", now).is_some());
}

#[test]
fn command_lost_by_nats_is_republished() {
    let (mut schedule, now) = with_driver(1);
    let (idle, waiting, on_its_way) = (nad(), fabric(), switch("leaf2"));
    let issued = issue(&mut schedule, &idle, "a", now).unwrap();
    schedule.handle_report(&idle, &issued.generation, DriverAnswer::Applied, now);
    issue(&mut schedule, &waiting, "a", now).unwrap();
    schedule.mark_dirty(on_its_way.clone(), now);
    schedule.issue_if_changed(&on_its_way, &"netconf".into(), "a".into(), now).unwrap();
    let all = BTreeMap::from([(idle.clone(), 7), (waiting.clone(), 7)]);
    assert_eq!((lost(&mut schedule, &all, now), schedule.ready(now, ungrouped).single), (0, vec![]));
    // The previous message of one subject is the last one again.
    assert_eq!(lost(&mut schedule, &BTreeMap::from([(idle.clone(), 3)]), now), 2);
    let ready = schedule.ready(now + MAX_DELAY, ungrouped).single;
    assert_eq!(ready, [idle.clone(), waiting.clone()]);
    let expected = |schedule: &mut Schedule, target| {
        schedule.issue_if_changed(target, &"netconf".into(), "a".into(), now).unwrap().expected
    };
    assert_eq!((expected(&mut schedule, &idle), expected(&mut schedule, &waiting)), (3, 0));
}

#[test]
fn failed_publish_is_retried() {
    let (mut schedule, now) = without_driver(1);
    schedule.mark_dirty(nad(), now);
    schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    schedule.publish_failed(&nad(), Some(42), now);
    let command = schedule.issue_if_changed(&nad(), &"netconf".into(), "a".into(), now).unwrap();
    assert_eq!(command.expected, 42);
    schedule.publish_failed(&nad(), None, now);
    let ready = schedule.ready(now, ungrouped);
    assert_eq!((ready.single, ready.next), (vec![], Some(now + RETRY_DELAY)));
    assert_eq!(schedule.ready(now + RETRY_DELAY, ungrouped).single, [nad()]);
}

fn switch(name: &str) -> Target {
    Target::Fabric(name.into())
}

/// A schedule with switches, some of which can't hold a change, in one transaction.
struct TransactionTest {
    schedule: Schedule,
    now: Duration,
    generations: HashMap<Target, Generation>,
}

impl TransactionTest {
    fn new(names: &[&str]) -> Self {
        let (mut schedule, now) = with_driver(3);
        for name in names {
            schedule.mark_dirty(switch(name), now);
        }
        Self { schedule, now, generations: HashMap::new() }
    }

    /// Both participants were sent the confirmation; only leaf1 answered.
    fn with_leaf2_behind() -> Self {
        let mut f = Self::new(&["leaf1", "leaf2"]);
        f.open_and_hold();
        f.send_decisions();
        f.answer("leaf1", DriverAnswer::Applied);
        f
    }

    fn ready(&mut self) -> ReadyCommands {
        self.schedule.ready(self.now, connected)
    }

    /// Opens the ready transaction and returns its participants.
    fn open(&mut self) -> Vec<Target> {
        let mut joint = self.ready().joint;
        let targets = joint.pop().expect("a transaction is due");
        let participant = |target: &Target| Participant {
            target: target.clone(),
            driver: "netconf".into(),
            desired: nothing().into(),
            tree: None,
            hash: "a".into(),
        };
        let commands = self.schedule.open_transaction(
            targets.iter().map(participant).collect(),
            "later".into(),
            self.now,
        );
        for (participant, command) in commands {
            assert_eq!(command.transaction.as_ref().unwrap().decision, None);
            self.schedule.confirm_published(&participant.target, &command.generation, 1, self.now);
            self.generations.insert(participant.target, command.generation);
        }
        targets
    }

    fn answer(&mut self, name: &str, answer: DriverAnswer) {
        let generation = self.generations[&switch(name)].clone();
        self.schedule.handle_report(&switch(name), &generation, answer, self.now);
    }

    fn hold(&mut self, name: &str) {
        self.answer(name, DriverAnswer::Held { refused: false });
    }

    /// leaf1 and leaf2 hold the change of the ready transaction.
    fn open_and_hold(&mut self) {
        self.open();
        self.hold("leaf1");
        self.hold("leaf2");
    }

    /// Sends the decision to the participants and returns it for each.
    fn send_decisions(&mut self) -> Vec<(Target, Decision)> {
        let decisions = self.ready().decisions;
        let sent = decisions.into_iter().map(|target| {
            let (participant, command) = self.schedule.issue_decision(&target, self.now).unwrap();
            self.schedule.confirm_published(&participant.target, &command.generation, 2, self.now);
            assert!(command.generation > self.generations[&target] && command.generation.hash == "a");
            self.generations.insert(target.clone(), command.generation);
            (target, command.transaction.unwrap().decision.unwrap())
        });
        sent.collect()
    }

    fn outcome(&mut self) -> (&'static str, Vec<Target>) {
        let mut decided = self.schedule.take_decided();
        assert_eq!(decided.len(), 1, "{decided:?}");
        let decided = decided.remove(0);
        (decided.outcome, decided.late)
    }
}

#[test]
fn transaction_is_confirmed_when_all_hold() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2", "plain1"]);
    assert_eq!(f.open(), [switch("leaf1"), switch("leaf2")]);
    assert_eq!(f.schedule.transaction(&switch("leaf1")), Some("3-1"));
    f.hold("leaf1");
    // Changes wait meanwhile, also those of connected switches.
    f.schedule.mark_dirty(switch("leaf1"), f.now);
    f.schedule.mark_dirty(switch("leaf3"), f.now);
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
    assert_eq!(f.schedule.transaction(&switch("leaf1")), None);
    assert!(f.schedule.is_commanded(&switch("leaf2"), &"netconf".into(), "a"));
    f.now += MAX_DELAY;
    assert_eq!(f.ready().joint, [[switch("leaf1"), switch("leaf3")]]);
    // An unrelated switch is never delayed.
    assert_eq!(f.schedule.ready(f.now, ungrouped).single.len(), 3);
}

#[test]
fn report_of_a_generation_that_nobody_issued_is_purged_after_the_transaction() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.hold("leaf2");
    let unissued = Generation { term: 4, sequence: 1, hash: "a".into() };
    f.schedule.report_unissued(switch("leaf1"), "netconf", unissued);
    f.ready();
    assert_eq!(f.schedule.take_purges(), []);
    f.now += DEADLINE;
    f.send_decisions();
    assert_eq!(f.outcome(), ("late", vec![switch("leaf1")]));
    f.ready();
    assert_eq!(f.schedule.take_purges(), [(switch("leaf1"), "netconf".into())]);
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
    assert!(
        !f.schedule.is_commanded(&switch("leaf1"), &"netconf".into(), "a"),
        "it has to be commanded again"
    );
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
    f.open_and_hold();
    f.send_decisions();
    f.answer("leaf1", DriverAnswer::Applied);
    f.answer("leaf2", DriverAnswer::Applied);
    f.schedule.mark_dirty(switch("leaf1"), f.now);
    f.schedule.mark_dirty(switch("leaf2"), f.now);
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
    assert!(f.schedule.transaction(&switch("leaf2")).is_none());
    f.answer("leaf1", DriverAnswer::RolledBack);
    f.answer("leaf3", DriverAnswer::RolledBack);
    // The core knows by then that leaf2 takes no part in transactions.
    let mut ready = f.schedule.ready(f.now, |names| {
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
fn lost_decision_is_sent_again() {
    let mut f = TransactionTest::with_leaf2_behind();
    let left = BTreeMap::from([(switch("leaf1"), 2)]);
    assert_eq!(lost(&mut f.schedule, &left, f.now), 1);
    let decisions = f.send_decisions();
    assert_eq!(decisions, [(switch("leaf2"), Decision::Confirm)]);
    // A participant that ignores its decision is released after a timeout.
    f.now += DRIVER_TIMEOUT;
    f.ready();
    assert_eq!(f.schedule.transaction(&switch("leaf2")), None);
    assert_eq!(lost(&mut f.schedule, &left, f.now), 1);
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
    f.schedule.mark_dirty(switch("leaf2"), f.now);
    assert!(f.ready().single.is_empty());
    f.now += DRIVER_TIMEOUT;
    assert_eq!(f.ready().single, [switch("leaf2")]);
}

#[test]
fn failed_decision_publish_is_retried_and_failed_opening_aborts() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open_and_hold();
    let decisions = f.ready().decisions;
    let (_, command) = f.schedule.issue_decision(&decisions[0], f.now).unwrap();
    assert_eq!(command.transaction.unwrap().decision, Some(Decision::Confirm));
    f.schedule.publish_failed(&decisions[0], None, f.now);
    assert_eq!(f.ready().decisions, [switch("leaf2")]);
    f.now += RETRY_DELAY;
    assert_eq!(f.ready().decisions.len(), 2);
    // A failed publish of the opening command ends the transaction.
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.schedule.publish_failed(&switch("leaf1"), Some(7), f.now);
    assert_eq!((f.outcome().0, f.send_decisions().len()), ("failed", 1));
}

#[test]
fn removed_target_aborts_its_transaction() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    f.hold("leaf1");
    f.schedule.remove_target(&switch("leaf2"), f.now);
    assert_eq!((f.outcome().0, f.send_decisions().len()), ("failed", 1));
}

#[test]
fn inherited_open_transaction_is_aborted_before_new_commands() {
    let (mut schedule, now) = without_driver(9);
    let generation = Generation { term: 8, sequence: 5, hash: "a".into() };
    let stored =
        Stored { driver: "netconf".into(), generation: Some(generation), unconfirmed: true, sequence: 4 };
    schedule.load_stored(fabric(), stored);
    assert!(!schedule.is_commanded(&fabric(), &"netconf".into(), "a"));
    // The inherited transaction is aborted first.
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    let open = f.schedule.transactions.remove(0);
    let (participant, generation) = open.first_participant();
    alive(&mut schedule);
    let aborted = Transaction { decision: Some(Decision::Abort), ..open.transaction().clone() };
    schedule.decide_inherited(participant.clone(), generation, aborted, now);
    schedule.mark_dirty(participant.target.clone(), now);
    let ready = schedule.ready(now, connected);
    assert_eq!((ready.single, ready.decisions), (vec![], vec![participant.target.clone()]));
    let (_, command) = schedule.issue_decision(&participant.target, now).unwrap();
    assert_eq!(command.transaction.unwrap().decision, Some(Decision::Abort));
    schedule.confirm_published(&participant.target, &command.generation, 5, now);
    // A decision that NATS lost, or that somebody else replaced, is sent again,
    assert_eq!(lost(&mut schedule, &BTreeMap::new(), now), 1);
    assert_eq!(schedule.ready(now, connected).decisions, std::slice::from_ref(&participant.target));
    let (_, command) = schedule.issue_decision(&participant.target, now).unwrap();
    assert_eq!((command.expected, command.transaction.unwrap().decision), (0, Some(Decision::Abort)));
    schedule.confirm_published(&participant.target, &command.generation, 5, now);
    schedule.command_stored(participant.target.clone(), "netconf".into(), 6, now);
    assert_eq!(schedule.ready(now, connected).decisions, std::slice::from_ref(&participant.target));
    let (_, command) = schedule.issue_decision(&participant.target, now).unwrap();
    assert_eq!(command.expected, 6);
    schedule.confirm_published(&participant.target, &command.generation, 7, now);
    // and also after a purge of a report that nobody can have made.
    let unissued = Generation { term: 10, ..command.generation };
    schedule.report_unissued(participant.target.clone(), "netconf", unissued);
    assert!(schedule.ready(now, connected).decisions.is_empty(), "the purge would delete it");
    schedule.removal_done(&participant.target, &"netconf".into(), now);
    let later = now + MAX_DELAY;
    assert_eq!(schedule.ready(later, connected).decisions, std::slice::from_ref(&participant.target));
    let (_, command) = schedule.issue_decision(&participant.target, later).unwrap();
    schedule.confirm_published(&participant.target, &command.generation, 8, later);
    // A participant that is absent or silent gets no command before it reports its state,
    schedule.handle_report(&participant.target, &command.generation, DriverAnswer::WillRetry, now);
    let ready = schedule.ready(now + DRIVER_TIMEOUT, connected);
    assert_eq!((ready.single, ready.decisions, ready.next), (vec![], vec![], None));
    schedule.handle_report(&participant.target, &command.generation, DriverAnswer::RolledBack, now);
    assert_eq!(schedule.ready(now + MAX_DELAY, connected).single, [participant.target]);
}

#[test]
fn inherited_participant_with_changed_endpoint_is_released() {
    let mut f = TransactionTest::new(&["leaf1", "leaf2"]);
    f.open();
    let open = f.schedule.transactions.remove(0);
    let (participant, generation) = open.first_participant();
    let mut schedule = Schedule::new(9);
    let aborted = Transaction { decision: Some(Decision::Abort), ..open.transaction().clone() };
    schedule.decide_inherited(participant.clone(), generation, aborted, f.now);
    schedule.release_inherited(|_| true);
    assert!(schedule.transaction(&participant.target).is_some());
    schedule.release_inherited(|_| false);
    assert!(schedule.transaction(&participant.target).is_none());
}

#[test]
fn command_that_a_process_of_its_driver_can_not_read_is_published_again() {
    let (mut schedule, now) = with_driver(1);
    schedule.now = now;
    let first = issue(&mut schedule, &nad(), "a", now).unwrap();
    schedule.handle_report(&nad(), &first.generation, DriverAnswer::Applied, now);
    assert_eq!(issue(&mut schedule, &nad(), "a", now), None);
    schedule.on_stream(crate::StreamEvent::CommandUnread(nad(), "netconf".into()));
    let again = issue(&mut schedule, &nad(), "a", now).unwrap();
    assert!(again.generation > first.generation);
    schedule.handle_report(&nad(), &again.generation, DriverAnswer::Applied, now);
    // However often that happens, the next one waits no longer than a second.
    for _ in 0..20 {
        schedule.on_stream(crate::StreamEvent::CommandUnread(nad(), "netconf".into()));
        schedule.now += Duration::from_secs(1);
        let now = schedule.now;
        let again = issue(&mut schedule, &nad(), "a", now).expect("after a second");
        schedule.handle_report(&nad(), &again.generation, DriverAnswer::Applied, now);
    }
}
