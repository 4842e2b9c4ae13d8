//! The files of addresses on simulated nodes: agents write what is commanded, and pods take the lowest address that is
//! free there, or wait. The files outlive engines and Node objects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use eno_core::{Event, Key, Kind, Name, NodeBlocks, Object, Pod, StreamEvent, Target, Uses};
use eno_schemas::*;
use ipnet::IpNet;
use serde_json::json;

use super::*;

/// The kinds whose statuses hold leases.
const LEASING: [Kind; 2] = [Kind::Subnet, Kind::BGPSessionGroup];

/// The files of one node, by Subnet.
#[derive(Clone, Debug, Default)]
pub struct NodeFiles {
    /// What the agent wrote.
    pub ranges: BTreeMap<String, NodeAddresses>,
    /// The addresses that pods have, by pod.
    pub used: BTreeMap<String, BTreeMap<String, IpAddr>>,
    /// The pods that wait, each with the address that it asks for.
    pub waiting: BTreeMap<String, BTreeMap<String, Option<IpAddr>>>,
}

impl NodeFiles {
    /// The address that the plugin gives to a pod of the namespace `ns`. `None`: it waits.
    fn choose(&self, subnet: &str, pod: &str, asked: Option<IpAddr>) -> Option<IpAddr> {
        let own = self.ranges.get(subnet)?;
        let used: BTreeSet<IpAddr> =
            self.used.get(subnet).into_iter().flat_map(|all| all.values().copied()).collect();
        let fixed = own
            .fixed
            .iter()
            .find(|fixed| fixed.pod == pod && asked.is_none_or(|asked| asked == fixed.address));
        if let Some(fixed) = fixed {
            return Some(fixed.address).filter(|address| !used.contains(address));
        }
        if asked.is_some() || (own.sticky && has_ordinal(pod)) {
            return None;
        }
        let all = own.blocks.iter().flat_map(hosts_of);
        let mut free = all.filter(|address| !used.contains(address) && !own.excluded.contains(address));
        free.next()
    }

    fn observed(&self, subnet: &str) -> AppliedAddresses {
        let used = self.used.get(subnet).into_iter().flatten();
        let used = used.map(|(pod, address)| PodAddress {
            address: *address,
            namespace: "ns".into(),
            pod: pod.clone(),
        });
        let mut used: Vec<PodAddress> = used.collect();
        used.sort();
        let own = self.ranges.get(subnet);
        let blocks = own.into_iter().flat_map(|own| own.blocks.iter().copied());
        let fixed = own.into_iter().flat_map(|own| own.fixed.iter().map(|fixed| IpNet::from(fixed.address)));
        let held = blocks.chain(fixed).chain(used.iter().map(|one| IpNet::from(one.address)));
        let held = IpNet::aggregate(&held.collect());
        let waiting = self.waiting.get(subnet).into_iter().flatten();
        let waiting = waiting.map(|(pod, address)| WaitingPod {
            namespace: "ns".into(),
            pod: pod.clone(),
            address: *address,
        });
        AppliedAddresses {
            held,
            used,
            waiting: waiting.take(AppliedAddresses::MAX_WAITING).collect(),
            unread: None,
        }
    }
}

/// All addresses of a network.
fn hosts_of(net: &IpNet) -> impl Iterator<Item = IpAddr> + use<> {
    let (first, last) = match (net.network(), net.broadcast()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (u128::from(first.to_bits()), u128::from(last.to_bits())),
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits()),
        _ => unreachable!(),
    };
    let is_v4 = net.addr().is_ipv4();
    (first..=last).map(move |at| {
        if is_v4 {
            IpAddr::from(u32::try_from(at).unwrap().to_be_bytes())
        } else {
            IpAddr::from(at.to_be_bytes())
        }
    })
}

/// A Subnet whose addresses nodes give to pods.
pub fn eno_subnet(name: &str, network: &str) -> Object {
    object(Kind::Subnet, name, json!({ "Ipam": "eno", "Network": network }))
}

/// A pod on a node that uses NetworkAttachmentDefinitions of the namespace `ns`.
pub fn pod_on(name: &str, node: &str, uses: &[&str]) -> Pod {
    Pod { node: Some(node.into()), container: Some("c".into()), ..pod_using(name, uses) }
}

impl World {
    /// Nodes without a fabric that we manage, and an attachment `a` whose pods get addresses of the Subnet `sn`.
    pub fn with_addresses(network: &str, nodes: usize) -> Self {
        let mut world = Self::new(false, true);
        for n in 0..nodes {
            world.apply_node(&format!("node{n}"), true, true);
        }
        world.apply(eno_subnet("sn", network));
        world.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
        world.apply(connection_point("cp", None));
        world.apply(attachment("a", &["s"], "cp"));
        let drivers = live_drivers(world.nodes.keys());
        world.engine.handle(Event::Drivers(drivers));
        world.settle();
        world
    }

    /// The agent writes what is commanded, and pods that wait try again.
    pub(super) fn store_ranges(&mut self, target: &Target, desired: &Desired) {
        let (Target::Node(node), Desired::Node(desired)) = (target, desired) else { return };
        self.assert_workers_are_written(node, desired);
        self.files.entry(node.clone()).or_default().ranges.clone_from(&desired.addresses);
        self.serve_waiting(node);
    }

    fn serve_waiting(&mut self, node: &Name) {
        let waiting = self.files.get(node).map(|files| files.waiting.clone()).unwrap_or_default();
        for (subnet, pods) in waiting {
            for (pod, asked) in pods {
                self.take_address(node, &subnet, &pod, asked);
            }
        }
    }

    /// The plugin gives an address to a pod, or notes that it waits.
    fn take_address(&mut self, node: &Name, subnet: &str, pod: &str, asked: Option<IpAddr>) {
        let now = self.elapsed;
        let files = self.files.entry(node.clone()).or_default();
        let Some(address) = files.choose(subnet, pod, asked) else {
            files.waiting.entry(subnet.to_owned()).or_default().insert(pod.to_owned(), asked);
            self.waiting_since.entry(pod.to_owned()).or_insert(now);
            return;
        };
        files.waiting.entry(subnet.to_owned()).or_default().remove(pod);
        files.used.entry(subnet.to_owned()).or_default().insert(pod.to_owned(), address);
        if let Some(since) = self.waiting_since.remove(pod) {
            self.longest_wait = self.longest_wait.max(now.saturating_sub(since));
        }
        self.assert_addresses_are_unique(subnet);
    }

    /// No two pods have one address of a Subnet.
    fn assert_addresses_are_unique(&self, subnet: &str) {
        let mut holders: BTreeMap<IpAddr, String> = BTreeMap::new();
        for (node, files) in &self.files {
            for (pod, address) in files.used.get(subnet).into_iter().flatten() {
                let holder = format!("{pod} on {node}");
                let before = holders.insert(*address, holder.clone());
                assert_eq!(before, None, "{holder} has {address}, too");
            }
        }
    }

    /// A pod of a node starts: it gets an address, or waits.
    pub fn start_pod(&mut self, node: &str, pod: &str, asked: Option<&str>) {
        let node = Name::from(node);
        self.take_address(&node, "sn", pod, asked.map(|asked| asked.parse().unwrap()));
        self.report_files(&node);
    }

    /// A pod of a node ends, or gives up.
    pub fn stop_pod(&mut self, node: &str, pod: &str) {
        let node = Name::from(node);
        let files = self.files.entry(node.clone()).or_default();
        files.used.values_mut().for_each(|pods| _ = pods.remove(pod));
        files.waiting.values_mut().for_each(|pods| _ = pods.remove(pod));
        self.waiting_since.remove(pod);
        self.serve_waiting(&node);
        self.report_files(&node);
    }

    /// The agent of a node reports what its files have, unless it has no command or another one to execute.
    pub fn report_files(&mut self, node: &Name) {
        let target = Target::Node(node.clone());
        let Some(executed) = self.drivers.executed(&target).cloned() else { return };
        if !self.silent.contains(&target)
            && self.unexecuted(&target).is_none()
            && self.nats.command_of(&target).is_some()
        {
            self.send_report(&target, &executed, Outcome::Applied, Vec::new());
        }
    }

    /// What the agent of a node reports of addresses: of the Subnets of its command, and of those of which pods have some.
    pub(super) fn observed_addresses(
        &self,
        target: &Target,
        applied: &NodeDesired,
    ) -> BTreeMap<String, AppliedAddresses> {
        let Target::Node(node) = target else { return BTreeMap::new() };
        let Some(files) = self.files.get(node) else { return BTreeMap::new() };
        let used = files.used.iter().filter(|(_, pods)| !pods.is_empty()).map(|(subnet, _)| subnet);
        let waiting = files.waiting.iter().filter(|(_, pods)| !pods.is_empty()).map(|(subnet, _)| subnet);
        let subnets: BTreeSet<&String> = applied.addresses.keys().chain(used).chain(waiting).collect();
        subnets.into_iter().map(|subnet| (subnet.clone(), files.observed(subnet))).collect()
    }

    /// The engine learns that the status of an object is written.
    pub(super) fn confirm_status(&mut self, key: Key, leased: u64) {
        if LEASING.contains(&key.kind)
            && let Some(status) = self.statuses.get(&key)
        {
            self.durable.insert(key.clone(), status.clone());
        }
        self.engine.handle(Event::StatusWritten(key, leased));
    }

    /// The statuses that were delayed are written.
    pub fn flush_status_writes(&mut self) {
        for (key, leased) in self.delayed_status_writes.take().into_iter().flatten() {
            self.confirm_status(key, leased);
        }
    }

    /// The engine is killed. The leases that were not written yet are lost.
    pub fn crash(&mut self) {
        self.delayed_status_writes = None;
        for (key, status) in self.statuses.iter_mut().filter(|(key, _)| LEASING.contains(&key.kind)) {
            let durable = self.durable.get(key).cloned().unwrap_or_default();
            (status.node_addresses, status.fixed_addresses) =
                (durable.node_addresses, durable.fixed_addresses);
            status.workers = durable.workers;
        }
        self.restart();
    }

    /// NATS loses the command of a node.
    pub fn lose_command(&mut self, node: &str) {
        self.nats.lose_command(&Target::Node(node.into()), &"node".into());
        self.engine.handle(Event::Stream(StreamEvent::StoredSequences(self.nats.sequences())));
    }

    fn assert_workers_are_written(&self, node: &Name, desired: &NodeDesired) {
        let addresses = |desired: &NodeDesired| -> BTreeSet<IpNet> {
            let interfaces = desired.networks.values().filter_map(|network| match network {
                HostNetwork::Interface { addresses, .. } => Some(addresses.clone()),
                _ => None,
            });
            interfaces.flatten().collect()
        };
        let workers = self.durable.values().flat_map(|status| &status.workers);
        let written =
            workers.filter(|worker| worker.node == *node).flat_map(|worker| worker.addresses.clone());
        let applied = self.applied.get(&Target::Node(node.clone()));
        let has = applied.map(|applied| match applied {
            Desired::Node(applied) => addresses(applied),
            _ => BTreeSet::new(),
        });
        let known: BTreeSet<IpNet> = written.chain(has.into_iter().flatten()).collect();
        let commanded = addresses(desired);
        assert!(commanded.is_subset(&known), "{node}: {commanded:?} is in no written status: {known:?}");
    }

    /// No node is commanded to have addresses that no written status says, unless it has them.
    pub(super) fn assert_commanded_addresses_are_written(&self, target: &Target, desired: &Desired) {
        let (Target::Node(node), Desired::Node(desired)) = (target, desired) else { return };
        for (subnet, own) in &desired.addresses {
            let status = self.durable.get(&Key::cluster(Kind::Subnet, &subnet.as_str().into()));
            let written = status.into_iter().flat_map(|status| &status.node_addresses);
            let written = written.filter(|own| own.node == *node).flat_map(|own| own.blocks.iter().copied());
            let held = self.files.get(node).map(|files| files.observed(subnet).held).unwrap_or_default();
            let known = IpNet::aggregate(&written.chain(held).collect());
            for net in &own.blocks {
                assert!(
                    known.iter().any(|known| known.contains(net)),
                    "{node}: {net} is in no written status: {known:?}"
                );
            }
            for fixed in &own.fixed {
                let mut written = status.into_iter().flat_map(|status| &status.fixed_addresses);
                let is_written = written
                    .any(|one| one.address == fixed.address && one.node == *node && *one.pod == *fixed.pod);
                let has_it = known.iter().any(|known| known.contains(&fixed.address));
                assert!(is_written || has_it, "{node}: {fixed:?} is in no written status");
            }
        }
    }

    /// The blocks of nodes in the status of the Subnet `sn`.
    pub fn blocks(&self) -> Vec<String> {
        let own = |one: &NodeBlocks| {
            format!(
                "{} {}",
                one.node,
                one.blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            )
        };
        self.statuses[&Key::cluster(Kind::Subnet, &"sn".into())].node_addresses.iter().map(own).collect()
    }

    /// The address that a pod has of the Subnet `sn`.
    pub fn address_of(&self, pod: &str) -> Option<String> {
        let used = self.files.values().filter_map(|files| files.used.get("sn")?.get(pod));
        used.map(ToString::to_string).next()
    }

    /// The pods that wait for an address of the Subnet `sn`.
    pub fn waiting(&self) -> BTreeSet<String> {
        self.files
            .values()
            .filter_map(|files| files.waiting.get("sn"))
            .flat_map(|pods| pods.keys().cloned())
            .collect()
    }
}
