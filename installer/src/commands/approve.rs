//! `outrider approve`: let nodes in that wait.

use http::Method;

use crate::cli::{ApproveArgs, Global};
use crate::client::{Client, in_our_words, percent_encoded};
use crate::contexts;
use crate::exit::Exit;
use crate::output::Screen;

/// Runs the command; one node that cannot be approved keeps no other out.
pub(crate) async fn run(args: ApproveArgs, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
    let mut client = Client::new(contexts::choose(global, screen)?).await?;
    let mut exit = Exit::Ok;
    for node in &args.nodes {
        let path = format!("/v1/nodes/{}/approve", percent_encoded(node));
        match client.order(Method::POST, &path).await {
            Ok(()) => screen.write(&format!("node/{node} approved\n"))?,
            Err(error) => exit = screen.failure(&in_our_words(error, node), Exit::Usage),
        }
    }
    Ok(exit)
}
