//! Where the commands read: the cluster and NATS as they are, or the file of `eno sysdump` as they were.

use std::path::PathBuf;

use anyhow::Context as _;
use eno_engine::forecast::ClusterState;
use eno_engine::trace::Messages;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};

use super::{ClusterArgs, NatsClientArgs};
use crate::sysdump::Dump;

/// Pods per page of a list.
const PAGE_SIZE: u32 = 500;

/// The options that say where a command reads.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FromArgs {
    /// Answer from this file of eno sysdump, as of its time, and ask neither the cluster nor NATS.
    #[arg(long, value_name = "DUMP", conflicts_with_all = ["kubeconfig", "context"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Where a command reads.
pub(crate) enum Source {
    /// In the cluster.
    Live(Client),
    /// In a dump.
    Dump(Dump),
}

impl Source {
    /// The dump, if one is named, or else the cluster.
    pub(crate) async fn open(args: &FromArgs) -> anyhow::Result<Self> {
        let Some(path) = &args.from else { return Ok(Self::Live(args.cluster.client().await?)) };
        let dump = Dump::open(path)?;
        eprintln!("eno: as of {}, from {}, which eno {} wrote", dump.made_at(), path.display(), dump.eno());
        Ok(Self::Dump(dump))
    }

    /// The namespace of objects that name none.
    pub(crate) fn namespace(&self) -> &str {
        match self {
            Self::Live(client) => client.default_namespace(),
            Self::Dump(dump) => dump.namespace(),
        }
    }

    /// The time to which ages are relative.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Live(_) => Timestamp::now(),
            Self::Dump(dump) => dump.made_at(),
        }
    }

    /// The state of the cluster. Kinds that can't be listed in the whole cluster are listed in `namespace`; of a dump,
    /// in the namespace of whoever made it.
    pub(crate) async fn cluster_state(&self, namespace: &str) -> anyhow::Result<ClusterState> {
        Ok(match self {
            Self::Live(client) => ClusterState::read(client, namespace).await?,
            Self::Dump(dump) => dump.cluster_state()?,
        })
    }

    /// The messages of NATS; `None`: no URL of NATS is known, or the dump has none.
    pub(crate) async fn messages(&self, args: &NatsClientArgs) -> anyhow::Result<Option<Messages>> {
        Ok(match self {
            Self::Live(client) => args.connect(client).await?.map(Box::new).map(Messages::Nats),
            Self::Dump(dump) => dump.messages(),
        })
    }

    /// The messages of NATS for a command that needs them.
    pub(crate) async fn messages_required(&self, args: &NatsClientArgs) -> anyhow::Result<Messages> {
        Ok(match self {
            Self::Live(client) => Messages::Nats(Box::new(args.connect_required(client).await?)),
            Self::Dump(dump) => dump.messages_required()?,
        })
    }

    /// The options that choose the same dump in another command.
    pub(crate) fn flags(&self) -> Vec<String> {
        match self {
            Self::Live(_) => Vec::new(),
            Self::Dump(dump) => vec!["--from".to_owned(), dump.path().display().to_string()],
        }
    }

    /// The metadata of all pods that have not ended; without the right to list all, of those in the namespace of the
    /// kubeconfig; else of none.
    pub(crate) async fn pods(&self) -> anyhow::Result<Vec<PartialObjectMeta<Pod>>> {
        let client = match self {
            Self::Live(client) => client,
            Self::Dump(dump) => return Ok(dump.pods()?),
        };
        for pods in [Api::all(client.clone()), Api::default_namespaced(client.clone())] {
            match list(&pods).await {
                Err(kube::Error::Api(status)) if status.code == 403 => {}
                result => return result.context("listing pods"),
            }
        }
        Ok(Vec::new())
    }
}

async fn list(pods: &Api<Pod>) -> kube::Result<Vec<PartialObjectMeta<Pod>>> {
    let mut params = ListParams::default().limit(PAGE_SIZE);
    // A pod that has ended has no address any more, and keeps its annotation.
    params = params.fields("status.phase!=Succeeded,status.phase!=Failed");
    let mut found = Vec::new();
    loop {
        let page = pods.list_metadata(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(found),
        }
    }
}
