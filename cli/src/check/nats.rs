//! NATS: the login, the streams, and whether drivers answer their commands.

use std::collections::BTreeMap;

use eno_schemas::subject;
use jiff::{SignedDuration, Timestamp};

use super::{Check, Fact, Name, Problem, SYSTEM, count, listed};

/// The space of all streams on a server in bytes: `max_file_store` of `deploy/nats/nats.conf`, 4 GB.
pub const MAX_FILE_STORE: u64 = 4_000_000_000;
/// Percentage of the space from which on there is a warning.
const WARN_FULL: u64 = 80;
/// Percentage of the space from which on the check fails.
const FAIL_FULL: u64 = 95;
/// Percentage of a stream's own limit from which on there is a warning.
const WARN_LIMIT: u64 = 80;
/// Age of a command without a report from which on it counts as unanswered. Drivers report progress every 2 s.
const UNANSWERED: SignedDuration = SignedDuration::from_mins(1);

/// Whether NATS lets this program in.
#[derive(Clone, Debug)]
pub enum Login {
    /// No URL was given.
    NotGiven,
    /// It did not.
    Refused(String),
    /// It did; the server's version.
    In(String),
}

impl Login {
    /// Why nothing else is known of NATS.
    pub fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self::NotGiven => Some("it needs access to NATS: give --nats-url and --nats-credentials"),
            Self::Refused(_) => Some("it needs access to NATS, which did not let this program in"),
            Self::In(_) => None,
        }
    }
}

/// The check of the login.
pub fn judge_login(login: &Login, url: Option<&str>) -> Check {
    let name = Name::NatsLogin;
    let subject = url.unwrap_or_default();
    match login {
        Login::NotGiven => {
            let why = "no NATS is given; --nats-url, --nats-credentials and --nats-ca, or ENO_NATS_URL, \
                       ENO_NATS_CREDENTIALS and ENO_NATS_CA, add the checks of streams, drivers and callbacks";
            Check::skipped(name, subject, why)
        }
        Login::Refused(error) => {
            let remedy = format!(
                "check the URL, the credentials (inspect.seed) and the authority; a port-forward to NATS: kubectl -n \
                 {SYSTEM} port-forward statefulset/eno-nats 4222"
            );
            Check::failed(name, subject, Problem::new(error, remedy))
        }
        Login::In(version) => Check::ok(name, format!("{subject}, version {version}")),
    }
}

/// A copy of a stream on another server than its leader.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The server.
    pub server: String,
    /// Whether it has all messages.
    pub is_current: bool,
    /// Whether the server is away.
    pub is_offline: bool,
}

/// A stream or bucket; buckets are streams with the prefix `KV_`.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its name.
    pub name: String,
    /// The number of servers that shall store it.
    pub wanted_replicas: usize,
    /// Whether it has a leader.
    pub has_leader: bool,
    /// Its copies besides the leader's.
    pub replicas: Vec<Replica>,
    /// Size of its messages in bytes.
    pub bytes: u64,
    /// Maximum size in bytes; `None`: without a limit.
    pub max_bytes: Option<u64>,
}

/// The streams that exist, in the order of [`eno_engine::trace::STREAMS`]; `None`: the stream does not exist.
pub type Streams = Fact<Vec<(&'static str, Option<Stream>)>>;

/// The check of existence and replicas.
pub fn judge_streams(streams: &Streams) -> Check {
    let name = Name::Streams;
    let streams = match streams {
        Ok(streams) => streams,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let subject = count(streams.len(), "stream");
    let missing: Vec<&str> =
        streams.iter().filter(|(_, stream)| stream.is_none()).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        let what = format!("missing: {}", listed(missing));
        let remedy =
            format!("the engine creates them while it leads: kubectl -n {SYSTEM} logs deployment/eno-engine");
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    let remedy =
        format!("look at the servers: kubectl -n {SYSTEM} get pods -l app.kubernetes.io/name=eno-nats");
    let present = || streams.iter().filter_map(|(_, stream)| stream.as_ref());
    let leaderless: Vec<&str> =
        present().filter(|stream| !stream.has_leader).map(|stream| stream.name.as_str()).collect();
    if !leaderless.is_empty() {
        let what = format!("without a leader: {}", listed(leaderless));
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    let behind: Vec<String> = present().filter_map(replica_problem).collect();
    if !behind.is_empty() {
        return Check::warning(name, subject, Problem::new(listed(behind), remedy));
    }
    let replicas = present().map(|stream| stream.wanted_replicas).min().unwrap_or_default();
    Check::ok(name, format!("{subject} on {}", count(replicas, "server")))
}

fn replica_problem(stream: &Stream) -> Option<String> {
    let name = &stream.name;
    if let Some(replica) = stream.replicas.iter().find(|replica| replica.is_offline) {
        return Some(format!("{name}: server {} is away", replica.server));
    }
    if let Some(replica) = stream.replicas.iter().find(|replica| !replica.is_current) {
        return Some(format!("{name}: server {} is behind", replica.server));
    }
    let there = stream.replicas.len() + 1;
    (there < stream.wanted_replicas).then(|| format!("{name}: {there} of {} copies", stream.wanted_replicas))
}

/// The check of the streams' sizes.
pub fn judge_space(streams: &Streams) -> Check {
    let name = Name::StreamSpace;
    let streams = match streams {
        Ok(streams) => streams,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let present = || streams.iter().filter_map(|(_, stream)| stream.as_ref());
    let bytes: u64 = present().map(|stream| stream.bytes).sum();
    let subject = format!("{} MB of {} MB", bytes / 1_000_000, MAX_FILE_STORE / 1_000_000);
    let percent = bytes.saturating_mul(100) / MAX_FILE_STORE;
    let remedy = "enlarge the volume of NATS and max_file_store in nats.conf";
    if percent >= WARN_FULL {
        let what =
            format!("the streams fill {percent} % of their space; a full server takes no more messages");
        let problem = Problem::new(what, remedy);
        return if percent >= FAIL_FULL {
            Check::failed(name, subject, problem)
        } else {
            Check::warning(name, subject, problem)
        };
    }
    // The history drops its oldest messages by design.
    let is_full = |stream: &&Stream| {
        stream.name != subject::HISTORY
            && stream
                .max_bytes
                .is_some_and(|max| stream.bytes.saturating_mul(100) >= max.saturating_mul(WARN_LIMIT))
    };
    let full: Vec<&str> = present().filter(is_full).map(|stream| stream.name.as_str()).collect();
    if full.is_empty() {
        return Check::ok(name, subject);
    }
    let what = format!(
        "near their limit, at which they take no new messages or drop their oldest: {}",
        listed(full)
    );
    let remedy = "deliver or drop what waits there: eno callbacks list, eno callbacks retry";
    Check::warning(name, subject, Problem::new(what, remedy))
}

/// The times of a target's last command and of its last report, by driver and target.
#[derive(Clone, Debug, Default)]
pub struct Backlog {
    /// The last commands.
    pub commands: BTreeMap<(String, String), Timestamp>,
    /// The last reports.
    pub reports: BTreeMap<(String, String), Timestamp>,
}

/// The check that drivers answer their commands.
pub fn judge_backlog(backlog: &Fact<Backlog>, now: Timestamp) -> Check {
    let name = Name::CommandBacklog;
    let backlog = match backlog {
        Ok(backlog) => backlog,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let subject = count(backlog.commands.len(), "target");
    let mut unanswered: Vec<(&(String, String), SignedDuration)> = backlog
        .commands
        .iter()
        .filter(|(target, at)| backlog.reports.get(*target).is_none_or(|report| report < *at))
        .map(|(target, at)| (target, now.duration_since(*at)))
        .filter(|(_, age)| *age > UNANSWERED)
        .collect();
    if unanswered.is_empty() {
        return Check::ok(name, format!("{subject}, all answered"));
    }
    unanswered.sort_by_key(|(_, age)| std::cmp::Reverse(*age));
    let oldest =
        unanswered.iter().map(|((driver, target), age)| format!("{driver} {target} for {} s", age.as_secs()));
    let what =
        format!("{} have a command without a report: {}", count(unanswered.len(), "target"), listed(oldest));
    let remedy = "look at the logs of these drivers, and at the checks of drivers and agents";
    Check::warning(name, subject, Problem::new(what, remedy))
}

#[cfg(test)]
mod tests {
    use eno_engine::trace::STREAMS;

    use std::path::Path;

    use super::super::Unread;
    use super::super::tests::assert_outcome;
    use super::*;

    #[test]
    fn login_outcomes() {
        let url = Some("tls://localhost:4222");
        assert_outcome(&judge_login(&Login::In("2.12".into()), url), "ok");
        assert_outcome(&judge_login(&Login::Refused("not within 5 s".into()), url), "failed: not within 5 s");
        assert_outcome(&judge_login(&Login::NotGiven, None), "skipped: ENO_NATS_URL");
    }

    fn stream(name: &str) -> Stream {
        Stream {
            name: name.to_owned(),
            wanted_replicas: 1,
            has_leader: true,
            replicas: Vec::new(),
            bytes: 1_000_000,
            max_bytes: None,
        }
    }

    #[allow(clippy::unnecessary_wraps, reason = "checks take facts")]
    fn streams(change: impl Fn(&mut Stream)) -> Streams {
        let all = STREAMS.map(|name| {
            let mut stream = stream(name);
            change(&mut stream);
            (name, Some(stream))
        });
        Ok(all.into())
    }

    #[test]
    fn streams_must_exist_and_be_replicated() {
        let replica =
            |is_current, is_offline| Replica { server: "eno-nats-1".into(), is_current, is_offline };
        let of = |replicas: Vec<Replica>| {
            streams(move |stream| {
                stream.wanted_replicas = 3;
                stream.replicas.clone_from(&replicas);
            })
        };
        let mut missing = STREAMS.map(|name| (name, Some(stream(name))));
        missing[1].1 = None;
        for (streams, expected) in [
            (streams(|_| ()), "ok"),
            (of(vec![replica(true, false), replica(true, false)]), "ok"),
            (Ok(missing.into()), "failed: missing: ENO_PARTS"),
            (
                streams(|stream| stream.has_leader = stream.name != "ENO_COMMANDS"),
                "failed: leader: ENO_COMMANDS",
            ),
            (of(vec![replica(true, false), replica(false, true)]), "warning: eno-nats-1 is away"),
            (of(vec![replica(true, false), replica(false, false)]), "warning: eno-nats-1 is behind"),
            (of(vec![replica(true, false)]), "warning: 2 of 3 copies"),
            (Err(Unread::Failed("no answer".into())), "failed: no answer"),
        ] {
            assert_outcome(&judge_streams(&streams), expected);
        }
    }

    #[test]
    fn full_streams_are_reported() {
        let first =
            |bytes| streams(move |one| one.bytes = if one.name == "ENO_COMMANDS" { bytes } else { 0 });
        let limited = |name: &'static str| {
            streams(move |stream| {
                stream.max_bytes = Some(10_000_000);
                stream.bytes = if stream.name == name { 9_500_000 } else { 0 };
            })
        };
        for (streams, expected) in [
            (first(1_000_000_000), "ok"),
            (first(3_300_000_000), "warning: 82 %"),
            (first(3_900_000_000), "failed: 97 %"),
            (limited("ENO_DEAD_LETTERS"), "warning: ENO_DEAD_LETTERS"),
            (limited("ENO_HISTORY"), "ok"),
        ] {
            assert_outcome(&judge_space(&streams), expected);
        }
    }

    #[test]
    fn space_is_that_of_the_configuration() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/nats/nats.conf");
        let text = std::fs::read_to_string(file).expect("the configuration");
        assert!(text.contains("max_file_store: 4GB"), "change MAX_FILE_STORE");
    }

    #[test]
    fn unanswered_commands_are_named() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let at = |seconds: i64| now - SignedDuration::from_secs(seconds);
        let target = |name: &str| ("netconf".to_owned(), name.to_owned());
        let judge = |command: i64, report: Option<i64>| {
            let commands = BTreeMap::from([(target("leaf1"), at(command))]);
            let reports = report.map(|report| (target("leaf1"), at(report))).into_iter().collect();
            judge_backlog(&Ok(Backlog { commands, reports }), now)
        };
        assert_outcome(&judge(600, Some(590)), "ok");
        assert_outcome(&judge(30, None), "ok");
        assert_outcome(&judge(300, None), "warning: 1 target have|netconf leaf1 for 300 s");
        assert_outcome(&judge(300, Some(900)), "warning: netconf leaf1 for 300 s");
    }
}
