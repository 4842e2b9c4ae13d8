//! The process that is a node: it has the node's mount, PID, network and UTS namespaces, and nothing of them outlives it.
//!
//! `hold` makes the namespaces and starts `init`, the first process of the PID namespace; `run` starts a program in
//! them. When `init` ends, the kernel kills whatever runs in its PID namespace, and with the last process go the
//! mounts and the network. So a sandbox that is killed leaves nothing but its directory: the holder's standard input
//! is a pipe of the sandbox's, which closes when that ends in whatever way, and then the holder ends and removes the
//! cgroups, the one thing that would stay.
//!
//! Inside, `/run`, `/var/lib` and `/var/log` are the node's own, so that programs have their usual paths.

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

/// What a node has of its own, by the name of the directory that is mounted there.
pub(super) const OWN: [(&str, &str); 3] = [("run", "/run"), ("lib", "/var/lib"), ("log", "/var/log")];
/// The file that says which process is the first.
pub(super) const PID: &str = "pid";
/// What `init` says when everything is mounted.
const READY: &str = "ready";

/// A node's namespaces can't be made or entered. Retrying doesn't help.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The kernel refused; mostly for want of root's capabilities.
    #[error("{operation}: {source}")]
    Kernel {
        /// What was asked.
        operation: &'static str,
        /// Why not.
        source: Errno,
    },
    /// A file.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What failed.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Pods need them.
    #[error("no cgroup file system is mounted")]
    NoCgroups,
    /// Its log says why.
    #[error("the first process of the node ended ({0})")]
    Ended(ExitStatus),
}

impl HoldError {
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
pub enum HolderArgs {
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

/// Does it. The exit code is 0 when it was told to stop, for `run` that of the program.
pub fn execute(args: HolderArgs) -> Result<ExitCode, HoldError> {
    match args {
        HolderArgs::Hold(args) => hold(&args),
        HolderArgs::Init(args) => init(&args),
        HolderArgs::Run(args) => run(&args),
    }
}

/// Whether a directory would be hidden from programs inside.
pub(super) fn covers(path: &Path) -> bool {
    OWN.iter().any(|(_, target)| path.starts_with(target))
}

fn hold(args: &HoldArgs) -> Result<ExitCode, HoldError> {
    let ending = block(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD])?;
    // In place of being killed with the sandbox: there is something to be removed.
    set_pdeathsig(None).map_err(HoldError::kernel("outliving the parent"))?;
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        // To this process; all its threads have it blocked, and the main one waits for it.
        let _ = kill(getpid(), Signal::SIGTERM);
    });
    let root = &args.init.root;
    // The holder of an earlier life of the sandbox may still be at its end.
    let _lock = lock(&root.join("lock"))?;
    if let Some(name) = &args.cgroup {
        cgroups::remove(name)?;
        cgroups::create(name)?;
    }
    for (name, _) in OWN {
        renew(&root.join(name))?;
    }
    let result = hold_namespaces(args, &ending);
    // Not there when there was an error.
    let _ = fs::remove_file(root.join(PID));
    if let Some(name) = &args.cgroup {
        cgroups::remove(name)?;
    }
    result
}

fn lock(path: &Path) -> Result<File, HoldError> {
    let open = || {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.lock().map(|()| file)
    };
    open().map_err(HoldError::file("locking", path))
}

/// Makes the directory anew.
fn renew(path: &Path) -> Result<(), HoldError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(HoldError::file("emptying", path)(error));
        }
        _ => {}
    }
    fs::create_dir(path).map_err(HoldError::file("making the directory", path))
}

fn hold_namespaces(args: &HoldArgs, ending: &SigSet) -> Result<ExitCode, HoldError> {
    // The first process makes the mount namespace, so that this one keeps the machine's files.
    let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS;
    unshare(flags).map_err(HoldError::kernel("making namespaces"))?;
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
        .map_err(HoldError::file("starting", this))?;
    let result = await_end(args, ending, &mut init);
    // It is the first of its namespace: all in it go with it. An error says that it is gone.
    let _ = init.kill();
    let status = init.wait();
    match (result, status) {
        (Ok(true), _) => Ok(ExitCode::SUCCESS),
        (Ok(false), Ok(status)) => Err(HoldError::Ended(status)),
        (Ok(false), Err(error)) => Err(HoldError::file("waiting for", this)(error)),
        (Err(error), _) => Err(error),
    }
}

/// Whether it was told to end; else the first process ended by itself.
fn await_end(args: &HoldArgs, ending: &SigSet, init: &mut Child) -> Result<bool, HoldError> {
    let mut line = String::new();
    if let Some(output) = init.stdout.take() {
        let read = BufReader::new(output).read_line(&mut line);
        read.map_err(HoldError::file("reading the output of", Path::new("init")))?;
    }
    if line.trim_end() != READY {
        return Ok(false);
    }
    let path = args.init.root.join(PID);
    let new = path.with_extension("new");
    fs::write(&new, init.id().to_string())
        .and_then(|()| fs::rename(&new, &path))
        .map_err(HoldError::file("writing", &path))?;
    loop {
        match ending.wait().map_err(HoldError::kernel("waiting for a signal"))? {
            Signal::SIGCHLD => {
                if !matches!(init.try_wait(), Ok(None)) {
                    return Ok(false);
                }
            }
            _ => return Ok(true),
        }
    }
}

fn init(args: &InitArgs) -> Result<ExitCode, HoldError> {
    let children = block(&[Signal::SIGCHLD])?;
    // The other end is the holder's, and closed when it ends, however it ends.
    thread::spawn(|| {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    unshare(CloneFlags::CLONE_NEWNS).map_err(HoldError::kernel("making a mount namespace"))?;
    sethostname(&args.hostname).map_err(HoldError::kernel("setting the host name"))?;
    mount_own(&args.root)?;
    if args.forward {
        let path = Path::new("/proc/sys/net/ipv4/ip_forward");
        fs::write(path, "1").map_err(HoldError::file("writing", path))?;
    }
    let mut output = io::stdout().lock();
    writeln!(output, "{READY}")
        .and_then(|()| output.flush())
        .map_err(HoldError::file("writing", Path::new("standard output")))?;
    loop {
        // Whoever loses its parent in here becomes a child of this process.
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive)
        {
        }
        children.wait().map_err(HoldError::kernel("waiting for a signal"))?;
    }
}

/// Gives the mount namespace a `/proc` of its PID namespace, and the directories that are the node's own.
fn mount_own(root: &Path) -> Result<(), HoldError> {
    let none: Option<&str> = None;
    let change = |flags| mount(none, "/", none, flags | MsFlags::MS_REC, none);
    change(MsFlags::MS_PRIVATE).map_err(HoldError::kernel("parting from the machine's mounts"))?;
    for (name, target) in OWN {
        let source = root.join(name);
        mount(Some(&source), target, none, MsFlags::MS_BIND, none)
            .map_err(|errno| HoldError::file("mounting over", Path::new(target))(errno.into()))?;
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none)
        .map_err(|errno| HoldError::file("mounting", Path::new("/proc"))(errno.into()))?;
    // Mounts of one program are seen by the others, as systemd sets it up.
    change(MsFlags::MS_SHARED).map_err(HoldError::kernel("sharing mounts inside the node"))
}

fn run(args: &RunArgs) -> Result<ExitCode, HoldError> {
    let open = |name: &str| {
        let path = PathBuf::from(format!("/proc/{}/ns/{name}", args.pid));
        File::open(&path).map_err(HoldError::file("opening", &path))
    };
    let namespaces = [
        (open("uts")?, CloneFlags::CLONE_NEWUTS),
        (open("net")?, CloneFlags::CLONE_NEWNET),
        (open("pid")?, CloneFlags::CLONE_NEWPID),
        (open("mnt")?, CloneFlags::CLONE_NEWNS),
    ];
    for (namespace, kind) in &namespaces {
        setns(namespace, *kind).map_err(HoldError::kernel("entering a namespace of the node"))?;
    }
    drop(namespaces);
    let Some((program, arguments)) = args.command.split_first() else { return Ok(ExitCode::SUCCESS) };
    let failed = || HoldError::file("starting", Path::new(program));
    // Before there are threads that would stay outside.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed())?;
    let status = runtime.block_on(async {
        // The whole process group gets these; this process ends when the program has. A blocked or ignored signal
        // would be so for the program as well.
        let _terminate = signal(SignalKind::terminate()).map_err(failed())?;
        let _interrupt = signal(SignalKind::interrupt()).map_err(failed())?;
        let setpriv = crate::spawner::setpriv().unwrap_or_else(|| "setpriv".into());
        let mut child = tokio::process::Command::new(setpriv);
        child.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments).current_dir("/");
        child.status().await.map_err(failed())
    })?;
    // As a shell tells it.
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Blocks signals, to be waited for.
fn block(signals: &[Signal]) -> Result<SigSet, HoldError> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block().map_err(HoldError::kernel("blocking signals"))?;
    Ok(set)
}
