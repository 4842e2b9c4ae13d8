//! `eno check`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::check::{Gather, Installed, Pre, Report, print};
use crate::inspect::output::Format;
use crate::inspect::{ClusterArgs, NatsClientArgs};
use crate::install::installer::first_objects;

use super::install::values;

/// Check that the operator works: the cluster, its pods, NATS, drivers, switches and objects.
///
/// With --pre, check before an installation that the cluster can take it. Each check that fails has a remedy and a
/// section in the book. What you may not read is skipped, and so is what only NATS knows if no NATS is given.
///
/// The exit code is 1 when a check failed. Warnings and skipped checks leave it at 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno check --pre
  eno check --pre --values values.yaml
  eno check -o json --timeout 1m")]
pub(super) struct CheckArgs {
    /// Check before an installation.
    #[arg(long)]
    pre: bool,
    /// The values with which eno install will be run; absent: the defaults.
    #[arg(long, value_name = "FILE", requires = "pre")]
    values: Option<PathBuf>,
    /// The time for all checks together, such as 30s or 2m.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::duration)]
    timeout: Duration,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    messages: NatsClientArgs,
}

pub(super) async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let values = values(args.values.as_deref())?;
    let objects = first_objects(&values)?;
    let gather = Gather::new(args.cluster.client().await?, args.timeout);
    let (api_server, version) = gather.version(&args.cluster.server().await?).await;
    let mut checks = vec![api_server];
    // A server that does not answer has no other facts.
    if version.is_ok() {
        checks.extend(if args.pre {
            let storage_class = values.nats.storage_class.as_ref().map(ToString::to_string);
            Pre::gather(&gather, version, &objects).await.checks(storage_class.as_deref())
        } else {
            Box::pin(Installed::gather(&gather, version, &objects, &args.messages)).await.checks()
        });
    }
    let report = Report::new(checks);
    args.output.print(&report, print)?;
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
