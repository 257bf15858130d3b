//! What was asked for, and how the agent reads it.

use outrider_agent::report::Token;
use serde::{Deserialize, Serialize};

use super::TOKEN;

/// Settings of the node; what is left out is discovered or has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Wishes {
    /// Coordinators, the first is tried first.
    pub(crate) coordinators: Vec<String>,
    /// Name of the node.
    pub(crate) name: Option<String>,
    /// Cluster it says it is of.
    pub(crate) cluster: Option<String>,
    /// What the machine is.
    pub(crate) profile: Option<String>,
    /// A token was given.
    pub(crate) token: bool,
}

/// What was given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Settings.
    pub(crate) wishes: Wishes,
    /// The enrolment token.
    pub(crate) token: Option<Token>,
}

impl Wishes {
    /// These, and of what they leave out what was asked for earlier: a second run with fewer words takes nothing back.
    pub(crate) fn over(self, earlier: Option<&Wishes>) -> Self {
        let Some(earlier) = earlier else { return self };
        Self {
            coordinators: if self.coordinators.is_empty() {
                earlier.coordinators.clone()
            } else {
                self.coordinators
            },
            name: self.name.or_else(|| earlier.name.clone()),
            cluster: self.cluster.or_else(|| earlier.cluster.clone()),
            profile: self.profile.or_else(|| earlier.profile.clone()),
            token: self.token || earlier.token,
        }
    }

    /// The drop-in; `None` where nothing was asked for.
    pub(crate) fn drop_in(&self) -> Option<String> {
        let text = |word: &str| toml::Value::String(word.to_owned()).to_string();
        let urls = self.coordinators.iter().map(|url| text(url)).collect::<Vec<_>>().join(", ");
        let node = [("name", &self.name), ("cluster", &self.cluster), ("profile", &self.profile)]
            .into_iter()
            .filter_map(|(key, value)| value.as_deref().map(|value| format!("{key} = {}\n", text(value))));
        let coordinator = [
            (!urls.is_empty()).then(|| format!("urls = [{urls}]\n")),
            self.token.then(|| format!("token_file = {}\n", text(TOKEN))),
        ];
        let (node, coordinator): (String, String) =
            (node.collect(), coordinator.into_iter().flatten().collect());
        if node.is_empty() && coordinator.is_empty() {
            return None;
        }
        let table = |name: &str, keys: String| {
            if keys.is_empty() { keys } else { format!("\n[{name}]\n{keys}") }
        };
        Some(format!(
            "# Written by `outrider install`, and changed by running it again. Settings of your own belong into another file\n\
             # of this folder; one whose name comes later, such as 90-site.toml, has the last word.\n{}{}",
            table("node", node),
            table("coordinator", coordinator)
        ))
    }
}
