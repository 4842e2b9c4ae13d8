//! Selects the injection points of a test and collects the results.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use super::injection::{Injection, InjectionSite};
use super::run::{FaultInjectionTest, Reference};
use super::write_counter::Fault;

/// The environment variable that selects all points if it is 1, or else this number of runs.
const ALL: &str = "ENO_CRASH_ALL";
/// The environment variable that selects the points whose description contains its value.
const ONLY: &str = "ENO_CRASH_ONLY";

/// Maximum number of writes at which a mutant is tried.
const TRIES: usize = 16;

/// The selection of injection points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// Every fault at every write of the site.
    All,
    /// The points whose description contains this text.
    Only(String),
    /// This number of runs, spread over all points.
    Slice(usize),
}

impl Extent {
    /// The selection of the environment; by default a slice of `runs`.
    pub fn from_env(runs: usize) -> Self {
        let given = std::env::var(ALL).ok().and_then(|value| value.parse().ok());
        match std::env::var(ONLY) {
            Ok(only) => Self::Only(only),
            Err(_) if given == Some(1) => Self::All,
            Err(_) => Self::Slice(given.unwrap_or(runs)),
        }
    }
}

/// The results of a sweep.
#[derive(Debug)]
pub struct Report {
    site: InjectionSite,
    /// Runs made, and runs possible.
    runs: (usize, usize),
    /// Injected points: a run has one in each stage with enough writes.
    points: usize,
    took: Duration,
    /// The differences found.
    pub failures: Vec<String>,
}

impl FaultInjectionTest<'_> {
    /// Injects the selected faults of a site.
    pub async fn inject_at_each_point(
        &self,
        reference: &Reference,
        site: InjectionSite,
        extent: Extent,
    ) -> Report {
        let all = reference.injections(site);
        let tried = match extent {
            Extent::All => all.clone(),
            Extent::Only(text) => {
                all.iter().filter(|injection| injection.to_string().contains(&text)).copied().collect()
            }
            // The offset varies the kind of fault.
            Extent::Slice(runs) => (0..runs).map(|n| all[(n * all.len() / runs + n) % all.len()]).collect(),
        };
        let began = Instant::now();
        let mut report =
            Report { site, runs: (0, all.len()), points: 0, took: Duration::ZERO, failures: Vec::new() };
        for injection in tried {
            report.runs.0 += 1;
            match self.run_with_fault(reference, injection).await {
                Ok(injected) => report.points += injected.len(),
                Err(deviation) => {
                    log(&deviation.what);
                    report.failures.push(deviation.what);
                    if let Some(leftover) = deviation.leftover {
                        let why = format!("what stays of it keeps all others from being tried:{leftover}");
                        report.failures.push(why);
                        break;
                    }
                }
            }
        }
        report.took = began.elapsed();
        log(&format!("undisturbed: {}", reference.counts()));
        log(&report.to_string());
        report
    }

    /// Simulates each faulty engine at a few writes; returns the faults that no run detects.
    pub async fn undetected_mutants(&self, reference: &Reference) -> Vec<Fault> {
        let mut undetected_mutants = Vec::new();
        for mutant in Fault::MUTANTS {
            let mut noticed = false;
            for at in 1..=TRIES {
                let injection = if mutant == Fault::StatusBeforeOutbox {
                    Injection::Nats(mutant, at)
                } else {
                    Injection::Api(mutant, at)
                };
                if let Err(deviation) = self.run_with_fault(reference, injection).await {
                    log(&format!("noticed: {}", deviation.what));
                    assert!(deviation.leftover.is_none(), "what stays of it: {:?}", deviation.leftover);
                    noticed = true;
                    break;
                }
            }
            undetected_mutants.extend((!noticed).then_some(mutant));
        }
        undetected_mutants
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (made, all) = self.runs;
        let mut text = String::new();
        let (site, points, seconds) = (self.site, self.points, self.took.as_secs());
        write!(
            text,
            "{site:?}: {made} of {all} runs, {points} points injected, {seconds} s, {} wrong",
            self.failures.len()
        )?;
        if made < all {
            write!(text, "; {ALL}=1 makes all of them")?;
        }
        f.write_str(&text)
    }
}

/// Writes to standard error past the test harness's capture, so that skipped runs are visible.
fn log(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
