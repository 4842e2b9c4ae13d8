//! Steps of a test after each of which the [`World`] settles.

use eno_core::{Key, Object, Pod};

use crate::world::World;

impl World {
    pub fn apply_and_settle(&mut self, object: Object) -> Key {
        let key = self.apply(object);
        self.settle();
        key
    }

    pub fn delete_and_settle(&mut self, key: &Key) {
        self.delete(key);
        self.settle();
    }

    pub fn apply_pod_and_settle(&mut self, pod: Pod) {
        self.apply_pod(pod);
        self.settle();
    }

    pub fn remove_pod_and_settle(&mut self, uid: &str) {
        self.remove_pod(uid);
        self.settle();
    }

    pub fn apply_node_and_settle(&mut self, name: &str, pool: bool, ready: bool) {
        self.apply_node(name, pool, ready);
        self.settle();
    }

    pub fn remove_node_and_settle(&mut self, name: &str) {
        self.remove_node(name);
        self.settle();
    }

    pub fn restart_and_settle(&mut self) {
        self.restart();
        self.settle();
    }

    /// All drivers answer again.
    pub fn end_silence(&mut self) {
        self.silent.clear();
        self.settle();
    }

    pub fn elapse_backoff_and_settle(&mut self) {
        self.elapse_backoff();
        self.settle();
    }

    /// The switch accepts the VLAN again, and its network is tried again.
    pub fn end_refusal(&mut self, switch: &str, vid: u16) {
        self.set_refusal(switch, vid, false);
        self.elapse_backoff_and_settle();
    }
}
