//! The watches of the API server. They store only names; objects go to the mailbox.

pub mod ingest;
pub mod mailbox;
pub mod networks;
pub mod objects;
pub mod slim_objects;
pub mod templates;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use eno_core::{Event, Kind, Name};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, InitialListStrategy};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::api;
use crate::metrics::Metrics;
use crate::nodes::node_labels;
use mailbox::{Input, Mailbox, Source, post};
use objects::StoredObject;
use slim_objects::{SlimNode, SlimPod};
use templates::{SlimWorkload, WorkloadKind};

/// Objects per page where lists are not streamed.
const PAGE_SIZE: u32 = 500;
/// The first minor version of Kubernetes that streams lists by default.
const STREAMING_LIST_MINOR: u32 = 34;

/// Maximum duration of a watch in seconds. A watch that is silent for longer is broken, and another one resumes at its
/// position.
const WATCH_SECONDS: u32 = 60;

/// Starts all watches. `multus` is the namespace of Multus. The state of nodes is also sent to `label_updates`.
pub async fn start(
    tasks: &mut JoinSet<()>,
    client: &Client,
    mailbox: &Mailbox,
    multus: Arc<str>,
    label_updates: mpsc::UnboundedSender<node_labels::Update>,
    metrics: &Arc<Metrics>,
) {
    let config = config(client).await;
    for kind in Kind::ALL {
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &api::resource(kind));
        let stream = watcher::watcher(objects, config.clone()).default_backoff();
        let read = move |object: &DynamicObject| ingest::key(kind, &object.metadata);
        tasks.spawn(follow(
            Source::Kind(kind),
            stream,
            mailbox.clone(),
            metrics.clone(),
            read,
            |key, object| {
                let Some(object) = object else { return Input::ObjectGone(key) };
                let parsed = Box::new(ingest::object(key, &object));
                let stored = Arc::new(StoredObject::new(&parsed.key, object));
                Input::Object(parsed, stored)
            },
        ));
    }
    let nodes: Api<SlimNode> = Api::all_with(client.clone(), &slim_objects::nodes());
    let stream = watcher::watcher(nodes, config.clone()).default_backoff();
    let id = |node: &SlimNode| node.metadata.name.as_deref().map(Name::from);
    tasks.spawn(follow(Source::Nodes, stream, mailbox.clone(), metrics.clone(), id, move |name, node| {
        // Without node management, nothing receives this.
        let Some(node) = node else {
            let _ = label_updates.send(node_labels::Update::NodeGone(name.clone()));
            return Input::Event(Event::NodeGone(name));
        };
        let _ =
            label_updates.send(node_labels::Update::NodeSeen(name.clone(), slim_objects::node_state(&node)));
        let (labels, ready) = slim_objects::node(&node);
        Input::Event(Event::Node { name, labels, ready })
    }));
    let namespaces = Api::<PartialObjectMeta<Namespace>>::all(client.clone());
    let stream = watcher::watcher(namespaces, config.clone()).default_backoff();
    tasks.spawn(follow(
        Source::Namespaces,
        stream,
        mailbox.clone(),
        metrics.clone(),
        name::<Namespace>,
        |name, object| {
            Input::Event(match object {
                Some(object) => Event::Namespace(name, ingest::labels(&object.metadata)),
                None => Event::NamespaceGone(name),
            })
        },
    ));
    for kind in WorkloadKind::ALL {
        let workloads: Api<SlimWorkload> = Api::all_with(client.clone(), &kind.resource());
        let stream = watcher::watcher(workloads, config.clone()).backoff(templates::backoff());
        let id = move |workload: &SlimWorkload| kind.id(workload);
        let multus = multus.clone();
        tasks.spawn(follow(
            Source::Workloads(kind),
            stream,
            mailbox.clone(),
            metrics.clone(),
            id,
            move |id, workload| {
                let named = workload.map(|workload| kind.named(&workload, &multus));
                Input::Event(Event::Stopped(id, named.unwrap_or_default()))
            },
        ));
    }
    // A pod that finishes no longer matches, so the server reports it as deleted.
    let unfinished = config.fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods: Api<SlimPod> = Api::all_with(client.clone(), &slim_objects::pods());
    let stream = watcher::watcher(pods, unfinished).default_backoff();
    let uid = |pod: &SlimPod| pod.metadata.uid.as_deref().map(Name::from);
    tasks.spawn(follow(Source::Pods, stream, mailbox.clone(), metrics.clone(), uid, move |uid, pod| {
        Input::Event(match pod {
            Some(pod) => Event::Pod(Box::new(slim_objects::pod(uid, &pod, &multus))),
            None => Event::PodGone(uid),
        })
    }));
}

async fn config(client: &Client) -> watcher::Config {
    let base = watcher::Config::default().timeout(WATCH_SECONDS);
    let minor = match client.apiserver_version().await {
        Ok(version) => version.minor.trim_end_matches('+').parse::<u32>().unwrap_or_default(),
        Err(error) => {
            debug!(%error, "the API server's version is not known");
            0
        }
    };
    if minor >= STREAMING_LIST_MINOR {
        watcher::Config { initial_list_strategy: InitialListStrategy::StreamingList, ..base }
    } else {
        watcher::Config { page_size: Some(PAGE_SIZE), ..base }
    }
}

/// True if the API server does not know the kind.
fn is_absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 404
}

fn name<K>(object: &PartialObjectMeta<K>) -> Option<Name> {
    object.metadata.name.as_deref().map(Name::from)
}

/// Converts one watch into messages. A new list reveals deleted objects by their missing names.
async fn follow<T, Id>(
    source: Source,
    stream: impl Stream<Item = watcher::Result<watcher::Event<T>>>,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
    id: impl Fn(&T) -> Option<Id>,
    input: impl Fn(Id, Option<T>) -> Input,
) where
    Id: Clone + Debug + Eq + Hash,
{
    let mut stream = std::pin::pin!(stream);
    let mut known: HashSet<Id> = HashSet::new();
    let mut missing: HashSet<Id> = HashSet::new();
    let (mut synced, mut absent) = (false, false);
    while let Some(event) = stream.next().await {
        if absent && !matches!(event, Ok(watcher::Event::Init) | Err(_)) {
            absent = false;
            metrics.kind_absent(source.as_str(), false);
        }
        let open = match event {
            Ok(watcher::Event::Init) => {
                missing.clone_from(&known);
                true
            }
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                let Some(name) = id(&object) else { continue };
                missing.remove(&name);
                known.insert(name.clone());
                post(&mailbox, input(name, Some(object))).await
            }
            Ok(watcher::Event::Delete(object)) => {
                let Some(name) = id(&object) else { continue };
                known.remove(&name);
                post(&mailbox, input(name, None)).await
            }
            Ok(watcher::Event::InitDone) => {
                let mut open = true;
                for name in missing.drain() {
                    known.remove(&name);
                    open = post(&mailbox, input(name, None)).await;
                }
                if !synced {
                    synced = true;
                    open = post(&mailbox, Input::Synced(source)).await;
                }
                open
            }
            Err(error) => {
                let is_optional = matches!(source, Source::Workloads(_));
                match source {
                    Source::Workloads(_) if is_absent(&error) => {
                        debug!(watch = source.as_str(), "the API server has no such kind");
                    }
                    Source::Kind(kind) if is_absent(&error) => {
                        if !std::mem::replace(&mut absent, true) {
                            metrics.kind_absent(kind.as_str(), true);
                            warn!(
                                watch = kind.as_str(),
                                "the API server does not know the kind: install its CustomResourceDefinition"
                            );
                            post(&mailbox, Input::Absent(kind)).await;
                        }
                    }
                    _ => {
                        metrics.watch_error(source.as_str());
                        warn!(watch = source.as_str(), %error, "the watch broke off and begins again");
                    }
                }
                // Nothing waits for what may never come.
                if is_optional && !synced {
                    synced = true;
                    post(&mailbox, Input::Synced(source)).await
                } else {
                    true
                }
            }
        };
        if !open {
            return;
        }
    }
}
