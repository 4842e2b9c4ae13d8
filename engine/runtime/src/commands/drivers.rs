//! Presence and reports of drivers, from NATS.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_core::{Event, Name, StoredCommand, StreamEvent, Target, instance_of};
use eno_sbi::nats::{Connection, Content, Restarts, Selection, StoredMessage, StreamReader, for_each_stored};
use eno_sbi::{HOLD, MAX_CLOCK_SKEW, PARTS, clock_skew};
use eno_schemas::{DriverHello, Report, Subject, SubjectKind, Tree, decode, decode_command, subject};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::parts::{Place, Sequences};
use super::stored_parts::{self, PartsOfSwitch, resolve};
use crate::metrics::Metrics;
use crate::watch::mailbox::{Input, Mailbox, Source, post};

/// The capability of a driver that answers lookups.
const LOOKUPS: &str = "lookups";
/// Its processes meet each other to probe.
const VISITS: &str = "visits";
/// The capability of a driver that makes VRFs.
const VRFS: &str = "vrfs";
/// The capability of drivers that make BGP sessions.
const BGP: &str = "bgp";
/// The capability of drivers that know neighbours by a network.
const DYNAMIC_NEIGHBOURS: &str = "dynamicNeighbours";
/// Time without a renewal after which a driver counts as absent, in case the server did not announce it.
const PRESENCE_TIMEOUT: Duration = Duration::from_secs(25);

/// The driver whose targets are nodes.
pub const NODE_DRIVER: &str = "node";
/// The driver whose targets are BGPSessionGroups.
const SPEAKER_DRIVER: &str = "bgp-speaker";

/// The target of a name in a subject. Only names of NADs have a slash; nodes are the targets of one driver.
pub fn target(driver: &str, name: &str) -> Target {
    match name.split_once('/') {
        Some((namespace, name)) => Target::Nad(namespace.into(), name.into()),
        None if driver == NODE_DRIVER => Target::Node(name.into()),
        None if driver == SPEAKER_DRIVER => Target::Speaker(name.into()),
        None => Target::Fabric(name.into()),
    }
}

/// Follows the reports, starting with the last one of each target.
pub async fn reports(
    connection: Connection,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
    lost: watch::Receiver<u64>,
) {
    let mut synced = false;
    let mut restarts = Restarts::new(&connection, Some(lost));
    while restarts
        .follow(
            "reading reports from NATS",
            Box::pin(follow_reports(&connection, &mailbox, &metrics, &mut synced)),
        )
        .await
    {}
}

/// Breaks when the receiver has ended.
async fn follow_reports(
    connection: &Connection,
    mailbox: &Mailbox,
    metrics: &Metrics,
    synced: &mut bool,
) -> Result<ControlFlow<()>, async_nats::Error> {
    let of = SubjectKind::Result.all();
    let mut reports =
        StreamReader::open(&connection.jetstream, Selection::last(subject::RESULTS, &of)).await?;
    loop {
        if reports.is_caught_up()
            && !std::mem::replace(synced, true)
            && !post(mailbox, Input::Synced(Source::Reports)).await
        {
            return Ok(ControlFlow::Break(()));
        }
        let message = reports.next().await?;
        let input = match report(&message) {
            None => continue,
            Some(Ok(report)) => {
                let target = target(&report.driver, &report.target);
                Input::Report(target, Box::new(report))
            }
            Some(Err(error)) => {
                metrics.malformed("report");
                warn!(subject = message.subject, error, "a report can't be read");
                match driver_and_target(&message.subject) {
                    Some((driver, target)) => StreamEvent::ReportUnreadable(target, driver.into()).into(),
                    None => Input::Nameless(subject::RESULTS, message.subject),
                }
            }
        };
        if !post(mailbox, input).await {
            return Ok(ControlFlow::Break(()));
        }
    }
}

/// Decodes a report and checks its origin; `None`: it was purged.
fn report(message: &StoredMessage) -> Option<Result<Report, String>> {
    let payload = match &message.content {
        Content::Payload(payload) => payload,
        Content::Removed => return None,
        Content::Foreign(reason) => return Some(Err(reason.clone())),
    };
    Some(match decode::<Report>(payload) {
        // A driver may report under its own subject only.
        Ok(report) if Subject::result(&report.driver, &report.target).to_string() != message.subject => {
            Err(format!("it is of driver {} on target {}", report.driver, report.target))
        }
        Ok(report) => Ok(report),
        Err(error) => Err(error.to_string()),
    })
}

/// What NATS stores of commands.
#[derive(Debug, Default)]
pub struct StoredCommands {
    /// The last command of each target.
    pub commands: Vec<StoredCommand>,
    /// The trees of those that are heads.
    pub trees: BTreeMap<Place, Arc<Tree>>,
    /// The sequences of all parts.
    pub parts: Sequences,
}

/// The last command of each target that NATS stores. One whose parts are not all there counts as unreadable.
pub async fn commands(
    connection: &Connection,
    metrics: &Metrics,
) -> Result<StoredCommands, async_nats::Error> {
    let mut messages = Vec::new();
    let of = SubjectKind::Command.all();
    let commands = Selection::last(subject::COMMANDS, &of);
    for_each_stored(&connection.jetstream, commands, |message| messages.push(message)).await?;
    // A head is stored after its parts.
    let stored = stored_parts::read(connection, metrics).await?;
    let mut found = StoredCommands { parts: stored.sequences, ..StoredCommands::default() };
    let none = PartsOfSwitch::new();
    for message in messages {
        let Some((driver, target)) = driver_and_target(&message.subject) else { continue };
        let place = (target.clone(), Name::from(driver));
        let resolved = match &message.content {
            Content::Payload(payload) => {
                decode_command(payload).map_err(|error| error.to_string()).and_then(|message| {
                    let parts = stored.parts.get(&place).unwrap_or(&none);
                    resolve(message, parts).map_err(|error| error.to_string())
                })
            }
            Content::Removed => continue,
            Content::Foreign(reason) => Err(reason.clone()),
        };
        let command = match resolved {
            Ok((command, tree)) => {
                found.trees.extend(tree.map(|tree| (place.clone(), Arc::new(tree))));
                Some(command)
            }
            Err(error) => {
                metrics.malformed("command");
                warn!(subject = message.subject, error, "a command can't be read; it will be replaced");
                None
            }
        };
        let (target, driver) = place;
        found.commands.push(StoredCommand { target, driver, sequence: message.sequence, command });
    }
    Ok(found)
}

/// The sequence of each target's last command on NATS, readable or not.
pub async fn command_sequences(connection: &Connection) -> Result<BTreeMap<Target, u64>, async_nats::Error> {
    let mut found = BTreeMap::new();
    let of = SubjectKind::Command.all();
    let commands = Selection { headers_only: true, ..Selection::last(subject::COMMANDS, &of) };
    for_each_stored(&connection.jetstream, commands, |message| {
        if let Some((_, target)) =
            driver_and_target(&message.subject).filter(|_| message.content != Content::Removed)
        {
            let last = found.entry(target).or_default();
            *last = message.sequence.max(*last);
        }
    })
    .await?;
    Ok(found)
}

/// Follows what is stored on the subjects of commands, by this engine or by somebody else.
pub async fn stored_commands(connection: Connection, mailbox: Mailbox, lost: watch::Receiver<u64>) {
    let mut restarts = Restarts::new(&connection, Some(lost));
    while restarts.follow("reading commands from NATS", follow_commands(&connection, &mailbox)).await {}
}

/// Breaks when the receiver has ended.
async fn follow_commands(
    connection: &Connection,
    mailbox: &Mailbox,
) -> Result<ControlFlow<()>, async_nats::Error> {
    let of = SubjectKind::Command.all();
    let commands = Selection { headers_only: true, ..Selection::last(subject::COMMANDS, &of) };
    let mut commands = StreamReader::open(&connection.jetstream, commands).await?;
    loop {
        let message = commands.next().await?;
        if message.content == Content::Removed {
            continue;
        }
        let input = match driver_and_target(&message.subject) {
            Some((driver, target)) => {
                StreamEvent::CommandStored(target, driver.into(), message.sequence).into()
            }
            None => Input::Nameless(subject::COMMANDS, message.subject),
        };
        if !post(mailbox, input).await {
            return Ok(ControlFlow::Break(()));
        }
    }
}

/// Driver and target of a subject of commands or reports.
fn driver_and_target(subject: &str) -> Option<(String, Target)> {
    let Ok(Subject::Command(name) | Subject::Result(name)) = subject.parse() else { return None };
    let target = target(&name.driver, &name.target);
    Some((name.driver.into_owned(), target))
}

/// Follows which drivers are alive.
pub async fn presence(
    connection: Connection,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
    lost: watch::Receiver<u64>,
) {
    let mut alive = DriverPresence::default();
    let mut restarts = Restarts::new(&connection, Some(lost));
    while restarts
        .follow(
            "watching the drivers' presence",
            follow_presence(&connection, &mailbox, &metrics, &mut alive),
        )
        .await
    {}
}

/// A driver process.
#[derive(Debug)]
struct Process {
    driver: Name,
    /// The only target that it serves; `None`: it serves several.
    target: Option<Name>,
    /// It can hold a change until a transaction is decided, it reads commands in parts, it makes VRFs, or it answers lookups.
    capabilities: Vec<String>,
    /// By how much its clock is ahead of this process's; negative: behind. `None`: unknown.
    skew: Option<SignedDuration>,
    /// Its clock counts as wrong.
    is_skewed: bool,
}

impl Process {
    /// `age`: the time since NATS stored the hello. `before`: what was known of the process.
    fn new(hello: DriverHello, age: Duration, now: Timestamp, before: Option<&Self>) -> Self {
        let skew = hello.at.as_deref().and_then(|at| clock_skew(at, age, now));
        // A clock near the limit does not change the status of objects again and again.
        let was_skewed = before.is_some_and(|before| before.is_skewed);
        let limit = if was_skewed { MAX_CLOCK_SKEW / 2 } else { MAX_CLOCK_SKEW };
        Self {
            capabilities: hello.capabilities,
            driver: hello.driver.into(),
            target: hello.target.map(Name::from),
            is_skewed: skew.is_some_and(|skew| skew.abs() > limit),
            skew,
        }
    }

    fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|one| one == capability)
    }
}

/// The drivers that are present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PresentDrivers {
    /// Drivers that are alive.
    alive: BTreeSet<Name>,
    /// Alive drivers all of whose processes can hold a change.
    holding: BTreeSet<Name>,
    /// Drivers all of whose processes read commands in parts. A driver without a process counts as before.
    of_parts: BTreeSet<Name>,
    /// Alive drivers with a process that makes no VRFs.
    without_vrfs: BTreeSet<Name>,
    /// Alive drivers with a process that makes no BGP sessions.
    without_bgp: BTreeSet<Name>,
    /// Alive drivers with a process that knows no neighbours by a network.
    without_dynamic_neighbours: BTreeSet<Name>,
    /// Drivers all of whose processes answer lookups. A driver without a process counts as before.
    with_lookups: BTreeSet<Name>,
    /// The nodes with an agent that does not probe.
    without_visits: BTreeSet<Name>,
    /// Alive drivers with a process whose clock counts as wrong, and a message about it.
    skewed: BTreeMap<Name, Name>,
}

/// The driver processes that are alive, and the drivers reported last.
#[derive(Debug, Default)]
struct DriverPresence {
    instances: HashMap<String, (Process, Instant)>,
    last_reported: Option<PresentDrivers>,
    /// The number of processes of each driver that was alive once.
    counts: BTreeMap<Name, usize>,
}

impl DriverPresence {
    /// Reports the number of processes of each driver. A driver that is gone has none.
    fn count(&mut self, metrics: &Metrics) {
        self.counts.values_mut().for_each(|count| *count = 0);
        for (process, _) in self.instances.values() {
            *self.counts.entry(process.driver.clone()).or_default() += 1;
        }
        for (driver, count) in &self.counts {
            metrics.driver(driver, *count);
            let processes = self.instances.values().filter(|(process, _)| process.driver == *driver);
            let skews = processes.filter_map(|(process, _)| process.skew);
            metrics.clock_skew(driver, skews.max_by_key(|skew| skew.abs()).map(|skew| skew.as_secs_f64()));
        }
    }

    /// The present drivers, if they changed since the last call.
    fn changes(&mut self, now: Instant) -> Option<PresentDrivers> {
        self.instances.retain(|_, (_, seen)| now.duration_since(*seen) < PRESENCE_TIMEOUT);
        let mut present = PresentDrivers::default();
        let [mut plain, mut of_whole, mut without_lookups] = [(); 3].map(|()| BTreeSet::new());
        for (key, (process, _)) in &self.instances {
            let Process { driver, target, skew, is_skewed, .. } = process;
            present.alive.insert(driver.clone());
            present.alive.extend(target.as_ref().map(|target| instance_of(driver, target)));
            if process.can(HOLD) { &mut present.holding } else { &mut plain }.insert(driver.clone());
            if !process.can(VRFS) {
                present.without_vrfs.insert(driver.clone());
            }
            if !process.can(BGP) {
                present.without_bgp.insert(driver.clone());
            }
            if !process.can(DYNAMIC_NEIGHBOURS) {
                present.without_dynamic_neighbours.insert(driver.clone());
            }
            if process.can(LOOKUPS) { &mut present.with_lookups } else { &mut without_lookups }
                .insert(driver.clone());
            if **driver == *NODE_DRIVER && !process.can(VISITS) {
                present.without_visits.extend(target.clone());
            }
            if process.can(PARTS) { &mut present.of_parts } else { &mut of_whole }.insert(driver.clone());
            if let Some(skew) = skew.filter(|_| *is_skewed) {
                let direction = if skew.is_negative() { "behind" } else { "ahead of" };
                let message = Name::from(format!(
                    "the clock of the process {key} is more than {} s {direction} the engine's; synchronise both with NTP",
                    (MAX_CLOCK_SKEW / 2).as_secs()
                ));
                // The first one by its key.
                let known = present.skewed.entry(driver.clone()).or_insert_with(|| message.clone());
                *known = message.min(known.clone());
            }
        }
        present.holding.retain(|driver| !plain.contains(driver));
        present.of_parts.retain(|driver| !of_whole.contains(driver));
        present.with_lookups.retain(|driver| !without_lookups.contains(driver));
        if let Some(before) = &self.last_reported {
            let gone = |driver: &&Name| !present.alive.contains(*driver);
            present.of_parts.extend(before.of_parts.iter().filter(gone).cloned());
            present.with_lookups.extend(before.with_lookups.iter().filter(gone).cloned());
        }
        (self.last_reported.as_ref() != Some(&present)).then(|| {
            self.last_reported = Some(present.clone());
            present
        })
    }
}

/// Decodes a presence and checks its origin: a process may announce itself under its own key only, and an agent serves the
/// node of its key alone, since NATS lets it write that key.
fn hello(key: &str, value: &[u8]) -> Result<DriverHello, String> {
    let hello: DriverHello = decode(value).map_err(|error| error.to_string())?;
    let DriverHello { driver, instance, target, .. } = &hello;
    if subject::key(driver, instance) != key {
        return Err(format!("it is of instance {instance} of driver {driver}"));
    }
    if driver == NODE_DRIVER && target.as_ref() != Some(instance) {
        return Err(format!("it claims {} for node {instance}", target.as_deref().unwrap_or("all nodes")));
    }
    Ok(hello)
}

/// Breaks when the receiver has ended.
async fn follow_presence(
    connection: &Connection,
    mailbox: &Mailbox,
    metrics: &Metrics,
    alive: &mut DriverPresence,
) -> Result<ControlFlow<()>, async_nats::Error> {
    let (stream, of) = (subject::bucket_stream(subject::DRIVERS), subject::of_bucket(subject::DRIVERS, ">"));
    let prefix = subject::of_bucket(subject::DRIVERS, "");
    let mut hellos = StreamReader::open(&connection.jetstream, Selection::last(&stream, &of)).await?;
    let mut tick = interval(PRESENCE_TIMEOUT / 5);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if hellos.is_caught_up() {
            let first = alive.last_reported.is_none();
            let changes = alive.changes(Instant::now());
            alive.count(metrics);
            if let Some(PresentDrivers {
                alive,
                holding,
                of_parts,
                without_vrfs,
                without_bgp,
                without_dynamic_neighbours,
                with_lookups,
                without_visits,
                skewed,
            }) = changes
                && !(post(mailbox, Input::DriversOfParts(of_parts)).await
                    && post(mailbox, Input::Event(Event::HoldCapableDrivers(holding))).await
                    && post(mailbox, Input::Event(Event::DriversWithoutVrfs(without_vrfs))).await
                    && post(
                        mailbox,
                        Input::Event(Event::DriversWithoutBgp(without_bgp, without_dynamic_neighbours)),
                    )
                    .await
                    && post(mailbox, Input::Event(Event::DriversWithLookups(with_lookups))).await
                    && post(mailbox, Input::Event(Event::AgentsWithoutVisits(without_visits))).await
                    && post(mailbox, Input::Event(Event::SkewedDrivers(skewed))).await
                    && post(mailbox, Input::Event(Event::Drivers(alive))).await)
            {
                return Ok(ControlFlow::Break(()));
            }
            if first && !post(mailbox, Input::Synced(Source::Drivers)).await {
                return Ok(ControlFlow::Break(()));
            }
        }
        tokio::select! {
            _ = tick.tick() => {}
            message = hellos.next() => {
                let message = message?;
                let key = message.subject.strip_prefix(&prefix).unwrap_or_default();
                match message.content {
                    Content::Payload(payload) => match hello(key, &payload) {
                        Ok(hello) => {
                            let before = alive.instances.get(key).map(|(process, _)| process);
                            let process = Process::new(hello, message.age, Timestamp::now(), before);
                            alive.instances.insert(key.to_owned(), (process, Instant::now()));
                        }
                        Err(error) => {
                            metrics.malformed("driver");
                            warn!(key, error, "a driver's presence is not believed");
                        }
                    },
                    Content::Removed => {
                        alive.instances.remove(key);
                    }
                    Content::Foreign(reason) => {
                        metrics.malformed("driver");
                        warn!(key, reason, "a driver's presence is not believed");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_parses_into_driver_and_target() {
        for (driver, name) in [("netconf", "leaf1.dc1"), ("nad", "ns/a-b.c"), ("node", "leaf1.dc1")] {
            let expected = Some((driver.to_owned(), target(driver, name)));
            assert_eq!(driver_and_target(&Subject::command(driver, name).to_string()), expected);
            assert_eq!(driver_and_target(&Subject::result(driver, name).to_string()), expected);
        }
        assert_eq!(driver_and_target("eno.v1.command.netconf"), None);
        assert_eq!(driver_and_target("eno.v1.command.netconf.a=4"), None);
        assert_eq!(target("nad", "ns/name"), Target::Nad("ns".into(), "name".into()));
        assert_eq!(target("node", "a"), Target::Node("a".into()));
        assert_eq!(target("bgp-speaker", "a"), Target::Speaker("a".into()));
        assert_eq!(target("netconf", "a"), Target::Fabric("a".into()));
    }

    #[test]
    fn presence_is_believed_under_its_own_key_only() {
        let believed = |key: &str, driver: &str, instance: &str, target: Option<&str>| {
            let presence = DriverHello {
                driver: driver.into(),
                instance: instance.into(),
                version: "1".into(),
                kinds: Vec::new(),
                capabilities: Vec::new(),
                target: target.map(str::to_owned),
                at: None,
            };
            hello(key, &eno_schemas::encode(&presence).unwrap()).is_ok()
        };
        assert!(believed("netconf.one", "netconf", "one", None));
        assert!(believed("node.n=2E1", "node", "n.1", Some("n.1")));
        assert!(!believed("netconf.one", "netconf", "two", None));
        assert!(!believed("nad.one", "netconf", "one", None));
        // An agent speaks neither for another node nor for all.
        assert!(!believed("node.a", "node", "a", Some("b")));
        assert!(!believed("node.a", "node", "b", Some("b")));
        assert!(!believed("node.a", "node", "a", None));
        assert!(hello("node.a", b"{}").is_err());
    }

    fn process(driver: &str, target: Option<&str>, capabilities: &[&str]) -> Process {
        let capabilities = capabilities.iter().map(|&one| one.to_owned()).collect();
        let target = target.map(Name::from);
        Process { driver: driver.into(), target, capabilities, skew: None, is_skewed: false }
    }

    #[test]
    fn driver_presence_expires_without_renewal() {
        let start = Instant::now();
        let mut alive = DriverPresence::default();
        assert_eq!(alive.changes(start), Some(PresentDrivers::default()));
        let process = |driver: &str, target: Option<&str>, capabilities: &[&str]| {
            (process(driver, target, capabilities), start)
        };
        alive.instances.insert(
            "netconf.1".into(),
            process("netconf", None, &[HOLD, LOOKUPS, PARTS, VRFS, BGP, DYNAMIC_NEIGHBOURS]),
        );
        alive.instances.insert("node.1".into(), process("node", Some("worker1"), &[]));
        alive.instances.insert("node.2".into(), process("node", Some("worker2"), &[VISITS]));
        let present = |holding: &[&str], without_vrfs: &[&str]| PresentDrivers {
            alive: ["netconf", "node", "node/worker1", "node/worker2"].map(Name::from).into(),
            holding: holding.iter().map(|driver| Name::from(*driver)).collect(),
            of_parts: holding.iter().map(|driver| Name::from(*driver)).collect(),
            without_vrfs: without_vrfs.iter().map(|driver| Name::from(*driver)).collect(),
            without_bgp: without_vrfs.iter().map(|driver| Name::from(*driver)).collect(),
            without_dynamic_neighbours: without_vrfs.iter().map(|driver| Name::from(*driver)).collect(),
            with_lookups: holding.iter().map(|driver| Name::from(*driver)).collect(),
            without_visits: ["worker1"].map(Name::from).into(),
            skewed: BTreeMap::new(),
        };
        assert_eq!(alive.changes(start), Some(present(&["netconf"], &["node"])));
        assert_eq!(alive.changes(start), None);
        // One process that can't hold a change is enough: it may get the command.
        alive.instances.insert("netconf.2".into(), process("netconf", None, &[]));
        assert_eq!(alive.changes(start), Some(present(&[], &["netconf", "node"])));
        assert_eq!(alive.changes(start + PRESENCE_TIMEOUT), Some(PresentDrivers::default()));
    }

    #[test]
    fn driver_without_a_process_gets_commands_as_before() {
        let start = Instant::now();
        let mut alive = DriverPresence::default();
        let process = |reads_parts| {
            let capabilities: &[&str] = if reads_parts { &[HOLD, LOOKUPS, PARTS] } else { &[HOLD] };
            (process("netconf", None, capabilities), start)
        };
        let of_parts = |alive: &mut DriverPresence| {
            let present = alive.changes(start).or_else(|| alive.last_reported.clone());
            present.map(|PresentDrivers { of_parts, with_lookups, .. }| {
                assert_eq!(of_parts, with_lookups);
                of_parts.contains("netconf")
            })
        };
        alive.instances.insert("netconf.1".into(), process(true));
        assert_eq!(of_parts(&mut alive), Some(true));
        alive.instances.clear();
        assert_eq!(of_parts(&mut alive), Some(true));
        // It is started in an earlier version.
        alive.instances.insert("netconf.1".into(), process(false));
        assert_eq!(of_parts(&mut alive), Some(false));
        alive.instances.clear();
        assert_eq!(of_parts(&mut alive), Some(false));
    }

    #[test]
    fn distant_clock_of_a_process_counts_until_it_is_near() {
        let start = Instant::now();
        let mut alive = DriverPresence::default();
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let mut skewed = |instance: &str, ahead: i64| {
            let hello = DriverHello {
                driver: "netconf".into(),
                instance: instance.into(),
                version: "1".into(),
                kinds: Vec::new(),
                capabilities: Vec::new(),
                target: None,
                at: Some((now + SignedDuration::from_secs(ahead - 3)).to_string()),
            };
            let key = format!("netconf.{instance}");
            let before = alive.instances.get(&key).map(|(process, _)| process);
            let process = Process::new(hello, Duration::from_secs(3), now, before);
            alive.instances.insert(key, (process, start));
            alive.changes(start).map(|present| present.skewed.get("netconf").map(ToString::to_string))
        };
        let message = |instance: &str, direction: &str| {
            format!(
                "the clock of the process netconf.{instance} is more than 15 s {direction} the engine's; synchronise both with NTP"
            )
        };
        assert_eq!(skewed("b", 30), Some(None));
        assert_eq!(skewed("b", 31), Some(Some(message("b", "ahead of"))));
        assert_eq!(skewed("b", 500), None, "the message stays while the clock is wrong");
        assert_eq!(skewed("a", -31), Some(Some(message("a", "behind"))), "the first process by its name");
        assert_eq!(skewed("a", -16), None);
        assert_eq!(skewed("a", -15), Some(Some(message("b", "ahead of"))));
        assert_eq!(skewed("b", 0), Some(None));
    }
}
