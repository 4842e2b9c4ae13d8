//! The demands of objects on the networks of connection points, and what objects gave up there.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{VlanId, VlanSet, VlanType};
use serde::Serialize;

use crate::kinds::{Plugin, Spec, compat};
use crate::node::Nodes;
use crate::node::shape;
use crate::store::Store;
use crate::work::Work;
use crate::{Config, Key, Kind, Name};

/// The demand of an attachment or bridge domain on a network of a connection point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// The connection point.
    pub point: Name,
    /// The network's name on the host.
    pub network: String,
    /// The VLANs. Empty for an attachment that uses the network without naming VLANs.
    pub vids: BTreeSet<VlanId>,
    /// Bytes.
    pub mtu: Option<u32>,
}

/// The sum of all demands on one network of one connection point.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// The number of demands.
    users: u32,
    /// By VLAN: the number of demands, and the version since when there is one.
    pub(super) vids: BTreeMap<VlanId, (u32, u64)>,
    /// The keys of `vids`.
    pub(super) set: VlanSet,
    /// By MTU in bytes: the number of demands. The highest one counts.
    mtus: BTreeMap<u32, u32>,
    /// The version of the last change of the MTU.
    mtu_since: u64,
}

impl Usage {
    /// The MTU that is wanted.
    pub(super) fn mtu(&self) -> Option<u32> {
        self.mtus.last_key_value().map(|(mtu, _)| *mtu)
    }

    /// Counts a demand in or out. Returns true when the sum changes.
    fn count(&mut self, demand: &Demand, more: bool, version: u64) -> bool {
        let mut changed = false;
        self.users = if more { self.users + 1 } else { self.users.saturating_sub(1) };
        changed |= self.users == u32::from(more);
        for vid in &demand.vids {
            let (count, since) = self.vids.entry(*vid).or_default();
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
            match (*count, more) {
                (0, _) => {
                    self.vids.remove(vid);
                    changed |= self.set.remove(*vid);
                }
                (1, true) => {
                    *since = version;
                    changed |= self.set.insert(*vid);
                }
                _ => {}
            }
        }
        let before = self.mtu();
        if let Some(mtu) = demand.mtu {
            let count = self.mtus.entry(mtu).or_default();
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.mtus.remove(&mtu);
            }
        }
        if before != self.mtu() {
            (changed, self.mtu_since) = (true, version);
        }
        changed
    }
}

/// Networks and VLANs that an object gave up on nodes and that may still be there.
#[derive(Debug)]
pub(crate) struct HostCleanup {
    /// The version of the nodes since when it is given up.
    pub(super) version: u64,
    /// The nodes.
    pub(super) nodes: BTreeSet<Name>,
    /// The networks with the VLANs on them; without VLANs, the network itself.
    pub(super) networks: Vec<(String, BTreeSet<VlanId>)>,
}

/// One object on hosts.
#[derive(Debug, Default)]
pub(super) struct HostUse {
    /// Its demands, as they are counted.
    pub demands: Vec<Demand>,
    /// What it gave up.
    pub cleanups: Vec<HostCleanup>,
}

/// A change of the host networks of a connection point.
#[derive(Debug, Default)]
pub(crate) struct PointChange {
    /// The names of networks and NICs that it got or lost.
    pub names: BTreeSet<String>,
    /// Its nodes or networks changed.
    pub changed: bool,
}

impl Nodes {
    /// Updates what an object wants on hosts, after it was validated.
    pub(crate) fn plan(&mut self, config: &Config, store: &Store, key: &Key, work: &mut Work) -> PointChange {
        match key.kind {
            _ if !config.nodes => {}
            Kind::ConnectionPoint => return self.plan_point(store, key, work),
            kind if kind.facts().needs_networks => self.plan_demands(store, key),
            _ => {}
        }
        PointChange::default()
    }

    /// Withdraws everything that a deleted object wanted on hosts.
    pub(crate) fn remove_object(
        &mut self,
        config: &Config,
        store: &Store,
        key: &Key,
        work: &mut Work,
    ) -> PointChange {
        let change = self.plan(config, store, key, work);
        self.objects.remove(key);
        self.want_probes(key, None, work);
        self.set_verifying(key, false);
        change
    }

    fn plan_demands(&mut self, store: &Store, key: &Key) {
        let Some(demands) = demands_of(store, key) else { return };
        let counted = self.objects.get(key).map_or(&[][..], |object| &object.demands);
        if demands == counted {
            return;
        }
        let object = self.objects.entry(key.clone()).or_default();
        let before = std::mem::replace(&mut object.demands, demands.clone());
        self.count_demands(&before, &demands);
    }

    fn plan_point(&mut self, store: &Store, key: &Key, work: &mut Work) -> PointChange {
        let record = store.get(key).filter(|record| record.finalized);
        let spec = record.and_then(|record| Some((record, record.effective.as_deref()?.connection_point()?)));
        let verify = spec.map(|(_, spec)| spec.verify);
        let placement = match spec {
            None => None,
            // With invalid names the networks stay as they are.
            Some((record, spec)) => match shape::shapes(spec) {
                Ok(shapes) => Some((record.seniority(), store.members(spec), shapes)),
                Err(_) => return PointChange::default(),
            },
        };
        let (names, version) = (self.names_of(&key.name), self.version);
        let former = self.nodes_of(&key.name);
        let rivals = self.set_point(&key.name, placement);
        if let Some(verify) = verify {
            self.set_verify(&key.name, verify, work);
        }
        for node in former.union(&self.nodes_of(&key.name)) {
            self.recount(node, work);
        }
        if former != self.nodes_of(&key.name) {
            self.touch_lookups_of(&key.name, work);
            work.lookup.extend(former.iter().cloned());
        }
        work.validate.extend(rivals.iter().map(|rival| Key::cluster(Kind::ConnectionPoint, rival)));
        let names = names.symmetric_difference(&self.names_of(&key.name)).cloned().collect();
        PointChange { names, changed: version != self.version }
    }

    /// Replaces the demands of an object in the sums.
    fn count_demands(&mut self, before: &[Demand], after: &[Demand]) {
        let version = self.version + 1;
        for (demands, more) in [(after, true), (before, false)] {
            for demand in demands {
                let usages = self.usage.entry(demand.point.clone()).or_default();
                let usage = usages.entry(demand.network.clone()).or_default();
                let changed = usage.count(demand, more, version);
                if usage.users == 0 {
                    usages.remove(&demand.network);
                }
                if usages.is_empty() {
                    self.usage.remove(&demand.point);
                }
                if changed {
                    self.version = version;
                    self.touch_point(&demand.point);
                }
            }
        }
    }

    /// The leftovers that an object may have on nodes. To be called while its spec is still realised.
    pub(crate) fn footprint(&self, config: &Config, store: &Store, key: &Key) -> Option<HostCleanup> {
        if !config.nodes {
            return None;
        }
        let spec = store.get(key)?.effective.as_deref()?;
        let mut cleanup = HostCleanup { version: 0, nodes: BTreeSet::new(), networks: Vec::new() };
        if let Some(spec) = spec.connection_point() {
            cleanup.nodes = self.nodes_of(&key.name).union(&*store.members(spec)).cloned().collect();
            let shapes = shape::shapes(spec).unwrap_or_default();
            cleanup.networks = shapes.into_keys().map(|name| (name, BTreeSet::new())).collect();
        } else {
            for demand in demands_of(store, key).unwrap_or_default() {
                cleanup.nodes.extend(self.nodes_of(&demand.point).iter().cloned());
                cleanup.networks.push((demand.network, demand.vids));
            }
        }
        (!cleanup.nodes.is_empty()).then_some(cleanup)
    }

    /// Records what an object gave up.
    pub(crate) fn record_cleanup(&mut self, key: &Key, cleanup: Option<HostCleanup>) {
        let Some(cleanup) = cleanup else { return };
        let object = self.objects.entry(key.clone()).or_default();
        object.cleanups.push(HostCleanup { version: self.version, ..cleanup });
    }
}

/// The demands of an attachment or bridge domain. `None`: as before, since a referenced object was removed by
/// force.
fn demands_of(store: &Store, key: &Key) -> Option<Vec<Demand>> {
    let record = store.get(key).filter(|record| record.finalized && !record.generated);
    match record.and_then(|record| record.effective.as_deref()) {
        Some(Spec::Attachment(spec)) => {
            let point = store.connection_point(&spec.connection_point)?;
            let chosen = compat::choose(spec, point).ok()?;
            let mut vids = BTreeSet::new();
            for name in &spec.services {
                vids.insert(store.service(name)?.vid);
            }
            let network = match &chosen.plugin {
                Plugin::Ovs { bridge_name, .. } | Plugin::Bridge { bridge_name } => bridge_name,
                Plugin::Macvlan { master } | Plugin::Ipvlan { master } => {
                    if spec.vlan_type != VlanType::Access {
                        vids.clear();
                    }
                    master
                }
                Plugin::Vlan { master } => {
                    vids.clear();
                    master
                }
                Plugin::HostDevice { .. } | Plugin::Sriov { .. } | Plugin::Userspace { .. } => {
                    return Some(Vec::new());
                }
            };
            let (point, network) = (spec.connection_point.clone(), network.clone());
            Some(vec![Demand { point, network, vids, mtu: spec.mtu(chosen) }])
        }
        Some(Spec::BgpSessionGroup(spec)) => {
            let point = store.connection_point(&spec.connection_point)?;
            let (network, mtu) = compat::host_network(point)?;
            let vids = BTreeSet::from([store.service(&spec.service)?.vid]);
            Some(vec![Demand { point: spec.connection_point.clone(), network: network.clone(), vids, mtu }])
        }
        Some(Spec::BridgeDomain(spec)) => {
            let mut demands = Vec::new();
            for point in &spec.connection_points {
                for cni in &store.connection_point(point)?.cnis {
                    let (Plugin::Ovs { bridge_name, .. } | Plugin::Bridge { bridge_name }) = &cni.plugin
                    else {
                        continue;
                    };
                    let (point, network) = (point.clone(), bridge_name.clone());
                    demands.push(Demand { point, network, vids: BTreeSet::from([spec.vlan]), mtu: None });
                }
            }
            Some(demands)
        }
        _ => Some(Vec::new()),
    }
}
