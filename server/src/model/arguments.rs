//! Reads the arguments of tool calls, and says what is wrong with them in the words of the JSON
//! Schema that whoever calls has read.

use serde::de::DeserializeOwned;

/// Reads arguments. The error names the argument.
pub(super) fn read<T: DeserializeOwned>(args: &str) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_str(args);
    let read = serde_path_to_error::deserialize(&mut json);
    let read = read.map_err(|error| {
        let path = error.path().to_string();
        (Some(path).filter(|path| path != "."), error.into_inner())
    });
    // Text after the arguments is an error, too.
    let read = read.and_then(|args| json.end().map(|()| args).map_err(|error| (None, error)));
    read.map_err(|(path, error)| {
        let problem = in_words(&error);
        path.map_or(problem.clone(), |path| format!("{path}: {problem}"))
    })
}

/// The text of an error without the place in the text, which is not as the caller wrote it.
fn in_words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let Some((found, wanted)) = text.rsplit_once(", expected ") else { return text.to_owned() };
    let (problem, value) = found.split_once(": ").unwrap_or((found, ""));
    let value = match value {
        "map" => "object",
        "sequence" => "array",
        other => other,
    };
    let wanted = match wanted {
        "u32" if value.starts_with("integer `") && !value.starts_with("integer `-") => {
            "a whole number of at most 4294967295"
        }
        "u32" | "u64" => "a whole number of at least 0",
        "a map" => "an object",
        "a sequence" => "an array",
        other if other.starts_with("struct ") => "an object",
        other => other,
    };
    let found = if value.is_empty() { problem.to_owned() } else { format!("{problem}: {value}") };
    format!("{found}, expected {wanted}")
}

#[cfg(test)]
mod tests {
    use crate::model::Tool;

    fn problem(tool: &str, args: &str) -> String {
        let text = Tool::parse(tool, args).unwrap_err().to_string();
        text.strip_prefix(&format!("bad arguments for {tool}: ")).unwrap().to_owned()
    }

    #[test]
    fn a_bad_argument_is_named_and_what_it_must_be_is_said() {
        let send = |rest: &str| format!(r#"{{"recipient":"a","text":"b",{rest}}}"#);
        let spawn = |rest: &str| format!(r#"{{"name":"a","instructions":"b",{rest}}}"#);
        let whole = "expected a whole number of at least 0";
        for (tool, args, says) in [
            (
                "send_message",
                send(r#""timeout":"a""#),
                format!(r#"timeout: invalid type: string "a", {whole}"#),
            ),
            (
                "send_message",
                send(r#""timeout":-1"#),
                format!("timeout: invalid value: integer `-1`, {whole}"),
            ),
            (
                "send_message",
                send(r#""timeout":1.5"#),
                format!("timeout: invalid type: floating point `1.5`, {whole}"),
            ),
            (
                "send_message",
                send(r#""timeout":4294967296"#),
                "timeout: invalid value: integer `4294967296`, expected a whole number of at \
                 most 4294967295"
                    .to_owned(),
            ),
            (
                "send_message",
                send(r#""sync":{}"#),
                "sync: invalid type: object, expected a boolean".to_owned(),
            ),
            (
                "send_message",
                send(r#""priority":"urgent""#),
                "priority: unknown variant `urgent`, expected `high` or `normal`".to_owned(),
            ),
            (
                "spawn_agent",
                spawn(r#""metadata":["k"]"#),
                "metadata: invalid type: array, expected an object".to_owned(),
            ),
            (
                "spawn_agent",
                spawn(r#""metadata":{"k":1}"#),
                "metadata.k: invalid type: integer `1`, expected a string".to_owned(),
            ),
            (
                "list_children",
                r#""all""#.to_owned(),
                r#"invalid type: string "all", expected an object"#.to_owned(),
            ),
            ("list_children", "{} {}".to_owned(), "trailing characters".to_owned()),
        ] {
            assert_eq!(problem(tool, &args), says, "{tool} {args}");
        }
    }
}
