//! The textual form of tokens, for nodes and operators alike: `OR1<sha256 of CA>::<id>:<secret>`.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use outrider_protocol::hex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::pki::Pin;

/// Longest token that is read, in bytes.
pub const MAX_TOKEN_BYTES: usize = 512;

/// Random bytes of a secret: 192 bits.
const SECRET_BYTES: usize = 24;
/// A secret with fewer characters was cut short; ours have 32.
const MIN_SECRET_CHARS: usize = 22;

/// What is wrong with the text of a token. Never holds any part of the secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing there.
    #[error("the token is empty")]
    Empty,
    /// Longer than any token.
    #[error("the token has {0} bytes; at most {MAX_TOKEN_BYTES} are read")]
    TooLong(usize),
    /// No `OR1` in front.
    #[error("the token does not begin with OR1; expected OR1<sha256 of CA>::<id>:<secret>")]
    Prefix,
    /// No `::` after the hash.
    #[error("the token has no \"::\" after the CA hash; expected OR1<sha256 of CA>::<id>:<secret>")]
    NoSeparator,
    /// The part between `OR1` and `::` is no SHA-256.
    #[error("the token's CA part is wrong: {0}")]
    Pin(String),
    /// No `:` between id and secret.
    #[error("the token has no \":\" between id and secret; it was cut short")]
    NoSecret,
    /// The id has other characters than ours.
    #[error("the token's id must be 1 to 64 characters of a-z, 0-9 and \"-\"")]
    Id,
    /// The secret is too short or has other characters than ours.
    #[error("the token's secret was cut short or holds characters it cannot have; copy the whole token")]
    Secret,
}

/// A parsed token. Its debug print carries no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    /// The root it pins.
    pub pin: Pin,
    /// Its public part.
    pub id: String,
    secret: String,
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenText").field("pin", &self.pin).field("id", &self.id).finish_non_exhaustive()
    }
}

impl TokenText {
    /// A new token with a random id and secret.
    pub fn generate(pin: Pin) -> Self {
        let id: [u8; 5] = rand::random();
        let secret: [u8; SECRET_BYTES] = rand::random();
        Self { pin, id: hex(&id), secret: URL_SAFE_NO_PAD.encode(secret) }
    }

    /// The same id and secret with another pin: after a CA rotation.
    pub fn with_pin(&self, pin: Pin) -> Self {
        Self { pin, ..self.clone() }
    }

    /// SHA-256 of the secret, hex: all that is ever stored. The secret is random, so a fast hash is enough.
    pub fn secret_hash(&self) -> String {
        hex(&Sha256::digest(self.secret.as_bytes()))
    }

    /// Whether the secret is the one that was stored as `hash`, in constant time.
    pub fn matches(&self, hash: &str) -> bool {
        self.secret_hash().as_bytes().ct_eq(hash.as_bytes()).into()
    }

    /// The whole token; for its creator's eyes.
    pub fn reveal(&self) -> String {
        format!("OR1{}::{}:{}", self.pin, self.id, self.secret)
    }
}

impl FromStr for TokenText {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if text.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::TooLong(text.len()));
        }
        let rest = text.strip_prefix("OR1").ok_or(TokenError::Prefix)?;
        let (pin, rest) = rest.split_once("::").ok_or(TokenError::NoSeparator)?;
        let pin = pin.parse().map_err(TokenError::Pin)?;
        let (id, secret) = rest.split_once(':').ok_or(TokenError::NoSecret)?;
        let id_char = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if id.is_empty() || id.len() > 64 || !id.bytes().all(id_char) {
            return Err(TokenError::Id);
        }
        let secret_char = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if secret.len() < MIN_SECRET_CHARS || !secret.bytes().all(secret_char) {
            return Err(TokenError::Secret);
        }
        Ok(Self { pin, id: id.to_owned(), secret: secret.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_survives_its_text_and_shows_no_secret() {
        let token = TokenText::generate(Pin::of(b"root"));
        let text = token.reveal();
        let read: TokenText = format!("  {text}\n").parse().unwrap();
        assert_eq!(read, token);
        assert!(read.matches(&token.secret_hash()));
        assert!(!read.matches(&TokenText::generate(Pin::of(b"root")).secret_hash()));
        assert!(!read.matches(""));
        assert!(!format!("{token:?}").contains(&token.secret));
    }

    #[test]
    fn each_mistake_has_its_name() {
        let good = TokenText::generate(Pin::of(b"root")).reveal();
        let cut = |n: usize| good[..n].to_owned();
        let cases = [
            (String::new(), "is empty"),
            ("x".repeat(600), "600 bytes"),
            ("K10abc::server:x".to_owned(), "begin with OR1"),
            (cut(3), "no \"::\""),
            (cut(40), "no \"::\""),
            (good.replacen("OR1", "OR1f", 1), "64 hex digits"),
            (format!("OR1{}::id:{}", "g".repeat(64), "s".repeat(32)), "character 1 of this is 'g'"),
            (cut(75), "no \":\""),
            (format!("OR1{}::Id!:{}", "a".repeat(64), "s".repeat(32)), "id must be"),
            (format!("OR1{}:::{}", "a".repeat(64), "s".repeat(32)), "id must be"),
            (cut(good.len() - 20), "cut short"),
            (good.clone() + " more", "cut short or holds"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<TokenText>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?} gives {error:?}, not {expected:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_never_repeats_a_secret(text in ".{0,600}") {
            let _ = text.parse::<TokenText>();
        }

        #[test]
        fn near_tokens_never_panic(
            pin in "[0-9a-fA-F]{60,68}", sep in ":{0,4}", id in "[a-zé0-9-]{0,70}", secret in "[ -~]{0,40}",
        ) {
            let text = format!("OR1{pin}{sep}{id}:{secret}");
            if let Ok(token) = text.parse::<TokenText>() {
                let again = token.reveal().parse::<TokenText>();
                prop_assert_eq!(again.as_ref(), Ok(&token));
            } else if secret.len() > 8 {
                let error = text.parse::<TokenText>().unwrap_err().to_string();
                prop_assert!(!error.contains(&secret));
            }
        }
    }
}
