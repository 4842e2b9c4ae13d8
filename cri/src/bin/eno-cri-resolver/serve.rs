//! The resolver's socket: peer permissions and one request per line.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eno_cri::protocol::{MAX_REQUEST_BYTES, Reason, Refusal, Request, Resolved, Response};
use nix::sys::stat::{Mode, umask};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::resolve::Resolver;

/// Maximum concurrent connections. A further one takes the place of the one that is idle for the longest time, and waits
/// only if none is idle.
const MAX_CONNECTIONS: usize = 256;

/// Time after which an idle connection is closed, and time limit of writing a response.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The permitted clients, by the peer credentials of the socket.
#[derive(Clone, Debug)]
pub struct AllowedPeers {
    /// Users.
    pub uids: Vec<u32>,
    /// Primary groups.
    pub gids: Vec<u32>,
}

impl AllowedPeers {
    fn has(&self, uid: u32, gid: u32) -> bool {
        self.uids.contains(&uid) || self.gids.contains(&gid)
    }
}

/// Why the socket can't be opened. A retry may help once the cause is fixed.
#[derive(Debug, thiserror::Error)]
#[error("listening at {}: {source}", socket.display())]
pub struct ListenError {
    socket: PathBuf,
    source: io::Error,
}

/// A listening socket that is removed on drop.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            warn!(socket = %self.path.display(), %error, "the socket stays behind");
        }
    }
}

impl Socket {
    /// Listens at `path`, replacing a stale socket. User and `group` can connect, others can't. Sets the
    /// process's umask.
    pub fn bind(path: &Path, group: Option<u32>) -> Result<Self, ListenError> {
        let failed = |source| ListenError { socket: path.to_owned(), source };
        remove_stale(path).map_err(failed)?;
        // The umask prevents a wider mode at any time.
        umask(Mode::from_bits_truncate(0o117));
        let listener = UnixListener::bind(path).map_err(failed)?;
        let socket = Self { listener, path: path.to_owned() };
        if group.is_some() {
            std::os::unix::fs::chown(path, None, group).map_err(failed)?;
        }
        Ok(socket)
    }

    /// Serves until `shutdown`; requests in progress are completed.
    pub async fn serve(self, resolver: Resolver, allowed: AllowedPeers, shutdown: CancellationToken) {
        let resolver = Arc::new(resolver);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let idle = Arc::new(Idle::default());
        let connections = TaskTracker::new();
        let accept = async || -> io::Result<_> {
            let (stream, _) = self.listener.accept().await?;
            let mut place = pin!(places.clone().acquire_owned());
            let mut closed = places.available_permits() > 0;
            loop {
                closed = closed || idle.close_longest();
                tokio::select! {
                    place = &mut place => return Ok((place.map_err(io::Error::other)?, stream)),
                    () = idle.more.notified(), if !closed => {}
                }
            }
        };
        while let Some(accepted) = shutdown.run_until_cancelled(accept()).await {
            let (place, stream) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Most likely out of file descriptors, until connections end.
                    warn!(%error, "no connection accepted");
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            let (resolver, allowed, shutdown) = (resolver.clone(), allowed.clone(), shutdown.clone());
            let idle = idle.clone();
            connections.spawn(async move {
                if let Err(error) = serve_connection(stream, &resolver, &allowed, &idle, &shutdown).await {
                    debug!(%error, "a connection ended early");
                }
                drop(place);
            });
        }
        connections.close();
        connections.wait().await;
    }
}

/// Connections that wait for a request, in the order in which they began to wait.
#[derive(Debug, Default)]
struct Idle {
    since: Mutex<IdleSince>,
    /// Another connection waits.
    more: Notify,
}

#[derive(Debug, Default)]
struct IdleSince {
    last: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

impl Idle {
    /// Does `work`, which ends early when the connection has to close. `None`: it has.
    async fn wait<T>(&self, shutdown: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
        let close = shutdown.child_token();
        let place = {
            let mut all = self.lock();
            all.last += 1;
            let place = all.last;
            all.connections.insert(place, close.clone());
            place
        };
        self.more.notify_one();
        let done = close.run_until_cancelled(work).await;
        self.lock().connections.remove(&place);
        done
    }

    /// Closes the connection that waits for the longest time. False: none waits.
    fn close_longest(&self) -> bool {
        let longest = self.lock().connections.pop_first();
        longest.inspect(|(_, close)| close.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, IdleSince> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a stale socket. Any other file stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(io::Error::other("something is there that is no socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}

async fn serve_connection(
    stream: UnixStream,
    resolver: &Resolver,
    allowed: &AllowedPeers,
    idle: &Idle,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let mut stream = BufReader::new(stream);
    if !allowed.has(peer.uid(), peer.gid()) {
        warn!(uid = peer.uid(), gid = peer.gid(), pid = peer.pid(), "denied");
        let error = format!("user {} (group {}) may not ask", peer.uid(), peer.gid());
        return send_response(&mut stream, Err(Refusal::new(Reason::Denied, error))).await;
    }
    let mut line = Vec::with_capacity(MAX_REQUEST_BYTES);
    loop {
        line.clear();
        let next = timeout(IDLE_TIMEOUT, read_line(&mut stream, &mut line));
        match idle.wait(shutdown, next).await {
            // Shutdown, idle timeout, or another connection needs the place.
            None | Some(Err(_)) => return Ok(()),
            Some(Ok(read)) => match read? {
                Line::End => return Ok(()),
                Line::Whole => {}
                Line::Broken => {
                    let error = format!("a question is one line of at most {MAX_REQUEST_BYTES} bytes");
                    return send_response(&mut stream, Err(Refusal::new(Reason::BadRequest, error))).await;
                }
            },
        }
        match serde_json::from_slice::<Request>(&line) {
            Ok(request) => {
                let answer = resolver.resolve(&request).await;
                match &answer {
                    Ok(resolved) => {
                        debug!(pod = %request.pod, namespace = %resolved.path.display(), "resolved");
                    }
                    Err(Refusal { reason, error }) => {
                        debug!(pod = %request.pod, ?reason, error, "refused");
                    }
                }
                send_response(&mut stream, answer).await?;
            }
            Err(error) => send_response(&mut stream, Err(Refusal::new(Reason::BadRequest, error))).await?,
        }
    }
}

enum Line {
    Whole,
    /// The line is too long, or the connection ended within it.
    Broken,
    End,
}

async fn read_line(stream: &mut BufReader<UnixStream>, line: &mut Vec<u8>) -> io::Result<Line> {
    let most = u64::try_from(MAX_REQUEST_BYTES).unwrap_or(u64::MAX);
    stream.take(most).read_until(b'\n', line).await?;
    Ok(match line.last() {
        None => Line::End,
        Some(b'\n') => Line::Whole,
        Some(_) => Line::Broken,
    })
}

async fn send_response(
    stream: &mut BufReader<UnixStream>,
    answer: Result<Resolved, Refusal>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Response::from(answer))?;
    line.push(b'\n');
    timeout(IDLE_TIMEOUT, stream.write_all(&line)).await?
}
