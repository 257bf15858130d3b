//! One question and its answer as bytes (RFC 1035), by the crate `domain`.

use std::net::IpAddr;

use domain::base::iana::Rcode;
use domain::base::{Message, MessageBuilder, Name, ParsedName, Rtype};
use domain::rdata::{A, Aaaa, Cname};
use outrider_protocol::{DnsAnswer, DnsCode};

/// Most addresses of one answer.
const MAX_ADDRESSES: usize = 32;
/// Longest chain of aliases; resolvers give up at about as many.
const MAX_ALIASES: usize = 16;
/// Most records that are looked at: more than fit into what Rancher's names ever need.
const MAX_RECORDS: usize = 512;

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A.
    V4,
    /// AAAA.
    V6,
}

impl Family {
    fn rtype(self) -> Rtype {
        match self {
            Self::V4 => Rtype::A,
            Self::V6 => Rtype::AAAA,
        }
    }

    /// The record's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "A",
            Self::V6 => "AAAA",
        }
    }
}

/// A question for `name` (ASCII, absolute, with or without a final dot) under the number `id`. Without EDNS, as glibc and
/// the Go resolver's plain way ask: an answer beyond 512 bytes comes cut.
pub fn question(id: u16, name: &str, family: Family) -> Result<Vec<u8>, String> {
    let parsed: Name<Vec<u8>> = name.parse().map_err(|e| format!("{name:?} is no DNS name: {e}"))?;
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(id);
    builder.header_mut().set_rd(true);
    let mut builder = builder.question();
    builder.push((&parsed, family.rtype())).map_err(|e| format!("{name:?}: {e}"))?;
    Ok(builder.finish())
}

/// What was made of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// The answer to our question.
    Answer(Box<DnsAnswer>),
    /// Something else: another number, another question, no answer at all. Whoever sent it, we go on waiting.
    Foreign,
    /// It has our number and our question and cannot be read.
    Broken(String),
}

/// Reads `bytes` as the answer to the question for `name` under `id`.
pub fn answer(bytes: &[u8], id: u16, name: &str, family: Family) -> Read {
    let Ok(message) = Message::from_slice(bytes) else { return Read::Foreign };
    let header = message.header();
    if header.id() != id || !header.qr() {
        return Read::Foreign;
    }
    let wanted = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match message.first_question() {
        Some(asked) if text(asked.qname()) == wanted && asked.qtype() == family.rtype() => {}
        // A server that cannot read a question may leave it out.
        None if header.rcode() == Rcode::FORMERR => {}
        _ => return Read::Foreign,
    }
    let mut found = DnsAnswer {
        code: code(header.rcode()),
        addresses: Vec::new(),
        aliases: Vec::new(),
        alias_loop: false,
        ttl: None,
        recursive: header.ra(),
        truncated: header.tc(),
        tcp_failure: String::new(),
        ms: 0,
    };
    match records(message, family) {
        Ok(records) => follow(&mut found, wanted, &records),
        // A cut answer may end in the middle of a record.
        Err(_) if header.tc() => {}
        Err(why) => return Read::Broken(why),
    }
    Read::Answer(Box::new(found))
}

/// One record of use: whose, for how long, and what.
struct Record {
    owner: String,
    ttl: u32,
    data: Data,
}

enum Data {
    Address(IpAddr),
    Alias(String),
}

fn records(message: &Message<[u8]>, family: Family) -> Result<Vec<Record>, String> {
    let broken = |e: domain::base::wire::ParseError| format!("the answer cannot be read: {e}");
    let mut found = Vec::new();
    for record in message.answer().map_err(broken)?.take(MAX_RECORDS) {
        let record = record.map_err(broken)?;
        let (owner, ttl) = (text(record.owner()), record.ttl().as_secs());
        let data = if record.rtype() == Rtype::CNAME {
            record
                .to_record::<Cname<ParsedName<&[u8]>>>()
                .map_err(broken)?
                .map(|r| Data::Alias(text(r.data().cname())))
        } else if record.rtype() != family.rtype() {
            None
        } else if family == Family::V4 {
            record.to_record::<A>().map_err(broken)?.map(|r| Data::Address(r.data().addr().into()))
        } else {
            record.to_record::<Aaaa>().map_err(broken)?.map(|r| Data::Address(r.data().addr().into()))
        };
        found.extend(data.map(|data| Record { owner, ttl, data }));
    }
    Ok(found)
}

/// Follows the aliases from `name` to the addresses at their end.
fn follow(found: &mut DnsAnswer, name: String, records: &[Record]) {
    let mut at = name;
    let mut seen = vec![at.clone()];
    loop {
        let alias = records.iter().find_map(|r| match &r.data {
            Data::Alias(target) if r.owner == at => Some((target, r.ttl)),
            _ => None,
        });
        let Some((target, ttl)) = alias else { break };
        found.ttl = Some(found.ttl.map_or(ttl, |least| least.min(ttl)));
        found.aliases.push(target.clone());
        if seen.contains(target) || found.aliases.len() >= MAX_ALIASES {
            found.alias_loop = true;
            return;
        }
        at.clone_from(target);
        seen.push(at.clone());
    }
    for record in records.iter().filter(|r| r.owner == at) {
        if let Data::Address(ip) = record.data {
            found.ttl = Some(found.ttl.map_or(record.ttl, |least| least.min(record.ttl)));
            let ip = ip.to_string();
            if found.addresses.len() < MAX_ADDRESSES && !found.addresses.contains(&ip) {
                found.addresses.push(ip);
            }
        }
    }
    found.addresses.sort();
}

fn code(code: Rcode) -> DnsCode {
    match code {
        Rcode::NOERROR => DnsCode::NoError,
        Rcode::FORMERR => DnsCode::FormErr,
        Rcode::SERVFAIL => DnsCode::ServFail,
        Rcode::NXDOMAIN => DnsCode::NxDomain,
        Rcode::NOTIMP => DnsCode::NotImp,
        Rcode::REFUSED => DnsCode::Refused,
        other => DnsCode::from(format!("code {}", u8::from(other)).as_str()),
    }
}

/// A name in lower case, without its final dot, of printable characters only.
fn text(name: impl std::fmt::Display) -> String {
    name.to_string().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use domain::base::Ttl;
    use domain::base::iana::Class;
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name<Vec<u8>> {
        text.parse().unwrap()
    }

    /// An answer under 7 to a question for the A records of `a.example`.
    fn built(code: Rcode, aliases: &[(&str, &str)], addresses: &[(&str, [u8; 4])]) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        builder.header_mut().set_id(7);
        builder.header_mut().set_qr(true);
        builder.header_mut().set_ra(true);
        builder.header_mut().set_rcode(code);
        let mut builder = builder.question();
        builder.push((&name("a.example"), Rtype::A)).unwrap();
        let mut builder = builder.answer();
        for (from, to) in aliases {
            let data = Cname::new(name(to));
            builder.push((name(from), Class::IN, Ttl::from_secs(300), data)).unwrap();
        }
        for (owner, ip) in addresses {
            let data = A::from_octets(ip[0], ip[1], ip[2], ip[3]);
            builder.push((name(owner), Class::IN, Ttl::from_secs(60), data)).unwrap();
        }
        builder.finish()
    }

    fn read(bytes: &[u8]) -> DnsAnswer {
        match answer(bytes, 7, "A.example.", Family::V4) {
            Read::Answer(answer) => *answer,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn aliases_are_followed_to_the_addresses_and_the_smallest_time_counts() {
        let bytes = built(
            Rcode::NOERROR,
            &[("a.example", "b.example"), ("b.example", "C.Example")],
            &[("c.example", [192, 0, 2, 2]), ("c.example", [192, 0, 2, 1]), ("z.example", [10, 0, 0, 1])],
        );
        let found = read(&bytes);
        assert_eq!(found.aliases, ["b.example", "c.example"]);
        assert_eq!(found.addresses, ["192.0.2.1", "192.0.2.2"]);
        assert_eq!((found.ttl, found.recursive, found.alias_loop), (Some(60), true, false));
    }

    #[test]
    fn aliases_in_a_circle_end() {
        let circle = built(Rcode::NOERROR, &[("a.example", "b.example"), ("b.example", "a.example")], &[]);
        assert!(read(&circle).alias_loop);
        let own = built(Rcode::NOERROR, &[("a.example", "a.example")], &[]);
        assert!(read(&own).alias_loop);
        let names: Vec<String> = (0..40).map(|i| format!("n{i}.example")).collect();
        let mut long = vec![("a.example", names[0].as_str())];
        long.extend(names.windows(2).map(|w| (w[0].as_str(), w[1].as_str())));
        let found = read(&built(Rcode::NOERROR, &long, &[]));
        assert!(found.alias_loop && found.aliases.len() == MAX_ALIASES);
    }

    #[test]
    fn codes_are_told_apart() {
        for (code, expected) in [
            (Rcode::NXDOMAIN, "NXDOMAIN"),
            (Rcode::SERVFAIL, "SERVFAIL"),
            (Rcode::REFUSED, "REFUSED"),
            (Rcode::NOTIMP, "NOTIMP"),
            (Rcode::YXDOMAIN, "code 6"),
        ] {
            assert_eq!(read(&built(code, &[], &[])).code.as_str(), expected);
        }
    }

    #[test]
    fn what_is_not_our_answer_is_waited_past() {
        let good = built(Rcode::NOERROR, &[], &[("a.example", [192, 0, 2, 1])]);
        for (id, asked, family) in
            [(8, "a.example", Family::V4), (7, "b.example", Family::V4), (7, "a.example", Family::V6)]
        {
            assert_eq!(answer(&good, id, asked, family), Read::Foreign);
        }
        let own_question = question(7, "a.example", Family::V4).unwrap();
        assert_eq!(answer(&own_question, 7, "a.example", Family::V4), Read::Foreign);
        assert_eq!(answer(b"\0", 7, "a.example", Family::V4), Read::Foreign);
        assert!(matches!(answer(&good[..good.len() - 2], 7, "a.example", Family::V4), Read::Broken(_)));
    }

    #[test]
    fn names_that_dns_does_not_have_are_refused() {
        for bad in ["a..b", &"x".repeat(64), &format!("{}x", "abcdefg.".repeat(40))] {
            assert!(question(1, bad, Family::V4).is_err(), "{bad}");
        }
        assert!(question(1, "xn--mnchen-3ya.example.", Family::V6).is_ok());
        assert!(question(1, "_srv.under_score", Family::V6).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..200, value: u8) {
            let _ = answer(&bytes, 7, "a.example", Family::V4);
            let mut good = built(Rcode::NOERROR, &[("a.example", "b.example")], &[("b.example", [1, 2, 3, 4])]);
            let at = at % good.len();
            good[at] = value;
            let _ = answer(&good, 7, "a.example", Family::V4);
            bytes.splice(0..0, good);
            if let Read::Answer(found) = answer(&bytes, 7, "a.example", Family::V4) {
                prop_assert!(found.aliases.len() <= MAX_ALIASES && found.addresses.len() <= MAX_ADDRESSES);
            }
        }
    }
}
