//! `eno driver NAME`: becomes the driver's own program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use clap::{Args, Subcommand};

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
    pub(super) fn words(&self) -> &[OsString] {
        let Driver::Named(words) = &self.driver;
        words
    }
}

pub(super) fn exec(args: &DriverArgs) -> anyhow::Result<()> {
    let (name, arguments) = args.words().split_first().context("a driver has no name")?;
    let mut command = programs::driver(&name.to_string_lossy())?;
    let program = command.get_program().to_owned();
    // It returns only when it fails.
    let error = command.args(arguments).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}
