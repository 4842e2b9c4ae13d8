//! Several `eno install` at once.

use std::collections::BTreeSet;

use eno::install::keys;
use kube::api::{DeleteParams, ObjectMeta, PostParams};

use super::*;

/// The public keys of the seeds on a disk that the cluster does not accept, and the names of all seeds.
async fn seeds(admin: &Client, home: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let accepted = data(admin, SYSTEM, "eno-nats").await;
    let files = ContextStore::at(home).cluster("test").read().expect("files");
    let seeds = files
        .into_iter()
        .filter(|(name, _)| std::path::Path::new(name).extension().is_some_and(|end| end == "seed"));
    let (mut refused, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (name, seed) in seeds {
        let public = nkeys::KeyPair::from_seed(seed.trim()).expect("a seed").public_key();
        if accepted[&name.replace(".seed", ".pub")] != public {
            refused.insert(public);
        }
        names.insert(name);
    }
    (refused, names)
}

/// Each key is made by one of them. No disk has a seed that NATS refuses, and who has none is told so.
#[tokio::test]
async fn installations_at_once_agree_on_the_keys() {
    let Cluster { _directory, home: _, control_plane, admin, client } = cluster().await;
    let values = Values::parse("nadDefinition: true\nnodeMetrics: true").expect("values");
    let homes = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
    // All see a cluster without ENO.
    let plans = [(); 3].map(|()| Box::pin(plan(&client, &values)));
    let plans = futures::future::try_join_all(plans).await.expect("plans");
    let install = |(home, planned): (&tempfile::TempDir, _)| {
        let (client, values) = (client.clone(), values.clone());
        let context = ContextStore::at(home.path()).cluster("test");
        async move {
            let lines = std::sync::Mutex::new(Vec::new());
            let report = |line: &str| lines.lock().expect("a lock").push(line.to_owned());
            let installed = install(&client, &values, planned, Some(&context), WAIT, &report).await;
            (installed.expect("installed").made, lines.into_inner().expect("lines").join("\n"))
        }
    };
    let mut plans = homes.iter().zip(plans);
    // The third begins when the others have come to their end.
    let (late_home, late) = plans.next_back().expect("a plan");
    let running = async {
        let mut made = futures::future::join_all(plans.map(install)).await;
        made.push(install((late_home, late)).await);
        made
    };
    let made = tokio::select! {
        made = Box::pin(running) => made,
        () = Box::pin(run_workloads(admin.clone())) => panic!("the watch ended"),
        () = Box::pin(lead(admin.clone())) => panic!("the renewals ended"),
    };
    let mut all: Vec<_> = made.iter().flat_map(|(made, _)| made).copied().collect();
    all.sort_unstable();
    let expected = [
        "the certificate of NATS",
        "the certificates of node metrics",
        "the keys of NATS users",
        "the keys of agents' logins",
    ];
    assert_eq!(all, expected, "{made:?}");
    let mut with_seeds = 0;
    for (home, (made, lines)) in homes.iter().zip(&made) {
        let (refused, names) = seeds(&admin, home.path()).await;
        assert_eq!(refused, BTreeSet::new(), "{lines}");
        let has_made = made.contains(&"the keys of NATS users");
        assert_eq!(!names.is_empty(), has_made, "{lines}");
        assert_eq!(lines.contains("NATS does not accept"), !has_made, "{lines}");
        with_seeds += usize::from(has_made);
        let others: Vec<_> = std::fs::read_dir(home.path().join("clusters")).expect("entries").collect();
        assert_eq!(others.len(), 1, "{others:?}");
    }
    assert_eq!(with_seeds, 1);
    assert!(made[2].0.is_empty(), "{made:?}");
    control_plane.stop().await;
}

/// Two Jobs of the Helm chart, as when a release is repeated while its Job runs. People's keys fit what NATS accepts.
#[tokio::test]
async fn jobs_at_once_agree_on_the_keys() {
    const ROUNDS: usize = 3;
    let directory = tempfile::tempdir().expect("a directory");
    let control_plane = control_plane(directory.path()).await;
    let admin = control_plane.client().await.expect("a client");
    let values = Values::parse("nodeMetrics: true").expect("values");
    let home = tempfile::tempdir().expect("a directory");
    let context = ContextStore::at(home.path()).cluster("test");
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    for name in [SYSTEM, "eno-node"] {
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    }
    for _ in 0..ROUNDS {
        let jobs = (0..4).map(|_| keys::make(&admin, &values, WAIT));
        let made: Vec<_> = futures::future::try_join_all(jobs).await.expect("made").concat();
        assert_eq!(made.len(), 4, "{made:?}");
        keys::fetch(&admin, &context).await.expect("fetched");
        let (refused, names) = seeds(&admin, home.path()).await;
        assert_eq!(refused, BTreeSet::new());
        assert_eq!(names.len(), 2, "{names:?}");
        let people = data(&admin, SYSTEM, keys::PEOPLE).await;
        assert!(people.keys().all(|name| !name.starts_with("staged-")), "{:?}", people.keys());
        let metrics = data(&admin, "eno-node", "eno-metrics-tls").await;
        assert_eq!(data(&admin, "eno-node", "eno-scraper").await["ca.crt"], metrics["ca.crt"]);
        assert_eq!(people["metrics-ca.crt"], metrics["ca.crt"]);
        for (namespace, name) in
            [(SYSTEM, "eno-nats"), (SYSTEM, "eno-nats-tls"), ("eno-node", "eno-metrics-tls")]
        {
            let secrets: Api<Secret> = Api::namespaced(admin.clone(), namespace);
            secrets.delete(name, &DeleteParams::default()).await.expect("deleted");
        }
    }
    control_plane.stop().await;
}
