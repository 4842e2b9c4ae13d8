//! The driver with a real kube-apiserver and only the role of `deploy/rbac`.
//!
//! One control plane serves all scenarios, each in its own namespace. The attachments that own NADs do not
//! exist as objects, so the garbage collector is disabled. It has a test with a control plane of its own.

mod cluster;
mod scenarios;

use cluster::Cluster;
use eno_driver_nad::NadDriver;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nad_lifecycle_on_a_real_api_server() {
    let cluster = Cluster::start(&["garbage-collector-controller"]).await;
    scenarios::missing_crd_is_retried_until_installed(&cluster).await;
    tokio::join!(
        scenarios::nad_is_created_updated_and_deleted(&cluster),
        scenarios::drift_is_detected_and_repaired(&cluster),
        scenarios::foreign_nad_is_preserved(&cluster),
        scenarios::writes_are_guarded_against_races(&cluster),
        scenarios::reference_nad_is_adopted(&cluster),
        scenarios::finalizers_of_others_are_awaited(&cluster),
        scenarios::unsupported_attachment_keeps_existing_nad(&cluster),
        scenarios::superseded_command_writes_nothing(&cluster),
        scenarios::missing_and_terminating_namespaces_are_handled(&cluster),
        scenarios::forbidden_calls_are_reported(&cluster),
    );
    scenarios::many_targets_reconcile_concurrently(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_collector_removes_nads_of_deleted_attachments() {
    let cluster = Cluster::start(&[]).await;
    cluster.install(crate::common::NAD_CRD).await;
    scenarios::nad_is_collected_with_its_attachment(&cluster).await;
    cluster.stop().await;
}

#[tokio::test]
async fn missing_api_server_is_reported_unreachable() {
    let mut config = kube::Config::new("https://127.0.0.1:1".parse().expect("an address"));
    config.connect_timeout = Some(std::time::Duration::from_secs(2));
    let driver = NadDriver::new(kube::Client::try_from(config).expect("a client"));
    let failure =
        cluster::failure(cluster::reconcile(&driver, &cluster::command("ns", "net", "uid", None)).await);
    assert!(failure.retryable && failure.unreachable, "{failure:?}");
    assert!(failure.reason.starts_with("reading the NetworkAttachmentDefinition:"), "{}", failure.reason);
}
