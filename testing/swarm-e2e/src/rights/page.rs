//! The page of both tables.

use super::reading::{Access, PLACES, Place, READS, Readers, Shown, Verbs};
use super::{LINES, Right};

const OPENING: &str = "\
# Rights

The right that a write of each field takes, and the readers of all that is reported.

## Writing

The right that each field of a Swarm takes, besides the right to write Swarms.
The policies `swarm-deputy` and `swarm-managed-pools` refuse a write that changes the field without it. Fields that stay as they were take no right.

The middle column is about pools of pods that a user created, the last one about changes of managed pools.
To create a managed pool, a user needs the right to create its workload.
A field that is not listed takes what the field around it takes. The removal of a field below `worker` takes the same as a change.
If a Swarm has runners, a change of `worker.protocol` takes their right, too. So does a change of `view` without `worker.protocol`, since both decide about the protocol.
The subresource `scale` sets `replicas` alone, and takes the right to scale StatefulSets and Deployments.

The scenario `every_field_takes_its_right` tries each field on a real cluster.

| field | own pods | managed pool |
|---|---|---|
";

const READING: &str = "
## Reading

The places where something of a pool or a job can be read, what each of their fields reveals, and who may read it in a namespace.
The readers are the roles of `deploy/`, and the roles `view`, `edit` and `admin` of every cluster, which have what `swarm-view` grants. Each user, account or program with the right that is named reads the same.
`params` of jobs are in plain text wherever a line names them: [`worker.runner.paramsFrom`](../own-program.md) keeps values of Secrets out of all these places, as long as no job prints one.
";

/// The text of `docs/reference/rights.md`.
#[must_use]
pub fn page() -> String {
    // The field around a field, if one is in the table.
    let around = |line: &super::Line| {
        let is_around = |it: &&super::Line| {
            let rest = line.field.strip_prefix(it.field);
            rest.is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        LINES.iter().filter(is_around).max_by_key(|it| it.field.len())
    };
    let differs = |line: &&super::Line| {
        around(line).is_none_or(|it| (it.own, it.managed) != (line.own, line.managed))
    };
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
    let places = PLACES.iter().map(place).collect::<String>();
    OPENING.to_owned()
        + &LINES.iter().filter(differs).map(row).collect::<String>()
        + READING
        + &places
}

fn place(place: &Place) -> String {
    let row = |Shown { fields, reveals }: &Shown| {
        let fields: Vec<_> = fields.iter().map(|field| code(field)).collect();
        format!("| {} | {reveals} |\n", fields.join(", "))
    };
    let rows = place.lines.iter().map(row).collect::<String>();
    let readers = readers(&place.access);
    format!("\n### {}\n\n{readers}\n\n| field | reveals |\n|---|---|\n{rows}", place.name)
}

/// A field as code, unless it is a text for people.
fn code(field: &str) -> String {
    if field.contains(' ') { field.to_owned() } else { format!("`{field}`") }
}

fn readers(access: &Access) -> String {
    let (resource, Readers { people, tenant, worker, operator }) = match access {
        Access::Port(port) => {
            return format!(
                "Port {port}: everybody whose packets reach it, without a password. NetworkPolicies of `deploy/` \
                 limit that, where the network enforces them."
            );
        }
        Access::Resource(_, resource, readers) => (resource, readers),
    };
    let all: [(&str, Verbs); 4] = [
        ("the roles `view`, `edit` and `admin`", people),
        ("a role of your own for Swarms only", tenant),
        ("every session worker of the namespace", worker),
        ("the operator", operator),
    ];
    let some = all.iter().filter(|(_, verbs)| !verbs.is_empty()).map(|(who, verbs)| {
        let verbs: Vec<_> = verbs.iter().map(|verb| format!("`{verb}`")).collect();
        if verbs.len() == READS.len() {
            (*who).to_owned()
        } else {
            format!("{who} ({})", verbs.join(", "))
        }
    });
    format!("`{resource}`: {}.", some.collect::<Vec<_>>().join("; "))
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
