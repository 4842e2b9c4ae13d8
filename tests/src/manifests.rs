//! Manifests of the operator's objects, and of namespaces: YAML documents, which can be concatenated.

/// An object of `eno.k8s.io`. `metadata` and `spec` are the content of YAML flow mappings.
pub fn object(kind: &str, metadata: &str, spec: &str) -> String {
    let version = eno_nbi_crds::api_version(kind);
    format!("\n---\n{{apiVersion: {version}, kind: {kind}, metadata: {{{metadata}}}, spec: {{{spec}}}}}\n")
}

/// A namespace whose pods may use networks without a check.
pub fn unchecked_namespace(name: &str) -> String {
    format!(
        "\n---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{eno.k8s.io/use-check: 'off'}}}}}}\n"
    )
}

/// An L2Service; `more` is the rest of its spec. Its label `test` is the part of its name before a `-`.
pub fn service(name: &str, vid: u16, more: &str) -> String {
    let test = name.split('-').next().unwrap_or_default();
    let metadata = format!("name: {name}, labels: {{test: {test}}}");
    object("L2Service", &metadata, &format!("SegmentationID: {vid}, {more}"))
}

/// An L2ServiceAttachment; `more` is the rest of its spec, at least `VlanType`. Its label `test` is the part of its
/// namespace before a `-`.
pub fn attachment(namespace: &str, name: &str, point: &str, services: &str, more: &str) -> String {
    let test = namespace.split('-').next().unwrap_or_default();
    let metadata = format!("name: {name}, namespace: {namespace}, labels: {{test: {test}}}");
    object(
        "L2ServiceAttachment",
        &metadata,
        &format!("ConnectionPoint: {point}, L2Services: [{services}], {more}"),
    )
}

/// An L2ServiceAttachment with one VLAN, at the ConnectionPoint that has the name of its namespace.
pub fn access(namespace: &str, name: &str, service: &str) -> String {
    attachment(namespace, name, namespace, service, "VlanType: access")
}

/// An IPv4 Subnet with a mask of 24 bits; `more` is the rest of its spec.
pub fn subnet(name: &str, address: &str, more: &str) -> String {
    let spec = format!("Type: v4, Ipam: whereabouts, Address: {address}, Mask: 24, {more}");
    object("Subnet", &format!("name: {name}"), &spec)
}

/// A ConnectionPoint on an Open vSwitch bridge; `more` is the rest of its spec.
pub fn connection_point(name: &str, bridge: &str, more: &str) -> String {
    let spec = format!(
        "SupportedCnis: [{{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{{\"BridgeName\": \"{bridge}\"}}'}}], \
         {more}"
    );
    object("ConnectionPoint", &format!("name: {name}"), &spec)
}
