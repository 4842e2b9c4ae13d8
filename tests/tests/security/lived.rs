//! What is found when the operator has lived through everything: no secret outside of where it belongs, and every right
//! used.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::security::account::{Account, ENGINE, NAD};
use crate::security::canary::{Canary, Search};
use crate::security::record::{MARK, record};
use crate::security::rights::RIGHTS;

#[test]
#[ignore = "needs root: real nodes"]
fn no_secret_is_anywhere() {
    let record = record();
    let search = Search::new(&record.canaries);
    let found: Vec<_> = record
        .texts
        .iter()
        .filter_map(|text| search.find(&text.bytes).map(|found| format!("{}: {found}", text.place)))
        .collect();
    assert!(found.is_empty(), "{} of {} texts:\n{}", found.len(), record.texts.len(), found.join("\n"));

    // It was looked where something is: a word that is no secret is in each kind of place.
    let mark = Search::new(&[Canary::new("the mark", MARK)]);
    let marked: Vec<&str> = record
        .texts
        .iter()
        .filter(|text| mark.find(&text.bytes).is_some())
        .map(|text| text.place.as_str())
        .collect();
    let places =
        ["physicalnetworks while", "l2services while", "all messages on NATS", "jetstream/", "logs/engine"];
    for place in places {
        assert!(marked.iter().any(|found| found.contains(place)), "{MARK} is not in {place}: {marked:#?}");
    }
    // What is there needs no edits of switches.
    let commands =
        record.texts.iter().filter(|text| text.place.starts_with("eno ") && !text.place.contains("xml"));
    let silent: Vec<_> = commands.filter(|text| text.bytes.len() < 20).map(|text| &text.place).collect();
    assert!(silent.is_empty(), "{silent:?}");
    let said: BTreeMap<&str, usize> =
        record.texts.iter().map(|text| (text.place.as_str(), text.bytes.len())).collect();
    for part in ["engine", "driver-netconf", "driver-nad", "driver-ovs-fabric", "node1-agent", "node2-agent"]
    {
        let logged =
            said.iter().any(|(place, size)| place.contains(&format!("logs/{part}")) && *size > 10_000);
        assert!(logged, "{part} logged next to nothing: {said:#?}");
        assert!(said.keys().any(|place| place.starts_with(&format!("the metrics of {part} "))), "{part}");
    }
}

/// Objects that the engine follows.
const FOLLOWED: &[&str] = &[
    "connectionpoints",
    "fabricdevices",
    "l2bridgedomains",
    "l2serviceattachments",
    "l2services",
    "nodepools",
    "physicalnetworks",
    "routes",
    "subnets",
    "podconfigs",
    "bridges",
    "podnetworkconfigs",
];

/// Rights that are not used in such a life, and why they are there all the same.
const SELDOM: &[(Account, &str, &[&str], &str)] = &[
    (ENGINE, "list", FOLLOWED, "API servers before 1.34 begin a watch with a list"),
    (ENGINE, "list", &["nodes", "namespaces", "pods"], "the same"),
    (ENGINE, "get", FOLLOWED, "the finalizer is looked for when somebody else changed the list of them"),
    (NAD, "get", &["network-attachment-definitions"], "it is asked for while the watch is broken"),
];

/// One that was done: the audit tells server-side apply of what was not there as a patch that was answered 201.
fn done(request: &Value) -> Option<Vec<(String, &str, String)>> {
    let code = request["responseStatus"]["code"].as_u64()?;
    let object = &request["objectRef"];
    let (verb, user) = (request["verb"].as_str()?, request["user"]["username"].as_str()?);
    let resource = object["resource"].as_str()?;
    let resource = match object["subresource"].as_str() {
        Some(subresource) => format!("{resource}/{subresource}"),
        None => resource.to_owned(),
    };
    // That something is not there is an answer, too.
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
fn every_right_is_used() {
    let requests = &record().requests;
    let used: BTreeSet<(String, &str, String)> = requests.iter().filter_map(done).flatten().collect();
    let mut unused = Vec::new();
    for right in RIGHTS {
        for (verb, resource, _, line) in right.lines() {
            let seldom = SELDOM.iter().any(|(account, rare, of, _)| {
                *account == right.account && *rare == verb && of.contains(&resource)
            });
            if !seldom && !used.contains(&(right.account.user(), verb, resource.to_owned())) {
                unused.push(format!("{}: {line}", right.account.1));
            }
        }
    }
    assert!(unused.is_empty(), "rights that nobody needed:\n{}", unused.join("\n"));

    // And none was missing.
    let accounts: BTreeSet<String> = Account::ALL.into_iter().map(Account::user).collect();
    let refused: BTreeSet<String> = requests
        .iter()
        .filter(|request| request["responseStatus"]["code"] == 403)
        .filter(|request| request["user"]["username"].as_str().is_some_and(|user| accounts.contains(user)))
        .map(|request| format!("{} {}", request["verb"], request["requestURI"]))
        .filter(|request| !request.contains("/secrets/bad"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
