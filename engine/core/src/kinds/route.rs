//! Route: a route that pods get with an address.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Absence, Described, Facts};

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct RouteSpec {
    /// The destination.
    pub prefix: IpNet,
    /// The next hop, of the prefix's address family.
    pub next_hop: IpAddr,
}

impl Described for RouteSpec {
    const FACTS: Facts = Facts { absence: Absence::UnlessNamed, ..Facts::DEFAULT };
}
