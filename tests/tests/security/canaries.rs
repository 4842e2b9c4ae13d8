//! Canary secrets, which occur nowhere by accident, and the search for them in all encodings.

use std::fmt::Write as _;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};

/// Writes a byte in some encoding.
type Writer = fn(&mut String, u8);

/// A canary secret and a name for it.
#[derive(Debug, Clone)]
pub struct Canary {
    pub name: String,
    pub value: Vec<u8>,
}

impl Canary {
    pub fn new(name: &str, value: impl Into<Vec<u8>>) -> Self {
        let value = value.into();
        assert!(value.len() >= 12, "{name} is too short to be distinguished from other text");
        Self { name: name.to_owned(), value }
    }

    /// The encodings of the secret: plain, base64 at each offset of a longer text, hexadecimal, percent-encoded, and
    /// bytes as Rust and JSON print them.
    fn encodings(&self) -> Vec<(&'static str, Vec<u8>)> {
        let value = &self.value;
        let mut all = vec![("plain", value.clone())];
        for (name, alphabet) in [("base64", alphabet::STANDARD), ("base64url", alphabet::URL_SAFE)] {
            let engine = GeneralPurpose::new(&alphabet, NO_PAD);
            for before in 0..3 {
                let text = engine.encode([&vec![0; before], &value[..]].concat());
                // Only these characters don't depend on the surrounding bytes.
                let first = (before * 8).div_ceil(6);
                let last = (before + value.len()) * 8 / 6;
                all.push((name, text.as_bytes()[first..last].to_vec()));
            }
        }
        let each = |format: Writer, separator: &str| {
            let bytes = value.iter().map(|byte| {
                let mut text = String::new();
                format(&mut text, *byte);
                text
            });
            bytes.collect::<Vec<_>>().join(separator).into_bytes()
        };
        let write: [(&str, Writer, &str); 6] = [
            ("hex", |text, byte| _ = write!(text, "{byte:02x}"), ""),
            ("HEX", |text, byte| _ = write!(text, "{byte:02X}"), ""),
            ("percent", |text, byte| _ = write!(text, "%{byte:02x}"), ""),
            ("PERCENT", |text, byte| _ = write!(text, "%{byte:02X}"), ""),
            ("numbers", |text, byte| _ = write!(text, "{byte}"), ", "),
            ("JSON numbers", |text, byte| _ = write!(text, "{byte}"), ","),
        ];
        all.extend(write.map(|(name, format, separator)| (name, each(format, separator))));
        all
    }
}

/// Searches for many canaries at once.
pub struct CanarySearch {
    names: Vec<String>,
    automaton: AhoCorasick,
}

impl CanarySearch {
    pub fn new(canaries: &[Canary]) -> Self {
        let mut names = Vec::new();
        let mut patterns = Vec::new();
        for canary in canaries {
            for (encoding, pattern) in canary.encodings() {
                names.push(format!("{} ({encoding})", canary.name));
                patterns.push(pattern);
            }
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(patterns);
        Self { names, automaton: automaton.expect("patterns") }
    }

    /// The first canary in a text, with the text around it.
    pub fn find(&self, text: &[u8]) -> Option<String> {
        let found = self.automaton.find(text)?;
        let around = &text[found.start().saturating_sub(200)..(found.end() + 40).min(text.len())];
        Some(format!("{}: …{}…", self.names[found.pattern().as_usize()], String::from_utf8_lossy(around)))
    }
}

/// Proves that the search finds canaries in all of its encodings.
#[test]
fn search_finds_canaries_in_every_encoding() {
    let secret = "Canary-Of-This-Test-71";
    let search = CanarySearch::new(&[Canary::new("a secret", secret)]);
    let standard = base64::engine::general_purpose::STANDARD;
    let hexadecimal = secret.bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let all = [
        format!("password={secret}&x"),
        standard.encode(secret),
        standard.encode(format!("a{secret}b")),
        standard.encode(format!("ab{secret}")),
        standard.encode(format!("{{\"password\":\"{secret}\"}}")),
        format!("0x{hexadecimal}"),
        format!("{:?}", secret.as_bytes()),
        serde_json::to_string(secret.as_bytes()).expect("JSON"),
        secret.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02X}")),
    ];
    for text in all {
        assert!(search.find(text.as_bytes()).is_some_and(|found| found.starts_with("a secret")), "{text}");
    }
    assert_eq!(search.find(b"Canary-Of-This-Test-70"), None);
}
