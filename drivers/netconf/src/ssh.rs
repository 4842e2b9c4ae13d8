//! SSH below NETCONF (RFC 6242): the pinned host key first, then the login, then the subsystem.

use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eno_device_secrets::{Login, PermitError, SecretError, SecretSource};
use futures::future::BoxFuture;
use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse, Msg};
use russh::keys::{Algorithm, HashAlg, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::credentials::Credentials;
use crate::hello::Hello;
use crate::session::{Call, Notified, Session, SessionError, StreamSession};
use crate::text::{Text, excerpt};

/// The port of NETCONF over SSH (RFC 6242 section 6).
pub(crate) const PORT: u16 = 830;
/// Maximum characters of the device's own words in an error.
const MAX_SHOWN: usize = 300;

/// The timeouts of a session.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For the connection up to the host key, for the login, and for the hello, each.
    pub connect: Duration,
    /// For each request.
    pub rpc: Duration,
    /// Interval of keep-alives. Three unanswered ones end the session.
    pub keep_alive: Duration,
}

/// The reason why no session was opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The device can't be reached.
    #[error("{address} can't be reached: {reason}")]
    Unreachable {
        /// The address.
        address: String,
        /// The error of the system.
        reason: String,
    },
    /// No host key is pinned. Nothing was sent to the device.
    #[error(
        "the device's host key is not known: it showed {fingerprint}. If that is the device's own, accept it by \
         setting HostKey of the FabricDevice to \"{line}\""
    )]
    HostKeyUnknown {
        /// `SHA256:…`.
        fingerprint: String,
        /// The OpenSSH public key line.
        line: String,
    },
    /// Another host key than the pinned one. Nothing was sent to the device.
    #[error(
        "the device showed host key {shown} and not {pinned}, which HostKey of the FabricDevice pins: another \
         machine answers, or its key was changed (it now is \"{line}\")"
    )]
    HostKeyWrong {
        /// `SHA256:…` of the pinned key.
        pinned: String,
        /// `SHA256:…` of the shown key.
        shown: String,
        /// The OpenSSH public key line of the shown key.
        line: String,
    },
    /// The pinned key can't be parsed.
    #[error("HostKey of the FabricDevice is not an OpenSSH public key line: {0}")]
    HostKeyUnreadable(String),
    /// The FabricDevice does not confirm the login. Nothing was sent to the device.
    #[error("{0}")]
    NotPermitted(#[from] PermitError),
    /// The credential can't be read.
    #[error("{0}")]
    Credential(#[from] SecretError),
    /// The private key can't be parsed.
    #[error("ssh-privatekey of credential {credential:?} can't be used: {reason}")]
    PrivateKey {
        /// The credential's name.
        credential: String,
        /// The error of the parser.
        reason: String,
    },
    /// The device refused the credential.
    #[error(
        "the device refuses the login of user {username:?} with credential {credential:?}; it allows {allowed}"
    )]
    Login {
        /// The credential's name.
        credential: String,
        /// The user.
        username: String,
        /// The methods that the device offers.
        allowed: String,
    },
    /// The device refused the NETCONF subsystem.
    #[error("the device has no NETCONF: {0}")]
    NoNetconf(String),
    /// The hello failed.
    #[error("{0}")]
    Session(#[from] SessionError),
}

impl ConnectError {
    /// A retry of the same command can help. Credentials and FabricDevices may be corrected at any time, a host key
    /// only by a new command.
    pub fn retryable(&self) -> bool {
        !matches!(self, Self::HostKeyUnknown { .. } | Self::HostKeyWrong { .. } | Self::HostKeyUnreadable(_))
    }

    /// The device, or the API server, did not answer, so nothing is known to be wrong.
    pub fn unreachable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Session(SessionError::Ended(_) | SessionError::TimedOut { .. }) => true,
            Self::NotPermitted(error) => error.is_unavailable(),
            _ => false,
        }
    }
}

/// A NETCONF session over its own SSH connection. Dropping it ends both.
pub struct SshSession {
    session: StreamSession,
    fingerprint: String,
    _connection: Handle<HostKeyCheck>,
}

impl SshSession {
    /// Connects once the FabricDevice has confirmed the login. The credential is read, and used, only after the host
    /// key has turned out to be that of the login.
    pub async fn connect(
        login: Login,
        source: &SecretSource,
        limits: Limits,
        notified: Notified,
    ) -> Result<Self, ConnectError> {
        let permit = source.permit(login.default_port(PORT)).await?;
        let address = permit.login().address();
        let pinned = permit
            .login()
            .host_key()
            .map(PublicKey::from_openssh)
            .transpose()
            .map_err(|error| ConnectError::HostKeyUnreadable(error.to_string()))?;
        let timed_out = |what: &str| ConnectError::Unreachable {
            address: address.to_owned(),
            reason: format!("{what} within {} s", limits.connect.as_secs_f32()),
        };
        let (mut connection, fingerprint) =
            tokio::time::timeout(limits.connect, handshake(address, pinned, limits))
                .await
                .map_err(|_| timed_out("no answer"))??;
        let credentials = Credentials::read(source, &permit).await?;
        let opened = tokio::time::timeout(limits.connect, async {
            authenticate(&mut connection, &credentials).await?;
            let channel = connection
                .channel_open_session()
                .await
                .map_err(|e| ConnectError::NoNetconf(e.to_string()))?;
            start_netconf(channel).await
        });
        let stream = opened.await.map_err(|_| timed_out("no answer to the login"))??;
        let session = StreamSession::open(stream, limits.connect, limits.rpc, notified).await?;
        Ok(Self { session, fingerprint, _connection: connection })
    }

    /// `SHA256:…` of the host key.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Becomes true when the session ends.
    pub fn closed(&self) -> watch::Receiver<bool> {
        self.session.closed()
    }
}

impl Session for SshSession {
    fn hello(&self) -> &Hello {
        self.session.hello()
    }

    fn call(&self, operation: Text) -> Call {
        self.session.call(operation)
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        self.session.ended()
    }
}

/// Starts the subsystem, and waits until the device has accepted it.
async fn start_netconf(
    mut channel: Channel<Msg>,
) -> Result<impl AsyncRead + AsyncWrite + Send + 'static, ConnectError> {
    let refused = |what: &str, text: &[u8]| {
        let text = excerpt(&String::from_utf8_lossy(text), MAX_SHOWN);
        ConnectError::NoNetconf(if text.is_empty() { what.to_owned() } else { format!("{what}: {text}") })
    };
    channel.request_subsystem(true, "netconf").await.map_err(|error| refused(&error.to_string(), b""))?;
    let (mut received, mut errors) = (Vec::new(), Vec::new());
    loop {
        match channel.wait().await {
            Some(ChannelMsg::Success) => break,
            Some(ChannelMsg::Failure) => return Err(refused("it refuses the subsystem netconf", &errors)),
            // It did not wait for its own answer.
            Some(ChannelMsg::Data { data }) => {
                received.extend_from_slice(&data);
                break;
            }
            Some(ChannelMsg::ExtendedData { data, .. }) if errors.len() < MAX_SHOWN => {
                errors.extend_from_slice(&data);
            }
            Some(ChannelMsg::Eof | ChannelMsg::Close) | None => {
                // A device that is busy, or at the limit of its sessions, does this.
                let reason = refused("it closes the channel of the subsystem netconf", &errors).to_string();
                return Err(SessionError::Ended(reason).into());
            }
            Some(_) => {}
        }
    }
    let (reader, writer) = tokio::io::split(channel.into_stream());
    Ok(tokio::io::join(Cursor::new(received).chain(reader), writer))
}

/// Accepts only the pinned key and records the shown one.
struct HostKeyCheck {
    pinned: Option<PublicKey>,
    shown: Arc<Mutex<Option<PublicKey>>>,
}

impl russh::client::Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        // Certificates are not requested.
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else { return Ok(false) };
        let is_pinned = self.pinned.as_ref().is_some_and(|pinned| pinned.key_data() == key.key_data());
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        Ok(is_pinned)
    }
}

/// Connects up to the verified host key.
async fn handshake(
    address: &str,
    pinned: Option<PublicKey>,
    limits: Limits,
) -> Result<(Handle<HostKeyCheck>, String), ConnectError> {
    let unreachable = |reason: String| ConnectError::Unreachable { address: address.to_owned(), reason };
    let mut config = russh::client::Config {
        nodelay: true,
        keepalive_interval: Some(limits.keep_alive),
        keepalive_max: 3,
        ..russh::client::Config::default()
    };
    if let Some(pinned) = &pinned {
        // The device shows its first key of a requested type, so the pinned type is requested first.
        let kind = pinned.algorithm();
        let is_rsa = |algorithm: &Algorithm| matches!(algorithm, Algorithm::Rsa { .. });
        let mut offered = config.preferred.key.to_vec();
        offered.sort_by_key(|offered| !(*offered == kind || (is_rsa(offered) && is_rsa(&kind))));
        config.preferred.key = offered.into();
    }
    let stream = connect_tcp(address).await.map_err(|error| unreachable(error.to_string()))?;
    // Without it only small requests are slower.
    let _ = stream.set_nodelay(true);
    let shown = Arc::new(Mutex::new(None));
    let check = HostKeyCheck { pinned: pinned.clone(), shown: Arc::clone(&shown) };
    let connected = russh::client::connect_stream(Arc::new(config), stream, check).await;
    let shown = shown.lock().unwrap_or_else(PoisonError::into_inner).take();
    let fingerprint_of = |key: &PublicKey| key.fingerprint(HashAlg::Sha256).to_string();
    let line = |key: &PublicKey| {
        let plain = PublicKey::new(key.key_data().clone(), "");
        plain.to_openssh().unwrap_or_default().trim_end().to_owned()
    };
    match (connected, shown, pinned) {
        (Ok(connection), Some(shown), Some(_)) => Ok((connection, fingerprint_of(&shown))),
        (_, Some(shown), None) => {
            Err(ConnectError::HostKeyUnknown { fingerprint: fingerprint_of(&shown), line: line(&shown) })
        }
        (Err(_), Some(shown), Some(pinned)) if pinned.key_data() != shown.key_data() => {
            Err(ConnectError::HostKeyWrong {
                pinned: fingerprint_of(&pinned),
                shown: fingerprint_of(&shown),
                line: line(&shown),
            })
        }
        (Err(error), _, _) => Err(unreachable(format!("SSH: {error}"))),
        (Ok(_), None, _) => Err(unreachable("SSH: the device showed no host key".into())),
    }
}

async fn connect_tcp(address: &str) -> std::io::Result<TcpStream> {
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    if has_port {
        TcpStream::connect(address).await
    } else {
        TcpStream::connect((address.trim_start_matches('[').trim_end_matches(']'), PORT)).await
    }
}

/// Tries the private key first, then the password, by the methods that the device offers.
async fn authenticate(connection: &mut Handle<HostKeyCheck>, with: &Credentials) -> Result<(), ConnectError> {
    let broken = |error: russh::Error| SessionError::Ended(format!("during the login: {error}"));
    let mut allowed = None;
    if let Some(key) = &with.private_key {
        let key = russh::keys::decode_secret_key(key.expose(), None).map_err(|error| {
            ConnectError::PrivateKey { credential: with.name.clone(), reason: error.to_string() }
        })?;
        let hash = connection.best_supported_rsa_hash().await.map_err(broken)?.flatten();
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        match connection.authenticate_publickey(&with.username, key).await.map_err(broken)? {
            AuthResult::Success => return Ok(()),
            AuthResult::Failure { remaining_methods, .. } => allowed = Some(remaining_methods),
        }
    }
    if let Some(password) = &with.password {
        match connection.authenticate_password(&with.username, password.expose()).await.map_err(broken)? {
            AuthResult::Success => return Ok(()),
            AuthResult::Failure { remaining_methods, .. } => {
                let interactive = remaining_methods.contains(&russh::MethodKind::KeyboardInteractive);
                allowed = Some(remaining_methods);
                if interactive
                    && keyboard_interactive_login(connection, &with.username, password.expose())
                        .await
                        .map_err(broken)?
                {
                    return Ok(());
                }
            }
        }
    }
    let allowed = allowed.iter().flat_map(|methods| methods.iter()).map(<&str>::from).collect::<Vec<_>>();
    Err(ConnectError::Login {
        credential: with.name.clone(),
        username: with.username.clone(),
        allowed: if allowed.is_empty() { "no other method".into() } else { allowed.join(", ") },
    })
}

/// Answers each hidden prompt with the password (RFC 4256).
async fn keyboard_interactive_login(
    connection: &mut Handle<HostKeyCheck>,
    username: &str,
    password: &str,
) -> Result<bool, russh::Error> {
    let mut state = connection.authenticate_keyboard_interactive_start(username, None).await?;
    // A device that asks again has refused the answer.
    for _ in 0..3 {
        state = match state {
            KeyboardInteractiveAuthResponse::Success => return Ok(true),
            KeyboardInteractiveAuthResponse::Failure { .. } => return Ok(false),
            KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => {
                let answer =
                    |prompt: &russh::client::Prompt| if prompt.echo { "" } else { password }.to_owned();
                let answers = prompts.iter().map(answer).collect();
                connection.authenticate_keyboard_interactive_respond(answers).await?
            }
        };
    }
    Ok(matches!(state, KeyboardInteractiveAuthResponse::Success))
}
