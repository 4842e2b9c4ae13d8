//! The switches, their links, and the VLANs on them.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use axum::extract::{self, Query};
use axum::http::StatusCode;
use eno_engine::forecast::{Key, Kind};
use eno_engine::observation::Part;
use eno_schemas::{Applied, Carried, FabricDesired, FabricPort, VlanId, VlanSet};
use serde::{Deserialize, Serialize};

use super::{Answer, ApiError, Missing, commands, missing};
use crate::inspect::blame::{Line, blame, routed_states};
use crate::inspect::cabling::{self, End, PortId};
use crate::inspect::path::State as Progress;
use crate::ui::App;
use crate::ui::state::State;

/// The kind of notes about differences between the observed and the desired state.
const DRIFT: &str = "Drift";

#[derive(Serialize)]
pub(super) struct Fabric {
    devices: Vec<Device>,
    nodes: BTreeSet<String>,
    networks: BTreeSet<String>,
    links: Vec<Link>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Device {
    name: String,
    level: usize,
    driver: String,
    state: Progress,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    vlans: usize,
    marks: Vec<Mark>,
}

/// What is to be seen at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mark {
    /// A port carries VLANs of others.
    Foreign,
    /// The device differs from what was verified on it.
    Drift,
    /// A trunk carries every VLAN.
    Open,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    id: String,
    device: String,
    port: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_interface: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_network: Option<String>,
    state: Progress,
    vlans: usize,
    marks: BTreeSet<Mark>,
}

pub(super) async fn fabric(extract::State(app): extract::State<App>) -> Json<Fabric> {
    let state = app.state();
    let view = View::new(&state, None);
    let mut marks: BTreeMap<&str, BTreeSet<Mark>> = BTreeMap::new();
    for (device, port) in state.cabling.ports.keys() {
        marks.entry(device).or_default().extend(view.marks(device, port));
    }
    let devices = state.fabric.switches.iter().map(|(name, (driver, desired))| {
        let (progress, message) = view.device_progress(name);
        let mut marks = marks.remove(name.as_str()).unwrap_or_default();
        marks.extend(view.has_drift(name).then_some(Mark::Drift));
        Device {
            name: name.clone(),
            level: state.cabling.levels.get(name).copied().unwrap_or_default(),
            driver: driver.clone(),
            state: progress,
            message,
            vlans: desired.vlans.len(),
            marks: marks.into_iter().collect(),
        }
    });
    let devices = devices.collect();
    let mut nodes: BTreeSet<String> = state.world.nodes().map(|(name, _)| name.to_owned()).collect();
    let mut networks = BTreeSet::new();
    for link in &state.cabling.links {
        match &link.end {
            End::Node(node, _) => drop(nodes.insert(node.clone())),
            End::Network(network) => drop(networks.insert(network.clone())),
            End::Device(..) => {}
        }
    }
    Json(Fabric {
        devices,
        nodes,
        networks,
        links: state.cabling.links.iter().map(|link| view.link(link)).collect(),
        missing: missing(&app, &state.world, &state.reports),
    })
}

/// In the place of a port: the switch itself.
const ITSELF: &str = "";

/// The ports of all switches, desired and observed.
struct View<'a> {
    state: &'a State,
    /// The desired state of each listed port.
    desired: BTreeMap<(&'a str, &'a str), &'a FabricPort>,
    /// The state of each port that carries VLANs, by switch and port; of [`ITSELF`]: of the switch.
    progress: BTreeMap<&'a str, BTreeMap<String, (Progress, String)>>,
}

impl<'a> View<'a> {
    /// `only`: the states are those of this VLAN.
    fn new(state: &'a State, only: Option<VlanId>) -> Self {
        let observation = state.observation();
        let progress = state.fabric.switches.keys().map(|switch| {
            let mut hops = observation.ports(switch, only);
            if only.is_none() {
                hops.extend(observation.path(&Key::cluster(Kind::FabricDevice, &switch.as_str().into())));
            }
            let mut progress: BTreeMap<String, (Progress, String)> = BTreeMap::new();
            for hop in hops {
                let port = if let Part::Port { port, .. } = hop.part { port } else { ITSELF };
                let found = state.reports.on_switch(&observation, &hop);
                let known = progress.entry(port.to_owned()).or_insert_with(|| found.clone());
                if found.0 < known.0 {
                    *known = found;
                }
            }
            (switch.as_str(), progress)
        });
        let progress = progress.collect();
        let switches = state.fabric.switches.iter();
        let ports = switches.flat_map(|(switch, (_, desired))| {
            desired.ports.iter().map(move |port| ((switch.as_str(), port.name.as_str()), port))
        });
        Self { state, desired: ports.collect(), progress }
    }

    fn switch(&self, device: &str) -> Option<(&'a str, &'a FabricDesired)> {
        self.state.fabric.switches.get(device).map(|(driver, desired)| (driver.as_str(), desired))
    }

    fn carried(&self, device: &str, port: &str) -> Option<&'a Carried> {
        let (driver, _) = self.switch(device)?;
        match self.state.reports.get(driver, device)?.applied.as_ref()? {
            Applied::Fabric { carried, .. } => carried.get(port),
            _ => None,
        }
    }

    /// The tagged VLANs of others on a port.
    fn foreign(&self, device: &str, port: &str) -> VlanSet {
        let own = self.desired.get(&(device, port)).map(|port| &port.vlans);
        match (self.carried(device, port), own) {
            (Some(carried), Some(own)) => carried.tagged.difference(own),
            _ => VlanSet::EMPTY,
        }
    }

    fn has_drift(&self, device: &str) -> bool {
        let report = self.switch(device).and_then(|(driver, _)| self.state.reports.get(driver, device));
        report.is_some_and(|report| report.notes.iter().any(|note| note.kind == DRIFT))
    }

    fn marks(&self, device: &str, port: &str) -> Vec<Mark> {
        let mut marks = Vec::new();
        if self.carried(device, port).is_some_and(|carried| carried.open) {
            marks.push(Mark::Open);
        } else if !self.foreign(device, port).is_empty() {
            marks.push(Mark::Foreign);
        }
        let report = self.switch(device).and_then(|(driver, _)| self.state.reports.get(driver, device));
        let mut notes = report.into_iter().flat_map(|report| &report.notes);
        if notes.any(|note| note.kind == DRIFT && note.item.port.as_deref() == Some(port)) {
            marks.push(Mark::Drift);
        }
        marks
    }

    /// The worst state of a switch and of its ports. Whoever sees only a part of its VLANs is not told that all of it is
    /// confirmed.
    fn device_progress(&self, device: &str) -> (Progress, String) {
        let ports = self.progress.get(device).into_iter().flat_map(BTreeMap::values);
        let best = if self.state.world.decides_switches() { Progress::Confirmed } else { Progress::Unknown };
        let worst = ports.min_by_key(|(state, _)| *state).filter(|(state, _)| *state < best);
        worst.cloned().unwrap_or((best, String::new()))
    }

    fn port_progress(&self, device: &str, port: &str) -> Option<&(Progress, String)> {
        self.progress.get(device)?.get(port)
    }

    /// The worse state of both ends of a link; `None`: neither carries a VLAN, and nothing is known of the switches.
    fn link_progress(&self, link: &cabling::Link) -> Option<Progress> {
        let ends = std::iter::once(link.port.clone()).chain(link.other());
        let progress = |(device, port): PortId| {
            self.port_progress(&device, &port).or_else(|| self.port_progress(&device, ITSELF)).cloned()
        };
        ends.filter_map(progress).map(|(state, _)| state).min()
    }

    fn link(&self, link: &cabling::Link) -> Link {
        let (device, port) = &link.port;
        let mut marks: BTreeSet<Mark> = self.marks(device, port).into_iter().collect();
        if let Some((device, port)) = link.other() {
            marks.extend(self.marks(&device, &port));
        }
        let mut found = Link {
            id: link.id(),
            device: device.clone(),
            port: port.clone(),
            lag: self.state.cabling.ports.get(&link.port).and_then(|port| port.lag.clone()),
            to_device: None,
            to_port: None,
            to_node: None,
            to_interface: None,
            to_network: None,
            state: self.link_progress(link).unwrap_or(Progress::Unknown),
            vlans: self.desired.get(&(device.as_str(), port.as_str())).map_or(0, |port| port.vlans.len()),
            marks,
        };
        match &link.end {
            End::Device(device, port) => {
                (found.to_device, found.to_port) = (Some(device.clone()), port.clone());
            }
            End::Node(node, nic) => (found.to_node, found.to_interface) = (Some(node.clone()), nic.clone()),
            End::Network(network) => found.to_network = Some(network.clone()),
        }
        found
    }
}

#[derive(Deserialize)]
pub(super) struct AskedLink {
    id: String,
}

#[derive(Serialize)]
pub(super) struct LinkDetail {
    link: Link,
    ends: Vec<PortDetail>,
    commands: Vec<String>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct PortDetail {
    device: String,
    port: String,
    desired: VlanSet,
    #[serde(skip_serializing_if = "Option::is_none")]
    carried: Option<CarriedView>,
    foreign: VlanSet,
    lines: Vec<Line>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Serialize)]
struct CarriedView {
    tagged: VlanSet,
    #[serde(skip_serializing_if = "Option::is_none")]
    untagged: Option<VlanId>,
    open: bool,
}

pub(super) async fn link(
    extract::State(app): extract::State<App>,
    Query(AskedLink { id }): Query<AskedLink>,
) -> Answer<LinkDetail> {
    let state = app.state();
    let link = state.cabling.links.iter().find(|link| link.id() == id).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            format!("There is no link at {id}."),
            "Choose another one: no FabricDevice that you may read lists this port.",
        )
    })?;
    let view = View::new(&state, None);
    let ends: Vec<PortId> = std::iter::once(link.port.clone()).chain(link.other()).collect();
    let commands = ends.iter().map(|(device, port)| commands::eno(&app, &["blame", device, port]));
    Ok(Json(LinkDetail {
        link: view.link(link),
        commands: commands.collect(),
        ends: ends.iter().filter_map(|(device, port)| port_detail(&view, device, port)).collect(),
        missing: missing(&app, &state.world, &state.reports),
    }))
}

fn port_detail(view: &View<'_>, device: &str, port: &str) -> Option<PortDetail> {
    let (_, switch) = view.switch(device)?;
    let desired = view.desired.get(&(device, port))?.vlans.clone();
    let carried = view.carried(device, port);
    let states = routed_states(&view.state.observation(), &view.state.reports, (device, switch), port);
    Some(PortDetail {
        device: device.to_owned(),
        port: port.to_owned(),
        desired,
        foreign: view.foreign(device, port),
        lines: blame(switch, port, carried, &states),
        message: view.port_progress(device, port).map(|(_, message)| message.clone()).unwrap_or_default(),
        carried: carried.map(|carried| CarriedView {
            tagged: carried.tagged.clone(),
            untagged: carried.untagged,
            open: carried.open,
        }),
    })
}

#[derive(Serialize)]
pub(super) struct Vlans {
    vlans: Vec<Vlan>,
    missing: Vec<Missing>,
}

#[derive(Serialize)]
struct Vlan {
    id: VlanId,
    owners: BTreeSet<String>,
}

pub(super) async fn vlans(extract::State(app): extract::State<App>) -> Json<Vlans> {
    let state = app.state();
    let mut owners: BTreeMap<VlanId, BTreeSet<String>> = BTreeMap::new();
    for vlan in state.fabric.switches.values().flat_map(|(_, desired)| &desired.vlans) {
        owners.entry(vlan.vid).or_default().extend(vlan.owners.iter().cloned());
    }
    let vlans = owners.into_iter().map(|(id, owners)| Vlan { id, owners });
    Json(Vlans { vlans: vlans.collect(), missing: missing(&app, &state.world, &state.reports) })
}

#[derive(Deserialize)]
pub(super) struct AskedVlan {
    id: u16,
}

#[derive(Serialize)]
pub(super) struct VlanTree {
    id: VlanId,
    owners: BTreeSet<String>,
    devices: Vec<VlanPlace>,
    links: Vec<VlanLink>,
}

#[derive(Serialize)]
struct VlanPlace {
    name: String,
    state: Progress,
}

#[derive(Serialize)]
struct VlanLink {
    id: String,
    state: Progress,
}

pub(super) async fn vlan(
    extract::State(app): extract::State<App>,
    Query(AskedVlan { id }): Query<AskedVlan>,
) -> Answer<VlanTree> {
    let id = VlanId::new(id).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, error.to_string(), "Write a VLAN ID from 1 to 4094.")
    })?;
    let state = app.state();
    let view = View::new(&state, Some(id));
    let mut tree = VlanTree { id, owners: BTreeSet::new(), devices: Vec::new(), links: Vec::new() };
    for (name, (_, desired)) in &state.fabric.switches {
        let Some(vlan) = desired.vlans.iter().find(|vlan| vlan.vid == id) else { continue };
        tree.owners.extend(vlan.owners.iter().cloned());
        tree.devices.push(VlanPlace { name: name.clone(), state: view.device_progress(name).0 });
    }
    let links = state
        .cabling
        .links
        .iter()
        .filter_map(|link| Some(VlanLink { id: link.id(), state: view.link_progress(link)? }));
    tree.links = links.collect();
    Ok(Json(tree))
}
