//! Waits for conditions, with one deadline for all.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use eno_nbi_crds::{FabricDevice, Phase};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use kube::runtime::wait::{Condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::SandboxError;

/// Interval of polls of an HTTP endpoint.
const POLL: Duration = Duration::from_millis(20);

/// The time by which all conditions must hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    at: Instant,
    total: Duration,
}

impl Deadline {
    pub(super) fn after(total: Duration) -> Self {
        Self { at: Instant::now() + total, total }
    }

    /// Awaits a future, at most until the deadline.
    pub(super) async fn wait<T>(
        self,
        what: impl Into<String>,
        future: impl Future<Output = Result<T, SandboxError>>,
    ) -> Result<T, SandboxError> {
        match tokio::time::timeout_at(self.at, future).await {
            Ok(result) => result,
            Err(_) => Err(self.late(what, String::new())),
        }
    }

    /// The result of a future, or `None` at the deadline.
    pub(super) async fn next<T>(self, future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.at, future).await.ok()
    }

    pub(super) fn late(self, what: impl Into<String>, detail: String) -> SandboxError {
        SandboxError::Late { what: what.into(), seconds: self.total.as_secs(), detail }
    }
}

/// Waits until the API server serves all of these kinds.
pub(super) async fn crds_established(client: &Client, crds: &[DynamicObject]) -> Result<(), SandboxError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut missing: Vec<_> = crds.iter().map(ResourceExt::name_any).collect();
    let established = conditions::is_crd_established();
    let watched =
        |source| SandboxError::Watch { what: "CustomResourceDefinitions", source: Box::new(source) };
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while !missing.is_empty() {
        let Some(crd) = events.try_next().await.map_err(watched)? else { break };
        if established.matches_object(Some(&crd)) {
            missing.retain(|name| *name != crd.name_any());
        }
    }
    Ok(())
}

/// Waits until the kubelets of these nodes, started after `since` (seconds since 1970), report that they are ready.
pub(super) async fn nodes_ready(
    client: &Client,
    nodes: &[String],
    since: i64,
    deadline: Deadline,
) -> Result<(), SandboxError> {
    let mut waiting: BTreeMap<String, String> =
        nodes.iter().map(|node| (node.clone(), "not heard of".to_owned())).collect();
    let watched = |source| SandboxError::Watch { what: "Nodes", source: Box::new(source) };
    let api: Api<Node> = Api::all(client.clone());
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while !waiting.is_empty() {
        let event = match tokio::time::timeout_at(deadline.at, events.try_next()).await {
            Ok(event) => event.map_err(watched)?,
            Err(_) => return Err(deadline.late("ready nodes", format_waiting(&waiting))),
        };
        let Some(node) = event else { break };
        let name = node.name_any();
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let Some(ready) = conditions.into_iter().find(|condition| condition.type_ == "Ready") else {
            continue;
        };
        // The status may be from an earlier run.
        let fresh = ready.last_heartbeat_time.is_some_and(|time| time.0.as_second() >= since);
        // A node loses its taints a moment after it is ready.
        let tainted = taints.iter().any(|taint| taint.key.starts_with("node.kubernetes.io/"));
        if fresh && ready.status == "True" && !tainted {
            waiting.remove(&name);
        } else if let Some(state) = waiting.get_mut(&name) {
            *state = format!("not ready: {}", ready.message.unwrap_or_default());
        }
    }
    Ok(())
}

/// Waits until all of these devices are ready at their applied generation.
pub(super) async fn devices_ready(
    client: &Client,
    devices: &[DynamicObject],
    deadline: Deadline,
) -> Result<(), SandboxError> {
    let mut waiting: BTreeMap<String, String> =
        devices.iter().map(|device| (device.name_any(), "no status yet".to_owned())).collect();
    let generations: BTreeMap<String, i64> =
        devices.iter().map(|device| (device.name_any(), device.metadata.generation.unwrap_or(0))).collect();
    let watched = |source| SandboxError::Watch { what: "FabricDevices", source: Box::new(source) };
    let api: Api<FabricDevice> = Api::all(client.clone());
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while !waiting.is_empty() {
        let event = match tokio::time::timeout_at(deadline.at, events.try_next()).await {
            Ok(event) => event.map_err(watched)?,
            Err(_) => return Err(deadline.late("ready FabricDevices", format_waiting(&waiting))),
        };
        let Some(device) = event else { break };
        let name = device.name_any();
        let Some(status) = device.status else { continue };
        let current = status.observed_generation >= generations.get(&name).copied();
        if status.phase == Some(Phase::Ready) && current {
            waiting.remove(&name);
        } else if let Some(state) = waiting.get_mut(&name) {
            let phase = status.phase.map_or("no phase", Phase::as_str);
            *state = format!("{phase}: {}", status.message.unwrap_or_default());
        }
    }
    Ok(())
}

pub(super) fn format_waiting(waiting: &BTreeMap<String, String>) -> String {
    waiting.iter().fold(String::new(), |text, (name, state)| text + "\n  " + name + " is " + state)
}

/// Waits until an HTTP endpoint answers 2xx with a wanted body. The error contains its last answer.
pub(super) async fn http(
    http: &reqwest::Client,
    what: &str,
    url: &str,
    deadline: Deadline,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), SandboxError> {
    let mut tick = tokio::time::interval(POLL);
    let mut last_error = String::new();
    let polling = async {
        loop {
            tick.tick().await;
            last_error = match get(http, url).await {
                Ok(answer) if wanted(&answer) => return,
                Ok(_) => String::new(),
                Err(problem) => format!(": {problem}"),
            };
        }
    };
    match tokio::time::timeout_at(deadline.at, polling).await {
        Ok(()) => Ok(()),
        Err(_) => Err(deadline.late(what, last_error)),
    }
}

async fn get(http: &reqwest::Client, url: &str) -> Result<String, String> {
    let answer = http.get(url).send().await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| error.to_string())?;
    if status.is_success() { Ok(text) } else { Err(format!("{status} {text}")) }
}
