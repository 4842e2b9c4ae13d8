//! From a question to its answer.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use eno_cri::protocol::{ContainerId, Question, Reason, Refusal, Resolved};
use nix::fcntl::OFlag;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::info::{ContainerInfo, InfoError, SandboxInfo};
use crate::lister::Lister;
use crate::runtime::{Runtime, RuntimeError};
use crate::wire::{CONTAINER_RUNNING, NODE, PodSandboxStatusResponse, SANDBOX_READY};

/// Which namespace this is: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

/// The network namespace that this process runs in.
const OWN: &str = "/proc/self/ns/net";

/// The node's namespace can't be told from a pod's. A retry doesn't help.
#[derive(Debug, thiserror::Error)]
#[error("looking at {OWN}: {0}")]
pub struct NodeError(#[source] io::Error);

/// Answers questions.
#[derive(Debug)]
pub struct Resolver {
    runtime: Runtime,
    lister: Lister,
    /// The network namespace that this process runs in: the node's.
    node: Identity,
}

impl Resolver {
    /// One that asks `runtime`, made within a tokio runtime. It runs in the node's network namespace, and notes it.
    pub fn new(runtime: Runtime) -> Result<Self, NodeError> {
        let lister = Lister::new(runtime.clone());
        Ok(Self { runtime, lister, node: identify(Path::new(OWN)).map_err(NodeError)? })
    }

    /// The namespace of the pod in question.
    pub async fn resolve(&self, question: &Question) -> Result<Resolved, Refusal> {
        let found = self.lister.find(question.pod.clone()).await.map_err(refusal)?;
        let sandbox = found.ok_or_else(not_found)?;
        let (status, container) = tokio::join!(self.runtime.sandbox(&sandbox), async {
            match &question.container {
                Some(container) => self.container_pid(container, &sandbox).await.map(Some),
                None => Ok(None),
            }
        });
        let own = own_namespace(&status.map_err(refusal)?)?;
        let (path, Identity { device, inode }) = self.locate(&own)?;
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
        // Runtimes also take the beginning of an id.
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

    /// Where the namespace can be had, and which it is.
    fn locate(&self, own: &SandboxInfo) -> Result<(PathBuf, Identity), Refusal> {
        let mut failure = None;
        for path in places(own) {
            match identify(&path) {
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

/// The places where a sandbox's namespace can be had, the best first: a path stays what it is for the sandbox's life,
/// while a PID is used again.
fn places(own: &SandboxInfo) -> Vec<PathBuf> {
    match (&own.network, own.pid) {
        // Both runtimes write `/var/run`, which is a link to `/run` on a node and need not be in a container.
        (Some(path), _) => match path.strip_prefix("/var/run") {
            Ok(below) => vec![Path::new("/run").join(below), path.clone()],
            Err(_) => vec![path.clone()],
        },
        (None, Some(pid)) => vec![PathBuf::from(format!("/proc/{pid}/ns/net"))],
        (None, None) => Vec::new(),
    }
}

/// What is told of a sandbox that is still ready and has a network of its own.
fn own_namespace(answer: &PodSandboxStatusResponse) -> Result<SandboxInfo, Refusal> {
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
fn identify(path: &Path) -> io::Result<Identity> {
    // Opened as a mere place: whatever it is, opening does nothing to it, and what is looked at is one thing.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(path)?;
    if fstatfs(&file)?.filesystem_type() != NSFS_MAGIC {
        return Err(io::Error::other(
            "no namespace is bound there; it is being made or unmade, or its mount doesn't propagate to here",
        ));
    }
    let metadata = file.metadata()?;
    Ok(Identity { device: metadata.dev(), inode: metadata.ino() })
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
        // It went between two calls.
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
    fn host_network_and_ended_sandboxes_are_refused() {
        assert_eq!(own_namespace(&status(SANDBOX_READY, POD)).unwrap().pid, Some(7));
        let reason = |state, network| own_namespace(&status(state, network)).unwrap_err().reason;
        assert_eq!(reason(SANDBOX_READY, NODE), Reason::HostNetwork);
        assert_eq!(reason(SANDBOX_NOTREADY, POD), Reason::NotFound);
        let silent = PodSandboxStatusResponse { info: [].into(), ..status(SANDBOX_READY, POD) };
        assert_eq!(own_namespace(&silent).unwrap_err().reason, Reason::Unsupported);
    }

    #[test]
    fn a_path_is_preferred_to_a_pid() {
        let of = |network: Option<&str>, pid| places(&SandboxInfo { pid, network: network.map(Into::into) });
        assert_eq!(
            of(Some("/var/run/netns/x"), Some(7)),
            [Path::new("/run/netns/x"), Path::new("/var/run/netns/x")]
        );
        assert_eq!(of(Some("/srv/netns/x"), Some(7)), [Path::new("/srv/netns/x")]);
        assert_eq!(of(None, Some(7)), [Path::new("/proc/7/ns/net")]);
        assert!(of(None, None).is_empty());
    }

    #[test]
    fn only_a_bound_namespace_is_one() {
        let own = identify(Path::new(OWN)).unwrap();
        assert_eq!(own.inode, fs::metadata(OWN).unwrap().ino());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(identify(file.path()).unwrap_err().to_string().contains("no namespace is bound"));
        assert_eq!(identify(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn the_nodes_own_namespace_is_never_named() {
        let runtime = Runtime::new([], std::time::Duration::from_secs(1));
        let resolver = Resolver::new(runtime).unwrap();
        let own = SandboxInfo { pid: None, network: Some(OWN.into()) };
        assert_eq!(resolver.locate(&own).unwrap_err().reason, Reason::HostNetwork);
        let gone = SandboxInfo { pid: None, network: Some("/run/netns/eno-nonexistent".into()) };
        assert_eq!(resolver.locate(&gone).unwrap_err().reason, Reason::Unavailable);
        let untold = SandboxInfo { pid: None, network: None };
        assert_eq!(resolver.locate(&untold).unwrap_err().reason, Reason::Unsupported);
    }
}
