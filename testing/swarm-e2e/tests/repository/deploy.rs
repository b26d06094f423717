//! The promises of the manifests, checked in their text. A scenario checks that the manifests
//! render, and that an API server takes them. Its cluster cannot show that a network enforces its
//! policies.
#![expect(clippy::unwrap_used, reason = "a test may say what must be so")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::{Value, json};

fn deploy() -> PathBuf {
    crate::root().join("deploy")
}

/// The objects in the YAML files below a folder, without patches, which lack most fields of an
/// object.
fn objects(folder: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(objects(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(path).unwrap();
            let documents = serde_yaml::Deserializer::from_str(&text);
            found.extend(documents.map(|document| Value::deserialize(document).unwrap()));
        }
    }
    found
}

fn base(kind: &str) -> Value {
    let objects = objects(&deploy().join("base"));
    objects.into_iter().find(|object| object["kind"] == kind).unwrap()
}

/// A build of the images without a member of the workspace fails in its first second.
#[test]
fn images_are_built_from_every_crate_that_is_shipped() {
    let workspace = fs::read_to_string(crate::root().join("Cargo.toml")).unwrap();
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let members = members.split('"').skip(1).step_by(2);
    let ignored = fs::read_to_string(crate::root().join(".dockerignore")).unwrap();
    let kept: Vec<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let is_kept = |member: &str| {
        let matches = |kept: &&str| {
            kept.strip_suffix('*').map_or(*kept == member, |start| member.starts_with(start))
        };
        kept.iter().any(matches)
    };
    let missing: Vec<_> = members.filter(|member| !is_kept(member)).collect();
    assert!(missing.is_empty(), ".dockerignore leaves out {missing:?}; add a line `!NAME`");
}

#[test]
fn every_pod_is_restricted_and_says_what_it_needs() {
    let folders = ["base", "samples"].map(|folder| objects(&deploy().join(folder)));
    let workloads = folders.into_iter().flatten();
    let workloads: Vec<_> =
        workloads.filter(|object| object["spec"]["template"].is_object()).collect();
    let expected = "operator, streams, their Deployment, plain and sessions";
    assert_eq!(workloads.len(), 5, "{expected}");
    for workload in workloads {
        let (name, pod) = (&workload["metadata"]["name"], &workload["spec"]["template"]["spec"]);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        for container in pod["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["capabilities"], json!({"drop": ["ALL"]}), "{name}");
            let resources = &container["resources"];
            assert!(resources["requests"]["cpu"].is_string(), "{name}");
            assert!(resources["requests"]["memory"].is_string(), "{name}");
            assert!(resources["limits"]["memory"].is_string(), "{name}");
        }
    }
}

/// A lost node must not take a whole pool down, and no pod may wait for a missing node.
#[test]
fn the_workers_of_every_sample_spread_over_nodes() {
    let samples = objects(&deploy().join("samples"));
    let workloads = samples.iter().filter(|object| object["spec"]["template"].is_object());
    let mut names = BTreeSet::new();
    for workload in workloads {
        names.insert(workload["metadata"]["name"].as_str().unwrap());
        let template = &workload["spec"]["template"];
        let spread = json!([{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": template["metadata"]["labels"]},
        }]);
        assert_eq!(template["spec"]["topologySpreadConstraints"], spread, "{names:?}");
    }
    assert_eq!(names, ["backup-worker", "plain", "stream-worker", "swarm-worker"].into());
}

#[test]
fn policy_and_budget_are_about_the_operators_pods() {
    let labels = &base("Deployment")["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&base("NetworkPolicy")["spec"]["podSelector"]["matchLabels"], labels);
    assert_eq!(&base("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels);
}

/// One replica at a time may be evicted, and an unready replica never blocks a drain.
#[test]
fn the_budget_never_blocks_a_drain() {
    assert_eq!(base("Deployment")["spec"]["replicas"], 2);
    let budget = base("PodDisruptionBudget");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow");
}

#[test]
fn the_operator_is_reached_on_its_port_and_by_whom_the_policy_names() {
    let policy = base("NetworkPolicy");
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    let port = &base("Deployment")["spec"]["template"]["spec"]["containers"][0]["ports"][0];
    let ingress = json!([{
        "from": [namespace("monitoring")],
        "ports": [{"port": port["containerPort"], "protocol": "TCP"}],
    }]);
    assert_eq!(policy["spec"]["ingress"], ingress);
}

/// A user who may edit the operator's namespace may act as the operator. No example needs that
/// right.
#[test]
fn no_example_puts_anything_next_to_the_operator() {
    let root = deploy().parent().unwrap().to_owned();
    let mut lines = Vec::new();
    for page in ["README.md", "docs/quick-start.md", "docs/operations.md", "docs/managed-pools.md"]
    {
        let text = fs::read_to_string(root.join(page)).unwrap();
        lines.extend(text.lines().map(str::to_owned));
    }
    let own = base("Namespace")["metadata"]["name"].as_str().unwrap().to_owned();
    let makes = |line: &&String| {
        ["apply", "create", "run", "edit"].iter().any(|verb| line.contains(&format!(" {verb} ")))
    };
    let in_its_namespace =
        lines.iter().filter(|line| line.contains(&own) && line.starts_with("kubectl"));
    assert_eq!(in_its_namespace.filter(makes).collect::<Vec<_>>(), Vec::<&String>::new());
    for object in objects(&deploy().join("samples")) {
        assert_ne!(object["metadata"]["namespace"], own, "{object}");
    }
}

/// Selects a namespace by the label that every namespace has.
fn namespace(name: &str) -> Value {
    json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}})
}

#[test]
fn workers_are_reached_by_the_operator_by_monitoring_and_by_each_other() {
    let samples = objects(&deploy().join("samples"));
    let policy = samples.into_iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    let mut operator = namespace(base("Namespace")["metadata"]["name"].as_str().unwrap());
    operator["podSelector"] = base("NetworkPolicy")["spec"]["podSelector"].clone();
    // The operator may be in the namespace of the workers.
    let same_namespace = json!({"podSelector": operator["podSelector"]});
    let workers = json!({"podSelector": policy["spec"]["podSelector"]});
    let ingress = json!([{
        "from": [operator, same_namespace, namespace("monitoring"), workers],
        "ports": [{"port": 9090, "protocol": "TCP"}],
    }]);
    assert_eq!(policy["spec"]["ingress"], ingress);
}

/// Each policy of the fence repeats the operator's identity: kustomize and CEL cannot share it.
#[test]
fn every_policy_of_the_fence_recognises_the_operator_in_the_same_way() {
    let text = fs::read_to_string(deploy().join("base/fence.yaml")).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text);
    let all: Vec<_> = documents.map(|it| Value::deserialize(it).unwrap()).collect();
    let (policies, bindings): (Vec<_>, Vec<_>) =
        all.iter().partition(|it| it["kind"] == "ValidatingAdmissionPolicy");
    assert_eq!(policies.len(), 5);
    let condition = |policy: &Value| {
        let all = policy["spec"]["matchConditions"].as_array().unwrap();
        assert_eq!(all.len(), 1, "all conditions are always evaluated");
        all[0]["expression"].as_str().unwrap().to_owned()
    };
    let common = condition(policies[0]);
    assert!(common.contains("check('act')") && common.contains("check('unfenced')"), "{common}");
    for (policy, binding) in policies.into_iter().zip(bindings) {
        let name = &policy["metadata"]["name"];
        assert!(condition(policy).ends_with(&common), "{name}");
        assert_eq!(policy["spec"]["failurePolicy"], "Fail", "{name}");
        let expected = json!({"policyName": name, "validationActions": ["Deny"]});
        assert_eq!(binding["spec"], expected, "{name}");
    }
}

/// Otherwise a user with one of these roles would have the operator's rights without its fence.
#[test]
fn every_role_of_the_operator_is_recognised_by_the_fence() {
    let folders = ["base", "components"].map(|folder| objects(&deploy().join(folder)));
    let all: Vec<_> = folders.into_iter().flatten().collect();
    let account = json!("swarm-operator");
    let bindings = all.iter().filter(|it| it["roleRef"].is_object());
    let bindings = bindings.filter(|it| it["subjects"][0]["name"] == account);
    let mut roles = BTreeSet::new();
    for binding in bindings {
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let is_it = |it: &&Value| it["kind"] == *kind && it["metadata"]["name"] == *name;
        let role = all.iter().find(is_it).unwrap();
        let act = json!({
            "apiGroups": ["swarm.k8slab.info"], "resources": ["operators"], "verbs": ["act"],
        });
        assert!(role["rules"].as_array().unwrap().contains(&act), "{name}");
        roles.insert(name.as_str().unwrap());
    }
    let expected = [
        "swarm-operator",
        "swarm-operator-leases",
        "swarm-operator-managed-pools",
        "swarm-operator-replicas",
    ];
    assert_eq!(roles, expected.into());
}

/// The API server aborts an expression that costs over 1,000,000. One authorizer check costs
/// 350,000.
#[test]
fn no_expression_of_a_policy_asks_the_authorizer_three_times() {
    let folders = ["base", "components"].map(|folder| objects(&deploy().join(folder)));
    let all = folders.into_iter().flatten();
    let policies: Vec<_> = all.filter(|it| it["kind"] == "ValidatingAdmissionPolicy").collect();
    assert_eq!(policies.len(), 9);
    for policy in policies {
        for part in ["matchConditions", "variables", "validations"] {
            for it in policy["spec"][part].as_array().into_iter().flatten() {
                let expression = it["expression"].as_str().unwrap();
                assert!(expression.matches(".check(").count() < 3, "{expression}");
            }
        }
    }
}

/// If rights to write are bound by namespace, none may be bound for all namespaces.
#[test]
fn the_list_of_namespaces_comes_with_no_right_to_write_elsewhere() {
    let folder = deploy().join("components/listed-namespaces");
    let all = objects(&folder);
    let watch = all.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
    for rule in watch["rules"].as_array().unwrap() {
        let allowed = ["get", "list", "watch", "act"].map(Value::from);
        let verbs = rule["verbs"].as_array().unwrap();
        assert!(verbs.iter().all(|verb| allowed.contains(verb)), "{rule}");
    }
    let text = fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
    let name = watch["metadata"]["name"].as_str().unwrap();
    assert!(text.contains(&format!("value: {name}\n")), "the base's binding is for {name}");
}

#[test]
fn the_operator_reaches_the_api_dns_and_workers_and_nothing_else() {
    let policy = base("NetworkPolicy");
    let mut reached = BTreeSet::new();
    for rule in policy["spec"]["egress"].as_array().unwrap() {
        let to = if rule["to"].is_null() { "anywhere" } else { "pods" };
        for port in rule["ports"].as_array().unwrap() {
            let protocol = port["protocol"].as_str().unwrap().to_owned();
            reached.insert((to, port["port"].as_u64().unwrap(), protocol));
        }
    }
    let tcp = |to, port| (to, port, "TCP".to_owned());
    let workers = tcp("pods", 9090);
    let dns = [tcp("anywhere", 53), ("anywhere", 53, "UDP".to_owned())];
    let api = [tcp("anywhere", 443), tcp("anywhere", 6443)];
    assert_eq!(reached, api.into_iter().chain(dns).chain([workers]).collect());
}
