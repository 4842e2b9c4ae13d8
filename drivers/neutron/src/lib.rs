//! The southbound driver `neutron`: trunk ports of OpenStack as the ports of a fabric.
//!
//! A FabricDevice is one project in one region. Its ports are trunks, which are the NICs of VMs, and the physical network
//! behind them. [`mark`], [`keystone`], [`plan`], [`request`] and [`observe`] are pure. [`http`] talks to Keystone and
//! Neutron, [`read`] reads, [`mod@reconcile`] makes the requests of plans, and [`driver`] keeps one login per device.

mod drift;
pub mod driver;
pub mod error;
pub mod http;
pub mod keystone;
pub mod mark;
pub mod observe;
pub mod plan;
pub mod read;
pub mod reconcile;
mod remedy;
pub mod request;
mod text;
pub mod view;
