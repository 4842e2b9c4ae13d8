//! Simulated switches that speak NETCONF over SSH, with fault injection.
//!
//! A [`Topology`] defines the switches. A [`Fabric`] runs them with an HTTP control API (see this crate's
//! README.md). Optionally, the switches forward frames ([`DataPlane`]). This crate implements NETCONF from the RFCs
//! and shares no code with a client: a client and its tests can't share a misunderstanding.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use eno_simulator::{Fabric, FabricOptions, Topology};
//! let fabric = Fabric::start(&Topology::leaf_spine(2, 2, 4), FabricOptions::default()).await?;
//! for switch in fabric.info() {
//!     println!("{} speaks NETCONF on {}", switch.name, switch.netconf);
//! }
//! fabric.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod bgp_sessions;
mod control;
mod dataplane;
mod datastores;
mod dialect;
mod fabric;
mod faults;
mod files;
mod mac_table;
mod model;
mod netconf;
mod notifications;
mod run;
mod session;
mod ssh;
mod switch;
mod topology;

pub use dataplane::{
    BridgeStatus, DataPlane, DataPlaneError, DataPlaneOptions, DataPlaneStatus, DataPort, HostStatus,
    PortWire, PortWireError, VrfStatus, Wire,
};
pub use dialect::{
    BfdView, BgpFamilyView, BgpNeighbourView, BgpView, GracefulRestartView, HandEdit, MaximumPrefixes,
    PolicyResult, PolicyRule, PortMode, PortView, PrefixRange, RouteSource, RouteView, RoutedView, View,
    VlanSet, VlanSetError, VlanView, VrfView,
};
pub use fabric::{Fabric, FabricError, FabricOptions, SwitchInfo};
pub use faults::{Fault, LongAnswer, NameChange, OddErrors, RejectEdit, Stage, When};
pub use netconf::error::Tag;
pub use run::{SimulatorArgs, run};
pub use switch::{Boot, HandEditError, NoSuchBackup, Stats, Switch};
pub use topology::{
    Capabilities, ConfirmedCommit, HostKeyKind, Link, LinkEnd, Node, NodeInterface, PhysicalNetwork, Role,
    SwitchSpec, Topology, TopologyError,
};
