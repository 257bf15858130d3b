//! Completions for a shell, and everything that is generated from the command line into the source tree.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Exit;
use crate::output::Screen;

/// Where each shell looks for completions below the root of a package.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "packaging/usr/share/bash-completion/completions/outrider"),
    (Shell::Zsh, "packaging/usr/share/zsh/site-functions/_outrider"),
    (Shell::Fish, "packaging/usr/share/fish/vendor_completions.d/outrider.fish"),
];
/// Where man pages lie below the root of a package.
const MAN: &str = "packaging/usr/share/man/man1";

/// Prints the completions of one shell.
pub(crate) fn completions(args: CompletionsArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    screen.write(&completion(args.shell))?;
    Ok(Exit::Ok)
}

/// Writes every generated file below the root of the source tree.
pub(crate) fn man(args: ManArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let files = generated()?;
    for (path, text) in &files {
        let path = args.dir.join(path);
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    screen.write(&format!("{} files written below {}\n", files.len(), args.dir.display()))?;
    Ok(Exit::Ok)
}

fn completion(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "outrider", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Every generated file: path from the root of the source tree, and its text.
pub(crate) fn generated() -> anyhow::Result<Vec<(String, String)>> {
    let mut files: Vec<(String, String)> =
        SHELLS.iter().map(|(shell, path)| ((*path).to_owned(), completion(*shell))).collect();
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    man_pages(&root, "outrider", &mut pages)?;
    files.extend(pages);
    files.push(("docs/cli.md".to_owned(), reference(&root)));
    Ok(files)
}

/// A man page for the command and each of its subcommands, `outrider-get.1` and so on.
fn man_pages(command: &clap::Command, name: &str, pages: &mut Vec<(String, String)>) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let page = command.clone().name(name.to_owned()).bin_name(name.replace('-', " "));
    // A date would make every build differ from the last.
    clap_mangen::Man::new(page).date("").manual("Outrider").source("outrider").render(&mut text)?;
    pages.push((format!("{MAN}/{name}.1"), String::from_utf8_lossy(&text).into_owned()));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        man_pages(sub, &format!("{name}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

/// `docs/cli.md`: the help of every command.
fn reference(root: &clap::Command) -> String {
    let mut text = "# The command line\n\nGenerated from the program; `cargo run -p outrider-cli --bin outrider -- man .` \
                    writes it anew.\n"
        .to_owned();
    section(root, "outrider", &mut text);
    text
}

fn section(command: &clap::Command, name: &str, text: &mut String) {
    let mut page = command.clone().bin_name(name.to_owned()).term_width(100);
    let help = page.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    text.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        section(sub, &format!("{name} {}", sub.get_name()), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_those_in_the_tree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (path, text) in generated().unwrap() {
            let written = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
            assert!(
                written == text,
                "{path} is not what the program generates; refresh it with: \
                 cargo run -p outrider-cli --bin outrider -- man ."
            );
        }
    }
}
