//! How the driver `neutron` makes networks and ports in OpenStack.

use eno_schemas::{AddressPair, NetworkType, NeutronSettings};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::schema;

/// How networks and ports of OpenStack are made for VLANs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule_at(
        ".PhysicalNetwork",
        "has(self.PhysicalNetwork) != (self.NetworkType == 'Tenant')",
        "is needed unless NetworkType is Tenant, and is not for NetworkType Tenant: name Neutron's physical network \
         with the VLANs, as provider:physical_network of a network shows it",
    ),
    schema::rule_at(
        ".AllowedAddressPairs",
        "!has(self.AllowedAddressPairs) || self.PortSecurity == 'Enabled'",
        "is for PortSecurity Enabled: without port security, ports accept all addresses",
    ),
]))]
pub struct Neutron {
    /// Neutron's name of the physical network with the VLANs, such as datacentre. The port of this name in Ports is
    /// the physical network itself, and leads to a PhysicalNW or to a switch; all other ports are trunks.
    #[serde(default)]
    #[schemars(schema_with = "physical_network")]
    pub physical_network: Option<String>,
    /// What a network is on the wire.
    #[serde(default, with = "NetworkTypeSpelling")]
    pub network_type: NetworkType,
    /// Whether Neutron filters what pods send by its addresses.
    #[serde(default)]
    pub port_security: PortSecurity,
    /// Further addresses that ports with port security accept, beyond those of the trunk's parent port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub allowed_address_pairs: Vec<AllowedAddressPair>,
    /// The MTU of networks in bytes, at most that of the network of each trunk's parent port. Absent: Neutron's choice.
    #[serde(rename = "MTU")]
    #[schemars(range(min = 68, max = 65535))]
    pub mtu: Option<u32>,
    /// The ids of further projects whose networks with the tag eno-vlan-<ID> are used. Those of the credential's own
    /// project always are. Any member of a project can tag its networks and share them, so name only trusted ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "projects")]
    pub trusted_projects: Vec<String>,
}

/// The spelling of [`NetworkType`] in a FabricDevice.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "NetworkType")]
enum NetworkTypeSpelling {
    /// The VLAN of the same ID on the physical network. Needs the right to set provider attributes, or a network that
    /// somebody with that right made for the VLAN, with the tag eno-vlan-<ID>.
    Provider,
    /// What the cloud gives to a project, often a tunnel. It ends in the cloud.
    Tenant,
}

/// Whether Neutron filters what ports send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PortSecurity {
    /// Pods may use any MAC and IP address, as bridged pods need it.
    #[default]
    Disabled,
    /// Ports accept the MAC address of the trunk's parent port and AllowedAddressPairs; security groups hold. After a
    /// change to it, ports are made anew.
    Enabled,
}

/// Addresses that a port with port security accepts.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AllowedAddressPair {
    /// A network with its prefix length, such as 10.10.10.0/24.
    #[serde(rename = "IP")]
    #[schemars(schema_with = "schema::cidr")]
    pub ip: String,
    /// A MAC address; absent: that of the trunk's parent port.
    #[serde(default, rename = "MAC")]
    #[schemars(schema_with = "schema::mac")]
    pub mac: Option<String>,
}

impl From<Neutron> for NeutronSettings {
    fn from(source: Neutron) -> Self {
        let pair = |pair: AllowedAddressPair| AddressPair { ip: pair.ip, mac: pair.mac };
        Self {
            physical_network: source.physical_network,
            network_type: source.network_type,
            port_security: source.port_security == PortSecurity::Enabled,
            allowed_address_pairs: source.allowed_address_pairs.into_iter().map(pair).collect(),
            mtu: source.mtu,
            trusted_projects: source.trusted_projects,
        }
    }
}

fn projects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": 64,
            "x-kubernetes-validations": [schema::rule(
                "self.matches('^[0-9a-f-]+$')",
                "must be the id of a project, as openstack project show prints it",
            )],
        },
        "x-kubernetes-list-type": "set",
    })
}

fn physical_network(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "x-kubernetes-validations": [schema::rule(
            "self.matches('^[!-~]([ -~]*[!-~])?$')",
            "must be the name of a physical network as Neutron spells it, such as datacentre: printable ASCII, no \
             space at the ends",
        )],
    })
}
