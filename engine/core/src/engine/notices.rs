//! Kubernetes Events about what drivers report.

use std::collections::BTreeMap;

use eno_schemas::{NodePod, Outcome, Report, VLAN_TAKEN_OFF};

use super::Engine;
use crate::pods::template::owner_of;
use crate::{About, ConditionType, Effect, Key, Kind, Name, NoticeKind, Target};

/// The kind of the notes of agents about repairs.
const REPAIRED: &str = "Repaired";

impl Engine {
    /// Announces drift and repairs that a report names and the last one did not.
    pub(super) fn announce(&mut self, target: &Target, report: &Report) {
        match target {
            Target::Fabric(name) => self.announce_changes_by_others(name, report),
            Target::Node(name) => self.announce_repairs(name, report),
            Target::Nad(..) | Target::Speaker(_) => {}
        }
    }

    fn announce_changes_by_others(&mut self, name: &Name, report: &Report) {
        if !matches!(report.outcome, Outcome::Applied | Outcome::Failed(_)) {
            return;
        }
        let Some(device) = self.fabric.device(name) else { return };
        let kinds =
            [(ConditionType::Drift.as_ref(), NoticeKind::Drift), (VLAN_TAKEN_OFF, NoticeKind::VlanTakenOff)];
        for (note, kind) in kinds {
            let messages = device.new_notes(note, report);
            if !messages.is_empty() {
                let about = About::Object(Key::cluster(Kind::FabricDevice, name));
                self.work.effects.push(Effect::Notice { about, kind, messages });
            }
        }
    }

    fn announce_repairs(&mut self, node: &Name, report: &Report) {
        let mut repairs = report.notes.iter().filter(|note| note.kind == REPAIRED).peekable();
        if repairs.peek().is_none() {
            return;
        }
        let desired = self.node.render(node, &self.config.cluster);
        let pods = match &desired {
            Some(eno_schemas::Desired::Node(desired)) => &desired.pods,
            _ => &BTreeMap::new(),
        };
        for note in repairs {
            let about = self.about_repair(node, note.item.pod.as_deref(), note.item.link.as_deref(), pods);
            let messages = vec![note.message.clone()];
            self.work.effects.push(Effect::Notice { about, kind: NoticeKind::Repaired, messages });
        }
    }

    /// What a repair is about: the object that requested the interface, else the pod, else the node.
    fn about_repair(
        &self,
        node: &Name,
        uid: Option<&str>,
        link: Option<&str>,
        pods: &BTreeMap<String, NodePod>,
    ) -> About {
        let Some((uid, pod)) = uid.and_then(|uid| Some((uid, pods.get(uid)?))) else {
            return About::Node(node.clone());
        };
        let (namespace, name) = (Name::from(pod.namespace.as_str()), Name::from(pod.name.as_str()));
        let owner = link.and_then(|id| owner_of(id, &namespace));
        match owner.filter(|(key, _)| self.store.contains(key)) {
            Some((key, _)) => About::Object(key),
            None => About::Pod { namespace, name, uid: uid.into() },
        }
    }
}
