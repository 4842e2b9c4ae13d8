//! A full device: 4,094 VLANs on 48 trunk ports are read, compared and applied by a process of at most 50 MB.
//!
//! The simulated device has a process of its own, so that only the driver is measured.

mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use common::{CLUSTER, options, set, work};
use eno_driver_netconf::driver::NetconfDriver;
use eno_sbi::Driver as _;
use eno_schemas::{Applied, Device, Drift, FabricDesired, FabricPort, FabricVlan, PortMode, VlanSet};
use eno_simulator::{Fabric, FabricOptions, SwitchInfo, SwitchSpec, Topology};

const ALL: &str = "1-4094";
const PORTS: usize = 48;
const LIMIT_KB: u64 = 50 << 10;
/// What the process is told to be the device.
const DEVICE: &str = "--as-the-device";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    if std::env::args().any(|argument| argument == DEVICE) {
        runtime.block_on(device());
        return ExitCode::SUCCESS;
    }
    if std::env::args().any(|argument| argument == "--list") {
        println!("a_full_device_in_50_mb: test");
        return ExitCode::SUCCESS;
    }
    runtime.block_on(measure());
    ExitCode::SUCCESS
}

fn ports() -> Vec<String> {
    (1..=PORTS).map(|number| format!("Ethernet{number}")).collect()
}

/// Is a switch until its input ends.
async fn device() {
    let topology = Topology { switches: vec![SwitchSpec::new("leaf1", ports())], ..Topology::default() };
    let fabric = Fabric::start(&topology, FabricOptions::default()).await.expect("the fabric starts");
    println!("{}", serde_json::to_string(&fabric.info()[0]).expect("JSON"));
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    ended.await.expect("no panic").expect("the end of the input");
}

struct Far(Child);

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn measure() {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .arg(DEVICE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the device starts");
    let mut far = Far(child);
    let mut line = String::new();
    let output = far.0.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("its address");
    let info: SwitchInfo = serde_json::from_str(&line).expect("its address");

    let credentials = tempfile::tempdir().expect("a directory");
    let directory = credentials.path().join("leaf1");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join("username"), &info.username).expect("a file");
    std::fs::write(directory.join("password"), &info.password).expect("a file");
    let mut options = options(credentials.path());
    options.limits.rpc = std::time::Duration::from_mins(10);
    let driver = NetconfDriver::new(options);
    println!("before: {} MB", peak_kb() >> 10);
    // Ranges stay ranges; where each VLAN is one of its own, the edit alone has 100,000 entries.
    for (what, vlans, limit) in [
        ("made", ALL, LIMIT_KB),
        ("nothing to do", ALL, LIMIT_KB),
        ("all gone", "", LIMIT_KB),
        ("made again", ALL, LIMIT_KB),
        ("every second VLAN gone", &odd(), 2 * LIMIT_KB),
        ("the rest gone", "", 2 * LIMIT_KB),
    ] {
        let start = Instant::now();
        let reconciled = driver.reconcile(work("leaf1", desired(&info, vlans))).await;
        let taken = start.elapsed();
        match &reconciled.applied {
            Some(Applied::Fabric { vlans: there, ports, .. }) => {
                assert_eq!(*there, set(vlans), "{what}");
                assert!(ports.values().all(|port| *port == set(vlans)), "{what}");
            }
            other => panic!("{what}: {other:?} {:?}", reconciled.outcome),
        }
        assert!(reconciled.rejected.is_empty(), "{what}: {:?}", reconciled.rejected.first());
        let peak = peak_kb();
        println!("{what}: {taken:?}, peak {} MB", peak >> 10);
        assert!(peak < limit, "{what}: the driver took {peak} kB");
    }
}

fn odd() -> String {
    (1..=4093).step_by(2).map(|vid| vid.to_string()).collect::<Vec<_>>().join(",")
}

fn desired(info: &SwitchInfo, vlans: &str) -> FabricDesired {
    let port = |name| FabricPort { name, lag: None, mode: PortMode::Keep, vlans: set(vlans) };
    let mut ports: Vec<FabricPort> = ports().into_iter().map(port).collect();
    ports.sort_by(|a, b| a.name.cmp(&b.name));
    FabricDesired {
        cluster: CLUSTER.into(),
        device: Device {
            address: info.netconf.to_string(),
            dialect: None,
            credential: Some("leaf1".into()),
            host_key: Some(info.host_key.clone()),
            drift: Drift::Repair,
            adopt: VlanSet::EMPTY,
        },
        vlans: set(vlans).iter().map(|vid| FabricVlan { vid, owners: vec!["L2Service/s".into()] }).collect(),
        ports,
    }
}

/// The most memory that this process ever had.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}
