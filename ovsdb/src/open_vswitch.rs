//! The database `Open_vSwitch` (ovs-vswitchd.conf.db(5)): how ovs-vswitchd takes a configuration.
//!
//! Each client increments `next_cfg` with its change. ovs-vswitchd sets `cur_cfg` to the `next_cfg` that it has
//! applied.

use std::time::Duration;

use uuid::Uuid;

use crate::column::{integer, text};
use crate::{Client, Condition, Error, Mirror, MirrorState, Mutation, Operation, Replica, Transaction};

/// The name of the database, and of its table with one row.
pub const DATABASE: &str = "Open_vSwitch";

/// The only row of the table `Open_vSwitch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// The row.
    pub uuid: Uuid,
    /// Incremented by each client that changes the configuration.
    pub next_cfg: i64,
    /// The `next_cfg` that ovs-vswitchd has applied.
    pub cur_cfg: i64,
    /// `ovs_version`.
    pub version: Option<String>,
}

impl Root {
    /// Reads the row; `None` until `ovs-vsctl init`, which the start of Open vSwitch runs.
    pub fn read(replica: &Replica) -> Option<Self> {
        replica.table(DATABASE).next().map(|(uuid, row)| Self {
            uuid,
            next_cfg: integer(row, "next_cfg").unwrap_or_default(),
            cur_cfg: integer(row, "cur_cfg").unwrap_or_default(),
            version: text(row, "ovs_version"),
        })
    }
}

/// Why a configuration is not applied although the database answers. A retry may succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The database is empty: Open vSwitch was never started on it.
    #[error("Open vSwitch at {endpoint} is not initialised (ovs-vsctl init)")]
    NotInitialised {
        /// As in `tcp:192.0.2.1:6640`.
        endpoint: String,
    },
    /// The configuration is in the database, but ovs-vswitchd did not apply it in time.
    #[error("Open vSwitch at {endpoint}: ovs-vswitchd did not take its configuration within {} s", limit.as_secs())]
    NotApplied {
        /// As in `tcp:192.0.2.1:6640`.
        endpoint: String,
        /// The time limit.
        limit: Duration,
    },
    /// Other clients keep changing the same rows.
    #[error("Open vSwitch at {endpoint} is being changed by others: {reason}")]
    Contended {
        /// As in `tcp:192.0.2.1:6640`.
        endpoint: String,
        /// The last conflict.
        reason: String,
    },
}

impl ConfigError {
    /// True when ovs-vswitchd does not work, so that nothing is known to be wrong with the configuration.
    pub fn unreachable(&self) -> bool {
        !matches!(self, Self::Contended { .. })
    }
}

/// Runs the operations in one transaction and returns its `next_cfg`; `None`: the row `root` is gone. `comment` goes
/// to the database's log.
pub async fn change(
    client: &Client,
    root: Uuid,
    operations: impl IntoIterator<Item = Operation>,
    comment: String,
) -> Result<Option<i64>, Error> {
    let mut transaction: Transaction = operations.into_iter().collect();
    let root = || [Condition::uuid(root)];
    transaction.push(Operation::mutate(DATABASE, root(), [Mutation::add("next_cfg", 1)]));
    let select = transaction.push(Operation::select(DATABASE, root(), ["next_cfg"]));
    transaction.push(Operation::Comment(comment));
    let outcome = client.transact(DATABASE, &transaction).await?;
    Ok(outcome.rows(select).first().and_then(|row| integer(row, "next_cfg")))
}

/// Waits until ovs-vswitchd has applied this `next_cfg`. False when it has not done so within `limit`, and the mirror
/// is current. The mirror has to have `cur_cfg`.
pub async fn wait_applied(mirror: &Mirror, config: i64, limit: Duration) -> Result<bool, Error> {
    let applied = mirror.wait_for(|replica| {
        let root = Root::read(replica)?;
        (root.cur_cfg >= config).then_some(())
    });
    match tokio::time::timeout(limit, applied).await {
        Ok(applied) => applied.map(|()| true),
        Err(_) if mirror.state() == MirrorState::Current => Ok(false),
        // The mirror's error gives the reason.
        Err(_) => mirror.current().await.map(|()| true),
    }
}
