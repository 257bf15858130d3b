//! Files that no port shows, and files that cannot be read.

use super::*;

#[test]
fn files_are_told_together_the_first_end_first() {
    let c = certificates(NEW, 265).with(|c| {
        c.files[2].certificates = known(vec![leaf("admin", -2)]);
        c.files.push(certificate_file(&format!("{TLS}/client-x.crt"), Use::Server, vec![leaf("x", -1)]));
    });
    let finding = about(&judged(c), "files");
    expect(
        &finding,
        Status::False,
        Severity::Error,
        R::CertificateExpired,
        &["client-admin.crt", "The same holds for 1 more of 3 files", "client-x.crt"],
    );
    // What an agent fetches at every start needs no window.
    let agent = certificates(OLD, 265).with(|c| c.files[3].certificates = known(vec![leaf("kubelet", 110)]));
    let finding = about(&judged(agent), "files");
    expect(
        &finding,
        Status::True,
        Severity::Info,
        R::CertificateEnding,
        &["A restart of rke2-server renews it", "anew at every start"],
    );
    // What a component made for itself harms little.
    let made = certificates(NEW, 265).with(|c| {
        let path = format!("{TLS}/kube-scheduler/kube-scheduler.crt");
        c.files.push(certificate_file(&path, Use::SelfMade, vec![leaf("scheduler", -9)]));
    });
    let finding = about(&judged(made), "files");
    expect(
        &finding,
        Status::True,
        Severity::Warn,
        R::CertificateEnding,
        &["A restart alone does not renew it"],
    );
}

#[test]
fn what_cannot_be_read_is_never_healthy() {
    for cause in [UnknownCause::TimedOut, UnknownCause::TlsFailed] {
        let c = certificates(NEW, 265).with(|c| c.served[0].chain = unknown(cause.clone()));
        expect(
            &about(&judged(c), "etcd:2379"),
            Status::Unknown,
            Severity::Warn,
            R::from(&cause),
            &["shows no certificate"],
        );
    }
    let closed = certificates(NEW, 265)
        .with(|c| c.served[0].chain = Fact::not_applicable("nobody listens", world::now()));
    let j = judged(closed);
    assert!(j.findings.iter().all(|f| f.subject != "etcd:2379"), "not this node's role");
    assert!(about(&j, "files").message.starts_with("3 certificate files"), "its file is judged all the same");
    let denied =
        certificates(NEW, 265).with(|c| c.files[2].certificates = unknown(UnknownCause::PermissionDenied));
    expect(
        &about(&judged(denied), "files"),
        Status::Unknown,
        Severity::Warn,
        R::PermissionDenied,
        &["client-admin.crt"],
    );
    let garbage =
        certificates(NEW, 265).with(|c| c.files[2].certificates = unknown(UnknownCause::InvalidInput));
    expect(
        &about(&judged(garbage), "files"),
        Status::False,
        Severity::Warn,
        R::CertificateUnreadable,
        &["holds no certificate"],
    );
    let untold = certificates(NEW, 265).with(|c| c.served[0].issuer = unknown(UnknownCause::InvalidInput));
    expect(
        &about(&judged(untold), "etcd:2379"),
        Status::Unknown,
        Severity::Warn,
        R::InvalidInput,
        &["Who signed"],
    );
}

#[test]
fn what_is_missing_or_was_not_read_is_not_healthy() {
    let gone = certificates(NEW, 265).with(|c| c.files[1].certificates = world::absent("file"));
    expect(
        &about(&judged(gone), "files"),
        Status::False,
        Severity::Warn,
        R::CertificateUnreadable,
        &["server-client.crt is missing"],
    );
    let many = certificates(NEW, 265).with(|c| c.files_left_out = 7);
    expect(
        &about(&judged(many), "files"),
        Status::Unknown,
        Severity::Warn,
        R::InvalidInput,
        &["7 further certificate files were not read", "Move copies"],
    );
    let large = certificates(NEW, 265).with(|c| c.files[2].certificates = unknown(UnknownCause::Unsupported));
    let large = about(&judged(large), "files");
    assert_eq!((large.status, large.severity), (Status::Unknown, Severity::Warn), "{large:#?}");
}

#[test]
fn the_hint_for_a_file_speaks_of_the_file() {
    let c = certificates(NEW, 265).with(|c| c.files[0].certificates = unknown(UnknownCause::InvalidAnswer));
    let finding = about(&judged(c), "files");
    expect(
        &finding,
        Status::Unknown,
        Severity::Warn,
        R::InvalidAnswer,
        &["server-ca.crt", "what the file holds"],
    );
    assert!(!finding.advice.contains("above"), "{finding:?}");
}

#[test]
fn where_no_file_was_read_nothing_is_known_of_them() {
    type Kept = fn(&CertificateFile) -> bool;
    let cases: [(Kept, bool); 3] =
        [(|_| false, true), (|_| false, false), (|file| file.usage == Use::Authority, true)];
    for (kept, is_served) in cases {
        let c = certificates(NEW, 265).with(|c| {
            c.files.retain(kept);
            c.served.retain(|_| is_served);
        });
        expect(
            &about(&judged(c), "files"),
            Status::Unknown,
            Severity::Warn,
            R::CertificateUnreadable,
            &["No certificate file was read below", "ls -lR"],
        );
    }
}

#[test]
fn what_could_not_be_read_says_where_to_look() {
    let path = format!("{TLS}/client-admin.crt");
    let with = |cause: UnknownCause, detail: &str| {
        let fact = Fact::unknown(cause, detail, path.as_str(), world::now());
        about(&judged(certificates(NEW, 265).with(|c| c.files[2].certificates = fact)), "files")
    };
    for (cause, detail, words) in [
        (UnknownCause::Unsupported, "larger than 64 KiB, not read", "ls -lL"),
        (UnknownCause::IoError, "Too many levels of symbolic links (os error 40)", "namei -l"),
        (UnknownCause::IoError, "Not a directory (os error 20)", "namei -l"),
        (UnknownCause::IoError, "Input/output error (os error 5)", "dmesg"),
    ] {
        let f = with(cause, detail);
        assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Warn), "{f:#?}");
        assert!(f.advice.contains(words) && f.advice.contains(&path), "{f:#?}");
        assert!(!f.advice.contains("peer") && !f.advice.contains("system's log"), "{f:#?}");
    }
    let f = with(UnknownCause::InvalidInput, "block 2 of 2: no X.509 certificate");
    expect(
        &f,
        Status::False,
        Severity::Warn,
        R::CertificateUnreadable,
        &["cannot be read whole: block 2 of 2"],
    );
    assert!(!f.message.contains("holds no certificate"), "{f:#?}");
}
