//! All that each part may ask of the API server, written down by hand; the roles of `deploy/` allow that and nothing
//! more, and each of it is used.

use std::collections::{BTreeMap, BTreeSet};

use eno_tests::shared;
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, Subject};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};

use crate::security::account::{AGENT, Account, DEFAULT, ENGINE, NAD, NETCONF, OVS_FABRIC};

/// What an account may do.
pub struct Right {
    pub account: Account,
    /// Where; empty: everywhere.
    pub namespace: &'static str,
    pub group: &'static str,
    /// With its subresource behind a slash.
    pub resources: &'static [&'static str],
    /// Empty: all.
    pub names: &'static [&'static str],
    pub verbs: &'static [&'static str],
}

const KINDS: &[&str] = &[
    "connectionpoints",
    "fabricdevices",
    "l2bridgedomains",
    "l2serviceattachments",
    "l2services",
    "nodepools",
    "physicalnetworks",
    "routes",
    "subnets",
];
const STATUSES: &[&str] = &[
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
];

const fn engine(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Right {
    Right { account: ENGINE, namespace: "", group, resources, names: &[], verbs }
}

/// Everything. Who is not in here may do nothing.
pub const RIGHTS: &[Right] = &[
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
    Right { names: &["kube-system"], ..engine("", &["namespaces"], &["get"]) },
    Right { names: &["eno-callback"], ..engine("", &["secrets"], &["get"]) },
    engine("apps", &["deployments"], &["get", "create"]),
    engine("events.k8s.io", &["events"], &["create", "patch"]),
    Right { namespace: "eno-system", ..engine("coordination.k8s.io", &["leases"], &["create"]) },
    Right {
        namespace: "eno-system",
        names: &["eno-engine"],
        ..engine("coordination.k8s.io", &["leases"], &["get", "update"])
    },
    Right {
        account: NETCONF,
        namespace: "eno-devices",
        group: "",
        resources: &["secrets"],
        names: &[],
        verbs: &["get"],
    },
    Right {
        account: NAD,
        namespace: "",
        group: "k8s.cni.cncf.io",
        resources: &["network-attachment-definitions"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
];

/// One verb on one resource, as it is shown.
fn line(verb: &str, group: &str, resource: &str, name: Option<&str>) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{verb} {group}/{resource}{}", name.map(|name| format!(" {name}")).unwrap_or_default())
}

impl Right {
    /// Each verb on each resource, and each name.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, &'static str, Option<&'static str>, String)> {
        let names: Vec<Option<&'static str>> =
            if self.names.is_empty() { vec![None] } else { self.names.iter().copied().map(Some).collect() };
        let (group, resources, verbs) = (self.group, self.resources, self.verbs);
        let each = move |name: Option<&'static str>| {
            resources.iter().flat_map(move |resource| {
                verbs.iter().map(move |verb| (*verb, *resource, name, line(verb, group, resource, name)))
            })
        };
        names.into_iter().flat_map(each)
    }
}

/// What the API server says that its asker may do in a namespace. Of the authorizers of a cluster RBAC is the one that
/// knows service accounts, and it tells all it knows.
async fn rules(client: &Client, namespace: &str) -> BTreeSet<String> {
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
                    found.extend(names.iter().map(|name| line(verb, group, resource, *name)));
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

/// A namespace of somebody else's.
const ELSEWHERE: &str = "rights-tenant";

#[test]
fn nobody_may_more_than_is_written_down() {
    shared(async |system| {
        system.namespace(ELSEWHERE).await;
        let anyone = Account("eno-system", "nobody").client(system).await;
        let mut wrong = Vec::new();
        for account in Account::ALL {
            let client = account.client(system).await;
            for namespace in ["eno-system", "eno-devices", "eno-node", "kube-system", "default", ELSEWHERE] {
                // What everyone may who is authenticated: ask for versions, and what they may do.
                let everyone = rules(&anyone, namespace).await;
                let found: BTreeSet<_> =
                    rules(&client, namespace).await.difference(&everyone).cloned().collect();
                let wanted: BTreeSet<_> = RIGHTS
                    .iter()
                    .filter(|right| right.account == account)
                    .filter(|right| right.namespace.is_empty() || right.namespace == namespace)
                    .flat_map(Right::lines)
                    .map(|(.., line)| line)
                    .collect();
                let mut tell = |what, line| {
                    wrong.push(format!("{} in {namespace} {what}: {line}", account.1));
                };
                found.difference(&wanted).for_each(|line| tell("may, though nobody said so", line));
                wanted.difference(&found).for_each(|line| tell("may not, but should", line));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// The accounts that some binding names are those of which is said above what they may do.
#[test]
fn no_other_account_is_bound() {
    shared(async |system| {
        let client = system.sandbox.client();
        let cluster: Api<ClusterRoleBinding> = Api::all(client.clone());
        let all: Api<RoleBinding> = Api::all(client);
        let ours = ListParams::default().labels("app.kubernetes.io/part-of=eno");
        let mut bound = BTreeMap::new();
        let mut add = |name: String, subjects: Option<Vec<Subject>>| {
            for subject in subjects.unwrap_or_default() {
                let key = (subject.kind, subject.namespace.unwrap_or_default(), subject.name);
                bound.entry(key).or_insert_with(|| name.clone());
            }
        };
        for binding in cluster.list(&ours).await.expect("ClusterRoleBindings") {
            add(binding.name_any(), binding.subjects);
        }
        for binding in all.list(&ours).await.expect("RoleBindings") {
            add(binding.name_any(), binding.subjects);
        }
        let with_rights: BTreeSet<_> = RIGHTS
            .iter()
            .map(|right| {
                ("ServiceAccount".to_owned(), right.account.0.to_owned(), right.account.1.to_owned())
            })
            .collect();
        let bound: BTreeSet<_> = bound.into_keys().collect();
        assert_eq!(bound, with_rights);
        for account in [OVS_FABRIC, AGENT, DEFAULT] {
            assert!(RIGHTS.iter().all(|right| right.account != account), "{account:?}");
        }
    });
}
