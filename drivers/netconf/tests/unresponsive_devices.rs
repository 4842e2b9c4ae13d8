//! Unresponsive devices beside a responsive one.

use std::net::TcpListener;
use std::time::Duration;

use eno_conformance::{Engine, NatsServer, RunningHost};
use eno_driver_netconf::driver::NetconfDriver;
use eno_sbi::Ownership;
use eno_sbi::host::HostOptions;
use eno_schemas::{Applied, Outcome};

use crate::common::{Bench, command, options};

const SILENT: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn unresponsive_devices_do_not_delay_others() {
    let bench = Bench::start(|_| ()).await;
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let mut of_driver = options(bench.credentials.path());
    // Longer than the test may take: a driver that waits for one of them to fail never gets to the others.
    of_driver.limits.connect = Duration::from_hours(1);
    let mut of_host = HostOptions::new(server.connect("eno-driver-netconf").await, Ownership::PerTarget, "1");
    of_host.concurrency = 2;
    let host = RunningHost::start(NetconfDriver::new(of_driver), of_host);

    // The kernel accepts their connections, and nothing answers.
    let silent: Vec<TcpListener> =
        (0..SILENT).map(|_| TcpListener::bind("127.0.0.1:0").expect("a socket")).collect();
    let devices = bench.credentials.path().join("leaf1/devices");
    let mut lines = vec![std::fs::read_to_string(&devices).expect("a file")];
    let addresses = silent.iter().map(|listener| listener.local_addr().expect("an address"));
    lines.extend(addresses.map(|address| format!("{address} {}\n", bench.info("leaf1").host_key)));
    std::fs::write(&devices, lines.concat()).expect("a file");
    for (number, listener) in silent.iter().enumerate() {
        let mut desired = bench.desired("leaf1", "100", &["Ethernet1"]);
        desired.device.address = listener.local_addr().expect("an address").to_string();
        engine.command(&command(&format!("silent{number}"), desired)).await;
    }
    // The driver connects to all of them at once.
    let mut open = Vec::new();
    for listener in silent {
        let accepted =
            tokio::task::spawn_blocking(move || listener.accept().map(|accepted| (listener, accepted)));
        open.push(accepted.await.expect("no panic").expect("a connection"));
    }
    engine.command(&command("leaf1", bench.desired("leaf1", "100", &["Ethernet1"]))).await;
    let served = engine.report("netconf", "leaf1", |report| report.outcome == Outcome::Applied).await;
    assert!(matches!(served.applied, Some(Applied::Fabric { vlans, .. }) if vlans.to_string() == "100"));
    host.kill().await;
}
