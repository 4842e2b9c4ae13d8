//! The CRDs, roles, policies and examples with a real API server.

mod access;
mod use_check;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use eno_control_plane::{
    ControlPlane, ControlPlaneOptions,
    parts::{Part, Parts},
};
use eno_nbi_crds::{FINALIZER, L2ServiceAttachment, UNOBSERVED, api_version, crds, manifest};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
    core::Request,
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Valid specs, each with its kind.
pub fn accepted() -> Vec<(String, Value)> {
    let by_kind: BTreeMap<String, Vec<Value>> =
        serde_saphyr::from_str(include_str!("accepted.yaml")).expect("YAML");
    by_kind
        .into_iter()
        .flat_map(|(kind, specs)| specs.into_iter().map(move |spec| (kind.clone(), spec)))
        .collect()
}

/// Invalid specs by kind.
pub fn refused() -> BTreeMap<String, Vec<Refused>> {
    serde_saphyr::from_str(include_str!("refused.yaml")).expect("YAML")
}

/// A spec that the API server refuses.
#[derive(Deserialize)]
pub struct Refused {
    spec: Value,
    /// The texts that the error must contain: the field and the remedy.
    error: [String; 2],
}

/// Time limit for the API server to serve what was just applied.
const TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn api_server_accepts_valid_and_refuses_invalid_objects() {
    let directory = tempfile::tempdir().expect("a directory for the control plane");
    let parts = Parts::from_env().expect("the parts of a control plane");
    let kubectl = parts.get(Part::Kubectl).await.expect("kubectl");
    let control_plane = ControlPlane::start(ControlPlaneOptions::new(directory.path().to_owned(), parts))
        .await
        .expect("a control plane");
    let client = control_plane.client().await.expect("a client");
    let kubectl = Kubectl { program: kubectl, kubeconfig: control_plane.kubeconfig().to_owned() };

    kubectl.apply("-k", "deploy").await;
    kubectl.apply("-k", "deploy/admission").await;
    kubectl.apply("-k", "deploy/nad-crd").await;
    kinds_are_served(&client).await;
    finalizer_is_set_on_creation(&client).await;
    valid_specs_are_accepted(&client).await;
    invalid_specs_are_refused(&client).await;
    anti_spoof_cannot_be_changed(&client).await;
    status_needs_few_managed_fields(&client).await;
    roles_grant_exactly_the_expected_access(&client).await;
    use_check::configuration_label_requires_use_permission(&client).await;
    use_check::tenants_can_read_and_not_change_configurations(&client).await;
    use_check::engine_patches_only_labels_and_extended_resources_of_nodes(&client, &kubectl.kubeconfig).await;
    kubectl.apply("-k", "examples/demo").await;
    kubectl.apply("-f", "examples/fabric").await;
    kubectl.apply("-f", "examples/openstack").await;

    control_plane.stop().await;
}

/// Each write of a status stores which fields it set. The condition of the callback task has another manager.
async fn status_needs_few_managed_fields(client: &Client) {
    let api = api(client, "L2Service");
    let name = "managed-fields";
    let object = manifest("L2Service", name, json!({ "SegmentationID": 4001 }));
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("a new object");
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "Confirmed", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z", "observedGeneration": 1,
        })
    };
    let apply = async |manager: &str, status: Value| {
        let body = json!({
            "apiVersion": api_version("L2Service"), "kind": "L2Service",
            "metadata": { "name": name }, "status": status,
        });
        let params = PatchParams::apply(manager).force();
        api.patch_status(name, &params, &Patch::Apply(body)).await.expect("a status")
    };
    let status = |realized: Value| {
        json!({
            "phase": "ready", "observedGeneration": 1, "transitions": 2, "grantedID": 4001,
            "conditions": [condition("Ready")], "realized": realized,
        })
    };
    apply("eno", status(json!({ "SegmentationID": 4001, "PhysicalNW": ["dc"] }))).await;
    apply("callbacks", json!({ "conditions": [condition("CallbackDelivered")] })).await;
    let now = apply("eno", status(json!({ "SegmentationID": 4001 }))).await;
    let kinds = now.data["status"]["conditions"].as_array().into_iter().flatten();
    let kinds: Vec<_> = kinds.map(|condition| condition["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["Ready", "CallbackDelivered"], "each manager keeps its own");
    assert_eq!(now.data["status"]["realized"], json!({ "SegmentationID": 4001 }));
    let managed = now.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some("eno"));
    let fields = &managed.expect("the engine's entry").fields_v1.as_ref().expect("fields").0;
    assert_eq!(
        fields["f:status"],
        json!({
            "f:phase": {}, "f:observedGeneration": {}, "f:transitions": {}, "f:grantedID": {}, "f:realized": {},
            "f:conditions": { r#"k:{"type":"Ready"}"#: {} },
        })
    );
    api.delete(name, &kube::api::DeleteParams::default()).await.expect("the object is deleted");
}

struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// Applies a directory of this repository.
    async fn apply(&self, how: &str, folder: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
        let output = tokio::process::Command::new(&self.program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["apply", how])
            .arg(&folder)
            .output()
            .await
            .expect("kubectl runs");
        assert!(
            output.status.success(),
            "kubectl apply {how} {}: {}",
            folder.display(),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// An API of a kind of ours; namespaced kinds in `default`.
fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("a kind of ours");
    let gvk = GroupVersionKind::gvk(&crd.spec.group, &crd.spec.versions[0].name, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &crd.spec.names.plural);
    if crd.spec.scope == "Namespaced" {
        Api::namespaced_with(client.clone(), "default", &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

/// Creates an object in a dry run.
async fn try_create(client: &Client, kind: &str, spec: &Value) -> Result<DynamicObject, kube::Error> {
    let object = manifest(kind, "tried", spec);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let mut request = Request::new(api(client, kind).resource_url())
        .create(&params, object.to_string().into_bytes())
        .expect("a request");
    // Strict validation, as kubectl requests it: unknown fields are refused instead of dropped.
    *request.uri_mut() = format!("{}&fieldValidation=Strict", request.uri()).parse().expect("a URI");
    client.request(request).await
}

/// Polls until the condition holds, or fails the test.
async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let poll = async {
        let mut interval = tokio::time::interval(Duration::from_millis(100));
        while !condition().await {
            interval.tick().await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, poll).await.is_ok(), "not within {TIMEOUT:?}: {what}");
}

async fn kinds_are_served(client: &Client) {
    for crd in crds() {
        let kind = crd.spec.names.kind;
        eventually(&kind, || async { api(client, &kind).list(&ListParams::default()).await.is_ok() }).await;
    }
}

async fn finalizer_is_set_on_creation(client: &Client) {
    eventually("the finalizer on a new object", || async {
        try_create(client, "L2Service", &json!({ "SegmentationID": 5 }))
            .await
            .is_ok_and(|service| service.finalizers().iter().any(|finalizer| finalizer == FINALIZER))
    })
    .await;
}

async fn valid_specs_are_accepted(client: &Client) {
    let mut wrong = Vec::new();
    for (kind, spec) in &accepted() {
        match try_create(client, kind, spec).await {
            Ok(object) => {
                assert_eq!(object.data["status"], json!({ "observedGeneration": UNOBSERVED }), "{kind}");
            }
            Err(error) => wrong.push(format!("{kind} {spec}\n  {error}")),
        }
    }
    assert!(wrong.is_empty(), "refused, but should not be:\n{}", wrong.join("\n"));
}

async fn invalid_specs_are_refused(client: &Client) {
    let mut wrong = Vec::new();
    for (kind, cases) in &refused() {
        for Refused { spec, error: expected } in cases {
            match try_create(client, kind, spec).await {
                Ok(_) => wrong.push(format!("{kind} {spec}\n  was taken")),
                Err(kube::Error::Api(status))
                    if expected.iter().all(|text| status.message.contains(text)) => {}
                Err(error) => wrong.push(format!("{kind} {spec}\n  {error}\n  lacks one of {expected:?}")),
            }
        }
    }
    assert!(wrong.is_empty(), "not refused as they should be:\n{}", wrong.join("\n"));
}

async fn anti_spoof_cannot_be_changed(client: &Client) {
    let spec =
        json!({ "L2Services": ["a"], "ConnectionPoint": "cp", "VlanType": "access", "AntiSpoof": true });
    let object = L2ServiceAttachment::new("guarded", serde_json::from_value(spec).expect("a spec"));
    let attachments: Api<L2ServiceAttachment> = Api::default_namespaced(client.clone());
    attachments.create(&PostParams::default(), &object).await.expect("an attachment");
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        attachments.patch("guarded", &PatchParams::default(), &patch).await
    };
    for value in [json!(false), Value::Null] {
        let error = patch(json!({ "AntiSpoof": value })).await.expect_err("refused").to_string();
        assert!(error.contains("spec.AntiSpoof") && error.contains("can't be changed"), "{error}");
    }
    patch(json!({ "MTU": 1400 })).await.expect("another field");
}

async fn roles_grant_exactly_the_expected_access(client: &Client) {
    for question @ (account, verb, group, resource, namespace, allowed) in access::ACCESS {
        let (resource, name) = resource.split_once('=').map_or((*resource, None), |(r, n)| (r, Some(n)));
        let (resource, subresource) =
            resource.split_once('/').map_or((resource, None), |(r, s)| (r, Some(s)));
        let attributes = ResourceAttributes {
            verb: Some((*verb).to_owned()),
            group: Some((*group).to_owned()),
            resource: Some(resource.to_owned()),
            subresource: subresource.map(str::to_owned),
            namespace: Some((*namespace).to_owned()),
            name: name.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        // Authorizers read roles from a cache.
        let user = format!("system:serviceaccount:eno-system:{account}");
        access_becomes(client, user, attributes, *allowed, &format!("{question:?}")).await;
    }
}

/// Waits until the API server answers an access review of a user like this.
async fn access_becomes(
    client: &Client,
    user: String,
    attributes: ResourceAttributes,
    allowed: bool,
    what: &str,
) {
    let spec = SubjectAccessReviewSpec {
        user: Some(user),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    eventually(what, || async {
        let answer = reviews.create(&PostParams::default(), &review).await.expect("an access review");
        answer.status.is_some_and(|status| status.allowed == allowed)
    })
    .await;
}
