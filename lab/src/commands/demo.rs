//! `eno demo`.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use eno_control_plane::node::is_root;
use eno_control_plane::parts::Parts;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::sandbox::print_help;
use crate::demo::{Demo, until_stopped};
use crate::sandbox::{Sandbox, SandboxOptions, topology};

/// The number of nodes: one at each leaf.
const NODES: usize = 2;

/// Applies the shipped example in a sandbox, shows what becomes of it, and takes it away again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno demo
  eno demo --keep
  eno demo --ui")]
pub(super) struct DemoArgs {
    /// Where the sandbox is kept; a temporary directory, removed at the end, when absent.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Leave the example applied and the sandbox running, to be played with.
    #[arg(long)]
    keep: bool,
    /// Show it in a browser too: print a URL of `eno ui`, and leave everything running, as --keep does.
    #[arg(long)]
    ui: bool,
    /// Show nothing on real nodes, as without root.
    #[arg(long)]
    no_nodes: bool,
}

pub(super) async fn run(args: DemoArgs, stop: CancellationToken) -> anyhow::Result<()> {
    // The temporary directory is removed when this is dropped.
    let temporary = match args.dir {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("eno-demo-").tempdir().context("making a directory")?),
    };
    let dir = args.dir.as_deref().or(temporary.as_ref().map(tempfile::TempDir::path));
    let dir = dir.context("no directory")?;
    eno::outln!("Starting a sandbox in {}", dir.display());
    let mut options = SandboxOptions::new(dir, Parts::from_env()?)?;
    options.report = Arc::new(|line| eno::outln!("  {line}"));
    if args.no_nodes || !is_root() {
        eno::outln!(
            "  without nodes that run pods: {}",
            if args.no_nodes { "as wanted" } else { "they need root" }
        );
    } else {
        options.nodes = NODES;
        options.topology = topology(NODES);
    }
    let sandbox = tokio::select! {
        sandbox = Sandbox::start(options) => sandbox?,
        () = stop.cancelled() => bail!("stopped"),
    };
    let result = show(&sandbox, args.keep || args.ui, args.ui, &stop).await;
    if let (Err(_), Some(temporary)) = (&result, temporary) {
        // The logs are kept for debugging.
        eno::outln!("logs are kept in {}", temporary.keep().join("logs").display());
    }
    sandbox.stop().await;
    result
}

async fn show(sandbox: &Sandbox, keep: bool, ui: bool, stop: &CancellationToken) -> anyhow::Result<()> {
    let demo = Demo::new(sandbox).await?;
    let stopped = || anyhow::anyhow!("stopped");
    until_stopped(sandbox, stop, demo.apply()).await?.with_context(stopped)?;
    if keep {
        eno::outln!("\nIt keeps running until you press Ctrl-C. In another terminal:");
        print_help(sandbox);
        eno::outln!("            kubectl get net-attach-def -A");
        eno::outln!("            kubectl delete l2serviceattachment -n cnf-a oam");
        // It prints its URL itself, as the last line, and ends with the demo.
        let console = ui.then(|| console(sandbox)).transpose()?;
        let ended = async {
            let Some(mut console) = console else { return std::future::pending().await };
            let status = console.wait().await.context("waiting for eno ui")?;
            bail!("eno ui ended: {status}")
        };
        until_stopped::<()>(sandbox, stop, ended).await?;
        return Ok(());
    }
    until_stopped(sandbox, stop, demo.delete()).await?.with_context(stopped)?;
    if demo.has_nodes() {
        until_stopped(sandbox, stop, demo.pods()).await?.with_context(stopped)?;
    }
    eno::outln!("\nThat was all. To keep it running: eno demo --keep");
    Ok(())
}

/// Starts `eno ui` on the sandbox.
fn console(sandbox: &Sandbox) -> anyhow::Result<Child> {
    let info = sandbox.info();
    let program = eno::programs::eno()?;
    Command::new(&program)
        .arg("ui")
        .env("KUBECONFIG", &info.kubeconfig)
        .env("ENO_NATS_URL", &info.nats_url)
        .env("ENO_NATS_CREDENTIALS", &info.nats_credentials)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting {} ui", program.display()))
}
