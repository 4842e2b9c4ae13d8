//! The interface that the cluster's own network gave the pod.
//!
//! What it was before is written on the interface itself, as an alternative name, before it is changed: neither a
//! restart nor the loss of any file loses it.

use eno_schemas::AppliedLink;
use rtnetlink::packet_route::link::LinkAttribute;

use super::{Op, Planner};
use crate::netlink::{Link, Request};
use crate::pods::check::Refusal;
use crate::pods::mark::{self, Mark};

impl Planner<'_> {
    pub(super) fn primary(&mut self) {
        let seen = self.seen;
        let wanted = self.wanted.pod.primary.as_ref();
        let changed = |link: &Link| match mark::read(self.wanted.cluster, link) {
            Some((uid, Mark::Primary(mtu))) if uid == self.wanted.uid => Some(mtu),
            _ => None,
        };
        let restore: Vec<(&Link, u32)> = seen
            .pod
            .links
            .iter()
            .filter(|link| wanted.is_none_or(|wanted| wanted.name != link.name))
            .filter_map(|link| Some((link, changed(link)?)))
            .collect();
        let before = wanted.and_then(|wanted| seen.pod.named(&wanted.name)).map(|link| (link, changed(link)));
        for (link, mtu) in restore {
            if link.mtu == mtu {
                let name = mark::primary_altname(self.wanted.cluster, self.wanted.uid, mtu);
                self.push(None, Op::Pod(Request::delete_altname(&link.name, link.index, &name)));
            } else {
                self.push(None, Op::Pod(set_mtu(link, mtu)));
            }
        }
        let Some(wanted) = wanted.filter(|wanted| !self.failed.contains_key(&wanted.id)) else { return };
        let Some((link, before)) = before else {
            let refusal = Refusal::for_now(format!("the pod has no interface {}", wanted.name));
            self.plan.refused.insert(wanted.id.clone(), refusal);
            return;
        };
        let id = Some(wanted.id.as_str());
        if before.is_none() {
            let name = mark::primary_altname(self.wanted.cluster, self.wanted.uid, link.mtu);
            self.push(id, Op::Pod(Request::add_altname(&link.name, link.index, &name)));
        } else if link.mtu != wanted.mtu {
            self.push(id, Op::Pod(set_mtu(link, wanted.mtu)));
        }
        let applied = AppliedLink {
            revision: wanted.revision.clone(),
            name: link.name.clone(),
            host_name: None,
            mac: link.mac.map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":")),
            mtu: link.mtu,
            path: self.path_of_pair(wanted.mtu, link),
            addresses: Vec::new(),
        };
        self.plan.applied.insert(wanted.id.clone(), applied);
    }
}

fn set_mtu(link: &Link, mtu: u32) -> Request {
    Request::set(&link.name, link.index, "MTU", vec![LinkAttribute::Mtu(mtu)])
}
