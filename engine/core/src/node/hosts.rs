//! The nodes' part of the path: what objects want on their hosts, and the state of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use eno_schemas::{Report, VlanId, VlanType};

use crate::fabric::device::HopState;
use crate::node::Demand;
use crate::node::shape::{self, Shape};
use crate::node::target::{NodeTarget, ReportChange};
use crate::pods::PodState;
use crate::spec::{Cause, ConnectionPointSpec, Invalid, Plugin, Spec};
use crate::validate::compat;
use crate::{Effect, Key, Kind, Name, Target};

use crate::engine::Engine;
use crate::status::evaluation::Evaluation;
use crate::status::inputs::Inputs;

/// The driver that realises nodes; the agent of one is alive as `node/<name>`.
pub(crate) const NODE_DRIVER: &str = "node";

/// Networks and VLANs that an object gave up on nodes and that may still be there.
#[derive(Debug)]
pub struct HostCleanup {
    /// The version of the nodes since when it is given up.
    version: u64,
    /// The nodes.
    nodes: BTreeSet<Name>,
    /// The networks with the VLANs on them; without VLANs, the network itself.
    networks: Vec<(String, BTreeSet<VlanId>)>,
}

impl Engine {
    pub(crate) fn update_node(&mut self, name: &Name, ready: bool) {
        let is_new = self.node.node(name).is_none();
        if self.config.nodes && self.node.add_node(name, ready) {
            self.sync_node(name);
            self.reevaluate_waiters(name);
            if is_new {
                self.replan_pods_on(name);
            }
        }
    }

    pub(crate) fn remove_node(&mut self, name: &Name) {
        if let Some(node) = self.node.remove_node(name) {
            self.work
                .evaluate
                .extend(node.waiters.into_iter().filter(|key| self.store.records.contains_key(key)));
            let on = |state: &PodState| state.pod.node.as_ref() == Some(name);
            let pods = self.pods.states.iter().filter(|(_, state)| on(state)).map(|(uid, _)| uid.clone());
            let pods = pods.collect();
            self.reevaluate_bridges_on(name);
            self.handle_pods_changed(pods);
            self.replan_pods_on(name);
            // The leftovers of deleted objects are gone with the node.
            for (key, provider) in &self.pods.providers {
                let cleanup = provider.entries.iter().filter(|(_, entry)| {
                    entry.withdrawal.as_ref().is_some_and(|withdrawal| withdrawal.node == *name)
                });
                self.pods.queue.extend(cleanup.map(|(uid, _)| (key.clone(), uid.clone())));
            }
            self.work.effects.push(Effect::Forget(Target::Node(name.clone())));
        }
    }

    pub(crate) fn handle_node_report(&mut self, name: &Name, report: Report) {
        let Some(node) = self.node.node_mut(name) else { return };
        let change = node.report(report);
        if change == ReportChange::None {
            return;
        }
        self.reevaluate_waiters(name);
        if change == ReportChange::Evaluation {
            self.reevaluate_all_on(name);
        }
        self.handle_node_changes(name);
    }

    /// A change of the node is confirmed without a new report.
    pub(crate) fn handle_node_confirmed(&mut self, name: &Name) {
        self.reevaluate_waiters(name);
        self.handle_node_changes(name);
    }

    fn handle_node_changes(&mut self, name: &Name) {
        let changed = self.node.node_mut(name).map(NodeTarget::take_changed);
        let (mut pods, networks) = changed.unwrap_or_default();
        if let Some(node) =
            self.node.node_mut(name).filter(|node| node.is_known() && !node.first_report_handled)
        {
            node.first_report_handled = true;
            let on = |state: &PodState| state.pod.node.as_ref() == Some(name);
            pods.extend(self.pods.states.iter().filter(|(_, state)| on(state)).map(|(uid, _)| uid.clone()));
        }
        self.handle_pods_changed(pods);
        for network in networks {
            let users = self.pods.bridge_users.get(&network).into_iter().flatten();
            self.work.evaluate.extend(users.filter(|key| key.kind == Kind::Bridge).cloned());
        }
        self.node.label_queue.insert(name.clone());
    }

    pub(crate) fn reevaluate_waiters(&mut self, name: &Name) {
        let Some(node) = self.node.node_mut(name) else { return };
        let waiters = std::mem::take(&mut node.waiters);
        self.work.evaluate.extend(waiters.into_iter().filter(|key| self.store.records.contains_key(key)));
    }

    fn reevaluate_all_on(&mut self, name: &Name) {
        let points = self.node.node(name).map(|node| node.points.keys().cloned().collect::<Vec<_>>());
        for point in points.into_iter().flatten() {
            let key = Key::cluster(Kind::ConnectionPoint, &point);
            self.work.evaluate.extend(self.store.referrers.get(&key).into_iter().flatten().cloned());
            if self.store.records.contains_key(&key) {
                self.work.evaluate.insert(key);
            }
        }
        self.reevaluate_bridges_on(name);
    }

    fn reevaluate_bridges_on(&mut self, name: &Name) {
        for (_, bridge) in self.pods.bridges.keys().filter(|(node, _)| node == name) {
            let users = self.pods.bridge_users.get(bridge).into_iter().flatten();
            self.work.evaluate.extend(users.filter(|key| key.kind == Kind::Bridge).cloned());
        }
    }

    /// Emits the effects for changed nodes: their commands, labels and extended resources.
    pub(crate) fn emit_node_effects(&mut self) {
        for name in self.node.take_changed_nodes() {
            self.schedule.publish_queue.insert(Target::Node(name.clone()));
            self.node.label_queue.insert(name);
        }
        for name in std::mem::take(&mut self.node.label_queue) {
            let Some(labels) = self.node.labels_and_resources(&name) else { continue };
            let Some(node) = self.node.node_mut(&name) else { continue };
            if node.published_labels.as_ref() != Some(&labels) {
                node.published_labels = Some(labels.clone());
                let (points, bridges) = labels;
                self.work.effects.push(Effect::LabelNode { node: name, points, bridges });
            }
        }
    }

    /// The nodes of a connection point.
    pub(crate) fn members(&self, spec: &ConnectionPointSpec) -> Arc<BTreeSet<Name>> {
        let pool = spec.node_pool.as_ref().map(|name| Key::cluster(Kind::NodePool, name));
        let selector =
            pool.as_ref().map(|pool| self.effective(pool, Spec::node_pool).map(|pool| &pool.node_selector));
        let selected = self.store.nodes.iter().filter(|(_, labels)| {
            selector.is_none_or(|selector| selector.is_some_and(|selector| selector.matches(labels)))
        });
        Arc::new(selected.map(|(name, _)| name.clone()).collect())
    }

    /// Checks that the host networks of a connection point have valid names, and that no older one has them
    /// differently.
    pub(crate) fn check_hosts(&self, key: &Key, spec: &ConnectionPointSpec) -> Result<(), Invalid> {
        if !self.config.nodes {
            return Ok(());
        }
        let shapes = shape::shapes(spec).map_err(|invalid| invalid.because(Cause::Spec))?;
        let Some(record) = self.store.records.get(key) else { return Ok(()) };
        let members = self.members(spec);
        match self.node.conflict(&key.name, &record.seniority(), &members, &shapes) {
            Some(problem) => Err(Invalid::new("SupportedCnis", problem).because(Cause::NameConflict)),
            None => Ok(()),
        }
    }

    /// Checks the name of the subinterface that an attachment needs.
    pub(crate) fn check_subinterface(
        &self,
        point: &Name,
        plugin: &Plugin,
        vlan_type: VlanType,
        vid: VlanId,
    ) -> Result<(), Invalid> {
        let (true, Plugin::Macvlan { master } | Plugin::Ipvlan { master }, VlanType::Access) =
            (self.config.nodes, plugin, vlan_type)
        else {
            return Ok(());
        };
        let name = format!("{master}.{vid}");
        if name.len() <= shape::NAME_BYTES {
            return Ok(());
        }
        let problem = format!(
            "the VLAN interface {name} that {} needs at ConnectionPoint {point} has {} bytes, and the name of an interface at most {}; take an Implementation without one or a shorter Master",
            plugin.name().as_str(),
            name.len(),
            shape::NAME_BYTES
        );
        Err(Invalid::new("ConnectionPoint", problem))
    }

    /// Updates the demands of an object on hosts, after it was validated.
    pub(crate) fn plan_hosts(&mut self, key: &Key) {
        if !self.config.nodes {
            return;
        }
        match key.kind {
            Kind::ConnectionPoint => self.update_point_on_hosts(key),
            Kind::L2ServiceAttachment | Kind::L2BridgeDomain => {
                let Some(demands) = self.demands_on_hosts(key) else { return };
                let Some(record) = self.store.records.get_mut(key) else { return };
                let before = std::mem::replace(&mut record.host_demands, demands);
                if before != record.host_demands {
                    self.node.update_demands(&before, &record.host_demands);
                }
            }
            _ => {}
        }
    }

    fn update_point_on_hosts(&mut self, key: &Key) {
        let Some(record) = self.store.records.get(key) else { return };
        let spec = record.effective.clone().filter(|_| record.finalized);
        let placement = match spec.as_deref().and_then(Spec::connection_point) {
            None => None,
            // With invalid names the networks stay as they are.
            Some(spec) => match shape::shapes(spec) {
                Ok(shapes) => Some((record.seniority(), self.members(spec), shapes)),
                Err(_) => return,
            },
        };
        let (names, version) = (self.node.names_of(&key.name), self.node.version());
        for rival in self.node.set_point(&key.name, placement) {
            self.work.validate.insert(Key::cluster(Kind::ConnectionPoint, &rival));
        }
        for name in names.symmetric_difference(&self.node.names_of(&key.name)) {
            self.revalidate_bridge_users(name, key);
        }
        if version != self.node.version() {
            // Pods may run on a node that joined or left it.
            let at = |user: &&Key| {
                let spec = self.effective(user, Spec::attachment);
                spec.is_some_and(|spec| spec.connection_point == key.name)
            };
            let users: Vec<Key> = self.pods.providers.keys().filter(at).cloned().collect();
            for user in users {
                self.replan_pods(&user);
            }
        }
    }

    /// The demands of an attachment or bridge domain. `None`: as before, since a referenced object was removed by
    /// force.
    fn demands_on_hosts(&self, key: &Key) -> Option<Vec<Demand>> {
        let record = self.store.records.get(key)?;
        let spec = record.effective.as_deref().filter(|_| record.finalized && !record.generated);
        let point_spec =
            |name: &Name| self.effective(&Key::cluster(Kind::ConnectionPoint, name), Spec::connection_point);
        match spec {
            Some(Spec::Attachment(spec)) => {
                let point = point_spec(&spec.connection_point)?;
                let chosen = compat::choose(spec, point).ok()?;
                let mut vids = BTreeSet::new();
                for name in &spec.services {
                    vids.insert(self.effective(&Key::cluster(Kind::L2Service, name), Spec::service)?.vid);
                }
                let network = match &chosen.plugin {
                    Plugin::Ovs { bridge_name, .. } | Plugin::Bridge { bridge_name } => bridge_name,
                    Plugin::Macvlan { master } | Plugin::Ipvlan { master } => {
                        if spec.vlan_type != VlanType::Access {
                            vids.clear();
                        }
                        master
                    }
                    Plugin::Vlan { master } => {
                        vids.clear();
                        master
                    }
                    Plugin::HostDevice { .. } | Plugin::Sriov { .. } | Plugin::Userspace { .. } => {
                        return Some(Vec::new());
                    }
                };
                let (point, network) = (spec.connection_point.clone(), network.clone());
                Some(vec![Demand { point, network, vids, mtu: spec.mtu(chosen) }])
            }
            Some(Spec::BridgeDomain(spec)) => {
                let mut demands = Vec::new();
                for point in &spec.connection_points {
                    for cni in &point_spec(point)?.cnis {
                        let (Plugin::Ovs { bridge_name, .. } | Plugin::Bridge { bridge_name }) = &cni.plugin
                        else {
                            continue;
                        };
                        let (point, network) = (point.clone(), bridge_name.clone());
                        demands.push(Demand { point, network, vids: BTreeSet::from([spec.vlan]), mtu: None });
                    }
                }
                Some(demands)
            }
            _ => Some(Vec::new()),
        }
    }

    /// The leftovers that an object may have on nodes. To be called while its spec is still realised.
    pub(crate) fn host_footprint(&self, key: &Key) -> Option<HostCleanup> {
        if !self.config.nodes {
            return None;
        }
        let record = self.store.records.get(key)?;
        let spec = record.effective.as_deref()?;
        let mut cleanup = HostCleanup { version: 0, nodes: BTreeSet::new(), networks: Vec::new() };
        if let Some(spec) = spec.connection_point() {
            cleanup.nodes = self.node.nodes_of(&key.name).union(&*self.members(spec)).cloned().collect();
            let shapes = shape::shapes(spec).unwrap_or_default();
            cleanup.networks = shapes.into_keys().map(|name| (name, BTreeSet::new())).collect();
        } else {
            for demand in self.demands_on_hosts(key).unwrap_or_default() {
                cleanup.nodes.extend(self.node.nodes_of(&demand.point).iter().cloned());
                cleanup.networks.push((demand.network, demand.vids));
            }
        }
        (!cleanup.nodes.is_empty()).then_some(cleanup)
    }

    /// Records what an object gave up.
    pub(crate) fn record_host_cleanup(&mut self, key: &Key, cleanup: Option<HostCleanup>) {
        let Some(cleanup) = cleanup else { return };
        let version = self.node.version();
        if let Some(record) = self.store.records.get_mut(key) {
            record.host_cleanups.push(HostCleanup { version, ..cleanup });
        }
    }

    /// The first node where something of an object is not confirmed to be gone, and why. Nodes that are not ready
    /// don't count; `evaluation` names them.
    pub(crate) fn remains_on_hosts(&self, key: &Key, evaluation: &mut Evaluation) -> Option<String> {
        let record = self.store.records.get(key)?;
        let mut unready = BTreeSet::new();
        for cleanup in &record.host_cleanups {
            for name in &cleanup.nodes {
                let Some(node) = self.node.node(name) else { continue };
                let is_gone = node.caught_up(cleanup.version)
                    && cleanup
                        .networks
                        .iter()
                        .all(|(network, vids)| !self.node.is_leftover(node, network, vids));
                if is_gone {
                    continue;
                }
                if !node.ready {
                    unready.insert(name);
                    continue;
                }
                evaluation.waits_on = Some(name.clone());
                let failure = node.failure.as_ref().map(|failure| failure.reason.as_str());
                let unanswered = cleanup.networks.iter().find_map(|(network, _)| node.unanswered(network));
                return Some(match failure.or(unanswered) {
                    Some(reason) => {
                        format!("Node {name}: what it made there can't be removed yet: {reason}")
                    }
                    None => format!(
                        "Node {name}: the removal of what it made there {}",
                        self.waits_for_node(name)
                    ),
                });
            }
        }
        if let Some(first) = unready.first() {
            let more =
                if unready.len() > 1 { format!(" and {} more are", unready.len() - 1) } else { " is".into() };
            evaluation.final_message =
                format!("Node {first}{more} not ready: what is left there goes when it is back");
        }
        None
    }

    pub(crate) fn waits_for_node(&self, name: &str) -> String {
        if self.schedule.live_drivers.contains(format!("{NODE_DRIVER}/{name}").as_str()) {
            "is not confirmed yet".into()
        } else {
            "waits: the agent of the node is not running".into()
        }
    }

    /// Evaluates a connection point's own networks on its nodes.
    pub(crate) fn evaluate_point_on_hosts(
        &self,
        key: &Key,
        evaluation: &mut Evaluation,
        inputs: &mut Inputs,
    ) {
        for (network, shape) in self.node.networks_of(&key.name) {
            inputs.add(&(network, shape));
        }
        for name in &*self.node.nodes_of(&key.name) {
            let Some(node) = self.node.node(name).filter(|node| node.ready) else { continue };
            for (network, shape) in self.node.networks_of(&key.name) {
                let hop = self.node.hop(node, &key.name, network, None, None);
                self.note_hop(evaluation, name, &hop, || format!("Node {name}: {} {network}", shape.noun()));
            }
        }
    }

    /// Evaluates the demands of an object on each node.
    pub(crate) fn evaluate_hosts(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        let Some(record) = self.store.records.get(key) else { return };
        for demand in &record.host_demands {
            let shape = self.node.shape(&demand.point, &demand.network);
            inputs.add(&(demand, shape));
            let noun = shape.map_or("network", Shape::noun);
            for name in &*self.node.nodes_of(&demand.point) {
                let Some(node) = self.node.node(name).filter(|node| node.ready) else { continue };
                self.evaluate_host(demand, noun, name, node, evaluation);
            }
        }
    }

    fn evaluate_host(
        &self,
        demand: &Demand,
        noun: &str,
        name: &Name,
        node: &NodeTarget,
        evaluation: &mut Evaluation,
    ) {
        let network = &demand.network;
        let place = || format!("Node {name}: {noun} {network}");
        let hop = self.node.hop(node, &demand.point, network, None, None);
        self.note_hop(evaluation, name, &hop, place);
        if hop != HopState::Confirmed {
            return;
        }
        for vid in &demand.vids {
            let hop = self.node.hop(node, &demand.point, network, Some(*vid), None);
            self.note_hop(evaluation, name, &hop, || format!("{}: VLAN {vid}", place()));
        }
        if let Some(mtu) = demand.mtu {
            let hop = self.node.hop(node, &demand.point, network, None, Some(mtu));
            self.note_hop(evaluation, name, &hop, || format!("{}: MTU {mtu}", place()));
        }
    }

    pub(crate) fn note_hop(
        &self,
        evaluation: &mut Evaluation,
        name: &Name,
        hop: &HopState<'_>,
        what: impl Fn() -> String,
    ) {
        match hop {
            HopState::Confirmed => {}
            HopState::Refused { reason, retryable } => {
                evaluation.reject(format!("{}: {reason}", what()), *retryable);
            }
            HopState::Unreachable(reason) => {
                evaluation.unreachable.get_or_insert_with(|| format!("Node {name}: {reason}"));
                evaluation.wait_for(name, || format!("{} waits: {reason}", what()));
            }
            HopState::Waiting => {
                evaluation.wait_for(name, || format!("{} {}", what(), self.waits_for_node(name)));
            }
        }
    }
}
