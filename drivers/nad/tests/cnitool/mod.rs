//! Every kind of NetworkAttachmentDefinition that this kernel supports, run by `cnitool` with the real
//! plugin.
//!
//! The host side is a network namespace of its own, so that the machine is not touched. Missing kernel
//! features are detected by trying them, and the kinds that need them are listed. Needs root and `ip`.

mod kinds;
mod netns;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use eno_control_plane::parts::{Part, Parts};
use eno_driver_nad::codec::render;
use eno_schemas::VlanAttachment;
use kinds::{KINDS, Kind, Needs};
use netns::{Namespace, run};
use serde_json::{Value, json};

/// Plugins that no Go module registry has, and devices that test machines lack.
const NOT_OBTAINABLE: &str = "ovs (ovs-cni), whereabouts, userspace, sriov (needs a virtual function)";

/// Paths of `cnitool` and the plugins.
struct Tools {
    cnitool: PathBuf,
    plugins: PathBuf,
}

impl Tools {
    async fn get() -> Self {
        let parts = Parts::from_env().expect("the parts' cache");
        let cnitool = parts.get(Part::Cnitool).await.expect("cnitool");
        let mut plugins = PathBuf::new();
        for part in [
            Part::Bridge,
            Part::Macvlan,
            Part::Ipvlan,
            Part::Vlan,
            Part::HostDevice,
            Part::HostLocal,
            Part::Static,
        ] {
            let path = parts.get(part).await.expect("a plugin");
            path.parent().expect("a folder").clone_into(&mut plugins);
        }
        Self { cnitool, plugins }
    }

    /// Runs `cnitool ADD|DEL` with a configuration on `host` for `pod`; returns the plugin's result.
    fn cni(&self, operation: &str, config: &Path, network: &str, host: &Namespace, pod: &Namespace) -> Value {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", host.name()])
            .arg(&self.cnitool)
            .args([operation, network, &pod.path()])
            .env("NETCONFPATH", config)
            .env("CNI_PATH", &self.plugins)
            .env("CNI_IFNAME", "net1");
        let output = run(&mut command);
        if output.is_empty() { Value::Null } else { serde_json::from_str(&output).expect("a CNI result") }
    }
}

#[tokio::test]
async fn every_rendered_nad_kind_works_with_its_cni_plugin() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "needs root, to make network namespaces (leave out: --skip every_rendered_nad_kind_works_with_its_cni_plugin)"
    );
    let tools = Tools::get().await;
    let probe = Namespace::new("probe");
    let lacking: BTreeMap<Needs, String> =
        Needs::ALL.into_iter().filter_map(|need| need.missing(&probe).map(|why| (need, why))).collect();
    let (mut carried, mut not_carried) = (Vec::new(), Vec::new());
    for kind in &KINDS {
        if let Some(why) = kind.needs.and_then(|need| lacking.get(&need)) {
            not_carried.push(format!("{} ({why})", kind.name));
        } else {
            run_kind(&tools, kind);
            carried.push(kind.name);
        }
    }
    assert_eq!(carried.len() + not_carried.len(), KINDS.len());
    // Written to the stream directly, since the test harness captures prints of passing tests.
    let report = format!(
        "{} kinds of NAD carried by real plugins: {}\n{} not carried by this kernel: {}\nnot obtainable here: {}\n",
        carried.len(),
        carried.join(", "),
        not_carried.len(),
        if not_carried.is_empty() { "none".to_owned() } else { not_carried.join(", ") },
        NOT_OBTAINABLE,
    );
    std::io::stderr().write_all(report.as_bytes()).expect("stderr");
}

/// Runs ADD, checks, runs DEL, and checks again.
fn run_kind(tools: &Tools, kind: &Kind) {
    let host = Namespace::new("host");
    let pod = Namespace::new("pod");
    (kind.prepare)(&host);
    let network = format!("eno-test-{}-{}", std::process::id(), kind.name);
    let rendered = render(&network, &(kind.attachment)()).expect("a configuration");
    let mut config: Value = serde_json::from_str(&rendered.config).expect("JSON");
    if let (Some(device), Some(keys)) = (kind.device, config.as_object_mut()) {
        // Multus adds the device that the device plugin allocated.
        assert!(
            rendered.resource_name.is_some(),
            "{}: Multus has no resource to take a device from",
            kind.name
        );
        keys.insert("device".into(), json!(device));
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("10-net.conf"), config.to_string()).expect("writing the configuration");

    let result = tools.cni("add", folder.path(), &network, &host, &pod);
    let link = pod.json(&["-d", "addr", "show", "dev", "net1"]);
    (kind.check)(&link[0], &host, &pod);
    check_addresses(kind, &pod, &link[0], &config);
    if !config["dns"].is_null() {
        assert_eq!(result["dns"], config["dns"], "{}: the plugin hands on the resolver settings", kind.name);
    }

    tools.cni("del", folder.path(), &network, &host, &pod);
    assert!(!pod.links().iter().any(|link| link == "net1"), "{}: the interface is gone", kind.name);
    if let Some(device) = kind.device {
        assert!(host.links().iter().any(|link| link == device), "{}: the device is back", kind.name);
    }
    let leases = Path::new("/var/lib/cni/networks").join(&network);
    if leases.exists() {
        let left: Vec<_> = fs::read_dir(&leases)
            .expect("host-local's leases")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name.contains("10.10.") || name.contains("2001:"))
            .filter(|name| !name.starts_with("last_reserved_ip"))
            .collect();
        assert!(left.is_empty(), "{}: leases left: {left:?}", kind.name);
        fs::remove_dir_all(&leases).expect("removing host-local's folder");
    }
}

/// The pod has the first address of each subnet's pool, and the routes.
fn check_addresses(kind: &Kind, pod: &Namespace, link: &Value, config: &Value) {
    let mut addresses: Vec<String> = link["addr_info"]
        .as_array()
        .expect("addresses")
        .iter()
        .filter(|address| address["scope"] == "global")
        .map(|address| format!("{}/{}", address["local"].as_str().unwrap_or_default(), address["prefixlen"]))
        .collect();
    addresses.sort();
    assert_eq!(addresses, kind.addresses, "{}", kind.name);
    for (at, route) in config["ipam"]["routes"].as_array().into_iter().flatten().enumerate() {
        let text = |key: &str| route[key].as_str().unwrap_or_default().to_owned();
        let family = if text("gw").contains(':') { "-6" } else { "-4" };
        let found = pod.json(&[family, "route", "show", &text("dst")]);
        assert_eq!(found[0]["gateway"], json!(text("gw")), "{}: route {at}", kind.name);
        assert_eq!(found[0]["dev"], "net1", "{}: route {at}", kind.name);
    }
}

/// Two attachments of one name, as in two namespaces, are one network to host-local unless their pools have names.
#[tokio::test]
async fn named_pools_of_host_local_are_separate() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "needs root, to make network namespaces (leave out: --skip named_pools_of_host_local_are_separate)"
    );
    let tools = Tools::get().await;
    let host = Namespace::new("pools");
    kinds::uplink(&host, "up0.13");
    let network = format!("eno-test-{}-pools", std::process::id());
    let folders: Vec<_> = [None, Some("eno-test-two")]
        .into_iter()
        .map(|pool| {
            let attachment = VlanAttachment { pool: pool.map(Into::into), ..kinds::macvlan_by_host_local() };
            let folder = tempfile::tempdir().expect("a folder");
            let config = render(&network, &attachment).expect("a configuration").config;
            fs::write(folder.path().join("10-net.conf"), config).expect("writing the configuration");
            folder
        })
        .collect();
    let mut pods = Vec::new();
    for (folder, address) in
        [(0, "10.10.13.10/24"), (1, "10.10.13.10/24"), (0, "10.10.13.11/24"), (1, "10.10.13.11/24")]
    {
        let pod = Namespace::new("pod");
        let result = tools.cni("add", folders[folder].path(), &network, &host, &pod);
        assert_eq!(result["ips"][0]["address"], address, "{result}");
        pods.push((folder, pod));
    }
    for (folder, pod) in &pods {
        tools.cni("del", folders[*folder].path(), &network, &host, pod);
    }
    for folder in [network.clone(), format!(".eno/eno-test-two/{network}")] {
        let folder = Path::new("/var/lib/cni/networks").join(folder);
        let left = fs::read_dir(&folder)
            .expect("host-local's leases")
            .map(|entry| entry.expect("an entry").file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("10.")).collect();
        assert!(left.is_empty(), "{left:?}");
        fs::remove_dir_all(&folder).expect("removing host-local's folder");
    }
    // Other tests may have pools beside it.
    fs::remove_dir("/var/lib/cni/networks/.eno/eno-test-two").expect("removing the pool");
}
