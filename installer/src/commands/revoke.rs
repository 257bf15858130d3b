//! `outrider revoke`: shut nodes out.

use http::Method;
use outrider_protocol::{List, NodeView, TypeMeta};

use crate::cli::{Global, RevokeArgs};
use crate::client::{Client, in_our_words, percent_encoded};
use crate::contexts;
use crate::exit::Exit;
use crate::output::{Format, Screen, document};

/// Runs the command; one node that cannot be revoked leaves no other in.
pub(crate) async fn run(args: RevokeArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    let mut client = Client::new(contexts::choose(global, screen)?).await?;
    let mut exit = Exit::Ok;
    let mut revoked: Vec<NodeView> = Vec::new();
    for node in &args.nodes {
        let path = format!("/v1/nodes/{}/revoke", percent_encoded(node));
        match client.send::<NodeView>(Method::POST, &path, &()).await {
            Ok(view) => {
                match args.output {
                    Format::Name => screen.write(&format!("node/{}\n", view.name))?,
                    Format::Json | Format::Yaml => {}
                    _ => screen.write(&format!("node/{} revoked\n", view.name))?,
                }
                revoked.push(view);
            }
            Err(error) => exit = screen.failure(&in_our_words(error, node), Exit::Usage),
        }
    }
    match args.output {
        Format::Json | Format::Yaml if !revoked.is_empty() => {
            let text = match (revoked.as_slice(), &args.output) {
                ([one], Format::Json) => document::json(one)?,
                ([one], _) => document::yaml(one)?,
                (_, Format::Json) => document::json(&list(revoked))?,
                _ => document::yaml(&list(revoked))?,
            };
            screen.write(&text)?;
        }
        Format::Table if !revoked.is_empty() => screen.note(
            "Connections are closed; certificate and key open nothing any more. To let a machine back in: a new key (empty \
             the agent's state folder) and a new token (`outrider token create`).",
        ),
        _ => {}
    }
    Ok(exit)
}

fn list(items: Vec<NodeView>) -> List<NodeView> {
    List { meta: TypeMeta::new("NodeList"), revision: 0, continue_token: String::new(), items }
}
