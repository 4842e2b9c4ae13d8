//! The southbound driver `ovs-fabric`: ports of Open vSwitch bridges as the ports of a fabric.
//!
//! A FabricDevice is one Open vSwitch, reached over OVSDB (RFC 7047) by its [`address`]. Its ports are found
//! by name on any bridge. [`plan`] is pure, [`device`] accesses the database, and [`driver`] keeps one
//! session per device.

pub mod address;
pub mod credentials;
pub mod device;
pub mod driver;
pub mod observe;
pub mod ownership;
pub mod plan;
pub mod record;
pub mod render;
pub mod trunks;
pub mod view;
