//! Logs.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged and how. Logs go to the standard error.
#[derive(Clone, Debug, clap::Args)]
pub struct TelemetryArgs {
    /// What is logged: error, warn, info, debug, trace, or module=level pairs separated by commas.
    #[arg(long, env = "ENO_LOG", default_value = "info", value_name = "FILTER", global = true)]
    pub log: String,
    /// How log lines look.
    #[arg(long, env = "ENO_LOG_FORMAT", default_value = "text", value_name = "FORMAT", global = true)]
    pub log_format: LogFormat,
}

/// Why logging can't be started. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter is invalid.
    #[error("log filter {filter:?} is not valid: {source}")]
    Filter {
        /// As given.
        filter: String,
        /// The parser's error.
        source: ParseError,
    },
    /// Logging was set up before in this process.
    #[error("logs are set up already: {0}")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Parses what is logged.
pub fn log_filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(text)
}

impl TelemetryArgs {
    /// Starts logging, once per process.
    pub fn init(&self) -> Result<(), TelemetryError> {
        use tracing_subscriber::util::SubscriberInitExt;
        let filter = log_filter(&self.log)
            .map_err(|source| TelemetryError::Filter { filter: self.log.clone(), source })?;
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).finish().try_init(),
            LogFormat::Json => logs.json().finish().try_init(),
        }
        .map_err(TelemetryError::Twice)
    }
}
