//! `eno conformance`: the conformance suite against a driver in any language.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use eno::commands::run;
use eno_conformance::program::{CheckOutcome, CheckResult, Suite};
use eno_sbi::daemon::{LogFormat, TelemetryArgs};
use tokio_util::sync::CancellationToken;

/// Checks a driver that is a program, in any language: what it says on NATS, and what it does to a device. A fixture starts
/// it, and shows and changes the device without it. docs/src/how-to/write-a-driver.md has its protocol.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno conformance --driver json-file --fixture examples/drivers/json-file/fixture.py")]
pub(super) struct ConformanceArgs {
    /// The name of the driver, as it announces itself.
    #[arg(long, value_name = "NAME")]
    driver: String,
    /// The program that starts the driver and shows and changes its device.
    #[arg(long, value_name = "PROGRAM")]
    fixture: PathBuf,
    /// Run only the checks whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    only: String,
    /// How many checks run at once, each with a fixture of its own. More than 1 needs a device for each.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    jobs: usize,
}

/// Runs the checks and prints each result. The exit code is 1 if one failed.
pub(super) fn run_suite(args: ConformanceArgs) -> anyhow::Result<ExitCode> {
    // The servers come and go, which is no news.
    let log = std::env::var("ENO_LOG").unwrap_or_else(|_| "error".to_owned());
    TelemetryArgs { log, log_format: LogFormat::Text }.init()?;
    run(|stop| check(args, stop))
}

async fn check(args: ConformanceArgs, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let ConformanceArgs { driver, fixture, only, jobs } = args;
    let suite = Suite { driver, fixture, only, jobs };
    // A check panics with its finding, which is printed as its result.
    std::panic::set_hook(Box::new(|_| {}));
    let results = suite.run(&stop, print).await;
    // From here on, a panic is a bug again.
    drop(std::panic::take_hook());
    if stop.is_cancelled() {
        bail!("stopped");
    }
    if results.is_empty() {
        bail!("no check has {:?} in its name", suite.only);
    }
    let failed = results.iter().filter(|result| matches!(result.outcome, CheckOutcome::Failed(_))).count();
    eno::outln!("{} checks, {failed} failed", results.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(CheckResult { name, outcome }: &CheckResult) {
    match outcome {
        CheckOutcome::Passed => eno::outln!("ok      {name}"),
        CheckOutcome::Skipped(why) => eno::outln!("skipped {name}: {why}"),
        CheckOutcome::Failed(finding) => {
            eno::outln!("FAILED  {name}: {}", finding.replace('\n', "\n        "));
        }
    }
}
