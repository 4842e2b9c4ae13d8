//! `eno completion` and `eno man`: files for the shell, made of the command line's definition.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Eno;

/// Print the completion script of a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(eno completion bash)
  eno completion zsh")]
pub(super) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Write the manual pages of all commands.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno man /usr/local/share/man/man1")]
pub(super) struct ManArgs {
    /// The directory, such as /usr/local/share/man/man1.
    directory: PathBuf,
}

pub(super) fn completion(args: &CompletionArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Eno::command(), "eno", &mut script);
    crate::screen::write(format_args!("{}", String::from_utf8_lossy(&script)));
}

pub(super) fn man(args: &ManArgs) -> anyhow::Result<()> {
    clap_mangen::generate_to(Eno::command(), &args.directory)
        .with_context(|| format!("writing manual pages to {}", args.directory.display()))
}
