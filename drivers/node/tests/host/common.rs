//! Network namespaces, observed from outside with iproute2.

use std::process::Command;

use eno_driver_node::host::state::{Installation, State};
use eno_driver_node::host::{Change, HostApplied, HostError, HostKernel, Kernel, reconcile};
use eno_driver_node::netlink::Namespace;
use eno_schemas::{HostNetwork, NodeDesired};

/// A network namespace without a name in `ip netns`.
pub struct Net(pub Namespace);

impl Net {
    pub fn new() -> Self {
        let net = Self(Namespace::create().expect("a network namespace: root is needed"));
        net.ip("link set lo up");
        net
    }

    /// Runs a program in the namespace. Returns its standard output, or all its output as an error.
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

    /// Runs `ip` with these arguments.
    #[track_caller]
    pub fn ip(&self, words: &str) -> String {
        self.run("ip", &words.split_whitespace().collect::<Vec<_>>()).expect("ip")
    }

    /// True when `ip` succeeds.
    pub fn ip_works(&self, words: &str) -> bool {
        self.run("ip", &words.split_whitespace().collect::<Vec<_>>()).is_ok()
    }

    /// Makes a veth pair whose peer is in another namespace. It acts as a NIC in this one.
    #[track_caller]
    pub fn nic(&self, name: &str, other: &Self, peer: &str) {
        self.ip(&format!("link add {name} type veth peer name {peer}"));
        let fd = format!("/proc/{}/fd/{}", std::process::id(), other.0.fd());
        self.ip(&format!("link set {peer} netns {fd}"));
    }

    /// The state that ENO must never change: the main routing table and firewall rules.
    pub fn foreign_state(&self) -> String {
        let mut all = String::new();
        for words in ["-4 route show table main", "-6 route show table main"] {
            all += &self.ip(words);
        }
        // The virtual machine has no firewall programs.
        for (program, arguments) in [("nft", &["list", "ruleset"][..]), ("iptables-save", &[])] {
            if std::env::var_os("ENO_VM_LANE").is_none() {
                all += &self.run(program, arguments).expect(program);
            }
        }
        all
    }

    /// The state that must be restored after all networks are deleted.
    pub fn restorable_state(&self) -> String {
        let mut all = self.foreign_state();
        for words in ["-d link show", "-o address show", "rule show", "-6 rule show"] {
            all += &self.ip(words);
        }
        without_transients(&all)
    }

    /// Reconciles the host's networks and counts the changes; panics after `most` changes. `None`: it panicked.
    pub fn reconcile_until_killed(
        &self,
        desired: &NodeDesired,
        most: usize,
    ) -> (Option<Result<HostApplied, HostError>>, usize) {
        let (namespace, desired) = (self.0.clone(), desired.clone());
        let (count, counted) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("dies".into()).spawn(move || {
            namespace.enter().expect("enter");
            let kernel = HostKernel::open(Installation::default().into()).expect("netlink");
            let mut kernel = InterruptedKernel { kernel, count, left: most };
            reconcile(&mut kernel, &desired, || true)
        });
        let ended = thread.expect("a thread").join().ok();
        (ended, counted.iter().count())
    }

    /// Reconciles the host's networks. Returns the result and the number of changes.
    #[track_caller]
    pub fn reconcile(&self, desired: &NodeDesired) -> (HostApplied, usize) {
        let (ended, writes) = self.reconcile_until_killed(desired, usize::MAX);
        (ended.expect("no panic").expect("reconcile"), writes)
    }
}

/// The lines without transient values: the queue of an interface that is down depends on its history, an IPv6 address
/// is tentative at first, and the carrier is notified with a delay.
pub fn without_transients(all: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in all.lines() {
        let mut words = line.split(' ');
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            match word {
                "qdisc" | "state" => _ = words.next(),
                timer if timer.ends_with("_timer") => _ = words.find(|word| !word.is_empty()),
                "tentative" | "linkdown" => {}
                _ => kept.push(word.replace("NO-CARRIER,", "").replace(",LOWER_UP", "")),
            }
        }
        lines.push(kept.join(" "));
    }
    lines.sort_unstable();
    lines.join("\n")
}

/// A kernel that panics after a number of changes.
struct InterruptedKernel {
    kernel: HostKernel,
    count: std::sync::mpsc::Sender<()>,
    left: usize,
}

impl Kernel for InterruptedKernel {
    fn state(&mut self, group: u32) -> Result<State, HostError> {
        self.kernel.state(group)
    }

    fn change(&mut self, change: Change) -> Result<(), HostError> {
        assert!(self.left > 0, "killed on purpose");
        self.left -= 1;
        self.count.send(()).expect("a listener");
        self.kernel.change(change)
    }
}

/// A desired state with these networks.
pub fn desired<const N: usize>(networks: [(&str, HostNetwork); N]) -> NodeDesired {
    NodeDesired {
        cluster: "test".into(),
        networks: networks.into_iter().map(|(name, network)| (name.to_owned(), network)).collect(),
        ..NodeDesired::default()
    }
}

/// True when the kernel lacks one of these kinds, so that a test can't run here. False on the virtual machine, which
/// must support all.
pub fn kernel_lacks(kinds: &[&str]) -> bool {
    if std::env::var_os("ENO_VM_LANE").is_some() {
        return false;
    }
    let net = Net::new();
    let lack = kinds.iter().find(|kind| match **kind {
        "vlan" => {
            net.ip("link add probe type veth peer name eborp");
            !net.ip_works("link add link probe name probe.5 type vlan id 5")
        }
        "filtering" => !net.ip_works("link add probe0 type bridge vlan_filtering 1"),
        other => !net.ip_works(&format!("link add probe1 type {other}")),
    });
    lack.inspect(|lack| eprintln!("not run here, the VM lane runs it: no {lack}")).is_some()
}
