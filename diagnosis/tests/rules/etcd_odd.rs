//! Answers that no etcd gives: whatever they are worth, they are no verdict.

use outrider_diagnosis::judge;
use outrider_protocol::*;

use crate::etcd_verdict::{etcd_node, found};
use crate::expect;
use crate::fleet_world::World;
use crate::world::{Change, etcd, list_mut};

#[test]
fn a_list_with_members_without_an_id_is_no_list() {
    for nameless in [vec![2], vec![1, 2, 3]] {
        let e = etcd(3).with(|e| nameless.iter().for_each(|n| list_mut(e).members[n - 1].id.clear()));
        let words = [format!("{} of its 3 members have no id", nameless.len())];
        let words = [words[0].as_str()];
        for of in [ConditionType::EtcdQuorum, ConditionType::EtcdMembership] {
            let f = found(e.clone(), of);
            expect(&f, Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &words);
        }
        for f in judge(&etcd_node(e.clone())).findings {
            assert!(!f.advice.contains("empties") && !f.message.contains("was removed"), "{f:#?}");
        }
        // Nor do all reports together make one of it.
        let world =
            World::of(3).every(|_, e| nameless.iter().for_each(|n| list_mut(e).members[n - 1].id.clear()));
        let f = world.quorum();
        expect(&f, Status::Unknown, Severity::Warn, ReasonCode::EtcdNoMembers, &words);
    }
}
