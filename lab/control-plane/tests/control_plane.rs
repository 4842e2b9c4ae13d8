//! Starts and stops real control planes. The first run builds the programs, which takes minutes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneError, ControlPlaneOptions, DirectoryError, NatsUser};
use k8s_openapi::api::admissionregistration::v1::MutatingAdmissionPolicy;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

async fn start(dir: &Path) -> Result<ControlPlane, ControlPlaneError> {
    ControlPlane::start(ControlPlaneOptions::new(dir, Parts::from_env()?)).await
}

fn config_maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("vlan".to_owned(), "100".to_owned())])),
        ..ConfigMap::default()
    }
}

async fn nats(control_plane: &ControlPlane) -> async_nats::Client {
    let nats = control_plane.nats();
    let seed = fs::read_to_string(nats.seed_of(NatsUser::Admin)).unwrap().trim().to_owned();
    async_nats::ConnectOptions::with_nkey(seed).connect(&nats.url).await.unwrap()
}

fn is_forbidden<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test]
async fn two_control_planes_run_concurrently_with_separate_rights_and_data() {
    let parent = tempfile::tempdir().unwrap();
    let (one, two) = (parent.path().join("one"), parent.path().join("two"));
    let (one, two) = tokio::join!(start(&one), start(&two));
    let (one, two) = (one.unwrap(), two.unwrap());

    // Each has its own objects, and accepts only its own keys.
    let (first, second) = (one.client().await.unwrap(), two.client().await.unwrap());
    config_maps(first.clone()).create(&PostParams::default(), &config_map("only-here")).await.unwrap();
    assert!(config_maps(second).get_opt("only-here").await.unwrap().is_none());
    let seed = fs::read_to_string(one.nats().seed_of(NatsUser::Admin)).unwrap().trim().to_owned();
    let refused = async_nats::ConnectOptions::with_nkey(seed).connect(&two.nats().url).await;
    assert_eq!(refused.unwrap_err().kind(), async_nats::ConnectErrorKind::AuthorizationViolation);

    // RBAC: an unknown user has no rights, a service account those of its role.
    let nobody = one.client_for("nobody", None).await.unwrap();
    assert!(is_forbidden(config_maps(nobody.clone()).list(&ListParams::default()).await));
    assert!(is_forbidden(Api::<Namespace>::all(nobody).list(&ListParams::default()).await));
    bind_reader(&first, "eno-system", "reader").await;
    let reader = one.client_for("system:serviceaccount:eno-system:reader", None).await.unwrap();
    assert_eq!(
        config_maps(reader.clone()).get("only-here").await.unwrap().metadata.name.unwrap(),
        "only-here"
    );
    assert!(is_forbidden(config_maps(reader).create(&PostParams::default(), &config_map("more")).await));

    // The engine needs these APIs.
    Api::<MutatingAdmissionPolicy>::all(first).list(&ListParams::default()).await.unwrap();
    let streams = async_nats::jetstream::new(nats(&one).await);
    streams.create_stream(stream("HERE")).await.unwrap();

    // An unexpected exit is reported with the child's name.
    let pid = one.supervisor().pid("kube-controller-manager").unwrap();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    let exited = one.exited().await;
    assert_eq!(exited.name, "kube-controller-manager");
    assert!(exited.status.contains("SIGKILL"), "{exited}");

    tokio::join!(one.stop(), two.stop());
}

fn stream(name: &str) -> async_nats::jetstream::stream::Config {
    async_nats::jetstream::stream::Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        ..Default::default()
    }
}

/// Lets a service account read the config maps of the namespace `default`.
async fn bind_reader(admin: &Client, namespace: &str, name: &str) {
    let role = serde_json::from_value::<Role>(json!({
        "metadata": { "name": name },
        "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"] }],
    }));
    let binding = serde_json::from_value::<RoleBinding>(json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
    }));
    Api::namespaced(admin.clone(), "default").create(&PostParams::default(), &role.unwrap()).await.unwrap();
    Api::namespaced(admin.clone(), "default")
        .create(&PostParams::default(), &binding.unwrap())
        .await
        .unwrap();
}

#[tokio::test]
async fn restart_in_same_directory_resumes_cluster_and_second_start_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path()).await.unwrap();
    let (kubeconfig, server) = (first.kubeconfig().to_owned(), first.server().to_owned());
    config_maps(first.client().await.unwrap())
        .create(&PostParams::default(), &config_map("kept"))
        .await
        .unwrap();
    async_nats::jetstream::new(nats(&first).await).create_stream(stream("KEPT")).await.unwrap();
    let authority = fs::read(dir.path().join("pki/ca.crt")).unwrap();

    let refused = start(dir.path()).await.unwrap_err();
    assert!(matches!(refused, ControlPlaneError::Directory(DirectoryError::InUse { .. })), "{refused}");
    first.stop().await;

    let second = start(dir.path()).await.unwrap();
    assert_eq!((second.kubeconfig(), second.server()), (kubeconfig.as_path(), server.as_str()));
    assert_eq!(fs::read(dir.path().join("pki/ca.crt")).unwrap(), authority);
    let kept = config_maps(second.client().await.unwrap()).get("kept").await.unwrap();
    assert_eq!(kept.data.unwrap()["vlan"], "100");
    async_nats::jetstream::new(nats(&second).await).get_stream("KEPT").await.unwrap();
    second.stop().await;
}

/// The running children of a process, without zombies.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_if_running(*pid) == Some(parent)).collect()
}

fn parent_if_running(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `PID (NAME) STATE PPID …`; the name can hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let running = !matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    running.then_some(parent)
}

#[tokio::test]
async fn no_child_outlives_an_owner_that_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let owner = ready_owner(env!("CARGO_BIN_EXE_eno-control-plane"), &[], &dir.path().join("cluster")).await;
    assert_children_end_with(owner, 4).await;
}

/// Starts a program that runs servers in a directory, and waits until they are ready.
pub(crate) async fn ready_owner(program: &str, arguments: &[&str], dir: &Path) -> Child {
    let mut owner = Command::new(program)
        .args(arguments)
        .arg("--dir")
        .arg(dir)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    // It ends when it can't write.
    owner.stdout = Some(lines.into_inner().into_inner());
    owner
}

/// Kills a program, and waits until its children have ended.
pub(crate) async fn assert_children_end_with(mut owner: Child, count: usize) {
    let children = children_of(owner.id().unwrap());
    assert_eq!(children.len(), count, "{children:?}");
    owner.kill().await.unwrap();
    let mut poll = tokio::time::interval(Duration::from_millis(10));
    let all_ended = async {
        while children.iter().any(|pid| parent_if_running(*pid).is_some()) {
            poll.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all_ended)
        .await
        .expect("children run on without their owner");
}
