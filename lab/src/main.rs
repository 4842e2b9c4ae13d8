//! `eno-lab`, which `eno sandbox`, `eno demo`, `eno bench`, `eno soak` and `eno simulator` run.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    eno_lab::commands::Lab::parse().run()
}
