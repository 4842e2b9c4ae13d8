//! Tests of the core against a simulated cluster: object lifecycles, and properties over random histories.
//! All of them are one binary, because each test binary links every dependency again.
#![allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]

mod absent_kinds;
mod address_histories;
mod address_pools;
mod addresses;
mod attachment_users;
mod bgp;
mod bgp_histories;
mod closed_ports;
mod cluster_id_clashes;
mod drift;
mod edits;
mod fixtures;
mod histories;
mod hot_plug;
mod initial_port_state;
mod issued_commands;
mod late_reports;
mod miswired;
mod mutants;
mod nats;
mod node_histories;
mod node_networks;
mod object_lifecycle;
mod own_addresses;
mod paths;
mod pods;
mod probes;
mod reachability;
mod removed_ports;
mod restarts;
mod seeded;
mod settled;
mod stalled;
mod sub_interfaces;
mod subnets;
mod transaction_histories;
mod transactions;
mod trunk_isolation;
mod verification;
mod vrf_histories;
mod vrf_refusals;
mod vrfs;
mod world;
