//! The health of objects in GitOps tools on a real API server: kstatus by its own library, and the health checks of
//! `deploy/gitops` by Argo CD's interpreter. Before the engine has seen the objects, in each phase, and while no
//! engine runs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use eno_conformance::NatsServer;
use eno_control_plane::ControlPlane;
use eno_control_plane::parts::{Part, Parts};
use eno_engine::EngineArgs;
use eno_nbi_crds::crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use crate::api::{Engine, start_cluster, until};
use crate::cluster::engine_args;

/// An object of each kind for users: kind, name, spec, and its final health in kstatus and Argo CD.
const OBJECTS: [(&str, &str, &str, &str, &str); 17] = [
    ("NodePool", "np", "{NodeSelector: {}}", "Current", "Healthy"),
    ("PhysicalNetwork", "pnw", "{SegmentationIDs: [1-4094]}", "Current", "Healthy"),
    ("Route", "rt", "{Prefix: 30.30.10.0, Mask: 24, NextHop: 10.10.10.1}", "Current", "Healthy"),
    ("Subnet", "sn", "{Address: 10.10.10.0, Mask: 24, Ipam: whereabouts, Type: v4}", "Current", "Healthy"),
    (
        "ConnectionPoint",
        "cp",
        "{SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{\"BridgeName\": \"br\"}'}]}",
        "Current",
        "Healthy",
    ),
    ("L2Service", "l2s", "{SegmentationID: 20, Subnets: [sn]}", "Current", "Healthy"),
    ("L2BridgeDomain", "l2bd", "{Vlan: 5, ConnectionPoints: []}", "Current", "Healthy"),
    // Invalid spec.
    (
        "Subnet",
        "swapped",
        "{Address: 10.0.0.0, Mask: 24, Ipam: static, Type: v4, AllocationPool: [{Start: 10.0.0.9, End: 10.0.0.1}]}",
        "Failed",
        "Degraded",
    ),
    // A missing reference, which may arrive.
    (
        "L2ServiceAttachment",
        "early",
        "{L2Services: [nope], ConnectionPoint: cp, VlanType: access}",
        "InProgress",
        "Progressing",
    ),
    // Waits for drivers and agents that do not run.
    (
        "L2ServiceAttachment",
        "waits",
        "{L2Services: [l2s], ConnectionPoint: cp, VlanType: access}",
        "InProgress",
        "Progressing",
    ),
    ("FabricDevice", "fd", "{Address: 'leaf1:830', Driver: none}", "InProgress", "Progressing"),
    ("VRF", "vrf", "{Devices: [{Name: fd}]}", "InProgress", "Progressing"),
    (
        "VRFAttachment",
        "vrfa",
        "{VRF: vrf, L2Service: l2s, Interfaces: [{Device: fd, Addresses: [10.10.10.1/24]}]}",
        "InProgress",
        "Progressing",
    ),
    (
        "BGPSessionGroup",
        "early-sessions",
        "{VRF: nope, L2Service: l2s, ConnectionPoint: cp, LocalASN: 64512, PeerASN: 65000, AddressFamilies: [IPv4], \
         AcceptPrefixes: [198.51.100.0/24]}",
        "InProgress",
        "Progressing",
    ),
    ("PodConfig", "pc", "{}", "InProgress", "Progressing"),
    ("PodNetworkConfig", "pnc", "{}", "InProgress", "Progressing"),
    ("Bridge", "br", "{name: pcbr0}", "InProgress", "Progressing"),
];

struct World {
    client: Client,
    resources: BTreeMap<String, (ApiResource, bool)>,
    tool: PathBuf,
    checks: PathBuf,
}

impl World {
    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (resource, namespaced) = &self.resources[kind];
        if *namespaced {
            Api::namespaced_with(self.client.clone(), "default", resource)
        } else {
            Api::all_with(self.client.clone(), resource)
        }
    }

    async fn create(&self, kind: &str, name: &str, spec: &str) {
        let spec: Value = serde_saphyr::from_str(spec).unwrap();
        let object = DynamicObject::new(name, &self.resources[kind].0).data(json!({ "spec": spec }));
        let created = self.api(kind).create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }

    async fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::to_value(self.api(kind).get(name).await.unwrap()).unwrap()
    }

    /// Waits until the object's status matches, and returns the object.
    async fn until_status(&self, kind: &str, name: &str, what: impl Fn(&Value) -> bool) -> Value {
        let reached = |object: Option<&DynamicObject>| {
            object.is_some_and(|object| {
                let observed = object.data["status"]["observedGeneration"].as_i64();
                observed == object.metadata.generation && what(&object.data["status"])
            })
        };
        until(&self.api(kind), name, reached).await;
        self.get(kind, name).await
    }

    /// The health of objects in kstatus and Argo CD.
    fn evaluate(&self, objects: &[Value]) -> Vec<(String, String)> {
        let mut tool = Command::new(&self.tool)
            .arg(&self.checks)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let text: String = objects.iter().map(Value::to_string).collect();
        tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = tool.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let lines = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let of = |answer: &Value, tool_name: &str| {
            answer[tool_name]["status"].as_str().unwrap_or("none").to_owned()
        };
        lines
            .map(|answer| answer.unwrap())
            .map(|answer| (of(&answer, "kstatus"), of(&answer, "argocd")))
            .collect()
    }

    async fn evaluate_object(&self, kind: &str, name: &str) -> (String, String) {
        self.evaluate(&[self.get(kind, name).await]).remove(0)
    }
}

fn health(kstatus: &str, argocd: &str) -> (String, String) {
    (kstatus.to_owned(), argocd.to_owned())
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array().unwrap();
    all.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

#[tokio::test(flavor = "multi_thread")]
async fn gitops_health_matches_engine_status() {
    let dir = tempfile::tempdir().unwrap();
    let tool = Parts::from_env().unwrap().get(Part::GitopsVerdict).await.unwrap();
    let (cluster, client) = start_cluster(dir.path()).await;
    let w = World { client, resources: resources(), tool, checks: checks(dir.path()) };
    let nats = NatsServer::start().await;

    // No engine runs yet. Without the default status of the CRD, kstatus would report them as current.
    for (kind, name, spec, ..) in OBJECTS {
        w.create(kind, name, spec).await;
        let mut object = w.get(kind, name).await;
        assert_eq!(object["status"], json!({ "observedGeneration": -1 }), "{kind}");
        assert_eq!(
            w.evaluate(std::slice::from_ref(&object)),
            [health("InProgress", "Progressing")],
            "{kind}"
        );
        object.as_object_mut().unwrap().remove("status");
        assert_eq!(w.evaluate(&[object]), [health("Current", "Progressing")], "{kind}");
    }
    let kinds: std::collections::BTreeSet<&str> = OBJECTS.iter().map(|(kind, ..)| *kind).collect();
    assert_eq!(kinds.len(), w.resources.len() - 1, "all but PodNetwork, which only the engine writes");

    // In each phase.
    let engine = start_engine(&cluster, &nats);
    for (kind, name, _, kstatus, argocd) in OBJECTS {
        let object = w
            .until_status(kind, name, |status| {
                let last = match argocd {
                    "Healthy" => ["ready", "configured"],
                    "Degraded" => ["error", "error"],
                    _ if name.starts_with("early") => ["error", "error"],
                    _ => ["pending", "configuring"],
                };
                last.iter().any(|phase| status["phase"] == *phase)
            })
            .await;
        assert_eq!(w.evaluate(std::slice::from_ref(&object)), [health(kstatus, argocd)], "{object}");
        for condition in object["status"]["conditions"].as_array().unwrap() {
            assert_eq!(condition["observedGeneration"], 1, "{object}");
        }
    }
    let early = w.get("L2ServiceAttachment", "early").await;
    assert_eq!(condition(&early, "Ready")["reason"], "ReferenceNotFound");
    assert_eq!(condition(&early, "Stalled")["status"], "False");
    // The other service may release the ID.
    w.create("L2Service", "same", "{SegmentationID: 20}").await;
    let same = w.until_status("L2Service", "same", |status| status["phase"] == "error").await;
    assert_eq!(w.evaluate_object("L2Service", "same").await, health("InProgress", "Progressing"));
    assert_eq!(condition(&same, "Ready")["reason"], "IDConflict");
    w.api("ConnectionPoint").delete("cp", &DeleteParams::default()).await.unwrap();
    w.until_status("ConnectionPoint", "cp", |status| status["phase"] == "terminating").await;
    assert_eq!(w.evaluate_object("ConnectionPoint", "cp").await, health("Terminating", "Progressing"));

    // No engine runs: ready objects stay healthy, and changed ones are in progress.
    engine.end().await;
    assert_eq!(w.evaluate_object("L2Service", "l2s").await, health("Current", "Healthy"));
    let edit = json!({ "spec": { "Mask": 25 } });
    w.api("Route").patch("rt", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    assert_eq!(w.evaluate_object("Route", "rt").await, health("InProgress", "Progressing"));
    w.create("L2Service", "late", "{SegmentationID: 30}").await;
    assert_eq!(w.evaluate_object("L2Service", "late").await, health("InProgress", "Progressing"));

    // The next engine knows how long an error lasts.
    let mut conditions = early["status"]["conditions"].clone();
    for condition in conditions.as_array_mut().unwrap() {
        if condition["type"] == "Stalled" {
            condition["lastTransitionTime"] = "2026-01-01T00:00:00Z".into();
        }
    }
    let older = json!({ "status": { "conditions": conditions } });
    let attachments = w.api("L2ServiceAttachment");
    attachments.patch_status("early", &PatchParams::default(), &Patch::Merge(older)).await.unwrap();
    let engine = start_engine(&cluster, &nats);
    let stalled = |status: &Value| {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.into_iter().any(|condition| condition["type"] == "Stalled" && condition["status"] == "True")
    };
    w.until_status("L2ServiceAttachment", "early", stalled).await;
    assert_eq!(w.evaluate_object("L2ServiceAttachment", "early").await, health("Failed", "Degraded"));
    for (kind, name) in [("Route", "rt"), ("L2Service", "late")] {
        w.until_status(kind, name, |status| status["phase"] == "ready").await;
        assert_eq!(w.evaluate_object(kind, name).await, health("Current", "Healthy"));
    }
    engine.end().await;
    cluster.stop().await;
}

/// The resource of each kind, and whether its objects have a namespace.
fn resources() -> BTreeMap<String, (ApiResource, bool)> {
    let resource = |crd: CustomResourceDefinition| {
        let names = crd.spec.names;
        let kind = GroupVersionKind::gvk(&crd.spec.group, "v1alpha1", &names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
        (names.kind, (resource, crd.spec.scope == "Namespaced"))
    };
    crds().into_iter().map(resource).collect()
}

/// Writes the data of the ConfigMap from `deploy/gitops` to files.
fn checks(dir: &Path) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/gitops/argocd-cm.yaml");
    let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let path = dir.join("checks.json");
    std::fs::write(&path, config["data"].to_string()).unwrap();
    path
}

fn start_engine(cluster: &ControlPlane, nats: &NatsServer) -> Engine {
    Engine::start(EngineArgs {
        kubeconfig: Some(cluster.kubeconfig().to_owned()),
        namespace: "default".into(),
        ..engine_args(cluster, nats)
    })
}
