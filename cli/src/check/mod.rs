//! `eno check`: whether a cluster can take ENO, and whether an installation works.
//!
//! Each category has a file with a struct of facts and pure functions that judge them. [`gather`] reads the facts, all
//! at once. A fact that can't be read affects only its own checks.

pub mod callbacks;
pub mod certificates;
pub mod clocks;
pub mod cluster;
pub mod devices;
pub mod drivers;
pub mod earlier;
mod facts;
mod gather;
mod gather_nats;
mod gather_workloads;
pub mod kubernetes;
pub mod leader;
pub mod nats;
pub mod objects;
pub mod parts;
pub mod policies;
mod print;
pub mod workloads;

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::Serialize;
use strum::{EnumIter, IntoStaticStr};

use crate::install::render::{DEVICES, NAMESPACES, NODE, SYSTEM};
pub(crate) use facts::{Installed, Pre};
pub(crate) use gather::Gather;
pub(crate) use print::{plain, print};

/// The page of the book with one heading for each check.
pub const PAGE: &str = "docs/src/how-to/check.md";
/// Maximum number of names in one message.
const MAX_NAMES: usize = 5;

/// A group of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Category {
    /// The API server.
    Kubernetes,
    /// What ENO needs of the cluster.
    Cluster,
    /// Clocks.
    Clocks,
    /// The objects and pods of ENO.
    Operator,
    /// NATS and its streams.
    Nats,
    /// Drivers and agents.
    Drivers,
    /// FabricDevices.
    Devices,
    /// All objects of ENO.
    Objects,
}

impl Category {
    /// The title of the group.
    pub fn title(self) -> &'static str {
        match self {
            Self::Kubernetes => "Kubernetes",
            Self::Cluster => "The cluster",
            Self::Clocks => "Clocks",
            Self::Operator => "The operator",
            Self::Nats => "NATS",
            Self::Drivers => "Drivers and agents",
            Self::Devices => "FabricDevices",
            Self::Objects => "Objects",
        }
    }
}

/// The name of a check. It is the anchor of its section in [`PAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, EnumIter, IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Name {
    /// The API server answers.
    ApiServer,
    /// Its version is recent enough.
    KubernetesVersion,
    /// It serves the APIs that ENO needs.
    KubernetesApis,
    /// The user may install.
    Permissions,
    /// NetworkAttachmentDefinitions are defined.
    NadDefinition,
    /// Multus runs.
    Multus,
    /// There is a StorageClass for NATS.
    StorageClass,
    /// Nodes can run the image and the agent.
    Nodes,
    /// Callbacks reach none of the cluster's own networks.
    CallbackNetworks,
    /// The Pod Security labels of the operator's namespaces.
    PodSecurity,
    /// Admission policies of others that see the operator's pods.
    AdmissionPolicies,
    /// An earlier installation.
    EarlierInstallation,
    /// The API server and this machine have the same time.
    ApiServerClock,
    /// The API server and the nodes have the same time.
    NodeClocks,
    /// The API server and the drivers have the same time.
    DriverClocks,
    /// The operator's namespaces exist.
    Namespaces,
    /// The CustomResourceDefinitions are those of this version.
    Definitions,
    /// The operator's own admission policies are in force.
    OperatorPolicies,
    /// The pods of one Deployment, StatefulSet or DaemonSet.
    Workload,
    /// All parts run one image.
    ImageVersions,
    /// An engine leads.
    Leader,
    /// Certificates are valid for a while.
    Certificates,
    /// NATS lets this program in.
    NatsLogin,
    /// The streams exist, and their replicas are current.
    Streams,
    /// The streams have room.
    StreamSpace,
    /// Drivers answer their commands.
    CommandBacklog,
    /// Each needed driver is alive.
    Drivers,
    /// Each node has a live agent.
    Agents,
    /// Drivers and agents are of this version.
    DriverVersions,
    /// The switches answer.
    DevicesReachable,
    /// The switches show the pinned host keys.
    HostKeys,
    /// The switches are configured.
    DevicesReady,
    /// No other cluster uses this cluster's identifier.
    ClusterIdentifier,
    /// No object is in error.
    ObjectErrors,
    /// Callbacks are delivered.
    Callbacks,
}

impl Name {
    /// Its text, which is also its anchor.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Its group.
    pub fn category(self) -> Category {
        match self {
            Self::ApiServer | Self::KubernetesVersion | Self::KubernetesApis | Self::Permissions => {
                Category::Kubernetes
            }
            Self::NadDefinition
            | Self::Multus
            | Self::StorageClass
            | Self::Nodes
            | Self::CallbackNetworks
            | Self::PodSecurity
            | Self::AdmissionPolicies
            | Self::EarlierInstallation => Category::Cluster,
            Self::ApiServerClock | Self::NodeClocks | Self::DriverClocks => Category::Clocks,
            Self::Namespaces
            | Self::Definitions
            | Self::OperatorPolicies
            | Self::Workload
            | Self::ImageVersions
            | Self::Leader
            | Self::Certificates => Category::Operator,
            Self::NatsLogin | Self::Streams | Self::StreamSpace | Self::CommandBacklog => Category::Nats,
            Self::Drivers | Self::Agents | Self::DriverVersions => Category::Drivers,
            Self::DevicesReachable | Self::HostKeys | Self::DevicesReady | Self::ClusterIdentifier => {
                Category::Devices
            }
            Self::ObjectErrors | Self::Callbacks => Category::Objects,
        }
    }
}

/// What is wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What was found.
    pub what: String,
    /// What the user shall do.
    pub remedy: String,
}

impl Problem {
    /// A problem with its remedy.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// All is well.
    Ok,
    /// It works, and needs attention.
    Warning(Problem),
    /// It does not work.
    Failed(Problem),
    /// It was not checked.
    Skipped {
        /// Why.
        why: String,
    },
}

/// A check and its outcome: one row of the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its group.
    pub category: Category,
    /// Its name. Several rows may have the same one.
    pub name: Name,
    /// What was looked at, such as `3 nodes, 3 agents`.
    pub subject: String,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The section of the book with causes and remedies.
    pub link: String,
}

impl Check {
    /// A check that found nothing wrong.
    pub fn ok(name: Name, subject: impl Into<String>) -> Self {
        Self::new(name, subject, Outcome::Ok)
    }

    /// A check that needs attention.
    pub fn warning(name: Name, subject: impl Into<String>, problem: Problem) -> Self {
        Self::new(name, subject, Outcome::Warning(problem))
    }

    /// A check that failed.
    pub fn failed(name: Name, subject: impl Into<String>, problem: Problem) -> Self {
        Self::new(name, subject, Outcome::Failed(problem))
    }

    /// A check that was left out.
    pub fn skipped(name: Name, subject: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(name, subject, Outcome::Skipped { why: why.into() })
    }

    fn new(name: Name, subject: impl Into<String>, outcome: Outcome) -> Self {
        let link = format!("{PAGE}#{}", name.as_str());
        Self { category: name.category(), name, subject: subject.into(), outcome, link }
    }

    /// The check of a fact that could not be read.
    pub fn unread(name: Name, subject: impl Into<String>, unread: &Unread) -> Self {
        match unread {
            Unread::Forbidden(message) => {
                let why = format!("your rights don't reach that far: {message}");
                Self::skipped(name, subject, why)
            }
            Unread::Failed(message) => {
                let remedy = "run the check again, with a longer --timeout if it was not answered in time";
                Self::failed(name, subject, Problem::new(message, remedy))
            }
        }
    }
}

/// Why a fact could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The user lacks the right.
    Forbidden(String),
    /// The server did not answer in time, or answered with an error.
    Failed(String),
}

/// A fact, or why it could not be read.
pub type Fact<T> = Result<T, Unread>;

/// All checks of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The version of this program.
    pub version: &'static str,
    /// The checks, by group.
    pub checks: Vec<Check>,
    /// How many there are of each outcome.
    pub summary: Summary,
}

/// Number of checks by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Checks that found nothing wrong.
    pub ok: usize,
    /// Checks that need attention.
    pub warnings: usize,
    /// Checks that failed.
    pub failed: usize,
    /// Checks that were left out.
    pub skipped: usize,
}

impl Report {
    /// Sorts the checks by group; their order in a group stays.
    pub fn new(mut checks: Vec<Check>) -> Self {
        checks.sort_by_key(|check| (check.category, check.name));
        let mut summary = Summary::default();
        for check in &checks {
            *match check.outcome {
                Outcome::Ok => &mut summary.ok,
                Outcome::Warning(_) => &mut summary.warnings,
                Outcome::Failed(_) => &mut summary.failed,
                Outcome::Skipped { .. } => &mut summary.skipped,
            } += 1;
        }
        Self { version: eno_program::VERSION, checks, summary }
    }

    /// True when no check failed.
    pub fn is_ok(&self) -> bool {
        self.summary.failed == 0
    }
}

/// `1 node`, `3 nodes`, `2 policies`, `2 classes`.
fn count(number: usize, one: &str) -> String {
    match one.strip_suffix('y') {
        _ if number == 1 => format!("1 {one}"),
        Some(stem) => format!("{number} {stem}ies"),
        None if one.ends_with('s') => format!("{number} {one}es"),
        None => format!("{number} {one}s"),
    }
}

/// The first names, and the number of the rest.
fn listed<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    let shown = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// True if a selector's `matchLabels` and `matchExpressions` select these labels.
fn selects(
    selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    labels: &BTreeMap<String, String>,
) -> bool {
    let is_equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    selector.match_labels.iter().flatten().all(is_equal)
        && selector.match_expressions.iter().flatten().all(|expression| {
            let value = labels.get(&expression.key);
            let is_listed = || expression.values.iter().flatten().any(|wanted| Some(wanted) == value);
            match expression.operator.as_str() {
                "In" => is_listed(),
                "NotIn" => !is_listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                // An unknown operator may select anything.
                _ => true,
            }
        })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use strum::IntoEnumIterator as _;

    use super::*;

    /// An object of Kubernetes from JSON.
    pub(crate) fn object<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    /// Outcome and text of a check, as `failed: what`.
    pub(crate) fn text(check: &Check) -> String {
        match &check.outcome {
            Outcome::Ok => "ok".to_owned(),
            Outcome::Warning(problem) => format!("warning: {}", problem.what),
            Outcome::Failed(problem) => format!("failed: {}", problem.what),
            Outcome::Skipped { why } => format!("skipped: {why}"),
        }
    }

    /// Asserts that the check has this outcome, and these words in it.
    #[track_caller]
    pub(crate) fn assert_outcome(check: &Check, expected: &str) {
        let found = text(check);
        let (outcome, words) = expected.split_once(": ").unwrap_or((expected, ""));
        let is_expected = found.starts_with(outcome) && words.split('|').all(|word| found.contains(word));
        assert!(is_expected, "{expected} is not {found} of {check:?}");
        if let Outcome::Warning(problem) | Outcome::Failed(problem) = &check.outcome {
            assert!(!problem.remedy.is_empty(), "{check:?}");
        }
    }

    fn page() -> String {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
        std::fs::read_to_string(file).expect("the page of the checks")
    }

    #[test]
    fn every_check_has_a_section_in_the_book_and_no_section_lacks_a_check() {
        let page = page();
        let sections: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
        let names: BTreeSet<&str> = Name::iter().map(Name::as_str).collect();
        assert_eq!(sections, names);
        for section in page.split("\n### ").skip(1) {
            let name = section.lines().next().unwrap_or_default();
            let text = section.lines().nth(1).unwrap_or_default();
            assert!(!text.is_empty() && !text.starts_with('#'), "{name} has no text");
        }
    }

    #[test]
    fn report_counts_outcomes_and_has_a_stable_shape() {
        let problem = || Problem::new("it is broken", "repair it");
        let report = Report::new(vec![
            Check::skipped(Name::Callbacks, "", "no access"),
            Check::failed(Name::Leader, "Lease", problem()),
            Check::warning(Name::Nodes, "1 node", problem()),
            Check::ok(Name::ApiServer, "https://host"),
        ]);
        assert!(!report.is_ok());
        let expected = json!({
            "version": eno_program::VERSION,
            "checks": [
                {
                    "category": "kubernetes", "name": "api-server", "subject": "https://host", "outcome": "ok",
                    "link": format!("{PAGE}#api-server"),
                },
                {
                    "category": "cluster", "name": "nodes", "subject": "1 node", "outcome": "warning",
                    "what": "it is broken", "remedy": "repair it", "link": format!("{PAGE}#nodes"),
                },
                {
                    "category": "operator", "name": "leader", "subject": "Lease", "outcome": "failed",
                    "what": "it is broken", "remedy": "repair it", "link": format!("{PAGE}#leader"),
                },
                {
                    "category": "objects", "name": "callbacks", "subject": "", "outcome": "skipped",
                    "why": "no access", "link": format!("{PAGE}#callbacks"),
                },
            ],
            "summary": { "ok": 1, "warnings": 1, "failed": 1, "skipped": 1 },
        });
        assert_eq!(serde_json::to_value(&report).expect("JSON"), expected);
        assert!(Report::new(vec![Check::warning(Name::Nodes, "", problem())]).is_ok());
    }

    #[test]
    fn unread_facts_affect_only_their_check() {
        let forbidden = Check::unread(Name::Leader, "", &Unread::Forbidden("listing leases".into()));
        assert_outcome(&forbidden, "skipped: your rights|listing leases");
        let failed = Check::unread(Name::Leader, "", &Unread::Failed("no answer within 30s".into()));
        assert_outcome(&failed, "failed: no answer within 30s");
    }

    #[test]
    fn many_names_are_shortened() {
        assert_eq!(listed(["a", "b"]), "a, b");
        assert_eq!(listed(1..=7), "1, 2, 3, 4, 5 and 2 more");
        let counted = [(1, "node"), (0, "node"), (2, "policy"), (2, "process")].map(|(n, one)| count(n, one));
        assert_eq!(counted, ["1 node", "0 nodes", "2 policies", "2 processes"]);
    }

    #[test]
    fn selectors_select_as_the_api_server_does() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let expression = |operator: &str, key: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), true),
            (json!({"matchLabels": {"a": "2"}}), false),
            (expression("In", "a", &["1", "2"]), true),
            (expression("NotIn", "a", &["1"]), false),
            (expression("NotIn", "b", &["1"]), true),
            (expression("Exists", "b", &[]), false),
            (expression("DoesNotExist", "a", &[]), false),
            (expression("Later", "a", &[]), true),
        ] {
            assert_eq!(selects(&object(selector.clone()), &labels), expected, "{selector}");
        }
    }
}
