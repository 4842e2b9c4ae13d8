//! Hosts on the fabric: network namespaces, controlled from outside.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A host: a network namespace that is deleted when this is dropped.
pub struct Host {
    name: String,
}

impl Host {
    /// Creates a host with a unique name.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("eno-sim-{}-{number}", std::process::id());
        succeed(Command::new("ip").args(["netns", "add", &name]));
        Self { name }
    }

    /// Path of the namespace.
    pub fn netns(&self) -> PathBuf {
        format!("/run/netns/{}", self.name).into()
    }

    /// A command that runs a program in the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns().display())).args(["--", program]);
        command
    }

    /// Gives `eth1` an address.
    pub fn address(&self, address: &str) -> &Self {
        succeed(self.command("ip").args(["address", "add", address, "dev", "eth1"]));
        self
    }

    /// Whether at least one of three echo requests is answered.
    pub fn pings(&self, address: &str) -> bool {
        // The kernel would not resolve a failed neighbour again for a while.
        succeed(self.command("ip").args(["neighbour", "flush", "dev", "eth1", "nud", "all"]));
        let mut ping = self.command("ping");
        ping.args(["-n", "-c", "3", "-i", "0.2", "-W", "1", address]);
        ping.output().expect("ping runs").status.success()
    }

    /// Whether an echo request is answered in the end: a gateway that was just set up has neighbours to find, too.
    pub fn reaches(&self, address: &str) -> bool {
        (0..10).any(|_| self.pings(address))
    }

    /// The MAC address of `eth1`.
    pub fn mac_address(&self) -> String {
        let shown = succeed(self.command("ip").args(["-o", "link", "show", "dev", "eth1"]));
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether");
        words.nth(1).expect("an Ethernet interface").to_owned()
    }

    /// Whether there is such an interface.
    pub fn has(&self, interface: &str) -> bool {
        let mut show = self.command("ip");
        show.args(["link", "show", "dev", interface]).output().expect("ip runs").status.success()
    }

    /// Whether `eth1` has a carrier.
    pub fn has_carrier(&self) -> bool {
        let shown = succeed(self.command("ip").args(["link", "show", "dev", "eth1"]));
        String::from_utf8_lossy(&shown.stdout).contains("LOWER_UP")
    }

    /// Sends frames (see `frames.py`) to another host and returns those that it receives. Blocks until it receives the
    /// last one.
    pub fn send_frames(&self, other: &Host, frames: &[&str]) -> Vec<String> {
        let last = frames.last().and_then(|frame| frame.split(':').nth(1)).expect("TAG:TEXT");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dataplane/frames.py");
        let mut receive = other.command("python3");
        let mut receiver = receive
            .args([script, "receive", "eth1", last])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut lines = BufReader::new(receiver.stdout.take().expect("a pipe")).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("listening"));
        succeed(self.command("python3").args([script, "send", "eth1"]).args(frames));
        let received = lines.collect();
        assert!(receiver.wait().expect("it was started").success());
        received
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Runs a program that has to succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
