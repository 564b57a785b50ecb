//! Scripts that take memory, past the sizes that the language looks at.

use super::*;

fn limited(max_heap: usize) -> Settings {
    Settings { max_heap, max_operations: 50_000_000, ..Settings::default() }
}

/// Runs turns of one session with prompt "hello".
fn turns(script: &str, settings: Settings, count: usize) -> Vec<Result<Ended, Failure>> {
    let io = io(|tool, _| match tool {
        "read_file" => Ok(Value::from("x".repeat(100_000))),
        _ => Err("y".repeat(10_000)),
    });
    run(settings, async {
        let mut instance = open(script, settings, None).await;
        let mut ended = Vec::new();
        for _ in 0..count {
            ended.push(instance.turn(prompt("hello"), io.clone()).await);
        }
        ended
    })
}

/// What a body answers that may hold 4 MiB.
fn within_four(body: &str) -> Result<String, Failure> {
    let script = format!("fn turn(prompt) {{ {body} }}");
    match turns(&script, limited(4 << 20), 1).remove(0)? {
        Ended::Completed { response, .. } => Ok(response),
        Ended::Cancelled => panic!("nobody cancelled it"),
    }
}

const PAD: &str = "let s = \"\"; s.pad(100000, 'x'); let i = 0;";

#[test]
fn a_script_that_holds_too_much_ends() {
    for body in [
        "let m = #{}; loop { m[`k${i}`] = s + i; i += 1; }",
        "let m = #{}; loop { m[`k${i}`] = i; i += 1; }",
        "let a = []; for j in 0..1000 { a.push(()); } loop { a[i] = s + i; i += 1; }",
        "let a = [[], []]; loop { a[i % 2].push([s + i]); i += 1; }",
        "let a = []; loop { let inner = #{}; inner[`x`] = a; inner[`s`] = s + i; a = [inner]; i += 1; }",
        "let m = #{}; loop { try { m[`k${i}`] = s + i; } catch { } i += 1; }",
        "let m = #{}; loop { m[`k${i}`] = blob(90000); i += 1; }",
        "let a = [s]; a.pad(90000, s); a.map(|t| t + 1)",
        "let a = []; for j in 0..90000 { a.push(j); } a.map(|n| { let t = \"\"; t.pad(100000, 'x'); t + n })",
    ] {
        let error = within_four(&format!("{PAD}\n{body}")).expect_err(body);
        assert_eq!(error.class, FailureClass::Permanent, "{body}");
        let wanted = "Too much memory: a turn may hold at most 4194304 bytes";
        if body.contains("a.pad") {
            // Texts in one array count together, though they are the same.
            assert!(error.message.contains("too large"), "{body}: {error}");
        } else {
            assert!(error.message.contains(wanted), "{body}: {error}");
        }
    }
}

#[test]
fn a_long_text_is_held_to_the_same_bound() {
    let body = "let s = \"x\"; loop { s += s; }";
    let settings = Settings { max_string: 1 << 30, ..limited(4 << 20) };
    let failed = turns(&format!("fn turn(p) {{ {body} }}"), settings, 1).remove(0).unwrap_err();
    assert!(failed.message.contains("Too much memory"), "{failed}");
}

#[test]
fn what_it_remembers_counts() {
    let settings = Settings { max_memory: 32 << 20, max_string: 32 << 20, ..limited(4 << 20) };
    let script = format!("fn turn(p) {{ {PAD} loop {{ remember(`k${{i}}`, s + i); i += 1; }} }}");
    let failed = turns(&script, settings, 1).remove(0).unwrap_err();
    assert!(failed.message.contains("Too much memory"), "{failed}");
}

#[test]
fn what_was_freed_does_not_count() {
    let answer = within_four(&format!(
        "{PAD}
        for j in 0..5000 {{ let m = #{{}}; m[`k`] = s + j; m[`l`] = [s + j]; }}
        for j in 0..2000 {{ say(\"\"); remember(\"k\", `${{j}}`); forget(\"k\"); }}
        let kept = s + 1;
        kept.len()"
    ));
    assert_eq!(answer.as_deref(), Ok("100001"));
}

#[test]
fn turns_one_after_the_other_do_not_add_up() {
    let script = format!(
        "fn turn(p) {{ {PAD} let m = #{{}}; while i < 15 {{ m[`k${{i}}`] = s + i; i += 1; }}
         remember(\"kept\", s); m.len() }}"
    );
    for ended in turns(&script, limited(4 << 20), 20) {
        assert!(matches!(ended, Ok(Ended::Completed { ref response, .. }) if response == "15"));
    }
}

#[test]
fn tools_neither_use_up_the_bound_nor_widen_it() {
    let rest =
        "let m = #{}; i = 0; loop { m[`k${i}`] = s + i; i += 1; if i == 20 { say(\"20\"); } }";
    for calls in [
        "for j in 0..200 { read_file(\"big\"); }",
        "for j in 0..200 { write_file(\"big\", s); }",
        "for j in 0..200 { try { list_children(); } catch { } }",
        "for j in 0..200 { try { write_file(\"big\", s); } catch { } print(s); }",
    ] {
        let calls =
            calls.replace("write_file(\"big\", s);", "try { write_file(\"b\", s); } catch { }");
        let within =
            format!("{PAD} {calls} while i < 15 {{ m[`k${{i}}`] = s + i; i += 1; }} m.len()")
                .replace("let i = 0;", "let i = 0; let m = #{};");
        assert_eq!(within_four(&within).as_deref(), Ok("15"), "{calls}");
        let error = within_four(&format!("{PAD} {calls} {rest}")).expect_err(&calls);
        assert!(error.message.contains("Too much memory"), "{calls}: {error}");
    }
    // Even when what came back would make room for ten times as much.
    let rest = "let m = #{}; while i < 100 { m[`k${i}`] = s + i; i += 1; } m.len()";
    for calls in ["read_file(\"big\");", "try { list_children(); } catch { }"] {
        let body = format!("{PAD} for j in 0..1000 {{ {calls} }} {rest}");
        let error = within_four(&body).expect_err(calls);
        assert!(error.message.contains("Too much memory"), "{calls}: {error}");
    }
}

#[test]
fn each_of_several_scripts_has_its_own_bound() {
    let greedy = format!(
        "fn turn(p) {{ {PAD} let m = #{{}}; say(\"go\"); loop {{ m[`k${{i}}`] = s + i; i += 1; }} }}"
    );
    let modest = format!(
        "fn turn(p) {{ {PAD} let m = #{{}}; while i < 15 {{ m[`k${{i}}`] = s + i; i += 1; }} say(\"held\"); sleep_ms(3600000); }}"
    );
    let settings = limited(4 << 20);
    run(settings, async {
        let mut holding = Vec::new();
        let mut turns = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let io = io(|_, _| Ok(Value::Null));
            let mut instance = open(&modest, settings, None).await;
            let own = io.clone();
            turns.spawn(async move { instance.turn(prompt("hello"), own).await });
            io.spoke.cancelled().await;
            holding.push(io);
        }
        let mut instance = open(&greedy, settings, None).await;
        let io = io(|_, _| Ok(Value::Null));
        let failed = instance.turn(prompt("hello"), io.clone()).await.unwrap_err();
        assert!(failed.message.contains("Too much memory"), "{failed}");
        for io in holding {
            io.cancel.cancel();
        }
        while let Some(ended) = turns.join_next().await {
            assert_eq!(ended.unwrap(), Ok(Ended::Cancelled));
        }
    });
}

/// Makes a map that holds one text a thousand times: small, but large when written out.
const SHARED: &str =
    "let s = \"\"; s.pad(4000000, 'x'); let m = #{}; for i in 0..1000 { m[`k${i}`] = s; }";

#[test]
fn a_text_held_many_times_is_not_written_out() {
    for body in [
        "m",
        "exit(m)",
        "throw m",
        "say(m)",
        "print(m)",
        "debug(m)",
        "m.to_string()",
        "m.to_debug()",
        "m.to_json()",
        "`${m}`",
        "\"\" + m",
        "m + \"\"",
        "let t = \"\"; t += m; t",
        "let a = [1]; a[0] = m; a.to_string()",
        "let a = [1]; a[0] = m; `${a}`",
        "[m]",
        "remember(\"m\", m)",
        "write_file(\"m\", m)",
        "read_file(\"m\", m)",
        "try { `${m}` } catch { } 1",
    ] {
        let error = failure(&format!("{SHARED} {body}"));
        assert!(error.contains("too large"), "{body}: {error}");
    }
}

#[test]
fn no_function_of_the_language_outgrows_the_sizes_in_one_step() {
    let pad = "let s = \"\"; s.pad(1000000, 'x'); let big = \"\"; big.pad(4000000, 'y');";
    for body in [
        "s.replace(\"x\", big)",
        "s.replace('x', big)",
        "s.replace(\"\", big)",
        "s.split(\"\")",
        "s.split(\"x\")",
        "s.split('x')",
        "s.split(\"x\", 1000000)",
        "s.split('x', 1000000)",
        "s.split_rev(\"x\")",
        "s.split_rev('x')",
        "s.split_rev(\"x\", 1000000)",
        "s.split_rev('x', 1000000)",
        "s.to_chars()",
        "s.replace(\"x\", \" z\"); s.split()",
    ] {
        let error = failure(&format!("{pad} {body}"));
        assert!(error.contains("too large"), "{body}: {error}");
    }
}

#[test]
fn functions_with_a_bound_do_what_those_of_the_language_do() {
    let language = {
        use rhai::packages::Package;
        let mut engine = Engine::new_raw();
        rhai::packages::StandardPackage::new().register_into_engine(&mut engine);
        engine
    };
    for body in [
        "[1, 'x', \"a\\n\", 1.5, (), true, [2], #{ b: 'y', \"a b\": Fn(\"f\") }].to_string()",
        "`${[1, 'x', \"a\", 2.0]} ${#{ a: [], b: #{} }}`",
        "#{ a: 1, b: [\"x\", ()] }.to_debug() + [] + #{}",
        "#{ a: 1, b: [\"x\", (), 1.5], c: true }.to_json()",
        "const A = [1]; A.to_string()",
        "let s = \"abcabc\"; s.replace(\"bc\", \"\"); s",
        "let s = \"abcabc\"; s.replace('b', \"--\"); s.replace(\"c\", 'd'); s.replace('d', 'e'); s",
        "let s = \"ab\"; s.replace(\"\", \"-\"); s",
        "let s = \"\"; s.replace(\"\", \"-\"); s",
        "let s = \"ab\"; s.replace(\"x\", \"-\"); s",
        "`${\"a,b,c\".split(\",\")} ${\"a,b,c\".split(',')} ${\"a b  c\".split()}`",
        "`${\"a,b,c\".split(\",\", 2)} ${\"a,b,c\".split(',', 2)} ${\"a,b\".split(',', 0)}`",
        "`${\"a,b,c\".split_rev(\",\")} ${\"a,b,c\".split_rev(',', 2)} ${\"a,b\".split_rev(\",\", -1)}`",
        "`${\"\".split(\"\")} ${\"\".split()} ${\"\".split(\"x\")} ${\"ab\".split(\"\")} ${\"\".split_rev(\"\")}`",
        "`${\"abc\".split(1)} ${\"abc\".to_chars()} ${\"\".to_chars()} ${\"ab\".split(\"x\")}`",
    ] {
        let wanted = language.eval::<String>(body).expect(body);
        assert_eq!(answer(body), Ok(wanted), "{body}");
    }
    let error = failure("const S = \"a\"; S.replace(\"a\", \"b\"); S");
    assert!(error.contains("constant"), "{error}");
}
