//! Access that the shipped roles must and must not grant.

/// A request to the authorizer.
pub struct Access {
    /// The service account in eno-system.
    pub account: &'static str,
    /// The verb of the request.
    pub verb: &'static str,
    /// The API group; empty: the core group.
    pub group: &'static str,
    /// The resource; with `/` its subresource, or with `=` the name of one object.
    pub resource: &'static str,
    /// Empty for the whole cluster.
    pub namespace: &'static str,
    /// Whether the shipped roles allow it.
    pub allowed: bool,
}

const fn access(
    account: &'static str,
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: &'static str,
    allowed: bool,
) -> Access {
    Access { account, verb, group, resource, namespace, allowed }
}

const ENO: &str = "eno.k8s.io";
const CNI: &str = "k8s.cni.cncf.io";

pub const ACCESS: &[Access] = &[
    access("eno-engine", "watch", ENO, "l2serviceattachments", "", true),
    access("eno-engine", "patch", ENO, "fabricdevices", "", true),
    access("eno-engine", "patch", ENO, "subnets/status", "", true),
    access("eno-engine", "create", ENO, "l2bridgedomains", "", true),
    access("eno-engine", "create", ENO, "l2services", "", false),
    access("eno-engine", "delete", ENO, "l2services", "", false),
    access("eno-engine", "watch", "", "pods", "", true),
    access("eno-engine", "watch", "", "nodes", "", true),
    access("eno-engine", "watch", "", "namespaces", "", true),
    access("eno-engine", "create", "events.k8s.io", "events", "", true),
    access("eno-engine", "update", "coordination.k8s.io", "leases=eno-engine", "eno-system", true),
    access("eno-engine", "update", "coordination.k8s.io", "leases=other", "eno-system", false),
    access("eno-engine", "update", "coordination.k8s.io", "leases", "kube-system", false),
    access("eno-engine", "patch", "podconfig.opdev.io", "podconfigs", "", true),
    access("eno-engine", "patch", "podnetwork.opdev.io", "bridges/status", "", true),
    access("eno-engine", "create", "podconfig.opdev.io", "podconfigs", "", false),
    access("eno-engine", "delete", "podnetwork.opdev.io", "podnetworkconfigs", "", false),
    access("eno-engine", "delete", ENO, "podnetworks", "", true),
    access("eno-engine", "patch", "", "nodes/status", "", true),
    access("eno-engine", "delete", "", "nodes", "", false),
    access("eno-engine", "create", "", "pods", "", false),
    access("eno-engine", "create", "", "pods/exec", "", false),
    access("eno-engine", "delete", "apps", "deployments", "", false),
    access("eno-engine", "get", "", "secrets", "eno-system", false),
    access("eno-engine", "get", "", "secrets", "default", false),
    access("eno-engine", "get", "", "secrets=eno-callback", "eno-system", true),
    access("eno-engine", "get", "", "secrets=eno-callback", "default", true),
    access("eno-engine", "get", "", "secrets=eno-nats", "eno-system", false),
    access("eno-engine", "list", "", "secrets", "default", false),
    access("eno-engine", "watch", "", "secrets=eno-callback", "default", false),
    access("eno-driver-netconf", "get", "", "secrets=eno-callback", "default", false),
    access("eno-engine", "create", CNI, "network-attachment-definitions", "", false),
    access("eno-driver-nad", "patch", CNI, "network-attachment-definitions", "", true),
    access("eno-driver-nad", "create", CNI, "network-attachment-definitions", "", true),
    access("eno-driver-nad", "delete", CNI, "network-attachment-definitions", "", true),
    access("eno-driver-nad", "get", ENO, "l2serviceattachments", "", false),
    access("eno-driver-nad", "get", "", "secrets", "eno-system", false),
    access("eno-driver-netconf", "get", "", "secrets", "eno-devices", true),
    access("eno-driver-netconf", "list", "", "secrets", "eno-devices", false),
    access("eno-driver-netconf", "get", "", "secrets", "eno-system", false),
    access("eno-driver-netconf", "get", "", "secrets", "kube-system", false),
    access("eno-driver-netconf", "get", ENO, "fabricdevices", "", true),
    access("eno-driver-netconf", "list", ENO, "fabricdevices", "", false),
    access("eno-driver-netconf", "get", ENO, "l2services", "", false),
    access("eno-driver-neutron", "get", ENO, "fabricdevices", "", true),
    access("eno-driver-neutron", "watch", ENO, "fabricdevices", "", false),
];
