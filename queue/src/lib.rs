//! Queues and delays that the engine and the hosts of drivers share. Pure: they do no IO, and time and random numbers
//! are arguments.
//!
//! A key is in a queue at most once. [`FairQueue`] serves namespaces in turn, [`DelayQueue`] knows when each key is
//! due, and [`WorkQueue`] is one behind the other. A caller limits its concurrent work by taking keys only while it has
//! capacity.

mod backoff;
mod delay_queue;
mod fair_queue;
mod work_queue;

pub use backoff::Backoff;
pub use delay_queue::DelayQueue;
pub use fair_queue::FairQueue;
pub use work_queue::WorkQueue;
