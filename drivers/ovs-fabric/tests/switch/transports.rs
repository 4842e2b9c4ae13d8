//! Unix socket, TCP and TLS, and their loss.

use eno_sbi::Driver as _;
use eno_schemas::{Failure, Outcome};
use futures::StreamExt as _;

use crate::switch::rig::{Switch, Way, applied, on, reconcile, soon};
use crate::switch::tls;

fn failure(reconciled: eno_sbi::Reconciled) -> Failure {
    match reconciled.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

async fn works_and_comes_back(way: Way) {
    let mut switch = Switch::reached_by(way);
    let driver = switch.driver();
    let mut changed = Box::pin(driver.changed());
    let desired = switch.desired(&[("p1", "10"), ("p2", "")]);
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));

    switch.stop_server();
    soon("word of the loss", changed.next()).await;
    let away = failure(reconcile(&driver, &desired).await);
    assert!(away.unreachable && away.retryable, "{away:?}");
    assert!(away.reason.contains(&switch.address()), "{away:?}");

    switch.start_server();
    switch.vsctl("remove Port p1 trunks 10");
    if !matches!(way, Way::Tls) {
        // With TLS the next try opens a new session, for certificates that may be other ones.
        soon("word of the return", changed.next()).await;
    }
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));
    assert_eq!(switch.trunks("p1"), [5, 10]);

    switch.vsctl("remove Port p1 trunks 10");
    soon("word of drift", changed.next()).await;
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));
}

#[tokio::test]
async fn over_a_unix_socket() {
    works_and_comes_back(Way::Unix).await;
}

#[tokio::test]
async fn over_tcp() {
    works_and_comes_back(Way::Tcp).await;
}

#[tokio::test]
async fn over_tls() {
    works_and_comes_back(Way::Tls).await;
}

#[tokio::test]
async fn nothing_is_said_to_a_server_that_is_not_trusted() {
    let switch = Switch::reached_by(Way::Tls);
    let driver = switch.driver();
    let desired = switch.desired(&[("p1", "10")]);
    tls::distrust(switch.path("").as_path());
    let said = failure(reconcile(&driver, &desired).await);
    assert!(said.reason.contains("certificate") && said.retryable, "{said:?}");

    // The certificate is for 127.0.0.1.
    tls::trust(switch.path("").as_path());
    let mut misled = desired.clone();
    misled.device.address = misled.device.address.replace("127.0.0.1", "localhost");
    let said = failure(reconcile(&driver, &misled).await);
    assert!(said.reason.contains("certificate"), "{said:?}");
    assert_eq!(switch.trunks("p1"), [5]);

    // Certificates are read at each try.
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10")]));

    let mut without = desired.clone();
    without.device.credential = None;
    let said = failure(reconcile(&driver, &without).await);
    assert!(said.reason.contains("Credentials.SecretName"), "{said:?}");
}

#[tokio::test]
async fn an_address_of_another_kind_is_wrong_and_not_unreachable() {
    let switch = Switch::start();
    let mut desired = switch.desired(&[("p1", "10")]);
    desired.device.address = "leaf1:830".into();
    let said = failure(reconcile(&switch.driver(), &desired).await);
    assert!(!said.retryable && !said.unreachable, "{said:?}");
    assert!(said.reason.contains("Address \"leaf1:830\""), "{said:?}");
}

#[tokio::test]
async fn a_database_without_a_switch_is_told() {
    let switch = Switch::start();
    let mut desired = switch.desired(&[("p1", "10")]);
    desired.device.address = format!("unix:{}", switch.path("nobody.sock").display());
    let said = failure(reconcile(&switch.driver(), &desired).await);
    assert!(said.retryable && said.unreachable, "{said:?}");
    assert!(said.reason.contains("nobody.sock"), "{said:?}");
}
