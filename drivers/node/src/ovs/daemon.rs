//! Liveness of ovs-vswitchd.
//!
//! The database does not show whether ovs-vswitchd runs: without changes `cur_cfg` equals `next_cfg` in either case. So
//! ovs-vswitchd is asked for its version at its control socket beside that of the database (ovs-appctl(8), JSON-RPC
//! 1.0). The connection is kept open: its end shows the end of ovs-vswitchd, so nothing is polled.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eno_ovsdb::Endpoint;
use serde::de::IgnoredAny;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Maximum time for an answer. ovs-vswitchd does not answer while it changes many bridges.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes of an answer.
const MAX_ANSWER: usize = 4096;

const VERSION_REQUEST: &[u8] = br#"{"id":0,"method":"version","params":[]}"#;

/// Why ovs-vswitchd is considered not to apply the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DaemonError {
    /// There is no process at its control socket.
    #[error("ovs-vswitchd does not run: nobody is at its control socket in {}", folder.display())]
    NotRunning {
        /// The folder of the control socket.
        folder: PathBuf,
    },
    /// It gave no valid answer.
    #[error("ovs-vswitchd does not answer at {}: {reason}", socket.display())]
    NoAnswer {
        /// Its control socket.
        socket: PathBuf,
        /// The error.
        reason: String,
    },
}

/// The ovs-vswitchd of one database.
#[derive(Debug)]
pub(super) struct Daemon {
    /// The folder of its files; `None` for a database over the network, where ovs-vswitchd can't be checked.
    folder: Option<PathBuf>,
    /// True when it has answered and ended since.
    ended: watch::Sender<bool>,
    watcher: Mutex<Option<AbortHandle>>,
}

impl Daemon {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let folder = match endpoint {
            Endpoint::Unix(socket) => socket.parent().map(Path::to_owned),
            Endpoint::Tcp { .. } | Endpoint::Tls { .. } => None,
        };
        Self { folder, ended: watch::Sender::new(false), watcher: Mutex::default() }
    }

    /// Becomes true when the process that answered last has ended.
    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Stops watching for its end until the next check.
    pub(super) fn stop_watching(&self) {
        self.watch_connection(None);
    }

    /// Checks that it answers. It counts as running where that can't be checked.
    pub(super) async fn check(&self) -> Result<(), DaemonError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let found = Files::read(folder);
        let mut no_answer = None;
        for socket in &found.sockets {
            match tokio::time::timeout(ANSWER_TIMEOUT, query_version(socket)).await {
                Ok(Ok(connection)) => {
                    self.watch_connection(Some(connection));
                    return Ok(());
                }
                Ok(Err(error)) => match error.kind() {
                    // A killed process left the socket behind.
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {}
                    io::ErrorKind::PermissionDenied => return Ok(()),
                    _ => no_answer = Some((socket, error.to_string())),
                },
                Err(_) => {
                    no_answer = Some((socket, format!("nothing came within {} s", ANSWER_TIMEOUT.as_secs())));
                }
            }
        }
        match no_answer {
            Some((socket, reason)) => Err(DaemonError::NoAnswer { socket: socket.clone(), reason }),
            None if found.is_expected || *self.ended.borrow() => {
                Err(DaemonError::NotRunning { folder: folder.clone() })
            }
            None => Ok(()),
        }
    }

    /// Watches for the end of this connection instead of the previous one.
    fn watch_connection(&self, connection: Option<UnixStream>) {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = watcher.take() {
            before.abort();
        }
        self.ended.send_replace(false);
        *watcher = connection.map(|mut connection| {
            let ended = self.ended.clone();
            let wait = async move {
                let mut rest = [0; 64];
                while connection.read(&mut rest).await.is_ok_and(|read| read > 0) {}
                ended.send_replace(true);
            };
            tokio::spawn(wait).abort_handle()
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop_watching();
    }
}

/// The files of Open vSwitch's daemons in the folder of the database.
struct Files {
    /// Control sockets of ovs-vswitchd (`ovs-vswitchd.<pid>.ctl`), including those of killed processes.
    sockets: Vec<PathBuf>,
    /// True when a running ovs-vswitchd would have its control socket here. This holds if there is such a socket, or if
    /// there is that of ovsdb-server and no `ovs-vswitchd.pid` shows that the two have different folders.
    is_expected: bool,
}

impl Files {
    fn read(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        let control = |name: &&String, program: &str| {
            let pid = name.strip_prefix(program).and_then(|rest| rest.strip_suffix(".ctl"));
            pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let sockets: Vec<PathBuf> = names
            .iter()
            .filter(|name| control(name, "ovs-vswitchd."))
            .map(|name| folder.join(name))
            .collect();
        let database = names.iter().any(|name| control(&name, "ovsdb-server."));
        let elsewhere = names.iter().any(|name| name == "ovs-vswitchd.pid");
        Self { is_expected: !sockets.is_empty() || (database && !elsewhere), sockets }
    }
}

/// Queries the version, and returns the connection after the answer.
async fn query_version(socket: &Path) -> io::Result<UnixStream> {
    let mut connection = UnixStream::connect(socket).await?;
    connection.write_all(VERSION_REQUEST).await?;
    let mut answer = Vec::new();
    loop {
        if connection.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match serde_json::Deserializer::from_slice(&answer).into_iter::<IgnoredAny>().next() {
            Some(Ok(_)) => return Ok(connection),
            Some(Err(error)) if !error.is_eof() || answer.len() > MAX_ANSWER => return Err(error.into()),
            Some(Err(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    fn daemon(folder: &Path) -> Daemon {
        Daemon::of(&Endpoint::Unix(folder.join("db.sock")))
    }

    #[tokio::test]
    async fn missing_daemon_is_reported_only_where_its_socket_is_expected() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let gone = Err(DaemonError::NotRunning { folder: folder.path().to_owned() });
        assert_eq!(daemon.check().await, Ok(()));
        std::fs::write(folder.path().join("ovsdb-server.7.ctl"), "").unwrap();
        assert_eq!(daemon.check().await, gone);
        std::fs::write(folder.path().join("ovs-vswitchd.pid"), "8\n").unwrap();
        assert_eq!(daemon.check().await, Ok(()), "its control socket is elsewhere");
        drop(UnixListener::bind(folder.path().join("ovs-vswitchd.8.ctl")).unwrap());
        assert_eq!(daemon.check().await, gone);
        assert_eq!(Daemon::of(&"tcp:192.0.2.1:6640".parse().unwrap()).check().await, Ok(()));
    }

    #[tokio::test]
    async fn end_of_daemon_is_notified() {
        let folder = tempfile::tempdir().unwrap();
        let daemon = daemon(folder.path());
        let mut ended = daemon.ended();
        let socket = folder.path().join("ovs-vswitchd.9.ctl");
        let watcher = UnixListener::bind(&socket).unwrap();
        let answer_with = async |answer: &[&[u8]]| {
            let (mut connection, _) = watcher.accept().await.unwrap();
            let mut question = [0; VERSION_REQUEST.len()];
            connection.read_exact(&mut question).await.unwrap();
            for part in answer {
                connection.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
            connection
        };
        let (checked, connection) =
            tokio::join!(daemon.check(), answer_with(&[br#"{"error":null,"id":0,"#, br#""result":"3"}"#]));
        assert_eq!(checked, Ok(()));
        assert!(!*ended.borrow_and_update());
        drop(connection);
        assert!(*ended.wait_for(|ended| *ended).await.unwrap());
        let (checked, _) = tokio::join!(daemon.check(), answer_with(&[b"what?"]));
        assert!(matches!(checked, Err(DaemonError::NoAnswer { .. })), "{checked:?}");
        std::fs::remove_file(&socket).unwrap();
        assert!(matches!(daemon.check().await, Err(DaemonError::NotRunning { .. })), "it ended in peace");
        daemon.stop_watching();
        assert_eq!(daemon.check().await, Ok(()));
    }
}
