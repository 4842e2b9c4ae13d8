//! The client of the resolver.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::protocol::{
    ContainerId, MAX_RESPONSE_BYTES, NameError, PodUid, Reason, Refusal, Request, Resolved, Response,
};

/// Time limit of a request. Longer than the resolver's limit for the runtime, so that its error arrives.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A client of the resolver at a socket.
///
/// Each request has a connection of its own. Requests may be concurrent, and a restarted resolver is used by
/// the next one.
#[derive(Clone, Debug)]
pub struct Client {
    socket: Arc<Path>,
}

/// Why a pod's namespace is not known.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The resolver refused. [`Reason::retryable`] says whether a retry may help.
    #[error("pod {uid}: {message}")]
    Refused {
        /// The requested uid, or what is wrong with it.
        uid: String,
        /// The kind of refusal.
        reason: Reason,
        /// The message.
        message: String,
    },
    /// The resolver is missing, closed the connection, or timed out after 15 seconds. A retry may help.
    #[error("pod {uid}: asking the resolver at {}: {source}", socket.display())]
    Unreachable {
        /// The requested pod.
        uid: PodUid,
        /// The resolver's socket.
        socket: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The response is invalid, so that this is no resolver. A retry does not help.
    #[error("pod {uid}: the resolver at {} does not speak its protocol: {source}", socket.display())]
    InvalidResponse {
        /// The requested pod.
        uid: PodUid,
        /// The resolver's socket.
        socket: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
}

impl ResolveError {
    /// True when a retry may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused { reason, .. } => reason.retryable(),
            Self::Unreachable { .. } => true,
            Self::InvalidResponse { .. } => false,
        }
    }

    /// The resolver's reason, if it replied.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            Self::Unreachable { .. } | Self::InvalidResponse { .. } => None,
        }
    }

    fn bad_name(error: NameError) -> Self {
        Self::Refused { uid: "?".into(), reason: Reason::BadRequest, message: error.to_string() }
    }
}

impl Client {
    /// A client of the resolver at `socket`, which need not exist yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into().into() }
    }

    /// The namespace of the pod with this uid (`metadata.uid`). The PID is that of `container_id` (as the pod's
    /// status has it, `containerd://…`, or without the runtime's name), or of the sandbox.
    pub async fn resolve(&self, uid: &str, container_id: Option<&str>) -> Result<Resolved, ResolveError> {
        let pod = PodUid::parse(uid).map_err(ResolveError::bad_name)?;
        let container = container_id.map(ContainerId::parse).transpose().map_err(ResolveError::bad_name)?;
        let request = Request { pod, container };
        let answered = timeout(REQUEST_TIMEOUT, self.send_request(&request)).await;
        let uid = request.pod;
        let socket = || self.socket.to_path_buf();
        let line = match answered {
            Ok(Ok(line)) => line,
            Ok(Err(source)) => return Err(ResolveError::Unreachable { uid, socket: socket(), source }),
            Err(_) => {
                let source = io::Error::new(io::ErrorKind::TimedOut, "no answer");
                return Err(ResolveError::Unreachable { uid, socket: socket(), source });
            }
        };
        match serde_json::from_slice(&line) {
            Ok(Response::Resolved(resolved)) => Ok(resolved),
            Ok(Response::Refused(Refusal { reason, error })) => {
                Err(ResolveError::Refused { uid: uid.to_string(), reason, message: error })
            }
            Err(source) => Err(ResolveError::InvalidResponse { uid, socket: socket(), source }),
        }
    }

    async fn send_request(&self, request: &Request) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // A resolver that denies access may close before the request is written; its response is readable
        // nevertheless.
        let written = stream.write_all(&line).await;
        line.clear();
        let most = u64::try_from(MAX_RESPONSE_BYTES).unwrap_or(u64::MAX);
        match BufReader::new(stream).take(most).read_until(b'\n', &mut line).await {
            Ok(_) if line.ends_with(b"\n") => Ok(line),
            Ok(_) => Err(written.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(written.err().unwrap_or(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// Writes `answer` to one client and closes.
    fn fake_resolver(socket: &Path, answer: &'static str) {
        let listener = UnixListener::bind(socket).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let mut request = String::new();
                stream.read_line(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
    }

    #[tokio::test]
    async fn invalid_names_are_rejected_without_a_request() {
        let client = Client::new("/nonexistent");
        for (uid, container) in [("../x", None), ("a", Some("containerd://?"))] {
            let error = client.resolve(uid, container).await.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::BadRequest));
            assert!(!error.retryable() && !error.to_string().contains("../x"), "{error}");
        }
    }

    #[tokio::test]
    async fn missing_resolver_is_retryable() {
        let error = Client::new("/nonexistent/cri.sock").resolve("a", None).await.unwrap_err();
        assert!(error.retryable() && error.reason().is_none());
        assert!(
            error.to_string().starts_with("pod a: asking the resolver at /nonexistent/cri.sock: "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn disconnected_resolver_is_retryable() {
        let folder = tempfile::tempdir().unwrap();
        for (name, half) in [("none", ""), ("half", r#"{"path":"/run/netns/x","#)] {
            let socket = folder.path().join(name);
            fake_resolver(&socket, half);
            let error = Client::new(&socket).resolve("a", None).await.unwrap_err();
            assert!(matches!(error, ResolveError::Unreachable { .. }) && error.retryable(), "{error}");
        }
    }

    #[tokio::test]
    async fn answers() {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name| folder.path().join(name);
        fake_resolver(&socket("good"), "{\"path\":\"/run/netns/x\",\"inode\":1,\"device\":4}\n");
        let expected = Resolved { path: "/run/netns/x".into(), inode: 1, device: 4, pid: None };
        assert_eq!(Client::new(socket("good")).resolve("a", None).await.unwrap(), expected);

        fake_resolver(
            &socket("refusal"),
            "{\"error\":\"it uses the node's\",\"reason\":\"HostNetwork\",\"retryable\":false}\n",
        );
        let error = Client::new(socket("refusal")).resolve("a", None).await.unwrap_err();
        assert_eq!((error.reason(), error.retryable()), (Some(Reason::HostNetwork), false));
        assert_eq!(error.to_string(), "pod a: it uses the node's");

        fake_resolver(&socket("other"), "HTTP/1.1 400 Bad Request\n");
        let error = Client::new(socket("other")).resolve("a", None).await.unwrap_err();
        assert!(matches!(error, ResolveError::InvalidResponse { .. }) && !error.retryable(), "{error}");
    }
}
