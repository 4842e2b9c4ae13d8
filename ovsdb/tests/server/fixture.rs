//! A private ovsdb-server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use eno_ovsdb::{
    Client, Condition, Endpoint, Error, MonitorRequest, Operation, Options, Outcome, Row, Transaction, Until,
    row,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub const DB: &str = "Test";

/// All columns of the table of most tests.
pub const COLUMNS: [&str; 11] =
    ["name", "count", "load", "on", "tag", "note", "trunks", "loads", "ids", "one", "parts"];

pub fn things() -> MonitorRequest {
    MonitorRequest::new().table("Thing", COLUMNS)
}

/// The columns of a row with this name.
pub fn named(name: &str) -> Row {
    row([("name", name.into())])
}

pub fn insert(name: &str) -> Transaction {
    Transaction::new().with(Operation::insert("Thing", named(name)))
}

/// Waits for a row with this name.
pub fn wait_for(name: &str) -> Operation {
    Operation::Wait {
        table: "Thing".into(),
        conditions: vec![Condition::equal("name", name)],
        columns: vec!["name".into()],
        until: Until::Equal,
        rows: vec![named(name)],
        timeout: None,
    }
}

/// The names in the database.
pub async fn all_named(client: &Client) -> Vec<Row> {
    let all = Transaction::new().with(Operation::select("Thing", [], ["name"]));
    client.transact(DB, &all).await.unwrap().rows(0).to_vec()
}

/// Runs a transaction in a task.
pub fn spawn(client: &Client, transaction: Transaction) -> JoinHandle<Result<Outcome, Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.transact(DB, &transaction).await })
}

pub struct Server {
    dir: TempDir,
    child: Option<Child>,
    extra: Vec<String>,
}

impl Server {
    /// A server with a database file.
    pub fn start() -> Self {
        Self::with(&["create"], &[], vec![])
    }

    /// A cluster of one server, whose transactions have ids.
    pub fn clustered() -> Self {
        Self::with(&["create-cluster"], &["unix:raft"], vec![])
    }

    /// A server with additional options.
    pub fn with_options(extra: Vec<String>) -> Self {
        Self::with(&["create"], &[], extra)
    }

    fn with(create: &[&str], local: &[&str], extra: Vec<String>) -> Self {
        let dir = TempDir::with_prefix("eno-ovsdb-").unwrap();
        let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/test.ovsschema");
        let created = program("ovsdb-tool")
            .current_dir(dir.path())
            .args(create)
            .arg(dir.path().join("db"))
            .arg(schema)
            .args(local)
            .status()
            .expect("ovsdb-tool is needed (Debian: openvswitch-switch)");
        assert!(created.success());
        let mut server = Self { dir, child: None, extra };
        server.resume();
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Restarts the server after [`kill`](Self::kill).
    pub fn resume(&mut self) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let child = program("ovsdb-server")
            .current_dir(self.dir.path())
            .args([path("db"), format!("--remote=punix:{}", path("sock"))])
            .args([format!("--unixctl={}", path("ctl")), format!("--log-file={}", path("log"))])
            .args(["--no-chdir", "-vconsole:off"])
            .args(&self.extra)
            .env("OVS_RUNDIR", self.dir.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ovsdb-server is needed (Debian: openvswitch-switch)");
        self.child = Some(child);
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.socket())
    }

    pub fn client(&self) -> Client {
        Client::new(self.endpoint(), options())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Generous limits for a busy machine.
pub fn options() -> Options {
    Options {
        connection_wait: Duration::from_secs(30),
        request_timeout: Duration::from_secs(30),
        max_backoff: Duration::from_millis(200),
        ..Options::default()
    }
}

fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Awaits a future within the time that a busy machine needs.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|late| panic!("{what} did not happen: {late}"))
}
