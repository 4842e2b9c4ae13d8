//! Configuration of other implementations, as the custom resources that say the same. Pure.

pub mod ovs_plugin;
mod read;
#[cfg(test)]
mod tests;

pub use read::{Input, Link, Pool, PoolInterface, Source};

/// Why something can't be imported. Trying again does not help.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A file is neither YAML nor JSON.
    #[error("{place}: {source}")]
    Syntax {
        /// The file, and the field in it.
        place: String,
        /// Where and why.
        source: Box<serde_saphyr::Error>,
    },
    /// A field can't be what it is.
    #[error("{place} {problem}")]
    Field {
        /// The file and the field, as in `fabricConf.yaml: data.links[3].switchPort`.
        place: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Two fields contradict each other.
    #[error("{first} and {second} {problem}")]
    Conflict {
        /// The first one's file and field.
        first: String,
        /// The second one's.
        second: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Something is in none of the files.
    #[error("none of the files holds {what}")]
    Missing {
        /// What.
        what: &'static str,
    },
}
