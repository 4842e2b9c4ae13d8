//! Toy: a list of switches.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crds::{Described, with_status};
use crate::{Callbacks, schema};

/// A list of switches.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "Toy",
    doc = "A Toy names switches.",
    status = "crate::Status",
    derive = "PartialEq"
)]
#[serde(rename_all = "PascalCase")]
pub struct ToySpec {
    /// The switches.
    #[schemars(schema_with = "schema::names::<8>")]
    pub fabric_devices: Vec<String>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for Toy {
    const IS_OF_NFVOS: bool = true;

    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&[])
    }
}
