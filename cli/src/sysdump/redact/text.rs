//! Secrets in text of any kind, by its structure: URLs, headers, arguments, assignments, pairs. Pure.

use std::ops::Range;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::names::is_secret;
use super::{REDACTED, Why};

/// A form of text with a secret in it. The group `value` is the secret. If there is a group `name`, it has to be the
/// name of one.
struct Rule {
    pattern: Regex,
    why: Why,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let value = r#"(?P<value>"[^"]*"|'[^']*'|[^\s"',;&)\]}]+)"#;
    let all = [
        (
            r"(?s)(?P<value>-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z))".to_owned(),
            Why::Key,
        ),
        // The seed of an nkey: S, its kind, base32.
        (r"(?P<value>S[A-Z][A-Z2-7]{54,})".to_owned(), Why::Key),
        // A JSON Web Token, such as that of a service account.
        (r"(?P<value>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)".to_owned(), Why::Key),
        // A signing key of callbacks (Standard Webhooks).
        (r"(?P<value>whs(ec|k)_[A-Za-z0-9+/=_-]+)".to_owned(), Why::Key),
        (r#"(?i)authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?(?P<value>[^"'\\\r\n]+)"#.to_owned(), Why::Header),
        (r"(?i)\b(bearer|basic)[ \t]+(?P<value>[A-Za-z0-9._~+/=-]{16,})".to_owned(), Why::Header),
        // A flag with its value behind a space, or user and password for curl.
        (format!(r#"(?:^|[\s"'\[,(])--?(?P<name>[A-Za-z][A-Za-z0-9_.-]*)[ \t]+{value}"#), Why::Argument),
        (
            r#"(?:^|[\s"'\[,(])(?:-u|--user|-U|--proxy-user)[= \t]*["']?[^\s"':/=]+:(?P<value>[^\s"']+)"#.to_owned(),
            Why::Argument,
        ),
        (format!(r"(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)={value}"), Why::Assignment),
        // JSON, JSON as a text in JSON, and the same with other quotes.
        (r#""(?P<name>[A-Za-z0-9_.-]+)"[ \t]*:[ \t]*"(?P<value>(?:[^"\\]|\\.)+)"#.to_owned(), Why::Pair),
        (r#"\\"(?P<name>[A-Za-z0-9_.-]+)\\"[ \t]*:[ \t]*\\"(?P<value>[^"\\]+)"#.to_owned(), Why::Pair),
        (r"'(?P<name>[A-Za-z0-9_.-]+)'[ \t]*:[ \t]*'(?P<value>[^']+)".to_owned(), Why::Pair),
        // At the beginning of a line the rest of it is the value; elsewhere only its last word is.
        (r"(?m)^[ \t]*(?:- )?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*):[ \t]+(?P<value>\S[^\r\n]*)".to_owned(), Why::Pair),
        (
            r#"(?m)(?:^|[\s{,("'])(?P<name>[A-Za-z_][A-Za-z0-9_.-]*):[ \t]+(?P<value>"[^"]*"|'[^']*'|[^\s"']+)[ \t]*$"#
                .to_owned(),
            Why::Pair,
        ),
    ];
    // The expressions are constants and tested.
    all.into_iter()
        .filter_map(|(pattern, why)| Some(Rule { pattern: Regex::new(&pattern).ok()?, why }))
        .collect()
});

/// Redacts a text, and calls `found` for everything that was taken out.
pub(super) fn redact(text: &str, found: &mut impl FnMut(Why)) -> String {
    let mut text = text.to_owned();
    url_users(&mut text, found);
    for rule in &*RULES {
        apply(&mut text, rule, found);
    }
    random_values(&mut text, found);
    text
}

fn apply(text: &mut String, rule: &Rule, found: &mut impl FnMut(Why)) {
    let mut at = 0;
    while let Some(captures) = text.get(at..).and_then(|_| rule.pattern.captures_at(text, at)) {
        match secret(&captures) {
            Ok(range) => {
                at = range.start + REDACTED.len();
                text.replace_range(range, REDACTED);
                found(rule.why);
            }
            // What follows the name may be a match of its own.
            Err(end) => at = end,
        }
    }
}

/// The place of the secret in a match, or from where to look on.
fn secret(captures: &Captures<'_>) -> Result<Range<usize>, usize> {
    let name = captures.name("name");
    let Some(value) = captures.name("value") else { return Err(usize::MAX) };
    match name {
        Some(name) if !is_secret(name.as_str()) => Err(name.end()),
        _ if is_kept(value.as_str()) => Err(value.end()),
        _ => Ok(unquoted(value.as_str(), value.start())),
    }
}

/// The place of a value without its quotes.
fn unquoted(value: &str, start: usize) -> Range<usize> {
    let end = start + value.len();
    let is_quoted = |quote| value.len() > 1 && value.starts_with(quote) && value.ends_with(quote);
    if is_quoted('"') || is_quoted('\'') { start + 1..end - 1 } else { start..end }
}

/// True for what is no secret in the place of one: nothing, what was redacted, words of JSON, and a reference to a
/// variable such as `$ROUTE_PASSWORD`.
pub(super) fn is_kept(value: &str) -> bool {
    let value = value.trim().trim_matches(['"', '\'']);
    let name = value.strip_prefix('$').unwrap_or_default();
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    let name = name.strip_prefix('(').and_then(|name| name.strip_suffix(')')).unwrap_or(name);
    let is_variable = name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    value.starts_with(REDACTED) || matches!(value, "" | "true" | "false" | "null" | "~") || is_variable
}

/// Redacts the user part of each URL. A password may have any character, though the standard forbids many.
fn url_users(text: &mut String, found: &mut impl FnMut(Why)) {
    let mut at = 0;
    while let Some(start) = text.get(at..).and_then(|rest| rest.find("://")).map(|index| at + index + 3) {
        at = start;
        // The next URL ends this one, from the beginning of its scheme.
        let line =
            text[start..].find(['\n', '\r', '"', '<', '>', '`']).map_or(text.len(), |index| start + index);
        let end = match text[start..line].find("://") {
            Some(index) => {
                let before = &text[start..start + index];
                start
                    + before.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "+.-".contains(c)).len()
            }
            None => line,
        };
        let Some(size) = user_part(&text[start..end]) else { continue };
        if &text[start..start + size] == REDACTED {
            continue;
        }
        text.replace_range(start..start + size, REDACTED);
        found(Why::UrlUser);
        at = start + REDACTED.len();
    }
}

/// The size of the user part at the beginning of what follows `://`.
fn user_part(rest: &str) -> Option<usize> {
    let word = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len()).min(word);
    if let Some(size) = rest[..authority].rfind('@') {
        // The password may go on behind it: `user:a@b/c@host`.
        let is_user = rest[..authority].contains(':');
        return Some(if is_user { rest[..word].rfind('@').unwrap_or(size) } else { size });
    }
    // A password with `/`, `?`, `#` or a space. What follows the colon is a port if it has digits only.
    let colon = rest[..authority].find(':').filter(|_| !rest.starts_with('['))?;
    let is_port = rest[colon + 1..authority].bytes().all(|byte| byte.is_ascii_digit());
    let within = if is_port { word } else { rest.len() };
    let size = rest[..within].rfind('@')?;
    let is_digest = ["sha256:", "sha512:"].iter().any(|digest| rest[size + 1..].starts_with(digest));
    (!is_digest).then_some(size)
}

/// The least characters of a value that looks random.
const MIN_RANDOM: usize = 20;

/// Redacts values that look random: upper case, lower case and digits in frequent change.
fn random_values(text: &mut String, found: &mut impl FnMut(Why)) {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+_=-".contains(c);
    let mut at = 0;
    while let Some(start) = text.get(at..).and_then(|rest| rest.find(is_part)).map(|index| at + index) {
        let end = text[start..].find(|c| !is_part(c)).map_or(text.len(), |index| start + index);
        at = end;
        let word = &text[start..end];
        // Public keys of SSH and their fingerprints are no secrets. They may have slashes.
        let before = text[..start].rsplit(|c: char| !(is_part(c) || matches!(c, '/' | ':'))).next();
        let whole = format!("{}{word}", before.unwrap_or_default());
        if whole.starts_with("AAAA") || whole.contains("SHA256:") || !is_random(word) {
            continue;
        }
        text.replace_range(start..end, REDACTED);
        found(Why::Random);
        at = start + REDACTED.len();
    }
}

fn is_random(word: &str) -> bool {
    let class = |byte: u8| match byte {
        b'A'..=b'Z' => 0,
        b'a'..=b'z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let bytes = word.as_bytes();
    let has = |wanted| bytes.iter().any(|byte| class(*byte) == wanted);
    if bytes.len() < MIN_RANDOM || !(has(0) && has(1) && has(2)) {
        return false;
    }
    let pairs = bytes.windows(2).map(|pair| (class(pair[0]), class(pair[1])));
    let pairs = pairs.filter(|(a, b)| *a < 3 && *b < 3);
    let (all, changes) =
        pairs.fold((0, 0), |(all, changes), (a, b)| (all + 1, changes + usize::from(a != b)));
    changes * 5 >= all * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let mut all = Vec::new();
        let once = redact(text, &mut |why| all.push(why));
        assert_eq!(redact(&once, &mut |_| ()), once, "redacted twice: {text}");
        assert_eq!(all.is_empty(), once == text, "{text}: {all:?}");
        once
    }

    #[test]
    fn expressions_are_valid() {
        assert_eq!(RULES.len(), 14);
    }

    #[test]
    fn passwords_in_urls_have_any_character() {
        for (given, expected) in [
            ("to nats://u:p@h:4222 and ftp://x@h", "to nats://REDACTED@h:4222 and ftp://REDACTED@h"),
            ("nats://u:p@ss@h:4222", "nats://REDACTED@h:4222"),
            ("nats://u:p/a@h:4222", "nats://REDACTED@h:4222"),
            ("nats://u:p@a/b@h:4222", "nats://REDACTED@h:4222"),
            ("nats://u:1/a@h", "nats://REDACTED@h"),
            ("nats://u:p a@h:4222/x", "nats://REDACTED@h:4222/x"),
            ("nats://u:pa$$word@h", "nats://REDACTED@h"),
            ("nats://u:$PASS@h", "nats://REDACTED@h"),
            ("nats://u:a?b#c@h", "nats://REDACTED@h"),
            ("nats://u:p@h1:1,nats://u:q@h2:2", "nats://REDACTED@h1:1,nats://REDACTED@h2:2"),
            ("\"nats://u:p'x@h\",", "\"nats://REDACTED@h\","),
            ("mail a@b.c, http://h/a@b", "mail a@b.c, http://h/a@b"),
            ("https://h:6443 failed, ask a@b", "https://h:6443 failed, ask a@b"),
            ("https://[::1]:6443/x failed, ask a@b", "https://[::1]:6443/x failed, ask a@b"),
            ("oci://registry:5000/eno@sha256:0a1b", "oci://registry:5000/eno@sha256:0a1b"),
        ] {
            assert_eq!(redacted(given), expected);
        }
    }

    #[test]
    fn secrets_in_texts_are_redacted_by_their_form() {
        for (given, expected) in [
            ("Authorization: Bearer abc", "Authorization: REDACTED"),
            ("curl -H 'Authorization: Basic dTpw' x", "curl -H 'Authorization: REDACTED' x"),
            (r#"{"Authorization":"Bearer abc","a":1}"#, r#"{"Authorization":"REDACTED","a":1}"#),
            ("bearer 0123456789abcdef", "bearer REDACTED"),
            ("a bearer token is missing", "a bearer token is missing"),
            ("ran --password=hunter2 --port=80", "ran --password=REDACTED --port=80"),
            ("ran --password='hunter 2' x", "ran --password='REDACTED' x"),
            ("ran --token abc --x y", "ran --token REDACTED --x y"),
            ("ran --args=--token=abc", "ran --args=--token=REDACTED"),
            ("curl -u admin:hunter2 https://h", "curl -u admin:REDACTED https://h"),
            ("curl -uadmin:p@ss --user a:b h", "curl -uadmin:REDACTED --user a:REDACTED h"),
            ("ENO_TOKEN=abc eno", "ENO_TOKEN=REDACTED eno"),
            ("GET /x?a=b&token=abc&c=d", "GET /x?a=b&token=REDACTED&c=d"),
            ("login failed password=\"a b\" user=x", "login failed password=\"REDACTED\" user=x"),
            (
                r#"{"psk":"a b","community":"public","n":1}"#,
                r#"{"psk":"REDACTED","community":"REDACTED","n":1}"#,
            ),
            (r#"body {\"pass\":\"hunter2\"}"#, r#"body {\"pass\":\"REDACTED\"}"#),
            (r#"{"password": "a\"b", "c": "d"}"#, r#"{"password": "REDACTED", "c": "d"}"#),
            ("{'password': 'a', 'c': 'd'}", "{'password': 'REDACTED', 'c': 'd'}"),
            ("snmp community: public", "snmp community: REDACTED"),
            ("password: my secret words", "password: REDACTED"),
            ("x 7Kq2mZ9pL4vR8tW1nB6y x", "x REDACTED x"),
            ("é7Kq2mZ9pL4vR8tW1nB6yé", "éREDACTEDé"),
            (
                "Secret eno-devices/leaf1 has no password: add it",
                "Secret eno-devices/leaf1 has no password: add it",
            ),
            ("automountServiceAccountToken: false", "automountServiceAccountToken: false"),
        ] {
            assert_eq!(redacted(given), expected);
        }
    }

    #[test]
    fn what_identifies_things_stays_readable() {
        for text in [
            "uid 2f0d3c1e-8a4b-4f6e-9d2a-1b3c5d7e9f01 of eno-engine-7d9f8b6c5-x2x4z",
            "image registry:5000/eno@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "commit 9e1510629530eb18ec25f14153a25af8f0623b675f38ac2d401cd75fd",
            "resourceVersion 18446744073709551615",
            "VLANs 1-20,30,100-4094,2000-2999,3001-3999",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ3kT9sB7qX2vR8mZ1pL4nW6yK0cF5hD",
            "ssh-ed25519 AAAAC3NzaC1lZDI1/NTE5AAAAIJ3kT9sB7qX2vR8mZ1pL4nW6yK0cF5hD",
            "fingerprint SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDuyGX9jWG4Cfh8vYE",
            "UAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC",
            "2026-11-24T18:10:42.373153222Z GigabitEthernet1/0/24 TenGigabitEthernet1 0a:1b:2c:3d:4e:5f",
            "L2ServiceAttachmentConditionsOfL2Service cnf-a/media is ready: fe80::1, 10.0.0.0/8",
        ] {
            assert_eq!(redacted(text), text);
        }
    }

    #[test]
    fn random_values_are_found() {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let mut state = 7u64;
        let mut letter = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(LETTERS[usize::try_from(state >> 33).unwrap() % LETTERS.len()])
        };
        let values: Vec<String> = (0..1000).map(|_| (0..32).map(|_| letter()).collect()).collect();
        let found = values.iter().filter(|value| redacted(value) == REDACTED).count();
        assert!(found >= 970, "{found} of 1000");
    }
}
