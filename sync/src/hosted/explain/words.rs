//! The reason of a row: what is so, until when, and what each loop does about it.

use outrider_protocol::Timestamp;

use super::{Context, Gate, Push, Refresh, Risk, Row, Rules, Sides};
use crate::hosted::object::{Origin, Source};
use crate::hosted::plan::Held;

impl Context<'_> {
    /// The reason of a row whose columns are judged.
    pub(super) fn reason(&self, row: &Row, sides: &Sides<'_>) -> String {
        if !row.managed {
            return "null in the configuration: the cloud's value is in force, never adopted and never pushed".to_owned();
        }
        if self.cloud.is_none() {
            let give = match self.question.hosted.source {
                Source::Cluster => "its status holds no upstreamSpec yet",
                Source::ClusterConfig => "this object does not hold the cloud's view",
            };
            return format!("{give}; give it with --upstream FILE");
        }
        let parts = [Some(self.change(row, sides)), self.refresh_words(row, sides), self.push_words(row)];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// What is so, and who did it.
    fn change(&self, row: &Row, sides: &Sides<'_>) -> String {
        match row.risk {
            Risk::Safe if sides.agree => self.agreed(),
            Risk::Safe => match sides.unedited {
                true => "changed in the cloud; no push sends the lower value".to_owned(),
                false => "edited in Rancher, and the cloud has not got it yet".to_owned(),
            },
            Risk::Adopted => format!("changed in the cloud; the refresh {} takes it over", self.at_next()),
            Risk::AtRisk if row.upstream.is_null() && row.refresh == Refresh::Unmanage => {
                format!("the cloud tells null: the refresh {} makes the field unmanaged", self.at_next())
            }
            Risk::AtRisk if sides.unedited => {
                let what = what_changed(row);
                format!("{what}; any edit or restart before the refresh {} undoes it", self.at_next())
            }
            Risk::AtRisk => {
                "edited in Rancher, which counts it as applied after 10 s although nothing is confirmed; a \
                             refresh that still reads the old value undoes it"
                    .to_owned()
            }
            Risk::WouldLose | Risk::Lost => {
                let likely =
                    if row.risk == Risk::Lost { " (likely; certain once a later read shows it)" } else { "" };
                format!("{}, and the push that is due does not know of it{likely}", what_changed(row))
            }
            Risk::Superseded => "edited in Rancher on purpose while the cloud changed too".to_owned(),
            Risk::RolledBack => format!(
                "{}, after the cluster, which was imported, was edited through Rancher: from then on its configuration \
                 is what counts, and the next update of it rolls the change back; make the change through Rancher",
                what_changed(row)
            ),
            Risk::Unknown => self.unknown(row, sides),
        }
    }

    fn agreed(&self) -> String {
        match (self.question.live.is_some(), self.question.hosted.last_refresh, self.next_refresh) {
            (false, Some(last), Some(next)) => format!(
                "both agreed at the refresh at {}; a later change in the cloud is not in this object, and an edit in Rancher before {} would undo it",
                time(last),
                time(next)
            ),
            _ => "both agree".to_owned(),
        }
    }

    fn unknown(&self, row: &Row, sides: &Sides<'_>) -> String {
        if row.upstream.is_null() && !row.desired.is_null() && !row.path.contains('/') {
            return "the cloud does not tell this field, which is not the same as null; the configuration keeps its value".to_owned();
        }
        match (&self.gate, sides.applied) {
            (Gate::Unknown(why), _) => format!("who wrote it last is not known: {why}"),
            (_, None) => "the configuration was never applied, so nothing tells an edit in Rancher from one in the cloud".to_owned(),
            _ => format!(
                "who wrote it last, and until when, is not known: the object has no annotation {} (Rancher refreshes at once \
                 then); give the object as it is after the next refresh, or the cloud's view with --upstream FILE",
                crate::hosted::object::LAST_REFRESH
            ),
        }
    }

    fn refresh_words(&self, row: &Row, sides: &Sides<'_>) -> Option<String> {
        match row.refresh {
            Refresh::Wait => self.gate.closed().map(|why| format!("no refresh adopts it meanwhile: {why}")),
            Refresh::Rewrite => Some(
                "Rancher rewrites the configuration in the cloud's order, without any call to it".to_owned(),
            ),
            Refresh::Adopt if row.path.contains('/') => Some(match (sides.ours, sides.cloud) {
                (None, _) => "the refresh makes the pool managed".to_owned(),
                (_, None) => "the refresh takes the pool out of the configuration".to_owned(),
                _ => "the refresh takes the cloud's values over".to_owned(),
            }),
            Refresh::Nothing
                if !sides.agree
                    && self.question.hosted.origin == Origin::Imported
                    && row.risk != Risk::RolledBack =>
            {
                Some("no refresh adopts it: the cluster was imported and edited through Rancher".to_owned())
            }
            _ => None,
        }
    }

    fn push_words(&self, row: &Row) -> Option<String> {
        if self.question.rules == Rules::Rancher {
            let step = self.rancher_push.get(&row.path)?;
            let verb = match row.push {
                Push::Fail => "the push fails",
                Push::Nothing => "the push leaves it",
                Push::Delete => "the push deletes it",
                _ => "the push sends it",
            };
            return Some(if step.why.is_empty() { verb.to_owned() } else { format!("{verb}: {}", step.why) });
        }
        let held: &Held = self.plan.held.iter().find(|held| held.write.path == row.path)?;
        let confirm = if held.hold.confirmable() { " until it is confirmed by name" } else { "" };
        Some(format!("held{confirm}: {}", held.reason))
    }

    /// `due at TIME`, or that it is overdue.
    fn at_next(&self) -> String {
        match self.next_refresh {
            Some(next) if next > self.question.now => format!("due at {}", time(next)),
            Some(next) => format!("due since {}", time(next)),
            None => "that comes next".to_owned(),
        }
    }
}

fn what_changed(row: &Row) -> &'static str {
    match (row.desired.is_null(), row.upstream.is_null()) {
        (true, _) => "added in the cloud",
        (_, true) => "deleted in the cloud",
        _ => "changed in the cloud",
    }
}

/// To the second, for that is what Rancher records.
fn time(seconds: i64) -> String {
    Timestamp::from_seconds(seconds).to_string().replace(".000Z", "Z")
}
