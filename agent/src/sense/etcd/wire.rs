//! The few messages of etcd's client API that we send and read.
//!
//! Field numbers follow `etcdserverpb/rpc.proto` and `mvccpb/kv.proto` of etcd's `api` module (3.4 to 3.6); fields we
//! do not read are left out and skipped by the decoder. No message here can change a cluster: the alarm request has
//! no fields, and an empty one means GET.

/// `etcdserverpb.ResponseHeader`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResponseHeader {
    /// Cluster that answered.
    #[prost(uint64, tag = "1")]
    pub cluster_id: u64,
    /// Member that answered.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// Its raft term: every election makes it grow.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// `etcdserverpb.Member`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Member {
    /// Id.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Name; empty until it has started once.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Recorded peer URLs.
    #[prost(string, repeated, tag = "3")]
    pub peer_urls: Vec<String>,
    /// Published client URLs.
    #[prost(string, repeated, tag = "4")]
    pub client_urls: Vec<String>,
    /// Learner.
    #[prost(bool, tag = "5")]
    pub is_learner: bool,
}

/// `etcdserverpb.MemberListRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberListRequest {
    /// Since 3.5: answer only what a quorum agrees on. Older servers skip it and answer what they hold themselves.
    #[prost(bool, tag = "1")]
    pub linearizable: bool,
}

/// `etcdserverpb.MemberListResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MemberListResponse {
    /// Who answered.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Voters and learners.
    #[prost(message, repeated, tag = "2")]
    pub members: Vec<Member>,
}

/// `etcdserverpb.StatusRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusRequest {}

/// `etcdserverpb.StatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StatusResponse {
    /// Who answered.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Server version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Size of the database file in bytes.
    #[prost(int64, tag = "3")]
    pub db_size: i64,
    /// Member id of the leader; 0 when there is none.
    #[prost(uint64, tag = "4")]
    pub leader: u64,
    /// Raft index.
    #[prost(uint64, tag = "5")]
    pub raft_index: u64,
    /// Raft term.
    #[prost(uint64, tag = "6")]
    pub raft_term: u64,
    /// Applied index.
    #[prost(uint64, tag = "7")]
    pub raft_applied_index: u64,
    /// What it complains about.
    #[prost(string, repeated, tag = "8")]
    pub errors: Vec<String>,
    /// Bytes in use inside the file.
    #[prost(int64, tag = "9")]
    pub db_size_in_use: i64,
    /// Learner.
    #[prost(bool, tag = "10")]
    pub is_learner: bool,
    /// Quota in bytes, since 3.6.
    #[prost(int64, tag = "12")]
    pub db_size_quota: i64,
}

/// `etcdserverpb.AlarmRequest` with every field at its default: action GET, all members, all kinds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmGetRequest {}

/// `etcdserverpb.AlarmMember`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmMember {
    /// The member it is set on.
    #[prost(uint64, tag = "1")]
    pub member_id: u64,
    /// 1 = NOSPACE, 2 = CORRUPT.
    #[prost(int32, tag = "2")]
    pub alarm: i32,
}

/// `etcdserverpb.AlarmResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AlarmResponse {
    /// Alarms that are set.
    #[prost(message, repeated, tag = "2")]
    pub alarms: Vec<AlarmMember>,
}

/// `etcdserverpb.RangeRequest` for one key, linearizable (the default of the field we leave out).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadRequest {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// Count only: the value, if there ever is one, stays there.
    #[prost(bool, tag = "9")]
    pub count_only: bool,
}

/// `etcdserverpb.RangeResponse`, of which the arrival is what counts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadResponse {
    /// Who answered.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// `etcdserverpb.RangeRequest` for the names of keys; values are never asked for.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeysRequest {
    /// The first key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The first key after them.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// Most keys in the answer.
    #[prost(int64, tag = "3")]
    pub limit: i64,
    /// Answer what the member itself holds.
    #[prost(bool, tag = "7")]
    pub serializable: bool,
    /// Without values.
    #[prost(bool, tag = "8")]
    pub keys_only: bool,
}

/// `mvccpb.KeyValue`, of which the key alone is decoded.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Key {
    /// The key.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
}

/// `etcdserverpb.RangeResponse`, of which the keys are read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeysResponse {
    /// The keys.
    #[prost(message, repeated, tag = "2")]
    pub keys: Vec<Key>,
    /// There are more than the limit.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn an_alarm_request_is_empty_and_thus_a_get() {
        assert!(AlarmGetRequest {}.encode_to_vec().is_empty());
    }

    #[test]
    fn a_value_that_came_anyway_is_not_decoded() {
        // kvs { key: "a", value: "s3cret" }
        let bytes = [0x12, 0x0b, 0x0a, 0x01, b'a', 0x2a, 0x06, b's', b'3', b'c', b'r', b'e', b't'];
        let answer = KeysResponse::decode(&bytes[..]).unwrap();
        assert_eq!(answer, KeysResponse { keys: vec![Key { key: b"a".to_vec() }], more: false });
    }

    #[test]
    fn unknown_fields_are_skipped() {
        // Field 13 (downgrade information of 3.6) holding a message, then the version.
        let bytes = [0x6a, 0x02, 0x08, 0x01, 0x12, 0x03, b'3', b'.', b'6'];
        assert_eq!(StatusResponse::decode(&bytes[..]).unwrap().version, "3.6");
    }
}
