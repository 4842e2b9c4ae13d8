//! Waits for conditions, with one deadline for all.

use std::collections::BTreeMap;
use std::fmt::Debug;
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
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
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

/// Waits until no object of these names is waited for. `state`: what an object still lacks, or that it is ready; `None`:
/// it says nothing yet.
async fn all_ready<K>(
    client: &Client,
    (what, ready): (&'static str, &str),
    mut waiting: BTreeMap<String, String>,
    deadline: Deadline,
    state: impl Fn(K) -> Option<Result<(), String>>,
) -> Result<(), SandboxError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watched = |source| SandboxError::Watch { what, source: Box::new(source) };
    let api: Api<K> = Api::all(client.clone());
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while !waiting.is_empty() {
        let event = match tokio::time::timeout_at(deadline.at, events.try_next()).await {
            Ok(event) => event.map_err(watched)?,
            Err(_) => return Err(deadline.late(ready, format_waiting(&waiting))),
        };
        let Some(object) = event else { break };
        let name = object.name_any();
        match state(object) {
            Some(Ok(())) => drop(waiting.remove(&name)),
            Some(Err(lacks)) => drop(waiting.get_mut(&name).map(|state| *state = lacks)),
            None => {}
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
    let waiting = nodes.iter().map(|node| (node.clone(), "not heard of".to_owned())).collect();
    all_ready(client, ("Nodes", "ready nodes"), waiting, deadline, |node: Node| {
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        // The status may be from an earlier run.
        let fresh = ready.last_heartbeat_time.is_some_and(|time| time.0.as_second() >= since);
        // A node loses its taints a moment after it is ready.
        let tainted = taints.iter().any(|taint| taint.key.starts_with("node.kubernetes.io/"));
        let is_ready = fresh && ready.status == "True" && !tainted;
        Some(
            is_ready.then_some(()).ok_or_else(|| format!("not ready: {}", ready.message.unwrap_or_default())),
        )
    })
    .await
}

/// Waits until all of these devices are ready at their applied generation.
pub(super) async fn devices_ready(
    client: &Client,
    devices: &[DynamicObject],
    deadline: Deadline,
) -> Result<(), SandboxError> {
    let waiting = devices.iter().map(|device| (device.name_any(), "no status yet".to_owned())).collect();
    let generations: BTreeMap<String, i64> =
        devices.iter().map(|device| (device.name_any(), device.metadata.generation.unwrap_or(0))).collect();
    all_ready(client, ("FabricDevices", "ready FabricDevices"), waiting, deadline, |device: FabricDevice| {
        let generation = generations.get(&device.name_any()).copied();
        let status = device.status?;
        let phase = status.phase.map_or("no phase", Phase::as_str);
        let is_ready = status.phase == Some(Phase::Ready) && status.observed_generation >= generation;
        Some(is_ready.then_some(()).ok_or_else(|| format!("{phase}: {}", status.message.unwrap_or_default())))
    })
    .await
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
