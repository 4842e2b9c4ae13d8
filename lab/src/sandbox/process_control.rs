//! Pauses processes, and kills and restarts parts of the control plane.

use std::path::PathBuf;
use std::process::Command;

use super::{Sandbox, SandboxError};

/// A killed part of the control plane, with its command for the restart.
#[derive(Debug)]
pub struct StoppedPart {
    name: String,
    command: Command,
}

impl Sandbox {
    /// Pauses a process until [`Self::resume_child`].
    pub fn pause_child(&self, name: &str) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().pause_child(name)?)
    }

    /// Resumes a paused process.
    pub fn resume_child(&self, name: &str) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().resume_child(name)?)
    }

    /// Kills a part of the control plane, such as `nats-server`, like a crash.
    pub async fn kill_part(&self, name: &str) -> Result<StoppedPart, SandboxError> {
        let supervisor = self.control_plane.supervisor();
        let pid = supervisor.pid(name).ok_or_else(|| SandboxError::NoSuchChild(name.to_owned()))?;
        let read_strings = |file: &str| {
            let path = PathBuf::from(format!("/proc/{pid}/{file}"));
            let bytes = std::fs::read(&path).map_err(SandboxError::file("reading", &path))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Ok::<_, SandboxError>(text.split_terminator('\0').map(str::to_owned).collect::<Vec<_>>())
        };
        let (arguments, environment) = (read_strings("cmdline")?, read_strings("environ")?);
        let Some((program, arguments)) = arguments.split_first() else {
            return Err(SandboxError::NoSuchChild(name.to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments).env_clear();
        command.envs(environment.iter().filter_map(|variable| variable.split_once('=')));
        supervisor.kill_child(name).await?;
        Ok(StoppedPart { name: name.to_owned(), command })
    }

    /// Restarts a killed part with the same program, arguments and environment.
    pub async fn start_part(&self, part: StoppedPart) -> Result<(), SandboxError> {
        Ok(self.control_plane.supervisor().spawn(&part.name, part.command).await?)
    }
}
