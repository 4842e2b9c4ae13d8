//! `DIR/sandbox.json`: paths and URLs of a sandbox, for other programs.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{NodeInfo, SandboxError};

/// Paths and URLs of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxInfo {
    /// The sandbox's directory.
    pub dir: PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The API server's URL.
    pub server: String,
    /// The URL of NATS.
    pub nats_url: String,
    /// The file with the nkey seed of NATS's read-only user.
    pub nats_credentials: PathBuf,
    /// With an operator in the cluster, the directory of the admin's contexts (`ENO_HOME`); NATS is then reached by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contexts: Option<PathBuf>,
    /// The file with the endpoints of the simulated switches.
    pub fabric: PathBuf,
    /// Keystone and Neutron, if they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OpenStackInfo>,
    /// The identifier in the names of VLANs.
    pub cluster_id: String,
    /// The engine, the drivers and the agents.
    pub processes: Vec<ProcessInfo>,
    /// The nodes that run pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeInfo>,
}

/// How to reach OpenStack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenStackInfo {
    /// The URL of Keystone.
    pub auth_url: String,
    /// A file with the variables `OS_*`.
    pub openrc: PathBuf,
}

/// A process of the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessInfo {
    /// Its name.
    pub name: String,
    /// Its process id when this was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The URL of its metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// Its log.
    pub log: PathBuf,
}

pub(super) fn write(info: &SandboxInfo, dir: &Path) -> Result<(), SandboxError> {
    let path = dir.join("sandbox.json");
    let text = serde_json::to_string_pretty(info)
        .map_err(|source| SandboxError::Json { path: path.clone(), source })?;
    fs::write(&path, text + "\n").map_err(SandboxError::file("writing", &path))
}
