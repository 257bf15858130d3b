//! Helper and client together over a real socket, and each against a hostile peer.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::super::{DirectOpener, HelperOpener};
use super::*;
use crate::sense::OpenFile;

const KEY: &str = "/var/lib/rancher/rke2/server/tls/etcd/client.key";
/// Far beyond what an exchange takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A machine with an RKE2 client key, and a helper that serves it.
struct Bed {
    dir: tempfile::TempDir,
    helper: Option<JoinHandle<Vec<String>>>,
}

impl Bed {
    fn start(limits: Limits) -> Self {
        Self::start_for(vec![nix::unistd::geteuid().as_raw()], limits)
    }

    fn start_for(callers: Vec<u32>, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let root = dir.path().join("root");
        let key = root.join(&KEY[1..]);
        std::fs::create_dir_all(key.parent().unwrap()).unwrap();
        std::fs::write(&key, "the key").unwrap();
        let owner = nix::unistd::geteuid().as_raw();
        let (allow, problems) = AllowList::load(&root, owner);
        assert_eq!(problems, Vec::<String>::new());
        let helper = Helper { allow, callers, root, owner };
        let listener = UnixListener::bind(dir.path().join("helper.sock")).unwrap();
        let helper = std::thread::spawn(move || {
            let mut lines = Vec::new();
            serve(&listener, &helper, limits, &mut |line| lines.push(line.to_owned())).unwrap();
            lines
        });
        Self { dir, helper: Some(helper) }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("helper.sock")
    }

    fn on_machine(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path.trim_start_matches('/'))
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What comes back for these bytes.
    fn say(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // The helper may answer and leave before it has read everything.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        Reply::from_line(answer.trim_ascii_end()).unwrap_or_else(|e| panic!("{e}: {answer:?}"))
    }

    fn refusal(&self, bytes: &[u8]) -> Refusal {
        match self.say(bytes) {
            Reply::Refused { refusal, .. } => refusal,
            reply => panic!("{reply:?}"),
        }
    }

    /// A client whose own rights reach nothing, as the daemon's.
    fn client(&self) -> Asking {
        Asking(HelperOpener::at(
            self.socket(),
            DirectOpener::below(self.dir.path().join("no-rights")),
            PATIENCE,
        ))
    }

    /// Waits for the helper's own end and yields what it logged.
    fn end(mut self) -> Vec<String> {
        self.helper.take().unwrap().join().unwrap()
    }
}

/// Turns the direct answer "not there" into a question, as "permission denied" would be for another user.
struct Asking(HelperOpener);

impl Asking {
    fn open(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        self.0.ask_open(Path::new(path))?.read_to_string(&mut text)?;
        Ok(text)
    }
}

fn short(idle_ms: u64) -> Limits {
    Limits { exchange: Duration::from_millis(100), idle: Duration::from_millis(idle_ms) }
}

#[test]
fn a_key_comes_as_a_descriptor_and_names_as_a_list() {
    let bed = Bed::start(short(500));
    assert_eq!(bed.client().open(KEY).unwrap(), "the key");
    let names = bed.client().0.ask_list(Path::new("/var/lib/rancher/rke2/server/tls/etcd")).unwrap();
    assert_eq!(names, ["client.key"]);
    assert_eq!(bed.end(), Vec::<String>::new());
}

#[test]
fn of_a_servers_key_comes_the_fingerprint_of_its_public_half_alone() {
    let bed = Bed::start(short(800));
    let pair = "/var/lib/rancher/rke2/server/tls/etcd/server-client";
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["n1".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(bed.on_machine(&format!("{pair}.key")), key.serialize_pem()).unwrap();
    let told = bed.client().open(&format!("{pair}.key")).unwrap();
    let half = crate::net::certificate::public_key(certificate.der()).unwrap();
    assert_eq!(told, format!("public key sha256:{half}\n"));
    std::fs::write(bed.on_machine(&format!("{pair}.key")), "s3cret").unwrap();
    let told = bed.client().open(&format!("{pair}.key")).unwrap();
    assert!(told.starts_with("invalid: ") && !told.contains("s3cret"), "{told}");
    assert!(bed.end().iter().all(|line| !line.contains("s3cret")));
}

#[test]
fn the_descriptor_cannot_be_written() {
    let bed = Bed::start(short(500));
    let mut file = bed.client().0.ask_open(Path::new(KEY)).unwrap();
    assert!(file.write_all(b"x").is_err());
    bed.end();
}

#[test]
fn each_refusal_has_its_kind() {
    let bed = Bed::start(short(800));
    std::fs::write(bed.on_machine("/etc-shadow"), "x").unwrap();
    let folder = "/var/lib/rancher/rke2/server/tls/etcd";
    symlink("/etc-shadow", bed.on_machine(&format!("{folder}/planted.crt"))).unwrap();
    std::fs::create_dir(bed.on_machine(&format!("{folder}/folder.crt"))).unwrap();
    nix::unistd::mkfifo(&bed.on_machine(&format!("{folder}/fifo.crt")), nix::sys::stat::Mode::S_IRUSR)
        .unwrap();
    let kind = |path: &str| bed.client().open(path).unwrap_err();
    assert_eq!(kind("/etc/shadow").kind(), io::ErrorKind::PermissionDenied);
    assert!(kind("/etc/shadow").to_string().contains("helper.d"));
    assert_eq!(kind(&format!("{folder}/missing.crt")).kind(), io::ErrorKind::NotFound);
    assert_eq!(kind(&format!("{folder}/planted.crt")).kind(), io::ErrorKind::InvalidInput);
    assert!(kind(&format!("{folder}/planted.crt")).to_string().contains("symbolic link"));
    assert_eq!(kind(&format!("{folder}/folder.crt")).kind(), io::ErrorKind::InvalidInput);
    assert_eq!(kind(&format!("{folder}/fifo.crt")).kind(), io::ErrorKind::InvalidInput);
    bed.end();
}

#[test]
fn a_data_folder_moved_behind_a_link_is_served() {
    let bed = Bed::start(short(500));
    std::fs::create_dir(bed.on_machine("/disk2")).unwrap();
    std::fs::rename(bed.on_machine("/var/lib/rancher/rke2"), bed.on_machine("/disk2/rke2")).unwrap();
    symlink("/disk2/rke2", bed.on_machine("/var/lib/rancher/rke2")).unwrap();
    assert_eq!(bed.client().open(KEY).unwrap(), "the key");
    bed.end();
}

#[test]
fn a_configuration_comes_without_its_secrets() {
    let bed = Bed::start(short(800));
    let folder = bed.on_machine("/etc/rancher/rke2/config.yaml.d");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("50-rancher.yaml"), r#"{"token":"s3cret","disable-etcd":true}"#).unwrap();
    std::fs::write(folder.join("60-broken.yaml"), "token: [s3cret").unwrap();
    let names = bed.client().0.ask_list(Path::new("/etc/rancher/rke2/config.yaml.d")).unwrap();
    assert_eq!(names, ["50-rancher.yaml", "60-broken.yaml"]);
    let text = bed.client().open("/etc/rancher/rke2/config.yaml.d/50-rancher.yaml").unwrap();
    assert_eq!(text, r#"{"disable-etcd":true}"#);
    let error = bed.client().open("/etc/rancher/rke2/config.yaml.d/60-broken.yaml").unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
    assert_eq!(
        bed.client().open("/etc/rancher/rke2/config.yaml").unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    assert!(bed.end().iter().all(|l| !l.contains("s3cret")));
}

#[test]
fn a_folder_is_described_without_opening_what_lies_in_it() {
    let bed = Bed::start(short(800));
    let snapshots = "/var/lib/rancher/rke2/server/db/snapshots";
    std::fs::create_dir_all(bed.on_machine(snapshots)).unwrap();
    std::fs::write(bed.on_machine(&format!("{snapshots}/etcd-snapshot-n1-1")), "12345").unwrap();
    let folder = bed.client().0.ask_describe(Path::new(snapshots)).unwrap();
    let names: Vec<(&str, u64)> = folder.entries.iter().map(|e| (e.name.as_str(), e.size)).collect();
    assert_eq!(names, [("etcd-snapshot-n1-1", 5)]);
    assert!(folder.free_bytes.is_some_and(|free| free > 0));
    let error = bed.client().open(&format!("{snapshots}/etcd-snapshot-n1-1")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    let describe = |path: &str| bed.client().0.ask_describe(Path::new(path)).unwrap_err();
    assert_eq!(describe("/root").kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(describe("/var/lib/etcd").kind(), io::ErrorKind::NotFound);
    // A folder that somebody turned into a link leads nowhere.
    std::fs::rename(bed.on_machine(snapshots), bed.on_machine("/elsewhere")).unwrap();
    symlink("/elsewhere", bed.on_machine(snapshots)).unwrap();
    assert_eq!(describe(snapshots).kind(), io::ErrorKind::InvalidInput);
    bed.end();
}

#[test]
fn etcds_own_configuration_comes_in_part_and_through_no_link() {
    let bed = Bed::start(short(800));
    let folder = bed.on_machine("/var/lib/rancher/rke2/server/db/etcd");
    std::fs::create_dir_all(&folder).unwrap();
    let path = "/var/lib/rancher/rke2/server/db/etcd/config";
    std::fs::write(folder.join("config"), "name: n1\nauth-token: s3cret\n").unwrap();
    // With a hardening profile the folder is etcd's own user's: that does not make it untrue.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(bed.client().open(path).unwrap(), r#"{"name":"n1"}"#);
    std::fs::write(bed.on_machine("/other"), "name: stolen\n").unwrap();
    std::fs::remove_file(folder.join("config")).unwrap();
    symlink("/other", folder.join("config")).unwrap();
    assert_eq!(bed.client().open(path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    bed.end();
}

#[test]
fn another_user_is_refused_before_the_question() {
    let stranger = nix::unistd::geteuid().as_raw() + 1;
    let bed = Bed::start_for(vec![stranger], short(300));
    assert_eq!(bed.refusal(format!("{{\"open\":\"{KEY}\"}}\n").as_bytes()), Refusal::NotYou);
    let error = bed.client().open(KEY).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    let log = bed.end();
    assert!(log.iter().all(|l| l.contains("refused uid")), "{log:?}");
}

#[test]
fn garbage_is_refused_and_the_next_caller_served() {
    let bed = Bed::start(short(800));
    let huge = vec![b'a'; 100_000];
    let deep = [vec![b'['; 8000], b"\n".to_vec()].concat();
    for garbage in [
        &b"\n"[..],
        b"open /etc/shadow\n",
        b"{\"open\":1}\n",
        b"\xff\xfe\0\n",
        b"",
        b"{\"open\":\"/a\"}",
        &huge,
        &deep,
    ] {
        assert_eq!(bed.refusal(garbage), Refusal::BadRequest, "{:?}", &garbage[..garbage.len().min(20)]);
    }
    assert_eq!(bed.client().open(KEY).unwrap(), "the key");
    bed.end();
}

#[test]
fn slow_and_silent_callers_are_dropped_and_the_next_is_served() {
    let bed = Bed::start(short(1000));
    let silent: Vec<UnixStream> = (0..20).map(|_| bed.connect()).collect();
    let mut slow = bed.connect();
    let (stop, stopped) = mpsc::channel::<()>();
    let dripping = std::thread::spawn(move || {
        // A byte now and then must not renew the deadline.
        while stopped.try_recv().is_err() && slow.write_all(b"{").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(bed.client().open(KEY).unwrap(), "the key");
    stop.send(()).ok();
    dripping.join().unwrap();
    drop(silent);
    let log = bed.end();
    assert!(log.iter().any(|l| l.contains("too slow")), "{log:?}");
}

#[test]
fn a_caller_that_leaves_at_once_stops_nothing() {
    let bed = Bed::start(short(500));
    for _ in 0..200 {
        drop(bed.connect());
    }
    assert_eq!(bed.client().open(KEY).unwrap(), "the key");
    bed.end();
}

#[test]
fn without_a_caller_the_helper_ends() {
    assert_eq!(Bed::start(short(1)).end(), Vec::<String>::new());
}

/// A helper that answers with these bytes and, if told so, stays silent afterwards.
fn lying(bytes: &'static [u8], stay: bool) -> (tempfile::TempDir, Asking, JoinHandle<()>) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(bytes);
        if stay {
            // Until the client gives up and closes.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let limit = if stay { Duration::from_millis(100) } else { PATIENCE };
    let client = Asking(HelperOpener::at(&socket, DirectOpener::below(dir.path()), limit));
    (dir, client, thread)
}

#[test]
fn a_lying_or_silent_helper_is_an_error_each_with_its_kind() {
    for (bytes, stay, expected) in [
        (&b""[..], true, io::ErrorKind::TimedOut),
        (b"\"open", true, io::ErrorKind::TimedOut),
        (b"\"open", false, io::ErrorKind::UnexpectedEof),
        (b"\"opened\"\n", false, io::ErrorKind::InvalidData),
        (b"{\"names\":[\"a\"]}\n", false, io::ErrorKind::InvalidData),
    ] {
        let (_dir, client, thread) = lying(bytes, stay);
        let error = client.open(KEY).unwrap_err();
        assert_eq!(error.kind(), expected, "{:?}: {error}", String::from_utf8_lossy(bytes));
        drop(client);
        thread.join().unwrap();
    }
}

#[test]
fn a_missing_helper_is_permission_denied_and_never_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let client = Asking(HelperOpener::at(dir.path().join("none"), DirectOpener::new(), PATIENCE));
    let error = client.open(KEY).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("outrider-helper.socket"), "{error}");
}

#[test]
fn own_rights_come_first() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine"), "x").unwrap();
    let opener = HelperOpener::at(dir.path().join("none"), DirectOpener::below(dir.path()), PATIENCE);
    assert!(opener.open(Path::new("/mine")).is_ok());
    // Nothing there stays nothing there: no helper is started on a machine without RKE2.
    assert_eq!(opener.open(Path::new(KEY)).unwrap_err().kind(), io::ErrorKind::NotFound);
}
