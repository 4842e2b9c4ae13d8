//! `eno ui` as a program, and a browser that opens its pages.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{System, TIMEOUT};

/// Limit of one scenario, which its runner keeps.
const SCENARIO: Duration = Duration::from_mins(5);
/// Limit of the runner, with which it has the time to end the browser.
const RUNNER: Duration = Duration::from_secs(310);

/// How a console is started.
#[derive(Debug, Clone, Default)]
pub struct ConsoleOptions {
    /// The kubeconfig; absent: the administrator's.
    pub kubeconfig: Option<PathBuf>,
    /// Do not ask NATS.
    pub without_nats: bool,
    /// The file of a dump, in place of the cluster.
    pub from: Option<PathBuf>,
    /// The namespace of objects that name none.
    pub namespace: Option<String>,
}

/// A running `eno ui`. It ends when it is dropped.
pub struct Console {
    child: Child,
    /// The one-time URL.
    pub url: String,
    /// Where it listens, as `127.0.0.1:PORT`.
    pub host: String,
    errors: AbortOnDropHandle<String>,
}

impl System {
    /// Starts `eno ui`, and waits until it listens.
    pub async fn console(&self, options: &ConsoleOptions) -> Console {
        let info = self.sandbox.info();
        let mut command =
            Command::new(eno::programs::eno().expect("the program: cargo build --workspace --bins"));
        command.arg("ui").env("KUBECONFIG", options.kubeconfig.as_ref().unwrap_or(&info.kubeconfig));
        for name in ["ENO_NATS_URL", "ENO_NATS_CREDENTIALS", "ENO_NATS_CA"] {
            command.env_remove(name);
        }
        // No keys of other clusters.
        command.env("ENO_HOME", info.kubeconfig.with_file_name("no-contexts"));
        if !options.without_nats && options.from.is_none() {
            command.arg("--nats-url").arg(&info.nats_url);
            command.arg("--nats-credentials").arg(&info.nats_credentials);
        }
        if let Some(from) = &options.from {
            command.arg("--from").arg(from);
        }
        if let Some(namespace) = &options.namespace {
            command.args(["--namespace", namespace]);
        }
        Console::start(command).await
    }
}

impl Console {
    async fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("eno ui starts");
        let errors = read_all(child.stderr.take().expect("a pipe"));
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line =
            timeout(TIMEOUT, lines.next_line()).await.expect("eno ui prints its URL in time").expect("UTF-8");
        let Some(url) = line.as_deref().and_then(|line| line.strip_prefix("Open ")) else {
            panic!("eno ui printed {line:?}, and: {}", errors.await.unwrap_or_default());
        };
        let host = url.split('/').nth(2).expect("a host in the URL").to_owned();
        Self { child, url: url.to_owned(), host, errors }
    }

    /// The one-time token.
    pub fn token(&self) -> &str {
        self.url.split("token=").nth(1).expect("a token in the URL")
    }

    /// Ends it, and returns what it wrote to standard error.
    pub async fn stop(mut self) -> String {
        self.child.kill().await.expect("eno ui ends");
        self.errors.await.unwrap_or_default()
    }
}

/// The numbers that a scenario has measured, by name, in milliseconds.
pub type Figures = BTreeMap<String, f64>;

/// Runs a scenario of `console/test` on a console. `step` carries out what the scenario asks for: it gets the name of a
/// step and answers with JSON. Failures of the scenario panic, with its output.
pub async fn run_scenario(
    console: &Console,
    scenario: &str,
    input: &Value,
    step: impl AsyncFnMut(&str) -> Value,
) -> Figures {
    run_scenario_at(&console.url, scenario, input, step).await
}

/// Like [`run_scenario`], on the one-time URL of a console that a step may end.
pub async fn run_scenario_at(
    url: &str,
    scenario: &str,
    input: &Value,
    mut step: impl AsyncFnMut(&str) -> Value,
) -> Figures {
    install_packages();
    let mut command = Command::new("node");
    command
        .arg(folder().join("test/run.mjs"))
        .arg(scenario)
        .env("ENO_UI_URL", url)
        .env("ENO_SHOTS", shots())
        .env("ENO_INPUT", input.to_string())
        .env("ENO_LIMIT_MS", SCENARIO.as_millis().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().expect("node starts; `make deps` installs it");
    let errors = read_all(child.stderr.take().expect("a pipe"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut figures = Figures::new();
    let running = async {
        while let Some(asked) = next_step(scenario, &mut lines, &mut figures).await {
            let answer = step(&asked).await;
            // The runner may have failed meanwhile; its exit code tells.
            let _ = stdin.write_all(format!("done {answer}\n").as_bytes()).await;
        }
        child.wait().await.expect("node ends")
    };
    let status = timeout(RUNNER, running).await;
    let status = status.unwrap_or_else(|_| panic!("scenario {scenario} does not end"));
    let errors = errors.await.unwrap_or_default();
    assert!(status.success(), "scenario {scenario}:\n{errors}");
    figures
}

/// Reads the output of a scenario until it asks for a step; `None`: it ended.
async fn next_step(
    scenario: &str,
    lines: &mut Lines<BufReader<ChildStdout>>,
    figures: &mut Figures,
) -> Option<String> {
    while let Some(line) = lines.next_line().await.expect("UTF-8") {
        if let Some(name) = line.strip_prefix("STEP ") {
            return Some(name.to_owned());
        }
        if let Some((name, value)) = line.strip_prefix("FIGURE ").and_then(|rest| rest.split_once(' ')) {
            println!("{scenario}: {name}: {value} ms");
            figures.insert(name.to_owned(), value.parse().expect("a number"));
        }
    }
    None
}

fn read_all(mut from: impl AsyncRead + Unpin + Send + 'static) -> AbortOnDropHandle<String> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut bytes = Vec::new();
        // What was read until an error is shown.
        let _ = from.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }))
}

/// A proxy before the API server that delays each byte of its answers, as a far one does.
pub struct SlowProxy {
    /// A kubeconfig with the proxy as the server.
    pub kubeconfig: PathBuf,
    _dir: TempDir,
    _task: AbortOnDropHandle<()>,
}

impl SlowProxy {
    /// Starts it before the server of a kubeconfig.
    pub async fn start(kubeconfig: &Path, delay: Duration) -> Self {
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let mut config: Value = serde_saphyr::from_str(&text).expect("YAML");
        let server = config["clusters"][0]["cluster"]["server"].as_str().expect("a server").to_owned();
        let server = server.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    let (from_client, to_client) = client.into_split();
                    let Ok(connection) = TcpStream::connect(server).await else { return };
                    let (from_server, to_server) = connection.into_split();
                    tokio::join!(
                        copy_later(from_client, to_server, Duration::ZERO),
                        copy_later(from_server, to_client, delay)
                    );
                });
            }
        });
        config["clusters"][0]["cluster"]["server"] = format!("https://{address}").into();
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, config.to_string()).expect("a file");
        Self { kubeconfig: path, _dir: dir, _task: AbortOnDropHandle::new(task) }
    }
}

/// Copies bytes; each arrives this much later.
async fn copy_later(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut waiting) = mpsc::unbounded_channel();
    let reading = async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((at, bytes)) = waiting.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}

/// The folder `console` of the workspace.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").join("console")
}

/// The folder of screenshots.
fn shots() -> PathBuf {
    match std::env::var_os("ENO_SHOTS") {
        Some(folder) => PathBuf::from(folder),
        None => target().join("tmp/ui-shots"),
    }
}

/// The target directory, in which this program is.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    program.ancestors().nth(3).expect("target/debug/deps").to_owned()
}

/// Installs the packages of `console/package-lock.json`, unless they are there.
pub fn install_packages() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // Another test binary may be at it.
        let lock = std::fs::File::create(target().join("tmp/console.lock")).expect("a file");
        lock.lock().expect("a lock");
        if are_installed() {
            return;
        }
        let output = std::process::Command::new("npm")
            .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
            .current_dir(folder())
            .output()
            .expect("npm starts; `make deps` installs it");
        assert!(output.status.success(), "npm ci: {}", String::from_utf8_lossy(&output.stderr));
    });
}

/// The packages of a lock file, by their path, with their version and hash.
fn packages(file: &Path) -> Option<BTreeMap<String, Value>> {
    let lock: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let packages = lock["packages"].as_object()?.iter().filter(|(path, _)| !path.is_empty());
    Some(packages.map(|(path, package)| (path.clone(), package.clone())).collect())
}

/// True when `npm ci` would change nothing. npm lists in `node_modules` what it has installed. It leaves out optional
/// packages, which are of other platforms.
fn are_installed() -> bool {
    let wanted = packages(&folder().join("package-lock.json")).expect("console/package-lock.json");
    let Some(installed) = packages(&folder().join("node_modules/.package-lock.json")) else { return false };
    let is_same = |path: &String, wanted: &Value| match installed.get(path) {
        Some(found) => (&found["version"], &found["integrity"]) == (&wanted["version"], &wanted["integrity"]),
        None => wanted["optional"] == true,
    };
    wanted.iter().all(|(path, wanted)| is_same(path, wanted))
        && installed.keys().all(|path| wanted.contains_key(path))
}
