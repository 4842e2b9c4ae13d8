//! The rendered book: mdBook builds it, a browser shows every page, and the search finds them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::book::{pages, root};

/// The version of mdBook that `make lanes` installs.
const MDBOOK: &str = "0.5.4";
/// Time in which a page has to run its scripts, in milliseconds of the browser's own clock.
const BUDGET: &str = "--virtual-time-budget=10000";

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// mdBook, which is installed once below the target directory.
fn mdbook() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
    let folder = target.join(format!("mdbook-{MDBOOK}"));
    let program = folder.join("bin/mdbook");
    if !program.is_file() {
        run(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["install", "--quiet", "--locked", "mdbook", "--version", MDBOOK, "--root"])
            .arg(&folder));
    }
    program
}

/// A page after its scripts have run.
fn shown(url: &str) -> String {
    run(Command::new("chromium").args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        BUDGET,
        "--dump-dom",
        url,
    ]))
}

#[test]
fn browser_shows_every_page_and_search_finds_them() {
    let folder = tempfile::tempdir().expect("a directory");
    run(Command::new(mdbook()).arg("build").arg(root().join("docs")).arg("--dest-dir").arg(folder.path()));
    let source = root().join("docs/src");
    for page in pages() {
        let relative = page.strip_prefix(&source).expect("a page of the book").with_extension("html");
        let html = shown(&format!("file://{}", folder.path().join(&relative).display()));
        let text = std::fs::read_to_string(&page).expect("the page");
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).expect("a title");
        let title = title.replace('`', "").replace('&', "&amp;");
        let (_, content) = html.split_once("<main>").expect("a main part");
        let (heading, _) = content.split_once("</h1>").expect("a heading");
        assert!(heading.contains(&title), "{} has the heading {heading}", relative.display());
    }
    let found = shown(&format!("file://{}/introduction.html?search=adopt", folder.path().display()));
    let (_, results) = found.split_once("id=\"mdbook-searchresults\"").expect("a list of results");
    let (results, _) = results.split_once("</ul>").expect("the end of the list");
    assert!(results.contains("how-to/onboarding.html"), "the search for adopt finds: {results}");
}
