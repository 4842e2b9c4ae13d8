//! VRF: a routing instance on devices.

use serde::{Deserialize, Serialize};

use super::{Absence, Described, Facts, Kind, Name, Path, Reference, Selector};

/// A routing instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VrfSpec {
    /// The devices that have it, each once.
    pub devices: Vec<VrfDevice>,
    /// Its name on the devices; absent: the object's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<Name>,
    /// Ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub import_targets: Vec<String>,
    /// Ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub export_targets: Vec<String>,
    /// The labels of the L2Services that may be led in; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<Selector>,
}

/// A device that has a VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VrfDevice {
    /// The FabricDevice.
    pub name: Name,
    /// Absent: the VRF is local to the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_distinguisher: Option<String>,
}

impl Described for VrfSpec {
    const FACTS: Facts = Facts { path: Path::Vrf, absence: Absence::UnlessNamed, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] =
        &[Reference::new("Devices[].Name", Kind::FabricDevice, |spec| {
            spec.devices.iter().map(|device| &device.name).collect()
        })];
}

impl VrfSpec {
    /// Its name on the devices. `object`: the name of the object.
    pub fn device_name<'a>(&'a self, object: &'a str) -> &'a str {
        self.device_name.as_deref().unwrap_or(object)
    }
}
