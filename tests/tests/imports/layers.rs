//! The order of the modules of the core and of the driver netconf: each depends only on modules before it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use regex::Regex;

/// The modules in the order of the numbered list in the documentation of the crate.
fn order(lib: &str) -> Vec<&str> {
    let numbered =
        lib.lines().filter_map(|line| line.strip_prefix("//! ")?.split_once(". ")?.1.split_once(':'));
    numbered.flat_map(|(modules, _)| modules.split('`').skip(1).step_by(2)).collect()
}

fn without_comments(text: &str) -> String {
    Regex::new(r"(?m)(^|\s)//.*$").expect("a regex").replace_all(text, "").into_owned()
}

/// What `lib.rs` exports, each with the module that it is from.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let (uses, names) = (Regex::new(r"\buse (\w+)::([^;]+);"), Regex::new(r"(\w+)\s*(?:[,}]|$)"));
    let (uses, names) = (uses.expect("a regex"), names.expect("a regex"));
    let of_use = |found: regex::Captures<'_>| {
        let of = |name: regex::Captures<'_>| (name[1].to_owned(), found[1].to_owned());
        names.captures_iter(&found[2]).map(of).collect::<Vec<_>>()
    };
    uses.captures_iter(lib).flat_map(of_use).collect()
}

/// The first segments of the paths from the crate's root: of `crate::{a::B, C}`, `a` and `C`.
fn from_root(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let (mut depth, mut start) = (0, 0);
        let Some(group) = rest.strip_prefix('{') else {
            found.push(first_segment(rest));
            continue;
        };
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    found.push(first_segment(&group[start..at]));
                    start = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found.retain(|segment| !segment.is_empty());
    found
}

fn first_segment(path: &str) -> &str {
    let path = path.trim_start();
    let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(path.len());
    if path.starts_with('*') { "*" } else { &path[..end] }
}

/// The module path of a file, such as `fabric`, `gap` of `fabric/gap.rs`.
fn module_path(file: &str) -> Vec<&str> {
    file.trim_end_matches(".rs").trim_end_matches("/mod").split('/').collect()
}

/// Whether `super::` leads from a file to the crate's root. In the unit tests of the file one more does.
fn leaves_by_super(file: &str, text: &str) -> bool {
    let chains = Regex::new(r"(?:super::)+").expect("a regex");
    let tests = text.find("mod tests {").unwrap_or(text.len());
    chains.find_iter(text).any(|chain| {
        let supers = chain.len() / "super::".len() - usize::from(chain.start() > tests);
        supers >= module_path(file).len()
    })
}

/// The dependencies of modules on later ones, and what hides one. `files`: by path below `src`, without `lib.rs`.
fn faults(lib: &str, files: &BTreeMap<String, String>) -> BTreeSet<String> {
    let order = order(lib);
    let code = without_comments(lib);
    let exports = exports(&code);
    let declared = Regex::new(r"(?m)^(?:pub )?mod (\w+);").expect("a regex");
    let declared: BTreeSet<&str> =
        declared.captures_iter(&code).filter_map(|found| Some(found.get(1)?.as_str())).collect();
    let mut faults = BTreeSet::new();
    if declared != order.iter().copied().collect() || declared.len() != order.len() {
        faults.insert(format!("lib.rs declares {declared:?} and orders {order:?}"));
    }
    let position = |module: &str| order.iter().position(|known| *known == module);
    for (file, text) in files {
        let text = without_comments(text);
        let module = module_path(file)[0];
        if leaves_by_super(file, &text) {
            faults.insert(format!("{file} names the root of the crate by super::"));
        }
        for name in from_root(&text) {
            let of =
                if declared.contains(name) { name } else { exports.get(name).map_or("", String::as_str) };
            match (position(module), position(of)) {
                (Some(from), Some(to)) if to > from => {
                    faults.insert(format!("{module} depends on {of}, which comes later: {file} uses {name}"));
                }
                (Some(_), Some(_)) => {}
                _ => drop(faults.insert(format!("{file} uses {name}, which is of no module"))),
            }
        }
    }
    faults
}

/// Reads the sources below a folder into `files`, by their path below `src`.
fn read(folder: &Path, prefix: &str, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_str().expect("UTF-8");
        if path.is_dir() {
            read(&path, &format!("{prefix}{name}/"), files);
        } else {
            files.insert(format!("{prefix}{name}"), fs::read_to_string(&path).expect("a source file"));
        }
    }
}

/// The sources of the core, by their path below `src`.
pub fn sources_of_the_core() -> BTreeMap<String, String> {
    sources("engine/core")
}

/// The sources of a crate, by their path below `src`.
fn sources(folder: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("src"), "", &mut files);
    files
}

#[track_caller]
fn assert_layers(mut files: BTreeMap<String, String>) {
    let lib = files.remove("lib.rs").expect("the root of the crate");
    let faults = faults(&lib, &files);
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn modules_of_the_core_depend_only_on_those_before_them() {
    assert_layers(sources_of_the_core());
}

#[test]
fn modules_of_netconf_depend_only_on_those_before_them() {
    assert_layers(sources("drivers/netconf"));
}

#[test]
fn dependency_on_a_later_module_is_found_however_it_is_written() {
    let lib = "//! 1. `a`, `b`: names.\n//! 2. `c`: the rest.\nmod a;\npub mod b;\nmod c;\npub use c::d::{E, F as G};\n";
    let faults_of = |file: &str, text: &str| {
        faults(lib, &BTreeMap::from([(file.to_owned(), text.to_owned())])).into_iter().collect::<Vec<_>>()
    };
    let later = |name: &str| vec![format!("a depends on c, which comes later: a/x.rs uses {name}")];
    for (text, expected) in [
        ("use crate::c::d::E;", later("c")),
        ("use crate::{\n    a::{self, Y},\n    c::{d::E},\n};", later("c")),
        ("use crate::{G, a};", later("G")),
        ("fn f() -> crate::E {}", later("E")),
        ("use crate::*;", vec!["a/x.rs uses *, which is of no module".to_owned()]),
        ("use super::super::c;", vec!["a/x.rs names the root of the crate by super::".to_owned()]),
        ("//! See [`crate::c`].\nuse super::Y;\nmod tests {\n    use super::super::Y;\n}", vec![]),
    ] {
        assert_eq!(faults_of("a/x.rs", text), expected, "{text}");
    }
    assert_eq!(faults_of("c/mod.rs", "use crate::a;\nmod tests {\n    use super::*;\n}"), [""; 0]);
    assert_eq!(faults_of("b.rs", "use crate::a;"), [""; 0]);
    let unordered = faults(&lib.replace(", `b`", ""), &BTreeMap::new());
    assert!(unordered.iter().any(|fault| fault.starts_with("lib.rs declares")), "{unordered:?}");
}
