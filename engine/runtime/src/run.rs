//! The engine as a process: connects, stands for the lead, leads, and begins again when the lead is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use eno_core::Config;
use eno_sbi::daemon::{Readiness, serve};
use eno_sbi::nats::{self, ConnectError};
use k8s_openapi::api::core::v1::Namespace;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use tower::layer::layer_fn;
use tower::util::{MapFutureLayer, option_layer};
use tracing::{info, warn};

use crate::EngineArgs;
use crate::callbacks::Poster;
use crate::lease::{Candidate, Times};
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
    let connection = match nats::connect(&args.nats, NAME, &shutdown).await {
        Err(ConnectError::Stopped) => return Ok(()),
        connection => connection?,
    };
    let synced = Arc::new(AtomicBool::new(false));
    let standing_by = Arc::new(AtomicBool::new(false));
    let readiness = {
        let (synced, standing_by, nats) = (synced.clone(), standing_by.clone(), connection.client.clone());
        Readiness::new(move || {
            if nats.connection_state() != async_nats::connection::State::Connected {
                return Err("no connection to NATS".into());
            }
            if synced.load(Ordering::Relaxed) || standing_by.load(Ordering::Relaxed) {
                return Ok(());
            }
            Err("not in step with the cluster yet".into())
        })
    };
    serve(&args.http, registry, readiness, axum::Router::new(), shutdown.clone()).await?;
    let Some(cluster) = cluster_id(&args, &client, &shutdown).await else { return Ok(()) };
    info!(cluster, "VLANs of this cluster are named eno-{cluster}-<ID> on switches");
    let config = Config { cluster, bridge_domains: args.bridge_domains, nodes: args.nodes };
    let sample_image = args.sample_image.as_deref().map(Arc::from);
    let realm = Realm { client, connection, poster, config, sample_image, metrics, identity, synced, tenure };
    let mut above = 0;
    while !shutdown.is_cancelled() {
        standing_by.store(true, Ordering::Relaxed);
        let leadership = candidate.lead(above, &shutdown).await;
        standing_by.store(false, Ordering::Relaxed);
        let Some(leadership) = leadership else { break };
        let stop = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = leadership.lost.cancelled() => {}
            }
        };
        let result = reign(&realm, leadership.term, stop).await;
        if let Err(error) = result {
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

/// The configured id, else one from the uid of kube-system; `None`: told to stop while the API server was away.
async fn cluster_id(args: &EngineArgs, client: &Client, shutdown: &CancellationToken) -> Option<String> {
    if let Some(id) = &args.cluster_id {
        return Some(id.clone());
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    loop {
        match namespaces.get_metadata("kube-system").await {
            Ok(namespace) => return Some(short(namespace.metadata.uid.as_deref().unwrap_or_default())),
            Err(error) => warn!(%error, "the namespace kube-system can't be read, trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = shutdown.cancelled() => return None,
        }
    }
}

/// 8 characters of `[a-z0-9]` that stand for a uid.
fn short(uid: &str) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let digit = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    Sha256::digest(uid.as_bytes()).iter().take(8).map(digit).collect()
}

/// Unique among processes: the host, and what the system's random numbers give.
fn identity() -> String {
    use std::hash::{BuildHasher as _, Hasher as _};
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{}-{}-{random:08x}", host.as_deref().unwrap_or(NAME), std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_becomes_a_short_id() {
        let id = short("5b2e3c3e-7e49-4c0e-9a37-4fbe4a1a4e61");
        assert_eq!(id, short("5b2e3c3e-7e49-4c0e-9a37-4fbe4a1a4e61"));
        assert_ne!(id, short("5b2e3c3e-7e49-4c0e-9a37-4fbe4a1a4e62"));
        assert!(id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
    }
}
