//! The last stage: evaluates the phase of an object, and what hinders it.

mod miswired;
mod notes;
mod routed;
mod sessions;
pub mod stalled;
mod switches;
mod verification;
mod verified;
pub mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{Phase, VlanId};

use crate::bgp::Groups;
use crate::fabric::Fabric;
use crate::fabric::topology::Ports;
use crate::kinds::{AttachmentSpec, Path, Spec};
use crate::nad::{NAD_DRIVER, Nads};
use crate::node::probes::ProbeRequest;
use crate::node::state::HostStates;
use crate::pods::state::PodStates;
use crate::schedule::Schedule;
use crate::status::evaluation::Evaluation;
use crate::status::hop::{Hop, HopState, Part, Wait};
use crate::status::inputs::Inputs;
use crate::store::Store;
use crate::store::record::Record;
use crate::validate::Validator;
use crate::{ConditionType, Config, Key, Kind, Name};

use write::part_condition;

/// The objects whose status is to be evaluated.
#[derive(Debug, Default)]
pub struct Statuses {
    /// Objects whose status is to be evaluated.
    queue: BTreeSet<Key>,
    /// Objects that were given up while switches may still carry their VLANs, each with the switch in its message.
    removing: BTreeMap<Key, Option<Name>>,
}

impl Statuses {
    /// Adds objects to the queue, and takes them out of `keys`.
    pub fn request(&mut self, keys: &mut BTreeSet<Key>) {
        self.queue.extend(std::mem::take(keys));
    }

    /// Takes the next object out of the queue.
    pub fn pop(&mut self) -> Option<Key> {
        self.queue.pop_first()
    }

    /// True when nothing is to be evaluated.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Evaluates an object after reports of switches, since switches may still carry its VLANs.
    pub fn follow_removal(&mut self, key: &Key) {
        self.removing.insert(key.clone(), None);
    }

    /// The message of an object is about the removal from this switch. Until it reports, no other report matters.
    pub fn note_awaited(&mut self, key: &Key, switch: Option<&Name>) {
        if let Some(awaited) = self.removing.get_mut(key) {
            *awaited = switch.cloned();
        }
    }

    /// A switch reported or is gone.
    pub fn reevaluate_removed(&mut self, switch: &Name) {
        let depends = |awaited: &Option<Name>| awaited.as_ref().is_none_or(|awaited| awaited == switch);
        let concerned = self.removing.iter().filter(|(_, awaited)| depends(awaited));
        self.queue.extend(concerned.map(|(key, _)| key.clone()));
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, key: &Key) {
        self.queue.remove(key);
        self.removing.remove(key);
    }
}

/// Evaluates objects. It reads all parts of the engine.
#[derive(Clone, Copy)]
pub(crate) struct Evaluator<'a> {
    pub config: &'a Config,
    pub store: &'a Store,
    pub fabric: &'a Fabric,
    pub nad: &'a Nads,
    /// The interfaces of pods.
    pub pods: PodStates<'a>,
    /// The nodes of BGPSessionGroups.
    pub groups: &'a Groups,
    /// The networks of hosts.
    pub hosts: HostStates<'a>,
    pub schedule: &'a Schedule,
    /// Knows the users of objects.
    pub validator: Validator<'a>,
}

/// The state of an object.
#[derive(Debug)]
pub(crate) struct Finding {
    /// Its phase.
    pub phase: Phase,
    /// A message for people; it names the hop that is not confirmed.
    pub message: String,
    /// What it follows from.
    pub evaluation: Evaluation,
    /// What is probed for it.
    pub probes: Option<ProbeRequest>,
}

/// The ports of a network that are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortsVisited {
    /// All.
    All,
    /// Of each switch, the first port in each state. Phase, message and conditions follow from these.
    Deciding,
}

/// A network on the path of an object.
#[derive(Debug)]
pub(crate) struct NetworkPath {
    /// The network.
    pub network: Key,
    /// Its VLAN.
    pub vid: VlanId,
    /// The ports that matter to the object.
    pub ports: Arc<Ports>,
    /// The ends of the object that no link joins.
    pub gap: Option<String>,
}

impl Finding {
    /// A finding of an object for which nothing is probed.
    pub fn new(phase: Phase, message: impl Into<String>, evaluation: Evaluation) -> Self {
        Self { phase, message: message.into(), evaluation, probes: None }
    }
}

impl<'a> Evaluator<'a> {
    /// Evaluates an object that has our finalizer. `None`: there is no such object.
    pub fn evaluate(&self, key: &Key) -> Option<Finding> {
        let record = self.store.get(key)?;
        let mut finding = match &record.problem {
            _ if record.deleting => self.evaluate_deleting(key),
            Some(problem) => {
                let phase = if record.incomplete { Phase::Pending } else { Phase::Error };
                let probes = self.hindered_probes(key, "an attachment of it can't be realised as it is");
                Finding {
                    probes,
                    ..Finding::new(phase, problem.to_string(), Evaluation::invalid(problem.cause))
                }
            }
            None => self.evaluate_active(key, record),
        };
        self.note_unknown_opts(key, &mut finding.evaluation);
        if key.kind == Kind::Subnet && !record.deleting {
            self.note_next_hops(key, &mut finding.evaluation);
            self.note_few_addresses(key, &mut finding.evaluation);
            self.note_leases(key, &mut finding.evaluation);
        }
        Some(finding)
    }

    /// Evaluates a valid object that is not being deleted.
    fn evaluate_active(&self, key: &Key, record: &Record) -> Finding {
        let (evaluation, probes) = self.evaluate_path(key);
        Finding { probes, ..self.judge(key, record, evaluation) }
    }

    /// The phase that follows from the path of an object.
    fn judge(&self, key: &Key, record: &Record, evaluation: Evaluation) -> Finding {
        if let Some(refused) = &evaluation.refused {
            return Finding::new(Phase::Error, refused.clone(), evaluation);
        }
        // A configuration is as ready as its pods. Any other object stays ready while its inputs stay the same.
        let sticky = key.kind.facts().path != Path::Pods;
        let was_ready = record.status.phase == Some(Phase::Ready) && sticky;
        // A status without inputs is from an older engine: then its observed generation decides.
        let same = match record.status.ready_inputs {
            None => record.status.observed_generation == record.generation && !evaluation.gap,
            before => before == evaluation.inputs,
        };
        match &evaluation.waiting {
            Some(waiting) if !(was_ready && same) => {
                Finding::new(Phase::Pending, waiting.clone(), evaluation)
            }
            _ => match self.awaited_probes(key, &evaluation) {
                Some(awaited) if record.status.phase != Some(Phase::Ready) => {
                    Finding::new(Phase::Pending, awaited, evaluation)
                }
                _ => Finding::new(Phase::Ready, "", evaluation),
            },
        }
    }

    /// The networks on the path of an object.
    pub fn networks(&self, key: &Key) -> Vec<NetworkPath> {
        if !key.kind.leads_over_networks() {
            return Vec::new();
        }
        let paths = self.fabric.paths(self.store, key).into_iter();
        let paths = paths.map(|(network, vid, ports)| {
            let gap = self.fabric.gap_message(self.store, key, &network);
            NetworkPath { network, vid, ports, gap }
        });
        paths.collect()
    }

    /// Visits the hops of an object's path on which its phase and its conditions depend. The first that is not confirmed
    /// gives the message. `networks`: those of [`Self::networks`].
    pub fn visit_hops(
        &self,
        key: &Key,
        networks: &[NetworkPath],
        ports: PortsVisited,
        visit: &mut dyn FnMut(Hop<'a>),
    ) {
        match key.kind.facts().path {
            Path::Nothing => {}
            Path::Pods => self.pods.visit_pods(key, visit),
            Path::Bridge => self.pods.visit_bridge(key, visit),
            Path::Point => self.hosts.visit_point(key, visit),
            Path::Device => self.visit_device(key, visit),
            Path::Vrf => self.visit_vrf(key, visit),
            Path::Networks => {
                for path in networks {
                    if let Some(gap) = &path.gap {
                        visit(Hop::missing(Part::Link, gap.clone()));
                    }
                    self.visit_network(key, path, ports, visit);
                }
                self.hosts.visit_demands(key, visit);
            }
        }
        if key.kind == Kind::VRFAttachment {
            self.visit_routed(key, networks, visit);
        }
        if key.kind == Kind::BGPSessionGroup {
            self.visit_sessions(key, visit);
        }
        if key.kind == Kind::L2ServiceAttachment {
            visit(self.nad_hop(key));
            self.pods.visit_pods(key, visit);
        }
    }

    fn nad_hop(&self, key: &Key) -> Hop<'a> {
        match self.nad.get(key) {
            None => Hop::missing(Part::Nad, "its NetworkAttachmentDefinition is not planned yet"),
            Some(nad) => Hop { part: Part::Nad, state: nad.hop().waiting_for(|| self.wait(NAD_DRIVER)) },
        }
    }

    /// Evaluates the parts of the path of an object, and what is probed on it.
    fn evaluate_path(&self, key: &Key) -> (Evaluation, Option<ProbeRequest>) {
        let mut evaluation = Evaluation::default();
        let networks = self.networks(key);
        let [mut fabric, mut nodes, mut nad, mut pods] = [(); 4].map(|()| Evaluation::default());
        self.visit_hops(key, &networks, PortsVisited::Deciding, &mut |hop| {
            let part = match hop.part.condition() {
                ConditionType::NodesReady => &mut nodes,
                ConditionType::NadReady => &mut nad,
                ConditionType::PodsReady => &mut pods,
                _ => &mut fabric,
            };
            part.add(&hop);
        });
        let is_confirmed = fabric.hindrance().is_none() && nodes.hindrance().is_none();
        // Ports of another network may come before.
        evaluation.awaited = fabric.awaited.take().filter(|_| networks.len() == 1);
        evaluation.add_part(ConditionType::FabricReady, fabric);
        evaluation.add_part(ConditionType::NodesReady, nodes);
        evaluation.add_part(ConditionType::NadReady, nad);
        if key.kind == Kind::L2ServiceAttachment {
            // It is as ready for other pods.
            evaluation.parts.retain(|(kind, _)| self.config.nodes || *kind != ConditionType::NodesReady);
            if self.pods.has_pods(key) {
                evaluation.conditions.push(part_condition(ConditionType::PodsReady, pods.hindrance()));
            }
            evaluation.waits_on = evaluation.waits_on.take().or(pods.waits_on);
        } else {
            evaluation.add_part(ConditionType::PodsReady, pods);
            evaluation.parts.clear();
        }
        self.note_path(key, &networks, &mut evaluation);
        let probes = self.note_verified(key, &networks, is_confirmed, &mut evaluation);
        (evaluation, probes)
    }

    /// Adds the inputs of an object and the conditions that don't change its phase.
    fn note_path(&self, key: &Key, networks: &[NetworkPath], evaluation: &mut Evaluation) {
        let mut inputs = Inputs::default();
        match key.kind.facts().path {
            Path::Nothing => return,
            Path::Pods => return self.pods.note_narrow_paths(key, evaluation),
            Path::Bridge => self.pods.add_bridge_inputs(key, &mut inputs),
            Path::Point => self.hosts.add_point_inputs(key, &mut inputs),
            Path::Device => self.note_device(key, evaluation, &mut inputs),
            Path::Vrf => {
                if let Some(spec) = self.store.effective(key, Spec::vrf) {
                    inputs.add(spec);
                    self.note_shared_distinguisher(key, spec, evaluation);
                }
            }
            Path::Networks => {
                for NetworkPath { network, vid, gap, .. } in networks {
                    inputs.add(vid);
                    if let Some(service) = self.store.effective(network, Spec::service) {
                        inputs.add(&service.physical_networks);
                    }
                    // Without a gap the hash is the same as that of engines that knew no gaps.
                    if let Some(gap) = gap {
                        inputs.add(gap);
                        evaluation.gap = true;
                    }
                }
                if let Some(spec) = self.store.effective(key, Spec::vrf_attachment) {
                    inputs.add(spec);
                    inputs.add(self.vrf_name(spec));
                }
                if let Some(spec) = self.store.effective(key, Spec::bgp_session_group) {
                    inputs.add(spec);
                    self.note_speaker(key, evaluation);
                }
                self.hosts.add_demand_inputs(key, &mut inputs);
            }
        }
        if key.kind == Kind::L2ServiceAttachment {
            if let Some(spec) = self.store.effective(key, Spec::attachment) {
                // These do not change the networks and the interface that pods start with.
                inputs.add(&AttachmentSpec { usable_from: None, sub_interfaces: false, ..spec.clone() });
                self.note_unmanaged(spec, evaluation);
                self.note_addresses(key, spec, evaluation);
                self.note_trunk(spec, evaluation);
                self.note_foreign_pods(key, evaluation);
                self.note_templates(key, evaluation);
            }
            if let Some(nad) = self.nad.get(key) {
                inputs.add(nad.inputs());
            }
            self.pods.note_narrow_paths(key, evaluation);
        }
        if key.kind == Kind::L2Service {
            self.note_ends_apart(key, evaluation);
        }
        evaluation.inputs = Some(inputs.finish());
    }

    /// Evaluates an object that is being deleted.
    fn evaluate_deleting(&self, key: &Key) -> Finding {
        let mut evaluation = Evaluation::default();
        if let Some(user) = self.validator.blocking_user(key) {
            return Finding::new(Phase::Terminating, format!("in use by {user}"), evaluation);
        }
        let remains = self
            .remains_of_sessions(key, &mut evaluation)
            .or_else(|| self.remains_on_switches(key, &mut evaluation))
            .or_else(|| self.remains_of_nad(key))
            .or_else(|| self.hosts.remains(key, &mut evaluation))
            .or_else(|| self.pods.remains(key, &mut evaluation))
            .or_else(|| self.pods.remaining_addresses(key, &mut evaluation));
        match remains {
            Some(remains) => Finding::new(Phase::Terminating, remains, evaluation),
            None => Finding::new(Phase::Deleted, std::mem::take(&mut evaluation.final_message), evaluation),
        }
    }

    /// Why the NetworkAttachmentDefinition is not confirmed to be gone.
    fn remains_of_nad(&self, key: &Key) -> Option<String> {
        self.nad.get(key)?;
        let hop = self.nad_hop(key);
        let message = hop.message()?;
        Some(match hop.state {
            HopState::Refused { .. } => message,
            _ => format!("the removal of its {message}"),
        })
    }

    /// What a target waits for whose driver has not reported.
    pub fn wait(&self, driver: &'a str) -> Wait<'a> {
        if self.schedule.live_drivers.contains(driver) { Wait::Report } else { Wait::Driver(driver) }
    }
}
