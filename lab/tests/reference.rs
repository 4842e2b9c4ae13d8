//! The reference of the commands is the one that the book has.

use std::path::Path;
use std::process::Command;

#[test]
fn book_has_the_help_of_every_command() {
    let output = Command::new(env!("CARGO_BIN_EXE_eno-lab")).arg("reference").output().expect("eno-lab runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference/commands.md");
    let written = std::fs::read_to_string(page).expect("the page");
    assert!(
        String::from_utf8_lossy(&output.stdout) == written,
        "docs/src/reference/commands.md is stale: make crds"
    );
}

/// Each table of figures in the page about the benchmark is the one that its file of figures gives.
#[test]
fn figures_of_the_book_are_measured() {
    let explanation = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/explanation");
    let page = std::fs::read_to_string(explanation.join("benchmark.md")).expect("the page");
    let mut count = 0;
    for entry in std::fs::read_dir(explanation.join("figures")).expect("the figures") {
        let file = entry.expect("an entry").path();
        let json = std::fs::read_to_string(&file).expect("a file of figures");
        let table = eno_lab::bench::markdown(&json).expect("figures");
        assert!(page.contains(&table), "benchmark.md lacks the table of {}:\n{table}", file.display());
        count += 1;
    }
    assert!(count > 0, "{count} files of figures");
}
