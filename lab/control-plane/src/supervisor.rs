//! Supervises child processes: starts each with a log, reports unexpected exits, and stops them in order.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, future};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::spawner;

/// Grace period between SIGTERM and SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// Maximum bytes and lines of a log's end that an error contains.
const TAIL_BYTES: u64 = 16 * 1024;
const TAIL_LINES: usize = 20;

/// A child process can't be started or found.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// `setpriv`, which binds the life of children to this process, is missing.
    #[error("setpriv is not on PATH: install util-linux")]
    NoSetpriv,
    /// The name is not usable for a log file: letters, digits, `-`, `_` and `.`, not starting with `.`.
    #[error("{name:?} can't be a child's name")]
    BadName {
        /// The name.
        name: String,
    },
    /// A running child has the name already.
    #[error("a child named {name} runs already")]
    Taken {
        /// The name.
        name: String,
    },
    /// No running child has the name.
    #[error("no child named {name} runs")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The log can't be opened, or the program can't be started.
    #[error("{operation} {name} ({}): {source}", path.display())]
    Io {
        /// The failed operation.
        operation: &'static str,
        /// The child.
        name: String,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The unexpected exit of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exited {
    /// Its name.
    pub name: String,
    /// The exit status as text.
    pub status: String,
    /// The last lines of its output since its start.
    pub log_tail: String,
}

impl fmt::Display for Exited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended ({})", self.name, self.status)?;
        if self.log_tail.is_empty() { Ok(()) } else { write!(f, ":\n{}", self.log_tail) }
    }
}

/// Supervises child processes. Dropping it kills those that still run.
#[derive(Debug)]
pub struct Supervisor {
    /// Directory of the logs.
    logs: PathBuf,
    /// Path of `setpriv`.
    setpriv: PathBuf,
    /// The children in the order of their start.
    children: Mutex<Vec<RunningChild>>,
    /// The last command of each child.
    commands: Mutex<BTreeMap<String, Command>>,
    /// Sends unexpected exits.
    exits: mpsc::UnboundedSender<Exited>,
    /// Receives unexpected exits.
    exited: tokio::sync::Mutex<mpsc::UnboundedReceiver<Exited>>,
}

/// What happens to a child when its owner exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnOwnerExit {
    /// It is killed.
    Kill,
    /// Its standard input is closed.
    CloseStdin,
}

#[derive(Debug)]
struct RunningChild {
    name: String,
    pid: u32,
    signals: mpsc::UnboundedSender<Signal>,
    ended: watch::Receiver<bool>,
    task: AbortHandle,
}

impl RunningChild {
    fn is_running(&self) -> bool {
        !*self.ended.borrow()
    }
}

impl Supervisor {
    /// Creates a supervisor with a directory for logs, which is created if absent.
    pub fn new(logs: impl Into<PathBuf>) -> Result<Self, SuperviseError> {
        let logs = logs.into();
        fs::create_dir_all(&logs).map_err(|source| SuperviseError::Io {
            operation: "making the directory of logs for",
            name: "children".to_owned(),
            path: logs.clone(),
            source,
        })?;
        let (exits, exited) = mpsc::unbounded_channel();
        Ok(Self {
            logs,
            setpriv: spawner::setpriv().ok_or(SuperviseError::NoSetpriv)?,
            children: Mutex::default(),
            commands: Mutex::default(),
            exits,
            exited: tokio::sync::Mutex::new(exited),
        })
    }

    /// Starts a program with the path, arguments, environment and directory of `command`. Its output is appended to
    /// the child's log.
    pub async fn spawn(&self, name: &str, command: Command) -> Result<(), SuperviseError> {
        self.spawn_with(name, &command, OnOwnerExit::Kill).await?;
        self.commands().insert(name.to_owned(), command);
        Ok(())
    }

    /// Starts an ended child again with its last command.
    pub async fn respawn(&self, name: &str) -> Result<(), SuperviseError> {
        let command = self.commands().remove(name);
        let command = command.ok_or_else(|| SuperviseError::Unknown { name: name.to_owned() })?;
        self.spawn(name, command).await
    }

    /// Like [`Self::spawn`], for a program that cleans up at its end. When this is dropped or this process dies, its
    /// standard input is closed instead of killing it. The program must reset its parent death signal.
    pub(crate) async fn spawn_with_cleanup(
        &self,
        name: &str,
        command: Command,
    ) -> Result<(), SuperviseError> {
        self.spawn_with(name, &command, OnOwnerExit::CloseStdin).await
    }

    async fn spawn_with(
        &self,
        name: &str,
        command: &Command,
        on_owner_exit: OnOwnerExit,
    ) -> Result<(), SuperviseError> {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(valid) {
            return Err(SuperviseError::BadName { name: name.to_owned() });
        }
        if self.pid(name).is_some() {
            return Err(SuperviseError::Taken { name: name.to_owned() });
        }
        let path = self.log(name);
        let failed = |operation, path: &Path| {
            let (name, path) = (name.to_owned(), path.to_owned());
            move |source| SuperviseError::Io { operation, name, path, source }
        };
        let open = || {
            let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
            let log_offset = log.metadata()?.len();
            Ok((log.try_clone()?, log, log_offset))
        };
        let (output, errors, log_offset) = open().map_err(failed("opening the log of", &path))?;
        let program = Path::new(command.get_program()).to_owned();
        let mut bound = spawner::bind_to_process(&self.setpriv, command, output.into(), errors.into());
        if on_owner_exit == OnOwnerExit::CloseStdin {
            bound.stdin(Stdio::piped()).kill_on_drop(false);
        }
        let mut child = spawner::spawn(bound).await.map_err(failed("starting", &program))?;

        let (signals, requested_signals) = mpsc::unbounded_channel();
        let (ending, ended) = watch::channel(false);
        let pid = child.id().unwrap_or_default();
        let child_task = ChildTask {
            name: name.to_owned(),
            log: path,
            log_offset,
            exits: self.exits.clone(),
            _input: child.stdin.take(),
        };
        let task = tokio::spawn(child_task.run(child, requested_signals, ending)).abort_handle();
        let mut children = self.children();
        children.retain(RunningChild::is_running);
        children.push(RunningChild { name: name.to_owned(), pid, signals, ended, task });
        Ok(())
    }

    /// Waits for the next unexpected exit of a child. Each exit is reported once.
    pub async fn exited(&self) -> Exited {
        match self.exited.lock().await.recv().await {
            Some(exited) => exited,
            // Unreachable: `self` holds a sender.
            None => future::pending().await,
        }
    }

    /// Stops a child with SIGTERM, or SIGKILL after the grace period.
    pub async fn stop_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.terminate(name, Signal::SIGTERM).await
    }

    /// Kills a child with SIGKILL.
    pub async fn kill_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.terminate(name, Signal::SIGKILL).await
    }

    /// Suspends a child (SIGSTOP) until [`Self::resume_child`].
    pub fn pause_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.signal(name, Signal::SIGSTOP)
    }

    /// Resumes a suspended child (SIGCONT).
    pub fn resume_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.signal(name, Signal::SIGCONT)
    }

    /// Stops all children in reverse order of their start.
    pub async fn stop(&self) {
        let names: Vec<_> = self.children().iter().rev().map(|child| child.name.clone()).collect();
        for name in names {
            // Fails only if it has ended in the meantime.
            let _ = self.stop_child(&name).await;
        }
    }

    /// The process id of a running child.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.children().iter().find(|child| child.name == name && child.is_running()).map(|child| child.pid)
    }

    /// Path of a child's log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    async fn terminate(&self, name: &str, signal: Signal) -> Result<(), SuperviseError> {
        let found = self
            .children()
            .iter()
            .find(|child| child.name == name && child.is_running())
            .map(|child| (child.signals.clone(), child.ended.clone()));
        let Some((signals, mut ended)) = found else {
            return Err(SuperviseError::Unknown { name: name.to_owned() });
        };
        // Sending and waiting fail only if the child has ended.
        let _ = signals.send(signal);
        if tokio::time::timeout(GRACE_PERIOD, ended.wait_for(|ended| *ended)).await.is_err() {
            tracing::warn!(child = name, "does not end, so it is killed");
            let _ = signals.send(Signal::SIGKILL);
            let _ = ended.wait_for(|ended| *ended).await;
        }
        Ok(())
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<(), SuperviseError> {
        let found =
            self.children().iter().find(|child| child.name == name && child.is_running()).map(|child| {
                // Sending fails only if the child has just ended.
                let _ = child.signals.send(signal);
            });
        found.ok_or_else(|| SuperviseError::Unknown { name: name.to_owned() })
    }

    fn commands(&self) -> MutexGuard<'_, BTreeMap<String, Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn children(&self) -> MutexGuard<'_, Vec<RunningChild>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for child in self.children().iter() {
            // The task owns the process; dropping it kills the process.
            child.task.abort();
        }
    }
}

/// The task that owns a process. It sends all signals, so that none reaches a reaped process.
struct ChildTask {
    name: String,
    log: PathBuf,
    log_offset: u64,
    exits: mpsc::UnboundedSender<Exited>,
    /// The child's standard input; closed when this is dropped.
    _input: Option<ChildStdin>,
}

impl ChildTask {
    async fn run(
        self,
        mut child: Child,
        mut requested_signals: mpsc::UnboundedReceiver<Signal>,
        ending: watch::Sender<bool>,
    ) {
        let mut stop_requested = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                Some(signal) = requested_signals.recv() => {
                    stop_requested |= !matches!(signal, Signal::SIGSTOP | Signal::SIGCONT);
                    if let Some(group) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
                        // Fails with ESRCH if it has just ended.
                        let _ = killpg(Pid::from_raw(group), signal);
                    }
                }
            }
        };
        ending.send_replace(true);
        if !stop_requested {
            let _ = self.exits.send(self.exited(status));
        }
    }

    fn exited(&self, status: io::Result<ExitStatus>) -> Exited {
        Exited {
            name: self.name.clone(),
            status: status.map_or_else(|error| error.to_string(), |status| status.to_string()),
            log_tail: tail(&self.log, self.log_offset).unwrap_or_else(|error| format!("no log: {error}")),
        }
    }
}

/// Returns the last lines of a file after the offset `begin`.
fn tail(path: &Path, log_offset: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(log_offset.max(end.saturating_sub(TAIL_BYTES))))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn supervisor() -> (tempfile::TempDir, Supervisor) {
        let directory = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::new(directory.path().join("logs")).unwrap();
        (directory, supervisor)
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn unexpected_exit_is_reported_with_log_tail() {
        let (_directory, supervisor) = supervisor();
        fs::write(supervisor.log("one"), "from an earlier run\n").unwrap();
        supervisor.spawn("one", sh("echo no such thing >&2; exit 7")).await.unwrap();
        let exited = supervisor.exited().await;
        assert_eq!((exited.name.as_str(), exited.log_tail.as_str()), ("one", "no such thing"));
        assert!(exited.status.contains('7'), "{}", exited.status);
        assert!(supervisor.pid("one").is_none());
        supervisor.respawn("one").await.unwrap();
        assert_eq!(supervisor.exited().await, exited);
        assert!(matches!(supervisor.respawn("two").await, Err(SuperviseError::Unknown { .. })));
        supervisor.spawn("one", sh("exec tail -f /dev/null")).await.unwrap();
        supervisor.stop().await;
    }

    #[tokio::test]
    async fn stop_ends_children_in_reverse_order_without_reporting_exits() {
        let (directory, supervisor) = supervisor();
        let order = directory.path().join("order");
        for name in ["first", "second"] {
            let ready = directory.path().join(name);
            let mut command = sh(
                // `wait` returns on a signal; `read` would delay the trap.
                r#"trap 'echo "$NAME" >>"$ORDER"; exit 0' TERM; tail -f /dev/null & : >"$READY"; wait"#,
            );
            command.env("NAME", name).env("ORDER", &order).env("READY", &ready);
            supervisor.spawn(name, command).await.unwrap();
            while !ready.exists() {
                tokio::task::yield_now().await;
            }
        }
        supervisor.stop().await;
        assert_eq!(fs::read_to_string(order).unwrap(), "second\nfirst\n");
        assert!(supervisor.exited.lock().await.try_recv().is_err());
    }

    #[tokio::test]
    async fn kill_child_kills_the_process_group() {
        let (directory, supervisor) = supervisor();
        let grandchild = directory.path().join("pid");
        let mut command = sh(r#"tail -f /dev/null & echo $! >"$OUT.new"; mv "$OUT.new" "$OUT"; wait"#);
        command.env("OUT", &grandchild);
        supervisor.spawn("parent", command).await.unwrap();
        while !grandchild.exists() {
            tokio::task::yield_now().await;
        }
        let pid: u32 = fs::read_to_string(&grandchild).unwrap().trim().parse().unwrap();
        supervisor.kill_child("parent").await.unwrap();
        // The grandchild was signalled with its parent and ends when it is scheduled. It then is a zombie until its
        // new parent reaps it.
        let is_running =
            || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while is_running() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn spawn_refuses_invalid_and_duplicate_names() {
        let (_directory, supervisor) = supervisor();
        for name in ["", "../x", ".x", "a/b", "a b"] {
            let error = supervisor.spawn(name, sh("exit 0")).await.unwrap_err();
            assert!(matches!(error, SuperviseError::BadName { .. }), "{error}");
        }
        supervisor.spawn("a", sh("exec tail -f /dev/null")).await.unwrap();
        let error = supervisor.spawn("a", sh("exit 0")).await.unwrap_err();
        assert!(matches!(error, SuperviseError::Taken { .. }), "{error}");
        assert!(matches!(supervisor.stop_child("b").await, Err(SuperviseError::Unknown { .. })));
        supervisor.stop().await;
    }
}
