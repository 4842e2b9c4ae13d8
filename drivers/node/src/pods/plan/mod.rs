//! What has to be done to a pod next, from what is there and what is wanted. Pure.
//!
//! A [`Plan`] holds what can be done at once: interfaces are made, and given what needs no look at them ([`Part`]).
//! What needs something that is not there yet (the index of an interface that is still to be made) comes with the next
//! one, made from a new look. A link without steps is as wanted; an empty plan is the end, and the proof.

mod content;
mod former;
mod link;
mod path;
mod primary;

pub use content::{wanted_sysctls, watched_sysctls};

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::path::PathBuf;

use eno_schemas::{AppliedLink, NodePod, PodLink, PortVlans};
use ipnet::IpNet;
use rtnetlink::packet_route::link::LinkAttribute;

use super::check::Refusal;
use super::host::HostView;
use super::mark::{self, GROUP, LEAVING, Mark};
use crate::netlink::{Kind, Link, PortsVlans, Request, Snapshot};

/// A pod and what it is to be given.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The cluster of the marks.
    pub cluster: &'a str,
    /// The pod's.
    pub uid: &'a str,
    /// Of its first container.
    pub pid: Option<u32>,
    /// What it is given; nothing: all of ours goes.
    pub pod: &'a NodePod,
    /// Host ends that are open ports of Open vSwitch.
    pub plugged: &'a BTreeSet<String>,
}

/// What is there.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// In the pod. Routes and rules only if any may be of interest.
    pub pod: Snapshot,
    /// On the host.
    pub host: HostView<'a>,
    /// VLANs of host ends that are ports of bridges which filter them.
    pub vlans: PortsVlans,
    /// Values of the sysctls that are wanted, or were, by their path below `/proc/sys/net`; those that are not there
    /// are missing here.
    pub sysctls: BTreeMap<PathBuf, String>,
    /// The kernel says whose an address is (`IFA_PROTO`, since 5.18).
    pub address_marks: bool,
    /// The pod's namespace, open in this process.
    pub namespace: RawFd,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// In the namespace of the host.
    Host(Request),
    /// In the pod's.
    Pod(Request),
    /// In the pod's: writes down what an interface has before it is changed. Where that fails nothing of the link is
    /// changed.
    Remember(Request),
    /// In the pod's, of an interface that a step before this one makes: only then it has an index.
    Made {
        /// What the interface is called.
        name: String,
        /// What it is given.
        part: Part,
    },
    /// Make a persistent TUN or TAP device in the pod.
    Tun {
        /// What it is called at first.
        name: String,
        /// TAP rather than TUN.
        tap: bool,
        /// `TUNSETOWNER`.
        owner: Option<u32>,
        /// `TUNSETGROUP`.
        group: Option<u32>,
    },
    /// Have the kernel announce the addresses of an interface when it comes up, to neighbours that know them elsewhere. That
    /// this fails refuses nothing.
    Announce {
        /// What the interface is called.
        name: String,
        /// IPv6 rather than IPv4.
        v6: bool,
    },
    /// Write below `/proc/sys/net`, in the pod.
    Sysctl {
        /// Below it.
        path: PathBuf,
        /// What.
        value: String,
    },
}

/// What an interface is given once it is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// One more name: the mark.
    Altname(String),
    /// Its alias.
    Alias(String),
    /// An address.
    Address(IpNet),
    /// It is set up.
    Up,
}

impl Part {
    /// For the interface `index`, called `name`.
    pub fn request(&self, name: &str, index: u32) -> Request {
        match self {
            Self::Altname(altname) => Request::add_altname(name, index, altname),
            Self::Alias(alias) => set_alias(name, index, alias.clone()),
            Self::Address(net) => Request::add_address(name, index, *net),
            Self::Up => Request::set_up(name, index, true),
        }
    }
}

/// One thing to do, and for which link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose failure it would be; absent: the pod's.
    pub link: Option<String>,
    /// It makes the link's interface.
    pub creates: bool,
    /// What.
    pub op: Op,
}

/// What can be done at once.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In this order.
    pub steps: Vec<Step>,
    /// What is not done, by id, and why.
    pub refused: BTreeMap<String, Refusal>,
    /// What is as wanted, by id.
    pub applied: BTreeMap<String, AppliedLink>,
    /// Host ends that the driver is to make ports of an Open vSwitch bridge: id, bridge and VLANs by their names.
    pub ovs: BTreeMap<String, (String, String, PortVlans)>,
    /// Ids of links that get their addresses once Open vSwitch has opened their port.
    pub held: BTreeSet<String>,
}

/// Works out the next steps. `failed`: links that are left as they are, since something of them did not work.
pub fn plan(wanted: &Wanted<'_>, seen: &Seen<'_>, failed: &BTreeMap<String, Refusal>) -> Plan {
    let mut planner = Planner {
        wanted,
        seen,
        failed,
        ours: BTreeMap::new(),
        doomed: BTreeSet::new(),
        waiting: BTreeSet::new(),
        parts: Vec::new(),
        plan: Plan::default(),
    };
    planner.recognise();
    planner.routing_that_goes();
    planner.links_that_go();
    for (at, link) in wanted.pod.links.iter().enumerate() {
        if !failed.contains_key(&link.id) {
            planner.consider(at, link);
        }
    }
    planner.primary();
    planner.finish()
}

struct Planner<'a> {
    wanted: &'a Wanted<'a>,
    seen: &'a Seen<'a>,
    failed: &'a BTreeMap<String, Refusal>,
    /// By id, also of links that failed.
    ours: BTreeMap<&'a str, &'a Link>,
    /// Interfaces in the pod that go.
    doomed: BTreeSet<u32>,
    /// Ids of links that need something which is being made.
    waiting: BTreeSet<String>,
    /// What comes after all other steps: of interfaces that those make.
    parts: Vec<Step>,
    plan: Plan,
}

impl Planner<'_> {
    fn push(&mut self, link: Option<&str>, op: Op) {
        self.plan.steps.push(Step { link: link.map(str::to_owned), creates: false, op });
    }

    fn in_pod(&mut self, link: &PodLink, request: Request) {
        self.push(Some(&link.id), Op::Pod(request));
    }

    fn on_host(&mut self, link: &PodLink, request: Request) {
        self.push(Some(&link.id), Op::Host(request));
    }

    fn create(&mut self, link: &PodLink, op: Op) {
        self.plan.steps.push(Step { link: Some(link.id.clone()), creates: true, op });
    }

    fn doom(&mut self, owner: Option<&str>, link: &Link) {
        if self.doomed.insert(link.index) {
            self.push(owner, Op::Pod(Request::delete_link(&link.name, link.index)));
        }
    }

    /// Finds ours, marks what is ours and isn't marked.
    fn recognise(&mut self) {
        let (cluster, uid) = (self.wanted.cluster, self.wanted.uid);
        let links = &self.wanted.pod.links;
        let keys: BTreeMap<String, &PodLink> =
            links.iter().map(|link| (mark::digest(&[&link.id]), link)).collect();
        for found in &self.seen.pod.links {
            if let Some((owner, Mark::Link(key))) = mark::read(cluster, found)
                && owner == uid
                && let Some(link) = keys.get(&key)
            {
                self.ours.insert(&link.id, found);
            }
        }
        let seen = self.seen;
        for found in &seen.pod.links {
            if !self.half_made(found) {
                continue;
            }
            let unfinished = links.iter().find(|link| {
                !self.ours.contains_key(link.id.as_str())
                    && super::kind::fits(&link.kind, &found.kind)
                    && (found.name == mark::stable_name(uid, &link.id)
                        || super::check::pod_name(&link.name, self.wanted.pid)
                            .is_ok_and(|name| name == found.name))
            });
            if let Some(link) = unfinished {
                self.ours.insert(&link.id, found);
                if self.failed.contains_key(&link.id) {
                    continue;
                }
                if found.group != GROUP {
                    self.in_pod(link, set_group(found, GROUP));
                }
                let name = mark::altname(cluster, uid, &link.id);
                self.in_pod(link, Request::add_altname(&found.name, found.index, &name));
            }
        }
    }

    /// Ours, but not marked: whoever made it died before.
    fn half_made(&self, found: &Link) -> bool {
        let born_so = matches!(found.kind, Kind::Tun { .. }) && mark::is_stable_name(&found.name);
        (found.group == GROUP || born_so)
            && mark::read(self.wanted.cluster, found).is_none()
            && found.altnames.iter().all(|name| !name.starts_with("eno."))
    }

    /// Interfaces of ours in the pod that nothing wants, and host ends whose other end is elsewhere.
    fn links_that_go(&mut self) {
        let kept: BTreeSet<u32> = self.ours.values().map(|link| link.index).collect();
        for found in &self.seen.pod.links {
            let marked = mark::read(self.wanted.cluster, found)
                .is_some_and(|(uid, mark)| uid == self.wanted.uid && matches!(mark, Mark::Link(_)));
            let ours = marked || self.half_made(found) || found.group == LEAVING;
            if ours && !kept.contains(&found.index) {
                self.doom(None, found);
            }
        }
        let seen = self.seen;
        for (end, id) in seen.host.ends(self.wanted.cluster, self.wanted.uid) {
            let other = self.ours.get(id).filter(|link| paired(link, end));
            if other.is_none() {
                let owner =
                    self.wanted.pod.links.iter().find(|link| link.id == id).map(|link| link.id.as_str());
                self.push(owner, Op::Host(Request::delete_link(&end.name, end.index)));
            }
        }
    }

    fn finish(mut self) -> Plan {
        // One namespace after the other.
        self.parts.sort_by_key(|step| !matches!(step.op, Op::Host(_)));
        self.plan.steps.append(&mut self.parts);
        // Two that wait for each other, or for what failed: nothing moves any more.
        if self.plan.steps.is_empty() {
            for id in std::mem::take(&mut self.waiting) {
                let refusal = Refusal::for_now("what it is made on, or a member of, is not there");
                self.plan.refused.insert(id, refusal);
            }
        }
        for step in &self.plan.steps {
            if let Some(id) = &step.link {
                self.plan.applied.remove(id);
            }
        }
        for id in self.plan.refused.keys().chain(&self.waiting) {
            self.plan.applied.remove(id);
            self.plan.ovs.retain(|_, (owner, ..)| owner != id);
        }
        self.plan
    }
}

/// What carries the link, and how much, is told by the pod's routes.
pub fn is_measured_by_routes(link: &PodLink) -> bool {
    link.mtu.is_some() && path::overhead(&link.kind).is_some()
}

/// The two ends of one pair.
fn paired(pod: &Link, host: &Link) -> bool {
    pod.kind == Kind::Veth
        && host.kind == Kind::Veth
        && pod.parent == Some(host.index)
        && host.parent == Some(pod.index)
        && pod.parent_namespace.is_some()
}

fn set_group(link: &Link, group: u32) -> Request {
    Request::set(&link.name, link.index, "group", vec![LinkAttribute::Group(group)])
}

fn set_alias(name: &str, index: u32, alias: String) -> Request {
    Request::set(name, index, "alias", vec![LinkAttribute::IfAlias(alias)])
}
