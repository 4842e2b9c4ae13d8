//! The program under ptrace(2), killed as it enters or leaves a system call that writes.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Whether the system call has its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    Before,
    After,
}

/// What the program did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was killed at this system call.
    Killed(String),
    /// It ended, or it began to wait and was killed then.
    Ended,
}

/// Runs the program and kills it at the system call that writes with this number, counted from 0.
pub fn kill_at(command: &Command, config: &str, number: usize, timing: Timing) -> End {
    // The shell waits for a line, so that the program starts only once it is traced.
    let mut held = Command::new("/bin/sh");
    held.args(["-c", "read go && exec \"$@\"", "sh"]).arg(command.get_program());
    held.env_clear().envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    held.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = held.spawn().expect("the program");
    let program = Pid::from_raw(i32::try_from(child.id()).expect("a process"));
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL;
    ptrace::seize(program, options)
        .and_then(|()| ptrace::interrupt(program))
        .expect("ptrace(2), which this test needs");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(format!("\n{config}").as_bytes()).expect("its input");
    drop(input);
    let end = trace(program, number, timing);
    // The tracer has waited for it, so that there is no status left to read.
    let _ = child.wait();
    end
}

fn trace(program: Pid, number: usize, timing: Timing) -> End {
    let (mut runs, mut entered, mut written) = (false, false, 0);
    let mut dies_on_exit = None;
    let mut end = End::Ended;
    loop {
        let status = waitpid(program, Some(WaitPidFlag::__WALL)).expect("the program");
        let signal = match status {
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return end,
            WaitStatus::PtraceEvent(_, _, event) => {
                // It leaves execve(2) next.
                if event == Event::PTRACE_EVENT_EXEC as i32 {
                    (runs, entered) = (true, true);
                }
                None
            }
            WaitStatus::PtraceSyscall(_) if runs => {
                entered = !entered;
                let mut dies = None;
                if !entered {
                    dies = dies_on_exit.take();
                } else if let Some(call) = call(program) {
                    if call == "clone" {
                        kill(program, Signal::SIGKILL).expect("the program");
                        continue;
                    }
                    written += 1;
                    if written == number + 1 {
                        *(if timing == Timing::Before { &mut dies } else { &mut dies_on_exit }) = Some(call);
                    }
                }
                if let Some(call) = dies {
                    end = End::Killed(call);
                    kill(program, Signal::SIGKILL).expect("the program");
                    continue;
                }
                None
            }
            WaitStatus::Stopped(_, signal) => Some(signal),
            _ => None,
        };
        match ptrace::syscall(program, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => panic!("the program does not go on: {error}"),
        }
    }
}

/// The name of the system call that the program enters, if it writes, or begins the thread that it waits with.
fn call(program: Pid) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{program}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    let arguments: Vec<u64> =
        words.filter_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()).collect();
    let creates = || {
        arguments.get(2).is_some_and(|flags| flags & u64::try_from(libc::O_CREAT).unwrap_or_default() != 0)
    };
    let name = match number {
        libc::SYS_mkdirat => "mkdirat",
        libc::SYS_openat if creates() => "openat",
        libc::SYS_flock => "flock",
        libc::SYS_write => "write",
        libc::SYS_fsync => "fsync",
        libc::SYS_renameat | libc::SYS_renameat2 => "renameat",
        libc::SYS_unlinkat => "unlinkat",
        libc::SYS_clone | libc::SYS_clone3 => "clone",
        _ => return None,
    };
    Some(name.to_owned())
}
