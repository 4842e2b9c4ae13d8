//! A running fabric: every switch of a topology, and the control API.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::keys::ssh_key::private::{KeypairData, RsaKeypair};
use russh::keys::ssh_key::{self, LineEnding, PublicKey};
use russh::keys::{Algorithm, EcdsaCurve, PrivateKey};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::control;
use crate::dataplane::{DataPlane, DataPlaneError, DataPlaneOptions};
use crate::dialect::Dialect;
use crate::files;
use crate::ssh::{Credentials, Server};
use crate::switch::{HandEditError, Setup, Switch};
use crate::topology::{HostKeyKind, SwitchSpec, Topology, TopologyError};

/// Options of a fabric.
#[derive(Debug, Clone, Default)]
pub struct FabricOptions {
    /// Directory that persists host keys, passwords, ports and configurations across restarts. Nothing is persisted
    /// if absent.
    pub state_dir: Option<PathBuf>,
    /// Listen address of the control API; a free port of 127.0.0.1 if absent.
    pub control: Option<SocketAddr>,
    /// Options of the data plane. Without it the switches forward no frames.
    pub data_plane: Option<DataPlaneOptions>,
}

/// Connection data of one switch. Serialised as `{name, netconf, username, password, hostKey, controlUrl}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwitchInfo {
    /// The name in the topology.
    pub name: String,
    /// Listen address of NETCONF over SSH.
    pub netconf: SocketAddr,
    /// The login name.
    pub username: String,
    /// The password.
    pub password: String,
    /// The SSH host key as an OpenSSH public key line.
    pub host_key: String,
    /// Base URL of the switch in the control API.
    pub control_url: String,
}

impl std::fmt::Debug for SwitchInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwitchInfo")
            .field("name", &self.name)
            .field("netconf", &self.netconf)
            .field("username", &self.username)
            .field("host_key", &self.host_key)
            .field("control_url", &self.control_url)
            .finish_non_exhaustive()
    }
}

/// A fabric can't be started. A retry helps only after a file or address error.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// The topology is invalid.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The initial configuration of a switch is invalid.
    #[error("configuration of switch {switch}: {source}")]
    Configuration {
        /// The switch.
        switch: String,
        /// The cause.
        source: HandEditError,
    },
    /// A line of `authorizedKeys` is not a public key.
    #[error("authorized key of switch {switch}: {source}")]
    AuthorizedKey {
        /// The switch.
        switch: String,
        /// The cause.
        source: ssh_key::Error,
    },
    /// A host key can't be generated or read.
    #[error("host key of switch {switch}: {source}")]
    HostKey {
        /// The switch.
        switch: String,
        /// The cause.
        source: ssh_key::Error,
    },
    /// A listen address can't be bound.
    #[error("{what} can't listen on {address}: {source}")]
    Listen {
        /// The server that needs the address.
        what: String,
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The state directory can't be read or written.
    #[error("{}: {source}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The data plane can't be started.
    #[error(transparent)]
    DataPlane(#[from] DataPlaneError),
}

/// Port and password that `kept.json` persists for a switch; for the control API only the port.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PersistedEndpoint {
    port: u16,
    password: String,
}

/// A running fabric. Dropping it stops all switches without waiting.
#[derive(Debug)]
pub struct Fabric {
    /// The switches by name.
    switches: BTreeMap<String, Arc<Switch>>,
    /// Connection data of the switches, in the order of the topology.
    info: Vec<SwitchInfo>,
    /// Listen address of the control API.
    control: SocketAddr,
    /// The data plane, if enabled.
    data_plane: Option<Arc<DataPlane>>,
    /// Cancelled to stop the fabric.
    shutdown: CancellationToken,
    /// All tasks of the fabric.
    tasks: TaskTracker,
}

impl Fabric {
    /// Starts the control API, all switches and the data plane. Returns when all servers listen and all wires of the
    /// data plane exist.
    pub async fn start(topology: &Topology, options: FabricOptions) -> Result<Self, FabricError> {
        topology.validate()?;
        let shutdown = CancellationToken::new();
        // On an error, the guard stops the tasks that were started.
        let guard = shutdown.clone().drop_guard();
        let tasks = TaskTracker::new();
        let version = watch::Sender::new(1);
        let state_dir = options.state_dir.as_deref();
        if let Some(directory) = state_dir {
            make_directory(directory)?;
        }
        let control_address = match options.control {
            Some(address) => address,
            None => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), read_persisted(state_dir)?.port),
        };
        let listener = listen("the control API", control_address, options.control.is_none()).await?;
        let control = address_of(&listener, "the control API", control_address)?;
        write_persisted(state_dir, &PersistedEndpoint { port: control.port(), password: String::new() })?;

        let mut switches = BTreeMap::new();
        let mut info = Vec::new();
        for spec in &topology.switches {
            let directory = state_dir.map(|directory| directory.join(&spec.name));
            if let Some(directory) = &directory {
                make_directory(directory)?;
            }
            let (switch, server, listener, connection_info) =
                start_switch(spec, directory, control, &version, &shutdown, &tasks).await?;
            tasks.spawn(server.run(listener));
            tasks.spawn(Arc::clone(&switch).run_persistence());
            switches.insert(spec.name.clone(), switch);
            info.push(connection_info);
        }
        let data_plane = match &options.data_plane {
            None => None,
            Some(options) => {
                let (changes, stop) = (version.subscribe(), shutdown.clone());
                Some(Arc::new(DataPlane::start(topology, options, &switches, changes, stop, &tasks).await?))
            }
        };
        let router = control::router(switches.clone(), version, data_plane.clone());
        let stop = shutdown.clone();
        tasks.spawn(async move {
            let served = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
            tokio::select! {
                result = served => if let Err(error) = result {
                    tracing::warn!(%error, "the control API failed");
                },
                // Long-poll requests would delay a graceful shutdown.
                () = stop.cancelled() => {}
            }
        });
        tasks.close();
        guard.disarm();
        Ok(Self { switches, info, control, data_plane, shutdown, tasks })
    }

    /// Connection data of each switch, in the order of the topology.
    pub fn info(&self) -> &[SwitchInfo] {
        &self.info
    }

    /// Base URL of the control API.
    pub fn control_url(&self) -> String {
        format!("http://{}", self.control)
    }

    /// A switch by name.
    pub fn switch(&self, name: &str) -> Option<&Arc<Switch>> {
        self.switches.get(name)
    }

    /// All switches, by name.
    pub fn switches(&self) -> impl Iterator<Item = &Arc<Switch>> {
        self.switches.values()
    }

    /// The data plane, if enabled.
    pub fn data_plane(&self) -> Option<&Arc<DataPlane>> {
        self.data_plane.as_ref()
    }

    /// Stops all switches and waits until their connections and the interfaces of the data plane are gone.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

async fn start_switch(
    spec: &SwitchSpec,
    directory: Option<PathBuf>,
    control: SocketAddr,
    version: &watch::Sender<u64>,
    shutdown: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<(Arc<Switch>, Server, TcpListener, SwitchInfo), FabricError> {
    let dialect = Dialect::named(&spec.dialect)
        .ok_or_else(|| TopologyError::Dialect { switch: spec.name.clone(), dialect: spec.dialect.clone() })?;
    let mut persisted = read_persisted(directory.as_deref())?;
    if let Some(password) = &spec.password {
        persisted.password.clone_from(password);
    } else if persisted.password.is_empty() {
        persisted.password = random_password();
    }
    let key = host_key(spec, directory.as_deref())?;
    let mut wanted = spec.listen;
    let picked = wanted.port() == 0;
    if picked {
        wanted.set_port(persisted.port);
    }
    let what = format!("switch {}", spec.name);
    let listener = listen(&what, wanted, picked).await?;
    let netconf = address_of(&listener, &what, wanted)?;
    persisted.port = netconf.port();
    write_persisted(directory.as_deref(), &persisted)?;
    let keys = spec
        .authorized_keys
        .iter()
        .map(|line| PublicKey::from_openssh(line))
        .collect::<Result<_, _>>()
        .map_err(|source| FabricError::AuthorizedKey { switch: spec.name.clone(), source })?;
    let switch = Switch::new(Setup {
        spec,
        dialect,
        directory,
        fabric_version: version.clone(),
        shutdown: shutdown.clone(),
    })
    .map_err(|source| FabricError::Configuration { switch: spec.name.clone(), source })?;
    let host_key = key
        .public_key()
        .to_openssh()
        .map_err(|source| FabricError::HostKey { switch: spec.name.clone(), source })?;
    let connection_info = SwitchInfo {
        name: spec.name.clone(),
        netconf,
        username: spec.username.clone(),
        password: persisted.password.clone(),
        host_key,
        control_url: format!("http://{control}/switches/{}", spec.name),
    };
    let credentials = Credentials { username: spec.username.clone(), password: persisted.password, keys };
    let server = Server::new(Arc::clone(&switch), credentials, key, shutdown.clone(), tasks.clone());
    Ok((switch, server, listener, connection_info))
}

/// Binds `wanted`. If its port is taken and was not configured (`picked`), binds another port.
async fn listen(what: &str, wanted: SocketAddr, picked: bool) -> Result<TcpListener, FabricError> {
    let failed = |source| FabricError::Listen { what: what.to_owned(), address: wanted, source };
    match TcpListener::bind(wanted).await {
        Err(error) if picked && error.kind() == io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::new(wanted.ip(), 0)).await.map_err(failed)
        }
        result => result.map_err(failed),
    }
}

fn address_of(listener: &TcpListener, what: &str, address: SocketAddr) -> Result<SocketAddr, FabricError> {
    listener.local_addr().map_err(|source| FabricError::Listen { what: what.to_owned(), address, source })
}

fn make_directory(path: &Path) -> Result<(), FabricError> {
    std::fs::create_dir_all(path).map_err(|source| FabricError::State { path: path.to_owned(), source })
}

fn read_persisted(directory: Option<&Path>) -> Result<PersistedEndpoint, FabricError> {
    let Some(directory) = directory else { return Ok(PersistedEndpoint::default()) };
    let path = directory.join("kept.json");
    match std::fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map_err(|error| FabricError::State { path, source: error.into() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PersistedEndpoint::default()),
        Err(source) => Err(FabricError::State { path, source }),
    }
}

fn write_persisted(directory: Option<&Path>, persisted: &PersistedEndpoint) -> Result<(), FabricError> {
    let Some(directory) = directory else { return Ok(()) };
    let path = directory.join("kept.json");
    let written =
        serde_json::to_vec(persisted).map_err(io::Error::from).and_then(|json| files::replace(&path, &json));
    written.map_err(|source| FabricError::State { path, source })
}

fn host_key(spec: &SwitchSpec, directory: Option<&Path>) -> Result<PrivateKey, FabricError> {
    let failed = |source| FabricError::HostKey { switch: spec.name.clone(), source };
    let path = directory.map(|directory| directory.join("host_key"));
    if let Some(path) = path.as_deref().filter(|path| path.exists()) {
        let text = std::fs::read_to_string(path)
            .map_err(|source| FabricError::State { path: path.to_owned(), source })?;
        return PrivateKey::from_openssh(text).map_err(failed);
    }
    let mut rng = rand::rng();
    let key = match spec.host_key {
        HostKeyKind::Ed25519 => PrivateKey::random(&mut rng, Algorithm::Ed25519),
        HostKeyKind::EcdsaP256 => {
            PrivateKey::random(&mut rng, Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 })
        }
        HostKeyKind::Rsa => RsaKeypair::random(&mut rng, 3072)
            .and_then(|pair| PrivateKey::new(KeypairData::from(pair), spec.name.clone())),
    }
    .map_err(failed)?;
    if let Some(path) = path {
        let text = key.to_openssh(LineEnding::LF).map_err(failed)?;
        files::replace(&path, text.as_bytes()).map_err(|source| FabricError::State { path, source })?;
    }
    Ok(key)
}

/// Returns a random password of 24 letters and digits.
fn random_password() -> String {
    use rand::distr::{Alphanumeric, SampleString as _};
    Alphanumeric.sample_string(&mut rand::rng(), 24)
}
