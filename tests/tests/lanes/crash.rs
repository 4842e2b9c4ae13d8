//! Faults at every write of the engine and at every operation of the netconf driver on a switch. Every run of the
//! reference scenario must end in the state of an undisturbed run. The default is a slice of the writes to the API
//! server; `tests/README.md` names the variables for the rest.

use eno_lab::sandbox::SandboxOptions;
use eno_tests::fault_injection::{Extent, FaultInjectionTest, InjectionSite, topology};
use eno_tests::with_own_sandbox;

/// All runs share one sandbox, since a start takes as long as several runs.
#[test]
fn every_injected_crash_converges_to_the_reference_state() {
    let change = |options: &mut SandboxOptions| {
        options.topology = topology();
        options.engine = false;
    };
    with_own_sandbox(change, async |system| {
        let test = FaultInjectionTest::start(system).await;
        let reference = test.reference().await;
        let site = std::env::var("ENO_CRASH_PLACE").unwrap_or_else(|_| "api".to_owned());
        if site == "mutants" {
            let undetected_mutants = test.undetected_mutants(&reference).await;
            assert!(undetected_mutants.is_empty(), "not noticed: {undetected_mutants:?}");
            return;
        }
        let (site, runs) = match site.as_str() {
            "api" => (InjectionSite::Api, 3),
            "nats" => (InjectionSite::Nats, 2),
            "netconf" => (InjectionSite::Netconf, 1),
            other => panic!("ENO_CRASH_PLACE={other}: must be api, nats, netconf or mutants"),
        };
        let failures = test.inject_at_each_point(&reference, site, Extent::from_env(runs)).await.failures;
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    });
}
