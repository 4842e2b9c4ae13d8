//! The operator writes nothing when nothing changes.

use std::time::Duration;

use eno_nbi_crds::{
    ConnectionPoint, FabricDevice, L2BridgeDomain, L2Service, L2ServiceAttachment, NodePool, Phase,
    PhysicalNetwork, Route, Subnet,
};
use eno_tests::{System, access, service, with_exclusive_sandbox};
use futures::TryStreamExt as _;
use kube::Resource;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use serde::de::DeserializeOwned;

use crate::e2e::create_namespace_and_point;

/// Duration of the watches.
const IDLE_PERIOD: Duration = Duration::from_secs(5);

#[test]
fn nothing_is_written_when_nothing_changes() {
    with_exclusive_sandbox(async |system| {
        create_namespace_and_point(system, "idle", &["node1", "node3"]).await;
        let network = [service("idle-a", 310, "PhysicalNW: [dc-gw]"), access("idle", "a", "idle-a")].concat();
        system.apply_until_ready::<L2ServiceAttachment>(&network, "idle/a").await;
        let is_reported = |service: &L2Service| {
            let status = service.status.as_ref();
            status.is_some_and(|s| s.phase == Some(Phase::Ready) && s.connection_points == ["idle"])
        };
        system.until_one("idle-a", "the last word", is_reported).await;

        // The engine writes merely informative status fields a moment later, such as each switch's last change.
        for switch in system.sandbox.switches() {
            let trace = system.eno_json(&["trace", &format!("fd/{}", switch.name)], "", 0).await;
            let of_driver =
                trace["entries"].as_array().expect("a list").iter().filter(|entry| entry["what"] != "phase");
            let mut changes =
                of_driver.filter_map(|entry| entry["text"].as_str()).filter(|text| text.contains(" added, "));
            let Some(last) = changes.next_back().map(str::to_owned) else { continue };
            let is_reported = |device: &FabricDevice| {
                let change = device.status.as_ref().and_then(|status| status.last_transaction.as_ref());
                change.is_some_and(|c| {
                    last.starts_with(&format!("{} added, {} removed in {} ms", c.added, c.removed, c.took_ms))
                })
            };
            system.until_one(&switch.name, "the last change", is_reported).await;
        }

        let mut before = Vec::new();
        for switch in system.sandbox.switches() {
            before.push(system.transactions(&switch.name).await);
        }
        tokio::join!(
            assert_no_writes::<ConnectionPoint>(system, system.all()),
            assert_no_writes::<FabricDevice>(system, system.all()),
            assert_no_writes::<L2BridgeDomain>(system, system.all()),
            assert_no_writes::<L2Service>(system, system.all()),
            assert_no_writes::<L2ServiceAttachment>(system, system.all()),
            assert_no_writes::<NodePool>(system, system.all()),
            assert_no_writes::<PhysicalNetwork>(system, system.all()),
            assert_no_writes::<Route>(system, system.all()),
            assert_no_writes::<Subnet>(system, system.all()),
        );
        for (switch, before) in system.sandbox.switches().iter().zip(before) {
            assert_eq!(system.transactions(&switch.name).await, before, "transactions of {}", switch.name);
        }
        system.delete(&network).await;
    });
}

/// Panics when an object of the kind is written within [`IDLE_PERIOD`].
async fn assert_no_writes<K>(_: &System, api: Api<K>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let version = api.list(&ListParams::default()).await.expect("a list").metadata.resource_version;
    let mut params = WatchParams::default().timeout(u32::try_from(IDLE_PERIOD.as_secs()).expect("seconds"));
    params.bookmarks = false;
    let events = api.watch(&params, &version.unwrap_or_default()).await.expect("a watch");
    let events: Vec<WatchEvent<K>> = events.try_collect().await.expect("events until the time is over");
    assert!(events.is_empty(), "{} written: {events:#?}", K::plural(&()));
}
