//! How many addresses a Subnet with Ipam eno has left.

use crate::Name;
use crate::node::Nodes;
use crate::pods::Pods;
use crate::pods::ipam::PoolKey;
use crate::pods::ipam::blocks::size;
use crate::pods::ranges::source;
use crate::store::Store;

/// The addresses of a Subnet with Ipam eno, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Those that pods may have.
    pub size: u128,
    /// Those of them that nodes hold.
    pub leased: u128,
    /// Those that pods have.
    pub used: u128,
    /// The pods that wait for one.
    pub waiting: usize,
}

impl Usage {
    /// Those that no pod has.
    pub fn free(&self) -> u128 {
        self.size.saturating_sub(self.used)
    }
}

impl Pods {
    /// The addresses of a Subnet with Ipam eno, counted. `None`: it is no such Subnet.
    pub fn usage(&self, store: &Store, nodes: &Nodes, subnet: &Name) -> Option<Usage> {
        let spec = store.subnet(subnet).filter(|spec| spec.ipam == eno_schemas::Ipam::Eno)?;
        let mut usage = Usage { size: source(store, subnet, spec).size(), ..Usage::default() };
        for (_, own) in nodes.observed_addresses(subnet) {
            usage.leased = own.held.iter().map(size).fold(usage.leased, u128::saturating_add);
            usage.used += own.used.len() as u128;
            usage.waiting += own.waiting.len();
        }
        let running = self.ipam.count(&PoolKey::Subnet(subnet.clone())) + self.ranges.attached(subnet);
        let running = running as u128;
        usage.leased = usage.leased.saturating_add(running);
        usage.used += running;
        Some(usage)
    }
}
