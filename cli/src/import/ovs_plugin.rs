//! Imports the reference implementation's fabric plugin for Open vSwitch: its two ConfigMaps become FabricDevices,
//! NodePools and ConnectionPoints.
//!
//! Each bridge (`switchName`) becomes a FabricDevice, since separate bridges are separate networks. All have the
//! address of the plugin's one Open vSwitch. A pool selects nodes by the label `node-pool`, like the plugin.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use eno_nbi_crds::manifest;
use serde_json::{Value, json};

use super::ImportError;
use super::read::{Input, Link, Pool, PoolInterface, Source, field, is_interface_name};

/// The default address in the plugin's own Deployment.
pub const DEFAULT_ADDRESS: &str = "tcp:10.2.0.1:6640";

const ASSUMED_ADDRESS: &str = "Address is that of the plugin's own Deployment; --address, or that Deployment among the files, says another";
const ASSUMED_CNIS: &str = "SupportedCnis is assumed: nothing in the files says it. Give the ConnectionPoint's own manifest as well, or set it here";

/// Values that the files don't contain.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// `Address` of the FabricDevices; absent: from the plugin's Deployment, else [`DEFAULT_ADDRESS`].
    pub address: Option<String>,
    /// The Secret with the certificates, for an address that begins with `ssl:`.
    pub secret: Option<String>,
}

/// A custom resource, and remarks on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Remarks of one line each, written as comments.
    pub remarks: Vec<&'static str>,
    /// The manifest.
    pub manifest: Value,
}

/// Converts the files to custom resources, in a suitable order to apply them.
pub fn import(sources: &[Source], options: &ImportOptions) -> Result<Vec<Object>, ImportError> {
    let input = Input::read(sources)?;
    let mut objects = pools(&input.pools)?;
    objects.extend(devices(&input, options)?);
    objects.extend(connection_points(&input)?);
    Ok(objects)
}

/// The YAML text for `kubectl apply -f -`.
pub fn yaml(objects: &[Object]) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        for remark in &object.remarks {
            // Writing to a string can't fail.
            let _ = writeln!(text, "# {remark}.");
        }
        text.push_str(serde_saphyr::to_string(&object.manifest)?.trim_end());
        text.push('\n');
    }
    Ok(text)
}

fn pools(pools: &[Pool]) -> Result<Vec<Object>, ImportError> {
    let mut places: BTreeMap<&str, &str> = BTreeMap::new();
    let mut objects = Vec::new();
    for pool in pools {
        let previous = places.insert(&pool.name, &pool.place);
        unique(previous, &pool.place, || format!("are both named {}: a pool has one entry", pool.name))?;
        let spec = json!({ "NodeSelector": { "matchLabels": { "node-pool": pool.name } } });
        objects.push(object("NodePool", &pool.name, &spec));
    }
    Ok(objects)
}

fn devices(input: &Input, options: &ImportOptions) -> Result<Vec<Object>, ImportError> {
    let mut bridges: BTreeMap<String, Vec<&Link>> = BTreeMap::new();
    let (mut ports, mut nics) = (BTreeMap::new(), BTreeMap::new());
    for link in &input.links {
        let previous = ports.insert(&link.port, link.place.as_str());
        unique(previous, &link.place, || {
            format!("both have switchPort {}: a port is at the end of one link", link.port)
        })?;
        let previous = nics.insert((&link.node, &link.interface), link.place.as_str());
        unique(previous, &link.place, || {
            format!(
                "both have interfaceName {} of {}: a NIC is at the end of one link",
                link.interface, link.node
            )
        })?;
        let name = device_name(&link.switch).ok_or_else(|| {
            let problem = format!("{:?} has no letter or digit to name a FabricDevice by", link.switch);
            field(format!("{}.switchName", link.place), problem)
        })?;
        let bridge = bridges.entry(name.clone()).or_default();
        if let Some(first) = bridge.first().filter(|first| first.switch != link.switch) {
            let problem = format!(
                "have switchName {} and {}, and both FabricDevices would be named {name}: rename one of the bridges",
                first.switch, link.switch
            );
            return Err(ImportError::Conflict {
                first: first.place.clone(),
                second: link.place.clone(),
                problem,
            });
        }
        bridge.push(link);
    }
    let (address, assumed) = match options.address.as_ref().or(input.address.as_ref()) {
        Some(address) => (address.as_str(), false),
        None => (DEFAULT_ADDRESS, true),
    };
    let device = |(name, links): (String, Vec<&Link>)| {
        let port =
            |link: &&Link| json!({ "Name": link.port, "Node": link.node, "Interface": link.interface });
        let mut spec = json!({
            "Driver": "ovs-fabric",
            "Address": address,
            "Ports": links.iter().map(port).collect::<Vec<_>>(),
        });
        if let Some(secret) = &options.secret {
            spec["Credentials"] = json!({ "SecretName": secret });
        }
        let mut object = object("FabricDevice", &name, &spec);
        object.remarks.extend(assumed.then_some(ASSUMED_ADDRESS));
        object
    };
    Ok(bridges.into_iter().map(device).collect())
}

/// Converts a bridge's name to an object's name.
fn device_name(bridge: &str) -> Option<String> {
    let safe = |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' };
    let name: String = bridge.chars().map(safe).collect();
    let name = name.trim_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

fn connection_points(input: &Input) -> Result<Vec<Object>, ImportError> {
    let mut points: BTreeMap<&str, Vec<(&Pool, &PoolInterface)>> = BTreeMap::new();
    for pool in &input.pools {
        let mut places: BTreeMap<&str, &str> = BTreeMap::new();
        for interface in &pool.interfaces {
            let previous = places.insert(&interface.name, &interface.place);
            unique(previous, &interface.place, || {
                format!("both have the name {}: an interface has one entry", interface.name)
            })?;
            points.entry(&interface.connection_point).or_default().push((pool, interface));
        }
    }
    points
        .into_iter()
        .map(|(name, interfaces_of_point)| connection_point(input, name, &interfaces_of_point))
        .collect()
}

fn connection_point(
    input: &Input,
    name: &str,
    interfaces_of_point: &[(&Pool, &PoolInterface)],
) -> Result<Object, ImportError> {
    let [(pool, first), rest @ ..] = interfaces_of_point else {
        return Err(ImportError::Missing { what: "its interfaces" });
    };
    if let Some((other, second)) = rest.iter().find(|(other, _)| other.name != pool.name) {
        let problem = format!(
            "have connectionPoint {name} in nodePools {} and {}: a ConnectionPoint is of one NodePool; give each \
             nodePool a connectionPoint of its own",
            pool.name, other.name
        );
        return Err(ImportError::Conflict {
            first: first.place.clone(),
            second: second.place.clone(),
            problem,
        });
    }
    if interfaces_of_point.len() > 16 {
        let problem = format!(
            "has connectionPoint {name}, which would have {} interfaces, more than 16",
            interfaces_of_point.len()
        );
        return Err(field(first.place.clone(), problem));
    }
    let interfaces: Vec<&str> =
        interfaces_of_point.iter().map(|(_, interface)| interface.name.as_str()).collect();
    let own = [("NodePool", json!(pool.name)), ("Interfaces", json!(interfaces))];
    if let Some((place, manifest)) = input.connection_points.get(name) {
        let mut manifest = manifest.clone();
        for (key, value) in own {
            let Some(spec) = manifest.get_mut("spec").and_then(Value::as_object_mut) else {
                return Err(field(format!("{place}: spec"), "is not there".into()));
            };
            if let Some(stated) = spec.get(key).filter(|stated| **stated != value) {
                let problem = format!("disagree: {key} is {stated} in the one, and {value} by the other");
                return Err(ImportError::Conflict {
                    first: place.clone(),
                    second: first.place.clone(),
                    problem,
                });
            }
            spec.insert(key.to_owned(), value);
        }
        return Ok(Object { remarks: Vec::new(), manifest });
    }
    let mut spec = json!({ "SupportedCnis": [assumed_cni(name, interfaces.len())] });
    for (key, value) in own {
        spec[key] = value;
    }
    Ok(Object { remarks: vec![ASSUMED_CNIS], ..object("ConnectionPoint", name, &spec) })
}

/// Guesses the CNI. One NIC is probably the uplink of a bridge, named like the ConnectionPoint in the plugin's
/// examples. Several NICs would be a bond on a bridge, so they are a device pool.
fn assumed_cni(name: &str, interfaces: usize) -> Value {
    let bridge = name.strip_prefix("cp-").unwrap_or(name);
    let (cni, opts) = if interfaces == 1 && is_interface_name(bridge) {
        ("ovs", json!({ "BridgeName": bridge }))
    } else {
        ("host-device", json!({ "PoolName": format!("eno.k8s.io/{name}") }))
    };
    json!({ "Name": cni, "SupportedInterfaceTypes": ["kernel"], "Opts": opts.to_string() })
}

fn object(kind: &str, name: &str, spec: &Value) -> Object {
    Object { remarks: Vec::new(), manifest: manifest(kind, name, spec) }
}

fn unique(first: Option<&str>, second: &str, problem: impl Fn() -> String) -> Result<(), ImportError> {
    match first {
        None => Ok(()),
        Some(first) => Err(ImportError::Conflict {
            first: first.to_owned(),
            second: second.to_owned(),
            problem: problem(),
        }),
    }
}
