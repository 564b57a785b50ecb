//! Text of agents, tools and users on a terminal: nothing in it may steer the terminal, or show
//! itself as what it is not.

use std::borrow::Cow;
use std::sync::OnceLock;

use anstyle::Style;

/// Starts a control sequence that is this program's own until it is written. No text can hold it:
/// it is another one in every process.
fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| format!("\u{1b}{}", uuid::Uuid::new_v4().simple()))
}

/// Text in a style, to be written by [`styled`] or [`visible`].
pub(crate) fn paint(style: Style, text: &str) -> String {
    let code = |code: String| code.replace('\u{1b}', mark());
    let (start, end) = (code(style.render().to_string()), code(style.render_reset().to_string()));
    format!("{start}{text}{end}")
}

/// Text as it is, with the styles of this program.
pub(crate) fn styled(text: &str) -> Cow<'_, str> {
    if text.contains(mark()) { text.replace(mark(), "\u{1b}").into() } else { text.into() }
}

/// Text for a terminal: with the styles of this program, and everything else that is not to be
/// seen but newlines and tabs escaped.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |c, to| to.extend(c.escape_unicode()))
}

/// JSON for a terminal: what JSON leaves as it is, escaped its way.
pub(crate) fn visible_json(text: &str) -> Cow<'_, str> {
    // All that is unseen has four digits.
    escaped(text, |c, to| to.push_str(&format!("\\u{:04x}", u32::from(c))))
}

/// Whether a terminal would do something with it instead of showing it: control characters of
/// both sets, and those that change the direction of what is around them.
pub(crate) fn is_unseen(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(|c| is_unseen(c) && c != '\n' && c != '\t') {
        return text.into();
    }
    let mut seen = String::with_capacity(text.len());
    for (place, part) in text.split(mark()).enumerate() {
        if place > 0 {
            seen.push('\u{1b}');
        }
        let mut chars = part.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\n' | '\t' => seen.push(c),
                // Ends a line as well.
                '\r' if chars.peek() == Some(&'\n') => {}
                c if is_unseen(c) => escape(c, &mut seen),
                c => seen.push(c),
            }
        }
    }
    seen.into()
}

#[cfg(test)]
mod tests {
    use anstyle::AnsiColor;

    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        let told = "a\u{1b}]52;c;eA==\u{7}b\0c\u{9b}2Jd\u{7f}e\rf\u{202e}g\u{2066}h";
        let seen = "a\\u{1b}]52;c;eA==\\u{7}b\\u{0}c\\u{9b}2Jd\\u{7f}e\\u{d}f\\u{202e}g\\u{2066}h";
        assert_eq!(visible(told), seen);
        assert!(!visible(told).contains(is_unseen));
    }

    #[test]
    fn lines_tabs_and_letters_stay_as_they_are() {
        for text in ["", "a\tb\nc\n", "Grüße, 日本 👩‍🚀 שלום"] {
            assert!(matches!(visible(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
        assert_eq!(visible("a\r\nb\r"), "a\nb\\u{d}");
    }

    #[test]
    fn only_the_styles_of_this_program_are_styles() {
        let red = AnsiColor::Red.on_default();
        let painted = paint(red, "\u{1b}[8mhidden\u{1b}[0m");
        assert_eq!(visible(&painted), "\u{1b}[31m\\u{1b}[8mhidden\\u{1b}[0m\u{1b}[0m");
        assert_eq!(styled(&painted), "\u{1b}[31m\u{1b}[8mhidden\u{1b}[0m\u{1b}[0m");
        assert_eq!(styled("\u{1b}[31m"), "\u{1b}[31m");
    }

    #[test]
    fn json_stays_json() {
        let text = "\u{9b}2J\u{202e}\u{7f}\u{1b}";
        let json = serde_json::to_string(&[text]).unwrap();
        let seen = visible_json(&json);
        assert!(!seen.contains(is_unseen));
        assert_eq!(serde_json::from_str::<Vec<String>>(&seen).unwrap(), [text]);
    }

    #[test]
    fn no_control_character_is_left() {
        let text: String = ('\0'..=char::MAX).filter(|c| *c != '\n' && *c != '\t').collect();
        assert!(!visible(&text).contains(char::is_control));
    }
}
