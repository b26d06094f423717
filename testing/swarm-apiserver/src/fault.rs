//! Faults that a test can cause, and the requests that they affect.

use crate::ApiServer;
use crate::route::{Call, Verb};
use crate::status::Failure;

/// A fault: the fate of a request that it affects.
pub enum Fault {
    /// The request is refused with this code, and no part of it is carried out.
    Answer(u16),
    /// The same, with this message.
    Refuse(u16, String),
    /// The request is carried out, and the connection breaks before the answer.
    LoseReply,
    /// The connection breaks before the request is carried out.
    LoseRequest,
    /// The request is neither carried out nor answered.
    Hang,
    /// The function runs first. Then the request is carried out.
    First(Box<dyn FnMut(&ApiServer) + Send>),
}

/// The requests that a fault affects.
#[derive(Clone, Debug)]
pub struct Rule {
    verb: Verb,
    resource: String,
    subresource: Option<String>,
    name: Option<String>,
    skip: u32,
    times: u32,
}

impl Rule {
    /// The next request of this kind. `resource` is the plural, such as `pods` or `swarmledgers`.
    #[must_use]
    pub fn on(verb: Verb, resource: &str) -> Self {
        let resource = resource.to_owned();
        Self { verb, resource, subresource: None, name: None, skip: 0, times: 1 }
    }

    /// Limits the rule to the object of this name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Limits the rule to this subresource; empty for the object itself.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Leaves out the first `count` requests that match.
    #[must_use]
    pub fn skip(mut self, count: u32) -> Self {
        self.skip = count;
        self
    }

    /// Affects this number of matching requests.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.times = count;
        self
    }

    /// Affects all matching requests, until the server is healed.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(u32::MAX)
    }

    fn is_about(&self, call: &Call) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        self.verb == call.verb
            && self.resource == call.kind.plural
            && is(&self.subresource, &call.subresource)
            && is(&self.name, call.object_name())
    }
}

/// The fate of a call.
pub(crate) enum Fate {
    Served,
    Refused(Failure),
    ReplyLost,
    RequestLost,
    Hangs,
    /// The function of the fault at this place is to run first.
    First(usize),
}

/// The rules, in the order in which they were added.
#[derive(Default)]
pub(crate) struct Faults(Vec<(Rule, Fault)>);

impl Faults {
    pub(crate) fn add(&mut self, rule: Rule, fault: Fault) {
        self.0.push((rule, fault));
    }

    /// The fate of `call`. Counts one use of the deciding rule.
    pub(crate) fn fate(&mut self, call: &Call) -> Fate {
        for (place, (rule, fault)) in self.0.iter_mut().enumerate() {
            if rule.times == 0 || !rule.is_about(call) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if rule.times < u32::MAX {
                rule.times -= 1;
            }
            return match fault {
                Fault::Answer(code) => Fate::Refused(Failure::of_code(*code, "a test wants it so")),
                Fault::Refuse(code, message) => Fate::Refused(Failure::of_code(*code, message)),
                Fault::LoseReply => Fate::ReplyLost,
                Fault::LoseRequest => Fate::RequestLost,
                Fault::Hang => Fate::Hangs,
                Fault::First(_) => Fate::First(place),
            };
        }
        Fate::Served
    }

    /// Takes out the function that is to run first, so that it can run while nothing is locked.
    pub(crate) fn take_first(&mut self, place: usize) -> Option<Fault> {
        let (_, fault) = self.0.get_mut(place)?;
        Some(std::mem::replace(fault, Fault::First(Box::new(|_| {}))))
    }

    pub(crate) fn put_back(&mut self, place: usize, fault: Fault) {
        if let Some((_, there)) = self.0.get_mut(place) {
            *there = fault;
        }
    }
}
