//! `eno rotate` exchanges keys and certificates under load.

use std::collections::BTreeMap;

use async_nats::ConnectOptions;
use eno::forward::to_nats;
use eno::install::context::ContextStore;
use eno_tests::System;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;

use super::load::under_load;
use super::with_operator_in_pods;
use crate::nodes::in_cluster::every_check_passes;

#[test]
#[ignore = "needs root: real nodes"]
fn keys_and_certificates_are_rotated_without_an_interruption() {
    with_operator_in_pods(async |system| {
        for what in ["nats-keys", "certificates"] {
            let before = Credentials::read(system).await;
            before.are_accepted(system, true, "before the rotation").await;
            let rotate = async || {
                let output = system.eno(&["rotate", what], "").await;
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "eno rotate {what}: {errors}");
            };
            under_load(system, what, rotate).await.assert_leaders_follow();
            before.are_accepted(system, false, &format!("after the rotation of {what}")).await;
            Credentials::read(system).await.are_accepted(system, true, "after the rotation").await;
            every_check_passes(system).await;
        }
    });
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
        let secrets: Api<Secret> = Api::namespaced(system.sandbox.client(), "eno-system");
        let data = secrets.get("eno-nats").await.expect("a Secret").data.unwrap_or_default();
        for user in ["engine", "driver-nad"] {
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
