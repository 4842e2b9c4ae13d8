//! A client of OVSDB, the database protocol of Open vSwitch (RFC 7047), on tokio.
//!
//! - [`Client`]: many requests in flight on one connection (unix socket, TCP, TLS), which is made again when it
//!   is lost. Futures may be dropped at any time.
//! - [`Transaction`] and [`Operation`]: all operations, with typed [`Value`]s both ways; an [`Error`] names the
//!   operation that failed, says whether it may have happened and whether trying again helps.
//! - [`Mirror`]: a copy of selected tables that follows every change (`monitor_cond_since`) and can be waited on,
//!   without polling.
//! - [`open_vswitch`]: changes of a switch's configuration, until ovs-vswitchd has applied them.
//!
//! ```no_run
//! use eno_ovsdb::{Client, Condition, MonitorRequest, Mutation, Operation, Options, Transaction};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new("unix:/run/openvswitch/db.sock".parse()?, Options::default());
//! let mirror =
//!     client.mirror("Open_vSwitch", MonitorRequest::new().table("Open_vSwitch", ["cur_cfg", "next_cfg"]));
//!
//! let mut transaction = Transaction::new();
//! transaction.push(Operation::mutate(
//!     "Port",
//!     [Condition::equal("name", "eth1")],
//!     [Mutation::insert("trunks", eno_ovsdb::Value::set([10, 20]))],
//! ));
//! transaction.push(Operation::mutate("Open_vSwitch", [], [Mutation::add("next_cfg", 1)]));
//! let config = transaction.push(Operation::select("Open_vSwitch", [], ["next_cfg"]));
//! let outcome = client.transact("Open_vSwitch", &transaction).await?;
//!
//! // Until the switch has it.
//! let wanted = outcome.rows(config)[0]["next_cfg"].as_integer();
//! mirror
//!     .wait_for(|replica| {
//!         let (_, row) = replica.table("Open_vSwitch").next()?;
//!         (row["cur_cfg"].as_integer() >= wanted).then_some(())
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod client;
pub mod column;
mod connection;
mod endpoint;
mod error;
mod framing;
mod memory;
mod mirror;
pub mod open_vswitch;
mod operation;
mod options;
mod outcome;
mod ranges;
mod replica;
mod schema;
mod transaction;
mod value;

pub use client::Client;
pub use endpoint::{BadEndpoint, Endpoint, TlsError, tls_config};
pub use error::{ConnectionError, Error};
pub use mirror::{Changes, Mirror, MirrorState};
pub use operation::{Condition, Function, Mutation, Operation, Until, row};
pub use options::Options;
pub use outcome::{Cause, Failed, OperationResult, Outcome, Refusal};
pub use ranges::{read_ranges, write_ranges};
pub use replica::{MonitorRequest, Replica};
pub use schema::{AtomType, BaseType, ColumnSchema, ColumnType, DatabaseSchema, TableSchema};
pub use transaction::Transaction;
pub use uuid::Uuid;
pub use value::{Atom, Malformed, NamedUuid, Row, Value};
