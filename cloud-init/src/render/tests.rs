mod repository;
mod values;

use super::*;
use crate::lint::{Context, lint_for};
use crate::merge::merge;
use crate::yaml::{self, Node};
use crate::{Platform, Severity};

fn token() -> String {
    format!("OR1{}::k3jh4kj5h3k4:{}", "0a1b2c3d".repeat(8), "s3cr3t".repeat(7))
}

fn full(agent: Agent) -> Request {
    let sha256 = match agent {
        Agent::Url(_) => {
            vec![(Some("x86_64".to_owned()), "ab".repeat(32)), (Some("aarch64".to_owned()), "cd".repeat(32))]
        }
        _ => Vec::new(),
    };
    Request {
        coordinators: vec!["https://outrider.example:8440".to_owned()],
        token: Some(token()),
        cluster: Some("prod".to_owned()),
        load_balancer: Some("https://rancher.example".to_owned()),
        agent,
        sha256,
        repository: None,
        guest_agent: None,
    }
}

/// The same for `profile`, which may have no place for a load balancer.
fn full_for(profile: Profile, agent: Agent) -> Request {
    let request = full(agent);
    let takes = profile.template().contains("{{load_balancer}}");
    Request { load_balancer: request.load_balancer.filter(|_| takes), ..request }
}

fn sources() -> Vec<Agent> {
    vec![
        Agent::Image,
        Agent::Package("outrider".to_owned()),
        Agent::File("/opt/outrider.tar.gz".to_owned()),
        Agent::Url("https://outrider.example:8440/install/outrider-{arch}.tar.gz".to_owned()),
        Agent::Url("https://mirror.example/outrider.rpm".to_owned()),
    ]
}

fn files(root: &Node) -> &[Node] {
    root.get("write_files").unwrap().items().unwrap()
}

/// Every profile from every source is one plain cloud-config that lint finds nothing wrong with.
#[test]
fn every_profile_from_every_source() {
    for profile in Profile::all() {
        assert_eq!(profile.as_str().parse(), Ok(profile));
        for agent in sources() {
            for guest in [
                None,
                Some(GuestAgent::Image),
                Some(GuestAgent::None),
                Some(GuestAgent::File("/opt/qga.deb".to_owned())),
            ] {
                let request = Request { guest_agent: guest, ..full_for(profile, agent.clone()) };
                let text = render(profile, &request).unwrap_or_else(|p| panic!("{p:?}"));
                assert!(
                    text.starts_with("#cloud-config\n") && !text.contains("{{") && !text.contains("#if"),
                    "{text}"
                );
                let secret = Context { field: Some(crate::Field::Secret), ..Context::default() };
                assert_eq!(lint_for(text.as_bytes(), &secret), [], "{text}");
                assert_eq!(merge(&[&text]), Ok(text.clone()), "what is rendered is merged as it is");
                let root = yaml::parse(&text).unwrap().unwrap();
                let config = files(&root)[0].get("content").unwrap().text().unwrap();
                assert!(config.contains(&format!("profile = \"{}\"", profile.as_str())), "{config}");
                let token = files(&root)
                    .iter()
                    .find(|f| f.get("path").unwrap().text() == Some("/etc/outrider/token"))
                    .unwrap();
                assert_eq!(token.get("permissions").unwrap().text(), Some("0600"));
                assert_eq!(text.matches("s3cr3t").count(), 7, "the token stands in its file alone");
            }
        }
    }
}

/// The plain Harvester profile fits into a VM's spec, whatever it is told.
#[test]
fn the_harvester_profile_fits_into_a_spec() {
    for agent in sources() {
        let text = render(Profile::HarvesterVm, &full_for(Profile::HarvesterVm, agent)).unwrap();
        let platform = Context { platform: Some(Platform::Harvester), ..Context::default() };
        assert_eq!(lint_for(text.as_bytes(), &platform), [], "{} bytes\n{text}", text.len());
    }
}

#[test]
fn what_is_left_out_leaves_no_trace() {
    let text = render(Profile::HarvesterVm, &Request::default()).unwrap();
    for word in ["token", "coordinator", "cluster", "install"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    let admin = render(Profile::EksaAdmin, &Request::default()).unwrap();
    assert!(!admin.contains("qemu") && !admin.contains("packages"), "{admin}");
    let own = render(Profile::K3sServer, &full(Agent::Url("https://outrider.example:8440/a.tgz".to_owned())))
        .unwrap();
    assert!(
        own.contains("--cacert pem -K-")
            && own.contains("Bearer $(cat ../token)")
            && own.contains("/v1/ca |"),
        "{own}"
    );
    let other =
        render(Profile::K3sServer, &full(Agent::Url("https://outrider.example/a.tgz".to_owned()))).unwrap();
    assert!(
        !other.contains("--cacert") && !other.contains("Bearer") && !other.contains("/v1/ca"),
        "another port is another server: {other}"
    );
}

#[test]
fn an_archive_sets_itself_up_and_a_package_is_set_up() {
    let of = |file: &str| render(Profile::K3sServer, &full(Agent::File(file.to_owned()))).unwrap();
    let archive = of("/opt/a.tar.gz");
    assert!(archive.contains("tar -xzf /opt/a.tar.gz\n      usr/bin/outrider install\n"), "{archive}");
    for (package, command) in [("/opt/a.deb", "dpkg -i /opt/a.deb"), ("/opt/a.rpm", "rpm -U --replacepkgs")] {
        let text = of(package);
        assert!(text.contains(command) && text.contains("systemd-sysusers"), "{text}");
        assert!(!text.contains("outrider install\n") && !archive.contains(command), "{text}");
    }
}

/// Merged into what somebody has, ours goes before Rancher's script, twice as once.
#[test]
fn merged_into_a_pools_userdata() {
    let theirs = "#cloud-config\npackages:\n  - docker\nruncmd:\n  - echo hi\n  - sh /usr/local/custom_script/install.sh\n";
    for agent in sources() {
        let ours = render(Profile::RancherHaServer, &full(agent)).unwrap();
        let out = merge(&[theirs, &ours]).unwrap();
        assert_eq!(merge(&[&out, &ours]).as_ref(), Ok(&out));
        let root = yaml::parse(&out).unwrap().unwrap();
        let run = root.get("runcmd").unwrap().items().unwrap();
        assert_eq!(run.first().unwrap().text(), Some("echo hi"));
        assert!(run.last().unwrap().text().unwrap().contains("install.sh"));
        let errors = crate::lint::lint(out.as_bytes()).into_iter().filter(|f| f.severity == Severity::Error);
        assert_eq!(errors.count(), 0);
    }
}

#[test]
fn what_cannot_be_rendered_is_said_all_at_once() {
    let what = |request: Request| -> Vec<&'static str> {
        render(Profile::RancherHaServer, &request).unwrap_err().iter().map(|p| p.what).collect()
    };
    for url in [
        "http://a",
        "https://",
        "https://a/b",
        "https://a b",
        "https://a:0",
        "https://a:99999",
        "https://u@a",
        "https://a?b",
        "https://a\"",
        "https://$(x)",
        "https://a\nb",
    ] {
        assert_eq!(
            what(Request { coordinators: vec![url.to_owned()], ..Request::default() }),
            ["coordinator"],
            "{url}"
        );
    }
    for url in ["https://a", "https://a:8440/", "https://[2001:db8::1]:8440", "https://192.0.2.1"] {
        assert!(
            render(
                Profile::HarvesterVm,
                &Request { coordinators: vec![url.to_owned()], ..Request::default() }
            )
            .is_ok(),
            "{url}"
        );
    }
    for token in [
        "",
        "OR1",
        "OR1abc::d:e",
        "x",
        &format!("{} ", token()),
        &format!("{}\n- x", token()),
        &format!("{}'", token()),
    ] {
        let request = Request { token: Some((*token).to_owned()), ..full(Agent::Image) };
        let problems = render(Profile::HarvesterVm, &request).unwrap_err();
        assert_eq!(problems[0].what, "token", "{token:?}");
        assert!(!problems[0].message.contains("s3cr3t"));
    }
    let url = |url: &str| Request { agent: Agent::Url(url.to_owned()), ..full(Agent::Image) };
    assert_eq!(what(url("https://a/b.tar.gz")), ["sha256"]);
    assert_eq!(what(url("http://a/b.zip")), ["agent", "sha256"]);
    assert_eq!(what(url("https://a/`b`.deb")), ["agent", "sha256"]);
    let sums = |sums: &[(Option<&str>, &str)]| Request {
        sha256: sums.iter().map(|(arch, sum)| (arch.map(str::to_owned), (*sum).to_owned())).collect(),
        ..url("https://a/b.rpm")
    };
    let sum = "ab".repeat(32);
    assert_eq!(what(sums(&[(None, "abc")])), ["sha256"]);
    assert_eq!(what(sums(&[(None, &sum), (Some("x86_64"), &sum)])), ["sha256"]);
    assert_eq!(what(sums(&[(Some("x;y"), &sum)])), ["sha256"]);
    assert_eq!(what(Request { sha256: vec![(None, sum)], ..full(Agent::Image) }), ["sha256"]);
    assert_eq!(what(Request { agent: Agent::File("opt/x.deb".to_owned()), ..Request::default() }), ["agent"]);
    assert_eq!(what(Request { agent: Agent::Package("--x".to_owned()), ..Request::default() }), ["agent"]);
    assert_eq!(
        what(Request { guest_agent: Some(GuestAgent::File("/a;b.deb".to_owned())), ..Request::default() }),
        ["guest-agent"]
    );
    assert_eq!(
        what(Request {
            cluster: Some("a\"b".to_owned()),
            load_balancer: Some("x".to_owned()),
            ..Request::default()
        }),
        ["cluster", "load-balancer"]
    );
    assert_eq!(what(Request { token: Some(token()), ..Request::default() }), ["coordinator"]);
}

#[test]
fn forms_hold_the_text_as_it_is() {
    let named = Named { name: "web-1", namespace: "default" };
    let text = "#cloud-config\nruncmd:\n  - 'echo ${HOME} %{x} USERDATA'\n  - |\n    USERDATA\n";
    let root = |text: &str| yaml::parse(text).unwrap().unwrap();
    let decoded = |node: &Node| {
        String::from_utf8(crate::size::decoded(node.text().unwrap().as_bytes()).unwrap()).unwrap()
    };
    let made = root(&secret(named, text, Some("version: 2\n")));
    assert_eq!(decoded(made.get("data").unwrap().get("userdata").unwrap()), text);
    assert_eq!(decoded(made.get("data").unwrap().get("networkdata").unwrap()), "version: 2\n");
    assert_eq!(decoded(root(&machine_pool(named, text, None)).get("userData").unwrap()), text);
    assert_eq!(crate::size::decoded(base64(text).as_bytes()).unwrap(), text.as_bytes());
    let hcl = terraform(named, text, None);
    assert!(
        hcl.contains("$${HOME} %%{x}") && hcl.contains("<<USERDATA_\n") && hcl.contains("\nUSERDATA_\n"),
        "{hcl}"
    );
    assert!(hcl.contains("resource \"harvester_cloudinit_secret\" \"web_1\""), "{hcl}");
}

#[test]
fn network_data() {
    let network = Network {
        interface: Interface::Mac("52:54:00:AA:bb:01".to_owned()),
        addresses: vec!["192.0.2.10/24".to_owned(), "2001:db8::10/64".to_owned()],
        gateways: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        nameservers: vec!["192.0.2.53".parse().unwrap()],
        search: vec!["example.org".to_owned()],
    };
    let root = yaml::parse(&network.render().unwrap()).unwrap().unwrap();
    let nic = root.get("ethernets").unwrap().get("nic0").unwrap();
    assert_eq!(nic.get("match").unwrap().get("macaddress").unwrap().text(), Some("52:54:00:aa:bb:01"));
    assert_eq!(nic.get("routes").unwrap().items().unwrap().len(), 2);
    let dhcp = Network { addresses: Vec::new(), gateways: Vec::new(), ..network.clone() };
    assert!(dhcp.render().unwrap().contains("dhcp4: true"));
    let bad = Network {
        interface: Interface::Name("on".to_owned()),
        addresses: vec!["192.0.2.10".to_owned(), "192.0.2.10/33".to_owned()],
        search: vec!["a b".to_owned()],
        ..network
    };
    let what: Vec<&str> = bad.render().unwrap_err().iter().map(|p| p.what).collect();
    assert_eq!(what, ["interface", "address", "address", "search"]);
}
