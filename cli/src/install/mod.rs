//! Installs the operator on a cluster, upgrades it, exchanges its keys and certificates, and takes it away.

pub mod chart;
mod claims;
pub mod cluster;
pub mod context;
pub mod installer;
pub mod keys;
pub mod render;
pub mod requirements;
pub mod rollout;
pub mod rotation;
pub mod rotator;
pub mod secrets;
pub mod uninstall;
pub mod values;

pub use installer::{InstallError, Installed, Plan, install, plan};
pub use values::Values;

/// The field manager of what `eno install` applies.
pub const MANAGER: &str = "eno-install";
