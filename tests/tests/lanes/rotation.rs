//! `eno rotate` on an operator in pods. Meanwhile pods ping each other over their VLAN, and networks come and go.

use std::cell::Cell;
use std::collections::BTreeMap;

use async_nats::ConnectOptions;
use eno::forward::to_nats;
use eno::install::context::ContextStore;
use eno_nbi_crds::{L2Service, L2ServiceAttachment, Phase};
use eno_tests::{Receiver, System, access, deployment, service, with_own_sandbox};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use serde_json::json;

use crate::nodes::hot_plug::{addresses, attachment, network};
use crate::nodes::in_cluster::{every_check_passes, in_cluster};

/// The name of namespaces, networks and objects of this test.
const NAME: &str = "rotation";
const VID: u16 = 161;
/// VLANs of networks that come and go.
const OTHER_VIDS: [u16; 2] = [162, 163];

#[test]
#[ignore = "needs root: real nodes"]
fn keys_and_certificates_are_rotated_without_an_interruption() {
    with_own_sandbox(in_cluster, async |system| {
        let receiver = Receiver::start_at(system.sandbox.control_plane().address()).await;
        system.apply(&network(NAME, VID)).await;
        system.apply(&attachment(NAME, "oam")).await;
        system.apply(&deployment(NAME, "cnf", 2, &json!({ "attach.eno.k8s.io/oam": "net1" }))).await;
        system.running(NAME, "app=cnf", 2).await;
        let leases = addresses(system, &format!("{NAME}/oam"), 2).await;
        let [(pod, _), (_, others)] = &leases[..] else { panic!("{leases:?}") };
        system.pings(NAME, pod, &others[0], true).await;

        let mut others_changed = 0;
        for what in ["nats-keys", "certificates"] {
            let before = Credentials::read(system).await;
            before.are_accepted(system, true, "before the rotation").await;
            let is_rotated = Cell::new(false);
            let rotate = async {
                let output = system.eno(&["rotate", what], "").await;
                is_rotated.set(true);
                let stop = system.exec(NAME, pod, &["sh", "-c", ": > /dev/shm/stop"]).await;
                assert!(stop.is_some(), "the ping can't be stopped");
                output
            };
            let change = async {
                let first = others_changed;
                while !is_rotated.get() {
                    come_and_go(system, &receiver, others_changed).await;
                    others_changed += 1;
                }
                others_changed - first
            };
            let (output, changed, lost) = tokio::join!(rotate, change, ping(system, pod, &others[0]));
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "eno rotate {what}: {errors}");
            eprintln!("{what}: {changed} networks came and went; {lost}\n{errors}");
            assert!(lost.contains(" 0% packet loss"), "{what}: {lost}");
            assert!(changed > 0, "no network changed");

            before.are_accepted(system, false, &format!("after the rotation of {what}")).await;
            Credentials::read(system).await.are_accepted(system, true, "after the rotation").await;
            every_check_passes(system).await;
        }

        // No callback of the networks that came and went is lost.
        let names: Vec<_> =
            (0..others_changed).map(|number| format!("L2Service {}", other(number))).collect();
        receiver.until(&names, "deleted").await;
        for name in &names {
            let phases = receiver.phases(name);
            let numbers: Vec<_> = receiver.of(name).iter().map(|callback| callback.transition).collect();
            let complete: Vec<_> = (1..=numbers.len() as u64).collect();
            assert_eq!(numbers, complete, "{name}: {phases:?}");
            assert!(phases.iter().any(|phase| phase == "ready"), "{name}: {phases:?}");
        }
    });
}

fn other(number: usize) -> String {
    format!("{NAME}-other-{number}")
}

/// A network becomes ready on the switches, and is deleted.
async fn come_and_go(system: &System, receiver: &Receiver, number: usize) {
    let (name, vid) = (other(number), OTHER_VIDS[number % 2]);
    let service = service(&name, vid, &format!("CallbackURL: '{}'", receiver.url()));
    let attachment = access(NAME, &format!("other-{number}"), &name);
    system.apply(&service).await;
    system.apply(&attachment).await;
    system.becomes::<L2Service>(&name, Phase::Ready).await;
    system.becomes::<L2ServiceAttachment>(&format!("{NAME}/other-{number}"), Phase::Ready).await;
    system.delete(&attachment).await;
    system.delete(&service).await;
    system.until_without([vid]).await;
}

/// Pings until the file `/dev/shm/stop` exists in the pod; returns the summary.
async fn ping(system: &System, pod: &str, address: &str) -> String {
    // By its path: the shell has a ping of its own, which needs root.
    let script = format!(
        "rm -f /dev/shm/stop; /bin/ping -q -i 0.2 {address} & ping=$!; \
         while [ ! -e /dev/shm/stop ]; do sleep 1; done; kill -INT $ping; wait $ping"
    );
    let output = system.sandbox.exec(NAME, pod, &["sh", "-c", &script]).await.expect("a ping");
    let summary: String = output.stdout.lines().filter(|line| line.contains("packet")).collect();
    assert!(!summary.is_empty(), "{output:?}");
    summary
}

/// What lets clients in.
struct Credentials {
    /// Seeds by their user.
    seeds: BTreeMap<String, String>,
    /// The certificate authorities of NATS.
    authorities: String,
}

impl Credentials {
    async fn read(system: &System) -> Self {
        let info = system.sandbox.info();
        let home = info.contexts.expect("an operator in the cluster");
        let disk = ContextStore::at(home).cluster(&uid(system).await).read().expect("the admin's files");
        let mut seeds = BTreeMap::from([("inspect".to_owned(), disk["inspect.seed"].clone())]);
        for (namespace, user) in
            [("eno-system", "engine"), ("eno-system", "driver-nad"), ("eno-node", "agent")]
        {
            let secrets: Api<Secret> = Api::namespaced(system.sandbox.client(), namespace);
            let data = secrets.get("eno-nats").await.expect("a Secret").data.unwrap_or_default();
            let seed = String::from_utf8(data[&format!("{user}.seed")].0.clone()).expect("a seed");
            seeds.insert(user.to_owned(), seed);
        }
        Self { seeds, authorities: disk["ca.crt"].clone() }
    }

    /// Tries each seed with the authorities.
    async fn are_accepted(&self, system: &System, expected: bool, when: &str) {
        let address = to_nats(system.sandbox.client()).await.expect("a forwarded port");
        let directory = tempfile::tempdir().expect("a directory");
        let authorities = directory.path().join("ca.crt");
        std::fs::write(&authorities, &self.authorities).expect("written");
        for (user, seed) in &self.seeds {
            let options = ConnectOptions::with_nkey(seed.trim().to_owned())
                .require_tls(true)
                .add_root_certificates(authorities.clone());
            let connected = options.connect(format!("tls://localhost:{}", address.port())).await;
            assert_eq!(connected.is_ok(), expected, "{user} {when}: {connected:?}");
        }
    }
}

async fn uid(system: &System) -> String {
    let namespace = system.all::<Namespace>().get("kube-system").await.expect("a namespace");
    namespace.metadata.uid.unwrap_or_default()
}
