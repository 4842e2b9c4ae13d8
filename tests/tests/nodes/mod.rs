//! On two real nodes: networks that reach from a pod through its node, the switches and another node into another pod.
//! They need root, for network namespaces and containers.

mod configs;
mod crashes;
mod daemon_set;
mod hot_plug;
mod marks;
mod sandbox;
