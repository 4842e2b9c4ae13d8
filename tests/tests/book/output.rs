//! Compares the output of a command with the one that a page shows.

use std::sync::LazyLock;

use regex::Regex;

/// What differs from run to run, and what stands for it.
static VARIABLE: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        (r"\b[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d\.\d{3}\b", "TIME"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
        (r"\b\d+(\.\d+)? ?(ms|s|m|h|d)(\d+s)?(\s|$)", "AGE "),
        // Newer versions of kubectl name the namespace.
        (r#"" deleted from \S+ namespace"#, "\" deleted"),
        (r"\s+", " "),
    ];
    patterns.map(|(pattern, text)| (Regex::new(pattern).expect("a pattern"), text)).into()
});

fn normalised(line: &str) -> String {
    let line = VARIABLE
        .iter()
        .fold(line.to_owned(), |line, (pattern, text)| pattern.replace_all(&line, *text).into());
    line.trim().to_owned()
}

/// True if the output is as shown: `…` stands for any text, and on a line of its own for any number of lines.
pub fn is_as_shown(shown: &[String], output: &str) -> bool {
    let shown: Vec<String> =
        shown.iter().map(|line| normalised(line)).filter(|line| !line.is_empty()).collect();
    let lines: Vec<String> = output.lines().map(normalised).filter(|line| !line.is_empty()).collect();
    matches(&shown, &lines)
}

fn matches(shown: &[String], lines: &[String]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "…" => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| line_matches(first, line) && matches(rest, others)),
    }
}

fn line_matches(shown: &str, line: &str) -> bool {
    let parts: Vec<String> = shown.split('…').map(regex::escape).collect();
    Regex::new(&format!("^{}$", parts.join(".*"))).expect("a pattern").is_match(line)
}

#[test]
fn holes_match_any_text() {
    let is_as_shown =
        |shown: &str, output| is_as_shown(&shown.lines().map(str::to_owned).collect::<Vec<_>>(), output);
    assert!(is_as_shown("NAME   AGE\na  1s", "NAME AGE\na    12m\n"));
    assert!(is_as_shown("a\n…\nz", "a\nb\nc\nz") && is_as_shown("…", "") && is_as_shown("a…z", "a b z"));
    assert!(is_as_shown("x \"a\" deleted", "x \"a\" deleted from cnf-a namespace"));
    assert!(
        !is_as_shown("a", "a\nb")
            && !is_as_shown("a\nb", "a")
            && !is_as_shown("", "a")
            && !is_as_shown("1", "2")
    );
}
