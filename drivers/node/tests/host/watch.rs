//! Drift is notified at once, ENO's own changes are not.

use std::pin::pin;
use std::time::{Duration, Instant};

use eno_driver_node::host::Host;
use eno_driver_node::host::state::Installation;
use eno_schemas::{HostNetwork, Uplink};
use futures::StreamExt as _;

use crate::host::common::{Net, desired};

/// Maximum time until drift is notified; virtual machines are slow.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time without any notification that proves silence.
const QUIET: Duration = Duration::from_millis(700);

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn drift_is_notified_and_repaired() {
    let (node, rest) = (Net::new(), Net::new());
    node.nic("eth1", &rest, "p-eth1");
    let host = Host::new(node.0.clone(), Installation::default());
    let addresses = vec!["10.66.0.1/24".parse().unwrap(), "fd66::1/64".parse().unwrap()];
    let uplink = Some(Uplink { interfaces: vec!["eth1".into()], mtu: Some(2000) });
    let wanted = desired([
        ("pods", HostNetwork::PodBridge { addresses, mtu: Some(1400) }),
        ("ovs0", HostNetwork::Ovs { datapath: None, uplink, patch: None, vlans: "1".parse().unwrap() }),
    ]);
    let mut changed = pin!(host.changed());
    // It subscribes, and nothing is desired yet.
    assert!(tokio::time::timeout(QUIET, changed.next()).await.is_err());
    let (applied, notes) = host.reconcile(&wanted, || true).await.unwrap();
    assert!(applied.refused.is_empty() && notes.is_empty(), "{:?} {notes:?}", applied.refused);
    let state = node.restorable_state();
    for (words, network, said) in [
        ("link set pods down", "pods", "pods was down"),
        ("link set pods mtu 1300", "pods", "MTU of 1300"),
        ("link set pods alias mine", "pods", "another alias"),
        ("address del 10.66.0.1/24 dev pods", "pods", "the address 10.66.0.1/24"),
        ("address add 10.77.0.1/24 dev pods", "pods", "the address 10.77.0.1/24"),
        ("rule del from 10.66.0.1 priority 20101", "pods", "the rule from 10.66.0.1/32"),
        ("-6 rule del from fd66::1 priority 20101", "pods", "the rule from fd66::1/128"),
        ("link del pods", "pods", "the bridge pods was missing"),
        ("link set eth1 mtu 1500", "ovs0", "MTU of 1500"),
        ("link set eth1 down", "ovs0", "eth1 was down"),
    ] {
        // ENO's own changes are not notified.
        assert!(tokio::time::timeout(QUIET, changed.next()).await.is_err(), "woken before {words:?}");
        let begun = Instant::now();
        node.ip(words);
        tokio::time::timeout(TIMEOUT, changed.next()).await.expect(words);
        if std::env::var_os("ENO_VM_LANE").is_none() {
            assert!(
                begun.elapsed() < Duration::from_secs(1),
                "{words} was noticed after {:?}",
                begun.elapsed()
            );
        }
        let (applied, notes) = host.reconcile(&wanted, || true).await.unwrap();
        assert!(applied.refused.is_empty(), "{:?}", applied.refused);
        let [note] = notes.as_slice() else { panic!("{words}: {notes:?}") };
        assert_eq!((note.kind.as_str(), note.item.port.as_deref()), ("Repaired", Some(network)));
        assert!(note.message.contains(said), "{words}: {}", note.message);
        if words != "link del pods" {
            assert_eq!(node.foreign_state(), {
                let (_, notes) = host.reconcile(&wanted, || true).await.unwrap();
                assert!(notes.is_empty(), "{notes:?}");
                node.foreign_state()
            });
        }
    }
    drop(state);
    // Changes of foreign interfaces are not notified.
    node.ip("link add other type bridge");
    node.ip("address add 198.51.100.1/24 dev other");
    assert!(tokio::time::timeout(QUIET, changed.next()).await.is_err());
}

#[tokio::test]
#[ignore = "needs root: network namespaces"]
async fn appearance_of_missing_nic_is_notified() {
    let (node, rest) = (Net::new(), Net::new());
    let host = Host::new(node.0.clone(), Installation::default());
    let uplink = Some(Uplink { interfaces: vec!["eth7".into()], mtu: None });
    let wanted = desired([(
        "ovs0",
        HostNetwork::Ovs { datapath: None, uplink, patch: None, vlans: "1".parse().unwrap() },
    )]);
    let mut changed = pin!(host.changed());
    let (applied, _) = host.reconcile(&wanted, || true).await.unwrap();
    assert!(applied.rejected().any(|rejected| rejected.reason.contains("eth7") && rejected.retryable));
    assert!(tokio::time::timeout(QUIET, changed.next()).await.is_err());
    node.nic("eth7", &rest, "p-eth7");
    tokio::time::timeout(TIMEOUT, changed.next()).await.expect("news");
    let (applied, notes) = host.reconcile(&wanted, || true).await.unwrap();
    assert!(applied.refused.is_empty());
    assert_eq!(notes.len(), 1, "{notes:?}");
    let unwanted = host.reconcile(&wanted, || false).await.unwrap();
    assert!(unwanted.0.changed.is_empty());
    let overtaken = host.reconcile(&desired([]), || false).await;
    assert!(matches!(overtaken, Err(eno_driver_node::host::HostError::Superseded)), "{overtaken:?}");
}
