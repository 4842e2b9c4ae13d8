//! The kernel's side of one pod: looks, and does the steps of plans. Runs on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use eno_schemas::{AppliedLink, LinkKind, Master, PodLink, PortVlans};

use super::check::Refusal;
use super::host::HostView;
use super::mark::{self, GROUP, Mark};
use super::plan::{self, Op, Seen, Step, Wanted, watched_sysctls};
use super::sysctl;
use crate::netlink::{
    Kind, Link, Namespace, NamespaceError, Netlink, NetlinkError, PortsVlans, Snapshot, Watch,
};

/// What went wrong while working on a pod.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The namespace can't be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A setting can't be read or written.
    #[error("can't {operation} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        operation: &'static str,
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A TUN or TAP device can't be made.
    #[error("can't make the TUN device {name}: {message}")]
    Tun {
        /// What it was to be called at first.
        name: String,
        /// Why.
        message: String,
    },
}

impl Trouble {
    /// It may pass by itself.
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

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Self {
        Self { reason: trouble.to_string(), retryable: trouble.retryable() }
    }
}

/// What looks and acts; tests put something in between.
pub trait Kernel<'a> {
    /// What is there.
    fn look(&mut self, wanted: &Wanted<'_>, at: Look) -> Result<Seen<'a>, Trouble>;

    /// Does the steps in their order; one that fails stops none of the others, but for those of a link whose interface
    /// could not be made, or of which it could not be written down what it had: their results are good.
    fn act(&mut self, steps: &[Step]) -> Vec<Result<(), Trouble>>;
}

/// How much of a pod is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All of it: at the beginning, and for the proof at the end.
    All,
    /// Interfaces, and what their settings are: of the rest nothing can have changed since interfaces were made.
    Made,
}

/// What came of a pod.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By id.
    pub applied: BTreeMap<String, AppliedLink>,
    /// By id.
    pub refused: BTreeMap<String, Refusal>,
    /// What can't be done of no link in particular.
    pub pod: Option<Refusal>,
    /// Host ends that are to be ports of an Open vSwitch bridge: id, bridge and VLANs by their names.
    pub ovs: BTreeMap<String, (String, String, PortVlans)>,
    /// Ids of links that get their addresses once Open vSwitch has opened their port.
    pub held: BTreeSet<String>,
    /// How many steps were done.
    pub steps: usize,
}

/// Plans and acts until there is nothing left to do, or what is left does not work.
pub fn converge<'a>(kernel: &mut impl Kernel<'a>, wanted: &Wanted<'_>) -> Result<Outcome, Trouble> {
    let mut outcome = Outcome::default();
    let mut created: BTreeSet<String> = BTreeSet::new();
    // Making, marking, renaming, filling and what follows from that; and one interface made on the other.
    let passes = 8 + 2 * wanted.pod.links.len();
    let mut at = Look::All;
    for _ in 0..passes {
        let seen = kernel.look(wanted, at)?;
        let mut plan = plan::plan(wanted, &seen, &outcome.refused);
        outcome.refused.append(&mut plan.refused);
        if outcome.pod.is_some() {
            // What can't be undone is not tried over and over.
            plan.steps.retain(|step| step.link.is_some());
        }
        if plan.steps.is_empty() && at != Look::All {
            at = Look::All;
            continue;
        }
        if plan.steps.is_empty() {
            // What was begun here and can't be finished does not stay.
            let undone = undo(kernel, wanted, &seen, &created, &outcome.refused)?;
            outcome.steps += undone;
            outcome.applied = plan.applied;
            outcome.held = plan.held;
            outcome.ovs =
                plan.ovs.into_iter().filter(|(_, (id, ..))| outcome.applied.contains_key(id)).collect();
            return Ok(outcome);
        }
        outcome.steps += plan.steps.len();
        let makes = plan.steps.iter().all(|step| step.creates || matches!(step.op, Op::Host(_)));
        at = if makes { Look::Made } else { Look::All };
        for (step, result) in plan.steps.iter().zip(kernel.act(&plan.steps)) {
            if step.creates && result.is_ok() {
                created.extend(step.link.clone());
            }
            match (result, &step.link) {
                (Ok(()), _) => {}
                (Err(trouble), Some(id)) => {
                    outcome.refused.entry(id.clone()).or_insert_with(|| trouble.into());
                }
                (Err(trouble), None) => {
                    outcome.pod.get_or_insert_with(|| trouble.into());
                }
            }
        }
    }
    let seen = kernel.look(wanted, Look::All)?;
    let plan = plan::plan(wanted, &seen, &outcome.refused);
    for step in &plan.steps {
        let refusal = Refusal::for_now("it does not stay as it is set");
        match &step.link {
            Some(id) => drop(outcome.refused.entry(id.clone()).or_insert(refusal)),
            None => drop(outcome.pod.get_or_insert(refusal)),
        }
    }
    undo(kernel, wanted, &seen, &created, &outcome.refused)?;
    outcome.applied = plan.applied;
    outcome.ovs = plan.ovs;
    Ok(outcome)
}

/// Deletes what was made in this run and refused later.
fn undo<'a>(
    kernel: &mut impl Kernel<'a>,
    wanted: &Wanted<'_>,
    seen: &Seen<'_>,
    created: &BTreeSet<String>,
    refused: &BTreeMap<String, Refusal>,
) -> Result<usize, Trouble> {
    let half: BTreeSet<&str> =
        created.iter().filter(|id| refused.contains_key(*id)).map(String::as_str).collect();
    if half.is_empty() {
        return Ok(0);
    }
    let mut rest = wanted.pod.clone();
    rest.links.retain(|link| !half.contains(link.id.as_str()));
    let plan = plan::plan(&Wanted { pod: &rest, ..*wanted }, seen, refused);
    let steps: Vec<Step> = plan.steps.into_iter().filter(|step| step.link.is_none()).collect();
    kernel.act(&steps).into_iter().collect::<Result<Vec<()>, Trouble>>()?;
    // What has been done is no news.
    kernel.look(wanted, Look::Made)?;
    Ok(steps.len())
}

/// The real one: two sockets, one in each namespace, and a thread that is in the pod's.
pub struct Sockets<'a> {
    host: Netlink,
    pod: Netlink,
    namespace: Namespace,
    view: HostView<'a>,
    proc_sys_net: PathBuf,
    address_marks: bool,
    runtime: tokio::runtime::Handle,
    /// What is told in the pod's namespace is not heard while this is at work.
    quiet: Option<Arc<Watch>>,
    /// Of the last look.
    seen: Snapshot,
    /// Of the last look.
    vlans: PortsVlans,
    /// Whether there may be routes or rules of ours, or are to be; `None`: not looked at yet, and there are none of ours
    /// without interfaces of ours.
    routing: Option<bool>,
}

impl<'a> Sockets<'a> {
    /// Moves the calling thread to the pod's namespace. `host` works in the host's. `fresh`: the pod has nothing of ours
    /// unless it has interfaces of ours.
    pub fn open(
        host: Netlink,
        namespace: Namespace,
        view: HostView<'a>,
        proc_sys_net: PathBuf,
        runtime: tokio::runtime::Handle,
        quiet: Option<Arc<Watch>>,
        fresh: bool,
    ) -> Result<Self, Trouble> {
        namespace.enter()?;
        let pod = Netlink::open()?;
        let (address_marks, seen, vlans) = (address_marks(), Snapshot::default(), PortsVlans::new());
        let routing = if fresh { None } else { Some(true) };
        Ok(Self {
            host,
            pod,
            namespace,
            view,
            proc_sys_net,
            address_marks,
            runtime,
            quiet,
            seen,
            vlans,
            routing,
        })
    }

    /// The sockets, the host's and the pod's, and what was seen of the host's interfaces.
    pub fn close(self) -> (Netlink, Netlink, BTreeMap<u32, Option<Link>>, PortsVlans) {
        (self.host, self.pod, self.view.into_fresh(), self.vlans)
    }

    /// Requests to one namespace, in one system call. `without`: links of which a step that all others need did not work,
    /// as was told already; those are left out.
    fn send(&mut self, steps: &[Step], without: &BTreeSet<&str>) -> Vec<Result<(), Trouble>> {
        let mut indexes = BTreeMap::new();
        let mut request = |step: &Step| {
            if step.link.as_deref().is_some_and(|id| without.contains(id)) {
                return Ok(None);
            }
            Ok(match &step.op {
                Op::Host(request) | Op::Pod(request) | Op::Remember(request) => Some(request.clone()),
                Op::Made { name, part } => {
                    let index = match indexes.get(name) {
                        Some(index) => *index,
                        None => self.pod.index_of(name)?,
                    };
                    indexes.insert(name.clone(), index);
                    Some(part.request(name, index))
                }
                Op::Tun { .. } | Op::Announce { .. } | Op::Sysctl { .. } => None,
            })
        };
        let requests: Vec<Result<_, Trouble>> = steps.iter().map(&mut request).collect();
        let sent = requests.iter().filter_map(|request| request.as_ref().ok()?.clone()).collect();
        let on_host = matches!(steps, [Step { op: Op::Host(_), .. }, ..]);
        let socket = if on_host { &mut self.host } else { &mut self.pod };
        let mut done = socket.batch(sent).into_iter();
        let result = |request| match request {
            Ok(Some(_)) => Ok(done.next().unwrap_or(Ok(()))?),
            Ok(None) => Ok(()),
            Err(trouble) => Err(trouble),
        };
        requests.into_iter().map(result).collect()
    }

    /// Only we make routes and rules of ours: where there were none and none are wanted there are none.
    fn look_at_routing(&mut self, wanted: &Wanted<'_>) -> Result<(), Trouble> {
        let ours = |link: &Link| {
            link.group == GROUP || matches!(mark::read(wanted.cluster, link), Some((_, Mark::Link(_))))
        };
        let wants = |link: &PodLink| {
            !link.routes.is_empty() || !link.rules.is_empty() || plan::is_measured_by_routes(link)
        };
        let wants = wanted.pod.links.iter().any(wants);
        let links = self.seen.links.iter().any(ours);
        if self.routing.unwrap_or(links || wants) {
            // Routes go with their interfaces.
            self.seen.routes = if links { self.pod.routes()? } else { Vec::new() };
            self.seen.rules = self.pod.rules()?;
        }
        self.routing = Some(wants || self.seen.has_routing_of_ours());
        Ok(())
    }

    /// Opened without IFF_TUN_EXCL: no other interface has this name.
    fn make_tun(&self, name: &str, tap: bool, owner: Option<u32>, group: Option<u32>) -> Result<(), Trouble> {
        let failed = |message: String| Trouble::Tun { name: name.to_owned(), message };
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
        if let Some(Err(trouble)) = written {
            tracing::debug!(interface = name, error = %trouble, "its addresses are not announced");
        }
    }

    fn write(&self, path: &std::path::Path, value: &str) -> Result<(), Trouble> {
        let path = self.proc_sys_net.join(path);
        fs::write(&path, value).map_err(|source| Trouble::File { operation: "write", path, source })
    }
}

impl<'a> Kernel<'a> for Sockets<'a> {
    fn look(&mut self, wanted: &Wanted<'_>, at: Look) -> Result<Seen<'a>, Trouble> {
        // What has been done so far is no news; what comes after this look is.
        if let Some(quiet) = &self.quiet {
            quiet.drain();
        }
        if at == Look::All {
            // Interfaces come after them: one that has just come up is busy in the kernel for a while.
            self.seen.addresses = self.pod.addresses()?;
        }
        self.seen.links = self.pod.links()?;
        if at == Look::All {
            self.look_at_routing(wanted)?;
        }
        let pod = self.seen.clone();
        let ends: BTreeSet<u32> = pod
            .links
            .iter()
            .filter(|link| link.kind == Kind::Veth && link.group == GROUP)
            .filter_map(|link| link.parent)
            .chain(self.view.ends(wanted.cluster, wanted.uid).map(|(end, _)| end.index))
            .collect();
        for index in ends {
            let end = self.host.link(index)?;
            if let Some(master) = end.as_ref().and_then(|end| end.master)
                && self.view.link(master).is_none()
            {
                let found = self.host.link(master)?;
                self.view.refresh(master, found);
            }
            self.view.refresh(index, end);
        }
        let filtering = wanted.pod.links.iter().any(|link| {
            matches!(&link.kind, LinkKind::Veth { master: Some(Master::Bridge { vlans: Some(_), .. }) })
        });
        self.vlans.clear();
        if filtering {
            let ports: Vec<u32> = self
                .view
                .ends(wanted.cluster, wanted.uid)
                .filter(|(end, _)| end.master.is_some())
                .map(|(end, _)| end.index)
                .collect();
            for port in ports {
                self.vlans.insert(port, self.host.port_vlans(port)?);
            }
        }
        let mut sysctls = BTreeMap::new();
        for link in &wanted.pod.links {
            let key = mark::altname(wanted.cluster, wanted.uid, &link.id);
            let Some(found) = pod.links.iter().find(|found| found.altnames.contains(&key)) else { continue };
            for path in watched_sysctls(wanted, link, found) {
                let whole = self.proc_sys_net.join(&path);
                match fs::read_to_string(&whole) {
                    Ok(value) => drop(sysctls.insert(path, value)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => return Err(Trouble::File { operation: "read", path: whole, source }),
                }
            }
        }
        Ok(Seen {
            pod,
            host: self.view.clone(),
            vlans: self.vlans.clone(),
            sysctls,
            address_marks: self.address_marks,
            namespace: self.namespace.fd(),
        })
    }

    fn act(&mut self, steps: &[Step]) -> Vec<Result<(), Trouble>> {
        let mut results: Vec<Result<(), Trouble>> = Vec::with_capacity(steps.len());
        for run in steps.chunk_by(together) {
            let [first, ..] = run else { continue };
            let done = steps.iter().zip(&results);
            let first_of_all = |step: &Step| step.creates || matches!(step.op, Op::Remember(_));
            let without = done.filter(|(step, result)| first_of_all(step) && result.is_err());
            let without: BTreeSet<&str> = without.filter_map(|(step, _)| step.link.as_deref()).collect();
            let left_out = first.link.as_deref().is_some_and(|id| without.contains(id));
            match &first.op {
                Op::Host(_) | Op::Pod(_) | Op::Remember(_) | Op::Made { .. } => {
                    results.extend(self.send(run, &without));
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

/// They may go in one system call. What comes after an interface was made waits for that: its name may be another's.
fn together(a: &Step, b: &Step) -> bool {
    a.creates == b.creates
        && matches!(
            (&a.op, &b.op),
            (Op::Host(_), Op::Host(_))
                | (Op::Pod(_), Op::Pod(_))
                | (Op::Remember(_), Op::Remember(_))
                | (Op::Made { .. }, Op::Made { .. })
        )
}

/// `IFA_PROTO` came with Linux 5.18.
fn address_marks() -> bool {
    let Ok(name) = nix::sys::utsname::uname() else { return false };
    let release = name.release().to_string_lossy().into_owned();
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(5), Some(18))
}
