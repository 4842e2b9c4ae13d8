//! ARCHITECTURE.md names files and items. A reader who looks for one finds it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use regex::Regex;

/// Folders with nothing of ours.
const OTHERS: [&str; 3] = ["target", "node_modules", ".git"];

/// The files below a folder, as paths from `root`.
fn files(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if entry.file_type().expect("a type").is_dir() {
            if !OTHERS.contains(&entry.file_name().to_string_lossy().as_ref()) {
                files(root, &path, found);
            }
        } else {
            found.push(path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned());
        }
    }
}

/// What `a/{b,c}/d` stands for.
fn alternatives(text: &str) -> Vec<String> {
    let Some((before, (inner, after))) =
        text.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![text.to_owned()];
    };
    inner.split(',').flat_map(|one| alternatives(&format!("{before}{}{after}", one.trim()))).collect()
}

/// The names in backticks that no file has: paths as a whole, and of other texts each word.
fn unknown(text: &str, paths: &[String], words: &HashSet<&str>) -> Vec<String> {
    let (code, word) = (Regex::new("`([^`\n]+)`"), Regex::new(r"[A-Za-z_][A-Za-z0-9_]+"));
    let (code, word) = (code.expect("a regex"), word.expect("a regex"));
    let path = Regex::new(r"^[\w.{},-]+(/[\w.{},-]*)+$").expect("a regex");
    let is_there = |wanted: &str| {
        let wanted = format!("/{}", wanted.trim_end_matches('/'));
        paths.iter().any(|path| {
            let path = format!("/{path}");
            path.match_indices(&wanted).any(|(at, _)| {
                let rest = &path[at + wanted.len()..];
                rest.is_empty() || rest.starts_with('/') || rest == ".rs"
            })
        })
    };
    let mut unknown = Vec::new();
    // Code blocks have the three backticks of their ends on lines of their own.
    let text = text.replace("```", "");
    for found in code.captures_iter(&text).map(|found| found.extract::<1>().1[0]) {
        if path.is_match(found) {
            unknown.extend(alternatives(found).into_iter().filter(|path| !is_there(path)));
        } else {
            let words = word.find_iter(found).map(|word| word.as_str()).filter(|word| !words.contains(word));
            unknown.extend(words.map(str::to_owned));
        }
    }
    unknown
}

#[test]
fn names_in_the_architecture_exist() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut paths = Vec::new();
    files(root, root, &mut paths);
    paths.retain(|path| path != "ARCHITECTURE.md");
    let texts: Vec<String> =
        paths.iter().filter_map(|path| fs::read_to_string(root.join(path)).ok()).collect();
    let word = Regex::new(r"[A-Za-z_][A-Za-z0-9_]+").expect("a regex");
    let all = texts.iter().chain(&paths).flat_map(|text| word.find_iter(text)).map(|word| word.as_str());
    let words: HashSet<&str> = all.collect();
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    assert_eq!(unknown(&text, &paths, &words), Vec::<String>::new(), "no file has these names");
    let missing =
        unknown("`a/{b,c}.rs` `there not_there`", &["x/a/b.rs".to_owned()], &HashSet::from(["there"]));
    assert_eq!(missing, ["a/c.rs", "not_there"]);
}

#[test]
fn architecture_is_read_in_a_quarter_of_an_hour() {
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md")).expect("it is there");
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    assert!(words <= 2500, "{words} words: say it in the documentation of a crate");
}
