//! The API server: its version, its APIs, and what the user may do there.

use std::collections::BTreeSet;

use kube::api::DynamicObject;

use super::{Check, Fact, Name, Problem, count, listed};
use crate::apply::resource_of;
use crate::install::requirements::{OLDEST_KUBERNETES as OLDEST, Permission};

/// Resources that only the running operator uses: group and version, and name.
const USED: [(&str, &str); 3] = [
    ("coordination.k8s.io/v1", "leases"),
    ("events.k8s.io/v1", "events"),
    ("storage.k8s.io/v1", "storageclasses"),
];

/// A resource that ENO needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededApi {
    /// Such as `apps/v1`.
    pub group_version: String,
    /// Such as `deployments`.
    pub resource: String,
}

/// What an installation that applies these objects needs, and what the running operator uses.
pub fn needed_apis(objects: &[DynamicObject]) -> BTreeSet<NeededApi> {
    let needed = |group_version: &str, resource: &str| NeededApi {
        group_version: group_version.to_owned(),
        resource: resource.to_owned(),
    };
    let applied = objects.iter().filter_map(|object| resource_of(object).ok());
    applied
        .map(|resource| needed(&resource.api_version, &resource.plural))
        .chain(USED.map(|(group_version, resource)| needed(group_version, resource)))
        .collect()
}

/// The checks of the server's version, `v1.36.2` or major and minor.
pub fn judge_version(version: &Fact<String>) -> Check {
    let name = Name::KubernetesVersion;
    let version = match version {
        Ok(version) => version,
        Err(unread) => return Check::unread(name, "", unread),
    };
    let oldest = format!("{}.{}", OLDEST.0, OLDEST.1);
    match major_and_minor(version) {
        Some(found) if found >= OLDEST => Check::ok(name, version),
        Some(_) => Check::failed(
            name,
            version,
            Problem::new(
                format!("this Kubernetes is too old: ENO needs {oldest} or later"),
                format!("upgrade the cluster to {oldest} or later"),
            ),
        ),
        None => Check::warning(
            name,
            version,
            Problem::new(
                "the API server's version is not of the form v1.36.0",
                format!("make sure that it is Kubernetes {oldest} or later"),
            ),
        ),
    }
}

fn major_and_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || {
        let number = numbers.next()?;
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        number[..end].parse().ok()
    };
    Some((next()?, next()?))
}

/// The check of the APIs that ENO needs. `missing`: those that the server does not serve.
pub fn judge_apis(needed: usize, missing: &Fact<Vec<NeededApi>>) -> Check {
    let name = Name::KubernetesApis;
    let subject = count(needed, "resource");
    let missing = match missing {
        Ok(missing) => missing,
        Err(unread) => return Check::unread(name, subject, unread),
    };
    if missing.is_empty() {
        return Check::ok(name, subject);
    }
    let missing = missing.iter().map(|api| format!("{} of {}", api.resource, api.group_version));
    let remedy = format!(
        "upgrade Kubernetes to {}.{} or later, and remove --runtime-config settings that turn these APIs off",
        OLDEST.0, OLDEST.1
    );
    let what = format!("the API server does not serve {}", listed(missing));
    Check::failed(name, subject, Problem::new(what, remedy))
}

/// The check of the user's permissions. `missing`: those that the API server denies.
pub fn judge_permissions(missing: &Fact<Vec<Permission>>) -> Check {
    let name = Name::Permissions;
    match missing {
        Err(unread) => Check::unread(name, "", unread),
        Ok(missing) if missing.is_empty() => Check::ok(name, ""),
        Ok(missing) => {
            let remedy =
                "have a cluster admin bind the ClusterRole eno-installer of deploy/rbac-install to you";
            Check::failed(name, "", Problem::new(format!("you may not {}", listed(missing)), remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Unread;
    use super::super::tests::assert_outcome;
    use super::*;
    use crate::install::Values;
    use crate::install::installer::first_objects;

    #[test]
    fn old_versions_fail() {
        for (version, expected) in [
            ("v1.36.0", "ok"),
            ("v1.31.4-gke.100", "ok"),
            ("2.0", "ok"),
            ("1.31+", "ok"),
            ("v1.30.9", "failed: too old|1.31"),
            ("v0.99", "failed: too old"),
            ("dev", "warning: not of the form"),
        ] {
            assert_outcome(&judge_version(&Ok(version.into())), expected);
        }
        assert_outcome(&judge_version(&Err(Unread::Failed("no answer".into()))), "failed: no answer");
    }

    #[test]
    fn missing_apis_fail() {
        let objects = first_objects(&Values::default()).expect("manifests");
        let needed = needed_apis(&objects);
        let api = |group_version: &str, resource: &str| NeededApi {
            group_version: group_version.to_owned(),
            resource: resource.to_owned(),
        };
        let policies = api("admissionregistration.k8s.io/v1", "validatingadmissionpolicies");
        for expected in [api("v1", "secrets"), api("events.k8s.io/v1", "events"), policies.clone()] {
            assert!(needed.contains(&expected), "{needed:?} lacks {expected:?}");
        }
        assert_outcome(&judge_apis(needed.len(), &Ok(vec![])), "ok");
        assert_outcome(
            &judge_apis(needed.len(), &Ok(vec![policies])),
            "failed: validatingadmissionpolicies of admissionregistration.k8s.io/v1",
        );
    }

    #[test]
    fn missing_permissions_fail() {
        assert_outcome(&judge_permissions(&Ok(vec![])), "ok");
        let permission = Permission {
            verb: "create",
            group: "apiextensions.k8s.io".into(),
            resource: "customresourcedefinitions".into(),
            namespace: String::new(),
            name: String::new(),
        };
        assert_outcome(
            &judge_permissions(&Ok(vec![permission])),
            "failed: create customresourcedefinitions.apiextensions.k8s.io",
        );
    }
}
