//! Puts the plugin into a folder of CNI plugins.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use crate::Error;

/// The name by which container runtimes find the plugin.
pub const NAME: &str = "eno-ipam";

/// The plugin before it has its name: no name of a plugin begins with a dot.
const NEW: &str = ".eno-ipam.new";

/// Copies `program` into the folder, which has to exist. The file is replaced at once, and a plugin that runs keeps the
/// former one. Nothing is written if it is there already.
pub fn install(program: &Path, folder: &Path) -> Result<(), Error> {
    let content = fs::read(program).map_err(failed("read", program))?;
    let file = folder.join(NAME);
    if fs::read(&file).is_ok_and(|former| former == content) && is_executable(&file) {
        return Ok(());
    }
    let new = folder.join(NEW);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("remove", &new)(error)),
        _ => {}
    }
    write(&new, &content).map_err(failed("write", &new))?;
    fs::rename(&new, &file).map_err(failed("rename", &new))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(0o755))?;
    file.sync_all()
}

fn is_executable(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o777 == 0o755)
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { operation, path, source }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn plugin_is_replaced_at_once_and_written_only_if_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        fs::write(path("program"), "one").unwrap();
        install(&path("program"), folder.path()).unwrap();
        assert_eq!(fs::read(path(NAME)).unwrap(), b"one");
        assert!(is_executable(&path(NAME)));
        // Who runs the former one keeps it. What a stopped installation left does not matter.
        let mut running = File::open(path(NAME)).unwrap();
        fs::write(path(NEW), "half of").unwrap();
        fs::write(path("program"), "two").unwrap();
        install(&path("program"), folder.path()).unwrap();
        assert_eq!(fs::read(path(NAME)).unwrap(), b"two");
        let mut content = String::new();
        running.read_to_string(&mut content).unwrap();
        assert_eq!(content, "one");
        assert!(!path(NEW).exists());

        let written = || path(NAME).metadata().unwrap().modified().unwrap();
        let before = written();
        install(&path("program"), folder.path()).unwrap();
        assert_eq!(written(), before);
        // Another hand took away the right to run it.
        fs::set_permissions(path(NAME), Permissions::from_mode(0o644)).unwrap();
        install(&path("program"), folder.path()).unwrap();
        assert!(is_executable(&path(NAME)));
    }

    #[test]
    fn link_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        fs::write(path("program"), "ours").unwrap();
        for name in [NAME, NEW] {
            fs::write(path("foreign"), "theirs").unwrap();
            std::os::unix::fs::symlink(path("foreign"), path(name)).unwrap();
            install(&path("program"), folder.path()).unwrap();
            assert_eq!(fs::read(path("foreign")).unwrap(), b"theirs");
            assert!(is_executable(&path(NAME)));
            fs::remove_file(path(NAME)).unwrap();
        }
    }

    #[test]
    fn missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let (program, missing) = (folder.path().join("program"), folder.path().join("missing"));
        fs::write(&program, "one").unwrap();
        let error = install(&program, &missing).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
