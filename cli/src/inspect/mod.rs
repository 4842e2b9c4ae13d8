//! User-facing commands on a running operator: access to the cluster and NATS, and output.

pub(crate) mod addresses;
pub(crate) mod blame;
pub(crate) mod cabling;
pub(crate) mod end_to_end;
pub(crate) mod events;
pub mod forward;
pub(crate) mod history;
pub(crate) mod manifests;
pub(crate) mod output;
pub(crate) mod path;
pub(crate) mod plan;
pub(crate) mod remedy;
pub(crate) mod schema;
pub(crate) mod shares;
pub(crate) mod source;
pub(crate) mod status;
pub(crate) mod timeline;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use eno_engine::forecast::{ClusterState, Key, Name, is_namespaced, kind};
use eno_sbi::nats::{Connection, NatsArgs, connect};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::install::cluster;
use crate::install::context::{CA, ContextStore, INSPECT_SEED};

/// Maximum wait for a connection to NATS.
const NATS_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of the cluster to read.
#[derive(Clone, Debug, clap::Args)]
pub struct ClusterArgs {
    /// The kubeconfig; absent: KUBECONFIG, ~/.kube/config or, in a pod, its service account.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig; absent: its current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArgs {
    /// A client of the API server.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Client::try_from(self.config().await?)
            .context("check --kubeconfig and --context: there is no way to the API server")
    }

    /// The namespace of the kubeconfig's context.
    pub async fn namespace(&self) -> anyhow::Result<String> {
        Ok(self.config().await?.default_namespace)
    }

    /// The URL of the API server.
    pub(crate) async fn server(&self) -> anyhow::Result<String> {
        Ok(self.config().await?.cluster_url.to_string().trim_end_matches('/').to_owned())
    }

    /// The options that choose the same cluster in another command.
    pub(crate) fn flags(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig.as_ref().map(|path| ("--kubeconfig", path.display().to_string()));
        let context = self.context.as_ref().map(|context| ("--context", context.clone()));
        kubeconfig.into_iter().chain(context).flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        Ok(match &self.kubeconfig {
            Some(path) => {
                let file =
                    Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &options).await?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await?,
        })
    }
}

/// Options of the connection to NATS, for information that only NATS has.
#[derive(Clone, Debug, clap::Args)]
#[allow(clippy::struct_field_names, reason = "they are the names of the flags")]
pub struct NatsClientArgs {
    /// URLs of the NATS servers, separated by commas; absent: those of the cluster, if `eno install` left their keys on
    /// this disk, or else what only NATS knows is left out.
    #[arg(long, env = "ENO_NATS_URL", value_name = "URL")]
    nats_url: Option<String>,
    /// A file with the credentials, as the engine takes it.
    #[arg(long, env = "ENO_NATS_CREDENTIALS", value_name = "FILE")]
    nats_credentials: Option<PathBuf>,
    /// A PEM file with the certificate authorities that may have signed the servers' certificates.
    #[arg(long, env = "ENO_NATS_CA", value_name = "FILE")]
    nats_ca: Option<PathBuf>,
}

impl NatsClientArgs {
    /// Connects; `None`: no URL is given, and this disk has no keys of the client's cluster.
    pub async fn connect<'a>(
        &self,
        client: impl Into<Option<&'a Client>>,
    ) -> anyhow::Result<Option<Connection>> {
        let args = match (self.given(), client.into()) {
            (Some(args), _) => Some(args),
            (None, Some(client)) => of_context(client).await?,
            (None, None) => None,
        };
        let Some(args) = args else { return Ok(None) };
        let stop = CancellationToken::new();
        match tokio::time::timeout(NATS_TIMEOUT, connect(&args, "eno-cli", &stop)).await {
            Ok(connection) => Ok(Some(connection?)),
            Err(_) => bail!(
                "check --nats-url and --nats-credentials: NATS did not let this client in within {} s",
                NATS_TIMEOUT.as_secs()
            ),
        }
    }

    /// Connects for a command that needs NATS; an error when no URL is known.
    pub async fn connect_required<'a>(
        &self,
        client: impl Into<Option<&'a Client>>,
    ) -> anyhow::Result<Connection> {
        let connection = self.connect(client).await?;
        connection.context("give --nats-url or ENO_NATS_URL: only NATS has the answer")
    }

    fn given(&self) -> Option<NatsArgs> {
        Some(NatsArgs {
            nats_url: self.nats_url.clone()?,
            nats_credentials: self.nats_credentials.clone(),
            nats_ca: self.nats_ca.clone(),
            nats_replicas: 1,
        })
    }
}

/// The port that is forwarded to NATS, for all attempts to connect.
static FORWARDED: OnceCell<SocketAddr> = OnceCell::const_new();

/// The way to NATS in the cluster, with the keys that `eno install` left on this disk.
async fn of_context(client: &Client) -> anyhow::Result<Option<NatsArgs>> {
    let Some(store) = ContextStore::of_user().filter(ContextStore::has_clusters) else { return Ok(None) };
    // Who may not read its uid has not installed on this cluster.
    let Ok(uid) = cluster::uid(client).await else { return Ok(None) };
    let context = store.cluster(&uid);
    let Some(seed) = context.file(INSPECT_SEED) else { return Ok(None) };
    let address = FORWARDED.get_or_try_init(|| forward::to_nats(client.clone())).await?;
    Ok(Some(NatsArgs {
        nats_url: format!("tls://localhost:{}", address.port()),
        nats_credentials: Some(seed),
        nats_ca: context.file(CA),
        nats_replicas: 1,
    }))
}

/// Parses `KIND/NAME`, or `KIND` and `NAME` as two arguments, as kubectl does.
pub fn parse_object(arguments: &[String], namespace: &str) -> anyhow::Result<Key> {
    let (kind_text, name) = match arguments {
        [both] => both.split_once('/').with_context(|| format!("{both:?} is not KIND/NAME"))?,
        [kind, name] => (kind.as_str(), name.as_str()),
        _ => bail!("name one object, as KIND/NAME"),
    };
    let kind = kind(kind_text).with_context(|| {
        format!("name a kind such as l2s, l2sa or fd: the operator has no kind {kind_text:?}")
    })?;
    let name = Name::from(name);
    Ok(if is_namespaced(kind) {
        Key::namespaced(kind, &namespace.into(), &name)
    } else {
        Key::cluster(kind, &name)
    })
}

/// The resources that could not be read, which are also printed to standard error.
pub(crate) fn left_out(world: &ClusterState) -> Vec<String> {
    let left_out: Vec<String> = world.left_out().iter().map(ToString::to_string).collect();
    if !left_out.is_empty() {
        eprintln!("eno: left out, since you may not list them: {}", left_out.join(", "));
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_references_follow_kubectl_syntax() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (text, expected) in [
            ("l2s/a", "L2Service/a"),
            ("L2Service a", "L2Service/a"),
            ("l2serviceattachments/a", "L2ServiceAttachment/ns/a"),
            ("podconfig a", "PodConfig/ns/a"),
        ] {
            assert_eq!(parse_object(&words(text), "ns").expect(text).to_string(), expected);
        }
        for text in ["a", "thing/a", "l2s a b"] {
            assert!(parse_object(&words(text), "ns").is_err(), "{text}");
        }
    }
}
