//! The `main` function of a driver.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use prometheus_client::registry::Registry;
use tracing::error;

use super::{HttpArgs, Readiness, TelemetryArgs, registry, serve, shutdown_on_signals};
use crate::certificates::Certificates;
use crate::driver::Driver;
use crate::host::{self, HostArgs, HostMetrics, HostOptions, Ownership};
use crate::nats::{self, ConnectError, NatsArgs, NatsHealth};

/// A driver's name, version and process settings.
#[derive(Clone, Copy, Debug)]
pub struct DriverAbout {
    /// Name of its binary and of its NATS connection: `eno-driver-…`.
    pub program: &'static str,
    /// One line for `--help`.
    pub description: &'static str,
    /// Its version: [`crate::VERSION`] for the drivers of this project.
    pub version: &'static str,
    /// How instances share the work.
    pub ownership: Ownership,
    /// Threads of the runtime; `None`: one per core. Each costs memory, and a driver of one target needs few.
    pub threads: Option<NonZeroUsize>,
}

#[derive(clap::Parser)]
struct Cli<A: clap::Args> {
    #[command(flatten)]
    own: A,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

/// Parses the flags (`A` are the driver's own), starts logs, metrics and probes, connects to NATS, creates
/// the driver and runs it until SIGTERM or SIGINT. `make` may register metrics of its own.
pub fn driver_main<A, D, E, F>(about: DriverAbout, make: F) -> ExitCode
where
    A: clap::Args,
    D: Driver,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: AsyncFnOnce(A, &mut Registry) -> Result<D, E>,
{
    let command = Cli::<A>::command().name(about.program).version(about.version).about(about.description);
    let cli = Cli::<A>::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
    if let Err(error) = cli.telemetry.init() {
        eprintln!("{}: {error}", about.program);
        return ExitCode::FAILURE;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = about.threads {
        runtime.worker_threads(threads.get());
    }
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(about, cli, make)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(%error, "can't go on");
            ExitCode::FAILURE
        }
    }
}

async fn run<A, D, E, F>(
    about: DriverAbout,
    cli: Cli<A>,
    make: F,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
where
    A: clap::Args,
    D: Driver,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: AsyncFnOnce(A, &mut Registry) -> Result<D, E>,
{
    let shutdown = shutdown_on_signals();
    let certificates = Certificates::default();
    let mut registry = registry(about.version, &certificates);
    let metrics = HostMetrics::default();
    metrics.register(&mut registry);
    let driver = make(cli.own, &mut registry).await.map_err(Into::into)?;
    let link = NatsHealth::default();
    link.register(registry.sub_registry_with_prefix("eno_driver"));
    let readiness = Readiness::new({
        let link = link.clone();
        move || link.check()
    });
    // Served before NATS answers, so that liveness probes succeed meanwhile.
    serve(&cli.http, registry, &certificates.metrics, readiness, shutdown.clone()).await?;
    let identity = nats::Identity::of_driver(about.program, driver.only_target());
    let connection = match nats::connect_recording(&cli.nats, identity, &shutdown, &certificates.nats).await {
        Err(ConnectError::Stopped) => return Ok(()),
        connection => connection?,
    };
    link.set(&connection);
    let options = HostOptions { metrics, ..HostOptions::new(connection, about.ownership, about.version) }
        .with_args(&cli.host);
    host::run(driver, options, shutdown).await?;
    Ok(())
}
