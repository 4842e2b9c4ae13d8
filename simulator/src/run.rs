//! `eno simulator`: a fabric in the foreground.

use std::future::Future;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::fabric::{Fabric, FabricOptions};
use crate::files;
use crate::topology::Topology;

/// Runs a simulated fabric until it is told to stop.
#[derive(Debug, Clone, clap::Args)]
pub struct SimulatorArgs {
    /// The topology, YAML or JSON; a leaf–spine of 4 switches and 4 nodes when absent.
    #[arg(long, env = "ENO_TOPOLOGY")]
    pub topology: Option<PathBuf>,
    /// Where keys, passwords and configurations are kept, and fabric.json is written.
    #[arg(long, env = "ENO_DIR")]
    pub dir: PathBuf,
    /// Where the control API listens; a port of 127.0.0.1 is picked when absent.
    #[arg(long, env = "ENO_CONTROL")]
    pub control: Option<std::net::SocketAddr>,
}

/// Starts the fabric, writes `DIR/fabric.json`, prints `ready`, and stops when `shutdown` completes.
pub async fn run(args: SimulatorArgs, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    let topology = match &args.topology {
        None => Topology::leaf_spine(2, 2, 4),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            Topology::parse(&text).with_context(|| path.display().to_string())?
        }
    };
    let options = FabricOptions { state_dir: Some(args.dir.clone()), control: args.control };
    let fabric = Fabric::start(&topology, options).await.context("starting the simulated fabric")?;
    let path = args.dir.join("fabric.json");
    let json = serde_json::to_vec_pretty(fabric.info()).context("writing fabric.json")?;
    files::replace(&path, &json).with_context(|| format!("writing {}", path.display()))?;
    println!("ready");
    shutdown.await;
    fabric.shutdown().await;
    Ok(())
}
