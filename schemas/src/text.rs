//! Text from outside: what devices, clouds, nodes and drivers say.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Ends a text that was cut.
const MARK: char = '…';

/// Text from outside for people, cut and cleaned. It has at most [`Text::MAX_BYTES`], and ends with `…` if it was longer.
/// White space, also a line break, is one space. Control characters and invisible format characters, which change what
/// a terminal or a page shows, are replaced by `U+FFFD`.
///
/// Every reader cleans, so a message may carry any text.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Maximum bytes.
    pub const MAX_BYTES: usize = 4096;

    /// Cuts and cleans a text.
    pub fn new(text: &str) -> Self {
        Self::at_most(text, Self::MAX_BYTES)
    }

    /// Cuts a text to `max` bytes, and cleans it.
    pub fn at_most(text: &str, max: usize) -> Self {
        // The end of a text does not matter if its beginning already fills the bound.
        let mut clean = String::with_capacity(text.len().min(max));
        let mut spaced = false;
        for char in text.chars() {
            if char.is_whitespace() {
                spaced = !clean.is_empty();
                continue;
            }
            if std::mem::take(&mut spaced) {
                clean.push(' ');
            }
            clean.push(if is_harmless(char) { char } else { char::REPLACEMENT_CHARACTER });
            if clean.len() > max {
                clean.truncate(clean.floor_char_boundary(max.saturating_sub(MARK.len_utf8())));
                clean.push(MARK);
                break;
            }
        }
        Self(clean)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Cleans all texts in a value, also the names of fields.
    pub fn clean(value: &mut Value) {
        match value {
            Value::String(text) => {
                if !is_clean(text) {
                    *text = Self::new(text).0;
                }
            }
            Value::Array(all) => all.iter_mut().for_each(Self::clean),
            Value::Object(all) => {
                if !all.keys().all(|name| is_clean(name)) {
                    *all = std::mem::take(all)
                        .into_iter()
                        .map(|(name, value)| (Self::new(&name).0, value))
                        .collect();
                }
                all.values_mut().for_each(Self::clean);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// True for a character that shows what it is.
fn is_harmless(char: char) -> bool {
    !char.is_control() && !is_format(char)
}

/// True for a text of any length without characters that change what is shown. It may have line breaks.
fn is_clean(text: &str) -> bool {
    text.chars().all(|char| char == '\n' || is_harmless(char))
}

/// True for the format characters of Unicode (Cf) and its separators of lines and paragraphs, which are not visible:
/// they reverse the order of others, join them, or hide text.
fn is_format(char: char) -> bool {
    matches!(char,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::new(text)
    }
}

impl From<Cow<'_, str>> for Text {
    fn from(text: Cow<'_, str>) -> Self {
        Self::new(&text)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// The schema is that of any text: drivers of other languages need not clean.
impl JsonSchema for Text {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_shows_what_it_is() {
        for (raw, clean) in [
            ("plain ä 漢", "plain ä 漢"),
            ("a\u{1b}[2Jb\u{9b}31m", "a\u{fffd}[2Jb\u{fffd}31m"),
            ("a\u{202e}b\u{2066}c\u{200b}d\u{feff}", "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}"),
            ("  a\r\n\t b\u{2028}c\u{0}  ", "a b c\u{fffd}"),
            ("\u{e0041}\u{ad}", "\u{fffd}\u{fffd}"),
            ("", ""),
        ] {
            assert_eq!(Text::new(raw), clean, "{raw:?}");
        }
    }

    #[test]
    fn long_text_is_cut_with_a_mark_and_stays_as_it_is() {
        assert_eq!(Text::new(&"x".repeat(Text::MAX_BYTES)).len(), Text::MAX_BYTES);
        for long in ["x".repeat(Text::MAX_BYTES + 1), "ä".repeat(1 << 20), "\u{1b}".repeat(5000)] {
            let cut = Text::new(&long);
            assert!(cut.len() <= Text::MAX_BYTES && cut.len() > Text::MAX_BYTES - 6, "{}", cut.len());
            assert!(cut.ends_with('…'));
            assert_eq!(Text::new(&cut), cut);
        }
        assert_eq!(Text::at_most("abcdef", 5), "ab…");
    }

    #[test]
    fn text_is_cleaned_when_it_is_read() {
        let read: Text = serde_json::from_value(json!("a\u{1b}b")).unwrap();
        assert_eq!(read, "a\u{fffd}b");
        let mut value = json!({ "m\u{202e}": ["a\u{1b}", 1, { "k": "fine\n{}" }] });
        Text::clean(&mut value);
        assert_eq!(value, json!({ "m\u{fffd}": ["a\u{fffd}", 1, { "k": "fine\n{}" }] }));
    }
}
