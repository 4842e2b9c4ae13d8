//! The driver conformance suite on a simulated switch.

use std::collections::{BTreeMap, BTreeSet};

use eno_conformance::DriverFixture;
use eno_driver_netconf::driver::NetconfDriver;
use eno_schemas::{Desired, Item, VlanId, vlan_name};
use eno_simulator::{ConfirmedCommit, Fault, HandEdit, RejectEdit};

use crate::common::{Bench, CLUSTER, defined, options, removed, trunk, vid};

const SWITCH: &str = "leaf1";

/// Item `n` is VLAN `100+n`. Even items are on Ethernet1, which has foreign VLANs, odd ones on Ethernet2, which has
/// none.
struct Switch(Bench);

impl Switch {
    async fn new() -> Self {
        Self::with(ConfirmedCommit::V1_1).await
    }

    async fn with(confirmed_commit: ConfirmedCommit) -> Self {
        let bench =
            Bench::with_capabilities(|capabilities| capabilities.confirmed_commit = confirmed_commit).await;
        bench.edit(SWITCH, &defined(&[(10, "users"), (11, "voice")]));
        for port in ["Ethernet1", "Ethernet7"] {
            bench.edit(SWITCH, &HandEdit { native: Some(1), ..trunk(port, "10-11") });
        }
        Self(bench)
    }

    fn port(item: usize) -> &'static str {
        if item.is_multiple_of(2) { "Ethernet1" } else { "Ethernet2" }
    }

    fn vid(item: usize) -> VlanId {
        vid(100 + u16::try_from(item).expect("few items"))
    }

    fn name(id: u16) -> String {
        vlan_name(CLUSTER, vid(id))
    }
}

impl DriverFixture for Switch {
    type Driver = NetconfDriver;

    fn item_count(&self) -> usize {
        5
    }

    fn driver(&self) -> NetconfDriver {
        NetconfDriver::new(options(self.0.credentials.path()))
    }

    fn target(&self) -> String {
        SWITCH.into()
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        let mut desired = self.0.desired_ports(SWITCH, "", &[("Ethernet1", ""), ("Ethernet2", "")]);
        for item in items {
            let vid = Self::vid(*item);
            desired.vlans.extend([eno_schemas::FabricVlan::new(vid, vec![format!("L2Service/s{vid}")])]);
            let port = desired.ports.iter_mut().find(|port| port.name == Self::port(*item)).expect("a port");
            port.vlans.insert(vid);
        }
        Desired::Fabric(desired)
    }

    async fn items(&self) -> BTreeSet<usize> {
        let view = self.0.switch(SWITCH).view();
        let current = |item: &usize| {
            let id = Self::vid(*item).get();
            let named = view.vlans.get(&id).is_some_and(|vlan| vlan.name.as_deref() == Some(&Self::name(id)));
            named && view.ports[Self::port(*item)].vlans.contains(id)
        };
        (0..self.item_count()).filter(current).collect()
    }

    async fn foreign(&self) -> String {
        let view = self.0.switch(SWITCH).view();
        let ours = |id: &u16| (100..100 + self.item_count()).contains(&usize::from(*id));
        let vlans: Vec<_> =
            view.vlans.iter().filter(|(id, _)| !ours(id)).map(|(id, v)| (*id, v.name.clone())).collect();
        let ports: BTreeMap<_, _> = view
            .ports
            .iter()
            .map(|(name, port)| {
                let configured: Vec<u16> = port.configured.iter().filter(|id| !ours(id)).collect();
                (name, (configured, port.native, port.access, port.open_trunk, port.lag.clone()))
            })
            .collect();
        format!("{vlans:?} {ports:?}")
    }

    async fn writes(&self) -> u64 {
        let stats = self.0.switch(SWITCH).stats();
        stats.transactions + stats.rpcs.get("edit-config").copied().unwrap_or_default()
    }

    async fn set_reachable(&self, reachable: bool) {
        self.0.switch(SWITCH).inject(if reachable { Fault::Clear {} } else { Fault::Unreachable {} });
    }

    async fn set_refused(&self, item: Option<usize>) {
        let fault = match item {
            Some(item) => {
                let vlan = Some(Self::vid(item).get());
                Fault::RejectEdit(RejectEdit { vlan, ..RejectEdit::default() })
            }
            None => Fault::Clear {},
        };
        self.0.switch(SWITCH).inject(fault);
    }

    async fn edit(&self, item: usize, present: bool) {
        let (id, port) = (Self::vid(item).get(), Self::port(item));
        let vlans = id.to_string();
        let edits = if present {
            [defined(&[(id, &Self::name(id))]), trunk(port, &vlans)]
        } else {
            [removed(Some(port), &vlans), removed(None, &vlans)]
        };
        for edit in &edits {
            self.0.edit(SWITCH, edit);
        }
    }

    fn names(&self, item: usize, found: &Item) -> bool {
        found.vlan == Some(Self::vid(item))
    }
}

eno_conformance::conformance_tests!(Switch::new().await);

/// Held changes with confirmed commit 1.0, which ends with its session.
mod held_in_a_session {
    use super::*;

    eno_conformance::conformance_tests! { @holding Switch::with(ConfirmedCommit::V1_0).await;
        confirmed_hold_keeps_the_change, unconfirmed_hold_is_rolled_back, new_process_follows_recorded_decision,
        killed_hold_is_settled_by_the_next_process
    }
}
