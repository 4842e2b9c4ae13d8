//! Evaluates the growth of processes' resident memory and open files, sampled at quiet times. Pure.
//!
//! A process without restarts is evaluated by the medians of the last and the first third of its samples, without the
//! warm-up. A restarted process begins small each time, so samples of different ages can't be compared. Only its steps
//! from one quiet time to the next within one life count, without the first step of a life, its warm-up. The growth is
//! the median step times the number of steps from the middle of the first third to the middle of the last. A change of
//! leadership starts another life, since a standby holds next to nothing.
//!
//! The memory of nats-server has a fixed bound instead. It buffers the end of each stream, up to 8 MiB, and Go's
//! garbage may reach the size of the live memory. So it grows until that much is written to each stream, whatever the
//! streams retain. Messages that are retained too long are found in the streams ([`super::streams`]); a leak in the
//! server shows here, later.

use std::collections::BTreeMap;

use super::inject::NATS;

/// Number of first samples that are ignored.
const WARM_UP: usize = 2;
/// Minimum number of samples or steps for an evaluation.
const MIN_SAMPLES: usize = 6;
/// Tolerated growth in percent of the typical memory.
const ALLOWED_PERCENT: f64 = 15.0;
/// Additional tolerated growth, in KiB.
const SLACK_KIB: f64 = 6.0 * 1024.0;
const SLACK_FILES: f64 = 8.0;
/// Maximum resident memory of nats-server in KiB. It consists of 8 MiB for the end of each of eight streams and for two
/// blocks being read or compacted, all doubled for Go's collector, and of 32 MiB for the server.
const NATS_KIB: u64 = (2 * (8 + 2) * 8 + 32) * 1024;

/// Resource usage of a process at a quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// With [`Self::leads`], identifies a life of the process.
    pub(super) pid: u32,
    /// It is the leading engine.
    pub(super) leads: bool,
    pub(super) resident_kib: u64,
    /// Open files, without connections to the API server. As many of these stay open as there were concurrent requests,
    /// until the server closes them 90 s after the last request.
    pub(super) files: usize,
}

/// The samples of all processes by name, one per quiet time.
#[derive(Debug, Clone, Default)]
pub(super) struct Growth(BTreeMap<String, Vec<Sample>>);

/// The evaluation of one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GrowthReport {
    /// The name of the process.
    pub(super) name: String,
    /// Number of its lives.
    pub(super) lives: usize,
    /// Resident memory in KiB: first, last and maximum.
    pub(super) resident: [u64; 3],
    /// Open files: first, last and maximum.
    pub(super) files: [u64; 3],
    /// The method of evaluation, or why there is none.
    pub(super) evaluated: &'static str,
    /// The growth found: KiB and files.
    pub(super) by: Option<(f64, f64)>,
    /// The violated limits.
    pub(super) violations: Vec<String>,
}

impl Sample {
    fn same_life(&self, other: &Self) -> bool {
        (self.pid, self.leads) == (other.pid, other.leads)
    }
}

impl Growth {
    pub(super) fn add(&mut self, name: &str, sample: Sample) {
        self.0.entry(name.to_owned()).or_default().push(sample);
    }

    pub(super) fn evaluate(&self) -> Vec<GrowthReport> {
        let bound = |name: &str| (name == NATS).then_some(NATS_KIB);
        self.0.iter().map(|(name, samples)| evaluate(name, samples, bound(name))).collect()
    }
}

/// Evaluates a process; `bound`: a fixed memory limit in KiB that replaces the one on growth.
fn evaluate(name: &str, samples: &[Sample], bound: Option<u64>) -> GrowthReport {
    let figures = |metric: &dyn Fn(&Sample) -> u64| {
        let (first, last) = (samples.first().map_or(0, metric), samples.last().map_or(0, metric));
        [first, last, samples.iter().map(metric).max().unwrap_or(0)]
    };
    let resident = |sample: &Sample| sample.resident_kib;
    let files = |sample: &Sample| sample.files as u64;
    let lives = samples.chunk_by(Sample::same_life).count();
    let counted = samples.get(WARM_UP..).unwrap_or_default();
    let grown = |metric: &dyn Fn(&Sample) -> u64| {
        if counted.len() < MIN_SAMPLES {
            None
        } else if lives == 1 {
            Some(("thirds", growth_between_thirds(counted, metric)))
        } else {
            growth_by_steps(samples, counted.len(), metric).map(|by| ("steps within a life", by))
        }
    };
    let (kib, count) = (grown(&resident), grown(&files));
    let mut all = GrowthReport {
        name: name.to_owned(),
        lives,
        resident: figures(&resident),
        files: figures(&files),
        evaluated: kib.map_or("too few samples", |(how, _)| how),
        by: kib.zip(count).map(|((_, kib), (_, count))| (kib, count)),
        violations: Vec::new(),
    };
    let most = all.resident[2];
    if let Some(bound) = bound {
        all.evaluated = "a bound";
        if most > bound {
            all.violations.push(format!(
                "{name} has {} MiB, of which {} are allowed",
                most / 1024,
                bound / 1024
            ));
        }
    }
    if let Some((kib, count)) = all.by {
        let typical =
            median(&mut counted.iter().map(|sample| float(sample.resident_kib)).collect::<Vec<_>>());
        let allowed = typical * ALLOWED_PERCENT / 100.0 + SLACK_KIB;
        if bound.is_none() && kib > allowed {
            all.violations.push(format!(
                "{name} grew by {:.1} MiB, of which {:.1} MiB are allowed",
                kib / 1024.0,
                allowed / 1024.0
            ));
        }
        if count > SLACK_FILES {
            all.violations.push(format!("{name} has {count:.0} files more open than at the beginning"));
        }
    }
    all
}

fn growth_between_thirds(counted: &[Sample], metric: &dyn Fn(&Sample) -> u64) -> f64 {
    let third = counted.len() / 3;
    let of_part =
        |part: &[Sample]| median(&mut part.iter().map(|sample| float(metric(sample))).collect::<Vec<_>>());
    of_part(&counted[counted.len() - third..]) - of_part(&counted[..third])
}

/// The growth by the median step; `None`: the lives were too short.
fn growth_by_steps(samples: &[Sample], counted: usize, metric: &dyn Fn(&Sample) -> u64) -> Option<f64> {
    let lives = samples.chunk_by(Sample::same_life);
    let mut steps: Vec<f64> = lives
        .flat_map(|life| life.windows(2).skip(1))
        .map(|pair| float(metric(&pair[1])) - float(metric(&pair[0])))
        .collect();
    if steps.len() < MIN_SAMPLES {
        return None;
    }
    let steps_apart = counted - counted / 3;
    Some(median(&mut steps) * float(steps_apart as u64))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[odd / 2],
        even => f64::midpoint(values[even / 2 - 1], values[even / 2]),
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of processes are far below 2^52")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process with `count` samples that is restarted after each `life` of them.
    fn process(count: usize, life: usize, resident_kib: impl Fn(usize, usize) -> u64) -> GrowthReport {
        let samples: Vec<Sample> = (0..count)
            .map(|at| Sample {
                pid: u32::try_from(at / life).expect("few"),
                leads: false,
                resident_kib: resident_kib(at, at % life),
                files: 20,
            })
            .collect();
        evaluate("engine", &samples, None)
    }

    #[test]
    fn level_samples_are_not_growth() {
        let level = process(24, 100, |at, _| 50_000 + (at as u64 % 5) * 700);
        assert_eq!((level.violations.len(), level.evaluated), (0, "thirds"));
        let restarted = process(24, 5, |_, age| 50_000 + [0, 20_000, 21_000, 20_500, 21_200][age]);
        assert_eq!((restarted.violations.len(), restarted.evaluated), (0, "steps within a life"));
    }

    #[test]
    fn growth_is_found_across_restarts() {
        let grown = process(24, 100, |at, _| 50_000 + at as u64 * 2000);
        assert_eq!(grown.violations.len(), 1, "{grown:?}");
        assert_eq!(grown.resident, [50_000, 96_000, 96_000]);
        let restarted = process(24, 6, |_, age| 50_000 + age as u64 * 2000);
        assert_eq!(restarted.violations.len(), 1, "{restarted:?}");
    }

    #[test]
    fn standby_that_becomes_leader_is_not_growth() {
        let mut samples: Vec<Sample> = (0..24)
            .map(|at| Sample { pid: 1, leads: at % 8 >= 4, resident_kib: 30_000, files: 20 })
            .collect();
        for sample in samples.iter_mut().filter(|sample| sample.leads) {
            (sample.resident_kib, sample.files) = (50_000, 95);
        }
        let level = evaluate("engine", &samples, None);
        assert_eq!(
            (level.violations.len(), level.evaluated, level.lives),
            (0, "steps within a life", 6),
            "{level:?}"
        );
    }

    #[test]
    fn growth_of_open_files_is_found() {
        let sample = |files| Sample { pid: 1, leads: false, resident_kib: 50_000, files };
        let samples: Vec<_> = (0..24).map(|at| sample(20 + at)).collect();
        let violations = ["driver-nad has 15 files more open than at the beginning"];
        assert_eq!(evaluate("driver-nad", &samples, None).violations, violations);
        assert_eq!(evaluate("driver-nad", &samples, Some(50_000)).violations, violations);
    }

    #[test]
    fn nats_server_may_grow_up_to_a_bound() {
        let with = |most_mib: u64| {
            let mut growth = Growth::default();
            for at in 1..=24 {
                growth.add(
                    NATS,
                    Sample { pid: 1, leads: false, resident_kib: most_mib * 1024 * at / 24, files: 20 },
                );
            }
            growth.evaluate().remove(0).violations
        };
        assert!(with(192).is_empty());
        assert_eq!(with(193), ["nats-server has 193 MiB, of which 192 are allowed"]);
    }

    #[test]
    fn few_samples_are_inconclusive() {
        assert_eq!(process(7, 100, |at, _| at as u64 * 100_000).evaluated, "too few samples");
        assert_eq!(process(24, 2, |at, _| at as u64 * 100_000).evaluated, "too few samples");
    }
}
