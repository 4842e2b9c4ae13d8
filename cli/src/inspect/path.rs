//! The path of an object through the fabric, switch by switch.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::forecast::{ClusterState, HopState, Key, Kind, Name, desired_state};
use eno_engine::trace::{self, Messages};
use eno_schemas::{
    Applied, Command, Desired, FabricDesired, FabricPort, Item, Outcome, Rejection, Report, VlanSet,
};
use serde::Serialize;
use serde_json::Value;

use crate::inspect::status::conditions;

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

/// The progress of a hop, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// The target or its driver refuses it.
    Refused,
    /// The target does not answer.
    Unreachable,
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

/// The driver of agents.
pub(crate) const NODE_DRIVER: &str = "node";
/// The driver of NetworkAttachmentDefinitions.
pub(crate) const NAD_DRIVER: &str = "nad";

/// The last reports of drivers, as far as the viewer may see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    /// By driver and target; `None`: NATS was not asked.
    known: Option<BTreeMap<(String, String), Report>>,
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
    pub(crate) fn new(known: BTreeMap<(String, String), Report>, world: &ClusterState) -> Self {
        let mut reports = Self { known: Some(known), ..Self::default() };
        reports.set_viewer(world);
        reports
    }

    /// Whoever sees `world` sees the reports from now on.
    pub(crate) fn set_viewer(&mut self, world: &ClusterState) {
        (self.hides_texts, self.hides_pods) = (!world.lists_all_kinds(), !world.lists_everything());
    }

    /// Reads the reports of the switches that have VLANs of `networks`, if NATS is available.
    pub(crate) async fn of_switches(
        world: &ClusterState,
        fabric: &Fabric,
        networks: &BTreeSet<String>,
        messages: Option<&Messages>,
    ) -> anyhow::Result<Self> {
        let Some(messages) = messages else { return Ok(Self::unknown()) };
        let mut known = BTreeMap::new();
        for (switch, (driver, desired)) in &fabric.switches {
            if !vlans_and_ports(desired, networks).0.is_empty()
                && let Some(report) = trace::report(messages, driver, switch).await?
            {
                known.insert((driver.clone(), switch.clone()), report);
            }
        }
        Ok(Self::new(known, world))
    }

    /// NATS was asked.
    pub(crate) fn are_known(&self) -> bool {
        self.known.is_some()
    }

    /// The viewer may see the texts of reports.
    pub(crate) fn have_texts(&self) -> bool {
        !self.hides_texts
    }

    /// All that are known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Report> {
        self.known.iter().flat_map(BTreeMap::values)
    }

    /// The last report on a target.
    pub(crate) fn get(&self, driver: &str, target: &str) -> Option<&Report> {
        self.known.as_ref()?.get(&(driver.to_owned(), target.to_owned()))
    }

    /// Sets or removes the last report on a target.
    pub(crate) fn set(&mut self, driver: &str, target: &str, report: Option<Report>) {
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

    /// The progress of a target by its last report.
    pub(crate) fn progress(
        &self,
        driver: &str,
        target: &str,
        evaluate: impl FnOnce(&Report) -> (State, String),
    ) -> (State, String) {
        let Some(known) = &self.known else { return (State::Unknown, String::new()) };
        match known.get(&(driver.to_owned(), target.to_owned())) {
            None => (State::Waiting, "its driver has reported nothing yet".into()),
            Some(report) => {
                let (state, text) = evaluate(report);
                (state, self.text(driver, text))
            }
        }
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
    fabric_of(world, desired_state(world).switches, messages).await
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
                for vlan in &mut desired.vlans {
                    vlan.owners.retain(|owner| readable.contains(owner));
                }
            }
            _ => _ = fabric.incomplete.insert(switch.clone()),
        }
    }
    Ok(fabric)
}

/// The switches on the path of `networks`, each with its progress.
pub(crate) fn hops(
    world: &ClusterState,
    fabric: &Fabric,
    networks: &BTreeSet<String>,
    reports: &Reports,
) -> Vec<Hop> {
    let hops = fabric.switches.iter().filter_map(|(switch, (driver, desired))| {
        let (vlans, ports) = vlans_and_ports(desired, networks);
        (!vlans.is_empty()).then(|| {
            let (state, message) = switch_progress(world, reports, driver, switch, |report| {
                evaluate(report, &desired.ports, &vlans)
            });
            Hop { switch: switch.clone(), vlans, ports, state, message }
        })
    });
    hops.collect()
}

/// The switches that keep networks from being confirmed, by network as written in `owners`. It costs one look at each
/// VLAN of a switch that does not confirm it.
pub(crate) fn failing_switches<'a>(
    world: &ClusterState,
    fabric: &'a Fabric,
    reports: &Reports,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (switch, (driver, desired)) in &fabric.switches {
        let mut failing = VlanSet::EMPTY;
        let (state, _) = switch_progress(world, reports, driver, switch, |report| {
            failing = unconfirmed(report, desired);
            state_of(report, [], true)
        });
        let is_failing = |vid| failing.contains(vid) || state == State::Unreachable;
        for vlan in desired.vlans.iter().filter(|vlan| is_failing(vlan.vid)) {
            for owner in &vlan.owners {
                let switches = found.entry(owner).or_default();
                if switches.last() != Some(&switch.as_str()) {
                    switches.push(switch);
                }
            }
        }
    }
    found
}

/// The VLANs that a report does not confirm on a switch, or on one of its ports.
fn unconfirmed(report: &Report, desired: &FabricDesired) -> VlanSet {
    let all: VlanSet = desired.vlans.iter().map(|vlan| vlan.vid).collect();
    let Some(Applied::Fabric { vlans, ports, .. }) = &report.applied else { return all };
    let mut found = all.difference(vlans);
    for port in &desired.ports {
        let applied = ports.get(&port.name).unwrap_or(&VlanSet::EMPTY);
        found = found.union(&port.vlans.difference(applied));
    }
    for rejection in &report.rejected {
        match (rejection.item.vlan, &rejection.item.port) {
            (Some(vid), _) => drop(found.insert(vid)),
            (None, Some(name)) => {
                let port = desired.ports.iter().find(|port| port.name == *name);
                found = port.map_or(found.clone(), |port| found.union(&port.vlans));
            }
            (None, None) => found = all.clone(),
        }
    }
    found
}

/// The progress of a switch by its last report. Without NATS it is known only that the switch does not answer.
pub(crate) fn switch_progress(
    world: &ClusterState,
    reports: &Reports,
    driver: &str,
    switch: &str,
    evaluate: impl FnOnce(&Report) -> (State, String),
) -> (State, String) {
    if !reports.are_known() {
        let device = world.object(&Key::cluster(Kind::FabricDevice, &switch.into()));
        let conditions = device.map(conditions).unwrap_or_default();
        let unreachable = conditions.into_iter().find(|one| one.kind == "Reachable" && one.status == "False");
        if let Some(condition) = unreachable {
            return (State::Unreachable, condition.message);
        }
    }
    reports.progress(driver, switch, evaluate)
}

/// The progress of VLANs on some ports of a switch.
pub(crate) fn evaluate<'a>(
    report: &Report,
    ports: impl IntoIterator<Item = &'a FabricPort>,
    vlans: &VlanSet,
) -> (State, String) {
    let carriers: Vec<(&String, VlanSet)> =
        ports.into_iter().map(|port| (&port.name, port.vlans.intersection(vlans))).collect();
    let rejections = report.rejected.iter().filter(|rejection| {
        vlans.iter().any(|vid| rejection.item.covers(vid, ""))
            || carriers.iter().any(|(port, on_it)| on_it.iter().any(|vid| rejection.item.covers(vid, port)))
    });
    let is_applied = matches!(&report.applied, Some(Applied::Fabric { vlans: made, ports, .. })
    if vlans.is_subset(made)
        && carriers.iter().all(|(port, on_it)| {
            on_it.is_empty() || ports.get(*port).is_some_and(|carried| on_it.is_subset(carried))
        }));
    state_of(report, rejections, is_applied)
}

/// The state of a part of a target by its last report, as the core decides it, and an explanation. `rejections`: those
/// that cover the part.
pub(crate) fn state_of<'a>(
    report: &'a Report,
    rejections: impl IntoIterator<Item = &'a Rejection>,
    is_applied: bool,
) -> (State, String) {
    let rejection = HopState::deciding(rejections);
    let failure = match &report.outcome {
        Outcome::Failed(failure) => Some(failure),
        _ => None,
    };
    // The place of an interface says which one it is.
    let is_named = |item: &Item| *item == Item::TARGET || item.link.is_some();
    let explain = |reason: &str| match rejection.filter(|rejection| !is_named(&rejection.item)) {
        Some(Rejection { item, .. }) => format!("{item}: {reason}"),
        None => reason.to_owned(),
    };
    match HopState::of_report(rejection, is_applied, failure) {
        HopState::Confirmed => (State::Confirmed, String::new()),
        HopState::Refused { reason, .. } => (State::Refused, explain(reason)),
        HopState::Unreachable { reason, .. } => (State::Unreachable, explain(reason)),
        HopState::Waiting(_) | HopState::Missing(_) => {
            let message = match &report.outcome {
                Outcome::Held => "verified, and held until the other switches have verified".into(),
                Outcome::RolledBack { reason } => format!("rolled back: {reason}"),
                Outcome::Progress { message } => message.to_string(),
                Outcome::Applied | Outcome::Failed(_) => String::new(),
            };
            (State::Waiting, message)
        }
    }
}
