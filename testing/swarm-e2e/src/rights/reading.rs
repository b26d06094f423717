//! The places where something of a pool can be read, and their readers.

mod places;

pub use places::PLACES;

/// A place with the same readers in all of its fields.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The heading on the page.
    pub name: &'static str,
    /// The way to read it.
    pub access: Access,
    /// Its contents.
    pub lines: &'static [Shown],
}

/// Fields that reveal the same.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// Their paths. `.*` at the end means the field before it with all that it contains.
    pub fields: &'static [&'static str],
    /// The parts of a pool or a job that they reveal.
    pub reveals: &'static str,
}

/// The way to read a place.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// A resource of the API server, by its group and its name.
    Resource(&'static str, &'static str, Readers),
    /// A port without a password, for everybody whose packets reach it.
    Port(u16),
}

/// The verbs that each reader has in a namespace, among get, list and watch.
#[derive(Clone, Copy, Debug)]
pub struct Readers {
    /// A user with one of the roles `view`, `edit` and `admin` of every cluster.
    pub people: Verbs,
    /// A user with a role of their own for Swarms only.
    pub tenant: Verbs,
    /// The account of a session worker, which has the role `swarm-session-worker`.
    pub worker: Verbs,
    /// The account of the operator, with its rights for managed pools.
    pub operator: Verbs,
}

/// Verbs that read.
pub type Verbs = &'static [&'static str];

/// All of them.
pub const READS: [&str; 3] = ["get", "list", "watch"];

/// A user or an account whose rights a place names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A user with this role of every cluster.
    Person(&'static str),
    /// A user with a role of their own for Swarms only.
    Tenant,
    /// The account of a session worker.
    Worker,
    /// The account of the operator.
    Operator,
}

impl Reader {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Person("view"),
        Self::Person("edit"),
        Self::Person("admin"),
        Self::Tenant,
        Self::Worker,
        Self::Operator,
    ];
}

impl Readers {
    /// The verbs of a reader.
    #[must_use]
    pub const fn of(&self, reader: Reader) -> Verbs {
        match reader {
            Reader::Person(_) => self.people,
            Reader::Tenant => self.tenant,
            Reader::Worker => self.worker,
            Reader::Operator => self.operator,
        }
    }
}

impl Shown {
    const fn new(fields: &'static [&'static str], reveals: &'static str) -> Self {
        Self { fields, reveals }
    }

    /// Whether a field of this line covers the field at this path.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        self.fields.iter().any(|field| covers(field, path))
    }
}

/// Whether a field of a line covers the field at `path`.
#[must_use]
pub fn covers(field: &str, path: &str) -> bool {
    let Some(root) = field.strip_suffix(".*") else { return field == path };
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}
