//! The verbose status of runtimes: a map with the key `info`, whose value is JSON text.
//!
//! containerd (internal/cri: `SandboxInfo`, `ContainerInfo`) and CRI-O (server/sandbox_status.go,
//! server/container_status.go) agree in what is read here: `pid`, `runtimeSpec` (the OCI runtime's configuration) and,
//! of a container, `sandboxID`. A CRI-O sandbox without an infra container has no `pid`.

use std::collections::HashMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The verbose info of a sandbox.
#[derive(Debug, PartialEq, Eq)]
pub struct SandboxInfo {
    /// PID of the sandbox's process, if it has one.
    pub pid: Option<u32>,
    /// Path of the bound network namespace, if the runtime's configuration names one.
    pub network: Option<PathBuf>,
}

/// The verbose info of a container.
#[derive(Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// PID of its first process, if it runs.
    pub pid: Option<u32>,
    /// The id of its sandbox.
    pub sandbox: String,
}

/// Why a status has no usable info. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum InfoError {
    /// The key is missing.
    #[error("the verbose status has no info")]
    Absent,
    /// The text has another format.
    #[error("the verbose status: {0}")]
    Unreadable(#[from] serde_json::Error),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSandbox {
    #[serde(default)]
    pid: i64,
    runtime_spec: Option<RawSpec>,
}

#[derive(Deserialize)]
struct RawSpec {
    linux: Option<RawLinux>,
}

#[derive(Deserialize)]
struct RawLinux {
    namespaces: Option<Vec<RawNamespace>>,
}

#[derive(Deserialize)]
struct RawNamespace {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    path: String,
}

#[derive(Deserialize)]
struct RawContainer {
    #[serde(default)]
    pid: i64,
    #[serde(rename = "sandboxID")]
    sandbox: String,
}

/// A PID, where 0 stands for no process.
fn process(pid: i64) -> Option<u32> {
    u32::try_from(pid).ok().filter(|pid| *pid != 0)
}

fn read<T: DeserializeOwned>(info: &HashMap<String, String>) -> Result<T, InfoError> {
    Ok(serde_json::from_str(info.get("info").ok_or(InfoError::Absent)?)?)
}

impl SandboxInfo {
    /// Reads the info map of a PodSandboxStatus.
    pub fn read(info: &HashMap<String, String>) -> Result<Self, InfoError> {
        let raw: RawSandbox = read(info)?;
        let namespaces = raw.runtime_spec.and_then(|spec| spec.linux).and_then(|linux| linux.namespaces);
        let network = namespaces
            .unwrap_or_default()
            .into_iter()
            .find(|namespace| namespace.kind == "network" && !namespace.path.is_empty())
            .map(|namespace| namespace.path.into());
        Ok(Self { pid: process(raw.pid), network })
    }
}

impl ContainerInfo {
    /// Reads the info map of a ContainerStatus.
    pub fn read(info: &HashMap<String, String>) -> Result<Self, InfoError> {
        let raw: RawContainer = read(info)?;
        Ok(Self { pid: process(raw.pid), sandbox: raw.sandbox })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn info(value: &Value) -> HashMap<String, String> {
        [("info".to_owned(), value.to_string())].into()
    }

    fn namespaces(network: &Value) -> Value {
        json!([{ "type": "pid" }, { "type": "ipc" }, { "type": "mount" }, network])
    }

    #[test]
    fn parses_containerd_sandbox_info() {
        let network = json!({ "type": "network", "path": "/var/run/netns/cni-5f0d" });
        let status = info(&json!({
            "pid": 6123,
            "processStatus": "running",
            "netNamespaceClosed": false,
            "image": "registry.k8s.io/pause:3.10",
            "snapshotKey": "f3",
            "runtimeOptions": null,
            "config": { "metadata": { "name": "web" }, "linux": {} },
            "runtimeSpec": {
                "ociVersion": "1.2.0",
                "process": { "args": ["/pause"] },
                "linux": { "namespaces": namespaces(&network) },
            },
        }));
        let expected = SandboxInfo { pid: Some(6123), network: Some("/var/run/netns/cni-5f0d".into()) };
        assert_eq!(SandboxInfo::read(&status).unwrap(), expected);
    }

    #[test]
    fn parses_crio_sandbox_with_infra_container() {
        let network = json!({ "type": "network", "path": "/var/run/netns/ab71-5e" });
        let status = info(&json!({
            "image": "registry.k8s.io/pause:3.10",
            "pid": 4242,
            "runtimeSpec": { "ociVersion": "1.2.0", "linux": { "namespaces": namespaces(&network) } },
        }));
        let expected = SandboxInfo { pid: Some(4242), network: Some("/var/run/netns/ab71-5e".into()) };
        assert_eq!(SandboxInfo::read(&status).unwrap(), expected);
    }

    #[test]
    fn parses_crio_sandbox_without_infra_container() {
        let network = json!({ "type": "network", "path": "/var/run/netns/ab71-5e" });
        let status = info(&json!({ "runtimeSpec": { "linux": { "namespaces": namespaces(&network) } } }));
        let expected = SandboxInfo { pid: None, network: Some("/var/run/netns/ab71-5e".into()) };
        assert_eq!(SandboxInfo::read(&status).unwrap(), expected);
    }

    #[test]
    fn namespace_without_path_yields_no_path() {
        for spec in [
            json!({ "linux": { "namespaces": namespaces(&json!({ "type": "network" })) } }),
            json!({ "linux": { "namespaces": null } }),
            json!({ "linux": null }),
            Value::Null,
        ] {
            let status = info(&json!({ "pid": 7, "runtimeSpec": spec }));
            assert_eq!(SandboxInfo::read(&status).unwrap(), SandboxInfo { pid: Some(7), network: None });
        }
    }

    #[test]
    fn parses_container_pid_and_sandbox() {
        let running = info(&json!({ "sandboxID": "f3", "pid": 77, "runtimeSpec": {}, "privileged": false }));
        assert_eq!(
            ContainerInfo::read(&running).unwrap(),
            ContainerInfo { pid: Some(77), sandbox: "f3".into() }
        );
        let ended = info(&json!({ "sandboxID": "f3", "pid": 0, "removing": false }));
        assert_eq!(ContainerInfo::read(&ended).unwrap(), ContainerInfo { pid: None, sandbox: "f3".into() });
    }

    #[test]
    fn missing_or_malformed_info_is_an_error() {
        assert!(matches!(SandboxInfo::read(&HashMap::new()), Err(InfoError::Absent)));
        let text = [("info".to_owned(), "{".to_owned())].into();
        assert!(matches!(SandboxInfo::read(&text), Err(InfoError::Unreadable(_))));
        assert!(matches!(ContainerInfo::read(&info(&json!({ "pid": 1 }))), Err(InfoError::Unreadable(_))));
    }
}
