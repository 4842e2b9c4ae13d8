//! What the caller asks for: the environment and the configuration.

use std::net::IpAddr;

use eno_ipam::{Netns, PoolDir, Requester, Root};
use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Code, Failure};

/// A version of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(&'static str);

impl Version {
    /// Those that the plugin speaks, ascending.
    pub const ALL: [&'static str; 4] = ["0.3.1", "0.4.0", "1.0.0", Self::NEWEST];
    /// The newest one.
    pub const NEWEST: &'static str = "1.1.0";

    /// That of a configuration.
    pub fn of(config: &Value) -> Result<Self, Failure> {
        // The specification's default.
        let version = config["cniVersion"].as_str().unwrap_or("0.1.0");
        let known = Self::ALL.into_iter().find(|known| *known == version);
        known.map(Self).ok_or_else(|| {
            Failure::new(Code::Version, format!("cniVersion {version:?} is none of {}", Self::ALL.join(", ")))
        })
    }

    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// Checks that the version knows a command.
    pub fn allows(self, command: &str) -> Result<(), Failure> {
        let since = match command {
            "CHECK" => "0.4.0",
            "GC" | "STATUS" => "1.1.0",
            _ => return Ok(()),
        };
        if self.0 >= since {
            return Ok(());
        }
        Err(Failure::new(
            Code::Version,
            format!("cniVersion {} has no {command}, which came with {since}", self.0),
        ))
    }
}

/// A route, as it is handed on.
#[derive(Debug, Deserialize, Serialize)]
pub struct Route {
    dst: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
}

/// An interface.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct Attachment {
    #[serde(rename = "containerID")]
    pub container: String,
    pub ifname: String,
}

impl Attachment {
    /// The one that the command is about.
    pub fn from_env() -> Result<Self, Failure> {
        Ok(Self { container: variable("CNI_CONTAINERID")?, ifname: variable("CNI_IFNAME")? })
    }
}

/// A command about addresses.
pub struct Request {
    /// Of the configuration.
    pub version: Version,
    /// The configuration. Each command parses only what it needs, so that DEL doesn't fail for the rest.
    pub config: Value,
}

impl Request {
    /// The pools of the configuration: one, or one of each family.
    pub fn pools(&self, root: &Root) -> Result<Vec<PoolDir>, Failure> {
        let names: Vec<String> = self.part("/ipam/pools")?;
        if !(1..=2).contains(&names.len()) || names.first() == names.get(1) {
            return Err(Failure::new(
                Code::Config,
                "ipam.pools has to name one Subnet, or one of each family",
            ));
        }
        names.iter().map(|name| root.pool(name).map_err(Into::into)).collect()
    }

    /// Who asks for an address.
    pub fn requester(&self) -> Result<Requester, Failure> {
        let Attachment { container, ifname } = Attachment::from_env()?;
        let path = variable("CNI_NETNS")?;
        let netns = Netns::at(&path).map_err(|error| {
            Failure::new(Code::Environment, format!("CNI_NETNS: look at {path}: {error}"))
        })?;
        let (namespace, pod) = pod(&std::env::var("CNI_ARGS").unwrap_or_default())?;
        Ok(Requester { container, ifname, namespace, pod, wanted: self.wanted()?, netns })
    }

    /// The addresses that the pod asks for, with or without prefix length.
    fn wanted(&self) -> Result<Vec<IpAddr>, Failure> {
        let mut texts: Vec<String> = self.part("/runtimeConfig/ips")?;
        if texts.is_empty() {
            texts = self.part("/args/cni/ips")?;
        }
        texts.iter().map(|text| parse("ips", text)).collect()
    }

    /// The addresses of `prevResult`; `None`: there is none.
    pub fn former_addresses(&self) -> Result<Option<Vec<IpAddr>>, Failure> {
        if self.config["prevResult"].is_null() {
            return Ok(None);
        }
        let ips: Vec<Value> = self.part("/prevResult/ips")?;
        let addresses = ips.iter().filter_map(|ip| ip["address"].as_str());
        addresses.map(|text| parse("prevResult.ips", text)).collect::<Result<_, _>>().map(Some)
    }

    /// The routes for the pod.
    pub fn routes(&self) -> Result<Vec<Route>, Failure> {
        self.part("/ipam/routes")
    }

    /// The interfaces that still exist, as the caller of GC knows.
    pub fn valid(&self) -> Result<Vec<Attachment>, Failure> {
        self.part("/cni.dev~1valid-attachments")
    }

    /// A list of the configuration. What is absent or null is empty.
    fn part<T: DeserializeOwned>(&self, pointer: &str) -> Result<Vec<T>, Failure> {
        match self.config.pointer(pointer) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(part) => Vec::deserialize(part).map_err(|error| {
                Failure::new(Code::Config, format!("{pointer} of the configuration: {error}"))
            }),
        }
    }
}

/// An address with or without prefix length.
fn parse(field: &str, text: &str) -> Result<IpAddr, Failure> {
    let address = text.parse().or_else(|_| text.parse::<IpNet>().map(|net| net.addr()));
    address.map_err(|_| Failure::new(Code::Config, format!("{field}: {text:?} is no address")))
}

/// A variable that has to be there.
pub fn variable(name: &str) -> Result<String, Failure> {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        Ok(_) | Err(std::env::VarError::NotPresent) => {
            Err(Failure::new(Code::Environment, format!("{name} is missing")))
        }
        Err(error) => Err(Failure::new(Code::Environment, format!("{name}: {error}"))),
    }
}

/// Namespace and name of the pod in `CNI_ARGS`: `IgnoreUnknown=1;K8S_POD_NAMESPACE=apps;K8S_POD_NAME=web`.
fn pod(args: &str) -> Result<(String, String), Failure> {
    let failed = |message: String| Failure::new(Code::Environment, format!("CNI_ARGS: {message}"));
    let (mut namespace, mut pod, mut unknown, mut ignore) = (None, None, None, false);
    for arg in args.split(';').filter(|arg| !arg.is_empty()) {
        let (key, value) = arg.split_once('=').ok_or_else(|| failed(format!("{arg:?} has no '='")))?;
        match key {
            "K8S_POD_NAMESPACE" => namespace = Some(value.to_owned()),
            "K8S_POD_NAME" => pod = Some(value.to_owned()),
            "IgnoreUnknown" => ignore = ["1", "true", "TRUE", "True"].contains(&value),
            _ => unknown = Some(key),
        }
    }
    if let Some(unknown) = unknown.filter(|_| !ignore) {
        return Err(failed(format!("{unknown} is unknown, and IgnoreUnknown is not set")));
    }
    match (namespace, pod) {
        (Some(namespace), Some(pod)) if !namespace.is_empty() && !pod.is_empty() => Ok((namespace, pod)),
        _ => Err(failed("K8S_POD_NAMESPACE and K8S_POD_NAME have to name the pod".into())),
    }
}
