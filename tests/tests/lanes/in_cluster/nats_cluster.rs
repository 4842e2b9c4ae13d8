//! Three NATS servers in pods, each of which is killed once.

use eno_lab::sandbox::InCluster;
use eno_tests::with_own_sandbox;
use kube::api::DeleteParams;
use serde_json::json;

use super::in_cluster;
use super::load::under_load;
use super::pods::{SYSTEM, until_gone, until_settled};
use crate::nodes::in_cluster::main_path;

const SERVERS: [&str; 3] = ["eno-nats-0", "eno-nats-1", "eno-nats-2"];

#[test]
#[ignore = "needs root: real nodes"]
fn three_nats_servers_survive_the_loss_of_each() {
    let values = [("nats".to_owned(), json!({"replicas": 3}))].into();
    with_own_sandbox(
        |options| in_cluster(options, 3, InCluster { values, ..InCluster::default() }),
        async |system| {
            main_path(system, 13).await;
            under_load(system, "servers", async || {
                for server in SERVERS {
                    let pods = system.pods(SYSTEM);
                    let pod = pods.get(server).await.expect("a server");
                    let killed = DeleteParams::default().grace_period(0);
                    pods.delete(server, &killed).await.expect("a server to kill");
                    until_gone(system, &pod).await;
                    until_settled(system).await;
                }
            })
            .await;
        },
    );
}
