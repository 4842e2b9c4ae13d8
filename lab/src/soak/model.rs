//! The model: requested objects, and their expected state once all is quiet. Pure.
//!
//! An object that can't be realised keeps its last realised state. That state is known for sure only for objects of the
//! last quiet time; [`super::action_generator`] generates nothing with two possible outcomes.

use std::collections::{BTreeMap, BTreeSet};

use eno_nbi_crds::{Phase, VlanType};

/// An L2Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) vid: u16,
    /// Whether it includes the external PhysicalNetwork.
    pub(super) out: bool,
}

/// An L2ServiceAttachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attachment {
    pub(super) services: BTreeSet<usize>,
    pub(super) point: usize,
    pub(super) vlans: VlanType,
    /// Whether it requests an interface type that no ConnectionPoint offers.
    pub(super) dpdk: bool,
}

/// A custom resource and its history.
#[derive(Debug, Clone)]
pub(super) struct Object<T> {
    /// Its spec.
    pub(super) wanted: T,
    /// Its realised spec at the last quiet time.
    pub(super) realised: Option<T>,
    /// Whether it was created or changed since then.
    pub(super) changed: bool,
    /// Whether its deletion was requested.
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
    /// The bridge of the pods.
    pub(super) bridge: usize,
    /// The nodes of the pool.
    pub(super) members: BTreeSet<usize>,
}

/// All requested objects, by the number in their name.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    pub(super) services: BTreeMap<usize, Object<Service>>,
    pub(super) attachments: BTreeMap<usize, Object<Attachment>>,
    pub(super) points: Vec<Point>,
    /// VLANs that services have vacated since the last quiet time.
    pub(super) vacated: BTreeSet<u16>,
}

/// An action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    CreateService(usize, Service),
    ChangeService(usize, Service),
    DeleteService(usize),
    CreateAttachment(usize, Attachment),
    ChangeAttachment(usize, Attachment),
    DeleteAttachment(usize),
    /// A node joins or leaves the pool of a ConnectionPoint.
    Member {
        point: usize,
        node: usize,
        joins: bool,
    },
    /// A ConnectionPoint gets another bridge.
    Bridge(usize, usize),
}

impl Action {
    /// The name of the action in the report.
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

/// The expected state of an object that remains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectedObject<T> {
    pub(super) phase: Phase,
    /// A text that its message must contain; `None`: no message.
    pub(super) message: Option<String>,
    /// Its realised spec.
    pub(super) realised: Option<T>,
}

/// The expected states of all objects that remain; all others must be gone.
#[derive(Debug, Clone, Default)]
pub(super) struct ExpectedObjects {
    pub(super) services: BTreeMap<usize, ExpectedObject<Service>>,
    pub(super) attachments: BTreeMap<usize, ExpectedObject<Attachment>>,
}

pub(super) fn service_name(service: usize) -> String {
    format!("soak-s{service}")
}

impl World {
    /// Records an action.
    pub(super) fn record(&mut self, action: &Action) {
        match action.clone() {
            Action::CreateService(name, wanted) => {
                self.services.insert(name, Object::new(wanted));
            }
            Action::ChangeService(name, wanted) => {
                let Some(service) = self.services.get_mut(&name) else { return };
                if wanted.vid != service.wanted.vid {
                    self.vacated.insert(service.wanted.vid);
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

    /// Takes the expected state as the realised one, at a quiet time.
    pub(super) fn settle(&mut self) {
        let expected = self.expected();
        self.vacated.clear();
        self.services.retain(|name, service| {
            let Some(end) = expected.services.get(name) else { return false };
            (service.realised, service.changed) = (end.realised.clone(), false);
            true
        });
        self.attachments.retain(|name, attachment| {
            let Some(end) = expected.attachments.get(name) else { return false };
            (attachment.realised, attachment.changed) = (end.realised.clone(), false);
            true
        });
    }

    /// The expected state of all objects.
    pub(super) fn expected(&self) -> ExpectedObjects {
        let mut expected = ExpectedObjects::default();
        for (name, attachment) in self.attachments.iter().filter(|(_, attachment)| !attachment.deleting) {
            let problem = self.problem_of(attachment);
            let realised =
                if problem.is_none() { Some(attachment.wanted.clone()) } else { attachment.realised.clone() };
            let phase = if problem.is_none() { Phase::Ready } else { Phase::Error };
            expected.attachments.insert(*name, ExpectedObject { phase, message: problem, realised });
        }
        let used_services = self.used_services(&expected);
        let vlan_holders = self.vlan_holders(&used_services);
        for (name, service) in &self.services {
            let end = if service.deleting {
                if !used_services.contains(name) {
                    continue;
                }
                ExpectedObject {
                    phase: Phase::Terminating,
                    message: Some("in use by L2ServiceAttachment".to_owned()),
                    realised: service.realised.clone(),
                }
            } else if vlan_holders.get(&service.wanted.vid) == Some(name) {
                ExpectedObject { phase: Phase::Ready, message: None, realised: Some(service.wanted.clone()) }
            } else {
                let holder = vlan_holders.get(&service.wanted.vid).map(|holder| service_name(*holder));
                let message =
                    format!("{} is held by L2Service {}", service.wanted.vid, holder.unwrap_or_default());
                ExpectedObject {
                    phase: Phase::Error,
                    message: Some(message),
                    realised: service.realised.clone(),
                }
            };
            expected.services.insert(*name, end);
        }
        expected
    }

    /// Why an attachment can't be realised. Its services have their VLANs, since a service that contends for one has no
    /// users.
    fn problem_of(&self, attachment: &Object<Attachment>) -> Option<String> {
        if attachment.wanted.dpdk {
            return Some("PodInterfaceType dpdk".to_owned());
        }
        let known = |name: &usize| {
            attachment.realised.as_ref().is_some_and(|realised| realised.services.contains(name))
        };
        attachment.wanted.services.iter().find_map(|name| match self.services.get(name) {
            None => Some(format!("L2Service {} does not exist", service_name(*name))),
            Some(service) if service.deleting && !known(name) => {
                Some(format!("L2Service {} is being deleted", service_name(*name)))
            }
            Some(_) => None,
        })
    }

    /// The services that attachments name or have realised.
    fn used_services(&self, expected: &ExpectedObjects) -> BTreeSet<usize> {
        let wanted = expected.attachments.keys().filter_map(|name| self.attachments.get(name));
        let wanted = wanted.flat_map(|attachment| &attachment.wanted.services);
        let realised = expected.attachments.values().flat_map(|end| &end.realised);
        wanted.chain(realised.flat_map(|realised| &realised.services)).copied().collect()
    }

    /// The expected holder of each VLAN. A holder keeps its VLAN while it requests it, or as long as it can't get
    /// another one.
    fn vlan_holders(&self, used_services: &BTreeSet<usize>) -> BTreeMap<u16, usize> {
        let mut vlan_holders = BTreeMap::new();
        let mut open: Vec<(usize, u16, Option<u16>)> = Vec::new();
        for (name, service) in &self.services {
            let (wanted, had) = (service.wanted.vid, service.realised.as_ref().map(|realised| realised.vid));
            if service.deleting {
                vlan_holders.extend(had.filter(|_| used_services.contains(name)).map(|had| (had, *name)));
            } else if had == Some(wanted) {
                vlan_holders.insert(wanted, *name);
            } else {
                open.push((*name, wanted, had));
            }
        }
        loop {
            let is_held_by_mover = |vid: u16| open.iter().any(|(.., had)| *had == Some(vid));
            let granted = open
                .iter()
                .position(|(_, vid, _)| !vlan_holders.contains_key(vid) && !is_held_by_mover(*vid));
            // Its requested VLAN has a permanent holder.
            let blocked = || open.iter().position(|(_, vid, _)| vlan_holders.contains_key(vid));
            match (granted, blocked()) {
                (Some(index), _) => {
                    let (name, vid, _) = open.remove(index);
                    vlan_holders.insert(vid, name);
                }
                (None, Some(index)) => {
                    let (name, _, had) = open.remove(index);
                    vlan_holders.extend(had.map(|had| (had, name)));
                }
                (None, None) => break,
            }
        }
        // In a cycle each service waits for the next.
        vlan_holders.extend(open.into_iter().filter_map(|(name, _, had)| Some((had?, name))));
        vlan_holders
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
            world.record(action);
        }
        world
    }

    #[test]
    fn vlan_holder_keeps_it_until_it_leaves() {
        let mut world = world(&[Action::CreateService(1, service(100))]);
        world.settle();
        world.record(&Action::CreateService(2, service(100)));
        let expected = world.expected();
        assert_eq!(expected.services[&1].phase, Phase::Ready);
        assert_eq!(expected.services[&2].phase, Phase::Error);
        assert_eq!(expected.services[&2].message.as_deref(), Some("100 is held by L2Service soak-s1"));
        world.settle();
        world.record(&Action::ChangeService(1, service(101)));
        let expected = world.expected();
        assert_eq!(expected.services[&1].realised, Some(service(101)));
        assert_eq!(expected.services[&2].realised, Some(service(100)));
        assert!(world.vacated.contains(&100));
    }

    #[test]
    fn blocked_move_keeps_the_held_vlan() {
        let mut world =
            world(&[Action::CreateService(1, service(100)), Action::CreateService(2, service(101))]);
        world.settle();
        // 1 requests the VLAN of 2, and 3 that of 1.
        world.record(&Action::ChangeService(1, service(101)));
        world.record(&Action::CreateService(3, service(100)));
        let expected = world.expected();
        assert_eq!(expected.services[&1].realised, Some(service(100)));
        assert_eq!(expected.services[&3].message.as_deref(), Some("100 is held by L2Service soak-s1"));
        // 2 is deleted, and the others get their VLANs.
        world.record(&Action::DeleteService(2));
        let expected = world.expected();
        let phases: Vec<_> = expected.services.iter().map(|(name, end)| (*name, end.phase)).collect();
        assert_eq!(phases, [(1, Phase::Ready), (3, Phase::Ready)]);
    }

    #[test]
    fn swap_of_two_vlans_stays_blocked() {
        let mut world =
            world(&[Action::CreateService(1, service(100)), Action::CreateService(2, service(101))]);
        world.settle();
        world.record(&Action::ChangeService(1, service(101)));
        world.record(&Action::ChangeService(2, service(100)));
        let expected = world.expected();
        assert_eq!(expected.services[&1].message.as_deref(), Some("101 is held by L2Service soak-s2"));
        assert_eq!(expected.services[&2].realised, Some(service(101)));
    }

    #[test]
    fn terminating_service_keeps_users_and_takes_no_new_ones() {
        let mut world = world(&[
            Action::CreateService(1, service(100)),
            Action::CreateService(2, service(101)),
            Action::CreateAttachment(1, attachment(&[1])),
        ]);
        world.settle();
        world.record(&Action::DeleteService(1));
        world.record(&Action::CreateAttachment(2, attachment(&[1, 2])));
        let expected = world.expected();
        assert_eq!(expected.services[&1].phase, Phase::Terminating);
        assert_eq!(expected.attachments[&1].phase, Phase::Ready);
        assert_eq!(expected.attachments[&2].message.as_deref(), Some("L2Service soak-s1 is being deleted"));
        world.record(&Action::DeleteAttachment(2));
        world.record(&Action::ChangeAttachment(1, attachment(&[2])));
        let expected = world.expected();
        assert!(!expected.services.contains_key(&1));
        world.settle();
        assert_eq!((world.services.len(), world.attachments.len()), (1, 1));
    }

    #[test]
    fn impossible_request_keeps_the_previous_state() {
        let mut world = world(&[
            Action::CreateService(1, service(100)),
            Action::CreateAttachment(1, attachment(&[1])),
            Action::CreateAttachment(2, attachment(&[7])),
        ]);
        world.settle();
        assert_eq!(world.attachments[&2].realised, None);
        world.record(&Action::ChangeAttachment(1, Attachment { dpdk: true, ..attachment(&[1]) }));
        world.record(&Action::CreateService(7, service(107)));
        let expected = world.expected();
        assert_eq!(expected.attachments[&1].phase, Phase::Error);
        assert_eq!(expected.attachments[&1].realised, Some(attachment(&[1])));
        assert_eq!(expected.attachments[&2].phase, Phase::Ready);
    }
}
