//! Allowed dependencies between the workspace's crates, and between the modules of the core.

mod architecture;
mod door;
mod layers;

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// The workspace crates that each crate may depend on, dev-dependencies not counted. A crate that is not listed fails
/// the test; drivers share [`DRIVERS`].
const ALLOWED: [(&str, &[&str]); 23] = [
    ("eno-schemas", &[]),
    ("eno-queue", &[]),
    ("eno-nbi-crds", &["eno-schemas"]),
    ("eno-program", &[]),
    ("eno-parts", &[]),
    ("eno-image", &["eno-parts"]),
    ("eno-deploy", &["eno-nbi-crds", "eno-parts"]),
    ("eno-sbi", &["eno-schemas", "eno-queue", "eno-program"]),
    ("eno-device-secrets", &["eno-schemas", "eno-sbi"]),
    ("eno-fabric-driver", &["eno-schemas", "eno-sbi"]),
    ("eno-http-client", &[]),
    ("eno-conformance", &["eno-schemas", "eno-sbi", "eno-control-plane", "eno-parts"]),
    ("eno-core", &["eno-schemas", "eno-queue"]),
    ("eno-engine", &["eno-core", "eno-schemas", "eno-queue", "eno-nbi-crds", "eno-sbi", "eno-http-client"]),
    ("eno-simulator", &[]),
    ("eno-ovsdb", &[]),
    ("eno-cri", &["eno-program"]),
    ("eno-ipam", &["eno-schemas"]),
    ("eno-vm-lane", &[]),
    ("eno-control-plane", &["eno-image", "eno-parts"]),
    ("eno", &["eno-engine", "eno-parts", "eno-program", "eno-schemas", "eno-sbi", "eno-nbi-crds"]),
    (
        "eno-lab",
        &[
            "eno",
            "eno-schemas",
            "eno-sbi",
            "eno-nbi-crds",
            "eno-simulator",
            "eno-control-plane",
            "eno-image",
            "eno-conformance",
            "eno-parts",
        ],
    ),
    ("eno-tests", &["eno", "eno-lab", "eno-nbi-crds", "eno-parts", "eno-simulator", "eno-control-plane"]),
];

/// The workspace crates that a driver may depend on.
const DRIVERS: &[&str] = &[
    "eno-schemas",
    "eno-queue",
    "eno-sbi",
    "eno-device-secrets",
    "eno-fabric-driver",
    "eno-http-client",
    "eno-ovsdb",
    "eno-cri",
    "eno-ipam",
];

/// Crates that a pure crate may not depend on, even indirectly: runtimes, clusters, networking, clocks and randomness.
const IMPURE: [&str; 9] =
    ["tokio", "kube", "k8s-openapi", "async-nats", "reqwest", "hyper", "jiff", "chrono", "rand"];

fn metadata() -> Metadata {
    // Cargo may have to fetch crates of other platforms for the metadata.
    MetadataCommand::new().other_options(["--locked".to_owned()]).exec().expect("cargo metadata")
}

fn is_driver(name: &str) -> bool {
    name.starts_with("eno-driver-")
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let metadata = metadata();
    let workspace_crates: BTreeSet<&str> =
        metadata.workspace_packages().iter().map(|package| package.name.as_str()).collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into();
    let mut violations = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(allowed_imports) = allowed.get(name).copied().or(is_driver(name).then_some(DRIVERS)) else {
            violations.push(format!("{name} has no rule"));
            continue;
        };
        let imports =
            package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
        for import in imports.filter(|import| workspace_crates.contains(import.name.as_str())) {
            let import = import.name.as_str();
            if !allowed_imports.contains(&import) {
                violations.push(format!("{name} imports {import}"));
            }
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn driver_tests_depend_on_no_engine_and_no_other_driver() {
    let metadata = metadata();
    for package in metadata.workspace_packages().into_iter().filter(|package| is_driver(&package.name)) {
        for dependency in &package.dependencies {
            let import = dependency.name.as_str();
            assert!(!is_driver(import), "{} imports {import}", package.name);
            assert!(
                !["eno", "eno-core", "eno-engine"].contains(&import),
                "{} imports {import}",
                package.name
            );
        }
    }
}

#[test]
fn simulator_depends_on_no_crate_of_the_workspace() {
    let metadata = metadata();
    let simulator = metadata
        .workspace_packages()
        .into_iter()
        .find(|package| package.name == "eno-simulator")
        .expect("it");
    let workspace_crates = simulator.dependencies.iter().filter(|dependency| dependency.path.is_some());
    assert_eq!(workspace_crates.map(|dependency| dependency.name.as_str()).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn core_depends_on_no_runtime_clock_or_network() {
    let metadata = metadata();
    let resolve = metadata.resolve.as_ref().expect("a resolved graph");
    let name = |id| metadata[id].name.as_str();
    let root = resolve.nodes.iter().find(|node| name(&node.id) == "eno-core").expect("eno-core");
    let mut seen = BTreeSet::new();
    let mut todo = vec![&root.id];
    while let Some(id) = todo.pop() {
        let node = resolve.nodes.iter().find(|node| node.id == *id).expect("a node of the graph");
        for dependency in &node.deps {
            let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if normal && seen.insert(name(&dependency.pkg)) {
                todo.push(&dependency.pkg);
            }
        }
    }
    let impure: Vec<_> = IMPURE.into_iter().filter(|import| seen.contains(import)).collect();
    assert!(impure.is_empty(), "eno-core sees {impure:?}");
}

/// Cargo doesn't search `tests` for files here, so a file that `main.rs` leaves out would never run.
#[test]
fn every_test_file_is_a_module_of_the_test_binary() {
    let mut left_out = Vec::new();
    for package in metadata().workspace_packages() {
        let tests = package.manifest_path.with_file_name("tests");
        let Ok(main) = std::fs::read_to_string(tests.join("main.rs")) else { continue };
        let targets: Vec<_> = package.targets.iter().map(|target| &target.src_path).collect();
        for entry in tests.read_dir_utf8().expect("a folder").map(|entry| entry.expect("an entry")) {
            let path = entry.path();
            let is_module = path.extension() == Some("rs") || path.join("mod.rs").exists();
            let name = path.file_stem().unwrap_or_default();
            let is_known = main.lines().any(|line| line == format!("mod {name};"));
            if is_module && !is_known && !targets.iter().any(|target| *target == path) {
                left_out.push(path.to_owned());
            }
        }
    }
    assert!(left_out.is_empty(), "not in main.rs: {left_out:?}");
}
