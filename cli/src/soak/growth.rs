//! Whether processes grow: resident memory and open files, taken when all is quiet. Pure.
//!
//! A process that ran all the time is evaluated by the median of the last third of its samples beside that of the first
//! third, the warm-up left out. One that was started anew in between begins small each time, so samples of different
//! ages can't be compared: of it, only what it gained from one quiet time to the next within one life counts, and not
//! from the first of a life to its second, when it warms up. The median of these steps, times the steps from the middle
//! of the first third to the middle of the last one, stands for the same growth. An engine that begins or ceases to lead
//! begins another life: a standby holds next to nothing.
//!
//! The memory of nats-server is held to a bound instead. It keeps the end of each stream in a buffer that grows with what
//! is written to it, up to 8 MiB, and Go lets garbage pile up to the size of what is in use. So it grows for as long as
//! it takes to write that much to each stream, and no more, whatever the streams keep. What is kept too long is looked for
//! in the streams themselves ([`super::streams`]); a leak in the server shows here, later.

use std::collections::BTreeMap;

use super::inject::NATS;

/// Quiet times at the beginning that don't count.
const WARM_UP: usize = 2;
/// Fewer samples, or steps, say nothing.
const FEWEST: usize = 6;
/// Growth that is none, in percent.
const SHARE: f64 = 15.0;
/// And besides, in KiB.
const SLACK_KIB: f64 = 6.0 * 1024.0;
const SLACK_FILES: f64 = 8.0;
/// The most that nats-server may have, in KiB: 8 MiB for the end of each of eight streams and for two blocks that are read
/// or tidied up, all twice for Go's collector, and 32 MiB for itself.
const NATS_KIB: u64 = (2 * (8 + 2) * 8 + 32) * 1024;

/// What a process used at a quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// With [`Self::leads`], tells its lives apart.
    pub(super) pid: u32,
    /// It is the engine that leads.
    pub(super) leads: bool,
    pub(super) resident_kib: u64,
    /// But for connections to the API server: as many as requests were under way at a time are kept until the server
    /// closes them, a minute and a half after the last one.
    pub(super) files: usize,
}

/// The samples of all processes by name, one of each quiet time.
#[derive(Debug, Clone, Default)]
pub(super) struct Growth(BTreeMap<String, Vec<Sample>>);

/// What was seen of one process.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GrowthReport {
    pub(super) name: String,
    pub(super) lives: usize,
    /// In KiB: first, last, most.
    pub(super) resident: [u64; 3],
    /// The same of open files.
    pub(super) files: [u64; 3],
    /// How it was evaluated, or why not.
    pub(super) evaluated: &'static str,
    /// What it was found to have grown by: KiB and files.
    pub(super) by: Option<(f64, f64)>,
    /// What is wrong.
    pub(super) wrong: Vec<String>,
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

/// `bound`: the most memory that it may have, whether it grows or not.
fn evaluate(name: &str, samples: &[Sample], bound: Option<u64>) -> GrowthReport {
    let figures = |of: &dyn Fn(&Sample) -> u64| {
        let (first, last) = (samples.first().map_or(0, of), samples.last().map_or(0, of));
        [first, last, samples.iter().map(of).max().unwrap_or(0)]
    };
    let resident = |sample: &Sample| sample.resident_kib;
    let files = |sample: &Sample| sample.files as u64;
    let lives = samples.chunk_by(Sample::same_life).count();
    let counted = samples.get(WARM_UP..).unwrap_or_default();
    let grown = |of: &dyn Fn(&Sample) -> u64| {
        if counted.len() < FEWEST {
            None
        } else if lives == 1 {
            Some(("thirds", between_thirds(counted, of)))
        } else {
            by_steps(samples, counted.len(), of).map(|by| ("steps within a life", by))
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
        wrong: Vec::new(),
    };
    let most = all.resident[2];
    if let Some(bound) = bound {
        all.evaluated = "a bound";
        if most > bound {
            all.wrong.push(format!("{name} has {} MiB, of which {} are allowed", most / 1024, bound / 1024));
        }
    }
    if let Some((kib, count)) = all.by {
        let usual = median(&mut counted.iter().map(|sample| float(sample.resident_kib)).collect::<Vec<_>>());
        let allowed = usual * SHARE / 100.0 + SLACK_KIB;
        if bound.is_none() && kib > allowed {
            all.wrong.push(format!(
                "{name} grew by {:.1} MiB, of which {:.1} MiB are allowed",
                kib / 1024.0,
                allowed / 1024.0
            ));
        }
        if count > SLACK_FILES {
            all.wrong.push(format!("{name} has {count:.0} files more open than at the beginning"));
        }
    }
    all
}

fn between_thirds(counted: &[Sample], of: &dyn Fn(&Sample) -> u64) -> f64 {
    let third = counted.len() / 3;
    let of_part =
        |part: &[Sample]| median(&mut part.iter().map(|sample| float(of(sample))).collect::<Vec<_>>());
    of_part(&counted[counted.len() - third..]) - of_part(&counted[..third])
}

/// `None`: its lives were too short.
fn by_steps(samples: &[Sample], counted: usize, of: &dyn Fn(&Sample) -> u64) -> Option<f64> {
    let lives = samples.chunk_by(Sample::same_life);
    let mut steps: Vec<f64> = lives
        .flat_map(|life| life.windows(2).skip(1))
        .map(|pair| float(of(&pair[1])) - float(of(&pair[0])))
        .collect();
    if steps.len() < FEWEST {
        return None;
    }
    let apart = counted - counted / 3;
    Some(median(&mut steps) * float(apart as u64))
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

    /// A process with so many samples, that is started anew after each `life` of them.
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
    fn one_that_is_level_has_not_grown() {
        let level = process(24, 100, |at, _| 50_000 + (at as u64 % 5) * 700);
        assert_eq!((level.wrong.len(), level.evaluated), (0, "thirds"));
        let restarted = process(24, 5, |_, age| 50_000 + [0, 20_000, 21_000, 20_500, 21_200][age]);
        assert_eq!((restarted.wrong.len(), restarted.evaluated), (0, "steps within a life"));
    }

    #[test]
    fn one_that_grows_is_found_whether_it_was_restarted_or_not() {
        let grown = process(24, 100, |at, _| 50_000 + at as u64 * 2000);
        assert_eq!(grown.wrong.len(), 1, "{grown:?}");
        assert_eq!(grown.resident, [50_000, 96_000, 96_000]);
        let restarted = process(24, 6, |_, age| 50_000 + age as u64 * 2000);
        assert_eq!(restarted.wrong.len(), 1, "{restarted:?}");
    }

    #[test]
    fn a_standby_that_begins_to_lead_has_not_grown() {
        let mut samples: Vec<Sample> = (0..24)
            .map(|at| Sample { pid: 1, leads: at % 8 >= 4, resident_kib: 30_000, files: 20 })
            .collect();
        for sample in samples.iter_mut().filter(|sample| sample.leads) {
            (sample.resident_kib, sample.files) = (50_000, 95);
        }
        let level = evaluate("engine", &samples, None);
        assert_eq!(
            (level.wrong.len(), level.evaluated, level.lives),
            (0, "steps within a life", 6),
            "{level:?}"
        );
    }

    #[test]
    fn open_files_are_counted_too() {
        let sample = |files| Sample { pid: 1, leads: false, resident_kib: 50_000, files };
        let samples: Vec<_> = (0..24).map(|at| sample(20 + at)).collect();
        let wrong = ["driver-nad has 15 files more open than at the beginning"];
        assert_eq!(evaluate("driver-nad", &samples, None).wrong, wrong);
        assert_eq!(evaluate("driver-nad", &samples, Some(50_000)).wrong, wrong);
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
            growth.evaluate().remove(0).wrong
        };
        assert!(with(192).is_empty());
        assert_eq!(with(193), ["nats-server has 193 MiB, of which 192 are allowed"]);
    }

    #[test]
    fn few_samples_say_nothing() {
        assert_eq!(process(7, 100, |at, _| at as u64 * 100_000).evaluated, "too few samples");
        assert_eq!(process(24, 2, |at, _| at as u64 * 100_000).evaluated, "too few samples");
    }
}
