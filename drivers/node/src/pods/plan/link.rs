//! Plans one link: its interface is made, replaced, renamed, or given its settings.

use eno_schemas::{LinkKind, LinkName, Master, PodLink};
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage};

use super::settings::Target;
use super::{Op, Planner, Setting};
use crate::netlink::{Link, Request};
use crate::pods::check::{self, Refusal};
use crate::pods::kind::{self, Base};
use crate::pods::ownership;

/// One queue for each end of a veth pair. Without this the kernel makes a queue for every CPU, with its files in sysfs,
/// and then removes all but one after an RCU grace period.
const ONE_QUEUE: [LinkAttribute; 2] = [LinkAttribute::NumTxQueues(1), LinkAttribute::NumRxQueues(1)];

impl<'a> Planner<'a> {
    pub(super) fn plan_link(&mut self, at: usize, link: &'a PodLink) {
        let found = self.ours.get(link.id.as_str()).copied();
        let outcome = check::duplicate(&self.desired.pod.links, at)
            .and_then(|()| check::link(link, if found.is_some() { Some(0) } else { self.desired.pid }))
            .and_then(|()| match found {
                Some(found) if self.is_as_desired(link, found)? => {
                    if self.plan_name(link, found)? {
                        self.plan_settings(link, Target::Found(found))?;
                    }
                    Ok(())
                }
                Some(found) => {
                    self.delete_link(Some(&link.id), found);
                    Ok(())
                }
                None => self.plan_creation(link),
            });
        if let Err(refusal) = outcome {
            self.plan.refused.insert(link.id.clone(), refusal);
            for steps in [&mut self.plan.steps, &mut self.new_link_settings] {
                steps.retain(|step| step.link.as_deref() != Some(&link.id));
            }
        }
    }

    /// True when an interface has the desired kind and lower interface. Otherwise it has to be replaced.
    fn is_as_desired(&mut self, link: &'a PodLink, found: &Link) -> Result<bool, Refusal> {
        if !kind::matches(&link.kind, &found.kind) {
            return Ok(false);
        }
        if let LinkKind::Veth { .. } = link.kind {
            return Ok(self.host_end(link, found).is_some());
        }
        let is_lower_there = match kind::base(&link.kind) {
            Base::Nothing => return Ok(true),
            Base::Host(name) => {
                self.observed.host.guard().parent(name)?;
                found.parent_namespace.is_some() && found.parent_namespace == self.observed.host_number
            }
            Base::Pod(_) | Base::Link(_) => found.parent_namespace.is_none(),
        };
        let lower = self.made_on(link).map(|lower| lower.index);
        Ok(is_lower_there && found.parent == lower)
    }

    fn plan_creation(&mut self, link: &'a PodLink) -> Result<(), Refusal> {
        let name = check::pod_name(&link.name, self.desired.pid)?;
        if !self.is_name_free(link, &name)? {
            return Ok(());
        }
        self.check_mtu(link)?;
        if let LinkKind::Tun(device) | LinkKind::Tap(device) = &link.kind {
            // It gets its name and its settings once it is marked.
            let tap = matches!(link.kind, LinkKind::Tap(_));
            let name = ownership::stable_name(self.desired.uid, &link.id);
            self.create(link, Op::Tun { name, tap, owner: device.owner, group: device.group });
            return Ok(());
        }
        // Where the kernel's default MTU is unknown, it is read and recorded before it is changed.
        let mut message =
            kind::new_link_message(&name, link.mtu.filter(|_| self.default_mtu(link).is_some()));
        if let LinkKind::Veth { master } = &link.kind {
            if !self.create_pair(link, &name, message, master.as_ref())? {
                return Ok(());
            }
        } else {
            message.attributes.push(LinkAttribute::LinkInfo(kind::info(&link.kind)));
            let base = kind::base(&link.kind);
            let lower = match base {
                Base::Nothing => None,
                Base::Host(lower) => {
                    let parent = self.observed.host.guard().parent(lower)?;
                    self.check_parent(parent)?;
                    Some(parent)
                }
                Base::Pod(lower) => {
                    let found = self.observed.pod.named(lower);
                    let found = found.filter(|found| !self.deleted.contains(&found.index));
                    let missing = || Refusal::temporary(format!("the pod has no interface {lower}"));
                    let found = found.ok_or_else(missing)?;
                    if let Some(carrier) = &link.parent_leads_to {
                        self.check_leads_to(found, carrier)?;
                    }
                    Some(found.index)
                }
                Base::Link(id) => match self.sibling_index(link, id)? {
                    None => return Ok(()),
                    lower => lower,
                },
            };
            message.attributes.extend(lower.map(LinkAttribute::Link));
            if matches!(base, Base::Host(_)) {
                // One message makes it on the host's interface, in the pod and under its final name.
                message.attributes.push(LinkAttribute::NetNsFd(self.observed.namespace));
                self.create(link, Op::Host(Request::add_link(&name, message)));
            } else {
                self.create(link, Op::Pod(Request::add_link(&name, message)));
            }
        }
        self.plan_settings(link, Target::New(&name))
    }

    /// Plans both ends of a veth pair in one message in the host's namespace: the kernel takes a master only for the
    /// first end. False when the pair has to wait for the deletion of an earlier one.
    fn create_pair(
        &mut self,
        link: &'a PodLink,
        name: &str,
        mut peer: LinkMessage,
        master: Option<&'a Master>,
    ) -> Result<bool, Refusal> {
        let host_name = match &link.name {
            LinkName::Fixed(_) => ownership::stable_name(self.desired.uid, &link.id),
            LinkName::WithPid(_) => format!("h{name}"),
        };
        check::interface_name(&host_name)?;
        if let Some(taken) = self.observed.host.named(&host_name) {
            let alias =
                taken.alias.as_deref().and_then(|alias| ownership::read_alias(self.desired.cluster, alias));
            if alias == Some((self.desired.uid, link.id.as_str())) {
                // The host end of an earlier pair, which this plan deletes.
                self.waiting.insert(link.id.clone());
                return Ok(false);
            }
            return Err(Refusal::temporary(format!("the host has an interface {host_name} already")));
        }
        let end = self.wanted_host_end(link, master)?;
        peer.attributes.push(LinkAttribute::NetNsFd(self.observed.namespace));
        let mut message = kind::new_link_message(&host_name, end.mtu);
        for end in [&mut peer, &mut message] {
            end.attributes.extend(ONE_QUEUE);
        }
        message.attributes.extend(end.bridge.map(LinkAttribute::Controller));
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.create(link, Op::Host(Request::add_link(&host_name, message)));
        self.push_for_new_link(link, Op::Host(end.first_settings(&host_name)));
        Ok(true)
    }

    /// True when the interface has its desired name; otherwise a rename is planned.
    fn plan_name(&mut self, link: &'a PodLink, found: &Link) -> Result<bool, Refusal> {
        let name = match &link.name {
            LinkName::Fixed(name) => name.clone(),
            LinkName::WithPid(base) => {
                let pid = found.name.strip_prefix(base.as_str()).unwrap_or_default();
                if !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Ok(true);
                }
                check::pod_name(&link.name, self.desired.pid)?
            }
        };
        if name == found.name {
            return Ok(true);
        }
        if self.is_name_free(link, &name)? {
            if found.up {
                self.in_pod(link, Setting::Up(false).of(found));
            }
            self.in_pod(
                link,
                Request::set(&found.name, found.index, "name", vec![LinkAttribute::IfName(name)]),
            );
        }
        Ok(false)
    }

    /// True when the name is free. False when its present owner is about to give it up; refused otherwise.
    fn is_name_free(&mut self, link: &PodLink, name: &str) -> Result<bool, Refusal> {
        let Some(taken) = self
            .observed
            .pod
            .links
            .iter()
            .find(|found| found.name == name || found.altnames.iter().any(|altname| altname == name))
        else {
            return Ok(true);
        };
        let passing = self.deleted.contains(&taken.index)
            || self.ours.iter().any(|(id, ours)| ours.index == taken.index && !self.failed.contains_key(*id));
        if passing {
            self.waiting.insert(link.id.clone());
            return Ok(false);
        }
        Err(Refusal::temporary(format!("the pod has an interface {name} already, which is not ours")))
    }

    /// The index of another link's interface; `None` while that is being made.
    pub(super) fn sibling_index(&mut self, link: &PodLink, id: &str) -> Result<Option<u32>, Refusal> {
        let desired = self.desired.pod.links.iter().any(|other| other.id == id);
        if !desired {
            return Err(Refusal::permanent(format!("the pod has no interface {id} of ours")));
        }
        match self.ours.get(id).filter(|found| !self.deleted.contains(&found.index)) {
            Some(found) => Ok(Some(found.index)),
            None if self.failed.contains_key(id) || self.plan.refused.contains_key(id) => {
                Err(Refusal::temporary(format!("the interface {id} of the pod is not there")))
            }
            None => {
                self.waiting.insert(link.id.clone());
                Ok(None)
            }
        }
    }
}
