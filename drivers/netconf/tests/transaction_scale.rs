//! A full device: 4,094 VLANs on 48 trunk ports are read, compared and applied by a process of at most 64 MB.
//!
//! The simulated device has a process of its own, so that only the driver is measured.

#[expect(unused_imports, dead_code, reason = "the other tests use the rest")]
mod common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use common::{device_of, list_device, options, set, work};
use eno_driver_netconf::driver::NetconfDriver;
use eno_sbi::Driver as _;
use eno_schemas::{Applied, FabricDesired, PortMode, VlanSet};
use eno_simulator::{Fabric, FabricOptions, SwitchInfo, Topology};

/// The simulator's names of the dialects.
const DIALECTS: [&str; 5] = ["openconfig", "junos", "nxos", "srlinux", "ieee8021q"];
const PORTS: usize = 48;
const LIMIT_KB: u64 = 64 << 10;
/// The argument that makes the process a device of a dialect.
const DEVICE: &str = "--as-the-device=";
/// The argument that makes the process the driver of such a device.
const DRIVER: &str = "--as-the-driver=";

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let role_argument =
        |role: &str| std::env::args().find_map(|argument| argument.strip_prefix(role).map(str::to_owned));
    if let Some(dialect) = role_argument(DEVICE) {
        runtime.block_on(device(&dialect));
        return ExitCode::SUCCESS;
    }
    if let Some(dialect) = role_argument(DRIVER) {
        runtime.block_on(measure(&dialect));
        return ExitCode::SUCCESS;
    }
    if std::env::args().any(|argument| argument == "--list") {
        println!("full_device_fits_in_64_mb: test");
        return ExitCode::SUCCESS;
    }
    // Each dialect gets a process of its own, since the kernel counts peak memory by process.
    let mut failed = false;
    for dialect in DIALECTS {
        let program = std::env::current_exe().expect("this program");
        let status = Command::new(program).arg(format!("{DRIVER}{dialect}")).status();
        failed |= !status.expect("it runs").success();
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// All VLANs that a port can carry with a tag: without VLANs for untagged frames, and without VLANs that the vendor
/// reserves.
fn all(dialect: &str) -> &'static str {
    match dialect {
        "junos" | "ieee8021q" => "2-4094",
        "nxos" => "2-3967",
        _ => "1-4094",
    }
}

/// One switch of a dialect, with 48 ports under the vendor's names.
fn topology(dialect: &str) -> Topology {
    Topology::leaf_spine_of(1, 0, PORTS - 1, &[dialect])
}

/// Simulates a switch until the standard input ends.
async fn device(dialect: &str) {
    let topology = topology(dialect);
    assert_eq!(topology.switches[0].ports.len(), PORTS);
    let fabric = Fabric::start(&topology, FabricOptions::default()).await.expect("the fabric starts");
    println!("{}", serde_json::to_string(&fabric.info()[0]).expect("JSON"));
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    ended.await.expect("no panic").expect("the end of the input");
}

struct DeviceProcess(Child);

impl Drop for DeviceProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn measure(dialect: &str) {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program)
        .arg(format!("{DEVICE}{dialect}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the device starts");
    let mut device = DeviceProcess(child);
    let mut line = String::new();
    let output = device.0.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("its address");
    let info: SwitchInfo = serde_json::from_str(&line).expect("its address");

    let credentials = tempfile::tempdir().expect("a directory");
    let directory = credentials.path().join("leaf1");
    std::fs::create_dir(&directory).expect("a directory");
    std::fs::write(directory.join("username"), &info.username).expect("a file");
    std::fs::write(directory.join("password"), &info.password).expect("a file");
    list_device(credentials.path(), "leaf1", &device_of(&info));
    let mut options = options(credentials.path());
    options.limits.rpc = std::time::Duration::from_mins(10);
    let driver = NetconfDriver::new(options);
    println!("{dialect}: before: {} MB", peak_kb() >> 10);
    let all = all(dialect);
    let odd: VlanSet = set(all).iter().filter(|vid| vid.get() % 2 == 1).collect();
    for (what, vlans) in [
        ("made", all),
        ("nothing to do", all),
        ("all gone", ""),
        ("made again", all),
        ("every second VLAN gone", &odd.to_string()),
        ("the rest gone", ""),
    ] {
        let start = Instant::now();
        let reconciled = driver.reconcile(work("leaf1", desired(&info, dialect, vlans))).await;
        let taken = start.elapsed();
        match &reconciled.applied {
            Some(Applied::Fabric { vlans: current, ports, .. }) => {
                assert_eq!(*current, set(vlans), "{what}");
                assert!(ports.values().all(|port| *port == set(vlans)), "{what}");
            }
            other => panic!("{what}: {other:?} {:?}", reconciled.outcome),
        }
        assert!(reconciled.rejected.is_empty(), "{what}: {:?}", reconciled.rejected.first());
        let peak = peak_kb();
        println!("{dialect}: {what}: {taken:?}, peak {} MB", peak >> 10);
        assert!(peak < LIMIT_KB, "{what}: the driver took {peak} kB");
    }
}

fn desired(info: &SwitchInfo, dialect: &str, vlans: &str) -> FabricDesired {
    let topology = topology(dialect);
    let ports: Vec<(&str, &str)> =
        topology.switches[0].ports.iter().map(|name| (name.as_str(), vlans)).collect();
    let mut desired = common::desired(device_of(info), vlans, &ports);
    desired.ports.iter_mut().for_each(|port| port.mode = PortMode::Trunk);
    desired
}

/// The peak memory of this process in kB.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}
