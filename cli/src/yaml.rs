//! Manifests and other files of users, in YAML or JSON. The limits of this program take the place of the parser's own,
//! which refuse ordinary files.

use std::io::{self, Read};

use serde_json::Value;

/// The longest text, in bytes.
pub(crate) const MAX_BYTES: usize = 64 << 20;
/// The most values in one text. Each takes up to 72 bytes of memory, and as much again with its name.
pub(crate) const MAX_VALUES: usize = 4_000_000;

/// Why a text was not read. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum YamlError {
    /// It is too long.
    #[error("it is longer than {} MiB: split it", MAX_BYTES >> 20)]
    TooLong,
    /// It is neither YAML nor JSON, or has too many values.
    #[error(transparent)]
    Syntax(#[from] Box<serde_saphyr::Error>),
}

/// The documents of a text. Empty ones are left out.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError::TooLong);
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: MAX_VALUES,
            max_nodes: MAX_VALUES,
            // A list or an object is two events, and a document as well.
            max_events: 4 * MAX_VALUES,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| Box::new(error).into())
}

/// Reads a text that is not too long.
pub(crate) fn read(source: impl Read) -> io::Result<String> {
    let mut text = String::new();
    source.take(MAX_BYTES as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_BYTES { Err(io::Error::other(YamlError::TooLong)) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn ordinary_files_of_any_number_of_documents_are_read() {
        let mut text = String::new();
        for number in 0..10_000 {
            write!(
                text,
                "---\napiVersion: eno.k8s.io/v1alpha1\nkind: L2ServiceAttachment\nmetadata:\n  name: a{number}\n  namespace: ns\n  \
                 labels: {{a: b, c: d}}\nspec:\n  VlanType: access\n  ConnectionPoint: data\n  L2Services: [a{number}]\n"
            )
            .unwrap();
        }
        let documents = documents(&text).unwrap();
        assert_eq!((documents.len(), &documents[9_999]["metadata"]["name"]), (10_000, &Value::from("a9999")));
    }

    #[test]
    fn texts_with_too_much_are_refused() {
        let long = " ".repeat(MAX_BYTES + 1);
        let error = read(long.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("longer than 64 MiB"), "{error}");
        assert!(matches!(documents(&long), Err(YamlError::TooLong)));
        let many = format!("[{}]", "0,".repeat(MAX_VALUES));
        assert!(matches!(documents(&many), Err(YamlError::Syntax(_))));
        // Copies of copies.
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let before = level - 1;
            let copies = vec![format!("*a{before}"); 10].join(", ");
            writeln!(bomb, "a{level}: &a{level} [{copies}]").unwrap();
        }
        assert!(matches!(documents(&bomb), Err(YamlError::Syntax(_))));
        assert!(documents("a: [").is_err());
    }
}
