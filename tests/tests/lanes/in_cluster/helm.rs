//! Helm installs, upgrades, rolls back and uninstalls the operator under load, also when it is interrupted.

use eno_control_plane::parts::Part;
use eno_lab::sandbox::InCluster;
use eno_nbi_crds::{L2Service, Phase};
use eno_tests::{Helm, System, poll_within, service, until, with_own_sandbox};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use super::load::under_load;
use super::pods::{SYSTEM, holder, until_settled};
use super::{PATIENCE, in_cluster, with_operator_in_pods};
use crate::install::helm::chart_renders_what_eno_install_applies;
use crate::nodes::in_cluster::{every_check_passes, nothing_is_left, uninstall};

#[test]
#[ignore = "needs root: real nodes"]
fn helm_4_interrupts_nothing() {
    helm_interrupts_nothing(Part::Helm, "helm4");
}

#[test]
#[ignore = "needs root: real nodes"]
fn helm_3_interrupts_nothing() {
    helm_interrupts_nothing(Part::Helm3, "helm3");
}

#[tokio::test]
async fn chart_is_what_eno_install_applies_with_helm_3() {
    chart_renders_what_eno_install_applies(Part::Helm3).await;
}

fn helm_interrupts_nothing(part: Part, name: &str) {
    let options = |options: &mut _| {
        in_cluster(options, 2, InCluster::default());
        // Helm installs it.
        options.engine = false;
    };
    with_own_sandbox(options, async |system| {
        let helm = Helm::new(part, system.sandbox.control_plane().kubeconfig()).await;
        let release = Release { chart: helm.chart(), values: helm.values(&system.sandbox.values()), helm };
        release.run("install", &["--create-namespace"]).await;
        let fetched = system.eno(&["keys", "fetch"], "").await;
        assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
        enforce_pod_security(system).await;
        system.sandbox.connect_fabric().await.expect("a fabric");
        every_check_passes(system).await;
        if part == Part::Helm {
            waits_for_networks(system, &release.helm).await;
        }
        let figures = under_load(system, name, async || {
            release.run("upgrade", &["--set", "log=debug"]).await;
            assert_eq!(release.revision().await, "2 deployed");
            release.helm.run(&["rollback", "eno", "--wait", "--timeout", "5m"]).await.expect("rolled back");
            assert_eq!(release.revision().await, "3 deployed");
            is_interrupted(system, &release).await;
            objects_come_back(system, &release).await;
            // Networks work without the operator. Objects wait for the next one.
            let before = holder(system).await;
            release.helm.run(&["uninstall", "eno", "--wait"]).await.expect("uninstalled");
            release.run("install", &["--create-namespace"]).await;
            let leads = poll_within(PATIENCE, async || {
                let is_new = |holder: &String| !holder.is_empty() && before.as_ref() != Some(holder);
                holder(system).await.filter(is_new)
            });
            assert!(leads.await.is_some(), "no engine leads");
        })
        .await;
        assert!(figures.without_leader.len() >= 3, "other engines lead: {figures}");
        every_check_passes(system).await;
        keys_are_exchanged(system, &release).await;
        // The release goes with all else.
        uninstall(system, &["--yes"], true).await;
        nothing_is_left(system).await;
        let releases = release.helm.run(&["list", "--short"]).await.expect("a list");
        assert_eq!(releases.trim(), "");
    });
}

#[test]
#[ignore = "needs root: real nodes"]
fn taking_over_interrupts_nothing() {
    with_operator_in_pods(async |system| {
        let helm = Helm::new(Part::Helm, system.sandbox.control_plane().kubeconfig()).await;
        let release = Release { chart: helm.chart(), values: helm.values(&system.sandbox.values()), helm };
        let figures = under_load(system, "takeover", async || {
            let refused = async |further: &[&str], expected: &str| {
                let error = release.helm.run(&release.arguments("install", further)).await;
                let error = error.expect_err(expected);
                assert!(error.contains(expected), "{error}");
            };
            refused(&[], "or take it over with --take-ownership").await;
            let take_over = ["--take-ownership", "--force-conflicts", "--set", "takeOver=true"];
            refused(&[&take_over[..], &["--set", "nats.replica=3"]].concat(), "'replica' not allowed").await;
            release.run("install", &take_over).await;
            let (installed, error) = eno_install(system).await;
            assert!(!installed && error.contains("the Helm release eno has installed ENO"), "{error}");
            release.helm.run(&["uninstall", "eno", "--wait"]).await.expect("uninstalled");
            let (installed, error) = eno_install(system).await;
            assert!(installed, "{error}");
        })
        .await;
        assert!(!figures.without_leader.is_empty(), "other engines lead: {figures}");
        every_check_passes(system).await;
    });
}

/// Whether `eno install` with the sandbox's values succeeds, and what it prints to the standard error.
async fn eno_install(system: &System) -> (bool, String) {
    let file = system.sandbox.dir().join("values.yaml");
    std::fs::write(&file, system.sandbox.values()).expect("a values file");
    let output = system.eno(&["install", "--values", &file.to_string_lossy()], "").await;
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// With `--wait`, Helm 4 ends when the objects of a chart are ready, and fails when one can't be.
async fn waits_for_networks(system: &System, helm: &Helm) {
    let directory = tempfile::tempdir().expect("a directory");
    let chart = directory.path().join("network");
    std::fs::create_dir_all(chart.join("templates")).expect("a folder");
    std::fs::write(chart.join("Chart.yaml"), "{apiVersion: v2, name: network, version: 1.0.0}")
        .expect("written");
    let chart = chart.display().to_string();
    let install = async |name: &str, network: &str| {
        let template = service(name, 171, &format!("PhysicalNW: [{network}]"));
        std::fs::write(directory.path().join("network/templates/network.yaml"), template).expect("written");
        helm.run(&["install", name, &chart, "--wait", "--timeout", "2m"]).await
    };
    install("good", "dc-gw").await.expect("installed");
    let services: Api<L2Service> = system.all();
    let phase = services.get("good").await.expect("the network").status.and_then(|status| status.phase);
    assert_eq!(phase, Some(Phase::Ready), "Helm did not wait");
    helm.run(&["uninstall", "good", "--wait"]).await.expect("uninstalled");
    assert!(services.get_opt("good").await.expect("an answer").is_none(), "Helm did not wait");
    let error = install("bad", "nowhere").await.expect_err("an unknown network");
    let expected = "status: Failed, message: spec.PhysicalNW: PhysicalNetwork nowhere does not exist";
    assert!(error.contains(expected), "{error}");
    helm.run(&["uninstall", "bad", "--wait"]).await.expect("uninstalled");
}

/// The commands of the book that exchange all keys and certificates.
async fn keys_are_exchanged(system: &System, release: &Release) {
    let client = system.sandbox.client();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
    let before = secrets.get("eno-nats").await.expect("keys").data;
    for (namespace, name) in
        [(SYSTEM, "eno-nats"), (SYSTEM, "eno-nats-tls"), (SYSTEM, "eno-people"), ("eno-node", "eno-nats-tls")]
    {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        secrets.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    let jobs: Api<Job> = Api::namespaced(client.clone(), SYSTEM);
    let (delete, of_keys) =
        (DeleteParams::background(), ListParams::default().labels("app.kubernetes.io/name=eno-keys"));
    jobs.delete_collection(&delete, &of_keys).await.expect("deleted");
    release.helm.run(&release.arguments("upgrade", &[])).await.expect("upgraded");
    until("new keys", async || secrets.get_opt("eno-nats").await.is_ok_and(|keys| keys.is_some())).await;
    let servers: Api<StatefulSet> = Api::namespaced(client.clone(), SYSTEM);
    servers.restart("eno-nats").await.expect("restarted");
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), SYSTEM);
    for part in eno_parts::nats_users() {
        deployments.restart(part.account.name).await.expect("restarted");
    }
    let agents: Api<DaemonSet> = Api::namespaced(client, "eno-node");
    agents.restart("eno-agent").await.expect("restarted");
    until_settled(system).await;
    assert_ne!(secrets.get("eno-nats").await.expect("keys").data, before);
    let fetched = system.eno(&["keys", "fetch"], "").await;
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    every_check_passes(system).await;
}

/// What the notes of the release tell the admin to do.
async fn enforce_pod_security(system: &System) {
    let namespaces: Api<Namespace> = Api::all(system.sandbox.client());
    let label =
        Patch::Merge(json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}));
    namespaces.patch(SYSTEM, &PatchParams::default(), &label).await.expect("labelled");
}

/// The release `eno`.
struct Release {
    helm: Helm,
    chart: String,
    values: String,
}

impl Release {
    fn arguments<'a>(&'a self, command: &'a str, further: &[&'a str]) -> Vec<&'a str> {
        let mut arguments =
            vec![command, "eno", &self.chart, "--values", &self.values, "--wait", "--timeout", "5m"];
        arguments.extend(further);
        arguments
    }

    async fn run(&self, command: &str, further: &[&str]) {
        let result = self.helm.run(&self.arguments(command, further)).await;
        result.unwrap_or_else(|error| panic!("helm {command} {further:?}: {error}"));
    }

    /// The last revision and its status.
    async fn revision(&self) -> String {
        let text = self.helm.run(&["history", "eno", "--output", "json"]).await.unwrap_or_default();
        let history: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let last = history.as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        format!("{} {}", last["revision"], last["status"].as_str().unwrap_or_default())
    }
}

/// An upgrade that ends in the middle leaves a release that Helm does not touch until it is rolled back.
async fn is_interrupted(system: &System, release: &Release) {
    let arguments = release.arguments("upgrade", &["--set", "log=trace"]);
    let mut upgrade = release.helm.start(&arguments);
    let agents: Api<DaemonSet> = Api::namespaced(system.sandbox.client(), "eno-node");
    let is_applied = poll_within(PATIENCE, async || {
        let agents = agents.get("eno-agent").await.ok()?;
        let text = serde_json::to_string(&agents.spec).ok()?;
        text.contains(r#""value":"trace""#).then_some(())
    });
    is_applied.await.expect("the upgrade begins");
    upgrade.kill().await.expect("killed");
    assert_eq!(release.revision().await, "4 pending-upgrade");
    let error = release.helm.run(&release.arguments("upgrade", &[])).await.expect_err("refused");
    assert!(error.contains("another operation (install/upgrade/rollback) is in progress"), "{error}");
    release.helm.run(&["rollback", "eno", "3", "--wait", "--timeout", "5m"]).await.expect("rolled back");
    assert_eq!(release.revision().await, "5 deployed");
}

/// Objects of the release that somebody deleted are there after an upgrade.
async fn objects_come_back(system: &System, release: &Release) {
    let deployments: Api<Deployment> = Api::namespaced(system.sandbox.client(), SYSTEM);
    deployments.delete("eno-driver-nad", &DeleteParams::default()).await.expect("deleted");
    let agents: Api<DaemonSet> = Api::namespaced(system.sandbox.client(), "eno-node");
    agents.delete("eno-agent", &DeleteParams::default()).await.expect("deleted");
    release.run("upgrade", &[]).await;
    until_settled(system).await;
}
