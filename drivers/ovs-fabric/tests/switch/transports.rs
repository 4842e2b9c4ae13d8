//! The transports (unix socket, TCP and TLS) and their loss.

use eno_conformance::soon;
use eno_sbi::Driver as _;
use eno_schemas::{Failure, Outcome};
use futures::StreamExt as _;

use crate::switch::fixture::{Switch, Transport, applied, on, reconcile};
use crate::switch::tls;

fn failure(reconciled: eno_sbi::Reconciled) -> Failure {
    match reconciled.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

async fn reconciles_and_reconnects(transport: Transport) {
    let mut switch = Switch::reached_by(transport);
    let driver = switch.driver();
    let mut changed = Box::pin(driver.changed());
    let desired = switch.desired(&[("p1", "10"), ("p2", "")]);
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));

    switch.stop_server();
    soon("notification of the loss", changed.next()).await;
    let away = failure(reconcile(&driver, &desired).await);
    assert!(away.unreachable && away.retryable, "{away:?}");
    assert!(away.reason.contains(&switch.address()), "{away:?}");

    switch.start_server();
    switch.vsctl("remove Port p1 trunks 10");
    if !matches!(transport, Transport::Tls) {
        // With TLS the next reconcile opens a new session, since the certificates may have changed.
        soon("notification of the return", changed.next()).await;
    }
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));
    assert_eq!(switch.trunks("p1"), [5, 10]);

    switch.vsctl("remove Port p1 trunks 10");
    soon("notification of drift", changed.next()).await;
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));
}

#[tokio::test]
async fn driver_works_over_a_unix_socket() {
    reconciles_and_reconnects(Transport::Unix).await;
}

#[tokio::test]
async fn driver_works_over_tcp() {
    reconciles_and_reconnects(Transport::Tcp).await;
}

#[tokio::test]
async fn driver_works_over_tls() {
    reconciles_and_reconnects(Transport::Tls).await;
}

#[tokio::test]
async fn untrusted_server_receives_no_requests() {
    let switch = Switch::reached_by(Transport::Tls);
    let driver = switch.driver();
    let desired = switch.desired(&[("p1", "10")]);
    tls::distrust(switch.path("").as_path());
    let failed = failure(reconcile(&driver, &desired).await);
    assert!(failed.reason.contains("certificate") && failed.retryable, "{failed:?}");

    // The server's certificate is for 127.0.0.1.
    tls::trust(switch.path("").as_path());
    let mut misled = desired.clone();
    misled.device.address = misled.device.address.replace("127.0.0.1", "localhost");
    let failed = failure(reconcile(&driver, &misled).await);
    assert!(failed.reason.contains("certificate"), "{failed:?}");
    assert_eq!(switch.trunks("p1"), [5]);

    // Certificates are read at each try.
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));

    let mut without = desired.clone();
    without.device.credential = None;
    let failed = failure(reconcile(&driver, &without).await);
    assert!(failed.reason.contains("Credentials.SecretName"), "{failed:?}");
}

#[tokio::test]
async fn unsupported_address_is_refused_and_not_called_unreachable() {
    let switch = Switch::start();
    let mut desired = switch.desired(&[("p1", "10")]);
    desired.device.address = "leaf1:830".into();
    let failed = failure(reconcile(&switch.driver(), &desired).await);
    assert!(!failed.retryable && !failed.unreachable, "{failed:?}");
    assert!(failed.reason.contains("Address \"leaf1:830\""), "{failed:?}");
}

#[tokio::test]
async fn database_without_open_vswitch_row_is_reported() {
    let switch = Switch::start();
    let mut desired = switch.desired(&[("p1", "10")]);
    desired.device.address = format!("unix:{}", switch.path("nobody.sock").display());
    let failed = failure(reconcile(&switch.driver(), &desired).await);
    assert!(failed.retryable && failed.unreachable, "{failed:?}");
    assert!(failed.reason.contains("nobody.sock"), "{failed:?}");
}
