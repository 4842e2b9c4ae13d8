//! Commands that are programs of their own: drivers, the agent and the laboratory. They are executed in the place of this
//! one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::Context as _;
use clap::Args;

use crate::programs;

/// Arguments of which only the other program knows.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(super) struct ExternalArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

impl ExternalArgs {
    /// Executes the agent.
    pub fn exec_agent(&self) -> anyhow::Result<()> {
        exec(programs::driver("node")?, &self.arguments)
    }

    /// Executes a command of the laboratory, which shows itself as a command of `eno`.
    pub fn exec_lab(&self, name: &str) -> anyhow::Result<()> {
        let mut lab = Command::new(programs::find_program("eno-lab")?);
        lab.arg0("eno").arg(name);
        exec(lab, &self.arguments)
    }
}

/// Executes a program. It returns only when that fails.
pub(super) fn exec(mut command: Command, arguments: &[OsString]) -> anyhow::Result<()> {
    let error = command.args(arguments).exec();
    Err(error).with_context(|| format!("running {}", command.get_program().display()))
}
