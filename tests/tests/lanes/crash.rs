//! The engine dies, or is refused, at every write of a reference scenario, and the netconf driver at every operation on
//! a switch: it ends on every layer as if nothing had happened. A slice of
//! the first by default; `tests/README.md` says how to have the rest.

use eno::sandbox::SandboxOptions;
use eno_tests::fault_injection::{Extent, FaultInjectionTest, InjectionSite, topology};
use eno_tests::own;

/// One sandbox for all, since a start takes as long as several runs.
#[test]
fn every_crash_ends_as_none() {
    let change = |options: &mut SandboxOptions| {
        options.topology = topology();
        options.engine = false;
    };
    own(change, async |system| {
        let test = FaultInjectionTest::start(system).await;
        let reference = test.reference().await;
        let place = std::env::var("ENO_CRASH_PLACE").unwrap_or_else(|_| "api".to_owned());
        if place == "mutants" {
            let undetected_mutants = test.undetected_mutants(&reference).await;
            assert!(undetected_mutants.is_empty(), "not noticed: {undetected_mutants:?}");
            return;
        }
        let (place, runs) = match place.as_str() {
            "api" => (InjectionSite::Api, 3),
            "nats" => (InjectionSite::Nats, 2),
            "netconf" => (InjectionSite::Netconf, 1),
            other => panic!("ENO_CRASH_PLACE={other}: must be api, nats, netconf or mutants"),
        };
        let wrong = test.inject_at_each_point(&reference, place, Extent::from_env(runs)).await.wrong;
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
