//! The core has one door: `handle` and `reconcile` decide, and what else is public only reads.

use std::collections::BTreeSet;

use super::layers::sources_of_the_core;

/// The public methods of `Engine` that decide.
const DECIDING: [&str; 2] = ["handle", "reconcile"];
/// Those that read.
const READING: [&str; 7] =
    ["desired", "missing_references", "need_of", "path", "ports", "status", "ways_into_vrfs"];

/// The parameters of the public methods of `Engine` in a formatted source, by name.
fn public_methods(source: &str) -> Vec<(&str, &str)> {
    let blocks = source.split("\nimpl Engine {\n").skip(1).filter_map(|rest| rest.split("\n}\n").next());
    let methods = blocks.flat_map(|block| block.split("\n    pub ").skip(1));
    let methods = methods.filter_map(|rest| rest.split_once("fn ")?.1.split_once('('));
    methods.map(|(name, rest)| (name, rest.trim_start())).collect()
}

#[test]
fn only_handle_and_reconcile_decide() {
    let (mut deciding, mut reading) = (BTreeSet::new(), BTreeSet::new());
    for (_, source) in sources_of_the_core() {
        for (name, parameters) in public_methods(&source) {
            if parameters.starts_with("&mut self") {
                deciding.insert(name.to_owned());
            } else if parameters.starts_with("&self") {
                reading.insert(name.to_owned());
            } else {
                assert_eq!(name, "new");
            }
        }
    }
    assert_eq!(deciding, DECIDING.map(str::to_owned).into());
    assert_eq!(reading, READING.map(str::to_owned).into());
}

#[test]
fn core_is_the_same_in_every_build() {
    for (path, source) in sources_of_the_core() {
        for hidden in ["cfg(feature", "cfg_attr(feature", "doc(hidden)", "cfg(any", "cfg(debug"] {
            assert!(!source.contains(hidden), "{path}: {hidden}");
        }
    }
}
