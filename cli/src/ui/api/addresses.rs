//! Addresses and VLAN IDs, as `eno addresses` answers.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use serde::{Deserialize, Serialize};

use super::{Answer, ApiError};
use crate::inspect::addresses::{self, Addresses, Held};
use crate::ui::{App, state};

pub(super) async fn addresses(State(app): State<App>) -> Json<Addresses> {
    Json(known(&app.state()))
}

fn known(state: &state::State) -> Addresses {
    let world = &state.world;
    let pod = |metadata| PartialObjectMeta::<Pod> { metadata, ..PartialObjectMeta::default() };
    let pods: Vec<_> = world.pods().map(|info| pod(info.metadata.clone())).collect();
    let left_out = world.left_out().iter().map(ToString::to_string).collect();
    Addresses { left_out, ..addresses::addresses(world, &pods, &state.reports) }
}

#[derive(Deserialize)]
pub(super) struct Asked {
    address: String,
}

#[derive(Serialize)]
pub(super) struct AddressAnswer {
    lines: Vec<String>,
    leases: Vec<Held>,
}

pub(super) async fn address(
    State(app): State<App>,
    Query(Asked { address }): Query<Asked>,
) -> Answer<AddressAnswer> {
    let parsed: IpAddr = address.trim().parse().map_err(|_| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("{address:?} is no address."),
            "Write an address without a prefix length, such as 10.1.2.3 or 2001:db8::1.",
        )
    })?;
    let mut known = known(&app.state());
    let lines = known.about(parsed);
    known.leases.retain(|lease| lease.address == parsed);
    Ok(Json(AddressAnswer { lines, leases: known.leases }))
}
