//! Holds the namespaces of a sandbox's node, and runs programs in them.

use std::process::ExitCode;

use clap::Parser;
use eno_control_plane::node::namespace_holder::{HolderCommand, execute};

/// One node of a sandbox: started by the sandbox, of no use by itself.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    holder: HolderCommand,
}

fn main() -> ExitCode {
    match execute(Arguments::parse().holder) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
