//! `eno rotate`.

use std::time::Duration;

use anyhow::Context as _;

use crate::inspect::ClusterArgs;
use crate::install::cluster;
use crate::install::context::ContextStore;
use crate::install::rotator::{Rotated, rotate};

/// Exchange the keys of NATS users, or the certificates, of an operator that eno install installed.
///
/// Networks stay, no callback is lost, and changes are carried out meanwhile: the new is accepted before it is used, and
/// the old is refused at the end. Run again, it goes on where an earlier try stopped. It writes what is for people to
/// ~/.eno/clusters.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno rotate nats-keys
  eno rotate certificates --timeout 30m")]
pub(super) struct RotateArgs {
    /// What to exchange.
    #[arg(value_enum)]
    what: Rotated,
    /// How long all steps together may take, such as 90s or 10m.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = super::duration)]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: RotateArgs) -> anyhow::Result<()> {
    let store = ContextStore::of_user().context(
        "set HOME or ENO_HOME: the keys of people are written below it, and there is no directory for them",
    )?;
    let client = args.cluster.client().await?;
    let context = store.cluster(&cluster::uid(&client).await?);
    let progress = |line: &str| eprintln!("{line}");
    let notes = rotate(&client, args.what, &context, args.timeout, &progress).await?;
    for note in notes {
        crate::outln!("{note}");
    }
    Ok(())
}
