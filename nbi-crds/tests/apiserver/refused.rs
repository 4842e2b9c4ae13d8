//! Invalid specs by kind, which the API server must refuse, with the expected error.

/// An invalid spec.
pub struct Refused {
    pub kind: &'static str,
    /// YAML of the spec.
    pub spec: &'static str,
    /// The field that the error must name.
    pub field: &'static str,
    /// The remedy that the error must name.
    pub remedy: &'static str,
}

const fn refused(
    kind: &'static str,
    spec: &'static str,
    field: &'static str,
    remedy: &'static str,
) -> Refused {
    Refused { kind, spec, field, remedy }
}

const URL: &str = "must be an absolute http or https URL with a host and without user info";
const NAME: &str = "must be the name of an object";
const ONE_PEER: &str =
    "must lead to exactly one thing: set Node and Interface, or PhysicalNW, or Device and Port";
const OF_TYPE: &str = "of the subnet's Type";
const TOO_SMALL: &str = "one more with Ipam static";

pub const REFUSED: &[Refused] = &[
    // CallbackURL, the same on every kind
    refused("L2Service", "{SegmentationID: 5, CallbackURL: nowhere}", "spec.CallbackURL", URL),
    refused("L2Service", "{SegmentationID: 5, CallbackURL: /path}", "spec.CallbackURL", URL),
    refused("L2Service", "{SegmentationID: 5, CallbackSecret: {}}", "spec.CallbackSecret.Name", "Required"),
    refused(
        "L2Service",
        "{SegmentationID: 5, CallbackSecret: {Name: A_B}}",
        "spec.CallbackSecret.Name",
        "must be the name of an object",
    ),
    refused("L2Service", "{SegmentationID: 5, CallbackFormat: Xml}", "spec.CallbackFormat", "CloudEvents"),
    refused("L2Service", "{SegmentationID: 5, CallbackURL: 'ftp://a.example/'}", "spec.CallbackURL", URL),
    refused("L2Service", "{SegmentationID: 5, CallbackURL: 'http:///path'}", "spec.CallbackURL", URL),
    refused(
        "L2Service",
        "{SegmentationID: 5, CallbackURL: 'http://u:p@a.example/'}",
        "spec.CallbackURL",
        URL,
    ),
    refused("L2Service", "{SegmentationID: 5, CallbackURL: 'http://@a.example/'}", "spec.CallbackURL", URL),
    refused(
        "L2Service",
        "{SegmentationID: 5, CallbackURL: 'http://a.example\\@b/'}",
        "spec.CallbackURL",
        URL,
    ),
    refused(
        "ConnectionPoint",
        "{SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel]}], CallbackURL: x}",
        "spec.CallbackURL",
        URL,
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: c, VlanType: access, CallbackURL: x}",
        "spec.CallbackURL",
        URL,
    ),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0.0, Mask: 24, CallbackURL: x}",
        "spec.CallbackURL",
        URL,
    ),
    refused(
        "Route",
        "{Prefix: 10.0.0.0, Mask: 24, NextHop: 10.1.0.1, CallbackURL: x}",
        "spec.CallbackURL",
        URL,
    ),
    refused("L2BridgeDomain", "{Vlan: 5, CallbackURL: x}", "spec.CallbackURL", URL),
    refused("NodePool", "{NodeSelector: {}, CallbackURL: x}", "spec.CallbackURL", URL),
    refused("PhysicalNetwork", "{SegmentationIDs: ['5'], CallbackURL: x}", "spec.CallbackURL", URL),
    refused(
        "FabricDevice",
        "{Address: 'leaf1:6640', Driver: ovs-fabric}",
        "spec.Address",
        "for the driver ovs-fabric",
    ),
    refused(
        "FabricDevice",
        "{Address: 'tcp:192.0.2.1:6640', Credentials: {SecretName: s}}",
        "spec.Address",
        "for the driver netconf",
    ),
    refused(
        "FabricDevice",
        "{Address: 'ssl:192.0.2.1:6640', Driver: ovs-fabric}",
        "spec.Credentials",
        "ca.crt, tls.crt and tls.key",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Credentials: {SecretName: s}, AuditInterval: 9}",
        "spec.AuditInterval",
        "greater than or equal to 10",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Credentials: {SecretName: s}, AuditInterval: 604801}",
        "spec.AuditInterval",
        "less than or equal to 604800",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Credentials: {SecretName: s}, AuditInterval: 1m}",
        "spec.AuditInterval",
        "must be of type integer",
    ),
    refused(
        "FabricDevice",
        "{Address: 'tcp:192.0.2.1:6640', Driver: ovs-fabric, AuditInterval: 60}",
        "spec.AuditInterval",
        "tells of every change",
    ),
    refused("FabricDevice", "{Address: 'unix:run/db.sock', Driver: other}", "spec.Address", "or unix:/path"),
    refused("FabricDevice", "{Address: 'tcp:192.0.2.1', Driver: other}", "spec.Address", "or unix:/path"),
    refused(
        "FabricDevice",
        "{Address: 'tcp:[192.0.2]:6640', Driver: other}",
        "spec.Address",
        "or unix:/path",
    ),
    refused(
        "FabricDevice",
        "{Address: 'ssl:a:65536', Driver: other}",
        "spec.Address",
        "must have a port from 1 to 65535",
    ),
    refused(
        "FabricDevice",
        "{Address: 'tcp:[::1]:0', Driver: other}",
        "spec.Address",
        "must have a port from 1 to 65535",
    ),
    refused(
        "FabricDevice",
        "{Address: a, Credentials: {SecretName: s}, CallbackURL: x}",
        "spec.CallbackURL",
        URL,
    ),
    // L2Service
    refused("L2Service", "{}", "spec.SegmentationID", "Required value"),
    refused("L2Service", "{SegmentationID: 0}", "spec.SegmentationID", "greater than or equal to 1"),
    refused("L2Service", "{SegmentationID: 4095}", "spec.SegmentationID", "less than or equal to 4094"),
    refused("L2Service", "{SegmentationID: '5'}", "spec.SegmentationID", "must be of type integer"),
    refused("L2Service", "{SegmentationID: 5, Subnets: [a, b, c]}", "spec.Subnets", "at most 2 items"),
    refused("L2Service", "{SegmentationID: 5, Subnets: [a, a]}", "spec.Subnets[1]", "Duplicate value"),
    refused("L2Service", "{SegmentationID: 5, PhysicalNW: [A_b]}", "spec.PhysicalNW[0]", NAME),
    refused("L2Service", "{SegmentationID: 5, PhysicalNw: [a]}", "spec.PhysicalNw", "unknown field"),
    // L2ServiceAttachment
    refused(
        "L2ServiceAttachment",
        "{L2Services: [], ConnectionPoint: c, VlanType: trunk}",
        "spec.L2Services",
        "at least 1 items",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a, b], ConnectionPoint: c, VlanType: access}",
        "spec.L2Services",
        "must name exactly one L2Service when VlanType is access",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a], VlanType: access}",
        "spec.ConnectionPoint",
        "Required value",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: c, VlanType: hybrid}",
        "spec.VlanType",
        "\"access\", \"trunk\", \"selectivetrunk\"",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: c, VlanType: access, PodInterfaceType: tap}",
        "spec.PodInterfaceType",
        "\"kernel\", \"dpdk\"",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: c, VlanType: access, Implementation: calico}",
        "spec.Implementation",
        "\"host-device\"",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: c, VlanType: access, MTU: 67}",
        "spec.MTU",
        "greater than or equal to 68",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: c, VlanType: access, MTU: 65536}",
        "spec.MTU",
        "less than or equal to 65535",
    ),
    refused(
        "L2ServiceAttachment",
        "{L2Services: ['../a'], ConnectionPoint: c, VlanType: access}",
        "spec.L2Services[0]",
        NAME,
    ),
    // ConnectionPoint
    refused("ConnectionPoint", "{SupportedCnis: []}", "spec.SupportedCnis", "at least 1 items"),
    refused(
        "ConnectionPoint",
        "{SupportedCnis: [{Name: flannel, SupportedInterfaceTypes: [kernel]}]}",
        "spec.SupportedCnis[0].Name",
        "\"ovs\", \"host-device\"",
    ),
    refused(
        "ConnectionPoint",
        "{SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: []}]}",
        "spec.SupportedCnis[0].SupportedInterfaceTypes",
        "at least 1 items",
    ),
    refused(
        "ConnectionPoint",
        "{SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel]}, {Name: ovs, SupportedInterfaceTypes: [dpdk]}]}",
        "spec.SupportedCnis[1]",
        "Duplicate value",
    ),
    refused(
        "ConnectionPoint",
        "{SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: br-data}]}",
        "spec.SupportedCnis[0].Opts",
        "must be the JSON text of an object",
    ),
    refused(
        "ConnectionPoint",
        "{SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel]}], Interfaces: [a-name-too-long-for-linux]}",
        "spec.Interfaces[0]",
        "may not be more than 15",
    ),
    refused(
        "ConnectionPoint",
        "{SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel]}], Interfaces: ['a/b']}",
        "spec.Interfaces[0]",
        "must be the name of a network interface",
    ),
    // Subnet
    refused(
        "Subnet",
        "{Ipam: dhcp, Type: v4, Address: 10.0.0.0, Mask: 24}",
        "spec.Ipam",
        "\"whereabouts\", \"host-local\", \"static\"",
    ),
    refused("Subnet", "{Ipam: static, Type: v5, Address: 10.0.0.0, Mask: 24}", "spec.Type", "\"v4\", \"v6\""),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0, Mask: 24}",
        "spec.Address",
        "must be an IPv4 or IPv6 address",
    ),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0.0/24, Mask: 24}",
        "spec.Address",
        "without prefix length",
    ),
    refused("Subnet", "{Ipam: static, Type: v4, Address: '2001:db8::', Mask: 24}", "spec.Address", OF_TYPE),
    refused("Subnet", "{Ipam: static, Type: v6, Address: 10.0.0.0, Mask: 24}", "spec.Address", OF_TYPE),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0.0, Mask: 33}",
        "spec.Mask",
        "at most 30 when Type is v4",
    ),
    refused("Subnet", "{Ipam: static, Type: v4, Address: 10.0.0.0, Mask: 32}", "spec.Mask", TOO_SMALL),
    refused("Subnet", "{Ipam: whereabouts, Type: v4, Address: 10.0.0.0, Mask: 32}", "spec.Mask", TOO_SMALL),
    refused("Subnet", "{Ipam: host-local, Type: v4, Address: 10.0.0.0, Mask: 31}", "spec.Mask", TOO_SMALL),
    refused(
        "Subnet",
        "{Ipam: whereabouts, Type: v6, Address: '2001:db8::', Mask: 128}",
        "spec.Mask",
        TOO_SMALL,
    ),
    refused("Subnet", "{Ipam: static, Type: v6, Address: '2001:db8::', Mask: 128}", "spec.Mask", TOO_SMALL),
    refused(
        "Subnet",
        "{Ipam: static, Type: v6, Address: '2001:db8::', Mask: 129}",
        "spec.Mask",
        "less than or equal to 128",
    ),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0.0, Mask: 24, AllocationPool: [{Start: 10.0.0.1, End: '2001:db8::1'}]}",
        "spec.AllocationPool",
        OF_TYPE,
    ),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0.0, Mask: 24, AllocationPool: [{Start: 10.0.0.1}]}",
        "spec.AllocationPool[0].End",
        "Required value",
    ),
    refused(
        "Subnet",
        "{Ipam: static, Type: v6, Address: '2001:db8::', Mask: 64, HotPlugPool: [{Start: 10.0.0.1, End: 10.0.0.2}]}",
        "spec.HotPlugPool",
        OF_TYPE,
    ),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0.0, Mask: 24, Dns: {Nameservers: [dns.example.com]}}",
        "spec.Dns.Nameservers[0]",
        "must be an IPv4 or IPv6 address",
    ),
    refused(
        "Subnet",
        "{Ipam: static, Type: v4, Address: 10.0.0.0, Mask: 24, Dns: {Domain: 'a b'}}",
        "spec.Dns.Domain",
        "must be a DNS domain",
    ),
    // Route
    refused(
        "Route",
        "{Prefix: default, Mask: 0, NextHop: 10.1.0.1}",
        "spec.Prefix",
        "must be an IPv4 or IPv6 address",
    ),
    refused(
        "Route",
        "{Prefix: 10.0.0.0, Mask: 33, NextHop: 10.1.0.1}",
        "spec.Mask",
        "at most 32 when Prefix is an IPv4 address",
    ),
    refused(
        "Route",
        "{Prefix: 10.0.0.0, Mask: 24, NextHop: 'fe80::1'}",
        "spec.NextHop",
        "same IP version as Prefix",
    ),
    // L2BridgeDomain
    refused("L2BridgeDomain", "{Vlan: 4095}", "spec.Vlan", "less than or equal to 4094"),
    refused(
        "L2BridgeDomain",
        "{Vlan: 5, ConnectionPoints: ['']}",
        "spec.ConnectionPoints[0]",
        "at least 1 chars",
    ),
    // NodePool
    refused("NodePool", "{}", "spec.NodeSelector", "Required value"),
    refused(
        "NodePool",
        "{NodeSelector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}}",
        "spec.NodeSelector.matchExpressions[0].operator",
        "\"In\", \"NotIn\", \"Exists\", \"DoesNotExist\"",
    ),
    refused(
        "NodePool",
        "{NodeSelector: {matchExpressions: [{key: a, operator: In}]}}",
        "spec.NodeSelector.matchExpressions[0].values",
        "at least one value with In",
    ),
    // PhysicalNetwork
    refused("PhysicalNetwork", "{SegmentationIDs: []}", "spec.SegmentationIDs", "at least 1 items"),
    refused("PhysicalNetwork", "{SegmentationIDs: ['0']}", "spec.SegmentationIDs[0]", "from 1 to 4094"),
    refused("PhysicalNetwork", "{SegmentationIDs: ['4095']}", "spec.SegmentationIDs[0]", "from 1 to 4094"),
    refused("PhysicalNetwork", "{SegmentationIDs: ['20-10']}", "spec.SegmentationIDs[0]", "rising range"),
    refused(
        "PhysicalNetwork",
        "{SegmentationIDs: ['10,20']}",
        "spec.SegmentationIDs[0]",
        "such as \"42\" or \"100-199\"",
    ),
    refused(
        "PhysicalNetwork",
        "{SegmentationIDs: ['1'], Unmanaged: 'yes'}",
        "spec.Unmanaged",
        "must be of type boolean",
    ),
    // FabricDevice
    refused(
        "FabricDevice",
        "{Address: leaf1}",
        "spec.Credentials",
        "name a Secret of the namespace eno-devices",
    ),
    refused(
        "FabricDevice",
        "{Address: 'ssh://leaf1', Credentials: {SecretName: s}}",
        "spec.Address",
        "must be a host name or an address with an optional port",
    ),
    refused(
        "FabricDevice",
        "{Address: '2001:db8::1', Credentials: {SecretName: s}}",
        "spec.Address",
        "[2001:db8::1]:830",
    ),
    refused(
        "FabricDevice",
        "{Address: '[2001:db8::g]:830', Credentials: {SecretName: s}}",
        "spec.Address",
        "[2001:db8::1]:830",
    ),
    refused(
        "FabricDevice",
        "{Address: '[2001:db8::1]:0', Credentials: {SecretName: s}}",
        "spec.Address",
        "must have a port from 1 to 65535",
    ),
    refused(
        "FabricDevice",
        "{Address: 'leaf1:65536', Credentials: {SecretName: s}}",
        "spec.Address",
        "must have a port from 1 to 65535",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: '../x'}",
        "spec.Driver",
        "must be the name of a driver",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Dialect: 'a b'}",
        "spec.Dialect",
        "must be the name of a dialect",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Adopt: '1-10,a'}",
        "spec.Adopt",
        "must be VLAN IDs and rising ranges",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Drift: repair}",
        "spec.Drift",
        "\"Repair\", \"Report\"",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, HostKey: 'SHA256:abc'}",
        "spec.HostKey",
        "must be an OpenSSH public key",
    ),
    refused("FabricDevice", "{Address: leaf1, Driver: x, Ports: [{Name: e1}]}", "spec.Ports[0]", ONE_PEER),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Ports: [{Name: e1, Node: node1, Interface: eth1, PhysicalNW: p}]}",
        "spec.Ports[0]",
        ONE_PEER,
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Ports: [{Name: e1, Node: node1, Device: d}]}",
        "spec.Ports[0]",
        ONE_PEER,
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Ports: [{Name: e1, Node: node1}]}",
        "spec.Ports[0]",
        "must have Node and Interface together",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Ports: [{Name: e1, Port: e2}]}",
        "spec.Ports[0]",
        "must have Device and Port together",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Ports: [{Name: e1, PhysicalNW: p}, {Name: e1, PhysicalNW: q}]}",
        "spec.Ports[1]",
        "Duplicate value",
    ),
    refused(
        "FabricDevice",
        "{Address: leaf1, Driver: x, Ports: [{Name: e1, PhysicalNW: p, Mode: access}]}",
        "spec.Ports[0].Mode",
        "\"trunk\"",
    ),
    // Interfaces of pods
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, linkType: token}]}",
        "networkAttachments[0].linkType",
        "supported values",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: abcdefghijklmn}]}",
        "networkAttachments[0].name",
        "may not be more than 13",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a/b}]}",
        "networkAttachments[0].name",
        "must be the beginning of an interface's name",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a}, {name: a}]}",
        "networkAttachments[1]",
        "Duplicate value",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, master: abcdefghijklmnop}]}",
        "networkAttachments[0].master",
        "may not be more than 15",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, cidr: 10.0.0.0}]}",
        "networkAttachments[0].cidr",
        "must be an address with its prefix length",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, cidr: 10.0.0.0/33}]}",
        "networkAttachments[0].cidr",
        "must be an address with its prefix length",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, hardwareAddr: '01:00:5e:00:00:01'}]}",
        "networkAttachments[0].hardwareAddr",
        "not a multicast address",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, mtu: 67}]}",
        "networkAttachments[0].mtu",
        "greater than or equal to 68",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, linkType: vlan, vlanID: 4095}]}",
        "networkAttachments[0].vlanID",
        "less than or equal to 4094",
    ),
    refused(
        "PodConfig",
        "{vlans: [{parentInterfaceName: eth0, vlanID: 0}]}",
        "vlans[0].vlanID",
        "greater than or equal to 1",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, routes: [{to: nowhere}]}]}",
        "networkAttachments[0].routes[0].to",
        "must be an address with its prefix length",
    ),
    refused(
        "PodConfig",
        "{networkAttachments: [{name: a, linktype: veth}]}",
        "networkAttachments[0].linktype",
        "unknown field",
    ),
    refused("PodNetworkConfig", "{eth0: {mtu: 70000}}", "spec.eth0.mtu", "less than or equal to 65535"),
    refused("PodNetworkConfig", "{CallbackURL: nowhere}", "spec.CallbackURL", URL),
    refused("Bridge", "{name: '', cidr: 10.0.0.0/24}", "spec.name", "at least 1"),
    refused("Bridge", "{cidr: 10.0.0.0/24}", "spec.name", "Required value"),
];
