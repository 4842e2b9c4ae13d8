//! Output for users and programs.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl Format {
    /// Prints `answer`, as tables by `tables`.
    pub(crate) fn print<T: Serialize>(self, answer: &T, tables: impl FnOnce(&T)) -> anyhow::Result<()> {
        match self {
            Self::Table => tables(answer),
            Self::Json => crate::outln!("{}", serde_json::to_string_pretty(answer)?),
            Self::Yaml => crate::screen::write(format_args!("{}", serde_saphyr::to_string(answer)?)),
        }
        Ok(())
    }
}

/// Prints a table, if it has rows.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    table.add_rows(rows);
    if table.row_count() > 0 {
        // The last column needs no padding.
        table.to_string().lines().for_each(|line| crate::outln!("{}", line.trim_end()));
        crate::outln!();
    }
}

/// `[namespace/]name` after its kind.
pub(crate) fn name(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind}/{namespace}/{name}"),
        None => format!("{kind}/{name}"),
    }
}
