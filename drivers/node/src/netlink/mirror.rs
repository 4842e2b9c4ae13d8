//! The interfaces of a namespace, kept as they are by what the kernel tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Link, Netlink, NetlinkError, PortVlan, PortsVlans, Watch};

/// Interfaces of one namespace.
#[derive(Clone, Debug, Default)]
pub struct Links {
    by_index: BTreeMap<u32, Link>,
    by_name: BTreeMap<String, u32>,
}

impl Links {
    /// That of this index.
    pub fn get(&self, index: u32) -> Option<&Link> {
        self.by_index.get(&index)
    }

    /// That called so.
    pub fn named(&self, name: &str) -> Option<&Link> {
        self.get(*self.by_name.get(name)?)
    }

    /// Ascending by index.
    pub fn iter(&self) -> impl Iterator<Item = &Link> {
        self.by_index.values()
    }

    fn set(&mut self, index: u32, link: Option<Link>) {
        // Another may have the name of the old one by now.
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

/// Interfaces of a namespace, and the socket on which the kernel tells what becomes of them.
///
/// Of an interface that is down it does not tell that its alias, its group, an alternative name, its IPv6 mode or what
/// is particular to its kind has changed (`netdev_state_change` in net/core/dev.c), nor, of the end of a pair that is
/// made first, which one the other end is. Who changes those looks itself ([`Self::put`]); what others change is found
/// by [`Self::list`]. VLANs of ports are not listed: those are heard of that were put in.
#[derive(Debug)]
pub struct Mirror {
    watch: Arc<Watch>,
    links: Arc<Links>,
    /// What was looked at since, in this order: taken in later, when as a rule nobody holds the list any more.
    looked: Vec<(u32, Option<Link>)>,
    /// Of the ports whose VLANs were looked at.
    vlans: PortsVlans,
}

impl Mirror {
    /// Of the namespace of the calling thread, in which `netlink` works as well.
    pub fn open(netlink: &mut Netlink) -> Result<Self, NetlinkError> {
        let watch = Watch::links().map_err(|source| NetlinkError::Socket {
            operation: "listen to what becomes of interfaces".to_owned(),
            source,
        })?;
        let links = Arc::new(netlink.links()?.into_iter().collect());
        Ok(Self { watch: Arc::new(watch), links, looked: Vec::new(), vlans: PortsVlans::new() })
    }

    /// Readable when something was told.
    pub fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// As of when this was last brought up to date.
    pub fn links(&mut self) -> &Arc<Links> {
        self.take_in();
        &self.links
    }

    /// Looks at all of them, but at no VLANs of ports. Returns those that are different from what was known, as they were
    /// and as they are.
    pub fn list(&mut self, netlink: &mut Netlink) -> Result<Vec<Link>, NetlinkError> {
        // What is told from now on is newer than the list.
        self.watch.drain();
        self.take_in();
        self.vlans.clear();
        let old = std::mem::replace(&mut self.links, Arc::new(netlink.links()?.into_iter().collect()));
        let indexes = old.by_index.keys().chain(self.links.by_index.keys());
        Ok(self.different(indexes.map(|index| (*index, old.get(*index).cloned())).collect()))
    }

    /// Takes in what was told. Returns the interfaces that are different now, as they were and as they are. `None`:
    /// more was told than fits into the socket, and some of it is lost.
    pub fn hear(&mut self) -> Option<Vec<Link>> {
        self.take_in();
        let told = self.watch.read_links(|port| self.vlans.contains_key(&port))?;
        let mut before = BTreeMap::new();
        for (index, link) in told.links {
            let links = Arc::make_mut(&mut self.links);
            before.insert(index, links.get(index).cloned());
            if link.is_none() {
                self.vlans.remove(&index);
            }
            links.set(index, link);
        }
        let mut different = self.different(before);
        for (index, vlans) in told.vlans {
            if let Some(known) = self.vlans.get_mut(&index).filter(|known| **known != vlans) {
                *known = vlans;
                different.extend(self.links.get(index).cloned());
            }
        }
        Some(different)
    }

    /// One was looked at: it is like that, or gone. `vlans`: those of a port, if they are of interest.
    pub fn put(&mut self, index: u32, link: Option<Link>, vlans: Option<Vec<PortVlan>>) {
        self.looked.push((index, link));
        match vlans {
            Some(vlans) => self.vlans.insert(index, vlans),
            None => self.vlans.remove(&index),
        };
    }

    fn take_in(&mut self) {
        if !self.looked.is_empty() {
            let links = Arc::make_mut(&mut self.links);
            self.looked.drain(..).for_each(|(index, link)| links.set(index, link));
        }
    }

    /// The other end going up or down, or the kernel being done with what it began, makes none different.
    fn different(&self, before: BTreeMap<u32, Option<Link>>) -> Vec<Link> {
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
