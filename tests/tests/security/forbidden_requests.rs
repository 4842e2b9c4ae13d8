//! Requests of the parts outside their permissions: each is refused and changes nothing.

use eno_parts::{Part, Rights};
use eno_tests::{System, object, with_shared_sandbox};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

use crate::security::service_accounts::{ENGINE, NAD, client, parts};

const FOREIGN_OBJECTS: &str = include_str!("manifests/foreign_objects.yaml");

const ROUTE: &str = "/apis/eno.k8s.io/v1alpha1/routes";
const NADS: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/refused-tenant/network-attachment-definitions";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn is_engine(part: &Part) -> bool {
    part == eno_parts::ENGINE
}

fn has_devices(part: &Part) -> bool {
    part.rights == Some(Rights::Devices)
}

/// Whether a part may do something.
type May = fn(&Part) -> bool;

/// Restricted reads: the path, and the parts that may read it.
const READS: &[(&str, May)] = &[
    ("/api/v1/secrets", |_| false),
    ("/api/v1/namespaces/eno-system/secrets", |_| false),
    ("/api/v1/namespaces/eno-system/secrets/refused-nkeys", |_| false),
    ("/api/v1/namespaces/refused-tenant/secrets/refused-own", |_| false),
    ("/api/v1/namespaces/eno-devices/secrets", |_| false),
    ("/api/v1/namespaces/eno-devices/secrets?watch=true&timeoutSeconds=1", |_| false),
    ("/api/v1/namespaces/eno-devices/secrets/refused-login", has_devices),
    ("/api/v1/namespaces/refused-tenant/configmaps", |_| false),
    ("/api/v1/namespaces/refused-tenant/pods?limit=1", is_engine),
    ("/api/v1/namespaces/refused-tenant/pods/one", |_| false),
    ("/api/v1/namespaces/refused-tenant/pods/one/log", |_| false),
    ("/api/v1/namespaces/refused-tenant/pods/one/exec?command=sh", |_| false),
    ("/api/v1/nodes?limit=1", is_engine),
    ("/api/v1/nodes/node1", |_| false),
    ("/api/v1/nodes/node1/proxy/pods", |_| false),
    ("/apis/eno.k8s.io/v1alpha1/fabricdevices?limit=1", is_engine),
    ("/apis/eno.k8s.io/v1alpha1/fabricdevices/leaf1", |part| is_engine(part) || has_devices(part)),
    ("/apis/eno.k8s.io/v1alpha1/fabricdevices/leaf1/status", |_| false),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", |_| false),
    ("/apis/coordination.k8s.io/v1/namespaces/eno-system/leases/refused-lease", |_| false),
    ("/apis/k8s.cni.cncf.io/v1/network-attachment-definitions?limit=1", |part| part == eno_parts::DRIVER_NAD),
    ("/metrics", |_| false),
    ("/logs", |_| false),
];

/// Writes that no account may make; those to existing objects would change them.
fn writes() -> Vec<(Method, String, Value)> {
    let pod = json!({
        "metadata": { "name": "mine", "namespace": "refused-tenant" },
        "spec": { "containers": [{ "name": "c", "image": "nothing.invalid/c:1" }] },
    });
    let binding = json!({
        "metadata": { "name": "mine" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "eno-engine", "namespace": "eno-system" }],
    });
    let token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let all = json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    let data = json!({ "data": { "key": "AAAA" } });
    let tenant = "/api/v1/namespaces/refused-tenant";
    let (post, put, patch, delete) = (Method::POST, Method::PUT, Method::PATCH, Method::DELETE);
    let (system, devices) = ("/api/v1/namespaces/eno-system", "/api/v1/namespaces/eno-devices");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/eno-system/leases";
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (none, mine) = (json!({}), json!({ "metadata": { "name": "mine" } }));
    let writes = [
        (&post, format!("{tenant}/pods"), &pod),
        (&delete, format!("{tenant}/pods/one"), &none),
        (&delete, tenant.to_owned(), &none),
        (&patch, format!("{tenant}/secrets/refused-own"), &data),
        (&patch, format!("{devices}/secrets/refused-login"), &data),
        (&delete, format!("{devices}/secrets/refused-login"), &none),
        (&post, format!("{system}/secrets"), &mine),
        (&patch, format!("{tenant}/configmaps/refused-map"), &data),
        (&post, format!("{system}/serviceaccounts/eno-engine/token"), &token),
        (&delete, "/api/v1/nodes/node1".to_owned(), &none),
        (&patch, format!("{RBAC}/clusterroles/eno-engine"), &all),
        (&post, format!("{RBAC}/clusterrolebindings"), &binding),
        (&post, format!("{RBAC}/namespaces/eno-system/rolebindings"), &binding),
        (&delete, format!("{ROUTE}/refused-route"), &none),
        (&delete, ROUTE.to_owned(), &none),
        (&put, format!("{ROUTE}/refused-route/status"), &none),
        (&post, ROUTE.to_owned(), &mine),
        (&delete, NADS.to_owned(), &none),
        (&put, format!("{NADS}/refused-nad"), &none),
        (&patch, format!("{leases}/refused-lease"), &json!({ "spec": { "holderIdentity": "me" } })),
        (&delete, format!("{leases}/eno-engine"), &none),
        (&delete, format!("{policies}/eno-use"), &none),
        (&delete, format!("{crds}/l2services.eno.k8s.io"), &none),
    ];
    writes.map(|(method, path, body)| (method.clone(), path, body.clone())).into()
}

/// The HTTP status of the answer to a request.
async fn request_status(client: &Client, method: &Method, path: &str, body: Option<&Value>) -> u16 {
    let media_type =
        if *method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", media_type).body(body);
    match client.request_text(request.expect("a request")).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{method} {path}: {error}"),
    }
}

/// The objects that must not change, as one text.
async fn snapshot(system: &System) -> String {
    let client = system.sandbox.client();
    let paths = [
        "/api/v1/namespaces/eno-system/secrets/refused-nkeys".to_owned(),
        "/api/v1/namespaces/eno-devices/secrets/refused-login".to_owned(),
        "/api/v1/namespaces/refused-tenant/secrets/refused-own".to_owned(),
        "/api/v1/namespaces/refused-tenant/configmaps/refused-map".to_owned(),
        "/apis/coordination.k8s.io/v1/namespaces/eno-system/leases/refused-lease".to_owned(),
        format!("{RBAC}/clusterroles/eno-engine"),
        format!("{ROUTE}/refused-route"),
        format!("{NADS}/refused-nad"),
    ];
    let mut all = String::new();
    for path in paths {
        let request = Request::get(&path).body(Vec::new()).expect("a request");
        all += &client.request_text(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        all.push('\n');
    }
    all
}

#[test]
fn requests_outside_the_permissions_are_forbidden() {
    with_shared_sandbox(async |system| {
        system.namespace("refused-tenant").await;
        system.apply(FOREIGN_OBJECTS).await;
        system.becomes::<eno_nbi_crds::Route>("refused-route", eno_nbi_crds::Phase::Ready).await;
        let before = snapshot(system).await;
        let mut violations = Vec::new();
        for part in parts() {
            let client = client(part.account, system).await;
            for (path, allowed) in READS {
                let code = request_status(&client, &Method::GET, path, None).await;
                if (code != 403) != allowed(part) {
                    violations.push(format!("{} GET {path}: {code}", part.account.name));
                }
            }
            for (method, path, body) in writes() {
                let code = request_status(&client, &method, &path, Some(&body)).await;
                if code != 403 {
                    violations.push(format!("{} {method} {path}: {code}", part.account.name));
                }
            }
        }
        assert!(violations.is_empty(), "not refused, or refused wrongly:\n{}", violations.join("\n"));
        assert_eq!(snapshot(system).await, before);
        for part in parts().filter(|part| part.rights.is_none()) {
            assert!(READS.iter().all(|(_, allowed)| !allowed(part)), "{} reads nothing", part.name);
        }
        system.delete(FOREIGN_OBJECTS).await;
    });
}

/// An owner, whose end would make the garbage collector delete the object.
const OWNER: &str = r#"{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "0"}"#;

/// A sample Deployment like the engine's.
fn sample() -> Value {
    json!({
        "metadata": {
            "name": "refused-sample",
            "ownerReferences": [{
                "apiVersion": "podconfig.opdev.io/v1alpha1", "kind": "PodConfig", "name": "p", "uid": "u", "controller": true,
            }],
        },
        "spec": {
            "selector": { "matchLabels": { "podconfig": "p" } },
            "template": {
                "metadata": { "labels": { "podconfig": "p" } },
                "spec": {
                    "automountServiceAccountToken": false,
                    "securityContext": { "runAsNonRoot": true, "runAsUser": 65532 },
                    "containers": [{
                        "name": "c",
                        "image": "nothing.invalid/c:1",
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    })
}

/// Admission policies restrict the engine's role to its uses.
#[test]
fn admission_policies_limit_the_engine_to_finalizers_and_samples() {
    with_shared_sandbox(async |system| {
        let route = object("Route", "name: refused-spec", "Prefix: 192.0.2.0, Mask: 24, NextHop: 192.0.2.1");
        system.apply(&route).await;
        system.becomes::<eno_nbi_crds::Route>("refused-spec", eno_nbi_crds::Phase::Ready).await;
        system.namespace("refused-samples").await;
        let engine = client(ENGINE, system).await;
        let patch_status = async |patch: Value| {
            request_status(&engine, &Method::PATCH, &format!("{ROUTE}/refused-spec?dryRun=All"), Some(&patch))
                .await
        };
        assert_eq!(
            patch_status(json!({ "metadata": { "finalizers": ["eno.k8s.io/engine", "a.example/b"] } })).await,
            200
        );
        let patches = [
            json!({ "spec": { "NextHop": "192.0.2.2" } }),
            json!({ "metadata": { "labels": { "a": "b" } } }),
            json!({ "metadata": { "annotations": { "eno.k8s.io/forget": "true" } } }),
            json!({ "metadata": { "ownerReferences": [OWNER.parse::<Value>().expect("JSON")] } }),
        ];
        for patch in patches {
            assert_eq!(patch_status(patch.clone()).await, 403, "{patch}");
        }

        let path = "/apis/apps/v1/namespaces/refused-samples/deployments?dryRun=All";
        let create_status = async |change: &dyn Fn(&mut Value)| {
            let mut deployment = sample();
            change(&mut deployment);
            request_status(&engine, &Method::POST, path, Some(&deployment)).await
        };
        assert_eq!(create_status(&|_| ()).await, 200);
        let pod = "/spec/template/spec";
        let changes = [
            ("/metadata", "ownerReferences", json!([])),
            (pod, "automountServiceAccountToken", json!(true)),
            (pod, "serviceAccountName", json!("admin")),
            (pod, "volumes", json!([{ "name": "v", "secret": { "secretName": "s" } }])),
            (pod, "initContainers", json!([{ "name": "i", "image": "nothing.invalid/c:1" }])),
            (pod, "priorityClassName", json!("system-node-critical")),
            (pod, "runtimeClassName", json!("kata")),
            (pod, "tolerations", json!([{ "operator": "Exists" }])),
            (pod, "schedulerName", json!("another")),
            ("/spec/template/metadata", "annotations", json!({ "k8s.v1.cni.cncf.io/networks": "n" })),
            ("/spec/template/metadata", "labels", json!({ "podconfig": "p", "app": "shop" })),
            ("/spec/template/metadata", "labels", json!({ "podconfig": "p", "attach.eno.k8s.io/n": "" })),
            (pod, "hostNetwork", json!(true)),
            (pod, "hostPID", json!(true)),
            (pod, "nodeName", json!("node1")),
            (pod, "securityContext", json!({})),
            ("/spec/template/spec/containers/0", "env", json!([{ "name": "A", "value": "b" }])),
            ("/spec/template/spec/containers/0", "envFrom", json!([{ "secretRef": { "name": "s" } }])),
            ("/spec/template/spec/containers/0", "securityContext", json!({ "privileged": true })),
            (
                "/spec/template/spec/containers/0/securityContext",
                "capabilities",
                json!({ "drop": ["ALL"], "add": ["NET_ADMIN"] }),
            ),
        ];
        for (at, key, value) in changes {
            let code = create_status(&|deployment| {
                deployment.pointer_mut(at).expect("a place")[key] = value.clone();
            })
            .await;
            assert_eq!(code, 403, "{at}/{key}: {value}");
        }
        system.delete(&route).await;
    });
}

/// The engine marks nodes, and changes nothing else of them.
#[test]
fn admission_policy_limits_the_engine_to_marks_of_nodes() {
    with_shared_sandbox(async |system| {
        let engine = client(ENGINE, system).await;
        let owner: Value = OWNER.parse().expect("JSON");
        let daemon = json!({ "kubeletEndpoint": { "Port": 1 } });
        let patches = [
            ("", json!({ "metadata": { "labels": { "cp.eno.k8s.io/a": "ready" } } }), 200),
            ("", json!({ "metadata": { "labels": { "a": "b" } } }), 403),
            ("", json!({ "metadata": { "annotations": { "a": "b" } } }), 403),
            ("", json!({ "metadata": { "finalizers": ["a.example/b"] } }), 403),
            ("", json!({ "metadata": { "ownerReferences": [owner] } }), 403),
            ("", json!({ "spec": { "unschedulable": true } }), 403),
            ("/status", json!({ "status": { "capacity": { "ovs-cni.network.kubevirt.io/b": "1" } } }), 200),
            ("/status", json!({ "status": { "capacity": { "cpu": "1000" } } }), 403),
            ("/status", json!({ "status": { "daemonEndpoints": daemon } }), 403),
            ("/status", json!({ "status": { "volumesInUse": ["a"] } }), 403),
        ];
        for (subresource, patch, expected) in patches {
            let path = format!("/api/v1/nodes/node1{subresource}?dryRun=All");
            let code = request_status(&engine, &Method::PATCH, &path, Some(&patch)).await;
            assert_eq!(code, expected, "{path} {patch}");
        }
    });
}

/// The driver nad writes NADs of attachments. Those of others stay as they are.
#[test]
fn admission_policy_limits_the_nad_driver_to_nads_of_attachments() {
    with_shared_sandbox(async |system| {
        system.namespace("refused-nads").await;
        let nads = "/apis/k8s.cni.cncf.io/v1/namespaces/refused-nads/network-attachment-definitions";
        let nad = |labels: Value| {
            json!({
                "apiVersion": "k8s.cni.cncf.io/v1",
                "kind": "NetworkAttachmentDefinition",
                "metadata": { "name": "other", "labels": labels },
                "spec": { "config": "{}" },
            })
        };
        let (ours, none) = (json!({ "app.kubernetes.io/managed-by": "eno" }), json!({}));
        let admin = system.sandbox.client();
        assert_eq!(request_status(&admin, &Method::POST, nads, Some(&nad(none.clone()))).await, 200);
        let driver = client(NAD, system).await;
        let (one, dry) = (format!("{nads}/other?dryRun=All"), format!("{nads}?dryRun=All"));
        let changed = json!({ "spec": { "config": "{\"type\":\"host-device\"}" } });
        let taken = json!({ "metadata": { "labels": ours } });
        let mut own = nad(ours.clone());
        own["metadata"]["name"] = json!("own");
        let mut foreign = nad(none.clone());
        foreign["metadata"]["name"] = json!("own");
        for (method, path, body, expected) in [
            (&Method::PATCH, &one, &changed, 403),
            (&Method::PATCH, &one, &taken, 403),
            (&Method::DELETE, &one, &none, 403),
            (&Method::POST, &dry, &foreign, 403),
            (&Method::POST, &dry, &own, 200),
        ] {
            let code = request_status(&driver, method, path, Some(body)).await;
            assert_eq!(code, expected, "{method} {path} {body}");
        }
        assert_eq!(request_status(&admin, &Method::DELETE, &format!("{nads}/other"), None).await, 200);
    });
}

/// Each way to give a pod a label needs the right to use what the label names.
#[test]
fn subresources_of_a_pod_give_it_no_network() {
    with_shared_sandbox(async |system| {
        system.namespace("refused-labels").await;
        let admin = system.sandbox.client();
        let pods = "/api/v1/namespaces/refused-labels/pods";
        let pod = json!({
            "metadata": { "name": "p" },
            "spec": { "containers": [{ "name": "c", "image": "nothing.invalid/c:1" }] },
        });
        assert_eq!(request_status(&admin, &Method::POST, pods, Some(&pod)).await, 200);
        for label in ["podconfig", "podNetworkConfig", "attach.eno.k8s.io/n"] {
            let labels = json!({ "metadata": { "labels": { label: "n" } } });
            for subresource in ["", "/status"] {
                let path = format!("{pods}/p{subresource}");
                let code = request_status(&admin, &Method::PATCH, &path, Some(&labels)).await;
                assert_eq!(code, 403, "{path} {label}");
            }
            for subresource in ["resize", "ephemeralcontainers"] {
                // The API server may accept these and leave out the label.
                request_status(&admin, &Method::PATCH, &format!("{pods}/p/{subresource}"), Some(&labels))
                    .await;
            }
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": { "name": "p", "labels": { label: "n" } },
                "target": { "kind": "Node", "name": "node1" },
            });
            for path in [format!("{pods}/p/binding"), pods.replace("/pods", "/bindings")] {
                let path = path + "?dryRun=All";
                let code = request_status(&admin, &Method::POST, &path, Some(&binding)).await;
                assert_eq!(code, 403, "{path} {label}");
            }
        }
        let request = Request::get(format!("{pods}/p")).body(Vec::new()).expect("a request");
        let pod: Value = admin.request(request).await.expect("the pod");
        assert_eq!(pod["metadata"]["labels"], Value::Null);
        assert_eq!(request_status(&admin, &Method::DELETE, &format!("{pods}/p"), None).await, 200);
    });
}
