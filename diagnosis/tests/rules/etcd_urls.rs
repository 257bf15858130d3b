//! URLs in the member list that nobody can use (D11, D13): each named with what is wrong and what stands there instead.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::etcd_verdict::{etcd_node, membership};
use crate::fleet_world::World;
use crate::world::{Change, etcd, list_mut};
use crate::{expect, only};

fn peer(url: &str) -> Finding {
    membership(etcd(3).with(|e| list_mut(e).members[1].peer_urls = vec![url.into()]))
}

fn client(url: &str) -> Finding {
    membership(etcd(3).with(|e| list_mut(e).members[1].client_urls = vec![url.into()]))
}

#[test]
fn each_way_a_url_can_be_useless_is_named_with_what_stands_there_instead() {
    for (peer_url, client_url, kind, host, port) in [
        ("", "", "empty", "10.0.0.2", None),
        ("  ", "\t", "empty", "10.0.0.2", None),
        ("10.0.0.22:2380", "10.0.0.22:2379", "no scheme", "10.0.0.22", None),
        ("//10.0.0.22:2380", "//10.0.0.22:2379", "no scheme", "10.0.0.22", None),
        ("://10.0.0.22:2380", "://10.0.0.22:2379", "no scheme", "10.0.0.22", None),
        ("ftp://10.0.0.22:2380", "ftp://10.0.0.22:2379", "scheme ftp", "10.0.0.22", None),
        ("unix:///run/etcd.sock", "unixs:///run/etcd.sock", "a socket", "10.0.0.2", None),
        ("https://:2380", "https://:2379", "no host", "10.0.0.2", None),
        ("https://", "https://", "no host, no port", "10.0.0.2", None),
        ("https://0.0.0.0:2380", "https://[::]:2379", "no machine's", "10.0.0.2", None),
        ("https://10.0.0.300:2380", "https://10.0.300:2379", "neither address nor name", "10.0.0.2", None),
        ("https://a,b:2380", "https://a_b!:2379", "neither address nor name", "10.0.0.2", None),
        ("https://10.0.0.22", "https://10.0.0.22", "no port", "10.0.0.22", None),
        ("https://10.0.0.22:", "https://10.0.0.22:", "no port", "10.0.0.22", None),
        ("https://10.0.0.22:0", "https://10.0.0.22:0", "port 0,", "10.0.0.22", None),
        ("https://10.0.0.22:65536", "https://10.0.0.22:65536", "port 65536,", "10.0.0.22", None),
        ("https://10.0.0.22:-1", "https://10.0.0.22:+5", "from 1 to 65535", "10.0.0.22", None),
        ("https://10.0.0.22:x", "https://10.0.0.22:99999999999", "from 1 to 65535", "10.0.0.22", None),
        ("https://10.0.0.22:2390/v3", "https://10.0.0.22:2390/v3", "path /v3", "10.0.0.22", Some(2390)),
        ("https://10.0.0.22: 2380", "https://10.0.0.22 :2379", "a blank in it", "10.0.0", None),
        ("https://[10.0.0.22]:2380", "https://[fd00::g]:2379", "neither address nor name", "10.0.0.2", None),
    ] {
        let f = peer(peer_url);
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::EtcdUrlUnusable,
            &["n2", kind, "does not update members"],
        );
        if kind != "a blank in it" {
            let instead = format!("instead https://{host}:{}", port.unwrap_or(2380));
            assert!(f.message.contains(&instead), "{peer_url:?}: {instead}: {f:#?}");
        }
        let f = client(client_url);
        expect(
            &f,
            Status::False,
            Severity::Warn,
            ReasonCode::EtcdUrlUnusable,
            &["n2", kind, "--advertise-client-urls"],
        );
        if kind != "a blank in it" {
            let instead = format!("instead https://{host}:{}", port.unwrap_or(2379));
            assert!(f.message.contains(&instead), "{client_url:?}: {instead}: {f:#?}");
        }
    }
    for url in ["https://fd00::2:2379", "https://fd00::2"] {
        let f = client(url);
        let words = ["without brackets", "instead https://[fd00::2]:2379"];
        expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdUrlUnusable, &words);
    }
    // No URL at all, and nothing else of the member that tells where it is.
    let f = membership(etcd(3).with(|e| {
        list_mut(e).members[1].peer_urls.clear();
        list_mut(e).members[1].client_urls = vec!["https://".into()];
    }));
    let words = ["none recorded", "<address of n2>", "record", "client URLs"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdUrlUnusable, &words);
}

#[test]
fn urls_that_etcd_takes_are_not_called_useless() {
    for url in [
        "https://10.0.0.2:2380",
        "HTTPS://10.0.0.2:2380/",
        "https://[fd00::2]:2380",
        "https://[fe80::1%eth0]:2380",
        "https://n2.example:2380",
        "https://n_2:65535",
    ] {
        assert_eq!(peer(url).reason, ReasonCode::EtcdMembersExpected, "{url}: {:#?}", peer(url));
        assert_eq!(client(url).reason, ReasonCode::EtcdMembersExpected, "{url}");
    }
    // A socket beside a way for the others, and one of a cluster of one.
    let beside =
        membership(etcd(3).with(|e| list_mut(e).members[1].client_urls.push("unix:///run/e.sock".into())));
    assert_eq!(beside.reason, ReasonCode::EtcdMembersExpected);
    let alone =
        membership(etcd(1).with(|e| list_mut(e).members[0].peer_urls = vec!["unix:///run/e.sock".into()]));
    assert_eq!(alone.reason, ReasonCode::EtcdMembersExpected);
}

#[test]
fn loopback_is_of_use_to_its_own_machine_alone() {
    for host in ["127.0.0.1", "127.8.9.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"] {
        for (f, severity, port) in [
            (peer(&format!("https://{host}:2380")), Severity::Error, 2380),
            (client(&format!("https://{host}:2379")), Severity::Warn, 2379),
        ] {
            let instead = format!("instead https://10.0.0.2:{port}");
            let words = ["n2", "only its own machine reaches", &instead];
            expect(&f, Status::False, severity, ReasonCode::EtcdUrlUnusable, &words);
        }
    }
    let url = || "https://127.0.0.1:2379".to_owned();
    let beside = membership(etcd(3).with(|e| list_mut(e).members[1].client_urls.push(url())));
    assert_eq!(beside.reason, ReasonCode::EtcdMembersExpected, "{beside:#?}");
    let alone = membership(etcd(1).with(|e| list_mut(e).members[0].client_urls = vec![url()]));
    assert_eq!(alone.reason, ReasonCode::EtcdMembersExpected, "{alone:#?}");
}

#[test]
fn members_that_all_have_loopback_addresses_of_their_own_share_one_machine() {
    let all = |of: fn(usize) -> String| {
        etcd(3).with(|e| {
            list_mut(e).members.iter_mut().enumerate().for_each(|(i, m)| m.peer_urls = vec![of(i)]);
        })
    };
    for of in [|i| format!("https://127.0.0.{}:2380", i + 1), |i| format!("https://127.0.0.1:2{i}380")] {
        let f = membership(all(of));
        assert_ne!(f.reason, ReasonCode::EtcdUrlUnusable, "{f:#?}");
    }
    let f = membership(all(|_| "https://127.0.0.1:2380".to_owned()));
    assert_eq!(f.reason, ReasonCode::EtcdUrlUnusable, "{f:#?}");
    let f = membership(all(|i| format!("https://{}:2380", ["127.0.0.1", "127.0.0.2", "10.0.0.3"][i])));
    assert_eq!(f.reason, ReasonCode::EtcdUrlUnusable, "{f:#?}");
}

#[test]
fn plain_http_among_members_with_tls_is_a_warning_and_no_error() {
    for (f, url) in [
        (peer("http://10.0.0.2:2380"), "instead https://10.0.0.2:2380"),
        (client("http://10.0.0.2:2379"), "instead https://10.0.0.2:2379"),
    ] {
        let words = ["mixed schemes", "n2", "other members use https", url];
        expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdUrlUnusable, &words);
    }
    let plain = membership(etcd(3).with(|e| {
        for (i, m) in list_mut(e).members.iter_mut().enumerate() {
            m.peer_urls = vec![format!("http://10.0.0.{}:2380", i + 1)];
        }
    }));
    assert_eq!(plain.reason, ReasonCode::EtcdMembersExpected, "{plain:#?}");
}

#[test]
fn empty_urls_are_no_endpoint_of_everybody() {
    // The endpoint without a URL of its own is not n2's only because n2 publishes none either.
    let e = etcd(3).with(|e| {
        list_mut(e).members[1].client_urls = vec![String::new()];
        let endpoint = &mut e.endpoints[1];
        (endpoint.endpoint, endpoint.member_id) = (String::new(), String::new());
        if let Fact::Known { value, .. } = &mut endpoint.status {
            value.member_id.clear();
        }
    });
    let f = only(&judge(&etcd_node(e)), ConditionType::EtcdQuorum);
    assert!(f.message.contains("2 healthy"), "{f:#?}");
}

#[test]
fn the_coordinator_names_them_too() {
    let f =
        World::of(3).every(|_, e| list_mut(e).members[1].peer_urls = vec!["unix:///x".into()]).membership();
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdUrlUnusable,
        &["unix:///x of n2", "instead https://10.0.0.2:2380"],
    );
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn any_text_is_judged_and_a_text_without_scheme_never_passes(url in "\\PC{0,40}", client_url in any::<String>()) {
        let f = membership(etcd(3).with(|e| {
            list_mut(e).members[1].peer_urls = vec![url.clone()];
            list_mut(e).members[2].client_urls = vec![client_url];
        }));
        if !url.contains("://") {
            prop_assert_eq!(f.status, Status::False, "{:#?}", f);
        }
        prop_assert!(!f.message.contains('\n'));
    }

    #[test]
    fn what_stands_there_instead_is_usable(url in prop::sample::select(&["", "x", "https://", "https://[::1]", "fd00::1:2380", "http://:1", "unix://x"][..]), port in 0u32..70_000) {
        let url = if url == "x" { format!("10.9.9.9:{port}") } else { url.to_owned() };
        let f = peer(&url);
        let instead = f.message.split("instead ").nth(1).and_then(|rest| rest.split(')').next()).unwrap_or_default().to_owned();
        if f.reason == ReasonCode::EtcdUrlUnusable {
            let healed = peer(&instead);
            prop_assert!(healed.reason != ReasonCode::EtcdUrlUnusable, "{url:?} {instead:?} {healed:#?}");
        }
    }
}

#[test]
fn who_has_not_started_has_published_nothing_yet() {
    for voters in 1..=3 {
        let loopback = |i: usize, of: usize| format!("http://127.0.0.1:{}", 10_000 * (i + 1) + of);
        let e = etcd(voters + 1).with(|e| {
            for (i, m) in list_mut(e).members.iter_mut().enumerate() {
                m.peer_urls = vec![loopback(i, 2380)];
                m.client_urls = vec![loopback(i, 2379)];
            }
            for (i, endpoint) in e.endpoints.iter_mut().enumerate() {
                endpoint.endpoint = loopback(i, 2379);
            }
            let added = &mut list_mut(e).members[voters];
            (added.is_learner, added.client_urls) = (true, vec![]);
            added.name.clear();
            e.endpoints.pop();
        });
        let f = membership(e);
        assert!(!f.message.contains("nobody can use"), "{f:#?}");
    }
}

#[test]
fn of_an_empty_url_nothing_else_is_told() {
    let e = etcd(3).with(|e| {
        list_mut(e).members[0].peer_urls = vec!["".into()];
        list_mut(e).members[1].peer_urls = vec![" ".into()];
        e.expected = Some(crate::world::known(ExpectedMember {
            name: "n1".into(),
            peer_urls: vec!["https://10.0.0.1:2380".into()],
            client_urls: vec![],
            election_timeout_ms: None,
            heartbeat_ms: None,
        }));
    });
    let f = membership(e);
    assert_eq!(f.reason, ReasonCode::EtcdUrlUnusable);
    for hole in ["peer URL  ", "peer URL and", "scheme of again", "(duplicate)", "  "] {
        assert!(!f.message.contains(hole) && !f.advice.contains(hole), "{hole:?}: {f:#?}");
    }
}
