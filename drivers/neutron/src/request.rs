//! The requests that change Neutron, and what they do to a [`View`].

use std::fmt;

use eno_schemas::{VlanId, VlanSet};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::view::{Id, Network, Port, SubPort, Trunk, View};

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
    Update(Change),
    /// Deletes a network or a port.
    Delete(Change),
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

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// `networks`
    Network,
    /// `ports`
    Port,
}

/// A change of one network or port.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What it is.
    pub resource: Resource,
    /// Its id.
    pub id: Id,
    /// Its VLAN.
    pub vid: VlanId,
    /// The change is refused when the resource was changed since it was read.
    pub revision: Option<u64>,
    /// The new attributes; empty for a deletion.
    pub attributes: Map<String, Value>,
}

/// The HTTP form of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// `POST`, `PUT` or `DELETE`.
    pub method: &'static str,
    /// Below `/v2.0/`.
    pub path: String,
    /// The value of `If-Match`.
    pub if_match: Option<String>,
    /// The body.
    pub body: Option<Value>,
}

impl Resource {
    /// Its name in paths and bodies.
    pub fn collection(self) -> &'static str {
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

impl Request {
    /// Its HTTP form.
    pub fn http(&self) -> HttpRequest {
        let post = |collection: &str, items: Vec<&Value>| HttpRequest {
            method: "POST",
            path: collection.to_owned(),
            if_match: None,
            body: Some(json!({ collection: items })),
        };
        let put = |trunk: &str, action: &str, sub_ports: Vec<Value>| HttpRequest {
            method: "PUT",
            path: format!("trunks/{trunk}/{action}"),
            if_match: None,
            body: Some(json!({ "sub_ports": sub_ports })),
        };
        let change = |method, change: &Change, body| HttpRequest {
            method,
            path: format!("{}/{}", change.resource.collection(), change.id),
            if_match: change.revision.map(|revision| format!("revision_number={revision}")),
            body,
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
            Self::Update(updated) => {
                change("PUT", updated, Some(json!({ updated.resource.singular(): updated.attributes })))
            }
            Self::Delete(deleted) => change("DELETE", deleted, None),
        }
    }

    /// The number of networks, ports or sub-ports that it changes.
    pub fn count(&self) -> usize {
        match self {
            Self::CreateNetworks(new) => new.len(),
            Self::CreatePorts(new) => new.len(),
            Self::AddSubPorts { ports, .. } | Self::RemoveSubPorts { ports, .. } => ports.len(),
            Self::Update(_) | Self::Delete(_) => 1,
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
            Self::Update(_) | Self::Delete(_) => return None,
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
                view.trunks.insert(id.clone(), trunk);
                return Ok(vec![id]);
            }
            Self::Update(Change { resource: Resource::Network, .. }) => {
                (vec![part(answer, "network")?], Vec::new())
            }
            Self::Update(Change { resource: Resource::Port, .. }) => {
                (Vec::new(), vec![part(answer, "port")?])
            }
            Self::Delete(change) => {
                match change.resource {
                    Resource::Network => drop(view.networks.remove(&change.id)),
                    Resource::Port => drop(view.ports.remove(&change.id)),
                }
                return Ok(vec![change.id.clone()]);
            }
        };
        let ids = networks.iter().map(|network| &network.id).chain(ports.iter().map(|port| &port.id));
        let ids = ids.cloned().collect();
        view.networks.extend(networks.into_iter().map(|network| (network.id.clone(), network)));
        view.ports.extend(ports.into_iter().map(|port| (port.id.clone(), port)));
        Ok(ids)
    }

    /// Writes into the view what Neutron would answer. Ids of new resources name what they are of.
    pub fn predict(&self, view: &mut View) -> Result<Vec<Id>, serde_json::Error> {
        let with_id = |attributes: &Value, mut id: String| {
            let is_taken = |id: &str| {
                let id = format!("<{id}>");
                view.networks.contains_key(&id) || view.ports.contains_key(&id)
            };
            while is_taken(&id) {
                id.insert_str(0, "another ");
            }
            let mut resource = attributes.clone();
            // Neutron's defaults.
            for (key, value) in [("admin_state_up", json!(true)), ("id", json!(format!("<{id}>")))] {
                if let Some(resource) = resource.as_object_mut() {
                    resource.entry(key).or_insert(value);
                }
            }
            resource
        };
        let answer = match self {
            Self::CreateNetworks(new) => {
                let network = |new: &NewNetwork| {
                    with_id(&new.attributes, format!("id of the network of VLAN {}", new.vid))
                };
                json!({ "networks": new.iter().map(network).collect::<Vec<_>>() })
            }
            Self::CreatePorts(new) => {
                let port = |new: &NewPort| {
                    let id = format!("id of the port of VLAN {} for trunk {}", new.vid, new.trunk);
                    with_id(&new.attributes, id)
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
            Self::Update(change) => {
                let resource = match change.resource {
                    Resource::Network => serde_json::to_value(view.networks.get(&change.id))?,
                    Resource::Port => serde_json::to_value(view.ports.get(&change.id))?,
                };
                let mut resource = resource.as_object().cloned().unwrap_or_default();
                resource.extend(change.attributes.clone());
                json!({ change.resource.singular(): resource })
            }
            Self::Delete(_) => Value::Null,
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
            Self::Update(change) | Self::Delete(change) => [change.vid].into_iter().collect(),
        }
    }
}

/// What the request does, for messages.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vlans = self.vlans();
        match self {
            Self::CreateNetworks(_) => write!(f, "make the networks of VLANs {vlans}"),
            Self::CreatePorts(_) => write!(f, "make the ports of VLANs {vlans}"),
            Self::AddSubPorts { trunk, .. } => {
                write!(f, "add the sub-ports of VLANs {vlans} to trunk {trunk}")
            }
            Self::RemoveSubPorts { trunk, .. } => {
                write!(f, "take the sub-ports of VLANs {vlans} off trunk {trunk}")
            }
            Self::Update(change) => {
                write!(f, "change {} {} of VLAN {vlans}", change.resource.singular(), change.id)
            }
            Self::Delete(change) => {
                write!(f, "delete {} {} of VLAN {vlans}", change.resource.singular(), change.id)
            }
        }
    }
}

/// The part of an answer below `key`.
fn part<T: DeserializeOwned>(mut answer: Value, key: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(answer.get_mut(key).map(Value::take).unwrap_or_default())
}
