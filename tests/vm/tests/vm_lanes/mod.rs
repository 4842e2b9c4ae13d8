//! Tests that run in the virtual machine.

use std::time::Duration;

use eno_control_plane::parts::{Part, Parts};
use eno_vm_lane::{Ended, Kernel, Machine, Root, build};

/// The integration tests of one module.
struct TestModule {
    package: &'static str,
    /// A module filter for the test executable, such as `host::`.
    module: &'static str,
    /// Programs of this machine that the tests run.
    programs: &'static [&'static str],
}

/// A root file system with iproute2.
fn root() -> Root {
    let mut root = Root::new(Kernel::get().expect("a kernel")).expect("a root file system");
    for program in ["ip", "bridge"] {
        root.program(program).expect("a program");
    }
    root
}

/// Runs the tests of a module after `prepare` has added files; at least one test must run, and all must pass.
fn run(test_module: &TestModule, environment: &str, prepare: impl FnOnce(&mut Root)) -> Ended {
    let executable = build(test_module.package).expect("the tests");
    let mut root = root();
    root.executable(&executable, "/tests").expect("the tests");
    for program in test_module.programs {
        root.program(program).expect("a program");
    }
    prepare(&mut root);
    let script = format!("{environment} /tests --include-ignored --test-threads=1 {}", test_module.module);
    let ended =
        Machine::new(root, &script).limit(Duration::from_mins(10)).run().expect("the virtual machine");
    println!("{} {} took {:?}", test_module.package, test_module.module, ended.took);
    assert_eq!(ended.status, 0, "{}", ended.output);
    assert!(ended.output.contains("test result: ok."), "{}", ended.output);
    assert!(!ended.output.contains(" 0 passed"), "no test ran: {}", ended.output);
    ended
}

/// The link kinds that the machine's kernel must support.
#[test]
#[ignore = "needs qemu-system-x86 and busybox-static"]
fn vm_kernel_supports_every_link_kind() {
    const SCRIPT: &str = "
set -e
ip netns add pod
n() { ip -n pod \"$@\"; }
n link add up0 type veth peer name up1
n link add link up0 name up0.13 type vlan id 13
n link add link up0 name qinq type vlan proto 802.1ad id 13
n link add br0 type bridge vlan_filtering 1 vlan_default_pvid 0
n link set up1 master br0
bridge -n pod vlan add dev up1 vid 10-12
bridge -n pod vlan show
n link add bond7 type bond mode active-backup
n link add dummy7 type dummy
n link add link up0 name ipvlan7 type ipvlan mode l2
n link add link dummy7 name mac7 type macvlan mode bridge
n link add link dummy7 name tap7 type macvtap
n link add vx7 type vxlan id 7 remote 192.0.2.1 dstport 4789
n link add gnv7 type geneve id 7 remote 192.0.2.1
n link add gre7 type gre remote 192.0.2.1 local 192.0.2.2
n link add gretap7 type gretap remote 192.0.2.1 local 192.0.2.2
n link add ip6gre7 type ip6gre remote 2001:db8::1 local 2001:db8::2
n link add ipip7 type ipip remote 192.0.2.1 local 192.0.2.2
n link add sit7 type sit remote 192.0.2.1 local 192.0.2.2
n link add vrf7 type vrf table 7
n tuntap add tun7 mode tun
test -e /sys/module/openvswitch
n -o link show | wc -l
";
    let ended = Machine::new(root(), SCRIPT).run().expect("the virtual machine");
    assert_eq!(ended.status, 0, "{}", ended.output);
}

#[test]
#[ignore = "needs qemu-system-x86 and busybox-static"]
fn failure_in_the_vm_fails_the_test() {
    let ended = Machine::new(root(), "echo out; echo err >&2; exit 7").run().expect("the virtual machine");
    assert_eq!((ended.status, &*ended.output), (7, "out\nerr\n"));
}

#[test]
#[ignore = "needs qemu-system-x86 and busybox-static"]
fn hanging_vm_is_killed() {
    let hangs = Machine::new(root(), "sleep 1000").limit(Duration::from_secs(1)).run();
    assert!(hangs.unwrap_err().to_string().starts_with("no end after 1s"));
}

/// Each kind of NetworkAttachmentDefinition with the real CNI plugin.
#[tokio::test]
#[ignore = "needs qemu-system-x86 and busybox-static"]
async fn nad_driver_tests_pass_in_the_vm() {
    let test_module = TestModule { package: "eno-driver-nad", module: "cnitool::", programs: &["ping"] };
    let parts = Parts::from_env().expect("the parts' cache");
    let mut programs = Vec::new();
    for part in [
        Part::Cnitool,
        Part::Bridge,
        Part::Macvlan,
        Part::Ipvlan,
        Part::Vlan,
        Part::HostDevice,
        Part::HostLocal,
        Part::Static,
    ] {
        programs.push(parts.get(part).await.expect("a CNI plugin"));
    }
    let ended = run(&test_module, "ENO_CACHE=/cache", |root| {
        for path in programs {
            // The cache in the machine has the same layout: each program in its version's folder.
            let place: Vec<_> = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
            let at = format!("/cache/{}/{}", place[1], place[0]);
            root.executable(&path, &at).expect("a CNI plugin");
        }
    });
    assert!(ended.output.contains("\n0 not carried by this kernel"), "{}", ended.output);
}

/// Host networks in the kernel.
#[test]
#[ignore = "needs qemu-system-x86 and busybox-static"]
fn node_driver_host_tests_pass_in_the_vm() {
    run(&node("host::"), "", |_| ());
}

/// Networks of running pods with every kind of link.
#[test]
#[ignore = "needs qemu-system-x86 and busybox-static"]
fn node_driver_pod_tests_pass_in_the_vm() {
    run(&node("pods::"), "", |_| ());
}

/// Probes over Linux bridges and VLAN subinterfaces.
#[test]
#[ignore = "needs qemu-system-x86 and busybox-static"]
fn node_driver_probe_tests_pass_in_the_vm() {
    run(&node("probes::kernel::"), "", |_| ());
}

fn node(module: &'static str) -> TestModule {
    TestModule { package: "eno-driver-node", module, programs: &["ping", "nft", "iptables-save", "unshare"] }
}
