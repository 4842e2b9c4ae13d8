//! The virtual machine.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, Result, bail};

use crate::VARIABLE;
use crate::root::{Root, program};

/// The init process: mounts file systems, loads modules, runs the command and powers off. Standard output and error are
/// the second serial line; the exit status goes to the third.
const INIT: &str = r#"#!/bin/sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/root TMPDIR=/tmp RUST_BACKTRACE=1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
ln -s /proc/self/fd /dev/fd
exec </dev/null >/dev/ttyS1 2>&1
stty -F /dev/ttyS1 raw
while read -r module; do
  insmod "/modules/$module.ko" || { echo "module $module can't be loaded"; echo 125 >/dev/ttyS2; poweroff -f; }
done </modules/order
ip link set lo up
/command
echo $? >/dev/ttyS2
sync
poweroff -f
"#;

/// A virtual machine for one command.
#[derive(Debug)]
pub struct Machine {
    root: Root,
    command: String,
    memory_mib: u32,
    limit: Duration,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: i32,
    /// What it wrote to its standard output and error.
    pub output: String,
    /// From the machine's start to its end.
    pub took: Duration,
}

impl Machine {
    /// A machine that runs the lines of a shell script as root, with [`VARIABLE`] set.
    pub fn new(root: Root, script: &str) -> Self {
        let command = format!("#!/bin/sh\nexport {VARIABLE}=1\n{script}\n");
        Self { root, command, memory_mib: 1024, limit: Duration::from_mins(5) }
    }

    /// Sets the time limit, boot included; the default is 5 minutes.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Boots the machine, prints the command's output, and returns when the machine is off. Errors are missing
    /// programs, a kernel that doesn't boot, and the time limit; a command that fails is none.
    pub fn run(self) -> Result<Ended> {
        let qemu = program("qemu-system-x86_64")?;
        let Self { mut root, command, memory_mib, limit } = self;
        root.text("/init", 0o755, INIT);
        root.text("/command", 0o755, &command);
        let (kernel, archive) = root.finish();
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        fs::write(path("root.cpio"), archive)?;

        let begin = Instant::now();
        let child = Command::new(qemu)
            // Software emulation behaves the same on every host.
            .args("-accel tcg -machine q35 -cpu max -smp 1 -m".split(' '))
            .arg(memory_mib.to_string())
            .args(["-nodefaults", "-display", "none", "-no-reboot", "-kernel"])
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(path("root.cpio"))
            // A kernel panic ends the machine. New namespaces have no fallback tunnels such as `gre0`, `tunl0` and
            // `sit0`.
            .args(["-append", "console=ttyS0 quiet panic=-1 oops=panic fb_tunnels=none"])
            .arg("-serial")
            .arg(format!("file:{}", path("console").display()))
            .args(["-serial", "stdio"])
            .arg("-serial")
            .arg(format!("file:{}", path("status").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting qemu-system-x86_64")?;
        let mut guard = KillOnDrop(child);
        let output = follow(&mut guard.0, begin + limit)?;
        let console = || fs::read_to_string(path("console")).unwrap_or_default();
        let Some(output) = output else {
            bail!("no end after {limit:?}; the kernel's last words:\n{}", console());
        };
        let ended = guard.0.wait()?;
        let status = fs::read_to_string(path("status")).unwrap_or_default();
        match status.trim().parse() {
            Ok(125) => bail!("the machine can't be made ready:\n{output}\n{}", console()),
            Ok(status) => Ok(Ended { status, output, took: begin.elapsed() }),
            Err(_) => {
                let mut stderr_text = String::new();
                if let Some(stderr) = guard.0.stderr.as_mut() {
                    io::Read::read_to_string(stderr, &mut stderr_text)?;
                }
                bail!("the machine ended before its command ({ended}) {stderr_text}\n{output}\n{}", console())
            }
        }
    }
}

/// A process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints the machine's output until it ends; returns all of it, or `None` at the deadline.
fn follow(child: &mut Child, deadline: Instant) -> Result<Option<String>> {
    let mut stdout = BufReader::new(child.stdout.take().context("no pipe")?);
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut line = Vec::new();
        while stdout.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).replace('\r', "");
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    let mut output = String::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                print!("  vm| {line}");
                output.push_str(&line);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(Some(output)),
            Err(mpsc::RecvTimeoutError::Timeout) => return Ok(None),
        }
    }
}
