//! `eno driver NAME`: executes the driver's program.

use std::ffi::OsString;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::external;
use crate::programs;

#[derive(Debug, Args)]
pub(super) struct DriverArgs {
    #[command(subcommand)]
    driver: Driver,
}

#[derive(Debug, Subcommand)]
enum Driver {
    /// Its name, and its arguments, of which only it knows.
    #[command(external_subcommand)]
    Named(Vec<OsString>),
}

impl DriverArgs {
    /// The name and the arguments.
    pub(super) fn name_and_arguments(&self) -> &[OsString] {
        let Driver::Named(name_and_arguments) = &self.driver;
        name_and_arguments
    }
}

pub(super) fn exec(args: &DriverArgs) -> anyhow::Result<()> {
    let (name, arguments) = args.name_and_arguments().split_first().context("a driver has no name")?;
    external::exec(programs::driver(&name.to_string_lossy())?, arguments)
}
