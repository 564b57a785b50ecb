//! What `cursor-agent models` writes: lines of an id and a label, between a heading and a tip.

use crate::provider::Model;

/// The models of a list.
pub(super) fn read(said: &str) -> Vec<Model> {
    said.lines().filter_map(|line| model(&plain(line))).collect()
}

fn model(line: &str) -> Option<Model> {
    let (id, label) = line.trim().split_once(" - ")?;
    let fits =
        |id: &str| !id.is_empty() && !id.starts_with('-') && !id.contains(char::is_whitespace);
    let label = unmarked(label.trim());
    fits(id).then(|| Model { id: id.to_owned(), label: label.to_owned(), context_tokens: 0 })
}

/// A label without what says that its model is chosen.
fn unmarked(label: &str) -> &str {
    let marks = |inside: &str| inside.split(", ").all(|mark| matches!(mark, "current" | "default"));
    let inside = label.strip_suffix(')').and_then(|label| label.rsplit_once('('));
    inside.filter(|(_, inside)| marks(inside)).map_or(label, |(label, _)| label.trim_end())
}

/// A line without what is for a terminal.
fn plain(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |line, piece| {
        line + piece.trim_start_matches(|c: char| !c.is_ascii_alphabetic()).get(1..).unwrap_or("")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_the_lines_with_an_id_and_a_label() {
        let said = "\x1b[2K\x1b[GAvailable models\n\nauto - Auto (current, default)\r\n\
                    gpt-9-high - GPT 9 - High (1M)\n\x1b[1mplain-1\x1b[0m - Plain  (default)\n - none\n\
                    --force - no\nNo models available\n\x1b[\n\n\
                    \x1b[2mTip: use --model <id> (or /model <id> - later) to switch.\x1b[0m\n";
        let models = read(said).into_iter().map(|model| (model.id, model.label));
        let wanted = [("auto", "Auto"), ("gpt-9-high", "GPT 9 - High (1M)"), ("plain-1", "Plain")];
        let wanted = wanted.map(|(id, label)| (id.to_owned(), label.to_owned()));
        assert_eq!(models.collect::<Vec<_>>(), wanted);
    }
}
