//! Queues that the engine and the hosts of drivers share. Pure: they do no IO, and time and random numbers are
//! arguments.

mod fair_queue;

pub use fair_queue::FairQueue;
