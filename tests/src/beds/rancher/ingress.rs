//! The ingress of each node: nginx set up as ingress-nginx sets it up, or Traefik.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;

use super::machines::Service;
use super::setup::{RANCHER, Setup, TRAEFIK};
use super::tls::Files;
use super::{HOST, Layer};

/// Which ingress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ingress {
    /// As ingress-nginx writes its nginx.conf, as far as it matters here.
    #[default]
    Nginx,
    /// Traefik, as K3s and newer RKE2 bring it.
    Traefik,
}

/// Port at which Traefik answers as soon as it has read its rules; its other ports open before.
pub(super) const READY: u16 = 8090;

/// The ingress of one node. Forwarded headers are taken from `balancer` alone.
pub(super) fn service(setup: &Setup, at: &Path, leaf: &Files, balancer: IpAddr) -> Result<Service> {
    match setup.ingress {
        Ingress::Nginx => {
            let text = setup.edited_ingress(nginx(setup.layer, at, leaf))?;
            Ok(super::nginx(at, "ingress.conf", text))
        }
        Ingress::Traefik => {
            let rules = at.join("rules.yaml");
            let text = setup.edited_ingress(traefik(setup.layer, &rules, balancer))?;
            let program = std::env::var_os(TRAEFIK).unwrap_or_else(|| "traefik".into());
            let mut service = super::configured(program, &["--configfile={FILE}"], at, "traefik.yaml", text);
            service.files.push((rules, traefik_rules(leaf)));
            Ok(service)
        }
    }
}

/// Two hosts: Rancher's, and the default backend for every other. `$proto`, `$port` and `$name` are what is passed on: in layer
/// 7 what came, as with `use-forwarded-headers: "true"`, else what the ingress sees itself.
fn nginx(layer: Layer, at: &Path, leaf: &Files) -> String {
    let (chain, key, at) = (leaf.chain.display(), leaf.key.display(), at.display());
    let http = match layer {
        Layer::L4 => "return 308 https://$host$request_uri;",
        Layer::L7 => "location / { proxy_pass http://rancher; }",
    };
    let trusted = |header: &str, own: &str| match layer {
        Layer::L4 => format!("default {own};"),
        Layer::L7 => format!("default {header}; '' {own};"),
    };
    let proto = trusted("$http_x_forwarded_proto", "$scheme");
    let port = trusted("$http_x_forwarded_port", "$server_port");
    let name = trusted("$http_x_forwarded_host", "$http_host");
    format!(
        "worker_processes 1;\nevents {{}}\nhttp {{\n\
         access_log off; default_type text/plain;\n\
         client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
         uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;\n\
         ssl_certificate {chain}; ssl_certificate_key {key};\n\
         upstream rancher {{ server {RANCHER}; }}\n\
         map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}\n\
         map $http_x_forwarded_proto $proto {{ {proto} }}\n\
         map $http_x_forwarded_port $port {{ {port} }}\n\
         map $http_x_forwarded_host $name {{ {name} }}\n\
         proxy_http_version 1.1;\nproxy_read_timeout 1800s;\nproxy_send_timeout 1800s;\n\
         proxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection $connection_upgrade;\n\
         proxy_set_header Host $http_host;\nproxy_set_header X-Forwarded-Proto $proto;\n\
         proxy_set_header X-Forwarded-Port $port;\nproxy_set_header X-Forwarded-Host $name;\nproxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         server {{\n  listen 80 default_server;\n  listen 443 ssl default_server;\n\
         \x20 location = /healthz {{ return 200; }}\n  location / {{ return 404 'default backend - 404'; }}\n}}\n\
         server {{\n  listen 80;\n  server_name {HOST};\n  {http}\n}}\n\
         server {{\n  listen 443 ssl;\n  server_name {HOST};\n  location / {{ proxy_pass http://rancher; }}\n}}\n}}\n"
    )
}

fn traefik(layer: Layer, rules: &Path, balancer: IpAddr) -> String {
    let redirect = match layer {
        Layer::L4 => "    http:\n      redirections:\n        entryPoint: { to: websecure, scheme: https }\n",
        Layer::L7 => "",
    };
    format!(
        "global: {{ checkNewVersion: false, sendAnonymousUsage: false }}\n\
         log: {{ level: ERROR }}\n\
         entryPoints:\n\
         \x20 web:\n    address: \":80\"\n    forwardedHeaders:\n      trustedIPs: [\"{balancer}\"]\n{redirect}\
         \x20 websecure:\n    address: \":443\"\n\
         \x20 ready:\n    address: \":{READY}\"\n\
         providers:\n  file: {{ filename: \"{}\", watch: false }}\n",
        rules.display()
    )
}

fn traefik_rules(leaf: &Files) -> String {
    format!(
        "http:\n\
         \x20 routers:\n\
         \x20   plain: {{ rule: \"Host(`{HOST}`)\", entryPoints: [web], service: rancher }}\n\
         \x20   ready: {{ rule: \"PathPrefix(`/`)\", entryPoints: [ready], service: rancher }}\n\
         \x20   tls: {{ rule: \"Host(`{HOST}`)\", entryPoints: [websecure], service: rancher, tls: {{}} }}\n\
         \x20 services:\n    rancher: {{ loadBalancer: {{ servers: [{{ url: \"http://{RANCHER}\" }}] }} }}\n\
         tls:\n  stores:\n    default: {{ defaultCertificate: {{ certFile: \"{}\", keyFile: \"{}\" }} }}\n",
        leaf.chain.display(),
        leaf.key.display()
    )
}
