//! Whatever values are asked for: they are refused by the option's name, or stand in the result as they were given.

use proptest::prelude::*;

use super::*;

/// Text of what quoting is broken with.
fn nasty() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "B",
        "0",
        "1e3",
        "no",
        "~",
        "-",
        ".",
        "_",
        ":",
        ": ",
        " #",
        "#",
        "/",
        "/..",
        "https://",
        "OR1",
        "\"",
        "'",
        "\\",
        "\n",
        "\r",
        "\t",
        " ",
        "$",
        "$(x)",
        "`",
        "{{token}}",
        "{arch}",
        "{",
        "}",
        "[",
        "]",
        "%",
        "&",
        "*",
        "!",
        "|",
        ">",
        "@",
        ",",
        "?",
        "=",
        "+",
        "\u{0}",
        "\u{85}",
        "\u{2028}",
        "é",
        ".deb",
        ".tar.gz",
        ".rpm",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..6).prop_map(|words| words.concat())
}

/// A good value with something nasty in it, or behind it.
fn spoilt(good: &'static str) -> impl Strategy<Value = String> {
    (nasty(), 0..=good.len(), any::<bool>()).prop_map(move |(text, at, whole)| {
        if whole { text } else { format!("{}{text}{}", &good[..at], &good[at..]) }
    })
}

fn requests() -> impl Strategy<Value = Request> {
    let token = Box::leak(token().into_boxed_str());
    let agent = prop_oneof![
        Just(Agent::Image),
        spoilt("outrider-agent").prop_map(Agent::Package),
        spoilt("/opt/outrider.deb").prop_map(Agent::File),
        spoilt("https://mirror.example/o-{arch}.tar.gz").prop_map(Agent::Url),
    ];
    let guest = prop_oneof![Just(None), spoilt("/opt/qga.rpm").prop_map(|path| Some(GuestAgent::File(path)))];
    let sha = "abababababababababababababababababababababababababababababababab";
    let sums = prop::collection::vec(
        (prop::option::of(spoilt("x86_64")), prop_oneof![Just(sha.to_owned()), spoilt(sha)]),
        0..3,
    );
    (
        prop::collection::vec(spoilt("https://outrider.example:8440"), 0..3),
        prop::option::of(spoilt(token)),
        prop::option::of(spoilt("prod")),
        prop::option::of(spoilt("https://rancher.example/x")),
        agent,
        sums,
        guest,
    )
        .prop_map(|(coordinators, token, cluster, load_balancer, agent, sha256, guest_agent)| Request {
            coordinators,
            token,
            cluster,
            load_balancer,
            agent,
            sha256,
            repository: None,
            guest_agent,
        })
}

/// One field spoilt at a time, so that more than refusals are seen.
fn one_spoilt() -> impl Strategy<Value = Request> {
    (requests(), 0..7).prop_map(|(odd, which)| {
        let mut request = full(odd.agent.clone());
        if which != 4 {
            request = full(Agent::Package("outrider-agent".to_owned()));
        } else if !odd.sha256.is_empty() {
            request.sha256 = odd.sha256.clone();
        }
        match which {
            0 if !odd.coordinators.is_empty() => request.coordinators = odd.coordinators,
            1 => request.token = odd.token.or(request.token),
            2 => request.cluster = odd.cluster,
            3 => request.load_balancer = odd.load_balancer,
            5 => request.guest_agent = odd.guest_agent,
            _ => {}
        }
        request
    })
}

/// What the result says of each value, read as the agent and cloud-init read it.
fn stands(text: &str, request: &Request) {
    let root = yaml::parse(text).unwrap().unwrap();
    let top: Vec<&str> = root.pairs().unwrap().iter().filter_map(|(key, _)| key.text()).collect();
    assert!(top.iter().all(|key| ["write_files", "packages", "runcmd"].contains(key)), "{text}");
    let content = |path: &str| {
        let file = files(&root).iter().find(|f| f.get("path").unwrap().text() == Some(path));
        file.and_then(|file| file.get("content")?.text())
    };
    let config: toml::Value =
        toml::from_str(content("/etc/outrider/agent.toml.d/50-userdata.toml").unwrap()).unwrap();
    let node = &config["node"];
    assert_eq!(node.get("cluster").and_then(toml::Value::as_str), request.cluster.as_deref());
    let url = config.get("load_balancer").and_then(|list| list[0]["url"].as_str());
    assert_eq!(url, request.load_balancer.as_deref());
    let urls: Vec<&str> = request.coordinators.iter().map(|url| url.trim_end_matches('/')).collect();
    let told: Option<Vec<&str>> = config
        .get("coordinator")
        .map(|c| c["urls"].as_array().unwrap().iter().filter_map(|u| u.as_str()).collect());
    assert_eq!(told.unwrap_or_default(), urls);
    assert_eq!(content("/etc/outrider/token"), request.token.as_deref());
    let tables: Vec<&str> = config.as_table().unwrap().keys().map(String::as_str).collect();
    assert!(tables.iter().all(|t| ["node", "coordinator", "load_balancer"].contains(t)), "{text}");
    if let Agent::Package(name) = &request.agent {
        let last = root.get("packages").unwrap().items().unwrap().last().unwrap();
        assert_eq!(last.text(), Some(name.as_str()));
        let text = matches!(&last.value, yaml::Value::Scalar { text, plain } if !plain
            || crate::scalar::meaning(text) == crate::scalar::Meaning::Text);
        assert!(text, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_stand_as_given_or_are_refused(request in prop_oneof![1 => requests(), 4 => one_spoilt()]) {
        match render(Profile::RancherHaServer, &request) {
            Ok(text) => stands(&text, &request),
            Err(problems) => {
                prop_assert!(!problems.is_empty());
                prop_assert!(problems.iter().all(|p| p.what != "template"), "{problems:?}");
            }
        }
    }

    #[test]
    fn names_stand_in_every_form(name in "[a-z0-9]([a-z0-9.-]{0,5}[a-z0-9])?", namespace in prop::sample::select(vec!["no", "1.0", "1e3", "a", "0x1f", "on"])) {
        let named = Named { name: &name, namespace };
        for text in [secret(named, "x", None), machine_pool(named, "x", None)] {
            let root = yaml::parse(&text).unwrap().unwrap();
            for (key, value) in [("name", name.as_str()), ("namespace", namespace)] {
                let node = root.get("metadata").unwrap().get(key).unwrap();
                prop_assert_eq!(node.text(), Some(value));
                let yaml::Value::Scalar { plain, .. } = &node.value else { panic!("{text}") };
                // YAML 1.2 reads numbers that 1.1 does not: what begins with a digit is quoted always.
                prop_assert!(!plain || value.starts_with(|c: char| c.is_ascii_alphabetic()));
                prop_assert!(!plain || crate::scalar::meaning(value) == crate::scalar::Meaning::Text);
            }
        }
        let hcl = terraform(named, "x", None);
        let label = hcl.split('"').nth(3).unwrap();
        prop_assert!(!label.starts_with(|c: char| c.is_ascii_digit()), "{}", hcl);
    }
}

#[test]
fn what_no_machine_can_use_is_refused() {
    let of = |address: &str, gateway: &str, mac: &str| {
        let network = Network {
            interface: Interface::Mac(mac.to_owned()),
            addresses: vec![address.to_owned()],
            gateways: vec![gateway.parse().unwrap()],
            nameservers: Vec::new(),
            search: vec!["no".to_owned(), "1.0".to_owned()],
        };
        network.render().map_err(|problems| problems.iter().map(|p| p.what).collect::<Vec<_>>())
    };
    let mac = "52:54:00:12:34:56";
    let good = of("192.0.2.10/24", "192.0.2.1", mac).unwrap();
    assert!(good.contains("- 'no'\n") && good.contains("- '1.0'\n"), "{good}");
    for (address, gateway) in
        [("192.0.2.0/31", "192.0.2.1"), ("2001:db8::10/64", "fe80::1"), ("2001:db8::/127", "2001:db8::1")]
    {
        assert!(of(address, gateway, mac).is_ok(), "{address}");
    }
    for (address, gateway, what) in [
        ("192.0.2.10/24", "192.0.3.1", "gateway"),
        ("192.0.2.10/24", "192.0.2.10", "gateway"),
        ("192.0.2.10/32", "192.0.2.1", "gateway"),
        ("192.0.2.10/24", "2001:db8::1", "gateway"),
        ("192.0.2.0/24", "192.0.2.1", "address"),
        ("192.0.2.255/24", "192.0.2.1", "address"),
        ("2001:db8::/64", "2001:db8::1", "address"),
        ("224.0.0.5/24", "224.0.0.1", "address"),
        ("0.0.0.0/0", "192.0.2.1", "address"),
        ("127.0.0.1/8", "127.0.0.2", "address"),
    ] {
        assert_eq!(of(address, gateway, mac), Err(vec![what]), "{address} {gateway}");
    }
    for mac in ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "33-33-00-00-00-01"] {
        assert_eq!(of("192.0.2.10/24", "192.0.2.1", mac), Err(vec!["mac"]), "{mac}");
    }
    for path in ["/../opt/a.deb", "/opt/../a.deb", "/opt/./a.deb", "//opt/a.deb", "/opt//a.deb"] {
        let problems = render(Profile::K3sServer, &full(Agent::File(path.to_owned()))).unwrap_err();
        assert_eq!(problems[0].what, "agent", "{path}");
    }
    for url in
        ["https://lb/\"x", "https://lb/x\ny = 1", "https://lb/\\", "https://lb/'", "https://lb/ x", "lb"]
    {
        let request = Request { load_balancer: Some(url.to_owned()), ..full(Agent::Image) };
        assert_eq!(render(Profile::K3sServer, &request).unwrap_err()[0].what, "load-balancer", "{url}");
    }
}

#[test]
fn a_load_balancer_is_for_who_watches_one() {
    let problems = render(Profile::HarvesterVm, &full(Agent::Image)).unwrap_err();
    assert_eq!(problems[0].what, "load-balancer");
    assert!(problems[0].message.contains("rancher-ha-server, rancher-ha-agent, k3s-server"), "{problems:?}");
}
