//! Converges one pod: reads the observed state and applies the steps of plans. Runs on a thread of its own.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use eno_schemas::{AppliedLink, LinkKind, Master, PodLink, PortVlans};

use super::Options;
use super::check::Refusal;
use super::host::HostView;
use super::ownership::{self, GROUP, OwnershipMark};
use super::plan::{self, DesiredPod, Observed, Op, Step, watched_sysctls};
use super::sysctl;
use crate::netlink::{
    Kind, Link, Namespace, NamespaceError, Netlink, NetlinkError, PROTOCOL, PROTOCOL_KERNEL, PortsVlans,
    Snapshot, Watch,
};

/// Why the work on a pod failed.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// A netlink request failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The namespace can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A sysctl can't be read or written.
    #[error("can't {operation} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        operation: &'static str,
        /// The sysctl's file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A TUN or TAP device can't be made.
    #[error("can't make the TUN device {name}: {message}")]
    Tun {
        /// The device's initial name.
        name: String,
        /// The reason.
        message: String,
    },
}

impl PodError {
    /// True when a retry may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Netlink(error) => error.retryable(),
            Self::Namespace(error) => error.retryable(),
            Self::File { source, .. } => {
                !matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput)
            }
            Self::Tun { .. } => true,
        }
    }
}

impl From<PodError> for Refusal {
    fn from(error: PodError) -> Self {
        Self { reason: error.to_string(), retryable: error.retryable() }
    }
}

/// Maximum namespaces nested in a pod's that are read.
const MAX_NESTED: usize = 16;

/// Access to the kernel; tests interrupt it.
pub trait Kernel<'a> {
    /// Reads the observed state.
    fn read(&mut self, desired: &DesiredPod<'_>, scope: ReadScope) -> Result<Observed<'a>, PodError>;

    /// Applies the steps in their order and returns one result for each. A failed step does not stop the others, with
    /// one exception: when an interface could not be made, or an original value not recorded, the later steps of that
    /// link are left out and count as successful.
    fn apply(&mut self, steps: &[Step]) -> Vec<Result<(), PodError>>;
}

/// How much of a pod is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// Everything: at the start, and for the final check.
    All,
    /// Interfaces and their settings only. After steps that only make interfaces nothing else has changed.
    Links,
}

/// The result for one pod.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Links that are as desired, by id.
    pub applied: BTreeMap<String, AppliedLink>,
    /// Links that are not realised, by id.
    pub refused: BTreeMap<String, Refusal>,
    /// A failure that belongs to no link.
    pub pod: Option<Refusal>,
    /// Host ends that are to be ports of an Open vSwitch bridge, by name: link id, bridge and VLANs.
    pub ovs: BTreeMap<String, (String, String, PortVlans)>,
    /// Ids of links that get their addresses once Open vSwitch has opened their port.
    pub awaiting_port: BTreeSet<String>,
    /// [`Plan::granted`](plan::Plan::granted) of the last plan.
    pub granted: BTreeSet<u32>,
    /// Number of steps that were applied.
    pub steps: usize,
}

impl Outcome {
    /// True when the pod is as desired.
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && self.pod.is_none() && self.awaiting_port.is_empty()
    }
}

/// Plans and applies steps until a plan is empty or its steps have failed.
pub fn converge<'a>(kernel: &mut impl Kernel<'a>, desired: &DesiredPod<'_>) -> Result<Outcome, PodError> {
    let mut outcome = Outcome::default();
    let mut created: BTreeSet<String> = BTreeSet::new();
    // Interfaces are made, marked, renamed and configured in successive plans; and links may be made on each other.
    let max_plans = 8 + 2 * desired.pod.links.len();
    let mut scope = ReadScope::All;
    for _ in 0..max_plans {
        let observed = kernel.read(desired, scope)?;
        let mut plan = plan::plan(desired, &observed, &outcome.refused);
        outcome.refused.append(&mut plan.refused);
        outcome.granted.clone_from(&plan.granted);
        if outcome.pod.is_some() {
            // Failed steps that belong to no link are not repeated.
            plan.steps.retain(|step| step.link.is_some());
        }
        if plan.steps.is_empty() && scope != ReadScope::All {
            scope = ReadScope::All;
            continue;
        }
        if plan.steps.is_empty() {
            // Interfaces that were made in this run and then refused are deleted.
            let rolled_back = roll_back(kernel, desired, &observed, &created, &outcome.refused)?;
            outcome.steps += rolled_back;
            outcome.applied = plan.applied;
            outcome.awaiting_port = plan.awaiting_port;
            outcome.ovs =
                plan.ovs.into_iter().filter(|(_, (id, ..))| outcome.applied.contains_key(id)).collect();
            return Ok(outcome);
        }
        outcome.steps += plan.steps.len();
        let makes = plan.steps.iter().all(|step| step.creates || matches!(step.op, Op::Host(_)));
        scope = if makes { ReadScope::Links } else { ReadScope::All };
        for (step, result) in plan.steps.iter().zip(kernel.apply(&plan.steps)) {
            if step.creates && result.is_ok() {
                created.extend(step.link.clone());
            }
            match (result, &step.link) {
                (Ok(()), _) => {}
                (Err(error), Some(id)) => {
                    outcome.refused.entry(id.clone()).or_insert_with(|| error.into());
                }
                (Err(error), None) => {
                    outcome.pod.get_or_insert_with(|| error.into());
                }
            }
        }
    }
    let observed = kernel.read(desired, ReadScope::All)?;
    let plan = plan::plan(desired, &observed, &outcome.refused);
    for step in &plan.steps {
        let refusal = Refusal::temporary("it does not stay as it is set");
        match &step.link {
            Some(id) => drop(outcome.refused.entry(id.clone()).or_insert(refusal)),
            None => drop(outcome.pod.get_or_insert(refusal)),
        }
    }
    roll_back(kernel, desired, &observed, &created, &outcome.refused)?;
    outcome.applied = plan.applied;
    outcome.ovs = plan.ovs;
    Ok(outcome)
}

/// Deletes interfaces that were made in this run and refused later. Returns the number of steps.
fn roll_back<'a>(
    kernel: &mut impl Kernel<'a>,
    desired: &DesiredPod<'_>,
    observed: &Observed<'_>,
    created: &BTreeSet<String>,
    refused: &BTreeMap<String, Refusal>,
) -> Result<usize, PodError> {
    let incomplete: BTreeSet<&str> =
        created.iter().filter(|id| refused.contains_key(*id)).map(String::as_str).collect();
    if incomplete.is_empty() {
        return Ok(0);
    }
    let mut rest = desired.pod.clone();
    rest.links.retain(|link| !incomplete.contains(link.id.as_str()));
    let plan = plan::plan(&DesiredPod { pod: &rest, ..*desired }, observed, refused);
    let steps: Vec<Step> = plan.steps.into_iter().filter(|step| step.link.is_none()).collect();
    kernel.apply(&steps).into_iter().collect::<Result<Vec<()>, PodError>>()?;
    // Discards the notifications of these changes.
    kernel.read(desired, ReadScope::Links)?;
    Ok(steps.len())
}

/// The real kernel: one socket in the host's and one in the pod's namespace, on a thread in the latter.
pub struct Sockets<'a> {
    /// A socket in the host's namespace.
    host: Netlink,
    /// A socket in the pod's namespace.
    pod: Netlink,
    /// The pod's namespace.
    namespace: Namespace,
    /// The host's interfaces.
    view: HostView<'a>,
    /// The settings of [`Pods`](super::Pods).
    options: &'a Options,
    /// True when the kernel has `IFA_PROTO`.
    has_address_protocol: bool,
    /// For making TUN devices.
    runtime: tokio::runtime::Handle,
    /// The pod's paused subscription, drained before each read so that ENO's own changes are not notified.
    watch: Option<Arc<Watch>>,
    /// The pod's state at the last read.
    observed: Snapshot,
    /// VLANs of host ends at the last read.
    vlans: PortsVlans,
    /// True when ENO's routes or rules may exist, or are desired. `None`: not read yet, and they exist only if
    /// interfaces of ENO do.
    has_routing: Option<bool>,
}

impl<'a> Sockets<'a> {
    /// Moves the calling thread to the pod's namespace. `host`: a socket in the host's. `is_new`: the pod has no routes
    /// or rules of ENO unless it has interfaces of ENO.
    pub fn open(
        host: Netlink,
        namespace: Namespace,
        view: HostView<'a>,
        options: &'a Options,
        runtime: tokio::runtime::Handle,
        watch: Option<Arc<Watch>>,
        is_new: bool,
    ) -> Result<Self, PodError> {
        namespace.enter()?;
        let pod = Netlink::open_in_pod()?;
        let (has_address_protocol, observed, vlans) =
            (has_address_protocol(), Snapshot::default(), PortsVlans::new());
        let has_routing = if is_new { None } else { Some(true) };
        Ok(Self {
            host,
            pod,
            namespace,
            view,
            options,
            has_address_protocol,
            runtime,
            watch,
            observed,
            vlans,
            has_routing,
        })
    }

    /// The sockets of host and pod, the host interfaces that were read again, and the VLANs of host ends.
    pub fn close(self) -> (Netlink, Netlink, BTreeMap<u32, Option<Link>>, PortsVlans) {
        (self.host, self.pod, self.view.into_refreshed(), self.vlans)
    }

    /// Sends a batch of steps to one namespace. Steps of `failed_links` are left out: a prerequisite of them has
    /// failed, and that is reported already.
    fn send(&mut self, steps: &[Step], failed_links: &BTreeSet<&str>) -> Vec<Result<(), PodError>> {
        let mut indexes = BTreeMap::new();
        let mut request = |step: &Step| {
            if step.link.as_deref().is_some_and(|id| failed_links.contains(id)) {
                return Ok(None);
            }
            Ok(match &step.op {
                Op::Host(request) | Op::Pod(request) | Op::RecordOriginal(request) => Some(request.clone()),
                Op::OnNewLink { name, setting } => {
                    let index = match indexes.get(name) {
                        Some(index) => *index,
                        None => self.pod.index_of(name)?,
                    };
                    indexes.insert(name.clone(), index);
                    Some(setting.request(name, index))
                }
                Op::Tun { .. } | Op::Announce { .. } | Op::Sysctl { .. } => None,
            })
        };
        let requests: Vec<Result<_, PodError>> = steps.iter().map(&mut request).collect();
        let sent = requests.iter().filter_map(|request| request.as_ref().ok()?.clone()).collect();
        let on_host = matches!(steps, [Step { op: Op::Host(_), .. }, ..]);
        let socket = if on_host { &mut self.host } else { &mut self.pod };
        let mut done = socket.batch(sent).into_iter();
        let result = |request| match request {
            Ok(Some(_)) => Ok(done.next().unwrap_or(Ok(()))?),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        requests.into_iter().map(result).collect()
    }

    /// Reads routes of ENO and the kernel, and rules, but only if ENO's may exist or are desired: nobody else makes routes and rules of ENO.
    fn read_routing(&mut self, desired: &DesiredPod<'_>) -> Result<(), PodError> {
        let ours = |link: &Link| {
            link.group == GROUP
                || matches!(ownership::read(desired.cluster, link), Some((_, OwnershipMark::Link(_))))
        };
        let wants = |link: &PodLink| !link.routes.is_empty() || !link.rules.is_empty();
        let wants = desired.pod.links.iter().any(wants);
        let links = self.observed.links.iter().any(ours);
        if self.has_routing.unwrap_or(links || wants) {
            // Routes are deleted with their interfaces.
            self.observed.routes.clear();
            if links {
                // Those of others may be a full table of the Internet.
                for protocol in [PROTOCOL, PROTOCOL_KERNEL] {
                    self.observed.routes.extend(self.pod.routes_of(protocol)?);
                }
            }
            self.observed.rules = self.pod.rules()?;
        }
        self.has_routing = Some(wants || self.observed.has_routing_of_ours());
        Ok(())
    }

    /// The interfaces of namespaces that the pod's has a number for: the kernel gives one to each namespace that the pod
    /// has moved an interface to. The host's, and those in the folder of namespaces, which other pods may have, are none
    /// of them. A namespace that can't be read is left out.
    fn read_nested(&mut self, host_number: Option<i32>) -> Result<Vec<(i32, Vec<Link>)>, PodError> {
        let mut others: BTreeSet<i32> = host_number.into_iter().collect();
        let Ok(entries) = fs::read_dir(&self.options.namespaces) else { return Ok(Vec::new()) };
        for entry in entries.flatten() {
            match Namespace::open(&entry.path()) {
                Ok(namespace) => others.extend(self.pod.namespace_number(namespace.fd())?),
                Err(NamespaceError::Foreign { .. }) => {}
                Err(NamespaceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                // It may be that of another pod, so nothing in it is taken for nested.
                Err(error) => return Err(error.into()),
            }
        }
        let numbers = self.pod.numbered_namespaces()?.into_iter().filter(|number| !others.contains(number));
        let numbers: Vec<i32> = numbers.take(MAX_NESTED).collect();
        let mut read = |number| Some((number, self.pod.links_in(number).ok()?));
        Ok(numbers.into_iter().filter_map(&mut read).collect())
    }

    /// Makes a persistent TUN or TAP device. It is opened without IFF_TUN_EXCL, since no other interface has this name.
    fn make_tun(
        &self,
        name: &str,
        tap: bool,
        owner: Option<u32>,
        group: Option<u32>,
    ) -> Result<(), PodError> {
        let failed = |message: String| PodError::Tun { name: name.to_owned(), message };
        let id = |id: u32| i32::try_from(id).map_err(|_| failed(format!("{id} is no user or group")));
        let _runtime = self.runtime.enter();
        let mut builder = tokio_tun::TunBuilder::new().name(name).persist();
        if tap {
            builder = builder.tap();
        }
        if let Some(owner) = owner {
            builder = builder.owner(id(owner)?);
        }
        if let Some(group) = group {
            builder = builder.group(id(group)?);
        }
        builder.build().map(drop).map_err(|error| failed(error.to_string()))
    }

    fn announce(&self, name: &str, v6: bool) {
        let key = if v6 { "ipv6/conf/ndisc_notify" } else { "ipv4/conf/arp_notify" };
        let written = sysctl::path(key, name).map(|path| self.write(&path, "1"));
        if let Some(Err(error)) = written {
            tracing::debug!(interface = name, error = %error, "its addresses are not announced");
        }
    }

    fn write(&self, path: &std::path::Path, value: &str) -> Result<(), PodError> {
        let path = self.options.proc_sys_net.join(path);
        fs::write(&path, value).map_err(|source| PodError::File { operation: "write", path, source })
    }
}

impl<'a> Kernel<'a> for Sockets<'a> {
    fn read(&mut self, desired: &DesiredPod<'_>, scope: ReadScope) -> Result<Observed<'a>, PodError> {
        // Notifications of changes up to here are discarded, later ones are not.
        if let Some(watch) = &self.watch {
            watch.drain();
        }
        if scope == ReadScope::All {
            // Addresses are read before interfaces: the kernel is busy for a while with an interface that has just come
            // up.
            self.observed.addresses = self.pod.addresses()?;
        }
        self.observed.links = self.pod.links()?;
        if scope == ReadScope::All {
            self.read_routing(desired)?;
        }
        let pod = self.observed.clone();
        let pod_number = self.host.namespace_number(self.namespace.fd())?;
        let host_number = self.pod.namespace_number(self.options.host.fd())?;
        let mut ends: BTreeMap<u32, Option<Link>> = BTreeMap::new();
        for link in pod.links.iter().filter(|link| link.kind == Kind::Veth && link.group == GROUP) {
            // The pod chooses the index that it names, which may be that of any interface of the host.
            if let Some(end) = link.parent.map(|index| self.host.link(index)).transpose()?.flatten()
                && plan::is_pair(link, &end, pod_number)
            {
                ends.insert(end.index, Some(end));
            }
        }
        let known: Vec<u32> =
            self.view.ends(desired.cluster, desired.uid).map(|(end, _)| end.index).collect();
        for index in known {
            if let btree_map::Entry::Vacant(unread) = ends.entry(index) {
                unread.insert(self.host.link(index)?);
            }
        }
        for (index, end) in ends {
            if let Some(master) = end.as_ref().and_then(|end| end.master)
                && self.view.link(master).is_none()
            {
                let found = self.host.link(master)?;
                self.view.refresh(master, found);
            }
            self.view.refresh(index, end);
        }
        let mut programs = BTreeMap::new();
        let own_ends: Vec<u32> =
            self.view.ends(desired.cluster, desired.uid).map(|(end, _)| end.index).collect();
        for index in own_ends {
            programs.insert(index, self.host.ingress_program(index)?);
        }
        let mut routed = BTreeMap::new();
        for remote in desired.pod.links.iter().filter_map(plan::routed_remote) {
            routed.extend(self.pod.route_to(remote)?.map(|index| (remote, index)));
        }
        let filtering = desired.pod.links.iter().any(|link| {
            matches!(&link.kind, LinkKind::Veth { master: Some(Master::Bridge { vlans: Some(_), .. }) })
        });
        self.vlans.clear();
        if filtering {
            let ports: Vec<u32> = self
                .view
                .ends(desired.cluster, desired.uid)
                .filter(|(end, _)| end.master.is_some())
                .map(|(end, _)| end.index)
                .collect();
            for port in ports {
                self.vlans.insert(port, self.host.port_vlans(port)?);
            }
        }
        let granted = plan::granted_parents(desired, &pod.links, host_number);
        let nested = if plan::revoked_parents(desired, &granted, &self.view).is_empty() {
            Vec::new()
        } else {
            self.read_nested(host_number)?
        };
        let mut sysctls = BTreeMap::new();
        for link in &desired.pod.links {
            let key = ownership::altname(desired.cluster, desired.uid, &link.id);
            let Some(found) = pod.links.iter().find(|found| found.altnames.contains(&key)) else { continue };
            for path in watched_sysctls(desired, link, found) {
                let whole = self.options.proc_sys_net.join(&path);
                match fs::read_to_string(&whole) {
                    Ok(value) => drop(sysctls.insert(path, value)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => return Err(PodError::File { operation: "read", path: whole, source }),
                }
            }
        }
        Ok(Observed {
            pod,
            host: self.view.clone(),
            vlans: self.vlans.clone(),
            sysctls,
            has_address_protocol: self.has_address_protocol,
            namespace: self.namespace.fd(),
            pod_number,
            host_number,
            routed,
            programs,
            nested,
        })
    }

    fn apply(&mut self, steps: &[Step]) -> Vec<Result<(), PodError>> {
        let mut results: Vec<Result<(), PodError>> = Vec::with_capacity(steps.len());
        for run in steps.chunk_by(is_same_batch) {
            let [first, ..] = run else { continue };
            let done = steps.iter().zip(&results);
            let is_prerequisite = |step: &Step| step.creates || matches!(step.op, Op::RecordOriginal(_));
            let failed_links = done.filter(|(step, result)| is_prerequisite(step) && result.is_err());
            let failed_links: BTreeSet<&str> =
                failed_links.filter_map(|(step, _)| step.link.as_deref()).collect();
            let left_out = first.link.as_deref().is_some_and(|id| failed_links.contains(id));
            match &first.op {
                Op::Host(_) | Op::Pod(_) | Op::RecordOriginal(_) | Op::OnNewLink { .. } => {
                    results.extend(self.send(run, &failed_links));
                }
                _ if left_out => results.push(Ok(())),
                Op::Announce { name, v6 } => {
                    self.announce(name, *v6);
                    results.push(Ok(()));
                }
                Op::Tun { name, tap, owner, group } => {
                    results.push(self.make_tun(name, *tap, *owner, *group));
                }
                Op::Sysctl { path, value } => results.push(self.write(path, value)),
            }
        }
        results
    }
}

/// True when two steps may be sent in one system call. Steps that follow the making of an interface wait for its
/// result: the name may belong to another interface.
fn is_same_batch(a: &Step, b: &Step) -> bool {
    a.creates == b.creates
        && matches!(
            (&a.op, &b.op),
            (Op::Host(_), Op::Host(_))
                | (Op::Pod(_), Op::Pod(_))
                | (Op::RecordOriginal(_), Op::RecordOriginal(_))
                | (Op::OnNewLink { .. }, Op::OnNewLink { .. })
        )
}

/// True when the kernel has `IFA_PROTO`, which Linux 5.18 introduced.
fn has_address_protocol() -> bool {
    let Ok(name) = nix::sys::utsname::uname() else { return false };
    let release = name.release().to_string_lossy().into_owned();
    let mut parts =
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|setting| setting.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(5), Some(18))
}
