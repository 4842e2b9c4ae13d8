//! A cluster of three servers with the shipped configuration, one of which is killed.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::{NatsUser, nats_keys, pick_port};
use tempfile::TempDir;
use tokio::process::{Child, Command as Process};

use super::*;
use eno_sbi::nats::{NatsArgs, connect, ensure_streams};

const SERVERS: usize = 3;
const TARGETS: u64 = 100;
/// Time limit for a leader election of three servers on a busy machine.
const ELECTIONS: Duration = Duration::from_mins(2);

/// Killed when it is dropped.
struct Cluster {
    servers: Vec<Option<Child>>,
    ports: Vec<u16>,
    data: TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let program = Parts::from_env().unwrap().get(Part::NatsServer).await.unwrap();
        let data = TempDir::new().unwrap();
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
        let files = ["nats.conf", "authorization.conf", "tls.conf", "cluster-tls.conf"]
            .map(|name| format!("nats/{name}"));
        for file in files.into_iter().chain(["nats-cluster/cluster.conf".to_owned()]) {
            let from: PathBuf = deploy.join(file);
            std::fs::copy(&from, data.path().join(from.file_name().unwrap())).unwrap();
        }
        let keys = nats_keys(data.path()).unwrap();
        let pick = || (0..SERVERS).map(|_| pick_port().unwrap()).collect::<Vec<_>>();
        let (ports, routes) = (pick(), pick());
        let route = |n: usize| format!("nats-route://eno:secret@127.0.0.1:{}", routes[n]);
        let start = |n: usize| {
            let log = std::fs::File::create(data.path().join(format!("log{n}"))).unwrap();
            let child = Process::new(&program)
                .arg("--config")
                .arg(data.path().join("nats.conf"))
                .args(["--addr", "127.0.0.1", "--port", &ports[n].to_string(), "--http_port", "-1"])
                .args(["--cluster", &route(n)])
                .env("POD_NAME", format!("eno-nats-{n}"))
                .env("STORE_DIR", data.path().join(n.to_string()))
                .env("ROUTE_PASSWORD", "\"secret\"")
                .envs((0..SERVERS).map(|n| (format!("ROUTE_{n}"), format!("\"{}\"", route(n)))))
                .envs(keys.iter().map(|(user, key)| (user.variable(), key)))
                .stdout(Stdio::null())
                .stderr(log)
                .kill_on_drop(true)
                .spawn();
            Some(child.unwrap())
        };
        let servers = (0..SERVERS).map(start).collect();
        Self { servers, ports, data }
    }

    async fn connect(&self) -> Connection {
        let urls: Vec<_> = self.ports.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
        let args = NatsArgs {
            nats_url: urls.join(","),
            nats_credentials: Some(self.data.path().join(format!("{}.seed", NatsUser::Admin.name()))),
            nats_ca: None,
            nats_replicas: 3,
        };
        connect(&args, "eno-test", &CancellationToken::new()).await.unwrap()
    }

    async fn kill(&mut self, name: &str) {
        let n: usize = name.strip_prefix("eno-nats-").unwrap().parse().unwrap();
        self.servers[n].take().unwrap().kill().await.unwrap();
    }
}

/// Retries until it succeeds: a server may not answer while there is no leader.
async fn retry_until_ok<T, E: std::fmt::Display>(
    what: &str,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let mut last = String::new();
    let trying = async {
        loop {
            match attempt().await {
                Ok(done) => return done,
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::time::timeout(ELECTIONS, trying).await;
    done.unwrap_or_else(|_| panic!("{what}: {last}"))
}

async fn publish_command(engine: &Connection, sequence: u64) {
    for n in 0..TARGETS {
        let command = command(&format!("t{n}"), 1, sequence);
        let (subject, payload) =
            (Subject::command(DRIVER, &command.target).to_string(), encode(&command).unwrap());
        retry_until_ok("publishing", async || {
            engine.jetstream.publish(subject.clone(), payload.clone().into()).await?.await
        })
        .await;
    }
}

async fn until_reported(engine: &Connection, sequence: u64) {
    for n in 0..TARGETS {
        let subject = Subject::result(DRIVER, &format!("t{n}")).to_string();
        retry_until_ok("waiting for a report", async || {
            let stream = engine.jetstream.get_stream(subject::RESULTS).await?;
            let report: Report = decode(&stream.get_last_raw_message_by_subject(&subject).await?.payload)?;
            if done(sequence)(&report) { Ok(()) } else { Err(async_nats::Error::from("an older one")) }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_of_one_of_three_servers_loses_no_message() {
    let mut cluster = Cluster::start().await;
    let engine = cluster.connect().await;
    retry_until_ok("making the streams", async || ensure_streams(&engine.jetstream, 3).await).await;
    let stub = Stub::new();
    let host = start_on(cluster.connect().await, &stub, "one", Ownership::PerTarget).await;
    publish_command(&engine, 1).await;
    let commands = engine.jetstream.get_stream(subject::COMMANDS).await.unwrap();
    assert_eq!(commands.cached_info().config.num_replicas, 3);
    let leader = commands.cached_info().cluster.as_ref().and_then(|cluster| cluster.leader.clone()).unwrap();
    tokio::join!(publish_command(&engine, 2), cluster.kill(&leader));
    until_reported(&engine, 2).await;
    publish_command(&engine, 3).await;
    until_reported(&engine, 3).await;
    let mut last = std::collections::HashMap::new();
    for (target, sequence) in stub.begun() {
        let before = last.insert(target.clone(), sequence);
        assert!(before <= Some(sequence), "{target} went back from {before:?} to {sequence}");
    }
    host.end().await;
}
