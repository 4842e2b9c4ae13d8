//! The core in worlds that the tests make: lives of objects, and properties over random histories.
//! One binary, since each is linked with all that it uses.

mod clashes;
mod closed_trunks;
mod drift;
mod histories;
mod hosts;
mod hot_plug;
mod late_reports;
mod leaving_ports;
mod node_histories;
mod pods;
mod ports_before;
mod restarts;
mod scenarios;
mod seeded;
mod stalled;
mod subnets;
mod transaction_histories;
mod transactions;
mod trunks;
mod users;
mod ways;
mod world;
