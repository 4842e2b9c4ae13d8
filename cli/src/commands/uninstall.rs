//! `eno uninstall`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, stdin};
use std::time::Duration;

use anyhow::bail;

use crate::inspect::ClusterArgs;
use crate::install::cluster;
use crate::install::context::ContextStore;
use crate::install::uninstall::removal::{Objects, Request, summary};
use crate::install::uninstall::{plan, uninstall};

/// Take the operator away: all objects with their networks first, then the operator, its kinds, its data and the keys on
/// this disk.
///
/// It shows what goes, and asks. The engine removes every VLAN from the switches and every interface from nodes and pods
/// before the operator goes. It removes nothing while no engine leads or a switch does not answer. Run again, it goes on
/// where an earlier try stopped.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
#[command(after_help = "Examples:
  eno uninstall --dry-run
  eno uninstall --yes
  eno uninstall --forget spine2
  eno uninstall --keep-objects
  eno uninstall --abandon")]
pub(super) struct UninstallArgs {
    /// Show what would go and what would stay, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Don't ask.
    #[arg(short, long)]
    yes: bool,
    /// Keep the objects, their kinds, the logins of the switches and all networks, for a later installation.
    #[arg(long, conflicts_with_all = ["abandon", "forget"])]
    keep_objects: bool,
    /// Delete the objects without their engine: the networks stay on switches, nodes and pods.
    #[arg(long, conflicts_with = "forget")]
    abandon: bool,
    /// A FabricDevice that is given up: its VLANs stay on it. May be repeated.
    #[arg(long, value_name = "DEVICE")]
    forget: Vec<String>,
    /// How long all steps together may take, such as 90s or 10m.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = super::duration)]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: UninstallArgs) -> anyhow::Result<()> {
    let objects = match (args.keep_objects, args.abandon) {
        (true, _) => Objects::Keep,
        (_, true) => Objects::Abandon,
        _ => Objects::Remove,
    };
    let request = Request { objects, forget: BTreeSet::from_iter(args.forget) };
    let client = args.cluster.client().await?;
    let removal = plan(&client, &request).await?;
    if removal.inventory.is_empty() {
        bail!("nothing of ENO is in the cluster");
    }
    for line in summary(&removal.inventory, &request) {
        crate::outln!("{line}");
    }
    if args.dry_run {
        return Ok(());
    }
    if !args.yes && !confirmed()? {
        bail!("nothing was removed");
    }
    let context = match ContextStore::of_user() {
        Some(store) => Some(store.cluster(&cluster::uid(&client).await?)),
        None => None,
    };
    let progress = |line: &str| eprintln!("{line}");
    Box::pin(uninstall(&client, &request, &removal, context.as_ref(), args.timeout, &progress)).await?;
    crate::outln!("ENO is gone from the cluster");
    Ok(())
}

/// Asks on the terminal.
fn confirmed() -> anyhow::Result<bool> {
    if !stdin().is_terminal() {
        bail!("nothing was removed: give --yes, since there is no terminal to ask");
    }
    eprint!("Go on? [y/N] ");
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
