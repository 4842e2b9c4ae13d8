//! The kernel ends an engine for lack of memory.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use eno_tests::{System, poll_within};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::process::Command;

use super::load::under_load;
use super::pods::{SYSTEM, holder, leader, node_of, operator};
use super::{PATIENCE, with_operator_in_pods};

/// What the memory of a container has beside that of the test's process, in bytes.
const SPARE: u64 = 4 << 20;

#[test]
#[ignore = "needs root: real nodes"]
fn engine_without_memory_is_replaced() {
    with_operator_in_pods(async |system| {
        let figures = under_load(system, "memory", async || {
            let (victim, before) = (leader(system).await, holder(system).await);
            use_up_memory(system, &victim).await;
            until_killed(system, |pod| pod.uid() == victim.uid()).await;
            let next = poll_within(PATIENCE, async || {
                let now = holder(system).await.filter(|now| !now.is_empty());
                now.filter(|now| Some(now) != before.as_ref())
            });
            assert!(next.await.is_some(), "another engine leads");
        })
        .await;
        assert_eq!(figures.without_leader.len(), 1, "another engine leads: {figures}");
        figures.assert_leaders_follow();

        // With a limit that is too small for the load, engines are ended again and again until it is raised.
        under_load(system, "limit", async || {
            let before = operator(system).await;
            set_limit(system, "8Mi").await;
            until_killed(system, |pod| before.iter().all(|old| old.uid() != pod.uid())).await;
            set_limit(system, "512Mi").await;
        })
        .await;
    });
}

/// Sets the memory limit of the engines, and the request with it.
async fn set_limit(system: &System, memory: &str) {
    let deployments: Api<Deployment> = Api::namespaced(system.sandbox.client(), SYSTEM);
    let request = if memory.len() < 4 { memory } else { "64Mi" };
    let resources = json!({"limits": {"memory": memory}, "requests": {"memory": request}});
    let container = json!({"name": "eno", "resources": resources});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let patched = deployments.patch("eno-engine", &PatchParams::default(), &Patch::Strategic(patch)).await;
    patched.expect("another limit");
}

/// Waits until the kernel has ended a container of one of these pods for lack of memory.
async fn until_killed(system: &System, is_one: impl Fn(&Pod) -> bool) {
    let is_killed = |status: &ContainerStatus| {
        let states = [&status.state, &status.last_state].into_iter().flatten();
        states
            .filter_map(|state| state.terminated.as_ref()?.reason.as_deref())
            .any(|reason| reason == "OOMKilled")
    };
    let mut last = String::new();
    let seen = poll_within(PATIENCE, async || {
        let pods: Vec<_> = operator(system).await.into_iter().filter(|pod| is_one(pod)).collect();
        let mut statuses = pods
            .iter()
            .flat_map(|pod| pod.status.iter().flat_map(|status| &status.container_statuses))
            .flatten();
        last = format!("{:?}", statuses.clone().collect::<Vec<_>>());
        statuses.any(is_killed).then_some(())
    });
    assert!(seen.await.is_some(), "no container was ended for lack of memory: {last}");
}

/// Runs a process in the cgroup of a pod's engine that takes all the memory that the engine may have. The kernel ends the
/// engine and not that process: the kubelet gives a pod that requests little memory a high `oom_score_adj`.
async fn use_up_memory(system: &System, pod: &Pod) {
    let cgroup = memory_cgroup(system, pod);
    let limit = ["memory.limit_in_bytes", "memory.max"]
        .iter()
        .find_map(|file| std::fs::read_to_string(cgroup.join(file)).ok()?.trim().parse::<u64>().ok())
        .unwrap_or_else(|| panic!("{} has no limit", cgroup.display()));
    let script = "echo $$ >\"$0/cgroup.procs\" && exec dd if=/dev/zero of=/dev/null count=1 bs=\"$1\"";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(&cgroup)
        .arg((limit - SPARE).to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("a shell");
    // It may get less than it wants: then it fails, and the engine has ended before.
    eprintln!("memory: {}", String::from_utf8_lossy(&output.stderr));
}

/// The directory of the memory cgroup of a pod's engine (cgroups(7)).
fn memory_cgroup(system: &System, pod: &Pod) -> PathBuf {
    let (node, uid) = (node_of(pod), pod.uid().expect("a uid"));
    let machine = system.sandbox.machine(&node).expect("a node of the sandbox");
    let of_pod = |(pid, _): &(String, String)| {
        let file = machine.inside("/proc").join(pid).join("cgroup");
        std::fs::read_to_string(file).ok().filter(|text| text.contains(&uid))
    };
    let processes = system.processes(&node, "eno");
    let text = processes.iter().find_map(of_pod).unwrap_or_else(|| panic!("no engine in {processes:?}"));
    let of = |wanted: &str, root: &str| {
        let is_wanted =
            |line: &&str| line.split(':').nth(1).is_some_and(|all| all.split(',').any(|one| one == wanted));
        let path = text.lines().find(is_wanted)?.splitn(3, ':').nth(2)?;
        Some(Path::new(root).join(path.trim_start_matches('/')))
    };
    of("memory", "/sys/fs/cgroup/memory").or_else(|| of("", "/sys/fs/cgroup")).expect("a memory cgroup")
}
