//! The objects of the benchmark, and a watch on their readiness.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use anyhow::Context as _;
use eno_nbi_crds::{Callbacks, L2Service, L2ServiceAttachment, Phase, VlanType};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::networks;
use crate::sandbox::POOL;
use eno::apply::{ApplyError, dynamic};

pub(super) const NAMESPACE: &str = "eno-bench";
/// Maximum services; more attachments share them. The other VLAN IDs are for samples.
pub(super) const SERVICES: usize = 4000;
const FIRST_VLAN: usize = 2;
const NAME: &str = "bench";
/// Maximum wait for a condition.
const TIMEOUT: Duration = Duration::from_mins(15);

/// A NodePool and a ConnectionPoint of one name.
pub(super) struct PoolAndPoint<'a> {
    pub(super) name: &'a str,
    /// The nodes of the pool; absent: all.
    pub(super) nodes: Option<Vec<String>>,
}

/// The pool and point with all nodes.
pub(super) const EVERYWHERE: PoolAndPoint<'static> = PoolAndPoint { name: NAME, nodes: None };

/// The prerequisites: a namespace, and pools with an OVS bridge on their nodes' `eth1`.
pub(super) fn base(pools_and_points: &[PoolAndPoint<'_>]) -> Result<Vec<DynamicObject>, ApplyError> {
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(NAMESPACE.to_owned()),
            labels: Some(BTreeMap::from([("eno.k8s.io/use-check".to_owned(), "off".to_owned())])),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let mut objects = vec![dynamic(&namespace)?];
    for PoolAndPoint { name, nodes } in pools_and_points {
        objects.push(dynamic(&networks::pool(name, POOL, nodes.as_deref()))?);
        objects.push(dynamic(&networks::connection_point(name, "br-bench"))?);
    }
    Ok(objects)
}

/// The index of the first single change, above all others.
pub(super) const FIRST_SAMPLE: usize = 1_000_000;
/// Maximum number of timed single changes at a time, which the remaining VLAN IDs allow beside those that don't count.
pub(super) const MAX_SAMPLES: usize = 90;

pub(super) fn name(index: usize) -> String {
    format!("{NAME}-{index}")
}

/// A service with the `vlan`th VLAN ID of the benchmark.
pub(super) fn service(index: usize, vlan: usize) -> anyhow::Result<L2Service> {
    let vid = u16::try_from(FIRST_VLAN + vlan).context("too many services")?;
    Ok(networks::service(&name(index), vid, Vec::new(), Callbacks::default()))
}

/// An attachment to a service, on one of the ConnectionPoints.
pub(super) fn attachment(index: usize, service: usize, pool_and_point: &str) -> L2ServiceAttachment {
    let services = vec![name(service)];
    networks::attachment(&name(index), services, pool_and_point, VlanType::Access, Callbacks::default())
}

/// The APIs of both kinds.
#[derive(Clone)]
pub(super) struct Apis {
    pub(super) services: Api<L2Service>,
    pub(super) attachments: Api<L2ServiceAttachment>,
}

impl Apis {
    pub(super) fn new(client: &Client) -> Self {
        Self { services: Api::all(client.clone()), attachments: Api::namespaced(client.clone(), NAMESPACE) }
    }

    /// Creates an attachment, and its service if this index has one.
    pub(super) async fn create(&self, index: usize) -> anyhow::Result<()> {
        let params = PostParams::default();
        let of = index % SERVICES;
        if of == index {
            self.services.create(&params, &service(index, of)?).await.context("creating an L2Service")?;
        }
        let attachment = attachment(index, of, EVERYWHERE.name);
        self.attachments.create(&params, &attachment).await.context("creating an L2ServiceAttachment")?;
        Ok(())
    }

    /// Creates a single change's pair: a service and an attachment with their own index and VLAN ID.
    pub(super) async fn add(&self, sample: usize, pool_and_point: &str) -> anyhow::Result<[String; 2]> {
        let (params, index) = (PostParams::default(), FIRST_SAMPLE + sample);
        let service = service(index, SERVICES + sample)?;
        self.services.create(&params, &service).await.context("creating an L2Service")?;
        let attachment = attachment(index, index, pool_and_point);
        self.attachments.create(&params, &attachment).await.context("creating an L2ServiceAttachment")?;
        Ok([format!("s/{}", name(index)), format!("a/{}", name(index))])
    }

    /// Deletes the pair of [`Self::add`].
    pub(super) async fn remove(&self, sample: usize) -> anyhow::Result<()> {
        let (params, name) = (DeleteParams::default(), name(FIRST_SAMPLE + sample));
        self.attachments.delete(&name, &params).await.context("deleting an L2ServiceAttachment")?;
        self.services.delete(&name, &params).await.context("deleting an L2Service")?;
        Ok(())
    }

    /// Deletes the objects of [`Self::create`].
    pub(super) async fn delete(&self, index: usize) -> anyhow::Result<()> {
        let params = DeleteParams::default();
        self.attachments.delete(&name(index), &params).await.context("deleting an L2ServiceAttachment")?;
        if index < SERVICES {
            self.services.delete(&name(index), &params).await.context("deleting an L2Service")?;
        }
        Ok(())
    }
}

/// Runs a step for each index, with this many at a time.
pub(super) async fn each<F: Future<Output = anyhow::Result<()>>>(
    indices: impl IntoIterator<Item = usize>,
    concurrency: usize,
    step: impl Fn(usize) -> F,
) -> anyhow::Result<()> {
    stream::iter(indices).map(step).buffer_unordered(concurrency).try_collect().await
}

/// The existing and the ready objects, such as `s/NAME` of an L2Service and `a/NAME` of an L2ServiceAttachment.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) present: HashSet<String>,
    pub(super) ready: HashSet<String>,
}

/// The objects of a kind as they change: the name of each, and whether it is ready. `None` for it: it is gone. `None` of
/// a stream says nothing.
pub(super) type Phases = BoxStream<'static, Option<(String, Option<bool>)>>;

/// Watches the phases of a kind. The names begin with the letter `kind` and a slash.
pub(super) fn phases<K>(kind: char, api: Api<K>, phase: fn(&K) -> Option<Phase>) -> Phases
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let events = watcher(api, watcher::Config::default()).default_backoff();
    events.map(move |event| reduce(kind, event.ok()?, phase)).boxed()
}

/// The phases of L2Services and L2ServiceAttachments.
pub(super) fn phases_of_pairs(apis: &Apis) -> Vec<Phases> {
    let services = phases('s', apis.services.clone(), |service| service.status.as_ref()?.phase);
    let attachments = phases('a', apis.attachments.clone(), |attachment| attachment.status.as_ref()?.phase);
    vec![services, attachments]
}

/// Watches the objects of some kinds.
pub(super) struct Tracker {
    seen: watch::Receiver<Seen>,
    _task: AbortOnDropHandle<()>,
}

impl Tracker {
    /// Watches L2Services and L2ServiceAttachments.
    pub(super) fn start(apis: &Apis) -> Self {
        Self::of(phases_of_pairs(apis))
    }

    /// Watches what these streams have.
    pub(super) fn of(kinds: Vec<Phases>) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        let task = tokio::spawn(async move {
            let mut events = stream::select_all(kinds);
            while let Some(event) = events.next().await {
                // On an error, the watcher restarts by itself.
                let Some((name, phase)) = event else { continue };
                sender.send_modify(|seen| match phase {
                    None => {
                        seen.present.remove(&name);
                        seen.ready.remove(&name);
                    }
                    Some(ready) => {
                        if ready {
                            seen.ready.insert(name.clone())
                        } else {
                            seen.ready.remove(&name)
                        };
                        seen.present.insert(name);
                    }
                });
            }
        });
        Self { seen, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits until `done` holds.
    pub(super) async fn until(&self, what: &str, done: impl FnMut(&Seen) -> bool) -> anyhow::Result<()> {
        let mut seen = self.seen.clone();
        let waited = tokio::time::timeout(TIMEOUT, seen.wait_for(done)).await;
        if let Ok(found) = waited {
            found.context("the watch ended")?;
            return Ok(());
        }
        let seen = self.seen.borrow();
        anyhow::bail!(
            "{what} took too long: {} are there, {} are ready",
            seen.present.len(),
            seen.ready.len()
        )
    }
}

/// The object's name, and whether it is ready; `None` when it is deleted.
fn reduce<K: ResourceExt>(
    kind: char,
    event: watcher::Event<K>,
    phase: impl Fn(&K) -> Option<Phase>,
) -> Option<(String, Option<bool>)> {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
            let ready = phase(&object) == Some(Phase::Ready);
            Some((format!("{kind}/{}", object.name_any()), Some(ready)))
        }
        watcher::Event::Delete(object) => Some((format!("{kind}/{}", object.name_any()), None)),
        watcher::Event::Init | watcher::Event::InitDone => None,
    }
}
