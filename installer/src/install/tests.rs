//! Plan, receipt and the way back, on trees in a temporary folder. A real systemd is the suite `install`'s.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;

use super::undo::{self, Back};
use super::*;

const FILES: [&str; 13] = [
    "usr/bin/outrider",
    "usr/bin/outrider-agent",
    "usr/bin/outrider-coordinator",
    "usr/libexec/outrider/outrider-helper",
    "usr/lib/systemd/system/outrider-agent.service",
    "usr/lib/systemd/system/outrider-helper.service",
    "usr/lib/systemd/system/outrider-helper.socket",
    "usr/lib/sysusers.d/outrider.conf",
    "usr/lib/tmpfiles.d/outrider.conf",
    "usr/libexec/outrider/outrider-guest-agent",
    "usr/lib/systemd/system/outrider-guest-agent.service",
    "usr/lib/systemd/system/outrider-guest-agent.path",
    "usr/lib/systemd/system/outrider-guest-agent.timer",
];

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A release whose every file says `version`.
fn release(folder: &Path, version: &str) -> Release {
    for file in FILES {
        put(&folder.join(file), &format!("{version} {file}\n"));
    }
    put(&folder.join(FILES[7]), "u outrider - \"agent\" /var/lib/outrider\n");
    fs::set_permissions(folder.join(FILES[1]), fs::Permissions::from_mode(0o755)).unwrap();
    Release::read(folder).unwrap()
}

/// A tree with the users of the units in it, so that none has to be made.
fn machine(folder: &Path) -> Machine {
    put(&folder.join("etc/passwd"), "outrider:x:990:990::/var/lib/outrider:/usr/sbin/nologin\n");
    put(&folder.join("etc/group"), "outrider:x:990:\n");
    put(&folder.join("usr/lib/systemd/systemd"), "");
    fs::create_dir_all(folder.join("var/lib")).unwrap();
    Machine::new(&folder.canonicalize().unwrap())
}

fn wishes() -> Wishes {
    Wishes {
        coordinators: vec!["https://c.example:8440".to_owned()],
        cluster: Some("say \"prod\"".to_owned()),
        ..Wishes::default()
    }
}

/// Every path below `root` with its mode and text.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let text = if metadata.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, format!("{:o} {text}", metadata.permissions().mode()));
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

async fn planned(machine: &Machine, release: Option<&Release>, wishes: &Wishes) -> (Plan, Option<Receipt>) {
    let wanted = wanted(release, wishes, None);
    let users = release.map(|release| release.users.clone()).unwrap_or_default();
    let seen = look(machine, &wanted, &users, Receipt::read(machine).unwrap()).await.unwrap();
    (plan(&wanted, &seen, false, false), seen.receipt)
}

async fn installed(machine: &Machine, release: &Release, wishes: &Wishes) {
    let (plan, receipt) = planned(machine, Some(release), wishes).await;
    apply(machine, &plan, Some(release), wishes, receipt).await.unwrap();
}

async fn way_back(machine: &Machine, purge: bool) -> Undo {
    match Receipt::read(machine).unwrap() {
        Some(receipt) => undo::undo(&receipt, &undo::look(machine, &receipt).await.unwrap(), purge),
        None => undo::nothing(machine).await.unwrap(),
    }
}

async fn uninstalled(machine: &Machine, purge: bool) -> Undo {
    let undo = way_back(machine, purge).await;
    // As the command: without a step, nothing is touched.
    if !undo.steps.is_empty() {
        undo::act(machine, undo.clone()).await.unwrap();
    }
    undo
}

#[tokio::test]
async fn a_second_run_has_nothing_to_do_and_a_purge_leaves_what_was_before() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (machine, release) = (machine(root.path()), release(from.path(), "1"));
    let before = tree(root.path());
    let (plan, _) = planned(&machine, Some(&release), &wishes()).await;
    assert_eq!(tree(root.path()), before, "planning changes nothing");
    let kinds: Vec<&str> = plan.steps.iter().map(|planned| planned.step.kind()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "WriteFile").count(), FILES.len() + 1);
    assert_eq!(kinds.last(), Some(&"EnableUnit"), "{kinds:?}");
    assert!(plan.held.iter().any(|held| held.reason.contains("next boot")));

    installed(&machine, &release, &wishes()).await;
    let drop_in = fs::read_to_string(machine.at(DROP_IN)).unwrap();
    assert!(drop_in.contains("urls = [\"https://c.example:8440\"]"), "{drop_in}");
    let link =
        fs::read_link(machine.at("/etc/systemd/system/multi-user.target.wants/outrider-agent.service"))
            .unwrap();
    assert_eq!(link, Path::new("/usr/lib/systemd/system/outrider-agent.service"));
    let receipt = fs::metadata(machine.at(FOLDER).join("receipt.json")).unwrap();
    assert_eq!(receipt.permissions().mode() & 0o777, 0o600);
    let (again, _) = planned(&machine, Some(&release), &wishes()).await;
    assert!(again.steps.is_empty(), "{:?}", again.steps);

    put(&root.path().join("var/lib/outrider/identity.key"), "key");
    uninstalled(&machine, false).await;
    assert!(!machine.has(AGENT) && machine.has(DROP_IN) && machine.has("/var/lib/outrider/identity.key"));
    let twice = way_back(&machine, false).await;
    assert!(twice.steps.is_empty(), "{:?}", twice.steps);
    uninstalled(&machine, true).await;
    assert_eq!(tree(root.path()), before);
}

#[tokio::test]
async fn what_others_changed_stays_and_is_told() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (machine, release) = (machine(root.path()), release(from.path(), "1"));
    let theirs = "/usr/lib/tmpfiles.d/outrider.conf";
    put(&machine.at(theirs), "theirs");
    installed(&machine, &release, &wishes()).await;
    assert!(fs::read_to_string(machine.at(theirs)).unwrap().starts_with("1 "));
    put(&machine.at("/usr/bin/outrider"), "changed");
    put(&machine.at("/usr/libexec/outrider/plugin"), "of somebody else");
    let undo = way_back(&machine, true).await;
    assert!(undo.held.iter().any(|held| held.target == "/usr/bin/outrider"), "{:?}", undo.held);
    let stayed = undo::act(&machine, undo).await.unwrap();
    assert_eq!(stayed.len(), 1, "{stayed:?}");
    assert_eq!(fs::read_to_string(machine.at(theirs)).unwrap(), "theirs");
    assert_eq!(fs::read_to_string(machine.at("/usr/bin/outrider")).unwrap(), "changed");
    assert!(machine.has("/usr/libexec/outrider/plugin") && !machine.has(AGENT));
}

#[tokio::test]
async fn a_later_release_replaces_an_earlier_one_and_both_go() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    let before = tree(root.path());
    installed(&machine, &release(from.path(), "1"), &wishes()).await;
    let later = Wishes { cluster: None, name: Some("n1".to_owned()), ..Wishes::default() };
    let later = later.over(Some(&wishes()));
    installed(&machine, &release(from.path(), "2"), &later).await;
    assert!(fs::read_to_string(machine.at(AGENT)).unwrap().starts_with("2 "));
    let drop_in = fs::read_to_string(machine.at(DROP_IN)).unwrap();
    assert!(drop_in.contains("name = \"n1\"") && drop_in.contains("c.example"), "{drop_in}");
    // Where the programs are there, configuration can be changed without a release.
    let (plan, _) = planned(&machine, None, &wishes()).await;
    let kinds: Vec<&str> = plan.steps.iter().map(|planned| planned.step.kind()).collect();
    assert_eq!(kinds, ["WriteFile"]);
    uninstalled(&machine, true).await;
    assert_eq!(tree(root.path()), before);
}

#[tokio::test]
async fn links_of_an_image_lead_to_places_in_the_image() {
    let (root, from, elsewhere) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    let link = |target: &str, path: &str| {
        fs::create_dir_all(machine.at(path).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, machine.at(path)).unwrap();
    };
    let outside = elsewhere.path().to_str().unwrap();
    link(outside, "/etc/outrider");
    fs::create_dir_all(machine.at(outside)).unwrap();
    link("../../../../usr/share/elsewhere", "/usr/bin");
    fs::create_dir_all(machine.at("/usr/share/elsewhere")).unwrap();
    installed(&machine, &release(from.path(), "1"), &wishes()).await;
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing is written outside the image");
    assert!(root.path().join(&outside[1..]).join("agent.toml.d/60-install.toml").is_file());
    assert!(root.path().join("usr/share/elsewhere/outrider-agent").is_file() && machine.has(AGENT));
    // In a circle there is nothing to find, and no end that is not found.
    link("b", "/a");
    link("a", "/b");
    assert!(!machine.is_dir("/a/x") && !machine.has("/a/x"));
    uninstalled(&machine, true).await;
    assert!(!machine.has(AGENT) && machine.is_dir("/usr/bin"));
}

#[tokio::test]
async fn without_a_receipt_what_was_replaced_is_kept_and_named() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    put(&machine.at(AGENT), "somebody's\n");
    installed(&machine, &release(from.path(), "1"), &wishes()).await;
    fs::remove_file(machine.at(FOLDER).join("receipt.json")).unwrap();
    let undo = uninstalled(&machine, true).await;
    let named = |path: &str| undo.held.iter().any(|held| held.target.contains(path));
    assert!(
        named("/var/lib/outrider-install/replaced") && named(AGENT) && named("/etc/outrider"),
        "{undo:?}"
    );
    assert_eq!(fs::read_dir(machine.at(FOLDER).join("replaced")).unwrap().count(), 1);
}

const USERDATA: [&str; 4] = [
    "etc/outrider/agent.toml.d/50-userdata.toml",
    "etc/outrider/install.sh",
    "etc/outrider/token",
    "etc/systemd/system/outrider-install.service",
];

#[tokio::test]
async fn what_userdata_wrote_becomes_part_of_the_installation() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    fs::create_dir_all(machine.at("/etc/systemd/system")).unwrap();
    let before = tree(root.path());
    for file in USERDATA {
        put(&machine.at(file), "of userdata\n");
    }
    fs::set_permissions(machine.at(TOKEN), fs::Permissions::from_mode(0o600)).unwrap();
    let release = release(from.path(), "1");
    installed(&machine, &release, &Wishes::default()).await;
    if machine.is_root {
        assert_eq!(fs::metadata(machine.at(TOKEN)).unwrap().permissions().mode() & 0o777, 0o640);
    }
    let (plan, _) = planned(&machine, Some(&release), &Wishes::default()).await;
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    uninstalled(&machine, false).await;
    assert!(USERDATA.iter().all(|file| machine.has(file)) && !machine.has(AGENT));
    installed(&machine, &release, &Wishes::default()).await;
    uninstalled(&machine, true).await;
    assert_eq!(tree(root.path()), before);
}

#[tokio::test]
async fn a_coordinators_settings_outlive_the_node() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    installed(&machine, &release(from.path(), "1"), &wishes()).await;
    let settings = "/etc/outrider/coordinator.env";
    put(&machine.at(settings), "OUTRIDER_LISTEN=0.0.0.0:8440\n");
    uninstalled(&machine, true).await;
    assert!(machine.has(settings) && !machine.has(DROP_IN));
}

#[tokio::test]
async fn what_lay_there_before_comes_back_also_where_ours_was_removed() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    put(&machine.at(AGENT), "somebody's\n");
    installed(&machine, &release(from.path(), "1"), &wishes()).await;
    fs::remove_file(machine.at(AGENT)).unwrap();
    uninstalled(&machine, false).await;
    assert_eq!(fs::read_to_string(machine.at(AGENT)).unwrap(), "somebody's\n");
}

#[tokio::test]
async fn what_lay_beside_userdata_stays() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    let site = "etc/outrider/agent.toml.d/90-site.toml";
    for file in USERDATA.into_iter().chain([site]) {
        put(&machine.at(file), "text\n");
    }
    installed(&machine, &release(from.path(), "1"), &Wishes::default()).await;
    uninstalled(&machine, true).await;
    assert!(machine.has(site) && !USERDATA.iter().any(|file| machine.has(file)));
}

#[tokio::test]
async fn a_coordinator_on_the_machine_keeps_its_program() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (machine, release) = (machine(root.path()), release(from.path(), "1"));
    installed(&machine, &release, &wishes()).await;
    put(&machine.at("/etc/systemd/system/multi-user.target.wants/outrider-coordinator.service"), "");
    uninstalled(&machine, true).await;
    assert!(machine.has("/usr/bin/outrider-coordinator") && !machine.has(AGENT));
    // Once it is gone, so is the rest.
    fs::remove_file(machine.at("/etc/systemd/system/multi-user.target.wants/outrider-coordinator.service"))
        .unwrap();
    uninstalled(&machine, true).await;
    assert!(!machine.has("/usr/bin/outrider-coordinator") && !machine.has(FOLDER));
}

#[tokio::test]
async fn a_receipt_that_cannot_be_read_is_no_empty_one() {
    let root = tempfile::tempdir().unwrap();
    let machine = machine(root.path());
    let receipt = machine.at(FOLDER).join("receipt.json");
    for (text, word) in [
        ("{\"apiVersion\"", "is damaged"),
        ("{}", "is damaged"),
        ("{\"apiVersion\":\"outrider/v1alpha1\",\"kind\":\"Other\",\"version\":1}", "is damaged"),
    ] {
        put(&receipt, text);
        let said = format!("{:#}", Receipt::read(&machine).unwrap_err());
        assert!(said.contains(word) && said.contains("docs/install.md"), "{text}: {said}");
    }
    fs::remove_file(&receipt).unwrap();
    let mut of_later = Receipt::new();
    fs::create_dir_all(machine.at(FOLDER)).unwrap();
    of_later.write(&machine).unwrap();
    let text = fs::read_to_string(&receipt).unwrap().replace("\"version\": 1", "\"version\": 2");
    put(&receipt, &text);
    let said = format!("{:#}", Receipt::read(&machine).unwrap_err());
    assert!(said.contains("has format 2 of ") && said.contains("; this version knows 1"), "{said}");
    // What a later release calls by words of its own is no damage.
    for (ours, theirs) in [
        (outrider_protocol::API_VERSION, "outrider/v2"),
        ("\"made\": []", "\"made\": [{\"made\": \"moon\"}]"),
    ] {
        let later = text.replace("\"version\": 2", "\"version\": 1").replace(ours, theirs);
        put(
            &receipt,
            &later.replace(
                &format!("\"program\": \"{}\"", env!("CARGO_PKG_VERSION")),
                "\"program\": \"9.0.0\"",
            ),
        );
        let said = format!("{:#}", Receipt::read(&machine).unwrap_err());
        assert!(said.contains("program") && !said.contains("damaged"), "{said}");
    }
}

#[tokio::test]
async fn an_archive_is_the_same_as_the_folder_it_was_made_of() {
    let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = machine(root.path());
    let folder = release(from.path(), "1");
    let file = from.path().join("outrider.tar.gz");
    let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(
        fs::File::create(&file).unwrap(),
        flate2::Compression::fast(),
    ));
    archive.append_dir_all("outrider-1/usr", from.path().join("usr")).unwrap();
    archive.into_inner().unwrap().finish().unwrap();
    let packed = Release::read(&file).unwrap();
    assert_eq!((&packed.files, &packed.users), (&folder.files, &folder.users));
    installed(&machine, &packed, &wishes()).await;
    assert!(!machine.at(FOLDER).join("unpacked").exists());
    let (again, _) = planned(&machine, Some(&folder), &wishes()).await;
    assert!(again.steps.is_empty(), "{:?}", again.steps);
    put(&from.path().join("none.tar.gz"), "no archive");
    let said = format!("{:#}", Release::read(&from.path().join("none.tar.gz")).unwrap_err());
    assert!(said.contains("is no release"), "{said}");
}

#[test]
fn no_step_shows_what_is_in_a_file() {
    let token = outrider_agent::report::Token::parse(&format!("OR1{}::id:hush", "a1".repeat(32))).unwrap();
    let files = wanted(None, &Wishes { token: true, ..Wishes::default() }, Some(&token));
    assert!(!format!("{files:?}").contains("hush"));
    assert_eq!(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), [TOKEN, DROP_IN]);
}

#[test]
fn the_units_are_enabled_as_they_say_themselves() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    for (unit, target) in UNITS {
        let text = fs::read_to_string(packaging.join("usr/lib/systemd/system").join(unit)).unwrap();
        assert!(text.contains(&format!("WantedBy={target}\n")), "{unit}");
    }
}

#[test]
fn the_daemon_stops_before_the_socket_it_asks_through() {
    let mut receipt = Receipt::new();
    for (unit, _) in UNITS {
        receipt.made.push(receipt::Made::Started { unit: unit.to_owned() });
    }
    let running = UNITS.iter().map(|(unit, _)| (*unit).to_owned()).collect();
    let lies = undo::Lies { running, live: true, ..undo::Lies::default() };
    let undo = undo::undo(&receipt, &lies, false);
    let Some(Back::Stop(units)) = undo.steps.first().map(|planned| &planned.step) else {
        panic!("nothing stops")
    };
    assert_eq!(units.len(), UNITS.len());
    assert_eq!((units[0].as_str(), units[3].as_str()), ("outrider-agent.service", "outrider-helper.socket"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Wherever a run ends and however often, on whatever lay there: the next one completes it, and a purge brings back what
    /// was before.
    #[test]
    fn ended_anywhere_it_is_completed_and_undone(
        theirs in proptest::collection::vec(any::<bool>(), FILES.len()),
        ends in proptest::collection::vec(0_usize..40, 0..4),
        back_ends in proptest::collection::vec(0_usize..40, 0..3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (root, from) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (machine, release) = (machine(root.path()), release(from.path(), "1"));
        for (file, there) in FILES.iter().zip(theirs) {
            if there && !file.contains("sysusers") {
                put(&root.path().join(file), "theirs");
            }
        }
        let before = tree(root.path());
        runtime.block_on(async {
            for end in ends {
                let (mut plan, receipt) = planned(&machine, Some(&release), &wishes()).await;
                plan.steps.truncate(end);
                apply(&machine, &plan, Some(&release), &wishes(), receipt).await.unwrap();
            }
            installed(&machine, &release, &wishes()).await;
            for file in &release.files {
                assert_eq!(files::look_at(&machine.at(&file.path)).file().map(|f| &f.sha256), Some(&file.sha256));
            }
            for end in back_ends {
                let mut undo = way_back(&machine, true).await;
                undo.steps.truncate(end);
                undo.remaining = None;
                if !undo.steps.is_empty() {
                    undo::act(&machine, undo).await.unwrap();
                }
            }
            uninstalled(&machine, true).await;
        });
        prop_assert_eq!(tree(root.path()), before);
    }
}
