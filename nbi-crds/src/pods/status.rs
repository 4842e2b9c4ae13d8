//! The parts of a status that are about running pods.

use eno_schemas::Phase;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Where a configuration is on its way.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum ConfigPhase {
    /// Not looked at yet.
    #[default]
    Unset,
    /// Some pod does not have it yet.
    Configuring,
    /// Every pod that is picked has it.
    Configured,
    /// It can't be done, or not for some pod; the message says what and why.
    Error,
    /// Deleted by a client, and being taken back.
    Terminating,
    /// Verifiably gone. Seen only in the last transition.
    Deleted,
}

impl From<Phase> for ConfigPhase {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Pending => Self::Configuring,
            Phase::Ready => Self::Configured,
            Phase::Error => Self::Error,
            Phase::Terminating => Self::Terminating,
            Phase::Deleted => Self::Deleted,
        }
    }
}

impl From<ConfigPhase> for Option<Phase> {
    fn from(phase: ConfigPhase) -> Self {
        match phase {
            ConfigPhase::Unset => None,
            ConfigPhase::Configuring => Some(Phase::Pending),
            ConfigPhase::Configured => Some(Phase::Ready),
            ConfigPhase::Error => Some(Phase::Error),
            ConfigPhase::Terminating => Some(Phase::Terminating),
            ConfigPhase::Deleted => Some(Phase::Deleted),
        }
    }
}

/// What one pod has.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodConfiguration {
    /// The pod; `<namespace>/<name>` of another namespace.
    #[schemars(length(max = 317))]
    pub pod_name: String,
    /// One entry for each of its interfaces, such as `{podVethName:pc02841804 podIPAddr:192.168.100.2/24
    /// peerVethName:hpc02841804 bridge:pcbr0}`.
    #[serde(default)]
    #[schemars(length(max = 256), inner(length(max = 2048)))]
    pub config_list: Vec<String>,
    /// What it does not have and why.
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// Addresses that are a pod's own for as long as it is picked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The pod; `<namespace>/<name>` of another namespace.
    #[schemars(length(max = 317))]
    pub pod: String,
    /// Its metadata.uid.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The interface, as the spec names it. The name of the object, if none of its interfaces in the pod has an address.
    #[schemars(length(max = 512))]
    pub link: String,
    /// The name in the pod of an attachment's interface, in the first entry of a pod. It stays as long as the labels
    /// choose no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub interface: Option<String>,
    /// With the prefix length of their network.
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub addresses: Vec<String>,
}
