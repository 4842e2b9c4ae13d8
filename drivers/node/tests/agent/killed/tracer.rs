//! The program under ptrace(2): it is stopped as it enters and leaves system calls, and killed at one that changes the
//! kernel or a file. Killed on entry, the call has no effect. Killed on exit, the kernel has made the change, and the program has
//! not read the answer.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use eno_driver_node::netlink::Namespace;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::sync::watch;

use super::{StageProgress, Timing};

/// `struct nlmsghdr`.
const HEADER: usize = 16;

/// A traced program, which is killed when this is dropped.
pub struct TracedAgent {
    pid: Pid,
    alive: Arc<AtomicBool>,
    tracer: Option<JoinHandle<()>>,
}

impl TracedAgent {
    /// Starts it in the namespace of the calling thread.
    pub fn start(command: &Command, changes_seen: watch::Sender<StageProgress>) -> Self {
        // The shell waits for a line, so that the program starts only once it is traced.
        let mut held = Command::new("sh");
        held.args(["-c", "read go && exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
        held.stdin(Stdio::piped()).stdout(Stdio::null());
        let here = Namespace::current().unwrap();
        let alive = Arc::new(AtomicBool::new(true));
        let (pid_sender, pid_receiver) = mpsc::channel();
        let tracer_alive = Arc::clone(&alive);
        // Only the tracing thread is notified of the traced threads.
        let tracer = std::thread::spawn(move || {
            here.enter().unwrap();
            #[expect(clippy::zombie_processes, reason = "it is waited for as all that is traced")]
            let mut child = held.spawn().unwrap();
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
            let options = Options::PTRACE_O_TRACESYSGOOD
                | Options::PTRACE_O_TRACECLONE
                | Options::PTRACE_O_TRACEEXEC
                | Options::PTRACE_O_EXITKILL;
            if let Err(error) = ptrace::seize(pid, options).and_then(|()| ptrace::interrupt(pid)) {
                kill(pid, Signal::SIGKILL).unwrap();
                waitpid(pid, None).unwrap();
                panic!("ptrace(2) is needed, and not allowed here: {error}");
            }
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
            pid_sender.send(pid).unwrap();
            Tracer { program: pid, changes_seen, alive: tracer_alive, within: BTreeMap::new() }.run();
        });
        let pid = pid_receiver.recv().expect("a program that can be traced");
        Self { pid, alive, tracer: Some(tracer) }
    }
}

impl Drop for TracedAgent {
    fn drop(&mut self) {
        if self.alive.load(Ordering::Acquire) {
            let _ = kill(self.pid, Signal::SIGKILL);
        }
        if let Some(tracer) = self.tracer.take() {
            let _ = tracer.join();
        }
    }
}

struct Tracer {
    program: Pid,
    changes_seen: watch::Sender<StageProgress>,
    alive: Arc<AtomicBool>,
    /// Threads that are in a system call; true: the program is killed when they leave it.
    within: BTreeMap<Pid, bool>,
}

impl Tracer {
    /// Traces until the program has ended.
    fn run(mut self) {
        loop {
            // Waits for the children of this thread only: the program and its threads.
            let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Err(Errno::EINTR) => continue,
                status => status.unwrap(),
            };
            let signal = match status {
                WaitStatus::PtraceSyscall(thread) => {
                    if self.dies(thread) {
                        self.alive.store(false, Ordering::Release);
                        kill(self.program, Signal::SIGKILL).unwrap();
                        continue;
                    }
                    None
                }
                WaitStatus::Stopped(_, signal) => Some(signal),
                WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..) => {
                    self.within.remove(&thread);
                    if thread != self.program {
                        continue;
                    }
                    self.alive.store(false, Ordering::Release);
                    self.changes_seen.send_modify(|changes_seen| changes_seen.killed |= changes_seen.reached);
                    return;
                }
                _ => None,
            };
            let Some(thread) = status.pid() else { continue };
            match ptrace::syscall(thread, signal) {
                // The program is being killed.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => panic!("a thread does not go on: {error}"),
            }
        }
    }

    /// Handles entry or exit of a system call. True when the program is to be killed.
    fn dies(&mut self, thread: Pid) -> bool {
        if let Some(dies) = self.within.remove(&thread) {
            return dies;
        }
        let mut dies = None;
        if let Some(change) = change(thread) {
            self.changes_seen.send_modify(|changes_seen| dies = changes_seen.record(change));
        }
        self.within.insert(thread, dies == Some(Timing::After));
        dies == Some(Timing::Before)
    }
}

/// The change that the system call which a thread enters makes in the kernel; `None`: it makes none.
fn change(thread: Pid) -> Option<String> {
    let call = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    let mut words = call.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let arguments: Vec<u64> =
        words.filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).collect();
    let file = || std::fs::read_link(format!("/proc/{thread}/fd/{}", arguments.first()?)).ok();
    match number {
        libc::SYS_sendto => {
            let family = bytes(thread, *arguments.get(4)?, 2)?;
            if family != libc::sa_family_t::try_from(libc::AF_NETLINK).ok()?.to_ne_bytes() {
                return None;
            }
            let sent = bytes(thread, *arguments.get(1)?, usize::try_from(*arguments.get(2)?).ok()?)?;
            let changes = if is_generic(thread, &file()?) { offloads(&sent) } else { changes(&sent) };
            (!changes.is_empty()).then(|| changes.join(", "))
        }
        libc::SYS_write => Some(file()?)
            .filter(|file| file.starts_with("/proc/sys"))
            .map(|file| format!("write {}", file.display())),
        // The files of addresses: nothing else of the agent has files.
        libc::SYS_renameat | libc::SYS_renameat2 => Some("rename file".to_owned()),
        libc::SYS_unlinkat => Some("remove file".to_owned()),
        libc::SYS_mkdirat => Some("make folder".to_owned()),
        libc::SYS_ioctl => Some(file()?)
            .filter(|file| file.ends_with("net/tun"))
            .map(|file| format!("ioctl {}", file.display())),
        _ => None,
    }
}

fn bytes(thread: Pid, at: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    File::open(format!("/proc/{thread}/mem")).ok()?.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// True for a socket of generic netlink (`NETLINK_GENERIC`, the second column), by its inode, the last one.
fn is_generic(thread: Pid, socket: &Path) -> bool {
    let inode = socket.to_string_lossy().trim_start_matches("socket:[").trim_end_matches(']').to_owned();
    let sockets = std::fs::read_to_string(format!("/proc/{thread}/net/netlink")).unwrap_or_default();
    sockets.lines().any(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns.get(1) == Some(&"16") && columns.last() == Some(&&inode[..])
    })
}

/// The change of a message to ethtool: its command is `ETHTOOL_MSG_FEATURES_SET`.
fn offloads(message: &[u8]) -> Vec<String> {
    let is_to_control = message.get(4..6) == Some(&16_u16.to_ne_bytes());
    let sets = !is_to_control && message.get(HEADER) == Some(&12);
    sets.then(|| "set offloads".to_owned()).into_iter().collect()
}

/// The changes of rtnetlink messages. Each object has four types (new, delete, get, set), of which `get` changes
/// nothing.
fn changes(mut messages: &[u8]) -> Vec<String> {
    let mut changes = Vec::new();
    while messages.len() >= HEADER {
        let length = u32::from_ne_bytes([messages[0], messages[1], messages[2], messages[3]]) as usize;
        let kind = u16::from_ne_bytes([messages[4], messages[5]]);
        let what = match kind.checked_sub(16).map(|kind| kind % 4) {
            Some(0) => "new",
            Some(1) => "delete",
            Some(3) => "set",
            _ => "",
        };
        if !what.is_empty() {
            let of = ["link", "address", "route", "neighbour", "rule"].get(usize::from(kind - 16) / 4);
            changes.push(format!("{what} {}", of.unwrap_or(&"other")));
        }
        messages = messages.get(length.max(HEADER).next_multiple_of(4)..).unwrap_or_default();
    }
    changes
}
