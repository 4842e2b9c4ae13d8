//! The phase of each object, for the metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eno_core::{ConditionReason, ConditionType, Key, Kind, Status};
use eno_schemas::Phase;
use jiff::Timestamp;

use crate::metrics::Metrics;

/// The phases that an object should leave again.
const PASSING: [Phase; 3] = [Phase::Pending, Phase::Error, Phase::Terminating];

/// The phase of each object, and since when it has not been ready.
#[derive(Debug, Default)]
pub struct Phases {
    current: HashMap<Key, Entry>,
    /// The objects in each passing phase, the one that is longest not ready first.
    passing: BTreeMap<(Kind, Phase), BTreeSet<(i64, Key)>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    phase: Option<Phase>,
    /// Unix time in seconds.
    since: i64,
    /// Probes found that its packets are lost, or that two hosts have an address.
    loses: bool,
    /// Why it is a Subnet short of addresses; `None`: it is not.
    short: Option<ConditionReason>,
}

impl Phases {
    /// An object has this status.
    pub fn set(&mut self, key: &Key, status: &Status, metrics: &Metrics) {
        metrics.enters(key.kind, status.phase);
        let entry = Entry {
            phase: status.phase,
            since: not_ready_since(status),
            loses: loses_packets(status),
            short: short_of_addresses(status),
        };
        metrics.loses(key.kind, entry.loses);
        if key.kind == Kind::Subnet {
            metrics.short(entry.short);
        }
        if let Some(before) = self.current.insert(key.clone(), entry) {
            metrics.leaves(key.kind, before.phase);
            self.leave(key, before, metrics);
        }
        if let Some(phase) = status.phase.filter(|phase| PASSING.contains(phase)) {
            self.passing.entry((key.kind, phase)).or_default().insert((entry.since, key.clone()));
            self.report(key.kind, phase, metrics);
        }
        if key.kind == Kind::FabricDevice {
            let holds = |kind| status.conditions.iter().any(|one| one.kind == kind && one.holds);
            metrics.device(&key.name, holds(ConditionType::Reachable), holds(ConditionType::Drift));
        }
        if let Some(sessions) = &status.sessions {
            metrics.sessions(&key.name, sessions.all, sessions.established);
        }
    }

    /// An object is gone.
    pub fn remove(&mut self, key: &Key, metrics: &Metrics) {
        if let Some(before) = self.current.remove(key) {
            metrics.leaves(key.kind, before.phase);
            self.leave(key, before, metrics);
        }
        if key.kind == Kind::FabricDevice {
            metrics.device_gone(&key.name);
        }
        if key.kind == Kind::BGPSessionGroup {
            metrics.sessions_gone(&key.name);
        }
    }

    fn leave(&mut self, key: &Key, before: Entry, metrics: &Metrics) {
        metrics.loses_no_more(key.kind, before.loses);
        if let Some(reason) = before.short {
            metrics.short_no_more(reason);
        }
        let Some(phase) = before.phase else { return };
        if let Some(objects) = self.passing.get_mut(&(key.kind, phase))
            && objects.remove(&(before.since, key.clone()))
        {
            self.report(key.kind, phase, metrics);
        }
    }

    fn report(&self, kind: Kind, phase: Phase, metrics: &Metrics) {
        let oldest = self.passing.get(&(kind, phase)).and_then(BTreeSet::first);
        metrics.oldest(kind, phase, oldest.map(|(since, _)| *since));
    }
}

/// True while the condition Verified is false.
fn loses_packets(status: &Status) -> bool {
    let verified = status.conditions.iter().find(|condition| condition.kind == ConditionType::Verified);
    verified.is_some_and(|verified| !verified.holds && !verified.reason.is_unknown())
}

/// Why the condition AddressesLow is true, which only Subnets have.
fn short_of_addresses(status: &Status) -> Option<ConditionReason> {
    let low = status.conditions.iter().find(|condition| condition.kind == ConditionType::AddressesLow);
    low.filter(|low| low.holds).map(|low| low.reason)
}

/// Since when the condition Ready is not true. It survives a change of the leader.
fn not_ready_since(status: &Status) -> i64 {
    let ready = status.conditions.iter().find(|condition| condition.kind == ConditionType::Ready);
    let since = ready.filter(|ready| !ready.holds).and_then(|ready| ready.since.parse::<Timestamp>().ok());
    since.unwrap_or_else(Timestamp::now).as_second()
}

#[cfg(test)]
mod tests {
    use eno_core::{Condition, Sessions};
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    fn condition(kind: ConditionType, holds: bool, since: &str) -> Condition {
        let reason = ConditionReason::Waiting;
        Condition { kind, holds, reason, message: String::new(), since: since.into() }
    }

    fn status(phase: Phase, since: &str) -> Status {
        let ready = condition(ConditionType::Ready, phase == Phase::Ready, since);
        Status { phase: Some(phase), conditions: vec![ready], ..Status::default() }
    }

    /// The lines of the metrics that are about objects.
    fn lines(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).expect("text");
        let names = [
            "eno_engine_objects{",
            "eno_engine_phase_oldest",
            "eno_engine_device_",
            "eno_engine_bgp_sessions",
        ];
        let mut lines: Vec<_> = text
            .lines()
            .filter(|line| names.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0"))
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn oldest_object_of_each_phase_is_known() {
        let (mut registry, mut phases) = (Registry::default(), Phases::default());
        let metrics = Metrics::new(&mut registry);
        let key = |name: &str| Key::cluster(Kind::L2Service, &name.into());
        let objects =
            |phase, count| format!("eno_engine_objects{{kind=\"L2Service\",phase=\"{phase}\"}} {count}");
        let oldest = |phase, since| {
            format!(
                "eno_engine_phase_oldest_timestamp_seconds{{kind=\"L2Service\",phase=\"{phase}\"}} {since}"
            )
        };
        phases.set(&key("a"), &status(Phase::Pending, "1970-01-01T00:01:40Z"), &metrics);
        phases.set(&key("b"), &status(Phase::Pending, "1970-01-01T00:00:50Z"), &metrics);
        assert_eq!(lines(&registry), [objects("pending", 2), oldest("pending", 50)]);
        phases.set(&key("b"), &status(Phase::Error, "1970-01-01T00:00:50Z"), &metrics);
        assert_eq!(
            lines(&registry),
            [objects("error", 1), objects("pending", 1), oldest("error", 50), oldest("pending", 100)]
        );
        phases.set(&key("b"), &status(Phase::Ready, "1970-01-01T00:02:00Z"), &metrics);
        phases.remove(&key("a"), &metrics);
        assert_eq!(lines(&registry), [objects("ready", 1)]);
    }

    #[test]
    fn objects_that_lose_packets_are_counted() {
        let (mut registry, mut phases) = (Registry::default(), Phases::default());
        let metrics = Metrics::new(&mut registry);
        let key = |name: &str| Key::cluster(Kind::L2Service, &name.into());
        let lost = |registry: &Registry| {
            let mut text = String::new();
            encode(&mut text, registry).expect("text");
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("eno_engine_packets_lost{kind=\"L2Service\"} "));
            line.map(str::to_owned)
        };
        let verified = |holds, reason| {
            let mut status = status(Phase::Ready, "1970-01-01T00:01:40Z");
            let verified = condition(ConditionType::Verified, holds, "1970-01-01T00:01:40Z");
            status.conditions.push(Condition { reason, ..verified });
            status
        };
        phases.set(&Key::cluster(Kind::Subnet, &"s".into()), &status(Phase::Ready, ""), &metrics);
        assert_eq!(lost(&registry), None, "there is no such object");
        for (name, holds, reason, expected) in [
            ("a", true, ConditionReason::Answered, "0"),
            ("a", false, ConditionReason::NotProbed, "0"),
            ("a", false, ConditionReason::Lost, "1"),
            ("a", false, ConditionReason::DuplicateAddress, "1"),
            ("b", false, ConditionReason::Lost, "2"),
            ("a", false, ConditionReason::NotProbed, "1"),
        ] {
            phases.set(&key(name), &verified(holds, reason), &metrics);
            assert_eq!(lost(&registry).as_deref(), Some(expected), "{name} {reason}");
        }
        phases.remove(&key("b"), &metrics);
        assert_eq!(lost(&registry).as_deref(), Some("0"));
    }

    #[test]
    fn subnets_short_of_addresses_are_counted() {
        let (mut registry, mut phases) = (Registry::default(), Phases::default());
        let metrics = Metrics::new(&mut registry);
        let counts = |registry: &Registry| {
            let mut text = String::new();
            encode(&mut text, registry).expect("text");
            ["FewLeft", "NoneLeft"].map(|reason| {
                let name = format!("eno_engine_subnets_low{{reason=\"{reason}\"}} ");
                text.lines().find_map(|line| line.strip_prefix(&name)).map(str::to_owned)
            })
        };
        assert_eq!(counts(&registry), [None, None], "there is no Subnet");
        for (name, reason, expected) in [
            ("a", None, ["0", "0"]),
            ("a", Some(ConditionReason::FewLeft), ["1", "0"]),
            ("b", Some(ConditionReason::FewLeft), ["2", "0"]),
            ("a", Some(ConditionReason::NoneLeft), ["1", "1"]),
            ("b", None, ["0", "1"]),
        ] {
            let mut status = status(Phase::Ready, "1970-01-01T00:01:40Z");
            let low = condition(ConditionType::AddressesLow, true, "1970-01-01T00:01:40Z");
            status.conditions.extend(reason.map(|reason| Condition { reason, ..low }));
            phases.set(&Key::cluster(Kind::Subnet, &name.into()), &status, &metrics);
            assert_eq!(counts(&registry), expected.map(|count| Some(count.to_owned())), "{name} {reason:?}");
        }
        phases.remove(&Key::cluster(Kind::Subnet, &"a".into()), &metrics);
        assert_eq!(counts(&registry), ["0", "0"].map(|count| Some(count.to_owned())));
    }

    #[test]
    fn sessions_of_a_group_are_counted() {
        let (mut registry, mut phases) = (Registry::default(), Phases::default());
        let metrics = Metrics::new(&mut registry);
        let key = Key::cluster(Kind::BGPSessionGroup, &"edge".into());
        let mut group = status(Phase::Ready, "1970-01-01T00:01:40Z");
        group.sessions = Some(Sessions { all: 2, established: 1, ..Sessions::default() });
        phases.set(&key, &group, &metrics);
        let expected = [
            "eno_engine_bgp_sessions_established{group=\"edge\"} 1",
            "eno_engine_bgp_sessions{group=\"edge\"} 2",
            "eno_engine_objects{kind=\"BGPSessionGroup\",phase=\"ready\"} 1",
        ];
        assert_eq!(lines(&registry), expected);
        phases.remove(&key, &metrics);
        assert_eq!(lines(&registry), [""; 0]);
    }

    #[test]
    fn devices_are_up_while_they_answer() {
        let (mut registry, mut phases) = (Registry::default(), Phases::default());
        let metrics = Metrics::new(&mut registry);
        let key = Key::cluster(Kind::FabricDevice, &"leaf1".into());
        let mut device = status(Phase::Ready, "1970-01-01T00:01:40Z");
        phases.set(&key, &device, &metrics);
        let ready = "eno_engine_objects{kind=\"FabricDevice\",phase=\"ready\"} 1";
        assert_eq!(lines(&registry), [ready], "it never answered");
        for kind in [ConditionType::Reachable, ConditionType::Drift] {
            device.conditions.push(condition(kind, true, "1970-01-01T00:01:40Z"));
        }
        phases.set(&key, &device, &metrics);
        let (up, drift) =
            ("eno_engine_device_up{device=\"leaf1\"} 1", "eno_engine_device_drift{device=\"leaf1\"} 1");
        assert_eq!(lines(&registry), [drift, up, ready]);
        phases.remove(&key, &metrics);
        assert_eq!(lines(&registry), [""; 0]);
    }
}
