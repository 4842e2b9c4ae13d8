//! The conformance suite with a real kube-apiserver and the driver's own role.

mod fixture;
mod proxy;

eno_conformance::conformance_tests!(fixture::SpeakerFixture::new().await);
