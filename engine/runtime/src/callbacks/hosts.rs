//! Decides which host gets the next post. Pure.
//!
//! Posts are limited per host and in total. Hosts that are not known to respond promptly share a part of the total, so
//! that dead hosts never displace responsive ones. An [`eno_queue::WorkQueue`] would serve namespaces in turn, and knows
//! no limits per host.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use eno_core::Name;

/// Maximum concurrent posts.
pub const MAX_POSTS: usize = 512;
/// Maximum concurrent posts per host.
pub const MAX_POSTS_PER_HOST: usize = 8;
/// Maximum concurrent posts to all hosts of unknown pace.
pub const MAX_POSTS_UNKNOWN: usize = 256;
/// Maximum concurrent posts to all slow hosts.
pub const MAX_POSTS_SLOW: usize = 128;
/// Maximum concurrent posts per host of unknown or slow pace.
pub const MAX_POSTS_PER_OTHER_HOST: usize = 2;
/// A host is prompt if it responds within this time, whatever the response.
pub const PROMPT: Duration = Duration::from_secs(1);
/// Maximum hosts that are remembered without pending posts.
const MAX_IDLE_HOSTS: usize = 4096;

/// The hosts with callbacks, and those that had some.
#[derive(Debug, Default)]
pub struct Hosts {
    /// Known hosts.
    known: HashMap<Name, Host>,
    /// Hosts that may get another post, by pace.
    pools: [HostPool; Pace::ALL.len()],
    /// Index of the pool that is served next.
    next_pool: usize,
}

/// A post that may start.
#[derive(Debug)]
pub struct Started {
    /// The object whose callback is posted.
    pub object: Name,
    /// The host.
    pub host: Name,
    /// The host's pace now.
    pub pace: Pace,
}

#[derive(Debug, Default)]
struct HostPool {
    hosts: VecDeque<Name>,
    running: usize,
}

/// How fast a host responded last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    Prompt,
    #[default]
    Unknown,
    Slow,
}

impl Pace {
    const ALL: [Self; 3] = [Self::Prompt, Self::Unknown, Self::Slow];

    /// Maximum concurrent posts per host, and for all hosts of this pace.
    fn limits(self) -> (usize, usize) {
        match self {
            Self::Prompt => (MAX_POSTS_PER_HOST, MAX_POSTS),
            Self::Unknown => (MAX_POSTS_PER_OTHER_HOST, MAX_POSTS_UNKNOWN),
            Self::Slow => (MAX_POSTS_PER_OTHER_HOST, MAX_POSTS_SLOW),
        }
    }
}

#[derive(Debug, Default)]
struct Host {
    /// Objects with a callback to post.
    waiting: VecDeque<Name>,
    busy: usize,
    pace: Pace,
    /// The host is in a pool.
    in_pool: bool,
}

impl Host {
    fn may_have_more(&self) -> bool {
        !self.waiting.is_empty() && self.busy < self.pace.limits().0
    }
}

impl Hosts {
    /// The host failed before.
    pub fn mark_slow(&mut self, host: &Name) {
        self.known.entry(host.clone()).or_default().pace = Pace::Slow;
    }

    /// An object has a callback for the host.
    pub fn push(&mut self, host: &Name, object: Name) {
        self.known.entry(host.clone()).or_default().waiting.push_back(object);
        self.offer(host);
    }

    /// The object waits for no host any more.
    pub fn remove(&mut self, object: &Name) {
        for host in self.known.values_mut() {
            host.waiting.retain(|one| one != object);
        }
    }

    /// Puts a host into the pool of its pace if it may get another post, and forgets an idle one.
    pub fn offer(&mut self, name: &Name) {
        let Some(host) = self.known.get_mut(name) else { return };
        if !host.in_pool && host.may_have_more() {
            host.in_pool = true;
            self.pools[host.pace as usize].hosts.push_back(name.clone());
        }
        let idle = host.waiting.is_empty() && host.busy == 0;
        if idle && (host.pace == Pace::Unknown || self.known.len() > MAX_IDLE_HOSTS) {
            self.known.remove(name);
        }
    }

    /// The next post, if one may start. [`Self::ended`] follows, and then [`Self::offer`].
    pub fn start(&mut self) -> Option<Started> {
        while self.running() < MAX_POSTS {
            let count = self.pools.len();
            let pool = (0..count).map(|n| (self.next_pool + n) % count).find(|pool| {
                let HostPool { hosts, running } = &self.pools[*pool];
                !hosts.is_empty() && *running < Pace::ALL[*pool].limits().1
            })?;
            let pace = Pace::ALL[pool];
            let name = self.pools[pool].hosts.pop_front()?;
            let Some(host) = self.known.get_mut(&name) else { continue };
            host.in_pool = false;
            if host.pace != pace || !host.may_have_more() {
                self.offer(&name);
                continue;
            }
            let Some(object) = host.waiting.pop_front() else { continue };
            host.busy += 1;
            self.pools[pool].running += 1;
            self.next_pool = (pool + 1) % count;
            self.offer(&name);
            return Some(Started { object, host: name, pace });
        }
        None
    }

    fn running(&self) -> usize {
        self.pools.iter().map(|pool| pool.running).sum()
    }

    /// A post that was started at this pace ended. `took`: the time of the host's response; `None`: the host was not
    /// asked.
    pub fn ended(&mut self, host: &Name, pace: Pace, took: Option<Duration>) {
        self.pools[pace as usize].running -= 1;
        if let Some(host) = self.known.get_mut(host) {
            host.busy -= 1;
            if let Some(took) = took {
                host.pace = if took <= PROMPT { Pace::Prompt } else { Pace::Slow };
            }
        }
    }
}
