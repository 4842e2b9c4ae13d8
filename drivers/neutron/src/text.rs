//! Texts of the other side in messages.

use eno_schemas::Text;

/// Maximum bytes that a message shows.
const MAX_SHOWN: usize = 300;

/// A text of the other side, in one line, shortened, and without a full stop at its end.
pub(crate) fn shown(text: &str) -> String {
    Text::at_most(text, MAX_SHOWN).trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_other_side_are_one_short_line() {
        assert_eq!(shown("a\nb\u{1b}[31m."), "a b\u{fffd}[31m");
        assert_eq!(shown(&"x".repeat(1000)).len(), MAX_SHOWN);
    }
}
