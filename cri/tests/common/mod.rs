//! The resolver as a child process.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use eno_cri::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A resolver that is stopped on drop.
pub struct Resolver {
    child: Child,
    /// The resolver's PID, where `child` only started it.
    pid: Pid,
    pub socket: PathBuf,
}

impl Resolver {
    pub fn command() -> Command {
        Command::new(env!("CARGO_BIN_EXE_eno-cri-resolver"))
    }

    /// Adds the flags of its socket and runtime, starts it and waits until it listens.
    pub fn start(mut command: Command, socket: &Path, runtime: &OsStr) -> Self {
        command.arg("--socket").arg(socket).arg("--runtime").arg(runtime);
        command.args(["--log", "eno_cri_resolver=debug,info"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the resolver");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let listening = lines
            .by_ref()
            .map_while(Result::ok)
            .inspect(|line| println!("{line}"))
            .any(|line| line.contains("listening socket="));
        assert!(listening, "the resolver ended: {:?}", child.wait());
        // Its further output goes to the test's.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
        let started = child.id();
        let children =
            fs::read_to_string(format!("/proc/{started}/task/{started}/children")).expect("children");
        let pid = children.trim().parse().unwrap_or(started);
        Self { child, pid: Pid::from_raw(i32::try_from(pid).expect("a pid")), socket: socket.to_owned() }
    }

    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    pub fn terminate(&mut self) -> ExitStatus {
        kill(self.pid, Signal::SIGTERM).expect("SIGTERM");
        self.child.wait().expect("its end")
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        // Unless a test waited for its end.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}
