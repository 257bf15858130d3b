//! `EtcdVersions`: whether all members run one version, by the newest answer of each in any report.

use outrider_protocol::MemberList;

use super::{Joined, join};
use crate::finding::Finding;
use crate::rules::etcd::versions;
use crate::rules::etcd::view::{self, display_name};

pub(super) fn judge(joined: &Joined<'_>, list: &MemberList) -> Finding {
    let told = list.members.iter().map(|member| {
        let own = join::answer(joined, member).filter(|(_, s)| !view::is_of_another(s, &list.cluster_id));
        let version = own.map(|(_, status)| status.version.as_str());
        (display_name(member), version)
    });
    versions::judge(told, joined.at)
}
