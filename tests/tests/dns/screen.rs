//! What a person sees.

use std::process::Command;

use crate::bed::*;

#[test]
#[ignore = "needs root, dnsmasq and ip"]
fn both_checks_explain_themselves_in_one_screen() {
    on_a_machine_of_its_own(|node| {
        let options = good();
        let _servers = [node.server(FIRST, &words(&options)), node.server(SECOND, &words(&options))];
        let mut command = Command::new(outrider_tests::programs::program("outrider").unwrap());
        command.args(["check", "--only", "dns,rancher-agent", "--config"]).arg(&node.config);
        command.env("HTTPS_PROXY", "http://user:s3cret@proxy.example:3128").env("NO_PROXY", "*.example");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert!(!text.contains("s3cret"), "a password is shown:\n{text}");
        assert!(text.lines().count() <= 24, "more than a screen:\n{text}");
        assert!(text.contains("not installed"), "{text}");
        assert!(node.folder.exists());
    });
}
