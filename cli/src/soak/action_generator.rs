//! What is asked for next. Pure.
//!
//! Only what ends in one way, however much of it the operator sees at once and in whatever order: what can't be realised
//! is asked only of objects that were not changed since all was last quiet, since they keep what they had then. Who
//! contends for a VLAN has no users, as these would hold it on their bridges, and nobody else contends for it. A VLAN
//! that a service moved away from is nobody's until all is quiet: two that swap theirs would wait for each other.

use eno_nbi_crds::{Phase, VlanType};

use super::model::{Action, Attachment, Ends, Object, Service, World};
use super::rng::SeededRng;

/// The first VLAN ID that is used.
pub(super) const FIRST_VLAN: u16 = 100;
/// Services that contend for a VLAN of another, or are deleted while in use, at a time.
const ODD: usize = 4;
/// An attachment names at most so many services.
const MOST_NAMED: usize = 4;
/// How full of objects it is, in percent of the most that there may be.
const FULL: usize = 75;
const BRIDGES: usize = 2;

/// How much there may be at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) services: usize,
    pub(super) attachments: usize,
    pub(super) nodes: usize,
}

impl Bounds {
    /// The VLAN IDs that are used: enough for all, and few enough to come again.
    pub(super) fn vlans(&self) -> std::ops::Range<u16> {
        let count = u16::try_from(self.services * 2 + 20).unwrap_or(u16::MAX).min(2800);
        FIRST_VLAN..FIRST_VLAN + count
    }
}

/// What is asked for next; `None`: nothing, this time.
pub(super) fn next(world: &World, bounds: &Bounds, rng: &mut SeededRng) -> Option<Action> {
    let ends = world.ends();
    let actions = ActionGenerator { world, bounds, ends: &ends };
    let wants_more = |there: usize, most: usize, rng: &mut SeededRng| {
        // Most of the time towards the usual number.
        rng.percent(if there * 100 < most * FULL { 75 } else { 25 })
    };
    match rng.below(100) {
        0..30 => match rng.below(2) {
            0 => actions.change_service(rng),
            _ if wants_more(world.services.len(), bounds.services, rng) => actions.create_service(rng),
            _ => actions.delete_service(rng),
        },
        30..90 => match rng.below(2) {
            0 => actions.change_attachment(rng),
            _ if wants_more(world.attachments.len(), bounds.attachments, rng) => {
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
    ends: &'a Ends,
}

impl ActionGenerator<'_> {
    fn create_service(&self, rng: &mut SeededRng) -> Option<Action> {
        let free: Vec<usize> =
            (0..self.bounds.services).filter(|name| !self.world.services.contains_key(name)).collect();
        let name = *rng.pick(&free)?;
        let unnamed = !self.has_ever_users(name);
        let contended = unnamed && rng.percent(15);
        let vid = if contended { self.contended_vid(rng) } else { self.free_vid(rng) };
        let out = contended || rng.percent(40);
        Some(Action::CreateService(name, Service { vid: vid?, out }))
    }

    fn change_service(&self, rng: &mut SeededRng) -> Option<Action> {
        let living = self.world.services.iter().filter(|(_, service)| !service.deleting);
        let living: Vec<_> = living.collect();
        let (name, service) = *rng.pick(&living)?;
        let wanted = &service.wanted;
        let ready = self.ends.services.get(name).is_some_and(|end| end.phase == Phase::Ready);
        if !ready {
            return Some(Action::ChangeService(
                *name,
                Service { vid: self.free_vid(rng)?, ..wanted.clone() },
            ));
        }
        let out_only = wanted.out && service.realised.as_ref() == Some(wanted) && !service.changed;
        let wanted = match rng.below(10) {
            0..4 => Service { out: !wanted.out, ..wanted.clone() },
            4 if out_only && !self.has_ever_users(*name) => {
                Service { vid: self.contended_vid(rng)?, ..wanted.clone() }
            }
            _ => Service { vid: self.free_vid(rng)?, ..wanted.clone() },
        };
        Some(Action::ChangeService(*name, wanted))
    }

    fn delete_service(&self, rng: &mut SeededRng) -> Option<Action> {
        let living: Vec<_> = self.world.services.iter().filter(|(_, service)| !service.deleting).collect();
        let (name, service) = *rng.pick(&living)?;
        if self.users(*name).next().is_none() {
            return Some(Action::DeleteService(*name));
        }
        let as_it_was = service.realised.as_ref() == Some(&service.wanted) && !service.changed;
        let sure = as_it_was && self.users(*name).all(|user| !user.changed);
        (sure && self.odd() < ODD).then_some(Action::DeleteService(*name))
    }

    fn create_attachment(&self, rng: &mut SeededRng) -> Option<Action> {
        let free = (0..self.bounds.attachments).filter(|name| !self.world.attachments.contains_key(name));
        let name = *rng.pick(&free.collect::<Vec<_>>())?;
        let possible = !rng.percent(8);
        Some(Action::CreateAttachment(name, self.attachment(possible, rng)?))
    }

    fn change_attachment(&self, rng: &mut SeededRng) -> Option<Action> {
        let living: Vec<_> = self.world.attachments.iter().filter(|(_, one)| !one.deleting).collect();
        let (name, attachment) = *rng.pick(&living)?;
        let leaving =
            |service: &usize| self.world.services.get(service).is_some_and(|service| service.deleting);
        let has_leaving = attachment.realised.iter().any(|realised| realised.services.iter().any(leaving));
        let possible = attachment.changed || has_leaving || !rng.percent(8);
        let wanted = self.attachment(possible, rng)?;
        (wanted != attachment.wanted).then_some(Action::ChangeAttachment(*name, wanted))
    }

    fn delete_attachment(&self, rng: &mut SeededRng) -> Option<Action> {
        let living: Vec<_> =
            self.world.attachments.iter().filter(|(_, one)| !one.deleting).map(|(name, _)| *name).collect();
        rng.pick(&living).map(|name| Action::DeleteAttachment(*name))
    }

    fn change_members(&self, rng: &mut SeededRng) -> Option<Action> {
        let (point, node) = (rng.below(self.world.points.len()), rng.below(self.bounds.nodes));
        let members = &self.world.points.get(point)?.members;
        let joins = !members.contains(&node);
        (joins || members.len() > 1).then_some(Action::Member { point, node, joins })
    }

    /// An attachment that can be realised, or one that can't.
    fn attachment(&self, possible: bool, rng: &mut SeededRng) -> Option<Attachment> {
        let vlans = *rng.pick(&[VlanType::Access, VlanType::SelectiveTrunk, VlanType::Trunk])?;
        let count = if vlans == VlanType::Access { 1 } else { 1 + rng.below(MOST_NAMED) };
        let usable = self.ends.services.iter().filter(|(_, end)| end.phase == Phase::Ready);
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

    /// A VLAN that nobody has or wants.
    fn free_vid(&self, rng: &mut SeededRng) -> Option<u16> {
        let taken = |vid: &u16| self.world.left.contains(vid) || self.claims(*vid) > 0;
        let free: Vec<u16> = self.bounds.vlans().filter(|vid| !taken(vid)).collect();
        rng.pick(&free).copied()
    }

    /// A VLAN that one service has for sure, and no other wants.
    fn contended_vid(&self, rng: &mut SeededRng) -> Option<u16> {
        if self.odd() >= ODD {
            return None;
        }
        let sure = |service: &&Object<Service>| {
            service.realised.as_ref() == Some(&service.wanted) && !service.changed
        };
        let staying = self.world.services.iter().filter(|(name, _)| self.ends.services.contains_key(name));
        let vids = staying.map(|(_, service)| service).filter(sure).map(|service| service.wanted.vid);
        let vids: Vec<u16> = vids.filter(|vid| self.claims(*vid) == 1).collect();
        rng.pick(&vids).copied()
    }

    /// How many services have a VLAN or want it; one that is deleted and that nobody uses gives it up.
    fn claims(&self, vid: u16) -> usize {
        let staying = self.world.services.iter().filter(|(name, _)| self.ends.services.contains_key(name));
        let claims = |service: &Object<Service>| {
            service.wanted.vid == vid || service.realised.as_ref().is_some_and(|had| had.vid == vid)
        };
        staying.filter(|(_, service)| claims(service)).count()
    }

    /// How many services are in error or go while in use.
    fn odd(&self) -> usize {
        self.ends.services.values().filter(|end| end.phase != Phase::Ready).count()
    }

    /// The attachments that use a service in the end.
    fn users(&self, name: usize) -> impl Iterator<Item = &Object<Attachment>> {
        self.ends.attachments.iter().filter_map(move |(key, end)| {
            let attachment = self.world.attachments.get(key)?;
            let realised = end.realised.iter().any(|realised| realised.services.contains(&name));
            (realised || attachment.wanted.services.contains(&name)).then_some(attachment)
        })
    }

    /// Whether an attachment that is still there uses a service, or did when all was last quiet.
    fn has_ever_users(&self, name: usize) -> bool {
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

    /// Asks for things in rounds, and shows each world before and after a change.
    fn history(seed: u64, mut look: impl FnMut(&World, &Action, &World)) -> World {
        let (mut world, mut rng) = (world(), SeededRng::new(seed));
        for _ in 0..20 {
            for _ in 0..40 {
                let Some(action) = next(&world, &BOUNDS, &mut rng) else { continue };
                let before = world.clone();
                world.take(&action);
                look(&before, &action, &world);
            }
            world.settle();
        }
        world
    }

    #[test]
    fn bounds_are_kept_and_every_kind_is_asked_for() {
        let mut kinds = BTreeSet::new();
        let mut phases = BTreeSet::new();
        for seed in 0..20 {
            let world = history(seed, |_, action, after| {
                kinds.insert(action.kind());
                phases.extend(after.ends().services.values().map(|end| end.phase));
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
    fn no_vlan_is_had_twice_and_who_contends_has_no_users() {
        for seed in 0..20 {
            history(seed, |_, action, after| {
                let ends = after.ends();
                let vids: Vec<_> = ends
                    .services
                    .values()
                    .filter_map(|end| end.realised.as_ref())
                    .map(|had| had.vid)
                    .collect();
                let different: BTreeSet<_> = vids.iter().collect();
                assert_eq!(vids.len(), different.len(), "seed {seed}, {action:?}");
                for (name, _) in ends.services.iter().filter(|(_, end)| end.phase == Phase::Error) {
                    let named = |end: &super::super::model::End<Attachment>| {
                        end.realised.iter().any(|realised| realised.services.contains(name))
                    };
                    assert!(!ends.attachments.values().any(named), "seed {seed}, {action:?}");
                }
            });
        }
    }

    #[test]
    fn what_can_t_be_is_asked_only_of_what_was_not_changed() {
        for seed in 0..20 {
            history(seed, |before, action, after| {
                if let Action::ChangeAttachment(name, _) = action
                    && after.ends().attachments[name].phase == Phase::Error
                {
                    assert!(!before.attachments[name].changed, "seed {seed}, {action:?}");
                }
                if let Action::ChangeService(name, _) = action
                    && after.ends().services[name].phase == Phase::Error
                {
                    assert!(!before.services[name].changed, "seed {seed}, {action:?}");
                }
            });
        }
    }
}
