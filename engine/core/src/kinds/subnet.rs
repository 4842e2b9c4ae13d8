//! Subnet: addresses for pods.

use eno_schemas::{Dns, Ipam, Pool};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Absence, Described, Facts, Kind, Name, Reference};

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SubnetSpec {
    /// The IPAM plugin that hands out addresses.
    pub ipam: Ipam,
    /// The network.
    pub network: IpNet,
    /// The ranges that IPAM may hand out; each `start` ≤ `end`, inside the network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocation_pool: Vec<Pool>,
    /// The ranges that the engine leases from; disjoint from the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot_plug_pool: Vec<Pool>,
    /// A pod of a StatefulSet gets its former address again. With [`Ipam::Eno`] only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sticky: bool,
    /// Routes into the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Name>,
    /// Resolver settings.
    #[serde(default, skip_serializing_if = "Dns::is_empty")]
    pub dns: Dns,
}

impl Described for SubnetSpec {
    const FACTS: Facts = Facts { absence: Absence::UnlessNamed, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] =
        &[Reference::checked_by_part("Routes", Kind::Route, |spec| spec.routes.iter().collect())];
}
