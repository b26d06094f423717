//! The effects of writes: each write is a function of the store, the call and the time.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::apply;
use crate::kinds::{Kind, Trait};
use crate::managed::{self, Writer, seconds};
use crate::route::{Call, Verb};
use crate::status::Failure;
use crate::store::{Key, Store};

/// A code with the object that is answered, or a refusal.
pub(crate) type Answer = Result<(u16, Arc<Value>), Failure>;

/// The time that a pod may take to end unless its deletion names another.
const GRACE_SECONDS: i64 = 30;

/// Carries out a write.
pub(crate) fn write(store: &mut Store, call: &Call, now: Timestamp) -> Answer {
    match (call.verb, call.subresource.as_str()) {
        (Verb::Create, "eviction") => evict(store, call, now),
        (Verb::Create, "") => create(store, call, now),
        (Verb::Delete, "") => delete(store, call, &call.name, &call.body, now),
        (Verb::Patch, "scale") => scale(store, call, now),
        (Verb::Update | Verb::Patch | Verb::Apply, "" | "status") => change(store, call, now),
        _ => Err(Failure::unsupported("this subresource is not served in this way")),
    }
}

fn writer(call: &Call) -> Writer {
    let operation = if call.verb == Verb::Apply { "Apply" } else { "Update" };
    Writer { manager: call.manager(), operation, subresource: call.subresource.clone() }
}

fn create(store: &mut Store, call: &Call, now: Timestamp) -> Answer {
    let metadata = &call.body["metadata"];
    let Some(name) = metadata["name"].as_str() else {
        return Err(Failure::invalid(call.kind, "", "metadata.name: Required value"));
    };
    let key = crate::key(&call.kind.resource(), &call.namespace, name);
    if store.get(&key).is_some() {
        return Err(Failure::exists(call.kind, name));
    }
    if metadata["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
        return Err(Failure::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if call.is_dry_run() {
        return Ok((201, Arc::new(call.body.clone())));
    }
    Ok((201, make(store, call, &key, call.body.clone(), now)))
}

/// Stores a new object.
fn make(
    store: &mut Store,
    call: &Call,
    key: &Key,
    mut object: Value,
    now: Timestamp,
) -> Arc<Value> {
    if call.kind.is(Trait::Status) && call.subresource.is_empty() {
        object.as_object_mut().map(|fields| fields.remove("status"));
    }
    if object["metadata"]["managedFields"].is_null() {
        apply::note_update(call.kind, &json!({}), &mut object, &writer(call), now);
    }
    born(store, call.kind, key, &mut object, now);
    store.set(key, object)
}

/// Gives a new object the fields that only the server sets.
fn born(store: &mut Store, kind: &Kind, key: &Key, object: &mut Value, now: Timestamp) {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.name);
    let uid = store.new_uid(key);
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(key.name);
    if !key.namespace.is_empty() {
        metadata["namespace"] = json!(key.namespace);
    }
    metadata["uid"] = json!(uid);
    metadata["creationTimestamp"] = json!(seconds(now));
    if kind.is(Trait::Generation) {
        metadata["generation"] = json!(1);
    }
}

/// Carries out an update, a patch or an apply, of the object or of its status.
fn change(store: &mut Store, call: &Call, now: Timestamp) -> Answer {
    let key = call.key();
    let Some(before) = store.get(&key) else { return make_by_change(store, call, &key, now) };
    let proposed = proposed(call, &before)?;
    refuse_past(call, &before, &proposed)?;
    let mut after = (*before).clone();
    take_over(call, &mut after, proposed);
    keep_own(&before, &mut after);
    if call.kind.is(Trait::Generation) && is_other_spec(&before, &after) {
        raise_generation(&mut after);
    }
    refuse_new_finalizers(call, &before, &after)?;
    if call.verb == Verb::Apply {
        let (_, others, mine) =
            apply::apply(call.kind, &before, &call.body, &writer(call), call.is_forced())?;
        let is_same = is_unchanged(&before, &after);
        managed::set_entries(&mut after, call.kind, others, (&writer(call), mine), is_same, now);
    } else {
        apply::note_update(call.kind, &before, &mut after, &writer(call), now);
    }
    if after == *before {
        return Ok((200, before));
    }
    if call.is_dry_run() {
        return Ok((200, Arc::new(after)));
    }
    Ok((200, store_or_end(store, &key, after)))
}

/// Carries out a change of an object that does not exist.
fn make_by_change(store: &mut Store, call: &Call, key: &Key, now: Timestamp) -> Answer {
    let (kind, name) = (call.kind, &call.name);
    let makes = match call.verb {
        Verb::Apply => true,
        Verb::Update => kind.is(Trait::CreatedByPut),
        _ => false,
    };
    let uid = call.body["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
    match uid {
        _ if !makes || !call.subresource.is_empty() => Err(Failure::not_found(kind, name)),
        Some(uid) if call.verb == Verb::Apply => {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was \
                 found"
            );
            Err(Failure::conflict(kind, name, &why))
        }
        Some(uid) => Err(Failure::conflict(kind, name, &other_uid(uid, ""))),
        None if call.verb == Verb::Apply => {
            let (mut object, others, mine) =
                apply::apply(kind, &json!({}), &call.body, &writer(call), true)?;
            managed::set_entries(&mut object, kind, others, (&writer(call), mine), false, now);
            if call.is_dry_run() {
                return Ok((201, Arc::new(object)));
            }
            Ok((201, make(store, call, key, object, now)))
        }
        None => Ok((201, make(store, call, key, call.body.clone(), now))),
    }
}

fn other_uid(wanted: &str, found: &str) -> String {
    format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}")
}

/// The object as the writer wants it.
fn proposed(call: &Call, before: &Value) -> Result<Value, Failure> {
    let body = &call.body;
    match call.verb {
        Verb::Update => Ok(body.clone()),
        Verb::Apply => {
            let (mut after, ..) =
                apply::apply(call.kind, before, body, &writer(call), call.is_forced())?;
            for own in ["uid", "resourceVersion"] {
                if let Some(value) = body["metadata"].get(own) {
                    after["metadata"][own] = value.clone();
                }
            }
            Ok(after)
        }
        _ if call.is_json_patch => json_patch_of(call, before),
        _ => {
            let mut after = before.clone();
            apply::merge(&mut after, body);
            Ok(after)
        }
    }
}

fn json_patch_of(call: &Call, before: &Value) -> Result<Value, Failure> {
    let operations = call.body.as_array().cloned().unwrap_or_default();
    let mut after = before.clone();
    for operation in operations {
        // In a test, the real server takes a missing value for null.
        let is_missing = operation["path"].as_str().is_some_and(|it| after.pointer(it).is_none());
        if operation["op"] == "test" && operation["value"].is_null() && is_missing {
            continue;
        }
        let patch: json_patch::Patch = serde_json::from_value(json!([operation]))
            .map_err(|error| Failure::bad_request(&error.to_string()))?;
        json_patch::patch(&mut after, &patch).map_err(|error| {
            let why =
                format!("the server rejected our request due to an error in our request: {error}");
            Failure::of_code(422, &why)
        })?;
    }
    Ok(after)
}

/// Refuses a write that was decided on another state, or on another object of this name.
fn refuse_past(call: &Call, before: &Value, proposed: &Value) -> Result<(), Failure> {
    let (kind, name) = (call.kind, call.name.as_str());
    let text = |object: &Value, field: &str| {
        object["metadata"][field].as_str().unwrap_or_default().to_owned()
    };
    let (uid, found) = (text(proposed, "uid"), text(before, "uid"));
    let is_other = !uid.is_empty() && uid != found;
    if is_other && call.verb == Verb::Update {
        return Err(Failure::conflict(kind, name, &other_uid(&uid, &found)));
    }
    let version = text(proposed, "resourceVersion");
    if version.is_empty() || version == "0" {
        if call.verb == Verb::Update && kind.is(Trait::Strict) {
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(Failure::invalid(kind, name, why));
        }
    } else if version != text(before, "resourceVersion") {
        return Err(Failure::is_past(kind, name));
    }
    // Only an update treats the UID as a precondition. For a patch or an apply, the UID is
    // validated.
    if is_other { Err(Failure::immutable_uid(kind, name, &uid)) } else { Ok(()) }
}

/// Takes from `proposed` the fields that this endpoint writes.
fn take_over(call: &Call, after: &mut Value, proposed: Value) {
    let status = after.get("status").cloned();
    if call.subresource == "status" {
        after["status"] = proposed.get("status").cloned().unwrap_or_default();
    } else {
        *after = proposed;
        if call.kind.is(Trait::Status) {
            after["status"] = status.unwrap_or_default();
        }
    }
    if after["status"].is_null() {
        after.as_object_mut().map(|fields| fields.remove("status"));
    }
}

/// Keeps the fields that only the server writes.
fn keep_own(before: &Value, after: &mut Value) {
    for own in managed::OWN {
        match before["metadata"].get(own) {
            Some(value) => after["metadata"][own] = value.clone(),
            None => drop(after["metadata"].as_object_mut().map(|fields| fields.remove(own))),
        }
    }
    after["apiVersion"] = before["apiVersion"].clone();
    after["kind"] = before["kind"].clone();
    // Empty fields are not stored.
    for field in ["finalizers", "ownerReferences", "labels", "annotations"] {
        let value = &after["metadata"][field];
        let is_empty = value.is_null()
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        if is_empty {
            after["metadata"].as_object_mut().map(|fields| fields.remove(field));
        }
    }
}

/// Whether anything but metadata and status differs.
fn is_other_spec(before: &Value, after: &Value) -> bool {
    let spec = |object: &Value| {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.retain(|name, _| name != "metadata" && name != "status");
        }
        object
    };
    spec(before) != spec(after)
}

fn is_unchanged(before: &Value, after: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        object["metadata"].as_object_mut().map(|fields| fields.remove("managedFields"));
        object
    };
    bare(before) == bare(after)
}

fn raise_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    object["metadata"]["generation"] = json!(generation + 1);
}

fn finalizers(object: &Value) -> Vec<&str> {
    let all = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).collect()
}

fn is_leaving(object: &Value) -> bool {
    object["metadata"].get("deletionTimestamp").is_some()
}

fn refuse_new_finalizers(call: &Call, before: &Value, after: &Value) -> Result<(), Failure> {
    let had = finalizers(before);
    if !is_leaving(before) || finalizers(after).iter().all(|it| had.contains(it)) {
        return Ok(());
    }
    let why = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
               being deleted";
    Err(Failure::invalid(call.kind, &call.name, why))
}

/// Stores a changed object, or ends it if nothing keeps it any more.
fn store_or_end(store: &mut Store, key: &Key, after: Value) -> Arc<Value> {
    let grace = after["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if is_leaving(&after) && finalizers(&after).is_empty() && grace == Some(0) {
        store.remove(key);
        return Arc::new(after);
    }
    store.set(key, after)
}

fn delete(store: &mut Store, call: &Call, name: &str, options: &Value, now: Timestamp) -> Answer {
    let key = crate::key(&call.kind.resource(), &call.namespace, name);
    let Some(before) = store.get(&key) else { return Err(Failure::not_found(call.kind, name)) };
    let wanted = |field: &str| options["preconditions"][field].as_str();
    let found = |field: &str| before["metadata"][field].as_str().unwrap_or_default();
    if let Some(uid) = wanted("uid").filter(|uid| *uid != found("uid")) {
        return Err(Failure::conflict(call.kind, name, &other_uid(uid, found("uid"))));
    }
    if let Some(version) = wanted("resourceVersion").filter(|it| *it != found("resourceVersion")) {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in \
             object meta: {}",
            found("resourceVersion")
        );
        return Err(Failure::conflict(call.kind, name, &why));
    }
    let is_bound = before["spec"]["nodeName"].is_string() && call.kind.is(Trait::Graceful);
    let own_grace =
        before["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(GRACE_SECONDS);
    let asked = options["gracePeriodSeconds"].as_i64();
    let grace = if is_bound { asked.unwrap_or(own_grace) } else { 0 };
    if grace == 0 && finalizers(&before).is_empty() {
        let last = store.remove(&key).unwrap_or(before);
        let details =
            json!({"name": name, "kind": call.kind.plural, "uid": last["metadata"]["uid"]});
        let done = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details,
        });
        // For a pod, the answer is the pod.
        return Ok((200, if call.kind.is(Trait::Graceful) { last } else { Arc::new(done) }));
    }
    if is_leaving(&before) {
        return Ok((200, before));
    }
    let mut after = (*before).clone();
    let gone_at = now.saturating_add(jiff::SignedDuration::from_secs(grace)).unwrap_or(now);
    after["metadata"]["deletionTimestamp"] = json!(seconds(gone_at));
    after["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    if call.kind.is(Trait::Generation) {
        raise_generation(&mut after);
    }
    Ok((200, store.set(&key, after)))
}

fn evict(store: &mut Store, call: &Call, now: Timestamp) -> Answer {
    delete(store, call, &call.name, &call.body["deleteOptions"], now)?;
    let done = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    Ok((201, Arc::new(done)))
}

/// Carries out a merge patch of the subresource `scale`.
fn scale(store: &mut Store, call: &Call, now: Timestamp) -> Answer {
    let key = call.key();
    let Some(before) = store.get(&key) else {
        return Err(Failure::not_found(call.kind, &call.name));
    };
    refuse_past(call, &before, &call.body)?;
    let mut after = (*before).clone();
    if let Some(replicas) = call.body["spec"].get("replicas") {
        after["spec"]["replicas"] = replicas.clone();
    }
    if is_other_spec(&before, &after) {
        raise_generation(&mut after);
        apply::note_update(call.kind, &before, &mut after, &writer(call), now);
        return Ok((200, Arc::new(scale_of(&store.set(&key, after)))));
    }
    Ok((200, Arc::new(scale_of(&before))))
}

/// The scale of an object, from its number of replicas.
pub(crate) fn scale_of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let fields = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: serde_json::Map<_, _> =
        fields.iter().map(|field| ((*field).to_owned(), metadata[field].clone())).collect();
    let replicas = |part: &str| object[part]["replicas"].as_i64().unwrap_or_default();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": replicas("spec")}, "status": {"replicas": replicas("status")},
    })
}

/// Stores a whole object, as if permitted writers had written it.
pub(crate) fn put(store: &mut Store, mut object: Value, now: Timestamp) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let kind =
        Kind::named(&version, &kind).unwrap_or_else(|| panic!("{version} {kind} is not served"));
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    assert!(!name.is_empty(), "an object has a name");
    let key = crate::key(&kind.resource(), &namespace, &name);
    let writer =
        Writer { manager: "test".to_owned(), operation: "Update", subresource: String::new() };
    let Some(before) = store.get(&key) else {
        apply::note_update(kind, &json!({}), &mut object, &writer, now);
        born(store, kind, &key, &mut object, now);
        store.set(&key, object);
        return;
    };
    let leaving = object["metadata"].get("deletionTimestamp").cloned();
    keep_own(&before, &mut object);
    if let Some(leaving) = leaving {
        object["metadata"]["deletionTimestamp"] = leaving;
    }
    if kind.is(Trait::Generation) && is_other_spec(&before, &object) {
        raise_generation(&mut object);
    }
    apply::note_update(kind, &before, &mut object, &writer, now);
    if object != *before {
        store.set(&key, object);
    }
}
