//! Clocks of the API server, this machine and the nodes.

use eno_sbi::MAX_CLOCK_SKEW;
use jiff::{SignedDuration, Timestamp};

use super::{Check, Fact, Name, Problem, count, listed};

/// Difference from which on a clock is worth a warning.
const WARN: SignedDuration = SignedDuration::from_secs(5);
/// Difference from which on certificates and tokens count as expired or as not valid yet.
const FAIL: SignedDuration = SignedDuration::from_mins(1);
/// Age of a Lease from which on the node's clock is behind. A kubelet renews it every 10 s.
const STALE: SignedDuration = SignedDuration::from_secs(40);

/// The time of the API server, and when this machine asked for it.
#[derive(Clone, Copy, Debug)]
pub struct ServerTime {
    /// This machine's time just before the request.
    pub before: Timestamp,
    /// The header `Date` of the answer, in whole seconds.
    pub server: Timestamp,
    /// This machine's time just after the answer.
    pub after: Timestamp,
}

impl ServerTime {
    /// By how much the server's clock is ahead of this machine's, at least; negative: behind. The answer took time, and
    /// the header has whole seconds, so small differences are zero.
    pub fn ahead(&self) -> SignedDuration {
        let least = self.server.duration_since(self.after);
        let most = self.server.duration_since(self.before) + SignedDuration::from_secs(1);
        if least.is_positive() {
            least
        } else if most.is_negative() {
            most
        } else {
            SignedDuration::ZERO
        }
    }
}

/// The check of this machine's clock.
pub fn judge_server(time: &Fact<ServerTime>) -> Check {
    let name = Name::ApiServerClock;
    let time = match time {
        Ok(time) => time,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let ahead = time.ahead();
    let subject = format!("{} s apart", ahead.as_secs().abs());
    if ahead.abs() < WARN {
        return Check::ok(name, subject);
    }
    let direction = if ahead.is_positive() { "behind" } else { "ahead of" };
    let problem = Problem::new(
        format!("the clock of this machine is {} s {direction} the API server's", ahead.as_secs().abs()),
        "synchronise both with NTP",
    );
    if ahead.abs() < FAIL {
        Check::warning(name, subject, problem)
    } else {
        Check::failed(name, subject, problem)
    }
}

/// The Lease of a node.
#[derive(Clone, Debug)]
pub struct NodeLease {
    /// The node.
    pub node: String,
    /// Whether the node is ready: its kubelet renews the Lease.
    pub is_ready: bool,
    /// The time of the last renewal by the node's clock.
    pub renewed: Option<Timestamp>,
}

/// The check of the nodes' clocks. `now`: when the Leases were read, by the API server's clock.
pub fn judge_nodes(leases: &[NodeLease], now: Timestamp) -> Check {
    let name = Name::NodeClocks;
    let known: Vec<(&NodeLease, SignedDuration)> = leases
        .iter()
        .filter(|lease| lease.is_ready)
        .filter_map(|lease| Some((lease, now.duration_since(lease.renewed?))))
        .collect();
    let subject = count(known.len(), "ready node");
    if known.is_empty() {
        return Check::skipped(name, subject, "no ready node has a Lease in the namespace kube-node-lease");
    }
    let wrong: Vec<String> = known
        .iter()
        .filter_map(|(lease, age)| {
            let (difference, direction) = match *age {
                age if age < -WARN => (-age, "ahead"),
                age if age > STALE => (age, "behind"),
                _ => return None,
            };
            Some(format!("{} is {} s {direction}", lease.node, difference.as_secs()))
        })
        .collect();
    if wrong.is_empty() {
        return Check::ok(name, subject);
    }
    let what = format!("clocks of nodes differ from the API server's: {}", listed(wrong));
    Check::warning(name, subject, Problem::new(what, "synchronise the nodes and the control plane with NTP"))
}

/// The clock of a process of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverClock {
    /// The driver and the name of the process.
    pub process: String,
    /// By how much it is ahead of this machine's; negative: behind.
    pub ahead: SignedDuration,
}

/// The check of the clocks of drivers and agents. `server`: by how much the API server's clock is ahead of this machine's.
pub fn judge_drivers(clocks: &Fact<Vec<DriverClock>>, server: SignedDuration) -> Check {
    let name = Name::DriverClocks;
    let clocks = match clocks {
        Ok(clocks) => clocks,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let subject = count(clocks.len(), "process");
    if clocks.is_empty() {
        return Check::skipped(name, subject, "no driver tells its time");
    }
    let wrong: Vec<String> = clocks
        .iter()
        .filter_map(|clock| {
            let ahead = clock.ahead - server;
            let direction = if ahead.is_positive() { "ahead" } else { "behind" };
            (ahead.abs() > MAX_CLOCK_SKEW)
                .then(|| format!("{} is {} s {direction}", clock.process, ahead.as_secs().abs()))
        })
        .collect();
    if wrong.is_empty() {
        return Check::ok(name, subject);
    }
    let what = format!("clocks of drivers differ from the API server's: {}", listed(wrong));
    Check::warning(name, subject, Problem::new(what, "synchronise the nodes of these pods with NTP"))
}

#[cfg(test)]
mod tests {
    use super::super::Unread;
    use super::super::tests::assert_outcome;
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::new(1_800_000_000 + second, 500_000_000).expect("a time")
    }

    #[test]
    fn distant_server_clock_is_reported() {
        let time = |seconds: i64| {
            let server = Timestamp::from_second(1_800_000_000 + seconds).expect("a time");
            Ok(ServerTime { before: at(0), server, after: at(1) })
        };
        for (ahead, expected) in [
            (0, "ok"),
            (1, "ok"),
            (-3, "ok"),
            (10, "warning: 8 s behind the API server's"),
            (-10, "warning: 9 s ahead of the API server's"),
            (100, "failed: 98 s behind"),
            (-4000, "failed: ahead of"),
        ] {
            assert_outcome(&judge_server(&time(ahead)), expected);
        }
        assert_outcome(&judge_server(&Err(Unread::Failed("no Date".into()))), "failed: no Date");
    }

    #[test]
    fn distant_driver_clocks_are_reported() {
        // This machine is 60 s behind the API server.
        let server = SignedDuration::from_secs(60);
        let clock = |process: &str, ahead| DriverClock {
            process: process.into(),
            ahead: SignedDuration::from_secs(ahead),
        };
        for (clocks, expected) in [
            (vec![clock("netconf a", 60), clock("nad b", 31), clock("nad c", 90)], "ok"),
            (vec![clock("netconf a", 60), clock("nad b", 29)], "warning: nad b is 31 s behind"),
            (vec![clock("node n", 95)], "warning: node n is 35 s ahead"),
            (vec![], "skipped: no driver tells its time"),
        ] {
            assert_outcome(&judge_drivers(&Ok(clocks), server), expected);
        }
    }

    #[test]
    fn distant_node_clocks_are_reported() {
        let lease = |node: &str, is_ready, age: i64| NodeLease {
            node: node.into(),
            is_ready,
            renewed: Some(at(-age)),
        };
        for (leases, expected) in [
            (vec![lease("a", true, 0), lease("b", true, 11)], "ok"),
            (vec![lease("a", true, 60)], "warning: a is 60 s behind"),
            (vec![lease("a", true, -7)], "warning: a is 7 s ahead"),
            // Its kubelet has stopped, so the Lease shows no clock.
            (vec![lease("a", true, 0), lease("b", false, 600)], "ok"),
            (vec![], "skipped: no ready node"),
            (vec![NodeLease { renewed: None, ..lease("a", true, 0) }], "skipped"),
        ] {
            assert_outcome(&judge_nodes(&leases, at(0)), expected);
        }
    }
}
