//! Runs a program with the memory that the shipped manifests give it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::process::Child;

use crate::NatsServer;

/// The file systems of cgroups, with the files of the limit, of the usage, of the highest usage, and of the number of
/// times that the kernel ended a process: cgroup v1, mixed, and v2.
const HIERARCHIES: [(&str, [&str; 4]); 2] = [
    (
        "/sys/fs/cgroup/memory",
        ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"],
    ),
    ("/sys/fs/cgroup", ["memory.max", "memory.current", "memory.peak", "memory.events"]),
];

/// A program in a memory cgroup of its own, which ends with this value. It needs root.
pub struct ShippedMemory {
    folder: PathBuf,
    files: [&'static str; 4],
    limit: u64,
    child: Child,
}

/// The limit of a driver's container in bytes.
fn limit(driver: &str) -> u64 {
    let part = eno_parts::ALL.into_iter().find(|part| part.driver == Some(driver)).expect("a driver of ENO");
    let limit = part.resources.expect("resources").memory_limit;
    limit.strip_suffix("Mi").expect("MiB").parse::<u64>().expect("a number") << 20
}

impl ShippedMemory {
    fn start(limit: u64, command: &Command) -> Self {
        let (root, files) = *HIERARCHIES
            .iter()
            .find(|(root, files)| {
                Path::new(root).join(files[0]).exists() || Path::new(root).join("cgroup.controllers").exists()
            })
            .expect("a memory cgroup");
        if files[0] == "memory.max" {
            std::fs::write(Path::new(root).join("cgroup.subtree_control"), "+memory").expect("a controller");
        }
        let folder = Path::new(root).join(format!("eno-test-{}-{}", std::process::id(), eno_sbi::random()));
        std::fs::create_dir(&folder).expect("root, for a cgroup");
        std::fs::write(folder.join(files[0]), limit.to_string()).expect("a limit");
        // A shell moves itself into the cgroup, so nothing of the program is outside.
        let mut inside = tokio::process::Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(folder.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = inside.stdin(Stdio::null()).kill_on_drop(true).spawn().expect("a shell");
        Self { folder, files, limit, child }
    }

    /// Starts the program of the driver `name` on NATS, with the memory of its container. `secrets`: its credentials, if it has any.
    pub fn driver(name: &str, program: &str, server: &NatsServer, secrets: Option<&Path>) -> Self {
        let mut command = Command::new(program);
        command.args(["--instance", &format!("{name}1"), "--nats-url", &server.url()]);
        command.args(secrets.into_iter().flat_map(|secrets| [Path::new("--credentials-dir"), secrets]));
        Self::start(limit(name), &command)
    }

    /// Prints the highest usage so far, with cached files.
    pub fn print_peak(&self, what: &str) {
        let peak: u64 = self.read(2).trim().parse().expect("a number");
        println!("peak {} MiB of {}: {what}", peak >> 20, self.limit >> 20);
    }

    /// Panics when the program still has half of the limit.
    pub fn assert_given_back(&self) {
        let resident = self.resident() >> 20;
        println!("{resident} MiB in the end");
        assert!(resident < self.limit >> 21, "{resident} MiB are not given back");
    }

    /// The memory of the program now in bytes, without cached files.
    pub fn resident(&self) -> u64 {
        let pid = self.child.id().expect("the program runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the program runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
        line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
    }

    /// Panics when the program ended, or the kernel ended it or a predecessor.
    pub fn assert_alive(&mut self) {
        let events = self.read(3);
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill ")).unwrap_or("0");
        assert_eq!(
            killed.trim(),
            "0",
            "the kernel ended the program, which took more than {} bytes",
            self.limit
        );
        let ended = self.child.try_wait().expect("a child");
        assert_eq!(ended, None, "the program ended");
    }

    fn read(&self, file: usize) -> String {
        let path = self.folder.join(self.files[file]);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Drop for ShippedMemory {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        // The cgroup is busy until the kernel has released the process.
        for _ in 0..1000 {
            let _ = self.child.try_wait();
            match std::fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}
