//! Networks from a pod through its node, the switches and another node into another pod. The tests need root, for
//! network namespaces and containers.

mod addresses;
mod agent_crashes;
mod bgp;
mod daemon_set;
pub mod gateway;
pub mod hot_plug;
pub mod in_cluster;
mod monitoring;
mod openstack;
mod pod_configs;
mod probe_faults;
mod probes;
mod sandbox_nodes;
mod scheduling;
mod sub_interfaces;
