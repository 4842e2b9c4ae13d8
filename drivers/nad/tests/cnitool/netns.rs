//! Network namespaces managed with the `ip` program.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// A network namespace that is deleted on drop.
pub struct Namespace(String);

impl Namespace {
    /// Creates a namespace; `role` is part of its name.
    pub fn new(role: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("eno-nad-{}-{}-{role}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Self(name);
        namespace.ip(&["link", "set", "lo", "up"]);
        namespace
    }

    pub fn name(&self) -> &str {
        &self.0
    }

    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    /// Runs `ip` inside, which must succeed.
    pub fn ip(&self, arguments: &[&str]) -> String {
        run(Command::new("ip").args(["-n", &self.0]).args(arguments))
    }

    /// Runs `ip` inside; returns its error output when it fails.
    pub fn try_ip(&self, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new("ip").args(["-n", &self.0]).args(arguments).output().expect("ip");
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    /// Sends packets to an address from inside; no reply is needed.
    pub fn ping(&self, address: &str) {
        let arguments = ["netns", "exec", &self.0, "ping", "-c", "1", "-W", "1", address];
        Command::new("ip").args(arguments).output().expect("ip");
    }

    /// What `ip -j` shows inside.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&run(Command::new("ip").args(["-n", &self.0, "-j"]).args(arguments)))
            .expect("JSON")
    }

    /// What `bridge -j` shows inside.
    pub fn bridge_json(&self, arguments: &[&str]) -> Value {
        let output = run(Command::new("bridge").args(["-n", &self.0, "-j"]).args(arguments));
        serde_json::from_str(&output).expect("JSON")
    }

    /// The names of the interfaces inside.
    pub fn links(&self) -> Vec<String> {
        let links = self.json(&["link", "show"]);
        links
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|link| link["ifname"].as_str().map(String::from))
            .collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The panic of a failed test is report enough.
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

/// Runs a program that must succeed; returns its standard output.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
    stdout
}
