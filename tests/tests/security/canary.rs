//! Secrets that can't be mistaken for anything else, and the search for them however they are written.

use std::fmt::Write as _;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};

/// Writes a byte in some form.
type Writer = fn(&mut String, u8);

/// A secret, and what it is one of.
#[derive(Debug, Clone)]
pub struct Canary {
    pub what: String,
    pub value: Vec<u8>,
}

impl Canary {
    pub fn new(what: &str, value: impl Into<Vec<u8>>) -> Self {
        let value = value.into();
        assert!(value.len() >= 12, "{what} is too short to be told from other text");
        Self { what: what.to_owned(), value }
    }

    /// The ways in which it may be written: as it is, in base64 at each place of a longer text, in hexadecimal, with
    /// every byte percent-encoded, and as Rust and JSON show bytes.
    fn written(&self) -> Vec<(&'static str, Vec<u8>)> {
        let value = &self.value;
        let mut all = vec![("plain", value.clone())];
        for (name, alphabet) in [("base64", alphabet::STANDARD), ("base64url", alphabet::URL_SAFE)] {
            let engine = GeneralPurpose::new(&alphabet, NO_PAD);
            for before in 0..3 {
                let text = engine.encode([&vec![0; before], &value[..]].concat());
                // What does not depend on the bytes around it.
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

/// Looks for many canaries at once.
pub struct Search {
    names: Vec<String>,
    automaton: AhoCorasick,
}

impl Search {
    pub fn new(canaries: &[Canary]) -> Self {
        let mut names = Vec::new();
        let mut patterns = Vec::new();
        for canary in canaries {
            for (how, pattern) in canary.written() {
                names.push(format!("{} ({how})", canary.what));
                patterns.push(pattern);
            }
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(patterns);
        Self { names, automaton: automaton.expect("patterns") }
    }

    /// The first of them in a text, with what stands around it.
    pub fn find(&self, text: &[u8]) -> Option<String> {
        let found = self.automaton.find(text)?;
        let around = &text[found.start().saturating_sub(200)..(found.end() + 40).min(text.len())];
        Some(format!("{}: …{}…", self.names[found.pattern().as_usize()], String::from_utf8_lossy(around)))
    }
}

/// The search proves itself: what is hidden in the ways that it knows is found.
#[test]
fn what_is_there_is_found_however_it_is_written() {
    let secret = "Canary-Of-This-Test-71";
    let search = Search::new(&[Canary::new("a secret", secret)]);
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
