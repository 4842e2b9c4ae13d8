//! A cache of the interfaces of a namespace, kept current by netlink notifications.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Link, Notifications, PortVlan, PortsVlans};

/// The interfaces of one namespace, by index and by name.
#[derive(Clone, Debug, Default)]
pub struct Links {
    by_index: BTreeMap<u32, Link>,
    by_name: BTreeMap<String, u32>,
}

impl Links {
    /// The interface with that index.
    pub fn get(&self, index: u32) -> Option<&Link> {
        self.by_index.get(&index)
    }

    /// The interface with that name.
    pub fn named(&self, name: &str) -> Option<&Link> {
        self.get(*self.by_name.get(name)?)
    }

    /// All interfaces, ascending by index.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.by_index.values()
    }

    fn set(&mut self, index: u32, link: Option<Link>) {
        // Another interface may have taken the name meanwhile.
        if let Some(old) = self.by_index.remove(&index)
            && self.by_name.get(&old.name) == Some(&index)
        {
            self.by_name.remove(&old.name);
        }
        if let Some(link) = link {
            self.by_name.insert(link.name.clone(), index);
            self.by_index.insert(index, link);
        }
    }
}

impl FromIterator<Link> for Links {
    fn from_iter<T: IntoIterator<Item = Link>>(links: T) -> Self {
        let mut all = Self::default();
        links.into_iter().for_each(|link| all.set(link.index, Some(link)));
        all
    }
}

/// The interfaces of a namespace, as they were listed, read, and notified since. Pure.
///
/// The kernel does not notify all changes. For an interface that is down it leaves out changes of the alias, the group,
/// alternative names, the IPv6 mode and attributes of the kind (`netdev_state_change` in net/core/dev.c). For the end
/// of a veth pair that is made first it leaves out the peer's index. A caller that changes those reads the interface
/// and hands it to [`Self::update`]; changes by others are found by listing. VLANs of ports are not listed: the mirror
/// tracks only ports whose VLANs were handed to [`Self::update`].
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    links: Arc<Links>,
    /// Interfaces handed to [`Self::update`], in this order. They are applied later, when as a rule nobody holds
    /// `links`, so that the list is not copied.
    pending: Vec<(u32, Option<Link>)>,
    /// VLANs of the ports that are tracked.
    vlans: PortsVlans,
}

impl Mirror {
    /// The interfaces as of the last call of any other method.
    pub fn links(&mut self) -> &Arc<Links> {
        self.apply_pending();
        &self.links
    }

    /// True when the VLANs of this port are tracked.
    pub fn tracks_vlans(&self, port: u32) -> bool {
        self.vlans.contains_key(&port)
    }

    /// Takes a list of all interfaces ([`Watch::list`](super::Watch::list)), without VLANs of ports. Returns those that
    /// changed: their cached state, then their new one.
    pub fn list(&mut self, links: Vec<Link>) -> Vec<Link> {
        self.apply_pending();
        self.vlans.clear();
        let old = std::mem::replace(&mut self.links, Arc::new(links.into_iter().collect()));
        let indexes = old.by_index.keys().chain(self.links.by_index.keys());
        self.changed(indexes.map(|index| (*index, old.get(*index).cloned())).collect())
    }

    /// Takes what the kernel has notified. Returns the interfaces that changed: their cached state, then their new one.
    pub fn receive(&mut self, notifications: Notifications) -> Vec<Link> {
        self.apply_pending();
        let mut before = BTreeMap::new();
        for (index, link) in notifications.links {
            let links = Arc::make_mut(&mut self.links);
            before.insert(index, links.get(index).cloned());
            if link.is_none() {
                self.vlans.remove(&index);
            }
            links.set(index, link);
        }
        let mut changed = self.changed(before);
        for (index, vlans) in notifications.vlans {
            if let Some(known) = self.vlans.get_mut(&index).filter(|known| **known != vlans) {
                *known = vlans;
                changed.extend(self.links.get(index).cloned());
            }
        }
        changed
    }

    /// Takes the state of an interface that the caller has read; `None`: it does not exist. `vlans`: its VLANs as a
    /// port, which are tracked from then on; `None` stops tracking them.
    pub fn update(&mut self, index: u32, link: Option<Link>, vlans: Option<Vec<PortVlan>>) {
        self.pending.push((index, link));
        match vlans {
            Some(vlans) => self.vlans.insert(index, vlans),
            None => self.vlans.remove(&index),
        };
    }

    fn apply_pending(&mut self) {
        if !self.pending.is_empty() {
            let links = Arc::make_mut(&mut self.links);
            self.pending.drain(..).for_each(|(index, link)| links.set(index, link));
        }
    }

    /// Interfaces that differ from `before` in more than their carrier.
    fn changed(&self, before: BTreeMap<u32, Option<Link>>) -> Vec<Link> {
        let mut found = Vec::new();
        for (index, before) in before {
            let after = self.links.get(index).cloned();
            let as_before = match (&before, &after) {
                (Some(before), Some(after)) => Some(Link { carrier: after.carrier, ..before.clone() }),
                _ => before.clone(),
            };
            if as_before != after {
                found.extend(before.into_iter().chain(after));
            }
        }
        found
    }
}
