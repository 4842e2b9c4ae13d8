//! `eno-driver-ovs-fabric`: the southbound driver of Open vSwitch bridges as a daemon.

fn main() {}
