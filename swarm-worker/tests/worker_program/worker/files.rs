//! Files and secrets of each job, with real processes.

use super::*;

/// The jobs of a worker, and its files.
struct Pool {
    dir: TempDir,
    views: usize,
}

impl Pool {
    fn new(jobs: &str) -> Self {
        let mut pool = Self { dir: tempfile::tempdir().unwrap(), views: 0 };
        pool.run(jobs);
        pool
    }

    /// Gives the worker these jobs.
    fn run(&mut self, jobs: &str) {
        self.views += 1;
        let view = format!("workloads:\n  w-0: {{jobs: [{jobs}]}}\n");
        mount(&self.dir, &format!("..{}", self.views), &view);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a worker with its files below `files`.
    fn worker(&self, runner: &str, variables: &[(&str, &Path)]) -> Worker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_swarm-worker"));
        command.args(["run", "--name=w-0", "--http-port=0", "--until-stdin-closes"]);
        command.arg(format!("--runner={runner}")).arg("--config-path").arg(self.dir.path());
        command.arg("--files-dir").arg(self.path("files")).stdin(Stdio::piped());
        command.envs(variables.iter().copied());
        let log = self.path("log");
        let mut child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        Worker { hold: child.stdin.take(), child, log }
    }

    /// The directories of runs.
    fn runs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("files/w-0")).into_iter().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn reads(&self, name: &str, expected: &str) {
        let read = || fs::read_to_string(self.path(name)).unwrap_or_default();
        until(expected, || read() == expected);
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_job_finds_its_files_until_its_last_process_has_ended() {
    let mut pool = Pool::new("cam-1, '$(x)/{{job}}'");
    let at = pool.dir.path().display().to_string();
    // The child is outside of the group of the first process, and gets SIGTERM after its end.
    let script = "(setsid sh -c 'trap \"cat {files}/job.conf >> AT/late; exit\" TERM; touch AT/deaf.$$; \
                  while :; do sleep 0.01; done' & :); test \"$SWARM_FILES\" = \"{files}\" && \
                  cat \"$1\" >> AT/early; exec sleep 600";
    let script = script.replace("AT", &at);
    let runner = serde_json::json!({
        "command": ["sh", "-c", script, "sh", "{files}/job.conf"],
        "files": {"job.conf": "{{ job }} on {{ worker }} {{ token }}\n", "empty": ""},
    });
    let mut worker = pool.worker(&runner.to_string(), &[]);
    let run = pool.path("files/w-0/cam-1@0");
    let deaf = || {
        fs::read_dir(pool.dir.path())
            .unwrap()
            .filter(|it| it.as_ref().unwrap().file_name().to_str().unwrap().starts_with("deaf."))
    };
    until("both run", || deaf().count() == 2);
    until("both have read", || {
        fs::read_to_string(pool.path("early")).is_ok_and(|it| it.lines().count() == 2)
    });
    let early = fs::read_to_string(pool.path("early")).unwrap();
    // No part of a name is a template.
    assert!(
        early.contains("cam-1 on w-0 0\n") && early.contains("$(x)/{{job}} on w-0 0\n"),
        "{early}"
    );
    assert_eq!(
        (mode(&run), mode(&run.join("job.conf")), mode(&run.join("empty"))),
        (0o700, 0o600, 0o600)
    );
    assert_eq!(pool.runs(), ["%24%28x%29%2F%7B%7Bjob%7D%7D@0", "cam-1@0"]);
    pool.run("'$(x)/{{job}}'");
    until("its files are removed", || !run.exists());
    pool.reads("late", "cam-1 on w-0 0\n");
    assert_eq!(pool.runs(), ["%24%28x%29%2F%7B%7Bjob%7D%7D@0"]);
    worker.hold = None;
    assert_eq!(worker.ended().code(), Some(0));
    assert_eq!(pool.runs(), Vec::<String>::new());
}

#[test]
fn a_template_that_fails_for_a_job_is_its_failure_and_leaves_no_file() {
    let pool = Pool::new("a");
    let runner = "{command: [touch, STARTED], files: {0.conf: x, a.conf: \"\\n{{ params.url }}\"}, \
                  restart: {limit: 0}}";
    let runner = runner.replace("STARTED", pool.path("started").to_str().unwrap());
    let mut worker = pool.worker(&runner, &[]);
    let expected = "files.a.conf: line 2: `params.url` is undefined";
    wait_for_log(&pool.dir, expected);
    assert_eq!(pool.runs(), Vec::<String>::new());
    assert!(!pool.path("started").exists());
    worker.hold = None;
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn files_of_a_crashed_worker_are_removed_at_its_next_start() {
    let pool = Pool::new("a");
    let ready = pool.path("ready");
    let runner = format!(
        "{{command: [sh, -c, 'touch {}; exec sleep 600'], files: {{a: '{{{{ job }}}}'}}}}",
        ready.display()
    );
    let mut worker = pool.worker(&runner, &[]);
    until("it runs", || ready.exists());
    worker.child.kill().unwrap();
    worker.child.wait().unwrap();
    assert_eq!(pool.runs(), ["a@0"]);
    let others = pool.path("files/w-1/a@0");
    fs::create_dir_all(&others).unwrap();
    // The next runner of the worker may have no files.
    let worker = pool.worker("log", &[]);
    worker.runs(r#"{"version":0,"jobs":["a"]}"#);
    assert_eq!(pool.runs(), Vec::<String>::new());
    assert!(others.exists(), "it is of another worker");
}

#[test]
fn each_job_has_a_secret_of_its_own_from_a_directory_or_a_file() {
    const SECRET: &str = "paramsFrom: [{name: pass, secretKeyRef: {name: cams, key: '{job}'}}]";
    let mut pool = Pool::new("cam-1, cam-2, none");
    let at = pool.dir.path().display().to_string();
    let script = "echo \"$SWARM_JOB $SWARM_PARAM_PASS $PW $SWARM_PARAM_PASS_DIR\" >> AT/$SWARM_JOB; \
                  exec sleep 600";
    let runner = format!(
        "{{command: [sh, -c, '{}'], env: {{PW: '{{param.pass}}'}}, \
         files: {{pw: '{{{{ params.pass }}}}'}}, {SECRET}}}",
        script.replace("AT", &at)
    );
    let secrets = pool.path("secrets");
    fs::create_dir_all(secrets.join("..v1")).unwrap();
    for job in ["cam-1", "cam-2"] {
        fs::write(secrets.join("..v1").join(job), format!("hunter-{job}\n")).unwrap();
        symlink(format!("..data/{job}"), secrets.join(job)).unwrap();
    }
    symlink("..v1", secrets.join("..data")).unwrap();
    let mut worker = pool.worker(&runner, &[("SWARM_PARAM_PASS_DIR", &secrets)]);
    for job in ["cam-1", "cam-2"] {
        pool.reads(job, &format!("{job} hunter-{job} hunter-{job} \n"));
        let file = fs::read_to_string(pool.path(&format!("files/w-0/{job}@0/pw"))).unwrap();
        assert_eq!(file, format!("hunter-{job}"));
    }
    wait_for_log(&pool.dir, "the Secret `cams` of the param `pass` has no key `none` for the job");
    // A changed value reaches the next start.
    fs::write(secrets.join("..v1/cam-1"), "changed").unwrap();
    pool.run("cam-2");
    until("it is stopped", || !pool.path("files/w-0/cam-1@0").exists());
    fs::remove_file(pool.path("cam-1")).unwrap();
    pool.run("cam-1, cam-2");
    pool.reads("cam-1", "cam-1 changed changed \n");
    worker.hold = None;
    assert_eq!(worker.ended().code(), Some(0));
    assert!(!log(&pool.dir).contains("hunter"), "{}", log(&pool.dir));

    fs::remove_file(pool.path("cam-1")).unwrap();
    let map = pool.path("passwords.yaml");
    fs::write(&map, "cam-1: 'of the map'\n").unwrap();
    let worker = pool.worker(&runner, &[("SWARM_PARAM_PASS_FILE", &map)]);
    pool.reads("cam-1", "cam-1 of the map of the map \n");
    wait_for_log(&pool.dir, "passwords.yaml has no value for job `cam-2`");
    drop(worker);
}

#[test]
fn a_job_with_too_much_for_its_environment_fails_alone() {
    let pool = Pool::new("large, small");
    let secrets = pool.path("secrets");
    fs::create_dir(&secrets).unwrap();
    fs::write(secrets.join("small"), "x").unwrap();
    fs::write(secrets.join("large"), "x".repeat(64 << 10)).unwrap();
    let names: Vec<_> = (0..20).map(|n| format!("p{n}")).collect();
    let params: Vec<_> = names
        .iter()
        .map(|name| format!("{{name: {name}, secretKeyRef: {{name: s, key: '{{job}}'}}}}"))
        .collect();
    let up = pool.path("up");
    let runner = format!(
        "{{command: [sh, -c, 'echo up >> {}; exec sleep 600'], paramsFrom: [{}]}}",
        up.display(),
        params.join(", ")
    );
    let variables: Vec<_> =
        names.iter().map(|name| format!("SWARM_PARAM_{}_DIR", name.to_uppercase())).collect();
    let variables: Vec<_> =
        variables.iter().map(|name| (name.as_str(), secrets.as_path())).collect();
    let mut worker = pool.worker(&runner, &variables);
    wait_for_log(&pool.dir, "have more than 1024 KiB");
    wait_for_log(&pool.dir, "restart=2");
    pool.reads("up", "up\n");
    worker.hold = None;
    assert_eq!(worker.ended().code(), Some(0));
}
