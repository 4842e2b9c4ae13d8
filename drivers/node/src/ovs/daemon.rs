//! ovs-vswitchd itself, as opposed to what its database says.
//!
//! The database does not know whether anybody does what it says: while nothing is to be changed, `cur_cfg` is as it
//! should be whether ovs-vswitchd runs or not. So it is asked for its version at the control socket that it makes
//! beside that of the database (ovs-appctl(8); JSON-RPC 1.0), and the connection is kept: when it ends, so has
//! ovs-vswitchd. Nothing is asked over and over.

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

/// How long an answer may take: ovs-vswitchd gives none while it changes many bridges.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer.
const MAX_ANSWER: usize = 4096;

const VERSION_REQUEST: &[u8] = br#"{"id":0,"method":"version","params":[]}"#;

/// Why it is taken not to do what the database says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DaemonError {
    /// Nobody is at its control socket.
    #[error("ovs-vswitchd does not run: nobody is at its control socket in {}", folder.display())]
    NotRunning {
        /// Where that is, or should be.
        folder: PathBuf,
    },
    /// It was asked and said nothing that can be understood.
    #[error("ovs-vswitchd does not answer at {}: {reason}", socket.display())]
    NoAnswer {
        /// Its control socket.
        socket: PathBuf,
        /// What was seen instead.
        reason: String,
    },
}

/// The ovs-vswitchd of one database.
#[derive(Debug)]
pub(super) struct Daemon {
    /// Where its files are; `None` where the database is reached over the network, which tells nothing of it.
    folder: Option<PathBuf>,
    /// It answered once, and has ended since.
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

    /// Tells when it has ended that answered last.
    pub(super) fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// It is of no interest until it is asked again.
    pub(super) fn stop_watching(&self) {
        self.watch_connection(None);
    }

    /// Asks it. Where it can't be found out whether it runs, it is taken to.
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
                    // It was left behind by one that was killed.
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {}
                    io::ErrorKind::PermissionDenied => return Ok(()),
                    _ => no_answer = Some((socket, error.to_string())),
                },
                Err(_) => {
                    no_answer = Some((socket, format!("nothing came within {} s", ANSWER_TIMEOUT.as_secs())))
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

    /// Waits for the end of this connection in place of the one before.
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

/// What daemons left in the folder of their database.
struct Files {
    /// Control sockets of ovs-vswitchd: `ovs-vswitchd.<pid>.ctl`, of those that were killed too.
    sockets: Vec<PathBuf>,
    /// If it ran there would be one of them: there has been one, or that of ovsdb-server is here and nothing says
    /// that the two were told different places.
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

/// Gives the connection once an answer has come.
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
    async fn it_is_missed_only_where_it_should_be() {
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
    async fn its_end_is_told() {
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
