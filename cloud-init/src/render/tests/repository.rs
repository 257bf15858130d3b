//! A repository that the document sets up.

use super::*;

const KEY: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----\nComment: somebody's\n\nmDMEZ0AAABYJKwYBBAHaRw8BAQdA\n=AbCd\n-----END PGP PUBLIC KEY BLOCK-----\n";
const URL: &str = "https://packages.example/outrider";

fn of(url: &str, key: Key) -> Request {
    let repository = Some(Repository { url: url.to_owned(), key });
    Request { repository, ..full(Agent::Package("outrider-agent".to_owned())) }
}

fn by_text(key: &str) -> Request {
    of(URL, Key::Text(key.to_owned()))
}

fn by_url(url: &str, sha256: &str) -> Request {
    of(URL, Key::Url { url: url.to_owned(), sha256: sha256.to_owned() })
}

fn what(request: &Request) -> Vec<&'static str> {
    render(Profile::K3sServer, request).err().into_iter().flatten().map(|problem| problem.what).collect()
}

fn content(text: &str, path: &str) -> Option<String> {
    let root = yaml::parse(text).unwrap().unwrap();
    let file = files(&root).iter().find(|file| file.get("path").unwrap().text() == Some(path))?;
    Some(file.get("content").unwrap().text().unwrap().to_owned())
}

/// For every profile one document, in which cloud-init is asked for no package of ours and no list of sources.
#[test]
fn every_profile() {
    for profile in Profile::all() {
        for request in [by_text(KEY), by_url("https://packages.example/outrider.asc", &"aB".repeat(32))] {
            let request = Request { load_balancer: full_for(profile, Agent::Image).load_balancer, ..request };
            let text = render(profile, &request).unwrap_or_else(|p| panic!("{p:?}"));
            let secret = Context { field: Some(crate::Field::Secret), ..Context::default() };
            assert_eq!(lint_for(text.as_bytes(), &secret), [], "{text}");
            let root = yaml::parse(&text).unwrap().unwrap();
            let top: Vec<&str> = root.pairs().unwrap().iter().filter_map(|(key, _)| key.text()).collect();
            assert!(top.iter().all(|key| ["packages", "write_files", "runcmd"].contains(key)), "{top:?}");
            assert!(!text.contains("- outrider-agent\n"), "the boot does not wait for it: {text}");
            let script = content(&text, "/etc/outrider/install.sh").unwrap();
            assert!(script.contains(&format!("baseurl={URL}/rpm\n")), "{script}");
            assert!(script.contains(&format!("[signed-by=$k] {URL}/deb ./")), "{script}");
            for word in
                ["$a install outrider-agent;;", "-r outrider outrider-agent ||", "install outrider-agent\n"]
            {
                assert!(script.contains(word), "{word}: {script}");
            }
            let key = content(&text, "/etc/outrider/outrider.asc");
            let kept = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZ0AAABYJKwYBBAHaRw8BAQdA\n=AbCd\n-----END PGP PUBLIC KEY BLOCK-----\n";
            match &request.repository.as_ref().unwrap().key {
                Key::Text(_) => assert_eq!(key.as_deref(), Some(kept)),
                Key::Url { .. } => {
                    assert_eq!(key, None);
                    assert!(
                        script.contains(&format!("echo \"{}  k\" | sha256sum -c", "ab".repeat(32))),
                        "{script}"
                    );
                }
            }
            assert_eq!(merge(&[&text, &text]).as_ref(), Ok(&text));
        }
    }
}

#[test]
fn what_is_no_key_is_refused() {
    for key in [
        "",
        "mDMEZ0AAABYJKwYBBAHaRw8BAQdA",
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n-----END PGP PUBLIC KEY BLOCK-----\n",
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n",
        "-----END PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----BEGIN PGP PUBLIC KEY BLOCK-----\n",
        &KEY.replace("mDME", "mD ME"),
        &KEY.replace("mDME", "$(x)"),
        &format!("{KEY}{KEY}"),
        &KEY.replace("PUBLIC", "PRIVATE"),
    ] {
        assert_eq!(what(&by_text(key)), ["repo-key"], "{key:?}");
    }
    let private = render(Profile::K3sServer, &by_text(&KEY.replace("PUBLIC", "PRIVATE"))).unwrap_err();
    assert!(!private[0].message.contains("mDME"), "{private:?}");
    assert_eq!(what(&by_text(&KEY.replace('\n', "\r\n"))), [""; 0], "line ends of others");
    assert_eq!(what(&by_text(&format!("\u{feff}{KEY}"))), [""; 0]);
    let sum = "ab".repeat(32);
    for (url, sum) in
        [("https://a/k.asc", ""), ("https://a/k.asc", "ab"), ("ftp://a/k", &sum), ("https://a/$(x)", &sum)]
    {
        assert_eq!(what(&by_url(url, sum)), ["repo-key"], "{url} {sum}");
    }
}

#[test]
fn where_a_repository_may_lie() {
    let at = |url: &str| what(&of(url, Key::Text(KEY.to_owned())));
    for url in ["https://a", "http://192.0.2.1:8081/x/", "http://[2001:db8::1]/x", "file:///media/outrider"] {
        assert_eq!(at(url), [""; 0], "{url}");
    }
    for url in [
        "",
        "a",
        "ftp://a",
        "file://a/b",
        "https://",
        "https://a b",
        "https://u:p@a/",
        "https://a/?x",
        "http://a/\n",
        "https://a/'",
        "http://a/$x",
        "http://a/%20",
    ] {
        assert_eq!(at(url), ["repo"], "{url}");
    }
    let other = Request { agent: Agent::Image, ..by_text(KEY) };
    assert_eq!(what(&other), ["repo"], "an agent that is no package");
}
