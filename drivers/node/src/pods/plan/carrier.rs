//! Where an interface of a pod that other software made leads to on the host. The host's kernel says it: what the pod, or
//! who may write its annotations, says of it is no proof.

use eno_schemas::Carrier;

use super::Planner;
use crate::netlink::{Kind, Link};
use crate::pods::check::Refusal;

impl Planner<'_> {
    /// Refuses a parent in the pod that leads elsewhere.
    pub(super) fn check_leads_to(&self, parent: &Link, carrier: &Carrier) -> Result<(), Refusal> {
        let (is_there, place) = match carrier {
            Carrier::Bridge(bridge) => (self.is_port(parent, bridge), format!("the bridge {bridge}")),
            Carrier::Ovs(bridge) => {
                (self.is_ovs_port(parent, bridge), format!("the Open vSwitch bridge {bridge}"))
            }
            Carrier::Master(master) => (self.is_on(parent, master), format!("the interface {master}")),
            Carrier::Device => (!self.is_of_host(parent), "a device of its own".to_owned()),
        };
        if is_there {
            return Ok(());
        }
        let name = &parent.name;
        Err(Refusal::temporary(format!(
            "the pod's interface {name} does not lead to {place}, so no VLAN is made on it"
        )))
    }

    fn is_port(&self, parent: &Link, bridge: &str) -> bool {
        let master = self.peer_on_host(parent).and_then(|end| end.master);
        master.is_some() && master == self.observed.host.named(bridge).map(|bridge| bridge.index)
    }

    /// All ports of Open vSwitch in the kernel have the same master; in user space they have none.
    fn is_ovs_port(&self, parent: &Link, bridge: &str) -> bool {
        let Some(end) = self.peer_on_host(parent) else { return false };
        match self.master_of(end) {
            Some(Kind::Other(kind)) => kind == "openvswitch",
            Some(_) => false,
            None => end.master.is_none() && !self.observed.host.guard().has_kernel_datapath(bridge),
        }
    }

    fn is_on(&self, parent: &Link, master: &str) -> bool {
        let index = self.observed.host.named(master).map(|master| master.index);
        matches!(parent.kind, Kind::Macvlan { .. }) && self.is_of_host(parent) && parent.parent == index
    }

    /// True when its other end or its lower interface is in the host's namespace.
    fn is_of_host(&self, parent: &Link) -> bool {
        parent.parent_namespace.is_some() && parent.parent_namespace == self.observed.host_number
    }
}
