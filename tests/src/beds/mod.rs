//! Real peers in folders and processes of their own, on loopback or in network namespaces: started, broken and stopped by
//! the suites.

pub mod api;
pub mod balancer;
pub mod etcd;
pub mod kube_apiserver;
pub mod network;
pub mod overlay;
pub mod pki;
pub mod rancher;
pub mod rke2;
pub mod servers;
