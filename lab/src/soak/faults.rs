//! Plans faults: kind, time and duration. Pure.

use std::str::FromStr;
use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::rng::SeededRng;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Fault {
    /// An engine is killed and restarted.
    EngineKilled,
    /// An engine is paused and resumed.
    EnginePaused,
    /// An instance of a driver is killed and restarted.
    DriverKilled,
    /// An instance of a driver is paused and resumed.
    DriverPaused,
    /// NATS is killed and restarted with its stored data.
    NatsKilled,
    /// A switch is unreachable, or stops answering within a session.
    SwitchSilent,
    /// A switch refuses every change, on edit or on commit.
    SwitchRefuses,
    /// A switch reboots with its saved or its factory configuration.
    SwitchReboots,
    /// A VLAN of the operator is removed manually from a switch, or all VLANs from a port.
    SwitchEdited,
}

impl Fault {
    pub(super) fn name(self) -> &'static str {
        self.into()
    }

    /// Relative frequency. Faults that end processes are rare, so that processes live long enough to show growth.
    const fn weight(self) -> usize {
        match self {
            Self::NatsKilled => 1,
            Self::EngineKilled | Self::DriverPaused => 2,
            Self::EnginePaused | Self::DriverKilled | Self::SwitchReboots => 3,
            Self::SwitchSilent | Self::SwitchRefuses | Self::SwitchEdited => 5,
        }
    }

    /// Minimum and maximum duration in milliseconds.
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

/// The selected faults: `all`, `none`, or a comma-separated list of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub(super) Vec<Fault>);

/// The name of no fault.
#[derive(Debug, thiserror::Error)]
#[error("there is no fault {0:?}; there are all, none, and {known}", known = names(Fault::VARIANTS, ", "))]
pub struct UnknownFault(String);

impl FromStr for Faults {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        match text {
            "all" => return Ok(Self(Fault::VARIANTS.to_vec())),
            "none" => return Ok(Self(Vec::new())),
            _ => {}
        }
        let fault = |name: &str| name.parse().map_err(|_| UnknownFault(name.to_owned()));
        Ok(Self(text.split(',').map(str::trim).map(fault).collect::<Result<_, _>>()?))
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_slice() {
            all if all == Fault::VARIANTS => f.write_str("all"),
            [] => f.write_str("none"),
            some => f.write_str(&names(some, ",")),
        }
    }
}

fn names(faults: &[Fault], separator: &str) -> String {
    faults.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(separator)
}

/// The numbers of possible targets.
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

/// A fault at a point in time.
#[derive(Debug, Clone)]
pub(super) struct PlannedFault {
    /// Time since the start of the round.
    pub(super) at: Duration,
    pub(super) fault: Fault,
    pub(super) target: usize,
    pub(super) lasts: Duration,
    /// Random numbers for decisions at the time of injection.
    pub(super) rng: SeededRng,
}

/// Plans the faults of a round of this length; `first`: each kind occurs at least once.
pub(super) fn plan(
    faults: &Faults,
    targets: &Targets,
    length: Duration,
    first: bool,
    rng: &mut SeededRng,
) -> Vec<PlannedFault> {
    let mut remaining: Vec<Fault> = if first { faults.0.clone() } else { Vec::new() };
    rng.shuffle(&mut remaining);
    let weighted: Vec<Fault> =
        faults.0.iter().flat_map(|fault| std::iter::repeat_n(*fault, fault.weight())).collect();
    // In the first round, the gaps leave room for all kinds.
    let longest_gap =
        u64::try_from(length.as_millis()).unwrap_or(u64::MAX) / (faults.0.len().max(1) as u64 + 1);
    let longest_gap = if first { longest_gap.clamp(1, 6000) } else { 6000 };
    let mut planned = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += rng.millis(longest_gap / 4..=longest_gap);
        let Some(fault) = remaining.pop().or_else(|| rng.pick(&weighted).copied()) else { return planned };
        if at >= length {
            return planned;
        }
        let (min_millis, max_millis) = fault.lasts();
        planned.push(PlannedFault {
            at,
            fault,
            target: rng.below(targets.of(fault)),
            lasts: rng.millis(min_millis..=max_millis),
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
    fn fault_schedule_round_trips_through_text() {
        for text in ["all", "none", "nats-killed", "engine-killed,switch-edited"] {
            assert_eq!(text.parse::<Faults>().expect(text).to_string(), text);
        }
        let refused = "engine-killed,flood".parse::<Faults>().expect_err("no such one").to_string();
        assert!(refused.contains("\"flood\"") && refused.contains("switch-silent"), "{refused}");
    }

    #[test]
    fn first_round_covers_each_fault_kind() {
        for seed in 0..50 {
            let all = Faults(Fault::VARIANTS.to_vec());
            let planned = plan(&all, &TARGETS, Duration::from_secs(12), true, &mut SeededRng::new(seed));
            let kinds: BTreeSet<Fault> = planned.iter().map(|planned| planned.fault).collect();
            assert_eq!(kinds.len(), Fault::VARIANTS.len(), "seed {seed}: {planned:?}");
            assert!(planned.iter().all(|planned| planned.at < Duration::from_secs(12)));
        }
    }

    #[test]
    fn fault_schedule_none_is_empty() {
        let none = plan(&Faults(Vec::new()), &TARGETS, Duration::from_mins(1), true, &mut SeededRng::new(1));
        assert!(none.is_empty());
    }
}
