//! Reads the files of the OVS fabric plugin: two ConfigMaps, or just their content.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::ImportError;
use crate::yaml;

/// A file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name in messages.
    pub name: String,
    /// YAML, with one document or several, or JSON.
    pub text: String,
}

/// The content of all files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The key `links`: NICs and their switch ports.
    pub links: Vec<Link>,
    /// The key `nodePools`: NICs and their ConnectionPoints.
    pub pools: Vec<Pool>,
    /// `FABRIC_OVS_IP` and `FABRIC_OVS_PORT` of the plugin's Deployment.
    pub address: Option<String>,
    /// The ConnectionPoints in the files, by name, with their place.
    pub connection_points: BTreeMap<String, (String, Value)>,
}

/// A cable between a NIC and a port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The file and the field.
    pub place: String,
    /// The node: `hostname`.
    pub node: String,
    /// The node's NIC: `interfaceName`.
    pub interface: String,
    /// The bridge: `switchName`.
    pub switch: String,
    /// The bridge's port: `switchPort`.
    pub port: String,
}

/// A pool of nodes, which have the label `node-pool` with the pool's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The file and the field.
    pub place: String,
    /// `poolConf.name`.
    pub name: String,
    /// The entries of `poolConf.netConf.interfaces` that have a `connectionPoint`.
    pub interfaces: Vec<PoolInterface>,
}

/// A NIC of each node of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInterface {
    /// The file and the field.
    pub place: String,
    /// `name`.
    pub name: String,
    /// `connectionPoint`.
    pub connection_point: String,
}

impl Input {
    /// Reads all files, and ignores objects of other kinds.
    pub fn read(sources: &[Source]) -> Result<Self, ImportError> {
        let mut reader = Reader::default();
        for source in sources {
            for document in documents(&source.name, &source.text)? {
                reader.document(&source.name, &document)?;
            }
        }
        let input = reader.input;
        reader.links.ok_or(ImportError::Missing {
            what: "links (hostname, interfaceName, switchName, switchPort)",
        })?;
        reader.pools.ok_or(ImportError::Missing { what: "nodePools (poolConf with name and netConf)" })?;
        Ok(input)
    }
}

#[derive(Default)]
struct Reader {
    input: Input,
    /// The place of the links, once found.
    links: Option<String>,
    /// The place of the pools, once found.
    pools: Option<String>,
}

impl Reader {
    fn document(&mut self, file: &str, document: &Value) -> Result<(), ImportError> {
        match document {
            Value::Null => Ok(()),
            Value::Array(items) => {
                let pools = items.first().is_some_and(|item| item.get("poolConf").is_some());
                let what = if pools { Part::Pools } else { Part::Links };
                self.part(what, &format!("{file}: "), document)
            }
            Value::Object(fields) => {
                if let Some(kind) = fields.get("kind").and_then(Value::as_str) {
                    self.object(file, kind, fields)
                } else {
                    let at = format!("{file}: ");
                    if self.parts(&at, fields)? {
                        return Ok(());
                    }
                    let problem = "holds neither links nor nodePools, and is no manifest".to_owned();
                    Err(ImportError::Field { place: format!("{file}:"), problem })
                }
            }
            other => Err(field(format!("{file}:"), format!("is {other}, not links or nodePools"))),
        }
    }

    fn object(&mut self, file: &str, kind: &str, fields: &Map<String, Value>) -> Result<(), ImportError> {
        match kind {
            "List" => {
                for item in fields.get("items").and_then(Value::as_array).into_iter().flatten() {
                    self.document(file, item)?;
                }
            }
            "ConfigMap" => {
                if let Some(Value::Object(data)) = fields.get("data") {
                    self.parts(&format!("{file}: data."), data)?;
                }
            }
            "Deployment" => self.deployment(fields),
            "ConnectionPoint" => {
                let name = fields.get("metadata").and_then(|metadata| metadata.get("name"));
                let place = format!("{file}: ConnectionPoint");
                let name = text(&place, "metadata.name", name)?;
                let place = format!("{place} {name}");
                let previous = self
                    .input
                    .connection_points
                    .insert(name.clone(), (place.clone(), Value::Object(fields.clone())));
                if let Some((first, _)) = previous {
                    let problem = "have the same name".to_owned();
                    return Err(ImportError::Conflict { first, second: place, problem });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn deployment(&mut self, fields: &Map<String, Value>) {
        let containers = Value::Object(fields.clone());
        let containers = containers.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            let env = container.get("env").and_then(Value::as_array);
            let variable = |name: &str| {
                let found = env?.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name))?;
                Some(found.get("value")?.as_str()?.to_owned())
            };
            if let (Some(host), Some(port)) = (variable("FABRIC_OVS_IP"), variable("FABRIC_OVS_PORT")) {
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                self.input.address = Some(format!("tcp:{host}:{port}"));
            }
        }
    }

    /// Reads links and pools from an object's fields; true if it has any.
    fn parts(&mut self, at: &str, fields: &Map<String, Value>) -> Result<bool, ImportError> {
        let mut any = false;
        for (key, part) in [("links", Part::Links), ("nodePools", Part::Pools)] {
            let Some(value) = fields.get(key) else { continue };
            any = true;
            let place = format!("{at}{key}");
            match value {
                // A ConfigMap contains them as text.
                Value::String(inner) => {
                    let mut inner = documents(&place, inner)?;
                    let inner = if inner.len() == 1 { inner.remove(0) } else { Value::Null };
                    self.part(part, &place, &inner)?;
                }
                other => self.part(part, &place, other)?,
            }
        }
        Ok(any)
    }

    fn part(&mut self, part: Part, place: &str, value: &Value) -> Result<(), ImportError> {
        let (known, what) = match part {
            Part::Links => (&mut self.links, "links"),
            Part::Pools => (&mut self.pools, "nodePools"),
        };
        let named = place.trim_end().to_owned();
        if let Some(first) = known {
            let problem = format!("both hold {what}: the plugin reads one of them; give only that");
            return Err(ImportError::Conflict { first: first.clone(), second: named, problem });
        }
        *known = Some(named.clone());
        let items = value.as_array().ok_or_else(|| field(named, "is not a list".into()))?;
        for (index, item) in items.iter().enumerate() {
            let place = format!("{place}[{index}]");
            match part {
                Part::Links => self.input.links.push(link(&place, item)?),
                Part::Pools => self.input.pools.push(pool(&place, item)?),
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Part {
    Links,
    Pools,
}

fn link(place: &str, item: &Value) -> Result<Link, ImportError> {
    let get = |key: &str| text(place, key, item.get(key));
    let link = Link {
        node: get("hostname")?,
        interface: get("interfaceName")?,
        switch: get("switchName")?,
        port: get("switchPort")?,
        place: place.to_owned(),
    };
    object_name(place, "hostname", &link.node)?;
    interface_name(place, "interfaceName", &link.interface)?;
    let printable = link.port.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if !printable || link.port.trim() != link.port || link.port.len() > 63 {
        let problem = format!("{:?} is not the name of a port: at most 63 printable characters", link.port);
        return Err(field(format!("{place}.switchPort"), problem));
    }
    Ok(link)
}

fn pool(place: &str, item: &Value) -> Result<Pool, ImportError> {
    let place = format!("{place}.poolConf");
    let conf = item.get("poolConf").filter(|conf| conf.is_object());
    let conf = conf.ok_or_else(|| field(place.clone(), "is not there".into()))?;
    let name = text(&place, "name", conf.get("name"))?;
    object_name(&place, "name", &name)?;
    let at = format!("{place}.netConf.interfaces");
    let interfaces = match conf.pointer("/netConf/interfaces") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(interfaces)) => interfaces,
        Some(_) => return Err(field(at, "is not a list".into())),
    };
    let mut of_points = Vec::new();
    for (index, interface) in interfaces.iter().enumerate() {
        let place = format!("{at}[{index}]");
        let name = text(&place, "name", interface.get("name"))?;
        let point = match interface.get("connectionPoint") {
            None | Some(Value::Null) => continue,
            Some(Value::String(none)) if none.is_empty() => continue,
            point => text(&place, "connectionPoint", point)?,
        };
        object_name(&place, "connectionPoint", &point)?;
        interface_name(&place, "name", &name)?;
        of_points.push(PoolInterface { place, name, connection_point: point });
    }
    Ok(Pool { place, name, interfaces: of_points })
}

fn documents(place: &str, text: &str) -> Result<Vec<Value>, ImportError> {
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(vec![json]);
    }
    yaml::documents(text).map_err(|source| ImportError::Syntax { place: place.trim_end().to_owned(), source })
}

fn text(place: &str, key: &str, value: Option<&Value>) -> Result<String, ImportError> {
    let invalid = |problem: String| Err(field(format!("{place}.{key}"), problem));
    match value {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::String(_)) => invalid("is empty".into()),
        None | Some(Value::Null) => invalid("is not there".into()),
        Some(other) => invalid(format!("is {other}, which is no text")),
    }
}

/// RFC 1123 subdomain.
fn object_name(place: &str, key: &str, name: &str) -> Result<(), ImportError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let end = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let label = |label: &str| {
        let bytes = label.as_bytes();
        label.bytes().all(inner) && end(bytes.first()) && end(bytes.last())
    };
    if name.len() <= 253 && name.split('.').all(label) {
        return Ok(());
    }
    let problem =
        format!("{name:?} can't be the name of an object: use lower case letters, digits, '-' and '.'");
    Err(field(format!("{place}.{key}"), problem))
}

fn interface_name(place: &str, key: &str, name: &str) -> Result<(), ImportError> {
    if is_interface_name(name) {
        return Ok(());
    }
    let problem =
        format!("{name:?} is not the name of an interface: at most 15 letters, digits, '_', '.' and '-'");
    Err(field(format!("{place}.{key}"), problem))
}

/// Whether the API server accepts the name of an interface.
pub(super) fn is_interface_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    name.len() <= 15
        && name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
        && name.bytes().all(inner)
}

pub(super) fn field(place: String, problem: String) -> ImportError {
    ImportError::Field { place, problem }
}
