//! Decides when switches are asked for the ports of probes.

use super::Engine;
use crate::fabric::device::ProberState;
use crate::{Name, Target};

impl Engine {
    /// Asks switches anew where what is known of the probes at them calls for it.
    pub(super) fn update_lookups(&mut self) {
        for name in self.fabric.take_lookups() {
            let Some(device) = self.fabric.device(&name).filter(|_| !self.config.observes) else { continue };
            // Without a process, nobody says what the driver can.
            if !self.schedule.live_drivers.contains(&device.driver) {
                continue;
            }
            let states = self.fabric.has_lookups(&device.driver).then(|| self.probers_at(&name));
            if self.fabric.update_lookup(&name, states.as_deref()) {
                self.work.publish.insert(Target::Fabric(name));
            }
        }
        self.distribute();
    }

    /// The nodes at a switch, and those that ask them.
    fn probers_at(&self, device: &Name) -> Vec<ProberState> {
        let nodes = self.fabric.topology().nodes_at(device).into_iter();
        nodes.flat_map(|node| self.node.probers(node)).collect()
    }
}
