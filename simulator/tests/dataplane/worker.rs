//! A worker that speaks BGP: FRR in the namespace of a host.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::dataplane::host::Host;

/// Daemons, which are killed when this is dropped.
pub struct Worker {
    dir: tempfile::TempDir,
    daemons: Vec<Child>,
}

/// See the data plane's module `frr`.
const IN_DIRECTORY: &str = "cd \"$1\" && mount --bind group /etc/group && shift && exec \"$@\"";

impl Worker {
    /// Starts zebra, bgpd and bfdd, and configures bgpd.
    pub fn start(host: &Host, bgp: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join("group"), "root:x:0:\nfrrvty:x:0:root\n").expect("it is written");
        std::fs::write(dir.path().join("empty.conf"), "").expect("it is written");
        let mut worker = Self { dir, daemons: Vec::new() };
        for (program, more) in
            [("zebra", ["-P", "0"]), ("bgpd", ["-P", "0"]), ("bfdd", ["--bfdctl", "./bfdd.sock"])]
        {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--", "unshare", "-m", "sh", "-c", IN_DIRECTORY, "sh"]);
            command.arg(worker.dir.path()).arg("nsenter");
            command.arg(format!("--net={}", host.netns().display()));
            command.args(["--", &format!("/usr/lib/frr/{program}"), "-u", "root", "-g", "root"]);
            command.args(["--vty_socket", ".", "-z", "./zserv.api", "-i", &format!("./{program}.pid")]);
            command.args(["-f", "./empty.conf", "--log", "stdout", "--log-level", "errors"]).args(more);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            worker.daemons.push(child.expect("it starts"));
            let began = Instant::now();
            while worker.connect(program).is_err() {
                assert!(began.elapsed() < Duration::from_secs(20), "{program} of a worker does not listen");
                std::thread::yield_now();
            }
        }
        worker.configure(bgp);
        worker
    }

    fn connect(&self, daemon: &str) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.dir.path().join(format!("{daemon}.vty")))
    }

    /// Runs commands in the configuration of bgpd.
    pub fn configure(&self, commands: &[&str]) {
        let mut all = vec!["configure terminal"];
        all.extend(commands);
        all.push("end");
        self.run("bgpd", &all);
    }

    /// The reply to a command of a daemon that shows something.
    pub fn show(&self, daemon: &str, command: &str) -> String {
        self.run(daemon, &[command]).pop().expect("a reply")
    }

    fn run(&self, daemon: &str, commands: &[&str]) -> Vec<String> {
        let mut stream = self.connect(daemon).expect("it listens");
        let mut call = |command: &str| {
            stream.write_all(command.as_bytes()).expect("it reads");
            stream.write_all(&[0]).expect("it reads");
            let mut reply = Vec::new();
            while !matches!(reply[..], [.., 0, 0, 0, _]) {
                let mut part = [0; 4096];
                let length = stream.read(&mut part).expect("it answers");
                assert!(length > 0, "{daemon} ended");
                reply.extend_from_slice(&part[..length]);
            }
            let status = reply.pop();
            reply.truncate(reply.len() - 3);
            let text = String::from_utf8_lossy(&reply).into_owned();
            assert_eq!(status, Some(0), "{command}: {text}");
            text
        };
        call("enable");
        commands.iter().map(|command| call(command)).collect()
    }

    /// The prefixes that it has learnt, of IPv4 or IPv6.
    pub fn learnt(&self, family: &str) -> Vec<String> {
        let shown = self.show("bgpd", &format!("show bgp {family} unicast json"));
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let routes = shown["routes"].as_object().expect("a table of routes");
        let foreign =
            |paths: &serde_json::Value| paths[0]["path"].as_str().is_some_and(|path| !path.is_empty());
        routes.iter().filter(|(_, paths)| foreign(paths)).map(|(prefix, _)| prefix.clone()).collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
