//! The program behind real CNI plugins, called by `cnitool` (libcni). Needs root and `ip`.

use std::path::{Path, PathBuf};
use std::process::Command;

use eno_control_plane::parts::{Part, Parts};
use serde_json::{Value, json};

use super::Node;
use crate::common::ranges;

/// A network namespace, which is deleted when this is dropped.
struct Namespace(String);

impl Namespace {
    fn new(role: &str) -> Self {
        let name = format!("eno-ipam-{}-{role}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name])).expect("a namespace");
        let namespace = Self(name);
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    fn ip(&self, arguments: &[&str]) -> String {
        run(Command::new("ip").args(["-n", &self.0]).args(arguments)).expect("ip")
    }

    /// The addresses of `net1`, but those of its link.
    fn addresses(&self) -> Vec<String> {
        let links: Value =
            serde_json::from_str(&self.ip(&["-j", "addr", "show", "dev", "net1"])).expect("JSON");
        let all = links[0]["addr_info"].as_array().expect("addresses").iter();
        let global = all.filter(|address| address["scope"] == "global");
        global
            .map(|one| format!("{}/{}", one["local"].as_str().unwrap_or_default(), one["prefixlen"]))
            .collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The panic of a failed test is report enough.
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().expect("a program");
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(answer) } else { Err(answer + &String::from_utf8_lossy(&output.stderr)) }
}

struct Tools {
    cnitool: PathBuf,
    plugins: PathBuf,
}

impl Tools {
    async fn get() -> Self {
        let parts = Parts::from_env().expect("the parts' cache");
        let bridge = parts.get(Part::Bridge).await.expect("the plugin bridge");
        let cnitool = parts.get(Part::Cnitool).await.expect("cnitool");
        Self { cnitool, plugins: bridge.parent().expect("a folder").to_owned() }
    }

    /// Runs a command of cnitool on `host` for `pod`, and returns the result of the plugin.
    fn call(
        &self,
        operation: &str,
        node: &Node,
        conf: &Path,
        host: &Namespace,
        pod: &Namespace,
    ) -> Result<Value, String> {
        let program = Path::new(env!("CARGO_BIN_EXE_eno-ipam"));
        let plugins = format!("{}:{}", self.plugins.display(), program.parent().expect("a folder").display());
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &host.0]).arg(&self.cnitool).args([operation, "net", &pod.path()]);
        command.env("NETCONFPATH", conf).env("CNI_PATH", plugins).env("CNI_IFNAME", "net1");
        command.env("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=apps;K8S_POD_NAME=web");
        command.env("CAP_ARGS", r#"{"ips": ["10.0.0.9/24"]}"#).env("ENO_IPAM_DIR", node.root());
        let answer = run(&mut command)?;
        Ok(if answer.is_empty() { Value::Null } else { serde_json::from_str(&answer).expect("a CNI result") })
    }
}

fn conflist(version: &str) -> Value {
    json!({ "cniVersion": version, "name": "net", "plugins": [{
        "type": "bridge",
        "bridge": "br0",
        "capabilities": { "ips": true },
        "ipam": {
            "type": "eno-ipam",
            "pools": ["storage", "storage6"],
            "routes": [{ "dst": "10.1.0.0/16", "gw": "10.0.0.1" }],
            "dns": { "nameservers": ["10.0.0.53"] },
        },
    }] })
}

#[tokio::test]
#[ignore = "needs root"]
async fn plugin_gives_addresses_behind_bridge_in_each_version() {
    let tools = Tools::get().await;
    let host = Namespace::new("host");
    let node = Node::with(&ranges(&["10.0.0.8/30"]));
    node.give("storage6", Some(&ranges(&["2001:db8::8/126"])));
    let folder = tempfile::tempdir().expect("a folder");
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        std::fs::write(folder.path().join("10-net.conflist"), conflist(version).to_string())
            .expect("a configuration");
        let pod = Namespace::new("pod");
        let call = |operation| tools.call(operation, &node, folder.path(), &host, &pod);
        // DEL before ADD.
        call("del").expect("DEL");
        let result = call("add").expect("ADD");
        assert_eq!(result["cniVersion"], version);
        let in_result: Vec<&Value> =
            result["ips"].as_array().expect("ips").iter().map(|ip| &ip["address"]).collect();
        let addresses = pod.addresses();
        assert_eq!(in_result, addresses.iter().collect::<Vec<_>>(), "{version}");
        assert_eq!(addresses[0], "10.0.0.9/24");
        assert!(addresses[1].starts_with("2001:db8::") && addresses[1].ends_with("/64"), "{addresses:?}");
        assert!(pod.ip(&["route", "show", "10.1.0.0/16"]).contains("via 10.0.0.1 dev net1"));
        assert_eq!((node.leases("storage").len(), node.leases("storage6").len()), (1, 1));
        let check = call("check");
        assert_eq!(check.is_ok(), version != "0.3.1", "{check:?}");
        if version == "1.1.0" {
            call("status").expect("STATUS");
        }
        call("del").expect("DEL");
        call("del").expect("DEL");
        assert_eq!((node.leases("storage"), node.leases("storage6")), (Vec::new(), Vec::new()));
    }
    // A sandbox that goes without DEL, and GC of a runtime that knows no attachment.
    let pod = Namespace::new("pod");
    tools.call("add", &node, folder.path(), &host, &pod).expect("ADD");
    drop(pod);
    let pod = Namespace::new("pod");
    tools.call("gc", &node, folder.path(), &host, &pod).expect("GC");
    assert_eq!((node.leases("storage"), node.leases("storage6")), (Vec::new(), Vec::new()));
}
