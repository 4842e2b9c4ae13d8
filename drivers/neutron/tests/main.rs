//! Tests of the driver `neutron`. `cloud` runs against a real Keystone and Neutron,
//! and `logins` against servers that record what they are sent.

mod cloud;
mod logins;
mod plan;
mod properties;
mod world;
