//! The controllers that each replica of the operator hosts, with their numbers of workers. A
//! ConfigMap lists the types of replicas, and may override a type for an ID. Nothing here asks the
//! API server.

use std::collections::BTreeMap;

use serde::Deserialize;
use swarm_spec::manifest::in_full;
use swarm_spec::yaml;

/// The ConfigMap, in the namespace of the operator.
pub const CONFIG_MAP: &str = "swarm-operator-types";
/// The key of that ConfigMap.
pub const KEY: &str = "types.yaml";
/// The type of replicas that were started without one.
pub const DEFAULT_TYPE: &str = "default";
/// The controller of Swarms.
pub const SWARM: &str = "swarm";
/// The controller that removes leftovers of deleted Swarms.
pub const SWEEPER: &str = "sweeper";
/// All controllers, with the default number of their workers.
const CONTROLLERS: [(&str, u8); 2] = [(SWARM, 16), (SWEEPER, 1)];
/// The most workers of a controller.
pub const WORKERS_MAX: u8 = 64;
/// The most bytes of the text.
const BYTES_MAX: usize = 256 << 10;

/// The controllers that a replica hosts, with their workers.
pub type Hosting = BTreeMap<&'static str, u8>;

/// The types, and the exceptions of single replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Types {
    #[serde(default)]
    types: BTreeMap<String, Type>,
    #[serde(default)]
    replicas: BTreeMap<String, Override>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Type {
    controllers: BTreeMap<String, Workers>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Override {
    r#type: Option<String>,
    controllers: Option<BTreeMap<String, Workers>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workers {
    workers: Option<u8>,
}

impl Types {
    /// Parses the types.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong, and what to write instead.
    pub fn read(text: &str) -> Result<Self, String> {
        if BYTES_MAX < text.len() {
            return Err(format!("{} bytes are too many; at most {BYTES_MAX} are read", text.len()));
        }
        let types = Self::parse(text)?;
        let of_types =
            types.types.iter().map(|(name, of)| (format!("type `{name}`"), &of.controllers));
        let of_replicas = types
            .replicas
            .iter()
            .filter_map(|(name, of)| Some((format!("replica `{name}`"), of.controllers.as_ref()?)));
        for (whose, controllers) in of_types.chain(of_replicas) {
            for (name, Workers { workers }) in controllers {
                if CONTROLLERS.iter().all(|(known, _)| known != name) {
                    let known: Vec<_> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
                    let known = known.join(" or ");
                    return Err(format!("{whose}: unknown controller `{name}`; write {known}"));
                }
                if workers.is_some_and(|count| !(1..=WORKERS_MAX).contains(&count)) {
                    return Err(format!(
                        "{whose}: controller `{name}` has 1 to {WORKERS_MAX} workers; leave it out if \
                         it is not to be hosted"
                    ));
                }
            }
        }
        for (id, of) in &types.replicas {
            if let Some(named) = &of.r#type
                && named != DEFAULT_TYPE
                && !types.types.contains_key(named)
            {
                return Err(format!("replica `{id}`: unknown type `{named}`"));
            }
        }
        Ok(types)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut documents = yaml::documents(text).map_err(|error| in_full(&error))?;
        match (documents.pop(), documents.is_empty()) {
            (None, _) => Ok(Self::default()),
            (Some((_, value)), true) => serde_path_to_error::deserialize(&value).map_err(|error| {
                yaml::printable(&format!("field `{}`: {}", error.path(), error.inner()))
            }),
            (Some(_), false) => Err("it has several documents; write one".to_owned()),
        }
    }

    /// The controllers of the replica `id`, which was started with this type. A replica with an
    /// unlisted type hosts everything.
    #[must_use]
    pub fn hosting(&self, started_as: &str, id: &str) -> Hosting {
        let of_replica = self.replicas.get(id);
        let named = of_replica.and_then(|of| of.r#type.as_deref()).unwrap_or(started_as);
        let of_type = self.types.get(named).map(|of| &of.controllers);
        let listed = of_replica.and_then(|of| of.controllers.as_ref()).or(of_type);
        let hosted = CONTROLLERS.into_iter().filter_map(|(name, default)| match listed {
            None => Some((name, default)),
            Some(listed) => Some((name, listed.get(name)?.workers.unwrap_or(default))),
        });
        hosted.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
types:
  large: {controllers: {swarm: {workers: 32}, sweeper: {}}}
  light: {controllers: {swarm: {workers: 2}}}
replicas:
  a: {type: light}
  b: {controllers: {sweeper: {}}}
";

    fn hosting(pairs: &[(&'static str, u8)]) -> Hosting {
        pairs.iter().copied().collect()
    }

    #[test]
    fn a_replica_hosts_what_its_type_does_unless_something_else_is_said_for_it() {
        let types = Types::read(TEXT).unwrap();
        assert_eq!(types.hosting("large", "x"), hosting(&[(SWARM, 32), (SWEEPER, 1)]));
        assert_eq!(types.hosting("light", "x"), hosting(&[(SWARM, 2)]));
        assert_eq!(types.hosting("large", "a"), hosting(&[(SWARM, 2)]));
        assert_eq!(types.hosting("large", "b"), hosting(&[(SWEEPER, 1)]));
        let all = hosting(&[(SWARM, 16), (SWEEPER, 1)]);
        assert_eq!(types.hosting("unknown", "x"), all, "what is not listed has defaults");
        assert_eq!(Types::read("").unwrap().hosting(DEFAULT_TYPE, "x"), all);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_sentence() {
        let cases = [
            (
                "types: {a: {controllers: {pool: {}}}}",
                "type `a`: unknown controller `pool`; write swarm or sweeper",
            ),
            (
                "types: {a: {controllers: {swarm: {workers: 0}}}}",
                "type `a`: controller `swarm` has 1 to 64 workers",
            ),
            ("replicas: {x: {type: b}}", "replica `x`: unknown type `b`"),
            ("types: {a: {controller: {}}}", "unknown field `controller`"),
            ("types: []", "expected a map"),
            (
                "types: {a: {controllers: {swarm: {workers: x}}}}",
                "field `types.a.controllers.swarm.workers`",
            ),
            ("types: {}\n---\ntypes: {}", "several documents"),
            ("types: {a: {}, a: {}}", "the key `a` occurs twice at line 1 column 16"),
        ];
        for (text, expected) in cases {
            let said = Types::read(text).unwrap_err();
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
