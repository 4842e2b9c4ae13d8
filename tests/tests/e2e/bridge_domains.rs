//! The engine option `--bridge-domains`, which writes L2BridgeDomains for fabric plugins.

use eno_nbi_crds::{L2BridgeDomain, L2ServiceAttachment};
use eno_tests::{access, service, with_own_sandbox};
use kube::runtime::watcher;

use crate::e2e::create_namespace_and_point;

#[test]
fn engine_writes_one_bridge_domain_per_service_in_use() {
    with_own_sandbox(
        |options| options.engine_arguments.push("--bridge-domains".into()),
        async |system| {
            create_namespace_and_point(system, "made", &["node1"]).await;
            let services = [service("made-a", 100, ""), service("made-unused", 101, "")].concat();
            let user = access("made", "a", "made-a");
            system.apply_until_ready::<L2ServiceAttachment>(&[&*services, &*user].concat(), "made/a").await;
            let all = || {
                system.until(system.all::<L2BridgeDomain>(), watcher::Config::default(), "one", |all| {
                    all.len() == 1
                })
            };
            let (_, domain) = all().await.pop_first().expect("one");
            assert_eq!((domain.spec.vlan, domain.spec.connection_points), (100, vec!["made".to_owned()]));
            system.delete(&user).await;
            let none = std::collections::BTreeMap::is_empty;
            system.until(system.all::<L2BridgeDomain>(), watcher::Config::default(), "none", none).await;
            system.until_without([100]).await;
            system.delete(&services).await;
        },
    );
}
