//! The pages of `eno ui`: the files that `eno` carries are those of the sources, whose types and tests are checked. What
//! is in them has a licence that `deny.toml` allows.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use eno_tests::browser::{folder, install_packages};
use serde_json::Value;

/// Runs a program in `console/`.
fn run(program: &str, arguments: &[&str]) -> Output {
    install_packages();
    let output = Command::new(program).args(arguments).current_dir(folder()).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; `make deps` installs it"))
}

/// Runs a program in `console/`, which must succeed.
fn succeeds(program: &str, arguments: &[&str]) {
    let output = run(program, arguments);
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{program} {}:\n{}", arguments.join(" "), text.concat());
}

/// The files of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let file = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().expect("UTF-8"), std::fs::read(entry.path()).expect("a file"))
    };
    entries.map(|entry| file(entry.expect("an entry"))).collect()
}

#[test]
fn committed_bundle_is_current() {
    let built = tempfile::tempdir().expect("a directory");
    succeeds("node", &["build.mjs", built.path().to_str().expect("UTF-8")]);
    let (built, committed) = (files(built.path()), files(&folder().join("dist")));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&committed), names(&built), "console/dist is stale; run: make console");
    for (name, bytes) in &built {
        assert!(&committed[name] == bytes, "console/dist/{name} is stale; run: make console");
    }
}

#[test]
fn types_of_the_pages_are_right() {
    succeeds("npm", &["run", "--silent", "check"]);
}

#[test]
fn units_of_the_pages_work() {
    succeeds("npm", &["run", "--silent", "test"]);
}

/// The list `allow` of the section `licenses` of `deny.toml`.
fn allowed_licences() -> Vec<String> {
    let text = std::fs::read_to_string(folder().join("../deny.toml")).expect("deny.toml");
    let (_, section) = text.split_once("[licenses]").expect("the section");
    let (_, list) = section.split_once("allow = [").expect("the list");
    let (list, _) = list.split_once(']').expect("its end");
    let texts = list.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next());
    texts.map(str::to_owned).collect()
}

#[test]
fn licences_of_bundled_packages_are_allowed() {
    let lock = std::fs::read_to_string(folder().join("package-lock.json")).expect("a file");
    let lock: Value = serde_json::from_str(&lock).expect("JSON");
    let packages =
        lock["packages"].as_object().expect("packages").iter().filter(|(path, _)| !path.is_empty());
    let allowed = allowed_licences();
    assert!(allowed.iter().any(|licence| licence == "MIT"), "{allowed:?}");
    let (mut bundled, mut tools) = (Vec::new(), BTreeMap::<&str, Vec<&str>>::new());
    for (path, package) in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        let name = path.trim_start_matches("node_modules/");
        // The hash identifies a package on any mirror.
        assert!(package["resolved"].is_null(), "{name} names a server: console/.npmrc leaves it out");
        assert!(
            package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")),
            "{name} has no hash"
        );
        if package["dev"] == true {
            tools.entry(licence).or_default().push(name);
        } else {
            assert!(allowed.iter().any(|one| one == licence), "{name}: deny.toml does not allow {licence}");
            bundled.push(name);
        }
    }
    assert_eq!(bundled, ["preact"], "what the pages contain");
    // Tools are not in the pages. Their licences are listed here, so that a new one is noticed.
    let licences: Vec<&str> = tools.keys().copied().collect();
    assert_eq!(licences, ["Apache-2.0", "MIT", "MPL-2.0"], "{tools:?}");
    assert_eq!(tools["MPL-2.0"], ["axe-core"]);
}
