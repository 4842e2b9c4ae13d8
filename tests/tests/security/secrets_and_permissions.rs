//! Checks on the record of a full run: no secret leaves its place, and every permission is used.

use std::collections::{BTreeMap, BTreeSet};

use eno_parts::Account;
use serde_json::Value;

use crate::security::canaries::{Canary, CanarySearch};
use crate::security::full_run::{MARKER, record};
use crate::security::permissions::{self, KINDS};
use crate::security::service_accounts::{ENGINE, NAD, parts};

#[test]
#[ignore = "needs root: real nodes"]
fn no_secret_is_logged_published_or_stored() {
    let record = record();
    let search = CanarySearch::new(&record.canaries);
    let found: Vec<_> = record
        .texts
        .iter()
        .filter_map(|text| search.find(&text.bytes).map(|found| format!("{}: {found}", text.source)))
        .collect();
    assert!(found.is_empty(), "{} of {} texts:\n{}", found.len(), record.texts.len(), found.join("\n"));

    // A marker that is no secret must be in each kind of source, which proves that the sources were read.
    let marker = CanarySearch::new(&[Canary::new("the mark", MARKER)]);
    let sources_with_marker: Vec<&str> = record
        .texts
        .iter()
        .filter(|text| marker.find(&text.bytes).is_some())
        .map(|text| text.source.as_str())
        .collect();
    let sources = [
        "physicalnetworks while",
        "l2services while",
        "all messages on NATS",
        "jetstream/",
        "logs/engine",
        "dump/cluster/physicalnetworks",
        "dump/nats/ENO_TRANSITIONS",
    ];
    for source in sources {
        assert!(
            sources_with_marker.iter().any(|found| found.contains(source)),
            "{MARKER} is not in {source}: {sources_with_marker:#?}"
        );
    }
    // Applied objects need no edits, so the XML plan may be empty.
    let commands =
        record.texts.iter().filter(|text| text.source.starts_with("eno ") && !text.source.contains("xml"));
    let empty_outputs: Vec<_> =
        commands.filter(|text| text.bytes.len() < 20).map(|text| &text.source).collect();
    assert!(empty_outputs.is_empty(), "{empty_outputs:?}");
    let log_sizes: BTreeMap<&str, usize> =
        record.texts.iter().map(|text| (text.source.as_str(), text.bytes.len())).collect();
    let of_sandbox = eno_parts::ALL.into_iter().filter(|part| part.sandbox).map(|part| part.name);
    for part in of_sandbox.chain(["node1-agent", "node2-agent"]) {
        let logged =
            log_sizes.iter().any(|(source, size)| source.contains(&format!("logs/{part}")) && *size > 10_000);
        assert!(logged, "{part} logged next to nothing: {log_sizes:#?}");
        assert!(
            log_sizes.keys().any(|source| source.starts_with(&format!("the metrics of {part} "))),
            "{part}"
        );
    }
}

/// The kinds for running pods.
const POD_KINDS: &[&str] = &["podconfigs", "bridges", "podnetworkconfigs"];

/// Permissions that the run does not use, and the reasons for them.
const RARELY_USED: &[(Account, &str, &[&str], &str)] = &[
    (ENGINE, "list", KINDS, "API servers before 1.34 begin a watch with a list"),
    (ENGINE, "list", POD_KINDS, "the same"),
    (ENGINE, "list", &["nodes", "namespaces", "pods"], "the same"),
    (ENGINE, "list", &["deployments", "statefulsets", "cronjobs", "virtualmachines"], "the same"),
    (ENGINE, "get", KINDS, "the finalizer is looked for when somebody else changed the list of them"),
    (ENGINE, "get", POD_KINDS, "the same"),
    (NAD, "get", &["network-attachment-definitions"], "it is asked for while the watch is broken"),
    (eno_parts::DRIVER_NEUTRON.account, "get", &["secrets", "fabricdevices"], "the sandbox has no OpenStack"),
];

/// The permissions that a successful request used. The audit shows server-side apply of a new object as a patch that
/// was answered 201.
fn granted_permissions(request: &Value) -> Option<Vec<(String, &str, String)>> {
    let code = request["responseStatus"]["code"].as_u64()?;
    let object = &request["objectRef"];
    let (verb, user) = (request["verb"].as_str()?, request["user"]["username"].as_str()?);
    let resource = object["resource"].as_str()?;
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    };
    // A read of an absent object (404) uses the permission, too.
    if code >= 400 && code != 404 {
        return None;
    }
    let mut verbs = vec![verb];
    if verb == "patch" && code == 201 {
        verbs.push("create");
    }
    Some(verbs.into_iter().map(|verb| (user.to_owned(), verb, resource.clone())).collect())
}

#[test]
#[ignore = "needs root: real nodes"]
fn every_permission_is_used_and_none_is_missing() {
    let requests = &record().requests;
    let used: BTreeSet<(String, &str, String)> =
        requests.iter().filter_map(granted_permissions).flatten().collect();
    let mut unused = Vec::new();
    for permission in permissions::all() {
        for (verb, resource, _, line) in permission.lines() {
            let rarely_used = RARELY_USED.iter().any(|(account, rare, of, _)| {
                *account == permission.account && *rare == verb && of.contains(&resource)
            });
            if !rarely_used && !used.contains(&(permission.account.user(), verb, resource.to_owned())) {
                unused.push(format!("{}: {line}", permission.account.name));
            }
        }
    }
    assert!(unused.is_empty(), "rights that nobody needed:\n{}", unused.join("\n"));

    // No request was forbidden.
    let accounts: BTreeSet<String> = parts().map(|part| part.account.user()).collect();
    let refused: BTreeSet<String> = requests
        .iter()
        .filter(|request| request["responseStatus"]["code"] == 403)
        .filter(|request| request["user"]["username"].as_str().is_some_and(|user| accounts.contains(user)))
        .map(|request| format!("{} {}", request["verb"], request["requestURI"]))
        .filter(|request| !request.contains("/secrets/bad"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
