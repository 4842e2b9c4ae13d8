//! Why a sandbox doesn't start or run.

use std::io;
use std::path::PathBuf;

use eno_control_plane::{ControlPlaneError, Exited, NodeError, SuperviseError};

use crate::apply::ApplyError;
use crate::manifests::ManifestError;
use crate::programs::ProgramError;

/// A sandbox can't be started or can't do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A program is missing.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// etcd, the API server, the controller manager or NATS; also when the directory is taken.
    #[error(transparent)]
    ControlPlane(#[from] ControlPlaneError),
    /// A program on a node.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// More nodes than the topology has.
    #[error("{wanted} nodes are wanted, the topology has {there}")]
    TooManyNodes {
        /// How many are wanted.
        wanted: usize,
        /// How many there are.
        there: usize,
    },
    /// The program that is a node is not beside `eno`.
    #[error("no program {}: build it with cargo build --workspace --bins", path.display())]
    NoHolder {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A program in a pod.
    #[error("{what}: {why}")]
    Exec {
        /// Which program, where.
        what: String,
        /// What went wrong.
        why: String,
    },
    /// A child can't be started.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// A child ended.
    #[error("{0}")]
    Ended(Exited),
    /// A fault of the build.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The API server refused an object.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The API server was asked for something else.
    #[error("{operation}: {source}")]
    Kubernetes {
        /// What was asked.
        operation: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// A watch ended.
    #[error("watching {what}: {source}")]
    Watch {
        /// What was watched.
        what: &'static str,
        /// Why.
        source: Box<kube::runtime::watcher::Error>,
    },
    /// A file of the directory.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What failed.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the directory is not the JSON that it should be.
    #[error("the JSON of {}: {source}", path.display())]
    Json {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// No loopback port is free.
    #[error("picking a free port: {0}")]
    Port(#[source] io::Error),
    /// It took too long. Trying again helps on a machine that is busy.
    #[error("{what} did not come within {seconds} s{detail}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// What was seen instead; empty or beginning with `: `.
        detail: String,
    },
    /// There is no process of this name.
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
