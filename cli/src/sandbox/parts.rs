//! Processes that are disturbed on purpose: paused, and parts of the control plane that are killed and come back.

use std::path::PathBuf;
use std::process::Command;

use super::{Sandbox, SandboxError};

/// A part of the control plane that was killed, and what it was started with.
#[derive(Debug)]
pub struct StoppedPart {
    name: String,
    command: Command,
}

impl Sandbox {
    /// Stops a process where it stands, until [`Self::resume_child`].
    pub fn pause_child(&self, name: &str) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().pause_child(name)?)
    }

    /// Has a process go on that was paused.
    pub fn resume_child(&self, name: &str) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().resume_child(name)?)
    }

    /// Kills a part of the control plane, such as `nats-server`, as a crash would.
    pub async fn kill_part(&self, name: &str) -> Result<StoppedPart, SandboxError> {
        let supervisor = self.control_plane.supervisor();
        let pid = supervisor.pid(name).ok_or_else(|| SandboxError::NoSuchChild(name.to_owned()))?;
        let words = |file: &str| {
            let path = PathBuf::from(format!("/proc/{pid}/{file}"));
            let bytes = std::fs::read(&path).map_err(SandboxError::file("reading", &path))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok::<_, SandboxError>(text.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>())
        };
        let (arguments, environment) = (words("cmdline")?, words("environ")?);
        let Some((program, arguments)) = arguments.split_first() else {
            return Err(SandboxError::NoSuchChild(name.to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear();
        command.envs(environment.iter().filter_map(|variable| variable.split_once('=')));
        supervisor.kill_child(name).await?;
        Ok(StoppedPart { name: name.to_owned(), command })
    }

    /// Starts a killed part again, as a supervisor would: the same program, arguments and environment.
    pub async fn start_part(&self, part: StoppedPart) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().spawn(&part.name, part.command).await?)
    }
}
