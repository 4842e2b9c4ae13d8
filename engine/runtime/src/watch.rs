//! The watches of the API server. Nothing is stored here but names: what is seen goes straight into the mailbox.

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

use crate::mailbox::{Input, Mailbox, Source, post};
use crate::metrics::Metrics;
use crate::objects::Stored;
use crate::seen::{self, SlimNode, SlimPod};
use crate::{api, ingest, marks};

/// Objects per answer where lists are not streamed.
const PAGE: u32 = 500;
/// The first minor version of Kubernetes that streams lists without being asked to allow it.
const STREAMS_LISTS: u32 = 34;

/// A watch that the server does not end after so many seconds, nor says anything on for a little longer, is dead, and
/// another begins where it was.
const LASTS: u32 = 60;

/// Begins all watches. What nodes are marked with is told to `marks`.
pub async fn start(
    tasks: &mut JoinSet<()>,
    client: &Client,
    mailbox: &Mailbox,
    marks: mpsc::UnboundedSender<marks::Word>,
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
                let stored = Arc::new(Stored::new(&parsed.key, object));
                Input::Object(parsed, stored)
            },
        ));
    }
    let nodes: Api<SlimNode> = Api::all_with(client.clone(), &seen::nodes());
    let stream = watcher::watcher(nodes, config.clone()).default_backoff();
    let id = |node: &SlimNode| node.metadata.name.as_deref().map(Name::from);
    tasks.spawn(follow(Source::Nodes, stream, mailbox.clone(), metrics.clone(), id, move |name, node| {
        // Whoever marks nodes may not be there: then nothing needs to be told.
        let Some(node) = node else {
            let _ = marks.send(marks::Word::Gone(name.clone()));
            return Input::World(Event::NodeGone(name));
        };
        let _ = marks.send(marks::Word::Seen(name.clone(), seen::found(&node)));
        let (labels, ready) = seen::node(&node);
        Input::World(Event::Node { name, labels, ready })
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
            Input::World(match object {
                Some(object) => Event::Namespace(name, ingest::labels(&object.metadata)),
                None => Event::NamespaceGone(name),
            })
        },
    ));
    // A pod that finishes no longer matches, and the server says that it is gone.
    let unfinished = config.fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods: Api<SlimPod> = Api::all_with(client.clone(), &seen::pods());
    let stream = watcher::watcher(pods, unfinished).default_backoff();
    let uid = |pod: &SlimPod| pod.metadata.uid.as_deref().map(Name::from);
    tasks.spawn(follow(Source::Pods, stream, mailbox.clone(), metrics.clone(), uid, |uid, pod| {
        Input::World(match pod {
            Some(pod) => Event::Pod(Box::new(seen::pod(uid, &pod))),
            None => Event::PodGone(uid),
        })
    }));
}

async fn config(client: &Client) -> watcher::Config {
    let base = watcher::Config::default().timeout(LASTS);
    let minor = match client.apiserver_version().await {
        Ok(version) => version.minor.trim_end_matches('+').parse::<u32>().unwrap_or_default(),
        Err(error) => {
            debug!(%error, "the API server's version is not known");
            0
        }
    };
    if minor >= STREAMS_LISTS {
        watcher::Config { initial_list_strategy: InitialListStrategy::StreamingList, ..base }
    } else {
        watcher::Config { page_size: Some(PAGE), ..base }
    }
}

fn name<K>(object: &PartialObjectMeta<K>) -> Option<Name> {
    object.metadata.name.as_deref().map(Name::from)
}

/// Turns one watch into messages. A new list tells what vanished meanwhile, by the names that are missing from it.
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
    let mut synced = false;
    while let Some(event) = stream.next().await {
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
                metrics.watch_error(source.as_str());
                warn!(watch = source.as_str(), %error, "the watch broke off and begins again");
                true
            }
        };
        if !open {
            return;
        }
    }
}
