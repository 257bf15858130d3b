//! `outrider label`: labels of a node, as users of kubectl write them.

use std::collections::BTreeMap;

use anyhow::bail;
use http::Method;
use outrider_protocol::{NodeLabels, NodeView, TypeMeta};

use crate::cli::{Global, LabelArgs};
use crate::client::{Client, in_our_words, percent_encoded};
use crate::contexts;
use crate::exit::Exit;
use crate::output::{Format, Screen, UsageError, document};

/// Runs the command.
pub(crate) async fn run(args: LabelArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    let labels = changes(&args.changes)?;
    let only_removed = labels.values().all(Option::is_none);
    let mut client = Client::new(contexts::choose(global, screen)?).await?;
    let change = NodeLabels { meta: TypeMeta::new("NodeLabels"), labels, overwrite: args.overwrite };
    let path = format!("/v1/nodes/{}/labels", percent_encoded(&args.node));
    let node: NodeView =
        client.send(Method::PATCH, &path, &change).await.map_err(|error| in_our_words(error, &args.node))?;
    let text = match args.output {
        Format::Json => document::json(&node)?,
        Format::Yaml => document::yaml(&node)?,
        Format::Name => format!("node/{}\n", node.name),
        _ => format!("node/{} {}\n", node.name, if only_removed { "unlabeled" } else { "labeled" }),
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}

/// `KEY=VALUE` sets, `KEY-` removes; one key has one change.
fn changes(words: &[String]) -> anyhow::Result<BTreeMap<String, Option<String>>> {
    let mut labels = BTreeMap::new();
    for word in words {
        let (key, value) = match (word.split_once('='), word.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Some(value.to_owned())),
            (None, Some(key)) => (key, None),
            (None, None) => bail!(UsageError(format!(
                "{word:?} is neither KEY=VALUE, which sets a label, nor KEY-, which removes one"
            ))),
        };
        if key.is_empty() {
            bail!(UsageError(format!("{word:?} has no key; write KEY=VALUE or KEY-")));
        }
        if labels.insert(key.to_owned(), value).is_some() {
            bail!(UsageError(format!("the label {key:?} is given twice")));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> anyhow::Result<BTreeMap<String, Option<String>>> {
        changes(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn labels_are_set_and_removed_as_with_kubectl() {
        let set = read(&["team=a", "rack-", "x/y=", "v=b=c", "w=-"]).unwrap();
        let of = |key: &str| set[key].as_deref();
        assert_eq!(
            (of("team"), of("rack"), of("x/y"), of("v"), of("w")),
            (Some("a"), None, Some(""), Some("b=c"), Some("-"))
        );
        for (words, problem) in [
            (&["team"][..], "neither KEY=VALUE"),
            (&["=a"], "has no key"),
            (&["-"], "has no key"),
            (&["a=1", "a-"], "given twice"),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(error.contains(problem), "{words:?}: {error}");
        }
    }
}
