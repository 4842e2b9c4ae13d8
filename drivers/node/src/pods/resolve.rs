//! From a pod to its network namespace.

use std::future::Future;
use std::path::PathBuf;

use eno_cri::Reason;

use crate::netlink::NamespaceId;

/// A running pod's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// Where to open it.
    pub path: PathBuf,
    /// Which one has to be there.
    pub id: NamespaceId,
    /// Of the container that was named, in the host's count.
    pub pid: Option<u32>,
}

/// Why a pod's namespace is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unresolved {
    /// In words.
    pub message: String,
    /// It may be known later.
    pub retryable: bool,
    /// The pod does not run on this node.
    pub gone: bool,
}

/// Whoever knows the namespaces of pods: the resolver of `eno-cri`, or a test.
pub trait Resolve: Send + Sync + 'static {
    /// Any number are asked at once. `container`: the pod's first, as in its status.
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
