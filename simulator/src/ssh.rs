//! The SSH server of a switch (RFC 6242): authentication and the `netconf` subsystem.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use russh::keys::ssh_key::PublicKey;
use russh::keys::{PrivateKey, ssh_key};
use russh::server::{
    Auth, ChannelOpenHandle, Config, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{Channel, ChannelId, Disconnect, MethodKind, MethodSet};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::session::{self, Peer};
use crate::switch::Switch;

/// The credentials of the only user.
pub struct Credentials {
    /// The login name.
    pub username: String,
    /// The password.
    pub password: String,
    /// Authorized public keys.
    pub keys: Vec<PublicKey>,
}

/// The SSH server of one switch.
pub struct Server {
    switch: Arc<Switch>,
    credentials: Arc<Credentials>,
    config: Arc<Config>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

impl Server {
    /// Creates a server with this host key. `tasks` tracks its connections; `shutdown` ends them.
    pub fn new(
        switch: Arc<Switch>,
        credentials: Credentials,
        host_key: PrivateKey,
        shutdown: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            switch,
            credentials: Arc::new(credentials),
            config: Arc::new(config(host_key)),
            shutdown,
            tasks,
        }
    }

    /// Accepts connections until the shutdown.
    pub async fn run(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.shutdown.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) if self.switch.half_open() => self.hold_silently(stream),
                Ok((stream, address)) if self.switch.reachable() => self.connect(stream, address),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(switch = self.switch.name, %error, "accepting a connection failed");
                    // Most likely the process is out of file descriptors: give connections time to close.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Keeps a connection open until the client closes it, and sends nothing.
    fn hold_silently(&self, mut stream: TcpStream) {
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            let mut discarded = tokio::io::sink();
            tokio::select! {
                () = shutdown.cancelled() => {}
                // On success and on an error, the connection has ended.
                _ = tokio::io::copy(&mut stream, &mut discarded) => {}
            }
        });
    }

    fn connect(&self, stream: TcpStream, address: SocketAddr) {
        let connection = self.shutdown.child_token();
        let handler = Connection {
            switch: Arc::clone(&self.switch),
            credentials: Arc::clone(&self.credentials),
            address,
            username: String::new(),
            channels: HashMap::new(),
            shutdown_token: connection.clone(),
            tasks: self.tasks.clone(),
        };
        let config = match self.switch.new_host_key() {
            Some(key) => Arc::new(config(key)),
            None => Arc::clone(&self.config),
        };
        let name = self.switch.name.clone();
        self.tasks.spawn(async move {
            if let Err(error) = serve(config, stream, handler, connection).await {
                tracing::debug!(switch = name, %address, %error, "connection ended");
            }
        });
    }
}

fn config(host_key: PrivateKey) -> Config {
    Config {
        methods: MethodSet::from(&[MethodKind::PublicKey, MethodKind::Password][..]),
        auth_rejection_time: Duration::from_millis(50),
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![host_key],
        // Large enough for a whole configuration without waiting for window updates.
        window_size: 16 << 20,
        inactivity_timeout: None,
        nodelay: true,
        ..Config::default()
    }
}

/// Serves a connection. When its token is cancelled, the TCP connection is closed without an SSH disconnect.
async fn serve(
    config: Arc<Config>,
    stream: TcpStream,
    handler: Connection,
    connection: CancellationToken,
) -> Result<(), russh::Error> {
    // The SSH task owns the stream. This second handle can close the connection under it.
    let stream = stream.into_std()?;
    let stream_handle = stream.try_clone()?;
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    let running = async { russh::server::run_stream(config, stream, handler).await?.await };
    tokio::pin!(running);
    let result = tokio::select! {
        result = &mut running => result,
        () = connection.cancelled() => {
            // Fails only if the peer has closed the connection already.
            let _ = stream_handle.shutdown(std::net::Shutdown::Both);
            running.await
        }
    };
    // End the sessions when the peer has closed the connection.
    connection.cancel();
    result
}

struct Connection {
    /// The switch that is served.
    switch: Arc<Switch>,
    /// The accepted credentials.
    credentials: Arc<Credentials>,
    /// The address of the client.
    address: SocketAddr,
    /// The authenticated user; empty before.
    username: String,
    /// Open channels without a subsystem.
    channels: HashMap<ChannelId, Channel<Msg>>,
    /// Cancelled to close the TCP connection.
    shutdown_token: CancellationToken,
    /// Tracks the session tasks.
    tasks: TaskTracker,
}

impl Connection {
    fn authenticate(&mut self, user: &str, valid: bool) -> Auth {
        if valid && user == self.credentials.username {
            user.clone_into(&mut self.username);
            Auth::Accept
        } else {
            self.switch.count_auth_failure();
            Auth::reject()
        }
    }

    fn is_authorized(&self, key: &ssh_key::PublicKey) -> bool {
        self.credentials.keys.iter().any(|known| known.key_data() == key.key_data())
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        let valid = password == self.credentials.password;
        Ok(self.authenticate(user, valid))
    }

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Self::Error> {
        // Clients offer all their keys: a rejected offer is not a failed login.
        let accepted = user == self.credentials.username && self.is_authorized(offer.public_key);
        Ok(if accepted { Auth::Accept } else { Auth::reject() })
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let valid = self.is_authorized(key.public_key);
        Ok(self.authenticate(user, valid))
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Self::Error> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _session: &mut Session) -> Result<(), Self::Error> {
        self.channels.remove(&channel);
        Ok(())
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let served = name == "netconf" && !self.switch.refuses_subsystem();
        let Some(open) = served.then(|| self.channels.remove(&channel)).flatten() else {
            return session.channel_failure(channel);
        };
        session.channel_success(channel)?;
        let peer = Peer {
            username: self.username.clone(),
            address: self.address.ip().to_string(),
            connection: self.shutdown_token.clone(),
        };
        let switch = Arc::clone(&self.switch);
        let handle = session.handle();
        self.tasks.spawn(async move {
            let connection = peer.connection.clone();
            let name = switch.name.clone();
            if let Err(error) = session::serve(switch, open.into_stream(), peer).await {
                tracing::debug!(switch = name, %error, "session ended");
            }
            if !connection.is_cancelled() {
                // Fails only if the connection is closed already.
                let _ = handle
                    .disconnect(Disconnect::ByApplication, "session closed".to_owned(), String::new())
                    .await;
            }
        });
        Ok(())
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _command: &[u8],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(channel)
    }
}
