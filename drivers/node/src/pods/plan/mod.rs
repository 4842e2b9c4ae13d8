//! What has to be done to a pod next, from what is there and what is wanted. Pure.
//!
//! A [`Plan`] holds what can be done at once: interfaces are made, and given what needs no look at them ([`Setting`]).
//! What needs something that is not there yet (the index of an interface that is still to be made) comes with the next
//! one, made from a new look. A link without steps is as wanted; an empty plan is the end, and the proof.

mod content;
mod link;
mod original;
mod path;
mod primary;

pub use content::{desired_sysctls, watched_sysctls};

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;
use std::path::PathBuf;

use eno_schemas::{AppliedLink, NodePod, PodLink, PortVlans};
use ipnet::IpNet;
use rtnetlink::packet_route::link::LinkAttribute;

use super::check::Refusal;
use super::host::HostView;
use super::ownership::{self, DELETION_GROUP, GROUP, OwnershipMark};
use crate::netlink::{Kind, Link, PortsVlans, Request, Snapshot};

/// A pod and what it is to be given.
#[derive(Clone, Copy, Debug)]
pub struct DesiredPod<'a> {
    /// The cluster of the marks.
    pub cluster: &'a str,
    /// The pod's.
    pub uid: &'a str,
    /// Of its first container.
    pub pid: Option<u32>,
    /// What it is given; nothing: all of ours goes.
    pub pod: &'a NodePod,
    /// Host ends that are open ports of Open vSwitch.
    pub open_ports: &'a BTreeSet<String>,
}

/// What is there.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
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
    pub has_address_protocol: bool,
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
    RecordOriginal(Request),
    /// In the pod's, of an interface that a step before this one makes: only then it has an index.
    OnNewLink {
        /// What the interface is called.
        name: String,
        /// What it is given.
        setting: Setting,
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
pub enum Setting {
    /// One more name: the mark.
    Altname(String),
    /// Its alias.
    Alias(String),
    /// An address.
    Address(IpNet),
    /// It is set up.
    Up,
}

impl Setting {
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
    pub awaiting_port: BTreeSet<String>,
}

/// Works out the next steps. `failed`: links that are left as they are, since something of them did not work.
pub fn plan(desired: &DesiredPod<'_>, observed: &Observed<'_>, failed: &BTreeMap<String, Refusal>) -> Plan {
    let mut planner = Planner {
        desired,
        observed,
        failed,
        ours: BTreeMap::new(),
        deleted: BTreeSet::new(),
        waiting: BTreeSet::new(),
        new_link_settings: Vec::new(),
        plan: Plan::default(),
    };
    planner.recognise_owned();
    planner.delete_unwanted_routing();
    planner.delete_unwanted_links();
    for (at, link) in desired.pod.links.iter().enumerate() {
        if !failed.contains_key(&link.id) {
            planner.plan_link(at, link);
        }
    }
    planner.primary();
    planner.finish()
}

struct Planner<'a> {
    desired: &'a DesiredPod<'a>,
    observed: &'a Observed<'a>,
    failed: &'a BTreeMap<String, Refusal>,
    /// By id, also of links that failed.
    ours: BTreeMap<&'a str, &'a Link>,
    /// Interfaces in the pod that go.
    deleted: BTreeSet<u32>,
    /// Ids of links that need something which is being made.
    waiting: BTreeSet<String>,
    /// What comes after all other steps: of interfaces that those make.
    new_link_settings: Vec<Step>,
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

    fn delete_link(&mut self, owner: Option<&str>, link: &Link) {
        if self.deleted.insert(link.index) {
            self.push(owner, Op::Pod(Request::delete_link(&link.name, link.index)));
        }
    }

    /// Finds ours, marks what is ours and isn't marked.
    fn recognise_owned(&mut self) {
        let (cluster, uid) = (self.desired.cluster, self.desired.uid);
        let links = &self.desired.pod.links;
        let keys: BTreeMap<String, &PodLink> =
            links.iter().map(|link| (ownership::digest(&[&link.id]), link)).collect();
        for found in &self.observed.pod.links {
            if let Some((owner, OwnershipMark::Link(key))) = ownership::read(cluster, found)
                && owner == uid
                && let Some(link) = keys.get(&key)
            {
                self.ours.insert(&link.id, found);
            }
        }
        let observed = self.observed;
        for found in &observed.pod.links {
            if !self.is_unfinished(found) {
                continue;
            }
            let unfinished = links.iter().find(|link| {
                !self.ours.contains_key(link.id.as_str())
                    && super::kind::matches(&link.kind, &found.kind)
                    && (found.name == ownership::stable_name(uid, &link.id)
                        || super::check::pod_name(&link.name, self.desired.pid)
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
                let name = ownership::altname(cluster, uid, &link.id);
                self.in_pod(link, Request::add_altname(&found.name, found.index, &name));
            }
        }
    }

    /// Ours, but not marked: whoever made it died before.
    fn is_unfinished(&self, found: &Link) -> bool {
        let is_stable_tun = matches!(found.kind, Kind::Tun { .. }) && ownership::is_stable_name(&found.name);
        (found.group == GROUP || is_stable_tun)
            && ownership::read(self.desired.cluster, found).is_none()
            && found.altnames.iter().all(|name| !name.starts_with("eno."))
    }

    /// Interfaces of ours in the pod that nothing wants, and host ends whose other end is elsewhere.
    fn delete_unwanted_links(&mut self) {
        let kept: BTreeSet<u32> = self.ours.values().map(|link| link.index).collect();
        for found in &self.observed.pod.links {
            let marked = ownership::read(self.desired.cluster, found)
                .is_some_and(|(uid, kind)| uid == self.desired.uid && matches!(kind, OwnershipMark::Link(_)));
            let ours = marked || self.is_unfinished(found) || found.group == DELETION_GROUP;
            if ours && !kept.contains(&found.index) {
                self.delete_link(None, found);
            }
        }
        let observed = self.observed;
        for (end, id) in observed.host.ends(self.desired.cluster, self.desired.uid) {
            let other = self.ours.get(id).filter(|link| paired(link, end));
            if other.is_none() {
                let owner =
                    self.desired.pod.links.iter().find(|link| link.id == id).map(|link| link.id.as_str());
                self.push(owner, Op::Host(Request::delete_link(&end.name, end.index)));
            }
        }
    }

    fn finish(mut self) -> Plan {
        // One namespace after the other.
        self.new_link_settings.sort_by_key(|step| !matches!(step.op, Op::Host(_)));
        self.plan.steps.append(&mut self.new_link_settings);
        // Two that wait for each other, or for what failed: nothing moves any more.
        if self.plan.steps.is_empty() {
            for id in std::mem::take(&mut self.waiting) {
                let refusal = Refusal::temporary("what it is made on, or a member of, is not there");
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
pub fn is_path_routed(link: &PodLink) -> bool {
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
