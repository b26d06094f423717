//! Cuts down objects that other programs wrote, as they are read. Of the objects in a page, only
//! one at a time is whole in memory, however many fields, keys or managers it has. The rest has a
//! bounded size, chosen to be enough for honest objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference,
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

/// The most bytes of an annotation that is kept; what the operator writes has some twenty.
const ANNOTATION_BYTES_MAX: usize = 1 << 10;
/// The most bytes of an object's labels that are kept, in the order of their names: fifty of the
/// longest. Labels of a pod are kept unchanged, since each may select a pool or set a capacity.
const LABELS_BYTES_MAX: usize = 16 << 10;
/// The most bytes of owners that are kept, the controller before others. The API server bounds neither
/// their number nor their names.
const OWNERS_BYTES_MAX: usize = 2 << 10;

/// A way to cut down objects of type `K`.
pub(crate) trait Cut<K> {
    /// Drops the fields that no reader needs.
    fn cut(object: &mut K);
}

/// An object as `C` left it.
pub(crate) struct Slim<K, C> {
    object: K,
    by: PhantomData<fn() -> C>,
}

impl<K, C> Slim<K, C> {
    pub(crate) fn into_inner(self) -> K {
        self.object
    }
}

impl<'de, K: Deserialize<'de>, C: Cut<K>> Deserialize<'de> for Slim<K, C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = K::deserialize(deserializer)?;
        C::cut(&mut object);
        Ok(Self { object, by: PhantomData })
    }
}

impl<K: Clone, C> Clone for Slim<K, C> {
    fn clone(&self) -> Self {
        Self { object: self.object.clone(), by: PhantomData }
    }
}

impl<K: fmt::Debug, C> fmt::Debug for Slim<K, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object.fmt(formatter)
    }
}

impl<K: Resource, C> Resource for Slim<K, C> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

/// Strips metadata down to these annotations, the labels and the owners. It keeps of each only as
/// much as honest objects have.
pub(crate) fn metadata(meta: &mut ObjectMeta, annotations: &[&str]) {
    meta.managed_fields = None;
    meta.finalizers = None;
    keep_annotations(meta, annotations);
    if let Some(labels) = &mut meta.labels {
        keep_first(labels);
    }
    if let Some(owners) = &mut meta.owner_references {
        owners.sort_by_key(|owner| owner.controller != Some(true));
        let mut bytes = 0;
        owners.retain(|owner| {
            bytes += bytes_of(owner);
            bytes <= OWNERS_BYTES_MAX
        });
    }
}

/// Keeps only the named annotations. Also drops values that are too long to come from the operator.
pub(crate) fn keep_annotations(meta: &mut ObjectMeta, names: &[&str]) {
    let Some(annotations) = &mut meta.annotations else { return };
    annotations.retain(|name, value| {
        names.contains(&name.as_str()) && value.len() <= ANNOTATION_BYTES_MAX
    });
    if annotations.is_empty() {
        meta.annotations = None;
    }
}

/// Keeps as many labels as [`LABELS_BYTES_MAX`] allows.
fn keep_first(labels: &mut BTreeMap<String, String>) {
    let mut bytes = 0;
    labels.retain(|name, value| {
        bytes += name.len() + value.len();
        bytes <= LABELS_BYTES_MAX
    });
}

fn bytes_of(owner: &OwnerReference) -> usize {
    let OwnerReference { api_version, kind, name, uid, block_owner_deletion: _, controller: _ } =
        owner;
    api_version.len() + kind.len() + name.len() + uid.len()
}

/// Keeps the selector of a workload if it is short enough. A selector that is longer than all kept
/// labels is replaced by one that selects nothing.
pub(crate) fn selector(selector: LabelSelector) -> LabelSelector {
    let LabelSelector { match_expressions, match_labels } = &selector;
    let of_labels = match_labels.iter().flatten().map(|(name, value)| name.len() + value.len());
    let of_expressions = match_expressions.iter().flatten().map(|it| {
        let values = it.values.iter().flatten().map(String::len);
        it.key.len() + it.operator.len() + values.sum::<usize>()
    });
    if of_labels.chain(of_expressions).sum::<usize>() <= LABELS_BYTES_MAX {
        return selector;
    }
    let none = LabelSelectorRequirement { operator: "TooLong".into(), ..Default::default() };
    LabelSelector { match_expressions: Some(vec![none]), match_labels: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_metadata_that_another_client_filled_little_is_kept() {
        let many = |bytes: usize| -> BTreeMap<_, _> {
            (0..bytes / 10).map(|n| (format!("a{n:06}"), "xyz".to_owned())).collect()
        };
        let mut annotations = many(200_000);
        annotations.insert("swarm.k8slab.info/ours".into(), "1".into());
        annotations.insert("swarm.k8slab.info/long".into(), "x".repeat(1_025));
        annotations.insert("swarm.k8slab.info/unknown".into(), "x".into());
        let owner = |name: &str, controller: bool| {
            let mut owner = json!({"apiVersion": "v1", "kind": "K", "uid": "u"});
            (owner["name"], owner["controller"]) = (name.into(), controller.into());
            owner
        };
        let mut owners: Vec<_> = (0..999).map(|n| owner(&format!("o{n}"), false)).collect();
        owners.push(owner("controller", true));
        let mut meta: ObjectMeta = serde_json::from_value(json!({
            "name": "n", "labels": many(1_000_000), "annotations": annotations,
            "ownerReferences": owners, "finalizers": vec!["a/b"; 999],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:data": many(99)}}],
        }))
        .unwrap();
        metadata(&mut meta, &["swarm.k8slab.info/ours", "swarm.k8slab.info/long"]);
        let kept = serde_json::to_value(&meta).unwrap();
        assert_eq!(kept["annotations"], json!({"swarm.k8slab.info/ours": "1"}));
        assert_eq!(kept["ownerReferences"][0], owner("controller", true));
        assert!(kept["ownerReferences"].as_array().unwrap().len() < 500);
        assert_eq!(meta.labels.unwrap().len(), LABELS_BYTES_MAX / 10);
        assert!(kept["finalizers"].is_null() && kept["managedFields"].is_null());
        let mut long: ObjectMeta = serde_json::from_value(json!({
            "ownerReferences": [owner(&"x".repeat(OWNERS_BYTES_MAX), true)],
        }))
        .unwrap();
        metadata(&mut long, &[]);
        assert_eq!(long.owner_references, Some(vec![]));
    }

    #[test]
    fn a_selector_that_is_too_long_selects_nothing() {
        let of = |count: usize| -> LabelSelector {
            let labels: BTreeMap<_, _> = (0..count).map(|n| (format!("l{n:07}"), "ab")).collect();
            serde_json::from_value(json!({"matchLabels": labels})).unwrap()
        };
        assert_eq!(selector(of(100)), of(100));
        let cut = selector(of(2_000));
        assert!(kube::core::Selector::try_from(cut).is_err());
    }

    #[test]
    fn an_object_is_cut_down_before_the_next_one_of_a_page_is_read() {
        use k8s_openapi::api::core::v1::ConfigMap;
        use kube::core::ObjectList;
        use std::sync::atomic::{AtomicUsize, Ordering};

        static CUT: AtomicUsize = AtomicUsize::new(0);
        #[derive(Debug)]
        struct Counted;
        impl Cut<ConfigMap> for Counted {
            fn cut(map: &mut ConfigMap) {
                map.data = None;
                CUT.fetch_add(1, Ordering::Relaxed);
            }
        }
        // The second item is not a ConfigMap. The first item was cut down before the error.
        let page = r#"{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [
            {"metadata": {"name": "a"}, "data": {"a": "b"}}, {"metadata": 3}
        ]}"#;
        assert!(serde_json::from_str::<ObjectList<Slim<ConfigMap, Counted>>>(page).is_err());
        assert_eq!(CUT.load(Ordering::Relaxed), 1);
        let good = page.replace('3', "{}");
        let list: ObjectList<Slim<ConfigMap, Counted>> = serde_json::from_str(&good).unwrap();
        let first = list.items.into_iter().next().unwrap().into_inner();
        assert_eq!((first.metadata.name.as_deref(), first.data), (Some("a"), None));
    }
}
