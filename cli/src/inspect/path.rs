//! The path of an object through the fabric, switch by switch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_engine::forecast::{ClusterState, Key, Kind, Name};
use eno_engine::observation::{self, HopState, Observation, Part, Wait};
use eno_engine::trace::{self, Messages};
use eno_schemas::{Command, Desired, FabricDesired, FabricVlan, Outcome, Report, VlanId, VlanSet};
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

/// A VRF of a device on the path, or the interface by which a VLAN is led into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct VrfHop {
    /// The FabricDevice.
    pub device: String,
    /// The name of the VRF there.
    pub vrf: String,
    /// The VLAN that is led in; absent: the VRF itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// The addresses of the interface.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Its progress.
    pub state: State,
    /// An explanation of the state; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The progress of a hop, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// The target or its driver refuses it.
    Refused,
    /// The target does not answer.
    Unreachable,
    /// What would carry it does not exist.
    Missing,
    /// The target is not configured yet.
    Waiting,
    /// NATS was not asked.
    Unknown,
    /// The driver has read the configuration back from the target.
    Confirmed,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Missing => "missing",
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
        kind if kind.has_vlan() => BTreeSet::from([key.to_string()]),
        Kind::L2ServiceAttachment => {
            let services = world.object(key).and_then(|object| object.data.pointer("/spec/L2Services"));
            let names = services.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            names.map(|name| Key::cluster(Kind::L2Service, &Name::from(name)).to_string()).collect()
        }
        Kind::VRFAttachment | Kind::BGPSessionGroup => {
            let service = world.object(key).and_then(|object| object.data.pointer("/spec/L2Service"));
            let name = service.and_then(Value::as_str).map(Name::from);
            name.map(|name| Key::cluster(Kind::L2Service, &name).to_string()).into_iter().collect()
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

/// The driver of agents.
pub(crate) const NODE_DRIVER: &str = "node";
/// The driver of NetworkAttachmentDefinitions.
pub(crate) const NAD_DRIVER: &str = "nad";

/// The last reports of drivers, as far as the viewer may see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// By driver and target; `None`: NATS was not asked.
    known: Option<BTreeMap<(String, String), Arc<Report>>>,
    /// Texts of reports may name any object, so only a viewer who may list all kinds sees them.
    hides_texts: bool,
    /// Texts of agents may name any pod, so only a viewer who may list pods, too, sees them.
    hides_pods: bool,
}

/// What stands in place of a text that may name objects that the viewer may not list.
pub(crate) const HIDDEN: &str =
    "its driver says why to those who may list all kinds (ClusterRole eno-viewer), and for agents pods";

impl Reports {
    /// No report is known, since NATS was not asked.
    pub(crate) fn unknown() -> Self {
        Self::default()
    }

    /// These reports, for a viewer who sees `world`.
    pub(crate) fn new(known: BTreeMap<(String, String), Arc<Report>>, world: &ClusterState) -> Self {
        let mut reports = Self { known: Some(known), ..Self::default() };
        reports.set_viewer(world);
        reports
    }

    /// Whoever sees `world` sees the reports from now on.
    pub(crate) fn set_viewer(&mut self, world: &ClusterState) {
        (self.hides_texts, self.hides_pods) = (!world.lists_all_kinds(), !world.lists_everything());
    }

    /// Reads the reports of the switches on the path of an object, if NATS is available, and feeds them to the core.
    pub(crate) async fn of_switches(
        world: &ClusterState,
        observation: &mut Observation,
        key: &Key,
        messages: Option<&Messages>,
    ) -> anyhow::Result<Self> {
        let Some(messages) = messages else { return Ok(Self::unknown()) };
        let mut path = observation.path(key);
        path.extend(observation.ways_into_vrfs(key));
        let switches: BTreeSet<&Name> = path.iter().filter_map(|hop| hop.part.device()).collect();
        let switches: Vec<String> = switches.into_iter().map(ToString::to_string).collect();
        let mut known = BTreeMap::new();
        for switch in switches {
            let driver = observation.driver_of(&switch).to_owned();
            if let Some(report) = trace::report(messages, &driver, &switch).await? {
                known.insert((driver, switch), report.into());
            }
        }
        let reports = Self::new(known, world);
        observation.catch_up(reports.iter());
        Ok(reports)
    }

    /// NATS was asked.
    pub(crate) fn are_known(&self) -> bool {
        self.known.is_some()
    }

    /// The viewer may see the texts of reports.
    pub(crate) fn have_texts(&self) -> bool {
        !self.hides_texts
    }

    /// All that are known, each with the driver and the target of its subject.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &Arc<Report>)> {
        let known = self.known.iter().flatten();
        known.map(|((driver, target), report)| (driver.as_str(), target.as_str(), report))
    }

    /// The last report on a target.
    pub(crate) fn get(&self, driver: &str, target: &str) -> Option<&Arc<Report>> {
        self.known.as_ref()?.get(&(driver.to_owned(), target.to_owned()))
    }

    /// Sets or removes the last report on a target.
    pub(crate) fn set(&mut self, driver: &str, target: &str, report: Option<Arc<Report>>) {
        let key = (driver.to_owned(), target.to_owned());
        let known = self.known.get_or_insert_default();
        match report {
            Some(report) => drop(known.insert(key, report)),
            None => drop(known.remove(&key)),
        }
    }

    /// A text of a driver, or what stands in its place.
    pub(crate) fn text(&self, driver: &str, text: String) -> String {
        let hides = if driver == NODE_DRIVER { self.hides_pods } else { self.hides_texts };
        if hides && !text.is_empty() { HIDDEN.to_owned() } else { text }
    }

    /// The state of a hop of a target, by a core that knows these reports, and an explanation.
    pub(crate) fn verdict(&self, driver: &str, target: &str, hop: &observation::Hop<'_>) -> (State, String) {
        let (state, text) = match &hop.state {
            HopState::Confirmed => (State::Confirmed, String::new()),
            HopState::Refused { reason, .. } => (State::Refused, (*reason).to_owned()),
            HopState::Unreachable { reason, .. } => (State::Unreachable, (*reason).to_owned()),
            HopState::Missing(reason) => return (State::Missing, reason.clone().into_owned()),
            HopState::Waiting(_) if !self.are_known() => return (State::Unknown, String::new()),
            HopState::Waiting(Wait::Report) => return (State::Waiting, self.awaited(driver, target)),
            HopState::Waiting(wait) => return (State::Waiting, wait.to_string()),
        };
        (state, self.text(driver, text))
    }

    /// What a target that has not confirmed something does, by its last report.
    fn awaited(&self, driver: &str, target: &str) -> String {
        match self.get(driver, target).map(|report| &report.outcome) {
            None => "its driver has reported nothing yet".into(),
            Some(Outcome::Held) => "verified, and held until the other switches have verified".into(),
            Some(Outcome::RolledBack { reason }) => self.text(driver, format!("rolled back: {reason}")),
            Some(Outcome::Progress { message }) => self.text(driver, message.to_string()),
            Some(Outcome::Applied | Outcome::Failed(_)) => Wait::Report.to_string(),
        }
    }

    /// The state of a hop of a switch.
    pub(crate) fn on_switch(&self, observation: &Observation, hop: &observation::Hop<'_>) -> (State, String) {
        let device = hop.part.device().map(|name| &**name).unwrap_or_default();
        self.verdict(observation.driver_of(device), device, hop)
    }
}

/// The desired state of the switches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fabric {
    /// By FabricDevice: its driver, and its VLANs and ports with their owners.
    pub switches: BTreeMap<String, (String, FabricDesired)>,
    /// The switches whose desired state may lack something.
    pub incomplete: BTreeSet<String>,
}

/// Computes the desired state of the switches. If not all inputs could be read, it is the engine's last command, if
/// NATS is available, without owners that the user may not read.
pub(crate) async fn fabric(world: &ClusterState, messages: Option<&Messages>) -> anyhow::Result<Fabric> {
    fabric_of(world, Observation::new(world).desired().switches, messages).await
}

/// The same, for the switches of a desired state that was computed of `world`.
pub(crate) async fn fabric_of(
    world: &ClusterState,
    switches: BTreeMap<String, (String, FabricDesired)>,
    messages: Option<&Messages>,
) -> anyhow::Result<Fabric> {
    let mut fabric = Fabric { switches, incomplete: BTreeSet::new() };
    if world.decides_switches() {
        return Ok(fabric);
    }
    let readable: BTreeSet<String> = world.keys().map(ToString::to_string).collect();
    for (switch, (driver, desired)) in &mut fabric.switches {
        let command = match messages {
            Some(messages) => trace::command(messages, driver, switch).await?,
            None => None,
        };
        match command {
            Some(Command { desired: Desired::Fabric(commanded), .. }) => {
                *desired = commanded;
                desired.vrfs.retain(|vrf| readable.contains(&vrf.owner));
                let with_readable_owners = |vlan: &FabricVlan| FabricVlan {
                    vid: vlan.vid,
                    owners: vlan.owners.iter().filter(|owner| readable.contains(*owner)).cloned().collect(),
                    routed: vlan.routed.clone().filter(|routed| readable.contains(&routed.owner)),
                };
                desired.vlans = desired.vlans.iter().map(with_readable_owners).collect();
            }
            _ => _ = fabric.incomplete.insert(switch.clone()),
        }
    }
    Ok(fabric)
}

/// The switches on the path of an object, each with the worst state of its ports there.
pub(crate) fn hops(observation: &Observation, reports: &Reports, key: &Key) -> Vec<Hop> {
    let mut hops: BTreeMap<&Name, Hop> = BTreeMap::new();
    let path = observation.path(key);
    for hop in &path {
        let Part::Port { device, port, vlan, .. } = hop.part else { continue };
        let (state, message) = reports.on_switch(observation, hop);
        let known = hops.entry(device).or_insert_with(|| Hop {
            switch: device.to_string(),
            vlans: VlanSet::EMPTY,
            ports: Vec::new(),
            state: State::Confirmed,
            message: String::new(),
        });
        known.vlans.insert(vlan);
        if !known.ports.iter().any(|name| name == port) {
            known.ports.push(port.to_owned());
        }
        if state < known.state {
            (known.state, known.message) = (state, message);
        }
    }
    hops.into_values().collect()
}

/// The VRFs on the path of an object, and the interfaces by which VLANs are led into them. Of an attachment: those by which
/// its services are.
pub(crate) fn vrf_hops(observation: &Observation, reports: &Reports, key: &Key) -> Vec<VrfHop> {
    let mut path = observation.path(key);
    path.extend(observation.ways_into_vrfs(key));
    let hops = path.iter().filter_map(|hop| {
        let (device, vrf, vlan) = match hop.part {
            Part::Vrf { device, vrf } => (device, vrf, None),
            Part::Routed { device, vrf, vlan } => (device, vrf, Some(vlan)),
            _ => return None,
        };
        let routed = vlan.and_then(|vlan| observation.routed(device, vlan)).filter(|one| one.vrf == vrf);
        let addresses = routed.into_iter().flat_map(|one| &one.addresses).map(ToString::to_string);
        let (state, message) = reports.on_switch(observation, hop);
        let addresses = addresses.collect();
        Some(VrfHop { device: device.to_string(), vrf: vrf.to_owned(), vlan, addresses, state, message })
    });
    hops.collect()
}

/// The switches that keep an object from being confirmed.
pub(crate) fn failing_switches(observation: &Observation, reports: &Reports, key: &Key) -> BTreeSet<String> {
    let path = observation.path(key);
    let failing = path.iter().filter(|hop| {
        let (state, _) = reports.on_switch(observation, hop);
        !matches!(state, State::Confirmed | State::Unknown)
    });
    failing.filter_map(|hop| hop.part.device()).map(ToString::to_string).collect()
}
