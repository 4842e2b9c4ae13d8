//! The conformance suite.

use std::collections::BTreeSet;

use eno_conformance::DriverFixture;
use eno_driver_ovs_fabric::driver::OvsFabricDriver;
use eno_schemas::{Desired, Item, VlanId};

use crate::switch::fixture::{Switch, TARGET};

/// Item `n` is VLAN `100+n` on `p1`, which has a foreign VLAN, or on `p2`, which has none.
struct Bridge(Switch);

impl Bridge {
    fn new() -> Self {
        let switch = Switch::start();
        switch.vsctl_and_wait("add-port br-fabric taken");
        Self(switch)
    }

    fn port(item: usize) -> &'static str {
        if item.is_multiple_of(2) { "p1" } else { "p2" }
    }

    fn vlan(item: usize) -> u16 {
        100 + u16::try_from(item).unwrap()
    }

    /// The VLANs in a port's record.
    fn recorded(&self, port: &str) -> BTreeSet<u16> {
        let text = self.0.vsctl(&format!("--if-exists get Port {port} external_ids:eno-c1-vlans"));
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?)
        };
        text.trim_matches('"').split(',').filter_map(range).flatten().collect()
    }
}

impl DriverFixture for Bridge {
    type Driver = OvsFabricDriver;

    fn item_count(&self) -> usize {
        5
    }

    fn driver(&self) -> OvsFabricDriver {
        self.0.driver()
    }

    fn target(&self) -> String {
        TARGET.into()
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        let on = |port: &str| {
            let vlans = items.iter().filter(|item| Self::port(**item) == port);
            vlans.map(|item| Self::vlan(*item).to_string()).collect::<Vec<_>>().join(",")
        };
        Desired::Fabric(self.0.desired(&[("p1", &on("p1")), ("p2", &on("p2"))]))
    }

    async fn items(&self) -> BTreeSet<usize> {
        let there = |item: &usize| {
            let (port, vlan) = (Self::port(*item), Self::vlan(*item));
            self.0.trunks(port).contains(&vlan) && self.recorded(port).contains(&vlan)
        };
        (0..self.item_count()).filter(there).collect()
    }

    async fn foreign(&self) -> String {
        let ours = |vlan: &u16| (100..100 + self.item_count()).contains(&usize::from(*vlan));
        let list = |port: &str| {
            // CLOSED counts as no VLAN, whoever put it there.
            let foreign = |vlan: &u16| !ours(vlan) && *vlan != 4095;
            self.0.trunks(port).into_iter().filter(foreign).collect::<Vec<_>>()
        };
        let port = |name: &str| {
            let open = self.0.trunks(name).is_empty();
            format!("{:?} {open} {} {}", list(name), self.0.get(name, "tag"), self.0.get(name, "vlan_mode"))
        };
        ["p1", "p2", "p3", "p4", "br-fabric"].map(port).join("\n")
    }

    async fn writes(&self) -> u64 {
        self.0.next_cfg()
    }

    async fn set_reachable(&self, reachable: bool) {
        self.0.set_reachable(reachable);
    }

    /// Refused because another port of the bridge uses the VLAN.
    async fn set_refused(&self, item: Option<usize>) {
        match item {
            Some(item) => self.0.vsctl(&format!("set Port taken tag={}", Self::vlan(item))),
            None => self.0.vsctl("clear Port taken tag"),
        };
    }

    async fn edit(&self, item: usize, present: bool) {
        let (port, vlan) = (Self::port(item), Self::vlan(item));
        let mut recorded = self.recorded(port);
        let operation = if present { "add" } else { "remove" };
        if present {
            recorded.insert(vlan);
        } else {
            recorded.remove(&vlan);
        }
        let recorded = recorded.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        self.0.vsctl(&format!(
            "{operation} Port {port} trunks {vlan} -- set Port {port} external_ids:eno-c1-vlans=\"{recorded}\""
        ));
    }

    fn names(&self, item: usize, found: &Item) -> bool {
        found.vlan.map(VlanId::get) == Some(Self::vlan(item))
    }
}

eno_conformance::conformance_tests!(Bridge::new());
