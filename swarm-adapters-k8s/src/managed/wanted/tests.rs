use serde_json::Value;

use super::*;

fn swarm(spec: &Value) -> Swarm {
    let metadata = json!({"name": "streams", "namespace": "n", "uid": "u"});
    let version = swarm_client::api::API_VERSION;
    let object =
        json!({"apiVersion": version, "kind": "Swarm", "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

pub(crate) fn wanted() -> Vec<Wanted> {
    super::wanted(&swarm(&json!({"pool": {"managed": {}}})), "swarm-worker:1").objects
}

fn made(spec: &Value) -> Result<Vec<Wanted>, String> {
    let WantedPool { objects, refused } = super::wanted(&swarm(spec), "swarm-worker:1");
    refused.map_or(Ok(objects), |error| Err(error.to_string()))
}

fn with(managed: &Value) -> Result<Vec<Wanted>, String> {
    made(&json!({"pool": {"managed": managed}, "worker": {"protocol": "Session"}}))
}

fn names(all: &[Wanted]) -> Vec<String> {
    all.iter().map(|it| format!("{} {}", it.kind, it.name)).collect()
}

fn workload(all: &[Wanted]) -> Value {
    let found = all.iter().find(|it| it.kind.is_workload()).unwrap();
    serde_json::to_value(&found.object).unwrap()
}

#[test]
fn a_managed_pool_without_a_word_more_is_a_deployment_of_sessions() {
    let all = wanted();
    let expected = [
        "ServiceAccount streams",
        "RoleBinding streams",
        "Service streams-pods",
        "PodDisruptionBudget streams",
        "Deployment streams",
    ];
    assert_eq!(names(&all), expected);
    let objects: Vec<_> = all.iter().map(|it| &it.object).collect();
    insta::assert_snapshot!(serde_yaml::to_string(&objects).unwrap());
}

#[test]
fn everything_that_can_be_asked_for_is_in_what_is_made() {
    let spec = json!({
        "replicas": 4,
        "pool": {"managed": {
            "kind": "StatefulSet", "image": "ffmpeg:7", "port": 8080,
            "env": [{"name": "TZ", "value": "UTC"}],
            "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
            "service": {"type": "NodePort", "port": 80},
            "files": {"data": {"a.txt": "b"}, "mountPath": "/data"},
            "disruption": {"maxUnavailable": "50%"},
            "serviceAccountName": "other",
            "podTemplate": {
                "metadata": {"annotations": {"team": "x"}},
                "spec": {
                    "terminationGracePeriodSeconds": 90,
                    "imagePullSecrets": [{"name": "registry"}],
                    "containers": [
                        {"name": "worker", "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]},
                        {"name": "side", "image": "side:1"},
                    ],
                    "volumes": [{"name": "cache", "emptyDir": {}}],
                },
            },
        }},
        "worker": {"protocol": "Session", "runner": {"command": ["ffmpeg", "$(x)", "{job}"]}},
        "handover": {"lease": "30s", "stopTimeout": "9s"},
    });
    let all = made(&spec).unwrap();
    let expected = [
        "ConfigMap streams-files",
        "Service streams-pods",
        "Service streams",
        "PodDisruptionBudget streams",
        "StatefulSet streams",
    ];
    assert_eq!(names(&all), expected);
    assert!(!workload(&all).to_string().contains("replicas"), "they are set by /scale only");
    let objects: Vec<_> = all.iter().map(|it| &it.object).collect();
    insta::assert_snapshot!(serde_yaml::to_string(&objects).unwrap());
}

#[test]
fn a_plain_program_reads_the_view_and_has_no_token() {
    let managed = json!({"image": "reader:1", "disruption": {"mode": "None"}});
    let all =
        made(&json!({"pool": {"managed": managed}, "worker": {"protocol": "Plain"}})).unwrap();
    let expected = ["ServiceAccount streams", "Service streams-pods", "Deployment streams"];
    assert_eq!(names(&all), expected);
    let pod = &workload(&all)["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "streams-config");
    let container = &pod["containers"][0];
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/app/config");
    assert!(container["command"].is_null() && container["readinessProbe"].is_null());
    assert!(pod["initContainers"].is_null());
}

#[test]
fn a_program_that_speaks_the_protocol_itself_is_left_as_it_is() {
    let all = with(&json!({"image": "own:1", "command": ["/own"]})).unwrap();
    let pod = &workload(&all)["spec"]["template"]["spec"];
    assert!(pod["initContainers"].is_null());
    assert_eq!(pod["containers"][0]["command"], json!(["/own"]));
    assert!(pod["containers"][0]["args"].is_null());
}

#[test]
fn only_what_changes_pods_changes_their_digest() {
    let made_of = |managed: &Value| {
        let all = with(managed).unwrap();
        all.into_iter().find(|it| it.kind.is_workload()).unwrap().made_of
    };
    let before = made_of(&json!({}));
    let service = made_of(&json!({"service": {"type": "ClusterIP"}}));
    assert_eq!((before.pods == service.pods, before.asked == service.asked), (true, false));
    let files = |text: &str| made_of(&json!({"files": {"data": {"a": text}}}));
    assert_ne!(files("1").pods, files("2").pods);
    let image = |image: &str| {
        let spec = swarm(&json!({"pool": {"managed": {}}}));
        super::wanted(&spec, image).objects.pop().unwrap().made_of
    };
    assert_eq!(image("w:1").asked, image("w:2").asked, "the operator changed it");
    assert_ne!(image("w:1").pods, image("w:2").pods);
    assert_eq!(MadeOf::parse(&before.to_string()), Some(before));
}

#[test]
fn a_template_that_takes_from_the_workers_what_they_need_is_refused() {
    let container = |fields: Value| {
        let mut container = fields;
        container["name"] = "worker".into();
        json!({"spec": {"containers": [container]}})
    };
    let cases = [
        (
            json!({"spec": {"volumes": [{"name": "state", "hostPath": {"path": "/x"}}]}}),
            "volume `state`",
        ),
        (json!({"metadata": {"labels": {SWARM_LABEL: "other"}}}), "to find the workers"),
        (json!({"spec": {"serviceAccountName": "x"}}), "serviceAccountName instead"),
        (json!({"spec": {"automountServiceAccountToken": false}}), "need their token"),
        (container(json!({"image": "x"})), "spec.pool.managed.image instead"),
        (container(json!({"env": [{"name": "POD_UID", "value": "x"}]})), "variable `POD_UID`"),
        (container(json!({"ports": [{"name": "again", "containerPort": 9090}]})), "port 9090"),
        (
            container(json!({"volumeMounts": [{"name": "x", "mountPath": "/var/lib/swarm"}]})),
            "`/var/lib/swarm` is mounted there already",
        ),
        (
            json!({"spec": {"containers": [{"name": "side", "ports": [{"containerPort": 9090}]}]}}),
            "port 9090 occurs twice",
        ),
        (
            json!({"spec": {"nodeSelektor": {"a": "b"}}}),
            "podTemplate.spec.nodeSelektor is not a field",
        ),
        (
            json!({"spec": {"containers": [{"name": "a", "new": 1}]}}),
            ".spec.containers[0].new is no",
        ),
        (json!({"spec": {"nodeSelector": 7}}), "podTemplate.spec"),
    ];
    for (template, expected) in cases {
        let error = with(&json!({"podTemplate": template})).unwrap_err();
        assert!(error.contains(expected), "{error}, not: {expected}");
        assert!(error.contains("podTemplate"), "{error}");
    }
    let error = with(&json!({"env": [{"name": "POD_UID", "value": "x"}]})).unwrap_err();
    assert!(error.contains("the operator sets `POD_UID` itself"), "{error}");
}

#[test]
fn pods_have_the_time_that_their_jobs_may_take_to_stop() {
    let grace = |protocol: &str, handover: Value, managed: Value| {
        let worker = json!({"protocol": protocol});
        let pool = json!({"managed": managed});
        let all = made(&json!({"pool": pool, "worker": worker, "handover": handover}))?;
        let spec = workload(&all)["spec"]["template"]["spec"].clone();
        let values = spec["containers"][0]["env"].as_array().unwrap().iter();
        let values = values.filter(|it| it["name"] == "SWARM_GRACE").map(|it| it["value"].clone());
        let values: Vec<_> = values.collect();
        Ok::<_, String>((spec["terminationGracePeriodSeconds"].as_i64().unwrap(), values))
    };
    let managed = || json!({"image": "reader:1"});
    let lease = "2m";
    assert_eq!(grace("Plain", json!({}), managed()), Ok((30, vec![])));
    let long = || json!({"stopTimeout": "60500ms", "lease": lease});
    assert_eq!(grace("Plain", long(), managed()), Ok((71, vec![])));
    assert_eq!(grace("Session", long(), json!({})), Ok((71, vec!["71s".into()])));
    let short = json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": 60}}});
    let refused = grace("Session", long(), short.clone()).unwrap_err();
    let field = "spec.pool.managed.podTemplate.spec.terminationGracePeriodSeconds: ";
    assert!(refused.starts_with(field) && refused.ends_with("write 71"), "{refused}");
    assert!(refused.contains(" 60.5s to stop") && refused.contains(" 2s more "), "{refused}");
    let mut plain = short;
    plain["image"] = "reader:1".into();
    let refused = grace("Plain", long(), plain).unwrap_err();
    assert!(refused.ends_with(" 60.5s; write 71"), "{refused}");
}

#[test]
fn a_worker_that_would_not_start_with_its_times_is_refused_with_what_to_write() {
    let session = |stop: &str, managed: Value| {
        let handover = json!({"stopTimeout": stop, "lease": "5m"});
        let handover = if stop.is_empty() { json!({}) } else { handover };
        let worker = json!({"protocol": "Session"});
        made(&json!({"pool": {"managed": managed}, "worker": worker, "handover": handover}))
    };
    let grace =
        |seconds: i64| json!({"podTemplate": {"spec": {"terminationGracePeriodSeconds": seconds}}});
    for (stop, enough, too_short, write) in
        [("29s", 31, 30, 39), ("120s", 122, 121, 130), ("", 7, 6, 30)]
    {
        session(stop, json!({})).unwrap();
        session(stop, grace(enough)).unwrap();
        let refused = session(stop, grace(too_short)).unwrap_err();
        let expected = format!("to close its session; write {write}");
        assert!(refused.contains("podTemplate.spec.terminationGracePeriodSeconds"), "{refused}");
        assert!(refused.ends_with(&expected), "{refused}, not: {expected}");
    }
    let variable = |name: &str, value: &str| json!([{"name": name, "value": value}]);
    let container = |fields: Value| {
        let mut container = fields;
        container["name"] = "worker".into();
        json!({"podTemplate": {"spec": {"containers": [container]}}})
    };
    let contradictions = [
        json!({"env": variable("STOP_TIMEOUT", "60s")}),
        json!({"args": ["run", "--stop-timeout", "29s"]}),
        json!({"args": ["run", "--grace=31s"]}),
        json!({"args": ["run", "--grace=6s"]}),
        container(json!({"env": variable("STOP_TIMEOUT", "29s")})),
    ];
    for managed in contradictions {
        let refused = session("", managed.clone()).unwrap_err();
        assert!(refused.contains("write spec.handover.stopTimeout "), "{refused}");
    }
    for fits in
        [json!({"env": variable("STOP_TIMEOUT", "28s")}), json!({"args": ["run", "--grace=29s"]})]
    {
        session("", fits).unwrap();
    }
    let twice = container(json!({"env": variable("SWARM_GRACE", "60s")}));
    let refused = session("", twice).unwrap_err();
    assert!(refused.contains("its variable `SWARM_GRACE` is set already; remove it"), "{refused}");
}

#[test]
fn a_secret_param_is_a_reference_in_the_template_and_nothing_else_of_the_runner_is() {
    let reference = json!({"name": "camera", "key": "password"});
    let runner = json!({
        "command": ["cat", "{job}"],
        "paramsFrom": [{"name": "password", "secretKeyRef": reference}],
    });
    for protocol in ["Session", "Plain"] {
        let worker = json!({"protocol": protocol, "runner": runner});
        let all = made(&json!({"pool": {"managed": {}}, "worker": worker})).unwrap();
        let env = &workload(&all)["spec"]["template"]["spec"]["containers"][0]["env"];
        let expected =
            json!({"name": "SWARM_PARAM_PASSWORD", "valueFrom": {"secretKeyRef": reference}});
        assert!(env.as_array().unwrap().contains(&expected), "{env}");
    }
    // The pods have what any of the runners needs, once.
    let other = json!({"name": "key", "secretKeyRef": {"name": "other", "key": "k"}});
    let mut more = runner.clone();
    more["paramsFrom"].as_array_mut().unwrap().push(other);
    let worker = json!({"protocol": "Session", "runner": runner, "runners": {"more": more}});
    let all = made(&json!({"pool": {"managed": {}}, "worker": worker})).unwrap();
    let env = &workload(&all)["spec"]["template"]["spec"]["containers"][0]["env"];
    let names = env.as_array().unwrap().iter().filter_map(|it| it["name"].as_str());
    let secret: Vec<_> = names.filter(|name| name.starts_with("SWARM_PARAM_")).collect();
    assert_eq!(secret, ["SWARM_PARAM_PASSWORD", "SWARM_PARAM_KEY"]);
    let env = json!([{"name": "SWARM_PARAM_PASSWORD", "value": "x"}]);
    let error = made(&json!({
        "pool": {"managed": {"env": env}}, "worker": {"protocol": "Session", "runner": runner},
    }));
    let error = error.unwrap_err();
    assert!(error.contains("the operator sets `SWARM_PARAM_PASSWORD` itself"), "{error}");
}

#[test]
fn a_secret_of_each_job_is_a_volume_that_only_the_worker_reads() {
    let secret = |name: &str, key: &str| json!({"name": name, "secretKeyRef": {"name": "cameras", "key": key}});
    let params = [secret("Pin_2", "{job}"), secret("host", "host"), secret("password", "{job}")];
    let pod = |params: &[Value]| {
        let runner = json!({"command": ["cat"], "paramsFrom": params});
        let spec = json!({"pool": {"managed": {}}, "worker": {"runner": runner}});
        workload(&made(&spec).unwrap())["spec"]["template"]["spec"].clone()
    };
    let pod_of_all = pod(&params);
    let worker = &pod_of_all["containers"][0];
    let has = |list: &Value, expected: Value| {
        assert!(list.as_array().unwrap().contains(&expected), "{expected} is not in {list}");
    };
    for (volume, param, variable) in [
        ("param-00", "Pin_2", "SWARM_PARAM_PIN_2_DIR"),
        ("param-01", "password", "SWARM_PARAM_PASSWORD_DIR"),
    ] {
        let path = format!("/run/swarm/params/{param}");
        has(&worker["env"], json!({"name": variable, "value": path}));
        has(&worker["volumeMounts"], json!({"name": volume, "mountPath": path, "readOnly": true}));
        let secret = json!({"secretName": "cameras", "defaultMode": 0o440});
        has(&pod_of_all["volumes"], json!({"name": volume, "secret": secret}));
    }
    // The worker is not root, and reads the volume by its group.
    let user = &pod_of_all["securityContext"];
    assert_eq!((&user["fsGroup"], &user["runAsGroup"]), (&user["runAsUser"], &user["runAsUser"]));
    assert!(!worker["env"].to_string().contains("{job}"), "{worker}");
    let variables: Vec<_> = worker["env"].as_array().unwrap().iter().collect();
    let host = variables.iter().find(|it| it["name"] == "SWARM_PARAM_HOST").unwrap();
    assert_eq!(host["valueFrom"]["secretKeyRef"]["key"], "host");
    let [a, b, c] = params;
    assert_eq!(pod(&[c, a, b]), pod_of_all, "the order of params replaces no pod");
}

#[test]
fn files_of_jobs_are_in_memory_and_only_where_a_runner_has_some() {
    let pod = |managed: &Value, runner: &str| {
        let runner: Value = serde_yaml::from_str(runner).unwrap();
        let worker = json!({"protocol": "Session", "runner": runner});
        let all = made(&json!({"pool": {"managed": managed}, "worker": worker})).unwrap();
        workload(&all)["spec"]["template"]["spec"].clone()
    };
    let without = pod(&json!({}), "{command: [cat]}");
    assert!(!without.to_string().contains("job-files"), "{without}");
    let volume = json!({
        "name": "job-files", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"},
    });
    let mount = json!({"name": "job-files", "mountPath": "/run/swarm/files"});
    let variable = json!({"name": "SWARM_FILES_DIR", "value": "/run/swarm/files"});
    for (image, memory) in [(json!({}), "128Mi"), (json!({"image": "telegraf:1"}), "2176Mi")] {
        let pod = pod(&image, "{command: [cat], files: {a.conf: '{{ job }}'}}");
        let worker = &pod["containers"][0];
        assert!(pod["volumes"].as_array().unwrap().contains(&volume), "{pod}");
        assert!(worker["volumeMounts"].as_array().unwrap().contains(&mount), "{worker}");
        assert!(worker["env"].as_array().unwrap().contains(&variable), "{worker}");
        assert_eq!(worker["resources"]["limits"]["memory"], memory);
    }
    let taken = json!({"podTemplate": {"spec": {"volumes": [{"name": "job-files", "hostPath": {"path": "/x"}}]}}});
    let worker = json!({"protocol": "Session", "runner": {"command": ["a"], "files": {"a": ""}}});
    let error = made(&json!({"pool": {"managed": taken}, "worker": worker})).unwrap_err();
    assert!(error.contains("volume `job-files`"), "{error}");
}

#[test]
fn the_limit_of_memory_counts_the_jobs_that_programs_of_the_image_run() {
    let limit = |managed: &Value, worker: Value| {
        let mut worker = worker;
        worker["protocol"] = "Session".into();
        let all = made(&json!({"pool": {"managed": managed}, "worker": worker})).unwrap();
        let pod = &workload(&all)["spec"]["template"]["spec"];
        pod["containers"][0]["resources"]["limits"]["memory"].as_str().map(str::to_owned)
    };
    let is = |text: &str| Some(text.to_owned());
    let own = json!({"image": "ffmpeg:7"});
    assert_eq!(limit(&json!({}), json!({})), is("64Mi"), "it has no other program");
    assert_eq!(limit(&own, json!({})), is("2112Mi"));
    let log = json!({"runner": {"log": {}}});
    assert_eq!(limit(&own, log), limit(&own, json!({"runner": {"command": ["ffmpeg"]}})));
    assert_eq!(limit(&own, json!({"maxJobs": 3})), is("2112Mi"));
    assert_eq!(limit(&own, json!({"maxJobs": 17})), is("4160Mi"));
    assert_eq!(limit(&own, json!({"maxJobs": 32})), is("4160Mi"), "few changes replace pods");
    let sizes = json!({"capacity": [{"slots": [0], "maxJobs": 40}, {"percent": 50}], "maxJobs": 4});
    assert_eq!(limit(&own, sizes), is("8256Mi"));
    assert_eq!(limit(&own, json!({"maxJobs": i32::MAX})), is("65600Mi"));
    let written = json!({"image": "ffmpeg:7", "resources": {"limits": {"memory": "1Gi"}}});
    assert_eq!(limit(&written, json!({"maxJobs": 40})), is("1Gi"));
}

#[test]
fn what_the_pods_need_is_wanted_though_their_template_is_refused() {
    let template = json!({"spec": {"nodeSelektor": {"a": "b"}}});
    let spec = json!({"pool": {"managed": {"podTemplate": template}}});
    let WantedPool { objects, refused } = super::wanted(&swarm(&spec), "swarm-worker:1");
    assert!(refused.is_some());
    let before = wanted();
    assert_eq!(names(&objects), names(&before[..before.len() - 1]), "all but the workload");
}

#[test]
fn the_view_and_the_files_are_no_one_config_map() {
    let spec = |protocol: &str, view: &str| {
        json!({
            "pool": {"managed": {"image": "reader:1", "files": {"data": {"a": "b"}}}},
            "worker": {"protocol": protocol}, "view": {"configMapName": view},
        })
    };
    let error = made(&spec("Plain", "streams-files")).unwrap_err();
    let expected = "spec.view.configMapName: ";
    assert!(error.starts_with(expected) && error.contains("`streams-files`"), "{error}");
    let WantedPool { objects, .. } =
        super::wanted(&swarm(&spec("Plain", "streams-files")), "swarm-worker:1");
    assert!(objects.iter().all(|it| it.kind != ObjectKind::ConfigMap), "{:?}", names(&objects));
    for (protocol, view) in [("Plain", "streams-other"), ("Session", "streams-files")] {
        made(&spec(protocol, view)).unwrap();
    }
}

#[test]
fn whom_an_object_was_made_for_is_what_the_operator_wrote_last() {
    let made_for = |label: &str, ours: &Value| {
        let metadata = json!({
            "labels": {SWARM_LABEL: label, INSTANCE: "streams"},
            "managedFields": [
                {"manager": "kubectl-label", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
                {"manager": MANAGER, "fieldsV1": {"f:metadata": {"f:labels": ours}}},
            ],
        });
        let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
        super::made_for(&metadata).map(ToOwned::to_owned)
    };
    let (swarm, instance) = (format!("f:{SWARM_LABEL}"), format!("f:{INSTANCE}"));
    let both = json!({swarm: {}, instance.clone(): {}});
    assert_eq!(made_for("other", &both).as_deref(), Some("other"), "of another Swarm");
    let one = json!({instance: {}});
    assert_eq!(made_for("edited", &one).as_deref(), Some("streams"));
    assert_eq!(made_for("edited", &json!({})), None);
    let labels = BTreeMap::from([(SWARM_LABEL.to_owned(), "edited".to_owned())]);
    let expected = [(MANAGED_BY, OPERATOR.to_owned()), (SWARM_LABEL, "streams".to_owned())];
    assert_eq!(missing_labels(&labels, "streams"), expected);
}
