//! The command line.

mod addresses;
mod adopt;
mod blame;
mod callbacks;
mod chart;
mod check;
mod connectivity;
mod driver;
mod external;
mod generate;
mod import;
mod install;
mod keys;
mod plan;
mod revoked;
mod rotate;
mod status;
mod sysdump;
mod trace;
mod ui;
mod uninstall;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use eno_sbi::daemon::{LogFormat, TelemetryArgs, shutdown_on_signals};
use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use external::ExternalArgs;

/// The external network operator: from custom resources to switch ports and pod interfaces.
#[derive(Debug, Parser)]
#[command(name = "eno", version = eno_program::VERSION, propagate_version = true)]
pub struct Eno {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct EngineCommand {
    #[command(flatten)]
    engine: eno_engine::EngineArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the engine.
    #[command(after_help = "Examples:\n  eno engine --nats-url tls://nats.eno-system:4222")]
    Engine(Box<EngineCommand>),
    /// Run a southbound driver: eno-driver-NAME from beside this program or from PATH.
    #[command(
        subcommand_value_name = "NAME",
        subcommand_help_heading = "Drivers",
        after_help = "Examples:\n  eno driver netconf --help"
    )]
    Driver(driver::DriverArgs),
    /// Run the agent of this node: eno-driver-node from beside this program or from PATH.
    #[command(after_help = "Examples:\n  eno agent --help")]
    Agent(ExternalArgs),
    /// Run simulated switches that speak NETCONF.
    Simulator(ExternalArgs),
    /// Run everything on this machine: a control plane, a simulated fabric, the engine and its drivers.
    Sandbox(ExternalArgs),
    /// Show in a sandbox how custom resources reach switches, pods and callbacks, and go again.
    Demo(ExternalArgs),
    Check(check::CheckArgs),
    Plan(plan::PlanArgs),
    Status(status::StatusArgs),
    Connectivity(connectivity::ConnectivityArgs),
    Trace(trace::TraceArgs),
    Blame(blame::BlameArgs),
    Addresses(addresses::AddressesArgs),
    Ui(ui::UiArgs),
    Callbacks(callbacks::CallbacksArgs),
    Adopt(adopt::AdoptArgs),
    Revoked(revoked::RevokedArgs),
    Sysdump(sysdump::SysdumpArgs),
    Import(import::ImportArgs),
    Install(install::InstallArgs),
    Uninstall(uninstall::UninstallArgs),
    Rotate(rotate::RotateArgs),
    Chart(chart::ChartArgs),
    Keys(keys::KeysArgs),
    Completion(generate::CompletionArgs),
    Man(generate::ManArgs),
    /// Measure the operator in a sandbox; docs/src/explanation/benchmark.md says how.
    Bench(ExternalArgs),
    /// Have networks come, change and go at random in a sandbox for as long as wanted, with faults, and check every layer.
    Soak(ExternalArgs),
    /// Check a driver that is a program, in any language: what it says on NATS, and what it does to a device.
    Conformance(ExternalArgs),
}

impl Eno {
    /// Runs the command. The exit code is 0 on success, 1 on failure, and 2 for an invalid command line, a plan in which
    /// something would fail, or a test of connectivity without an answer.
    pub fn run(self) -> ExitCode {
        exit_code(self.dispatch())
    }

    fn dispatch(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Check(args) => return for_user(check::run(args)),
            Command::Plan(args) => return for_user(plan::run(args)),
            // Ctrl-C is the normal end of a watch.
            Command::Status(args) if args.watch => for_people(async |stop| {
                tokio::select! { result = status::run(args) => result, () = stop.cancelled() => Ok(()) }
            }),
            Command::Status(args) => for_user(status::run(args)),
            Command::Connectivity(args) => {
                return for_people(async |stop| Ok(connectivity::run(args, stop).await));
            }
            Command::Trace(args) => for_user(trace::run(args)),
            Command::Blame(args) => for_user(blame::run(args)),
            Command::Addresses(args) => for_user(addresses::run(args)),
            // Ctrl-C is its normal end.
            Command::Ui(args) => for_people(async |stop| ui::run(args, stop).await),
            Command::Callbacks(args) => for_user(callbacks::run(args)),
            Command::Adopt(args) => for_user(adopt::run(args)),
            Command::Revoked(args) => for_user(revoked::run(args)),
            Command::Sysdump(args) => for_user(sysdump::run(args)),
            Command::Import(args) => import::run(args),
            Command::Install(args) => for_user(install::run(args)),
            Command::Uninstall(args) => for_user(uninstall::run(args)),
            Command::Rotate(args) => for_user(rotate::run(args)),
            Command::Chart(args) => chart::run(&args),
            Command::Keys(args) => for_user(keys::run(args)),
            Command::Completion(args) => {
                generate::completion(&args);
                Ok(())
            }
            Command::Man(args) => generate::man(&args),
            Command::Driver(args) => driver::exec(&args),
            Command::Agent(args) => args.exec_agent(),
            Command::Engine(command) => {
                let EngineCommand { engine, telemetry } = *command;
                telemetry.init()?;
                run(|stop| eno_engine::run(engine, stop))
            }
            Command::Simulator(args) => args.exec_lab("simulator"),
            Command::Sandbox(args) => args.exec_lab("sandbox"),
            Command::Demo(args) => args.exec_lab("demo"),
            Command::Bench(args) => args.exec_lab("bench"),
            Command::Soak(args) => args.exec_lab("soak"),
            Command::Conformance(args) => args.exec_lab("conformance"),
        }
        .map(|()| ExitCode::SUCCESS)
    }
}

/// The exit code of a command; an error is printed.
pub fn exit_code(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("eno: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs a command that a signal may end at any time.
fn for_user<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    for_people(async |stop| {
        tokio::select! {
            result = command => result,
            () = stop.cancelled() => bail!("stopped"),
        }
    })
}

/// Runs a command for users: it logs only warnings, and not the retries while a server starts.
pub fn for_people<T, F: Future<Output = anyhow::Result<T>>>(
    command: impl FnOnce(CancellationToken) -> F,
) -> anyhow::Result<T> {
    let filter = std::env::var("ENO_LOG").unwrap_or_else(|_| "warn,kube_client=off".to_owned());
    TelemetryArgs { log: filter, log_format: LogFormat::Text }.init()?;
    run(command)
}

/// Runs a command with a token that SIGINT and SIGTERM cancel.
pub fn run<T, F: Future<Output = anyhow::Result<T>>>(
    command: impl FnOnce(CancellationToken) -> F,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Runtime::new().context("starting the async runtime")?;
    runtime.block_on(async { command(shutdown_on_signals()).await })
}

/// A positive duration such as `90s`, `1h` or `1h 30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration =
        text.parse().map_err(|_| "write a duration such as 90s, 5m or 1h".to_owned())?;
    let duration = Duration::try_from(duration).map_err(|_| "it must not be negative".to_owned())?;
    if duration.is_zero() { Err("it must be longer than 0".to_owned()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Eno::command().debug_assert();
    }

    /// Every command that this program carries out itself has examples, and they are valid.
    #[test]
    fn examples_of_help_are_valid_command_lines() {
        let external = ["simulator", "sandbox", "demo", "bench", "soak", "conformance"];
        for command in Eno::command().get_subcommands().filter(|one| !external.contains(&one.get_name())) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<_> = help.lines().filter_map(|line| line.strip_prefix("  ")).collect();
            assert!(!examples.is_empty(), "{} has no example", command.get_name());
            for example in examples {
                let line = example.trim_start_matches("source <(").trim_end_matches(')').split(' ');
                let parsed = Eno::try_parse_from(line);
                let is_valid = match &parsed {
                    Ok(_) => true,
                    Err(error) => error.kind() == clap::error::ErrorKind::DisplayHelp,
                };
                assert!(is_valid, "{example}: {parsed:?}");
            }
        }
    }

    #[test]
    fn completion_scripts_name_the_commands() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Eno::command(), "eno", &mut script);
            assert!(String::from_utf8_lossy(&script).contains("blame"), "{shell}");
        }
    }

    #[test]
    fn driver_arguments_are_passed_through() {
        for arguments in [vec!["--help"], vec!["--listen", "127.0.0.1:0", "--version"]] {
            let line = ["eno", "driver", "netconf"].into_iter().chain(arguments.clone());
            let Command::Driver(driver) = Eno::parse_from(line).command else { panic!("not a driver") };
            assert_eq!(driver.name_and_arguments()[1..], arguments);
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h", 3_600), ("1h 30m", 5_400), ("2h30m", 9_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "-1h", "0s", "h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
