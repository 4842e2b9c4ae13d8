//! The southbound driver `ovs-fabric`: ports of Open vSwitch bridges as the ports of a fabric.
