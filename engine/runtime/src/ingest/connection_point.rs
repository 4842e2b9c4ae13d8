//! ConnectionPoints: `Opts` is JSON text, and each CNI plugin has keys of its own in it.

use eno_core::spec::{CniName, ConnectionPointSpec, Invalid, Plugin, SupportedCni};
use eno_nbi_crds as crds;
use eno_schemas::OvsDatapath;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{interface_name, plain};

/// All keys that any plugin knows; others are left to the plugins of other implementations.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Opts {
    bridge_name: Option<String>,
    socket_file: Option<String>,
    datapath: Option<String>,
    patch: Option<String>,
    pool_name: Option<String>,
    master: Option<String>,
    engine: Option<String>,
    if_type: Option<String>,
}

pub(super) fn connection_point(source: crds::ConnectionPointSpec) -> Result<ConnectionPointSpec, Invalid> {
    if source.supported_cnis.is_empty() {
        return Err(Invalid::new("SupportedCnis", "is empty; name at least one CNI"));
    }
    for (index, interface) in source.interfaces.iter().enumerate() {
        interface_name(&format!("Interfaces[{index}]"), interface)?;
    }
    super::names("Interfaces", &source.interfaces)?;
    let cnis = source.supported_cnis.iter().enumerate();
    Ok(ConnectionPointSpec {
        cnis: cnis.map(|(index, cni)| supported(index, cni)).collect::<Result<_, _>>()?,
        node_pool: source.node_pool.map(Into::into),
        interfaces: source.interfaces,
    })
}

fn supported(index: usize, source: &crds::SupportedCni) -> Result<SupportedCni, Invalid> {
    if source.supported_interface_types.is_empty() {
        let field = format!("SupportedCnis[{index}].SupportedInterfaceTypes");
        return Err(Invalid::new(field, "is empty; name kernel, dpdk or both"));
    }
    let field = format!("SupportedCnis[{index}].Opts");
    let text = source.opts.as_deref().map(str::trim).filter(|text| !text.is_empty()).unwrap_or("{}");
    let opts =
        serde_json::from_str::<Map<String, Value>>(text).map(Value::Object).and_then(Opts::deserialize);
    let opts = opts.map_err(|error| {
        let example = r#"{"BridgeName": "br-data"}"#;
        let problem = format!("is not a JSON object with text values, such as '{example}': {error}");
        Invalid::new(&field, problem)
    })?;
    Ok(SupportedCni {
        interfaces: source.supported_interface_types.iter().copied().map(plain::interface).collect(),
        plugin: plugin(&field, plain::cni(source.name), opts)?,
    })
}

fn plugin(field: &str, name: CniName, opts: Opts) -> Result<Plugin, Invalid> {
    let needs = |key: &str, example: &str| {
        let problem =
            format!("{} needs the key {key}, such as '{{\"{key}\": \"{example}\"}}'", name.as_str());
        Invalid::new(field, problem)
    };
    let interface = |value: Option<String>, key: &str, example: &str| {
        let value = value.ok_or_else(|| needs(key, example))?;
        interface_name(&format!("{field}.{key}"), &value)?;
        Ok(value)
    };
    let pool = |value: Option<String>| {
        let value = value.ok_or_else(|| needs("PoolName", "vendor.com/nics"))?;
        pool_name(&format!("{field}.PoolName"), &value)?;
        Ok(value)
    };
    Ok(match name {
        CniName::Ovs => {
            if let Some(path) = &opts.socket_file {
                socket_file(&format!("{field}.SocketFile"), path)?;
            }
            let bridge_name = interface(opts.bridge_name, "BridgeName", "br-data")?;
            let datapath =
                opts.datapath.map(|name| datapath(&format!("{field}.Datapath"), &name)).transpose()?;
            if let Some(patch) = &opts.patch {
                interface_name(&format!("{field}.Patch"), patch)?;
                if *patch == bridge_name {
                    let problem =
                        format!("{patch} is the bridge itself; name the bridge that it is joined to");
                    return Err(Invalid::new(format!("{field}.Patch"), problem));
                }
            }
            Plugin::Ovs { bridge_name, socket_file: opts.socket_file, datapath, patch: opts.patch }
        }
        CniName::Bridge => {
            Plugin::Bridge { bridge_name: interface(opts.bridge_name, "BridgeName", "br-data")? }
        }
        CniName::Macvlan => Plugin::Macvlan { master: interface(opts.master, "Master", "eth1")? },
        CniName::Ipvlan => Plugin::Ipvlan { master: interface(opts.master, "Master", "eth1")? },
        CniName::Vlan => Plugin::Vlan { master: interface(opts.master, "Master", "eth1")? },
        CniName::HostDevice => Plugin::HostDevice { pool_name: pool(opts.pool_name)? },
        CniName::Sriov => Plugin::Sriov { pool_name: pool(opts.pool_name)? },
        CniName::Userspace => Plugin::Userspace {
            bridge_name: interface(opts.bridge_name, "BridgeName", "br-data")?,
            engine: one_of(&format!("{field}.Engine"), opts.engine, &["ovs-dpdk", "vpp"])?,
            if_type: one_of(&format!("{field}.IfType"), opts.if_type, &["vhostuser", "memif"])?,
        },
    })
}

/// One of the texts that a plugin knows; the first when there is none.
fn one_of(field: &str, value: Option<String>, known: &[&str]) -> Result<String, Invalid> {
    let value = value.unwrap_or_else(|| known.first().copied().unwrap_or_default().to_owned());
    if known.contains(&value.as_str()) {
        return Ok(value);
    }
    Err(Invalid::new(field, format!("{value:?} is unknown; use {}", known.join(" or "))))
}

fn datapath(field: &str, name: &str) -> Result<OvsDatapath, Invalid> {
    match name {
        "system" => Ok(OvsDatapath::System),
        "netdev" => Ok(OvsDatapath::Netdev),
        _ => Err(Invalid::new(field, format!("{name:?} is unknown; use system or netdev"))),
    }
}

/// A device plugin's resource: a name, with its domain before a slash where it has one.
fn pool_name(field: &str, value: &str) -> Result<(), Invalid> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let part = |part: &str| {
        part.len() <= 253 && part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.bytes().all(inner)
    };
    let parts: Vec<&str> = value.split('/').collect();
    if parts.len() <= 2 && parts.iter().all(|one| part(one)) {
        return Ok(());
    }
    Err(Invalid::new(field, format!("{value:?} is not the name of a resource, such as vendor.com/nics")))
}

fn socket_file(field: &str, path: &str) -> Result<(), Invalid> {
    let path_of = path.strip_prefix("unix:").unwrap_or(path);
    // The longest `sun_path` of Linux, with its final zero byte.
    let good = path_of.starts_with('/')
        && path_of.len() < 108
        && path_of.bytes().all(|byte| byte.is_ascii_graphic());
    if good {
        return Ok(());
    }
    Err(Invalid::new(field, format!("{path:?} is not a socket's absolute path of at most 107 characters")))
}
