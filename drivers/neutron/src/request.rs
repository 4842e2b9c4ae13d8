//! The requests that change Neutron, and what they do to a [`View`].

use std::fmt;

use eno_schemas::{VlanId, VlanSet};
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::view::{Id, Network, Port, SubPort, Trunk, View};

/// Maximum sub-ports of a trunk: one for each VLAN.
const MAX_SUB_PORTS: usize = 4094;

/// A change of Neutron, which it makes as a whole or not at all.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Makes networks.
    CreateNetworks(Vec<NewNetwork>),
    /// Makes ports.
    CreatePorts(Vec<NewPort>),
    /// Adds sub-ports to a trunk.
    AddSubPorts {
        /// The trunk.
        trunk: Id,
        /// The ports and their VLANs.
        ports: Vec<(Id, VlanId)>,
    },
    /// Takes sub-ports off a trunk. The ports stay.
    RemoveSubPorts {
        /// The trunk.
        trunk: Id,
        /// The ports and their VLANs.
        ports: Vec<(Id, VlanId)>,
    },
    /// Changes attributes of a network or a port.
    Update {
        /// Which.
        resource: Resource,
        /// Neutron refuses the change when the resource was changed since this revision.
        revision: Option<u64>,
        /// The new attributes.
        attributes: Map<String, Value>,
    },
    /// Deletes a network or a port. Neutron refuses it while the resource is in use.
    Delete {
        /// Which.
        resource: Resource,
    },
}

/// A network to make.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNetwork {
    /// Its VLAN.
    pub vid: VlanId,
    /// Its attributes.
    pub attributes: Value,
}

/// A port to make.
#[derive(Clone, Debug, PartialEq)]
pub struct NewPort {
    /// Its VLAN.
    pub vid: VlanId,
    /// The trunk that it is made for.
    pub trunk: Id,
    /// Its attributes.
    pub attributes: Value,
}

/// A network or port that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// What it is.
    pub kind: Kind,
    /// Its id.
    pub id: Id,
    /// Its VLAN.
    pub vid: VlanId,
}

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `networks`
    Network,
    /// `ports`
    Port,
}

/// The HTTP form of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// `POST`, `PUT` or `DELETE`.
    pub method: Method,
    /// Below `/v2.0/`.
    pub path: String,
    /// The value of `If-Match`.
    pub if_match: Option<String>,
    /// The body.
    pub body: Option<Value>,
}

impl Kind {
    /// Its name in paths and lists.
    pub const fn collection(self) -> &'static str {
        match self {
            Self::Network => "networks",
            Self::Port => "ports",
        }
    }

    /// Its name in messages and bodies.
    pub fn singular(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Port => "port",
        }
    }
}

impl Resource {
    /// A network.
    pub fn network(id: &Id, vid: VlanId) -> Self {
        Self { kind: Kind::Network, id: id.clone(), vid }
    }

    /// A port.
    pub fn port(id: &Id, vid: VlanId) -> Self {
        Self { kind: Kind::Port, id: id.clone(), vid }
    }

    fn path(&self) -> String {
        format!("{}/{}", self.kind.collection(), self.id)
    }
}

impl Request {
    /// Its HTTP form.
    pub fn http(&self) -> HttpRequest {
        let post = |collection: &str, items: Vec<&Value>| HttpRequest {
            method: Method::POST,
            path: collection.to_owned(),
            if_match: None,
            body: Some(json!({ collection: items })),
        };
        let put = |trunk: &str, action: &str, sub_ports: Vec<Value>| HttpRequest {
            method: Method::PUT,
            path: format!("trunks/{trunk}/{action}"),
            if_match: None,
            body: Some(json!({ "sub_ports": sub_ports })),
        };
        match self {
            Self::CreateNetworks(new) => post("networks", new.iter().map(|new| &new.attributes).collect()),
            Self::CreatePorts(new) => post("ports", new.iter().map(|new| &new.attributes).collect()),
            Self::AddSubPorts { trunk, ports } => {
                let sub_port = |(port, vid): &(Id, VlanId)| json!({ "port_id": port, "segmentation_type": "vlan", "segmentation_id": vid.get() });
                put(trunk, "add_subports", ports.iter().map(sub_port).collect())
            }
            Self::RemoveSubPorts { trunk, ports } => {
                let sub_port = |(port, _): &(Id, VlanId)| json!({ "port_id": port });
                put(trunk, "remove_subports", ports.iter().map(sub_port).collect())
            }
            Self::Update { resource, revision, attributes } => HttpRequest {
                method: Method::PUT,
                path: resource.path(),
                if_match: revision.map(|revision| format!("revision_number={revision}")),
                body: Some(json!({ resource.kind.singular(): attributes })),
            },
            Self::Delete { resource } => {
                HttpRequest { method: Method::DELETE, path: resource.path(), if_match: None, body: None }
            }
        }
    }

    /// The number of networks, ports or sub-ports that it changes.
    pub fn count(&self) -> usize {
        match self {
            Self::CreateNetworks(new) => new.len(),
            Self::CreatePorts(new) => new.len(),
            Self::AddSubPorts { ports, .. } | Self::RemoveSubPorts { ports, .. } => ports.len(),
            Self::Update { .. } | Self::Delete { .. } => 1,
        }
    }

    /// Two requests that together do the same; `None`: it changes one thing only.
    pub fn split(&self) -> Option<[Self; 2]> {
        fn halves<T: Clone>(all: &[T]) -> Option<[Vec<T>; 2]> {
            let (first, second) = all.split_at(all.len() / 2);
            (!first.is_empty()).then(|| [first.to_vec(), second.to_vec()])
        }
        Some(match self {
            Self::CreateNetworks(new) => halves(new)?.map(Self::CreateNetworks),
            Self::CreatePorts(new) => halves(new)?.map(Self::CreatePorts),
            Self::AddSubPorts { trunk, ports } => {
                halves(ports)?.map(|ports| Self::AddSubPorts { trunk: trunk.clone(), ports })
            }
            Self::RemoveSubPorts { trunk, ports } => {
                halves(ports)?.map(|ports| Self::RemoveSubPorts { trunk: trunk.clone(), ports })
            }
            Self::Update { .. } | Self::Delete { .. } => return None,
        })
    }

    /// Writes what Neutron answered into the view, and returns the ids of the networks, ports or trunks that changed.
    /// Fails when the answer is not of the expected form.
    pub fn apply(&self, view: &mut View, answer: Value) -> Result<Vec<Id>, serde_json::Error> {
        let (networks, ports): (Vec<Network>, Vec<Port>) = match self {
            Self::CreateNetworks(_) => (part(answer, "networks")?, Vec::new()),
            Self::CreatePorts(_) => (Vec::new(), part(answer, "ports")?),
            Self::AddSubPorts { .. } | Self::RemoveSubPorts { .. } => {
                let trunk: Trunk = serde_json::from_value(answer)?;
                let id = trunk.id.clone();
                if !view.trunks.contains_key(&id) || trunk.sub_ports.len() > MAX_SUB_PORTS {
                    return Err(unexpected("another trunk"));
                }
                view.trunks.insert(id.clone(), trunk);
                return Ok(vec![id]);
            }
            Self::Update { resource: Resource { kind: Kind::Network, .. }, .. } => {
                (vec![part(answer, "network")?], Vec::new())
            }
            Self::Update { resource: Resource { kind: Kind::Port, .. }, .. } => {
                (Vec::new(), vec![part(answer, "port")?])
            }
            Self::Delete { resource } => {
                match resource.kind {
                    Kind::Network => drop(view.networks.remove(&resource.id)),
                    Kind::Port => drop(view.ports.remove(&resource.id)),
                }
                return Ok(vec![resource.id.clone()]);
            }
        };
        if networks.len() + ports.len() > self.count() {
            return Err(unexpected("more than was requested"));
        }
        let ids = networks.iter().map(|network| &network.id).chain(ports.iter().map(|port| &port.id));
        let ids = ids.cloned().collect();
        view.networks.extend(networks.into_iter().map(|network| (network.id.clone(), network)));
        view.ports.extend(ports.into_iter().map(|port| (port.id.clone(), port)));
        Ok(ids)
    }

    /// Writes into the view what Neutron would answer. Ids of new resources name what they are of.
    pub fn predict(&self, view: &mut View) -> Result<Vec<Id>, serde_json::Error> {
        let with_id = |attributes: &Value, mut id: String, defaults: &[(&str, Value)]| {
            let is_taken = |id: &str| {
                let id = format!("<{id}>");
                view.networks.contains_key(&id) || view.ports.contains_key(&id)
            };
            while is_taken(&id) {
                id.insert_str(0, "another ");
            }
            let mut resource = attributes.clone();
            let id = json!(format!("<{id}>"));
            let own = [("mac_address", id.clone()), ("id", id), ("project_id", json!(view.project))];
            if let Some(resource) = resource.as_object_mut() {
                for (key, value) in own.iter().chain(defaults) {
                    resource.entry(*key).or_insert_with(|| value.clone());
                }
            }
            resource
        };
        let answer = match self {
            Self::CreateNetworks(new) => {
                let network = |new: &NewNetwork| {
                    let id = format!("id of the network of VLAN {}", new.vid);
                    let defaults = [("admin_state_up", json!(true)), ("port_security_enabled", json!(true))];
                    with_id(&new.attributes, id, &defaults)
                };
                json!({ "networks": new.iter().map(network).collect::<Vec<_>>() })
            }
            Self::CreatePorts(new) => {
                let port = |new: &NewPort| {
                    let id = format!("id of the port of VLAN {} for trunk {}", new.vid, new.trunk);
                    let network = new.attributes["network_id"].as_str().and_then(|id| view.networks.get(id));
                    let security = network.and_then(|network| network.port_security_enabled);
                    let defaults =
                        [("admin_state_up", json!(true)), ("port_security_enabled", json!(security))];
                    with_id(&new.attributes, id, &defaults)
                };
                json!({ "ports": new.iter().map(port).collect::<Vec<_>>() })
            }
            Self::AddSubPorts { trunk, ports } => {
                let mut trunk = view.trunks.get(trunk).cloned().unwrap_or_default();
                trunk.sub_ports.extend(ports.iter().map(|(port, vid)| SubPort {
                    port_id: port.clone(),
                    segmentation_type: "vlan".to_owned(),
                    segmentation_id: vid.get().into(),
                }));
                serde_json::to_value(trunk)?
            }
            Self::RemoveSubPorts { trunk, ports } => {
                let mut trunk = view.trunks.get(trunk).cloned().unwrap_or_default();
                trunk.sub_ports.retain(|sub| ports.iter().all(|(port, _)| *port != sub.port_id));
                serde_json::to_value(trunk)?
            }
            Self::Update { resource, attributes, .. } => {
                let found = match resource.kind {
                    Kind::Network => serde_json::to_value(view.networks.get(&resource.id))?,
                    Kind::Port => serde_json::to_value(view.ports.get(&resource.id))?,
                };
                let mut found = found.as_object().cloned().unwrap_or_default();
                found.extend(attributes.clone());
                json!({ resource.kind.singular(): found })
            }
            Self::Delete { .. } => Value::Null,
        };
        self.apply(view, answer)
    }

    /// The VLANs that it is about.
    pub fn vlans(&self) -> VlanSet {
        match self {
            Self::CreateNetworks(new) => new.iter().map(|new| new.vid).collect(),
            Self::CreatePorts(new) => new.iter().map(|new| new.vid).collect(),
            Self::AddSubPorts { ports, .. } | Self::RemoveSubPorts { ports, .. } => {
                ports.iter().map(|(_, vid)| *vid).collect()
            }
            Self::Update { resource, .. } | Self::Delete { resource } => [resource.vid].into_iter().collect(),
        }
    }
}

/// What the request does, for messages.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateNetworks(_) => f.write_str("make a network"),
            Self::CreatePorts(_) => f.write_str("make a port"),
            Self::AddSubPorts { trunk, .. } => write!(f, "add a sub-port to trunk {trunk}"),
            Self::RemoveSubPorts { trunk, .. } => write!(f, "take a sub-port off trunk {trunk}"),
            Self::Update { resource, .. } => write!(f, "change {} {}", resource.kind.singular(), resource.id),
            Self::Delete { resource } => write!(f, "delete {} {}", resource.kind.singular(), resource.id),
        }
    }
}

fn unexpected(what: &str) -> serde_json::Error {
    serde::de::Error::custom(format!("the answer has {what}"))
}

/// The part of an answer below `key`.
fn part<T: DeserializeOwned>(mut answer: Value, key: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(answer.get_mut(key).map(Value::take).unwrap_or_default())
}
