//! `eno revoked`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _, ResourceExt as _};
use serde::Serialize;
use serde_json::json;

use crate::inspect::ClusterArgs;
use crate::inspect::output::{Format, name, table};

/// The field manager of the changes and the reporter of the Events.
const MANAGER: &str = "eno-revoked";
/// The label of namespaces in which the policy eno-use checks nothing.
const USE_CHECK_OFF: (&str, &str) = ("eno.k8s.io/use-check", "off");
/// The prefix of the label that hot-plugs an attachment.
const ATTACH: &str = "attach.eno.k8s.io/";
/// Maximum pods per page of a list.
const PAGE_SIZE: u32 = 500;
/// Maximum concurrent access reviews.
const MAX_CONCURRENT_REVIEWS: usize = 16;

/// Show the pods that have a network by a label though their service account may not use it any more; with --end, take
/// it from them.
///
/// The right is asked for when the label is put on a pod, so a running pod keeps its network when the right is taken
/// away. --end removes the label, the operator takes the network back, and an Event of the pod says so. To run it one
/// needs to list namespaces and pods and to create subjectaccessreviews, and for --end to patch pods.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno revoked
  eno revoked -n cnf-a --end")]
pub(super) struct RevokedArgs {
    /// Take the networks from these pods.
    #[arg(long)]
    end: bool,
    /// Pods of this namespace only; absent: of all namespaces.
    #[arg(short, long)]
    namespace: Option<String>,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// A network that a label of a pod requests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NetworkUse {
    kind: &'static str,
    group: &'static str,
    resource: &'static str,
    name: String,
}

/// The user of a network: namespace and service account.
type Account = (String, String);

/// A pod with a network that its service account may not use.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    namespace: String,
    pod: String,
    service_account: String,
    /// Its networks, as `<kind>/<name>`.
    uses: Vec<String>,
    #[serde(skip)]
    labels: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Answer {
    revoked: Vec<Revoked>,
    /// The networks were taken from these pods.
    ended: bool,
}

pub(super) async fn run(args: RevokedArgs) -> anyhow::Result<()> {
    let client = args.cluster.client().await?;
    let unchecked_namespaces = unchecked_namespaces(&client, args.namespace.as_deref()).await?;
    let mut pods_with_uses: Vec<(Pod, Vec<(String, NetworkUse)>)> = Vec::new();
    for pod in pods(&client, args.namespace.as_deref()).await? {
        let uses = uses(pod.labels());
        if !uses.is_empty() && !unchecked_namespaces.contains(&pod.namespace().unwrap_or_default()) {
            pods_with_uses.push((pod, uses));
        }
    }
    let reviews: BTreeSet<(Account, NetworkUse)> = pods_with_uses
        .iter()
        .flat_map(|(pod, uses)| uses.iter().map(|(_, one)| (account(pod), one.clone())))
        .collect();
    let denied: BTreeSet<(Account, NetworkUse)> = stream::iter(reviews)
        .map(|(account, one)| async {
            let is_allowed = is_allowed(&client, &account, &one).await?;
            Ok::<_, anyhow::Error>((!is_allowed).then_some((account, one)))
        })
        .buffer_unordered(MAX_CONCURRENT_REVIEWS)
        .try_filter_map(async |denied| Ok(denied))
        .try_collect()
        .await?;
    let mut found = Vec::new();
    for (pod, uses) in pods_with_uses {
        let account = account(&pod);
        let (labels, denied): (Vec<String>, Vec<NetworkUse>) =
            uses.into_iter().filter(|(_, one)| denied.contains(&(account.clone(), one.clone()))).unzip();
        if denied.is_empty() {
            continue;
        }
        let uses = denied.iter().map(|one| name(one.kind, None, &one.name)).collect();
        let (namespace, service_account) = account;
        found.push((pod.clone(), Revoked { namespace, pod: pod.name_any(), service_account, uses, labels }));
    }
    let (mut done, mut failures) = (Vec::new(), Vec::new());
    for (pod, revoked) in found {
        let ended = if args.end { revoke(&client, &pod, &revoked).await } else { Ok(true) };
        match ended {
            Ok(true) => done.push(revoked),
            Ok(false) => failures
                .push(format!("{} changed meanwhile", name("Pod", pod.namespace().as_deref(), &revoked.pod))),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    args.output.print(&Answer { revoked: done, ended: args.end }, show)?;
    if !failures.is_empty() {
        bail!("run it again: some pods keep what they have: {}", failures.join("; "));
    }
    Ok(())
}

fn show(answer: &Answer) {
    if answer.revoked.is_empty() {
        return crate::outln!("every pod may use what its labels name");
    }
    let rows = answer.revoked.iter().map(|one| {
        let Revoked { namespace, pod, service_account, uses, .. } = one;
        [name("Pod", Some(namespace), pod), service_account.clone(), uses.join(", ")]
    });
    table(["POD", "SERVICE ACCOUNT", if answer.ended { "HAS LOST" } else { "MAY NOT USE" }], rows);
}

/// The networks that the labels of a pod request, each with its label.
fn uses(labels: &BTreeMap<String, String>) -> Vec<(String, NetworkUse)> {
    let named = |label: &str, kind, group, resource| {
        let name = labels.get(label).filter(|name| !name.is_empty())?;
        Some((label.to_owned(), NetworkUse { kind, group, resource, name: name.clone() }))
    };
    let attachments = labels.keys().filter_map(|label| {
        let name = label.strip_prefix(ATTACH)?.to_owned();
        let (kind, group, resource) = ("L2ServiceAttachment", "eno.k8s.io", "l2serviceattachments");
        Some((label.clone(), NetworkUse { kind, group, resource, name }))
    });
    let configs = [
        named("podconfig", "PodConfig", "podconfig.opdev.io", "podconfigs"),
        named("podNetworkConfig", "PodNetworkConfig", "podnetwork.opdev.io", "podnetworkconfigs"),
    ];
    configs.into_iter().flatten().chain(attachments).collect()
}

/// The namespace and service account of a pod.
fn account(pod: &Pod) -> Account {
    let name = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "default".into());
    (pod.namespace().unwrap_or_default(), name)
}

/// The access review of an account and a network, as the policy eno-use makes it.
fn review((namespace, account): &Account, one: &NetworkUse) -> SubjectAccessReview {
    let groups = [
        "system:serviceaccounts".into(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".into(),
    ];
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(groups.into()),
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(namespace.clone()),
                verb: Some("use".into()),
                group: Some(one.group.into()),
                resource: Some(one.resource.into()),
                name: Some(one.name.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

async fn is_allowed(client: &Client, account: &Account, one: &NetworkUse) -> anyhow::Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let (namespace, service_account) = account;
    let what = || {
        format!(
            "asking whether service account {namespace}/{service_account} may use {} {}",
            one.kind, one.name
        )
    };
    let answer = reviews.create(&PostParams::default(), &review(account, one)).await.with_context(what)?;
    let status = answer.status.unwrap_or_default();
    // An incomplete evaluation is no denial.
    if let Some(error) = status.evaluation_error.filter(|_| !status.allowed) {
        bail!("{}: {error}", what());
    }
    Ok(status.allowed)
}

/// The namespaces in which the policy checks nothing.
async fn unchecked_namespaces(client: &Client, namespace: Option<&str>) -> anyhow::Result<BTreeSet<String>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut params = ListParams::default().labels(&format!("{}={}", USE_CHECK_OFF.0, USE_CHECK_OFF.1));
    if let Some(name) = namespace {
        params = params.fields(&format!("metadata.name={name}"));
    }
    let found = namespaces.list_metadata(&params).await.context("listing namespaces")?;
    Ok(found.iter().map(kube::ResourceExt::name_any).collect())
}

/// The pods that have not terminated.
async fn pods(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<Pod>> {
    let pods: Api<Pod> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut params =
        ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed").limit(PAGE_SIZE);
    let mut found = Vec::new();
    loop {
        let page = pods.list(&params).await.context("listing pods")?;
        let next = page.metadata.continue_.filter(|next| !next.is_empty());
        found.extend(page.items.into_iter().filter(|pod| !uses(pod.labels()).is_empty()));
        match next {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(found),
        }
    }
}

/// Removes the labels of a pod. False: the pod has changed since it was read.
async fn revoke(client: &Client, pod: &Pod, revoked: &Revoked) -> anyhow::Result<bool> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &revoked.namespace);
    let labels: BTreeMap<&str, Option<&str>> =
        revoked.labels.iter().map(|label| (label.as_str(), None)).collect();
    // The resource version makes the patch fail if the pod has changed since it was read.
    let version = pod.metadata.resource_version.as_deref();
    let patch = json!({ "metadata": { "resourceVersion": version, "labels": labels } });
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    match pods.patch_metadata(&revoked.pod, &params, &Patch::Merge(patch)).await {
        Ok(_) => {}
        Err(kube::Error::Api(answer)) if answer.code == 409 => return Ok(false),
        // The pod is deleted already.
        Err(kube::Error::Api(answer)) if answer.code == 404 => return Ok(true),
        Err(error) => {
            let pod = name("Pod", Some(&revoked.namespace), &revoked.pod);
            return Err(error).with_context(|| format!("taking labels off {pod}"));
        }
    }
    let reporter = Reporter { controller: MANAGER.into(), instance: None };
    let note = format!(
        "service account {} may not use {} any more: the label was removed, and with it goes the network",
        revoked.service_account,
        revoked.uses.join(", ")
    );
    let event = Event {
        type_: EventType::Warning,
        reason: "UseRevoked".into(),
        note: Some(note),
        action: "RemoveLabel".into(),
        secondary: None,
    };
    // The Event is optional: the command's output has the same information.
    if let Err(error) = Recorder::new(client.clone(), reporter).publish(&event, &pod.object_ref(&())).await {
        eprintln!("eno: no Event of Pod {}/{}: {error}", revoked.namespace, revoked.pod);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_the_requested_networks() {
        let labels = [
            ("app", "cnf"),
            ("attach.eno.k8s.io/oam", "net1"),
            ("attach.eno.k8s.io/data", ""),
            ("podNetworkConfig", "pnc"),
            ("podconfig", ""),
        ];
        let labels = labels.into_iter().map(|(label, value)| (label.to_owned(), value.to_owned())).collect();
        let found: Vec<(String, String)> =
            uses(&labels).into_iter().map(|(label, one)| (label, name(one.kind, None, &one.name))).collect();
        let expected = [
            ("podNetworkConfig", "PodNetworkConfig/pnc"),
            ("attach.eno.k8s.io/data", "L2ServiceAttachment/data"),
            ("attach.eno.k8s.io/oam", "L2ServiceAttachment/oam"),
        ];
        assert_eq!(found, expected.map(|(label, one)| (label.to_owned(), one.to_owned())));
    }
}
