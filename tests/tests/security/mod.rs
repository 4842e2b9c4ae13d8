//! What the parts may do, what their pods may do, and what nobody gets to see.

mod account;
mod canary;
mod encrypted;
mod flood;
mod injection;
mod lived;
mod pod_security;
mod quota;
mod record;
mod refused;
mod rights;
