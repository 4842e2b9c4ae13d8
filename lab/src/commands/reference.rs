//! The reference of the commands, made of their help.

use anyhow::{Context as _, ensure};
use clap::CommandFactory as _;
use eno::commands::Eno;
use eno::programs;

use super::Lab;

/// The width of the help in columns.
const WIDTH: usize = 100;

/// The page as Markdown: a section for each command of `eno` with its help, and one for each driver.
pub(super) fn markdown() -> anyhow::Result<String> {
    let mut eno = Eno::command();
    for lab in Lab::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        eno = eno.mut_subcommand(lab.get_name(), |_| lab.clone());
    }
    let mut page =
        "# Help of each command\n<!-- Written by `make crds` of the commands' definitions. -->\n".to_owned();
    eno = eno.disable_help_subcommand(true).term_width(WIDTH);
    eno.build();
    for command in eno.get_subcommands_mut() {
        section(&mut page, command);
    }
    for driver in eno_parts::drivers() {
        let mut command = programs::driver(driver)?;
        let output = command.arg("--help").env_clear().env("COLUMNS", WIDTH.to_string()).output();
        let output = output.with_context(|| format!("running driver {driver}"))?;
        ensure!(output.status.success(), "driver {driver} --help failed");
        let help =
            String::from_utf8(output.stdout).with_context(|| format!("the help of driver {driver}"))?;
        push(&mut page, &format!("eno driver {driver}"), &help);
    }
    Ok(page)
}

fn section(page: &mut String, command: &mut clap::Command) {
    // The environment of the writer is no part of the reference.
    *command = std::mem::take(command).mut_args(|arg| arg.hide_env_values(true));
    let help = command.render_long_help().to_string();
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    push(page, &name, &help);
    for command in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        section(page, command);
    }
}

/// Appends a section with this help, without trailing blanks and the empty values of environment variables.
fn push(page: &mut String, name: &str, help: &str) {
    let help = help.replace("=]\n", "]\n");
    let help: Vec<&str> = help.trim().lines().map(str::trim_end).collect();
    page.extend(["\n## `", name, "`\n```text\n", &help.join("\n"), "\n```\n"]);
}
