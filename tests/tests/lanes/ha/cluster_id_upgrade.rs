//! An upgrade from manifests with `ENO_CLUSTER_ID` to manifests without it.

use std::collections::BTreeMap;

use eno_control_plane::NatsUser;
use eno_lab::sandbox::ProcessOverrides;
use eno_nbi_crds::{FabricDevice, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{System, access, service, until, with_own_sandbox};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use crate::lanes::ha::processes::{is_ready, leads, until_quiet};
use crate::lanes::ha::serialize_tests;

const CLUSTER_ID: &str = "eno.k8s.io/cluster-id";

async fn changes(system: &System) -> BTreeMap<String, (u64, u64)> {
    let mut changes = BTreeMap::new();
    for info in system.sandbox.switches() {
        let running = eno_lab::switch::running(&system.http, info).await.expect("the control API");
        changes.insert(info.name.clone(), (running.version, system.transactions(&info.name).await));
    }
    changes
}

/// The last command of each switch.
async fn commands(system: &System) -> Vec<Value> {
    let mut commands = Vec::new();
    for info in system.sandbox.switches() {
        commands.push(system.command(&info.name).await);
    }
    commands
}

async fn uids(system: &System) -> Vec<Value> {
    commands(system).await.iter().map(|command| command["desired"]["clusterUid"].clone()).collect()
}

#[test]
fn upgrade_without_cluster_id_keeps_identifier_and_switches() {
    let _guard = serialize_tests();
    with_own_sandbox(
        |options| options.cluster_id = "k8s".to_owned(),
        async |system| {
            system.create_connection_point("upgrade").await;
            system.apply(&service("upgrade", 1000, "PhysicalNW: [dc-gw]")).await;
            system.apply_until_ready::<L2Service>(&access("upgrade", "a", "upgrade"), "upgrade").await;
            system.becomes::<L2ServiceAttachment>("upgrade/a", Phase::Ready).await;
            let nats = system.nats(NatsUser::Admin).await;
            // An engine without access to the cluster's uid commands switches without a uid.
            let roles: Api<ClusterRole> = Api::all(system.sandbox.client());
            let whole = roles.get("eno-engine").await.expect("a role").rules.expect("rules");
            let without: Vec<PolicyRule> = whole
                .iter()
                .filter(|rule| rule.resource_names != Some(vec!["kube-system".into()]))
                .cloned()
                .collect();
            assert_eq!(without.len() + 1, whole.len());
            let set = async |rules: &[PolicyRule]| {
                let patch = Patch::Merge(json!({ "rules": rules }));
                roles.patch("eno-engine", &PatchParams::default(), &patch).await.expect("a role");
            };
            set(&without).await;
            system.sandbox.stop_child("engine").await.expect("an engine to stop");
            system.sandbox.start_child("engine").await.expect("the engine again");
            until("the lead", async || leads(system, "engine").await).await;
            until("commands without a uid", async || uids(system).await.iter().all(Value::is_null)).await;
            until_quiet(system, &nats).await;
            let before = changes(system).await;

            // Neither the Lease nor a status holds the identifier.
            system.sandbox.stop_child("engine").await.expect("an engine to stop");
            set(&whole).await;
            let leases: Api<Lease> = Api::namespaced(system.sandbox.client(), "eno-system");
            let none = json!({ "metadata": { "annotations": { CLUSTER_ID: null } } });
            leases.patch("eno-engine", &PatchParams::default(), &Patch::Merge(none)).await.expect("a Lease");
            let devices: Api<FabricDevice> = system.all();
            for device in devices.list(&ListParams::default()).await.expect("a list") {
                let none = Patch::Merge(json!({ "status": { "clusterID": null } }));
                let patched = devices.patch_status(&device.name_any(), &PatchParams::default(), &none).await;
                assert_eq!(patched.expect("a status").status.expect("a status").cluster_id, None);
            }

            let overrides = ProcessOverrides { no_cluster_id: true, ..ProcessOverrides::default() };
            system.sandbox.add_with(eno_parts::ENGINE, "engine-2", overrides).await.expect("an engine");
            until("the lead", async || leads(system, "engine-2").await).await;
            until("an engine in step", async || is_ready(system, "engine-2").await).await;
            let known = |device: &FabricDevice| {
                device.status.as_ref().and_then(|status| status.cluster_id.as_deref()) == Some("k8s")
            };
            let count = system.sandbox.switches().len();
            let all = |all: &BTreeMap<String, FabricDevice>| all.len() == count && all.values().all(known);
            system.until(devices, watcher::Config::default(), "the identifier in every status", all).await;
            until_quiet(system, &nats).await;
            assert_eq!(changes(system).await, before, "a switch was changed");
            for command in commands(system).await {
                assert_eq!(
                    (&command["transaction"], &command["desired"]["cluster"]),
                    (&Value::Null, &json!("k8s"))
                );
            }
            let lease = leases.get("eno-engine").await.expect("a Lease");
            assert_eq!(lease.annotations().get(CLUSTER_ID).map(String::as_str), Some("k8s"));
            system.becomes::<L2Service>("upgrade", Phase::Ready).await;
        },
    );
}
