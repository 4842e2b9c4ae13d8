//! A client of the container runtime's socket.

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

/// The label with the pod's uid that kubelet puts on a sandbox.
pub const POD_UID: &str = "io.kubernetes.pod.uid";

/// Maximum bytes of a response; kubelet's limit.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// The runtime's CRI. All requests share one connection, which is reconnected on demand.
#[derive(Clone, Debug)]
pub struct Runtime(Channel);

/// Why a call to the runtime failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The object does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The call is not implemented: the runtime is too old, or its CRI is disabled. A retry does not help.
    #[error("the runtime does not speak CRI v1: {0}")]
    Unsupported(String),
    /// The runtime is missing, restarts, or timed out. A retry may help.
    #[error("{0}")]
    Unavailable(String),
}

impl From<Status> for RuntimeError {
    fn from(status: Status) -> Self {
        // The innermost source of a transport error is the most specific.
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
            // Runtimes use many codes while they start or stop; all are treated as unavailable.
            _ => Self::Unavailable(text),
        }
    }
}

/// Connects to the first socket that accepts.
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
    /// A client of the first of `sockets` that accepts, tried anew at each connect. `timeout` is the limit of
    /// each call.
    pub fn new(sockets: impl Into<Arc<[PathBuf]>>, timeout: Duration) -> Self {
        let sockets = sockets.into();
        let connector = tower::service_fn(move |_: Uri| {
            let sockets = sockets.clone();
            async move { connect(&sockets).await }
        });
        // The authority is ignored on a unix socket.
        let endpoint = Endpoint::from_static("http://cri").connect_timeout(timeout).timeout(timeout);
        Self(endpoint.connect_with_connector_lazy(connector))
    }

    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, RuntimeError>
    where
        Q: prost::Message + Default + 'static,
        A: prost::Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(method), codec).await?;
        Ok(answer.into_inner())
    }

    /// The ready sandboxes, of one pod or of all.
    pub async fn ready_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<PodSandbox>, RuntimeError> {
        let filter = PodSandboxFilter {
            state: Some(PodSandboxStateValue { state: SANDBOX_READY }),
            label_selector: pod.map(|pod| (POD_UID.to_owned(), pod.to_string())).into_iter().collect(),
        };
        let request = ListPodSandboxRequest { filter: Some(filter) };
        let answer: ListPodSandboxResponse =
            self.call("/runtime.v1.RuntimeService/ListPodSandbox", request).await?;
        Ok(answer.items)
    }

    /// A sandbox's verbose status.
    pub async fn sandbox(&self, id: &str) -> Result<PodSandboxStatusResponse, RuntimeError> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        self.call("/runtime.v1.RuntimeService/PodSandboxStatus", request).await
    }

    /// A container's verbose status.
    pub async fn container(&self, id: &ContainerId) -> Result<ContainerStatusResponse, RuntimeError> {
        let request = ContainerStatusRequest { container_id: id.to_string(), verbose: true };
        self.call("/runtime.v1.RuntimeService/ContainerStatus", request).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn missing_socket_is_a_retryable_error() {
        let sockets = [PathBuf::from("/nonexistent/a.sock"), PathBuf::from("/nonexistent/b.sock")];
        let runtime = Runtime::new(sockets, Duration::from_secs(5));
        let error = runtime.ready_sandboxes(None).await.unwrap_err();
        let RuntimeError::Unavailable(text) = error else { panic!("{error:?}") };
        assert!(text.contains("/nonexistent/a.sock: No such file") && text.contains("b.sock"), "{text}");
    }

    #[tokio::test]
    async fn silent_runtime_times_out() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("mute.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let runtime = Runtime::new([socket], Duration::from_millis(50));
        let error = runtime.ready_sandboxes(None).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Unavailable(_)), "{error:?}");
    }
}
