//! Label and field selectors that our adapters and `kubectl` use.

use serde_json::Value;

use crate::route::Call;
use crate::status::Failure;

/// The objects that a list or a watch selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    resource: String,
    namespace: String,
    labels: Vec<Term>,
    fields: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Has(String),
    HasNot(String),
    Is(String, String),
    IsNot(String, String),
}

impl Selector {
    pub(crate) fn of(call: &Call) -> Result<Self, Failure> {
        let terms = |key| terms(call.query(key).unwrap_or_default());
        let fields = terms("fieldSelector");
        let is_served = |term: &Term| match term {
            Term::Is(key, _) => key == "metadata.name" || key == "metadata.namespace",
            Term::Has(_) | Term::HasNot(_) | Term::IsNot(..) => false,
        };
        if !fields.iter().all(is_served) {
            return Err(Failure::unsupported("only fields by which objects are named are served"));
        }
        let (resource, namespace) = (call.kind.resource(), call.namespace.clone());
        Ok(Self { resource, namespace, labels: terms("labelSelector"), fields })
    }

    pub(crate) fn resource(&self) -> &str {
        &self.resource
    }

    /// Whether an object of this resource is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let field = |key: &str| metadata[key.trim_start_matches("metadata.")].as_str();
        (self.namespace.is_empty() || self.namespace == namespace)
            && self.labels.iter().all(|term| term.holds(|key| metadata["labels"][key].as_str()))
            && self.fields.iter().all(|term| term.holds(field))
    }
}

impl Term {
    fn holds<'a>(&'a self, value: impl FnOnce(&'a str) -> Option<&'a str>) -> bool {
        match self {
            Self::Has(key) => value(key).is_some(),
            Self::HasNot(key) => value(key).is_none(),
            Self::Is(key, wanted) => value(key) == Some(wanted),
            Self::IsNot(key, other) => value(key) != Some(other),
        }
    }
}

fn terms(text: &str) -> Vec<Term> {
    let own = |text: &str| text.trim().to_owned();
    let each = text.split(',').filter(|term| !term.trim().is_empty());
    let term = |term: &str| {
        if let Some((key, value)) = term.split_once("!=") {
            Term::IsNot(own(key), own(value))
        } else if let Some((key, value)) = term.split_once('=') {
            Term::Is(own(key), own(value.trim_start_matches('=')))
        } else if let Some(key) = term.trim().strip_prefix('!') {
            Term::HasNot(own(key))
        } else {
            Term::Has(own(term))
        }
    };
    each.map(term).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_select_by_what_they_are_are_not_and_whether_they_are_there() {
        let object = json!({"metadata": {"labels": {"a": "1"}}});
        let matches = |labels: &str| {
            Selector { labels: terms(labels), ..Selector::default() }.matches(&object)
        };
        for labels in ["", "a", "a=1", "a==1", "a!=2", "!b", "b!=1", "a=1,!b"] {
            assert!(matches(labels), "{labels}");
        }
        for labels in ["b", "a=2", "a!=1", "!a", "a=1,b"] {
            assert!(!matches(labels), "{labels}");
        }
    }
}
