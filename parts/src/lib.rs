//! The facts about each part of ENO that runs in a cluster, for all lists of parts. A part has them in the file
//! `part.toml` of its folder: see [`Part`]. A driver that somebody else makes needs none.
//!
//! `make crds` writes what `deploy/` has of drivers from these facts.

mod part;
mod table {
    use super::part::Rights::{Devices, Own};
    use super::part::WorkloadKind::{DaemonSet, Deployment, StatefulSet};
    use super::part::{Account, Part, Program, Resources, Workload};

    include!(concat!(env!("OUT_DIR"), "/parts.rs"));
}

pub use part::{Account, Part, Program, Resources, Rights, Workload, WorkloadKind};
pub use table::*;

/// The workloads of an installation, in the order in which people read of them.
pub fn workloads() -> impl Iterator<Item = &'static Workload> {
    ALL.into_iter().filter_map(|part| part.workload.as_ref())
}

/// The names of the drivers.
pub fn drivers() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter_map(|part| part.driver)
}

/// The parts that log in to NATS with a key.
pub fn nats_users() -> impl Iterator<Item = &'static Part> {
    ALL.into_iter().filter(|part| part.nats_key)
}

/// The programs of the image, `eno` first.
pub fn programs() -> impl Iterator<Item = &'static Program> {
    ALL.into_iter().filter_map(|part| part.program.as_ref())
}

/// The environment variable of the NATS servers with the public key of this name.
pub fn nats_variable(key: &str) -> String {
    format!("{}_NKEY", key.replace('-', "_").to_uppercase())
}

impl Part {
    /// The arguments with which `eno` runs it.
    pub fn arguments(&self) -> Vec<&'static str> {
        self.driver.map_or_else(|| vec![self.name], |driver| vec!["driver", driver])
    }
}

impl Account {
    /// Its user name on the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl WorkloadKind {
    /// Its name in manifests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

impl Workload {
    /// Such as `Deployment eno-system/eno-engine`.
    pub fn full_name(&self) -> String {
        format!("{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}
