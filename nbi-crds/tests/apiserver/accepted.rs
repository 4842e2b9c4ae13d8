//! Valid specs by kind, which the API server must accept. The first of each kind have the shape of the
//! reference implementation's manifests.

pub const ACCEPTED: &[(&str, &str)] = &[
    (
        "ConnectionPoint",
        "{Description: A bridge, SupportedCnis: [{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{\n  \"BridgeName\": \"br-data\"\n  }'}]}",
    ),
    (
        "ConnectionPoint",
        "{SupportedCnis: [{Name: host-device, SupportedInterfaceTypes: [kernel, dpdk], Opts: ''}, {Name: ovs, SupportedInterfaceTypes: [dpdk]}], NodePool: p, Interfaces: [eth1, bond0.5]}",
    ),
    ("L2Service", "{SegmentationID: 20, Subnets: [ipv6-subnet-twenty, ipv4-subnet-twenty]}"),
    ("L2Service", "{SegmentationID: 1, CallbackURL: 'https://[2001:db8::1]:8443/eno?who=a@b'}"),
    ("L2Service", "{SegmentationID: 4094, PhysicalNW: [dc-gw], CallbackURL: 'http://nfvo'}"),
    (
        "L2Service",
        "{SegmentationID: 3, CallbackURL: 'http://nfvo', CallbackSecret: {Name: eno-callback}, CallbackFormat: CloudEvents}",
    ),
    (
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: c, VlanType: access, CallbackURL: 'http://nfvo', CallbackSecret: {Name: s}, CallbackFormat: Object}",
    ),
    ("PodConfig", "{CallbackURL: 'http://nfvo', CallbackSecret: {Name: s}, CallbackFormat: CloudEvents}"),
    (
        "L2ServiceAttachment",
        "{L2Services: [l2service-thirteen], ConnectionPoint: cp-br-data, VlanType: access}",
    ),
    (
        "L2ServiceAttachment",
        "{L2Services: [a, b, c], ConnectionPoint: cp, VlanType: selectivetrunk, Implementation: ovs, PodInterfaceType: dpdk, MTU: 9000}",
    ),
    (
        "L2ServiceAttachment",
        "{L2Services: [a], ConnectionPoint: cp, VlanType: trunk, Implementation: host-device}",
    ),
    (
        "Subnet",
        "{Address: 10.10.10.0, Mask: 24, AllocationPool: [{Start: 10.10.10.10, End: 10.10.10.255}], Ipam: whereabouts, Routes: [route-ten], Dns: {Nameservers: [8.8.8.8], Domain: example.com, Search: [example.com]}, Type: v4}",
    ),
    (
        "Subnet",
        "{Address: '2001::', Mask: 64, AllocationPool: [{Start: '2001::10', End: '2001::100'}], HotPlugPool: [{Start: '2001::200', End: '2001::2ff'}], Ipam: host-local, Type: v6, Dns: {Nameservers: [8.8.8.8]}}",
    ),
    ("Subnet", "{Address: 10.0.0.0, Mask: 30, Ipam: whereabouts, Type: v4}"),
    (
        "Subnet",
        "{Address: 10.0.0.0, Mask: 31, Ipam: static, Type: v4, AllocationPool: [{Start: 10.0.0.1, End: 10.0.0.1}]}",
    ),
    ("Subnet", "{Address: '2001:db8::', Mask: 126, Ipam: host-local, Type: v6}"),
    ("Route", "{Prefix: 30.30.10.0, Mask: 24, NextHop: 10.10.10.1}"),
    ("Route", "{Prefix: '::', Mask: 0, NextHop: 'fe80::1'}"),
    ("L2BridgeDomain", "{Vlan: 5, ConnectionPoints: []}"),
    ("L2BridgeDomain", "{Vlan: 5, ConnectionPoints: [cp-br-data, cp-br-trunk]}"),
    ("NodePool", "{NodeSelector: {}}"),
    (
        "NodePool",
        "{NodeSelector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: NotIn, values: [d]}, {key: e, operator: Exists}]}}",
    ),
    ("PhysicalNetwork", "{SegmentationIDs: ['42', 100-199, 1-4094]}"),
    ("PhysicalNetwork", "{SegmentationIDs: ['42'], Namespaces: {matchLabels: {tenant: a}}, Description: x}"),
    ("PhysicalNetwork", "{SegmentationIDs: ['42'], Unmanaged: true}"),
    ("FabricDevice", "{Address: leaf1, Credentials: {SecretName: s}, Adopt: '42,100-199'}"),
    ("FabricDevice", "{Address: leaf1, Credentials: {SecretName: s}, AuditInterval: 10}"),
    (
        "FabricDevice",
        "{Address: '192.0.2.1:65535', AuditInterval: 604800, Driver: other, Dialect: srlinux-24.10}",
    ),
    ("FabricDevice", "{Address: 'unix:/run/openvswitch/db.sock', Driver: ovs-fabric}"),
    ("FabricDevice", "{Address: 'tcp:192.0.2.1:6640', Driver: ovs-fabric}"),
    (
        "FabricDevice",
        "{Address: 'ssl:[2001:db8::1]:65535', Driver: ovs-fabric, Credentials: {SecretName: s}}",
    ),
    ("FabricDevice", "{Address: 'tcp:830', Credentials: {SecretName: s}}"),
    (
        "FabricDevice",
        "{Address: '[2001:db8::1]:830', Driver: other, HostKey: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJMXq/W7J9mWGj3go/22VwcynD1DYjx5KTAJBhpQg0fH leaf 1', Drift: Report, Ports: [{Name: ethernet-1/1, Node: node1, Interface: eth1, Mode: trunk}, {Name: ethernet-1/2, PhysicalNW: p, Lag: lag1}, {Name: ethernet-1/3, Device: d, Port: xe-0/0/1}]}",
    ),
    // The shape of the samples of the operators for running pods.
    (
        "PodConfig",
        "{sampleDeployment: {create: false, name: cnf-example-a}, networkAttachments: [{name: pc0, linkType: veth, master: pcbr0, parent: pc0, cidr: 192.168.100.0/24}, {name: pc1, linkType: veth, master: pcbr1, parent: pc1, cidr: 192.168.99.0/24}]}",
    ),
    ("PodConfig", "{vlans: [{parentInterfaceName: eth0, vlanID: 100, bridgeName: br}]}"),
    (
        "PodConfig",
        "{networkAttachments: [{name: a, cidrs: [10.0.0.0/16, 'fd00::/64'], mtu: 9000, hardwareAddr: '02:00:00:00:00:01', alias: any text, up: false, routes: [{to: 0.0.0.0/0, via: 10.0.0.1, table: 100, metric: 5, src: 10.0.0.2}], rules: [{from: 10.0.0.0/16, table: 100, priority: 10}], sysctls: {net.ipv4.conf.IFNAME.rp_filter: '2'}}, {name: b, linkType: vxlan, vni: 5, remote: 192.0.2.1, port: 4789}, {name: c, linkType: gre, remote: 192.0.2.1, key: 4294967295, ttl: 64}, {name: d, linkType: vrf, table: 4294967295}, {name: e, linkType: tap, owner: 1000, memberOf: d}]}",
    ),
    (
        "PodNetworkConfig",
        "{Name: podnetwork-sample-a, additionalNetworks: [{networkName: pno, networkDescription: Service to service encrypted communication., linkType: veth, master: pnobr0, cidr: 192.168.100.0/24}]}",
    ),
    ("PodNetworkConfig", "{name: podnetwork-sample-a, eth0: {mtu: 1500}}"),
    ("Bridge", "{name: pnobr0, cidr: 192.168.100.0/24}"),
];
