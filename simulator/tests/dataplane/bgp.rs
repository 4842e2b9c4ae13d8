//! BGP between the VRF of a gateway and workers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::python;
use crate::dataplane::gateway::{
    NO_VRF, instance as vrf_instance, member, readdress, subinterface, testbed, vrf,
};
use crate::dataplane::host::succeed;
use crate::dataplane::openconfig_bgp::{
    APPLY, NAMESPACES, family, filter, global, instance, leaf, neighbor, policies, timers,
};
use crate::dataplane::teardown::eventually;
use crate::dataplane::testbed::{Testbed, access, bgp_daemons};
use crate::dataplane::worker::Worker;

/// The addresses of the workers, and those of the VRF.
const WORKERS: [&str; 2] = ["10.7.0.1", "10.7.0.2"];
const WORKER_V6: &str = "2001:db8:7::1";
const ROUTED: [&str; 2] = ["10.7.0.254/24", "2001:db8:7::fe/64"];

const ESTABLISHED: &str = "<session-state>ESTABLISHED<";

/// The lines of a worker without a neighbour.
const WORKER: [&str; 4] = [
    "router bgp 65001",
    "no bgp ebgp-requires-policy",
    "no bgp network import-check",
    "no bgp default ipv4-unicast",
];

pub async fn interpreter() -> PathBuf {
    let made = tokio::task::spawn_blocking(|| python(Path::new(env!("CARGO_MANIFEST_DIR"))));
    made.await.expect("no panic")
}

/// Both workers in the VLAN of the VRF `blue` of `gw1`.
async fn gateway() -> Testbed {
    let testbed = testbed().await;
    testbed.hand_edit("leaf2", &access("Ethernet1", 100)).await;
    let xml = subinterface(100, &ROUTED) + &vrf_instance("blue", &member("Ethernet1", Some(100)));
    testbed.merge_xml("gw1", &xml).await;
    readdress(&testbed.node1, &["10.7.0.1/24", "2001:db8:7::1/64"], &["10.7.0.254", "2001:db8:7::fe"]);
    readdress(&testbed.node2, &["10.7.0.2/24"], &["10.7.0.254"]);
    testbed
}

/// A worker with these lines for its neighbour 10.7.0.254, of the AS `asn`, and announcing these prefixes.
pub fn worker(host: &crate::dataplane::host::Host, asn: u32, lines: &[&str], prefixes: &[&str]) -> Worker {
    let mut all: Vec<String> = WORKER.map(str::to_owned).into();
    all.push(format!("neighbor 10.7.0.254 remote-as {asn}"));
    all.push("neighbor 10.7.0.254 timers connect 1".to_owned());
    all.extend(lines.iter().map(|line| format!("neighbor 10.7.0.254 {line}")));
    all.push("address-family ipv4 unicast".to_owned());
    all.push("neighbor 10.7.0.254 activate".to_owned());
    all.extend(prefixes.iter().map(|prefix| format!("network {prefix}")));
    Worker::start(host, &all.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The BGP instance with this content of neighbours.
fn neighbors(content: &str) -> String {
    instance("blue", &global(65000), &format!("<neighbors>{content}</neighbors>"))
}

/// A neighbour with further leaves of `config` and content.
fn peer(address: &str, config: &str, content: &str) -> String {
    let config = leaf("peer-as", 65001) + config;
    neighbor(address, &config, &(timers(9, 3) + APPLY + content))
}

/// The routes of a VRF to a prefix, learnt by BGP.
pub fn routes(testbed: &Testbed, family: &str, prefix: &str) -> String {
    let netns = vrf(testbed, "gw1", "blue").expect("it has an interface").netns;
    let mut show = Command::new("nsenter");
    show.arg(format!("--net={}", netns.display()))
        .args(["ip", family, "route", "show", prefix, "proto", "bgp"]);
    String::from_utf8_lossy(&succeed(&mut show).stdout).into_owned()
}

/// The value of a leaf that is in the answer once.
fn value<'a>(answer: &'a str, name: &str) -> &'a str {
    let (_, rest) = answer.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("no {name}: {answer}"));
    rest.split('<').next().expect("text")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and FRR: makes network namespaces"]
async fn workers_and_vrf_exchange_what_policies_let_through() {
    let (testbed, python) = (gateway().await, interpreter().await);
    let taken = ["10.20.0.0/16", "2001:db8:20::/48"];
    let announced = ["198.51.100.0/24", "2001:db8:ffff::/64"];
    let peers = WORKERS.map(|address| peer(address, "", &family(address, None))).concat()
        + &peer(WORKER_V6, "", &family(WORKER_V6, None));
    testbed.merge_xml("gw1", &(policies(&taken, &announced) + &neighbors(&peers))).await;
    // Nobody is there yet.
    testbed.until(&python, "gw1", &filter("blue", WORKERS[0]), "<session-state>(IDLE|CONNECT|ACTIVE)<").await;
    let service = "10.20.0.1/32";
    let first = worker(&testbed.node1, 65000, &[], &[service, "172.16.0.0/24"]);
    first.configure(&[
        "router bgp 65001",
        "neighbor 2001:db8:7::fe remote-as 65000",
        "neighbor 2001:db8:7::fe timers connect 1",
        "address-family ipv6 unicast",
        "neighbor 2001:db8:7::fe activate",
        "network 2001:db8:20::1/128",
        "network 2001:db8:99::1/128",
    ]);
    let second = worker(&testbed.node2, 65000, &[], &[service]);
    for address in [WORKERS[0], WORKERS[1], WORKER_V6] {
        let up = format!("{ESTABLISHED}.*<received>1</received>");
        let answer = testbed.until(&python, "gw1", &filter("blue", address), &up).await;
        let since: u64 = value(&answer, "last-established").parse().expect("nanoseconds");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let age = now.as_nanos() - u128::from(since);
        assert!(age < Duration::from_mins(2).as_nanos(), "{answer}");
    }
    let ipv4 =
        || [&first, &second].iter().all(|worker| worker.learnt("ipv4").contains(&announced[0].to_owned()));
    eventually("it is not announced", ipv4).await;
    eventually("it is not announced", || first.learnt("ipv6").contains(&announced[1].to_owned())).await;
    assert_eq!(first.learnt("ipv4"), [announced[0]]);
    assert_eq!(first.learnt("ipv6"), [announced[1]]);

    // Both workers are next hops, and the service is reached from behind the VRF.
    let both = || WORKERS.iter().all(|address| routes(&testbed, "-4", "10.20.0.1").contains(address));
    eventually("a worker is no next hop", both).await;
    assert_eq!(routes(&testbed, "-4", "172.16.0.0/24"), "");
    assert!(routes(&testbed, "-6", "2001:db8:20::1").contains("via"));
    assert_eq!(routes(&testbed, "-6", "2001:db8:99::1"), "");
    for node in [&testbed.node1, &testbed.node2] {
        succeed(node.command("ip").args(["address", "add", service, "dev", "eth1"]));
    }
    let behind = vrf(&testbed, "gw1", "blue").expect("it has an interface").host.netns;
    let mut ping = Command::new("nsenter");
    ping.arg(format!("--net={}", behind.display())).args(["ping", "-n", "-c", "3", "-W", "1", "10.20.0.1"]);
    eventually("the service is not reached", || ping.output().expect("ping runs").status.success()).await;

    // A change of one neighbour, and of what is announced, resets no session of another.
    let before = testbed.until(&python, "gw1", &filter("blue", WORKERS[0]), ESTABLISHED).await;
    let changed = neighbor(WORKERS[1], &leaf("local-as", 64999), "");
    let more = ["198.51.100.0/24", "10.7.0.0/24", "2001:db8:ffff::/64"];
    testbed.merge_xml("gw1", &(policies(&taken, &more) + &neighbors(&changed))).await;
    second.configure(&["router bgp 65001", "neighbor 10.7.0.254 remote-as 64999"]);
    eventually("it is not announced", || first.learnt("ipv4") == ["10.7.0.0/24", "198.51.100.0/24"]).await;
    testbed
        .until(&python, "gw1", &filter("blue", WORKERS[1]), &format!("<local-as>64999<.*{ESTABLISHED}"))
        .await;
    let answer = testbed.until(&python, "gw1", &filter("blue", WORKERS[0]), ESTABLISHED).await;
    assert_eq!(value(&answer, "established-transitions"), value(&before, "established-transitions"));
    assert_eq!(value(&answer, "last-established"), value(&before, "last-established"));

    // A killed daemon is started again, and a reboot of the device ends all sessions.
    let find = |program: &str| {
        bgp_daemons(testbed.dir.path()).into_iter().find(|(_, name)| name == program).map(|(pid, _)| pid)
    };
    let killed = find("bgpd").expect("it runs");
    succeed(Command::new("kill").args(["-KILL", &killed.to_string()]));
    eventually("it is not started again", || find("bgpd").is_some_and(|pid| pid != killed)).await;
    testbed.until(&python, "gw1", &filter("blue", WORKERS[0]), ESTABLISHED).await;
    let before = find("zebra");
    testbed.fabric.switch("gw1").expect("gw1").reboot(eno_simulator::Boot::Saved);
    eventually("they do not start anew", || find("zebra").is_some_and(|pid| Some(pid) != before)).await;
    testbed.until(&python, "gw1", &filter("blue", WORKERS[0]), ESTABLISHED).await;
    eventually("a worker is no next hop", both).await;

    // Without BGP, there is no daemon and no route.
    let removal = format!(
        "<network-instances {NAMESPACES}><network-instance><name>blue</name><protocols><protocol \
         nc:operation=\"remove\"><identifier>pol:BGP</identifier><name>BGP</name></protocol></protocols>\
         </network-instance></network-instances>"
    );
    testbed.merge_xml("gw1", &removal).await;
    assert_eq!(bgp_daemons(testbed.dir.path()), []);
    assert_eq!(routes(&testbed, "-4", "10.20.0.1") + &routes(&testbed, "-6", "2001:db8:20::1"), "");
    eventually("the worker keeps it", || first.learnt("ipv4").is_empty()).await;
    testbed.merge_xml("gw1", &neighbors(&peers)).await;
    assert_eq!(bgp_daemons(testbed.dir.path()).len(), 2);
    testbed.merge_xml("gw1", NO_VRF).await;
    assert_eq!(bgp_daemons(testbed.dir.path()), []);
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and FRR: makes network namespaces"]
async fn faults_of_a_session_are_seen_and_heal() {
    let (testbed, python) = (gateway().await, interpreter().await);
    let (address, question) = (WORKERS[0], filter("blue", WORKERS[0]));
    let with = |config: &str, maximum| neighbors(&peer(address, config, &family(address, maximum)));
    let policies = policies(&["10.20.0.0/16"], &["198.51.100.0/24"]);

    // The AS of the worker is another one.
    let other_as = neighbors(&neighbor(address, &leaf("peer-as", 65009), &(timers(9, 3) + APPLY)));
    let xml = policies + &with("", None) + &other_as;
    testbed.merge_xml("gw1", &xml).await;
    let worker = worker(&testbed.node1, 65000, &[], &["10.20.0.1/32", "10.20.0.2/32", "172.16.0.0/24"]);
    let mismatch = "last-notification-error-code[^>]*>oc-bgp-types:OPEN_MESSAGE_ERROR<.*\
        last-notification-error-subcode[^>]*>oc-bgp-types:BAD_PEER_AS<";
    let answer = testbed.until(&python, "gw1", &question, mismatch).await;
    assert!(!answer.contains(ESTABLISHED), "{answer}");
    testbed.merge_xml("gw1", &with("", None)).await;
    testbed.until(&python, "gw1", &question, &format!("{ESTABLISHED}.*<received>2<")).await;

    // It announces more prefixes than are allowed, of those that are taken.
    testbed.merge_xml("gw1", &with("", Some(1))).await;
    let maximum = "<session-state>IDLE<.*last-notification-error-code[^>]*>oc-bgp-types:CEASE<.*\
        last-notification-error-subcode[^>]*>oc-bgp-types:MAX_NUM_PREFIXES_REACHED<";
    testbed.until(&python, "gw1", &question, maximum).await;
    assert_eq!(routes(&testbed, "-4", "10.20.0.1"), "");
    testbed.merge_xml("gw1", &with("", Some(2))).await;
    testbed.until(&python, "gw1", &question, &format!("{ESTABLISHED}.*<received>2<")).await;

    // The passwords differ: the kernel of each side drops the packets of the other.
    testbed.merge_xml("gw1", &with(&leaf("auth-password", "right"), None)).await;
    worker.configure(&["router bgp 65001", "neighbor 10.7.0.254 password wrong"]);
    let failures = || {
        let mut counters = testbed.node1.command("cat");
        let shown = succeed(counters.arg("/proc/net/netstat"));
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let at = lines[0].iter().position(|name| *name == "TCPMD5Failure").expect("a counter");
        lines[1][at].parse::<u64>().expect("a number")
    };
    eventually("nothing is dropped", || failures() > 0).await;
    let answer = testbed.until(&python, "gw1", &question, "<session-state>").await;
    assert!(!answer.contains(ESTABLISHED), "{answer}");
    worker.configure(&["router bgp 65001", "neighbor 10.7.0.254 password right"]);
    testbed.until(&python, "gw1", &question, ESTABLISHED).await;
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and FRR: makes network namespaces"]
async fn bfd_ends_the_session_of_a_silent_worker() {
    let (testbed, python) = (gateway().await, interpreter().await);
    let (address, question) = (WORKERS[0], filter("blue", WORKERS[0]));
    let bfd = "<enable-bfd><config><enabled>true</enabled><desired-minimum-tx-interval>300000\
        </desired-minimum-tx-interval><required-minimum-receive>300000</required-minimum-receive>\
        <detection-multiplier>3</detection-multiplier></config></enable-bfd>";
    let config = leaf("peer-as", 65001);
    let peer = neighbor(address, &config, &(timers(90, 30) + APPLY + &family(address, None) + bfd));
    let xml = policies(&["10.20.0.0/16"], &["198.51.100.0/24"]) + &neighbors(&peer);
    testbed.merge_xml("gw1", &xml).await;
    assert_eq!(bgp_daemons(testbed.dir.path()).len(), 3);
    let worker = worker(&testbed.node1, 65000, &["bfd 3 300 300"], &["10.20.0.1/32"]);
    testbed.until(&python, "gw1", &question, &format!("{ESTABLISHED}.*<received>1<")).await;
    eventually("BFD does not come up", || {
        worker.show("bfdd", "show bfd peers json").contains("\"status\":\"up\"")
    })
    .await;
    testbed.until(&python, "gw1", &question, ESTABLISHED).await;
    eventually("there is no route", || routes(&testbed, "-4", "10.20.0.1").contains(address)).await;
    // The port of the gateway stays up.
    let began = Instant::now();
    testbed.fabric.switch("leaf1").expect("leaf1").inject(drop_frames());
    eventually("the route stays", || routes(&testbed, "-4", "10.20.0.1").is_empty()).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    testbed.fabric.shutdown().await;
}

/// All frames of the port of node1.
fn drop_frames() -> eno_simulator::Fault {
    let fault = serde_json::json!({ "kind": "drop-frames", "port": "Ethernet1" });
    serde_json::from_value(fault).expect("a fault")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root and FRR: makes network namespaces"]
async fn workers_of_a_network_come_and_go_by_themselves() {
    let (testbed, python) = (gateway().await, interpreter().await);
    let range = "10.7.0.0/24";
    let keys = leaf("prefix", range);
    let ranges = format!(
        "{}<dynamic-neighbor-prefixes><dynamic-neighbor-prefix>{keys}<config>{keys}<peer-group>workers</peer-group>\
         </config></dynamic-neighbor-prefix></dynamic-neighbor-prefixes>",
        global(65000)
    );
    let name = leaf("peer-group-name", "workers");
    let group = format!(
        "<peer-groups><peer-group>{name}<config>{name}<peer-as>65001</peer-as><local-as>64999</local-as>\
         <auth-password>secret</auth-password></config>{}{APPLY}{}</peer-group></peer-groups>",
        timers(9, 3),
        family(range, Some(10))
    );
    let xml = policies(&["10.20.0.0/16"], &["198.51.100.0/24"]) + &instance("blue", &ranges, &group);
    testbed.merge_xml("gw1", &xml).await;
    let first = worker(&testbed.node1, 64999, &["password secret"], &["10.20.0.1/32"]);
    let second = worker(&testbed.node2, 64999, &["password other"], &["10.20.0.2/32"]);
    let up = format!("{ESTABLISHED}.*<dynamically-configured>true<.*<received>1<");
    let answer = testbed.until(&python, "gw1", &filter("blue", WORKERS[0]), &up).await;
    assert_eq!((value(&answer, "peer-group"), value(&answer, "peer-as")), ("workers", "65001"));
    eventually("it is not announced", || first.learnt("ipv4") == ["198.51.100.0/24"]).await;
    assert!(second.learnt("ipv4").is_empty(), "its password is wrong");
    second.configure(&["router bgp 65001", "neighbor 10.7.0.254 password secret"]);
    testbed.until(&python, "gw1", &filter("blue", WORKERS[1]), &up).await;
    drop(first);
    eventually("the route stays", || routes(&testbed, "-4", "10.20.0.1").is_empty()).await;
    assert!(routes(&testbed, "-4", "10.20.0.2").contains(WORKERS[1]));
    testbed.fabric.shutdown().await;
}

/// Environment variable of the child process of [`missing_frr_is_named_and_the_vrf_forwards_without_it`].
const WITHOUT_FRR: &str = "ENO_TEST_WITHOUT_FRR";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn missing_frr_is_named_and_the_vrf_forwards_without_it() {
    if std::env::var(WITHOUT_FRR).is_err() {
        let mut child = Command::new("unshare");
        child.args(["-m", "sh", "-c", "mount -t tmpfs none /usr/lib/frr && exec \"$@\"", "sh"]);
        child.arg(std::env::current_exe().expect("this program")).args([
            "--exact",
            "--include-ignored",
            "dataplane::bgp::missing_frr_is_named_and_the_vrf_forwards_without_it",
        ]);
        let output = tokio::task::spawn_blocking(move || child.env(WITHOUT_FRR, "1").output()).await;
        let output = output.expect("no panic").expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let testbed = gateway().await;
    let router = testbed.fabric.switch("gw1").expect("gw1");
    router.edit_xml_by_hand(&neighbors("")).expect("valid");
    let problem = || testbed.data_plane().status().problem.unwrap_or_default();
    eventually("FRR is not missed", || problem().contains("bgpd is not installed")).await;
    assert!(problem().contains("Debian's package frr"), "{}", problem());
    assert!(testbed.node1.reaches("198.51.100.1"));
    let removal = format!(
        "<network-instances {NAMESPACES}><network-instance><name>blue</name><protocols nc:operation=\"remove\"/>\
         </network-instance></network-instances>"
    );
    testbed.merge_xml("gw1", &removal).await;
    eventually("FRR is still missed", || problem().is_empty()).await;
    testbed.fabric.shutdown().await;
}
