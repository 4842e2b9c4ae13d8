//! The way of an object through the fabric, switch by switch.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::forecast::{ClusterState, Key, Kind, Name, desired_state};
use eno_engine::trace;
use eno_sbi::nats::Connection;
use eno_schemas::{Applied, Command, Desired, FabricDesired, Outcome, Report, VlanSet};
use serde::Serialize;
use serde_json::Value;

/// One switch on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hop {
    /// Its FabricDevice.
    pub switch: String,
    /// The object's VLANs there.
    pub vlans: VlanSet,
    /// The ports that carry them.
    pub ports: Vec<String>,
    /// How far it is.
    pub state: State,
    /// In words, where that needs any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How far a hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Read back from the switch.
    Confirmed,
    /// Not yet.
    Waiting,
    /// The switch or its driver refuses it.
    Refused,
    /// The switch does not answer.
    Unreachable,
    /// Only NATS knows.
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

/// The networks that an object is, or attaches to, as owners are written.
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

/// The VLANs of `networks` on a switch, and the ports that are to carry one of them.
pub(crate) fn part(fabric: &FabricDesired, networks: &BTreeSet<String>) -> (VlanSet, Vec<String>) {
    let own = fabric.vlans.iter().filter(|vlan| vlan.owners.iter().any(|owner| networks.contains(owner)));
    let vlans: VlanSet = own.map(|vlan| vlan.vid).collect();
    let ports = fabric.ports.iter().filter(|port| !port.vlans.intersection(&vlans).is_empty());
    (vlans.clone(), ports.map(|port| port.name.clone()).collect())
}

/// What is wanted of switches.
pub(crate) struct Fabric {
    /// By FabricDevice: the driver, and the VLANs and ports with the objects that want them.
    pub switches: BTreeMap<String, (String, FabricDesired)>,
    /// The switches of which more may be wanted.
    pub incomplete: BTreeSet<String>,
}

/// What is wanted of switches as things are. Where not all could be read that decides it, it is what the engine commanded
/// last, if NATS can be asked.
pub(crate) async fn fabric(world: &ClusterState, nats: Option<&Connection>) -> anyhow::Result<Fabric> {
    let mut fabric = Fabric { switches: desired_state(world).switches, incomplete: BTreeSet::new() };
    if world.decides_switches() {
        return Ok(fabric);
    }
    for (switch, (driver, desired)) in &mut fabric.switches {
        let command = match nats {
            Some(nats) => trace::command(nats, driver, switch).await?,
            None => None,
        };
        match command {
            Some(Command { desired: Desired::Fabric(commanded), .. }) => *desired = commanded,
            _ => _ = fabric.incomplete.insert(switch.clone()),
        }
    }
    Ok(fabric)
}

/// The switches on the way of `networks`, each with what its driver said last, where NATS can be asked.
pub(crate) async fn hops(
    fabric: &Fabric,
    networks: &BTreeSet<String>,
    nats: Option<&Connection>,
) -> anyhow::Result<Vec<Hop>> {
    let mut hops = Vec::new();
    for (switch, (driver, fabric)) in &fabric.switches {
        let (vlans, ports) = part(fabric, networks);
        if vlans.is_empty() {
            continue;
        }
        let (state, message) = match nats {
            Some(nats) => {
                let report = trace::report(nats, driver, switch).await?;
                report.map_or((State::Waiting, "its driver has said nothing yet".into()), |report| {
                    judge(&report, fabric, &vlans)
                })
            }
            None => (State::Unknown, String::new()),
        };
        hops.push(Hop { switch: switch.clone(), vlans, ports, state, message });
    }
    Ok(hops)
}

fn judge(report: &Report, fabric: &FabricDesired, vlans: &VlanSet) -> (State, String) {
    let carriers = || fabric.ports.iter().map(|port| (&port.name, port.vlans.intersection(vlans)));
    let refused = report.rejected.iter().find(|rejection| {
        vlans.iter().any(|vid| rejection.item.covers(vid, ""))
            || carriers().any(|(port, on_it)| on_it.iter().any(|vid| rejection.item.covers(vid, port)))
    });
    if let Some(rejection) = refused {
        return (State::Refused, format!("{}: {}", rejection.item, rejection.reason));
    }
    let there = matches!(&report.applied, Some(Applied::Fabric { vlans: made, ports, .. })
    if vlans.is_subset(made)
        && carriers().all(|(port, on_it)| {
            on_it.is_empty() || ports.get(port).is_some_and(|carried| on_it.is_subset(carried))
        }));
    match &report.outcome {
        Outcome::Failed(failure) if failure.unreachable => (State::Unreachable, failure.reason.clone()),
        _ if there => (State::Confirmed, String::new()),
        Outcome::Failed(failure) => (State::Refused, failure.reason.clone()),
        Outcome::Held => (State::Waiting, "verified, and held until the other switches have verified".into()),
        Outcome::RolledBack { reason } => (State::Waiting, format!("rolled back: {reason}")),
        Outcome::Progress { message } => (State::Waiting, message.clone()),
        Outcome::Applied => (State::Waiting, String::new()),
    }
}
