//! A nats-server for one test.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::{NatsUser, nats_keys, pick_port};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use eno_sbi::nats::{Connection, NatsArgs, connect};

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest message, and the space of all streams, as in `deploy/nats/nats.conf`.
const MAX_PAYLOAD: &str = "2MB";
const MAX_FILE_STORE: &str = "4GB";
const CONFIGURATION: &str = "nats.conf";

/// A real nats-server with JetStream on a free loopback port, with a data directory of its own. Dropping it
/// kills it and removes the data.
pub struct NatsServer {
    program: PathBuf,
    port: u16,
    data: TempDir,
    configuration: PathBuf,
    variables: Vec<(String, String)>,
    /// As whom [`Self::connect`] logs in.
    credentials: Option<PathBuf>,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Self {
        Self::with_store(MAX_FILE_STORE).await
    }

    /// Starts a server whose streams have this space, such as `64MB`.
    pub async fn with_store(max_file_store: &str) -> Self {
        let mut server = Self::new().await;
        let store = server.data.path();
        let limits = format!(
            "max_payload: {MAX_PAYLOAD}\njetstream {{ store_dir: {store:?}, max_file_store: {max_file_store} }}\n"
        );
        std::fs::write(&server.configuration, limits).expect("its configuration is written");
        server.restart().await;
        server
    }

    /// Starts a server with the configuration of `deploy/nats`: each user has a key, and his permissions.
    pub async fn with_users() -> Self {
        let mut server = Self::new().await;
        let keys = nats_keys(server.data.path()).expect("keys").into_iter();
        server.variables = keys.map(|(key, public)| (key.variable(), public)).collect();
        let store = server.data.path().display().to_string();
        let others = [("STORE_DIR", store), ("POD_NAME", "eno-nats-0".to_owned())];
        server.variables.extend(others.map(|(name, value)| (name.to_owned(), value)));
        server.configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/nats.conf");
        server.credentials = Some(server.seed_of(NatsUser::Admin));
        server.restart().await;
        server
    }

    async fn new() -> Self {
        let parts = Parts::from_env().expect("a cache for the parts");
        let program = parts.get(Part::NatsServer).await.expect("a nats-server");
        let port = pick_port().expect("a free port");
        let data = TempDir::new().expect("a directory for its data");
        let configuration = data.path().join(CONFIGURATION);
        Self { program, port, data, configuration, variables: Vec::new(), credentials: None, child: None }
    }

    /// The directory of the users' seeds.
    pub fn seeds(&self) -> &Path {
        self.data.path()
    }

    /// The file with the seed of a user.
    pub fn seed_of(&self, user: NatsUser) -> PathBuf {
        self.seeds().join(format!("{}.seed", user.name()))
    }

    /// Restarts the server with its data on the same port, killing it first if it runs.
    pub async fn restart(&mut self) {
        self.kill().await;
        let child = Command::new(&self.program)
            .args(["--addr", "127.0.0.1", "--port", &self.port.to_string(), "--http_port", "-1", "--config"])
            .arg(&self.configuration)
            .envs(self.variables.iter().cloned())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("nats-server starts");
        self.child = Some(child);
        // Else the client logs that nobody listens yet.
        let listening = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(START_TIMEOUT, listening).await.expect("nats-server listens within 30 s");
        self.connect("eno-wait").await;
    }

    /// Kills the server without an orderly shutdown.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("nats-server ends");
        }
    }

    /// Suspends or resumes the server: a suspended server keeps its connections and answers nothing.
    pub fn freeze(&self, frozen: bool) {
        let pid = self.child.as_ref().and_then(Child::id).expect("nats-server runs");
        let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(Pid::from_raw(pid.cast_signed()), signal).expect("nats-server takes a signal");
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's URL.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Flags of a client of this server.
    pub fn args(&self) -> NatsArgs {
        let nats_credentials = self.credentials.clone();
        NatsArgs { nats_url: self.url(), nats_credentials, nats_ca: None, nats_replicas: 1 }
    }

    /// A new connection of a user.
    pub async fn connect_as(&self, user: NatsUser, identity: &str) -> Connection {
        let args = NatsArgs { nats_credentials: Some(self.seed_of(user)), ..self.args() };
        let stop = CancellationToken::new();
        let connecting = connect(&args, identity, &stop);
        tokio::time::timeout(START_TIMEOUT, connecting).await.expect("it is let in").expect("valid flags")
    }

    /// A new connection.
    pub async fn connect(&self, identity: &str) -> Connection {
        let connecting = async {
            let connection =
                connect(&self.args(), identity, &CancellationToken::new()).await.expect("valid flags");
            while connection.jetstream.query_account().await.is_err() {
                tokio::task::yield_now().await;
            }
            connection
        };
        tokio::time::timeout(START_TIMEOUT, connecting).await.expect("nats-server answers within 30 s")
    }
}
