//! `eno keys`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;

use crate::inspect::ClusterArgs;
use crate::install::context::{ContextStore, INSPECT_SEED};
use crate::install::{Values, cluster, keys};

/// Make the keys and certificates of an installation by Helm, or fetch those for people.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  eno keys fetch")]
pub(super) struct KeysArgs {
    #[command(subcommand)]
    command: KeysCommand,
}

#[derive(Debug, Subcommand)]
enum KeysCommand {
    /// Write the keys of NATS for people, from the Secret eno-people, to ~/.eno/clusters.
    #[command(after_help = "Examples:\n  eno keys fetch")]
    Fetch(ClusterArgs),
    /// Make the Secrets that are missing, and change none that is there. A Job of the Helm chart runs it.
    #[command(after_help = "Examples:\n  eno keys make --values values.yaml")]
    Make(MakeArgs),
}

#[derive(Debug, clap::Args)]
struct MakeArgs {
    /// The values of the installation.
    #[arg(long, value_name = "FILE")]
    values: PathBuf,
    /// How long cert-manager may take to make its certificate, such as 90s or 10m.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = super::duration)]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) async fn run(args: KeysArgs) -> anyhow::Result<()> {
    match args.command {
        KeysCommand::Fetch(args) => fetch(&args).await,
        KeysCommand::Make(args) => make(args).await,
    }
}

async fn make(args: MakeArgs) -> anyhow::Result<()> {
    let path = args.values.display();
    let text = tokio::fs::read_to_string(&args.values).await.with_context(|| format!("reading {path}"))?;
    let values = Values::parse(&text).with_context(|| format!("{path}"))?;
    let client = args.cluster.client().await?;
    let made = keys::make(&client, &values, args.timeout).await?;
    if made.is_empty() {
        crate::outln!("all keys and certificates are there");
    } else {
        crate::outln!("made: {}", made.join(", "));
    }
    Ok(())
}

async fn fetch(args: &ClusterArgs) -> anyhow::Result<()> {
    let client = args.client().await?;
    let Some(store) = ContextStore::of_user() else {
        bail!("there is no home directory for the keys; set HOME or ENO_HOME");
    };
    let context = store.cluster(&cluster::uid(&client).await?);
    let names = keys::fetch(&client, &context).await?;
    if !names.iter().any(|name| name == INSPECT_SEED) {
        bail!(
            "the cluster has no keys for people in the Secret eno-system/{}: those of eno install are on the disk of who installed; \
             copy the folder ~/.eno/clusters of that admin",
            keys::PEOPLE
        );
    }
    crate::outln!("{}: {}", context.directory().display(), names.join(", "));
    Ok(())
}
