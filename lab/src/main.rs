//! `eno-lab`, which `eno sandbox`, `eno demo`, `eno bench`, `eno soak`, `eno simulator` and `eno conformance` run.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    eno_lab::commands::Lab::parse().run()
}
