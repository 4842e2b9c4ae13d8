//! Devices that answer far more than was asked for.

use std::time::Instant;

use eno_conformance::{Engine, NatsServer, ShippedMemory};
use eno_schemas::{Applied, Desired, FabricDesired, Outcome, Report};
use eno_simulator::{Fault, LongAnswer, Topology};

use crate::common::{Bench, failed, on_switch};

/// Interfaces of the OpenConfig model in the place of a configuration.
fn interfaces(number: u64) -> LongAnswer {
    LongAnswer {
        before: "<interfaces xmlns='http://openconfig.net/yang/interfaces'>".into(),
        repeated: "<interface><name>e{}</name></interface>".into(),
        times: number,
        after: "</interfaces>".into(),
    }
}

fn entries(before: &str, repeated: &str, times: u64, after: &str) -> LongAnswer {
    LongAnswer { before: before.into(), repeated: repeated.into(), times, after: after.into() }
}

/// Two leaves of a dialect.
async fn two_leaves(dialect: &str) -> Bench {
    Bench::with(&Topology::leaf_spine_of(2, 0, 2, &[dialect])).await
}

/// Each model has places where a few bytes make much to keep.
#[tokio::test]
async fn answers_that_grow_when_they_are_read_end_the_session() {
    let junos = "<configuration xmlns='http://xml.juniper.net/xnm/1.1/xnm'>";
    let srlinux = "<interface xmlns='urn:nokia.com:srlinux:chassis:interfaces'>";
    let ranges = "<subinterface><index>{}</index><v:vlan xmlns:v='urn:nokia.com:srlinux:chassis:interfaces-vlans'>\
                  <v:encap><v:single-tagged-range><v:low-vlan-id><v:range-low-vlan-id>1</v:range-low-vlan-id>\
                  <v:high-vlan-id>4094</v:high-vlan-id></v:low-vlan-id></v:single-tagged-range></v:encap></v:vlan>\
                  </subinterface>";
    for (dialect, answer) in [
        // 65,536 interfaces in 60 bytes.
        (
            "junos",
            entries(
                &format!("{junos}<interfaces><interface-range><name>r</name>"),
                "<member-range><name>a{}-0</name><end-range>a{}-65535</end-range></member-range>",
                200,
                "</interface-range></interfaces></configuration>",
            ),
        ),
        // 4,094 VLANs in 50 bytes, each with a long name.
        (
            "junos",
            entries(
                &format!("{junos}<vlans>"),
                &format!(
                    "<vlan><name>{{}}{}</name><vlan-id-list>1-4094</vlan-id-list></vlan>",
                    "x".repeat(20_000)
                ),
                2,
                "</vlans></configuration>",
            ),
        ),
        // 4,094 VLANs of an interface for each of its subinterfaces.
        (
            "srlinux",
            entries(
                &format!("{srlinux}<name>ethernet-1/1</name><vlan-tagging>true</vlan-tagging>"),
                ranges,
                1000,
                "</interface>",
            ),
        ),
        ("openconfig", interfaces(200_000)),
    ] {
        let bench = two_leaves(dialect).await;
        bench.switch("leaf1").inject(Fault::LongAnswer(answer));
        let port = bench.info("leaf1").name.clone();
        let reconciled = bench.apply("leaf1", "100", &[&*port]).await;
        let (reason, retryable, unreachable) = failed(&reconciled);
        assert!(reason.contains("more than this driver keeps of one device, 96 MiB"), "{dialect}: {reason}");
        assert!(retryable && !unreachable, "{dialect}: {reconciled:?}");
        // The device had one session, which ended.
        assert_eq!(bench.switch("leaf1").stats().sessions_opened, 1, "{dialect}");
        bench.switch("leaf1").inject(Fault::Clear {});
        let reconciled = bench.apply("leaf1", "", &[]).await;
        assert_eq!(reconciled.outcome, Outcome::Applied, "{dialect}: {reconciled:?}");
    }
}

/// Parts of XML that a parser keeps whole.
#[tokio::test]
async fn long_parts_of_xml_end_the_session() {
    let bench = two_leaves("openconfig").await;
    for (answer, reason) in [
        (entries("<a>", "0123456789abcdef", 70_000, "</a>"), "longer than 1 MiB"),
        (entries("<a>", "0123456789&amp;", 120_000, "</a>"), "longer than 1 MiB"),
        (entries("<!--", " >>> <<< </a> ]]> ", 70_000, "--><a/>"), "longer than 1 MiB"),
        (entries("<a ", "b{}='' ", 3000, "/>"), "longer than 16 KiB"),
        (entries("", "<a>", 1000, ""), "nested too deeply"),
    ] {
        bench.switch("leaf1").inject(Fault::Clear {});
        bench.switch("leaf1").inject(Fault::LongAnswer(answer));
        let reconciled = bench.apply("leaf1", "100", &["Ethernet1"]).await;
        assert!(failed(&reconciled).0.contains(reason), "{reconciled:?}");
    }
}

/// A command of the driver's process for a leaf.
fn command(target: &str, sequence: u64, desired: FabricDesired) -> eno_schemas::Command {
    eno_schemas::Command::new("netconf", target, (1, sequence), Desired::Fabric(desired))
}

fn too_much(report: &Report) -> bool {
    matches!(&report.outcome, Outcome::Failed(failure) if failure.reason.contains("the device sends too much"))
}

/// One leaf answers too much, and the other one gets its changes, by a driver with the memory of its container.
async fn answers_beside_a_healthy_device(answers: Vec<LongAnswer>) {
    let bench = two_leaves("openconfig").await;
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let program = env!("CARGO_BIN_EXE_eno-driver-netconf");
    let mut driver = ShippedMemory::driver("netconf", program, &server, Some(bench.credentials.path()));
    let desired = |leaf: &str, vlans: &str| bench.desired(leaf, vlans, &["Ethernet1"]);
    engine.apply(&command("leaf2", 1, desired("leaf2", "100"))).await;
    let idle = driver.resident();

    let (mut sequence, mut vlans) = (1, 100);
    for answer in answers {
        bench.switch("leaf1").inject(Fault::Clear {});
        bench.switch("leaf1").inject(Fault::LongAnswer(answer));
        sequence += 1;
        engine.command(&command("leaf1", sequence, desired("leaf1", "100"))).await;
        vlans += 1;
        let start = Instant::now();
        engine.apply(&command("leaf2", sequence, desired("leaf2", &vlans.to_string()))).await;
        let healthy = start.elapsed();
        let report = engine
            .report("netconf", "leaf1", |report| report.generation.sequence == sequence && too_much(report))
            .await;
        driver.assert_alive();
        driver.print_peak(&format!("healthy device {healthy:?}: {:?}", report.outcome));
    }
    // The device answers as it should, and the memory is given back.
    bench.switch("leaf1").inject(Fault::Clear {});
    sequence += 1;
    engine.apply(&command("leaf1", sequence, desired("leaf1", "100"))).await;
    engine.apply(&command("leaf2", sequence, desired("leaf2", "200"))).await;
    assert_eq!(on_switch(bench.switch("leaf2"), "Ethernet1"), ("200".into(), "200".into()));
    driver.assert_alive();
    println!("{} MiB at first", idle >> 20);
    driver.assert_given_back();
}

#[tokio::test]
#[ignore = "needs root: cgroups"]
async fn device_with_450_000_interfaces_does_not_affect_others() {
    answers_beside_a_healthy_device(vec![interfaces(450_000)]).await;
}

/// The driver reads a MAC table of any length within its memory, and keeps of it what is asked for.
#[tokio::test]
#[ignore = "needs root: cgroups"]
async fn mac_table_of_200_000_addresses_fits() {
    let bench = two_leaves("openconfig").await;
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let program = env!("CARGO_BIN_EXE_eno-driver-netconf");
    let mut driver = ShippedMemory::driver("netconf", program, &server, Some(bench.credentials.path()));
    let desired = |lookup: Option<&str>| FabricDesired {
        lookup: lookup.map(str::to_owned),
        ..bench.desired("leaf1", "100", &["Ethernet1"])
    };
    engine.apply(&command("leaf1", 1, desired(None))).await;
    let (port, number) = ("Ethernet1".to_owned(), Some(200_000));
    let foreign = Fault::Learn { mac: "00:11:22:00:00:00".into(), vlan: 100, port, number };
    bench.switch("leaf1").inject(foreign);
    engine.command(&command("leaf1", 2, desired(Some("r1")))).await;
    let answered = |report: &Report| matches!(&report.applied, Some(Applied::Fabric { lookup: Some(lookup), .. }) if lookup.stations.is_empty());
    let report = engine.report("netconf", "leaf1", answered).await;
    assert_eq!((report.outcome, report.notes.len()), (Outcome::Applied, 0));
    driver.assert_alive();
    driver.print_peak("200,000 addresses");
    driver.assert_given_back();
}

mod lanes {
    use super::*;

    #[tokio::test]
    #[ignore = "needs root: cgroups"]
    async fn devices_that_answer_too_much_do_not_affect_others() {
        answers_beside_a_healthy_device(vec![
            interfaces(2_000_000),
            // More bytes than are read.
            interfaces(3_100_000),
            // Hardly any bytes of a reply, as entries without a name.
            entries(&interfaces(0).before, "<interface/>", 4_000_000, "</interfaces>"),
        ])
        .await;
    }
}
