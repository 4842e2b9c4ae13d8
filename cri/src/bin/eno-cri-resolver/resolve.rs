//! Resolves a request to its response.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use eno_cri::protocol::{ContainerId, Reason, Refusal, Request, Resolved};
use nix::fcntl::OFlag;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::info::{ContainerInfo, InfoError, SandboxInfo};
use crate::lister::SandboxLister;
use crate::runtime::{Runtime, RuntimeError};
use crate::wire::{CONTAINER_RUNNING, NODE, PodSandboxStatusResponse, SANDBOX_READY};

/// The identity of a namespace: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamespaceId {
    device: u64,
    inode: u64,
}

/// The network namespace of this process.
const OWN_NAMESPACE: &str = "/proc/self/ns/net";

/// The host's namespace can't be identified. A retry does not help.
#[derive(Debug, thiserror::Error)]
#[error("looking at {OWN_NAMESPACE}: {0}")]
pub struct HostNamespaceError(#[source] io::Error);

/// Resolves requests.
#[derive(Debug)]
pub struct Resolver {
    runtime: Runtime,
    lister: SandboxLister,
    /// The network namespace of this process, which is the host's.
    node: NamespaceId,
}

impl Resolver {
    /// A resolver that uses `runtime`. Must be called within a tokio runtime, in the host's network
    /// namespace.
    pub fn new(runtime: Runtime) -> Result<Self, HostNamespaceError> {
        let lister = SandboxLister::new(runtime.clone());
        Ok(Self {
            runtime,
            lister,
            node: namespace_id(Path::new(OWN_NAMESPACE)).map_err(HostNamespaceError)?,
        })
    }

    /// The network namespace of the requested pod.
    pub async fn resolve(&self, request: &Request) -> Result<Resolved, Refusal> {
        let found = self.lister.find(request.pod.clone()).await.map_err(refusal)?;
        let sandbox = found.ok_or_else(not_found)?;
        let (status, container) = tokio::join!(self.runtime.sandbox(&sandbox), async {
            match &request.container {
                Some(container) => self.container_pid(container, &sandbox).await.map(Some),
                None => Ok(None),
            }
        });
        let own = check_own_namespace(&status.map_err(refusal)?)?;
        let (path, NamespaceId { device, inode }) = self.locate(&own)?;
        Ok(Resolved { path, inode, device, pid: container?.or(own.pid) })
    }

    async fn container_pid(&self, container: &ContainerId, sandbox: &str) -> Result<u32, Refusal> {
        let not_running =
            |what: &str| Refusal::new(Reason::NotRunning, format!("container {container} {what}"));
        let answer = match self.runtime.container(container).await {
            Err(RuntimeError::NotFound(_)) => return Err(not_running("is not there")),
            answer => answer.map_err(refusal)?,
        };
        let status = answer.status.unwrap_or_default();
        // Runtimes also accept a prefix of an id.
        if status.id != container.as_str() {
            return Err(not_running("is not there: that is the beginning of an id"));
        }
        let info = ContainerInfo::read(&answer.info).map_err(|error| unsupported(&error))?;
        if info.sandbox != sandbox {
            return Err(not_running("belongs to another sandbox than the pod's present one"));
        }
        match info.pid {
            Some(pid) if status.state == CONTAINER_RUNNING => Ok(pid),
            _ => Err(not_running("doesn't run")),
        }
    }

    /// The namespace's path and identity.
    fn locate(&self, own: &SandboxInfo) -> Result<(PathBuf, NamespaceId), Refusal> {
        let mut failure = None;
        for path in candidate_paths(own) {
            match namespace_id(&path) {
                Ok(identity) if identity == self.node => return Err(host_network()),
                Ok(identity) => return Ok((path, identity)),
                Err(error) => {
                    failure.get_or_insert_with(|| format!("{}: {error}", path.display()));
                }
            }
        }
        Err(match failure {
            Some(failure) => Refusal::new(Reason::Unavailable, failure),
            None => {
                Refusal::new(Reason::Unsupported, "the runtime names no network namespace and no process")
            }
        })
    }
}

/// Candidate paths of a sandbox's namespace, the best first: a bound path is stable for the sandbox's life,
/// while a PID may be reused.
fn candidate_paths(own: &SandboxInfo) -> Vec<PathBuf> {
    match (&own.network, own.pid) {
        // Both runtimes write `/var/run`, which links to `/run` on the host and may be missing in a
        // container.
        (Some(path), _) => match path.strip_prefix("/var/run") {
            Ok(below) => vec![Path::new("/run").join(below), path.clone()],
            Err(_) => vec![path.clone()],
        },
        (None, Some(pid)) => vec![PathBuf::from(format!("/proc/{pid}/ns/net"))],
        (None, None) => Vec::new(),
    }
}

/// The info of a sandbox that is ready and has a network of its own.
fn check_own_namespace(answer: &PodSandboxStatusResponse) -> Result<SandboxInfo, Refusal> {
    let status = answer.status.as_ref().ok_or_else(not_found)?;
    if status.state != SANDBOX_READY {
        return Err(not_found());
    }
    let options = status.linux.as_ref().and_then(|linux| linux.namespaces.as_ref()?.options.as_ref());
    if options.is_some_and(|options| options.network == NODE) {
        return Err(host_network());
    }
    SandboxInfo::read(&answer.info).map_err(|error| unsupported(&error))
}

/// The namespace that is bound at a path.
fn namespace_id(path: &Path) -> io::Result<NamespaceId> {
    // O_PATH has no side effects on any file type, and fstat then checks the opened file itself.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(path)?;
    if fstatfs(&file)?.filesystem_type() != NSFS_MAGIC {
        return Err(io::Error::other(
            "no namespace is bound there; it is being made or unmade, or its mount doesn't propagate to here",
        ));
    }
    let metadata = file.metadata()?;
    Ok(NamespaceId { device: metadata.dev(), inode: metadata.ino() })
}

fn not_found() -> Refusal {
    Refusal::new(Reason::NotFound, "the runtime knows no ready sandbox of it")
}

fn host_network() -> Refusal {
    Refusal::new(
        Reason::HostNetwork,
        "it uses the node's own network, which is not to be configured for a pod",
    )
}

fn unsupported(error: &InfoError) -> Refusal {
    Refusal::new(Reason::Unsupported, error)
}

fn refusal(error: RuntimeError) -> Refusal {
    match error {
        // It was removed between two calls.
        RuntimeError::NotFound(_) => not_found(),
        RuntimeError::Unsupported(_) => Refusal::new(Reason::Unsupported, error),
        RuntimeError::Unavailable(_) => Refusal::new(Reason::Unavailable, error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::wire::{LinuxPodSandboxStatus, Namespace, NamespaceOption, PodSandboxStatus};

    const POD: i32 = 0;
    const SANDBOX_NOTREADY: i32 = 1;

    fn status(state: i32, network: i32) -> PodSandboxStatusResponse {
        let options = Some(NamespaceOption { network });
        let linux = Some(LinuxPodSandboxStatus { namespaces: Some(Namespace { options }) });
        let info = json!({ "pid": 7, "runtimeSpec": { "linux": {} } }).to_string();
        PodSandboxStatusResponse {
            status: Some(PodSandboxStatus { id: "s".into(), state, linux }),
            info: [("info".to_owned(), info)].into(),
        }
    }

    #[test]
    fn host_network_and_stopped_sandboxes_are_refused() {
        assert_eq!(check_own_namespace(&status(SANDBOX_READY, POD)).unwrap().pid, Some(7));
        let reason = |state, network| check_own_namespace(&status(state, network)).unwrap_err().reason;
        assert_eq!(reason(SANDBOX_READY, NODE), Reason::HostNetwork);
        assert_eq!(reason(SANDBOX_NOTREADY, POD), Reason::NotFound);
        let silent = PodSandboxStatusResponse { info: [].into(), ..status(SANDBOX_READY, POD) };
        assert_eq!(check_own_namespace(&silent).unwrap_err().reason, Reason::Unsupported);
    }

    #[test]
    fn namespace_path_takes_precedence_over_pid() {
        let of = |network: Option<&str>, pid| {
            candidate_paths(&SandboxInfo { pid, network: network.map(Into::into) })
        };
        assert_eq!(
            of(Some("/var/run/netns/x"), Some(7)),
            [Path::new("/run/netns/x"), Path::new("/var/run/netns/x")]
        );
        assert_eq!(of(Some("/srv/netns/x"), Some(7)), [Path::new("/srv/netns/x")]);
        assert_eq!(of(None, Some(7)), [Path::new("/proc/7/ns/net")]);
        assert!(of(None, None).is_empty());
    }

    #[test]
    fn path_that_is_no_bind_mounted_namespace_is_ignored() {
        let own = namespace_id(Path::new(OWN_NAMESPACE)).unwrap();
        assert_eq!(own.inode, fs::metadata(OWN_NAMESPACE).unwrap().ino());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(namespace_id(file.path()).unwrap_err().to_string().contains("no namespace is bound"));
        assert_eq!(namespace_id(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn host_namespace_is_never_returned() {
        let runtime = Runtime::new([], std::time::Duration::from_secs(1));
        let resolver = Resolver::new(runtime).unwrap();
        let own = SandboxInfo { pid: None, network: Some(OWN_NAMESPACE.into()) };
        assert_eq!(resolver.locate(&own).unwrap_err().reason, Reason::HostNetwork);
        let gone = SandboxInfo { pid: None, network: Some("/run/netns/eno-nonexistent".into()) };
        assert_eq!(resolver.locate(&gone).unwrap_err().reason, Reason::Unavailable);
        let unlocated = SandboxInfo { pid: None, network: None };
        assert_eq!(resolver.locate(&unlocated).unwrap_err().reason, Reason::Unsupported);
    }
}
