//! The engine as a process: connects, stands for the lead, leads, and begins again when the lead is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use eno_core::Config;
use eno_sbi::daemon::{Readiness, serve};
use eno_sbi::nats::{self, ConnectError, NatsHealth};
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::layer::layer_fn;
use tower::util::{MapFutureLayer, option_layer};
use tracing::{info, warn};

use crate::EngineArgs;
use crate::callbacks::Poster;
use crate::cluster_id::Sources;
use crate::lease::{Candidate, Leadership, Times};
use crate::metrics::Metrics;
use crate::reign::{Realm, ReignError, reign};
use crate::tenure::{Fenced, Tenure};

/// The Lease that says which engine leads, and the connection's name on NATS.
const NAME: &str = "eno-engine";
const PAUSE: Duration = Duration::from_secs(1);
/// A request to the API server that has not begun to be answered after so long is given up and tried again: longer than
/// a busy server keeps one waiting in its queues.
const ANSWER: Duration = Duration::from_secs(20);

/// An answer of the API server did not come. Whether it did what it was asked is not known.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", ANSWER.as_secs())]
struct Unanswered;

/// Runs the engine until `shutdown`. An error is one that a retry does not help: bad arguments, or a port that is
/// taken. What may pass is waited for.
pub async fn run(args: EngineArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    // A provider that is there already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Arc::new(Metrics::default());
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let kube = kube_config(&args).await?;
    let identity: Arc<str> = identity().into();
    // On connections of its own, so that the Lease waits for nothing else.
    let candidate =
        Candidate::new(client(kube.clone(), None)?, &args.namespace, NAME, &identity, Times::default());
    let tenure = candidate.tenure();
    let client = client(kube, Some(tenure.clone()))?;
    let poster = Arc::new(Poster::new(&args.callbacks, client.clone(), &args.namespace)?);
    let synced = Arc::new(AtomicBool::new(false));
    let standing_by = Arc::new(AtomicBool::new(false));
    let link = NatsHealth::default();
    link.register(registry.sub_registry_with_prefix("eno_engine"));
    let readiness = {
        let (synced, standing_by, link) = (synced.clone(), standing_by.clone(), link.clone());
        Readiness::new(move || {
            link.check()?;
            if synced.load(Ordering::Relaxed) || standing_by.load(Ordering::Relaxed) {
                return Ok(());
            }
            Err("not in step with the cluster yet".into())
        })
    };
    // Before NATS answers, so that nobody takes this process for dead meanwhile.
    serve(&args.http, registry, readiness, axum::Router::new(), shutdown.clone()).await?;
    let connection = match nats::connect(&args.nats, NAME, &shutdown).await {
        Err(ConnectError::Stopped) => return Ok(()),
        connection => connection?,
    };
    link.set(connection.client.clone());
    let config = Config {
        cluster: String::new(),
        cluster_uid: None,
        bridge_domains: args.bridge_domains,
        nodes: args.nodes,
    };
    let sample_image = args.sample_image.as_deref().map(Arc::from);
    let mut realm =
        Realm { client, connection, poster, config, sample_image, metrics, identity, synced, tenure };
    let mut above = 0;
    while !shutdown.is_cancelled() {
        standing_by.store(true, Ordering::Relaxed);
        let leadership = candidate.lead(above, &shutdown).await;
        standing_by.store(false, Ordering::Relaxed);
        let Some(leadership) = leadership else { break };
        if let Err(error) = lead(&mut realm, args.cluster_id.as_deref(), &leadership, &shutdown).await {
            warn!(%error, "could not lead, trying again");
            if let ReignError::TermUsed { found } = error {
                above = found;
            }
        }
        candidate.release(leadership).await;
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = shutdown.cancelled() => {}
        }
    }
    Ok(())
}

/// Leads until the lead is lost or `shutdown`.
async fn lead(
    realm: &mut Realm,
    configured: Option<&str>,
    leadership: &Leadership,
    shutdown: &CancellationToken,
) -> Result<(), ReignError> {
    let stop = || async {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = leadership.lost.cancelled() => {}
        }
    };
    let Realm { client, connection, metrics, .. } = &*realm;
    let sources = Sources { client, connection, metrics, configured };
    let cluster = tokio::select! {
        cluster = sources.find(leadership.cluster.as_deref()) => cluster,
        () = stop() => return Ok(()),
    };
    info!(cluster = cluster.id, "VLANs of this cluster are named eno-{}-<ID> on switches", cluster.id);
    leadership.keep(&cluster.id);
    realm.config = Config { cluster: cluster.id, cluster_uid: cluster.uid, ..realm.config.clone() };
    reign(realm, leadership.term, stop()).await
}

async fn kube_config(args: &EngineArgs) -> anyhow::Result<kube::Config> {
    let Some(file) = &args.kubeconfig else {
        return kube::Config::infer().await.context("finding out how to reach the API server");
    };
    let kubeconfig = Kubeconfig::read_from(file).with_context(|| format!("reading {}", file.display()))?;
    kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("using {}", file.display()))
}

/// With a tenure, one that changes things only while the lead is held for sure.
fn client(config: kube::Config, tenure: Option<Tenure>) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config).context("preparing the way to the API server")?;
    let fence = tenure.map(|tenure| layer_fn(move |inner| Fenced::new(inner, tenure.clone())));
    // It has no limit of its own: what is answered in part, as a watch, has others.
    let limit = MapFutureLayer::new(|answer| async {
        tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(|_| Err(BoxError::from(Unanswered)))
    });
    Ok(builder.with_layer(&option_layer(fence)).with_layer(&limit).build())
}

/// Unique among processes: the host, and what the system's random numbers give.
fn identity() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{}-{}-{random:08x}", host.as_deref().unwrap_or(NAME), std::process::id())
}
