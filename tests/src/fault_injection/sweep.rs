//! Which of all points are tried, and what comes of it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use super::injection::{Injection, InjectionSite};
use super::run::{FaultInjectionTest, Reference};
use super::write_counter::Fault;

/// The environment variable that asks for all points.
const ALL: &str = "ENO_CRASH_ALL";
/// The environment variable that asks for those whose description contains its value.
const ONLY: &str = "ENO_CRASH_ONLY";

/// So many writes are tried for one at which a mutant is noticed.
const TRIES: usize = 16;

/// How many of the points are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// Every fault at every write.
    All,
    /// Those whose description contains this.
    Only(String),
    /// So many runs, spread over all.
    Slice(usize),
}

impl Extent {
    /// Those that the environment asks for, else so many.
    pub fn from_env(runs: usize) -> Self {
        let all = std::env::var_os(ALL).is_some_and(|value| value == "1");
        match std::env::var(ONLY) {
            Ok(only) => Self::Only(only),
            Err(_) if all => Self::All,
            Err(_) => Self::Slice(runs),
        }
    }
}

/// What was tried.
#[derive(Debug)]
pub struct Report {
    place: InjectionSite,
    /// Runs that were made, and runs that there are.
    runs: (usize, usize),
    /// Points injected: a run has one in each stage that has so many writes.
    points: usize,
    took: Duration,
    /// What went wrong.
    pub wrong: Vec<String>,
}

impl FaultInjectionTest<'_> {
    /// Tries what can happen at a place.
    pub async fn inject_at_each_point(
        &self,
        reference: &Reference,
        place: InjectionSite,
        extent: Extent,
    ) -> Report {
        let all = reference.injections(place);
        let tried = match extent {
            Extent::All => all.clone(),
            Extent::Only(text) => {
                all.iter().filter(|injection| injection.to_string().contains(&text)).copied().collect()
            }
            // One further each time, so that it is not always the same fault.
            Extent::Slice(runs) => (0..runs).map(|n| all[(n * all.len() / runs + n) % all.len()]).collect(),
        };
        let began = Instant::now();
        let mut report =
            Report { place, runs: (0, all.len()), points: 0, took: Duration::ZERO, wrong: Vec::new() };
        for injection in tried {
            report.runs.0 += 1;
            match self.run_with_fault(reference, injection).await {
                Ok(injected) => report.points += injected.len(),
                Err(wrong) => {
                    say(&wrong.what);
                    report.wrong.push(wrong.what);
                    if let Some(left) = wrong.left {
                        let why = format!("what stays of it keeps all others from being tried:{left}");
                        report.wrong.push(why);
                        break;
                    }
                }
            }
        }
        report.took = began.elapsed();
        say(&format!("undisturbed: {}", reference.counts()));
        say(&report.to_string());
        report
    }

    /// Has a wrong engine at a few writes each; returns those that nobody notices.
    pub async fn undetected_mutants(&self, reference: &Reference) -> Vec<Fault> {
        let mut undetected_mutants = Vec::new();
        for mutant in Fault::MUTANTS {
            let mut noticed = false;
            for at in 1..=TRIES {
                let injection = if mutant == Fault::StatusFirst {
                    Injection::Nats(mutant, at)
                } else {
                    Injection::Api(mutant, at)
                };
                if let Err(wrong) = self.run_with_fault(reference, injection).await {
                    say(&format!("noticed: {}", wrong.what));
                    assert!(wrong.left.is_none(), "what stays of it: {:?}", wrong.left);
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
        let (place, points, seconds) = (self.place, self.points, self.took.as_secs());
        write!(
            text,
            "{place:?}: {made} of {all} runs, {points} points injected, {seconds} s, {} wrong",
            self.wrong.len()
        )?;
        if made < all {
            write!(text, "; {ALL}=1 makes all of them")?;
        }
        f.write_str(&text)
    }
}

/// Past the capture of tests' output: what was not run is never silent.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
