//! The driver against a real kube-apiserver, with the role that `deploy/rbac` gives it and no other.
//!
//! One control plane serves all scenarios; each has a namespace of its own. The attachments that own their NADs are
//! names only, so the garbage collector stays out; it has a test and a control plane to itself.

mod cluster;
mod scenarios;

use cluster::Cluster;
use eno_driver_nad::NadDriver;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nads_on_a_real_api_server() {
    let cluster = Cluster::start(&["garbage-collector-controller"]).await;
    scenarios::crd_comes_later(&cluster).await;
    tokio::join!(
        scenarios::made_changed_removed(&cluster),
        scenarios::drift_is_told_and_repaired(&cluster),
        scenarios::foreign_stays_untouched(&cluster),
        scenarios::guarded_against_races(&cluster),
        scenarios::reference_nad_is_adopted(&cluster),
        scenarios::finalizers_of_others(&cluster),
        scenarios::impossible_leaves_what_is_there(&cluster),
        scenarios::older_word_is_not_written(&cluster),
        scenarios::missing_and_ending_namespaces(&cluster),
        scenarios::forbidden(&cluster),
    );
    scenarios::many_at_once(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_garbage_collector_takes_nads_with_their_attachments() {
    let cluster = Cluster::start(&[]).await;
    cluster.install(crate::common::NAD_CRD).await;
    scenarios::collected_with_its_attachment(&cluster).await;
    cluster.stop().await;
}

#[tokio::test]
async fn no_api_server_is_unreachable() {
    let mut config = kube::Config::new("https://127.0.0.1:1".parse().expect("an address"));
    config.connect_timeout = Some(std::time::Duration::from_secs(2));
    let driver = NadDriver::new(kube::Client::try_from(config).expect("a client"));
    let failure =
        cluster::failure(cluster::reconcile(&driver, &cluster::command("ns", "net", "uid", None)).await);
    assert!(failure.retryable && failure.unreachable, "{failure:?}");
    assert!(failure.reason.starts_with("reading the NetworkAttachmentDefinition:"), "{}", failure.reason);
}
