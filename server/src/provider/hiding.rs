//! Taking a key out of a text, of which a cut may have left a part.

/// Stands for a key in what is told.
pub(super) const HIDDEN: &str = "[hidden]";
/// Shortest part of a key that is looked for, in bytes, and longest that is left.
const PART: (usize, usize) = (8, 16);

/// A text without a key, and without its beginning or its end where a part of it is left: texts are
/// cut where nobody knows the key. A short part, which may be of another text, stays.
pub(super) fn without(text: &str, key: &str) -> String {
    let whole = text.replace(key, HIDDEN);
    let part = (key.len() / 4).clamp(PART.0, PART.1);
    if part >= key.len() {
        return whole;
    }
    let head = &key[..key.ceil_char_boundary(part)];
    let tail = &key[key.floor_char_boundary(key.len() - part)..];
    let headless = replaced(&whole, head, |text, at| {
        let common = text[at..].bytes().zip(key.bytes()).take_while(|(a, b)| a == b).count();
        at..text.floor_char_boundary(at + common)
    });
    replaced(&headless, tail, |text, at| {
        let (end, before) = (at + tail.len(), &text[..at + tail.len()]);
        let pairs = before.bytes().rev().zip(key.bytes().rev());
        let common = pairs.take_while(|(a, b)| a == b).count();
        text.ceil_char_boundary(end - common)..end
    })
}

/// A text with something in the place of what is found around each place of a part.
fn replaced(
    text: &str,
    part: &str,
    around: impl Fn(&str, usize) -> std::ops::Range<usize>,
) -> String {
    let (mut out, mut done) = (String::new(), 0);
    while let Some(at) = text[done..].find(part).map(|at| done + at) {
        let found = around(text, at);
        out.push_str(&text[done..found.start.max(done)]);
        out.push_str(HIDDEN);
        done = found.end;
    }
    if done == 0 { text.to_owned() } else { out + &text[done..] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyz";

    #[test]
    fn a_key_that_was_cut_is_hidden_as_well() {
        let hidden = |text: &str| without(text, KEY);
        assert_eq!(hidden(&format!("a {KEY} b {KEY}")), "a [hidden] b [hidden]");
        assert_eq!(hidden(&format!("the key {}", &KEY[..20])), "the key [hidden]");
        assert_eq!(hidden(&format!("{} is no key", &KEY[9..])), "[hidden] is no key");
        let both = format!("{} and \"{}…\"", &KEY[30..], &KEY[..30]);
        assert_eq!(hidden(&both), "[hidden] and \"[hidden]…\"");
        for other in ["", "sk-ant-", "keys begin with sk-ant", "uvwxyz"] {
            assert_eq!(hidden(other), other);
        }
        assert_eq!(without("a short12 b short1", "short12"), "a [hidden] b short1");
    }

    proptest! {
        #[test]
        fn whatever_a_cut_leaves_shows_little_of_a_key(
            key in "[a-z]{20,60}|[äé€z]{10,30}",
            (before, after) in (".{0,20}", ".{0,20}"),
            (from, to) in (0usize..100, 0usize..100),
        ) {
            let text = format!("{before}{key}{after}");
            let from = text.floor_char_boundary(from.min(text.len()));
            let to = text.floor_char_boundary(to.clamp(from, text.len()));
            let shown = without(&text[from..to], &key);
            prop_assert!(!shown.contains(&key));
            // A piece from its inside alone is of a cut at both ends.
            if from <= before.len() || to >= before.len() + key.len() {
                for part in [&key[..key.ceil_char_boundary(19)], &key[key.floor_char_boundary(key.len().saturating_sub(19))..]] {
                    prop_assert!(!shown.contains(part), "{shown}");
                }
            }
        }
    }
}
