//! The meaning of a request, read from its method, path, query and headers.

use http::{Method, header, request::Parts};
use serde_json::Value;

use crate::kinds::{Kind, Trait};
use crate::status::Failure;
use crate::store::Key;

/// The verb of a request, by the names of permissions. Patches and applies have separate verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Follows changes.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// A merge patch or a JSON patch.
    Patch,
    /// Server-side apply.
    Apply,
    /// DELETE.
    Delete,
}

impl Verb {
    /// Whether the verb may change anything.
    #[must_use]
    pub fn writes(self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => false,
            Self::Create | Self::Update | Self::Patch | Self::Apply | Self::Delete => true,
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Apply => "apply",
            Self::Delete => "delete",
        })
    }
}

/// A request that was understood.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) kind: &'static Kind,
    /// The namespace; empty for all namespaces, and for kinds without one.
    pub(crate) namespace: String,
    /// The name; empty for a request about many objects.
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// Whether the answer has only metadata.
    pub(crate) is_partial: bool,
    pub(crate) is_json_patch: bool,
    query: Vec<(String, String)>,
    agent: String,
    pub(crate) body: Value,
}

impl Call {
    pub(crate) fn parse(parts: &Parts, body: &[u8]) -> Result<Self, Failure> {
        let query = parts.uri.query().unwrap_or_default();
        let query: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let (kind, namespace, name, subresource) =
            place(parts.uri.path()).ok_or_else(Failure::no_page)?;
        let text = |name: header::HeaderName| {
            let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let content = text(header::CONTENT_TYPE);
        let is_watch = query.iter().any(|(key, value)| key == "watch" && value == "true");
        let verb = match (&parts.method, name.is_empty()) {
            (&Method::GET, false) => Verb::Get,
            (&Method::GET, true) if is_watch => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, false) => Verb::Update,
            (&Method::PATCH, false) if content.contains("apply-patch") => Verb::Apply,
            (&Method::PATCH, false) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            _ => return Err(Failure::unsupported("this method is not served")),
        };
        if content.contains("strategic-merge-patch") {
            return Err(Failure::unsupported("strategic merge patches are not served"));
        }
        let body = match body {
            [] => Value::Null,
            text => serde_json::from_slice(text)
                .map_err(|error| Failure::bad_request(&error.to_string()))?,
        };
        Ok(Self {
            verb,
            kind,
            namespace,
            name,
            subresource,
            is_partial: text(header::ACCEPT).contains("as=PartialObjectMetadata"),
            is_json_patch: content.contains("json-patch"),
            query,
            agent: text(header::USER_AGENT),
            body,
        })
    }

    /// Whether nothing is to be stored. Served for creations, changes and applies.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.query("dryRun") == Some("All")
    }

    pub(crate) fn query(&self, key: &str) -> Option<&str> {
        let found = self.query.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The key of the requested object.
    pub(crate) fn key(&self) -> Key {
        crate::key(&self.kind.resource(), &self.namespace, &self.name)
    }

    /// The name of the object. For an object to be created, the body has the name.
    pub(crate) fn object_name(&self) -> &str {
        if self.name.is_empty() && self.verb == Verb::Create {
            return self.body["metadata"]["name"].as_str().unwrap_or_default();
        }
        &self.name
    }

    /// The name of the writer.
    pub(crate) fn manager(&self) -> String {
        let agent = self.agent.split('/').next().filter(|agent| !agent.is_empty());
        self.query("fieldManager").or(agent).unwrap_or("unknown").to_owned()
    }

    pub(crate) fn is_forced(&self) -> bool {
        self.query("force") == Some("true")
    }
}

/// Kind, namespace, name and subresource of a path.
fn place(path: &str) -> Option<(&'static Kind, String, String, String)> {
    let mut parts = path.trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let rest: Vec<_> = parts.collect();
    let (namespace, rest) = match rest.as_slice() {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, "", ""),
        [plural, name] => (plural, *name, ""),
        [plural, name, subresource] => (plural, *name, *subresource),
        _ => return None,
    };
    let kind = Kind::served(group, version, plural)?;
    let is_there = match subresource {
        "" => true,
        "status" => kind.is(Trait::Status),
        "scale" => kind.is(Trait::Scale),
        "eviction" => kind.is(Trait::Graceful),
        _ => false,
    };
    let own = |text: &str| text.to_owned();
    is_there.then(|| (kind, own(namespace), own(name), own(subresource)))
}
