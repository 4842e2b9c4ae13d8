//! Builds the seeded histories with all mutants in one program, in which a variable selects one, and runs them for each.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use super::sources;
use super::table::{MUTANTS, Mutant};

/// Number of histories that have to find a mutant.
const SEEDS: &str = "2000";

/// Seconds after which histories count as failed, and a build.
const TIMEOUT: &str = "600";

/// The variable that selects a mutant.
const SELECTED: &str = "ENO_MUTANT";

/// Appended to the core: true if this mutant is selected.
const IS_MUTANT: &str = r#"
pub(crate) fn is_mutant(name: &str) -> bool {
    static SELECTED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("ENO_MUTANT").ok());
    SELECTED.as_deref() == Some(name)
}
"#;

/// Only what the seeded histories need.
const TESTS: &str = "mod address_histories;\nmod edits;\nmod nats;\nmod seeded;\nmod settled;\nmod world;\n";

/// A copy of the workspace with the core and the crates that it uses.
struct Workspace(PathBuf);

impl Workspace {
    /// A folder of this test alone, below the target folder. What is built in it stays for the next run.
    fn new() -> Self {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
        let workspace = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let (before, rest) = workspace.split_once("members = [").unwrap();
        let (_, after) = rest.split_once(']').unwrap();
        let members = r#"members = ["schemas", "queue", "engine/core"]"#;
        write(&copy.join("Cargo.toml"), &format!("{before}{members}{after}"));
        write(&copy.join("Cargo.lock"), &fs::read_to_string(root.join("Cargo.lock")).unwrap());
        for folder in ["schemas", "queue", "engine/core"] {
            copy_folder(&root.join(folder), &copy.join(folder));
        }
        write(&copy.join("engine/core/tests/main.rs"), TESTS);
        let workspace = Self(copy);
        workspace.inject(MUTANTS);
        workspace
    }

    /// Puts each mutant beside the text that it replaces.
    fn inject(&self, mutants: &[Mutant]) {
        let copied = self.0.join("engine/core/src");
        let mut files: Vec<&str> = mutants.iter().map(|mutant| mutant.file).collect();
        files.sort_unstable();
        files.dedup();
        for file in files {
            let mut text = fs::read_to_string(sources().join(file)).unwrap();
            for mutant in mutants.iter().filter(|mutant| mutant.file == file) {
                text = text.replace(mutant.from, &choice(mutant));
            }
            write(&copied.join(file), &text);
        }
        let library = fs::read_to_string(sources().join("lib.rs")).unwrap();
        write(&copied.join("lib.rs"), &(library + IS_MUTANT));
    }

    /// Runs the histories; `mutant`: with this one.
    fn run(&self, mutant: &str, arguments: &[&str]) -> Output {
        // A mutant may make the core go on forever. Building takes as long as it takes.
        let limit = if mutant.is_empty() { "0" } else { TIMEOUT };
        Command::new("timeout")
            .args([limit, &env::var("CARGO").unwrap_or_else(|_| "cargo".into())])
            .args(["test", "--offline", "-p", "eno-core", "--test", "tests"])
            .args(arguments)
            .current_dir(&self.0)
            .env("CARGO_TARGET_DIR", self.0.join("target"))
            .env(SELECTED, mutant)
            .env("ENO_SEEDS", SEEDS)
            .env_remove("ENO_SEED")
            .output()
            .expect("cargo runs")
    }

    /// What the histories find; `None`: nothing.
    fn finding(&self, mutant: &str) -> Option<String> {
        let histories = ["seeded::random_delivery", "address_histories::no_address_is_given_twice"];
        let run = self.run(mutant, &["--", histories[0], histories[1]]);
        let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
        let ran = text.contains("running 3 tests");
        assert!(ran, "{mutant}: {text}");
        let line = |text: &str| text.lines().find(|line| line.contains("replays it")).map(str::to_owned);
        (!run.status.success()).then(|| line(&text).unwrap_or(text))
    }
}

/// The text of the product, and the mutant if that is selected.
fn choice(Mutant { name, from, to, .. }: &Mutant) -> String {
    let selected = format!("crate::is_mutant({name:?})");
    if to.contains("MUTANT") {
        return to.replace("MUTANT", &selected);
    }
    let choice = format!("if {selected} {{\n{to}\n}} else {{\n{from}\n}}");
    let is_expression = !from.ends_with([';', '}']);
    if is_expression { format!("({choice})") } else { choice }
}

/// Writes a file if its text is another, so that only what changed is built.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|present| present == text) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Copies the text files of a folder. Sources that get mutants are written later.
fn copy_folder(from: &Path, to: &Path) {
    let kept = |path: &Path| {
        let name = path.strip_prefix(sources()).unwrap_or(Path::new(""));
        name == Path::new("lib.rs") || MUTANTS.iter().any(|mutant| Path::new(mutant.file) == name)
    };
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&path, &copy);
        } else if !kept(&path)
            && let Ok(text) = fs::read_to_string(&path)
        {
            write(&copy, &text);
        }
    }
}

#[test]
fn histories_find_every_mutant() {
    let workspace = Workspace::new();
    let built = workspace.run("", &["--no-run"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    assert_eq!(workspace.finding(""), None, "without a mutant");
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        match workspace.finding(mutant.name) {
            Some(finding) => println!("{}\n    {finding}", mutant.name),
            None => missed.push(mutant.name),
        }
    }
    assert!(missed.is_empty(), "the histories do not find {missed:#?}");
}
