//! The page of the table.

use super::{LINES, Right};

const OPENING: &str = "\
# Rights

The right that each field of a Swarm takes, besides the right to write Swarms.
The policies `swarm-deputy` and `swarm-managed-pools` refuse a write that changes the field without it. Fields that stay as they were take no right.

The middle column is about pools of pods that a user created, the last one about changes of managed pools.
To create a managed pool, a user needs the right to create its workload.
Every field below `worker` that is not listed as free takes the right to change the workload, and so does the removal of such a field.
If a Swarm has runners, a change of `worker.protocol` takes their right, too.
The subresource `scale` sets `replicas` alone, and takes the right to scale StatefulSets and Deployments.

The scenario `every_field_takes_its_right` tries each row on a real cluster: at creation, by a merge patch, and by server-side apply.
It writes as a user who may write Swarms only, and as a user with the role `edit`.

| field | own pods | managed pool |
|---|---|---|
";

/// The text of `docs/reference/rights.md`.
#[must_use]
pub fn page() -> String {
    let row = |line: &super::Line| {
        let own = text(line.own);
        let managed =
            if line.managed == line.own { "the same".to_owned() } else { text(line.managed) };
        let (own, managed) = match line.field {
            // It has no other pods.
            field if field.starts_with("pool.managed") => (String::new(), text(line.managed)),
            field if field.starts_with("pool.") => (own, String::new()),
            _ => (own, managed),
        };
        format!("| `{}` | {own} | {managed} |\n", line.field)
    };
    OPENING.to_owned() + &LINES.iter().map(row).collect::<String>()
}

fn text(right: Right) -> String {
    match right {
        Right::Free(why) => return format!("none: {why}"),
        Right::Among => "none: a job chooses among the runners that the Swarm has",
        Right::Fixed => "none at creation; nobody can change it",
        Right::Make => "`create` of `deployments` or `statefulsets`",
        Right::Scale => {
            "`patch` or `update` of `statefulsets/scale` or `deployments/scale`; refused for `pool.pods`"
        }
        Right::End => {
            "`delete` of `pods`, or `create` of `pods/eviction`; refused where pods do not keep their names"
        }
        Right::View => "`patch` or `update` of the view's ConfigMap",
        Right::Run => {
            "`patch` or `update` of the StatefulSet or Deployment, or `create` of `pods/exec`; for `pool.pods` the last one"
        }
        Right::Ask => "`get` of `pods/proxy`",
        Right::Show => "from false to true, `get` of `pods/log`",
        Right::Get => "`get` of each ConfigMap that it names",
        Right::List => "`list` of `configmaps`",
    }
    .to_owned()
}
