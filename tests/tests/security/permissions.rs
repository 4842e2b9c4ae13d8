//! All permissions of each part on the API server, listed by hand. The roles of `deploy/` must grant exactly these, and
//! the full run must use each.

use std::collections::{BTreeMap, BTreeSet};

use eno_parts::{Account, Rights};
use eno_tests::with_shared_sandbox;
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};

use crate::security::service_accounts::{BGP_SPEAKER, ENGINE, NAD, client, parts};

/// Permissions of an account.
#[derive(Clone, Copy)]
pub struct Permission {
    /// The account.
    pub account: Account,
    /// The namespace of the permission; empty: the whole cluster.
    pub namespace: &'static str,
    /// The API group; empty: core.
    pub group: &'static str,
    /// Resources, each with an optional `/subresource`.
    pub resources: &'static [&'static str],
    /// Names of objects; empty: all.
    pub names: &'static [&'static str],
    /// The allowed verbs.
    pub verbs: &'static [&'static str],
}

/// The kinds of networks.
pub const KINDS: &[&str] = &[
    "bgpsessiongroups",
    "connectionpoints",
    "fabricdevices",
    "l2bridgedomains",
    "l2serviceattachments",
    "l2services",
    "nodepools",
    "physicalnetworks",
    "routes",
    "subnets",
    "vrfattachments",
    "vrfs",
];
const STATUSES: &[&str] = &[
    "bgpsessiongroups/status",
    "connectionpoints/status",
    "fabricdevices/status",
    "l2bridgedomains/status",
    "l2serviceattachments/status",
    "l2services/status",
    "nodepools/status",
    "physicalnetworks/status",
    "podnetworks/status",
    "routes/status",
    "subnets/status",
    "vrfattachments/status",
    "vrfs/status",
];

const fn engine(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Permission {
    Permission { account: ENGINE, namespace: "", group, resources, names: &[], verbs }
}

/// The permissions of accounts whose role is like no other.
const OWN: &[Permission] = &[
    engine("eno.k8s.io", KINDS, &["get", "list", "watch", "patch"]),
    engine("eno.k8s.io", STATUSES, &["patch"]),
    engine("eno.k8s.io", &["l2bridgedomains"], &["create", "delete"]),
    engine("eno.k8s.io", &["podnetworks"], &["list", "create", "patch", "delete"]),
    engine("podconfig.opdev.io", &["podconfigs"], &["get", "list", "watch", "patch"]),
    engine("podconfig.opdev.io", &["podconfigs/status"], &["patch"]),
    engine("podnetwork.opdev.io", &["bridges", "podnetworkconfigs"], &["get", "list", "watch", "patch"]),
    engine("podnetwork.opdev.io", &["bridges/status", "podnetworkconfigs/status"], &["patch"]),
    engine("", &["nodes"], &["list", "watch", "patch"]),
    engine("", &["nodes/status"], &["patch"]),
    engine("", &["namespaces", "pods"], &["list", "watch"]),
    Permission { names: &["kube-system"], ..engine("", &["namespaces"], &["get"]) },
    Permission { names: &["eno-callback"], ..engine("", &["secrets"], &["get"]) },
    engine("apps", &["deployments"], &["get", "list", "watch", "create"]),
    engine("apps", &["statefulsets"], &["list", "watch"]),
    engine("batch", &["cronjobs"], &["list", "watch"]),
    engine("kubevirt.io", &["virtualmachines"], &["list", "watch"]),
    engine("events.k8s.io", &["events"], &["create", "patch"]),
    engine("authentication.k8s.io", &["tokenreviews"], &["create"]),
    Permission { namespace: "eno-system", ..engine("coordination.k8s.io", &["leases"], &["create"]) },
    Permission {
        namespace: "eno-system",
        names: &["eno-engine"],
        ..engine("coordination.k8s.io", &["leases"], &["get", "update"])
    },
    Permission {
        account: BGP_SPEAKER,
        ..engine("metallb.io", &["bfdprofiles", "bgppeers"], &["list", "watch", "create", "patch", "delete"])
    },
    Permission { account: BGP_SPEAKER, ..engine("metallb.io", &["bgpadvertisements"], &["list", "watch"]) },
    Permission {
        account: NAD,
        ..engine(
            "k8s.cni.cncf.io",
            &["network-attachment-definitions"],
            &["get", "list", "watch", "create", "patch", "delete"],
        )
    },
];

/// All permissions, with those of the drivers that log in to devices.
pub fn all() -> impl Iterator<Item = Permission> {
    let of_device = |account| {
        let right = |namespace, group, resources| Permission {
            account,
            namespace,
            group,
            resources,
            names: &[],
            verbs: &["get"],
        };
        [right("eno-devices", "", &["secrets"]), right("", "eno.k8s.io", &["fabricdevices"])]
    };
    let drivers = parts().filter(|part| part.rights == Some(Rights::Devices));
    OWN.iter().copied().chain(drivers.flat_map(move |part| of_device(part.account)))
}

/// One verb on one resource, as text for messages.
fn permission_line(verb: &str, group: &str, resource: &str, name: Option<&str>) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{verb} {group}/{resource}{}", name.map(|name| format!(" {name}")).unwrap_or_default())
}

impl Permission {
    /// One line for each combination of verb, resource and name.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>, String)> {
        let names: Vec<Option<&'static str>> =
            if self.names.is_empty() { vec![None] } else { self.names.iter().copied().map(Some).collect() };
        let (group, resources, verbs) = (self.group, self.resources, self.verbs);
        let each = move |name: Option<&'static str>| {
            resources.iter().flat_map(move |resource| {
                verbs
                    .iter()
                    .map(move |verb| (*verb, *resource, name, permission_line(verb, group, resource, name)))
            })
        };
        names.into_iter().flat_map(each)
    }
}

/// The permissions of a client in a namespace, from a SelfSubjectRulesReview. RBAC is the authorizer of service
/// accounts, and it lists all of its rules.
async fn allowed_actions(client: &Client, namespace: &str) -> BTreeSet<String> {
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let review = reviews.create(&PostParams::default(), &review).await.expect("a review of rules");
    let status = review.status.expect("its answer");
    assert!(!status.incomplete, "{:?}", status.evaluation_error);
    let mut found = BTreeSet::new();
    for rule in &status.resource_rules {
        let names = match &rule.resource_names {
            Some(names) if !names.is_empty() => names.iter().map(|name| Some(name.as_str())).collect(),
            _ => vec![None],
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    found.extend(names.iter().map(|name| permission_line(verb, group, resource, *name)));
                }
            }
        }
    }
    for rule in &status.non_resource_rules {
        for url in rule.non_resource_urls.iter().flatten() {
            found.extend(rule.verbs.iter().map(|verb| format!("{verb} {url}")));
        }
    }
    found
}

/// A namespace of a tenant.
const FOREIGN_NAMESPACE: &str = "rights-tenant";

#[test]
fn service_accounts_have_exactly_the_listed_permissions() {
    with_shared_sandbox(async |system| {
        system.namespace(FOREIGN_NAMESPACE).await;
        let anyone = client(Account { namespace: "eno-system", name: "nobody" }, system).await;
        let mut violations = Vec::new();
        for account in parts().map(|part| part.account) {
            let client = client(account, system).await;
            for namespace in
                ["eno-system", "eno-devices", "eno-node", "kube-system", "default", FOREIGN_NAMESPACE]
            {
                // All authenticated users may read versions and their own permissions.
                let everyone = allowed_actions(&anyone, namespace).await;
                let found: BTreeSet<_> =
                    allowed_actions(&client, namespace).await.difference(&everyone).cloned().collect();
                let expected: BTreeSet<_> = all()
                    .filter(|permission| permission.account == account)
                    .filter(|permission| permission.namespace.is_empty() || permission.namespace == namespace)
                    .flat_map(|permission| permission.lines().map(|(.., line)| line).collect::<Vec<_>>())
                    .collect();
                let mut add_violation = |what, line| {
                    violations.push(format!("{} in {namespace} {what}: {line}", account.name));
                };
                found
                    .difference(&expected)
                    .for_each(|line| add_violation("may, though nobody said so", line));
                expected.difference(&found).for_each(|line| add_violation("may not, but should", line));
            }
        }
        assert!(violations.is_empty(), "{}", violations.join("\n"));
    });
}

/// The subjects of all bindings are exactly the accounts with listed permissions.
#[test]
fn bindings_name_only_listed_accounts() {
    with_shared_sandbox(async |system| {
        let client = system.sandbox.client();
        let cluster: Api<ClusterRoleBinding> = Api::all(client.clone());
        let all: Api<RoleBinding> = Api::all(client);
        let of_operator = ListParams::default().labels("app.kubernetes.io/part-of=eno");
        let mut bound = BTreeMap::new();
        let mut add = |name: String, subjects: Option<Vec<Subject>>| {
            for subject in subjects.unwrap_or_default() {
                let key = (subject.kind, subject.namespace.unwrap_or_default(), subject.name);
                bound.entry(key).or_insert_with(|| name.clone());
            }
        };
        for binding in cluster.list(&of_operator).await.expect("ClusterRoleBindings") {
            add(binding.name_any(), binding.subjects);
        }
        for binding in all.list(&of_operator).await.expect("RoleBindings") {
            add(binding.name_any(), binding.subjects);
        }
        let key = |account: Account| {
            ("ServiceAccount".to_owned(), account.namespace.to_owned(), account.name.to_owned())
        };
        let with_permissions: BTreeSet<_> =
            super::permissions::all().map(|permission| key(permission.account)).collect();
        let bound: BTreeSet<_> = bound.into_keys().collect();
        assert_eq!(bound, with_permissions);
        let with_rights =
            parts().filter(|part| part.rights.is_some()).map(|part| key(part.account)).collect();
        assert_eq!(with_permissions, with_rights);
    });
}
