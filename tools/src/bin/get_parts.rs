//! Gets parts and prints their paths, one per line: all of them, or those named.

use std::process::ExitCode;

use clap::Parser;
use eno_control_plane::parts::{Part, Parts};

/// Gets the programs of the control plane and of the tests, and prints their paths.
#[derive(Parser)]
struct Arguments {
    /// Which; all when none is named.
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
        wanted.extend(Part::ALL);
    }
    let parts = Parts::from_env()?;
    for part in wanted {
        println!("{}", parts.get(part).await?.display());
    }
    Ok(())
}
