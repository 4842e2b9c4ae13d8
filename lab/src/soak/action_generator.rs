//! Generates the next action. Pure.
//!
//! It generates only actions with one possible outcome, whatever the operator sees at once and in whatever order.
//! Impossible requests go only to objects unchanged since the last quiet time, since these keep their state then. A
//! service that contends for a VLAN has no users, which would hold the VLAN on their bridges, and is the only
//! contender. A VLAN that a service has vacated stays free until the next quiet time: two services that swap VLANs
//! would wait for each other.

use eno_nbi_crds::{Phase, VlanType};

use super::model::{Action, Attachment, ExpectedObjects, Object, Service, World};
use super::rng::SeededRng;

/// The first VLAN ID that is used.
pub(super) const FIRST_VLAN: u16 = 100;
/// Maximum services that contend for a VLAN, or are deleted while in use.
const MAX_NOT_READY: usize = 4;
/// Maximum services of an attachment.
const MAX_SERVICES_PER_ATTACHMENT: usize = 4;
/// The usual number of objects, in percent of the maximum.
const TARGET_FILL_PERCENT: usize = 75;
const BRIDGES: usize = 2;

/// Maximum numbers of objects and nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) services: usize,
    pub(super) attachments: usize,
    pub(super) nodes: usize,
}

impl Bounds {
    /// The VLAN IDs in use: enough for all services, and few enough to be reused.
    pub(super) fn vlans(&self) -> std::ops::Range<u16> {
        let count = u16::try_from(self.services * 2 + 20).unwrap_or(u16::MAX).min(2800);
        FIRST_VLAN..FIRST_VLAN + count
    }
}

/// The next action; `None`: none this time.
pub(super) fn next(world: &World, bounds: &Bounds, rng: &mut SeededRng) -> Option<Action> {
    let expected = world.expected();
    let actions = ActionGenerator { world, bounds, expected: &expected };
    let should_create = |present: usize, most: usize, rng: &mut SeededRng| {
        // Three of four times towards the usual number.
        rng.percent(if present * 100 < most * TARGET_FILL_PERCENT { 75 } else { 25 })
    };
    match rng.below(100) {
        0..30 => match rng.below(2) {
            0 => actions.change_service(rng),
            _ if should_create(world.services.len(), bounds.services, rng) => actions.create_service(rng),
            _ => actions.delete_service(rng),
        },
        30..90 => match rng.below(2) {
            0 => actions.change_attachment(rng),
            _ if should_create(world.attachments.len(), bounds.attachments, rng) => {
                actions.create_attachment(rng)
            }
            _ => actions.delete_attachment(rng),
        },
        90..97 => actions.change_members(rng),
        _ => {
            let point = rng.below(world.points.len());
            let bridge = (world.points.get(point)?.bridge + 1) % BRIDGES;
            Some(Action::Bridge(point, bridge))
        }
    }
}

struct ActionGenerator<'a> {
    world: &'a World,
    bounds: &'a Bounds,
    expected: &'a ExpectedObjects,
}

impl ActionGenerator<'_> {
    fn create_service(&self, rng: &mut SeededRng) -> Option<Action> {
        let free: Vec<usize> =
            (0..self.bounds.services).filter(|name| !self.world.services.contains_key(name)).collect();
        let name = *rng.pick(&free)?;
        let unused = !self.is_or_was_used(name);
        let contended = unused && rng.percent(15);
        let vid = if contended { self.contended_vid(rng) } else { self.free_vid(rng) };
        let out = contended || rng.percent(40);
        Some(Action::CreateService(name, Service { vid: vid?, out }))
    }

    fn change_service(&self, rng: &mut SeededRng) -> Option<Action> {
        let live = self.world.services.iter().filter(|(_, service)| !service.deleting);
        let live: Vec<_> = live.collect();
        let (name, service) = *rng.pick(&live)?;
        let wanted = &service.wanted;
        let ready = self.expected.services.get(name).is_some_and(|end| end.phase == Phase::Ready);
        if !ready {
            return Some(Action::ChangeService(
                *name,
                Service { vid: self.free_vid(rng)?, ..wanted.clone() },
            ));
        }
        let out_only = wanted.out && service.realised.as_ref() == Some(wanted) && !service.changed;
        let wanted = match rng.below(10) {
            0..4 => Service { out: !wanted.out, ..wanted.clone() },
            4 if out_only && !self.is_or_was_used(*name) => {
                Service { vid: self.contended_vid(rng)?, ..wanted.clone() }
            }
            _ => Service { vid: self.free_vid(rng)?, ..wanted.clone() },
        };
        Some(Action::ChangeService(*name, wanted))
    }

    fn delete_service(&self, rng: &mut SeededRng) -> Option<Action> {
        let live: Vec<_> = self.world.services.iter().filter(|(_, service)| !service.deleting).collect();
        let (name, service) = *rng.pick(&live)?;
        if self.users(*name).next().is_none() {
            return Some(Action::DeleteService(*name));
        }
        let as_it_was = service.realised.as_ref() == Some(&service.wanted) && !service.changed;
        let certain = as_it_was && self.users(*name).all(|user| !user.changed);
        (certain && self.not_ready_count() < MAX_NOT_READY).then_some(Action::DeleteService(*name))
    }

    fn create_attachment(&self, rng: &mut SeededRng) -> Option<Action> {
        let free = (0..self.bounds.attachments).filter(|name| !self.world.attachments.contains_key(name));
        let name = *rng.pick(&free.collect::<Vec<_>>())?;
        let possible = !rng.percent(8);
        Some(Action::CreateAttachment(name, self.attachment(possible, rng)?))
    }

    fn change_attachment(&self, rng: &mut SeededRng) -> Option<Action> {
        let live: Vec<_> = self.world.attachments.iter().filter(|(_, one)| !one.deleting).collect();
        let (name, attachment) = *rng.pick(&live)?;
        let leaving =
            |service: &usize| self.world.services.get(service).is_some_and(|service| service.deleting);
        let has_leaving = attachment.realised.iter().any(|realised| realised.services.iter().any(leaving));
        let possible = attachment.changed || has_leaving || !rng.percent(8);
        let wanted = self.attachment(possible, rng)?;
        (wanted != attachment.wanted).then_some(Action::ChangeAttachment(*name, wanted))
    }

    fn delete_attachment(&self, rng: &mut SeededRng) -> Option<Action> {
        let live: Vec<_> =
            self.world.attachments.iter().filter(|(_, one)| !one.deleting).map(|(name, _)| *name).collect();
        rng.pick(&live).map(|name| Action::DeleteAttachment(*name))
    }

    fn change_members(&self, rng: &mut SeededRng) -> Option<Action> {
        let (point, node) = (rng.below(self.world.points.len()), rng.below(self.bounds.nodes));
        let members = &self.world.points.get(point)?.members;
        let joins = !members.contains(&node);
        (joins || members.len() > 1).then_some(Action::Member { point, node, joins })
    }

    /// A possible or an impossible attachment.
    fn attachment(&self, possible: bool, rng: &mut SeededRng) -> Option<Attachment> {
        let vlans = *rng.pick(&[VlanType::Access, VlanType::SelectiveTrunk, VlanType::Trunk])?;
        let count = if vlans == VlanType::Access { 1 } else { 1 + rng.below(MAX_SERVICES_PER_ATTACHMENT) };
        let usable = self.expected.services.iter().filter(|(_, end)| end.phase == Phase::Ready);
        let mut usable: Vec<usize> = usable.map(|(name, _)| *name).collect();
        rng.shuffle(&mut usable);
        usable.truncate(count);
        let mut wanted = Attachment {
            services: usable.into_iter().collect(),
            point: rng.below(self.world.points.len()),
            vlans,
            dpdk: false,
        };
        if !possible {
            let missing = (0..self.bounds.services).filter(|name| !self.world.services.contains_key(name));
            let missing: Vec<_> = missing.collect();
            match rng.pick(&missing) {
                Some(missing) if rng.percent(60) => {
                    if vlans == VlanType::Access {
                        wanted.services.clear();
                    }
                    wanted.services.insert(*missing);
                }
                _ => wanted.dpdk = true,
            }
        }
        (!wanted.services.is_empty()).then_some(wanted)
    }

    /// A VLAN that no service has or requests.
    fn free_vid(&self, rng: &mut SeededRng) -> Option<u16> {
        let taken = |vid: &u16| self.world.vacated.contains(vid) || self.claims(*vid) > 0;
        let free: Vec<u16> = self.bounds.vlans().filter(|vid| !taken(vid)).collect();
        rng.pick(&free).copied()
    }

    /// A VLAN that one service certainly has, and no other requests.
    fn contended_vid(&self, rng: &mut SeededRng) -> Option<u16> {
        if self.not_ready_count() >= MAX_NOT_READY {
            return None;
        }
        let certain = |service: &&Object<Service>| {
            service.realised.as_ref() == Some(&service.wanted) && !service.changed
        };
        let staying =
            self.world.services.iter().filter(|(name, _)| self.expected.services.contains_key(name));
        let vids = staying.map(|(_, service)| service).filter(certain).map(|service| service.wanted.vid);
        let vids: Vec<u16> = vids.filter(|vid| self.claims(*vid) == 1).collect();
        rng.pick(&vids).copied()
    }

    /// The number of services that have or request a VLAN. A deleted service without users gives it up.
    fn claims(&self, vid: u16) -> usize {
        let staying =
            self.world.services.iter().filter(|(name, _)| self.expected.services.contains_key(name));
        let claims = |service: &Object<Service>| {
            service.wanted.vid == vid || service.realised.as_ref().is_some_and(|had| had.vid == vid)
        };
        staying.filter(|(_, service)| claims(service)).count()
    }

    /// The number of services that are expected in error or deleted while in use.
    fn not_ready_count(&self) -> usize {
        self.expected.services.values().filter(|end| end.phase != Phase::Ready).count()
    }

    /// The attachments that are expected to use a service.
    fn users(&self, name: usize) -> impl Iterator<Item = &Object<Attachment>> {
        self.expected.attachments.iter().filter_map(move |(key, end)| {
            let attachment = self.world.attachments.get(key)?;
            let realised = end.realised.iter().any(|realised| realised.services.contains(&name));
            (realised || attachment.wanted.services.contains(&name)).then_some(attachment)
        })
    }

    /// Whether an existing attachment uses a service, or did at the last quiet time.
    fn is_or_was_used(&self, name: usize) -> bool {
        self.world.attachments.values().any(|attachment| {
            let realised = attachment.realised.iter().any(|realised| realised.services.contains(&name));
            realised || attachment.wanted.services.contains(&name)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::model::Point;
    use super::*;

    const BOUNDS: Bounds = Bounds { services: 12, attachments: 24, nodes: 4 };

    fn world() -> World {
        let point = |member: usize| Point { bridge: 0, members: BTreeSet::from([member]) };
        World { points: vec![point(0), point(3)], ..World::default() }
    }

    /// Generates actions in rounds, and shows `observe` the world before and after each.
    fn history(seed: u64, mut observe: impl FnMut(&World, &Action, &World)) -> World {
        let (mut world, mut rng) = (world(), SeededRng::new(seed));
        for _ in 0..20 {
            for _ in 0..40 {
                let Some(action) = next(&world, &BOUNDS, &mut rng) else { continue };
                let before = world.clone();
                world.record(&action);
                observe(&before, &action, &world);
            }
            world.settle();
        }
        world
    }

    #[test]
    fn actions_keep_their_bounds_and_cover_every_kind() {
        let mut kinds = BTreeSet::new();
        let mut phases = BTreeSet::new();
        for seed in 0..20 {
            let world = history(seed, |_, action, after| {
                kinds.insert(action.kind());
                phases.extend(after.expected().services.values().map(|end| end.phase));
                assert!(after.services.len() <= BOUNDS.services);
                assert!(after.attachments.len() <= BOUNDS.attachments);
                assert!(after.points.iter().all(|point| !point.members.is_empty()));
            });
            assert!(world.services.len() > 2, "seed {seed}");
        }
        assert_eq!(kinds.len(), 9);
        assert_eq!(phases, BTreeSet::from([Phase::Ready, Phase::Error, Phase::Terminating]));
    }

    #[test]
    fn no_vlan_is_granted_twice_and_contenders_have_no_users() {
        for seed in 0..20 {
            history(seed, |_, action, after| {
                let expected = after.expected();
                let vids: Vec<_> = expected
                    .services
                    .values()
                    .filter_map(|end| end.realised.as_ref())
                    .map(|had| had.vid)
                    .collect();
                let different: BTreeSet<_> = vids.iter().collect();
                assert_eq!(vids.len(), different.len(), "seed {seed}, {action:?}");
                for (name, _) in expected.services.iter().filter(|(_, end)| end.phase == Phase::Error) {
                    let named = |end: &super::super::model::ExpectedObject<Attachment>| {
                        end.realised.iter().any(|realised| realised.services.contains(name))
                    };
                    assert!(!expected.attachments.values().any(named), "seed {seed}, {action:?}");
                }
            });
        }
    }

    #[test]
    fn impossible_requests_only_target_unchanged_objects() {
        for seed in 0..20 {
            history(seed, |before, action, after| {
                if let Action::ChangeAttachment(name, _) = action
                    && after.expected().attachments[name].phase == Phase::Error
                {
                    assert!(!before.attachments[name].changed, "seed {seed}, {action:?}");
                }
                if let Action::ChangeService(name, _) = action
                    && after.expected().services[name].phase == Phase::Error
                {
                    assert!(!before.services[name].changed, "seed {seed}, {action:?}");
                }
            });
        }
    }
}
