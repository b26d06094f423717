//! The right that each field of a Swarm takes, for a user whose other rights are on Swarms only; and
//! in [`reading`], the readers of all that is reported.
//!
//! Tests compare both tables with the schemas of the CRDs, and write `docs/reference/rights.md` from
//! them. The scenario `every_field_takes_its_right` tries each line on a real cluster.

mod page;
pub mod reading;
mod table;

use serde_json::{Value, json};

pub use page::page;
pub use table::LINES;

/// A field, its right, and an edit that changes the field.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The path below `spec`; `[]` is each item of a list, and `NAME` each key of a map.
    pub field: &'static str,
    /// The right in pools of pods that a user created.
    pub own: Right,
    /// The right in managed pools.
    pub managed: Right,
    base: Base,
    edit: &'static str,
}

/// The right that a user needs to write a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// None, for this reason.
    Free(&'static str),
    /// None to choose among the runners that the Swarm has.
    Among,
    /// None at creation. The schema refuses every change.
    Fixed,
    /// Create the workload.
    Make,
    /// Scale the workload.
    Scale,
    /// Delete or evict pods. The schema refuses it where pods do not keep their names.
    End,
    /// Change the `ConfigMap` of the view.
    View,
    /// Change the workload, or create `pods/exec`.
    Run,
    /// Get `pods/proxy`.
    Ask,
    /// Get `pods/log`, to change false into true.
    Show,
    /// Get the `ConfigMap`.
    Get,
    /// List `ConfigMap`s.
    List,
}

/// The Swarm that an edit changes. It has all that the edit has, except the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A session without a runner.
    Bare,
    /// Runners with checks, and an endpoint of versions.
    Full,
    /// Hidden output.
    Hidden,
    /// A named list of jobs.
    Sources,
    /// Selected lists of jobs.
    Selected,
    /// A number of workers that follows the jobs.
    Autoscaled,
    /// Pods that are deleted.
    Refreshed,
    /// A view, and plain workers.
    Viewed,
}

/// The kind of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// A StatefulSet.
    StatefulSet,
    /// A Deployment.
    Deployment,
    /// Pods by their labels.
    Pods,
    /// A managed StatefulSet.
    Managed,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every user who may write Swarms may do this.
    Accepted,
    /// A policy refuses a user without the right, with one of these texts.
    RefusedByPolicy(&'static [&'static str]),
    /// The schema refuses everybody, with this text.
    RefusedBySchema(&'static str),
}

impl Base {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Bare,
        Self::Full,
        Self::Hidden,
        Self::Sources,
        Self::Selected,
        Self::Autoscaled,
        Self::Refreshed,
        Self::Viewed,
    ];

    /// Returns the fields of the Swarm, except its pool and its job.
    fn fields(self) -> Value {
        let url = "http://127.0.0.1/";
        let command = ["sleep", "1"];
        let runner = json!({"command": command, "ready": {"http": url}, "alive": {"http": url}});
        match self {
            Self::Bare => json!({}),
            Self::Full => json!({"worker": {
                "runner": runner, "runners": {"x": runner}, "versionEndpoint": {"port": 80},
            }}),
            Self::Hidden => json!({"worker": {"showOutput": false}}),
            Self::Sources => json!({"jobSources": [{"configMap": {"name": "m", "key": "k"}}]}),
            Self::Selected => {
                json!({"jobSources": [{"selector": {"matchLabels": {"a": "b"}}, "key": "k"}]})
            }
            Self::Autoscaled => {
                json!({"replicas": null, "autoscale": {"max": 5, "jobsPerWorker": 2}})
            }
            Self::Refreshed => json!({"refresh": {"mode": "Delete"}}),
            Self::Viewed => {
                json!({"worker": {"protocol": "Plain"}, "view": {"configMapName": "v"}})
            }
        }
    }
}

impl Pool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::StatefulSet, Self::Deployment, Self::Pods, Self::Managed];

    /// The field of `spec.pool`.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::StatefulSet => "statefulSet",
            Self::Deployment => "deployment",
            Self::Pods => "pods",
            Self::Managed => "managed",
        }
    }

    /// The spec with what `base` has.
    #[must_use]
    pub fn spec(self, base: Base) -> Value {
        let pool = match self {
            Self::StatefulSet | Self::Deployment => json!({"name": "w"}),
            Self::Pods => json!({"matchLabels": {"a": "b"}}),
            Self::Managed => json!({"kind": "StatefulSet"}),
        };
        let mut spec = json!({
            "jobs": [{"name": "a"}],
            "worker": {"protocol": "Session"},
            "pool": {self.field(): pool},
        });
        if self == Self::Managed {
            spec["replicas"] = 0.into();
        }
        merge(&mut spec, &base.fields());
        spec
    }
}

impl Line {
    const fn new(
        field: &'static str,
        own: Right,
        managed: Right,
        base: Base,
        edit: &'static str,
    ) -> Self {
        Self { field, own, managed, base, edit }
    }

    /// Whether a pool of this kind can have the field.
    #[must_use]
    pub fn is_for(&self, pool: Pool) -> bool {
        let mut steps = self.field.split('.');
        steps.next() != Some("pool")
            || steps.next().unwrap_or(Pool::StatefulSet.field()) == pool.field()
    }

    /// The Swarm that the edit changes, in a pool of this kind.
    #[must_use]
    pub const fn base(&self, pool: Pool) -> Base {
        match (self.base, pool) {
            // The schema refuses these Swarms themselves.
            (Base::Autoscaled, Pool::Pods) | (Base::Refreshed, Pool::Deployment | Pool::Pods) => {
                Base::Bare
            }
            (base, _) => base,
        }
    }

    /// The edit, as a merge patch of the spec.
    ///
    /// # Panics
    ///
    /// When the text of the line is not JSON, which a test checks.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test reads every line")]
    pub fn edit(&self) -> Value {
        serde_json::from_str(self.edit).expect("a line has JSON")
    }

    /// The outcome for a user with rights on Swarms only.
    #[must_use]
    pub const fn outcome(&self, pool: Pool, creates: bool) -> Outcome {
        match (pool, creates) {
            // Every creation takes the right to make the pool.
            (Pool::Managed, true) => Right::Make.outcome(pool, creates),
            (Pool::Managed, false) => self.managed.outcome(pool, creates),
            _ => self.own.outcome(pool, creates),
        }
    }
}

impl Right {
    const fn outcome(self, pool: Pool, creates: bool) -> Outcome {
        use Outcome::{Accepted, RefusedByPolicy, RefusedBySchema};
        match (self, pool) {
            (Self::Free(_), _) => Accepted,
            (Self::Among | Self::Fixed, _) if creates == matches!(self, Self::Fixed) => Accepted,
            (Self::Fixed, _) => RefusedBySchema("cannot be changed"),
            (Self::Scale, Pool::Pods) => RefusedBySchema("pool.pods exclude each other"),
            (Self::End, Pool::Deployment | Pool::Pods) => RefusedBySchema("need a StatefulSet"),
            (Self::Show, _) if creates => Accepted,
            // A rule of the other policy may answer first. All of their messages have this text.
            (Self::Make, _) => RefusedByPolicy(&["ask for the right"]),
            (Self::Scale, _) => RefusedByPolicy(&["may not scale it"]),
            (Self::End, _) => RefusedByPolicy(&["may not delete any", "may not evict any"]),
            (Self::View, _) => RefusedByPolicy(&["is written into ConfigMap"]),
            (Self::Run | Self::Among, _) => RefusedByPolicy(&["obey worker.runner"]),
            (Self::Ask, _) => RefusedByPolicy(&["ask for the right to get pods/proxy"]),
            (Self::Show, _) => RefusedByPolicy(&["ask for the right to get pods/log"]),
            (Self::Get, _) => RefusedByPolicy(&["may not get all of"]),
            (Self::List, _) => RefusedByPolicy(&["ask for the right to list configmaps"]),
        }
    }
}

/// Merges a patch into a value, as a merge patch of JSON does.
pub fn merge(value: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, field) in fields {
        if let (true, Some(object)) = (field.is_null(), value.as_object_mut()) {
            object.remove(name);
        } else {
            merge(&mut value[name.as_str()], field);
        }
    }
}
