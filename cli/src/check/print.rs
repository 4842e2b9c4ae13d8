//! The checks as text.

use eno_schemas::Text;

use super::{Check, Outcome, Problem, Report};
use crate::screen::has_colours;

/// Maximum length of a line in bytes. Messages of others can be long; JSON has them whole.
const MAX_LINE: usize = 600;

/// How a line begins, and its colour as an ANSI code.
fn mark(outcome: &Outcome, is_terminal: bool) -> String {
    let (symbol, word, colour) = match outcome {
        Outcome::Ok => ("√", "ok  ", 32),
        Outcome::Warning(_) => ("‼", "WARN", 33),
        Outcome::Failed(_) => ("×", "FAIL", 31),
        Outcome::Skipped { .. } => ("–", "skip", 90),
    };
    if is_terminal { format!("\x1b[{colour}m{symbol}\x1b[0m") } else { word.to_owned() }
}

/// Prints a report for people.
pub(crate) fn print(report: &Report) {
    let is_terminal = has_colours();
    for line in lines(report, is_terminal) {
        crate::outln!("{line}");
    }
}

fn lines(report: &Report, is_terminal: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut category = None;
    for check in &report.checks {
        if category.replace(check.category) != Some(check.category) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.push(check.category.title().to_owned());
        }
        lines.extend(row(check, is_terminal));
    }
    let summary = report.summary;
    let verdict = if report.is_ok() { "no check failed" } else { "something does not work" };
    lines.push(String::new());
    lines.push(format!(
        "{} ok, {} warnings, {} failed, {} skipped: {verdict}",
        summary.ok, summary.warnings, summary.failed, summary.skipped
    ));
    lines
}

fn row(check: &Check, is_terminal: bool) -> Vec<String> {
    let mark = mark(&check.outcome, is_terminal);
    let name = check.name.as_str();
    let subject = if check.subject.is_empty() { String::new() } else { format!(": {}", check.subject) };
    let mut lines = vec![plain(&format!("{name}{subject}"))];
    match &check.outcome {
        Outcome::Ok => {}
        Outcome::Warning(Problem { what, remedy }) | Outcome::Failed(Problem { what, remedy }) => {
            lines.push(plain(what));
            lines.push(plain(&format!("remedy: {remedy}")));
            lines.push(format!("see {}", check.link));
        }
        Outcome::Skipped { why } => lines.push(plain(why)),
    }
    lines
        .into_iter()
        .enumerate()
        .map(|(n, line)| if n == 0 { format!("{mark} {line}") } else { format!("    {line}") })
        .collect()
}

/// The text on one line: it may be of others, such as a container's output.
pub(crate) fn plain(text: &str) -> String {
    Text::at_most(text, MAX_LINE).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Name;

    #[test]
    fn rows_have_marks_remedies_and_links() {
        let report = Report::new(vec![
            Check::ok(Name::ApiServer, "https://host"),
            Check::failed(Name::Leader, "Lease", Problem::new("nobody\n\u{1b}[2Jleads", "start one")),
            Check::skipped(Name::Callbacks, "", "no access to NATS"),
        ]);
        let expected = [
            "Kubernetes",
            "ok   api-server: https://host",
            "",
            "The operator",
            "FAIL leader: Lease",
            "    nobody \u{fffd}[2Jleads",
            "    remedy: start one",
            "    see docs/src/how-to/check.md#leader",
            "",
            "Objects",
            "skip callbacks",
            "    no access to NATS",
            "",
            "1 ok, 0 warnings, 1 failed, 1 skipped: something does not work",
        ];
        assert_eq!(lines(&report, false), expected);
        assert_eq!(lines(&report, true)[4], "\x1b[31m×\x1b[0m leader: Lease");
    }
}
