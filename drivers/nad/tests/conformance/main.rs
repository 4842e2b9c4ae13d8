//! The conformance suite of southbound drivers, on a real kube-apiserver and with the driver's own role.

#[path = "../common/mod.rs"]
mod common;
mod proxy;
mod rig;

eno_sbi::conformance_tests!(rig::Namespaced::new().await);
