//! The way to NATS, shared by the engine and the drivers.

mod credentials;
mod forget;
mod link;
mod stream_readout;
mod streams;

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr, jetstream};
use backon::{BackoffBuilder, ExponentialBuilder};
use eno_schemas::subject;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use credentials::{Credentials, CredentialsError};
pub use forget::{ForgetError, forget_subject, forget_target};
pub use link::Link;
pub use stream_readout::{has_command, is_stream_readout};
pub use streams::{StreamError, ensure_streams};

/// A server that says nothing for so long is asked for a sign of life; after three times this without one the connection
/// counts as lost, and other servers are tried.
const PING: Duration = Duration::from_secs(5);

/// Where NATS is and how to get in.
#[derive(Clone, Debug, clap::Args)]
pub struct NatsArgs {
    /// URLs of the NATS servers, separated by commas: nats://host:port, or tls:// for TLS.
    #[arg(long, env = "ENO_NATS_URL", default_value = "nats://127.0.0.1:4222", value_name = "URL")]
    pub nats_url: String,
    /// A file with the credentials: the seed of an nkey (SU…), a .creds file, or lines `user = …` and
    /// `password = …`.
    #[arg(long, env = "ENO_NATS_CREDENTIALS", value_name = "FILE")]
    pub nats_credentials: Option<PathBuf>,
    /// A PEM file with the certificate authorities that may have signed the servers' certificates. With it, or with a
    /// URL of tls://, nothing is said to any server in the clear.
    #[arg(long, env = "ENO_NATS_CA", value_name = "FILE")]
    pub nats_ca: Option<PathBuf>,
    /// How many servers keep each stream.
    #[arg(long, env = "ENO_NATS_REPLICAS", default_value_t = 1, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=5))]
    pub nats_replicas: u16,
}

/// Why there is no way to NATS. A retry does not help: servers that do not answer are waited for.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A URL is none.
    #[error("NATS URL {url:?} is not valid: {source}")]
    Url {
        /// As given.
        url: String,
        /// The parser's words.
        source: std::io::Error,
    },
    /// The credentials can't be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The process was told to stop meanwhile.
    #[error("stopped while connecting to NATS")]
    Stopped,
}

/// An open way to NATS. It reconnects by itself and for good; cloning is cheap.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Core NATS.
    pub client: Client,
    /// JetStream.
    pub jetstream: jetstream::Context,
    /// How many servers keep each stream.
    pub replicas: usize,
    connects: watch::Receiver<u64>,
}

impl Connection {
    /// Counts the times that the connection came up. Whoever consumes without acknowledgements starts over when
    /// it changes, since what was on the way when the old connection broke is lost.
    pub fn connects(&self) -> watch::Receiver<u64> {
        self.connects.clone()
    }
}

/// Connects as `identity` (such as `eno-engine` or `eno-driver-netconf`), which names the connection and its
/// inbox, so that a server can keep others from reading its replies: allow it `_INBOX_<identity>.>` alone.
/// Servers that do not answer or refuse are tried until `shutdown`.
pub async fn connect(
    args: &NatsArgs,
    identity: &str,
    shutdown: &CancellationToken,
) -> Result<Connection, ConnectError> {
    let servers = args
        .nats_url
        .split(',')
        .map(|url| {
            url.trim()
                .parse::<ServerAddr>()
                .map_err(|source| ConnectError::Url { url: without_user(url), source })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let credentials = args.nats_credentials.as_deref().map(Credentials::read).transpose()?;
    // Of all of them: a greeting, which comes before TLS, can name further servers, and those have no scheme.
    let encrypted = args.nats_ca.is_some() || servers.iter().any(ServerAddr::tls_required);
    let (connects, connects_seen) = watch::channel(0);
    let options = || -> Result<ConnectOptions, CredentialsError> {
        let connects = connects.clone();
        let mut options = ConnectOptions::new()
            .name(identity)
            .custom_inbox_prefix(format!("_INBOX_{}", subject::token(identity)))
            .connection_timeout(Duration::from_secs(5))
            .ping_interval(PING)
            .require_tls(encrypted)
            .event_callback(move |event| {
                log(&event);
                if event == Event::Connected {
                    connects.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            });
        if let Some(file) = &args.nats_ca {
            options = options.add_root_certificates(file.clone());
        }
        match &credentials {
            Some(credentials) => credentials.add_to(options),
            None => Ok(options),
        }
    };
    let mut delays = ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
        .build();
    loop {
        let attempt = tokio::select! {
            attempt = options()?.connect(servers.as_slice()) => attempt,
            () = shutdown.cancelled() => return Err(ConnectError::Stopped),
        };
        match attempt {
            Ok(client) => {
                let jetstream = jetstream::new(client.clone());
                let replicas = usize::from(args.nats_replicas);
                return Ok(Connection { client, jetstream, replicas, connects: connects_seen });
            }
            Err(error) => warn!(%error, "no connection to NATS, trying again"),
        }
        let delay = delays.next().unwrap_or(Duration::from_secs(5));
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = shutdown.cancelled() => return Err(ConnectError::Stopped),
        }
    }
}

fn log(event: &Event) {
    match event {
        Event::Connected => info!("connected to NATS"),
        Event::Disconnected => warn!("connection to NATS lost, reconnecting"),
        Event::Closed => debug!("connection to NATS closed"),
        Event::SlowConsumer(id) => warn!(subscription = id, "NATS messages dropped: too slow a consumer"),
        other => warn!(event = %other, "NATS"),
    }
}

/// Hides what stands before an `@`: a password may.
fn without_user(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://…{}", &url[..scheme], &url[at..]),
        (None, Some(at)) => format!("…{}", &url[at..]),
        _ => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Of RFC 8446, section 5.1: how the first message of TLS begins, where `CONNECT` would be.
    const HANDSHAKE: u8 = 22;

    /// From a server that claims to know no TLS, as one that stands in front of it would.
    #[tokio::test]
    async fn nothing_is_said_in_the_clear_to_servers_that_are_to_be_checked() {
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.crt");
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&ca, certificate.cert.pem()).unwrap();
        for scheme in ["tls", "nats"] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let args = NatsArgs {
                nats_url: format!("{scheme}://{}", listener.local_addr().unwrap()),
                nats_credentials: None,
                nats_ca: Some(ca.clone()),
                nats_replicas: 1,
            };
            let stop = CancellationToken::new();
            let heard = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"INFO {\"version\":\"2.12.0\",\"max_payload\":1048576}\r\n").await.unwrap();
                let first = stream.read_u8().await.unwrap();
                stop.cancel();
                first
            };
            let (connected, heard) = tokio::join!(connect(&args, "eno-test", &stop), heard);
            assert!(matches!(connected, Err(ConnectError::Stopped)), "{scheme}");
            assert_eq!(heard, HANDSHAKE, "{scheme}");
        }
    }

    #[test]
    fn no_password_in_errors() {
        assert_eq!(without_user("nats://u:p@host:4222"), "nats://…@host:4222");
        assert_eq!(without_user("u:p@host"), "…@host");
        assert_eq!(without_user("nats://host"), "nats://host");
    }
}
