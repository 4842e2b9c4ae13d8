//! What the engine writes for nodes and pods. Only the latest value of each object counts.

#[cfg(test)]
mod cluster_tests;
pub mod node_labels;
pub mod pod_networks;
pub mod reconcile_queue;
pub mod samples;
