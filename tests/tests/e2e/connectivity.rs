//! `eno connectivity test` with a real API server. The test answers in place of the engine, which has no agents here.

use std::process::{Output, Stdio};

use eno_nbi_crds::{L2Service, L2ServiceAttachment, VERIFY_ANNOTATION, VerifyRequest};
use eno_tests::{System, access, poll, service, with_shared_sandbox};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::e2e::create_namespace_and_point;

/// The hop that loses packets.
const LOST: &str = "leaf1 Ethernet1 to node1 eth1: all 2 probes through it fail, all others pass";

/// A kind, and `[namespace/]name`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<'a>(pub &'a str, pub &'a str);

impl Target<'_> {
    fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk("eno.k8s.io", "v1alpha1", self.0))
    }

    fn api(self, system: &System) -> (Api<DynamicObject>, String) {
        let resource = self.resource();
        match self.1.split_once('/') {
            Some((namespace, name)) => {
                (Api::namespaced_with(system.sandbox.client(), namespace, &resource), name.to_owned())
            }
            None => (Api::all_with(system.sandbox.client(), &resource), self.1.to_owned()),
        }
    }

    async fn request(self, system: &System) -> Option<VerifyRequest> {
        let (api, name) = self.api(system);
        let object = api.get(&name).await.expect("the object");
        VerifyRequest::parse(object.annotations().get(VERIFY_ANNOTATION)?)
    }

    /// Waits for a request.
    async fn asked(self, system: &System) -> VerifyRequest {
        poll(async || self.request(system).await).await.unwrap_or_else(|| panic!("{self:?} is not asked"))
    }

    /// Writes a part of the status as the engine does.
    pub(super) async fn write(self, system: &System, status: Value) {
        let (api, name) = self.api(system);
        let resource = self.resource();
        let object = json!({ "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": { "name": name }, "status": status });
        let params = PatchParams::apply("test-probes").force();
        api.patch_status(&name, &params, &Patch::Apply(object)).await.expect("the status is taken");
    }

    /// Writes the condition Verified.
    async fn verified(self, system: &System, status: &str, reason: &str, message: &str) {
        self.write(system, json!({ "conditions": [verified(status, reason, message)] })).await;
    }

    /// Waits for a request, and answers it.
    async fn answer(self, system: &System, results: Value, condition: Value) -> VerifyRequest {
        let request = self.asked(system).await;
        let answer = json!({ "nonce": request.nonce, "complete": true, "results": results });
        self.write(system, json!({ "conditions": [condition], "verification": answer })).await;
        request
    }

    /// Answers for a ConnectionPoint, which has no condition Verified.
    async fn answer_point(self, system: &System, results: Value) {
        let request = self.asked(system).await;
        let answer = json!({ "nonce": request.nonce, "complete": true, "results": results });
        self.write(system, json!({ "verification": answer })).await;
    }
}

fn verified(status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": "Verified", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn result(from: &str, to: &str, outcome: &str) -> Value {
    json!({ "from": from, "to": to, "vlan": 470, "outcome": outcome })
}

async fn test(system: &System, arguments: &[&str]) -> Output {
    system.eno(&[&["connectivity", "test"], arguments].concat(), "").await
}

/// What the program wrote, after it ended with this code.
fn ended(output: &Output, code: i32) -> String {
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert_eq!(output.status.code(), Some(code), "{errors}{text}");
    text.into_owned()
}

/// What was lost is shown in each format, and the request is taken away.
async fn answer_is_shown(system: &System, target: Target<'_>) {
    let results = json!([result("node1", "node3", "lost"), result("node3", "node1", "passed")]);
    let arguments = ["l2sa/a", "-n", "conn", "-o"];
    for format in ["json", "table", "junit"] {
        let arguments = [&arguments[..], &[format]].concat();
        let lost = verified("False", "Lost", &format!("{LOST}\u{1b}[2J"));
        let (output, request) =
            tokio::join!(test(system, &arguments), target.answer(system, results.clone(), lost));
        assert!(!request.mtu && request.isolation_from.is_none(), "{request:?}");
        let text = ended(&output, 1);
        assert!(text.contains(LOST) && !text.contains('\u{1b}'), "{text}");
        if format == "json" {
            let json: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(
                (&json["target"], &json["complete"]),
                (&json!("L2ServiceAttachment/conn/a"), &json!(true))
            );
            assert_eq!((&json["results"], &json["verdict"]), (&results, &json!("failed")));
        } else if format == "table" {
            let lines =
                ["FROM   TO     VLAN  RESULT", "node1  node3  470   lost", "node3  node1  470   passed"];
            let all: Vec<String> = text.lines().map(|line| line.trim().to_owned()).collect();
            for line in lines {
                assert!(all.iter().any(|one| one == line), "{line:?} is not in:\n{text}");
            }
        } else {
            assert!(text.contains(r#"tests="2" failures="1" errors="0" skipped="0""#), "{text}");
        }
        assert_eq!(target.request(system).await, None);
    }
    let passed = json!([result("node1", "node3", "passed")]);
    let (output, _) = tokio::join!(
        test(system, &["l2sa/a", "-n", "conn"]),
        target.answer(system, passed, verified("True", "Answered", ""))
    );
    assert!(ended(&output, 0).contains("all 1 passed"));
}

/// No answer has its reason, at once where none can come.
async fn reason_is_shown(system: &System, target: Target<'_>) {
    target.verified(system, "Unknown", "NotProbed", "no agent of its nodes is alive").await;
    let output = test(system, &["l2sa/a", "-n", "conn", "--timeout", "5s"]).await;
    let text = ended(&output, 2);
    assert!(text.contains("none came in 5 s: no agent of its nodes is alive"), "{text}");
    // The test would take longer than it may if it waited.
    target.verified(system, "Unknown", "CannotProbe", "br0 has no uplink").await;
    let point = Target("ConnectionPoint", "conn");
    for (one, object) in [(target, "l2sa/a"), (point, "cp/conn")] {
        let text = ended(&test(system, &[object, "-n", "conn", "--timeout", "1h"]).await, 2);
        assert!(text.contains("not probed: br0 has no uplink"), "{text}");
        assert_eq!(one.request(system).await, None);
    }
    target.verified(system, "Unknown", "NotProbed", "not probed yet").await;
    // Somebody else's request stays.
    let other = r#"{"nonce": "other"}"#;
    let replace = async {
        target.asked(system).await;
        let annotations = json!({ "metadata": { "annotations": { (VERIFY_ANNOTATION): other } } });
        system.patch("L2ServiceAttachment", "conn/a", annotations).await;
    };
    let (output, ()) = tokio::join!(test(system, &["l2sa/a", "-n", "conn"]), replace);
    assert!(ended(&output, 2).contains("somebody else asked"));
    assert_eq!(target.request(system).await.map(|one| one.nonce).as_deref(), Some("other"));
    let none = json!({ "metadata": { "annotations": { (VERIFY_ANNOTATION): null } } });
    system.patch("L2ServiceAttachment", "conn/a", none).await;
    for (arguments, text) in [
        (&["l2sa/nobody", "-n", "conn"][..], "L2ServiceAttachment/conn/nobody does not exist"),
        (&["fd/leaf1"], "nothing is probed for a FabricDevice"),
        (&["cp/conn", "--isolation"], "name an L2Service or an L2ServiceAttachment"),
    ] {
        let output = test(system, arguments).await;
        let all = ended(&output, 2) + &String::from_utf8_lossy(&output.stderr);
        assert!(all.contains(text), "{all}");
    }
}

/// A signal ends the test, and the request goes with it.
async fn signal_takes_the_request_away(system: &System, target: Target<'_>) {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut command = Command::new(eno::programs::eno().expect("the program"));
        command.args(["connectivity", "test", "l2sa/a", "-n", "conn", "--mtu", "--timeout", "1h"]);
        command.env("KUBECONFIG", &system.sandbox.info().kubeconfig);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
        let child = child.expect("a process");
        assert!(target.asked(system).await.mtu);
        let pid = child.id().expect("it runs").cast_signed();
        kill(Pid::from_raw(pid), signal).expect("a process");
        let output = child.wait_with_output().await.expect("it ends");
        assert!(ended(&output, 130).contains("stopped"), "{output:?}");
        assert_eq!(target.request(system).await, None, "{signal}");
    }
}

/// Who may not patch learns which right is missing.
async fn missing_right_is_named(system: &System) {
    let viewer = "\n---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: viewer, namespace: \
                  conn}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: eno-attachment-viewer}, \
                  subjects: [{kind: User, name: conn-viewer, apiGroup: rbac.authorization.k8s.io}]}";
    system.apply(viewer).await;
    let directory = tempfile::tempdir().expect("a directory");
    let kubeconfig = system.kubeconfig_of(directory.path(), "conn-viewer", "conn").display().to_string();
    let refused = async |arguments: &[&str], texts: &[&str]| {
        let output = test(system, &[arguments, &["--kubeconfig", &kubeconfig]].concat()).await;
        let all = ended(&output, 2) + &String::from_utf8_lossy(&output.stderr);
        assert!(texts.iter().all(|text| all.contains(text)), "{all}");
    };
    let right = "the right to patch l2serviceattachments.eno.k8s.io in namespace conn";
    refused(&["l2sa/a"], &[right, "eno-nfvo"]).await;
    refused(&["l2s/conn-a"], &["the right to patch l2services.eno.k8s.io,"]).await;
    refused(&["--all"], &["listing connectionpoints"]).await;
}

/// Two services with the nearest VLANs name each other with one nonce, until both are answered.
async fn isolation_asks_both(system: &System) {
    let (own, other) = (Target("L2Service", "conn-a"), Target("L2Service", "conn-b"));
    let crossed = |vlan: u16, other: u16, outcome: &str| json!([{ "from": "node1", "to": "node3", "vlan": vlan, "other": other, "outcome": outcome }]);
    let passed = || verified("True", "Answered", "");
    let (output, first, second) = tokio::join!(
        test(system, &["l2s/conn-a", "--isolation", "-o", "json"]),
        own.answer(system, crossed(470, 472, "isolated"), passed()),
        other.answer(system, crossed(472, 470, "leaking"), passed()),
    );
    assert_eq!(first.nonce, second.nonce);
    let names = (first.isolation_from.as_deref(), second.isolation_from.as_deref());
    assert_eq!(names, (Some("conn-b"), Some("conn-a")));
    let tests: Value = serde_json::from_str(&ended(&output, 1)).expect("JSON");
    let verdicts = (&tests[0]["verdict"], &tests[1]["verdict"]);
    assert_eq!(verdicts, (&json!("passed"), &json!("failed")), "{tests:#}");
    for target in [own, other] {
        assert_eq!(target.request(system).await, None);
    }
    // Without a result across the VLANs, nothing is proven. The other one is named.
    let plain = || json!([result("node1", "node3", "passed")]);
    let third = Target("L2Service", "conn-c");
    let (output, ..) = tokio::join!(
        test(system, &["l2s/conn-a", "--isolation=conn-c"]),
        own.answer(system, plain(), passed()),
        third.answer(system, plain(), passed()),
    );
    let text = ended(&output, 2);
    assert!(text.contains("no VLAN of the one was compared"), "{text}");
}

/// Every ConnectionPoint is asked. Those of other tests have nothing to probe, or nobody who answers.
async fn all_points_are_asked(system: &System, attachment: Target<'_>) {
    attachment.verified(system, "False", "Lost", LOST).await;
    let point = Target("ConnectionPoint", "conn");
    let (output, ()) = tokio::join!(
        test(system, &["--all", "--timeout", "20s", "-o", "json"]),
        point.answer_point(system, json!([result("node1", "node3", "lost")])),
    );
    let tests: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{tests:#}");
    let all = tests.as_array().expect("a list");
    let own = all.iter().find(|one| one["target"] == "ConnectionPoint/conn").expect("the point");
    let message = format!("L2ServiceAttachment/conn/a: {LOST}");
    assert_eq!((&own["verdict"], &own["message"]), (&json!("failed"), &json!(message)), "{tests:#}");
    assert_eq!(point.request(system).await, None);
}

#[test]
fn connectivity_is_tested_on_request() {
    with_shared_sandbox(async |system| {
        create_namespace_and_point(system, "conn", &["node1", "node3"]).await;
        let network = [
            service("conn-a", 470, ""),
            service("conn-b", 472, ""),
            service("conn-c", 475, ""),
            access("conn", "a", "conn-a"),
            access("conn", "b", "conn-b"),
            access("conn", "c", "conn-c"),
        ]
        .concat();
        system.apply(&network).await;
        for name in ["a", "b", "c"] {
            system.becomes::<L2ServiceAttachment>(&format!("conn/{name}"), eno_nbi_crds::Phase::Ready).await;
            system.becomes::<L2Service>(&format!("conn-{name}"), eno_nbi_crds::Phase::Ready).await;
        }
        let target = Target("L2ServiceAttachment", "conn/a");
        let services = ["conn-a", "conn-b", "conn-c"].map(|name| Target("L2Service", name));
        for one in services.into_iter().chain([target]) {
            one.verified(system, "Unknown", "NotProbed", "not probed yet").await;
        }
        answer_is_shown(system, target).await;
        reason_is_shown(system, target).await;
        signal_takes_the_request_away(system, target).await;
        missing_right_is_named(system).await;
        isolation_asks_both(system).await;
        all_points_are_asked(system, target).await;
        system.delete_with_vlans(&network, [470, 472, 475]).await;
    });
}
