//! A Python environment with ncclient, an independent NETCONF client.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Requirements of the virtual environment; a change recreates it.
const REQUIREMENTS: &str = "tests/ncclient/requirements.txt";

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns the interpreter of a virtual environment with ncclient and pytest, created once in the target directory.
pub fn python(crate_dir: &Path) -> PathBuf {
    // Cargo creates target/tmp for integration tests.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    let venv = target.join("venv-ncclient");
    let lock = File::create(target.join("venv-ncclient.lock")).expect("the lock file can be made");
    lock.lock().expect("the lock file can be locked");
    let requirements = std::fs::read(crate_dir.join(REQUIREMENTS)).expect("requirements.txt is there");
    let stamp = venv.join("installed-requirements.txt");
    let python = venv.join("bin/python");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == requirements) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(crate_dir.join(REQUIREMENTS)));
    std::fs::write(&stamp, requirements).expect("the stamp can be written");
    python
}
