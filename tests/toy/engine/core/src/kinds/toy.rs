//! Toy: a list of switches.

use serde::{Deserialize, Serialize};

use super::{Described, Kind, Name, Reference};

/// A list of switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ToySpec {
    /// The switches.
    pub fabric_devices: Vec<Name>,
}

impl Described for ToySpec {
    const REFERENCES: &'static [Reference<Self>] =
        &[Reference::new("FabricDevices", Kind::FabricDevice, |spec| spec.fabric_devices.iter().collect())];
}
