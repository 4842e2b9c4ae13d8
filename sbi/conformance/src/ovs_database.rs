//! An ovsdb-server for one test, and the other programs of Open vSwitch.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::until;

/// A real ovsdb-server with an initialised database of Open vSwitch. Dropping it kills it and removes the data.
pub struct OvsDatabase {
    dir: TempDir,
    options: Vec<String>,
    server: Option<Child>,
}

impl OvsDatabase {
    /// Starts a server with its files in this directory, with these additional options.
    pub fn start(dir: TempDir, options: Vec<String>) -> Self {
        let created = program("ovsdb-tool")
            .arg("create")
            .arg(dir.path().join("db"))
            .arg("/usr/share/openvswitch/vswitch.ovsschema")
            .status()
            .expect("ovsdb-tool is needed (Debian: openvswitch-switch)");
        assert!(created.success());
        let mut database = Self { dir, options, server: None };
        database.resume();
        database.vsctl(&["--no-wait", "init"]);
        database
    }

    /// The directory of the server's files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A file of the server, such as `db.sock`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        end(self.server.take());
    }

    /// Stops or continues the server: a stopped one accepts connections and does not answer.
    pub fn freeze(&self, frozen: bool) {
        let pid = self.server.as_ref().expect("ovsdb-server runs").id();
        let signal = if frozen { Signal::SIGSTOP } else { Signal::SIGCONT };
        kill(Pid::from_raw(pid.cast_signed()), signal).expect("ovsdb-server takes a signal");
    }

    /// Starts the server again after [`kill`](Self::kill).
    pub fn resume(&mut self) {
        let server = self
            .daemon("ovsdb-server", None)
            .arg(self.path("db"))
            .arg(format!("--remote=punix:{}", self.path("db.sock").display()))
            .arg(format!("--unixctl={}", self.path("db.ctl").display()))
            .args(&self.options)
            .spawn()
            .expect("ovsdb-server is needed (Debian: openvswitch-switch)");
        self.server = Some(server);
        until("ovsdb-server listens", || UnixStream::connect(self.path("db.sock")).is_ok());
    }

    /// A daemon of this Open vSwitch, which runs in the network namespace if there is one.
    pub fn daemon(&self, name: &str, namespace: Option<&str>) -> Command {
        let mut command = program(if namespace.is_some() { "ip" } else { name });
        if let Some(namespace) = namespace {
            // `ip netns exec` replaces itself by the daemon.
            command.args(["netns", "exec", namespace, name]);
        }
        command.args(["--no-chdir", "-vconsole:off"]);
        command.env("OVS_RUNDIR", self.dir()).env("OVS_LOGDIR", self.dir());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs `ovs-vsctl` as an administrator. It waits for the switch, unless `--no-wait` is among the arguments.
    pub fn vsctl(&self, args: &[&str]) -> String {
        let remote = format!("--db=unix:{}", self.path("db.sock").display());
        output(program("ovs-vsctl").args(["--timeout=30", &remote]).args(args))
    }
}

impl Drop for OvsDatabase {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program, also of the administrator's directories.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// The output of a program, which must succeed.
pub fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8_lossy(&stdout).trim().to_owned()
}

/// Kills a process.
pub fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}
