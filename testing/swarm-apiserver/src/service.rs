//! Requests in, responses out: the server as a `tower` service.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response, header, request::Parts};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use crate::fault::{Fate, Fault};
use crate::record::Exchange;
use crate::route::{Call, Verb};
use crate::select::Selector;
use crate::status::Failure;
use crate::write::{Answer, scale_of, write};
use crate::{ApiServer, State, watch};

type ResponseBody = UnsyncBoxBody<Bytes, std::convert::Infallible>;

impl Service<Request<Body>> for ApiServer {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            server.serve(&parts, &body).await
        })
    }
}

impl ApiServer {
    async fn serve(&self, parts: &Parts, body: &[u8]) -> Result<Response<ResponseBody>, BoxError> {
        let call = match Call::parse(parts, body) {
            Ok(call) => call,
            Err(failure) => return respond(failure.code, &failure.to_value()),
        };
        let fate = self.fate(&call);
        match fate {
            Fate::Refused(failure) => {
                self.change(|state| state.record(self.now(), &call, Some(failure.code), None));
                return respond(failure.code, &failure.to_value());
            }
            Fate::RequestLost => {
                self.change(|state| state.record(self.now(), &call, None, None));
                return Err(lost());
            }
            Fate::Hangs => {
                self.change(|state| state.record(self.now(), &call, None, None));
                std::future::pending::<()>().await;
            }
            Fate::ReplyLost | Fate::Served | Fate::First(_) => {}
        }
        if call.verb == Verb::Watch {
            return self.watch(&call);
        }
        let is_lost = matches!(fate, Fate::ReplyLost);
        let answer = self.answer(&call, is_lost);
        match answer {
            _ if is_lost => Err(lost()),
            Ok((code, value)) if call.is_partial && call.verb != Verb::List => {
                respond(code, &partial(&value))
            }
            Ok((code, value)) => respond(code, &value),
            Err(failure) => respond(failure.code, &failure.to_value()),
        }
    }

    /// The fate of a call. A function that is to run first has run when this returns.
    fn fate(&self, call: &Call) -> Fate {
        let fate = self.state().faults.fate(call);
        if let Fate::First(place) = fate {
            let first = self.state().faults.take_first(place);
            if let Some(Fault::First(mut first)) = first {
                first(self);
                self.state().faults.put_back(place, Fault::First(first));
            }
        }
        fate
    }

    /// Carries out a call that is answered at once.
    fn answer(&self, call: &Call, is_lost: bool) -> Answer {
        let now = self.now();
        self.change(|state| {
            let key = crate::key(&call.kind.resource(), &call.namespace, call.object_name());
            let before = state.store.get(&key);
            let answer = match call.verb {
                Verb::Get => read(state, call),
                Verb::List => list(state, call),
                _ => write(&mut state.store, call, now),
            };
            let code = match &answer {
                Ok((code, _)) => *code,
                Err(failure) => failure.code,
            };
            state.record(
                now,
                call,
                (!is_lost).then_some(code),
                Some((before, state.store.get(&key))),
            );
            answer
        })
    }

    fn watch(&self, call: &Call) -> Result<Response<ResponseBody>, BoxError> {
        let begun = self.change(|state| {
            let begun = watch::watch(self, state, call);
            let code = begun.as_ref().map_or_else(|failure| failure.code, |_| 200);
            state.record(self.now(), call, Some(code), None);
            begun
        });
        match begun {
            Ok(stream) => {
                let body = StreamBody::new(stream).boxed_unsync();
                Ok(Response::builder().header(header::CONTENT_TYPE, JSON).body(body)?)
            }
            Err(failure) => respond(failure.code, &failure.to_value()),
        }
    }
}

const JSON: &str = "application/json";

type Objects = (Option<Arc<Value>>, Option<Arc<Value>>);

impl State {
    fn record(&mut self, at: Timestamp, call: &Call, code: Option<u16>, objects: Option<Objects>) {
        let (before, after) = objects.unwrap_or_default();
        self.exchanges.push(Exchange {
            at,
            verb: call.verb,
            resource: call.kind.plural.to_owned(),
            subresource: call.subresource.clone(),
            namespace: call.namespace.clone(),
            name: call.object_name().to_owned(),
            code,
            before,
            after,
            is_partial: call.is_partial,
        });
    }
}

fn read(state: &State, call: &Call) -> Answer {
    let found = state.store.get(&call.key());
    let found = found.ok_or_else(|| Failure::not_found(call.kind, &call.name))?;
    if call.subresource == "scale" {
        return Ok((200, Arc::new(scale_of(&found))));
    }
    Ok((200, found))
}

/// A list, or a page of it. A page begins where the previous one ended, in the current state. The
/// real server stays in the state of the first page.
fn list(state: &State, call: &Call) -> Answer {
    let selector = Selector::of(call)?;
    let limit = call.query("limit").and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    let after = call.query("continue");
    let mut found = state.store.of(selector.resource()).filter(|(key, object)| {
        selector.matches(object) && after.is_none_or(|after| *after < *place(key))
    });
    let page: Vec<_> = found.by_ref().take(limit).collect();
    let next = found.next().and(page.last()).map(|(key, _)| place(key));
    let items: Vec<_> = page
        .iter()
        .map(|(_, object)| if call.is_partial { partial(object) } else { (***object).clone() })
        .collect();
    let mut metadata = json!({"resourceVersion": state.store.version().to_string()});
    if let Some(next) = next {
        metadata["continue"] = json!(next);
    }
    let (api_version, kind) = if call.is_partial {
        ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadataList".to_owned())
    } else {
        (call.kind.api_version(), format!("{}List", call.kind.name))
    };
    let list =
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "items": items});
    Ok((200, Arc::new(list)))
}

/// The position of an object in a list.
fn place(key: &crate::store::Key) -> String {
    format!("{}/{}", key.namespace, key.name)
}

/// The metadata of an object.
pub(crate) fn partial(object: &Value) -> Value {
    if object["kind"] == "Status" {
        return object.clone();
    }
    let (version, kind) = ("meta.k8s.io/v1", "PartialObjectMetadata");
    json!({"apiVersion": version, "kind": kind, "metadata": object["metadata"]})
}

fn respond(code: u16, value: &Value) -> Result<Response<ResponseBody>, BoxError> {
    let body = Full::new(Bytes::from(serde_json::to_vec(value)?)).boxed_unsync();
    Ok(Response::builder().status(code).header(header::CONTENT_TYPE, JSON).body(body)?)
}

fn lost() -> BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the connection was lost").into()
}
