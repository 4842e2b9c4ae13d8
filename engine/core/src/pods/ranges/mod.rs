//! Addresses that nodes give to their pods. Of a Subnet with [`Ipam::Eno`], each node where pods use it has blocks, in
//! the one list of leases ([`crate::pods::ipam`]). They are written to the Subnet's status before the node is commanded to
//! have them, and stay there until the node has reported that it does not hold them.
//!
//! What a Subnet needs is planned as a whole ([`plan`]), after changes of what it depends on.

mod attached;
mod fixed;
mod leasing;
mod plan;
mod reclaim;
mod render;
mod restore;
mod settle;
mod share;
mod users;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use eno_schemas::{Ipam, VlanType};

use crate::kinds::Spec;
use crate::pods::ipam::PoolKey;
use crate::pods::{Context, Pods};
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Pod};

pub(crate) use leasing::Findings;
use leasing::{Fixed, Leasing};
pub(crate) use plan::source;
use users::Users;

/// Leases of a node that is gone end after this time, if no pod is bound to it.
pub(crate) const GONE_AFTER: Duration = Duration::from_hours(1);
/// Addresses that are taken back from a node count as free soon for this time.
const PATIENCE: Duration = Duration::from_secs(1);
/// A node reports the address of a pod that it started within this time.
const REPORT_DELAY: Duration = Duration::from_secs(5);

/// The blocks of nodes, and what they depend on.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// By Subnet. Also those that have other Ipam now, and those that are gone, while a node has addresses of them.
    subnets: BTreeMap<Name, Leasing>,
    /// By access attachment: its Subnets.
    attachments: HashMap<Key, BTreeSet<Name>>,
    /// The pods.
    users: Users,
    /// Subnets whose leases are to be restored from their status.
    pub(super) restore_queue: BTreeSet<Name>,
    /// Subnets that are to be planned.
    queue: BTreeSet<Name>,
    /// The highest revision of Subnets that are gone: a later one of the name begins after it.
    last_revision: u64,
    /// The reports from before the start are known, so that Subnets may be planned.
    is_started: bool,
}

impl Ranges {
    pub fn is_idle(&self) -> bool {
        self.restore_queue.is_empty() && (self.queue.is_empty() || !self.is_started)
    }

    /// The Subnet that is planned next.
    pub fn pop(&mut self) -> Option<Name> {
        if self.is_started { self.queue.pop_first() } else { None }
    }

    /// A lease of a Subnet was released.
    pub fn touch(&mut self, pool: &PoolKey) {
        if let PoolKey::Subnet(name) = pool
            && self.subnets.contains_key(name)
        {
            self.queue.insert(name.clone());
        }
    }

    /// A running pod, or a node with BGP sessions, gets no address of a Subnet.
    pub fn starve(&mut self, pool: &PoolKey, key: &Key, uid: &Name) {
        if let PoolKey::Subnet(name) = pool
            && let Some(leasing) = self.subnets.get_mut(name)
            && leasing.starved.insert((key.clone(), uid.clone()))
        {
            self.queue.insert(name.clone());
        }
    }

    /// Of what lacks an address of a Subnet for this object, all but `still` do so no more.
    pub fn sate(&mut self, key: &Key, still: impl Fn(&Name) -> bool) {
        for (name, leasing) in &mut self.subnets {
            let before = leasing.starved.len();
            leasing.starved.retain(|(of, holder)| of != key || still(holder));
            if leasing.starved.len() < before {
                self.queue.insert(name.clone());
            }
        }
    }

    /// The status of a Subnet is written with its leases up to a revision.
    pub fn written(&mut self, name: &Name, revision: u64) {
        if let Some(leasing) = self.subnets.get_mut(name).filter(|leasing| leasing.written < revision) {
            leasing.written = revision;
            self.queue.insert(name.clone());
        }
    }

    /// The revision of the leases that the status of a Subnet shows.
    pub fn revision(&self, name: &Name) -> u64 {
        self.subnets.get(name).map_or(0, |leasing| leasing.revision)
    }

    /// The number of addresses that pods have and no node reports.
    pub fn attached(&self, name: &Name) -> usize {
        self.subnets.get(name).map_or(0, |leasing| leasing.attached.len())
    }

    /// The leases of a Subnet, which may be new.
    fn leasing(&mut self, name: &Name) -> &mut Leasing {
        let (revision, written) = (self.last_revision, self.last_revision);
        self.subnets.entry(name.clone()).or_insert_with(|| Leasing {
            revision,
            written,
            ..Leasing::default()
        })
    }

    fn touch_all(&mut self) {
        self.queue.extend(self.subnets.keys().cloned());
    }

    fn touch_attachments(&mut self, keys: &BTreeSet<Key>) {
        let subnets = keys.iter().filter_map(|key| self.attachments.get(key)).flatten();
        self.queue.extend(subnets.cloned());
    }

    /// Updates the Subnets of an attachment.
    fn update_attachment(&mut self, store: &Store, key: &Key) {
        let spec = store.effective(key, Spec::attachment).filter(|spec| spec.vlan_type == VlanType::Access);
        let subnets = spec.map(|spec| store.subnets_of(spec)).unwrap_or_default().into_iter();
        let is_known = |name: &Name, ipam| ipam == Ipam::Eno || self.subnets.contains_key(name);
        let now: BTreeSet<Name> = subnets
            .filter(|(name, subnet)| is_known(name, subnet.ipam))
            .map(|(name, _)| name.clone())
            .collect();
        let before = if now.is_empty() {
            self.attachments.remove(key)
        } else {
            self.attachments.insert(key.clone(), now.clone())
        };
        let before = before.unwrap_or_default();
        for name in before.difference(&now) {
            if let Some(leasing) = self.subnets.get_mut(name) {
                leasing.attachments.remove(key);
            }
        }
        for name in &now {
            self.leasing(name).attachments.insert(key.clone());
        }
        self.queue.extend(before.into_iter().chain(now));
    }
}

impl Pods {
    /// Takes a pod that is new or changed.
    pub(crate) fn set_user(&mut self, pod: &Pod) {
        let concerned = self.ranges.users.set(pod);
        self.ranges.touch_attachments(&concerned);
    }

    /// A pod is finished or gone.
    pub(crate) fn remove_user(&mut self, uid: &Name) {
        let concerned = self.ranges.users.remove(uid);
        self.ranges.touch_attachments(&concerned);
    }

    /// An object was validated, or is gone: the addresses of Subnets may be others.
    pub(crate) fn follow_object(&mut self, store: &Store, key: &Key) {
        match key.kind {
            Kind::L2ServiceAttachment => self.ranges.update_attachment(store, key),
            Kind::Subnet => {
                if store.subnet(&key.name).is_some_and(|subnet| subnet.ipam == Ipam::Eno) {
                    self.ranges.leasing(&key.name);
                }
                self.ranges.touch(&PoolKey::Subnet(key.name.clone()));
            }
            // The next hops and the addresses of gateways are not given to pods.
            Kind::VRFAttachment => self.ranges.touch_all(),
            _ => {}
        }
    }

    /// A node came or went, or its agent did.
    pub(crate) fn follow_nodes(&mut self) {
        self.ranges.touch_all();
    }

    /// A node reported.
    pub(super) fn follow_report(&mut self, node: &Name, changed: &BTreeSet<Name>) {
        let concerned = self
            .ranges
            .subnets
            .iter()
            .filter(|(name, leasing)| changed.contains(*name) || leasing.awaited.contains(node));
        let concerned: Vec<Name> = concerned.map(|(name, _)| name.clone()).collect();
        self.ranges.queue.extend(concerned);
    }

    /// The reports from before the start are known.
    pub(crate) fn start_ranges(&mut self) {
        self.ranges.is_started = true;
        self.ranges.touch_all();
    }

    /// Queues the Subnets whose time has come.
    pub(crate) fn wake_ranges(&mut self, now: Duration) {
        for (name, leasing) in &mut self.ranges.subnets {
            if leasing.wake.take_if(|wake| *wake <= now).is_some() {
                self.ranges.queue.insert(name.clone());
            }
        }
    }

    /// When [`Self::wake_ranges`] has something to do.
    pub(crate) fn next_wake(&self) -> Option<Duration> {
        self.ranges.subnets.values().filter_map(|leasing| leasing.wake).min()
    }

    /// Plans the leases of a Subnet.
    pub(super) fn plan_ranges(&mut self, cx: &mut Context<'_>, name: &Name) {
        let Some(mut leasing) = self.ranges.subnets.remove(name) else { return };
        let before = (leasing.revision, leasing.findings.clone());
        let mut plan = plan::Plan::new(cx, &self.ranges.users, &mut self.ipam, &mut leasing, name);
        let planned = plan.run();
        self.finish_plan(cx, name, leasing, planned, &before);
    }

    fn finish_plan(
        &mut self,
        cx: &mut Context<'_>,
        name: &Name,
        mut leasing: Leasing,
        planned: plan::Planned,
        before: &(u64, Findings),
    ) {
        render::command(cx.nodes, name, &mut leasing, planned.commands);
        if planned.feeds {
            leasing.starved.clear();
            self.unblock();
            self.ranges.queue.insert(name.clone());
        }
        let has_changed = leasing.revision != before.0;
        if has_changed || leasing.findings != before.1 {
            cx.work.evaluate.insert(Key::cluster(Kind::Subnet, name));
        }
        if has_changed && !planned.is_eno {
            // The plugin that hands out the others leaves these out.
            revalidate_users(cx.store, name, cx.work);
        }
        if planned.is_left || cx.store.contains(&Key::cluster(Kind::Subnet, name)) {
            self.ranges.subnets.insert(name.clone(), leasing);
        } else {
            self.ranges.last_revision = self.ranges.last_revision.max(leasing.revision);
        }
    }

    /// What the status of a Subnet tells of its addresses.
    pub(crate) fn findings(&self, name: &Name) -> Option<&Findings> {
        self.ranges.subnets.get(name).map(|leasing| &leasing.findings)
    }
}

fn revalidate_users(store: &Store, name: &Name, work: &mut Work) {
    for service in store.referrers(&Key::cluster(Kind::Subnet, name)) {
        store.revalidate_referrers(service, work);
    }
}
