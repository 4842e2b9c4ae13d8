//! A BGP speaker on a node: bgpd of FRR in the node's network namespace.

use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::System;

/// A file `/etc/group` with the group that bgpd wants for its socket. `$1`: the folder.
const IN_FOLDER: &str = "cd \"$1\" && mount --bind group /etc/group && shift && exec \"$@\"";

/// bgpd, which is killed when this is dropped.
pub struct Speaker {
    daemon: Child,
    _folder: tempfile::TempDir,
}

impl Speaker {
    /// Starts bgpd on a node, with these lines in `router bgp`.
    pub fn start(system: &System, node: &str, own_as: u32, lines: &[String]) -> Self {
        let pid = system.sandbox.node(node).expect("a node of the sandbox").pid;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = format!(
            "router bgp {own_as}\n no bgp ebgp-requires-policy\n no bgp network import-check\n {}\n",
            lines.join("\n ")
        );
        for (name, content) in [("bgpd.conf", &*config), ("group", "root:x:0:\nfrrvty:x:0:root\n")] {
            std::fs::write(folder.path().join(name), content).expect("it is written");
        }
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", IN_FOLDER, "sh"]).arg(folder.path());
        command.args(["nsenter", &format!("--net=/proc/{pid}/ns/net"), "--", "/usr/lib/frr/bgpd"]);
        command.args(["-u", "root", "-g", "root", "-Z", "-P", "0", "--vty_socket", ".", "-i", "./bgpd.pid"]);
        command.args(["-f", "./bgpd.conf", "--log", "stdout", "--log-level", "errors"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        Self { daemon: command.spawn().expect("bgpd of the package frr"), _folder: folder }
    }

    /// Ends it.
    pub async fn stop(mut self) {
        self.daemon.kill().await.expect("it runs");
    }
}
