//! The fabric plugin for Open vSwitch of the reference implementation: its two ConfigMaps as FabricDevices, NodePools
//! and ConnectionPoints.
//!
//! Each bridge (`switchName`) is a FabricDevice, since bridges that are not joined are separate networks; all are at
//! the address of the one Open vSwitch that the plugin is told of. Nodes of a pool are those with the label
//! `node-pool`, as the plugin finds them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::ImportError;
use super::read::{Input, Link, Pool, PoolInterface, Source, field, is_interface_name};

/// Where the plugin's own Deployment has its Open vSwitch, unless that is changed.
pub const DEFAULT_ADDRESS: &str = "tcp:10.2.0.1:6640";

const API_VERSION: &str = "eno.k8s.io/v1alpha1";
const ASSUMED_ADDRESS: &str = "Address is that of the plugin's own Deployment; --address, or that Deployment among the files, says another";
const ASSUMED_CNIS: &str = "SupportedCnis is assumed: nothing in the files says it. Give the ConnectionPoint's own manifest as well, or set it here";

/// What the files don't say.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// `Address` of the FabricDevices; absent: from the plugin's Deployment, or as that is shipped.
    pub address: Option<String>,
    /// The Secret with the certificates, for an address that begins with `ssl:`.
    pub secret: Option<String>,
}

/// A custom resource, and what should be known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// One line each.
    pub remarks: Vec<&'static str>,
    /// The manifest.
    pub manifest: Value,
}

/// The custom resources that say what the files say, in the order in which they are best applied.
pub fn import(sources: &[Source], given: &Given) -> Result<Vec<Object>, ImportError> {
    let input = Input::read(sources)?;
    let mut objects = pools(&input.pools)?;
    objects.extend(devices(&input, given)?);
    objects.extend(connection_points(&input)?);
    Ok(objects)
}

/// As YAML, which `kubectl apply -f -` takes.
pub fn yaml(objects: &[Object]) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        for remark in &object.remarks {
            // Writing to text can't fail.
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
        let there = places.insert(&pool.name, &pool.place);
        unique(there, &pool.place, || format!("are both named {}: a pool has one entry", pool.name))?;
        let spec = json!({ "NodeSelector": { "matchLabels": { "node-pool": pool.name } } });
        objects.push(object("NodePool", &pool.name, &spec));
    }
    Ok(objects)
}

fn devices(input: &Input, given: &Given) -> Result<Vec<Object>, ImportError> {
    let mut bridges: BTreeMap<String, Vec<&Link>> = BTreeMap::new();
    let (mut ports, mut nics) = (BTreeMap::new(), BTreeMap::new());
    for link in &input.links {
        let there = ports.insert(&link.port, link.place.as_str());
        unique(there, &link.place, || {
            format!("both have switchPort {}: a port is at the end of one link", link.port)
        })?;
        let there = nics.insert((&link.node, &link.interface), link.place.as_str());
        unique(there, &link.place, || {
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
    let (address, assumed) = match given.address.as_ref().or(input.address.as_ref()) {
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
        if let Some(secret) = &given.secret {
            spec["Credentials"] = json!({ "SecretName": secret });
        }
        let mut object = object("FabricDevice", &name, &spec);
        object.remarks.extend(assumed.then_some(ASSUMED_ADDRESS));
        object
    };
    Ok(bridges.into_iter().map(device).collect())
}

/// A bridge's name as that of an object.
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
            let there = places.insert(&interface.name, &interface.place);
            unique(there, &interface.place, || {
                format!("both have the name {}: an interface has one entry", interface.name)
            })?;
            points.entry(&interface.connection_point).or_default().push((pool, interface));
        }
    }
    points.into_iter().map(|(name, of)| connection_point(input, name, &of)).collect()
}

fn connection_point(
    input: &Input,
    name: &str,
    of: &[(&Pool, &PoolInterface)],
) -> Result<Object, ImportError> {
    let [(pool, first), rest @ ..] = of else { return Err(ImportError::Missing { what: "its interfaces" }) };
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
    if of.len() > 16 {
        let problem =
            format!("has connectionPoint {name}, which would have {} interfaces, more than 16", of.len());
        return Err(field(first.place.clone(), problem));
    }
    let interfaces: Vec<&str> = of.iter().map(|(_, interface)| interface.name.as_str()).collect();
    let own = [("NodePool", json!(pool.name)), ("Interfaces", json!(interfaces))];
    if let Some((place, manifest)) = input.connection_points.get(name) {
        let mut manifest = manifest.clone();
        for (key, value) in own {
            let Some(spec) = manifest.get_mut("spec").and_then(Value::as_object_mut) else {
                return Err(field(format!("{place}: spec"), "is not there".into()));
            };
            if let Some(said) = spec.get(key).filter(|said| **said != value) {
                let problem = format!("disagree: {key} is {said} in the one, and {value} by the other");
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

/// One NIC is most likely the uplink of a bridge, which the plugin's examples call as the ConnectionPoint; several,
/// which on a bridge would be a bond, are a pool of devices.
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
    let manifest =
        json!({ "apiVersion": API_VERSION, "kind": kind, "metadata": { "name": name }, "spec": spec });
    Object { remarks: Vec::new(), manifest }
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
