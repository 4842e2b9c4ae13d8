//! The holder process of a machine's mount, PID, network and UTS namespaces. The namespaces end with it.
//!
//! `hold` creates the namespaces and starts `init`, the first process of the PID namespace. `run` starts a program
//! in the namespaces. When `init` ends, the kernel kills all processes of its PID namespace and releases mounts and
//! network with the last one.
//!
//! A killed sandbox leaves only its directory. The holder's standard input is a pipe from the sandbox. When the pipe
//! closes, the holder ends the namespaces and removes the cgroups, which the kernel would keep.
//!
//! Inside, `/run`, `/var/lib` and `/var/log` are private to the machine, so that programs use their default paths.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{getpid, sethostname};
use tokio::signal::unix::{SignalKind, signal};

use super::cgroups;

/// The private directories of a machine: subdirectory of the root and mount point.
pub(super) const PRIVATE_DIRECTORIES: [(&str, &str); 3] =
    [("run", "/run"), ("lib", "/var/lib"), ("log", "/var/log")];
/// File with the process id of `init`.
pub(super) const PID_FILE: &str = "pid";
/// The line that `init` writes when all mounts are complete.
const READY_LINE: &str = "ready";

/// The namespaces can't be created or entered. A retry doesn't help.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// A system call failed, mostly because capabilities of root are missing.
    #[error("{operation}: {source}")]
    Kernel {
        /// The failed operation.
        operation: &'static str,
        /// The cause.
        source: Errno,
    },
    /// A file operation failed.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// The failed operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No cgroup file system is mounted; pods need one.
    #[error("no cgroup file system is mounted")]
    NoCgroups,
    /// `init` ended; its log contains the cause.
    #[error("the first process of the node ended ({0})")]
    Ended(ExitStatus),
}

impl HolderError {
    pub(super) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { operation, path, source }
    }

    fn kernel(operation: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::Kernel { operation, source }
    }
}

/// What the program `eno-sandbox-node` is asked to do.
#[derive(Debug, clap::Subcommand)]
pub enum HolderCommand {
    /// Make the namespaces and hold them until SIGTERM, or until standard input ends.
    Hold(HoldArgs),
    /// The first process of the namespaces; `hold` starts it.
    Init(InitArgs),
    /// Run a program in the namespaces of a process, and end as it ends.
    Run(RunArgs),
}

/// Arguments of `hold`.
#[derive(Debug, clap::Args)]
pub struct HoldArgs {
    /// The cgroup to make in each hierarchy, and to remove at the end.
    #[arg(long)]
    cgroup: Option<String>,
    #[command(flatten)]
    init: InitArgs,
}

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// The host name.
    #[arg(long)]
    hostname: String,
    /// Holds `run`, `lib` and `log`, to be the node's `/run`, `/var/lib` and `/var/log`, which are empty at first; and
    /// `pid`, the number of the first process, once everything is there.
    #[arg(long)]
    root: PathBuf,
    /// Forward IPv4 packets.
    #[arg(long)]
    forward: bool,
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// A process in the namespaces.
    #[arg(long)]
    pid: u32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Executes a command of `eno-sandbox-node`. The exit code is 0 after a requested stop; for `run`, it is that of the
/// program.
pub fn execute(args: HolderCommand) -> Result<ExitCode, HolderError> {
    match args {
        HolderCommand::Hold(args) => hold(&args),
        HolderCommand::Init(args) => init(&args),
        HolderCommand::Run(args) => run(&args),
    }
}

/// Whether a private directory hides this path from programs inside.
pub(super) fn is_hidden(path: &Path) -> bool {
    PRIVATE_DIRECTORIES.iter().any(|(_, target)| path.starts_with(target))
}

fn hold(args: &HoldArgs) -> Result<ExitCode, HolderError> {
    let stop_signals = block_signals(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD])?;
    // Survive the sandbox's death, to remove the cgroups.
    set_pdeathsig(None).map_err(HolderError::kernel("outliving the parent"))?;
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        // All threads block the signal; the main thread waits for it.
        let _ = kill(getpid(), Signal::SIGTERM);
    });
    let root = &args.init.root;
    // The holder of an earlier run of the sandbox may still be cleaning up.
    let _lock = lock(&root.join("lock"))?;
    if let Some(name) = &args.cgroup {
        cgroups::remove(name)?;
        cgroups::create(name)?;
    }
    for (name, _) in PRIVATE_DIRECTORIES {
        recreate_directory(&root.join(name))?;
    }
    let result = hold_namespaces(args, &stop_signals);
    // Absent after an early error.
    let _ = fs::remove_file(root.join(PID_FILE));
    if let Some(name) = &args.cgroup {
        cgroups::remove(name)?;
    }
    result
}

fn lock(path: &Path) -> Result<File, HolderError> {
    let open = || {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.lock().map(|()| file)
    };
    open().map_err(HolderError::file("locking", path))
}

/// Recreates an empty directory.
fn recreate_directory(path: &Path) -> Result<(), HolderError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(HolderError::file("emptying", path)(error));
        }
        _ => {}
    }
    fs::create_dir(path).map_err(HolderError::file("making the directory", path))
}

fn hold_namespaces(args: &HoldArgs, stop_signals: &SigSet) -> Result<ExitCode, HolderError> {
    // `init` creates the mount namespace, so that this process keeps the files of the host.
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS;
    unshare(flags).map_err(HolderError::kernel("making namespaces"))?;
    let this = Path::new("/proc/self/exe");
    let mut command = Command::new(this);
    command.arg("init").arg("--hostname").arg(&args.init.hostname).arg("--root").arg(&args.init.root);
    if args.init.forward {
        command.arg("--forward");
    }
    let mut init = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(HolderError::file("starting", this))?;
    let result = wait_for_stop(args, stop_signals, &mut init);
    // The kernel kills all processes of the namespace with `init`. Fails only if it has ended.
    let _ = init.kill();
    let status = init.wait();
    match (result, status) {
        (Ok(true), _) => Ok(ExitCode::SUCCESS),
        (Ok(false), Ok(status)) => Err(HolderError::Ended(status)),
        (Ok(false), Err(error)) => Err(HolderError::file("waiting for", this)(error)),
        (Err(error), _) => Err(error),
    }
}

/// Waits for a stop signal or the end of `init`. Returns whether a stop was requested.
fn wait_for_stop(args: &HoldArgs, stop_signals: &SigSet, init: &mut Child) -> Result<bool, HolderError> {
    let mut line = String::new();
    if let Some(output) = init.stdout.take() {
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(HolderError::file("reading the output of", Path::new("init")))?;
    }
    if line.trim_end() != READY_LINE {
        return Ok(false);
    }
    let path = args.init.root.join(PID_FILE);
    let new = path.with_extension("new");
    fs::write(&new, init.id().to_string())
        .and_then(|()| fs::rename(&new, &path))
        .map_err(HolderError::file("writing", &path))?;
    loop {
        match stop_signals.wait().map_err(HolderError::kernel("waiting for a signal"))? {
            Signal::SIGCHLD => {
                if !matches!(init.try_wait(), Ok(None)) {
                    return Ok(false);
                }
            }
            _ => return Ok(true),
        }
    }
}

fn init(args: &InitArgs) -> Result<ExitCode, HolderError> {
    let children = block_signals(&[Signal::SIGCHLD])?;
    // The holder has the other end of the pipe, which closes when the holder ends.
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    unshare(CloneFlags::CLONE_NEWNS).map_err(HolderError::kernel("making a mount namespace"))?;
    sethostname(&args.hostname).map_err(HolderError::kernel("setting the host name"))?;
    mount_private_directories(&args.root)?;
    if args.forward {
        let path = Path::new("/proc/sys/net/ipv4/ip_forward");
        fs::write(path, "1").map_err(HolderError::file("writing", path))?;
    }
    let mut output = io::stdout().lock();
    writeln!(output, "{READY_LINE}")
        .and_then(|()| output.flush())
        .map_err(HolderError::file("writing", Path::new("standard output")))?;
    loop {
        // Reap orphans of the namespace, whose parent is this process.
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
        {
        }
        children.wait().map_err(HolderError::kernel("waiting for a signal"))?;
    }
}

/// Mounts the private directories and a `/proc` of the PID namespace.
fn mount_private_directories(root: &Path) -> Result<(), HolderError> {
    let none: Option<&str> = None;
    let change = |flags| mount(none, "/", none, flags | MsFlags::MS_REC, none);
    change(MsFlags::MS_PRIVATE).map_err(HolderError::kernel("parting from the machine's mounts"))?;
    for (name, target) in PRIVATE_DIRECTORIES {
        let source = root.join(name);
        mount(Some(&source), target, none, MsFlags::MS_BIND, none)
            .map_err(|errno| HolderError::file("mounting over", Path::new(target))(errno.into()))?;
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none)
        .map_err(|errno| HolderError::file("mounting", Path::new("/proc"))(errno.into()))?;
    // Share mounts between the programs inside, as systemd does.
    change(MsFlags::MS_SHARED).map_err(HolderError::kernel("sharing mounts inside the node"))
}

fn run(args: &RunArgs) -> Result<ExitCode, HolderError> {
    let open = |name: &str| {
        let path = PathBuf::from(format!("/proc/{}/ns/{name}", args.pid));
        File::open(&path).map_err(HolderError::file("opening", &path))
    };
    let namespaces = [
        (open("uts")?, CloneFlags::CLONE_NEWUTS),
        (open("net")?, CloneFlags::CLONE_NEWNET),
        (open("pid")?, CloneFlags::CLONE_NEWPID),
        (open("mnt")?, CloneFlags::CLONE_NEWNS),
    ];
    for (namespace, kind) in &namespaces {
        setns(namespace, *kind).map_err(HolderError::kernel("entering a namespace of the node"))?;
    }
    drop(namespaces);
    let Some((program, arguments)) = args.command.split_first() else { return Ok(ExitCode::SUCCESS) };
    let failed = || HolderError::file("starting", Path::new(program));
    // Created after entering the namespaces: earlier threads would stay outside.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    let status = runtime.block_on(async {
        // The process group gets these signals, and this process must outlive the program. Handlers are used because
        // the
        // program would inherit blocked or ignored signals.
        let _terminate = signal(SignalKind::terminate()).map_err(failed())?;
        let _interrupt = signal(SignalKind::interrupt()).map_err(failed())?;
        let setpriv = crate::spawner::setpriv().unwrap_or_else(|| "setpriv".into());
        let mut child = tokio::process::Command::new(setpriv);
        child.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments).current_dir("/");
        child.status().await.map_err(failed())
    })?;
    // The exit code of a shell: 128 plus the signal number.
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Blocks signals, so that they can be waited for.
fn block_signals(signals: &[Signal]) -> Result<SigSet, HolderError> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block().map_err(HolderError::kernel("blocking signals"))?;
    Ok(set)
}
