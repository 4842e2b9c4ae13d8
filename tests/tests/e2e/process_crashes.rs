//! Crashes of the engine, the drivers and NATS while objects are created.

use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{Receiver, System, attachment, service, with_exclusive_sandbox};
use kube::runtime::watcher;

use crate::e2e::create_connection_point;

const POINT: &str = "crash";

/// Creates `count` services with an attachment each, and runs `disturb` once some of them exist. All of them must be
/// created and deleted nevertheless, with every callback.
async fn assert_survives(system: &System, test: &str, first: u16, count: u16, disturb: impl AsyncFnOnce()) {
    system.namespace(test).await;
    create_connection_point(system, POINT, &["node1", "node3"]).await;
    let receiver = Receiver::start().await;
    let callback = format!("CallbackURL: '{}'", receiver.url());
    let mut manifests = String::new();
    let mut objects = Vec::new();
    for n in 0..count {
        let name = format!("{test}-{n}");
        manifests += &service(&name, first + n, &format!("PhysicalNW: [dc-gw], {callback}"));
        manifests +=
            &attachment(test, &format!("a{n}"), POINT, &name, &format!("VlanType: access, {callback}"));
        objects.push(format!("L2Service {name}"));
        objects.push(format!("L2ServiceAttachment {test}/a{n}"));
    }
    let disturbing = async {
        let config = watcher::Config::default().labels(&format!("test={test}"));
        let some = usize::from(count) / 4;
        system
            .until(system.all::<L2ServiceAttachment>(), config, "some attachments", |all| all.len() >= some)
            .await;
        disturb().await;
    };
    tokio::join!(system.apply(&manifests), disturbing);

    let all = usize::from(count);
    system.all_become::<L2Service>(test, all, Phase::Ready).await;
    system.all_become::<L2ServiceAttachment>(test, all, Phase::Ready).await;
    receiver.until(&objects, "ready").await;
    for vid in [first, first + count - 1] {
        assert_eq!(system.ports_of(vid).await.len(), 11, "the ports of VLAN {vid}");
    }
    system.request_deletion(&manifests).await;
    system.none_left::<L2ServiceAttachment>(test).await;
    system.none_left::<L2Service>(test).await;
    system.until_without(first..first + count).await;
    receiver.until(&objects, "deleted").await;
    for object in &objects {
        let callbacks = receiver.of(object);
        let numbers: Vec<_> = callbacks.iter().map(|callback| callback.transition).collect();
        let complete: Vec<_> = (1..=callbacks.len() as u64).collect();
        assert_eq!(numbers, complete, "the callbacks of {object}: {:?}", receiver.phases(object));
    }
}

async fn kill_and_start(system: &System, child: &str) {
    system.sandbox.kill_child(child).await.expect("a child to kill");
    system.sandbox.start_child(child).await.expect("the child again");
}

#[test]
fn networks_and_callbacks_survive_an_engine_crash() {
    with_exclusive_sandbox(async |system| {
        assert_survives(system, "killengine", 1000, 100, async || kill_and_start(system, "engine").await)
            .await;
    });
}

#[test]
fn networks_and_callbacks_survive_driver_crashes() {
    with_exclusive_sandbox(async |system| {
        assert_survives(system, "killdrivers", 1200, 30, async || {
            tokio::join!(kill_and_start(system, "driver-netconf"), kill_and_start(system, "driver-nad"));
        })
        .await;
    });
}

#[test]
fn networks_and_callbacks_survive_a_nats_crash() {
    with_exclusive_sandbox(async |system| {
        assert_survives(system, "killnats", 1300, 30, async || system.restart_part("nats-server").await)
            .await;
    });
}
