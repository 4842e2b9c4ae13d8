//! What a dump takes from the API server, and through it from kubelets and pods.

use std::fmt;

use eno_engine::forecast::Part;
use eno_nbi_crds::PodNetwork;
use futures::{AsyncBufReadExt as _, AsyncReadExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Node, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, LogParams, Request, TypeMeta};
use kube::core::ListMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::archive::Entry;
use super::{Collector, EVENTS, LeftOut, part_path};
use crate::apply::nad_resource;

/// The namespaces of the operator's own pods.
const NAMESPACES: [&str; 2] = ["eno-system", "eno-node"];
/// The namespace of the Secrets with which drivers log in to devices.
const DEVICES: &str = "eno-devices";
/// The suffixes of the API groups of ENO and of NADs.
const GROUPS: [&str; 4] = ["eno.k8s.io", "podnetwork.opdev.io", "podconfig.opdev.io", "k8s.cni.cncf.io"];
/// The API group of the owners of ENO's NADs.
const OWNER: &str = "eno.k8s.io/";
/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;
/// How many logs or metrics are read at a time.
const CONCURRENCY: usize = 4;
/// The longest line of a log that is read as one, in bytes.
const MAX_LOG_LINE: u64 = 64 << 10;
/// The name of the port of probes and metrics.
const HTTP_PORT: &str = "http";
/// The name of the port of metrics for clients with a certificate.
const METRICS_PORT: &str = "metrics";

/// Reads the cluster. `namespace`: where objects are listed that can't be listed in the whole cluster.
pub(crate) async fn collect(collector: &Collector, client: &Client, namespace: &str) {
    // Without an answer, each of the following would wait for one.
    let version = async {
        match client.apiserver_version().await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(Value::Null),
            version => version.map(|version| json!(version)),
        }
    };
    let Some(version) = collector.part("the API server", version).await else { return };
    let mut entry = Entry::new("kubernetes/version.jsonl");
    entry.record(&version);
    collector.add("the version of Kubernetes", entry);
    for part in Part::all() {
        cluster_part(collector, client, namespace, part).await;
    }
    for list in lists() {
        all(collector, client, &list).await;
    }
    let mut pods = Vec::new();
    for namespace in NAMESPACES {
        for resource in own_resources() {
            pods.extend(inside(collector, client, namespace, &resource).await);
        }
        secrets(collector, client, namespace).await;
    }
    secrets(collector, client, DEVICES).await;
    events(collector, client).await;
    futures::stream::iter(&pods)
        .for_each_concurrent(CONCURRENCY, |pod| async move {
            for container in &pod.containers {
                log(collector, client, pod, container, false).await;
                if container.has_restarted {
                    log(collector, client, pod, container, true).await;
                }
            }
            metrics(collector, client, pod).await;
        })
        .await;
    if pods.iter().any(|pod| pod.guards_metrics) {
        collector.not_read(
            "metrics of agents",
            "they are only for clients with a certificate; docs/src/how-to/monitor.md shows how to read them",
        );
    }
}

/// A part of the state that the commands of eno answer from.
async fn cluster_part(collector: &Collector, client: &Client, namespace: &str, part: Part) {
    let resource = part.name();
    let mut entry = Entry::new(&part_path(part));
    let listed =
        collector.part(&resource, part.list(client, namespace, |object| entry.object(&object))).await;
    match listed {
        Some(None) => {}
        Some(Some(unlisted)) => {
            collector.not_read(&unlisted.to_string(), "you may not list them");
            collector.left_out(LeftOut {
                except: unlisted.namespace().map(str::to_owned),
                resource: resource.clone(),
            });
        }
        None => {
            collector.left_out(LeftOut { resource: resource.clone(), except: None });
            if entry.lines() == 0 {
                return;
            }
        }
    }
    collector.add(&resource, entry);
}

/// A list of the whole cluster.
struct List {
    resource: ApiResource,
    /// What is kept of an object.
    keep: fn(DynamicObject) -> Option<Value>,
}

fn lists() -> [List; 4] {
    let resource = |resource, keep| List { resource, keep };
    [
        resource(ApiResource::erase::<Node>(&()), |mut node| {
            if let Some(status) = node.data.get_mut("status").and_then(Value::as_object_mut) {
                status.remove("images");
            }
            serde_json::to_value(node).ok()
        }),
        resource(ApiResource::erase::<CustomResourceDefinition>(&()), |crd| {
            let name = crd.name_any();
            GROUPS.iter().any(|group| name.ends_with(&format!(".{group}"))).then(|| definition(&crd))
        }),
        resource(ApiResource::erase::<PodNetwork>(&()), |object| serde_json::to_value(object).ok()),
        resource(nad_resource(), |nad| {
            let mut owners = nad.metadata.owner_references.iter().flatten();
            owners.any(|owner| owner.api_version.starts_with(OWNER)).then_some(())?;
            serde_json::to_value(nad).ok()
        }),
    ]
}

/// The names and versions of a CRD, without its schemas.
fn definition(crd: &DynamicObject) -> Value {
    let versions = crd.data["spec"]["versions"].as_array();
    let versions = versions.into_iter().flatten().map(|version| {
        json!({ "name": version["name"], "served": version["served"], "storage": version["storage"] })
    });
    json!({
        "name": crd.name_any(),
        "created": crd.metadata.creation_timestamp,
        "labels": crd.metadata.labels,
        "versions": versions.collect::<Vec<_>>(),
        "conditions": crd.data["status"]["conditions"],
        "storedVersions": crd.data["status"]["storedVersions"],
    })
}

async fn all(collector: &Collector, client: &Client, list: &List) {
    let plural = &list.resource.plural;
    let mut entry = Entry::new(&format!("kubernetes/{plural}.jsonl"));
    let api = Api::all_with(client.clone(), &list.resource);
    let read = each(&api, ListParams::default(), |object| {
        if let Some(kept) = (list.keep)(object) {
            entry.object(&kept);
        }
    });
    if collector.part(plural, read).await.is_some() || entry.lines() > 0 {
        collector.add(plural, entry);
    }
}

/// The resources of the operator's own namespaces.
fn own_resources() -> [ApiResource; 12] {
    [
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<StatefulSet>(&()),
        ApiResource::erase::<DaemonSet>(&()),
        ApiResource::erase::<ReplicaSet>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<Lease>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<PodDisruptionBudget>(&()),
    ]
}

/// A list of one of the operator's namespaces. Of pods it returns what reading their logs needs.
async fn inside(
    collector: &Collector,
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
) -> Vec<PodOutline> {
    let mut pods = Vec::new();
    let what = format!("{} of namespace {namespace}", resource.plural);
    let mut entry = Entry::new(&format!("kubernetes/{namespace}/{}.jsonl", resource.plural));
    let api = Api::namespaced_with(client.clone(), namespace, resource);
    let read = each(&api, ListParams::default(), |mut object: DynamicObject| {
        match resource.kind.as_str() {
            "Pod" => pods.push(PodOutline::of(namespace, &object)),
            "ConfigMap" => entry.redactor().config_map(&mut object),
            _ => {}
        }
        entry.object(&object);
    });
    if collector.part(&what, read).await.is_some() || entry.lines() > 0 {
        collector.add(&what, entry);
    }
    pods
}

async fn each(
    api: &Api<DynamicObject>,
    params: ListParams,
    mut visit: impl FnMut(DynamicObject),
) -> kube::Result<()> {
    let mut params = params.limit(PAGE_SIZE);
    loop {
        let page = api.list(&params).await?;
        // The items of a list may have no types of their own.
        let kind = page.types.kind.strip_suffix("List").unwrap_or(&page.types.kind).to_owned();
        let types = TypeMeta { kind, api_version: page.types.api_version };
        for mut object in page.items {
            object.types.get_or_insert_with(|| types.clone());
            visit(object);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

/// A list of Secrets. The parser skips their values.
#[derive(Debug, Deserialize)]
struct SecretNames {
    #[serde(default)]
    metadata: ListMeta,
    items: Vec<SecretName>,
}

#[derive(Debug, Deserialize)]
struct SecretName {
    metadata: SecretMeta,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default, deserialize_with = "keys")]
    data: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct SecretMeta {
    name: String,
}

/// The keys of a map whose values are skipped.
fn keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Keys;
    impl<'de> Visitor<'de> for Keys {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map or nothing")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
            let mut keys = Vec::new();
            while let Some((key, IgnoredAny)) = map.next_entry()? {
                keys.push(key);
            }
            Ok(keys)
        }

        fn visit_unit<E>(self) -> Result<Vec<String>, E> {
            Ok(Vec::new())
        }
    }
    deserializer.deserialize_any(Keys)
}

/// The names of the Secrets of a namespace, their types, and the names of their keys.
async fn secrets(collector: &Collector, client: &Client, namespace: &str) {
    let what = format!("names of Secrets of namespace {namespace}");
    let mut entry = Entry::new(&format!("kubernetes/{namespace}/secret-names.jsonl"));
    let read = async {
        let mut params = ListParams::default().limit(PAGE_SIZE);
        loop {
            let request = Request::new(Secret::url_path(&(), Some(namespace)));
            let request = request.list(&params).map_err(kube::Error::BuildRequest)?;
            let page: SecretNames = client.request(request).await?;
            for SecretName { metadata, kind, data: keys } in page.items {
                entry.record(&json!({ "name": metadata.name, "type": kind, "keys": keys }));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok::<_, kube::Error>(()),
            }
        }
    };
    if collector.part(&what, read).await.is_some() {
        collector.add(&what, entry);
    }
}

/// The Events of the operator's objects and namespaces.
async fn events(collector: &Collector, client: &Client) {
    let resource = ApiResource::erase::<Event>(&());
    let since = collector.limits.since;
    let made_at = collector.made_at;
    let is_new = |event: &DynamicObject| {
        let times = ["lastTimestamp", "eventTime", "firstTimestamp"].map(|field| event.data[field].as_str());
        let at = times.into_iter().flatten().find_map(|text| text.parse::<Timestamp>().ok());
        match (since, at) {
            (Some(since), Some(at)) => made_at.duration_since(at).unsigned_abs() <= since || at > made_at,
            _ => true,
        }
    };
    let is_own = |event: &DynamicObject| {
        let group =
            event.data.pointer("/involvedObject/apiVersion").and_then(Value::as_str).unwrap_or_default();
        let group = group.split('/').next().unwrap_or_default();
        GROUPS.contains(&group) || event.namespace().is_some_and(|own| NAMESPACES.contains(&own.as_str()))
    };
    let mut entry = Entry::new(EVENTS);
    let mut add = |event: DynamicObject| {
        if is_own(&event) && is_new(&event) {
            entry.object(&event);
        }
    };
    let read = async {
        match each(&Api::all_with(client.clone(), &resource), ListParams::default(), &mut add).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            result => return result,
        }
        // Those of the own namespaces may be readable.
        for namespace in NAMESPACES {
            let inside = Api::namespaced_with(client.clone(), namespace, &resource);
            each(&inside, ListParams::default(), &mut add).await?;
        }
        Ok(())
    };
    if collector.part("events", read).await.is_some() || entry.lines() > 0 {
        collector.add("events", entry);
    }
}

/// What reading the logs and metrics of a pod needs.
#[derive(Debug, PartialEq, Eq)]
struct PodOutline {
    namespace: String,
    name: String,
    containers: Vec<ContainerOutline>,
    /// The port of its metrics.
    port: Option<u16>,
    /// Its metrics are for clients with a certificate.
    guards_metrics: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct ContainerOutline {
    name: String,
    has_started: bool,
    has_restarted: bool,
}

impl PodOutline {
    fn of(namespace: &str, pod: &DynamicObject) -> Self {
        let list = |path: &str| pod.data.pointer(path).and_then(Value::as_array).into_iter().flatten();
        let statuses: Vec<&Value> =
            list("/status/initContainerStatuses").chain(list("/status/containerStatuses")).collect();
        let containers = list("/spec/initContainers").chain(list("/spec/containers"));
        let outline = |container: &Value| {
            let name = container["name"].as_str()?.to_owned();
            let status = statuses.iter().find(|status| status["name"] == name.as_str());
            Some(ContainerOutline {
                has_started: status
                    .is_some_and(|status| status["state"].get("waiting").is_none() || is_again(status)),
                has_restarted: status.is_some_and(|status| is_again(status)),
                name,
            })
        };
        let ports: Vec<&Value> = list("/spec/containers")
            .flat_map(|container| container["ports"].as_array().into_iter().flatten())
            .collect();
        let port = |name: &str| {
            let port = ports.iter().find(|port| port["name"] == name)?;
            u16::try_from(port["containerPort"].as_u64()?).ok()
        };
        Self {
            namespace: namespace.to_owned(),
            name: pod.name_any(),
            containers: containers.filter_map(outline).collect(),
            port: port(HTTP_PORT),
            guards_metrics: port(METRICS_PORT).is_some(),
        }
    }
}

/// True if the container ran before.
fn is_again(status: &Value) -> bool {
    status["restartCount"].as_u64().is_some_and(|count| count > 0)
}

/// The last lines of a container's log; `previous`: of the one before its last restart.
async fn log(
    collector: &Collector,
    client: &Client,
    pod: &PodOutline,
    container: &ContainerOutline,
    previous: bool,
) {
    if !container.has_started {
        return;
    }
    let PodOutline { namespace, name, .. } = pod;
    let kind = if previous { "previous log" } else { "log" };
    let what = format!("{kind} of container {} of pod {namespace}/{name}", container.name);
    let file =
        if previous { format!("{}.previous.log", container.name) } else { format!("{}.log", container.name) };
    let mut entry = Entry::new(&format!("logs/{namespace}/{name}/{file}"));
    let params = LogParams {
        container: Some(container.name.clone()),
        previous,
        tail_lines: Some(collector.limits.log_lines.into()),
        since_seconds: collector.limits.since.and_then(|since| i64::try_from(since.as_secs()).ok()),
        timestamps: true,
        ..LogParams::default()
    };
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let read = async {
        let stream = api.log_stream(name, &params).await?;
        each_line(stream, |line| entry.text(line)).await
    };
    if collector.part(&what, read).await.is_some() || entry.lines() > 0 {
        collector.add(&what, entry);
    }
}

/// The metrics of a pod, through the API server.
async fn metrics(collector: &Collector, client: &Client, pod: &PodOutline) {
    let PodOutline { namespace, name, port: Some(port), .. } = pod else { return };
    let what = format!("metrics of pod {namespace}/{name}");
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
    let mut entry = Entry::new(&format!("metrics/{namespace}/{name}.txt"));
    let read = async {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let stream = client.request_stream(request).await?;
        each_line(stream, |line| entry.text(line)).await
    };
    if collector.part(&what, read).await.is_some() {
        collector.add(&what, entry);
    }
}

/// Visits the lines of a stream. A line that is too long comes in pieces.
async fn each_line(stream: impl futures::AsyncBufRead, mut visit: impl FnMut(&str)) -> kube::Result<()> {
    let mut stream = std::pin::pin!(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut stream).take(MAX_LOG_LINE).read_until(b'\n', &mut line).await;
        if read.map_err(kube::Error::ReadEvents)? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        visit(text.trim_end_matches(['\n', '\r']));
    }
}
