//! `eno install`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use kube::api::DynamicObject;

use crate::apply::name_of;
use crate::check::{Gather, Outcome};
use crate::inspect::ClusterArgs;
use crate::install::context::ContextStore;
use crate::install::installer::{Change, dry_run};
use crate::install::requirements::Record;
use crate::install::{Values, cluster, install, plan, render, secrets};
use crate::screen;

/// The time for reading what is proposed as networks that callbacks must not reach.
const PROPOSAL_LIMIT: Duration = Duration::from_secs(10);

/// Install the operator on a cluster, or upgrade it: its kinds, roles, policies, keys, certificates, NATS, the engine,
/// the drivers and the agents of the nodes.
///
/// It applies server-side with the field manager eno-install. Run again, it upgrades, and goes on where an earlier try
/// stopped; keys, certificates and the identifier of the cluster stay, and without --values the values too. On this disk it writes ~/.eno/clusters only: what
/// `eno status` and others need to ask NATS.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno install
  eno install --values values.yaml --dry-run
  eno install --values values.yaml -o yaml")]
pub(super) struct InstallArgs {
    /// A YAML file with values, which the how-to \"Install on a cluster\" lists; absent: those of the installation, or
    /// the defaults.
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,
    /// Show what would be created, changed and deleted, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the objects, without Secrets, and change nothing. No cluster is read.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// Let cert-manager make the certificate of NATS, as the value certManager does.
    #[arg(long)]
    cert_manager: bool,
    /// How long all parts together may take to become ready, such as 90s or 10m.
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = super::duration)]
    timeout: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    Yaml,
}

pub(super) async fn run(args: InstallArgs) -> anyhow::Result<()> {
    if args.output.is_some() {
        let mut values = values(args.values.as_deref())?;
        values.cert_manager |= args.cert_manager;
        return print(&render::objects(&values, &secrets::Secrets::default())?);
    }
    let client = args.cluster.client().await?;
    let recorded = match &args.values {
        None => cluster::record(&client).await?.map(recorded_values).transpose()?,
        Some(_) => None,
    };
    let mut values = match recorded {
        Some(recorded) => recorded,
        None => values(args.values.as_deref())?,
    };
    values.cert_manager |= args.cert_manager;
    let plan = Box::pin(plan(&client, &values)).await?;
    if args.dry_run {
        for (change, object) in dry_run(&client, &plan).await? {
            let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
            if change != Change::Keep {
                crate::outln!("{change} {kind} {}", name_of(&object));
            }
        }
        return Ok(());
    }
    let context = match ContextStore::of_user() {
        Some(store) => Some(store.cluster(&cluster::uid(&client).await?)),
        None => None,
    };
    let progress = |line: &str| eprintln!("{line}");
    let installed = install(&client, &values, plan, context.as_ref(), args.timeout, &progress).await?;
    let gather = Gather::new(client, PROPOSAL_LIMIT);
    let networks = Box::pin(gather.callback_networks(&values.callback_deny)).await;
    if let Outcome::Warning(problem) = networks.outcome {
        eprintln!("{}; {}", problem.what, problem.remedy);
    }
    let what = if installed.was_upgrade { "upgraded" } else { "installed" };
    crate::outln!("ENO {} is {what}. Next: eno check", eno_program::VERSION);
    Ok(())
}

/// The values of an installation. An upgrade without them would change them to the defaults.
fn recorded_values(record: Record) -> anyhow::Result<Values> {
    match record.unread {
        None => Ok(record.values),
        Some(error) => Err(error).context(
            "nothing was changed: this program refuses the values of the installation, which are in the ConfigMap \
             eno-system/eno-install; run eno install with --values and corrected ones",
        ),
    }
}

/// Reads a values file; the defaults without one.
pub(super) fn values(path: Option<&Path>) -> anyhow::Result<Values> {
    let Some(path) = path else { return Ok(Values::default()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Values::parse(&text).with_context(|| path.display().to_string())
}

/// Prints objects as YAML documents.
fn print(objects: &[DynamicObject]) -> anyhow::Result<()> {
    crate::outln!(
        "# Without the Secrets eno-nats, eno-nats-tls and eno-metrics-tls, whose keys eno install makes."
    );
    for object in objects {
        let text = serde_saphyr::to_string(object).context("writing YAML")?;
        screen::write(format_args!("---\n{text}"));
    }
    Ok(())
}
