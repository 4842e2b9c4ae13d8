//! Holds child processes: starts them with a log each, says when one ended by itself, stops them in order.

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

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// What is read of a log's end for an error, in bytes and in lines.
const TAIL_BYTES: u64 = 16 * 1024;
const TAIL_LINES: usize = 20;

/// A child can't be started or found.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// `setpriv` is what ties a child's life to ours.
    #[error("setpriv is not on PATH: install util-linux")]
    NoSetpriv,
    /// The name of a log file: letters, digits, `-`, `_` and `.`, not beginning with `.`.
    #[error("{name:?} can't be a child's name")]
    BadName {
        /// As it was given.
        name: String,
    },
    /// Names are unique among the children that run.
    #[error("a child named {name} runs already")]
    Taken {
        /// The name.
        name: String,
    },
    /// None runs under this name.
    #[error("no child named {name} runs")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The log or the program.
    #[error("{operation} {name} ({}): {source}", path.display())]
    Io {
        /// What failed.
        operation: &'static str,
        /// The child.
        name: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A child ended though nobody stopped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exited {
    /// Its name.
    pub name: String,
    /// How it ended, for people.
    pub status: String,
    /// The last lines that it wrote since it was started.
    pub log_tail: String,
}

impl fmt::Display for Exited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended ({})", self.name, self.status)?;
        if self.log_tail.is_empty() { Ok(()) } else { write!(f, ":\n{}", self.log_tail) }
    }
}

/// Child processes, in the order in which they were started. Dropped, it kills those that still run.
#[derive(Debug)]
pub struct Supervisor {
    logs: PathBuf,
    setpriv: PathBuf,
    children: Mutex<Vec<Running>>,
    /// What each child was started with last.
    commands: Mutex<BTreeMap<String, Command>>,
    exits: mpsc::UnboundedSender<Exited>,
    exited: tokio::sync::Mutex<mpsc::UnboundedReceiver<Exited>>,
}

/// What happens to a child whose owner is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tie {
    /// It is killed.
    Killed,
    /// Its standard input ends.
    Told,
}

#[derive(Debug)]
struct Running {
    name: String,
    pid: u32,
    signals: mpsc::UnboundedSender<Signal>,
    ended: watch::Receiver<bool>,
    task: AbortHandle,
}

impl Running {
    fn runs(&self) -> bool {
        !*self.ended.borrow()
    }
}

impl Supervisor {
    /// With a directory for the logs, which is made when it isn't there.
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

    /// Starts a program. Of the command its program (a path), arguments, environment and directory are used;
    /// both outputs are appended to the child's log.
    pub async fn spawn(&self, name: &str, command: Command) -> Result<(), SuperviseError> {
        self.spawn_tied(name, &command, Tie::Killed).await?;
        self.commands().insert(name.to_owned(), command);
        Ok(())
    }

    /// Starts a child that ended as [`Self::spawn`] did.
    pub async fn respawn(&self, name: &str) -> Result<(), SuperviseError> {
        let command = self.commands().remove(name);
        let command = command.ok_or_else(|| SuperviseError::Unknown { name: name.to_owned() })?;
        self.spawn(name, command).await
    }

    /// Like [`Self::spawn`], for a program that cleans up after itself: instead of being killed when this is dropped or
    /// this process dies, it finds the end of its standard input. It is to take back that the kernel kills it.
    pub(crate) async fn spawn_guardian(&self, name: &str, command: Command) -> Result<(), SuperviseError> {
        self.spawn_tied(name, &command, Tie::Told).await
    }

    async fn spawn_tied(&self, name: &str, command: &Command, tie: Tie) -> Result<(), SuperviseError> {
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
            let begin = log.metadata()?.len();
            Ok((log.try_clone()?, log, begin))
        };
        let (output, errors, begin) = open().map_err(failed("opening the log of", &path))?;
        let program = Path::new(command.get_program()).to_owned();
        let mut bound = spawner::bound(&self.setpriv, command, output.into(), errors.into());
        if tie == Tie::Told {
            bound.stdin(Stdio::piped()).kill_on_drop(false);
        }
        let mut child = spawner::spawn(bound).await.map_err(failed("starting", &program))?;

        let (signals, asked) = mpsc::unbounded_channel();
        let (ending, ended) = watch::channel(false);
        let pid = child.id().unwrap_or_default();
        let holder = Holder {
            name: name.to_owned(),
            log: path,
            begin,
            exits: self.exits.clone(),
            _input: child.stdin.take(),
        };
        let task = tokio::spawn(holder.hold(child, asked, ending)).abort_handle();
        let mut children = self.children();
        children.retain(Running::runs);
        children.push(Running { name: name.to_owned(), pid, signals, ended, task });
        Ok(())
    }

    /// The next child that ended by itself; each is told once.
    pub async fn exited(&self) -> Exited {
        match self.exited.lock().await.recv().await {
            Some(exited) => exited,
            // Not reached: the sender lives as long as this.
            None => future::pending().await,
        }
    }

    /// Stops one child: SIGTERM, and SIGKILL when it takes too long.
    pub async fn stop_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.end(name, Signal::SIGTERM).await
    }

    /// Kills one child as a crash would.
    pub async fn kill_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.end(name, Signal::SIGKILL).await
    }

    /// Stops a child where it stands, until [`Self::resume_child`].
    pub fn pause_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.signal(name, Signal::SIGSTOP)
    }

    /// Has a child go on that was paused.
    pub fn resume_child(&self, name: &str) -> Result<(), SuperviseError> {
        self.signal(name, Signal::SIGCONT)
    }

    /// Stops all children, the last one started first.
    pub async fn stop(&self) {
        let names: Vec<_> = self.children().iter().rev().map(|child| child.name.clone()).collect();
        for name in names {
            // An error says that it ended in the meantime.
            let _ = self.stop_child(&name).await;
        }
    }

    /// The process of a child that runs.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.children().iter().find(|child| child.name == name && child.runs()).map(|child| child.pid)
    }

    /// Where a child's log is.
    pub fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    async fn end(&self, name: &str, signal: Signal) -> Result<(), SuperviseError> {
        let found = self
            .children()
            .iter()
            .find(|child| child.name == name && child.runs())
            .map(|child| (child.signals.clone(), child.ended.clone()));
        let Some((signals, mut ended)) = found else {
            return Err(SuperviseError::Unknown { name: name.to_owned() });
        };
        // Sending and waiting fail only when the child is gone, which is what is wanted.
        let _ = signals.send(signal);
        if tokio::time::timeout(GRACE, ended.wait_for(|ended| *ended)).await.is_err() {
            tracing::warn!(child = name, "does not end, so it is killed");
            let _ = signals.send(Signal::SIGKILL);
            let _ = ended.wait_for(|ended| *ended).await;
        }
        Ok(())
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<(), SuperviseError> {
        let found = self.children().iter().find(|child| child.name == name && child.runs()).map(|child| {
            // Sending fails only when the child has just ended.
            let _ = child.signals.send(signal);
        });
        found.ok_or_else(|| SuperviseError::Unknown { name: name.to_owned() })
    }

    fn commands(&self) -> MutexGuard<'_, BTreeMap<String, Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn children(&self) -> MutexGuard<'_, Vec<Running>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for child in self.children().iter() {
            // It owns the process, which is killed when it is dropped.
            child.task.abort();
        }
    }
}

/// Owns one process. All signals go through it, so that none reaches a process that was reaped.
struct Holder {
    name: String,
    log: PathBuf,
    begin: u64,
    exits: mpsc::UnboundedSender<Exited>,
    /// Closed when this is dropped.
    _input: Option<ChildStdin>,
}

impl Holder {
    async fn hold(
        self,
        mut child: Child,
        mut asked: mpsc::UnboundedReceiver<Signal>,
        ending: watch::Sender<bool>,
    ) {
        let mut wanted = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                Some(signal) = asked.recv() => {
                    wanted |= !matches!(signal, Signal::SIGSTOP | Signal::SIGCONT);
                    if let Some(group) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
                        // ESRCH: it has just ended.
                        let _ = killpg(Pid::from_raw(group), signal);
                    }
                }
            }
        };
        ending.send_replace(true);
        if !wanted {
            let _ = self.exits.send(self.exited(status));
        }
    }

    fn exited(&self, status: io::Result<ExitStatus>) -> Exited {
        Exited {
            name: self.name.clone(),
            status: status.map_or_else(|error| error.to_string(), |status| status.to_string()),
            log_tail: tail(&self.log, self.begin).unwrap_or_else(|error| format!("no log: {error}")),
        }
    }
}

/// The last lines of a file, none from before `begin`.
fn tail(path: &Path, begin: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    file.seek(SeekFrom::Start(begin.max(end.saturating_sub(TAIL_BYTES))))?;
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
    async fn a_child_that_ends_by_itself_is_told_with_its_last_words() {
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
    async fn children_are_stopped_the_last_first_and_not_told() {
        let (directory, supervisor) = supervisor();
        let order = directory.path().join("order");
        for name in ["first", "second"] {
            let ready = directory.path().join(name);
            let mut command = sh(
                // A signal before `read` would be seen after it only; `wait` has no such gap.
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
    async fn killing_reaches_the_whole_group() {
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
        // It was signalled with its parent, and ends when it is scheduled. An orphan is a zombie until whoever
        // adopted it reaps it.
        let runs =
            || fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while runs() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn names_are_file_names_and_unique() {
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
