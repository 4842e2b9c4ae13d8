//! `eno simulator`: runs a fabric in the foreground.

use std::future::Future;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::dataplane::{DataPlaneOptions, PortWire};
use crate::fabric::{Fabric, FabricOptions};
use crate::files;
use crate::topology::Topology;

/// Subdirectory of the data plane in the simulator's directory. No switch can have this name.
const DATA_PLANE: &str = ".dataplane";

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
    /// Makes the switches forward frames, with Open vSwitch in userspace; needs root.
    #[arg(long, env = "ENO_DATA_PLANE")]
    pub data_plane: bool,
    /// Hands the other end of a port's cable over as an interface: SWITCH/PORT=[NETNS:]INTERFACE, with a path
    /// of its network namespace (that of the simulator when absent). May be repeated.
    #[arg(long = "wire", value_name = "WIRE", requires = "data_plane")]
    pub wires: Vec<PortWire>,
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
    let data_plane = args
        .data_plane
        .then(|| DataPlaneOptions { directory: args.dir.join(DATA_PLANE), wires: args.wires.clone() });
    let options = FabricOptions { state_dir: Some(args.dir.clone()), control: args.control, data_plane };
    let fabric = Fabric::start(&topology, options).await.context("starting the simulated fabric")?;
    let path = args.dir.join("fabric.json");
    let json = serde_json::to_vec_pretty(fabric.info()).context("writing fabric.json")?;
    files::replace(&path, &json).with_context(|| format!("writing {}", path.display()))?;
    println!("ready");
    shutdown.await;
    fabric.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: SimulatorArgs,
    }

    #[test]
    fn wire_option_requires_data_plane() {
        let parse = |args: &[&str]| {
            Program::try_parse_from([&["simulator", "--dir", "d"], args].concat()).map(|program| program.args)
        };
        let wires = ["--wire", "leaf1/Ethernet1=/run/netns/a:eth1", "--wire", "leaf2/Ethernet1=eth2"];
        let args = parse(&[&["--data-plane"], &wires[..]].concat()).expect("wires and a data plane");
        assert!(args.data_plane);
        assert_eq!(args.wires.iter().map(ToString::to_string).collect::<Vec<_>>(), [wires[1], wires[3]]);
        assert!(parse(&wires).is_err());
        assert!(parse(&["--data-plane", "--wire", "leaf1"]).is_err());
        assert!(!parse(&[]).expect("no data plane").data_plane);
    }
}
