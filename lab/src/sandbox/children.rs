//! The operator's processes: arguments, environment and identity in the cluster.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use eno_control_plane::{NatsInfo, NatsUser};
use eno_parts::Part;

use super::SandboxOptions;
use super::nodes::TEST_IMAGE;
use crate::manifests::{DEVICES_NAMESPACE, NAMESPACE};

/// The configuration of a process, kept for restarts.
#[derive(Debug, Clone)]
pub(super) struct Child {
    /// The part that it runs.
    pub(super) part: &'static Part,
    /// Its name, also of its log.
    pub(super) name: String,
    /// Its listen address, `host:port`.
    pub(super) listen: String,
    /// Its kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// The URL of NATS for this process, if it differs.
    pub(super) nats_url: Option<String>,
    /// `ENO_CLUSTER_ID`, if set.
    pub(super) cluster_id: Option<String>,
    /// Arguments beyond the part's.
    pub(super) arguments: Vec<OsString>,
}

impl Child {
    /// The base URL of `/metrics`, `/healthz` and `/readyz`.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// A command with the environment of the Deployments of `deploy/`.
    pub(super) fn command(&self, options: &SandboxOptions, nats: &NatsInfo) -> Command {
        let mut command = Command::new(&options.eno);
        command
            .args(self.part.arguments())
            .args(&self.arguments)
            .env_remove("ENO_KUBECONFIG")
            .env("KUBECONFIG", &self.kubeconfig)
            .env("ENO_NATS_URL", self.nats_url.as_ref().unwrap_or(&nats.url))
            .env("ENO_NATS_CREDENTIALS", nats.seed_of(NatsUser::Part(self.part)))
            .env("ENO_NODE_LOGIN_KEYS", nats.seeds())
            .env_remove("ENO_CLUSTER_ID")
            .envs(self.cluster_id.iter().map(|id| ("ENO_CLUSTER_ID", id)))
            .env("ENO_NODES", options.has_agents().to_string())
            .env("ENO_SAMPLE_IMAGE", TEST_IMAGE)
            .env("ENO_NAMESPACE", NAMESPACE)
            // Receivers of callbacks run on this machine.
            .env("ENO_CALLBACK_ALLOW", "127.0.0.0/8,::1/128")
            .env("ENO_CREDENTIALS_NAMESPACE", DEVICES_NAMESPACE)
            .env("ENO_LISTEN", &self.listen)
            // A driver that restarts under its name owns its targets at once.
            .env("ENO_INSTANCE", &self.name);
        command.envs(options.log.iter().map(|filter| ("ENO_LOG", filter)));
        command
    }
}
