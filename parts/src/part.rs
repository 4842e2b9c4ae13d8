//! What a `part.toml` says.

use serde::Deserialize;

/// A part of ENO that runs in a cluster. The fields that a `part.toml` leaves out are false or absent.
#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name. Also that of its NATS user, and of its process in a sandbox.
    pub name: &'static str,
    /// The name under which it announces itself as a driver.
    #[serde(borrow)]
    pub driver: Option<&'static str>,
    /// Whether it logs in to NATS with a key of its own, which `eno install` makes and `eno rotate` exchanges.
    #[serde(default)]
    pub nats_key: bool,
    /// Whether it reads commands in parts, as a driver of switches does.
    #[serde(default)]
    pub parts: bool,
    /// Whether a sandbox without pods runs it as a process.
    #[serde(default)]
    pub sandbox: bool,
    /// What it may do on the API server; `None`: nothing.
    pub rights: Option<Rights>,
    /// What its containers may use, where `make crds` writes the workload.
    pub resources: Option<Resources>,
    /// The service account of its pods.
    pub account: Account,
    /// The program, which is in the image; `None`: it has an image of its own.
    pub program: Option<Program>,
    /// Its workload, which `eno install` waits for and `eno check` judges; `None`: it is in the pods of another part.
    pub workload: Option<Workload>,
}

/// The rights of a part on the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rights {
    /// It gets FabricDevices, and the Secrets that they name.
    Devices,
    /// Its role is like no other.
    Own,
}

/// Requests and limits of a container, as manifests have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// The request, such as `50m`.
    pub cpu: &'static str,
    /// The request, such as `64Mi`.
    pub memory: &'static str,
    /// The limit, such as `256Mi`.
    pub memory_limit: &'static str,
}

/// A service account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
}

/// A program of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The package that it is built from. The Makefile reads it, too.
    pub package: &'static str,
    /// The name of the file.
    pub binary: &'static str,
}

/// The kinds of workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
}

/// A Deployment, StatefulSet or DaemonSet. Its pods have the label `app.kubernetes.io/name` with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: &'static str,
    /// Its name.
    pub name: &'static str,
}
