//! The engine process: connects, takes part in the leader election, leads, and starts over when leadership is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use eno_core::Config;
use eno_sbi::daemon::{self, Readiness, serve};
use eno_sbi::nats::{self, ConnectError, NatsHealth};
use eno_sbi::{Certificates, VERSION};
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::layer::layer_fn;
use tower::util::{MapFutureLayer, option_layer};
use tracing::{info, warn};

use crate::EngineArgs;
use crate::callbacks::Poster;
use crate::leader::cluster_id::Sources;
use crate::leader::lease::{Candidate, Leadership, Times};
use crate::leader::lease_guard::{Fenced, LeaseGuard};
use crate::leader::{LeaderContext, LeaderError, run_leader};
use crate::metrics::Metrics;
use crate::node_logins;

/// Name of the Lease and of the connection to NATS.
const NAME: &str = "eno-engine";
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time for the API server to begin a response, after which the request is retried. It is longer than a busy server
/// queues a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The API server did not respond. The request may have been carried out.
#[derive(Debug, thiserror::Error)]
#[error("the API server did not answer within {} s", RESPONSE_TIMEOUT.as_secs())]
struct ResponseTimeout;

/// Runs the engine until `shutdown`. Transient errors are retried. It returns an error if a retry can't help: invalid
/// arguments, or a port in use.
pub async fn run(args: EngineArgs, shutdown: CancellationToken) -> anyhow::Result<()> {
    // A provider that is already installed is equally good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificates = Certificates::default();
    let mut registry = daemon::registry(VERSION, &certificates);
    let metrics = Arc::new(Metrics::new(&mut registry));
    let kube = kube_config(&args).await?;
    let identity: Arc<str> = identity().into();
    // A separate connection, so that requests for the Lease wait for no others.
    let candidate =
        Candidate::new(client(kube.clone(), None)?, &args.namespace, NAME, &identity, Times::default());
    let lease_guard = candidate.lease_guard();
    // Every engine judges the logins of agents, whether or not it leads.
    let reviewer = client(kube.clone(), None)?;
    let client = client(kube, Some(lease_guard.clone()))?;
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
    // The probes answer before NATS is connected, so that the kubelet does not restart this process meanwhile.
    serve(&args.http, registry, &certificates.metrics, readiness, shutdown.clone()).await?;
    let connection = match nats::connect_recording(&args.nats, NAME, &shutdown, &certificates.nats).await {
        Err(ConnectError::Stopped) => return Ok(()),
        connection => connection?,
    };
    link.set(&connection);
    if let Some(keys) = args.node_login_keys.clone() {
        let logins = node_logins::run(connection.clone(), reviewer, keys, metrics.clone(), shutdown.clone());
        tokio::spawn(logins);
    }
    let config = Config {
        cluster: String::new(),
        cluster_uid: None,
        bridge_domains: args.bridge_domains,
        nodes: args.nodes,
        verify: args.verify,
        observes: false,
    };
    let sample_image = args.sample_image.as_deref().map(Arc::from);
    let mut context = LeaderContext {
        client,
        connection,
        poster,
        config,
        sample_image,
        multus_namespace: args.multus_namespace.as_str().into(),
        metrics,
        identity,
        synced,
        lease_guard,
    };
    while !shutdown.is_cancelled() {
        standing_by.store(true, Ordering::Relaxed);
        let leadership = candidate.lead(&shutdown).await;
        standing_by.store(false, Ordering::Relaxed);
        let Some(leadership) = leadership else { break };
        if let Err(error) = lead(&mut context, args.cluster_id.as_deref(), &leadership, &shutdown).await {
            warn!(%error, "could not lead, trying again");
        }
        candidate.release(leadership).await;
        tokio::select! {
            () = tokio::time::sleep(RETRY_DELAY) => {}
            () = shutdown.cancelled() => {}
        }
    }
    Ok(())
}

/// Leads until leadership is lost or `shutdown`.
async fn lead(
    context: &mut LeaderContext,
    configured: Option<&str>,
    leadership: &Leadership,
    shutdown: &CancellationToken,
) -> Result<(), LeaderError> {
    let stop = || async {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = leadership.lost.cancelled() => {}
        }
    };
    let LeaderContext { client, connection, metrics, .. } = &*context;
    let sources = Sources { client, connection, metrics, configured };
    let cluster = tokio::select! {
        cluster = sources.find(leadership.cluster.as_deref()) => cluster,
        () = stop() => return Ok(()),
    };
    info!(cluster = cluster.id, "VLANs of this cluster are named eno-{}-<ID> on switches", cluster.id);
    leadership.store_cluster_id(&cluster.id);
    context.config = Config { cluster: cluster.id, cluster_uid: cluster.uid, ..context.config.clone() };
    run_leader(context, leadership.term, stop()).await
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

/// With a guard, the client changes things only while the Lease is held.
fn client(config: kube::Config, lease_guard: Option<LeaseGuard>) -> anyhow::Result<Client> {
    let builder = ClientBuilder::try_from(config).context("preparing the way to the API server")?;
    let fence = lease_guard.map(|lease_guard| layer_fn(move |inner| Fenced::new(inner, lease_guard.clone())));
    // The limit covers the start of a response. Streamed bodies such as watches have their own limits.
    let limit = MapFutureLayer::new(|answer| async {
        tokio::time::timeout(RESPONSE_TIMEOUT, answer)
            .await
            .unwrap_or_else(|_| Err(BoxError::from(ResponseTimeout)))
    });
    Ok(builder.with_layer(&option_layer(fence)).with_layer(&limit).build())
}

/// Unique among processes: host name, process id and a random number.
fn identity() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{}-{}-{random:08x}", host.as_deref().unwrap_or(NAME), std::process::id())
}
