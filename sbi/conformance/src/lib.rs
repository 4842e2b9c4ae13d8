//! The conformance suite: checks that every driver's tests run.
//!
//! A test provides a [`DriverFixture`]: the driver and a target whose real state can be read and edited
//! without the driver. [`conformance_tests!`] makes one test of each check. A check panics with its finding.
//! The checks of [`holding`] are for drivers with the capability [`HOLD`](eno_sbi::HOLD), those of [`parts`] for drivers
//! with the capability [`PARTS`](eno_sbi::PARTS). They pass for others. Whoever announces [`PARTS`](eno_sbi::PARTS)
//! gets the commands of all checks in parts.

pub mod checks;
mod engine;
pub mod fabrics;
pub mod holding;
pub mod hosted;
mod nats_server;
pub mod ovs_database;
pub mod parts;
pub mod program;
mod running_host;
mod shipped_memory;
mod wire;

use std::collections::BTreeSet;
use std::future::Future;
use std::time::{Duration, Instant};

use eno_schemas::{Desired, Device, Item, VlanSet};

use eno_sbi::Driver;

pub use engine::{Engine, done};
pub use hosted::{DriverProcess, INSTANCE};
pub use nats_server::NatsServer;
pub use running_host::RunningHost;
pub use shipped_memory::ShippedMemory;
pub use wire::Wire;

/// A driver and one target of it, created anew for each check.
///
/// The target can have *items*, numbered from 0 to [`DriverFixture::item_count`], such as VLANs on the ports of a
/// switch. At first it has no items and some foreign configuration.
pub trait DriverFixture: Send + Sync + 'static {
    /// The driver.
    type Driver: Driver;

    /// Number of items: 1 for a target that exists or not, otherwise at least 3.
    fn item_count(&self) -> usize;
    /// The driver, as a new process would create it.
    fn driver(&self) -> Self::Driver;
    /// The name of the target.
    fn target(&self) -> String;
    /// The complete desired state with exactly these items.
    fn desired(&self, items: &BTreeSet<usize>) -> Desired;
    /// The items that the target has.
    fn items(&self) -> impl Future<Output = BTreeSet<usize>> + Send;
    /// The foreign configuration, in any form that is equal when nothing has changed. On a switch: the
    /// foreign VLANs, and each port's settings except for our VLANs.
    fn foreign(&self) -> impl Future<Output = String> + Send;
    /// Number of writes to the target, whether or not they changed anything.
    fn writes(&self) -> impl Future<Output = u64> + Send;
    /// Makes the target reachable or unreachable.
    fn set_reachable(&self, reachable: bool) -> impl Future<Output = ()> + Send;
    /// Makes the target refuse this item permanently, or (`None`) no item.
    fn set_refused(&self, item: Option<usize>) -> impl Future<Output = ()> + Send;
    /// Adds an item as ours, or removes it, without the driver.
    fn edit(&self, item: usize, present: bool) -> impl Future<Output = ()> + Send;
    /// True when a rejection of `found` is about `item`.
    fn names(&self, item: usize, found: &Item) -> bool;
    /// Runs a new process of the driver on NATS, under the name [`INSTANCE`]: in this process, unless the driver is a
    /// program.
    fn start_host(&self, server: &NatsServer) -> impl Future<Output = DriverProcess> + Send {
        DriverProcess::in_process(self.driver(), server)
    }
}

/// Awaits a future within the time that a busy machine needs.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|late| panic!("{what} did not happen: {late}"))
}

/// Blocks until the condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::yield_now();
    }
}

/// Makes a test of each check: `eno_conformance::conformance_tests!(MyFixture::new().await)`. The expression
/// creates a [`DriverFixture`] and may await. The caller's crate needs tokio with its macros.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr) => {
        $crate::conformance_tests! { @checks $fixture;
            apply_converges_and_preserves_foreign_config, reconcile_without_drift_writes_nothing, reconcile_removes_undesired_items,
            reconcile_repairs_external_edits, unreachable_target_is_reported_and_retried, refused_item_is_rejected_and_rest_applied,
            superseded_command_writes_nothing, interrupted_reconcile_converges_when_repeated
        }
        $crate::conformance_tests! { @holding $fixture;
            confirmed_hold_keeps_the_change, unconfirmed_hold_is_rolled_back, new_process_follows_recorded_decision,
            killed_hold_is_settled_by_the_next_process
        }
        $crate::conformance_tests! { @hosted $fixture;
            hosted: repeated_and_older_commands_change_nothing, killed_host_is_resumed_by_the_next,
            hold_is_reported_and_decided_through_the_host
        }
        $crate::conformance_tests! { @hosted $fixture;
            parts: head_waits_for_its_parts, lost_part_is_asked_for, newest_command_counts_whole_or_in_parts
        }
    };
    (@holding $fixture:expr; $($check:ident),+) => { $(
        #[tokio::test(flavor = "multi_thread")]
        async fn $check() {
            $crate::holding::$check(&$fixture).await;
        }
    )+ };
    (@checks $fixture:expr; $($check:ident),+) => { $(
        #[tokio::test(flavor = "multi_thread")]
        async fn $check() {
            $crate::checks::$check(&$fixture).await;
        }
    )+ };
    (@hosted $fixture:expr; $module:ident: $($check:ident),+) => { $(
        #[tokio::test(flavor = "multi_thread")]
        async fn $check() {
            $crate::$module::$check(std::sync::Arc::new($fixture)).await;
        }
    )+ };
}

/// The target's command of term 1 and this sequence.
fn command<R: DriverFixture>(
    fixture: &R,
    driver: &str,
    sequence: u64,
    items: &BTreeSet<usize>,
) -> eno_schemas::Command {
    eno_schemas::Command::new(driver, fixture.target(), (1, sequence), fixture.desired(items))
}

fn all<R: DriverFixture>(fixture: &R) -> BTreeSet<usize> {
    (0..fixture.item_count()).collect()
}

/// The desired state of a switch with these VLANs.
pub fn fabric(vids: impl IntoIterator<Item = u16>) -> Desired {
    let vlans: VlanSet = vids.into_iter().map(fabrics::vid).collect();
    Desired::Fabric(fabrics::desired("c1", Device::new("127.0.0.1:830"), &vlans.to_string(), &[]))
}
