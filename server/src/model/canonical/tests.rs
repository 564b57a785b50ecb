use proptest::prelude::*;

use super::*;

fn hash(json: &str) -> String {
    sha256(&canonical(json.as_bytes()).unwrap())
}

#[track_caller]
fn becomes(json: &str, expected: &str) {
    assert_eq!(canonical(json.as_bytes()).as_deref(), Ok(expected), "{json}");
}

const V1: &str = r#"{"Z":"","a":{"A":"caps-before-lower","y":"h\u00e9llo \u4e16\u754c \ud83d\ude00","z":[1,2.5,true,null]},"b":1,"\u00e9":"k"}"#;
const V3: &str = r#"{"":"empty-key","10":1,"9":2,"a\u0300":1,"esc":"\"\\/\b\f\n\r\t\u0000\u001f\u007f\u0080\u2028\ud83d\ude00","nested":{"empty":{},"list":[{"a":1,"b":2},[]]},"\u00e0":2,"\uffee":2,"\ud83d\ude00":1}"#;
const V5: &str = r#"{"s":1.5e+300,"t":3e-05,"u":1e-05,"v":0.0001,"w":1e+16,"x":100000.0,"y":1000000000000000.0,"z":9999999999999998.0}"#;

#[test]
fn the_hashes_are_those_of_python() {
    for (text, expected) in [
        ("{}", "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
        (V1, "sha256:f0198c224b06f38d1589ae64bab21fcb544fc7ba49d5ef61d681e28405e5f36c"),
        (V5, "sha256:4ca28707e2342a62b70ca022c6cec464ab11c5119139e73b8b9c5dbab331ef0a"),
        (V3, "sha256:75939d8fdcc1c42efc10d929e93cbe212becefc0fd80c423064692d38f05871a"),
    ] {
        becomes(text, text);
        assert_eq!(hash(text), expected, "{text}");
    }
}

#[test]
fn the_order_of_keys_and_white_space_in_the_input_make_no_difference() {
    let turned = "{\"é\" : \"k\",\n\"b\":1, \"a\": {\"z\":[ 1 , 2.50,true,null ],\
                  \"y\":\"héllo 世界 😀\",\t\"A\":\"caps-before-lower\"},\"Z\":\"\"} ";
    becomes(turned, V1);
    becomes(r#"{"\ud83d\ude00":1,"\uffee":2}"#, r#"{"\uffee":2,"\ud83d\ude00":1}"#);
    becomes(
        r#"{"b":{"d":1,"c":2},"a":[{"y":0,"x":0}]}"#,
        r#"{"a":[{"x":0,"y":0}],"b":{"c":2,"d":1}}"#,
    );
}

#[test]
fn keys_are_ordered_by_code_point_even_where_they_are_half_a_pair() {
    becomes(
        r#"{"😀":1,"\ue000":2,"\udc00":3,"\ud800":4,"~":5}"#,
        r#"{"~":5,"\ud800":4,"\udc00":3,"\ue000":2,"\ud83d\ude00":1}"#,
    );
}

#[test]
fn floats_are_the_shortest_text_that_reads_back() {
    for (text, expected) in [
        ("1.0", "1.0"),
        ("1E5", "100000.0"),
        ("1e0", "1.0"),
        ("-0.0", "-0.0"),
        ("-0e7", "-0.0"),
        ("0.00010", "0.0001"),
        ("0.00001", "1e-05"),
        ("123456.789e3", "123456789.0"),
        ("0.1", "0.1"),
        ("2.5e-7", "2.5e-07"),
        ("1e16", "1e+16"),
        ("1e15", "1000000000000000.0"),
        ("12345678901234567.0", "1.2345678901234568e+16"),
        ("1e23", "1e+23"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("5e-324", "5e-324"),
        ("1e-400", "0.0"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("1e400", "Infinity"),
        ("-1e400", "-Infinity"),
        ("1.50", "1.5"),
        ("100.0", "100.0"),
    ] {
        becomes(text, expected);
    }
}

#[test]
fn integers_have_any_size_and_no_negative_zero() {
    for (text, expected) in [
        ("-0", "0"),
        ("0", "0"),
        ("12345678901234567890", "12345678901234567890"),
        ("-340282366920938463463374607431768211456", "-340282366920938463463374607431768211456"),
    ] {
        becomes(text, expected);
    }
}

#[test]
fn strings_are_escaped_as_little_as_ascii_allows() {
    for (text, expected) in [
        (r#""\/""#, r#""/""#),
        ("\"\u{7f}~\"", r#""\u007f~""#),
        (r#""\u0041\u000A\u001F""#, r#""A\n\u001f""#),
        (r#""\ud83d""#, r#""\ud83d""#),
        (r#""\ude00\ud83d""#, r#""\ude00\ud83d""#),
        (r#""\uD83D\uDE00""#, r#""\ud83d\ude00""#),
        (r#""\ud83d\u0041""#, r#""\ud83dA""#),
        (r#""\ud83d\n""#, r#""\ud83d\n""#),
    ] {
        becomes(text, expected);
    }
}

#[test]
fn words_pass_and_the_last_of_equal_keys_counts() {
    becomes("[NaN,Infinity,-Infinity,true,false,null]", "[NaN,Infinity,-Infinity,true,false,null]");
    becomes(r#"{"a":1,"b":2,"\u0061":3}"#, r#"{"a":3,"b":2}"#);
    becomes(r#"{"a":1,"a":{"x":1}}"#, r#"{"a":{"x":1}}"#);
}

#[test]
fn what_is_no_json_is_refused_with_its_place() {
    let syntax = |at, wanted| Err(NotJson::Syntax { at, wanted });
    assert_eq!(canonical(b""), syntax(0, "a value"));
    assert_eq!(canonical(b"{} x"), syntax(3, "the end"));
    assert_eq!(canonical(b"[1,]"), syntax(3, "a value"));
    assert_eq!(canonical(b"{\"a\":1,}"), syntax(7, "a string"));
    assert_eq!(canonical(b"\"\n\""), syntax(1, "the rest of a string"));
    assert_eq!(canonical(b"\"\xff\""), Err(NotJson::Utf8 { at: 1 }));
    for bad in [
        "01",
        "1.",
        ".5",
        "-",
        "+1",
        "1e",
        "-Inf",
        "nan",
        "tru",
        "[1 2]",
        "{\"a\" 1}",
        "{1:2}",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"",
        "[",
        "{",
        "{\"a\":",
        "\u{feff}1",
        "'a'",
    ] {
        assert!(matches!(canonical(bad.as_bytes()), Err(NotJson::Syntax { .. })), "{bad}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(canonical(nested(MAX_DEPTH).as_bytes()).is_ok());
    let bottomless = "{\"a\":".repeat(1_000_000);
    for deep in [nested(MAX_DEPTH + 2), bottomless] {
        assert!(matches!(canonical(deep.as_bytes()), Err(NotJson::Depth { .. })));
    }
}

/// JSON of any shape, with keys that repeat and every kind of string and number.
fn json() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        any::<String>().prop_map(|text| serde_json::Value::from(text).to_string()),
        proptest::collection::vec(any::<u16>(), 0..6).prop_map(|units| {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            format!("\"{escapes}\"")
        }),
        "\"[a-c]\"",
    ];
    let leaf = prop_oneof![
        string.clone(),
        "-?(0|[1-9][0-9]{0,30})",
        "-?(0|[1-9][0-9]{0,20})\\.[0-9]{1,20}([eE][+-]?[0-9]{1,3})?",
        any::<f64>().prop_filter("JSON has it", |x| x.is_finite()).prop_map(|x| format!("{x:e}")),
        prop_oneof!["true", "false", "null", "NaN", "-?Infinity"],
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        let members = proptest::collection::vec((string.clone(), inner.clone()), 0..5);
        prop_oneof![
            proptest::collection::vec(inner, 0..5)
                .prop_map(|items| format!("[ {} ]", items.join(" , "))),
            members.prop_map(|members| {
                let members: Vec<String> =
                    members.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn the_canonical_form_of_the_canonical_form_is_itself(json in json()) {
        let once = canonical(json.as_bytes()).unwrap();
        prop_assert!(once.is_ascii());
        prop_assert_eq!(canonical(once.as_bytes()).unwrap(), once);
    }

    #[test]
    fn values_stay_what_they_are(x in any::<f64>(), text: String) {
        if x.is_finite() {
            let written = canonical(format!("{x:e}").as_bytes()).unwrap();
            prop_assert_eq!(written.parse::<f64>().unwrap().to_bits(), x.to_bits());
        }
        let quoted = serde_json::Value::from(text.as_str()).to_string();
        let mut direct = String::new();
        write_string(&mut direct, &text);
        prop_assert_eq!(canonical(quoted.as_bytes()).unwrap(), direct.clone());
        prop_assert_eq!(serde_json::from_str::<String>(&direct).unwrap(), text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, broken in "[\\[{}\\]\",:0-9eE+.u\\\\d-]{0,40}") {
        let _ = canonical(&bytes);
        let _ = canonical(broken.as_bytes());
    }
}
