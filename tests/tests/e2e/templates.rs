//! Workloads without pods that name an attachment's network.

use eno_nbi_crds::L2ServiceAttachment;
use eno_tests::{System, access, service, with_own_sandbox};

use crate::e2e::create_namespace_and_point;

/// A definition with the shape of KubeVirt's.
const VIRTUAL_MACHINES: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: virtualmachines.kubevirt.io}
spec:
  group: kubevirt.io
  scope: Namespaced
  names: {kind: VirtualMachine, plural: virtualmachines, singular: virtualmachine}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn deployment(replicas: u8) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: idle, namespace: templates}}\nspec: {{replicas: {replicas}, \
         selector: {{matchLabels: {{app: idle}}}}, template: {{metadata: {{labels: {{app: idle}}, annotations: \
         {{k8s.v1.cni.cncf.io/networks: a}}}}, spec: {{containers: [{{name: main, image: none}}]}}}}}}"
    )
}

fn machine(strategy: &str) -> String {
    format!(
        "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata: {{name: vm, namespace: templates}}\nspec: {{runStrategy: \
         {strategy}, template: {{spec: {{networks: [{{name: x, multus: {{networkName: templates/a}}}}]}}}}}}"
    )
}

/// Waits until the condition names these workloads; `None`: until there is no condition.
async fn until_named(system: &System, workloads: Option<&str>) {
    let named = |attachment: &L2ServiceAttachment| {
        let conditions = attachment.status.as_ref().map(|status| &status.conditions);
        let condition = conditions.into_iter().flatten().find(|one| one.type_ == "UsedByTemplates")?;
        Some(condition.message.clone())
    };
    let what = format!("the condition UsedByTemplates of {workloads:?}");
    let is_named = |one: &L2ServiceAttachment| match (named(one), workloads) {
        (Some(message), Some(workloads)) => message.contains(workloads),
        (message, workloads) => message.is_none() && workloads.is_none(),
    };
    system.until_one("templates/a", &what, is_named).await;
}

#[test]
fn workloads_without_pods_are_a_condition_and_do_not_keep_the_attachment() {
    with_own_sandbox(
        |_| (),
        async |system| {
            system.apply(VIRTUAL_MACHINES).await;
            create_namespace_and_point(system, "templates", &["node3"]).await;
            let used = access("templates", "a", "templates-a");
            let network = service("templates-a", 303, "");
            system
                .apply_until_ready::<L2ServiceAttachment>(&[&*network, &*used].concat(), "templates/a")
                .await;

            system.apply(&deployment(0)).await;
            until_named(system, Some("template of Deployment idle names")).await;
            system.apply(&deployment(1)).await;
            until_named(system, None).await;

            // The engine looks for KubeVirt at growing intervals.
            system.apply(&machine("Halted")).await;
            until_named(system, Some("template of VirtualMachine vm names")).await;
            system.apply(&machine("Always")).await;
            until_named(system, None).await;
            system.apply(&[machine("Halted"), deployment(0)].join("\n---\n")).await;
            until_named(system, Some("template of Deployment idle and 1 more names")).await;

            system.request_deletion(&used).await;
            system.none_left::<L2ServiceAttachment>("templates").await;
        },
    );
}
