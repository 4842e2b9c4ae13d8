//! The command line.

mod conformance;
mod demo;
mod reference;
mod sandbox;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use eno::commands::{exit_code, for_people, run};
use eno_sbi::daemon::TelemetryArgs;

/// The laboratory of the external network operator: everything on one machine.
#[derive(Debug, Parser)]
#[command(name = "eno-lab", version, propagate_version = true)]
pub struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct SimulatorCommand {
    #[command(flatten)]
    simulator: eno_simulator::SimulatorArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run simulated switches that speak NETCONF.
    #[command(after_help = "Examples:\n  eno simulator --dir /tmp/switches")]
    Simulator(SimulatorCommand),
    /// Run everything on this machine: a control plane, a simulated fabric, the engine and its drivers.
    Sandbox(sandbox::SandboxArgs),
    /// Show in a sandbox how custom resources reach switches, pods and callbacks, and go again.
    Demo(demo::DemoArgs),
    /// Measure the operator in a sandbox; docs/src/explanation/benchmark.md says how.
    Bench(crate::bench::BenchArgs),
    /// Have networks come, change and go at random in a sandbox for as long as wanted, with faults, and check every layer.
    Soak(crate::soak::SoakArgs),
    Conformance(conformance::ConformanceArgs),
    /// Print the reference of all commands as Markdown.
    #[command(hide = true)]
    Reference,
    /// Print the table of figures that `eno bench --json` wrote, as Markdown.
    #[command(hide = true)]
    Figures {
        /// The file.
        file: std::path::PathBuf,
    },
}

impl Lab {
    /// Runs the command. The exit code is 0 on success, 1 on failure, and 2 for an invalid command line.
    pub fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Simulator(SimulatorCommand { simulator, telemetry }) => telemetry
                .init()
                .map_err(anyhow::Error::from)
                .and_then(|()| run(|stop| eno_simulator::run(simulator, stop.cancelled_owned()))),
            Command::Sandbox(args) => for_people(|stop| sandbox::run(args, stop)),
            Command::Demo(args) => for_people(|stop| demo::run(args, stop)),
            Command::Bench(args) => for_people(|stop| crate::bench::run(args, stop)),
            Command::Soak(args) => for_people(|stop| crate::soak::run(args, stop)),
            Command::Reference => {
                reference::markdown().map(|page| eno::screen::write(format_args!("{page}")))
            }
            Command::Figures { file } => std::fs::read_to_string(&file)
                .with_context(|| format!("reading {}", file.display()))
                .and_then(|json| crate::bench::markdown(&json))
                .map(|table| eno::screen::write(format_args!("{table}"))),
            Command::Conformance(args) => return exit_code(conformance::run_suite(args)),
        };
        exit_code(result.map(|()| ExitCode::SUCCESS))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Lab::command().debug_assert();
    }

    #[test]
    fn examples_of_help_are_valid_command_lines() {
        for command in Lab::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<_> = help.lines().filter_map(|line| line.strip_prefix("  ")).collect();
            assert!(!examples.is_empty(), "{} has no example", command.get_name());
            for example in examples {
                let parsed = Lab::try_parse_from(example.split(' '));
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
            }
        }
    }
}
