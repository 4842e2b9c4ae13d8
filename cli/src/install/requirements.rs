//! What an installation needs of a cluster. Pure judgements of facts that were read before.

use std::fmt;

use super::render::SYSTEM;
use super::values::{Values, ValuesError};

/// The oldest supported version of Kubernetes. The CRDs check addresses with `isIP` and `isCIDR`, which an API server
/// accepts in new objects from this version on.
pub const OLDEST_KUBERNETES: (u32, u32) = (1, 31);
/// The oldest version with MutatingAdmissionPolicy v1.
pub const OLDEST_FOR_ADMISSION: (u32, u32) = (1, 36);

/// What was read of a cluster.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "what is there, independent of each other")]
pub struct Facts {
    /// Major and minor version of the API server; `None`: it gave none that can be read.
    pub version: Option<(u32, u32)>,
    /// The StorageClasses; `None`: they may not be listed.
    pub storage_classes: Option<Vec<StorageClass>>,
    /// Whether the volume of the first NATS server exists.
    pub has_volume: bool,
    /// The record of an earlier installation.
    pub record: Option<Record>,
    /// Namespaces of the operator that are being deleted.
    pub terminating: Vec<String>,
    /// Whether NetworkAttachmentDefinitions are defined.
    pub has_nad_definition: bool,
    /// Whether cert-manager's Certificates are defined.
    pub has_cert_manager: bool,
    /// Whether the Prometheus operator's PodMonitors and PrometheusRules are defined.
    pub has_prometheus_operator: bool,
    /// The version of ENO that the definitions of kinds belong to, if they are there and say so.
    pub definitions: Option<String>,
    /// What the caller may not do.
    pub missing_permissions: Vec<Permission>,
}

/// A StorageClass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClass {
    /// Its name.
    pub name: String,
    /// Whether claims without a class get it.
    pub is_default: bool,
}

/// The record that an installation leaves in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The version of the program that installed.
    pub version: String,
    /// The values; the default ones if they can't be read.
    pub values: Values,
    /// Why they can't be read: they are of another version, or somebody wrote them.
    pub unread: Option<ValuesError>,
    /// Whether the installation came to its end.
    pub is_complete: bool,
    /// The release of Helm that installed; `None`: `eno install` did.
    pub release: Option<String>,
}

/// A right of the caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// Such as `patch`.
    pub verb: &'static str,
    /// The API group; empty for the core.
    pub group: String,
    /// The plural of the kind, with `/SUBRESOURCE` if it has one.
    pub resource: String,
    /// The namespace; empty for all, or for kinds without.
    pub namespace: String,
    /// The name of the object; empty for all.
    pub name: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

/// Why nothing is installed. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is missing.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

/// All reasons why `values` of this `version` can't be installed.
pub fn refusals(facts: &Facts, values: &Values, version: &str) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let mut refuse = |what: String, remedy: &str| refusals.push(Refusal { what, remedy: remedy.to_owned() });
    kubernetes(facts, values, &mut refuse);
    storage(facts, values, &mut refuse);
    if !facts.terminating.is_empty() {
        refuse(
            format!("the namespace {} is being deleted", facts.terminating.join(", ")),
            "wait until it is gone, and install again",
        );
    }
    if values.cert_manager && !facts.has_cert_manager {
        refuse(
            "cert-manager is not in the cluster: the API server does not serve cert-manager.io/v1".to_owned(),
            "install cert-manager, or leave out --cert-manager and the value certManager",
        );
    }
    if (values.monitoring.pod_monitors || values.monitoring.rules) && !facts.has_prometheus_operator {
        refuse(
            "the Prometheus operator is not in the cluster: the API server does not serve \
             monitoring.coreos.com/v1"
                .to_owned(),
            "install it, or set the values monitoring.podMonitors and monitoring.rules to false",
        );
    }
    if !facts.has_nad_definition && !values.nad_definition {
        refuse(
            "NetworkAttachmentDefinitions are not defined in the cluster".to_owned(),
            "install Multus, or set the value nadDefinition to true for the definition alone",
        );
    }
    if let Some(record) = &facts.record {
        earlier(record, values, version, &mut refuse);
    } else if let Some(definitions) = &facts.definitions {
        let what = format!("the definitions of kinds in the cluster are those of ENO {definitions}");
        upgrade(definitions, &what, version, &mut refuse);
    }
    refusals.extend(missing_permissions(&facts.missing_permissions));
    refusals
}

/// A refusal that names what the caller may not do; `None`: nothing is missing.
pub fn missing_permissions(missing: &[Permission]) -> Option<Refusal> {
    let list: Vec<_> = missing.iter().map(ToString::to_string).collect();
    let remedy = "have a cluster admin bind the ClusterRole eno-installer of deploy/rbac-install to you";
    (!missing.is_empty())
        .then(|| Refusal { what: format!("you may not {}", list.join(", ")), remedy: remedy.to_owned() })
}

fn kubernetes(facts: &Facts, values: &Values, refuse: &mut impl FnMut(String, &str)) {
    let Some(version) = facts.version else { return };
    let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    if version < OLDEST_KUBERNETES {
        refuse(
            format!("the cluster runs Kubernetes {}, which is too old", text(version)),
            &format!("update it to {} or later", text(OLDEST_KUBERNETES)),
        );
    } else if values.admission && version < OLDEST_FOR_ADMISSION {
        refuse(
            format!(
                "the value admission needs Kubernetes {}; this is {}",
                text(OLDEST_FOR_ADMISSION),
                text(version)
            ),
            "set it to false: the engine then writes finalizers itself",
        );
    }
}

fn storage(facts: &Facts, values: &Values, refuse: &mut impl FnMut(String, &str)) {
    let Some(classes) = facts.storage_classes.as_ref().filter(|_| !facts.has_volume) else { return };
    let names = || {
        let names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
        if names.is_empty() { "no StorageClass".to_owned() } else { names.join(", ") }
    };
    match &values.nats.storage_class {
        Some(name) if !classes.iter().any(|class| class.name == name.to_string()) => refuse(
            format!("nats.storageClass: there is no StorageClass {name}; the cluster has {}", names()),
            "correct the value",
        ),
        None if !classes.iter().any(|class| class.is_default) => refuse(
            format!("the cluster has no default StorageClass for the volume of NATS; it has {}", names()),
            "name one in the value nats.storageClass, or mark one with the annotation \
             storageclass.kubernetes.io/is-default-class=true",
        ),
        _ => {}
    }
}

/// Refuses a downgrade, and an upgrade of several minor versions at once. `what` has the version `installed`.
fn upgrade(installed: &str, what: &str, version: &str, refuse: &mut impl FnMut(String, &str)) {
    let parse = |text: &str| semver::Version::parse(text).ok();
    let (Some(installed), Some(this)) = (parse(installed), parse(version)) else { return };
    if installed > this {
        refuse(
            format!("{what}, which is newer than this program, {this}"),
            &format!("use eno {installed} or later: a downgrade is not supported"),
        );
    } else if installed.major != this.major || installed.minor + 1 < this.minor {
        refuse(
            format!("{what}; this program, {this}, can't upgrade it in one step"),
            "upgrade one minor version after the other",
        );
    }
}

fn earlier(record: &Record, values: &Values, version: &str, refuse: &mut impl FnMut(String, &str)) {
    if let Some(release) = &record.release {
        refuse(
            format!("the Helm release {release} has installed ENO in this cluster"),
            &format!(
                "upgrade it with helm upgrade, or end it with helm uninstall {release} -n {SYSTEM}: keys, objects and networks stay"
            ),
        );
        return;
    }
    if semver::Version::parse(&record.version).is_err() {
        refuse(
            format!("ConfigMap eno-system/eno-install: {:?} is no version", record.version),
            "correct its version to that of the installed program",
        );
    }
    upgrade(&record.version, &format!("the cluster has ENO {}", record.version), version, refuse);
    let (before, after) = (&record.values.nats, &values.nats);
    for (field, is_same) in [
        ("nats.replicas", before.replicas == after.replicas),
        ("nats.storageClass", before.storage_class == after.storage_class),
        ("nats.storageSize", before.storage_size == after.storage_size),
    ] {
        if !is_same {
            refuse(format!("{field} can't be changed after the installation"), "set it back");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        let class = StorageClass { name: "standard".into(), is_default: true };
        Facts {
            version: Some((1, 36)),
            storage_classes: Some(vec![class]),
            has_nad_definition: true,
            ..Facts::default()
        }
    }

    fn record(version: &str, values: &str) -> Record {
        let values = Values::parse(values).expect("values");
        Record { version: version.into(), values, unread: None, is_complete: true, release: None }
    }

    #[test]
    fn each_missing_requirement_is_refused_with_a_remedy() {
        let permission = |verb, resource: &str, namespace: &str| Permission {
            verb,
            group: String::new(),
            resource: resource.into(),
            namespace: namespace.into(),
            name: String::new(),
        };
        let class = |name: &str| StorageClass { name: name.into(), is_default: false };
        for (values, facts, expected) in vec![
            ("", good(), vec![]),
            (
                "",
                Facts { version: Some((1, 30)), ..good() },
                vec!["runs Kubernetes 1.30, which is too old; update it to 1.31"],
            ),
            (
                "admission: true",
                Facts { version: Some((1, 35)), ..good() },
                vec!["needs Kubernetes 1.36; this is 1.35"],
            ),
            (
                "",
                Facts { storage_classes: Some(vec![]), ..good() },
                vec!["no default StorageClass for the volume of NATS; it has no StorageClass"],
            ),
            ("", Facts { storage_classes: Some(vec![class("a")]), ..good() }, vec!["it has a; name one"]),
            ("", Facts { storage_classes: Some(vec![]), has_volume: true, ..good() }, vec![]),
            ("", Facts { storage_classes: None, ..good() }, vec![]),
            (
                "nats: {storageClass: b}",
                good(),
                vec!["nats.storageClass: there is no StorageClass b; the cluster has standard"],
            ),
            (
                "",
                Facts { terminating: vec!["eno-node".into()], ..good() },
                vec!["the namespace eno-node is being deleted; wait"],
            ),
            ("certManager: true", good(), vec!["cert-manager is not in the cluster"]),
            ("monitoring: {rules: true}", good(), vec!["the Prometheus operator is not in the cluster"]),
            ("", Facts { has_nad_definition: false, ..good() }, vec!["install Multus"]),
            ("nadDefinition: true", Facts { has_nad_definition: false, ..good() }, vec![]),
            (
                "",
                Facts { record: Some(record("0.2.0", "")), ..good() },
                vec!["newer than this program, 0.1.5; use eno 0.2.0 or later"],
            ),
            ("", Facts { record: Some(record("0.1.5", "")), ..good() }, vec![]),
            ("", Facts { record: Some(record("0.0.9", "")), ..good() }, vec![]),
            ("", Facts { record: Some(record("x", "")), ..good() }, vec!["\"x\" is no version"]),
            (
                "",
                Facts {
                    record: Some(Record { release: Some("eno".into()), ..record("0.1.5", "") }),
                    ..good()
                },
                vec!["the Helm release eno has installed ENO in this cluster; upgrade it with helm upgrade"],
            ),
            (
                "",
                Facts { definitions: Some("0.2.0".into()), ..good() },
                vec!["the definitions of kinds in the cluster are those of ENO 0.2.0, which is newer"],
            ),
            ("", Facts { definitions: Some("0.1.5".into()), ..good() }, vec![]),
            (
                "nats: {replicas: 3, storageSize: 9Gi}",
                Facts { record: Some(record("0.1.5", "")), ..good() },
                vec!["nats.replicas can't be changed", "nats.storageSize can't be changed"],
            ),
            (
                "",
                Facts {
                    missing_permissions: vec![
                        permission("patch", "secrets", "eno-system"),
                        permission("bind", "clusterroles", ""),
                    ],
                    ..good()
                },
                vec!["you may not patch secrets in eno-system, bind clusterroles; have a cluster admin"],
            ),
        ] {
            let values = Values::parse(values).expect(values);
            let refusals = refusals(&facts, &values, "0.1.5");
            assert_eq!(refusals.len(), expected.len(), "{refusals:?}");
            for (refusal, expected) in refusals.iter().zip(expected) {
                assert!(refusal.to_string().contains(expected), "{refusal} lacks {expected:?}");
            }
        }
    }

    #[test]
    fn upgrades_skip_no_minor_version() {
        let refused = |installed: &str, this: &str| {
            let facts = Facts { record: Some(record(installed, "")), ..good() };
            !refusals(&facts, &Values::default(), this).is_empty()
        };
        for (installed, this, expected) in [
            ("0.1.0", "0.2.0", false),
            ("0.1.9", "0.2.0", false),
            ("0.1.0", "0.3.0", true),
            ("0.9.0", "1.0.0", true),
            ("1.2.0", "1.1.0", true),
        ] {
            assert_eq!(refused(installed, this), expected, "{installed} to {this}");
        }
    }
}
