//! The forms in which userdata is handed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::quote;

/// What an object is called.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its name, of letters, digits, `-` and `.`.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
}

/// For `userDataBase64` and every other field that is decoded once.
pub fn base64(userdata: &str) -> String {
    STANDARD.encode(userdata) + "\n"
}

/// A Secret for `cloudInitNoCloud.secretRef`, with the keys that KubeVirt looks for.
pub fn secret(named: Named<'_>, userdata: &str, network_data: Option<&str>) -> String {
    let mut out = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {}\n  namespace: {}\ntype: Opaque\ndata:\n  userdata: {}\n",
        quote::yaml(named.name),
        quote::yaml(named.namespace),
        STANDARD.encode(userdata)
    );
    if let Some(network) = network_data {
        out.push_str(&format!("  networkdata: {}\n", STANDARD.encode(network)));
    }
    out
}

/// What a Rancher machine pool on Harvester takes: the fields of its `HarvesterConfig`. The driver decodes both.
pub fn machine_pool(named: Named<'_>, userdata: &str, network_data: Option<&str>) -> String {
    let mut out = format!(
        "# For kubectl patch --type merge --patch-file, or to be copied: the other fields stay as they are.\n\
         apiVersion: rke-machine-config.cattle.io/v1\nkind: HarvesterConfig\nmetadata:\n  name: {}\n  namespace: {}\n\
         userData: {}\n",
        quote::yaml(named.name),
        quote::yaml(named.namespace),
        STANDARD.encode(userdata)
    );
    if let Some(network) = network_data {
        out.push_str(&format!("networkData: {}\n", STANDARD.encode(network)));
    }
    out
}

/// Terraform for the Harvester provider: the text as a local, and the Secret made of it.
pub fn terraform(named: Named<'_>, userdata: &str, network_data: Option<&str>) -> String {
    let mut label: String =
        named.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    // A name in Terraform begins with no digit.
    if label.starts_with(|c: char| c.is_ascii_digit()) {
        label.insert(0, '_');
    }
    let mut locals = format!("locals {{\n  {label}_userdata = {}\n", heredoc("USERDATA", userdata));
    let mut fields = format!(
        "  name      = \"{}\"\n  namespace = \"{}\"\n  user_data = local.{label}_userdata\n",
        named.name, named.namespace
    );
    if let Some(network) = network_data {
        locals.push_str(&format!("  {label}_networkdata = {}\n", heredoc("NETWORKDATA", network)));
        fields.push_str(&format!("  network_data = local.{label}_networkdata\n"));
    }
    format!("{locals}}}\n\nresource \"harvester_cloudinit_secret\" \"{label}\" {{\n{fields}}}\n")
}

/// A heredoc that Terraform reads back as `text`: its templates escaped, its end mark found nowhere inside.
fn heredoc(mark: &str, text: &str) -> String {
    let mut mark = mark.to_owned();
    while text.lines().any(|line| line.trim() == mark) {
        mark.push('_');
    }
    let escaped = text.replace("${", "$${").replace("%{", "%%{");
    let end = if escaped.ends_with('\n') { "" } else { "\n" };
    format!("<<{mark}\n{escaped}{end}{mark}")
}
