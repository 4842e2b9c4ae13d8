//! Command-line arguments of `eno engine`.

use std::path::PathBuf;

use eno_sbi::daemon::HttpArgs;
use eno_sbi::nats::NatsArgs;

use crate::callbacks::CallbackArgs;
use crate::leader::cluster_id;
use crate::watch::networks::MULTUS_NAMESPACE;

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
    /// Identifies this cluster on switches: 1 to 8 characters of a-z and 0-9; absent: what it was before, as the Lease
    /// keeps it, and for a new installation one that is derived from the uid of the namespace kube-system.
    #[arg(long, env = "ENO_CLUSTER_ID", value_name = "ID", value_parser = cluster_id::parse)]
    pub cluster_id: Option<String>,
    /// Make an L2BridgeDomain per L2Service in use, for fabric plugins that watch them.
    #[arg(long, env = "ENO_BRIDGE_DOMAINS")]
    pub bridge_domains: bool,
    /// Configure nodes: their bridges and host networks, and the networks of running pods. Without it, what nodes need
    /// is expected to be there.
    #[arg(long, env = "ENO_NODES", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
          default_value_t = true, default_missing_value = "true")]
    pub nodes: bool,
    /// Let agents probe whether packets pass on the VLANs of each ConnectionPoint, as its field Verify says. Without it,
    /// nothing is probed.
    #[arg(long, env = "ENO_VERIFY", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
          default_value_t = true, default_missing_value = "true")]
    pub verify: bool,
    /// A directory with the keys of the answers to NATS servers that ask about the agents' logins: issuer.seed and
    /// answerer.seed, and while keys are exchanged a second pair; absent: agents don't log in by tokens.
    #[arg(long, env = "ENO_NODE_LOGIN_KEYS", value_name = "DIR")]
    pub node_login_keys: Option<PathBuf>,
    /// `multusNamespace` in the configuration of Multus. There it looks up a name without a namespace in the annotation
    /// v1.multus-cni.io/default-network of a pod.
    #[arg(long, env = "ENO_MULTUS_NAMESPACE", default_value = MULTUS_NAMESPACE, value_name = "NAME")]
    pub multus_namespace: String,
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
