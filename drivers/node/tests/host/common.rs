//! Namespaces and what is looked at from outside, with iproute2.

use std::collections::BTreeMap;
use std::process::Command;

use eno_driver_node::host::state::State;
use eno_driver_node::host::{HostApplied, HostError, Kernel, reconcile};
use eno_driver_node::netlink::{Namespace, Netlink, NetlinkError, Request};
use eno_schemas::{HostNetwork, NodeDesired};

/// A network namespace that `ip netns` does not know.
pub struct Net(pub Namespace);

impl Net {
    pub fn new() -> Self {
        let net = Self(Namespace::create().expect("a network namespace: root is needed"));
        net.ip("link set lo up");
        net
    }

    /// Runs a program inside.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let namespace = self.0.clone();
        let (program, arguments) =
            (program.to_owned(), arguments.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        std::thread::spawn(move || {
            namespace.enter().expect("enter");
            let done = Command::new(&program).args(&arguments).output().expect(&program);
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if done.status.success() {
                Ok(text(&done.stdout))
            } else {
                Err(format!("{program} {arguments:?}: {}{}", text(&done.stdout), text(&done.stderr)))
            }
        })
        .join()
        .expect("no panic")
    }

    /// `ip` with these words.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        self.run("ip", &words.split_whitespace().collect::<Vec<_>>()).expect("ip")
    }

    /// True when `ip` succeeds.
    pub fn ip_works(&self, words: &str) -> bool {
        self.run("ip", &words.split_whitespace().collect::<Vec<_>>()).is_ok()
    }

    /// A veth pair whose other end is elsewhere: a NIC as far as this namespace can tell.
    #[track_caller]
    pub fn nic(&self, name: &str, other: &Self, peer: &str) {
        self.ip(&format!("link add {name} type veth peer name {peer}"));
        let fd = format!("/proc/{}/fd/{}", std::process::id(), other.0.fd());
        self.ip(&format!("link set {peer} netns {fd}"));
    }

    /// All of it that is not ours to change: the main table, firewall rules, rules of others.
    pub fn untouched(&self) -> String {
        let mut all = String::new();
        for words in ["-4 route show table main", "-6 route show table main"] {
            all += &self.ip(words);
        }
        // The virtual machine has neither; where they are, the kernel has them.
        for (program, arguments) in [("nft", &["list", "ruleset"][..]), ("iptables-save", &[])] {
            if std::env::var_os("ENO_VM_LANE").is_none() {
                all += &self.run(program, arguments).expect(program);
            }
        }
        all
    }

    /// Everything that a life cycle must leave as it was.
    pub fn everything(&self) -> String {
        let mut all = self.untouched();
        for words in ["-d link show", "-o address show", "rule show", "-6 rule show"] {
            all += &self.ip(words);
        }
        steady(&all)
    }

    /// Reconciles the host's networks, counting; after `most` changes it dies.
    pub fn reconcile_some(
        &self,
        desired: &NodeDesired,
        most: usize,
    ) -> (Option<Result<HostApplied, HostError>>, usize) {
        let (namespace, desired) = (self.0.clone(), desired.clone());
        let (count, counted) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("dies".into()).spawn(move || {
            namespace.enter().expect("enter");
            let mut kernel =
                InterruptedKernel { netlink: Netlink::open().expect("netlink"), count, left: most };
            reconcile(&mut kernel, &desired, || true)
        });
        let ended = thread.expect("a thread").join().ok();
        (ended, counted.iter().count())
    }

    /// Reconciles the host's networks; what came of it, and how many changes it took.
    #[track_caller]
    pub fn reconcile(&self, desired: &NodeDesired) -> (HostApplied, usize) {
        let (ended, writes) = self.reconcile_some(desired, usize::MAX);
        (ended.expect("no panic").expect("reconcile"), writes)
    }
}

/// The lines without what passes by itself: an interface that was up has another queue when it is down than one that
/// never was, IPv6 is busy for a moment with one that has just come up, and the kernel takes its time to say that it has
/// a carrier or not.
pub fn steady(all: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in all.lines() {
        let mut words = line.split(' ');
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "qdisc" | "state" => _ = words.next(),
                "tentative" | "linkdown" => {}
                _ => kept.push(word.replace("NO-CARRIER,", "").replace(",LOWER_UP", "")),
            }
        }
        lines.push(kept.join(" "));
    }
    lines.sort_unstable();
    lines.join("\n")
}

/// A kernel that is there for a number of changes.
struct InterruptedKernel {
    netlink: Netlink,
    count: std::sync::mpsc::Sender<()>,
    left: usize,
}

impl Kernel for InterruptedKernel {
    fn state(&mut self, group: u32) -> Result<State, NetlinkError> {
        Kernel::state(&mut self.netlink, group)
    }

    fn change(&mut self, request: Request) -> Result<(), NetlinkError> {
        assert!(self.left > 0, "killed on purpose");
        self.left -= 1;
        self.count.send(()).expect("a listener");
        self.netlink.execute(request)
    }
}

/// What is wanted: these networks.
pub fn desired<const N: usize>(networks: [(&str, HostNetwork); N]) -> NodeDesired {
    NodeDesired {
        cluster: "test".into(),
        networks: networks.into_iter().map(|(name, network)| (name.to_owned(), network)).collect(),
        pods: BTreeMap::new(),
    }
}

/// What the kernel lacks of these, where that may be: the virtual machine's lacks nothing.
pub fn lacks(kinds: &[&str]) -> Option<String> {
    if std::env::var_os("ENO_VM_LANE").is_some() {
        return None;
    }
    let net = Net::new();
    kinds.iter().find_map(|kind| {
        let made = match *kind {
            "vlan" => {
                net.ip("link add probe type veth peer name eborp");
                net.ip_works("link add link probe name probe.5 type vlan id 5")
            }
            "filtering" => net.ip_works("link add probe0 type bridge vlan_filtering 1"),
            other => net.ip_works(&format!("link add probe1 type {other}")),
        };
        (!made).then(|| (*kind).to_owned())
    })
}
