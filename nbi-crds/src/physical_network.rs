//! PhysicalNetwork: a network outside the fabric.

use std::{ops::RangeInclusive, str::FromStr};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// A network outside the fabric, such as the data centre's gateway, that L2Services can be led out to.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "PhysicalNetwork",
    doc = "A PhysicalNetwork is a network outside the fabric, such as the data centre's gateway, that L2Services can be led out to.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "pnw",
    printcolumn(name = "VLANs", type_ = "string", json_path = ".spec.SegmentationIDs"),
    printcolumn(name = "SwitchPorts", type_ = "string", json_path = ".status.switchPorts")
)]
#[serde(rename_all = "PascalCase")]
pub struct PhysicalNetworkSpec {
    /// A description for people.
    #[schemars(length(max = 1024))]
    pub description: Option<String>,
    /// The VLAN IDs that may be used on it, each entry one ID or a range such as "100-199".
    #[serde(rename = "SegmentationIDs")]
    #[schemars(schema_with = "segmentation_ranges")]
    pub segmentation_ids: Vec<String>,
    /// The namespaces whose attachments may use it; absent means all.
    #[serde(default)]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespaces: Option<LabelSelector>,
    /// Somebody else wires it: L2Services that name it are ready though no port of a FabricDevice leads there. Without
    /// this they are pending until one does and links join it with the ConnectionPoints that use them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmanaged: bool,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for PhysicalNetwork {
    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&["switchPorts", "leftOut"])
    }
}

fn segmentation_ranges(_: &mut SchemaGenerator) -> Schema {
    let range = json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 9,
        "x-kubernetes-validations": [schema::rule(
            "self.matches('^[0-9]{1,4}(-[0-9]{1,4})?$') \
             && self.split('-').all(n, int(n) >= 1 && int(n) <= 4094) \
             && int(self.split('-')[0]) <= int(self.split('-')[size(self.split('-')) - 1])",
            "must be a VLAN ID from 1 to 4094 or a rising range of them, as a string such as \"42\" or \"100-199\"",
        )],
    });
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 256,
        "items": range,
        "x-kubernetes-list-type": "set",
    })
}

/// One entry of [`PhysicalNetworkSpec::segmentation_ids`]: a VLAN ID or a range, within 1 to 4094.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentationRange(RangeInclusive<u16>);

impl SegmentationRange {
    /// Whether the range holds the ID.
    pub fn contains(&self, id: u16) -> bool {
        self.0.contains(&id)
    }
}

impl From<SegmentationRange> for RangeInclusive<u16> {
    fn from(range: SegmentationRange) -> Self {
        range.0
    }
}

/// The text is not a VLAN ID or a rising range of them. Trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a VLAN ID from 1 to 4094 nor a rising range of them such as \"100-199\"")]
pub struct SegmentationRangeError(String);

impl FromStr for SegmentationRange {
    type Err = SegmentationRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten().filter(|id| (1..=4094).contains(id))
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (id(first), id(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self(first..=last)),
            _ => Err(SegmentationRangeError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_ranges_parse_as_the_schema_allows() {
        let read = |text: &str| text.parse::<SegmentationRange>().ok().map(RangeInclusive::from);
        assert_eq!(read("42"), Some(42..=42));
        assert_eq!(read("1-4094"), Some(1..=4094));
        for bad in ["", "0", "4095", "20-10", "1-", "-1", "+1", "1-2-3", " 1", "a"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
