//! The network namespace of the data plane, held by a thread that starts all programs in it.
//!
//! Only this thread and its programs hold the namespace. The kernel kills the programs when the thread ends. So
//! nothing of the data plane survives the process, even after `kill -9`. The kernel deletes a veth pair with the
//! namespace of one end: interfaces in other namespaces disappear as well.

use std::env;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use nix::sched::{CloneFlags, setns, unshare};
use tokio::sync::oneshot;

use crate::dataplane::DataPlaneError;

type Job = Box<dyn FnOnce() + Send>;

/// The Debian package of each program, for error messages.
const PACKAGES: [(&str, &str); 12] = [
    ("bfdd", "frr"),
    ("bgpd", "frr"),
    ("ethtool", "ethtool"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovsdb-server", "openvswitch-switch"),
    ("ovsdb-tool", "openvswitch-switch"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("zebra", "frr"),
];

/// The thread and its namespace.
#[derive(Debug)]
pub(super) struct NetworkNamespace {
    jobs: mpsc::Sender<Job>,
    netns: File,
}

impl NetworkNamespace {
    /// Creates the namespace. It contains only the interface `lo`, which is down.
    pub(super) async fn new() -> Result<Self, DataPlaneError> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let (reply, response) = oneshot::channel();
        let thread_main = move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(io::Error::from)
                .and_then(|()| File::open("/proc/thread-self/ns/net"));
            // Fails only if the start was cancelled; then no jobs follow.
            let _ = reply.send(entered);
            for job in waiting {
                job();
            }
        };
        let failed = |source| DataPlaneError::Namespace { source };
        std::thread::Builder::new().name("data-plane".to_owned()).spawn(thread_main).map_err(failed)?;
        let netns = response.await.map_err(|_| failed(thread_ended()))?.map_err(failed)?;
        Ok(Self { jobs, netns })
    }

    /// Path of the namespace, valid during the lifetime of this value.
    pub(super) fn netns(&self) -> PathBuf {
        path_of(&self.netns)
    }

    /// Runs commands of ip(8) in the namespace, or in `inside`, to the first error.
    pub(super) async fn ip(&self, inside: Option<&File>, commands: &[String]) -> Result<(), DataPlaneError> {
        if commands.is_empty() {
            return Ok(());
        }
        let failed = |source| DataPlaneError::Start { program: "ip", source };
        let mut command = Command::new(find_program("ip")?);
        command.args(["-batch", "-"]).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let text = commands.join("\n") + "\n";
        let run = move || {
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // It stops reading at an error, which its status tells.
                let _ = stdin.write_all(text.as_bytes());
            }
            child.wait_with_output()
        };
        let output = match inside {
            None => self.run_on_thread(run).await,
            Some(netns) => run_inside(netns, run).await,
        };
        let output = output.map_err(failed)?;
        if output.status.success() {
            return Ok(());
        }
        Err(DataPlaneError::Failed {
            command: format!("ip {}", commands.join("; ")).chars().take(200).collect(),
            status: output.status.to_string(),
            errors: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    /// Runs a program in the namespace to its end and returns its standard error. A failure status is an error.
    pub(super) async fn run(&self, program: &'static str, args: &[&str]) -> Result<String, DataPlaneError> {
        let mut command = Command::new(find_program(program)?);
        command.args(args).stdin(Stdio::null()).env("LC_ALL", "C");
        let output = self
            .run_on_thread(move || command.output())
            .await
            .map_err(|source| DataPlaneError::Start { program, source })?;
        let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() {
            return Ok(errors);
        }
        // Truncate: a change of many ports has a long command line.
        let command: String = format!("{program} {}", args.join(" ")).chars().take(200).collect();
        Err(DataPlaneError::Failed { command, status: output.status.to_string(), errors })
    }

    /// Starts a daemon in the namespace. It is killed with this process. Its output goes to `log`.
    pub(super) async fn spawn(
        &self,
        program: &'static str,
        args: &[String],
        envs: &[(&'static str, PathBuf)],
        log: File,
    ) -> Result<Daemon, DataPlaneError> {
        let failed = |source| DataPlaneError::Start { program, source };
        let mut command = Command::new(find_program("setpriv")?);
        command.args(["--pdeathsig", "KILL", "--"]).arg(find_program(program)?).args(args);
        command.envs(envs.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(failed)?).stderr(log);
        let child = self.run_on_thread(move || command.spawn()).await.map_err(failed)?;
        Ok(Daemon { child })
    }

    async fn run_on_thread<T: Send + 'static>(
        &self,
        start: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (reply, response) = oneshot::channel();
        let job = move || {
            // If the caller was cancelled, this drops the child.
            let _ = reply.send(start());
        };
        self.jobs.send(Box::new(job)).map_err(|_| thread_ended())?;
        response.await.map_err(|_| thread_ended())?
    }
}

/// Path of a namespace, valid while the file is open.
pub(super) fn path_of(netns: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), netns.as_raw_fd()).into()
}

/// Creates a further namespace. It ends when the file is closed. `set_up` runs in it.
pub(super) async fn create(
    set_up: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<File, DataPlaneError> {
    let made = run_on_new_thread(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        set_up()?;
        File::open("/proc/thread-self/ns/net")
    });
    made.await.map_err(|source| DataPlaneError::Namespace { source })
}

/// Runs a function in a namespace.
async fn run_inside<T: Send + 'static>(
    netns: &File,
    run: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let netns = netns.try_clone()?;
    run_on_new_thread(move || {
        setns(netns, CloneFlags::CLONE_NEWNET)?;
        run()
    })
    .await
}

/// Runs a function on a thread of its own, which ends with it: it may enter a namespace.
async fn run_on_new_thread<T: Send + 'static>(
    run: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (reply, response) = oneshot::channel();
    let work = move || {
        // Fails only if the caller was cancelled.
        let _ = reply.send(run());
    };
    std::thread::Builder::new().name("namespace".to_owned()).spawn(work)?;
    response.await.map_err(|_| thread_ended())?
}

fn thread_ended() -> io::Error {
    io::Error::other("the thread of the data plane is gone")
}

/// A running daemon; dropping it kills the daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
}

impl Daemon {
    /// The exit status as text; `None` while it runs.
    pub(super) fn exit_status(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only if it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds a program on `PATH` and in the system directories, which the `PATH` of some users lacks.
pub(super) fn find_program(program: &'static str) -> Result<PathBuf, DataPlaneError> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/lib/frr"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path: &PathBuf| Path::is_file(path))
        .ok_or_else(|| {
            let package = PACKAGES.iter().find(|(name, _)| *name == program).map_or(program, |(_, p)| p);
            DataPlaneError::NoProgram { program, package }
        })
}
