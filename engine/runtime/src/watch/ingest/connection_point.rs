//! ConnectionPoints: `Opts` is JSON text, whose keys depend on the CNI plugin.

use eno_core::kinds::{ConnectionPointSpec, Invalid, Plugin, SupportedCni, Verify};
use eno_nbi_crds as crds;
use eno_schemas::{CniName, OvsDatapath};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{interface_name, link};

/// The keys of all plugins, except [`MTU`]. Other keys belong to plugins of other implementations.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Opts {
    /// `BridgeName` of ovs, bridge and userspace.
    bridge_name: Option<String>,
    /// `SocketFile` of ovs.
    socket_file: Option<String>,
    /// `Datapath` of ovs.
    datapath: Option<String>,
    /// `Patch` of ovs.
    patch: Option<String>,
    /// `PoolName` of ovs, host-device and sriov.
    pool_name: Option<String>,
    /// `Master` of macvlan, ipvlan and vlan.
    master: Option<String>,
    /// `Engine` of userspace.
    engine: Option<String>,
    /// `IfType` of userspace.
    if_type: Option<String>,
}

/// Key of the default MTU of attachments.
const MTU: &str = "MTU";
const POOL_NAME: &str = "PoolName";

/// The keys of a plugin.
fn keys(name: CniName) -> &'static [&'static str] {
    match name {
        CniName::Ovs => &["BridgeName", "SocketFile", "Datapath", "Patch", POOL_NAME, MTU],
        CniName::Bridge => &["BridgeName", MTU],
        CniName::Macvlan | CniName::Ipvlan | CniName::Vlan => &["Master", MTU],
        CniName::HostDevice | CniName::Sriov => &[POOL_NAME],
        CniName::Userspace => &["BridgeName", "Engine", "IfType"],
    }
}

/// Text about the parts of a ConnectionPoint's Opts without effect: unknown keys, and unusable values of [`MTU`] and
/// of ovs' PoolName. `None`: there are none.
pub(super) fn unknown_opts(spec: &Value) -> Option<String> {
    /// Maximum problems that are listed.
    const NAMED: usize = 8;
    let cnis = spec["SupportedCnis"].as_array().into_iter().flatten().enumerate();
    let mut messages: Vec<String> = cnis
        .filter_map(|(index, cni)| {
            let name = CniName::deserialize(&cni["Name"]).ok()?;
            let opts: Map<String, Value> = serde_json::from_str(cni["Opts"].as_str()?).ok()?;
            let unknown = |(key, value): (&String, &Value)| {
                if keys(name).contains(&key.as_str()) {
                    unusable(index, name, key, value)
                } else {
                    Some(unknown_key(index, name, key))
                }
            };
            Some(opts.iter().filter_map(unknown).collect::<Vec<_>>())
        })
        .flatten()
        .collect();
    let more = messages.len().saturating_sub(NAMED);
    messages.truncate(NAMED);
    if more > 0 {
        messages.push(format!("{more} more"));
    }
    (!messages.is_empty()).then(|| messages.join("; "))
}

/// Why the value of a known key counts as absent without an error. Objects that had the key before the plugin knew it
/// stay valid.
fn unusable(index: usize, name: CniName, key: &str, value: &Value) -> Option<String> {
    let field = format!("SupportedCnis[{index}].Opts.{key}");
    let invalid = match (name, key, value) {
        (_, _, Value::Null) => return None,
        (_, MTU, value) => mtu_of(&field, value).err()?,
        (CniName::Ovs, POOL_NAME, Value::String(value)) => pool_name(&field, value).err()?,
        _ => return None,
    };
    Some(format!("{invalid}; it counts as absent"))
}

fn unknown_key(index: usize, name: CniName, key: &str) -> String {
    /// Minimum similarity at which a key is taken for a misspelling.
    const ALIKE: f64 = 0.6;
    let alike = |known: &str| {
        strsim::normalized_damerau_levenshtein(&known.to_ascii_lowercase(), &key.to_ascii_lowercase())
    };
    let nearest = keys(name).iter().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let hint = match nearest.filter(|nearest| alike(nearest) >= ALIKE) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("it has {}", keys(name).join(", ")),
    };
    let shown: String = key.chars().take(64).collect();
    format!("spec.SupportedCnis[{index}].Opts: {} has no key {shown:?}; {hint}", name.as_str())
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
        trunk_namespaces: super::optional_selector("TrunkNamespaces", source.trunk_namespaces.as_ref())?,
        verify: source.verify.as_ref().map_or_else(|| Ok(Verify::default()), verify)?,
    })
}

fn verify(source: &crds::Verify) -> Result<Verify, Invalid> {
    let default = Verify::default();
    let interval = source.interval.unwrap_or(default.interval);
    if !(30..=86_400).contains(&interval) {
        return Err(Invalid::new("Verify.Interval", format!("{interval} is not in 30 to 86400 seconds")));
    }
    let (mode, between) = (source.mode.unwrap_or_default(), source.between.unwrap_or_default());
    Ok(Verify { mode, between, interval })
}

fn supported(index: usize, source: &crds::SupportedCni) -> Result<SupportedCni, Invalid> {
    if source.supported_interface_types.is_empty() {
        let field = format!("SupportedCnis[{index}].SupportedInterfaceTypes");
        return Err(Invalid::new(field, "is empty; name kernel, dpdk or both"));
    }
    let field = format!("SupportedCnis[{index}].Opts");
    let text = source.opts.as_deref().map(str::trim).filter(|text| !text.is_empty()).unwrap_or("{}");
    let unreadable = |error: serde_json::Error| {
        let example = r#"{"BridgeName": "br-data"}"#;
        let problem = format!("is not a JSON object with text values, such as '{example}': {error}");
        Invalid::new(&field, problem)
    };
    let mut opts: Map<String, Value> = serde_json::from_str(text).map_err(unreadable)?;
    let name = source.name;
    let mtu = opts.remove(MTU).filter(|value| !value.is_null() && keys(name).contains(&MTU));
    let opts = Opts::deserialize(Value::Object(opts)).map_err(unreadable)?;
    Ok(SupportedCni {
        interfaces: source.supported_interface_types.clone(),
        plugin: plugin(&field, name, opts)?,
        // [`unknown_opts`] reports unusable values.
        mtu: mtu.and_then(|value| mtu_of(&field, &value).ok()),
    })
}

/// A number, or its text.
fn mtu_of(field: &str, value: &Value) -> Result<u32, Invalid> {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    // Values of unknown plugins may be long.
    let shown = || value.to_string().chars().take(64).collect::<String>();
    let number = number
        .ok_or_else(|| Invalid::new(field, format!("{} is no number of bytes, such as 9000", shown())))?;
    link::mtu(field, number)?;
    Ok(number)
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
            let pool_name = opts.pool_name.filter(|name| pool_name(POOL_NAME, name).is_ok());
            let Opts { socket_file, patch, .. } = opts;
            Plugin::Ovs { bridge_name, socket_file, datapath, patch, pool_name }
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

/// One of the known texts; the first one by default.
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

/// The resource of a device plugin: a name, optionally with a domain before a slash.
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
    // The maximum `sun_path` of Linux, including its terminating zero.
    let good = path_of.starts_with('/')
        && path_of.len() < 108
        && path_of.bytes().all(|byte| byte.is_ascii_graphic());
    if good {
        return Ok(());
    }
    Err(Invalid::new(field, format!("{path:?} is not a socket's absolute path of at most 107 characters")))
}
