//! The container runtime, over its socket.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eno_cri::protocol::{ContainerId, PodUid};
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::wire::{
    ContainerStatusRequest, ContainerStatusResponse, ListPodSandboxRequest, ListPodSandboxResponse,
    PodSandbox, PodSandboxFilter, PodSandboxStateValue, PodSandboxStatusRequest, PodSandboxStatusResponse,
    SANDBOX_READY,
};

/// The label by which kubelet marks a sandbox with its pod's uid.
pub const POD_UID: &str = "io.kubernetes.pod.uid";

/// What kubelet allows an answer to have.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// A runtime's CRI. One connection serves all questions; a lost one is made again with the next.
#[derive(Clone, Debug)]
pub struct Runtime(Channel);

/// Why the runtime doesn't tell.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// It knows no such object.
    #[error("{0}")]
    NotFound(String),
    /// It has no such call: it is too old, or its CRI is switched off. A retry doesn't help.
    #[error("the runtime does not speak CRI v1: {0}")]
    Unsupported(String),
    /// It is not there, restarts, or took too long. A retry may help.
    #[error("{0}")]
    Unavailable(String),
}

impl From<Status> for RuntimeError {
    fn from(status: Status) -> Self {
        // A transport's error says the most in its innermost source.
        let mut innermost = status.source();
        while let Some(deeper) = innermost.and_then(std::error::Error::source) {
            innermost = Some(deeper);
        }
        let text = match innermost {
            Some(source) => format!("the runtime: {source}"),
            None => format!("the runtime: {}", status.message()),
        };
        match status.code() {
            Code::NotFound => Self::NotFound(text),
            Code::Unimplemented => Self::Unsupported(text),
            // Also what runtimes say while they start or stop is of many codes; none is an answer.
            _ => Self::Unavailable(text),
        }
    }
}

/// The first socket at which someone listens.
async fn connect(sockets: &[PathBuf]) -> io::Result<TokioIo<UnixStream>> {
    let mut failures = Vec::new();
    for socket in sockets {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(TokioIo::new(stream)),
            Err(error) => failures.push(format!("{}: {error}", socket.display())),
        }
    }
    Err(io::Error::new(io::ErrorKind::NotConnected, format!("nobody listens at {}", failures.join(", "))))
}

impl Runtime {
    /// The one that listens at the first of `sockets` where anyone does, looked for anew at each connection. No call
    /// takes longer than `patience`.
    pub fn new(sockets: impl Into<Arc<[PathBuf]>>, patience: Duration) -> Self {
        let sockets = sockets.into();
        let connector = tower::service_fn(move |_: Uri| {
            let sockets = sockets.clone();
            async move { connect(&sockets).await }
        });
        // The authority is not looked at on a unix socket.
        let endpoint = Endpoint::from_static("http://cri").connect_timeout(patience).timeout(patience);
        Self(endpoint.connect_with_connector_lazy(connector))
    }

    async fn call<Q, A>(&self, method: &'static str, question: Q) -> Result<A, RuntimeError>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(MAX_MESSAGE);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(Request::new(question), PathAndQuery::from_static(method), codec).await?;
        Ok(answer.into_inner())
    }

    /// The ready sandboxes, of one pod or of all.
    pub async fn ready_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<PodSandbox>, RuntimeError> {
        let filter = PodSandboxFilter {
            state: Some(PodSandboxStateValue { state: SANDBOX_READY }),
            label_selector: pod.map(|pod| (POD_UID.to_owned(), pod.to_string())).into_iter().collect(),
        };
        let question = ListPodSandboxRequest { filter: Some(filter) };
        let answer: ListPodSandboxResponse =
            self.call("/runtime.v1.RuntimeService/ListPodSandbox", question).await?;
        Ok(answer.items)
    }

    /// A sandbox's verbose status.
    pub async fn sandbox(&self, id: &str) -> Result<PodSandboxStatusResponse, RuntimeError> {
        let question = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        self.call("/runtime.v1.RuntimeService/PodSandboxStatus", question).await
    }

    /// A container's verbose status.
    pub async fn container(&self, id: &ContainerId) -> Result<ContainerStatusResponse, RuntimeError> {
        let question = ContainerStatusRequest { container_id: id.to_string(), verbose: true };
        self.call("/runtime.v1.RuntimeService/ContainerStatus", question).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn nobody_listens() {
        let sockets = [PathBuf::from("/nonexistent/a.sock"), PathBuf::from("/nonexistent/b.sock")];
        let runtime = Runtime::new(sockets, Duration::from_secs(5));
        let error = runtime.ready_sandboxes(None).await.unwrap_err();
        let RuntimeError::Unavailable(text) = error else { panic!("{error:?}") };
        assert!(text.contains("/nonexistent/a.sock: No such file") && text.contains("b.sock"), "{text}");
    }

    #[tokio::test]
    async fn a_runtime_that_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mute.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let runtime = Runtime::new([socket], Duration::from_millis(50));
        let error = runtime.ready_sandboxes(None).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Unavailable(_)), "{error:?}");
    }
}
