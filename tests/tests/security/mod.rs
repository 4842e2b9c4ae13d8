//! Permissions of the parts, confinement of their pods, and secrecy of credentials.

mod canaries;
mod fairness;
mod forbidden_requests;
mod forged_commands;
mod full_run;
mod nats_tls;
mod node_logins;
mod permissions;
mod pod_security;
mod quota;
mod secrets_and_permissions;
mod service_accounts;
mod stolen_keys;
mod text_injection;
