//! `eno agent`: executes the node driver, which is a separate program like every driver.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::Context as _;
use clap::Args;

use crate::programs;

#[derive(Debug, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(super) struct AgentArgs {
    /// The agent's arguments, of which only it knows.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

pub(super) fn exec(args: &AgentArgs) -> anyhow::Result<()> {
    let mut command = programs::driver("node")?;
    let program = command.get_program().to_owned();
    // `exec` returns only when it fails.
    let error = command.args(&args.arguments).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}
