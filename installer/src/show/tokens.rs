//! Enrolment tokens as rows; secrets are not among them.

use outrider_protocol::{Timestamp, TokenView};

use crate::output::{Cell, Column, Tone, text};

/// Columns of `outrider token list`; ages are counted to `now`.
pub(crate) fn columns(now: Timestamp) -> Vec<Column<TokenView>> {
    vec![
        Column::new("ID", |t: &TokenView| t.id.clone()),
        Column::new("KIND", |t: &TokenView| t.token_kind.to_string()),
        Column::new("STATE", move |t: &TokenView| state(t, now)),
        Column::new("USES-LEFT", |t: &TokenView| {
            t.uses_left.map_or("no limit".to_owned(), |n| n.to_string())
        }),
        Column::new("ENDS-IN", move |t: &TokenView| match t.expires_at {
            None => "no end".to_owned(),
            Some(end) if end <= now => "ended".to_owned(),
            Some(end) => text::age(end.since(now)),
        }),
        Column::new("AGE", move |t: &TokenView| text::since(Some(t.created_at), now)),
        Column::new("CLUSTER", |t: &TokenView| t.cluster.clone()),
        Column::new("NAMES", |t: &TokenView| t.name_pattern.clone()),
        Column::wide("RATE", |t: &TokenView| format!("{}/h", t.rate_per_hour)),
    ]
}

fn state(token: &TokenView, now: Timestamp) -> Cell {
    let expired = token.expires_at.is_some_and(|end| end <= now);
    match (token.revoked, expired, token.uses_left) {
        (true, _, _) => Cell::toned("revoked", Tone::Warn),
        (_, true, _) => Cell::toned("expired", Tone::Warn),
        (_, _, Some(0)) => Cell::toned("used up", Tone::Warn),
        _ => Cell::toned("valid", Tone::Good),
    }
}
