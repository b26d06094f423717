use proptest::prelude::*;
use swarm_core::JobName;
use swarm_spec::convert::Home;
use swarm_spec::manifest::{Manifest, parse};
use swarm_spec::spec::{StopSignal, StopSpec, StopTo};

use super::*;

/// Makes a manifest, which a pool accepts.
fn made(shown: &str, text: &str) -> (String, Manifest) {
    let manifest = manifest(shown, text, None).unwrap();
    let parsed = parse(&manifest, None, Home::Machine).unwrap();
    (manifest, parsed)
}

fn names(manifest: &Manifest) -> Vec<&str> {
    manifest.desired.jobs.keys().map(JobName::as_str).collect()
}

/// Returns the lines between two beginnings, with the first.
fn between<'t>(text: &'t str, from: &str, to: &str) -> Vec<&'t str> {
    let lines = text.lines().skip_while(|line| !line.trim_start().starts_with(from));
    lines.take_while(|line| !line.trim_start().starts_with(to)).map(str::trim).collect()
}

const SUPERVISORD: &str = r#"
[unix_http_server]
file=/run/supervisor.sock ; a comment

[program:celery]
command=celery worker -A proj --loglevel=INFO -n %(program_name)s@%(process_num)02d "{job}"
directory=/srv/project
user=nobody
numprocs=3
process_name=%(program_name)s_%(process_num)02d
environment=LANG="C,x",HOME=%(ENV_HOME)s,
    MODE='a'
stdout_logfile=/var/log/celery/worker.log
autostart=true
autorestart=unexpected
exitcodes=0,2
startsecs=10
stopwaitsecs=600   ; long
stopsignal=INT
killasgroup=true
priority=998
  ; indented comment

[program:Web Server]
command=/bin/serve 50%%
autorestart=false
autostart=false
stopasgroup=true

[group:all]
programs=celery
"#;

#[test]
fn the_programs_of_a_supervisord_conf_are_runners_and_their_processes_jobs() {
    let (text, manifest) = made("/etc/supervisord.conf", SUPERVISORD);
    assert_eq!(names(&manifest), ["Web-Server", "celery_00", "celery_01", "celery_02"]);
    assert_eq!(manifest.name, "supervisord");
    assert_eq!(manifest.lease.stop_timeout.as_secs(), 600);
    let celery = manifest.runners.iter().find(|(name, _)| name.as_str() == "celery").unwrap().1;
    let command = celery.command.as_ref().unwrap();
    let expected = [
        "celery",
        "worker",
        "-A",
        "proj",
        "--loglevel=INFO",
        "-n",
        "celery@{param.process_num_2}",
        "{{job}}",
    ];
    assert_eq!(command, &expected);
    assert_eq!(celery.working_dir.as_deref(), Some("/srv/project"));
    let env = celery.env.as_ref().unwrap();
    assert_eq!((&*env["LANG"], &*env["HOME"], &*env["MODE"]), ("C,x", "%(ENV_HOME)s", "a"));
    let (name, job) = manifest.desired.jobs.iter().next_back().unwrap();
    assert_eq!((name.as_str(), &*job.params["process_num_2"]), ("celery_02", "02"));

    let comments = between(&text, "celery:", "web-server:");
    for comment in [
        "# supervisord: environment=%(ENV_HOME)s has no counterpart: ",
        "# supervisord: startsecs=10 has no counterpart: ",
        "# supervisord: user=nobody has no counterpart: ",
        "# supervisord: priority=998 has no counterpart: ",
    ] {
        assert!(comments.iter().any(|it| it.starts_with(comment)), "{comment}: {text}");
    }
    assert!(!text.contains("killasgroup") && !text.contains("redirect"), "{text}");
    assert!(text.contains("# supervisord: [group:all] has no counterpart\n"), "{text}");

    let web = manifest.runners.iter().find(|(name, _)| name.as_str() == "web-server").unwrap().1;
    assert_eq!(web.command.as_ref().unwrap()[1], "50%");
    assert_eq!(web.restart.as_ref().unwrap().limit, Some(0));
    let end = "    # the name was: Web Server\n    - name: Web-Server\n      runner: web-server\n      \
               suspend: true\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn stops_and_exit_codes_of_a_program_are_kept() {
    let (text, manifest) = made("a", SUPERVISORD);
    let stop = |runner: &str| {
        let found = manifest.runners.iter().find(|(name, _)| name.as_str() == runner).unwrap().1;
        let StopSpec { signal, to, timeout, .. } = found.stop.clone().unwrap_or_default();
        (signal, to, timeout.map(|it| it.to_string()))
    };
    // The longest time is the time of all jobs, and the group of a program gets the signal if it asks.
    assert_eq!(stop("celery"), (Some(StopSignal::Int), Some(StopTo::Main), None));
    assert_eq!(stop("web-server"), (None, None, Some("10s".to_owned())));
    let celery = manifest.runners.iter().find(|(name, _)| name.as_str() == "celery").unwrap().1;
    assert_eq!(celery.restart.as_ref().unwrap().success_codes, Some(vec![0, 2]), "{text}");
}

#[test]
fn the_lines_of_a_procfile_are_runners_without_a_shell_if_they_need_none() {
    let (text, manifest) = made(
        "app/Procfile",
        "release: python manage.py migrate\n# a\nweb: gunicorn config.wsgi:application --bind=:$PORT\n\
         worker: REMAP_SIGTERM=SIGQUIT celery -A \"proj tasks\" worker\nboth: a && b '{job}'\n",
    );
    assert_eq!(names(&manifest), ["both", "release", "web", "worker"]);
    let of = |runner: &str| {
        let found = manifest.runners.iter().find(|(name, _)| name.as_str() == runner).unwrap().1;
        (found.command.clone().unwrap(), found.env.clone().unwrap_or_default())
    };
    assert_eq!(of("worker").0, ["celery", "-A", "proj tasks", "worker"]);
    assert_eq!(of("worker").1["REMAP_SIGTERM"], "SIGQUIT");
    assert_eq!(of("web").0[2], "exec env gunicorn config.wsgi:application --bind=:$PORT");
    assert_eq!(of("both").0, ["sh", "-c", "a && b '{{job}}'"]);
    let release = between(&text, "# Procfile: `release`", "- name: web").join("\n");
    assert!(release.contains("suspend: true"), "{text}");
    let lines = "web: a\n";
    let refused = manifest_of_unknown(lines);
    assert!(refused.contains(" write --format procfile"), "{refused}");
    assert!(super::manifest("a", lines, Some(Format::Procfile)).is_ok());
}

fn manifest_of_unknown(text: &str) -> String {
    manifest("a.txt", text, None).unwrap_err()
}

#[test]
fn targets_are_jobs_with_their_labels_as_params() {
    let json = r#"[{"labels": {"job": "node", "device-name": "d"}, "targets": ["192.0.2.4:9090"]},
        {"targets": ["git.example.net"]}]"#;
    let yaml = "- labels: {job: node, device-name: d}\n  targets: ['192.0.2.4:9090']\n- targets: [git.example.net]\n";
    for text in [json, yaml] {
        let (text, manifest) = made("targets.json", text);
        assert_eq!(names(&manifest), ["192.0.2.4:9090", "git.example.net:80"]);
        assert_eq!(manifest.desired.jobs["192.0.2.4:9090"].params["job"], "node");
        assert!(manifest.runner.ping.is_some());
        assert!(text.contains(" cannot be params: device-name\n"), "{text}");
        assert!(text.contains("# file_sd: the target has no port"), "{text}");
    }
}

#[test]
fn channels_of_a_playlist_have_their_titles() {
    let (text, manifest) = made(
        "list.m3u8",
        "#EXTM3U\n#EXTINF:-1 tvg-id=\"a.us\" group-title=\"News, more\",Channel A, HD\nhttp://a.example/1\n\
         #EXTVLCOPT:x=y\n#EXTINF:-1,Channel A, HD\nhttp://b.example/2\nhttp://u:p@c.example/3?k=s\n",
    );
    assert_eq!(names(&manifest), ["Channel-A,-HD", "a.us", "c.example/3"]);
    let job = &manifest.desired.jobs["a.us"];
    assert_eq!(job.title.as_ref().unwrap().as_str(), "Channel A, HD");
    assert_eq!(job.params["url"], "http://a.example/1");
    assert!(text.contains("# playlist: group-title has no counterpart\n"), "{text}");
    assert!(text.contains("# playlist: #EXTVLCOPT has no counterpart\n"), "{text}");
    assert!(text.contains("# Some addresses contain a password"), "{text}");
}

#[test]
fn addresses_are_jobs_named_without_passwords() {
    let (text, manifest) = made(
        "rtsp_list.txt",
        "# two\nrtsp://username:pw@camera.example:777/some/url\nrtsp://username:pw@camera.example:777/some/url\n",
    );
    let name = "camera.example:777/some/url";
    assert_eq!(names(&manifest), [name.to_owned(), format!("{name}-2")]);
    assert!(text.contains(&format!("# the name was: {name}\n    - name: {name}-2\n")), "{text}");
    let (_, pinged) = made("hosts", "a.example:80\nb.example,81\n");
    assert_eq!(names(&pinged), ["a.example:80", "b.example:81"]);
    assert!(pinged.runner.ping.is_some());
}

#[test]
fn a_text_without_jobs_or_of_another_form_is_refused_with_the_place() {
    for (text, said) in [
        ("[program:a]\nuser=b\n", "a.txt: [program:a]: it has no command"),
        ("[program:a]\ncommand=b\nnumprocs=x\n", "numprocs=x is not a number"),
        ("[program:a]\ncommand='b\n", "the quotes of `'b` do not match"),
        ("[supervisord]\nnodaemon=true\n", "it has no section [program:NAME]"),
        ("#EXTM3U\n", "it has no jobs"),
        ("[{\"targets\": [\"a b\"]}]", "group 1: `a b` is not a target"),
        ("a\u{1b}[2J", "line 1 has characters "),
        ("[program:a]\ncommand=b\nnumprocs=20000\n", "more than 10000 jobs; divide it"),
        ("", "its format is unknown"),
    ] {
        let refused = manifest_of_unknown(text);
        assert!(refused.contains(said), "{refused}");
    }
    let large = "a:1\n".repeat(foreign::BYTES_MAX / 4 + 1);
    assert!(manifest_of_unknown(&large).contains("has more than 4194304 bytes"));
}

/// Parts of all formats, so that random texts reach far.
const PARTS: [&str; 44] = [
    "[program:",
    "]",
    "[",
    "\n",
    "command=",
    "numprocs=",
    "process_name=",
    "environment=",
    "%(process_num)",
    "02d",
    "%(program_name)s",
    "%",
    "s",
    "stopsignal=",
    "stopwaitsecs=",
    "exitcodes=",
    "0,2",
    "a",
    "é",
    "\"",
    "'",
    "=",
    ":",
    ";",
    " ",
    "#EXTM3U\n",
    "#EXTINF:",
    ",",
    "tvg-id=\"",
    "http://",
    "@",
    "/",
    "- targets: [",
    "labels: {",
    "}",
    "{job}",
    "{",
    "$",
    "&",
    "web: ",
    "9",
    "99999999999999999999",
    "\t",
    "\u{feff}",
];

proptest! {
    #[test]
    fn any_text_is_refused_or_makes_a_manifest_that_a_pool_accepts(
        parts in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..40),
        bytes in prop::collection::vec(any::<u8>(), 0..40),
        start in prop::sample::select(&["", "[program:a]\ncommand=b\n", "#EXTM3U\n"][..]),
    ) {
        for text in [format!("{start}{}", parts.concat()), String::from_utf8_lossy(&bytes).into_owned()] {
            for format in Format::value_variants().iter().copied().map(Some).chain([None]) {
                if let Ok(made) = manifest("Procfile", &text, format) {
                    let read = parse(&made, None, Home::Machine);
                    prop_assert!(read.is_ok_and(|it| !it.desired.jobs.is_empty()), "{}", made);
                }
            }
        }
    }
}
