//! The NATS connection, streams and subjects that the engine and the drivers share.

mod answers;
pub(crate) mod bucket;
mod credentials;
mod follow;
mod health;
mod reader;
mod store_health;
mod streams;
mod target;
mod verifier;

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, ServerAddr, jetstream};
use eno_queue::Backoff;
use eno_schemas::subject;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use answers::{CALLBACKS, answer_subject, ask};
pub use credentials::{Credentials, CredentialsError};
pub use follow::Restarts;
pub use health::NatsHealth;
pub use reader::{Content, Selection, StoredMessage, StreamReader, for_each_stored, last_stored};
pub use store_health::StoreHealth;
pub use streams::{LEASE, StreamError, StreamUse, ensure_streams};
pub use target::{ForgetError, forget_target, has_command, purge_subject};

use crate::certificates::CertificateEnd;
use crate::random::random;

/// Interval of pings on a silent connection. After three unanswered pings the connection counts as lost, and
/// other servers are tried.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Delays between attempts to connect, and to publish a report.
pub(crate) const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(100), Duration::from_secs(5)).with_jitter(1.0, 2.0);

/// Where NATS is and how to get in.
#[derive(Clone, Debug, clap::Args)]
pub struct NatsArgs {
    /// URLs of the NATS servers, separated by commas: nats://host:port, or tls:// for TLS.
    #[arg(long, env = "ENO_NATS_URL", default_value = "nats://127.0.0.1:4222", value_name = "URL")]
    pub nats_url: String,
    /// A file with the credentials: the seed of an nkey (SU…), the token of a Kubernetes service account, which is read
    /// anew at each login, a .creds file, or lines `user = …` and `password = …`.
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

/// Why no connection can be made. A retry does not help: `connect` itself waits for unreachable servers.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A URL is invalid.
    #[error("NATS URL {url:?} is not valid: {source}")]
    Url {
        /// As given.
        url: String,
        /// The parser's error.
        source: std::io::Error,
    },
    /// The credentials can't be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The TLS library refuses its own defaults.
    #[error("preparing TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The process was shut down meanwhile.
    #[error("stopped while connecting to NATS")]
    Stopped,
}

/// A NATS connection that reconnects by itself without limit. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Core NATS.
    pub client: Client,
    /// JetStream.
    pub jetstream: jetstream::Context,
    /// Number of servers that store each stream.
    pub replicas: usize,
    /// Whether NATS stores what this process writes.
    pub store: StoreHealth,
    connects: watch::Receiver<u64>,
}

impl Connection {
    /// Counts the connects. A consumer without acknowledgements starts over at each change, since messages in
    /// flight are lost with a connection.
    pub fn connects(&self) -> watch::Receiver<u64> {
        self.connects.clone()
    }
}

/// Who connects. It names the connection and its inbox, so that a server can allow each user only its own replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The program, such as `eno-engine` or `eno-driver-netconf`.
    program: String,
    /// The only target of a driver.
    target: Option<String>,
}

impl Identity {
    /// The only target of a driver is a part of its identity: its processes may have users of their own.
    pub fn of_driver(program: &str, only_target: Option<String>) -> Self {
        Self { program: program.to_owned(), target: only_target }
    }

    /// `_INBOX_<program>` or `_INBOX_<program>.<target>`.
    fn inbox(&self) -> String {
        let program = subject::token(&self.program);
        match &self.target {
            Some(target) => format!("_INBOX_{program}.{}", subject::token(target)),
            None => format!("_INBOX_{program}"),
        }
    }
}

impl From<&str> for Identity {
    fn from(program: &str) -> Self {
        Self { program: program.to_owned(), target: None }
    }
}

/// Connects as `identity`. Retries unreachable or refusing servers until `shutdown`.
pub async fn connect(
    args: &NatsArgs,
    identity: impl Into<Identity>,
    shutdown: &CancellationToken,
) -> Result<Connection, ConnectError> {
    connect_with(args, identity.into(), shutdown, None).await
}

/// Does the same, and records when the server's certificate ends, if `args` name its authorities.
pub async fn connect_recording(
    args: &NatsArgs,
    identity: impl Into<Identity>,
    shutdown: &CancellationToken,
    certificate: &CertificateEnd,
) -> Result<Connection, ConnectError> {
    connect_with(args, identity.into(), shutdown, Some(certificate)).await
}

async fn connect_with(
    args: &NatsArgs,
    identity: Identity,
    shutdown: &CancellationToken,
    certificate: Option<&CertificateEnd>,
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
    // TLS is required of all servers: the INFO message, which precedes TLS, may name further servers without
    // a scheme.
    let encrypted = args.nats_ca.is_some() || servers.iter().any(ServerAddr::tls_required);
    let (connects, connects_seen) = watch::channel(0);
    let options = || -> Result<ConnectOptions, ConnectError> {
        let connects = connects.clone();
        let options = match &credentials {
            Some(credentials) => credentials.options()?,
            None => ConnectOptions::new(),
        };
        let options = options
            .name(&identity.program)
            .custom_inbox_prefix(identity.inbox())
            .connection_timeout(Duration::from_secs(5))
            .ping_interval(PING_INTERVAL)
            .require_tls(encrypted)
            .event_callback(move |event| {
                log(&event);
                if event == Event::Connected {
                    connects.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            });
        Ok(match (&args.nats_ca, certificate) {
            (Some(file), Some(end)) => {
                options.tls_client_config(verifier::recording_config(file.clone(), end.clone())?)
            }
            (Some(file), None) => options.add_root_certificates(file.clone()),
            (None, _) => options,
        })
    };
    let mut failures = 0;
    loop {
        let attempt = tokio::select! {
            attempt = options()?.connect(servers.as_slice()) => attempt,
            () = shutdown.cancelled() => return Err(ConnectError::Stopped),
        };
        match attempt {
            Ok(client) => {
                let jetstream = jetstream::new(client.clone());
                let replicas = usize::from(args.nats_replicas);
                let store = StoreHealth::default();
                return Ok(Connection { client, jetstream, replicas, store, connects: connects_seen });
            }
            Err(error) => warn!(%error, "no connection to NATS, trying again"),
        }
        failures += 1;
        tokio::select! {
            () = tokio::time::sleep(BACKOFF.delay(failures, random())) => {}
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

/// Hides the user part of a URL, which may contain a password.
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

    /// Content type of a TLS handshake record (RFC 8446, section 5.1), in the place of `CONNECT`.
    const HANDSHAKE: u8 = 22;

    /// The server claims not to support TLS, as an attacker in its place would.
    #[tokio::test]
    async fn verified_servers_receive_no_plaintext() {
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
            let first_byte = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"INFO {\"version\":\"2.12.0\",\"max_payload\":1048576}\r\n").await.unwrap();
                let first = stream.read_u8().await.unwrap();
                stop.cancel();
                first
            };
            let (connected, first_byte) = tokio::join!(connect(&args, "eno-test", &stop), first_byte);
            assert!(matches!(connected, Err(ConnectError::Stopped)), "{scheme}");
            assert_eq!(first_byte, HANDSHAKE, "{scheme}");
        }
    }

    #[test]
    fn driver_of_one_target_has_an_inbox_of_its_own() {
        assert_eq!(Identity::from("eno-engine").inbox(), "_INBOX_eno-engine");
        assert_eq!(Identity::of_driver("eno-driver-nad", None).inbox(), "_INBOX_eno-driver-nad");
        let node = Identity::of_driver("eno-driver-node", Some("n.1".into()));
        assert_eq!(node.inbox(), "_INBOX_eno-driver-node.n=2E1");
    }

    #[test]
    fn errors_contain_no_password() {
        assert_eq!(without_user("nats://u:p@host:4222"), "nats://…@host:4222");
        assert_eq!(without_user("u:p@host"), "…@host");
        assert_eq!(without_user("nats://host"), "nats://host");
    }
}
