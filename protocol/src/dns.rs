//! Facts of the check `dns`: the names this node depends on, as the machine resolves them and as every server it may ask
//! answers (`facts/rancher-load-balancer.md`, section 7). Bounded: names, servers, addresses, aliases.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fact;

/// What the check `dns` reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsFacts {
    /// `/etc/resolv.conf`, which this machine's programs obey.
    pub resolv_conf: Fact<ResolvConf>,
    /// The file of the servers behind a local stub; `NotApplicable` when there is no stub.
    pub upstreams: Fact<ResolvConf>,
    /// What the kubelet gives to pods and to the cluster DNS; `NotApplicable` without Kubernetes.
    pub pods: Fact<ResolvConf>,
    /// Every server that was asked.
    pub servers: Vec<DnsServer>,
    /// The cluster DNS that should be among the servers; `NotApplicable` without Kubernetes, or where none is known.
    pub cluster_dns: Fact<String>,
    /// What the machine makes of a name that cannot exist: addresses, or `Absent` as it should be.
    pub nonsense: Fact<Vec<String>>,
    /// That name.
    pub nonsense_name: String,
    /// Names with a search domain behind them that gave an address.
    #[serde(default)]
    pub appended: Vec<AppendedName>,
    /// The names.
    pub names: Vec<NameFacts>,
    /// Names that were left out because there are too many.
    #[serde(default)]
    pub names_left_out: u32,
}

/// A resolver configuration, as glibc reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvConf {
    /// The file.
    pub path: String,
    /// `nameserver` lines, in order; glibc asks the first three.
    pub nameservers: Vec<String>,
    /// Domains of the last `search` or `domain` line.
    #[serde(default)]
    pub search: Vec<String>,
    /// Names with fewer dots are tried with the search domains first.
    pub ndots: u32,
    /// Seconds a try.
    pub timeout_seconds: u32,
    /// Tries a server.
    pub attempts: u32,
    /// What in it means nothing to a resolver.
    #[serde(default)]
    pub problems: Vec<String>,
}

open_enum! {
    /// What a server is to this machine.
    DnsServerRole {
        /// A `nameserver` of `/etc/resolv.conf`.
        Nameserver = "nameserver",
        /// A resolver of this machine itself (`127.0.0.53` of systemd-resolved).
        Stub = "stub",
        /// A server behind the stub.
        Upstream = "upstream",
        /// The cluster DNS (CoreDNS), which pods ask.
        Cluster = "cluster",
        /// Given in the configuration of Outrider.
        Configured = "configured",
    }
}

/// One server that was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsServer {
    /// Address and port.
    pub address: String,
    /// What it is here.
    pub role: DnsServerRole,
    /// Its place in the file it came from, from 1; 0 for one that stands in no file.
    #[serde(default)]
    pub position: u32,
    /// True when the address is only the default and nothing on this node says it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
    /// What it says of a name that cannot exist.
    pub nonsense: Fact<DnsAnswer>,
}

/// One name and what became of it everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NameFacts {
    /// In lower case, in punycode, without a final dot.
    pub name: String,
    /// As it was written, where that differs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub written: String,
    /// Who needs it, such as `load balancer rancher`.
    pub wanted_by: Vec<String>,
    /// Why the name cannot be looked up at all; empty when it can.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// As programs of this machine resolve it (hosts file, nsswitch, resolver); `Absent` when it is told not to exist.
    pub host: Fact<HostAnswer>,
    /// Addresses that `/etc/hosts` has for it.
    #[serde(default)]
    pub hosts_file: Vec<String>,
    /// What each server says, in the order of [`DnsFacts::servers`].
    #[serde(default)]
    pub answers: Vec<ServerAnswer>,
    /// Every address that anybody gave, and the way to it from here.
    #[serde(default)]
    pub ways: Vec<AddressWay>,
}

/// What the machine's own lookup gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostAnswer {
    /// Addresses in the order programs try them.
    pub addresses: Vec<String>,
    /// Milliseconds it took.
    pub ms: u32,
}

/// The way to one address; nothing was sent for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressWay {
    /// The address.
    pub address: String,
    /// The address of this node that packets to it would carry; `Absent` when there is no route.
    pub from: Fact<String>,
}

/// What one server says of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerAnswer {
    /// The server.
    pub server: String,
    /// Its IPv4 addresses.
    pub a: Fact<DnsAnswer>,
    /// Its IPv6 addresses.
    pub aaaa: Fact<DnsAnswer>,
}

open_enum! {
    /// The response code (RFC 1035, 4.1.1).
    DnsCode {
        /// The name exists; it may have no record of the type.
        NoError = "NOERROR",
        /// The server could not read the question.
        FormErr = "FORMERR",
        /// The server failed.
        ServFail = "SERVFAIL",
        /// The name does not exist.
        NxDomain = "NXDOMAIN",
        /// The server does not know the kind of question.
        NotImp = "NOTIMP",
        /// The server refuses to answer this client.
        Refused = "REFUSED",
    }
}

/// One answer to one question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsAnswer {
    /// Its code.
    pub code: DnsCode,
    /// Addresses of the name at the end of the aliases.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The names it is an alias of, one after the other (CNAME).
    #[serde(default)]
    pub aliases: Vec<String>,
    /// True when the aliases lead back to one of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alias_loop: bool,
    /// Smallest time to live of what was used, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    /// Whether the server follows names to their end (RA).
    pub recursive: bool,
    /// The answer over UDP was cut: it was asked again over TCP.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why the question over TCP failed, where it did; then the addresses are those of the cut answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tcp_failure: String,
    /// Milliseconds until the answer.
    pub ms: u32,
}

/// A name with a search domain behind it that gave an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppendedName {
    /// The name that was meant.
    pub name: String,
    /// The search domain.
    pub domain: String,
    /// Who has that search domain: `host`, `pods` or both.
    pub of: Vec<String>,
    /// The server that answered.
    pub server: String,
    /// What it gave for the two together.
    pub addresses: Vec<String>,
    /// Whether a nonsense name with the same domain gives an address too: a wildcard.
    pub wildcard: bool,
}
