//! What `eno engine` is told.

use std::path::PathBuf;

use eno_sbi::daemon::HttpArgs;
use eno_sbi::nats::NatsArgs;

use crate::callbacks::CallbackArgs;

/// Flags of `eno engine`. Each has an environment variable that is used in its absence.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArgs {
    /// A kubeconfig; absent: KUBECONFIG, ~/.kube/config or, in a pod, its service account.
    #[arg(long, env = "ENO_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The operator's namespace: of the Lease that says which engine leads, and of Secrets for callbacks of objects without
    /// a namespace.
    #[arg(long, env = "ENO_NAMESPACE", default_value = "eno-system", value_name = "NAME")]
    pub namespace: String,
    /// Identifies this cluster on switches: 1 to 8 characters of a-z and 0-9; absent: derived from the uid of the
    /// namespace kube-system.
    #[arg(long, env = "ENO_CLUSTER_ID", value_name = "ID", value_parser = cluster_id)]
    pub cluster_id: Option<String>,
    /// Make an L2BridgeDomain per L2Service in use, for fabric plugins that watch them.
    #[arg(long, env = "ENO_BRIDGE_DOMAINS")]
    pub bridge_domains: bool,
    /// Configure nodes: their bridges and host networks, and the networks of running pods. Without it, what nodes need
    /// is expected to be there.
    #[arg(long, env = "ENO_NODES", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
          default_value_t = true, default_missing_value = "true")]
    pub nodes: bool,
    /// The image of PodConfigs' sample Deployments: it needs /bin/sh and sleep; absent: none are made.
    #[arg(long, env = "ENO_SAMPLE_IMAGE", value_name = "IMAGE")]
    pub sample_image: Option<String>,
    /// Callbacks.
    #[command(flatten)]
    pub callbacks: CallbackArgs,
    /// NATS.
    #[command(flatten)]
    pub nats: NatsArgs,
    /// Metrics and probes.
    #[command(flatten)]
    pub http: HttpArgs,
}

fn cluster_id(text: &str) -> Result<String, String> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if (1..=8).contains(&text.len()) && text.bytes().all(good) {
        Ok(text.to_owned())
    } else {
        Err("must have 1 to 8 characters of a-z and 0-9".to_owned())
    }
}
