//! A nats-server with the configuration of an upgrade, and of a rotation of keys.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Stdio;

use async_nats::ConnectOptions;
use eno::install::rotation::add_keys;
use eno::install::secrets::{Secrets, complete, user_key};
use eno::install::{Values, render};
use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::pick_port;
use eno_tests::poll;
use kube::ResourceExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::SYSTEM;

/// The configuration and the environment of the servers.
fn configured(secrets: &Secrets) -> (String, BTreeMap<String, String>) {
    let objects = render::objects(&Values::default(), secrets).expect("objects");
    let data = |kind: &str| {
        let found = objects.iter().find(|object| {
            object.types.as_ref().is_some_and(|types| types.kind == kind)
                && object.name_any() == "eno-nats"
                && object.namespace().as_deref() == Some(SYSTEM)
        });
        &found.expect(kind).data
    };
    let text = data("ConfigMap")["data"]["authorization.conf"].as_str().expect("a text").to_owned();
    let variables = data("StatefulSet")["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let variables = variables.expect("variables").iter().filter_map(|variable| {
        let key = variable["valueFrom"]["secretKeyRef"]["key"].as_str()?;
        let value = String::from_utf8(secrets.nats[key].clone()).expect("a key");
        Some((variable["name"].as_str()?.to_owned(), value))
    });
    (text, variables.collect())
}

#[tokio::test]
async fn servers_accept_shared_and_second_keys_while_they_are_there() {
    let now = "2026-11-24T12:00:00Z".parse().expect("a time");
    let new = complete(&Secrets::default(), &Values::default(), now).expect("made").secrets;
    let shared = user_key().expect("a key");
    let mut upgraded = new.clone();
    upgraded.nats.insert("agent.pub".to_owned(), shared.public.into_bytes());
    add_keys(&mut upgraded.nats, &BTreeMap::new()).expect("second keys");
    let text = |key: &str| String::from_utf8(upgraded.nats[key].clone()).expect("a seed");
    let (first, second) = (text("driver-nad.seed"), text("driver-nad.next.seed"));
    let program = Parts::from_env().expect("a cache").get(Part::NatsServer).await.expect("a nats-server");
    for (secrets, expected) in [(&upgraded, [true, true, true]), (&new, [true, false, false])] {
        let directory = tempfile::tempdir().expect("a directory");
        let port = pick_port().expect("a free port");
        let (configuration, variables) = configured(secrets);
        let file = directory.path().join("nats.conf");
        std::fs::write(&file, configuration).expect("written");
        let _server = Command::new(&program)
            .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"])
            .arg(directory.path())
            .arg("--config")
            .arg(&file)
            .envs(variables)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("nats-server starts");
        let listens = poll(async || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()).await;
        assert!(listens.is_some(), "nats-server refuses its configuration");
        for (seed, expected) in [&first, &second, &shared.seed].into_iter().zip(expected) {
            let connected =
                ConnectOptions::with_nkey(seed.clone()).connect(format!("nats://127.0.0.1:{port}")).await;
            assert_eq!(connected.is_ok(), expected, "{connected:?}");
        }
    }
}
