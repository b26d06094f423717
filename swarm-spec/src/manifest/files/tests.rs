use super::super::Runner;
use super::*;

fn files(templates: &[(&str, &str)]) -> Result<Files, String> {
    let templates: BTreeMap<_, _> =
        templates.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    Files::read("files", Some(&templates)).map_err(|error| error.to_string())
}

/// Renders one template for a job with these params.
fn rendered_with(text: &str, params: &[(&str, &str)], detail: Detail) -> Result<String, String> {
    let params = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let params = params.collect();
    let values =
        Values { job: "cam 1".trim(), token: 7, worker: "w-0", params: &params, files: "" };
    let files = files(&[("f.json", text)])?;
    let rendered = files.render(&values, detail)?;
    let [(name, bytes)] = rendered.as_slice() else { panic!("one file") };
    assert_eq!(*name, "f.json");
    Ok(String::from_utf8(bytes.clone()).unwrap())
}

fn rendered(text: &str, params: &[(&str, &str)]) -> Result<String, String> {
    rendered_with(text, params, Detail::Shown)
}

#[test]
fn all_variables_are_known_and_text_stays_as_it_is() {
    let text = "<{{ job }}> & {{ token }} {{ worker }} \"{{ params.url }}\"\n";
    let file = rendered(text, &[("url", "rtsp://a/?b=1&c='2'")]).unwrap();
    assert_eq!(file, "<cam 1> & 7 w-0 \"rtsp://a/?b=1&c='2'\"\n");
    // A key need not be an identifier.
    assert_eq!(rendered("{{ params['a-b'] }}", &[("a-b", "x")]).unwrap(), "x");
    let all = "{% for name, value in params|items %}{{ name }}={{ value }};{% endfor %}";
    assert_eq!(rendered(all, &[("a", "1"), ("b", "2")]).unwrap(), "a=1;b=2;");
}

#[test]
fn template_syntax_in_a_value_is_text_and_a_filter_quotes_any_value() {
    for value in ["{{ job }}", "{% raw %}", "../x", "a'b\"c", "two\nlines", "<&>", "{job}", "\\"] {
        assert_eq!(rendered("{{ params.v }}", &[("v", value)]).unwrap(), value);
        let quoted = rendered("{{ params.v|tojson }}", &[("v", value)]).unwrap();
        assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), value);
        let in_yaml = crate::yaml::documents(&format!("v: {quoted}")).unwrap();
        assert_eq!(in_yaml[0].1["v"], value);
    }
}

#[test]
fn a_mistake_of_syntax_is_refused_with_field_file_and_line() {
    let place = "files.a.conf: line ";
    for (text, line) in [
        ("{{ job", "1: syntax error: "),
        ("\n\n{% if %}x", "3: syntax error: "),
        ("{% for a in params %}x", "1: syntax error: "),
        ("{% for job in range(2) %}{{ job }}{% endfor %}{% set a = 1 %}{{ a }}", ""),
        ("x\n{{ job|nofilter }}", ""),
        ("{% include 'b.conf' %}", "1: syntax error: unknown statement include"),
        ("{% extends 'b' %}", "1: syntax error: unknown statement extends"),
        ("{% import 'b' as b %}", "1: syntax error: unknown statement import"),
    ] {
        match files(&[("a.conf", text)]) {
            Ok(_) => assert!(line.is_empty(), "{text}"),
            Err(error) => assert!(error.starts_with(&format!("{place}{line}")), "{text}: {error}"),
        }
    }
    let unknown = files(&[("a.conf", "x\n{{ job }} {{ jbo }}")]).unwrap_err();
    assert!(unknown.starts_with("files.a.conf: `jbo` "), "{unknown}");
    assert!(unknown.ends_with("job, token, worker or params.NAME"), "{unknown}");
    let long = format!("\n{{{{ {}1 }}}}", "1 + ".repeat(100));
    let error = files(&[("a.conf", &long)]).unwrap_err();
    assert!(error.starts_with(&format!("{place}2: an expression has more than 200")), "{error}");
}

#[test]
fn a_template_that_fails_for_a_job_names_its_line_and_no_secret() {
    let place = "files.f.json: ";
    let error = rendered("a\n{{ params.url }}", &[]).unwrap_err();
    assert_eq!(error, format!("{place}line 2: `params.url` is undefined"));
    let error = rendered_with("{{ params.url }}", &[], Detail::Hidden).unwrap_err();
    assert_eq!(error, format!("{place}line 1: `params.url` is undefined"));
    assert!(rendered("{{ job|nofilter }}", &[]).unwrap_err().contains("line 1: unknown filter"));
    let secret = [("pass", "hunter2")];
    for text in [
        "{{ params.pass|int }}",
        "{{ params.pass() }}",
        "{{ job[params.pass] }}",
        "{{ params.pass / 2 }}",
        "{{ params[params.pass] }}",
        "{{ params.pass|replace(1) }}",
        "{{ job|format(params.pass)|int }}",
        "{{ params.pass|float }}",
        "{{ job is params }}",
    ] {
        let error = rendered_with(text, &secret, Detail::Hidden).unwrap_err();
        assert!(error.starts_with(place) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn work_and_size_have_limits() {
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}";
    assert!(rendered(endless, &[]).unwrap_err().contains("too much work"), "{endless}");
    let doubling = format!("{{% set x = 'a' %}}{}", "{% set x = x ~ x %}".repeat(60));
    assert!(rendered(&doubling, &[]).unwrap_err().contains("too much work"));
    assert!(rendered("{{ 'a' * 10000000000000 }}", &[]).is_err());
    let text = "a".repeat(FILES_BYTES_MAX / 8 / 1024);
    let large = format!("{{% for a in range(8192) %}}{text}{{% endfor %}}");
    assert_eq!(rendered(&large, &[]).map(|it| it.len()), Ok(FILES_BYTES_MAX));
    let error = rendered(&format!("{large}."), &[]).unwrap_err();
    assert!(error.contains("more than 1048576 bytes; write less"), "{error}");
    // The limit is for all files of a job.
    let two = files(&[("a", &large), ("b", "x")]).unwrap();
    let params = BTreeMap::new();
    let values = Values { job: "a", token: 1, worker: "w", params: &params, files: "" };
    assert!(two.render(&values, Detail::Shown).unwrap_err().contains("files.b: all files"));
}

#[test]
fn recursion_ends_with_a_sentence() {
    let text = "{% for a in [[[1]]] recursive %}{{ loop(a) }}{% endfor %}";
    assert!(rendered(text, &[]).is_err());
    let endless = "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}";
    assert!(rendered(endless, &[]).is_err());
}

#[test]
fn a_name_is_of_a_file_in_the_directory_itself() {
    let long = "a".repeat(100);
    for name in ["a", "telegraf.conf", "_x", "0", "A-b_c.d", &long] {
        assert!(files(&[(name, "")]).is_ok(), "{name}");
    }
    let long = "a".repeat(101);
    for name in ["", ".", "..", ".a", "-a", "a/b", "../a", "a b", "é", "a\n", &long] {
        let error = files(&[(name, "")]).unwrap_err();
        assert!(error.starts_with("files: `"), "{error}");
        assert!(error.contains("cannot name a file"), "{error}");
    }
    assert!(files(&[]).unwrap_err().contains("write 1 to 16"));
    let many: Vec<_> = (0..17).map(|n| format!("f{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "")).collect();
    assert!(files(&many).unwrap_err().contains("it has 17 files"));
}

#[test]
fn the_placeholder_needs_files_and_a_change_of_them_starts_another_process() {
    for (rest, place) in [
        ("'{files}/a']", "command: "),
        ("x], env: {A: '{files}'}", "env.A: "),
        ("x], ready: {exec: [test, '{files}']}", "ready: "),
        ("x], alive: {exec: [test, '{files}']}", "alive: "),
    ] {
        let error = Runner::parse(&format!("{{command: [cat, {rest}}}")).unwrap_err();
        let expected = format!("{place}`{{files}}` is the directory ");
        assert!(error.starts_with(&expected), "{error}");
        let with = format!("{{files: {{a: x}}, command: [cat, {rest}}}");
        assert!(Runner::parse(&with).is_ok(), "{with}");
    }
    let program = |text: &str| match Runner::parse(text).unwrap() {
        Runner::Command(program) => program,
        other => panic!("{other:?}"),
    };
    let before = program("{command: [cat], files: {a: x}}");
    assert!(before.starts_as(&program("{command: [cat], files: {a: x}, ready: {line: up}}")));
    assert!(!before.starts_as(&program("{command: [cat], files: {a: y}}")));
    assert!(!before.starts_as(&program("{command: [cat]}")));
    assert!(Runner::parse("{log: {}, files: {a: x}}").unwrap_err().contains("`files`"));
}

/// Scope: each construct that nests or grows, as often as it fits into a runner. The thread has the
/// stack of any other thread.
#[test]
fn a_template_of_any_shape_is_read_or_refused_in_words() {
    let forms = [
        ("{{ ", "(", "1", ")", " }}"),
        ("{{ ", "[", "1", "]", " }}"),
        ("{{ ", "{1:", "1", "}", " }}"),
        ("{{ ", "job[", "1", "]", " }}"),
        ("{{ ", "range(", "1", ")", " }}"),
        ("{{ ", "-", "1", "", " }}"),
        ("{{ ", "not ", "1", "", " }}"),
        ("{{ ", "1 if 1 else ", "1", "", " }}"),
        ("{{ ", "", "job", ".a", " }}"),
        ("{{ ", "", "job", "[0]", " }}"),
        ("{{ ", "", "job", "()", " }}"),
        ("{{ ", "", "job", "|upper", " }}"),
        ("{{ ", "", "job", " ~ job", " }}"),
        ("{{ ", "", "1", " + 1", " }}"),
        ("{{ ", "", "1", " and 1", " }}"),
        ("{{ ", "", "1", " or 1", " }}"),
        ("{{ ", "", "1", " < 1", " }}"),
        ("{{ ", "", "1", " in [1]", " }}"),
        ("{{ ", "", "1", " is odd", " }}"),
        ("{{ ", "2 ** ", "2", "", " }}"),
        ("", "{% if 1 %}", "", "{% endif %}", ""),
        ("{% if 1 %}", "{% elif 1 %}", "", "", "{% endif %}"),
        ("", "{% for a in [1] %}", "", "{% endfor %}", ""),
        ("", "{% with a = 1 %}", "", "{% endwith %}", ""),
        ("", "{% set a %}", "", "{% endset %}", ""),
        ("", "{% filter upper %}", "", "{% endfilter %}", ""),
        ("", "{% autoescape true %}", "", "{% endautoescape %}", ""),
        ("", "{{ job }}", "", "", ""),
        ("", "{#", "", "", "#}"),
        ("", "{% raw %}", "", "", "{% endraw %}"),
        ("{% set ", "(a, ", "a", ")", " = 1 %}"),
        ("{% for ", "(a, ", "a", ")", " in [1] %}{% endfor %}"),
    ];
    for (begin, open, middle, close, end) in forms {
        for times in [40, 400, 100_000 / (open.len() + close.len())] {
            let (open, close) = (open.repeat(times), close.repeat(times));
            let text = format!("{begin}{open}{middle}{close}{end}");
            let read = move || rendered(&text, &[]).map(drop);
            let read = std::thread::spawn(read).join();
            if let Err(error) = read.unwrap() {
                assert!(10 < error.len() && !error.contains(char::is_control), "{error:?}");
            }
        }
    }
}
