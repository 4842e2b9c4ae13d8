//! Tests of the driver `neutron`. `cloud` runs against a real Keystone and Neutron.

mod cloud;
mod plan;
mod properties;
mod world;
