//! Starts programs that the kernel kills when this process dies (PR_SET_PDEATHSIG).
//!
//! The kernel sends the signal when the *thread* that started the child ends, and threads of a runtime are
//! short-lived. So one thread, which lives as long as the process, starts all children. Setting the signal between
//! fork and exec would need unsafe code. `setpriv` of util-linux sets it and then executes the program.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};

use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Finds `setpriv`.
pub(crate) fn setpriv() -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join("setpriv"))
        .find(|path| path.is_file())
}

/// Wraps a command so that the child is killed with this process. The child gets a process group of its own: a
/// Ctrl-C on the terminal reaches this process only, which then stops its children in order.
pub(crate) fn bind_to_process(
    setpriv: &Path,
    command: &Command,
    output: Stdio,
    errors: Stdio,
) -> tokio::process::Command {
    let mut bound = tokio::process::Command::new(setpriv);
    bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        bound.current_dir(directory);
    }
    bound.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0).kill_on_drop(true);
    bound
}

/// Starts a command from the spawner thread.
pub(crate) async fn spawn(mut command: tokio::process::Command) -> io::Result<Child> {
    let runtime = Handle::current();
    let (reply, response) = oneshot::channel();
    let gone = || io::Error::other("the thread that starts children is gone");
    submit(Box::new(move || {
        let _entered = runtime.enter();
        // If the caller was cancelled, this drops and so kills the child.
        let _ = reply.send(command.spawn());
    }))
    .map_err(|()| gone())?;
    response.await.map_err(|_| gone())?
}

fn submit(job: Job) -> Result<(), ()> {
    static JOBS: OnceLock<Option<Mutex<mpsc::Sender<Job>>>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let run = move || waiting.iter().for_each(|job| job());
        std::thread::Builder::new().name("eno-spawner".to_owned()).spawn(run).ok().map(|_| Mutex::new(jobs))
    });
    let jobs = jobs.as_ref().ok_or(())?;
    jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job).map_err(|_| ())
}
