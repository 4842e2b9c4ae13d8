//! Gets parts and prints their paths, one per line: those named, or all that the user can run.

use std::process::ExitCode;

use clap::Parser;
use eno_control_plane::parts::{Part, Parts};

/// Gets the programs of the control plane and of the tests, and prints their paths.
#[derive(Parser)]
struct Arguments {
    /// Which; when none is named all, but those that only root can run only for root.
    parts: Vec<Part>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match get().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn get() -> anyhow::Result<()> {
    let mut wanted = Arguments::parse().parts;
    if wanted.is_empty() {
        let root = eno_control_plane::node::is_root();
        wanted.extend(
            Part::ALL.into_iter().filter(|part| (root || !part.needs_root()) && !part.is_for_lanes()),
        );
    }
    let parts = Parts::from_env()?;
    for part in wanted {
        println!("{}", parts.get(part).await?.display());
    }
    Ok(())
}
