//! The status of the data plane for the control API.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::dataplane::plan::{Bridge, Peer, Plan, Port};
use crate::dataplane::reconciler::Observed;
use crate::topology::LinkEnd;

/// The status of the data plane, as `GET /dataplane` answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPlaneStatus {
    /// Whether all running configurations are applied and RSTP has converged.
    pub ready: bool,
    /// The last error; the data plane retries until it succeeds.
    pub problem: Option<String>,
    /// The switches by name.
    pub switches: BTreeMap<String, BridgeStatus>,
}

/// The data plane of one switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BridgeStatus {
    /// Its bridge.
    pub bridge: String,
    /// The applied version of running ([`crate::Switch::version`]); 0 before the first.
    pub applied: u64,
    /// Its connected ports by name.
    pub ports: BTreeMap<String, DataPort>,
    /// Its VRFs that have an interface, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vrfs: BTreeMap<String, VrfStatus>,
}

/// The data plane of a VRF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfStatus {
    /// Path of its network namespace. Processes of the same user can open it while the VRF exists.
    pub netns: PathBuf,
    /// The VLANs that are led into it; the interface of VLAN 100 is `vlan100`.
    pub vlans: Vec<u16>,
    /// The host behind it.
    pub host: HostStatus,
}

/// The host behind a VRF, on a link of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Path of its network namespace.
    pub netns: PathBuf,
    /// Its addresses with the prefix lengths of the link.
    pub addresses: Vec<String>,
}

/// The data plane of one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPort {
    /// Its interface, in the namespace of the switches.
    pub interface: String,
    /// Whether it is enabled.
    pub up: bool,
    /// Its RSTP role: `root`, `designated`, `alternate`, `backup`, or `disabled` without a carrier. Absent until
    /// RSTP assigns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its RSTP state: `forwarding`, `learning` or `discarding`. Absent until RSTP assigns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The port at the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkEnd>,
    /// The external interface at the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
}

/// An external interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Path of its network namespace; null for that of the simulator.
    pub netns: Option<PathBuf>,
    /// Its name there.
    pub interface: String,
}

impl DataPlaneStatus {
    pub(super) fn new(plan: &Plan, observed: &Observed, ready: bool) -> Self {
        let switch = |bridge: &Bridge| {
            let ports =
                bridge.ports.iter().map(|port| (port.name.clone(), DataPort::new(bridge, port, observed)));
            let status = BridgeStatus {
                bridge: bridge.name.clone(),
                applied: observed.applied.get(&bridge.switch).copied().unwrap_or_default(),
                ports: ports.collect(),
                vrfs: observed.vrfs.get(&bridge.switch).cloned().unwrap_or_default(),
            };
            (bridge.switch.clone(), status)
        };
        Self { ready, problem: observed.problem.clone(), switches: plan.bridges.iter().map(switch).collect() }
    }
}

impl DataPort {
    fn new(bridge: &Bridge, port: &Port, observed: &Observed) -> Self {
        let rstp = observed.rstp.get(&bridge.name).and_then(|member| member.ports.get(&port.interface));
        let (link, wire) = match &port.peer {
            Peer::Port { end, .. } => (Some(end.clone()), None),
            Peer::Outside { netns, interface } => {
                (None, Some(Wire { netns: netns.clone(), interface: interface.clone() }))
            }
        };
        Self {
            interface: port.interface.clone(),
            up: observed.up.contains(&port.interface),
            role: rstp.map(|rstp| rstp.role.clone()),
            state: rstp.map(|rstp| rstp.state.clone()),
            link,
            wire,
        }
    }
}
