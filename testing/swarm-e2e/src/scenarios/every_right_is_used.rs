//! The operator has every right that it needs, and no other. The audit log of all scenarios on a
//! cluster has no request that was refused for lack of a right. On the first cluster the log has a
//! request for each verb and resource of the operator's roles.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::Api;

use crate::cluster::Request;
use crate::operator::{self, ACCOUNT, NAMESPACE};
use crate::scenario::Context;

/// Verb, resource and group.
type Right = (String, String, String);

pub(super) async fn run(context: Context) -> Result<()> {
    let granted = granted(&context).await?;
    let requests = requests(&context, &granted).await?;
    let used: BTreeSet<_> = requests.iter().filter(|it| it.has_right).flat_map(uses).collect();
    let unused: Vec<_> = granted.difference(&used).collect();
    ensure!(unused.is_empty(), "nobody uses {unused:?}");
    let (rights, requests) = (granted.len(), requests.len());
    context.laps.lap(format!("{rights} rights, each used in {requests} requests; none refused"));
    Ok(())
}

pub(super) async fn none_is_missing(context: Context) -> Result<()> {
    let granted = granted(&context).await?;
    let requests = requests(&context, &granted).await?.len();
    context.laps.lap(format!("{requests} requests; none refused"));
    Ok(())
}

/// The rights that the roles of the operator grant.
async fn granted(context: &Context) -> Result<BTreeSet<Right>> {
    context.operator().await?;
    let roles: Api<ClusterRole> = Api::all(context.client.clone());
    let mut granted = BTreeSet::new();
    for role in ["swarm-operator", "swarm-operator-managed-pools"] {
        granted.extend(rights(&roles.get(role).await?.rules.unwrap_or_default()));
    }
    let roles: Api<Role> = Api::namespaced(context.client.clone(), NAMESPACE);
    let of_replicas = roles.get("swarm-operator-replicas").await?.rules.unwrap_or_default();
    granted.extend(rights(&of_replicas));
    // No request has the verb `bind` or `act`. The API server checks `bind` when a RoleBinding is
    // made, and a policy checks `act`.
    granted.retain(|(verb, ..)| verb != "bind" && verb != "act");
    ensure!(granted.len() > 10, "the role grants {granted:?}");
    Ok(granted)
}

/// Returns all requests of the operator so far. Fails if one was refused for a right that no role
/// grants.
async fn requests(context: &Context, granted: &BTreeSet<Right>) -> Result<Vec<Request>> {
    // The API server logs a watch only when it ends.
    operator::stop(&context.cluster).await?;
    operator::go_on(&context.cluster).await?;
    let mut requests = context.cluster.audit.since(context.cluster.audit.start())?;
    requests.retain(|it| it.user == ACCOUNT);
    // A refused request counts only if no role grants its right. An API server that has just
    // started refuses requests until it has read the roles. While the operator is removed, the API
    // server refuses the last messages of its replicas to each other.
    let wants = |it: &&Request| uses(it).iter().any(|right| !granted.contains(right));
    let refused: Vec<_> = requests.iter().filter(|it| !it.has_right).filter(wants).collect();
    ensure!(refused.is_empty(), "refused: {}", listed(&refused));
    Ok(requests)
}

fn rights(rules: &[PolicyRule]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let each = rule.verbs.iter();
                rights.extend(each.map(|verb| (verb.clone(), resource.clone(), group.clone())));
            }
        }
    }
    rights
}

/// The rights that a request needed. A patch that creates its object also needs `create`.
fn uses(request: &Request) -> Vec<Right> {
    let Request { verb, resource, group, code, .. } = request;
    let right = |verb: &str| (verb.to_owned(), resource.clone(), group.clone());
    let created = (verb == "patch" && *code == 201).then(|| right("create"));
    created.into_iter().chain([right(verb)]).collect()
}

fn listed(requests: &[&Request]) -> String {
    let requests: BTreeSet<_> = requests.iter().map(ToString::to_string).collect();
    requests.into_iter().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_grants_each_verb_on_each_of_its_resources() {
        let rule = PolicyRule {
            api_groups: Some(vec!["apps".into()]),
            resources: Some(vec!["a".into(), "b/scale".into()]),
            verbs: vec!["get".into(), "patch".into()],
            ..PolicyRule::default()
        };
        let rights = rights(&[rule]);
        assert_eq!(rights.len(), 4);
        assert!(rights.contains(&("patch".into(), "b/scale".into(), "apps".into())));
    }
}
