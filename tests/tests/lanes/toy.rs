//! What a further kind and a further driver cost: a copy of the tree gets both, by few files. The copy's own programs make
//! objects of both ready. Whichever of these files is missing, the compiler or a test names it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use eno_control_plane::parts::{Part, Parts};
use eno_nbi_crds::manifest;
use serde_json::json;

use crate::book::root;

/// The files that are new, with the same paths below `tests/toy` as below the tree.
const NEW: [&str; 5] = [
    "nbi-crds/src/toy.rs",
    "engine/core/src/kinds/toy.rs",
    "drivers/toy/Cargo.toml",
    "drivers/toy/part.toml",
    "drivers/toy/src/main.rs",
];

/// The lines that are new in other files: each with the line that it comes before.
const LINES: [(&str, &[(&str, &str)]); 5] = [
    (
        "nbi-crds/src/lib.rs",
        &[
            ("mod toy;", "mod subnet;"),
            ("pub use toy::{Toy, ToySpec};", "pub use subnet::{Dns, IpPool, IpType, Subnet, SubnetSpec};"),
            ("Definition::of::<Toy>(),", "        Definition::of::<Subnet>(),"),
        ],
    ),
    (
        "engine/core/src/kinds/mod.rs",
        &[
            ("mod toy;", "mod subnet;"),
            ("pub use toy::ToySpec;", "pub use subnet::SubnetSpec;"),
            ("Toy(ToySpec) by toy: Toy;", "    Device(DeviceSpec) by device: FabricDevice;"),
        ],
    ),
    (
        "engine/runtime/src/watch/ingest/mod.rs",
        &[(
            "Kind::Toy => Spec::Toy(read(value)?),",
            "        Kind::Subnet => Spec::Subnet(subnet::subnet(read(value)?)?),",
        )],
    ),
    ("nbi-crds/tests/apiserver/accepted.yaml", &[("Toy:\n- {FabricDevices: [leaf1]}", "Route:")]),
    (
        "nbi-crds/tests/apiserver/refused.yaml",
        &[("Toy:\n- spec: {FabricDevices: [A]}\n  error: [spec.FabricDevices, must be the name]", "Route:")],
    ),
];

/// What tells that one of the files is missing: the arguments of `cargo`, and a text that it then prints.
const FINDINGS: [(&str, &str, &str); 10] = [
    ("nbi-crds/src/toy.rs", "build -p eno-nbi-crds", "nbi-crds/src/toy.rs"),
    ("nbi-crds/src/lib.rs", "test -p eno-nbi-crds --test tests every_kind", "Toy"),
    ("engine/core/src/kinds/toy.rs", "build -p eno-core", "kinds/toy.rs"),
    ("engine/core/src/kinds/mod.rs", "build -p eno-engine", "`Toy`"),
    ("engine/runtime/src/watch/ingest/mod.rs", "build -p eno-engine", "Kind::Toy` not covered"),
    ("nbi-crds/tests/apiserver/accepted.yaml", "test -p eno-nbi-crds --test tests every_kind", "Toy"),
    ("nbi-crds/tests/apiserver/refused.yaml", "test -p eno-nbi-crds --test tests every_kind", "Toy"),
    ("drivers/toy/Cargo.toml", "build -p eno-parts", "drivers/toy/Cargo.toml"),
    ("drivers/toy/part.toml", "build -p eno-parts", "drivers/toy/part.toml"),
    ("drivers/toy/src/main.rs", "build -p eno-driver-toy", "src/main.rs"),
];

/// A copy of the tree.
struct Tree(PathBuf);

impl Tree {
    /// The committed files, and what the build made of the dependencies.
    fn copy() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toy");
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("the folder of an earlier run");
        }
        fs::create_dir_all(folder.join("target/debug")).expect("a folder");
        // Its own packages are compiled anew: links to their files would change those of this build.
        let script = "cd \"$0\" && git ls-files -z | xargs -0 cp --parents --preserve=timestamps -t \"$1\"
            cd target/debug
            find deps -type f ! -name 'libeno*' ! -name 'eno*' -print0 | xargs -0 cp --parents -lt \"$1/target/debug\"
            find build .fingerprint -mindepth 1 -maxdepth 1 ! -name 'eno*' -print0 \
              | xargs -0 cp --parents -a -t \"$1/target/debug\"";
        let mut copying = Command::new("bash");
        copying.args(["-euo", "pipefail", "-c", script]).args([&root(), &folder]);
        let output = copying.output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Writes a file of the toy.
    fn add(&self, file: &str) {
        let path = self.path(file);
        let text = match LINES.iter().find(|(of, _)| *of == file) {
            None => fs::read_to_string(root().join("tests/toy").join(file)).expect(file),
            Some((_, lines)) => {
                let text = fs::read_to_string(root().join(file)).expect(file);
                lines.iter().fold(text, |text, (new, before)| {
                    let before = format!("\n{before}\n");
                    assert_eq!(text.matches(&before).count(), 1, "{file} has not one line {before:?}");
                    text.replace(&before, &format!("\n{new}{before}"))
                })
            }
        };
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect(file);
    }

    /// Takes a file of the toy away.
    fn take(&self, file: &str) {
        if NEW.contains(&file) {
            fs::remove_file(self.path(file)).expect(file);
        } else {
            let text = fs::read_to_string(root().join(file)).expect(file);
            fs::write(self.path(file), text).expect(file);
        }
    }

    fn cargo(&self, arguments: &str) -> Output {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // A test has its package's variables, and the programs of this build.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_EXE_"]
                .iter()
                .any(|own| name.to_string_lossy().starts_with(own))
            {
                command.env_remove(name);
            }
        }
        command.args(arguments.split(' ')).current_dir(&self.0).env("CARGO_TARGET_DIR", self.path("target"));
        command.output().expect("cargo")
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A sandbox of the copy. Dropping it ends the sandbox.
struct Sandbox(Child);

impl Sandbox {
    /// Starts it; returns when it is ready.
    fn start(tree: &Tree) -> Self {
        let mut command = Command::new(tree.path("target/debug/eno-lab"));
        command.arg("sandbox").arg("--dir").arg(tree.path("sandbox")).stdout(Stdio::piped());
        let mut child = command.spawn().expect("eno-lab of the copy");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        assert!(
            output.lines().map_while(Result::ok).any(|line| line == "ready"),
            "the sandbox did not start"
        );
        Self(child)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// Runs `kubectl`, which must succeed.
fn kubectl(program: &Path, tree: &Tree, arguments: &[&str], input: &str) {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(tree.path("sandbox/kubeconfig")).args(arguments);
    let mut child = command.stdin(Stdio::piped()).spawn().expect("kubectl");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
    assert!(child.wait().expect("kubectl ends").success(), "kubectl {arguments:?}");
}

#[tokio::test]
async fn kind_and_driver_cost_ten_files_and_each_is_named_when_it_is_missing() {
    let program = Parts::from_env().expect("the parts").get(Part::Kubectl).await.expect("kubectl");
    let tree = Tree::copy();
    for (file, ..) in FINDINGS {
        tree.add(file);
    }
    assert!(FINDINGS.len() <= 10);

    for step in ["run -q -p eno-deploy", "build --workspace"] {
        let output = tree.cargo(step);
        assert!(output.status.success(), "{step}:\n{}", text(&output));
    }
    let sandbox = Sandbox::start(&tree);
    let device = json!({
        "Driver": "toy", "Address": "toy", "Ports": [{ "Name": "e1", "PhysicalNW": "toys" }],
    });
    for object in [
        manifest("PhysicalNetwork", "toys", json!({ "SegmentationIDs": ["3999"] })),
        manifest("FabricDevice", "toy1", device),
        manifest("L2Service", "toy", json!({ "SegmentationID": 3999, "PhysicalNW": ["toys"] })),
    ] {
        kubectl(&program, &tree, &["apply", "-f", "-"], &object.to_string());
    }
    let toy = json!({
        "apiVersion": "eno.k8s.io/v1alpha1", "kind": "Toy", "metadata": { "name": "toy" },
        "spec": { "FabricDevices": ["toy1"] },
    });
    kubectl(&program, &tree, &["apply", "-f", "-"], &toy.to_string());
    for object in ["fabricdevice/toy1", "l2service/toy", "toy/toy"] {
        let is_ready = "--for=jsonpath={.status.phase}=ready";
        kubectl(&program, &tree, &["wait", is_ready, object, "--timeout=60s"], "");
    }
    drop(sandbox);

    for (file, arguments, named) in FINDINGS {
        tree.take(file);
        let output = tree.cargo(arguments);
        let text = text(&output);
        assert!(!output.status.success(), "nothing says that {file} is missing");
        assert!(text.contains(named), "without {file}, {named:?} is not named:\n{text}");
        println!("without {file}: {}", text.lines().find(|line| line.contains(named)).unwrap_or_default());
        tree.add(file);
    }
    fs::remove_dir_all(&tree.0).expect("the copy");
}
