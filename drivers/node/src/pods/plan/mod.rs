//! Computes the next steps for a pod from its observed and desired state. Pure.
//!
//! A [`Plan`] holds the steps that are possible at once: interfaces are made ([`link`]), and get their settings
//! ([`settings`]) as far as these do not depend on reading them. A step that needs more, such as the index of an
//! interface that is yet to be made, follows in the next plan, which is made from a new read. A link without steps is
//! as desired; an empty plan means convergence.

mod carrier;
mod content;
mod derived;
mod host_end;
mod link;
mod original;
mod path;
mod primary;
mod settings;

pub use content::{desired_sysctls, watched_sysctls};
pub use derived::{granted_parents, revoked_parents};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;

use eno_schemas::{AppliedLink, NodePod, PodLink, PortVlans};
use ipnet::IpNet;
use rtnetlink::packet_route::link::LinkAttribute;

use super::check::Refusal;
use super::host::HostView;
use super::ownership::{self, DELETION_GROUP, GROUP, OwnershipMark};
use crate::netlink::{IngressProgram, Kind, Link, PortsVlans, Request, Snapshot};

/// A pod and its desired state.
#[derive(Clone, Copy, Debug)]
pub struct DesiredPod<'a> {
    /// The cluster's name in ownership marks.
    pub cluster: &'a str,
    /// The pod's uid.
    pub uid: &'a str,
    /// PID of the pod's first container, in the host's PID namespace.
    pub pid: Option<u32>,
    /// The desired state; without links all interfaces of ENO are deleted.
    pub pod: &'a NodePod,
    /// Host ends that are open ports of Open vSwitch.
    pub open_ports: &'a BTreeSet<String>,
    /// [`Plan::granted`] of the last reconcile.
    pub granted: &'a BTreeSet<u32>,
}

/// The observed state of a pod.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// State of the pod's namespace. Routes and rules are read only if needed; of the routes, those of ENO and the
    /// kernel.
    pub pod: Snapshot,
    /// The host's interfaces.
    pub host: HostView<'a>,
    /// VLANs of host ends that are ports of VLAN-filtering bridges, by index.
    pub vlans: PortsVlans,
    /// Programs of host ends, by index.
    pub programs: BTreeMap<u32, IngressProgram>,
    /// Values of the sysctls that are desired or to be restored, by their path below `/proc/sys/net`. Files that do not
    /// exist are missing here.
    pub sysctls: BTreeMap<PathBuf, String>,
    /// True when the kernel has `IFA_PROTO` (since Linux 5.18), which marks ENO's addresses.
    pub has_address_protocol: bool,
    /// Descriptor of the pod's namespace, open in this process.
    pub namespace: RawFd,
    /// The number that the host's namespace has for the pod's ([`Netlink::namespace_number`](crate::netlink::Netlink)).
    pub pod_number: Option<i32>,
    /// The number that the pod's namespace has for the host's.
    pub host_number: Option<i32>,
    /// The pod's interfaces over which it reaches the remote ends of tunnels ([`routed_remote`]), by index.
    pub routed: BTreeMap<IpAddr, u32>,
    /// Interfaces of namespaces nested in the pod's, by the number that the pod's has for them. They are read only if
    /// parents were revoked ([`revoked_parents`]).
    pub nested: Vec<(i32, Vec<Link>)>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A request in the host's namespace.
    Host(Request),
    /// A request in the pod's namespace.
    Pod(Request),
    /// A request in the pod's namespace that records an original value. If it fails, nothing of the link is changed.
    RecordOriginal(Request),
    /// A setting of an interface in the pod that an earlier step makes. Its index is read after that step.
    OnNewLink {
        /// The interface's name.
        name: String,
        /// The setting.
        setting: Setting,
    },
    /// Make a persistent TUN or TAP device in the pod.
    Tun {
        /// Its initial name.
        name: String,
        /// TAP rather than TUN.
        tap: bool,
        /// `TUNSETOWNER`.
        owner: Option<u32>,
        /// `TUNSETGROUP`.
        group: Option<u32>,
    },
    /// Has the kernel announce the addresses of an interface when it comes up, so that neighbours update their caches.
    /// A failure of this refuses nothing.
    Announce {
        /// The interface's name.
        name: String,
        /// IPv6 rather than IPv4.
        v6: bool,
    },
    /// Writes a sysctl of the pod.
    Sysctl {
        /// Its path below `/proc/sys/net`.
        path: PathBuf,
        /// The value.
        value: String,
    },
}

/// A setting of an interface. It is planned alike for an interface that exists and for one that is yet to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Its alternative name, the ownership mark.
    Altname(String),
    /// Its group.
    Group(u32),
    /// Its MAC address.
    Mac([u8; 6]),
    /// Its MTU, in bytes.
    Mtu(u32),
    /// Its alias; empty: none.
    Alias(String),
    /// The index of the interface that it is a port of; 0: of none.
    Master(u32),
    /// An address.
    Address(IpNet),
    /// It is set up or down administratively.
    Up(bool),
}

impl Setting {
    /// The request for the interface `index`, called `name`.
    pub fn request(&self, name: &str, index: u32) -> Request {
        let set = |what, attribute| Request::set(name, index, what, vec![attribute]);
        match self {
            Self::Altname(altname) => Request::add_altname(name, index, altname),
            Self::Group(group) => set("group", LinkAttribute::Group(*group)),
            Self::Mac(mac) => set("MAC address", LinkAttribute::Address(mac.to_vec())),
            Self::Mtu(mtu) => set("MTU", LinkAttribute::Mtu(*mtu)),
            Self::Alias(alias) => set("alias", LinkAttribute::IfAlias(alias.clone())),
            Self::Master(master) => Request::set_master(name, index, *master),
            Self::Address(net) => Request::add_address(name, index, *net),
            Self::Up(up) => Request::set_up(name, index, *up),
        }
    }

    /// The request for an interface that was observed.
    pub fn of(&self, link: &Link) -> Request {
        self.request(&link.name, link.index)
    }
}

/// One change, and the link that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The id of the link that a failure refuses; `None`: the failure is the pod's.
    pub link: Option<String>,
    /// True when the step makes the link's interface.
    pub creates: bool,
    /// The change.
    pub op: Op,
}

/// The steps that are possible at once.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Steps, in the order of execution.
    pub steps: Vec<Step>,
    /// Links that are not realised, by id.
    pub refused: BTreeMap<String, Refusal>,
    /// Links that are as desired, by id.
    pub applied: BTreeMap<String, AppliedLink>,
    /// Host ends that are to be ports of an Open vSwitch bridge, by name: link id, bridge and VLANs.
    pub ovs: BTreeMap<String, (String, String, PortVlans)>,
    /// Ids of links that get their addresses once Open vSwitch has opened their port.
    pub awaiting_port: BTreeSet<String>,
    /// Indexes of the host's interfaces that ENO made macvlan or ipvlan interfaces on, as far as the pod may have others
    /// on them.
    pub granted: BTreeSet<u32>,
}

/// Computes the next steps. `failed`: links that are left as they are, since a step of them has failed.
pub fn plan(desired: &DesiredPod<'_>, observed: &Observed<'_>, failed: &BTreeMap<String, Refusal>) -> Plan {
    let mut planner = Planner {
        desired,
        observed,
        failed,
        ours: BTreeMap::new(),
        deleted: BTreeSet::new(),
        waiting: BTreeSet::new(),
        new_link_settings: Vec::new(),
        plan: Plan {
            granted: granted_parents(desired, &observed.pod.links, observed.host_number),
            ..Plan::default()
        },
    };
    planner.recognise_owned();
    planner.delete_unwanted_routing();
    planner.delete_unwanted_links();
    planner.delete_derived();
    for (at, link) in desired.pod.links.iter().enumerate() {
        if !failed.contains_key(&link.id) {
            planner.plan_link(at, link);
        }
    }
    planner.primary();
    planner.finish()
}

struct Planner<'a> {
    /// The desired interfaces of the pod.
    desired: &'a DesiredPod<'a>,
    /// The observed interfaces of the pod and the host.
    observed: &'a Observed<'a>,
    /// Links that are left as they are, by id.
    failed: &'a BTreeMap<String, Refusal>,
    /// Existing interfaces of links, by the link's id; also of links that failed.
    ours: BTreeMap<&'a str, &'a Link>,
    /// Indexes of the pod's interfaces that this plan deletes.
    deleted: BTreeSet<u32>,
    /// Ids of links that wait for something that this plan makes or deletes.
    waiting: BTreeSet<String>,
    /// Settings of interfaces that this plan makes; they come after all other steps.
    new_link_settings: Vec<Step>,
    /// The plan so far.
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

    /// The ownership mark of a link's interface.
    fn mark(&self, link: &PodLink) -> Setting {
        Setting::Altname(ownership::altname(self.desired.cluster, self.desired.uid, &link.id))
    }

    fn delete_link(&mut self, owner: Option<&str>, link: &Link) {
        if self.deleted.insert(link.index) {
            self.push(owner, Op::Pod(Request::delete_link(&link.name, link.index)));
        }
    }

    /// Finds the interfaces of links, and marks unfinished ones that fit a link.
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
                    self.in_pod(link, Setting::Group(GROUP).of(found));
                }
                self.in_pod(link, self.mark(link).of(found));
            }
        }
    }

    /// True for an interface that ENO made and did not mark: the agent died in between.
    fn is_unfinished(&self, found: &Link) -> bool {
        let is_stable_tun = matches!(found.kind, Kind::Tun { .. }) && ownership::is_stable_name(&found.name);
        (found.group == GROUP || is_stable_tun)
            && ownership::read(self.desired.cluster, found).is_none()
            && found.altnames.iter().all(|name| !name.starts_with("eno."))
    }

    /// Deletes ENO's undesired interfaces in the pod, and host ends without their peer in the pod.
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
            let other = self.ours.get(id).filter(|link| is_pair(link, end, observed.pod_number));
            if other.is_none() {
                let owner =
                    self.desired.pod.links.iter().find(|link| link.id == id).map(|link| link.id.as_str());
                self.push(owner, Op::Host(Request::delete_link(&end.name, end.index)));
            }
        }
    }

    fn finish(mut self) -> Plan {
        // Grouped by namespace, so that they can be sent in batches.
        self.new_link_settings.sort_by_key(|step| !matches!(step.op, Op::Host(_)));
        self.plan.steps.append(&mut self.new_link_settings);
        // Links that wait for each other, or for a failed link, make no progress.
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

/// The remote end of a tunnel whose path depends on the pod's routes: one with a desired MTU.
pub fn routed_remote(link: &PodLink) -> Option<IpAddr> {
    link.mtu.and_then(|_| path::remote(&link.kind))
}

/// True when these are the two ends of one veth pair. What the pod says of its interface is no proof: it chooses the
/// indexes in its namespaces. The host's kernel says in which namespace the peer of the host's interface is.
/// `pod_number`: [`Observed::pod_number`].
pub fn is_pair(pod: &Link, host: &Link, pod_number: Option<i32>) -> bool {
    pod.kind == Kind::Veth
        && host.kind == Kind::Veth
        && host.parent == Some(pod.index)
        && pod_number.is_some()
        && host.parent_namespace == pod_number
}
