//! The operator's processes: arguments, environment and identity in the cluster.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use eno_control_plane::{NatsInfo, NatsUser};

use super::SandboxOptions;
use super::nodes::TEST_IMAGE;
use crate::manifests::{DEVICES_NAMESPACE, NAMESPACE};

/// A part of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `eno engine`.
    Engine,
    /// `eno driver netconf`.
    DriverNetconf,
    /// `eno driver ovs-fabric`.
    DriverOvsFabric,
    /// `eno driver neutron`.
    DriverNeutron,
    /// `eno driver nad`.
    DriverNad,
}

impl Role {
    /// All roles, in start order.
    pub const ALL: [Self; 5] =
        [Self::DriverNetconf, Self::DriverOvsFabric, Self::DriverNeutron, Self::DriverNad, Self::Engine];

    /// The name of its first process, also of its log.
    pub const fn name(self) -> &'static str {
        self.nats_user().name()
    }

    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Engine => &["engine"],
            Self::DriverNetconf => &["driver", "netconf"],
            Self::DriverOvsFabric => &["driver", "ovs-fabric"],
            Self::DriverNeutron => &["driver", "neutron"],
            Self::DriverNad => &["driver", "nad"],
        }
    }

    /// Its NATS user.
    const fn nats_user(self) -> NatsUser {
        match self {
            Self::Engine => NatsUser::Engine,
            Self::DriverNetconf => NatsUser::DriverNetconf,
            Self::DriverOvsFabric => NatsUser::DriverOvsFabric,
            Self::DriverNeutron => NatsUser::DriverNeutron,
            Self::DriverNad => NatsUser::DriverNad,
        }
    }

    /// The user name of its service account in `deploy/`.
    pub fn user(self) -> String {
        format!("system:serviceaccount:{NAMESPACE}:eno-{}", self.name())
    }
}

/// The configuration of a process, kept for restarts.
#[derive(Debug, Clone)]
pub(super) struct Child {
    /// Its role.
    pub(super) role: Role,
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
    /// Arguments beyond the role's.
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
            .args(self.role.arguments())
            .args(&self.arguments)
            .env_remove("ENO_KUBECONFIG")
            .env("KUBECONFIG", &self.kubeconfig)
            .env("ENO_NATS_URL", self.nats_url.as_ref().unwrap_or(&nats.url))
            .env("ENO_NATS_CREDENTIALS", nats.seed_of(self.role.nats_user()))
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
