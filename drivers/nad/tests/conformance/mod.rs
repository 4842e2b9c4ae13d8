//! The conformance suite of southbound drivers, on a real kube-apiserver and with the driver's own role.

mod proxy;
mod rig;

eno_conformance::conformance_tests!(rig::Namespaced::new().await);
