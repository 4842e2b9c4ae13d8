//! What was asked for, and what has to become of each object once all is quiet. Pure.
//!
//! An object that can't be realised keeps what was last realised of it. What that was is known for sure only of what
//! was there when all was last quiet: [`super::action_generator`] asks for nothing that could end in two ways.

use std::collections::{BTreeMap, BTreeSet};

use eno_nbi_crds::{Phase, VlanType};

/// An L2Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) vid: u16,
    /// It is led out to the network outside.
    pub(super) out: bool,
}

/// An L2ServiceAttachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) services: BTreeSet<usize>,
    pub(super) point: usize,
    pub(super) vlans: VlanType,
    /// It wants an interface that no ConnectionPoint offers.
    pub(super) dpdk: bool,
}

/// A custom resource that changes.
#[derive(Debug, Clone)]
pub(super) struct Object<T> {
    /// Its spec.
    pub(super) wanted: T,
    /// What was realised of it when all was last quiet.
    pub(super) realised: Option<T>,
    /// It was made or changed since then.
    pub(super) changed: bool,
    /// Its deletion was asked for.
    pub(super) deleting: bool,
}

impl<T> Object<T> {
    pub(super) fn new(wanted: T) -> Self {
        Self { wanted, realised: None, changed: true, deleting: false }
    }
}

/// A NodePool and the ConnectionPoint on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Point {
    /// Which bridge the pods hang on.
    pub(super) bridge: usize,
    /// The nodes of the pool.
    pub(super) members: BTreeSet<usize>,
}

/// All that was asked for. Objects are known by the number in their name.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    pub(super) services: BTreeMap<usize, Object<Service>>,
    pub(super) attachments: BTreeMap<usize, Object<Attachment>>,
    pub(super) points: Vec<Point>,
    /// VLANs that services were moved away from since all was last quiet.
    pub(super) left: BTreeSet<u16>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    CreateService(usize, Service),
    ChangeService(usize, Service),
    DeleteService(usize),
    CreateAttachment(usize, Attachment),
    ChangeAttachment(usize, Attachment),
    DeleteAttachment(usize),
    /// A node is put into the pool of a point, or taken out.
    Member {
        point: usize,
        node: usize,
        joins: bool,
    },
    /// Pods of a point hang on another bridge.
    Bridge(usize, usize),
}

impl Action {
    /// As the report counts it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::CreateService(..) => "create L2Service",
            Self::ChangeService(..) => "change L2Service",
            Self::DeleteService(_) => "delete L2Service",
            Self::CreateAttachment(..) => "create L2ServiceAttachment",
            Self::ChangeAttachment(..) => "change L2ServiceAttachment",
            Self::DeleteAttachment(_) => "delete L2ServiceAttachment",
            Self::Member { joins: true, .. } => "node joins a pool",
            Self::Member { joins: false, .. } => "node leaves a pool",
            Self::Bridge(..) => "change ConnectionPoint",
        }
    }
}

/// What has to become of an object that stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End<T> {
    pub(super) phase: Phase,
    /// What its message has to say; `None`: it has none.
    pub(super) words: Option<String>,
    /// What is realised of it.
    pub(super) realised: Option<T>,
}

/// What has to become of all that stays; what is not here is gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Ends {
    pub(super) services: BTreeMap<usize, End<Service>>,
    pub(super) attachments: BTreeMap<usize, End<Attachment>>,
}

pub(super) fn service_name(service: usize) -> String {
    format!("soak-s{service}")
}

impl World {
    /// Takes in what was asked for.
    pub(super) fn take(&mut self, action: &Action) {
        match action.clone() {
            Action::CreateService(name, wanted) => {
                self.services.insert(name, Object::new(wanted));
            }
            Action::ChangeService(name, wanted) => {
                let Some(service) = self.services.get_mut(&name) else { return };
                if wanted.vid != service.wanted.vid {
                    self.left.insert(service.wanted.vid);
                }
                (service.wanted, service.changed) = (wanted, true);
            }
            Action::DeleteService(name) => {
                self.services.get_mut(&name).into_iter().for_each(|service| service.deleting = true);
            }
            Action::CreateAttachment(name, wanted) => {
                self.attachments.insert(name, Object::new(wanted));
            }
            Action::ChangeAttachment(name, wanted) => {
                let Some(attachment) = self.attachments.get_mut(&name) else { return };
                (attachment.wanted, attachment.changed) = (wanted, true);
            }
            Action::DeleteAttachment(name) => {
                self.attachments.get_mut(&name).into_iter().for_each(|one| one.deleting = true);
            }
            Action::Member { point, node, joins } => {
                let Some(point) = self.points.get_mut(point) else { return };
                if joins {
                    point.members.insert(node)
                } else {
                    point.members.remove(&node)
                };
            }
            Action::Bridge(point, bridge) => {
                self.points.get_mut(point).into_iter().for_each(|point| point.bridge = bridge);
            }
        }
    }

    /// All is quiet: what has to become of everything has become of it.
    pub(super) fn settle(&mut self) {
        let ends = self.ends();
        self.left.clear();
        self.services.retain(|name, service| {
            let Some(end) = ends.services.get(name) else { return false };
            (service.realised, service.changed) = (end.realised.clone(), false);
            true
        });
        self.attachments.retain(|name, attachment| {
            let Some(end) = ends.attachments.get(name) else { return false };
            (attachment.realised, attachment.changed) = (end.realised.clone(), false);
            true
        });
    }

    /// What has to become of everything.
    pub(super) fn ends(&self) -> Ends {
        let mut ends = Ends::default();
        for (name, attachment) in self.attachments.iter().filter(|(_, attachment)| !attachment.deleting) {
            let problem = self.problem_of(attachment);
            let realised =
                if problem.is_none() { Some(attachment.wanted.clone()) } else { attachment.realised.clone() };
            let phase = if problem.is_none() { Phase::Ready } else { Phase::Error };
            ends.attachments.insert(*name, End { phase, words: problem, realised });
        }
        let used = self.used(&ends);
        let held = self.held(&used);
        for (name, service) in &self.services {
            let end = if service.deleting {
                if !used.contains(name) {
                    continue;
                }
                End {
                    phase: Phase::Terminating,
                    words: Some("in use by L2ServiceAttachment".to_owned()),
                    realised: service.realised.clone(),
                }
            } else if held.get(&service.wanted.vid) == Some(name) {
                End { phase: Phase::Ready, words: None, realised: Some(service.wanted.clone()) }
            } else {
                let holder = held.get(&service.wanted.vid).map(|holder| service_name(*holder));
                let words =
                    format!("{} is held by L2Service {}", service.wanted.vid, holder.unwrap_or_default());
                End { phase: Phase::Error, words: Some(words), realised: service.realised.clone() }
            };
            ends.services.insert(*name, end);
        }
        ends
    }

    /// Why an attachment can't be realised. The services that it names have their VLANs: who contends for one has no
    /// users.
    fn problem_of(&self, attachment: &Object<Attachment>) -> Option<String> {
        if attachment.wanted.dpdk {
            return Some("PodInterfaceType dpdk".to_owned());
        }
        let known =
            |name: &usize| attachment.realised.as_ref().is_some_and(|was| was.services.contains(name));
        attachment.wanted.services.iter().find_map(|name| match self.services.get(name) {
            None => Some(format!("L2Service {} does not exist", service_name(*name))),
            Some(service) if service.deleting && !known(name) => {
                Some(format!("L2Service {} is being deleted", service_name(*name)))
            }
            Some(_) => None,
        })
    }

    /// The services that attachments name or have.
    fn used(&self, ends: &Ends) -> BTreeSet<usize> {
        let wanted = ends.attachments.keys().filter_map(|name| self.attachments.get(name));
        let wanted = wanted.flat_map(|attachment| &attachment.wanted.services);
        let realised = ends.attachments.values().flat_map(|end| &end.realised);
        wanted.chain(realised.flat_map(|realised| &realised.services)).copied().collect()
    }

    /// Who has which VLAN in the end: who has one keeps it while it wants it, or can't get another one.
    fn held(&self, used: &BTreeSet<usize>) -> BTreeMap<u16, usize> {
        let mut held = BTreeMap::new();
        let mut open: Vec<(usize, u16, Option<u16>)> = Vec::new();
        for (name, service) in &self.services {
            let (wanted, had) = (service.wanted.vid, service.realised.as_ref().map(|realised| realised.vid));
            if service.deleting {
                held.extend(had.filter(|_| used.contains(name)).map(|had| (had, *name)));
            } else if had == Some(wanted) {
                held.insert(wanted, *name);
            } else {
                open.push((*name, wanted, had));
            }
        }
        loop {
            let stays = |vid: u16| open.iter().any(|(.., had)| *had == Some(vid));
            let gets = open.iter().position(|(_, vid, _)| !held.contains_key(vid) && !stays(*vid));
            // Another one has it for good.
            let keeps = || open.iter().position(|(_, vid, _)| held.contains_key(vid));
            match (gets, keeps()) {
                (Some(index), _) => {
                    let (name, vid, _) = open.remove(index);
                    held.insert(vid, name);
                }
                (None, Some(index)) => {
                    let (name, _, had) = open.remove(index);
                    held.extend(had.map(|had| (had, name)));
                }
                (None, None) => break,
            }
        }
        // In a ring each waits for the next.
        held.extend(open.into_iter().filter_map(|(name, _, had)| Some((had?, name))));
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(vid: u16) -> Service {
        Service { vid, out: true }
    }

    fn attachment(services: &[usize]) -> Attachment {
        let services = services.iter().copied().collect();
        Attachment { services, point: 0, vlans: VlanType::SelectiveTrunk, dpdk: false }
    }

    fn world(actions: &[Action]) -> World {
        let mut world = World::default();
        for action in actions {
            world.take(action);
        }
        world
    }

    #[test]
    fn who_has_a_vlan_keeps_it_until_it_leaves() {
        let mut world = world(&[Action::CreateService(1, service(100))]);
        world.settle();
        world.take(&Action::CreateService(2, service(100)));
        let ends = world.ends();
        assert_eq!(ends.services[&1].phase, Phase::Ready);
        assert_eq!(ends.services[&2].phase, Phase::Error);
        assert_eq!(ends.services[&2].words.as_deref(), Some("100 is held by L2Service soak-s1"));
        world.settle();
        world.take(&Action::ChangeService(1, service(101)));
        let ends = world.ends();
        assert_eq!(ends.services[&1].realised, Some(service(101)));
        assert_eq!(ends.services[&2].realised, Some(service(100)));
        assert!(world.left.contains(&100));
    }

    #[test]
    fn who_can_t_move_keeps_what_it_has_from_others() {
        let mut world =
            world(&[Action::CreateService(1, service(100)), Action::CreateService(2, service(101))]);
        world.settle();
        // 1 wants what 2 has, 3 wants what 1 has.
        world.take(&Action::ChangeService(1, service(101)));
        world.take(&Action::CreateService(3, service(100)));
        let ends = world.ends();
        assert_eq!(ends.services[&1].realised, Some(service(100)));
        assert_eq!(ends.services[&3].words.as_deref(), Some("100 is held by L2Service soak-s1"));
        // 2 goes, and all move up.
        world.take(&Action::DeleteService(2));
        let ends = world.ends();
        let phases: Vec<_> = ends.services.iter().map(|(name, end)| (*name, end.phase)).collect();
        assert_eq!(phases, [(1, Phase::Ready), (3, Phase::Ready)]);
    }

    #[test]
    fn two_that_want_each_other_s_vlan_wait_for_ever() {
        let mut world =
            world(&[Action::CreateService(1, service(100)), Action::CreateService(2, service(101))]);
        world.settle();
        world.take(&Action::ChangeService(1, service(101)));
        world.take(&Action::ChangeService(2, service(100)));
        let ends = world.ends();
        assert_eq!(ends.services[&1].words.as_deref(), Some("101 is held by L2Service soak-s2"));
        assert_eq!(ends.services[&2].realised, Some(service(101)));
    }

    #[test]
    fn what_is_in_use_stays_for_those_who_have_it_and_takes_nobody_new() {
        let mut world = world(&[
            Action::CreateService(1, service(100)),
            Action::CreateService(2, service(101)),
            Action::CreateAttachment(1, attachment(&[1])),
        ]);
        world.settle();
        world.take(&Action::DeleteService(1));
        world.take(&Action::CreateAttachment(2, attachment(&[1, 2])));
        let ends = world.ends();
        assert_eq!(ends.services[&1].phase, Phase::Terminating);
        assert_eq!(ends.attachments[&1].phase, Phase::Ready);
        assert_eq!(ends.attachments[&2].words.as_deref(), Some("L2Service soak-s1 is being deleted"));
        world.take(&Action::DeleteAttachment(2));
        world.take(&Action::ChangeAttachment(1, attachment(&[2])));
        let ends = world.ends();
        assert!(!ends.services.contains_key(&1));
        world.settle();
        assert_eq!((world.services.len(), world.attachments.len()), (1, 1));
    }

    #[test]
    fn what_can_t_be_is_as_it_was() {
        let mut world = world(&[
            Action::CreateService(1, service(100)),
            Action::CreateAttachment(1, attachment(&[1])),
            Action::CreateAttachment(2, attachment(&[7])),
        ]);
        world.settle();
        assert_eq!(world.attachments[&2].realised, None);
        world.take(&Action::ChangeAttachment(1, Attachment { dpdk: true, ..attachment(&[1]) }));
        world.take(&Action::CreateService(7, service(107)));
        let ends = world.ends();
        assert_eq!(ends.attachments[&1].phase, Phase::Error);
        assert_eq!(ends.attachments[&1].realised, Some(attachment(&[1])));
        assert_eq!(ends.attachments[&2].phase, Phase::Ready);
    }
}
