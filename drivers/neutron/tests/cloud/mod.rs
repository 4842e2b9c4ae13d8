//! Tests against a real Keystone and Neutron.

mod changes;
mod conformance;
mod crash;
mod fixture;
mod inputs;
mod lanes;
mod large_answers;
mod proxy;
