//! Real peers on loopback, in folders and processes of their own: started, broken and stopped by the suites.

pub mod balancer;
pub mod etcd;
pub mod namespaces;
pub mod pki;
