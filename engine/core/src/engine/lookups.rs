//! Decides when switches are asked for the ports of probes.

use std::collections::{BTreeSet, HashMap};

use super::Engine;
use crate::fabric::device::ProberState;
use crate::kinds::Spec;
use crate::status::inputs::Inputs;
use crate::{Key, Kind, Name, Target};

impl Engine {
    /// Asks switches anew where what is known of the probes at them calls for it.
    pub(super) fn update_lookups(&mut self) {
        let mut renewed = HashMap::new();
        for name in self.fabric.take_lookups() {
            let Some(device) = self.fabric.device(&name).filter(|_| !self.config.observes) else { continue };
            // Without a process, nobody says what the driver can.
            if !self.schedule.live_drivers.contains(&device.driver) {
                continue;
            }
            let can_answer = self.fabric.has_lookups(&device.driver);
            let states = can_answer.then(|| self.probers_at(&name, &mut renewed));
            if self.fabric.update_lookup(&name, states.as_deref()) {
                self.work.publish.insert(Target::Fabric(name));
            }
        }
        self.distribute();
    }

    /// The nodes at a switch, and those that ask them. `renewed`: what is known of [`ProberState::renewed`].
    fn probers_at(&self, device: &Name, renewed: &mut HashMap<Name, u64>) -> Vec<ProberState> {
        let mut renewed =
            |point: &Name| *renewed.entry(point.clone()).or_insert_with(|| self.renewed_at(point));
        let nodes = self.fabric.topology().nodes_at(device).into_iter();
        nodes.flat_map(|node| self.node.probers(node, &mut renewed)).collect()
    }

    /// Identifies the requests for new probes at a connection point that are answered; 0: there are none.
    fn renewed_at(&self, point: &Name) -> u64 {
        let point = Key::cluster(Kind::ConnectionPoint, point);
        let mut keys: BTreeSet<Key> = self.store.referrers(&point).cloned().collect();
        let specs = keys.iter().filter_map(|key| self.store.effective(key, Spec::attachment));
        let services = specs.flat_map(|spec| &spec.services).map(|name| Key::cluster(Kind::L2Service, name));
        let services: Vec<Key> = services.collect();
        keys.extend(services);
        keys.insert(point);
        let nonce = |key: &Key| Some(self.store.get(key)?.status.verification.as_ref()?.nonce.clone());
        let mut answered = keys.iter().filter_map(|key| Some((key, nonce(key)?))).peekable();
        if answered.peek().is_none() {
            return 0;
        }
        let mut hash = Inputs::default();
        for (key, nonce) in answered {
            hash.add(&(key.to_string(), &*nonce));
        }
        hash.finish()
    }
}
