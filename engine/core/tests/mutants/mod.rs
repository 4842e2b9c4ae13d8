//! Defects of the product, injected into its sources. The seeded histories have to find each of them.

mod lanes;
mod table;

use std::path::Path;

use table::MUTANTS;

/// The sources of the core.
fn sources() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// No mutant is lost when the code changes.
#[test]
fn text_of_each_mutant_is_once_in_its_file() {
    for mutant in MUTANTS {
        let text = std::fs::read_to_string(sources().join(mutant.file)).expect(mutant.name);
        assert_eq!(text.matches(mutant.from).count(), 1, "{}: the text in {}", mutant.name, mutant.file);
    }
}
