//! The ports of the MAC addresses of probes, which the driver reads when it is asked.

use eno_sbi::Reconciled;
use eno_schemas::{Applied, FabricDesired, Lookup, NO_MAC_TABLE, Outcome, probe_mac_prefix};
use eno_simulator::{Fault, Switch, Topology, When};

use crate::common::{Bench, CLUSTER, applied_vlans};

/// The operation by which each dialect that has MAC tables reads them.
const DIALECTS: [(&str, &str); 3] =
    [("openconfig", "get"), ("junos", "get-ethernet-switching-table-information"), ("srlinux", "get")];

/// Two leaves of a dialect.
async fn leaves(dialect: &str) -> Bench {
    Bench::with(&Topology::leaf_spine_of(2, 0, 4, &[dialect])).await
}

/// The names of the first ports of leaf1.
fn ports(bench: &Bench) -> Vec<String> {
    bench.switch("leaf1").view().ports.into_keys().take(3).collect()
}

/// The VLANs 100 and 101 on two ports, with this lookup.
fn asking(bench: &Bench, lookup: Option<&str>) -> FabricDesired {
    let ports = ports(bench);
    let desired = bench.desired("leaf1", "100-101", &[&ports[0], &ports[1]]);
    FabricDesired { lookup: lookup.map(str::to_owned), ..desired }
}

async fn ask(bench: &Bench, lookup: Option<&str>) -> Reconciled {
    bench.reconcile("leaf1", asking(bench, lookup)).await
}

/// The address of a probe with this last byte.
fn probe(last: u8) -> String {
    let [a, b] = probe_mac_prefix(CLUSTER);
    format!("{a:02x}:{b:02x}:00:00:00:{last:02x}")
}

fn learn(mac: impl Into<String>, vlan: u16, port: &str) -> Fault {
    Fault::Learn { mac: mac.into(), vlan, port: port.to_owned(), number: None }
}

/// How often the switch was asked for its MAC table, or for other state.
fn reads(switch: &Switch, operation: &str) -> u64 {
    switch.stats().rpcs.get(operation).copied().unwrap_or_default()
}

fn lookup(reconciled: &Reconciled) -> Option<&Lookup> {
    assert_eq!(reconciled.outcome, Outcome::Applied, "{reconciled:?}");
    let Some(Applied::Fabric { lookup, .. }) = &reconciled.applied else { panic!("{reconciled:?}") };
    lookup.as_ref()
}

/// The answer: its revision, and the stations with the last byte of their addresses.
fn answer(reconciled: &Reconciled) -> (&str, Vec<(String, u16, String)>) {
    let Lookup { revision, stations } = lookup(reconciled).expect("an answer");
    let stations = stations.iter().map(|station| {
        let last = station.mac.rsplit(':').next().expect("a byte").to_owned();
        (last, station.vlan.get(), station.port.clone())
    });
    (revision, stations.collect())
}

/// The notes that the device can't be asked.
fn refusals(reconciled: &Reconciled) -> Vec<&str> {
    let notes = reconciled.notes.iter().filter(|note| note.kind == NO_MAC_TABLE);
    notes.map(|note| &*note.message).collect()
}

#[tokio::test]
async fn mac_table_is_read_once_for_each_lookup() {
    for (dialect, operation) in DIALECTS {
        let mut bench = leaves(dialect).await;
        let names = ports(&bench);
        for fault in [
            learn(probe(1), 100, &names[0]),
            learn(probe(2), 101, &names[1]),
            learn(probe(1).to_uppercase(), 101, &names[0]),
            // A VLAN and a port that the command does not name, and the address of another.
            learn(probe(3), 7, &names[0]),
            learn(probe(4), 100, &names[2]),
            learn("00:11:22:33:44:55", 100, &names[0]),
        ] {
            bench.switch("leaf1").inject(fault);
        }
        let asked = |bench: &Bench| reads(bench.switch("leaf1"), operation);
        let found = |mac: &str, vlan, at: usize| (mac.to_owned(), vlan, names[at].clone());
        let all = vec![found("01", 100, 0), found("01", 101, 0), found("02", 101, 1)];

        let unasked = ask(&bench, None).await;
        assert_eq!((lookup(&unasked), refusals(&unasked).len()), (None, 0), "{dialect}");
        let before = asked(&bench);
        // Once the change is applied; and nothing is written for it later.
        let first = ask(&bench, Some("r1")).await;
        assert_eq!(answer(&first), ("r1", all.clone()), "{dialect}");
        assert_eq!((asked(&bench), refusals(&first).len()), (before + 1, 0), "{dialect}");
        assert_eq!(first.change, None, "{dialect}");

        bench.switch("leaf1").inject(Fault::Clear {});
        bench.switch("leaf1").inject(learn(probe(5), 100, &names[1]));
        assert_eq!(answer(&ask(&bench, Some("r1")).await), ("r1", all), "{dialect}");
        assert_eq!(asked(&bench), before + 1, "{dialect}: the answer is kept");
        // Without the second port, nothing of it is in the answer.
        let fewer =
            FabricDesired { lookup: Some("r1".into()), ..bench.desired("leaf1", "100-101", &[&names[0]]) };
        let fewer = bench.reconcile("leaf1", fewer).await;
        assert!(answer(&fewer).1.iter().all(|(.., port)| *port == names[0]), "{dialect}: {fewer:?}");
        assert_eq!(asked(&bench), before + 1, "{dialect}");

        let now = vec![found("05", 100, 1)];
        assert_eq!(answer(&ask(&bench, Some("r2")).await), ("r2", now.clone()), "{dialect}");
        assert_eq!(asked(&bench), before + 2, "{dialect}");
        assert_eq!(lookup(&ask(&bench, None).await), None, "{dialect}");
        assert_eq!(asked(&bench), before + 2, "{dialect}: nothing is asked");
        // Another process reads it again.
        bench.restart_driver();
        assert_eq!(answer(&ask(&bench, Some("r2")).await), ("r2", now), "{dialect}");
        assert_eq!(asked(&bench), before + 3, "{dialect}");
    }
}

/// The first command of a switch may ask, and the table is read once its VLANs are there.
#[tokio::test]
async fn mac_table_is_read_after_the_change() {
    for (dialect, _) in DIALECTS {
        let bench = leaves(dialect).await;
        let names = ports(&bench);
        bench.switch("leaf1").inject(learn(probe(1), 100, &names[1]));
        let changed = ask(&bench, Some("r1")).await;
        assert!(changed.change.is_some(), "{dialect}");
        assert_eq!(answer(&changed), ("r1", vec![("01".into(), 100, names[1].clone())]), "{dialect}");
    }
}

#[tokio::test]
async fn device_that_refuses_stays_applied_and_is_not_asked_again() {
    for (dialect, operation) in DIALECTS {
        let bench = leaves(dialect).await;
        ask(&bench, None).await;
        let denied = Fault::AccessDenied { subtree: None, operation: Some(operation.into()), hidden: false };
        bench.switch("leaf1").inject(denied);
        let before = reads(bench.switch("leaf1"), operation);
        for _ in 0..2 {
            let refused = ask(&bench, Some("r1")).await;
            assert_eq!(answer(&refused), ("r1", vec![]), "{dialect}");
            assert_eq!(applied_vlans(&refused).0, "100-101", "{dialect}");
            let [why] = refusals(&refused)[..] else { panic!("{dialect}: {refused:?}") };
            assert!(why.contains("was refused: access-denied"), "{dialect}: {why}");
        }
        assert_eq!(reads(bench.switch("leaf1"), operation), before + 1, "{dialect}");
        assert_eq!(bench.switch("leaf1").stats().sessions_opened, 1, "{dialect}");
        // It may answer when it is asked anew.
        bench.switch("leaf1").inject(Fault::Clear {});
        let answered = ask(&bench, Some("r2")).await;
        assert_eq!((answer(&answered), refusals(&answered).len()), (("r2", vec![]), 0), "{dialect}");
    }
}

#[tokio::test]
async fn table_is_read_again_after_a_session_that_was_lost() {
    let bench = leaves("junos").await;
    let (names, operation) = (ports(&bench), DIALECTS[1].1);
    ask(&bench, None).await;
    let drop = Fault::Drop { operation: Some(operation.into()), when: When::Before, times: Some(1) };
    bench.switch("leaf1").inject(drop);
    bench.switch("leaf1").inject(learn(probe(1), 100, &names[0]));
    let lost = ask(&bench, Some("r1")).await;
    assert_eq!((answer(&lost), refusals(&lost).len()), (("r1", vec![]), 1));
    assert_eq!(applied_vlans(&lost).0, "100-101");
    // The next reconcile reads again, and this answer is kept.
    for _ in 0..2 {
        let again = ask(&bench, Some("r1")).await;
        let found = vec![("01".to_owned(), 100, names[0].clone())];
        assert_eq!((answer(&again), refusals(&again).len()), (("r1", found), 0));
    }
    assert_eq!(bench.switch("leaf1").stats().sessions_opened, 2);
    assert_eq!(reads(bench.switch("leaf1"), operation), 2);
}

#[tokio::test]
async fn dialects_without_mac_tables_say_so() {
    for dialect in ["ieee8021q", "nxos"] {
        let bench = leaves(dialect).await;
        let reconciled = ask(&bench, Some("r1")).await;
        assert_eq!(answer(&reconciled), ("r1", vec![]), "{dialect}");
        let [why] = refusals(&reconciled)[..] else { panic!("{dialect}: {reconciled:?}") };
        assert!(why.ends_with("reads no MAC tables"), "{dialect}: {why}");
    }
}

/// Of a table of any size only what is asked for is kept.
#[tokio::test]
async fn probes_are_found_among_100_000_addresses() {
    for (dialect, _) in DIALECTS {
        let bench = leaves(dialect).await;
        let names = ports(&bench);
        ask(&bench, None).await;
        let (mac, port) = ("00:11:22:00:00:00".into(), names[0].clone());
        bench.switch("leaf1").inject(Fault::Learn { mac, vlan: 100, port, number: Some(100_000) });
        bench.switch("leaf1").inject(learn(probe(1), 100, &names[1]));
        let reconciled = ask(&bench, Some("r1")).await;
        assert_eq!(refusals(&reconciled), [""; 0], "{dialect}");
        assert_eq!(answer(&reconciled).1, [("01".to_owned(), 100, names[1].clone())], "{dialect}");
    }
}
