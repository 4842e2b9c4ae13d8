//! The last stage: evaluates the phase of an object, and what hinders it.

mod notes;
pub mod stalled;
mod switches;
pub mod write;

use std::collections::BTreeSet;

use eno_schemas::Phase;

use crate::fabric::Fabric;
use crate::nad::target::{NadState, NadTarget};
use crate::nad::{NAD_DRIVER, Nads};
use crate::node::state::HostStates;
use crate::pods::state::PodStates;
use crate::schedule::Schedule;
use crate::spec::{AttachmentSpec, Spec};
use crate::status::evaluation::Evaluation;
use crate::status::inputs::Inputs;
use crate::store::Store;
use crate::store::record::Record;
use crate::validate::Validator;
use crate::{ConditionType, Config, Key, Kind, Name};

/// The objects whose status is to be evaluated.
#[derive(Debug, Default)]
pub struct Statuses {
    /// Objects whose status is to be evaluated.
    queue: BTreeSet<Key>,
    /// Objects that were given up while switches may still carry their VLANs. Evaluated after each switch report.
    removing: BTreeSet<Key>,
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

    /// Evaluates an object after each report of a switch, since switches may still carry its VLANs.
    pub fn follow_removal(&mut self, key: &Key) {
        self.removing.insert(key.clone());
    }

    /// A switch reported.
    pub fn reevaluate_removed(&mut self) {
        self.queue.extend(self.removing.iter().cloned());
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
}

impl Finding {
    fn new(phase: Phase, message: impl Into<String>, evaluation: Evaluation) -> Self {
        Self { phase, message: message.into(), evaluation }
    }
}

impl Evaluator<'_> {
    /// Evaluates an object that has our finalizer. `None`: there is no such object.
    pub fn evaluate(&self, key: &Key) -> Option<Finding> {
        let record = self.store.get(key)?;
        let mut finding = match &record.problem {
            _ if record.deleting => self.evaluate_deleting(key),
            Some(problem) => {
                let phase = if record.incomplete { Phase::Pending } else { Phase::Error };
                Finding::new(phase, problem.to_string(), Evaluation::invalid(problem.cause))
            }
            None => self.evaluate_active(key, record),
        };
        self.note_unknown_opts(key, &mut finding.evaluation);
        Some(finding)
    }

    /// Evaluates a valid object that is not being deleted.
    fn evaluate_active(&self, key: &Key, record: &Record) -> Finding {
        let evaluation = self.evaluate_path(key);
        if let Some(refused) = &evaluation.refused {
            return Finding::new(Phase::Error, refused.clone(), evaluation);
        }
        // A configuration is as ready as its pods. Any other object stays ready while its inputs stay the same.
        let sticky = !matches!(key.kind, Kind::PodNetworkConfig | Kind::PodConfig);
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
            _ => Finding::new(Phase::Ready, "", evaluation),
        }
    }

    /// Evaluates the parts of the path of an object.
    fn evaluate_path(&self, key: &Key) -> Evaluation {
        let mut evaluation = Evaluation::default();
        let mut inputs = Inputs::default();
        match key.kind {
            Kind::Route | Kind::Subnet | Kind::NodePool | Kind::PhysicalNetwork => return evaluation,
            Kind::PodNetworkConfig | Kind::PodConfig => {
                self.pods.evaluate_pods(key, &mut evaluation);
                return evaluation;
            }
            Kind::Bridge => self.pods.evaluate_bridge(key, &mut evaluation, &mut inputs),
            Kind::ConnectionPoint => self.hosts.evaluate_point(key, &mut evaluation, &mut inputs),
            Kind::FabricDevice => self.evaluate_device(key, &mut evaluation, &mut inputs),
            Kind::L2Service | Kind::L2BridgeDomain | Kind::L2ServiceAttachment => {
                let mut fabric = Evaluation::default();
                for (network, vid, ports) in self.fabric.paths(self.store, key) {
                    inputs.add(&vid);
                    if let Some(service) = self.store.effective(&network, Spec::service) {
                        inputs.add(&service.physical_networks);
                    }
                    // Without a gap the hash is the same as that of engines that knew no gaps.
                    if let Some(gap) = self.fabric.gap_message(self.store, key, &network) {
                        inputs.add(&gap);
                        evaluation.gap = true;
                        fabric.wait(gap);
                    }
                    self.evaluate_network(key, &network, vid, &ports, &mut fabric);
                }
                let mut nodes = Evaluation::default();
                self.hosts.evaluate_demands(key, &mut nodes, &mut inputs);
                evaluation.add_hop(ConditionType::FabricReady, fabric);
                evaluation.add_hop(ConditionType::NodesReady, nodes);
            }
        }
        if key.kind == Kind::L2ServiceAttachment {
            if let Some(spec) = self.store.effective(key, Spec::attachment) {
                // `UsableFrom` does not change what its own pods have.
                inputs.add(&AttachmentSpec { usable_from: None, ..spec.clone() });
                self.note_unmanaged(spec, &mut evaluation);
                self.note_addresses(key, spec, &mut evaluation);
                self.note_trunk(spec, &mut evaluation);
                self.note_foreign_pods(key, &mut evaluation);
                self.note_templates(key, &mut evaluation);
            }
            let mut nad = Evaluation::default();
            self.evaluate_nad(key, &mut nad, &mut inputs);
            evaluation.add_hop(ConditionType::NadReady, nad);
            self.pods.evaluate_pods(key, &mut evaluation);
            evaluation.hops.retain(|(kind, _)| self.config.nodes || *kind != ConditionType::NodesReady);
        } else {
            evaluation.hops.clear();
        }
        if key.kind == Kind::L2Service {
            self.note_ends_apart(key, &mut evaluation);
        }
        evaluation.inputs = Some(inputs.finish());
        evaluation
    }

    fn evaluate_nad(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        let Some(nad) = self.nad.get(key) else {
            return evaluation.wait("its NetworkAttachmentDefinition is not planned yet".into());
        };
        inputs.add(nad.inputs());
        match nad.hop() {
            NadState::Confirmed => {}
            NadState::Refused { reason, retryable } => {
                evaluation.reject(format!("NetworkAttachmentDefinition: {reason}"), retryable);
            }
            NadState::Waiting => {
                evaluation
                    .wait(format!("NetworkAttachmentDefinition {}", self.waits_for(&NAD_DRIVER.into())));
            }
        }
    }

    /// Evaluates an object that is being deleted.
    fn evaluate_deleting(&self, key: &Key) -> Finding {
        let mut evaluation = Evaluation::default();
        if let Some(user) = self.validator.blocking_user(key) {
            return Finding::new(Phase::Terminating, format!("in use by {user}"), evaluation);
        }
        let remains = self
            .remains_on_switches(key)
            .or_else(|| self.remains_of_nad(key))
            .or_else(|| self.hosts.remains(key, &mut evaluation))
            .or_else(|| self.pods.remains(key, &mut evaluation));
        match remains {
            Some(remains) => Finding::new(Phase::Terminating, remains, evaluation),
            None => Finding::new(Phase::Deleted, std::mem::take(&mut evaluation.final_message), evaluation),
        }
    }

    /// Why the NetworkAttachmentDefinition is not confirmed to be gone.
    fn remains_of_nad(&self, key: &Key) -> Option<String> {
        match self.nad.get(key).map(NadTarget::hop) {
            Some(NadState::Waiting) => Some(format!(
                "the removal of its NetworkAttachmentDefinition {}",
                self.waits_for(&NAD_DRIVER.into())
            )),
            Some(NadState::Refused { reason, .. }) => Some(format!("NetworkAttachmentDefinition: {reason}")),
            Some(NadState::Confirmed) | None => None,
        }
    }

    /// The end of a message about a target whose driver has not reported.
    pub fn waits_for(&self, driver: &Name) -> String {
        if self.schedule.live_drivers.contains(driver) {
            "is not confirmed yet".into()
        } else {
            format!("waits: driver {driver} is not running")
        }
    }
}
