//! Errors of a sandbox.

use std::io;
use std::path::PathBuf;

use eno_control_plane::{ControlPlaneError, Exited, NodeError, SuperviseError};

use crate::manifests::ManifestError;
use eno::apply::ApplyError;
use eno::programs::ProgramError;

/// A sandbox can't start, or an operation on it fails.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A program is missing.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// etcd, the API server, the controller manager or NATS fails, or the directory is in use.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// A program on a node fails.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// More nodes are requested than the topology has.
    #[error("{wanted} nodes are wanted, the topology has {there}")]
    TooManyNodes {
        /// Nodes requested.
        wanted: usize,
        /// Nodes of the topology.
        there: usize,
    },
    /// The operator shall run in pods, but there are no nodes.
    #[error("an operator in the cluster needs nodes: add --nodes 2")]
    NoNodes,
    /// Keystone or Neutron fails.
    #[error(transparent)]
    OpenStack(Box<eno_control_plane::openstack::OpenStackError>),
    /// An answer of Neutron is not of the expected form.
    #[error("the {collection} of Neutron: {source}")]
    NeutronAnswer {
        /// The list.
        collection: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// OpenStack listens on the loopback interface, which pods don't reach.
    #[error("an operator in the cluster can't reach the sandbox's OpenStack: leave out one of them")]
    OpenStackInCluster,
    /// The operator can't be installed.
    #[error(transparent)]
    Install(Box<eno::install::InstallError>),
    /// A value of the installation is invalid.
    #[error("the values of the installation: {0}")]
    Values(eno::install::values::ValuesError),
    /// A part can't be obtained.
    #[error(transparent)]
    Parts(#[from] eno_control_plane::parts::PartsError),
    /// The program `eno-sandbox-node` is not beside `eno`.
    #[error("build it with cargo build --workspace --bins: there is no program {}", path.display())]
    NoHolder {
        /// The expected path.
        path: PathBuf,
    },
    /// A program, in a pod or here, can't be run or fails.
    #[error("{what}: {why}")]
    Exec {
        /// The program, and the pod if it is in one.
        what: String,
        /// The cause.
        why: String,
    },
    /// A child can't be started.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// A child exited.
    #[error("{0}")]
    Ended(Exited),
    /// An embedded manifest is invalid, which is a bug of the build.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The API server refused an object.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Another request to the API server failed.
    #[error("{operation}: {source}")]
    Kubernetes {
        /// The operation.
        operation: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// A watch ended.
    #[error("watching {what}: {source}")]
    Watch {
        /// The watched objects.
        what: &'static str,
        /// The cause.
        source: Box<kube::runtime::watcher::Error>,
    },
    /// An operation on a file of the directory failed.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file of the directory is not valid JSON.
    #[error("the JSON of {}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// No loopback port is free.
    #[error("picking a free port: {0}")]
    Port(#[source] io::Error),
    /// A timeout. A retry helps on a busy machine.
    #[error("{what} did not come within {seconds} s{detail}")]
    Late {
        /// The condition.
        what: String,
        /// The timeout in seconds.
        seconds: u64,
        /// The last state; empty or starting with `: `.
        detail: String,
    },
    /// No process has this name.
    #[error("the sandbox has no process {0}")]
    NoSuchChild(String),
}

impl SandboxError {
    pub(super) fn kubernetes(operation: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Kubernetes { operation, source: Box::new(source) }
    }

    pub(super) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { operation, path, source }
    }
}

impl From<eno_control_plane::openstack::OpenStackError> for SandboxError {
    fn from(error: eno_control_plane::openstack::OpenStackError) -> Self {
        Self::OpenStack(Box::new(error))
    }
}

impl From<eno::install::InstallError> for SandboxError {
    fn from(error: eno::install::InstallError) -> Self {
        Self::Install(Box::new(error))
    }
}
