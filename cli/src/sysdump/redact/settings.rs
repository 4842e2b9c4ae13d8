//! Secrets in configuration files, line by line: YAML, JSON, INI, lists of variables, and the configuration of NATS. Pure.

use std::sync::LazyLock;

use regex::Regex;

use super::names::is_secret;
use super::text::is_kept;
use super::{REDACTED, Why};

/// A name with a colon or an equals sign behind it.
static NAME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(["']?)([A-Za-z_][A-Za-z0-9_.-]*)["']?[ \t]*([:=])[ \t]*"#).ok());

/// What the next lines are.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Lines of their own.
    Lines,
    /// The rest of a secret, while they are indented deeper than this, or are items of a list there.
    Deeper(usize),
    /// The rest of a secret, up to this quote.
    Quoted(char),
    /// One with a secret, since the line before names it.
    Value,
}

/// Redacts a file, and calls `found` for everything that was taken out.
pub(super) fn redact(text: &str, found: &mut impl FnMut(Why)) -> String {
    let mut lines = text.lines().peekable();
    let mut kept = Vec::new();
    let mut next = Next::Lines;
    while let Some(line) = lines.next() {
        match next {
            Next::Quoted(quote) => {
                if let Some(end) = closing(line, quote) {
                    next = Next::Lines;
                    kept.push(line[end..].to_owned());
                }
                continue;
            }
            Next::Deeper(column) if is_part(line, column) => continue,
            Next::Value => {
                if let Some(start) = value_start(line) {
                    let mut line = line.to_owned();
                    next = take_out(&mut line, start, false, found).1;
                    kept.push(line);
                    continue;
                }
            }
            Next::Deeper(_) | Next::Lines => {}
        }
        let mut line = line.to_owned();
        next = setting(&mut line, lines.peek().copied(), found);
        kept.push(line);
    }
    let mut kept = kept.join("\n");
    if text.ends_with('\n') {
        kept.push('\n');
    }
    super::text::redact(&kept, found)
}

/// Redacts the settings of one line. `after` is the next line.
fn setting(line: &mut String, after: Option<&str>, found: &mut impl FnMut(Why)) -> Next {
    if names_a_secret(line) {
        return Next::Value;
    }
    let Some(pattern) = &*NAME else { return Next::Lines };
    let mut at = 0;
    while let Some(captures) = pattern.captures_at(line, at) {
        let (Some(whole), Some(name), Some(sign)) = (captures.get(0), captures.get(2), captures.get(3))
        else {
            break;
        };
        at = name.end();
        let before = line[..whole.start()].trim_end();
        let begins = before.is_empty() || before.ends_with(['{', ',', '-', '[', ';', '(']);
        let ends = whole.end() == line.len()
            || whole.end() > sign.end()
            || line[sign.end()..].starts_with(['"', '\'']);
        if !is_secret(name.as_str()) || (sign.as_str() == ":" && !begins && !ends) {
            continue;
        }
        let (column, start) = (whole.start(), whole.end());
        let value = &line[start..];
        if value.is_empty() || value.starts_with(['|', '>', '#']) {
            let follows = after.is_some_and(|after| is_part(after, column) && !after.trim().is_empty());
            let is_block = value.starts_with(['|', '>']);
            if is_block || (follows && !after.is_some_and(is_mapping)) {
                line.truncate(start);
                line.push_str(if line.ends_with([' ', '=']) { "" } else { " " });
                line.push_str(REDACTED);
                found(Why::Setting);
                return Next::Deeper(column);
            }
            return Next::Lines;
        }
        if value.starts_with('{') {
            continue;
        }
        let is_inline = before.contains(['{', '[']);
        // Only a value without quotes goes on in lines that are indented deeper.
        let goes_on = !is_inline && !value.starts_with(['"', '\'', '[']) && !is_kept(value);
        let (end, next) = take_out(line, start, is_inline, found);
        if next != Next::Lines {
            return next;
        }
        if goes_on {
            return Next::Deeper(column);
        }
        at = end;
    }
    Next::Lines
}

/// Redacts the value that begins at `start`. It returns its new end, and what the next lines are.
fn take_out(line: &mut String, start: usize, is_inline: bool, found: &mut impl FnMut(Why)) -> (usize, Next) {
    let value = &line[start..];
    let (start, end, next) = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => match closing(&value[1..], quote) {
            Some(end) => (start + 1, start + end, Next::Lines),
            None => (start + 1, line.len(), Next::Quoted(quote)),
        },
        Some('[') => match value.find(']') {
            Some(end) => (start, start + end + 1, Next::Lines),
            None => (start, line.len(), Next::Quoted(']')),
        },
        _ => {
            let end = if is_inline { value.find([',', '}', ']']) } else { None };
            (start, start + end.unwrap_or(value.len()), Next::Lines)
        }
    };
    if is_kept(&line[start..end]) {
        return (end, next);
    }
    line.replace_range(start..end, REDACTED);
    if let Next::Quoted(quote @ ('"' | '\'')) = next {
        line.push(quote);
    }
    found(Why::Setting);
    (start + REDACTED.len(), next)
}

/// The end of a quoted text: behind its closing quote. A backslash escapes within `"`, and `''` is a quote within `'`.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        if c == '\\' && quote == '"' {
            chars.next();
        } else if c == quote && (quote != '\'' || chars.next_if(|(_, next)| *next == '\'').is_none()) {
            return Some(index + 1);
        }
    }
    None
}

/// True for a line that belongs to the value of a name in this column.
fn is_part(line: &str, column: usize) -> bool {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    text.is_empty() || indent > column || (indent == column && text.starts_with("- "))
}

/// True for a line that is a name with a value.
fn is_mapping(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches("- ");
    let found = NAME.as_ref().and_then(|pattern| pattern.find(text));
    found.is_some_and(|found| found.start() == 0)
}

/// True for an item that is the flag of a secret without its value, and for the name of a variable with a secret.
fn names_a_secret(line: &str) -> bool {
    let is_quote = |c: char| matches!(c, '"' | '\'' | ',' | '[') || c.is_whitespace();
    let text = line.trim().trim_start_matches("- ").trim_matches(is_quote);
    if let Some(flag) = text.strip_prefix('-') {
        let flag = flag.trim_start_matches('-');
        return matches!(text, "-u" | "-U" | "--user" | "--proxy-user")
            || (!flag.contains([' ', '=', ':']) && is_secret(flag));
    }
    let name = text.strip_prefix("name").map(|rest| rest.trim_start_matches(is_quote));
    let name = name.and_then(|rest| rest.strip_prefix(':')).map(|rest| rest.trim_matches(is_quote));
    name.is_some_and(|name| !name.contains(' ') && is_secret(name))
}

/// Where the value of a line begins that follows one which names a secret.
fn value_start(line: &str) -> Option<usize> {
    let text = line.trim_start().trim_start_matches("- ");
    let start = line.len() - text.len();
    let key = text.trim_start_matches(['"', '\'']);
    let Some(rest) = key.strip_prefix("value").map(|rest| rest.trim_start_matches(['"', '\''])) else {
        // An argument, unless it is something else with a name.
        return (!text.is_empty() && (line.trim_start().starts_with('-') || !is_mapping(text)))
            .then_some(start);
    };
    let rest = rest.strip_prefix(':')?.trim_start();
    Some(line.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let once = redact(text, &mut |_| ());
        assert_eq!(redact(&once, &mut |_| ()), once, "redacted twice: {text}");
        once
    }

    #[test]
    fn passwords_of_settings_have_any_character() {
        for (given, expected) in [
            ("password: hunter2", "password: REDACTED"),
            ("password: p@ss/w0rd $x, y} z", "password: REDACTED"),
            ("password: $ecret", "password: REDACTED"),
            ("password: \"a b\\\"c\" # why", "password: \"REDACTED\" # why"),
            ("password: 'it''s'", "password: 'REDACTED'"),
            ("password = a b c", "password = REDACTED"),
            ("PASSWORD=abc def", "PASSWORD=REDACTED"),
            ("pass: x\npsk: y\ncommunity: z", "pass: REDACTED\npsk: REDACTED\ncommunity: REDACTED"),
            ("credentials: admin/hunter2\na: b", "credentials: REDACTED\na: b"),
            ("{user: a, password: b c, x: y}", "{user: a, password: REDACTED, x: y}"),
            ("\"token\": \"abc\",\n\"a\": 1", "\"token\": \"REDACTED\",\n\"a\": 1"),
            ("ENO_TOKEN=abc", "ENO_TOKEN=REDACTED"),
            ("url: nats://u:p/w@h:4222", "url: nats://REDACTED@h:4222"),
            ("Authorization: Bearer abc", "Authorization: REDACTED"),
        ] {
            assert_eq!(redacted(given), expected);
        }
    }

    #[test]
    fn values_of_several_lines_are_redacted() {
        for (given, expected) in [
            ("a:\n  password: |\n    hunter2\n\n    more\n  b: c", "a:\n  password: REDACTED\n  b: c"),
            ("- token: >-\n    abc\n  b: c\n", "- token: REDACTED\n  b: c\n"),
            ("password:\n  hunter2\nb: c", "password: REDACTED\nb: c"),
            ("password: abc\n  def\nb: c", "password: REDACTED\nb: c"),
            ("password: \"abc\n  def\" \nb: c", "password: \"REDACTED\"\n \nb: c"),
            ("tokens:\n- abc\n- def\nb: c", "tokens: REDACTED\nb: c"),
            ("tokens: [abc, def]\nb: c", "tokens: REDACTED\nb: c"),
            (
                "credentials:\n  secretName: x\n  password: y",
                "credentials:\n  secretName: x\n  password: REDACTED",
            ),
        ] {
            assert_eq!(redacted(given), expected, "{given}");
        }
    }

    #[test]
    fn arguments_and_variables_of_manifests_are_redacted() {
        for (given, expected) in [
            ("args:\n- --token\n- abc\n- --port\n- '80'", "args:\n- --token\n- REDACTED\n- --port\n- '80'"),
            ("args:\n- --password=a b\n- -u\n- admin:pw", "args:\n- --password=REDACTED\n- -u\n- REDACTED"),
            (
                "- name: DB_PASSWORD\n  value: hunter2\n- name: A\n  value: b",
                "- name: DB_PASSWORD\n  value: REDACTED\n- name: A\n  value: b",
            ),
            ("- name: token\n  port: 80", "- name: token\n  port: 80"),
        ] {
            assert_eq!(redacted(given), expected, "{given}");
        }
    }

    #[test]
    fn other_settings_stay() {
        for text in [
            "password: $ROUTE_PASSWORD\nnkey: $ENGINE_NKEY\ntoken: ${TOKEN}",
            "image: registry:5000/token:v1@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "uid: 2f0d3c1e-8a4b-4f6e-9d2a-1b3c5d7e9f01\nresourceVersion: '123456789'\nvlans: 1-20,30,100-4094",
            "automountServiceAccountToken: false\nsecretName: eno-nats",
            "jetstream {\n  store_dir: /data\n  max_file: 4G\n}",
        ] {
            assert_eq!(redacted(text), text);
        }
    }
}
