//! Converts configuration of other implementations to custom resources. Pure.

pub mod ovs_plugin;
mod read;

use crate::yaml::YamlError;
pub use read::{Input, Link, Pool, PoolInterface, Source};

/// Why an import fails. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file is neither YAML nor JSON.
    #[error("{place}: {source}")]
    Syntax {
        /// The file, and the field in it.
        place: String,
        /// The parse error with its position.
        source: YamlError,
    },
    /// A field has an invalid value.
    #[error("{place} {problem}")]
    Field {
        /// The file and the field, as in `fabricConf.yaml: data.links[3].switchPort`.
        place: String,
        /// The problem and its remedy.
        problem: String,
    },
    /// Two fields contradict each other.
    #[error("{first} and {second} {problem}")]
    Conflict {
        /// The first one's file and field.
        first: String,
        /// The second one's.
        second: String,
        /// The problem and its remedy.
        problem: String,
    },
    /// A required part is in none of the files.
    #[error("none of the files holds {what}")]
    Missing {
        /// The part.
        what: &'static str,
    },
}
