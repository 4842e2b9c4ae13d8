//! The primary interface: the one that the cluster's own network gave the pod.
//!
//! Its original MTU is recorded in an alternative name of the interface before the MTU is changed. So it survives
//! restarts of the agent and the loss of files.

use eno_schemas::AppliedLink;

use super::settings::format_mac;
use super::{Op, Planner, Setting};
use crate::netlink::{Link, Request};
use crate::pods::check::Refusal;
use crate::pods::ownership::{self, OwnershipMark};

impl Planner<'_> {
    pub(super) fn primary(&mut self) {
        let observed = self.observed;
        let desired = self.desired.pod.primary.as_ref();
        let changed = |link: &Link| match ownership::read(self.desired.cluster, link) {
            Some((uid, OwnershipMark::Primary(mtu))) if uid == self.desired.uid => Some(mtu),
            _ => None,
        };
        let restore: Vec<(&Link, u32)> = observed
            .pod
            .links
            .iter()
            .filter(|link| desired.is_none_or(|desired| desired.name != link.name))
            .filter_map(|link| Some((link, changed(link)?)))
            .collect();
        let before =
            desired.and_then(|desired| observed.pod.named(&desired.name)).map(|link| (link, changed(link)));
        for (link, mtu) in restore {
            if link.mtu == mtu {
                let name = ownership::primary_altname(self.desired.cluster, self.desired.uid, mtu);
                self.push(None, Op::Pod(Request::delete_altname(&link.name, link.index, &name)));
            } else {
                self.push(None, Op::Pod(Setting::Mtu(mtu).of(link)));
            }
        }
        let Some(desired) = desired.filter(|desired| !self.failed.contains_key(&desired.id)) else { return };
        let Some((link, before)) = before else {
            let refusal = Refusal::temporary(format!("the pod has no interface {}", desired.name));
            self.plan.refused.insert(desired.id.clone(), refusal);
            return;
        };
        let id = Some(desired.id.as_str());
        if before.is_none() {
            let name = ownership::primary_altname(self.desired.cluster, self.desired.uid, link.mtu);
            self.push(id, Op::Pod(Setting::Altname(name).of(link)));
        } else if link.mtu != desired.mtu {
            self.push(id, Op::Pod(Setting::Mtu(desired.mtu).of(link)));
        }
        let applied = AppliedLink {
            revision: desired.revision.clone(),
            name: link.name.clone(),
            host_name: None,
            mac: link.mac.map(format_mac),
            mtu: link.mtu,
            path: self.path_of_pair(desired.mtu, link),
            addresses: Vec::new(),
        };
        self.plan.applied.insert(desired.id.clone(), applied);
    }
}
