//! Tests of the driver `neutron`. `cloud` runs against a real Keystone and Neutron, `logins` against servers that record
//! what they are sent, and `floods` against servers that send without an end.

mod cloud;
mod floods;
mod logins;
mod plan;
mod properties;
mod world;
