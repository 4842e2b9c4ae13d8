//! How long ADD and DEL take, beside the plugins `host-local` and `static`. Each is called as a container runtime calls it,
//! one after the other, by turns.
//!
//! ```text
//! cargo bench -p eno-ipam
//! ```
//!
//! The plugins are looked for in `CNI_PATH`, else in the cache of the sandbox's parts (`~/.cache/eno/cni-*`). Pools are in
//! the folder for temporary files. Only `eno-ipam` waits until a lease is on the disk.

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use eno_ipam::Root;
use eno_schemas::NodeAddresses;
use serde_json::{Value, json};

const ROUNDS: usize = 200;
/// Pods that have addresses meanwhile.
const PODS: usize = 100;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Plugin {
    name: &'static str,
    path: PathBuf,
    config: Value,
    add: Vec<Duration>,
    del: Vec<Duration>,
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let ranges: NodeAddresses = serde_json::from_value(
        json!({ "network": "10.0.0.0/16", "blocks": ["10.0.1.0/24", "10.0.2.0/24"] }),
    )?;
    Root::new(folder.path()).pool("storage")?.lock()?.set_ranges(Some(&ranges))?;
    let plugins = plugins()?;
    let config =
        |ipam: Value| json!({ "cniVersion": "0.3.1", "name": "net", "type": "bridge", "ipam": ipam });
    let range = json!([[{ "subnet": "10.0.0.0/16", "rangeStart": "10.0.1.0", "rangeEnd": "10.0.2.255" }]]);
    let local = json!({ "type": "host-local", "dataDir": folder.path().join("local"), "ranges": range });
    let plugin =
        |name, path, ipam| Plugin { name, path, config: config(ipam), add: Vec::new(), del: Vec::new() };
    let ours = env!("CARGO_BIN_EXE_eno-ipam").into();
    let mut plugins = [
        plugin("eno-ipam", ours, json!({ "type": "eno-ipam", "pools": ["storage"] })),
        plugin("host-local", plugins.join("host-local"), local),
        plugin(
            "static",
            plugins.join("static"),
            json!({ "type": "static", "addresses": [{ "address": "10.0.0.9/16" }] }),
        ),
    ];
    for plugin in &plugins {
        for pod in 0..PODS {
            call(plugin, "ADD", &format!("pod{pod}"), folder.path())?;
        }
    }
    for round in 0..ROUNDS {
        for plugin in &mut plugins {
            let container = format!("round{round}");
            let took = call(plugin, "ADD", &container, folder.path())?;
            plugin.add.push(took);
            let took = call(plugin, "DEL", &container, folder.path())?;
            plugin.del.push(took);
        }
    }
    let host_local = plugins[1].add.clone();
    println!("{ROUNDS} calls beside {PODS} pods; median, and the slowest of ten in milliseconds");
    for Plugin { name, add, del, .. } in plugins {
        let ratio = at(&add, 50) / at(&host_local, 50);
        let [add_median, add_slow, del_median] = [at(&add, 50), at(&add, 90), at(&del, 50)];
        println!(
            "{name:10}  ADD {add_median:.2} {add_slow:.2} ({ratio:.2} of host-local)  DEL {del_median:.2}"
        );
    }
    Ok(())
}

/// A percentile in milliseconds.
fn at(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[times.len() * percent / 100].as_secs_f64() * 1000.0
}

/// Calls a plugin, for which the folder stands for the namespace of the pod. The call has to succeed, and returns how long it took.
fn call(plugin: &Plugin, command: &str, container: &str, pools: &Path) -> Result<Duration> {
    let mut program = Command::new(&plugin.path);
    program.env_clear().env("ENO_IPAM_DIR", pools).env("CNI_PATH", "/opt/cni/bin").env("CNI_NETNS", pools);
    program.envs([("CNI_COMMAND", command), ("CNI_CONTAINERID", container), ("CNI_IFNAME", "net1")]);
    program.env("CNI_ARGS", format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=apps;K8S_POD_NAME={container}"));
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let config = plugin.config.to_string();
    let start = Instant::now();
    let mut child = program.spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(config.as_bytes())?;
    let output = child.wait_with_output()?;
    let took = start.elapsed();
    if !output.status.success() {
        return Err(format!("{} {command}: {}", plugin.name, String::from_utf8_lossy(&output.stdout)).into());
    }
    Ok(took)
}

/// The folder with `host-local` and `static`.
fn plugins() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("CNI_PATH") {
        return Ok(path.into());
    }
    let cache = std::env::home_dir().unwrap_or_default().join(".cache/eno");
    let found =
        cache.read_dir()?.flatten().map(|entry| entry.path()).find(|path| path.join("host-local").exists());
    found.ok_or_else(|| format!("no CNI plugins in {}: set CNI_PATH", cache.display()).into())
}
