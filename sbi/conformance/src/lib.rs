//! What every driver must do, as checks that its own tests call.
//!
//! The test provides a [`DriverFixture`]: the driver and a target of its own, whose real state can be looked at and
//! interfered with past the driver. [`conformance_tests!`] makes one test of each check.
//! A check panics with what it found. Those of [`holding`] are for drivers that announce [`HOLD`](eno_sbi::HOLD), and
//! pass for others.

pub mod checks;
mod engine;
pub mod holding;
pub mod hosted;
mod nats_server;

use std::collections::BTreeSet;
use std::future::Future;

use eno_schemas::{Desired, Device, Drift, FabricDesired, FabricVlan, Item, VlanId, VlanSet};

use eno_sbi::Driver;

pub use engine::Engine;
pub use nats_server::NatsServer;

/// A driver and one target of it, made anew for each check.
///
/// The target can hold *items*, numbered from 0 to [`DriverFixture::ITEMS`]: on a switch perhaps VLANs on ports, each with
/// a number. At first it holds none of them, and some foreign configuration.
pub trait DriverFixture: Send + Sync + 'static {
    /// The driver.
    type Driver: Driver;
    /// How many items there are: 1 where a target is there or not, otherwise at least 3.
    const ITEMS: usize;

    /// The driver as a new process would make it.
    fn driver(&self) -> Self::Driver;
    /// The name of the target.
    fn target(&self) -> String;
    /// The complete desired state with exactly these items.
    fn desired(&self, items: &BTreeSet<usize>) -> Desired;
    /// The items that are really there.
    fn items(&self) -> impl Future<Output = BTreeSet<usize>> + Send;
    /// All of the target that is not ours, in any form that is equal when nothing has changed. On a switch: the
    /// foreign VLANs, and each port's settings but for VLANs of ours.
    fn foreign(&self) -> impl Future<Output = String> + Send;
    /// How many times the target's state has been written, whether or not that made a difference.
    fn writes(&self) -> impl Future<Output = u64> + Send;
    /// Makes the target answer or not.
    fn set_reachable(&self, reachable: bool) -> impl Future<Output = ()> + Send;
    /// Has the target refuse this item for good, or (`None`) nothing any more.
    fn set_refused(&self, item: Option<usize>) -> impl Future<Output = ()> + Send;
    /// Puts an item there, as ours, or takes it away by another hand.
    fn edit(&self, item: usize, present: bool) -> impl Future<Output = ()> + Send;
    /// True when a rejection of `found` speaks of `item`.
    fn names(&self, item: usize, found: &Item) -> bool;
}

/// Makes a test of each check: `eno_conformance::conformance_tests!(MyRig::new().await)`. The expression makes a
/// [`DriverFixture`]; it may await. The caller's crate needs tokio with its macros.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr) => {
        $crate::conformance_tests! { @checks $fixture;
            reaches_the_state, writes_nothing_when_nothing_differs, removes_what_is_not_wanted,
            undoes_edits_by_hand, tells_unreachable_from_wrong, leaves_out_what_is_refused,
            writes_nothing_for_an_older_generation, survives_being_killed_at_any_point
        }
        $crate::conformance_tests! { @holding $fixture;
            keeps_what_is_confirmed, takes_back_what_is_not_confirmed, does_what_was_decided_while_it_was_away,
            can_be_killed_while_it_holds
        }
        $crate::conformance_tests! { @hosted $fixture;
            survives_a_repeat_and_an_older_generation, goes_on_after_the_host_was_killed, holds_in_its_host
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
    (@hosted $fixture:expr; $($check:ident),+) => { $(
        #[tokio::test(flavor = "multi_thread")]
        async fn $check() {
            $crate::hosted::$check(std::sync::Arc::new($fixture)).await;
        }
    )+ };
}

/// The target's command of this term and sequence.
fn command<R: DriverFixture>(
    fixture: &R,
    driver: &str,
    sequence: u64,
    items: &BTreeSet<usize>,
) -> eno_schemas::Command {
    let desired = fixture.desired(items);
    eno_schemas::Command {
        driver: driver.to_owned(),
        target: fixture.target(),
        generation: eno_schemas::Generation { term: 1, sequence, hash: desired.hash() },
        desired,
        transaction: None,
    }
}

fn all<R: DriverFixture>() -> BTreeSet<usize> {
    (0..R::ITEMS).collect()
}

/// The desired state of a switch with these VLANs.
pub fn fabric(vids: impl IntoIterator<Item = u16>) -> Desired {
    let vlan = |vid| FabricVlan { vid: VlanId::new(vid).unwrap(), owners: vec!["L2Service/s".into()] };
    Desired::Fabric(FabricDesired {
        cluster: "c1".into(),
        cluster_uid: None,
        device: Device {
            address: "127.0.0.1:830".into(),
            dialect: None,
            credential: None,
            host_key: None,
            drift: Drift::Repair,
            audit_interval: None,
            adopt: VlanSet::EMPTY,
        },
        vlans: vids.into_iter().map(vlan).collect(),
        ports: Vec::new(),
    })
}

#[cfg(test)]
mod tests;
