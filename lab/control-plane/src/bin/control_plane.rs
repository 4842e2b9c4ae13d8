//! Runs a control plane in the foreground until SIGINT or SIGTERM.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions, NatsUser, NodesOptions};
use tokio::signal::unix::{SignalKind, signal};

/// Runs etcd, kube-apiserver, kube-controller-manager and nats-server, and prints `ready` when they are. Nodes are
/// not waited for.
#[derive(Parser)]
struct Arguments {
    /// Holds the data, the keys, the logs and the kubeconfig; used again, it is the same cluster.
    #[arg(long)]
    dir: PathBuf,
    /// Runs this many nodes as well, node1 and so on, which needs root.
    #[arg(long, default_value_t = 0)]
    nodes: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut options = ControlPlaneOptions::new(arguments.dir, Parts::from_env()?);
    if arguments.nodes > 0 {
        let holder = std::env::current_exe()?.with_file_name("eno-sandbox-node");
        let names = (1..=arguments.nodes).map(|number| format!("node{number}")).collect();
        options = options.with_nodes(NodesOptions::new(holder, names));
    }
    let start = ControlPlane::start(options);
    // Cancelling the start kills its child processes.
    let control_plane = tokio::select! {
        started = start => started?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    println!("ready");
    println!("kubeconfig: {}", control_plane.kubeconfig().display());
    println!(
        "nats: {}, nkey seed in {}",
        control_plane.nats().url,
        control_plane.nats().seed_of(NatsUser::Admin).display()
    );
    let exited = tokio::select! {
        exited = control_plane.exited() => Some(exited),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    control_plane.stop().await;
    exited.map_or(Ok(()), |exited| Err(anyhow::anyhow!("{exited}")))
}
