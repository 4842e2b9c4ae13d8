//! Access that the shipped roles must and must not grant.

/// A request to the authorizer:
/// - the service account in eno-system;
/// - the verb;
/// - the API group; empty: the core group;
/// - the resource; with `/` its subresource, or with `=` the name of one object;
/// - the namespace; empty: the whole cluster;
/// - whether the shipped roles allow it.
pub type Access = (&'static str, &'static str, &'static str, &'static str, &'static str, bool);

const ENO: &str = "eno.k8s.io";
const CNI: &str = "k8s.cni.cncf.io";

pub const ACCESS: &[Access] = &[
    ("eno-engine", "watch", ENO, "l2serviceattachments", "", true),
    ("eno-engine", "patch", ENO, "fabricdevices", "", true),
    ("eno-engine", "patch", ENO, "subnets/status", "", true),
    ("eno-engine", "create", ENO, "l2bridgedomains", "", true),
    ("eno-engine", "create", ENO, "l2services", "", false),
    ("eno-engine", "delete", ENO, "l2services", "", false),
    ("eno-engine", "watch", "", "pods", "", true),
    ("eno-engine", "watch", "", "nodes", "", true),
    ("eno-engine", "watch", "", "namespaces", "", true),
    ("eno-engine", "create", "events.k8s.io", "events", "", true),
    ("eno-engine", "update", "coordination.k8s.io", "leases=eno-engine", "eno-system", true),
    ("eno-engine", "update", "coordination.k8s.io", "leases=other", "eno-system", false),
    ("eno-engine", "update", "coordination.k8s.io", "leases", "kube-system", false),
    ("eno-engine", "patch", "podconfig.opdev.io", "podconfigs", "", true),
    ("eno-engine", "patch", "podnetwork.opdev.io", "bridges/status", "", true),
    ("eno-engine", "create", "podconfig.opdev.io", "podconfigs", "", false),
    ("eno-engine", "delete", "podnetwork.opdev.io", "podnetworkconfigs", "", false),
    ("eno-engine", "delete", ENO, "podnetworks", "", true),
    ("eno-engine", "patch", "", "nodes/status", "", true),
    ("eno-engine", "delete", "", "nodes", "", false),
    ("eno-engine", "create", "", "pods", "", false),
    ("eno-engine", "create", "", "pods/exec", "", false),
    ("eno-engine", "delete", "apps", "deployments", "", false),
    ("eno-engine", "get", "", "secrets", "eno-system", false),
    ("eno-engine", "get", "", "secrets", "default", false),
    ("eno-engine", "get", "", "secrets=eno-callback", "eno-system", true),
    ("eno-engine", "get", "", "secrets=eno-callback", "default", true),
    ("eno-engine", "get", "", "secrets=eno-nats", "eno-system", false),
    ("eno-engine", "list", "", "secrets", "default", false),
    ("eno-engine", "watch", "", "secrets=eno-callback", "default", false),
    ("eno-driver-netconf", "get", "", "secrets=eno-callback", "default", false),
    ("eno-engine", "create", CNI, "network-attachment-definitions", "", false),
    ("eno-driver-nad", "patch", CNI, "network-attachment-definitions", "", true),
    ("eno-driver-nad", "create", CNI, "network-attachment-definitions", "", true),
    ("eno-driver-nad", "delete", CNI, "network-attachment-definitions", "", true),
    ("eno-driver-nad", "get", ENO, "l2serviceattachments", "", false),
    ("eno-driver-nad", "get", "", "secrets", "eno-system", false),
    ("eno-driver-bgp-speaker", "patch", "metallb.io", "bgppeers", "", true),
    ("eno-driver-bgp-speaker", "patch", "metallb.io", "bgpadvertisements", "", false),
    ("eno-driver-bgp-speaker", "get", "", "secrets", "metallb-system", false),
    ("eno-driver-netconf", "get", "", "secrets", "eno-devices", true),
    ("eno-driver-netconf", "list", "", "secrets", "eno-devices", false),
    ("eno-driver-netconf", "get", "", "secrets", "eno-system", false),
    ("eno-driver-netconf", "get", "", "secrets", "kube-system", false),
    ("eno-driver-netconf", "get", ENO, "fabricdevices", "", true),
    ("eno-driver-netconf", "list", ENO, "fabricdevices", "", false),
    ("eno-driver-netconf", "get", ENO, "l2services", "", false),
    ("eno-driver-neutron", "get", ENO, "fabricdevices", "", true),
    ("eno-driver-neutron", "watch", ENO, "fabricdevices", "", false),
];
