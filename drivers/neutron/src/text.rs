//! Texts of the other side in messages.

/// Maximum characters that a message shows.
const MAX_SHOWN: usize = 300;

/// A text of the other side, in one line, shortened, and without a full stop at its end.
pub(crate) fn shown(text: &str) -> String {
    let line: String =
        text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MAX_SHOWN).collect();
    line.trim().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_other_side_are_one_short_line() {
        assert_eq!(shown("a\nb\u{1b}[31m."), "a b [31m");
        assert_eq!(shown(&"x".repeat(1000)).len(), MAX_SHOWN);
    }
}
