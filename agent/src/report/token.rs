//! The enrolment token: `OR1<sha256 of the CA, 64 hex>::<id>:<secret>`.

use std::fmt;

/// A token, taken apart. The secret never reaches a log: `Debug` and errors leave it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// SHA-256 of the root certificate's DER, hex: what the coordinator must show.
    pub pin: String,
    /// Public part.
    pub id: String,
    whole: String,
}

/// What is wrong with a token; never its secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nothing there.
    #[error("the token is empty; make one with `outrider token create`: one line {FORM}")]
    Empty,
    /// Not ours.
    #[error("the token does not start with OR1; expected one line {FORM}")]
    Version,
    /// The part before `::` has another length.
    #[error(
        "the token's CA checksum has {0} characters; expected 64 hex digits between OR1 and ::, as in {FORM}"
    )]
    PinLength(usize),
    /// The part before `::` has a character that is no hex digit, counted from 1.
    #[error(
        "character {at} of the token's CA checksum is {what:?}; expected 64 hex digits (0-9, a-f), as in {FORM}"
    )]
    PinDigit {
        /// Which character.
        at: usize,
        /// What stands there.
        what: char,
    },
    /// The part after `::`.
    #[error(
        "the token has no <id>:<secret> after ::; was it cut when it was copied? Expected one line {FORM}"
    )]
    Parts,
    /// More than one line, or blanks inside.
    #[error(
        "the token has blanks or several lines in it; give the one line that `outrider token create` printed: {FORM}"
    )]
    Blanks,
}

/// How a token is written.
const FORM: &str = "OR1<sha256 of the CA, 64 hex digits>::<id>:<secret>";

impl Token {
    /// Takes a token apart; blanks around it are no matter.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        if text.chars().any(char::is_whitespace) {
            return Err(TokenError::Blanks);
        }
        let rest = text.strip_prefix("OR1").ok_or(TokenError::Version)?;
        let (pin, rest) = rest.split_once("::").ok_or(TokenError::Parts)?;
        if pin.chars().count() != 64 {
            return Err(TokenError::PinLength(pin.chars().count()));
        }
        if let Some((i, what)) = pin.chars().enumerate().find(|(_, c)| !c.is_ascii_hexdigit()) {
            return Err(TokenError::PinDigit { at: i + 1, what });
        }
        let (id, secret) = rest.split_once(':').ok_or(TokenError::Parts)?;
        if id.is_empty() || secret.is_empty() {
            return Err(TokenError::Parts);
        }
        Ok(Self { pin: pin.to_ascii_lowercase(), id: id.to_owned(), whole: text.to_owned() })
    }

    /// The whole token, for the one request that carries it.
    pub fn expose(&self) -> &str {
        &self.whole
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("pin", &self.pin).field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIN: &str = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";

    #[test]
    fn a_token_is_taken_apart() {
        let text = format!("  OR1{PIN}::abc:s:e:cret\n");
        let token = Token::parse(&text).unwrap();
        assert_eq!((token.pin.as_str(), token.id.as_str()), (PIN.to_ascii_lowercase().as_str(), "abc"));
        assert_eq!(token.expose(), text.trim());
        assert!(!format!("{token:?}").contains("cret"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let cases = [
            ("", TokenError::Empty),
            ("K10abc::server:secret", TokenError::Version),
            ("OR1abc::id:secret", TokenError::PinLength(3)),
            ("OR1", TokenError::Parts),
            (&format!("OR1{PIN}:id:secret"), TokenError::Parts),
            (&format!("OR1{PIN}::id"), TokenError::Parts),
            (&format!("OR1{PIN}::id:"), TokenError::Parts),
            (&format!("OR1{PIN}:::secret"), TokenError::Parts),
            (&format!("OR1{PIN}::id:sec ret"), TokenError::Blanks),
            (&format!("OR1{}::id:secret", PIN.replace('f', "g")), TokenError::PinDigit { at: 16, what: 'g' }),
        ];
        for (text, error) in cases {
            assert_eq!(Token::parse(text), Err(error.clone()), "{text}");
            let said = error.to_string();
            assert!(said.contains("OR1<sha256 of the CA, 64 hex digits>::<id>:<secret>"), "{said}");
            assert!(!said.replace("<secret>", "").contains("secret") && !said.contains("sec ret"), "{said}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC{0,120}") {
            let _ = Token::parse(&text);
        }

        #[test]
        fn what_is_well_formed_is_parsed(pin in "[0-9a-f]{64}", id in "[a-z0-9]{1,16}", secret in "[A-Za-z0-9+/=:_-]{1,64}") {
            let token = Token::parse(&format!("OR1{pin}::{id}:{secret}")).unwrap();
            proptest::prop_assert_eq!((token.pin, token.id), (pin, id));
        }
    }
}
