//! Turns the bytes of a query into the bytes of its answer.
//!
//! An existing name without a record of the requested type gets an empty answer, so that no client
//! waits for an IPv6 address. Only a missing name is denied, so that clients try their next search
//! path. Both answers have the record that limits how long a client may cache them.

use simple_dns::rdata::{A, OPT, RData, SOA};
use simple_dns::{
    CLASS, Name, OPCODE, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE,
    header_buffer,
};

use super::names::{Found, Names};

/// The domain of all names.
const ZONE: &str = "cluster.local";
/// The seconds for which a client may cache an answer, as in a usual cluster.
const TTL_S: u32 = 5;
/// The size of an answer that every client takes over UDP.
const UDP_BYTES: u16 = 512;
/// The largest answer over UDP, for clients that take it. A packet of this size is never split.
const UDP_BYTES_MAX: u16 = 1232;

/// The transport of a query, which bounds its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Udp,
    Tcp,
}

/// The answer to a query; `None` if the bytes are not a query, or have no whole header.
pub(super) fn answer(names: &Names, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
    if header_buffer::has_flags(query, PacketFlag::RESPONSE).ok()? {
        return None;
    }
    let Ok(query) = Packet::parse(query) else {
        let mut refusal = Packet::new_reply(header_buffer::id(query).ok()?);
        *refusal.rcode_mut() = RCODE::FormatError;
        return refusal.build_bytes_vec().ok();
    };
    let wanted = query.opt().map_or(UDP_BYTES, |opt| opt.udp_packet_size);
    let bytes_max = match transport {
        Transport::Udp => wanted.clamp(UDP_BYTES, UDP_BYTES_MAX),
        Transport::Tcp => u16::MAX,
    };
    let mut reply = reply(names, &query);
    let bytes = reply.build_bytes_vec_compressed().ok()?;
    if bytes.len() <= bytes_max.into() {
        return Some(bytes);
    }
    // A truncated answer makes the client ask again over TCP.
    reply.set_flags(PacketFlag::TRUNCATION);
    reply.answers.clear();
    reply.build_bytes_vec_compressed().ok()
}

fn reply<'a>(names: &Names, query: &Packet<'a>) -> Packet<'a> {
    let mut reply = Packet::new_reply(query.id());
    *reply.opcode_mut() = query.opcode();
    reply.questions.clone_from(&query.questions);
    reply.set_flags(PacketFlag::AUTHORITATIVE_ANSWER);
    if query.has_flags(PacketFlag::RECURSION_DESIRED) {
        reply.set_flags(PacketFlag::RECURSION_DESIRED);
    }
    if query.opt().is_some() {
        let opt = OPT { opt_codes: Vec::new(), udp_packet_size: UDP_BYTES_MAX, version: 0 };
        *reply.opt_mut() = Some(opt);
    }
    *reply.rcode_mut() = match (query.opcode(), query.questions.as_slice()) {
        (OPCODE::StandardQuery, [question]) => look_up(names, question, &mut reply),
        (OPCODE::StandardQuery, _) => RCODE::FormatError,
        _ => RCODE::NotImplemented,
    };
    reply
}

/// Adds the records of a name to `reply`.
fn look_up<'a>(names: &Names, question: &Question<'a>, reply: &mut Packet<'a>) -> RCODE {
    if !matches!(question.qclass, QCLASS::CLASS(CLASS::IN) | QCLASS::ANY) {
        return RCODE::Refused;
    }
    let labels = question.qname.get_labels().iter();
    let labels: Vec<_> =
        labels.map(|it| String::from_utf8_lossy(it.as_ref()).to_ascii_lowercase()).collect();
    let found = names.look_up(&labels.iter().map(String::as_str).collect::<Vec<_>>());
    let rcode = match &found {
        Found::Addresses(_) => RCODE::NoError,
        Found::Missing => RCODE::NameError,
    };
    if let (Found::Addresses(found), QTYPE::TYPE(TYPE::A) | QTYPE::ANY) = (found, question.qtype) {
        let record = |data| ResourceRecord::new(question.qname.clone(), CLASS::IN, TTL_S, data);
        reply.answers.extend(found.into_iter().map(|it| record(RData::A(A::from(it)))));
    }
    if reply.answers.is_empty() && question.qname.is_subdomain_of(&zone()) {
        reply.name_servers.push(start_of_authority());
    }
    rcode
}

fn zone<'a>() -> Name<'a> {
    Name::new_unchecked(ZONE)
}

fn start_of_authority<'a>() -> ResourceRecord<'a> {
    let data = RData::SOA(SOA {
        mname: zone(),
        rname: zone(),
        serial: 1,
        refresh: 7200,
        retry: 1800,
        expire: 86400,
        minimum: TTL_S,
    });
    ResourceRecord::new(zone(), CLASS::IN, TTL_S, data)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::dns::names::tests::names;

    fn query(name: &str, qtype: TYPE) -> Packet<'_> {
        let mut query = Packet::new_query(7);
        let name = Name::new_unchecked(name);
        query.questions.push(Question::new(name, qtype.into(), CLASS::IN.into(), false));
        query
    }

    /// Returns the code, the addresses, the number of SOA records, and whether the answer was
    /// truncated.
    fn ask(query: &Packet<'_>, transport: Transport) -> (RCODE, Vec<Ipv4Addr>, usize, bool) {
        let bytes = answer(&names(), &query.build_bytes_vec().unwrap(), transport).unwrap();
        let reply = Packet::parse(&bytes).unwrap();
        assert_eq!(reply.id(), 7);
        assert!(reply.has_flags(PacketFlag::RESPONSE | PacketFlag::AUTHORITATIVE_ANSWER));
        let address = |record: &ResourceRecord<'_>| match &record.rdata {
            RData::A(address) => Ipv4Addr::from(address.address),
            other => panic!("{other:?}"),
        };
        let addresses = reply.answers.iter().map(address).collect();
        let is_short = reply.has_flags(PacketFlag::TRUNCATION);
        (reply.rcode(), addresses, reply.name_servers.len(), is_short)
    }

    fn ask_udp(name: &str, qtype: TYPE) -> (RCODE, usize, usize) {
        let (rcode, addresses, authorities, _) = ask(&query(name, qtype), Transport::Udp);
        (rcode, addresses.len(), authorities)
    }

    #[test]
    fn a_name_without_the_record_that_is_asked_for_exists_and_others_are_denied() {
        assert_eq!(ask_udp("Web.a.SVC.cluster.local", TYPE::A), (RCODE::NoError, 1, 0));
        assert_eq!(ask_udp("web.a.svc.cluster.local", TYPE::AAAA), (RCODE::NoError, 0, 1));
        assert_eq!(ask_udp("web.a.svc.cluster.local", TYPE::MX), (RCODE::NoError, 0, 1));
        assert_eq!(ask_udp("wep.a.svc.cluster.local", TYPE::A), (RCODE::NameError, 0, 1));
        assert_eq!(ask_udp("wep.a.svc.cluster.local", TYPE::AAAA), (RCODE::NameError, 0, 1));
        assert_eq!(ask_udp("example.org", TYPE::A), (RCODE::NameError, 0, 0));
    }

    #[test]
    fn an_answer_that_is_too_long_is_whole_over_tcp() {
        let mut query = query("many.a.svc.cluster.local", TYPE::A);
        assert_eq!(ask(&query, Transport::Udp), (RCODE::NoError, vec![], 0, true));
        let (_, addresses, _, is_short) = ask(&query, Transport::Tcp);
        assert_eq!((addresses.len(), is_short), (200, false));
        *query.opt_mut() = Some(OPT { opt_codes: vec![], udp_packet_size: 65000, version: 0 });
        assert!(ask(&query, Transport::Udp).3, "a packet of this size would be split");
    }

    #[test]
    fn what_is_no_query_gets_no_answer_and_a_broken_one_is_refused() {
        let to = |bytes: &[u8]| answer(&names(), bytes, Transport::Udp);
        assert_eq!(to(b""), None);
        assert_eq!(to(&Packet::new_reply(7).build_bytes_vec().unwrap()), None);
        let rcode = |bytes: &[u8]| header_buffer::rcode(&to(bytes).unwrap()).unwrap();
        let whole = query("web.a.svc.cluster.local", TYPE::A).build_bytes_vec().unwrap();
        for length in 12..whole.len() {
            assert_eq!(rcode(&whole[..length]), RCODE::FormatError, "{length} bytes");
        }
        assert_eq!(rcode(&Packet::new_query(7).build_bytes_vec().unwrap()), RCODE::FormatError);
        let mut update = query("web.a.svc.cluster.local", TYPE::A);
        *update.opcode_mut() = OPCODE::Update;
        assert_eq!(rcode(&update.build_bytes_vec().unwrap()), RCODE::NotImplemented);
    }
}
