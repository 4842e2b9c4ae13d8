//! `eno`, and under the name `kubectl-eno` a plugin of kubectl.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    eno::commands::Eno::parse().run()
}
