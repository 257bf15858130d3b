//! Enrolment tokens as they are stored, under `tokens/<id>`: never with their secret.

use std::time::Duration;

use outrider_protocol::{Timestamp, TokenKind, TokenRequest, TokenView, TypeMeta};
use serde::{Deserialize, Serialize};

use super::registrar::{Registrar, decode, encode};
use super::{EnrolError, TokenText};
use crate::store::{self, Expect};

/// Life of a *once* token for which none is asked.
const DEFAULT_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Longest life that may be asked for: ten years.
const LONGEST_LIFE: u64 = 10 * 365 * 24 * 3600;
/// Most nodes one token may admit.
const MOST_USES: u32 = 100_000;
/// Longest name pattern.
const LONGEST_PATTERN: usize = 253;

/// An enrolment token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRecord {
    /// Public part.
    pub id: String,
    /// Once or pool.
    pub kind: TokenKind,
    /// SHA-256 of the secret, hex.
    pub secret_hash: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; absent: never.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// Nodes it may admit; absent: any number.
    #[serde(default)]
    pub uses: Option<u32>,
    /// Names it is for, as a glob; empty: any.
    #[serde(default)]
    pub name_pattern: String,
    /// Nodes an hour that a pool token admits without an operator.
    #[serde(default)]
    pub rate_per_hour: u32,
    /// Whether a machine that Harvester shows, and that no living node is, is admitted without an operator.
    #[serde(default)]
    pub admit_seen_vm: bool,
    /// Cluster its nodes are shown under; empty: what they say.
    #[serde(default)]
    pub cluster: String,
    /// When an operator revoked it.
    #[serde(default)]
    pub revoked_at: Option<Timestamp>,
}

impl TokenRecord {
    /// Where it lives in the store.
    pub fn key(id: &str) -> String {
        format!("tokens/{id}")
    }

    /// A record for `text` as asked for, or what is wrong with the request.
    pub(super) fn from_request(
        request: &TokenRequest,
        text: &TokenText,
        now: Timestamp,
    ) -> Result<Self, EnrolError> {
        let bad = |field, problem: String| Err(EnrolError::BadTokenRequest { field, problem });
        let once = match request.token_kind {
            TokenKind::Once => true,
            TokenKind::Pool => false,
            TokenKind::Other(ref word) => {
                return bad("tokenKind", format!("{word:?} is unknown; once or pool"));
            }
        };
        match request.ttl_seconds {
            Some(0) => {
                return bad("ttlSeconds", "0 seconds is no life; leave it out for the default".to_owned());
            }
            Some(n) if n > LONGEST_LIFE => {
                return bad("ttlSeconds", format!("{n} is more than ten years ({LONGEST_LIFE})"));
            }
            _ => {}
        }
        match request.uses {
            Some(0) => {
                return bad("uses", "0 uses admit nobody; leave it out for the default".to_owned());
            }
            Some(n) if n > MOST_USES => {
                return bad("uses", format!("{n} is more than {MOST_USES}"));
            }
            _ => {}
        }
        if request.name_pattern.len() > LONGEST_PATTERN {
            return bad("namePattern", format!("longer than {LONGEST_PATTERN} characters"));
        }
        if let Some(problem) = pattern_problem(&request.name_pattern) {
            return bad("namePattern", problem);
        }
        if once && request.rate_per_hour != 0 {
            return bad("ratePerHour", "only a pool token has a rate; a once token has uses".to_owned());
        }
        if !once && request.rate_per_hour != 0 && request.name_pattern.is_empty() {
            return bad("namePattern", "a rate admits by name: give a pattern such as pool1-*".to_owned());
        }
        if request.admit_seen_vm && once {
            return bad(
                "admitSeenVm",
                "only a pool token asks; a once token admits whoever holds it".to_owned(),
            );
        }
        if request.admit_seen_vm && request.name_pattern.is_empty() {
            let problem = "machines are admitted by name as well: give a pattern such as pool1-*".to_owned();
            return bad("namePattern", problem);
        }
        let life = request.ttl_seconds.map(Duration::from_secs).or(once.then_some(DEFAULT_LIFE));
        Ok(Self {
            id: text.id.clone(),
            kind: request.token_kind.clone(),
            secret_hash: text.secret_hash(),
            created_at: now,
            expires_at: life.map(|life| now.after(life)),
            uses: request.uses.or(once.then_some(1)),
            name_pattern: request.name_pattern.clone(),
            rate_per_hour: request.rate_per_hour,
            admit_seen_vm: request.admit_seen_vm,
            cluster: request.cluster.clone(),
            revoked_at: None,
        })
    }

    /// The token without its secret; `used`: nodes it admitted.
    pub(super) fn view(&self, used: u32) -> TokenView {
        TokenView {
            meta: TypeMeta::new("Token"),
            id: self.id.clone(),
            token_kind: self.kind.clone(),
            created_at: self.created_at,
            expires_at: self.expires_at,
            uses_left: self.uses.map(|uses| uses.saturating_sub(used)),
            name_pattern: self.name_pattern.clone(),
            rate_per_hour: self.rate_per_hour,
            admit_seen_vm: self.admit_seen_vm,
            cluster: self.cluster.clone(),
            revoked: self.revoked_at.is_some(),
            token: String::new(),
        }
    }

    /// Whether it opens anything: for whoever holds the whole token, so the secret is compared first.
    pub(super) fn check(&self, text: &TokenText) -> Result<(), EnrolError> {
        let id = || self.id.clone();
        if !text.matches(&self.secret_hash) {
            return Err(EnrolError::TokenUnknown { id: id() });
        }
        if self.revoked_at.is_some() {
            return Err(EnrolError::TokenRevoked { id: id() });
        }
        Ok(())
    }

    /// Whether it admits one more node at `now`, `used` having been admitted.
    pub(super) fn check_new(&self, used: u32, now: Timestamp) -> Result<(), EnrolError> {
        if let Some(since) = self.expires_at.filter(|end| now >= *end) {
            return Err(EnrolError::TokenExpired { id: self.id.clone(), since });
        }
        match self.uses {
            Some(uses) if used >= uses => Err(EnrolError::TokenUsedUp { id: self.id.clone(), uses }),
            _ => Ok(()),
        }
    }

    /// Whether it is for nodes of this name.
    pub(super) fn check_name(&self, name: &str) -> Result<(), EnrolError> {
        if self.name_pattern.is_empty() || glob_matches(&self.name_pattern, name) {
            return Ok(());
        }
        Err(EnrolError::NameNotAllowed {
            id: self.id.clone(),
            pattern: self.name_pattern.clone(),
            name: name.to_owned(),
        })
    }
}

/// Whether `name` matches `pattern`, where `*` stands for any characters and `?` for one. Linear in both but for a
/// constant number of steps back, so no pattern can stall it.
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last `*` stands, and how much of the name it covers so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star.as_mut() {
                Some((at, covered)) => {
                    *covered += 1;
                    p = *at + 1;
                    n = *covered;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Why `pattern` can match no node's name, if that is so: nobody is to find out from a machine that never joins.
fn pattern_problem(pattern: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*' | '?');
    if let Some(odd) = pattern.chars().find(|c| !fits(*c)) {
        return Some(format!(
            "{odd:?} stands in no node's name, so that nothing would match; letters, digits, '-', '_' and '.' do, '*' \
             stands for any of them and '?' for one"
        ));
    }
    let first = pattern.chars().next().filter(|c| matches!(c, '-' | '_' | '.'));
    first.map(|c| {
        format!("no node's name begins with {c:?}, so that nothing would match; a letter or a digit does")
    })
}

/// What is wrong with `name` as a node's name, if anything: it appears in keys, URLs, logs and tables.
pub(super) fn name_problem(name: &str) -> Option<&'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > 253 {
        Some("it is longer than 253 characters")
    } else if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Some("it must begin with a letter or a digit")
    } else if !name.chars().all(fits) {
        Some("letters, digits, '-', '_' and '.' may stand in it")
    } else {
        None
    }
}

impl Registrar {
    /// Makes a token; the answer alone carries its secret.
    pub async fn create_token(
        &self,
        request: &TokenRequest,
        now: Timestamp,
    ) -> Result<TokenView, EnrolError> {
        let text = TokenText::generate(self.authority.pin());
        let record = TokenRecord::from_request(request, &text, now)?;
        self.store.put(&TokenRecord::key(&record.id), encode(&record)?, Expect::Absent).await?;
        log::info!("token {} of kind {} was made", record.id, record.kind);
        Ok(TokenView { token: text.reveal(), ..record.view(0) })
    }

    /// Every token, the newest first, without secrets.
    pub async fn tokens(&self) -> Result<Vec<TokenView>, EnrolError> {
        let records = self.token_records().await?;
        let index = self.index();
        Ok(records.iter().map(|record| record.view(index.uses(&record.id))).collect())
    }

    pub(super) async fn token_records(&self) -> Result<Vec<TokenRecord>, EnrolError> {
        let (entries, _) = store::list_all(&*self.store, "tokens/").await?;
        let mut records: Vec<TokenRecord> = Vec::with_capacity(entries.len());
        for entry in &entries {
            match serde_json::from_slice(&entry.value) {
                Ok(record) => records.push(record),
                Err(e) => log::error!("{} cannot be read and opens nothing: {e}", entry.key),
            }
        }
        records.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        Ok(records)
    }

    pub(super) async fn token(&self, id: &str) -> Result<(TokenRecord, u64), EnrolError> {
        let entry = self.store.get(&TokenRecord::key(id)).await?;
        let entry = entry.ok_or_else(|| EnrolError::TokenUnknown { id: id.to_owned() })?;
        Ok((decode(&entry)?, entry.revision))
    }

    /// Whether `token` would still let a node in at `now`; nothing of it is used up.
    pub async fn check_enrolment(&self, token: &str, now: Timestamp) -> Result<(), EnrolError> {
        let text: TokenText = token.parse()?;
        if !self.authority.trusts(&text.pin) {
            return Err(EnrolError::CaMismatch { pinned: text.pin, ours: self.authority.pin() });
        }
        let (record, _) = self.token(&text.id).await?;
        record.check(&text)?;
        let used = self.index().uses(&record.id);
        record.check_new(used, now)
    }

    /// Revokes a token; the nodes it admitted stay.
    pub async fn revoke_token(&self, id: &str, now: Timestamp) -> Result<TokenView, EnrolError> {
        let (mut record, revision) = self.token(id).await?;
        if record.revoked_at.is_none() {
            record.revoked_at = Some(now);
            let expect = Expect::Revision(revision);
            self.store.put(&TokenRecord::key(id), encode(&record)?, expect).await?;
            log::info!("token {id} was revoked");
        }
        Ok(record.view(self.index().uses(id)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn globs() {
        let table = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("pool1-*", "pool1-x7k2p", true),
            ("pool1-*", "pool1-", true),
            ("pool1-*", "pool10-a", false),
            ("*-server-?", "rke2-server-1", true),
            ("*-server-?", "rke2-server-10", false),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("*é?", "caféx", true),
        ];
        for (pattern, name, expected) in table {
            assert_eq!(glob_matches(pattern, name), expected, "{pattern:?} {name:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_does_not_stall() {
        assert!(!glob_matches(&"*a".repeat(120), &"a".repeat(119)));
        assert!(!glob_matches(&("*a".repeat(100) + "b"), &"a".repeat(253)));
    }

    proptest! {
        #[test]
        fn a_pattern_of_stars_and_the_name_itself_match(name in "[a-z.]{0,20}", at in 0usize..20) {
            let at = at.min(name.len());
            let pattern = format!("{}*{}", &name[..at], &name[at..]);
            prop_assert!(glob_matches(&pattern, &name));
        }
    }

    #[test]
    fn requests_that_make_no_sense_name_their_field() {
        let text = TokenText::generate(crate::pki::Pin::of(b"root"));
        let base = TokenRequest {
            meta: TypeMeta::new("TokenRequest"),
            token_kind: TokenKind::Once,
            ttl_seconds: None,
            uses: None,
            name_pattern: String::new(),
            rate_per_hour: 0,
            admit_seen_vm: false,
            cluster: String::new(),
        };
        let cases = [
            (TokenRequest { token_kind: "forever".into(), ..base.clone() }, "tokenKind"),
            (TokenRequest { ttl_seconds: Some(0), ..base.clone() }, "ttlSeconds"),
            (TokenRequest { ttl_seconds: Some(u64::MAX), ..base.clone() }, "ttlSeconds"),
            (TokenRequest { uses: Some(0), ..base.clone() }, "uses"),
            (TokenRequest { rate_per_hour: 3, ..base.clone() }, "ratePerHour"),
            (
                TokenRequest { name_pattern: "***[".to_owned(), ..base.clone() },
                "namePattern: '[' stands in no",
            ),
            (
                TokenRequest { name_pattern: "pool 1".to_owned(), ..base.clone() },
                "namePattern: ' ' stands in no",
            ),
            (
                TokenRequest { name_pattern: "-a*".to_owned(), ..base.clone() },
                "namePattern: no node's name begins",
            ),
            (TokenRequest { admit_seen_vm: true, ..base.clone() }, "admitSeenVm"),
            (
                TokenRequest { token_kind: TokenKind::Pool, admit_seen_vm: true, ..base.clone() },
                "namePattern",
            ),
            (TokenRequest { token_kind: TokenKind::Pool, rate_per_hour: 3, ..base.clone() }, "namePattern"),
        ];
        for (request, field) in cases {
            let error = TokenRecord::from_request(&request, &text, Timestamp::default()).unwrap_err();
            assert!(error.to_string().starts_with(field), "{error}");
        }
        let record = TokenRecord::from_request(&base, &text, Timestamp::default()).unwrap();
        assert_eq!((record.uses, record.expires_at), (Some(1), Some(Timestamp::from_seconds(86_400))));
        let pool = TokenRequest { token_kind: TokenKind::Pool, ..base };
        let record = TokenRecord::from_request(&pool, &text, Timestamp::default()).unwrap();
        assert_eq!((record.uses, record.expires_at), (None, None));
    }
}
