//! The path of an object through the fabric, switch by switch.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::forecast::{ClusterState, Key, Kind, Name, desired_state};
use eno_engine::trace::{self, Messages};
use eno_schemas::{Applied, Command, Desired, FabricDesired, Outcome, Report, VlanSet};
use serde::Serialize;
use serde_json::Value;

/// One switch on the path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hop {
    /// Its FabricDevice.
    pub switch: String,
    /// The object's VLANs there.
    pub vlans: VlanSet,
    /// The ports that carry them.
    pub ports: Vec<String>,
    /// Its progress.
    pub state: State,
    /// An explanation of the state; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The progress of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// The driver has read the VLANs back from the switch.
    Confirmed,
    /// The switch is not configured yet.
    Waiting,
    /// The switch or its driver refuses it.
    Refused,
    /// The switch does not answer.
    Unreachable,
    /// NATS was not asked.
    Unknown,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Waiting => "waiting",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Unknown => "unknown",
        }
    }
}

/// The networks that an object is or attaches to, written as in `owners`.
pub(crate) fn networks(world: &ClusterState, key: &Key) -> BTreeSet<String> {
    match key.kind {
        Kind::L2Service | Kind::L2BridgeDomain => BTreeSet::from([key.to_string()]),
        Kind::L2ServiceAttachment => {
            let services = world.object(key).and_then(|object| object.data.pointer("/spec/L2Services"));
            let names = services.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            names.map(|name| Key::cluster(Kind::L2Service, &Name::from(name)).to_string()).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// The VLANs of `networks` on a switch, and the ports that must carry one of them.
pub(crate) fn vlans_and_ports(fabric: &FabricDesired, networks: &BTreeSet<String>) -> (VlanSet, Vec<String>) {
    let own = fabric.vlans.iter().filter(|vlan| vlan.owners.iter().any(|owner| networks.contains(owner)));
    let vlans: VlanSet = own.map(|vlan| vlan.vid).collect();
    let ports = fabric.ports.iter().filter(|port| !port.vlans.intersection(&vlans).is_empty());
    (vlans.clone(), ports.map(|port| port.name.clone()).collect())
}

/// The desired state of the switches.
pub(crate) struct Fabric {
    /// By FabricDevice: its driver, and its VLANs and ports with their owners.
    pub switches: BTreeMap<String, (String, FabricDesired)>,
    /// The switches whose desired state may lack something.
    pub incomplete: BTreeSet<String>,
}

/// Computes the desired state of the switches. If not all inputs could be read, it is the engine's last command, if
/// NATS is available.
pub(crate) async fn fabric(world: &ClusterState, messages: Option<&Messages>) -> anyhow::Result<Fabric> {
    let mut fabric = Fabric { switches: desired_state(world).switches, incomplete: BTreeSet::new() };
    if world.decides_switches() {
        return Ok(fabric);
    }
    for (switch, (driver, desired)) in &mut fabric.switches {
        let command = match messages {
            Some(messages) => trace::command(messages, driver, switch).await?,
            None => None,
        };
        match command {
            Some(Command { desired: Desired::Fabric(commanded), .. }) => *desired = commanded,
            _ => _ = fabric.incomplete.insert(switch.clone()),
        }
    }
    Ok(fabric)
}

/// The switches on the path of `networks`, each with its driver's last report, if NATS is available.
pub(crate) async fn hops(
    fabric: &Fabric,
    networks: &BTreeSet<String>,
    messages: Option<&Messages>,
) -> anyhow::Result<Vec<Hop>> {
    let mut hops = Vec::new();
    for (switch, (driver, fabric)) in &fabric.switches {
        let (vlans, ports) = vlans_and_ports(fabric, networks);
        if vlans.is_empty() {
            continue;
        }
        let (state, message) = match messages {
            Some(messages) => {
                let report = trace::report(messages, driver, switch).await?;
                report.map_or((State::Waiting, "its driver has reported nothing yet".into()), |report| {
                    evaluate(&report, fabric, &vlans)
                })
            }
            None => (State::Unknown, String::new()),
        };
        hops.push(Hop { switch: switch.clone(), vlans, ports, state, message });
    }
    Ok(hops)
}

fn evaluate(report: &Report, fabric: &FabricDesired, vlans: &VlanSet) -> (State, String) {
    let carriers = || fabric.ports.iter().map(|port| (&port.name, port.vlans.intersection(vlans)));
    let refused = report.rejected.iter().find(|rejection| {
        vlans.iter().any(|vid| rejection.item.covers(vid, ""))
            || carriers().any(|(port, on_it)| on_it.iter().any(|vid| rejection.item.covers(vid, port)))
    });
    if let Some(rejection) = refused {
        return (State::Refused, format!("{}: {}", rejection.item, rejection.reason));
    }
    let is_applied = matches!(&report.applied, Some(Applied::Fabric { vlans: made, ports, .. })
    if vlans.is_subset(made)
        && carriers().all(|(port, on_it)| {
            on_it.is_empty() || ports.get(port).is_some_and(|carried| on_it.is_subset(carried))
        }));
    match &report.outcome {
        Outcome::Failed(failure) if failure.unreachable => (State::Unreachable, failure.reason.clone()),
        _ if is_applied => (State::Confirmed, String::new()),
        Outcome::Failed(failure) => (State::Refused, failure.reason.clone()),
        Outcome::Held => (State::Waiting, "verified, and held until the other switches have verified".into()),
        Outcome::RolledBack { reason } => (State::Waiting, format!("rolled back: {reason}")),
        Outcome::Progress { message } => (State::Waiting, message.clone()),
        Outcome::Applied => (State::Waiting, String::new()),
    }
}
