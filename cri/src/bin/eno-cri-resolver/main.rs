//! `eno-cri-resolver`: uses the container runtime's socket, and serves only the network namespaces of pods.
//!
//! It runs in the node's network namespace, which it never returns. `/run/netns` is mounted so that mounts
//! propagate from the host. It needs no capability.

mod info;
mod lister;
mod resolve;
mod runtime;
mod serve;
mod wire;

use std::error::Error;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::resolve::Resolver;
use crate::runtime::Runtime;
use crate::serve::{AllowedPeers, Socket};

/// Time limit of one call to the runtime. A response needs two consecutive calls.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(5);

/// Tells the network namespaces of pods, over a socket of its own.
#[derive(Debug, Parser)]
#[command(name = "eno-cri-resolver", version = eno_program::VERSION)]
struct Args {
    /// Socket to listen at; mode 0660, its group is the first of --allow-gid.
    #[arg(long, env = "ENO_CRI_SOCKET", value_name = "PATH", default_value = eno_cri::DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Sockets of container runtimes, separated by commas: the first at which one listens is used.
    #[arg(
        long,
        env = "ENO_CRI_RUNTIME",
        value_name = "PATH",
        value_delimiter = ',',
        value_parser = parse_socket,
        default_value = "/run/containerd/containerd.sock,/run/crio/crio.sock,/run/k3s/containerd/containerd.sock"
    )]
    runtime: Vec<PathBuf>,
    /// Users that may ask, separated by commas.
    #[arg(long, env = "ENO_CRI_ALLOW_UID", value_name = "UID", value_delimiter = ',', default_value = "0")]
    allow_uid: Vec<u32>,
    /// Groups whose members (by their primary group) may ask, separated by commas.
    #[arg(long, env = "ENO_CRI_ALLOW_GID", value_name = "GID", value_delimiter = ',')]
    allow_gid: Vec<u32>,
    /// What is logged: error, warn, info, debug, trace, or module=level pairs separated by commas.
    #[arg(long, env = "ENO_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How log lines look.
    #[arg(long, env = "ENO_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// A path, also as a URL of the kind that kubelet's `containerRuntimeEndpoint` takes.
fn parse_socket(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    if path.is_absolute() { Ok(path) } else { Err("a socket's path begins with /") }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = start_logs(&args) {
        eprintln!("eno-cri-resolver: {error}");
        return ExitCode::FAILURE;
    }
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(%error, "can't go on");
            ExitCode::FAILURE
        }
    }
}

fn start_logs(args: &Args) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::builder()
        .parse(&args.log)
        .map_err(|error| format!("log filter {:?} is not valid: {error}", args.log))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).finish().try_init()?,
        LogFormat::Json => logs.json().finish().try_init()?,
    }
    Ok(())
}

// A single thread suffices: the work is done by the runtime.
#[tokio::main(flavor = "current_thread")]
async fn run(args: Args) -> Result<(), Box<dyn Error>> {
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("told to stop");
        stop.cancel();
    });
    let resolver = Resolver::new(Runtime::new(args.runtime.clone(), RUNTIME_TIMEOUT))?;
    let socket = Socket::bind(&args.socket, args.allow_gid.first().copied())?;
    info!(socket = %args.socket.display(), runtime = ?args.runtime, "listening");
    socket.serve(resolver, AllowedPeers { uids: args.allow_uid, gids: args.allow_gid }, shutdown).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn flags_parse_and_reject_invalid_sockets() {
        Args::command().debug_assert();
        let args = Args::try_parse_from([
            "eno-cri-resolver",
            "--runtime",
            "unix:///run/a.sock,/run/b.sock",
            "--allow-gid=7,8",
        ])
        .unwrap();
        assert_eq!(args.runtime, [PathBuf::from("/run/a.sock"), PathBuf::from("/run/b.sock")]);
        assert_eq!((args.allow_uid, args.allow_gid), (vec![0], vec![7, 8]));
        for bad in ["--runtime=tcp://x", "--runtime=run/a.sock", "--allow-uid=root"] {
            assert!(Args::try_parse_from(["eno-cri-resolver", bad]).is_err(), "{bad}");
        }
    }
}
