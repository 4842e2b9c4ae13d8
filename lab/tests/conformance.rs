//! The conformance suite against the driver of `examples/drivers`, which is written in Python.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/drivers/json-file")
        .canonicalize()
        .expect("the example")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The programs of a virtual environment with the driver's requirements, created once in the target directory.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    let venv = target.join("venv-json-file");
    let lock = File::create(target.join("venv-json-file.lock")).expect("the lock file can be made");
    lock.lock().expect("the lock file can be locked");
    let file = example().join("requirements.txt");
    let requirements = fs::read(&file).expect("requirements.txt is there");
    let (programs, stamp) = (venv.join("bin"), venv.join("installed-requirements.txt"));
    if fs::read(&stamp).is_ok_and(|installed| installed == requirements) {
        return programs;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    run(Command::new(programs.join("python3")).args(pip).arg(&file));
    fs::write(&stamp, requirements).expect("the stamp can be written");
    programs
}

/// Runs the suite with the fixture of a directory.
fn conformance(directory: &Path, only: &str) -> Output {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths([python()].into_iter().chain(std::env::split_paths(&path))).expect("a PATH");
    Command::new(env!("CARGO_BIN_EXE_eno-lab"))
        .args(["conformance", "--driver", "json-file", "--jobs", "4", "--only", only, "--fixture"])
        .arg(directory.join("fixture.py"))
        .env("PATH", path)
        .env("ENO_SCHEMAS", example().join("../../../schemas/v1"))
        .output()
        .expect("eno-lab runs")
}

#[test]
fn driver_in_python_passes() {
    let output = conformance(&example(), "");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("ok      refused_item_is_rejected_and_rest_applied\n"), "{text}");
}

/// The suite detects a driver that does not look at who owns its target. A finding is a line, and no backtrace.
#[test]
fn driver_that_ignores_ownership_fails() {
    let directory = tempfile::tempdir().expect("a directory");
    for entry in example().read_dir().expect("the example").map(|entry| entry.expect("an entry").path()) {
        if entry.is_file() {
            fs::copy(&entry, directory.path().join(entry.file_name().expect("its name"))).expect("a copy");
        }
    }
    let driver = directory.path().join("driver.py");
    let text = fs::read_to_string(&driver).expect("the driver");
    let careless = text.replace("if self.is_owned():", "if True:").replace("self.is_owned() and ", "");
    assert_ne!(careless, text);
    fs::write(&driver, careless).expect("the changed driver");
    let output = conformance(directory.path(), "target_of_another_instance");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{printed}{errors}");
    let finding = "FAILED  target_of_another_instance_is_left_alone: the driver works on a target that another instance";
    assert!(printed.contains(finding), "{printed}{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
}
