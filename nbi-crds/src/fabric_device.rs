//! FabricDevice: a switch that a driver manages.

use eno_schemas::{DeviceRole, Drift, PortMode};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::crds::{Described, with_status};
use crate::{Callbacks, Neutron, schema};

/// A switch, how its driver reaches it, and where its ports lead.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "eno.k8s.io",
    version = "v1alpha1",
    kind = "FabricDevice",
    doc = "A FabricDevice is a switch: how its driver reaches it, and where those of its ports lead that the engine may configure.",
    status = "crate::Status",
    derive = "PartialEq",
    shortname = "fd",
    printcolumn(name = "Driver", type_ = "string", json_path = ".spec.Driver"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.Address"),
    printcolumn(name = "Dialect", type_ = "string", json_path = ".status.dialect"),
    printcolumn(
        name = "Reachable",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Reachable\")].status"
    ),
    printcolumn(name = "Pending", type_ = "integer", json_path = ".status.pendingChanges"),
    printcolumn(name = "Drift", type_ = "string", json_path = ".spec.Drift", priority = 1),
    printcolumn(name = "Rollback", type_ = "string", json_path = ".status.rollback", priority = 1),
    printcolumn(name = "Model", type_ = "string", json_path = ".status.model", priority = 1)
)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule_at(
        ".Credentials",
        "self.Driver != 'netconf' || has(self.Credentials)",
        "is needed by the netconf driver: name a Secret of the namespace eno-devices in Credentials.SecretName",
    ),
    schema::rule_at(
        ".Credentials",
        "self.Driver != 'ovs-fabric' || !self.Address.startsWith('ssl:') || has(self.Credentials)",
        "is needed for ssl: name a Secret with ca.crt, tls.crt and tls.key in Credentials.SecretName",
    ),
    schema::rule_at(
        ".AuditInterval",
        "self.Driver != 'ovs-fabric' || !has(self.AuditInterval)",
        "is not for the driver ovs-fabric, which Open vSwitch tells of every change: leave it out",
    ),
    schema::rule_at(
        ".Credentials",
        "self.Driver != 'neutron' || has(self.Credentials)",
        "is needed by the neutron driver: name a Secret of the namespace eno-devices in Credentials.SecretName",
    ),
    schema::rule_at(
        ".Address",
        "self.Driver != 'neutron' || self.Address.matches('^https?://[^ /?#@]+(/[^ ?#]*)?$') && isURL(self.Address)",
        "must be the URL of Keystone, such as https://keystone.example.com:5000/v3, for the driver neutron",
    ),
    schema::rule_at(
        ".Neutron",
        "has(self.Neutron) == (self.Driver == 'neutron')",
        "is needed by the driver neutron and is for no other: set Neutron.PhysicalNetwork, or Neutron.NetworkType to \
         Tenant",
    ),
    schema::rule_at(
        ".Ports",
        "self.Driver != 'neutron' || !has(self.Ports) || self.Ports.all(port, !has(port.Lag) && !has(port.Mode))",
        "must have neither Lag nor Mode with the driver neutron",
    ),
    schema::rule_at(
        ".Ports",
        "!has(self.Neutron) || !has(self.Ports) || self.Ports.all(port, has(port.Node) \
         != (has(self.Neutron.PhysicalNetwork) && port.Name == self.Neutron.PhysicalNetwork))",
        "must lead to nodes with the driver neutron, except the port named as Neutron.PhysicalNetwork, which leads to \
         a PhysicalNW or a Device",
    ),
    // Other drivers check their addresses themselves.
    schema::rule_at(
        ".Address",
        "!(self.Driver in ['netconf', 'ovs-fabric']) \
         || self.Address.matches('^unix:/[ -~]{0,106}$') \
         || self.Address.matches('^(([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\\\\[[0-9A-Fa-f:.]+\\\\])(:[0-9]{1,5})?\
         |(tcp|ssl):([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\\\\[[0-9A-Fa-f:.]+\\\\]):[0-9]{1,5})$') \
         && (!self.Address.contains('[') \
         || isIP(self.Address.substring(self.Address.indexOf('[') + 1, self.Address.indexOf(']'))))",
        "must be a host name or an address with an optional port, such as leaf1.example.com, 192.0.2.1:830 or \
         [2001:db8::1]:830, or unix:/path, tcp:host:port or ssl:host:port",
    ),
    schema::rule_at(
        ".Address",
        "!(self.Driver in ['netconf', 'ovs-fabric']) || self.Address.startsWith('unix:/') \
         || !self.Address.matches('^((tcp|ssl):)?[^\\\\[:]*:[0-9]{1,5}$|\\\\]:[0-9]{1,5}$') \
         || int(self.Address.substring(self.Address.lastIndexOf(':') + 1)) >= 1 \
         && int(self.Address.substring(self.Address.lastIndexOf(':') + 1)) <= 65535",
        "must have a port from 1 to 65535",
    ),
    schema::rule_at(
        ".Address",
        "self.Driver != 'netconf' || !self.Address.matches('^(unix:/|(tcp|ssl):.+:[0-9]+$)')",
        "must be a host name or an address with an optional port, such as 192.0.2.1:830, for the driver netconf",
    ),
    schema::rule_at(
        ".Address",
        "self.Driver != 'ovs-fabric' || self.Address.matches('^(unix:/|(tcp|ssl):.+:[0-9]+$)')",
        "must be unix:/path, tcp:host:port or ssl:host:port, such as tcp:192.0.2.1:6640, for the driver ovs-fabric",
    ),
]))]
pub struct FabricDeviceSpec {
    /// The driver that manages the device.
    #[serde(default = "netconf")]
    #[schemars(schema_with = "driver")]
    pub driver: String,
    /// Where the driver reaches the device. For netconf a host name or an address, and optionally a port, such as
    /// leaf1.example.com, 192.0.2.1:830 or [2001:db8::1]:830; the default port is 830. For ovs-fabric unix:/path,
    /// tcp:host:port or ssl:host:port, such as tcp:192.0.2.1:6640. For neutron the URL of Keystone, such as
    /// https://keystone.example.com:5000/v3. For another driver what that driver takes, such as a path or a URL.
    #[schemars(schema_with = "address")]
    pub address: String,
    /// The configuration model to speak, such as openconfig; absent lets the driver choose by what the device offers.
    #[serde(default)]
    #[schemars(schema_with = "dialect")]
    pub dialect: Option<String>,
    /// How the driver logs in.
    pub credentials: Option<Credentials>,
    /// The device's SSH host key as a line of OpenSSH's known_hosts or .pub format without host names. Without it the
    /// device is refused, and the message shows the fingerprint of the key that the device offers.
    #[serde(default)]
    #[schemars(schema_with = "host_key")]
    pub host_key: Option<String>,
    /// The reaction when somebody else changes the operator's VLANs on the device.
    #[serde(default, with = "DriftSpelling")]
    pub drift: Drift,
    /// Seconds after which the device is read again though nothing was heard of it, to find what was changed by another
    /// hand; a quarter more or less, so that not all devices are read at once. Absent: as the driver is told by its flag
    /// --audit-interval, 600 unless it says otherwise. status.auditInterval shows what holds.
    #[schemars(range(min = 10, max = 604_800))]
    pub audit_interval: Option<u32>,
    /// VLANs that exist on the device under names of others and are taken over once they are wanted: they get the
    /// engine's name, and go when nobody wants them any more. IDs and ranges of them, such as "42,100-199". Without this
    /// a VLAN of others is an error.
    #[serde(default)]
    #[schemars(schema_with = "schema::vlan_set")]
    pub adopt: Option<String>,
    /// What the device does with VLANs. On a Router a VLAN is a tagged sub-interface of the one port that leads to the
    /// VLAN's fabric, and no VLAN is led through it.
    #[serde(default, with = "RoleSpelling", skip_serializing_if = "DeviceRole::is_switch")]
    pub role: DeviceRole,
    /// VRFs that exist on the device with another RouteDistinguisher or other targets, by their names there, and are
    /// taken over once they are wanted: they get ours, and go when nobody wants them any more. Without this a VRF of
    /// others is used as it is, and a difference is an error.
    #[serde(default, rename = "AdoptVRFs", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::vrf_names::<256>")]
    pub adopt_vrfs: Vec<String>,
    /// How the driver neutron makes networks and ports in OpenStack.
    pub neutron: Option<Neutron>,
    /// The ports that the engine may configure, and where each leads. No other port is touched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 2048),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["Name"])
    )]
    pub ports: Vec<FabricPort>,
    /// Where its transitions are posted.
    #[serde(flatten)]
    pub callbacks: Callbacks,
}

impl Described for FabricDevice {
    fn definition() -> CustomResourceDefinition {
        with_status::<Self>(&[
            "readyInputs",
            "clusterID",
            "dialect",
            "capabilities",
            "hostKeyFingerprint",
            "model",
            "rollback",
            "auditInterval",
            "changeNotifications",
            "lastTransaction",
            "closedPorts",
            "leavingPorts",
            "portsBefore",
            "pendingChanges",
            "leftOut",
        ])
    }
}

fn netconf() -> String {
    "netconf".to_owned()
}

/// How a driver logs in to a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct Credentials {
    /// A Secret in the namespace eno-devices. For netconf with username and either password or ssh-privatekey. For
    /// ovs-fabric with ca.crt, tls.crt and tls.key. For neutron with the keys of an application credential or a user.
    #[schemars(schema_with = "schema::name")]
    pub secret_name: String,
}

/// The spelling of [`Drift`] in a FabricDevice.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Drift")]
enum DriftSpelling {
    /// Set it again.
    Repair,
    /// Leave the drift and report it in the status.
    Report,
}

/// The spelling of [`DeviceRole`] in a FabricDevice.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(remote = "DeviceRole")]
enum RoleSpelling {
    /// It switches VLANs; a VLAN is led into a VRF by an interface beside it (IRB).
    Switch,
    /// It routes VLANs and switches none.
    Router,
}

/// A port that the engine may configure. It leads to exactly one thing: a NIC of a node, a PhysicalNetwork, or a port
/// of another FabricDevice.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
#[schemars(extend("x-kubernetes-validations" = [
    schema::rule(
        "[has(self.Node) || has(self.Interface), has(self.PhysicalNW), has(self.Device) || has(self.Port)]\
         .filter(leads, leads).size() == 1",
        "must lead to exactly one thing: set Node and Interface, or PhysicalNW, or Device and Port",
    ),
    schema::rule("has(self.Node) == has(self.Interface)", "must have Node and Interface together"),
    schema::rule("has(self.Device) == has(self.Port)", "must have Device and Port together"),
]))]
pub struct FabricPort {
    /// The port's name on this device, such as ethernet-1/1. For neutron the name or id of a trunk or of its parent
    /// port, or Neutron.PhysicalNetwork.
    #[schemars(schema_with = "port_name")]
    pub name: String,
    /// Set to trunk to let the engine turn a port in access mode into a trunk; otherwise such a port is an error.
    #[serde(default)]
    #[schemars(schema_with = "port_mode")]
    pub mode: Option<PortMode>,
    /// The link aggregation group on this device that the port is a member of; VLANs are set on the group.
    #[serde(default)]
    #[schemars(schema_with = "port_name")]
    pub lag: Option<String>,
    /// The node at the other end.
    #[serde(default)]
    #[schemars(schema_with = "schema::name")]
    pub node: Option<String>,
    /// The NIC of the node at the other end.
    #[serde(default)]
    #[schemars(schema_with = "schema::interface_name")]
    pub interface: Option<String>,
    /// The PhysicalNetwork at the other end.
    #[serde(default, rename = "PhysicalNW")]
    #[schemars(schema_with = "schema::name")]
    pub physical_nw: Option<String>,
    /// The FabricDevice at the other end.
    #[serde(default)]
    #[schemars(schema_with = "schema::name")]
    pub device: Option<String>,
    /// The port of the FabricDevice at the other end.
    #[serde(default)]
    #[schemars(schema_with = "port_name")]
    pub port: Option<String>,
}

/// Where a port leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortPeer<'a> {
    /// To a NIC of a node.
    Node {
        /// The node's name.
        node: &'a str,
        /// The NIC's name on the node.
        interface: &'a str,
    },
    /// To a PhysicalNetwork of this name.
    PhysicalNetwork(&'a str),
    /// To a port of another FabricDevice.
    Device {
        /// The FabricDevice's name.
        device: &'a str,
        /// The port's name on that device.
        port: &'a str,
    },
}

/// A port leads to nothing or to more than one thing, which the API server refuses. Trying again does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "port {port} must lead to exactly one thing: set Node and Interface, or PhysicalNW, or Device and Port"
)]
pub struct PortPeerError {
    /// The port's name.
    pub port: String,
}

impl FabricPort {
    /// Where the port leads.
    pub fn peer(&self) -> Result<PortPeer<'_>, PortPeerError> {
        match (&self.node, &self.interface, &self.physical_nw, &self.device, &self.port) {
            (Some(node), Some(interface), None, None, None) => Ok(PortPeer::Node { node, interface }),
            (None, None, Some(network), None, None) => Ok(PortPeer::PhysicalNetwork(network)),
            (None, None, None, Some(device), Some(port)) => Ok(PortPeer::Device { device, port }),
            _ => Err(PortPeerError { port: self.name.clone() }),
        }
    }
}

fn driver(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "x-kubernetes-validations": [schema::rule(
            "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "must be the name of a driver, such as netconf: lower case letters, digits and '-'",
        )],
    })
}

fn dialect(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "x-kubernetes-validations": [schema::rule(
            "self.matches('^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$')",
            "must be the name of a dialect of the driver, such as openconfig: lower case letters, digits, '.', '_' and '-'",
        )],
    })
}

fn address(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 266 })
}

/// The one mode that a spec can ask for.
fn port_mode(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["trunk"] })
}

fn host_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 8192,
        "x-kubernetes-validations": [schema::rule(
            "self.matches('^[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}( [ -~]*)?$')",
            "must be an OpenSSH public key, such as 'ssh-ed25519 AAAA…': the key type and the key in base64, as \
             ssh-keyscan prints after the host",
        )],
    })
}

fn port_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "x-kubernetes-validations": [schema::rule(
            "self.matches('^[!-~]([ -~]*[!-~])?$')",
            "must be the name of a port as the device spells it, such as ethernet-1/1: printable ASCII, no space at the ends",
        )],
    })
}
