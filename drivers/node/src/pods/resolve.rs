//! Resolves a pod to its network namespace.

use std::future::Future;
use std::path::PathBuf;

use eno_cri::Reason;

use crate::netlink::NamespaceId;

/// A running pod's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The path to open.
    pub path: PathBuf,
    /// The identity that the namespace at `path` must have.
    pub id: NamespaceId,
    /// The PID of the named container, in the host's PID namespace.
    pub pid: Option<u32>,
}

/// Why a pod's namespace can't be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unresolved {
    /// The reason, as a message for administrators.
    pub message: String,
    /// True when a retry may succeed.
    pub retryable: bool,
    /// True when the pod does not run on this node.
    pub gone: bool,
}

/// Resolves pods to namespaces: the resolver of `eno-cri`, or a test.
pub trait Resolve: Send + Sync + 'static {
    /// Resolves one pod; calls may run in parallel. `container`: the id of the pod's first container, as in its status.
    fn resolve(
        &self,
        uid: &str,
        container: Option<&str>,
    ) -> impl Future<Output = Result<Sandbox, Unresolved>> + Send;
}

impl Resolve for eno_cri::Client {
    async fn resolve(&self, uid: &str, container: Option<&str>) -> Result<Sandbox, Unresolved> {
        match self.resolve(uid, container).await {
            Ok(found) => Ok(Sandbox {
                path: found.path,
                id: NamespaceId { device: found.device, inode: found.inode },
                pid: found.pid,
            }),
            Err(error) => Err(Unresolved {
                retryable: error.retryable(),
                gone: error.reason() == Some(Reason::NotFound),
                message: error.to_string(),
            }),
        }
    }
}
