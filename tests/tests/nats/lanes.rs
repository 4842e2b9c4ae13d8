//! Loss of streams, store and server with a thousand attachments.

use std::path::PathBuf;

use eno_control_plane::NatsUser;
use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{Receiver, System, with_own_sandbox};
use kube::runtime::watcher;

use super::{nats, versions};

const SERVICES: u16 = 20;
const ATTACHMENTS: u16 = 1000;
const STREAMS: [&str; 8] = [
    "ENO_COMMANDS",
    "ENO_RESULTS",
    "ENO_TRANSITIONS",
    "ENO_HISTORY",
    "ENO_DEAD_LETTERS",
    "KV_ENO_DRIVERS",
    "KV_ENO_OWNERS",
    "KV_ENO_CALLBACKS",
];

/// The manifests of services with their attachments, and the objects' names in callbacks.
fn networks(test: &str, first: u16, url: &str) -> (String, Vec<String>) {
    let (mut yaml, mut objects) = (String::new(), Vec::new());
    let spec = format!("CallbackURL: '{url}'");
    for n in 0..SERVICES {
        let vid = first + n;
        yaml.extend([format!(
            "\n---\napiVersion: eno.k8s.io/v1alpha1\nkind: L2Service\nmetadata: {{name: {test}-{n}, labels: {{test: \
             {test}}}}}\nspec: {{SegmentationID: {vid}, PhysicalNW: [dc-gw], {spec}}}"
        )]);
        objects.push(format!("L2Service {test}-{n}"));
    }
    for n in 0..ATTACHMENTS {
        let service = n % SERVICES;
        yaml.extend([format!(
            "\n---\napiVersion: eno.k8s.io/v1alpha1\nkind: L2ServiceAttachment\nmetadata: {{name: a{n}, namespace: \
             {test}, labels: {{test: {test}}}}}\nspec: {{ConnectionPoint: {test}, L2Services: [{test}-{service}], \
             VlanType: access, {spec}}}"
        )]);
        objects.push(format!("L2ServiceAttachment {test}/a{n}"));
    }
    (yaml, objects)
}

async fn all_ready(system: &System, test: &str) {
    system.all_become::<L2Service>(test, SERVICES.into(), Phase::Ready).await;
    system.all_become::<L2ServiceAttachment>(test, ATTACHMENTS.into(), Phase::Ready).await;
}

/// Runs `lose` while attachments are created, when nothing is to do, and while they are deleted.
async fn assert_survives(system: &System, test: &str, first: u16, lose: impl AsyncFn()) {
    system.create_connection_point(test).await;
    let receiver = Receiver::start().await;
    let (yaml, objects) = networks(test, first, receiver.url());
    let some = async |count: usize| {
        let config = watcher::Config::default().labels(&format!("test={test}"));
        let api = system.all::<L2ServiceAttachment>();
        system.until(api, config, "some attachments", |all| all.len() >= count).await;
    };
    tokio::join!(system.apply(&yaml), async {
        some(usize::from(ATTACHMENTS) / 4).await;
        lose().await;
    });
    all_ready(system, test).await;
    receiver.until(&objects, "ready").await;
    for vid in [first, first + SERVICES - 1] {
        assert_eq!(system.ports_of(vid).await.len(), 11, "the ports of VLAN {vid}");
    }

    // When idle, no switch is changed, and every callback is posted once more.
    let before = versions(system).await;
    receiver.forget();
    lose().await;
    receiver.until(&objects, "ready").await;
    all_ready(system, test).await;
    assert_eq!(versions(system).await, before, "a switch was configured anew");

    tokio::join!(system.request_deletion(&yaml), async {
        let config = watcher::Config::default().labels(&format!("test={test}"));
        let most = usize::from(ATTACHMENTS) / 4 * 3;
        let api = system.all::<L2ServiceAttachment>();
        system.until(api, config, "fewer attachments", |all| all.len() <= most).await;
        lose().await;
    });
    system.none_left::<L2ServiceAttachment>(test).await;
    system.none_left::<L2Service>(test).await;
    system.until_without(first..first + SERVICES).await;
}

#[test]
fn networks_survive_deletion_of_every_stream() {
    with_own_sandbox(
        |_| (),
        async |system| {
            let jetstream = nats(system, NatsUser::Admin).await;
            assert_survives(system, "streams", 1000, async || {
                for stream in STREAMS {
                    jetstream.delete_stream(stream).await.expect("a stream to delete");
                }
            })
            .await;
        },
    );
}

#[test]
fn networks_survive_loss_of_the_jetstream_store() {
    with_own_sandbox(
        |_| (),
        async |system| {
            let store: PathBuf = system.sandbox.control_plane().dir().join("nats/jetstream");
            assert_survives(system, "store", 1000, async || {
                let wipe = || std::fs::remove_dir_all(&store).expect("a store to remove");
                system.restart_part_after("nats-server", wipe).await;
            })
            .await;
        },
    );
}

#[test]
fn networks_and_callbacks_survive_a_server_crash() {
    with_own_sandbox(
        |_| (),
        async |system| {
            let receiver = Receiver::start().await;
            system.create_connection_point("server").await;
            let (yaml, objects) = networks("server", 1000, receiver.url());
            tokio::join!(system.apply(&yaml), async {
                let config = watcher::Config::default().labels("test=server");
                let some = usize::from(ATTACHMENTS) / 4;
                let api = system.all::<L2ServiceAttachment>();
                system.until(api, config, "some attachments", |all| all.len() >= some).await;
                system.restart_part("nats-server").await;
            });
            all_ready(system, "server").await;
            receiver.until(&objects, "ready").await;
            for object in &objects {
                let numbers: Vec<_> =
                    receiver.of(object).iter().map(|callback| callback.transition).collect();
                let complete: Vec<_> = (1..=numbers.len() as u64).collect();
                assert_eq!(numbers, complete, "the callbacks of {object}");
            }
        },
    );
}
