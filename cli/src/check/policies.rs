//! Admission policies: those of others that see the operator's pods, and the operator's own.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, NamedRuleWithOperations, RuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Check, Fact, Name, Problem, count, listed, selects};

/// The operator's admission policies. Each has a binding of its name.
pub const OWN: [&str; 7] = [
    "eno-driver-bgp-speakers",
    "eno-driver-nads",
    "eno-engine-samples",
    "eno-engine-specs",
    "eno-node-marks",
    "eno-use",
    "eno-use-bindings",
];

/// The resources that lead to the operator's pods.
const POD_RESOURCES: [(&str, &str); 5] = [
    ("", "pods"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("apps", "replicasets"),
];

/// The admission policies and webhooks of the cluster.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// ValidatingAdmissionPolicies.
    pub policies: Vec<ValidatingAdmissionPolicy>,
    /// Their bindings.
    pub bindings: Vec<ValidatingAdmissionPolicyBinding>,
    /// Validating webhooks.
    pub validating: Vec<ValidatingWebhookConfiguration>,
    /// Mutating webhooks.
    pub mutating: Vec<MutatingWebhookConfiguration>,
}

/// Labels of the operator's namespaces as they are, or as an installation makes them.
pub type Namespaces = BTreeMap<&'static str, BTreeMap<String, String>>;

/// The check of policies and webhooks of others that see the operator's pods at their creation.
pub fn judge_others(policies: &Fact<Policies>, namespaces: &Namespaces) -> Check {
    let name = Name::AdmissionPolicies;
    let found = match policies {
        Ok(found) => found,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let number = found.policies.len() + found.validating.len() + found.mutating.len();
    let subject = format!("{number} policies and webhook configurations");
    let mut seen = BTreeSet::new();
    for policy in &found.policies {
        let policy_name = policy.metadata.name.as_deref().unwrap_or_default();
        let is_enforced =
            found.bindings.iter().any(|binding| is_binding_of(binding, policy_name) && denies(binding));
        let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
        let is_for_pods = constraints.is_some_and(|constraints| {
            let rules = constraints.resource_rules.iter().flatten().map(Rule::from);
            sees_pods(rules, constraints.namespace_selector.as_ref(), namespaces)
        });
        if is_enforced && is_for_pods && !OWN.contains(&policy_name) {
            seen.insert(format!("ValidatingAdmissionPolicy {policy_name}"));
        }
    }
    for configuration in &found.validating {
        for webhook in configuration.webhooks.iter().flatten() {
            let rules = webhook.rules.iter().flatten().map(Rule::from);
            if sees_pods(rules, webhook.namespace_selector.as_ref(), namespaces) {
                seen.insert(format!("validating webhook {}", webhook.name));
            }
        }
    }
    for configuration in &found.mutating {
        for webhook in configuration.webhooks.iter().flatten() {
            let rules = webhook.rules.iter().flatten().map(Rule::from);
            if sees_pods(rules, webhook.namespace_selector.as_ref(), namespaces) {
                seen.insert(format!("mutating webhook {}", webhook.name));
            }
        }
    }
    if seen.is_empty() {
        return Check::ok(name, format!("{subject}, none of others sees the operator's pods"));
    }
    let what = format!("these see the operator's pods and may refuse or change them: {}", listed(seen));
    let remedy = "make sure that they admit the image, and in eno-node the host's network, host paths and the \
                  capabilities NET_ADMIN and SYS_ADMIN; otherwise exempt the operator's namespaces";
    Check::warning(name, subject, Problem::new(what, remedy))
}

/// The parts of a rule that matter here.
struct Rule<'a> {
    groups: &'a [String],
    resources: &'a [String],
    operations: &'a [String],
}

impl<'a> From<&'a RuleWithOperations> for Rule<'a> {
    fn from(rule: &'a RuleWithOperations) -> Self {
        Self {
            groups: rule.api_groups.as_deref().unwrap_or_default(),
            resources: rule.resources.as_deref().unwrap_or_default(),
            operations: rule.operations.as_deref().unwrap_or_default(),
        }
    }
}

impl<'a> From<&'a NamedRuleWithOperations> for Rule<'a> {
    fn from(rule: &'a NamedRuleWithOperations) -> Self {
        Self {
            groups: rule.api_groups.as_deref().unwrap_or_default(),
            resources: rule.resources.as_deref().unwrap_or_default(),
            operations: rule.operations.as_deref().unwrap_or_default(),
        }
    }
}

fn sees_pods<'a>(
    mut rules: impl Iterator<Item = Rule<'a>>,
    selector: Option<&LabelSelector>,
    namespaces: &Namespaces,
) -> bool {
    let is_selected =
        || selector.is_none_or(|selector| namespaces.values().any(|labels| selects(selector, labels)));
    let has = |list: &[String], wanted: &[&str]| list.iter().any(|one| wanted.contains(&one.as_str()));
    let of_pods = |rule: Rule<'_>| {
        has(rule.operations, &["*", "CREATE"])
            && POD_RESOURCES.iter().any(|(group, resource)| {
                has(rule.groups, &["*", group]) && has(rule.resources, &["*", "*/*", resource])
            })
    };
    rules.any(of_pods) && is_selected()
}

fn is_binding_of(binding: &ValidatingAdmissionPolicyBinding, policy: &str) -> bool {
    binding.spec.policy_name == policy
}

fn denies(binding: &ValidatingAdmissionPolicyBinding) -> bool {
    binding.spec.validation_actions.iter().any(|action| action == "Deny")
}

/// The check of the operator's own policies.
pub fn judge_own(policies: &Fact<Policies>) -> Check {
    let name = Name::OperatorPolicies;
    let subject = count(OWN.len(), "policy");
    let found = match policies {
        Ok(found) => found,
        Err(unread) => return Check::unread(name, subject, unread),
    };
    let problems: Vec<String> = OWN.iter().filter_map(|own| own_problem(found, own)).collect();
    if problems.is_empty() {
        return Check::ok(name, subject);
    }
    Check::failed(name, subject, Problem::new(listed(problems), "run eno install"))
}

fn own_problem(found: &Policies, own: &str) -> Option<String> {
    if !found.policies.iter().any(|policy| policy.metadata.name.as_deref() == Some(own)) {
        return Some(format!("ValidatingAdmissionPolicy {own} does not exist"));
    }
    let binding = found.bindings.iter().find(|binding| is_binding_of(binding, own));
    let Some(binding) = binding else { return Some(format!("{own} has no binding, so it has no effect")) };
    if !denies(binding) {
        return Some(format!("the binding of {own} does not deny"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::super::tests::{assert_outcome, object};
    use super::super::{NODE, SYSTEM};
    use super::*;

    fn namespaces() -> Namespaces {
        let labels =
            |name: &str| BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        [SYSTEM, NODE].map(|name| (name, labels(name))).into()
    }

    #[allow(clippy::unnecessary_wraps, reason = "checks take facts")]
    fn webhook(resource: &str, operation: &str, selector: &Value) -> Fact<Policies> {
        let configuration = object(json!({
            "metadata": {"name": "gatekeeper"},
            "webhooks": [{
                "name": "validation.gatekeeper.sh", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {}, "namespaceSelector": selector,
                "rules": [{
                    "apiGroups": ["*"], "apiVersions": ["*"], "operations": [operation], "resources": [resource],
                }],
            }],
        }));
        Ok(Policies { validating: vec![configuration], ..Policies::default() })
    }

    fn policy(name: &str, action: &str) -> Policies {
        let policy = json!({
            "metadata": {"name": name},
            "spec": {"matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]}},
        });
        let binding = json!({
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": [action]},
        });
        Policies { policies: vec![object(policy)], bindings: vec![object(binding)], ..Policies::default() }
    }

    #[test]
    fn policies_of_others_on_the_operators_pods_are_named() {
        let exempt = json!({"matchExpressions": [{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SYSTEM, NODE],
        }]});
        for (policies, expected) in [
            (webhook("pods", "CREATE", &json!({})), "warning: validating webhook validation.gatekeeper.sh"),
            (webhook("*", "*", &Value::Null), "warning: validation.gatekeeper.sh"),
            (webhook("pods", "CREATE", &exempt), "ok"),
            (webhook("pods", "DELETE", &json!({})), "ok"),
            (webhook("secrets", "CREATE", &json!({})), "ok"),
            (Ok(policy("no-latest", "Deny")), "warning: ValidatingAdmissionPolicy no-latest"),
            (Ok(policy("no-latest", "Audit")), "ok"),
            (Ok(policy("eno-use", "Deny")), "ok"),
        ] {
            assert_outcome(&judge_others(&policies, &namespaces()), expected);
        }
    }

    fn own() -> Policies {
        let mut all = Policies::default();
        for name in OWN {
            let one = policy(name, "Deny");
            all.policies.extend(one.policies);
            all.bindings.extend(one.bindings);
        }
        all
    }

    #[test]
    fn own_policies_must_be_bound() {
        assert_outcome(&judge_own(&Ok(own())), "ok");
        let change = |change: &dyn Fn(&mut Policies)| {
            let mut policies = own();
            change(&mut policies);
            judge_own(&Ok(policies))
        };
        assert_outcome(&change(&|all| _ = all.policies.pop()), "failed: eno-use-bindings does not exist");
        assert_outcome(&change(&|all| _ = all.bindings.pop()), "failed: eno-use-bindings has no binding");
        let audit = change(&|all| {
            all.bindings.pop();
            all.bindings.extend(policy("eno-use-bindings", "Audit").bindings);
        });
        assert_outcome(&audit, "failed: eno-use-bindings does not deny");
    }

    #[test]
    fn own_policies_are_those_of_the_manifests() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/policy");
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let text = std::fs::read_to_string(entry.expect("a file").path()).expect("a manifest");
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
            let policies = documents.iter().filter(|one| one["kind"] == "ValidatingAdmissionPolicy");
            found.extend(
                policies.filter_map(|one| one.pointer("/metadata/name")?.as_str().map(str::to_owned)),
            );
        }
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), OWN);
    }
}
