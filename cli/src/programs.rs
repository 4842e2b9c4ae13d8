//! Finds the programs that this one runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

/// A program is not found.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The operating system doesn't report this program's path.
    #[error("finding this program's own file: {0}")]
    Unknown(#[source] io::Error),
    /// Neither this program nor one beside it is `eno`.
    #[error("build eno with cargo build -p eno: it is neither in {} nor in the folder above", folder.display())]
    NoEno {
        /// The folder that was searched.
        folder: PathBuf,
    },
    /// It is neither beside `eno` nor in `PATH`.
    #[error(
        "install {program}, or build it with cargo build --workspace --bins: it is neither beside eno nor in PATH"
    )]
    NoProgram {
        /// Its name.
        program: String,
    },
    /// A driver's name has a character that is not allowed.
    #[error("use only a-z, 0-9 and '-' in a driver's name: {0:?} is not one")]
    DriverName(String),
    /// No such driver is installed.
    #[error("install {program}, the program of driver {name}: it is neither beside this program nor in PATH")]
    NoDriver {
        /// Its name.
        name: String,
        /// The name of its program.
        program: String,
    },
}

/// The path of the `eno` program, for programs that run it as a child.
pub fn eno() -> Result<PathBuf, ProgramError> {
    let this = env::current_exe().map_err(ProgramError::Unknown)?;
    if this.file_name().is_some_and(|name| name == "eno" || name == "kubectl-eno") {
        return Ok(this);
    }
    // A test program is in `target/…/deps`, one folder below `eno`.
    let folder = this.parent().unwrap_or(Path::new("/"));
    [Some(folder), folder.parent()]
        .into_iter()
        .flatten()
        .map(|folder| folder.join("eno"))
        .find(|path| path.is_file())
        .ok_or_else(|| ProgramError::NoEno { folder: folder.to_owned() })
}

/// The command that runs a driver: `eno-driver-NAME` from beside this program, else from `PATH`.
pub fn driver(name: &str) -> Result<Command, ProgramError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(allowed) {
        return Err(ProgramError::DriverName(name.to_owned()));
    }
    let program = format!("eno-driver-{name}");
    match find_program(&program) {
        Err(ProgramError::NoProgram { program }) => {
            Err(ProgramError::NoDriver { name: name.to_owned(), program })
        }
        found => found.map(Command::new),
    }
}

/// The path of a program of the workspace: beside `eno`, else in `PATH`.
pub fn find_program(program: &str) -> Result<PathBuf, ProgramError> {
    let eno = eno()?;
    let path = env::var_os("PATH").unwrap_or_default();
    eno.parent()
        .map(Path::to_owned)
        .into_iter()
        .chain(env::split_paths(&path))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| ProgramError::NoProgram { program: program.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_name_must_not_be_a_path() {
        for name in ["", "../sh", "a/b", "NETCONF", "a b", "ä"] {
            assert!(matches!(driver(name), Err(ProgramError::DriverName(_))), "{name}");
        }
        let missing = driver("no-such-driver");
        assert!(matches!(missing, Err(ProgramError::NoDriver { .. } | ProgramError::NoEno { .. })));
    }
}
