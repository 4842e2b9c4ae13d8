//! Schemas that several fields share. Everything has an upper bound: the API server refuses a CEL rule whose
//! worst case it can't estimate.

use std::ops::RangeInclusive;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The longest name of a Kubernetes object (a DNS-1123 subdomain).
const NAME_LENGTH: u32 = 253;

/// A CEL rule with the message that a client reads when it fails.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message })
}

/// As [`rule`], reporting the failure at a field below the one that has the rule, such as `.Mask`.
pub(crate) fn rule_at(field: &str, rule: &str, message: &str) -> Value {
    json!({ "rule": rule, "message": message, "fieldPath": field })
}

/// A text of a length that fulfils a rule.
fn text(length: RangeInclusive<u32>, cel: &str, message: &str) -> Schema {
    json_schema!({
        "type": "string",
        "minLength": length.start(),
        "maxLength": length.end(),
        "x-kubernetes-validations": [rule(cel, message)],
    })
}

/// A list of at most `max` items, of this list type of Kubernetes.
fn array(max: u32, items: &Schema, list_type: &str) -> Schema {
    json_schema!({ "type": "array", "maxItems": max, "items": items, "x-kubernetes-list-type": list_type })
}

/// The name of a Kubernetes object.
pub(crate) fn name(_: &mut SchemaGenerator) -> Schema {
    text(
        1..=NAME_LENGTH,
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",
        "must be the name of an object: lower case letters, digits, '-' and '.', with a letter or digit at each end",
    )
}

/// A set of at most `MAX` names of Kubernetes objects.
pub(crate) fn names<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    array(MAX, &name(generator), "set")
}

/// As [`names`], with at least one.
pub(crate) fn some_names<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = names::<MAX>(generator);
    schema.insert("minItems".to_owned(), json!(1));
    schema
}

/// An IPv4 or IPv6 address, without a prefix length or a zone.
pub(crate) fn ip(_: &mut SchemaGenerator) -> Schema {
    text(
        2..=45,
        "isIP(self)",
        "must be an IPv4 or IPv6 address without prefix length, such as 10.10.10.0 or 2001:db8::",
    )
}

/// A list of at most `MAX` addresses, in the order in which they are tried.
pub(crate) fn ips<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": MAX, "items": ip(generator) })
}

/// A network or an address with its prefix length.
pub(crate) fn cidr(_: &mut SchemaGenerator) -> Schema {
    text(
        4..=49,
        "isCIDR(self)",
        "must be an address with its prefix length, such as 192.168.100.0/24 or 2001:db8::/64",
    )
}

/// The network of a bridge on nodes.
pub(crate) fn network(_: &mut SchemaGenerator) -> Schema {
    text(
        4..=49,
        "isCIDR(self) && cidr(self).ip().isGlobalUnicast()",
        "must be a network with its prefix length, such as 192.168.100.0/24 or 2001:db8::/64: not of multicast, link-local or loopback addresses",
    )
}

/// A list of at most `MAX` networks of a bridge on nodes.
pub(crate) fn networks<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    array(MAX, &network(generator), "atomic")
}

/// As [`cidrs`], with at least one.
pub(crate) fn some_cidrs<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = cidrs::<MAX>(generator);
    schema.insert("minItems".to_owned(), json!(1));
    schema
}

/// A list of at most `MAX` networks or addresses with their prefix lengths.
pub(crate) fn cidrs<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    array(MAX, &cidr(generator), "atomic")
}

/// The MAC address of one interface.
pub(crate) fn mac(_: &mut SchemaGenerator) -> Schema {
    text(
        17..=17,
        "self.matches('^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$') && self != '00:00:00:00:00:00'",
        "must be the MAC address of one interface, such as 02:00:00:00:00:01: not a multicast address, not zero",
    )
}

/// The name of a VRF on devices.
pub(crate) fn vrf_name(_: &mut SchemaGenerator) -> Schema {
    text(
        1..=63,
        "self.matches('^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$')",
        "must be the name of a VRF on devices, such as internet: letters, digits, '_', '.' and '-', with a letter or \
         digit at each end",
    )
}

/// A set of at most `MAX` names of VRFs on devices.
pub(crate) fn vrf_names<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    array(MAX, &vrf_name(generator), "set")
}

/// A route distinguisher or a route target of RFC 4364: each of its types has one of these forms.
pub(crate) fn route_distinguisher(_: &mut SchemaGenerator) -> Schema {
    text(
        3..=21,
        "self.matches('^([0-9]{1,10}|[0-9]{1,3}([.][0-9]{1,3}){3}):[0-9]{1,10}$') \
         && (self.contains('.') \
         ? isIP(self.split(':')[0]) && int(self.split(':')[1]) <= 65535 \
         : int(self.split(':')[0]) <= 65535 && int(self.split(':')[1]) <= 4294967295 \
         || int(self.split(':')[0]) <= 4294967295 && int(self.split(':')[1]) <= 65535)",
        "must be <ASN>:<number> or <IPv4 address>:<number>, such as 65000:100, 4200000000:1 or 192.0.2.1:100; the number \
         is at most 65535 after an address or an ASN above 65535",
    )
}

/// A set of at most `MAX` route targets.
pub(crate) fn route_targets<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    array(MAX, &route_distinguisher(generator), "set")
}

/// A set of at most `MAX` communities of RFC 1997.
pub(crate) fn communities<const MAX: u32>(_: &mut SchemaGenerator) -> Schema {
    let community = text(
        3..=11,
        "self.matches('^[0-9]{1,5}:[0-9]{1,5}$') && self.split(':').all(part, int(part) <= 65535)",
        "must be <ASN>:<number> with numbers of at most 65535, such as 65000:100",
    );
    array(MAX, &community, "set")
}

/// Any number that fits into 32 bits.
pub(crate) fn unsigned(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": u32::MAX })
}

/// The name of an interface that gets a PID appended.
pub(crate) fn link_name(_: &mut SchemaGenerator) -> Schema {
    text(
        1..=13,
        "self.matches('^[A-Za-z0-9][A-Za-z0-9_.-]*$')",
        "must be the beginning of an interface's name, such as pc0: at most 13 letters, digits, '_', '.' and '-'",
    )
}

/// Kernel parameters by name.
pub(crate) fn sysctls(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "minLength": 1, "maxLength": 64 },
    })
}

/// A list of at most `MAX` objects, in their order.
pub(crate) fn list<T: schemars::JsonSchema, const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    array(MAX, &T::json_schema(generator), "atomic")
}

/// An object, with its schema in place.
pub(crate) fn plain<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    T::json_schema(generator)
}

/// The recorded settings of a port, in the format of messages.
pub(crate) fn settings(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "type": "string", "maxLength": 4096 },
    })
}

/// The number of entries that lists leave out, by their names.
pub(crate) fn left_out(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "type": "integer", "format": "int64", "minimum": 1 },
        "x-kubernetes-map-type": "atomic",
    })
}

/// A time as RFC 3339.
pub(crate) fn date_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// VLAN IDs and ranges of them in one text. The engine checks that they are ascending and within 1 to 4094.
pub(crate) fn vlan_set(_: &mut SchemaGenerator) -> Schema {
    text(
        1..=10240,
        "self.matches('^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$')",
        "must be VLAN IDs and rising ranges of them from 1 to 4094, such as \"42,100-199\"",
    )
}

/// A list of at most `MAX` objects with a `name`, each name once.
pub(crate) fn map_list<T: schemars::JsonSchema, const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": MAX,
        "items": T::json_schema(generator),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    })
}

/// A VLAN ID of IEEE 802.1Q that may carry traffic.
pub(crate) fn vlan_id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 4094 })
}

/// The URL that gets a POST on every transition.
pub(crate) fn callback_url(_: &mut SchemaGenerator) -> Schema {
    text(
        1..=2048,
        "isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHostname() != '' \
             && !self.matches('^[^/]*//[^/?#]*@')",
        "must be an absolute http or https URL with a host and without user info, such as \
             https://nfvo.example.com/eno",
    )
}

/// The name of a network interface of Linux (`dev_valid_name`, and shorter than IFNAMSIZ).
pub(crate) fn interface_name(_: &mut SchemaGenerator) -> Schema {
    text(
        1..=15,
        "self.matches('^[A-Za-z0-9][A-Za-z0-9_.-]*$')",
        "must be the name of a network interface, such as eth1: at most 15 letters, digits, '_', '.' and '-'",
    )
}

/// A set of at most `MAX` network interfaces.
pub(crate) fn interface_names<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    array(MAX, &interface_name(generator), "set")
}

/// A DNS domain, with or without the final dot.
pub(crate) fn domain(_: &mut SchemaGenerator) -> Schema {
    text(
        1..=254,
        "self.matches('^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\\\\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\\\\.?$')",
        "must be a DNS domain, such as example.com",
    )
}

/// A list of at most `MAX` domains, in the order in which they are searched.
pub(crate) fn domains<const MAX: u32>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": MAX, "items": domain(generator) })
}

/// `metav1.LabelSelector`, with the checks that a built-in type gets.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels that must be there with exactly these values.",
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": { "type": "string", "maxLength": 63 },
            },
            "matchExpressions": {
                "description": "Requirements that must all hold.",
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "The label's key.",
                            "type": "string",
                            "minLength": 1,
                            "maxLength": 317,
                        },
                        "operator": {
                            "description": "How the label's value relates to the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values for In and NotIn; empty for Exists and DoesNotExist.",
                            "type": "array",
                            "maxItems": 256,
                            "items": { "type": "string", "maxLength": 63 },
                            "x-kubernetes-list-type": "atomic",
                        },
                    },
                    "x-kubernetes-validations": [rule_at(
                        ".values",
                        "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "needs at least one value with In and NotIn, and none with Exists and DoesNotExist",
                    )],
                },
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// `metav1.Condition`s by type. Each has one writer, so the API server stores no owner of its fields.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": { "description": "What it is about, such as Ready.", "type": "string", "minLength": 1, "maxLength": 316 },
                "status": { "description": "Whether it holds.", "type": "string", "enum": ["True", "False", "Unknown"] },
                "reason": {
                    "description": "Why, in one CamelCase word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                },
                "message": { "description": "Why, for people.", "type": "string", "maxLength": 32768 },
                "lastTransitionTime": {
                    "description": "When its status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The metadata.generation that it was made for.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}

/// An object whose fields the API server keeps without a schema. It has one writer.
pub(crate) fn free_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
