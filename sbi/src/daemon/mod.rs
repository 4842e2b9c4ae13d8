//! What all daemons share: logs, metrics, probes and orderly shutdown. The engine uses it too.

mod driver_main;
mod http;
mod telemetry;
mod tls;

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

pub use driver_main::{DriverAbout, driver_main};
pub use http::{HttpArgs, HttpError, Readiness, serve};
pub use telemetry::{LogFormat, TelemetryArgs, TelemetryError, log_filter};
pub use tls::{TlsArgs, TlsError};

use crate::certificates::Certificates;

/// A registry with the metrics that each part has: its version (`eno_build_info`) and the ends of its certificates.
pub fn registry(version: &'static str, certificates: &Certificates) -> Registry {
    let mut registry = Registry::default();
    registry.register("eno_build", "The version of this program", Info::new([("version", version)]));
    certificates.register(&mut registry);
    registry
}

/// A token that SIGTERM and SIGINT cancel. Call it within a tokio runtime; a second signal ends the process at
/// once.
pub fn shutdown_on_signals() -> CancellationToken {
    let token = CancellationToken::new();
    let cancelled = token.clone();
    tokio::spawn(async move {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut terminate, mut interrupt) =
            match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
                (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
                (Err(error), _) | (_, Err(error)) => {
                    error!(%error, "signals can't be caught, so they end the process at once");
                    return;
                }
            };
        let mut caught = async || {
            tokio::select! {
                _ = terminate.recv() => 143,
                _ = interrupt.recv() => 130,
            }
        };
        caught().await;
        info!("told to stop");
        cancelled.cancel();
        std::process::exit(caught().await);
    });
    token
}
