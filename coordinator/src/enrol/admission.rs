//! May this machine have this name? A pure rule over what is known of the others.
//!
//! A name or mark in use by a *living* other machine is refused, with that node named. A machine that was rebuilt is let
//! back in and takes the old record's place: it is the same hardware, or the old node has gone silent. What a *pool*
//! token shows is no evidence (it lies in userdata): where taking a place needs trust, it only asks.

use std::time::Duration;

use outrider_protocol::{Identity, Timestamp, TokenKind};

use super::Enrolment;
use super::clones::{Sameness, hardware, shared_mark};

/// Who asks.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The uid it would have.
    pub uid: &'a str,
    /// The name it asks for.
    pub name: &'a str,
    /// SHA-256 of its public key.
    pub key_hash: &'a str,
    /// Its marks.
    pub identity: &'a Identity,
    /// What it shows.
    pub token: &'a TokenKind,
    /// What lets it in without an operator, where its token is a pool's.
    pub admits: Admits,
}

/// What lets a pool token's machine in without an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admits {
    /// The token's pattern and rate have room.
    Rate,
    /// Harvester shows it and nobody is it.
    Seen,
    /// Harvester was asked and does not vouch for it, for the reason; the rate has no room either.
    NotSeen(String),
    /// The rate has no room.
    Nothing,
}

/// A node that shares its uid, name, key or a mark.
#[derive(Clone, Debug)]
pub struct Holder<'a> {
    /// Uid.
    pub uid: &'a str,
    /// Name.
    pub name: &'a str,
    /// SHA-256 of its public key.
    pub key_hash: &'a str,
    /// Its marks.
    pub identity: &'a Identity,
    /// Where it stands.
    pub enrolment: Enrolment,
    /// When it was last heard (or enrolled, or might have been heard before we started).
    pub heard: Timestamp,
    /// How long it may be silent and still live.
    pub silent_after: Duration,
}

impl Holder<'_> {
    fn lives(&self, now: Timestamp) -> bool {
        self.enrolment == Enrolment::Approved && now.since(self.heard) < self.silent_after
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is that node already (a repeat of its enrolment, perhaps under a new name): a certificate anew.
    Reissue {
        /// Whose place it takes under its new name.
        supersedes: Vec<String>,
    },
    /// A node from now on, in the place of these uids.
    Admit {
        /// Whose place it takes.
        supersedes: Vec<String>,
    },
    /// An operator decides.
    Pend {
        /// What the operator should know.
        why: String,
        /// Pending requests this one replaces.
        supersedes: Vec<String>,
    },
    /// Another machine has what it asks for.
    Refuse {
        /// Which mark: `the name "…"`, `the machine-id`.
        what: String,
        /// Uid of the node that has it.
        holder: String,
    },
    /// The key belonged to a node that was revoked or superseded.
    Barred {
        /// Uid of that node.
        holder: String,
    },
}

/// Decides over a candidate; `holders` are all nodes that share its uid, name, key or a mark with it.
pub fn decide(candidate: &Candidate<'_>, holders: &[Holder<'_>], now: Timestamp) -> Admission {
    let pool = *candidate.token != TokenKind::Once;
    let mut supersedes = Vec::new();
    let mut doubts: Option<String> = None;
    let mut known = None;
    for holder in holders {
        let refuse = |what: String| Admission::Refuse { what, holder: holder.uid.to_owned() };
        let same_key = holder.key_hash == candidate.key_hash;
        if matches!(holder.enrolment, Enrolment::Revoked | Enrolment::Superseded) {
            if same_key {
                return Admission::Barred { holder: holder.uid.to_owned() };
            }
            let again = holder.name == candidate.name
                || hardware(candidate.identity, holder.identity) == Sameness::Same;
            if pool && again && holder.enrolment == Enrolment::Revoked {
                doubts = Some(format!("node {} of this name or machine was revoked", holder.name));
            }
            continue;
        }
        let same_name = holder.name == candidate.name;
        let lives = holder.lives(now);
        if holder.uid == candidate.uid {
            // A disk copied with its key asks under its own name, while the original lives.
            if !same_name && lives && holder.identity.boot_id != candidate.identity.boot_id {
                return refuse("the private key".to_owned());
            }
            known = Some(holder.enrolment);
            continue;
        }
        let machine = hardware(candidate.identity, holder.identity);
        if same_name {
            let rebuilt = machine == Sameness::Same;
            if holder.enrolment == Enrolment::Pending {
                if pool && !rebuilt && !same_key {
                    return refuse(format!(
                        "the name {:?}, asked for and waiting for approval,",
                        candidate.name
                    ));
                }
                supersedes.push(holder.uid.to_owned());
            } else if lives && !rebuilt && !same_key {
                return refuse(format!("the name {:?}", candidate.name));
            } else {
                supersedes.push(holder.uid.to_owned());
                // Marks can be made up: with a token from userdata they take no place without an operator, unless the
                // node is gone anyway.
                if pool && (lives || !rebuilt) {
                    let word = if lives { "living" } else { "silent" };
                    doubts = Some(format!("it would take the place of the {word} node {}", holder.name));
                }
            }
            continue;
        }
        let mark =
            if same_key { Some("private key") } else { shared_mark(candidate.identity, holder.identity) };
        let Some(mark) = mark else { continue };
        if lives {
            return refuse(format!("the {mark}"));
        }
        // The same machine under a new name. Merely the same template (other hardware) leaves the silent one alone.
        if holder.enrolment == Enrolment::Approved && (machine == Sameness::Same || same_key) {
            supersedes.push(holder.uid.to_owned());
            if pool {
                doubts = Some(format!("it would take the place of the silent node {}", holder.name));
            }
        }
    }
    if known == Some(Enrolment::Approved) {
        return Admission::Reissue { supersedes };
    }
    match &candidate.admits {
        _ if !pool && known.is_none() => {}
        // What was missing when it asked may be there by now.
        Admits::Seen => {}
        Admits::NotSeen(why) => {
            doubts.get_or_insert_with(|| why.clone());
        }
        _ if known == Some(Enrolment::Pending) => {
            doubts.get_or_insert_with(|| "it asked before and has not been approved".to_owned());
        }
        Admits::Rate => {}
        Admits::Nothing => {
            doubts.get_or_insert_with(|| "the token's rate admits no more nodes this hour".to_owned());
        }
    }
    match doubts {
        None => Admission::Admit { supersedes },
        Some(why) => Admission::Pend { why, supersedes },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_000_000;

    fn identity(machine: &str, uuid: &str, boot: &str) -> Identity {
        let text = |s: &str| s.to_owned();
        let macs = if uuid.is_empty() { vec![] } else { vec![format!("mac-{uuid}")] };
        Identity {
            machine_id_hash: text(machine),
            system_uuid: text(uuid),
            macs,
            boot_id: text(boot),
            ..Identity::default()
        }
    }

    struct Case {
        what: &'static str,
        token: TokenKind,
        /// Name, key, identity of who asks.
        asks: (&'static str, &'static str, Identity),
        /// Uid, name, key, identity, enrolment, seconds of silence of each holder.
        holders: Vec<(&'static str, &'static str, &'static str, Identity, Enrolment, i64)>,
        expected: &'static str,
    }

    /// A new machine `n` with the token of a pool.
    fn of_pool(identity: &Identity, admits: Admits) -> Candidate<'_> {
        Candidate { uid: "new", name: "n", key_hash: "k", identity, token: &TokenKind::Pool, admits }
    }

    fn outcome(case: &Case) -> String {
        let now = Timestamp::from_seconds(NOW);
        let holders: Vec<Holder<'_>> = case
            .holders
            .iter()
            .map(|(uid, name, key_hash, identity, enrolment, silence)| Holder {
                uid,
                name,
                key_hash,
                identity,
                enrolment: *enrolment,
                heard: Timestamp::from_seconds(NOW - silence),
                silent_after: Duration::from_secs(90),
            })
            .collect();
        let (name, key_hash, identity) = &case.asks;
        let candidate =
            Candidate { uid: "new", name, key_hash, identity, token: &case.token, admits: Admits::Rate };
        match decide(&candidate, &holders, now) {
            Admission::Reissue { supersedes } => {
                format!("reissue {}", supersedes.join(",")).trim_end().into()
            }
            Admission::Admit { supersedes } => format!("admit {}", supersedes.join(",")),
            Admission::Pend { supersedes, .. } => format!("pend {}", supersedes.join(",")),
            Admission::Refuse { what, holder } => format!("refuse {holder} {what}"),
            Admission::Barred { holder } => format!("barred {holder}"),
        }
    }

    #[test]
    fn who_is_let_in() {
        use Enrolment::{Approved, Pending, Revoked, Superseded};
        use TokenKind::{Once, Pool};
        let a = || identity("ma", "ua", "boot1");
        let rebuilt = || identity("ma2", "ua", "boot2");
        let b = || identity("mb", "ub", "boot3");
        let template = || identity("ma", "ub", "boot3");
        let none = Identity::default;
        let case = |what, token, asks, holders, expected| Case { what, token, asks, holders, expected };
        let cases = [
            case("a new machine", Once, ("n", "k", a()), vec![], "admit "),
            case("a new machine of a pool", Pool, ("n", "k", a()), vec![], "admit "),
            case("a repeat", Once, ("n", "k", a()), vec![("new", "n", "k", a(), Approved, 0)], "reissue"),
            case(
                "a repeat while pending",
                Pool,
                ("n", "k", a()),
                vec![("new", "n", "k", a(), Pending, 0)],
                "pend ",
            ),
            case(
                "a once token does not pend",
                Once,
                ("n", "k2", a()),
                vec![("p", "n", "k", b(), Pending, 0)],
                "admit p",
            ),
            case(
                "a name another living machine has",
                Once,
                ("n", "k2", b()),
                vec![("x", "n", "k", a(), Approved, 10)],
                "refuse x the name \"n\"",
            ),
            case(
                "the same without any marks",
                Once,
                ("n", "k2", none()),
                vec![("x", "n", "k", none(), Approved, 10)],
                "refuse x the name \"n\"",
            ),
            case(
                "a name whose node is silent",
                Once,
                ("n", "k2", b()),
                vec![("x", "n", "k", a(), Approved, 90)],
                "admit x",
            ),
            case(
                "the machine rebuilt at once",
                Once,
                ("n", "k2", rebuilt()),
                vec![("x", "n", "k", a(), Approved, 1)],
                "admit x",
            ),
            case(
                "the machine with its state wiped",
                Once,
                ("n", "k2", a()),
                vec![("x", "n", "k", a(), Approved, 1)],
                "admit x",
            ),
            case(
                "a pool takes no living node's place",
                Pool,
                ("n", "k2", rebuilt()),
                vec![("x", "n", "k", a(), Approved, 1)],
                "pend x",
            ),
            case(
                "a pool takes no other machine's place",
                Pool,
                ("n", "k2", b()),
                vec![("x", "n", "k", a(), Approved, 900)],
                "pend x",
            ),
            case(
                "a pool's machine rebuilt",
                Pool,
                ("n", "k2", rebuilt()),
                vec![("x", "n", "k", a(), Approved, 900)],
                "admit x",
            ),
            case(
                "a pool asks for a name asked for",
                Pool,
                ("n", "k2", b()),
                vec![("x", "n", "k", a(), Pending, 0)],
                "refuse x the name \"n\", asked for and waiting for approval,",
            ),
            case(
                "a living template twin",
                Once,
                ("n2", "k2", template()),
                vec![("x", "n", "k", a(), Approved, 1)],
                "refuse x the machine-id",
            ),
            case(
                "a silent template sibling",
                Once,
                ("n2", "k2", template()),
                vec![("x", "n", "k", a(), Approved, 900)],
                "admit ",
            ),
            case(
                "a living machine under a new name",
                Once,
                ("n2", "k2", a()),
                vec![("x", "n", "k", a(), Approved, 1)],
                "refuse x the machine-id",
            ),
            case(
                "a machine under a new name",
                Once,
                ("n2", "k2", a()),
                vec![("x", "n", "k", a(), Approved, 900)],
                "admit x",
            ),
            case(
                "a copied disk that kept its key",
                Once,
                ("n2", "k", b()),
                vec![("new", "n", "k", a(), Approved, 1)],
                "refuse new the private key",
            ),
            case(
                "a copied disk with another token",
                Once,
                ("n2", "k", b()),
                vec![("x", "n", "k", a(), Approved, 1)],
                "refuse x the private key",
            ),
            case(
                "a renamed machine repeats",
                Once,
                ("n2", "k", a()),
                vec![("new", "n", "k", a(), Approved, 1)],
                "reissue",
            ),
            case(
                "the key of a revoked node",
                Once,
                ("n", "k", a()),
                vec![("x", "n", "k", a(), Revoked, 1)],
                "barred x",
            ),
            case(
                "the key of a superseded node",
                Once,
                ("n", "k", a()),
                vec![("new", "n", "k", a(), Superseded, 1)],
                "barred new",
            ),
            case(
                "a pool on a revoked node's machine",
                Pool,
                ("n", "k2", a()),
                vec![("x", "n", "k", a(), Revoked, 1)],
                "pend ",
            ),
            case(
                "a renamed machine takes a silent node's name",
                Once,
                ("n2", "k", a()),
                vec![("new", "n", "k", a(), Approved, 1), ("x", "n2", "k2", b(), Approved, 900)],
                "reissue x",
            ),
            case(
                "a new key on a revoked node's machine",
                Once,
                ("n", "k2", a()),
                vec![("x", "n", "k", a(), Revoked, 1)],
                "admit ",
            ),
        ];
        for case in cases {
            assert_eq!(outcome(&case), case.expected, "{}", case.what);
        }
    }

    #[test]
    fn who_is_seen_takes_no_place_and_one_that_waited_is_let_in() {
        let (me, other) = (identity("m", "u", "b"), identity("m2", "u2", "b2"));
        let of = |admits: Admits, holder: Option<(&str, &Identity, Enrolment, i64)>| {
            let candidate = of_pool(&me, admits);
            let holders = holder.map(|(uid, identity, enrolment, silence)| Holder {
                uid,
                name: "n",
                key_hash: if uid == "new" { "k" } else { "k2" },
                identity,
                enrolment,
                heard: Timestamp::from_seconds(NOW - silence),
                silent_after: Duration::from_secs(90),
            });
            decide(&candidate, holders.as_slice(), Timestamp::from_seconds(NOW))
        };
        let waits = |admission: &Admission| matches!(admission, Admission::Pend { .. });
        let not_seen = || Admits::NotSeen("nobody sees it".to_owned());
        assert!(matches!(of(Admits::Seen, None), Admission::Admit { .. }));
        assert!(matches!(of(not_seen(), None), Admission::Pend { why, .. } if why == "nobody sees it"));
        let pending = Some(("new", &me, Enrolment::Pending, 0));
        assert!(matches!(of(Admits::Seen, pending), Admission::Admit { .. }));
        assert!(waits(&of(not_seen(), pending)) && waits(&of(Admits::Rate, pending)));
        // Taking the place of another machine of its name, or of a revoked one, is an operator's to allow.
        assert!(matches!(
            of(Admits::Seen, Some(("x", &other, Enrolment::Approved, 1))),
            Admission::Refuse { .. }
        ));
        assert!(waits(&of(Admits::Seen, Some(("x", &other, Enrolment::Approved, 900)))));
        assert!(waits(&of(Admits::Seen, Some(("x", &me, Enrolment::Approved, 1)))));
        assert!(waits(&of(Admits::Seen, Some(("x", &me, Enrolment::Revoked, 1)))));
    }

    #[test]
    fn a_spent_rate_makes_a_request_and_nothing_else() {
        let me = identity("m", "u", "b");
        let candidate = of_pool(&me, Admits::Nothing);
        assert!(matches!(decide(&candidate, &[], Timestamp::from_seconds(NOW)), Admission::Pend { .. }));
    }
}
