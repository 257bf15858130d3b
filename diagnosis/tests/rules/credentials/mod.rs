//! `facts/credentials.md`: every kind of credential, every way it may end, and every answer.

mod answers;
mod cloud;
mod generated;
mod kubeconfigs;
mod rancher_cluster;

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::world::{self, Change, DAY, ago, ahead, known, now};

pub(crate) use generated::any_credentials;

const RANCHER: &str = "https://rancher.example/k8s/clusters/c-m-abc";
const VIP: &str = "https://192.0.2.10:6443";

fn token(form: TokenForm, name: &str, expires_at: Option<Timestamp>) -> TokenFacts {
    TokenFacts {
        form,
        name: name.into(),
        issuer: String::new(),
        not_before: None,
        expires_at,
        fault: String::new(),
    }
}

fn service_account(expires_at: Option<Timestamp>) -> KubeconfigContent {
    KubeconfigContent {
        current_context: "default".into(),
        contexts: 1,
        user: "default".into(),
        server: VIP.into(),
        kinds: vec![CredentialKind::Token],
        token: Some(known(token(TokenForm::ServiceAccount, "system:serviceaccount:prod:csi", expires_at))),
        ..KubeconfigContent::default()
    }
}

fn ranchers() -> KubeconfigContent {
    let token = Some(known(token(TokenForm::Rancher, "kubeconfig-user-x", None)));
    KubeconfigContent { server: RANCHER.into(), token, ..service_account(None) }
}

fn with_certificate(not_after: Timestamp) -> KubeconfigContent {
    let certificate = CertificateFacts {
        subject: "CN=system:admin,O=system:masters".into(),
        issuer: "CN=rke2-client-ca".into(),
        sans: vec![],
        not_before: ago(DAY),
        not_after,
        sha256: String::new(),
        is_ca: false,
        signature: String::new(),
    };
    let kinds = vec![CredentialKind::ClientCertificate];
    KubeconfigContent { kinds, token: None, certificate: Some(known(certificate)), ..service_account(None) }
}

fn file(purpose: KubeconfigPurpose, content: KubeconfigContent) -> KubeconfigFacts {
    KubeconfigFacts {
        path: "/etc/kubernetes/cloud-config".into(),
        purpose,
        world_readable: false,
        content: known(content),
        call: Fact::not_applicable("switched off by credentials.verify", now()),
    }
}

fn answered(status: u16, calls: u32, refused: u32, said: &str) -> Fact<CredentialCall> {
    known(CredentialCall { calls, refused, said: said.into(), ..world::credential_call(status) })
}

fn facts(kubeconfigs: Vec<KubeconfigFacts>, rancher: Option<Fact<CloudCredentials>>) -> NodeFacts {
    let rancher = rancher.unwrap_or_else(|| Fact::not_applicable("none", now()));
    let checks = CheckFacts {
        clock: Some(known(world::clock())),
        credentials: Some(known(CredentialsFacts { kubeconfigs, rancher, rancher_cluster: None })),
        ..CheckFacts::default()
    };
    world::node_facts(checks)
}

fn of(facts: &NodeFacts, subject: &str) -> Finding {
    let found = judge(facts).findings;
    let of =
        |f: &&Finding| f.condition_type == ConditionType::CredentialsValid && f.subject.contains(subject);
    found.iter().find(of).unwrap_or_else(|| panic!("{subject}: {found:#?}")).clone()
}

fn one(kubeconfig: KubeconfigFacts) -> Finding {
    of(&facts(vec![kubeconfig], None), "")
}

fn provider(content: KubeconfigContent) -> Finding {
    one(file(KubeconfigPurpose::CloudProvider, content))
}

/// The same on a machine whose clock nobody keeps.
fn unkept(mut facts: NodeFacts) -> NodeFacts {
    facts.checks.clock = Some(known(world::clock().with(|clock| {
        clock.kernel =
            known(KernelClock { synchronized: false, estimated_error_us: 1, maximum_error_us: 16_000_000 });
        clock.coordinator = Fact::not_applicable("none", now());
    })));
    facts
}

use ReasonCode as R;
use Severity as S;
use Status as T;

fn rancher_token(ttl_ms: i64, made: Timestamp, expires_at: Option<Timestamp>) -> RancherToken {
    RancherToken {
        name: "kubeconfig-user-x".into(),
        ext: false,
        ttl_ms: Some(ttl_ms),
        created_at: Some(made),
        expires_at,
        expired: false,
        enabled: Some(true),
        unread: Vec::new(),
    }
}

fn credential(id: &str) -> CloudCredential {
    CloudCredential {
        id: id.into(),
        name: "lab".into(),
        kind: CloudKind::Harvester,
        created_at: Some(ago(20 * DAY)),
        expiration: None,
        made_to_last: false,
        kubeconfig: Some(known(ranchers())),
        token: known(rancher_token(30 * 86_400_000, ago(20 * DAY), Some(ahead(10 * DAY)))),
        key_hint: String::new(),
        temporary: false,
        used_by: known(vec!["fleet-default/prod".into(), "fleet-default/test".into()]),
    }
}

fn cloud(credentials: Vec<CloudCredential>, subject: &str) -> Finding {
    let all =
        CloudCredentials { server: "https://127.0.0.1:6443".into(), credentials, others: 0, left_out: 0 };
    of(&facts(Vec::new(), Some(known(all))), subject)
}

fn only(change: impl FnOnce(&mut CloudCredential)) -> Finding {
    cloud(vec![credential("cc-1").with(change)], "cc-1")
}
