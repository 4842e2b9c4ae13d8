//! What goes wrong, when, and for how long. Pure.

use std::str::FromStr;
use std::time::Duration;

use super::rng::SeededRng;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// An engine is killed, and started again.
    EngineKilled,
    /// An engine is stopped where it stands, and goes on.
    EnginePaused,
    /// An instance of a driver is killed, and started again.
    DriverKilled,
    /// An instance of a driver is stopped where it stands, and goes on.
    DriverPaused,
    /// NATS is killed, and started again with what it has stored.
    NatsKilled,
    /// A switch can't be reached, or says nothing more in the middle of a session.
    SwitchSilent,
    /// A switch refuses every change, when it is edited or when it is committed.
    SwitchRefuses,
    /// A switch is away, and comes up with what it has saved, or as it left the factory.
    SwitchReboots,
    /// Somebody takes a VLAN of ours from a switch, or all from a port.
    SwitchEdited,
}

impl Fault {
    pub(super) const ALL: [Self; 9] = [
        Self::EngineKilled,
        Self::EnginePaused,
        Self::DriverKilled,
        Self::DriverPaused,
        Self::NatsKilled,
        Self::SwitchSilent,
        Self::SwitchRefuses,
        Self::SwitchReboots,
        Self::SwitchEdited,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::EngineKilled => "engine-killed",
            Self::EnginePaused => "engine-paused",
            Self::DriverKilled => "driver-killed",
            Self::DriverPaused => "driver-paused",
            Self::NatsKilled => "nats-killed",
            Self::SwitchSilent => "switch-silent",
            Self::SwitchRefuses => "switch-refuses",
            Self::SwitchReboots => "switch-reboots",
            Self::SwitchEdited => "switch-edited",
        }
    }

    /// How often it comes beside the others: processes live for some rounds, so that they can be seen to grow.
    const fn weight(self) -> usize {
        match self {
            Self::NatsKilled => 1,
            Self::EngineKilled | Self::DriverPaused => 2,
            Self::EnginePaused | Self::DriverKilled | Self::SwitchReboots => 3,
            Self::SwitchSilent | Self::SwitchRefuses | Self::SwitchEdited => 5,
        }
    }

    /// For how many milliseconds, at least and at most.
    const fn lasts(self) -> (u64, u64) {
        match self {
            Self::EngineKilled | Self::DriverKilled | Self::NatsKilled => (0, 5000),
            Self::EnginePaused | Self::DriverPaused => (1000, 14_000),
            Self::SwitchSilent => (1000, 12_000),
            Self::SwitchRefuses => (1000, 8000),
            Self::SwitchReboots => (0, 4000),
            Self::SwitchEdited => (0, 0),
        }
    }
}

/// Which faults there are: `all`, `none`, or their names with commas between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub(super) Vec<Fault>);

/// A word that names no fault.
#[derive(Debug, thiserror::Error)]
#[error("there is no fault {0:?}; there are all, none, and {known}", known = Fault::ALL.map(Fault::name).join(", "))]
pub struct NoSuchFault(String);

impl FromStr for Faults {
    type Err = NoSuchFault;

    fn from_str(text: &str) -> Result<Self, NoSuchFault> {
        match text {
            "all" => return Ok(Self(Fault::ALL.to_vec())),
            "none" => return Ok(Self(Vec::new())),
            _ => {}
        }
        let find = |name: &str| Fault::ALL.into_iter().find(|fault| fault.name() == name);
        let named = text.split(',').map(str::trim);
        Ok(Self(
            named
                .map(|name| find(name).ok_or_else(|| NoSuchFault(name.to_owned())))
                .collect::<Result<_, _>>()?,
        ))
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            all if all == Fault::ALL => f.write_str("all"),
            [] => f.write_str("none"),
            some => f.write_str(&some.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(",")),
        }
    }
}

/// How many there are of what can be struck.
#[derive(Debug, Clone, Copy)]
pub(super) struct Targets {
    pub(super) engines: usize,
    pub(super) drivers: usize,
    pub(super) switches: usize,
}

impl Targets {
    fn of(&self, fault: Fault) -> usize {
        match fault {
            Fault::EngineKilled | Fault::EnginePaused => self.engines,
            Fault::DriverKilled | Fault::DriverPaused => self.drivers,
            Fault::NatsKilled => 1,
            Fault::SwitchSilent | Fault::SwitchRefuses | Fault::SwitchReboots | Fault::SwitchEdited => {
                self.switches
            }
        }
    }
}

/// A fault at a time.
#[derive(Debug, Clone)]
pub(super) struct PlannedFault {
    /// Since the round began.
    pub(super) at: Duration,
    pub(super) fault: Fault,
    pub(super) target: usize,
    pub(super) lasts: Duration,
    /// For what is decided when it is seen how things are.
    pub(super) rng: SeededRng,
}

/// The faults of a round of this length; `first`: each kind comes at least once.
pub(super) fn plan(
    faults: &Faults,
    targets: &Targets,
    within: Duration,
    first: bool,
    rng: &mut SeededRng,
) -> Vec<PlannedFault> {
    let mut due: Vec<Fault> = if first { faults.0.clone() } else { Vec::new() };
    rng.shuffle(&mut due);
    let weighted: Vec<Fault> =
        faults.0.iter().flat_map(|fault| std::iter::repeat_n(*fault, fault.weight())).collect();
    // Room for all.
    let most = u64::try_from(within.as_millis()).unwrap_or(u64::MAX) / (faults.0.len().max(1) as u64 + 1);
    let most = if first { most.clamp(1, 6000) } else { 6000 };
    let mut planned = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += rng.millis(most / 4..=most);
        let Some(fault) = due.pop().or_else(|| rng.pick(&weighted).copied()) else { return planned };
        if at >= within {
            return planned;
        }
        let (least, most) = fault.lasts();
        planned.push(PlannedFault {
            at,
            fault,
            target: rng.below(targets.of(fault)),
            lasts: rng.millis(least..=most),
            rng: rng.fork(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TARGETS: Targets = Targets { engines: 2, drivers: 4, switches: 6 };

    #[test]
    fn faults_are_read_as_they_are_written() {
        for text in ["all", "none", "nats-killed", "engine-killed,switch-edited"] {
            assert_eq!(text.parse::<Faults>().expect(text).to_string(), text);
        }
        let refused = "engine-killed,flood".parse::<Faults>().expect_err("no such one").to_string();
        assert!(refused.contains("\"flood\"") && refused.contains("switch-silent"), "{refused}");
    }

    #[test]
    fn the_first_round_has_each_kind() {
        for seed in 0..50 {
            let all = Faults(Fault::ALL.to_vec());
            let planned = plan(&all, &TARGETS, Duration::from_secs(12), true, &mut SeededRng::new(seed));
            let kinds: BTreeSet<Fault> = planned.iter().map(|planned| planned.fault).collect();
            assert_eq!(kinds.len(), Fault::ALL.len(), "seed {seed}: {planned:?}");
            assert!(planned.iter().all(|planned| planned.at < Duration::from_secs(12)));
        }
    }

    #[test]
    fn none_is_none() {
        let none = plan(&Faults(Vec::new()), &TARGETS, Duration::from_mins(1), true, &mut SeededRng::new(1));
        assert!(none.is_empty());
    }
}
