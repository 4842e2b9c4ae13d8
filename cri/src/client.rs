//! Asking the resolver.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::protocol::{
    Answer, ContainerId, MAX_ANSWER, NameError, PodUid, Question, Reason, Refusal, Resolved,
};

/// Longer than the resolver waits for the runtime, so that its word is heard.
const PATIENCE: Duration = Duration::from_secs(15);

/// Asks the resolver at a socket.
///
/// Each question has a connection of its own: any number go at once, and a resolver that was started again is simply
/// the next one asked.
#[derive(Clone, Debug)]
pub struct Client {
    socket: Arc<Path>,
}

/// Why a pod's namespace is not known.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The resolver's word. [`Reason::retryable`] says whether a retry may help.
    #[error("pod {uid}: {message}")]
    Refused {
        /// As asked, or what is wrong with it.
        uid: String,
        /// The kind.
        reason: Reason,
        /// For people.
        message: String,
    },
    /// No resolver there, or it went away or said nothing for 15 seconds. A retry may help.
    #[error("pod {uid}: asking the resolver at {}: {source}", socket.display())]
    Unreachable {
        /// As asked.
        uid: PodUid,
        /// Where.
        socket: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What answered is no resolver. A retry doesn't help.
    #[error("pod {uid}: the resolver at {} does not speak its protocol: {source}", socket.display())]
    Garbled {
        /// As asked.
        uid: PodUid,
        /// Where.
        socket: PathBuf,
        /// Where it departs from it.
        source: serde_json::Error,
    },
}

impl ResolveError {
    /// Whether a retry may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused { reason, .. } => reason.retryable(),
            Self::Unreachable { .. } => true,
            Self::Garbled { .. } => false,
        }
    }

    /// The resolver's reason, if it answered.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            Self::Unreachable { .. } | Self::Garbled { .. } => None,
        }
    }

    fn bad_name(error: NameError) -> Self {
        Self::Refused { uid: "?".into(), reason: Reason::BadRequest, message: error.to_string() }
    }
}

impl Client {
    /// Of the resolver at `socket`, which need not be there yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into().into() }
    }

    /// The namespace of the pod with this uid (`metadata.uid`). The PID is that of `container_id` (as the pod's
    /// status has it, `containerd://…`, or without the runtime's name), or of the sandbox.
    pub async fn resolve(&self, uid: &str, container_id: Option<&str>) -> Result<Resolved, ResolveError> {
        let pod = PodUid::parse(uid).map_err(ResolveError::bad_name)?;
        let container = container_id.map(ContainerId::parse).transpose().map_err(ResolveError::bad_name)?;
        let question = Question { pod, container };
        let answered = timeout(PATIENCE, self.ask(&question)).await;
        let uid = question.pod;
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
            Ok(Answer::Resolved(resolved)) => Ok(resolved),
            Ok(Answer::Refused(Refusal { reason, error })) => {
                Err(ResolveError::Refused { uid: uid.into(), reason, message: error })
            }
            Err(source) => Err(ResolveError::Garbled { uid, socket: socket(), source }),
        }
    }

    async fn ask(&self, question: &Question) -> io::Result<Vec<u8>> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        // One that denies us may have closed its end already; what it said is there to be read all the same.
        let written = stream.write_all(&line).await;
        line.clear();
        let most = u64::try_from(MAX_ANSWER).unwrap_or(u64::MAX);
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

    /// Says `answer` to whoever asks and closes.
    fn resolver_that_says(socket: &Path, answer: &'static str) {
        let listener = UnixListener::bind(socket).unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let mut question = String::new();
                stream.read_line(&mut question).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
    }

    #[tokio::test]
    async fn names_are_checked_before_anyone_is_asked() {
        let client = Client::new("/nonexistent");
        for (uid, container) in [("../x", None), ("a", Some("containerd://?"))] {
            let error = client.resolve(uid, container).await.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::BadRequest));
            assert!(!error.retryable() && !error.to_string().contains("../x"), "{error}");
        }
    }

    #[tokio::test]
    async fn nobody_there_is_worth_a_retry() {
        let error = Client::new("/nonexistent/cri.sock").resolve("a", None).await.unwrap_err();
        assert!(error.retryable() && error.reason().is_none());
        assert!(
            error.to_string().starts_with("pod a: asking the resolver at /nonexistent/cri.sock: "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_resolver_that_goes_away_is_worth_a_retry() {
        let folder = tempfile::tempdir().unwrap();
        for (name, half) in [("none", ""), ("half", r#"{"path":"/run/netns/x","#)] {
            let socket = folder.path().join(name);
            resolver_that_says(&socket, half);
            let error = Client::new(&socket).resolve("a", None).await.unwrap_err();
            assert!(matches!(error, ResolveError::Unreachable { .. }) && error.retryable(), "{error}");
        }
    }

    #[tokio::test]
    async fn answers() {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name| folder.path().join(name);
        resolver_that_says(&socket("good"), "{\"path\":\"/run/netns/x\",\"inode\":1,\"device\":4}\n");
        let expected = Resolved { path: "/run/netns/x".into(), inode: 1, device: 4, pid: None };
        assert_eq!(Client::new(socket("good")).resolve("a", None).await.unwrap(), expected);

        resolver_that_says(
            &socket("refusal"),
            "{\"error\":\"it uses the node's\",\"reason\":\"HostNetwork\",\"retryable\":false}\n",
        );
        let error = Client::new(socket("refusal")).resolve("a", None).await.unwrap_err();
        assert_eq!((error.reason(), error.retryable()), (Some(Reason::HostNetwork), false));
        assert_eq!(error.to_string(), "pod a: it uses the node's");

        resolver_that_says(&socket("other"), "HTTP/1.1 400 Bad Request\n");
        let error = Client::new(socket("other")).resolve("a", None).await.unwrap_err();
        assert!(matches!(error, ResolveError::Garbled { .. }) && !error.retryable(), "{error}");
    }
}
