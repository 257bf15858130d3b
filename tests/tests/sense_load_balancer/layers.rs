//! A balancer that works at another layer than its configuration says.

use super::*;

/// Backends that are taken for the wrong one of TLS and plain http say so, and are asked again in what they speak.
#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn a_layer_that_is_configured_wrongly_is_found_out_at_the_backends() {
    let Some((bed, l4, l7)) = bed(&Options::default()) else { return };
    let as_l4 = LoadBalancerSettings {
        mode: BalancerMode::L4,
        backends: vec![bed.backend_http(0), bed.backend_http(1)],
        ..l7
    };
    let facts = pass(&as_l4, LIMIT).await;
    assert_eq!(
        (&facts.mode, &facts.found_mode),
        (&BalancerMode::L4, &BalancerMode::L7),
        "{}",
        facts.found_by
    );
    assert!(facts.found_by.contains("plain http"), "{}", facts.found_by);
    assert_eq!(statuses(&facts, Backend, ProbeKind::ForwardedRoot), [200; 2]);
    let refused = tries(&facts, Backend, ProbeKind::Connect);
    let refused: Vec<_> = refused.iter().filter_map(|p| cause(&p.tls)).collect();
    assert_eq!(refused, [&UnknownCause::TlsFailed; 2], "it was asked for TLS first");

    let as_l7 = LoadBalancerSettings { mode: BalancerMode::L7, ..l4 };
    let facts = pass(&as_l7, LIMIT).await;
    assert_eq!(
        (&facts.mode, &facts.found_mode),
        (&BalancerMode::L7, &BalancerMode::L4),
        "{}",
        facts.found_by
    );
    assert!(facts.found_by.contains("the very certificate"), "{}", facts.found_by);
    assert_eq!(
        statuses(&facts, Backend, ProbeKind::ForwardedRoot),
        [400; 2],
        "it was asked for plain http first"
    );
    assert!(answers(&facts, Backend, ProbeKind::Ping).iter().any(|a| a.body_start == "pong"), "{facts:#?}");
}
