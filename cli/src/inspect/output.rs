//! Output for users and programs.

use serde::Serialize;

pub(crate) use crate::screen::print_table as table;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For people, with more columns and rows where there are any.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    /// Prints `answer`, as tables by `tables`.
    pub(crate) fn print<T: Serialize>(self, answer: &T, tables: impl FnOnce(&T)) -> anyhow::Result<()> {
        match self {
            Self::Table | Self::Wide => tables(answer),
            Self::Json => crate::outln!("{}", serde_json::to_string_pretty(answer)?),
            Self::Yaml => crate::screen::write(format_args!("{}", serde_saphyr::to_string(answer)?)),
        }
        Ok(())
    }

    /// [`Self::print`] for an answer that follows another one: a further document.
    pub(crate) fn print_next<T: Serialize>(self, answer: &T, tables: impl FnOnce(&T)) -> anyhow::Result<()> {
        if self == Self::Yaml {
            crate::outln!("---");
        }
        self.print(answer, tables)
    }
}

/// `[namespace/]name` after its kind.
pub(crate) fn name(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind}/{namespace}/{name}"),
        None => format!("{kind}/{name}"),
    }
}
